#!/usr/bin/env python3
"""Which stock readers read which shards: the table of README.md, filled and checked.

    python3 scripts/checks/readers_table.py --shardify target/release/shardify [--python VENV/bin/python ...] [--only dali ray]
    python3 scripts/checks/readers_table.py --shardify target/release/shardify --python ... --update      # writes the table

Each reader reads every format and codec in a process of its own, by the code in stock_readers.py, and by the first Python that has its
packages: this one, those of `--python`, and those of target/venv*. Its records are compared with what was put in. Rows of readers that
are not installed stay as they are in README.md, and are named. Exit code 1 if the table says something else than what was seen.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile

from harness import Failure, finish, not_run, objects, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "README.md"
READERS = pathlib.Path(__file__).with_name("stock_readers.py")
BEGIN, END = "<!-- readers_table.py -->", "<!-- end of readers_table.py -->"
CODECS = {"parquet": ("none", "snappy", "zstd", "lz4", "gzip"), "tar": ("none", "gzip", "zstd"), "tfrecord": ("none", "gzip")}
FORMATS = {"parquet": "Parquet", "tar": "tar", "tfrecord": "TFRecord"}
ROWS = 300
# Seconds for all codecs of a format.
PATIENCE = 300
# Readers of media: a folder of testdata/files, and the files in it.
MEDIA = {"images": ("images", "*.webp"), "audio": ("audio", "*.wav")}
HEAD = "| Reader | Parquet | tar | TFRecord |\n|---|---|---|---|"
VERSIONS = "import importlib.metadata, sys; print(' '.join(importlib.metadata.version(name) for name in sys.argv[1:]))"


@dataclasses.dataclass(frozen=True)
class Reader:
    """A row: function of stock_readers.py, title, packages (the first gives the version), formats, and the index that it needs."""

    function: str
    title: str
    packages: tuple[str, ...]
    formats: tuple[str, ...]
    index: str = ""


PARQUET, TAR, TFRECORD = ("parquet",), ("tar",), ("tfrecord",)
ALL = [
    Reader("by_pyarrow", "pyarrow", ("pyarrow",), PARQUET),
    Reader("by_pandas", "pandas", ("pandas", "pyarrow"), PARQUET),
    Reader("by_polars", "Polars", ("polars",), PARQUET),
    Reader("by_duckdb", "DuckDB", ("duckdb",), PARQUET),
    Reader("by_dask", "Dask", ("dask", "pyarrow", "pandas"), PARQUET),
    Reader("by_pyspark", "PySpark", ("pyspark",), PARQUET),
    Reader("by_petastorm", "Petastorm, `reader_pool_type=\"dummy\"`", ("petastorm",), PARQUET),
    Reader("by_ray", "Ray Data", ("ray", "pyarrow", "aiohttp", "tensorflow-cpu"), (*PARQUET, *TAR, *TFRECORD)),
    Reader("by_datasets", "Hugging Face datasets", ("datasets",), (*PARQUET, *TAR)),
    Reader("by_datasets_streaming", "Hugging Face datasets, `streaming=True`", ("datasets",), (*PARQUET, *TAR)),
    Reader("images", "Hugging Face datasets, `Image` of `--write media=hf`", ("datasets", "pillow"), PARQUET),
    Reader("audio", "Hugging Face datasets, `Audio` of `--write media=hf`", ("datasets", "torchcodec", "torch"), PARQUET),
    Reader("by_webdataset", "webdataset", ("webdataset",), TAR),
    Reader("by_torch", "webdataset and tfrecord in a torch `DataLoader` of 2 workers", ("torch", "webdataset", "tfrecord"), (*TAR, *TFRECORD)),
    Reader("by_shard_dataset", "`shardify.open().torch()` in a torch `DataLoader` of 2 workers", ("torch", "pyarrow", "tfrecord"), (*PARQUET, *TAR, *TFRECORD)),
    Reader("by_wids", "wids, `--index wids`", ("wids", "torch"), TAR, "wids"),
    Reader("by_energon", "Megatron-Energon, `--index energon`", ("megatron-energon",), TAR, "energon"),
    Reader("by_dali", "NVIDIA DALI, on the processor", ("nvidia-dali-cuda120",), (*TAR, *TFRECORD)),
    Reader("by_tensorflow", "tf.data", ("tensorflow-cpu",), TFRECORD),
    Reader("by_tfrecord", "tfrecord", ("tfrecord",), TFRECORD),
]  # fmt: skip


class Inputs:
    """Records, and datasets of them, made when a reader asks for one."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.records = []
        rng = random.Random(1)
        lines = ["id,text,value"]
        for number in range(ROWS):
            text = f"ü-{number}-{rng.randbytes(90).hex()}"
            value = None if number % 7 == 0 else number / 4
            self.records.append([number, text, value])
            lines.append(f"{number},{text},{'' if value is None else value}")
        (self.folder / "raw.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def dataset(self, reader, kind, codec):
        """The folder of a dataset, and the paths of its shards; which are made the first time."""
        media = MEDIA.get(reader.function)
        out = self.folder / f"{kind}-{codec}-{reader.index}-{reader.function if media else ''}"
        if not out.exists():
            words = ["--to", kind, "--codec", codec, *(["--index", reader.index] if reader.index else [])]
            if media:
                source = ROOT / "testdata" / "files" / media[0]
                words += ["--write", "media=hf", "--include", media[1]]
            else:
                source, more = self.folder / "raw.csv", ["--id", "id", "--target-shard", "16KiB"]
                words += more
            run(self.program, "convert", source, "--out", out, *words)
        shards = [one for one in objects(self.program, "manifest", out, "--list") if one["type"] == "shard"]
        shards.sort(key=lambda one: one["first_record"])
        if not media and len(shards) < 2:
            raise Failure(f"expected several shards of {kind} {codec}, found {len(shards)}")
        return out, [str(out / one["path"]) for one in shards]


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
        """For each codec None if the records are those that were put in, else what the reader says."""
        # Indexes of samples are for tar that is not compressed.
        codecs = ["none"] if reader.index else CODECS[kind]
        given = [(codec, *self.inputs.dataset(reader, kind, codec)) for codec in codecs]
        found, errors = self.records([python, READERS, reader.function, kind], given)
        return {codec: self.judged(reader, found.get(codec, errors)) for codec in codecs}

    def judged(self, reader, found):
        if isinstance(found, str):
            return readable(found)
        if reader.function in MEDIA:
            return None if found and all(read == file for read, file, _ in found) else "other pictures or sounds"
        found, wanted = sorted(found), self.inputs.records
        if len(found) != len(wanted):
            return f"{len(found)} of {len(wanted)} records"
        pairs = [pair for read, put in zip(found, wanted, strict=True) for pair in zip(read, put, strict=True)]
        return next((f"gives {json.dumps(value)} for {json.dumps(put)}" for value, put in pairs if value != put), None)

    def records(self, command, given):
        """What stock_readers.py prints for each codec, and the end of what it says if it dies."""
        settings = {**os.environ, "SHARDIFY_BINARY": str(self.inputs.program), "PYTHONPATH": str(ROOT / "python"), "RECORDS": str(ROWS)}
        settings |= {"PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "PYSPARK_PYTHON": str(command[0])}
        settings |= {"FILES": str(ROOT / "testdata" / "files"), "PATH": f"{command[0].parent}:{os.environ['PATH']}"}
        words = [str(word) for word in command]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=errors, text=True, env=settings, start_new_session=True)
            try:
                process.communicate(json.dumps([[codec, str(folder), paths] for codec, folder, paths in given]), timeout=PATIENCE)
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


def readable(said):
    """A message of another program in a cell of the table."""
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
    page = PAGE.read_text()
    before, old, after = page[: page.index(BEGIN)], page[page.index(BEGIN) : page.index(END)], page[page.index(END) :]
    rows, differ = shown(old), []
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
        PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(lines) + f"\n{after}")
        print(f"README.md: {len(differ)} rows are new or have changed")
    elif differ:
        raise Failure("the table differs; --update writes it\n" + "\n".join(differ))
    return 0


def without_version(row):
    """A row without the version of the reader: that of README.md may be another."""
    return re.sub(r"^(\| .*?) \d[\w.]* \|", r"\1 |", row)


if __name__ == "__main__":
    finish(main)
