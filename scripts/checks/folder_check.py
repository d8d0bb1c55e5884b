#!/usr/bin/env python3
"""Stock readers that are given the folder of a dataset find its shards, and nothing else.

    python3 scripts/checks/folder_check.py --shardify target/release/shardify

Datasets of Parquet, tar and TFRecord: several runs, ids and subjects, training indexes, a sort, an open plan, an adoption in
place, a copy. No object below `_shardify/` has an ending that a reader takes for data, alone or before another ending. pyarrow, pandas, Polars,
DuckDB, Dask, fsspec, Hugging Face datasets (loaded and streamed), webdataset, and the rules by which Spark lists files: each finds the records of all shards in
the folder, and after `compact` and `vacuum` those of the newest version. In between, while Parquet shards of older versions lie there, each refuses the folder
with words that lead to the live shards. Readers that are not installed are named.
"""

import argparse
import collections
import fnmatch
import glob
import importlib.util
import os
import pathlib
import shutil
import tarfile
import tempfile

from harness import Failure, expect, finish, not_run, objects, run

# Endings that readers choose files by.
DATA = {
    "parquet", "parq", "pq", "geoparquet", "gpq", "arrow", "feather", "ipc", "lance", "vortex", "orc", "avro", "csv", "tsv", "txt", "xml", "tar", "tgz",
    "tfrecord", "tfrecords", "gz", "zst", "zip", "npy", "npz", "h5", "hdf5", "nc", "zarr", "db", "bin", "md",
}  # fmt: skip
# Constants of arrays, for the tasks of a plan, until it is committed.
ALLOWED = ("plans/*-constants.arrow",)
ROWS = 40


def names_of(dataset):
    """Objects below `_shardify/`, none of which may look like data."""
    system = dataset / "_shardify"
    found = collections.Counter()
    for path in sorted(system.rglob("*")):
        name = path.relative_to(system).as_posix()
        if path.is_dir() or any(fnmatch.fnmatch(name, one) for one in ALLOWED):
            continue
        endings = path.name.split(".")[1:]
        if DATA & set(endings):
            raise Failure(f"_shardify/{name} ends like data")
        found[".".join(endings)] += 1
    return found


def spark_lists(folder):
    """Files that Spark reads: what begins with `_` or `.` is omitted, but for folders `_key=value`."""
    for place, folders, files in os.walk(folder):
        folders[:] = [one for one in folders if not (one.startswith("_") and "=" not in one) and not one.startswith(".")]
        yield from (os.path.join(place, one) for one in files if not one.startswith(("_", ".")))


def by_pyarrow(folder):
    import pyarrow.dataset

    return pyarrow.dataset.dataset(folder, format="parquet").to_table(columns=["id"])["id"].to_pylist()


def by_pandas(folder):
    import pandas

    return pandas.read_parquet(folder)["id"].to_list()


def by_polars(folder):
    import polars

    return polars.scan_parquet(f"{folder}/**/*.parquet", hive_partitioning=False).select("id").collect()["id"].to_list()


def by_duckdb(folder):
    import duckdb

    return [one for (one,) in duckdb.sql(f"select id from read_parquet('{folder}/**/*.parquet')").fetchall()]


def by_dask(folder):
    import dask.dataframe

    return dask.dataframe.read_parquet(folder)["id"].compute().to_list()


def by_spark_rules(folder):
    import pyarrow.parquet

    # Spark reads whatever it lists, also an index of a training tool: the ending does not matter to it.
    return [one for path in spark_lists(folder) for one in pyarrow.parquet.read_table(path, columns=["id"])["id"].to_pylist()]


def by_fsspec(folder):
    import fsspec
    import pyarrow.parquet

    found = fsspec.open_files(f"{folder}/**/*.parquet", "rb")
    return [one for path in found for one in pyarrow.parquet.read_table(path.path, columns=["id"])["id"].to_pylist()]


def by_huggingface(folder, streaming=False):
    import datasets

    read = datasets.load_dataset(folder, split="train", streaming=streaming, cache_dir=tempfile.mkdtemp(dir=os.environ["TMPDIR"]))
    return [row["id"] if "id" in row else pathlib.PurePath(row["__key__"]).name for row in read]


