#!/usr/bin/env python3
"""Builds what is released: the wheel, an archive with the program, and their checksums.

    pip install maturin ziglang                # beside cargo
    python3 scripts/release.py build           # -> target/dist
    python3 scripts/release.py prove [--debian target/debian11]

`build` compiles with the cargo profile `dist` and links with zig against glibc 2.17 (manylinux2014), so the program runs on every Linux
since 2014. It takes about ten minutes on two cores. The archive holds the program of the wheel: nothing is compiled twice.

`prove` takes what `build` left in the folder: checks the sums and sizes, installs the wheel in a fresh environment without a compiler or
a checkout in sight, and converts and finds there. With `--debian`, it does so again in a Debian 11 that debootstrap has
made there (as root): first the program of the archive, then the wheel where the chroot has Python 3.10 or later. What is not run is named.
"""

import argparse
import gzip
import hashlib
import importlib.util
import io
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
# Parts of the name of the wheel: any Python, and glibc 2.17.
TAGS = ("py3-none-", "manylinux2014_x86_64")
PROGRAM = "shardify"
# Most of the program is instances of generic code, and inlining less makes it smaller without making it slower. Cargo has no such
# setting for a profile.
RUSTFLAGS = "-C llvm-args=-inline-threshold=60"
# A program of this size or more has its debug symbols, or something large has crept in.
LARGEST = 40_000_000
DOCUMENTS = ("README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT")
SUMS = "SHA256SUMS"

# What a user does first, by the package and by the program.
SESSION = """
import pathlib, subprocess, sys, shardify
folder = pathlib.Path(sys.argv[1])
folder.mkdir()
(folder / "raw.csv").write_text("id,who\\n" + "".join(f"{i},PAT-{i % 3}\\n" for i in range(3000)))
for form in ("parquet", "tar", "tfrecord"):
    out = folder / form
    report = shardify.convert(folder / "raw.csv", out=out, id="id", subject="who", to=form, index=["energon"] if form == "tar" else None)
    assert report.records_out == 3000, report
    assert len(shardify.find(out, "PAT-1")) == 1000
    assert shardify.verify(out, read_data=True)
    assert shardify.open(out).records == 3000
try:
    shardify.open(folder / "nothing")
except shardify.UsageError as error:
    assert error.hints, error
else:
    raise AssertionError("opened nothing")
module = subprocess.run([sys.executable, "-m", "shardify", "--version"], capture_output=True, text=True, check=True).stdout
assert module.split() == ["shardify", shardify.version()], module
print("shardify", shardify.version(), "on Python", sys.version.split()[0])
"""


def version():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def built(out):
    """The wheel and the archive in the folder; the archive may be still to be written."""
    wheels = [path for path in out.glob(f"shardify-{version()}-*.whl") if all(tag in path.name for tag in TAGS)]
    if len(wheels) != 1:
        sys.exit(f"FAILED: expected one wheel {' '.join(TAGS)} in {out}, found {', '.join(path.name for path in out.glob('*')) or 'nothing'}")
    return wheels[0], out / f"shardify-{version()}-{TARGET}.tar.gz"


def run(title, command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"FAILED: {title} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    print(f"ok    {title}", flush=True)
    return done.stdout


def build(out):
    for module in ("maturin", "ziglang"):
        if importlib.util.find_spec(module) is None:
            sys.exit(f"{module} is missing: {sys.executable} -m pip install maturin ziglang")
    shutil.rmtree(out, ignore_errors=True)
    command = [sys.executable, "-m", "maturin", "build", "--profile", "dist", "--zig", "--compatibility", "manylinux2014", "--target", TARGET]
    # maturin asks the first Python in the path for zig.
    path = os.pathsep.join((str(pathlib.Path(sys.executable).parent), os.environ["PATH"]))
    flags = " ".join(filter(None, (os.environ.get("RUSTFLAGS"), RUSTFLAGS)))
    environment = {**os.environ, "PATH": path, "RUSTFLAGS": flags}
    subprocess.run([*command, "--locked", "--out", str(out)], cwd=ROOT, check=True, env=environment)
    pack(out)


def pack(out):
    """Writes the archive and the checksums beside the wheel."""
    wheel, archive = built(out)
    write_archive(archive, program_of(wheel))
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in (archive, wheel))
    (out / SUMS).write_text(sums)
    print(sums, end="")


