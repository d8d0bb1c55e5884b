#!/usr/bin/env python3
"""Builds what is released: the wheels, an archive with the program, and their checksums.

    pip install maturin ziglang                # beside cargo
    python3 scripts/release.py build           # -> target/dist
    python3 scripts/release.py prove [--debian target/debian11]

`build` compiles with the cargo profile `dist` and links with zig against glibc 2.17 (manylinux2014), so the program runs on every Linux
since 2014. It takes about fifteen minutes on two cores. Both wheels and the archive hold the same program: one wheel has the extension
with the training loader, for CPython 3.10 and later, the other is for every Python.

`prove` takes what `build` left in the folder: checks the sums and sizes, installs each wheel in a fresh environment without a compiler or
a checkout in sight, and converts and finds there. With `--debian`, it does so again in a Debian 11 that debootstrap has
made there (as root): first the program of the archive, then the wheel with the extension where the chroot has Python 3.10 or later. What is
not run is named.
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
# Of the wheel for any Python, and of that with the extension; both are for glibc 2.17.
TAGS = ("py3-none-", "cp310-abi3-")
PLATFORM = "manylinux2014_x86_64"
PROGRAM = "shardify"
# Most of the program is instances of generic code, and inlining less makes it smaller without making it slower. Cargo has no such
# setting for a profile.
RUSTFLAGS = "-C llvm-args=-inline-threshold=60"
# A program of this size or more has its debug symbols, or something large has crept in.
LARGEST = 40_000_000
# Most of it are the conversions and decoders of Parquet, and the clients of object stores.
LARGEST_EXTENSION = 21_000_000
# The wheel with the extension, compared with the other one.
LARGEST_RATIO = 1.7
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


# Batches are arrays of NumPy, which is not there; the length of an epoch is.
EXTENSION = """
import shardify, sys
for form in ("parquet", "tar", "tfrecord"):
    assert len(shardify.open(f"{sys.argv[1]}/{form}").loader(global_batch_size=100, seed=1)) == 30
"""


def version():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def built(out):
    """The wheels and the archive in the folder; the archive may be still to be written."""
    found = [[path for path in out.glob(f"shardify-{version()}-{tag}*.whl") if PLATFORM in path.name] for tag in TAGS]
    if any(len(wheels) != 1 for wheels in found):
        there = ", ".join(path.name for path in out.glob("*")) or "nothing"
        sys.exit(f"FAILED: expected a wheel {' and one '.join(TAGS)} for {PLATFORM} in {out}, found {there}")
    return [wheel for wheels in found for wheel in wheels], out / f"shardify-{version()}-{TARGET}.tar.gz"


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
    command = [sys.executable, str(ROOT / "scripts" / "packaging" / "shardify_build.py"), "--profile", "dist", "--out", str(out)]
    command += ["--zig", "--compatibility", "manylinux2014", "--target", TARGET, "--locked"]
    # maturin asks the first Python in the path for zig.
    path = os.pathsep.join((str(pathlib.Path(sys.executable).parent), os.environ["PATH"]))
    flags = " ".join(filter(None, (os.environ.get("RUSTFLAGS"), RUSTFLAGS)))
    environment = {**os.environ, "PATH": path, "RUSTFLAGS": flags}
    subprocess.run(command, cwd=ROOT, check=True, env=environment)
    pack(out)


def pack(out):
    """Writes the archive and the checksums beside the wheels."""
    wheels, archive = built(out)
    write_archive(archive, program_of(wheels[0]))
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in (archive, *wheels))
    (out / SUMS).write_text(sums)
    print(sums, end="")


def program_of(wheel):
    """The program in a wheel."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(f".data/scripts/{PROGRAM}"))
        return file.read(name)


def extension_size(wheel):
    """Bytes of the extension in a wheel, which is not compressed."""
    with zipfile.ZipFile(wheel) as file:
        (size,) = (one.file_size for one in file.infolist() if one.filename.startswith("shardify/_native") and one.filename.endswith(".so"))
        return size


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
    (plain, full), archive = built(out)
    run("checksums", ["sha256sum", "--check", "--strict", SUMS], cwd=out)
    for what, size, largest in (
        ("a program", len(program_of(plain)), LARGEST),
        ("an extension", extension_size(full), LARGEST_EXTENSION),
        ("a wheel with the extension", full.stat().st_size, int(LARGEST_RATIO * plain.stat().st_size)),
    ):
        print(f"      {what} of {size / 1e6:.1f} MB")
        if size >= largest:
            sys.exit(f"FAILED: expected {what} of less than {largest / 1e6:.0f} MB, found {size / 1e6:.1f} MB")
    if program_of(plain) != program_of(full):
        sys.exit("FAILED: expected the same program in both wheels")
    print(f"      wheels {plain.stat().st_size / 1e6:.1f} and {full.stat().st_size / 1e6:.1f} MB, archive {archive.stat().st_size / 1e6:.1f} MB")
    for wheel in (plain, full):
        with tempfile.TemporaryDirectory() as folder:
            in_environment(wheel, pathlib.Path(folder))
    if debian is None:
        print("NOT RUN: Debian 11: no --debian")
    else:
        in_chroot(full, archive, debian)


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
    if TAGS[1] in wheel.name:
        run("the extension opens a dataset", [python, "-c", EXTENSION, folder / "session"], env=alone, cwd=folder)


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