def by_streamed(folder):
    return by_huggingface(folder, streaming=True)


def by_webdataset(folder):
    import webdataset

    return [one["__key__"] for one in webdataset.WebDataset(sorted(glob.glob(f"{folder}/**/*.tar", recursive=True)), shardshuffle=False)]


def by_tfrecord(folder):
    from tfrecord.reader import tfrecord_loader

    paths = glob.glob(f"{folder}/**/*.tfrecord", recursive=True)
    return [bytes(one["id"]).decode() for path in paths for one in tfrecord_loader(path, None, {"id": "byte"})]


READERS = {
    "parquet": {
        "pyarrow": by_pyarrow, "pandas": by_pandas, "polars": by_polars, "duckdb": by_duckdb, "dask": by_dask, "pyarrow, as Spark lists files": by_spark_rules,
        "fsspec": by_fsspec, "datasets": by_huggingface, "datasets, streamed": by_streamed,
    },
    "tar": {"webdataset": by_webdataset, "datasets": by_huggingface, "datasets, streamed": by_streamed},
    "tfrecord": {"tfrecord": by_tfrecord},
}  # fmt: skip


def ids_of(path):
    """Ids of the records of a shard, by another way than the reader under test."""
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return pyarrow.parquet.read_table(path, columns=["id"])["id"].to_pylist()
    if path.suffix == ".tar":
        return [name.split(".")[0] for name in tarfile.open(path).getnames()]
    data, found = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        body, data = data[12 : 12 + length], data[16 + length :]
        # The feature `id` holds one text, a letter and five digits.
        at = body.index(b"\x0a\x02id") + 4
        found.append(body[at : at + 20].split(b"\x0a\x06", 1)[1][:6].decode())
    return found


def mostly_shards(folder, form):
    """Whether Hugging Face takes the shards for the data: it decides by the ending that most files have, and entries of the log end in
    `.json`. Folders of few shards need the card that `--index hf` keeps, which card_check.py tests."""
    names = [path.name for path in pathlib.Path(folder).rglob("*") if path.is_file()]
    endings = collections.Counter(pathlib.PurePath(name).suffix for name in names)
    return endings[f".{form}"] > endings[".json"] + endings[".jsonl"]


def compare(what, dataset, form, expected):
    checked = 0
    for name, read in READERS[form].items():
        module = name.split(",")[0]
        if module == "datasets" and not mostly_shards(dataset, form):
            continue
        if importlib.util.find_spec(module) is None:
            not_run(f"folder_check: {form} by {name}", "it is not installed")
            continue
        expect(f"{what}, {name}", sorted(read(str(dataset))), sorted(expected))
        checked += 1
    return checked


def refused(what, dataset, form):
    """Each reader stops at the signs beside old shards; Dask and tools that open files one by one say only that one is no table of theirs."""
    checked = 0
    for name, read in READERS[form].items():
        module = name.split(",")[0]
        if (module == "datasets" and not mostly_shards(dataset, form)) or importlib.util.find_spec(module) is None:
            continue
        try:
            found = read(str(dataset))
        except Exception as error:
            said = f"{error} {error.__cause__}"
            if module not in ("dask", "fsspec") and not any(word in said for word in ("READ-LIVE-SHARDS-ONLY", "shardify manifest")):
                raise Failure(f"{what}, {name}: expected words that lead to the live shards, found {said[:300]}") from error
            checked += 1
            continue
        raise Failure(f"{what}, {name}: expected a refusal, found {len(found)} records")
    return checked


def rows(letter, first, count):
    return "".join(f"{letter}{row:05},PAT-{row % 7},{row * 3 % 17}\n" for row in range(first, first + count))


