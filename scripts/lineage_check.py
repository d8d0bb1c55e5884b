#!/usr/bin/env python3
"""Holds what shardify says of history and lineage against independent computations and other people's validators.

drift: the population stability index of each column against numpy and pandas, of versions that fit the sample and of larger ones.
"""
import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

LEAST_SHARE = 1e-4
FEW_VALUES = 20


class Shardify:
    def __init__(self, binary, folder):
        self.binary, self.folder = str(pathlib.Path(binary).resolve()), folder

    def __call__(self, *arguments, code=0, env=None):
        ran = subprocess.run([self.binary, *map(str, arguments)], cwd=self.folder, capture_output=True, text=True, env=env)
        if ran.returncode != code:
            raise SystemExit(f"{arguments}: expected exit code {code}, found {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def objects(self, *arguments, **more):
        return [json.loads(line) for line in self(*arguments, "--json", **more).splitlines()]


def psi(before, after):
    """The index of two columns, from the definition: no code of shardify, no bins of shardify."""
    if before.dtype == object:
        before, after = [values[[v is not None for v in values]] for values in (before, after)]
        values, counts = np.unique(before.astype(str), return_counts=True)
        # The commonest; of equally common ones the least.
        top = [v for _, v in sorted(zip(-counts, values))][:FEW_VALUES]
        count = lambda column: [int((column == v).sum()) for v in top]
        a, b = count(before), count(after)
        a, b = a + [len(before) - sum(a)], b + [len(after) - sum(b)]
    else:
        before, after = before[~np.isnan(before)], after[~np.isnan(after)]
        distinct = np.unique(before)
        edges = distinct
        if len(distinct) > FEW_VALUES:
            edges = np.unique(np.quantile(before, np.arange(1, 10) / 10, method="inverted_cdf"))
        bins = lambda column: np.bincount(np.searchsorted(edges, column, side="left"), minlength=len(edges) + 1)
        a, b = bins(before), bins(after)
    a, b = [np.maximum(np.array(side) / sum(side), LEAST_SHARE) for side in (a, b)]
    return float(((b - a) * np.log(b / a)).sum())


def table(rows, shift, random):
    city = np.array(["Bonn", "Kiel", "Ulm", "Rome"], dtype=object)[random.choice(4, rows, p=[0.4 - shift / 10, 0.3, 0.2, 0.1 + shift / 10])]
    city[random.random(rows) < 0.05 + shift / 5] = None
    score = random.normal(shift, 1 + shift / 2, rows)
    score[random.random(rows) < 0.02] = np.nan
    return {
        "score": score,
        "age": random.integers(0, 90, rows).astype(float),
        "grade": random.integers(0, 5, rows) * (1.0 + (shift > 0.2)),
        "city": city,
        "text": np.array([f"w{int(x)}" for x in random.exponential(8 + 5 * shift, rows)], dtype=object),
    }


def write(path, columns):
    arrays = {name: pa.array(values, from_pandas=False) for name, values in columns.items()}
    arrays["grade"] = pa.array(columns["grade"].astype("int32"))
    pq.write_table(pa.table(arrays), path)


def check_drift(binary, folder, rows, tolerance):
    random = np.random.default_rng(rows)
    run = Shardify(binary, folder)
    (folder / "in").mkdir()
    old, new = table(rows, 0.0, random), table(rows // 2, 0.5, random)
    write(folder / "in/a.parquet", old)
    run("convert", "in", "--out", "d")
    write(folder / "in/b.parquet", new)
    run("convert", "in", "--out", "d")
    found = run.objects("manifest", "d", "--drift", "v1", "v2", "--psi", "0.02", "--volume", "0.6", code=1)
    columns = {o["column"]: o for o in found if o["type"] == "column"}
    assert set(columns) == set(old), columns.keys()
    for name in old:
        both = np.concatenate([old[name], new[name]])
        expected = psi(old[name], both)
        assert math.isclose(columns[name]["psi"], expected, rel_tol=tolerance, abs_tol=tolerance), (name, columns[name]["psi"], expected)
        nulls = lambda c: float(np.mean([v is None or v != v for v in c]))
        assert math.isclose(columns[name]["nulls_before"], nulls(old[name]), abs_tol=1e-12), name
        assert math.isclose(columns[name]["nulls_after"], nulls(both), abs_tol=1e-12), name
        assert ("psi" in columns[name]["beyond"]) == (columns[name]["psi"] > 0.02), name
    # The same at any number of threads, and with little memory.
    for more in (["--jobs", "1"], ["--jobs", "3"]):
        again = run.objects("manifest", "d", "--drift", "v1", "v2", "--psi", "0.02", "--volume", "0.6", *more, code=1)
        assert [o["psi"] for o in again if o["type"] == "column"] == [o["psi"] for o in found if o["type"] == "column"]
    shown = ", ".join(f"{name} {column['psi']:.4f}" for name, column in columns.items())
    print(f"drift of {rows:,} rows: {shown}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rows", type=int, default=300_000, help="rows of a version that is larger than the sample")
    arguments = parser.parse_args()
    for rows, tolerance in ((20_000, 1e-9), (arguments.rows, 5e-3)):
        with tempfile.TemporaryDirectory() as folder:
            check_drift(arguments.shardify, pathlib.Path(folder), rows, tolerance)
    return 0


if __name__ == "__main__":
    sys.exit(main())
