#!/usr/bin/env python3
"""A dataset made in one run and in several is the same for every stock reader: the rules that hold within a run (types, structure,
sides, ids) hold across runs.

Each round makes random days of rows, in which some columns have no value on some days, and converts them in one run and in one run per
day, to every format. pyarrow, DuckDB and Polars (Parquet), tarfile (tar) and the reader of the package tfrecord (TFRecord) read the shards
of both, before and after compact, sort, erase and reshard: they find the same rows and types, and the datasets converted back to Parquet have
the same columns. A day with a value of another type is refused and changes nothing; if its type is accepted, merges change no value
and no type of one. Days of arrays (NetCDF, Zarr, NPZ) agree in the same way, constants included; a day with other sizes, coordinates or
constants is refused in one run and in several, and packing changes no value. Days of files with labels and a rule for keys make the same samples,
as webdataset reads them; a table with another type of label, or another rule, is refused.

    python3 scripts/checks/runs_check.py --shardify target/release/shardify [--rounds N] [--seed N]
"""

import argparse
import collections
import datetime
import json
import pathlib
import random
import subprocess
import tarfile
import tempfile

import duckdb
import netCDF4
import numpy
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import webdataset
import zarr
from harness import FORMATS, INPUT, USAGE, Failure, expect, finish, objects, run
from tfrecord.reader import tfrecord_loader

VALUES = {
    "v": lambda rng: rng.randrange(-9, 99),
    "f": lambda rng: rng.choice((rng.randrange(9), rng.randrange(99) / 4)),
    "d": lambda rng: str(datetime.date(2024, 1, 1) + datetime.timedelta(rng.randrange(400))),
    "t": lambda rng: rng.choice(("x", "y z", "ä,b")),
    "b": lambda rng: rng.random() < 0.5,
    "s": lambda rng: {"a": rng.randrange(9), "c": rng.choice(("p", "q"))},
    "l": lambda rng: [{"n": rng.randrange(9)} for _ in range(rng.randrange(1, 3))],
    "tags": lambda rng: [rng.randrange(9) for _ in range(rng.randrange(1, 4))],
}
NESTED = ("s", "l", "tags")
# A first value that shows each type, so that the runs agree on it whatever the days hold.
FIRST = {"v": 7, "f": 0.25, "d": "2024-02-03", "t": "x", "b": True, "s": {"a": 1, "c": "p"}, "l": [{"n": 1}], "tags": [1]}
# A later run disagrees with the dataset, and needs consent.
CONSENT = 8
KINDS = ("agree", "arrays", "differ", "files", "arrays", "agree")
OTHER = {"v": ("abc", 1.5), "f": ("abc",), "d": ("soon", 7), "b": ("maybe", 3)}


def days_of(rng, text):
    """Days of rows, and whether the first one lacks values of some columns that others have."""
    columns = rng.sample(sorted(VALUES), rng.randrange(3, len(VALUES)))
    columns = [name for name in columns if not text or name not in NESTED] or ["v", "d"]
    first_is_open, number, days = rng.random() < 0.4, 0, []
    for day in range(rng.randrange(2, 6)):
        empty = {name for name in columns if rng.random() < 0.35} if day or first_is_open else set()
        rows = []
        for row in range(rng.randrange(2, 9)):
            one = {"id": number, "who": f"p{number % 5}"}
            number += 1
            for name in columns:
                none = [] if name in ("l", "tags") and rng.random() < 0.5 else None
                one[name] = none if name in empty else FIRST[name] if row == 0 else VALUES[name](rng) if rng.random() < 0.8 else None
            rows.append(one)
        days.append(rows)
    is_open = any(all(not row[name] and row[name] not in (0, False) for row in days[0]) for name in columns)
    return columns, days, is_open


def write(path, rows, text):
    if not text:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return
    cell = lambda value: "" if value is None else json.dumps(value) if isinstance(value, bool) else '"' + str(value) + '"'
    path.write_text("\n".join(",".join(map(cell, line)) for line in [list(rows[0]), *(list(row.values()) for row in rows)]) + "\n")


