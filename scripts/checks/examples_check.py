#!/usr/bin/env python3
"""The examples of examples/ run, and print what follows from their inputs.

    python3 scripts/checks/examples_check.py --shardify target/release/shardify [--python VENV/bin/python ...] [--only torch airflow]

Each example is run as a person runs it, in the root of the checkout, by the first Python that has its packages: this one, those of
`--python`, and those of target/venv*. The numbers that it prints are compared with numbers that this script takes from the inputs
itself. An example whose packages no Python has is named. Exit code 1 if one fails.
"""

import argparse
import collections
import csv
import dataclasses
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

from harness import Failure, expect, finish, not_run, objects, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES, DATA = ROOT / "examples", ROOT / "testdata"
FIND = "import importlib.util, sys; sys.exit(any(importlib.util.find_spec(name) is None for name in sys.argv[1:]))"
# A task of the daily job for each of some tables of the patients.
TASK_SIZE = "512KiB"


@dataclasses.dataclass(frozen=True)
class Example:
    """A script, the packages that it needs, and what it has to print: parts of its output, from the inputs."""

    script: str
    needs: tuple[str, ...]
    prints: Callable[[], list[str]]
    run: Callable[["Example", pathlib.Path, pathlib.Path, pathlib.Path], str] | None = None


def rows_of(path):
    with open(DATA / path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def images():
    labels = sorted(json.loads(path.read_text())["label"] for path in (DATA / "files" / "images").glob("*.json"))
    return [f"labels {labels}"]


def table():
    survived = collections.Counter()
    for row in rows_of("csv/titanic.csv"):
        survived["first class" if row["Pclass"] == "1" else "others"] += int(row["Survived"])
    return ["891 rows", f"survived {dict(sorted(survived.items()))}"]


def ages():
    found = [float(row["Age"]) for row in rows_of("csv/titanic.csv") if row["Survived"] == "1" and row["Age"]]
    return ["891 records", f"{len(found)} ages, mean {statistics.fmean(found):.3f}"]


def patches():
    """Of testdata/arrays/grid.nc: 4 days of 3 x 4 cells, numbered, one of which is missing. Patches of 2 x 2 begin in rows 0 and 1 and
    columns 0 and 2, so the cells of the middle row are read twice."""
    cells = [(day * 3 + lat + y) * 4 + lon + x for day in range(4) for lat in (0, 1) for lon in (0, 2) for y in (0, 1) for x in (0, 1)]
    kelvin = [270 + cell * 0.5 for cell in cells if cell != 17]
    return ["16 patches in", f"16 patches read, mean {statistics.fmean(kelvin):.3f} K"]


def training():
    """Of the pictures that the script makes."""
    return ["2016 pictures in 4 shards", *(f"epoch {epoch}: 2016 pictures seen, 2016 different ones" for epoch in range(2))]


def trained(example, python, program, folder):
    """The loss falls, also over the stop; the dataset is left where the others have theirs."""
    said = ran(example, [python, EXAMPLES / example.script, folder / "made"], environment(program))
    first, before, after, last = (float(number) for number in re.search(r"loss ([\d.]+) at .*, ([\d.]+) bef.*, ([\d.]+) aft.*, ([\d.]+) at", said).groups())
    if not (first > 2 and before < 0.7 * first and after < 0.7 * first and last < 0.3 * first):
        raise Failure(f"expected a loss that falls, found {first}, {before}, {after}, {last}")
    shutil.move(folder / "made" / "shards", folder / "out")
    return said


def person():
    tables = sorted(path.name for path in (DATA / "patients").glob("*.csv"))
    of = {table: sum(row["person_id"] == "7" for row in rows_of(f"patients/{table}")) for table in tables}
    total = sum(of.values())
    origins = [f" {count} from {table}" for table, count in of.items() if count]
    return [f"find: {total} records", f"SQL:  {total} records", *origins, f"rows: {total}"]


def records_of_patients():
    return sum(len(rows_of(f"patients/{path.name}")) for path in (DATA / "patients").glob("*.csv"))


def step():
    return [f"records {records_of_patients()}"]


def script(example, python, program, folder):
    return ran(example, [python, EXAMPLES / example.script, folder / "out"], environment(program))


def pipeline(example, python, program, folder):
    """Runs the pipeline here, and compiles it for a cluster."""
    ran(example, [python, EXAMPLES / example.script, folder / "pipeline.yaml"], environment(program))
    expect("components of the pipeline", set(re.findall(r"^  comp-(\w+):", (folder / "pipeline.yaml").read_text(), re.M)), {"shards", "count"})
    words = [python, EXAMPLES / example.script, "--local", DATA / "patients", folder / "out"]
    return ran(example, words, environment(program))


def dag(example, python, program, folder):
    """Runs the DAG by `airflow dags test`, with a database of its own."""
    more = {
        "AIRFLOW_HOME": str(folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "SHARDIFY_RAW": str(DATA / "patients"),
        "SHARDIFY_OUT": str(folder / "out"),
        "SHARDIFY_TASK_SIZE": TASK_SIZE,
        "SHARDIFY_RULES": str(folder / "rules.toml"),
        "PATH": f"{python.parent}:{os.environ['PATH']}",
    }
    settings = {**environment(program), **more}
    (folder / "airflow" / "dags").mkdir(parents=True)
    (folder / "rules.toml").write_text("[volume]\nmin_records = 1\n[columns.person_id]\nnot_null = true\n")
    shutil.copy(EXAMPLES / example.script, folder / "airflow" / "dags")
    airflow = python.parent / "airflow"
    ran(example, [airflow, "db", "migrate"], settings)
    said = ran(example, [airflow, "dags", "test", "shardify_daily"], settings)
    versions = [one for one in objects(program, "manifest", folder / "out", "--history") if one["type"] == "version"]
    expect("records of the versions of the DAG", [one["records"] for one in versions], [records_of_patients()])
    expect("tasks of the DAG that have run", len(re.findall(r"end task.*task_id=run map_index=", said)), 3)
    return said


def environment(program):
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "SHARDIFY_BINARY": str(program), "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}


def built(example, _, program, folder):
    """Runs an example in Rust, which a build of all targets leaves beside the program."""
    binary = program.parent / "examples" / example.script.removesuffix(".rs")
    return ran(example, [binary, folder / "out"], environment(program))


def read_back(example, python, program, folder):
    """Makes several shards, which the example reads."""
    run(program, "convert", DATA / "patients" / "OBSERVATION.csv", "--records-per-shard", 1_000, "--out", folder / "out")
    return built(example, python, program, folder)


def subjects():
    of = collections.Counter(row["person_id"] for name in ("OBSERVATION", "MEASUREMENT") for row in rows_of(f"patients/{name}.csv"))
    return [f"read {of.total()} records", f"subject 11 has {of['11']} records", f"erased {of['7']} records", "the dataset is sound"]


def observations():
    count = len(rows_of("patients/OBSERVATION.csv"))
    return [f"{count} of {count} records in {-(-count // 1_000)} shards"]


def ran(example, command, settings):
    """What a command prints; it has to end with 0."""
    done = subprocess.run([str(word) for word in command], cwd=ROOT, env=settings, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Failure(f"{example.script} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout + done.stderr


ALL = [
    Example("images_torch.py", ("torch", "webdataset", "PIL"), images),
    Example("csv_ray.py", ("ray", "pyarrow", "aiohttp"), table),
    Example("tfrecord_tf.py", ("tensorflow",), ages),
    Example("tfrecord_tf.py", ("tfrecord",), ages),
    Example("netcdf_torch.py", ("torch", "numpy", "shardify._native"), patches),
    Example("train_torch.py", ("torch", "numpy", "shardify._native"), training, trained),
    Example("ids_duckdb.py", ("duckdb",), person),
    Example("airflow_dag.py", ("airflow",), list, dag),
    Example("kubeflow_step.py", ("kfp",), step, pipeline),
    Example("convert_and_find.rs", (), subjects, built),
    Example("read_shards.rs", (), observations, read_back),
]


def with_packages(names, pythons):
    """The first Python that has the packages; None if there is none."""
    for python in pythons:
        here = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
        if subprocess.run([python, "-c", FIND, *names], env=here, stderr=subprocess.DEVNULL, timeout=60).returncode == 0:
            return python
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--python", nargs="+", type=pathlib.Path, default=[], help="more interpreters, with other packages")
    parser.add_argument("--only", nargs="+", default=[""], help="examples with such a text in their names or packages")
    options = parser.parse_args()
    program = pathlib.Path(options.shardify).resolve()
    pythons = [pathlib.Path(sys.executable), *options.python, *sorted((ROOT / "target").glob("venv*/bin/python"))]
    named = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".rs")} - {"index_scale.rs"}
    expect("examples that are run", {example.script for example in ALL}, named)
    page = (EXAMPLES / "README.md").read_text()
    expect("examples that README.md lacks", [name for name in sorted(named) if f"({name})" not in page], [])
    for example in ALL:
        title = f"{example.script} by {example.needs[0]}" if example.needs else example.script
        if not any(text in title for text in options.only):
            continue
        if not example.needs and not (program.parent / "examples" / example.script.removesuffix(".rs")).is_file():
            not_run(f"examples_check: {example.script}", "it is not built: cargo build --examples, with the profile of the program")
            continue
        python = with_packages(example.needs, pythons)
        if python is None:
            not_run(f"examples_check: {example.script}", f"no Python has {', '.join(example.needs)}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            said = (example.run or script)(example, python, program, pathlib.Path(folder))
            missing = [text for text in example.prints() if text not in said]
            if missing:
                raise Failure(f"{title}: expected {missing[0]!r} in what it prints, found\n{said[-4000:]}")
            run(program, "verify", pathlib.Path(folder) / "out", "--read-data")
        print(f"ok    {title}", flush=True)
    return 0


if __name__ == "__main__":
    finish(main)
