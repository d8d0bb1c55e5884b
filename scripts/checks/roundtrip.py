#!/usr/bin/env python3
"""There and back: every input to every output and back again, compared value by value.

Tables of every type that shardify stores are written by pyarrow as Parquet, Arrow file, Arrow stream, CSV and JSON lines,
samples as a WebDataset tar and as files, Examples by the tfrecord package. Each is converted to Parquet, tar and
TFRecord, some of these compacted, and then converted once more: rows to Parquet, samples to tar. What pyarrow and
tarfile read at the end has to be what there was at the begin.

    scripts/checks/roundtrip.py --shardify target/release/shardify [--only TEXT]
"""

import argparse
import datetime as dt
import decimal
import io
import json
import math
import pathlib
import random
import struct
import tarfile
import tempfile
import traceback

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet as pq

import harness

ROWS = 3000


def table():
    """A column for every type, with nulls, extremes, and doubles that float32 cannot hold."""
    pick = random.Random(7)

    def column(kind, value, nulls=0.1):
        return pa.array([None if pick.random() < nulls else value() for _ in range(ROWS)], kind)

    def integer(bits, signed=True):
        low = -(1 << (bits - 1)) if signed else 0
        high = (1 << (bits - signed)) - 1
        return lambda: pick.choice([low, high, 0, 1, pick.randint(low, high)])

    def text():
        return pick.choice(["", "plain", "ä 漢 🦀", 'quote " , comma', "line\nbreak", "%41", "null", "NaN", str(pick.random())])

    def double():
        return pick.choice([0.0, -0.0, 0.1, 1e308, 5e-324, math.inf, -math.inf, pick.random(), pick.uniform(-1e9, 1e9)])

    def single():
        return struct.unpack("<f", struct.pack("<f", pick.uniform(-1e6, 1e6)))[0]

    def moment():
        return pick.randint(-(1 << 50), 1 << 50)

    return pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "flag": column(pa.bool_(), lambda: pick.random() < 0.5),
            **{f"i{bits}": column(getattr(pa, f"int{bits}")(), integer(bits)) for bits in (8, 16, 32, 64)},
            **{f"u{bits}": column(getattr(pa, f"uint{bits}")(), integer(bits, False)) for bits in (8, 16, 32, 64)},
            "single": column(pa.float32(), single),
            "double": column(pa.float64(), double),
            "text": column(pa.string(), text),
            "raw": column(pa.binary(), lambda: pick.choice([b"", b"\0\xff", pick.randbytes(9)])),
            "day": column(pa.date32(), lambda: pick.randint(-100_000, 100_000)),
            "at": column(pa.timestamp("us"), moment),
            "instant": column(pa.timestamp("us", "UTC"), moment),
            "price": column(pa.decimal128(12, 2), lambda: decimal.Decimal(pick.randint(-(10**11), 10**11)).scaleb(-2)),
            "counts": column(pa.list_(pa.int64()), lambda: [pick.randint(-9, 9) for _ in range(pick.randint(0, 3))]),
            "words": column(pa.list_(pa.string()), lambda: [pick.choice([text(), None]) for _ in range(pick.randint(0, 3))]),
            "weights": column(pa.list_(pa.float64()), lambda: [double() for _ in range(pick.randint(0, 3))]),
            "visit": column(
                pa.struct({"on": pa.date32(), "score": pa.float64()}),
                lambda: {"on": dt.date(2026, 1, pick.randint(1, 28)), "score": pick.uniform(0, 1)},
            ),
        }
    )


def plain_table():
    """What CSV and JSON can say without losing anything."""
    full = table()
    plain = full.select(["id", "flag", "i64", "text", "day"])
    doubles = pa.array([x / 7 if x % 11 else None for x in range(ROWS)], pa.float64())
    return plain.append_column("double", doubles)


def write_tables(folder):
    """Name of the input -> (path, options of convert, table that it holds; None where shardify infers the types)."""
    full = table()
    plain = plain_table()
    pq.write_table(full, folder / "full.parquet", row_group_size=700)
    pa.feather.write_feather(full, str(folder / "full.arrow"), compression="zstd", chunksize=900)
    with pa.OSFile(str(folder / "full.arrows"), "wb") as out, pa.ipc.new_stream(out, full.schema) as writer:
        writer.write_table(full, max_chunksize=800)
    pa.csv.write_csv(plain, folder / "plain.csv")
    with open(folder / "plain.jsonl", "w") as out:
        for row in plain.to_pylist():
            row["day"] = row["day"] and row["day"].isoformat()
            print(json.dumps(row), file=out)
    return {
        "parquet": (folder / "full.parquet", [], full),
        "arrow file": (folder / "full.arrow", [], full),
        "arrow stream": (folder / "full.arrows", [], full),
        "csv": (folder / "plain.csv", [], plain),
        "jsonl": (folder / "plain.jsonl", [], None),
    }


