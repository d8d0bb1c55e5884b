#!/usr/bin/env python3
"""The Python package: its tests, its types, and the wheel in an environment of its own.

    python3 scripts/checks/python_check.py --shardify target/release/shardify [--profile ci]

Builds the wheels by maturin with a profile of cargo whose program is built already: for every Python, and with the extension. Runs
python/tests with the program under test, the extension and stock readers, then mypy --strict and ruff. Installs each wheel without
dependencies in a fresh environment, and converts and finds there, by the package, by `shardify` and by `python -m shardify`; with the
extension it also trains an epoch if NumPy is here. What is not installed is named. Exit code 1 if something fails.
"""

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import venv
import zipfile

from harness import Failure, expect, finish, not_run

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Largest extension, in bytes, of a profile without link-time optimisation. A larger one has its debug symbols.
LARGEST = 45_000_000

SESSION = """
import pathlib, shardify, sys
folder = pathlib.Path(sys.argv[1])
(folder / "raw.csv").write_text("id,who\\n" + "".join(f"{i},PAT-{i % 3}\\n" for i in range(30)))
report = shardify.convert(folder / "raw.csv", out=folder / "shards", id="id", subject="who")
assert report.records_out == 30, report
assert len(shardify.find(folder / "shards", "PAT-1")) == 10
assert shardify.open(folder / "shards").records == 30
try:
    shardify.open(folder / "nothing")
except shardify.UsageError as error:
    assert error.hints, error
else:
    raise AssertionError("opened nothing")
"""

# What the two wheels differ in.
LOADER = """
import shardify, sys
loader = shardify.open(sys.argv[1] + "/shards").loader(global_batch_size=10, seed=1)
numbers = sorted(number for batch in loader for number in batch.records.tolist())
assert numbers == list(range(30)), numbers
assert loader.state_dict()["step"] == 3
"""
NO_LOADER = """
import shardify, sys
loader = shardify.open(sys.argv[1] + "/shards").loader(global_batch_size=10, seed=1)
try:
    len(loader)
except shardify.MissingPackageError as error:
    assert "_native" in error.message and error.hints, error
else:
    raise AssertionError("there was a loader")
"""


def ran(title, command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, **more)
    if done.returncode != 0:
        raise Failure(f"{title} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    print(f"ok    {title}", flush=True)
    return done.stdout + done.stderr


def tests(program, extension):
    said = ran(
        "tests",
        [sys.executable, "-m", "unittest", "discover", "-s", str(ROOT / "python" / "tests")],
        env={**os.environ, "SHARDIFY_BINARY": program, "SHARDIFY_EXTENSION": str(extension or "")},
    )
    for line in said.splitlines():
        if line.startswith("NOT RUN"):
            print(line)


def lints():
    for module, arguments in (("mypy", []), ("ruff", ["check", "python"])):
        if importlib.util.find_spec(module) is None:
            not_run(f"python_check: {module}", "it is not installed")
        else:
            ran(module, [sys.executable, "-m", module, *arguments], cwd=ROOT)


def wheels(profile, folder):
    """Builds both wheels; returns them, or nothing."""
    if importlib.util.find_spec("maturin") is None:
        not_run("python_check: the wheels", "maturin is not installed")
        return []
    command = [sys.executable, str(ROOT / "scripts" / "packaging" / "shardify_build.py"), "--profile", profile, "--out", str(folder)]
    ran("the wheels are built", command, cwd=ROOT)
    pure, full = sorted(folder.glob("*-py3-none-*.whl")), sorted(folder.glob("*-cp310-abi3-*.whl"))
    if len(pure) != 1 or len(full) != 1:
        raise Failure(f"expected a wheel for every Python and one with the extension, found {[one.name for one in folder.iterdir()]}")
    return [*pure, *full]


def extension_of(wheel, folder):
    """The extension in a wheel, as a file."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.startswith("shardify/_native") and name.endswith(".so"))
        size = file.getinfo(name).file_size
        print(f"      {name}: {size / 1e6:.1f} MB")
        if size > LARGEST:
            raise Failure(f"expected an extension of at most {LARGEST / 1e6:.0f} MB, found {size / 1e6:.1f} MB")
        return pathlib.Path(file.extract(name, folder / "extension"))


def installed(wheel, folder, has_loader):
    folder.mkdir()
    # The loader needs NumPy, which is taken from here: nothing is fetched.
    has_numpy = has_loader and importlib.util.find_spec("numpy") is not None
    venv.create(folder / "env", with_pip=True)
    python = str(folder / "env" / "bin" / "python")
    # Nothing of the checkout, and no program in the path.
    alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SHARDIFY_BINARY", "SHARDIFY_EXTENSION")}
    alone["PATH"] = "/usr/bin:/bin"
    kind = "with the extension" if has_loader else "for every Python"
    ran(f"the wheel {kind} is installed", [python, "-m", "pip", "install", "--no-index", "--no-deps", str(wheel)], env=alone, cwd=folder)
    ran(f"a session {kind}", [python, "-c", SESSION, str(folder)], env=alone, cwd=folder)
    if not has_loader:
        ran("no loader, and why", [python, "-c", NO_LOADER, str(folder)], env=alone, cwd=folder)
    elif has_numpy:
        numpy = str(pathlib.Path(importlib.util.find_spec("numpy").origin).parents[1])
        last = f"import sys; sys.path.append({numpy!r})\n"
        ran("an epoch", [python, "-c", last + LOADER, str(folder)], env=alone, cwd=folder)
    else:
        not_run("python_check: an epoch with the wheel", "numpy is not installed")
    program = [str(folder / "env" / "bin" / "shardify"), "--version"]
    one, other = ran("the program", program, env=alone), ran("the module", [python, "-m", "shardify", "--version"], env=alone, cwd=folder)
    expect("version", one, other)
    print(f"      {wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--profile", default="ci", help="of cargo, for the wheels")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        made = wheels(options.profile, folder)
        tests(str(pathlib.Path(options.shardify).resolve()), extension_of(made[1], folder) if made else None)
        lints()
        for has_loader, wheel in enumerate(made):
            installed(wheel, folder / f"alone{has_loader}", bool(has_loader))
    return 0


if __name__ == "__main__":
    finish(main)