class Round:
    def __init__(self, shardify, folder, seed):
        self.shardify, self.folder, self.rng = shardify, pathlib.Path(folder), random.Random(seed)

    def run(self, *words, codes=(0,)):
        return run(self.shardify, *words, "--progress", "never", codes=codes, folder=self.folder)

    def live(self, dataset):
        found = objects(self.shardify, "manifest", dataset, "--list", folder=self.folder)
        return [str(self.folder / dataset / one["path"]) for one in found if one.get("type") == "shard"]

    def parquet(self, dataset):
        """Types and rows, by reader."""
        shards = self.live(dataset)
        by_id = lambda rows: sorted((json.dumps(row, default=str, sort_keys=True) for row in rows))
        order = self.rng.sample(shards, len(shards))
        arrow = pa.dataset.dataset(order, format="parquet").to_table()
        duck = duckdb.sql(f"SELECT * FROM read_parquet({order!r}, hive_partitioning=false)")
        polar = polars.read_parquet(order, hive_partitioning=False)
        return {
            "pyarrow": ({field.name: str(field.type) for field in arrow.schema}, by_id(arrow.to_pylist())),
            "duckdb": (dict(zip(duck.columns, map(str, duck.types))), by_id(dict(zip(duck.columns, row)) for row in duck.fetchall())),
            "polars": ({name: str(kind) for name, kind in polar.schema.items()}, by_id(polar.to_dicts())),
        }

    def tar(self, dataset):
        rows = []
        for shard in self.live(dataset):
            with tarfile.open(shard) as tar:
                rows += [(one.name if self.named else "", tar.extractfile(one).read()) for one in tar]
        return {"tarfile": sorted(rows)}

    def tfrecord(self, dataset):
        rows = []
        for shard in self.live(dataset):
            for row in tfrecord_loader(shard, None, compression_type="gzip" if shard.endswith(".gz") else None):
                # An empty list of a day before the first value has no type yet, and merges copy the bytes of records.
                kind = lambda value: "" if not hasattr(value, "dtype") or getattr(self, "is_open", False) and value.size == 0 else str(value.dtype)
                rows.append(sorted((name, kind(value), str(value)) for name, value in row.items()))
        return {"tfrecord": sorted(rows)}

    def back(self, dataset):
        """Types and rows after a conversion to Parquet."""
        self.made = getattr(self, "made", 0) + 1
        out = f"back-{self.made}"
        self.run("convert", dataset, "--to", "parquet", "--out", out, "--accept", "settings")
        return self.parquet(out)

    def sides(self, dataset):
        out = run(self.shardify, "manifest", dataset, "--export", "jsonl", folder=self.folder)
        rows = [json.loads(line) for line in out.splitlines()]
        side = lambda row: next((part for part in row["shard"].split("/") if part.startswith("split=")), "")
        return sorted((row["record_id"] if self.named else "", row["subject_id"] or "", side(row)) for row in rows)

    def same(self, to, one, several, what):
        read = getattr(self, to)
        expect(f"{what} of {to} made in several runs", read(several), read(one))
        expect(f"{what}: ids and sides of {to}", self.sides(several), self.sides(one))
        if to != "parquet":
            expect(f"{what} of {to}, back in Parquet", self.back(several), self.back(one))

    def agree(self):
        """One run and several runs over the same days."""
        rng = self.rng
        text = rng.random() < 0.5
        columns, days, is_open = days_of(rng, text)
        self.is_open = is_open
        names = [f"day{number}.{'csv' if text else 'jsonl'}" for number in range(len(days))]
        for name, rows in zip(names, days):
            write(self.folder / name, rows, text)
        self.named = rng.random() < 0.6
        options = ["--id", "id"] if self.named else []
        options += ["--subject", "who"] if rng.random() < 0.5 else []
        options += ["--split", "train=0.6,val=0.4"] if self.named and rng.random() < 0.4 else []
        for to in FORMATS:
            one, several = f"one-{to}", f"several-{to}"
            self.run("convert", *names, "--out", one, "--to", to, *options)
            for number, name in enumerate(names):
                self.run("convert", name, "--out", several, "--to", to, *(options if number == 0 else []))
            # Shards of a day before a column's first value have no type for it until they are merged.
            if not is_open:
                self.same(to, one, several, "shards")
            for dataset in (one, several):
                self.run("compact", dataset, "--min-inputs", "2")
            self.same(to, one, several, "compacted shards")
            if to == "parquet" and rng.random() < 0.5:
                for dataset in (one, several):
                    self.run("compact", dataset, "--sort-by", "id")
                self.same(to, one, several, "sorted shards")
            if self.named:
                for dataset in (one, several):
                    self.run("erase", dataset, "--record", "1")
                self.same(to, one, several, "shards after an erasure")
            for dataset in (one, several):
                self.run("reshard", dataset, "--out", f"{dataset}-again", "--target-shard", "4KiB")
            self.same(to, f"{one}-again", f"{several}-again", "resharded shards")
            self.run("verify", several, "--read-data")

    def values(self, to, dataset):
        """What each record has in column `x`, with its kind, as it is stored."""
        out = {}
        for shard in self.live(dataset):
            if to == "parquet":
                table = pq.read_table(shard, partitioning=None)
                numbers = not (pa.types.is_string(table["x"].type) or pa.types.is_binary(table["x"].type))
                out |= {row["id"]: (numbers, row["x"]) for row in table.select(["id", "x"]).to_pylist()}
            elif to == "tar":
                with tarfile.open(shard) as tar:
                    rows = [json.load(tar.extractfile(one)) for one in tar]
                out |= {row["id"]: (isinstance(row["x"], (int, float)), row["x"]) for row in rows}
            else:
                for row in tfrecord_loader(shard, None):
                    out[int(row["id"][0])] = ("int" in str(getattr(row["x"], "dtype", "")) or "float" in str(getattr(row["x"], "dtype", "")), str(row["x"]))
        return out

    def differ(self):
        """A day with a value of another type."""
        rng = self.rng
        text = rng.random() < 0.5
        # A date of JSON is text, which holds any word.
        kind = rng.choice([kind for kind in sorted(OTHER) if text or kind != "d"])
        other = rng.choice(OTHER[kind])
        rows = [{"id": number, "x": FIRST[kind] if number == 0 else VALUES[kind](rng)} for number in range(6)]
        bad = [{"id": 100 + number, "x": other if number == 3 else VALUES[kind](rng)} for number in range(6)]
        suffix = "csv" if text else "jsonl"
        write(self.folder / f"good.{suffix}", rows, text)
        write(self.folder / f"bad.{suffix}", bad, text)
        write(self.folder / f"more.{suffix}", [{**row, "id": row["id"] + 200} for row in rows], text)
        for to in FORMATS:
            dataset = f"differ-{to}"
            self.run("convert", f"good.{suffix}", "--out", dataset, "--to", to)
            before = self.live(dataset)
            self.run("convert", f"bad.{suffix}", "--out", dataset, codes=(INPUT,))
            expect(f"shards after a refused day ({kind}, {other!r})", self.live(dataset), before)
            self.run("convert", f"bad.{suffix}", "--out", dataset, "--on-schema", "union")
            self.run("convert", f"more.{suffix}", "--out", dataset)
            before = self.values(to, dataset)
            self.run("compact", dataset, "--min-inputs", "2")
            expect(f"values of {to} after a merge ({kind}, {other!r})", self.values(to, dataset), before)
            self.run("verify", dataset, "--read-data")


    def constants(self, dataset):
        """Constants beside the live shards, by name."""
        files = {pathlib.Path(shard).parent / "_constants.arrow" for shard in self.live(dataset)}
        tables = [pa.ipc.open_file(file).read_all() if file.exists() else None for file in sorted(files)]
        rows = [None if table is None else {name: str(table[name].to_pylist()) for name in table.column_names} for table in tables]
        return sorted({json.dumps(row, sort_keys=True) for row in rows})

    def arrays(self):
        """Days of arrays that agree, or one that does not."""
        rng = self.rng
        form, to = rng.choice(("nc", "zarr", "npz")), rng.choice(FORMATS)
        base = rng.choice(({}, {"kind": "f4", "scale": None, "fill": -999.0}))
        days = [f"day{number}.{form}" for number in range(rng.randrange(2, 5))]
        different = rng.choice([None, None, *UNLIKE, *ALIKE] if form != "npz" else [None, "size", "coordinate"])
        for number, name in enumerate(days):
            last = number + 1 == len(days)
            write_arrays(self.folder / name, form, number, **{**base, **({**UNLIKE, **ALIKE}.get(different, {}) if last else {})})
        codes = (0, INPUT, CONSENT)
        one = self.code("convert", *days, "--out", "one", "--to", to)
        several = [self.code("convert", name, "--out", "several", "--to", to) for name in days]
        what = f"{form} to {to}, {different or 'alike'}"
        expect(f"codes of all days but the last ({what})", several[:-1], [0] * (len(days) - 1))
        expect(f"a known code ({what}): {one}, {several[-1]}", one in codes and several[-1] in codes, True)
        expect(f"whether the day is refused in several runs ({what})", several[-1] != 0, different in UNLIKE)
        expect(f"whether the days are refused in one run ({what})", one != 0, different in UNLIKE)
        if different in UNLIKE:
            return
        self.named = True
        for step in (None, "compact"):
            if step:
                for dataset in ("one", "several"):
                    self.run("compact", dataset, "--min-inputs", "2")
            expect(f"constants, {what}", self.constants("several"), self.constants("one"))
            self.same(to, "one", "several", f"{step or 'new'} arrays, {what}")
        wanted = sum((expected_arrays(self.folder / name, form) for name in days), [])
        found = pq.read_table(self.live("one"), partitioning=None) if to == "parquet" else None
        if found is not None:
            values = [numpy.asarray(one, "f8").ravel().round(6).tolist() for one in found["v"].to_pylist()]
            expect(f"values of pyarrow, {what}", sorted(map(str, values)), sorted(map(str, wanted)))
        self.run("verify", "several", "--read-data")

    def code(self, *words):
        """The exit code of a command."""
        command = [str(self.shardify), *map(str, words), "--progress", "never"]
        return subprocess.run(command, capture_output=True, cwd=self.folder, timeout=600).returncode

    def samples(self, dataset):
        """Samples as webdataset reads them."""
        out = []
        for shard in self.live(dataset):
            for sample in webdataset.WebDataset(shard, shardshuffle=False, empty_check=False):
                out.append(sorted((name, value if isinstance(value, str) else value.decode()) for name, value in sample.items() if name not in ("__url__", "__local_path__")))
        return sorted(out)

    def files(self):
        """Days of files with labels, in folders side by side that a rule joins."""
        rng = self.rng
        joined, labelled = rng.random() < 0.5, rng.random() < 0.7
        options = ["--key", "(?:images|masks)/(.*)"] if joined else []
        kinds = {"n": lambda: rng.randrange(9), "w": lambda: rng.choice((1.5, 2)), "t": lambda: rng.choice(("x", "7")), "b": lambda: rng.random() < 0.5}
        days, all_rows = [], []
        for day in range(rng.randrange(2, 5)):
            rows = []
            for number in range(rng.randrange(1, 4)):
                # Which indexes a dataset has follows from the names of its first run: dali takes no such names.
                name = f"d{day}n{number}" + (" ä" if day == 0 and number == 0 else rng.choice(("", "-ä", " x")))
                for folder, ending in (("images", "jpg"), ("masks", "png")) if joined else (("x", "jpg"), ("x", "seg.png")):
                    content = f"{name} {ending} {rng.random()}"
                    for place in (self.folder / f"in{day}" / folder, self.folder / "all" / folder):
                        place.mkdir(parents=True, exist_ok=True)
                        (place / f"{name}.{ending}").write_text(content)
                none = day > 0 and rng.random() < 0.4
                first = {"n": 7, "w": 1.5, "t": "x", "b": True}
                row = {kind: first[kind] if day == 0 and number == 0 else None if none else make() for kind, make in kinds.items()}
                rows.append({"file": f"{name}.jpg", **row})
            days.append(f"in{day}")
            all_rows += rows
            write(self.folder / f"labels{day}.csv", rows, True)
        write(self.folder / "labels.csv", all_rows, True)
        self.named = True
        labels = lambda table: ["--labels", table] if labelled else []
        for to in FORMATS:
            one, several = f"files-one-{to}", f"files-several-{to}"
            self.run("convert", "all", "--out", one, "--to", to, *options, *labels("labels.csv"))
            for number, day in enumerate(days):
                self.run("convert", day, "--out", several, "--to", to, *(options if number == 0 else []), *labels(f"labels{number}.csv"))
            for step in (None, "compact"):
                if step:
                    for dataset in (one, several):
                        self.run("compact", dataset, "--min-inputs", "2")
                self.same(to, one, several, f"{step or 'new'} samples (--key: {joined}, --labels: {labelled})")
                if to == "tar":
                    expect("samples of webdataset", self.samples(several), self.samples(one))
            before = self.live(several)
            if labelled:
                (self.folder / "late/images").mkdir(parents=True, exist_ok=True)
                (self.folder / "late/images/late.jpg").write_text("late")
                (self.folder / "late.csv").write_text('file,n,w\nlate.jpg,many,1\n')
                self.run("convert", "late", "--out", several, "--labels", "late.csv", codes=(INPUT,))
            self.run("convert", days[0], "--out", several, "--key", "last-dot", *labels("labels0.csv"), codes=(USAGE,))
            expect("shards after refused days", self.live(several), before)
            self.run("verify", several, "--read-data")