def program_of(wheel):
    """The program in a wheel."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(f".data/scripts/{PROGRAM}"))
        return file.read(name)


def write_archive(path, program):
    """Writes the program and its documents; the same ones give the same bytes, since times and owners are those of nobody."""
    folder = path.name.removesuffix(".tar.gz")
    members = [(PROGRAM, program, 0o755), *((name, (ROOT / name).read_bytes(), 0o644) for name in DOCUMENTS)]
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content, mode in members:
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode = len(content), mode
            tar.addfile(member, io.BytesIO(content))


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def prove(out, debian):
    wheel, archive = built(out)
    run("checksums", ["sha256sum", "--check", "--strict", SUMS], cwd=out)
    size = len(program_of(wheel))
    if size >= LARGEST:
        sys.exit(f"FAILED: expected a program of less than {LARGEST / 1e6:.0f} MB, found {size / 1e6:.1f} MB")
    sizes = (("program", size), ("wheel", wheel.stat().st_size), ("archive", archive.stat().st_size))
    print("      " + ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes))
    with tempfile.TemporaryDirectory() as folder:
        in_environment(wheel, pathlib.Path(folder))
    if debian is None:
        print("NOT RUN: Debian 11: no --debian")
    else:
        in_chroot(wheel, archive, debian)


def in_environment(wheel, folder):
    """The wheel in an environment of its own, with no compiler, program or checkout in the path."""
    venv.create(folder / "env", with_pip=True)
    python = folder / "env" / "bin" / "python"
    alone = {"PATH": str(python.parent), "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    for tool in ("cargo", "rustc", "cc"):
        if shutil.which(tool, path=alone["PATH"]):
            sys.exit(f"FAILED: expected no {tool} in {alone['PATH']}")
    run("the wheel is installed", [python, "-m", "pip", "install", "--no-index", "--no-deps", wheel], env=alone, cwd=folder)
    print("      " + run("a session without Rust", [python, "-c", SESSION, folder / "session"], env=alone, cwd=folder), end="")


def in_chroot(wheel, archive, debian):
    """The archive, and then the wheel, in a Debian of 2021 with glibc 2.31."""
    if os.geteuid() != 0:
        print("NOT RUN: Debian 11: a chroot needs root")
        return
    if not (debian / "etc" / "debian_version").is_file():
        if shutil.which("debootstrap") is None:
            print("NOT RUN: Debian 11: debootstrap is not installed")
            return
        run("debootstrap", ["debootstrap", "--variant=minbase", "bullseye", debian])
    alone = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
    release = (debian / "etc" / "debian_version").read_text().strip()
    work = debian / "release"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    shutil.copy(wheel, work)
    with tarfile.open(archive) as tar:
        tar.extractall(work, filter="data")
    shutil.copytree(ROOT / "testdata" / "patients", work / "patients")
    program = f"/release/{archive.name.removesuffix('.tar.gz')}/{PROGRAM}"
    inside = [shutil.which("chroot") or "/usr/sbin/chroot", debian]
    for words in (
        ["--version"],
        ["convert", "/release/patients", "--subject", "person_id", "--out", "/release/out"],
        ["manifest", "/release/out", "--find", "7", "--limit", "1"],
        ["erase", "/release/out", "7", "--all-versions"],
        ["verify", "/release/out", "--read-data"],
    ):
        run(f"Debian {release}: {PROGRAM} {words[0]}", [*inside, program, *words], env=alone)
    python = next((name for name in ("python3.12", "python3.11", "python3.10") if (debian / "usr" / "local" / "bin" / name).is_file()), None)
    if python is None:
        print(f"NOT RUN: the wheel in Debian {release}: it needs Python 3.10 or later in /usr/local/bin of the chroot")
        return
    run(f"Debian {release}: the wheel", [*inside, python, "-m", "venv", "/release/env"], env=alone)
    pip = [*inside, "/release/env/bin/python", "-m", "pip", "install", "--no-index", "--no-deps", f"/release/{wheel.name}"]
    run(f"Debian {release}: the wheel is installed", pip, env=alone)
    session = [*inside, "/release/env/bin/python", "-c", SESSION, "/release/session"]
    print("      " + run(f"Debian {release}: a session", session, env=alone), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("build", "prove"))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target" / "dist", help="folder of what is built [default: target/dist]")
    parser.add_argument("--debian", type=pathlib.Path, help="folder of a Debian 11; made if it is missing")
    options = parser.parse_args()
    if options.step == "build":
        build(options.out.resolve())
    else:
        prove(options.out.resolve(), options.debian and options.debian.resolve())


if __name__ == "__main__":
    main()
