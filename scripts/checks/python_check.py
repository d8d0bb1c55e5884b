#!/usr/bin/env python3
"""The Python package: its tests, its types, and the wheel in an environment of its own.

    python3 scripts/checks/python_check.py --shardify target/release/shardify [--profile ci]

Runs python/tests with the program under test and with stock readers, then mypy --strict and ruff. Builds the wheel by maturin with a
profile of cargo whose program is built already, installs it without dependencies in a fresh environment, and converts and finds
there, by the package, by `shardify` and by `python -m shardify`. What is not installed is named. Exit code 1 if something fails.
"""

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

from harness import Failure, expect, finish, not_run

ROOT = pathlib.Path(__file__).resolve().parents[2]

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


def ran(title, command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, **more)
    if done.returncode != 0:
        raise Failure(f"{title} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    print(f"ok    {title}", flush=True)
    return done.stdout + done.stderr


def tests(program):
    said = ran(
        "tests",
        [sys.executable, "-m", "unittest", "discover", "-s", str(ROOT / "python" / "tests")],
        env={**os.environ, "SHARDIFY_BINARY": program},
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


def wheel(profile):
    if importlib.util.find_spec("maturin") is None:
        not_run("python_check: the wheel", "maturin is not installed")
        return
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        ran("the wheel is built", [sys.executable, "-m", "maturin", "build", "--profile", profile, "-o", str(folder)], cwd=ROOT)
        (built,) = folder.glob("*.whl")
        if "py3-none" not in built.name:
            raise Failure(f"expected a wheel for every Python, found {built.name}")
        venv.create(folder / "env", with_pip=True)
        python = str(folder / "env" / "bin" / "python")
        # Nothing of the checkout, and no program in the path.
        alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SHARDIFY_BINARY")}
        alone["PATH"] = "/usr/bin:/bin"
        ran("it is installed", [python, "-m", "pip", "install", "--no-index", "--no-deps", str(built)], env=alone, cwd=folder)
        ran("a session with it", [python, "-c", SESSION, str(folder)], env=alone, cwd=folder)
        program = [str(folder / "env" / "bin" / "shardify"), "--version"]
        one, other = ran("the program", program, env=alone), ran("the module", [python, "-m", "shardify", "--version"], env=alone, cwd=folder)
        expect("version", one, other)
        print(f"      {built.name}: {built.stat().st_size / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--profile", default="ci", help="of cargo, for the wheel")
    options = parser.parse_args()
    tests(str(pathlib.Path(options.shardify).resolve()))
    lints()
    wheel(options.profile)
    return 0


if __name__ == "__main__":
    finish(main)