# What makes a day differ from the others: the first ones are refused, the others are read alike.
UNLIKE = {"size": {"y": 4}, "coordinate": {"lat": 11.0}, "constant": {"constant": 2.5}, "no constant": {"constant": None}, "time": {"units": "furlongs"}}
ALIKE = {"offset": {"offset": 5.0}, "epoch": {"units": "days since 2024-03-01"}, "unit": {"units": "hours since 2024-01-01"}, "fill": {"fill": -1}}


def write_arrays(path, form, day, y=3, lat=10.0, scale=0.5, offset=0.0, kind="i2", constant=1.5, units="days since 2024-01-01", fill=-999):
    """A day of `v(time, lat, lon)`, packed or not, with coordinates and a constant."""
    values = numpy.random.default_rng(day).integers(0, 100, (2, y, 4)).astype(kind)
    values[0, 0, 0] = fill
    time, lats = numpy.arange(day * 2.0, day * 2 + 2), (lat + numpy.arange(y)).astype("f4")
    packing = {"scale_factor": scale, "add_offset": offset} if scale else {}
    if form == "npz":
        numpy.savez(path, v=values, lat=lats)
    elif form == "nc":
        with netCDF4.Dataset(path, "w") as file:
            for name, size in (("time", None), ("lat", y), ("lon", 4)):
                file.createDimension(name, size)
            file.createVariable("time", "f8", ("time",)).units = units
            file["time"][:] = time
            file.createVariable("lat", "f4", ("lat",))[:] = lats
            v = file.createVariable("v", kind, ("time", "lat", "lon"), fill_value=fill)
            v.set_auto_maskandscale(False)
            v.setncatts(packing)
            v[:] = values
            if constant is not None:
                file.createVariable("c", "f4", ())[...] = constant
    else:
        group = zarr.open_group(path, mode="w", zarr_format=2)
        fill = {"_FillValue": fill}
        of = [("time", time, ["time"], {"units": units}), ("lat", lats, ["lat"], {}), ("v", values, ["time", "lat", "lon"], {**packing, **fill})]
        of += [("c", numpy.array(constant, "f4"), [], {})] if constant is not None else []
        for name, content, dims, attributes in of:
            array = group.create_array(name, shape=content.shape, dtype=content.dtype, chunks=content.shape)
            array[...] = content
            array.attrs.update({"_ARRAY_DIMENSIONS": dims, **attributes})


