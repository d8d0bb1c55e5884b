#!/usr/bin/env python3
"""Adopts folders that other programs wrote, and compares what shardify says about them with what those programs read.

Each case: write a folder, remember the bytes of every file, adopt it in place and once more linked into another dataset,
verify, find records, compact, verify and read again with the writer's own reader. No byte of a source may change.
"""
import argparse
import gzip
import hashlib
import pathlib
import shutil
import subprocess
import sys
import tempfile

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import tfrecord
import webdataset

import harness
from harness import Failure, finish, not_run

ROWS = 1000


def write_webdataset(folder):
    """The default of ShardWriter: pax headers with times, owners and modes."""
    with webdataset.ShardWriter(str(folder / "train-%06d.tar"), maxcount=100, verbose=0) as sink:
        for i in range(ROWS):
            key = f"long/{'x' * 120}/{i:05d}" if i % 100 == 7 else f"s{i:05d}"
            sink.write({"__key__": key, "txt": f"text {i}", "json": {"i": i}, "cls": i % 10})
    (folder / "README.md").write_text("notes\n")
    return "s00423", None


def write_webdataset_gz(folder):
    with webdataset.ShardWriter(str(folder / "t-%03d.tar.gz"), maxcount=250, verbose=0) as sink:
        for i in range(ROWS):
            sink.write({"__key__": f"s{i:05d}", "txt": f"text {i}"})
    return "s00423", None


def write_gnu_tar(folder):
    """GNU tar of folders: members that are no files in between, and zeros up to 10 KiB."""
    tree = folder.parent / "tree"
    for i in range(ROWS):
        path = tree / f"d{i % 10}" / f"s{i:04d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text {i}")
    for d in range(10):
        subprocess.run(["tar", "--sort=name", "-cf", folder / f"{d}.tar", f"./d{d}"], cwd=tree, check=True)
    return "d3/s0423", None


def write_tfrecord(folder):
    for part in range(10):
        writer = tfrecord.TFRecordWriter(str(folder / f"train.tfrecord-{part:05d}-of-00010"))
        for i in range(part * 100, part * 100 + 100):
            writer.write({"i": (i, "int"), "text": (f"text {i}".encode(), "byte")})
        writer.close()
    return "train.tfrecord-00004-of-00010#24", None