def made(program, folder, form):
    """A dataset of several runs with whatever tables there are."""
    # Checkpoints of a Delta log are Parquet, and end like it, by Delta's own rules.
    index = {"parquet": [], "tar": ["--index", "dali,wids"], "tfrecord": ["--index", "dali,tfindex"]}[form]
    options = ["--to", form, "--out", "d", "--id", "id", "--subject", "who", "--task-size", "1KiB", "--target-shard", "1KiB"]
    for run_number, letter in enumerate("abcd"):
        (folder / f"{letter}.csv").write_text("id,who,x\n" + rows(letter, 0, ROWS))
        run(program, "convert", f"{letter}.csv", *options, *(index if run_number == 0 else []), folder=folder)
    return folder / "d"


def check(program, folder, form):
    dataset = made(program, folder, form)
    shards = lambda: [
        path
        for path in sorted(dataset.rglob("*"))
        if path.suffix == f".{form}" and "_shardify" not in path.parts and not path.name.startswith("READ-LIVE")
    ]
    everything = lambda: [one for path in shards() for one in ids_of(path)]
    live = sorted(f"{letter}{row:05}" for letter in "abcd" for row in range(ROWS))
    expect("ids", sorted(everything()), live)
    checked = compare("several runs", dataset, form, live)
    # An open plan, and shards of older versions beside the live ones.
    (folder / "e.csv").write_text("id,who,x\n" + rows("e", 0, 500))
    plan = objects(program, "plan", "convert", "e.csv", "--out", "d", "--task-size", "1KiB", folder=folder)[-1]["plan"]
    run(program, "run-task", plan, "--task", "0", folder=folder)
    sort = ["--sort-by", "x"] if form == "parquet" else []
    run(program, "compact", "d", *sort, "--target-shard", "1MiB", folder=folder)
    kinds = names_of(dataset)
    if not kinds["table"] > 20:
        raise Failure(f"expected tables, found {kinds}")
    if form == "parquet":
        checked += refused("old shards", dataset, form)
    else:
        checked += compare("an open plan and old shards", dataset, form, everything())
    tasks = objects(program, "plan", "convert", "e.csv", "--out", "d", "--task-size", "1KiB", folder=folder)[-1]["tasks"]
    run(program, "run-task", plan, "--task", f"0..{tasks - 1}", folder=folder)
    run(program, "commit", plan, folder=folder)
    run(program, "erase", "d", "PAT-3", "--all-versions", folder=folder)
    run(program, "compact", "d", *sort, "--target-shard", "1MiB", "--min-inputs", "2", folder=folder)
    run(program, "vacuum", "d", "--retain", "0s", "--force", folder=folder)
    run(program, "verify", "d", "--read-data", folder=folder)
    names_of(dataset)
    after = [one["record_id"] for one in objects(program, "manifest", "d", "--export", "jsonl", folder=folder) if "record_id" in one]
    checked += compare("the newest version alone", dataset, form, after)
    run(program, "pull", "d", "copy", folder=folder)
    names_of(folder / "copy")
    checked += compare("a copy", folder / "copy", form, after)
    return checked


def adopted(program, folder, form):
    """Shards of other programs that stay where they are, with endings in their names."""
    made(program, folder, form)
    theirs = folder / "theirs"
    expected = []
    listed = [one["path"] for one in objects(program, "manifest", "d", "--list", folder=folder) if one["type"] == "shard"]
    for number, path in enumerate(listed):
        target = theirs / f"part={number % 2}" / f"x-{number}.c000.{form}"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / "d" / path, target)
        expected += ids_of(target)
    run(program, "adopt", "theirs", *([] if form == "tar" else ["--id", "id"]), folder=folder)
    names_of(theirs)
    run(program, "verify", "theirs", "--read-data", folder=folder)
    return compare("an adoption in place", theirs, form, expected)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    program = str(pathlib.Path(parser.parse_args().shardify).resolve())
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_DATASETS_DISABLE_PROGRESS_BARS="1")
    checked = 0
    for form in READERS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["TMPDIR"] = folder
            for part in (check, adopted):
                place = pathlib.Path(folder) / part.__name__
                place.mkdir()
                checked += part(program, place, form)
        print(f"ok    {form}", flush=True)
    print(f"{checked} readings of folders found the shards and nothing else")
    return 0


if __name__ == "__main__":
    finish(main)