def write_samples(folder):
    pick = random.Random(8)
    samples = []
    for i in range(500):
        parts = {"jpg": pick.randbytes(pick.randint(0, 3000)), "cls": str(i % 10).encode()}
        if i % 3:
            parts["txt"] = f"caption ä {i}".encode()
        if i % 5 == 0:
            parts["seg.png"] = pick.randbytes(40)
        samples.append((f"train/{i:05}", parts))
    with tarfile.open(folder / "samples.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        for key, parts in samples:
            for extension, content in sorted(parts.items()):
                info = tarfile.TarInfo(f"{key}.{extension}")
                info.size, info.mtime = len(content), 1700000000.25
                archive.addfile(info, io.BytesIO(content))
    for key, parts in samples:
        for extension, content in parts.items():
            path = folder / "tree" / f"{key}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return {"tar": folder / "samples.tar", "files": folder / "tree"}, sorted(samples)


class Shardify:
    def __init__(self, binary, work):
        self.binary, self.work, self.number = pathlib.Path(binary).resolve(), work, 0

    def __call__(self, *arguments):
        return harness.run(self.binary, *arguments, folder=self.work).decode()

    def convert(self, sources, to, *options):
        self.number += 1
        out = self.work / f"d{self.number}"
        for source in sources if isinstance(sources, list) else [sources]:
            self("convert", source, "--out", out, "--to", to, "--target-shard", "64KiB", *options)
        return out

    def compact(self, dataset):
        self("compact", dataset, "--target-shard", "1MiB")
        return dataset


def live(dataset, shardify):
    listed = shardify("manifest", dataset, "--list", "--json").splitlines()
    return [dataset / line["path"] for line in map(json.loads, listed) if line["type"] == "shard"]


def read_rows(dataset, shardify):
    tables = [pq.read_table(path) for path in live(dataset, shardify)]
    return pa.concat_tables(tables, promote_options="default")


def read_samples(dataset, shardify):
    out = []
    for path in live(dataset, shardify):
        with tarfile.open(path) as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                stem, extension = name.split(".", 1)
                key = f"{folder}/{stem}" if folder else stem
                if not out or out[-1][0] != key:
                    out.append((key, {}))
                out[-1][1][extension] = archive.extractfile(member).read()
    return out


def same_tables(expected, found):
    assert found.num_rows == expected.num_rows, f"expected {expected.num_rows} rows, found {found.num_rows}"
    assert set(found.column_names) == set(expected.column_names), f"columns {found.column_names}"
    order = found.column("id").combine_chunks()
    found = found.take(pa.compute.sort_indices(order))
    for name in expected.column_names:
        a, b = expected.column(name), found.column(name)
        assert a.type == b.type, f"{name}: expected {a.type}, found {b.type}"
        for row, (x, y) in enumerate(zip(a.to_pylist(), b.to_pylist())):
            # repr tells -0.0 from 0.0 and is the same for equal NaNs.
            assert repr(x) == repr(y), f"{name}, row {row}: expected {x!r}, found {y!r}"


def rows_matrix(shardify, folder):
    for name, (path, options, expected) in write_tables(folder).items():
        if expected is None:
            expected = read_rows(shardify.convert(path, "parquet", *options), shardify)
        for middle in ["parquet", "parquet --codec gzip", "tar", "tar --codec zstd", "tfrecord", "tfrecord --codec gzip"]:
            to, *codec = middle.split()

            def check(path=path, options=options, expected=expected, to=to, codec=codec):
                dataset = shardify.convert(path, to, *options, *codec)
                same_tables(expected, read_rows(shardify.convert(dataset, "parquet"), shardify))
                shardify.compact(dataset)
                same_tables(expected, read_rows(shardify.convert(live(dataset, shardify), "parquet"), shardify))

            yield f"{name} -> {middle} -> parquet", check


def samples_matrix(shardify, folder):
    sources, expected = write_samples(folder)
    for name, path in sources.items():
        for middle in ["tar", "tar --codec gzip", "parquet", "parquet --write media=hf", "tfrecord", "tfrecord --codec gzip"]:
            to, *options = middle.split()

            def check(path=path, to=to, options=options):
                dataset = shardify.convert(path, to, *options)
                back = shardify.convert(live(dataset, shardify), "tar")
                assert sorted(read_samples(back, shardify)) == expected
                shardify.compact(dataset)
                back = shardify.convert(live(dataset, shardify), "tar")
                assert sorted(read_samples(back, shardify)) == expected

            yield f"{name} -> {middle} -> tar", check


def foreign_examples(shardify, folder):
    def check():
        from tfrecord.writer import TFRecordWriter

        writer = TFRecordWriter(str(folder / "foreign.tfrecord"))
        rows = [
            {"id": i, "price": i * 0.5, "name": f"n{i}".encode(), "tags": [i, i + 1], "raw": b"\xff" + bytes([i % 256])}
            for i in range(300)
        ]
        kinds = {"id": "int", "price": "float", "name": "byte", "tags": "int", "raw": "byte"}
        for row in rows:
            writer.write({key: (value, kinds[key]) for key, value in row.items()})
        writer.close()
        found = read_rows(shardify.convert(folder / "foreign.tfrecord", "parquet"), shardify).to_pylist()
        wanted = [{**row, "name": row["name"].decode()} for row in rows]
        assert sorted(found, key=lambda r: r["id"]) == wanted, (found[0], wanted[0])

    yield "tfrecord package -> parquet", check


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    failed = passed = 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        shardify = Shardify(arguments.shardify, work)
        sources = work / "sources"
        sources.mkdir()
        for matrix in (rows_matrix, samples_matrix, foreign_examples):
            for name, check in matrix(shardify, sources):
                if arguments.only not in name:
                    continue
                try:
                    check()
                    passed += 1
                    print(f"ok      {name}")
                except Exception as error:  # noqa: BLE001: whatever goes wrong is a failed combination
                    failed += 1
                    text = str(error) if isinstance(error, (AssertionError, harness.Failure)) and str(error) else traceback.format_exc()
                    print(f"FAILED  {name}: {text[:1500]}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    harness.finish(main)