def write_tfrecord_gz(folder):
    write_tfrecord(folder)
    for path in sorted(folder.iterdir()):
        (folder / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return "train.tfrecord-00004-of-00010.gz#24", None


def write_tfrecord_ids(folder):
    write_tfrecord(folder)
    return "423", None


def write_tfrecord_keys(folder):
    """Samples as TFRecord, whose key needs no naming."""
    for part in range(10):
        writer = tfrecord.TFRecordWriter(str(folder / f"{part}.tfrecord"))
        for i in range(part * 100, part * 100 + 100):
            writer.write({"__key__": (f"d{part}/s {i:04d}".encode(), "byte"), "cls": (i % 10, "int")})
        writer.close()
    return "d4/s 0423", None


# TensorFlow brings a protobuf and signal handlers of its own, so it runs in a process of its own.
TENSORFLOW = """
import sys
import tensorflow as tf
folder, ending, options, rows = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
def text(value): return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value.encode()]))
def ints(*values): return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
for part in range(10):
    with tf.io.TFRecordWriter(f"{folder}/train-{part:05d}-of-00010.tfrecord{ending}", options) as writer:
        for i in range(part * rows // 10, (part + 1) * rows // 10):
            features = {"image": text("x" * 1000), "id": text(f"r{i:05d}"), "site": ints(i % 4), "patient": ints(i % 50),
                        "embedding": tf.train.Feature(float_list=tf.train.FloatList(value=[i / 3] * 64))}
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())
files = tf.data.Dataset.list_files(f"{folder}/*.tfrecord{ending}", shuffle=False)
spec = {"id": tf.io.FixedLenFeature([], tf.string), "patient": tf.io.FixedLenFeature([], tf.int64)}
ids = {tf.io.parse_single_example(r, spec)["id"].numpy() for r in tf.data.TFRecordDataset(files, options)}
assert len(ids) == rows, f"TensorFlow reads {len(ids)} ids back"
"""


def run_tensorflow(folder, ending, options):
    ran = subprocess.run([PYTHON_TF, "-c", TENSORFLOW, str(folder), ending, options, str(ROWS)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]


def write_tensorflow(folder):
    run_tensorflow(folder, "", "")
    return "r00423", "23"


def write_tensorflow_gz(folder):
    run_tensorflow(folder, ".gz", "GZIP")
    return "r00423,3", "23"


def table():
    return pa.table({
        "id": pa.array([f"r{i:05d}" for i in range(ROWS)], pa.large_string()),
        "patient_id": pa.array([f"PAT-{i % 50:05d}" for i in range(ROWS)]).dictionary_encode(),
        "year": pa.array([2020 + i % 3 for i in range(ROWS)], pa.int32()),
        "value": pa.array([None if i % 7 == 0 else i / 2 for i in range(ROWS)]),
        "when": pa.array([i * 1_000_000_007 for i in range(ROWS)], pa.timestamp("ns", "UTC")),
        "tags": pa.array([[f"t{i}"] * (i % 3) for i in range(ROWS)]),
    })


def write_pyarrow(folder):
    pq.write_to_dataset(table(), folder, partition_cols=["year"], max_rows_per_file=50, row_group_size=50)
    (folder / "_SUCCESS").touch()
    pq.write_metadata(table().schema, folder / "_common_metadata")
    return "r00423", "PAT-00023"


def write_duckdb(folder):
    rows = table().drop_columns(["patient_id", "tags"])
    duckdb.register("rows", rows)
    for part in range(5):
        duckdb.sql(f"copy (select *, 'PAT-' || (value::int % 50)::text as patient_id from rows where substr(id, 5, 2)::int % 5 = {part})"
                   f" to '{folder}' (format parquet, partition_by (year), overwrite_or_ignore, filename_pattern 'p{part}_{{i}}')")
    return "r00423", None


def write_mixed_columns(folder):
    """Files of several schemas: other order, other widths, columns that come and go."""
    rows = table().drop_columns(["patient_id"])
    for part in range(10):
        some = rows.slice(part * 100, 100)
        if part % 3 == 1:
            some = some.select(["value", "id", "year"])
        if part % 3 == 2:
            some = some.set_column(some.schema.get_field_index("year"), "year", some["year"].cast(pa.int64()))
        pq.write_table(some, folder / f"part-{part:05d}.snappy.parquet", compression="snappy")
    return "r00423", None


def count_tar(paths):
    return sum(1 for _ in webdataset.WebDataset([str(p) for p in paths], shardshuffle=False))


def count_tfrecord(paths):
    """By TFRecord's own framing, as the `tfrecord` package reads it."""
    return sum(1 for p in paths for _ in tfrecord.reader.tfrecord_loader(
        str(p), None, None, compression_type="gzip" if str(p).endswith(".gz") else None))


def count_parquet(paths):
    names = ", ".join(f"'{p}'" for p in paths)
    query = f"select count(*), count(distinct id), count(distinct year), sum(value) from read_parquet([{names}], hive_partitioning=true, union_by_name=true)"
    rows, *facts = duckdb.sql(query).fetchall()[0]
    expected = [ROWS, 3, sum(i / 2 for i in range(ROWS) if i % 7)]
    assert facts == expected, f"expected ids, years and sum {expected}, found {facts}"
    return rows


CASES = [
    (write_webdataset, count_tar, ""),
    (write_webdataset_gz, count_tar, ""),
    (write_gnu_tar, count_tar, ""),
    (write_tfrecord, count_tfrecord, ""),
    (write_tfrecord_gz, count_tfrecord, ""),
    (write_tfrecord_ids, count_tfrecord, "--id i"),
    (write_tfrecord_keys, count_tfrecord, ""),
    (write_tensorflow, count_tfrecord, "--id id --subject patient"),
    (write_tensorflow_gz, count_tfrecord, "--id id,site --subject patient"),
    (write_pyarrow, count_parquet, "--id id --subject patient_id"),
    (write_duckdb, count_parquet, "--id id"),
    (write_mixed_columns, count_parquet, "--id id"),
]


class Shardify:
    def __init__(self, binary):
        self.binary = binary

    def __call__(self, *arguments, expect=0):
        return harness.objects(self.binary, *arguments, codes=(expect,))


def contents(folder):
    return {p.relative_to(folder): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in folder.rglob("*") if p.is_file() and "_shardify" not in p.parts}


def shards(run, dataset):
    return [dataset / o["path"] for o in run("manifest", dataset, "--list") if o["type"] == "shard"]


def check(run, dataset, before, case, known, subject):
    """A dataset that was just adopted, through compaction and vacuum."""
    count = case[1]
    assert run("verify", dataset, "--read-data")[-1]["records"] == ROWS
    live = shards(run, dataset)
    assert count(live) == ROWS, "the writer's reader finds other records in the adopted shards"
    hit = run("manifest", dataset, "--find", known)[0]
    assert hit["record_id"] == known, hit
    if subject:
        assert run("manifest", dataset, "--find", subject)[-1]["hits"] == ROWS // 50
    compacted = run("compact", dataset, "--min-inputs", 2)[-1]
    assert run("verify", dataset, "--read-data")[-1]["records"] == ROWS
    after = shards(run, dataset)
    assert count(after) == ROWS, "the writer's reader finds other records after compaction"
    again = run("manifest", dataset, "--find", known)[0]
    assert (again["record_id"], again["origin"]) == (hit["record_id"], hit["origin"]), again
    exported = [o for o in run("manifest", dataset, "--export", "jsonl") if o["type"] == "record"]
    assert len(exported) == ROWS and len({o["record_id"] for o in exported}) == ROWS
    assert run("compact", dataset, "--min-inputs", 2)[-1]["shards_added"] == 0, "a second compaction finds work"
    return len(live), len(after), compacted


def one(run, case, root):
    write, _, options = case
    folder = root / "data"
    folder.mkdir()
    known, subject = write(folder)
    before = contents(folder)
    linked = root / "linked"
    run("inspect", folder)
    run("adopt", folder, "--out", linked, *options.split())
    check(run, linked, before, case, known, subject)
    assert contents(folder) == before, "adopting into another dataset changed the source"
    run("adopt", folder, *options.split())
    again = run("adopt", folder, *options.split())[-1]
    assert again["shards_added"] == 0, again
    before_shards, after_shards, _ = check(run, folder, before, case, known, subject)
    changed = {p for p, h in contents(folder).items() if p in before and before[p] != h} | (before.keys() - contents(folder).keys())
    assert not changed, f"a compaction changed {changed}"
    # New files in the same folder are taken up by a second run.
    run("vacuum", folder, "--retain", "0", "--force")
    assert run("verify", folder, "--read-data")[-1]["records"] == ROWS
    assert run("manifest", folder, "--find", known)[-1]["hits"] == 1
    kept = {p for p in before if p.name in ("README.md", "_SUCCESS", "_common_metadata")}
    assert kept <= contents(folder).keys(), "vacuum deleted a file that is not shardify's"
    print(f"{write.__name__[6:]:<16} {len(before):>3} files, {before_shards:>3} shards, {after_shards:>3} after compaction, {ROWS} records: as the writer's reader says")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--tensorflow", default=sys.executable, metavar="PYTHON", help="interpreter that has TensorFlow")
    arguments = parser.parse_args()
    globals()["PYTHON_TF"] = arguments.tensorflow
    run = Shardify(str(pathlib.Path(arguments.shardify).resolve()))
    failed = 0
    cases = CASES
    if subprocess.run([PYTHON_TF, "-c", "import tensorflow"], capture_output=True).returncode != 0:
        not_run("tensorflow", f"{PYTHON_TF} cannot import it (pip install tensorflow-cpu, or name another with --tensorflow)")
        cases = [case for case in CASES if case[0] not in (write_tensorflow, write_tensorflow_gz)]
    for case in cases:
        root = pathlib.Path(tempfile.mkdtemp())
        try:
            one(run, case, root)
        except (AssertionError, Failure) as e:
            failed += 1
            print(f"{case[0].__name__[6:]:<16} FAILED: {e}")
        finally:
            shutil.rmtree(root)
    return 1 if failed else 0


if __name__ == "__main__":
    finish(main)
