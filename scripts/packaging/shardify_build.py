"""Builds wheels: the backend of pyproject.toml, and a command for checks and releases.

    python3 scripts/packaging/shardify_build.py --profile dist --out target/dist [--pure] [MATURIN OPTION ...]

A wheel of maturin has a program or an extension, not both. So the program is built first, as a wheel for every Python (`py3-none`), and
taken from there into the scripts of the wheel with the extension (`cp310-abi3`). Both are left in the folder; with `--pure`, the
first alone. `pip install .` takes the second, and the first where the extension does not load: PyPy and free-threaded builds.
"""

import argparse
import contextlib
import io
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

import maturin
from maturin import (
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What maturin takes for scripts of the wheel: `data` in pyproject.toml.
SCRIPTS = ROOT / "python" / "shardify.data" / "scripts"
PROGRAM = "shardify"
# The program of the wheels has every index and every input format.
FEATURES = "energon,excel"


def build(out, profile, options, pure):
    """Builds the wheels; the last one is the most complete one."""
    out = pathlib.Path(out).resolve()
    # A program of an earlier build would be in the wheel twice.
    shutil.rmtree(SCRIPTS, ignore_errors=True)
    SCRIPTS.mkdir(parents=True)
    common = ["--profile", profile, "--out", str(out), *options]
    made = [_run(["--manifest-path", "Cargo.toml", "--bindings", "bin", "--features", FEATURES, *common], out)]
    if not pure:
        with _script(made[0]):
            made.append(_run(common, out))
    return made


@contextlib.contextmanager
def _script(wheel):
    """The program of a wheel as a script of the next one."""
    (SCRIPTS / PROGRAM).write_bytes(program_of(wheel))
    (SCRIPTS / PROGRAM).chmod(0o755)
    try:
        yield
    finally:
        (SCRIPTS / PROGRAM).unlink()


def _run(options, out):
    """Runs `maturin build`; returns the wheel that it has made."""
    before = set(out.glob("*.whl"))
    environment = dict(os.environ)
    if not shutil.which("cargo"):
        # One of the requirements that maturin has where there is no Rust.
        from puccinialin import setup_rust

        environment.update(setup_rust())
    subprocess.run([sys.executable, "-m", "maturin", "build", *options], cwd=ROOT, check=True, env=environment)
    (made,) = set(out.glob("*.whl")) - before
    return made


def program_of(wheel):
    """The program in a wheel."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(f".data/scripts/{PROGRAM}"))
        return file.read(name)


def loads_extension():
    """Whether this Python loads extensions of the stable ABI."""
    return sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel for this Python, with the profile `release` unless `$SHARDIFY_BUILD_PROFILE` names another one."""
    with tempfile.TemporaryDirectory() as folder:
        made = build(folder, _profile(), ["--compatibility", "off"], pure=not loads_extension())[-1]
        shutil.copy(made, wheel_directory)
        return made.name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """A wheel that leads to the package in the checkout, where the extension is put, too."""
    with tempfile.TemporaryDirectory() as folder:
        (plain,) = build(folder, _profile(), ["--compatibility", "off"], pure=True)
        with _script(plain):
            return maturin.build_editable(wheel_directory, {"build-args": ["--profile", _profile()]}, metadata_directory)


def _profile():
    return os.environ.get("SHARDIFY_BUILD_PROFILE", "release")


def build_sdist(sdist_directory, config_settings=None):
    """An archive of the files that git knows: the whole workspace, since the program and the extension are both in it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    with tempfile.TemporaryDirectory() as folder:
        facts = pathlib.Path(folder, prepare_metadata_for_build_wheel(folder), "METADATA").read_bytes()
    version = next(line.split(": ", 1)[1] for line in facts.decode().splitlines() if line.startswith("Version: "))
    top = f"{PROGRAM}-{version}"
    with tarfile.open(pathlib.Path(sdist_directory, f"{top}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name in filter(None, listed):
            tar.add(ROOT / name, f"{top}/{name}", recursive=False)
        member = tarfile.TarInfo(f"{top}/PKG-INFO")
        member.size = len(facts)
        tar.addfile(member, io.BytesIO(facts))
    return f"{top}.tar.gz"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", default="release", help="of cargo")
    parser.add_argument("--out", required=True, help="folder for the wheels")
    parser.add_argument("--pure", action="store_true", help="only the wheel without the extension")
    options, others = parser.parse_known_args()
    for wheel in build(options.out, options.profile, others, options.pure):
        print(wheel)


if __name__ == "__main__":
    main()