def expected_arrays(path, form):
    """The values of `v`, one list per record, as netCDF4 or numpy has them."""
    if form == "npz":
        found = numpy.load(path)["v"].astype("f8")
    elif form == "nc":
        with netCDF4.Dataset(path) as file:
            found = numpy.ma.filled(file["v"][:].astype("f8"), numpy.nan)
    else:
        array = zarr.open_group(path, mode="r")["v"]
        raw, attributes = array[...], dict(array.attrs)
        found = numpy.where(raw == attributes["_FillValue"], numpy.nan, raw * attributes.get("scale_factor", 1) + attributes.get("add_offset", 0))
    return [one.ravel().round(6).tolist() for one in found]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--shardify", default="target/release/shardify", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    kinds, failed = collections.Counter(), []
    for number in range(options.rounds):
        kind = KINDS[number % len(KINDS)]
        with tempfile.TemporaryDirectory() as folder:
            try:
                getattr(Round(options.shardify.resolve(), folder, options.seed * 1_000_003 + number), kind)()
            except Failure as failure:
                failed.append(f"round {number} ({kind}): {str(failure)[:1500]}")
                print(failed[-1], flush=True)
            except (pa.ArrowException, duckdb.Error, polars.exceptions.PolarsError) as refused:
                failed.append(f"round {number} ({kind}): a reader refuses the shards: {type(refused).__name__}: {str(refused)[:300]}")
                print(failed[-1], flush=True)
        kinds[kind] += 1
    print(f"{options.rounds} rounds ({dict(kinds)}), {len(failed)} failed")
    if failed:
        raise Failure(f"{len(failed)} of {options.rounds} rounds")


if __name__ == "__main__":
    finish(main)
