#!/usr/bin/env python3
"""Which stock readers read which shards: the table of README.md, filled and checked.

    python3 scripts/checks/readers_table.py --shardify target/release/shardify [--python VENV/bin/python ...] [--only dali ray]
    python3 scripts/checks/readers_table.py --shardify target/release/shardify --python ... --update      # writes the table

The datasets have nulls, dates, times and several shards. They are converted in two runs, merged, and a subject is erased, so that shards
of older versions lie in the folder too. Each reader reads the live shards of every format and codec by their paths, tensors, and the
folder, in a process of its own, by the code in stock_readers.py, and by the first Python that has its packages: this one, those of
`--python`, and those of target/venv*. Its records are compared with those that are live. Rows of readers that are not installed stay as
they are in README.md, and are named. Exit code 1 if the table says something else than what was seen.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

from harness import Failure, finish, not_run, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "README.md"
READERS = pathlib.Path(__file__).with_name("stock_readers.py")
BEGIN, END = "<!-- readers_table.py -->", "<!-- end of readers_table.py -->"
CODECS = {"parquet": ("none", "snappy", "zstd", "lz4", "gzip"), "tar": ("none", "gzip", "zstd"), "tfrecord": ("none", "gzip")}
DEFAULTS = {"parquet": "zstd", "tar": "none", "tfrecord": "none"}
FIELDS, TENSOR_FIELDS = ("id", "text", "value", "day", "seen"), ("id", "grid")
SHAPE = (4, 6)
# Records of each of two runs, and how many of them belong to the subject that is erased.
ROWS, PEOPLE, GONE = 200, 20, "P7"
LIVE = [number for number in range(2 * ROWS) if f"P{number % PEOPLE}" != GONE]
LEAST_SHARDS = 3
# Seconds for all datasets of a format.
PATIENCE = 300
# Readers of media: a folder of testdata/files, and the files in it.
MEDIA = {"images": ("images", "*.webp"), "audio": ("audio", "*.wav")}
HEAD = "| Reader | Parquet | tar | TFRecord | Tensors | Folder |\n|---|---|---|---|---|---|"
VERSIONS = "import importlib.metadata, sys; print(' '.join(importlib.metadata.version(name) for name in sys.argv[1:]))"


@dataclasses.dataclass(frozen=True)
class Reader:
    """A row: function of stock_readers.py, title, packages (the first gives the version), formats, and the index that it needs.

    `folder` is what it takes for a folder: its `path`, a `glob`, or nothing."""

    function: str
    title: str
    packages: tuple[str, ...]
    formats: tuple[str, ...]
    index: str = ""
    folder: str = ""


PARQUET, TAR, TFRECORD = ("parquet",), ("tar",), ("tfrecord",)
ALL = [
    Reader("by_pyarrow", "pyarrow", ("pyarrow",), PARQUET, folder="path"),
    Reader("by_pandas", "pandas", ("pandas", "pyarrow"), PARQUET, folder="path"),
    Reader("by_polars", "Polars", ("polars",), PARQUET, folder="glob"),
    Reader("by_duckdb", "DuckDB", ("duckdb",), PARQUET, folder="glob"),
    Reader("by_dask", "Dask", ("dask", "pyarrow", "pandas"), PARQUET, folder="path"),
    Reader("by_pyspark", "PySpark", ("pyspark",), PARQUET, folder="glob"),
    Reader("by_petastorm", "Petastorm, `reader_pool_type=\"dummy\"`", ("petastorm",), PARQUET, folder="path"),
    Reader("by_ray", "Ray Data", ("ray", "pyarrow", "aiohttp", "tensorflow-cpu"), (*PARQUET, *TAR, *TFRECORD), folder="path"),
    Reader("by_datasets", "Hugging Face datasets", ("datasets",), (*PARQUET, *TAR), folder="path"),
    Reader("by_datasets", "Hugging Face datasets, `--index hf`", ("datasets",), PARQUET, "hf", "path"),
    Reader("by_datasets_streaming", "Hugging Face datasets, `streaming=True`", ("datasets",), (*PARQUET, *TAR), folder="path"),
    Reader("by_huggingface", "`shardify.open().huggingface()`", ("datasets",), (*PARQUET, *TAR)),
    Reader("images", "Hugging Face datasets, `Image` of `--write media=hf`", ("datasets", "pillow"), PARQUET),
    Reader("audio", "Hugging Face datasets, `Audio` of `--write media=hf`", ("datasets", "torchcodec", "torch"), PARQUET),
    Reader("by_webdataset", "webdataset", ("webdataset",), TAR, folder="glob"),
    Reader("by_torch", "webdataset and tfrecord in a torch `DataLoader` of 2 workers", ("torch", "webdataset", "tfrecord"), (*TAR, *TFRECORD)),
    Reader("by_shard_dataset", "`shardify.open().torch()` in a torch `DataLoader`", ("torch", "numpy", "tfrecord"), (*PARQUET, *TAR, *TFRECORD)),
    Reader("by_wids", "wids, `--index wids`", ("wids", "torch"), TAR, "wids"),
    Reader("by_energon", "Megatron-Energon, `--index energon`", ("megatron-energon",), TAR, "energon"),
    Reader("by_dali", "NVIDIA DALI, on the processor", ("nvidia-dali-cuda120",), (*TAR, *TFRECORD)),
    Reader("by_tensorflow", "tf.data", ("tensorflow-cpu",), TFRECORD, folder="glob"),
    Reader("by_tfrecord", "tfrecord", ("tfrecord",), TFRECORD, folder="glob"),
]  # fmt: skip


class Inputs:
    """Datasets, made when a reader asks for one, and the records that are live in them."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        rng = random.Random(1)
        texts = [f"ü-{number}-{rng.randbytes(60).hex()}" for number in range(2 * ROWS)]
        self.records = [[number, texts[number], *dated(number)] for number in LIVE]
        self.tensors = [[number, grid(number)] for number in LIVE]
        for run_number in range(2):
            numbers = range(run_number * ROWS, (run_number + 1) * ROWS)
            self.write_csv(f"raw{run_number}.csv", [(number, texts[number], *dated(number)) for number in numbers])
            self.write_tensors(f"raw{run_number}.parquet", numbers)

    def write_csv(self, name, rows):
        lines = ["id,text,value,day,seen,who", *(",".join("" if one is None else str(one) for one in (*row, who(row[0]))) for row in rows)]
        (self.folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def write_tensors(self, name, numbers):
        import pyarrow
        import pyarrow.parquet

        size = SHAPE[0] * SHAPE[1]
        values = pyarrow.array([value for number in numbers for line in grid(number) for value in line], pyarrow.float32())
        storage = pyarrow.FixedSizeListArray.from_arrays(values, size)
        column = pyarrow.ExtensionArray.from_storage(pyarrow.fixed_shape_tensor(pyarrow.float32(), SHAPE), storage)
        table = pyarrow.table({"id": list(numbers), "who": list(map(who, numbers)), "grid": column})
        pyarrow.parquet.write_table(table, self.folder / name)

    def dataset(self, reader, kind, codec, tensors=False):
        """The folder of a dataset, which is made the first time."""
        media = MEDIA.get(reader.function)
        out = self.folder / "-".join(["tensors" if tensors else "records", kind, codec, reader.index, reader.function if media else ""])
        if out.exists():
            return out
        words = ["--out", out, "--to", kind, "--codec", codec, *(["--index", reader.index] if reader.index else [])]
        if media:
            run(self.program, "convert", ROOT / "testdata" / "files" / media[0], *words, "--write", "media=hf", "--include", media[1])
            return out
        for number in range(2):
            source = self.folder / f"raw{number}.{'parquet' if tensors else 'csv'}"
            run(self.program, "convert", source, *words, "--id", "id", "--subject", "who", "--shards", "4")
        run(self.program, "compact", out, "--min-inputs", "2", "--target-shard", "12KiB")
        run(self.program, "erase", out, "--subject", GONE)
        live, there = len(self.paths(out)), len([path for path in out.rglob(f"*.{kind}*") if "_shardify" not in path.parts])
        if live < LEAST_SHARDS or there <= live:
            raise Failure(f"expected {LEAST_SHARDS} live shards of {out.name} and old ones beside them, found {live} of {there}")
        return out

    def paths(self, out):
        """The live shards, in the order of their records."""
        return run(self.program, "manifest", out, "--list", "--paths").decode().splitlines()


def who(number):
    return f"P{number % PEOPLE}"


def dated(number):
    """Value, day and time of a record, each null now and then."""
    day = (datetime.date(2024, 1, 1) + datetime.timedelta(number)).isoformat()
    at = (datetime.datetime(2024, 1, 1, 12) + datetime.timedelta(seconds=7 * number)).isoformat()
    return None if number % 7 == 0 else number / 4, None if number % 5 == 0 else day, None if number % 3 == 0 else at


def grid(number):
    """The tensor of a record, of numbers that `float32` has exactly."""
    rng = random.Random(number)
    return [[rng.randrange(1 << 20) / 64 for _ in range(SHAPE[1])] for _ in range(SHAPE[0])]


class Table:
    """Reads with every reader, and knows what was seen."""

    def __init__(self, options, inputs):
        self.inputs = inputs
        self.pythons = [pathlib.Path(sys.executable), *options.python, *sorted((ROOT / "target").glob("venv*/bin/python"))]

    def row(self, reader):
        """The row of a reader; None if no Python has its packages."""
        python, version = self.installed(reader)
        if python is None:
            return None
        cells = [self.cell(reader, kind, python) if kind in reader.formats else "" for kind in CODECS]
        cells += [self.tensors(reader, python), self.of_folder(reader, python)] if reader.function not in MEDIA else ["", ""]
        return f"| {reader.title} {version} | " + " | ".join(cells) + " |"

    def installed(self, reader):
        for python in self.pythons:
            found = subprocess.run([python, "-c", VERSIONS, *reader.packages], capture_output=True, text=True, timeout=60)
            if found.returncode == 0:
                return python, found.stdout.split()[0]
        return None, None

    def cell(self, reader, kind, python):
        """What a reader says of the codecs of a format."""
        works, fails = [], {}
        for codec, said in self.reads(reader, kind, python).items():
            print(f"      {reader.title}: {kind} {codec}: {said or 'the same records'}", flush=True)
            if said is None:
                works.append(codec)
            else:
                fails.setdefault(said, []).append(codec)
        if not fails:
            return "yes" if reader.index else "all"
        parts = [", ".join(works)] if works else []
        if not works and len(fails) == 1:
            return f"no: {next(iter(fails))}"
        return "; ".join([*parts, *(f"not {', '.join(codecs)}: {said}" for said, codecs in fails.items())])

    def reads(self, reader, kind, python):
        """For each codec None if the records are those that are live, else what the reader says."""
        # Indexes of samples are for tar that is not compressed.
        codecs = ["none"] if reader.index and kind == "tar" else [DEFAULTS[kind]] if reader.index else CODECS[kind]
        folders = {codec: self.inputs.dataset(reader, kind, codec) for codec in codecs}
        given = [(codec, folder, self.inputs.paths(folder)) for codec, folder in folders.items()]
        fields = ("read", "file") if reader.function in MEDIA else FIELDS
        found, errors = self.records([python, READERS, reader.function, kind, ",".join(fields)], given)
        return {codec: self.judged(reader, found.get(codec, errors)) for codec in codecs}

    def judged(self, reader, found):
        if isinstance(found, str):
            return readable(found)
        if reader.function in MEDIA:
            return None if found and all(read == file for read, file in found) else "other pictures or sounds"
        return difference(found, self.inputs.records)

    def tensors(self, reader, python):
        """How a reader gives tensors, of the first format that it reads."""
        kind = reader.formats[0]
        folder = self.inputs.dataset(reader, kind, DEFAULTS[kind], tensors=True)
        found = self.one(reader, kind, python, TENSOR_FIELDS, folder, self.inputs.paths(folder))
        if isinstance(found, str):
            return f"no: {readable(found)}"
        if difference(found, self.inputs.tensors) is None:
            return "bytes, with shape and type" if kind == "tfrecord" else "with their shape"
        flat = [[number, [value for line in lines for value in line]] for number, lines in self.inputs.tensors]
        return "flat values" if difference(found, flat) is None else f"no: {difference(found, self.inputs.tensors)}"

    def of_folder(self, reader, python):
        """What a reader finds that is given the folder, in which shards of older versions lie too."""
        if not reader.folder:
            return ""
        kind = reader.formats[0]
        folder = self.inputs.dataset(reader, kind, DEFAULTS[kind])
        found = sorted(str(path) for path in folder.rglob(f"*.{kind}") if "_shardify" not in path.parts)
        read = self.one(reader, kind, python, FIELDS, folder, str(folder) if reader.folder == "path" else found)
        if isinstance(read, str):
            # Some say only that one of the files is not as the others.
            has_signs = any(folder.rglob("READ-LIVE-SHARDS-ONLY*"))
            return "refuses it" if has_signs else f"no: {readable(read)}"
        if difference(read, self.inputs.records) is None:
            return "live records"
        live = {one[0] for one in self.inputs.records}
        return "old shards too" if live < {one[0] for one in read} else f"no: {difference(read, self.inputs.records)}"

    def one(self, reader, kind, python, fields, folder, paths):
        """The records of one dataset, or what the reader says."""
        found, errors = self.records([python, READERS, reader.function, kind, ",".join(fields)], [("one", folder, paths)])
        return found.get("one", errors)

    def records(self, command, given):
        """What stock_readers.py prints for each dataset, and the end of what it says if it dies."""
        settings = {**os.environ, "SHARDIFY_BINARY": str(self.inputs.program), "PYTHONPATH": str(ROOT / "python"), "RECORDS": str(len(LIVE))}
        settings |= {"HF_HOME": str(self.inputs.folder / "cache"), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        settings |= {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "PYSPARK_PYTHON": str(command[0])}
        settings |= {"FILES": str(ROOT / "testdata" / "files"), "PATH": f"{command[0].parent}:{os.environ['PATH']}"}
        words = [str(word) for word in command]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=errors, text=True, env=settings, start_new_session=True)
            try:
                process.communicate(json.dumps([[name, str(folder), paths] for name, folder, paths in given]), timeout=PATIENCE)
                ended = f"ends with {process.returncode}"
            except subprocess.TimeoutExpired:
                ended = "hangs"
            finally:
                # Workers of its own that it has left behind.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.seek(0)
            errors.seek(0)
            lines = errors.read().splitlines() if ended != "hangs" else []
            return dict(json.loads(line) for line in out), " ".join([ended, *lines[-1:]])


def difference(found, wanted):
    """What is different about the records that were read; None if nothing is."""
    found = sorted(found, key=lambda one: one[0])
    if len(found) != len(wanted):
        return f"{len(found)} of {len(wanted)} records"
    pairs = [pair for read, put in zip(found, wanted, strict=True) for pair in zip(read, put, strict=True)]
    return next((f"gives {json.dumps(value)} for {json.dumps(put)}" for value, put in pairs if value != put), None)


def readable(said):
    """A message of another program in a cell of the table."""
    said = re.sub(r"\b[0-9a-f]{16}\b", "...", said)
    said = re.sub(r"extension<([\w.]+)\[[^>]*>", r"\1", said)
    said = re.sub(r", <_io\S* name='[^']*'>", "", said)
    said = re.sub(r"(?:file:)?/[\w./+-]*/", "", said).replace("|", "/").replace("`", "'")
    return f"`{said if len(said) <= 100 else said[:97] + '...'}`"


def shown(text):
    """The rows of the table in README.md by the title of their reader."""
    rows = re.findall(r"^\| (.*?) ?(?:\d[\w.]*)? \|.*\|$", text, re.M)
    lines = re.findall(r"^\| .*\|$", text, re.M)
    return dict(zip(rows, lines, strict=True))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--python", nargs="+", type=pathlib.Path, default=[], help="more interpreters, with other packages")
    parser.add_argument("--only", nargs="+", default=[""], help="readers with such a text in their functions or titles")
    parser.add_argument("--update", action="store_true", help="write the table into README.md")
    options = parser.parse_args()
    rows, differ = shown(parts_of(PAGE.read_text())[1]), []
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs(pathlib.Path(options.shardify).resolve(), pathlib.Path(folder))
        table = Table(options, inputs)
        for reader in ALL:
            if not any(text in f"{reader.function} {reader.title}" for text in options.only):
                continue
            row = table.row(reader)
            if row is None:
                not_run(f"readers_table: {reader.title}", f"no Python has {', '.join(reader.packages)}")
                continue
            if without_version(row) != without_version(rows.get(reader.title, "")):
                differ.append(f"README.md: {rows.get(reader.title, 'no row')}\n     seen: {row}")
            else:
                print(f"ok    {reader.title}", flush=True)
            rows[reader.title] = row
    lines = [HEAD, *(rows[reader.title] for reader in ALL if reader.title in rows)]
    if options.update:
        before, _, after = parts_of(PAGE.read_text())
        PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{after}")
        print(f"README.md: {len(differ)} rows are new or have changed")
    elif differ:
        raise Failure("the table differs; --update writes it\n" + "\n".join(differ))
    return 0


def parts_of(page):
    """What is before the table, the table, and what is after it."""
    return page[: page.index(BEGIN)], page[page.index(BEGIN) : page.index(END)], page[page.index(END) :]


def without_version(row):
    """A row without the version of the reader: that of README.md may be another."""
    return re.sub(r"^(\| .*?) \d[\w.]* \|", r"\1 |", row)


if __name__ == "__main__":
    finish(main)
