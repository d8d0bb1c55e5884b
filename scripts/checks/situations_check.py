#!/usr/bin/env python3
"""Files as people have them become the records that they mean, or a message says what to do.

    python3 scripts/checks/situations_check.py --shardify target/release/shardify [--only german,sep]

A situation is some files, a command, and either the records, as pyarrow and tarfile read the shards, or what has to be said: words of
Python's JSON, dialects of CSV, records below members of a document, leftovers of systems, folders of other libraries, formats that are not
read, samples in parallel folders.
"""

import argparse
import dataclasses
import gzip
import io
import json
import math
import pathlib
import subprocess
import tarfile
import tempfile
import zipfile

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
from harness import Failure, expect, finish

SITUATIONS = []


@dataclasses.dataclass
class Found:
    """What a conversion left: rows in any order, names and bytes of members, and what it said."""

    code: int
    said: str
    rows: list
    types: dict
    members: dict

    def has(self, *rows):
        sort = lambda some: sorted(map(repr, some))  # noqa: E731
        expect(f"records ({self.said})", sort(self.rows), sort(rows))

    def says(self, *texts):
        for text in texts:
            if text not in self.said:
                raise Failure(f"expected {text!r} to be said, found {self.said!r}")

    def refuses(self, *texts):
        if self.code == 0:
            raise Failure(f"expected a refusal, found {self.rows or list(self.members)}")
        self.says(*texts)


def situation(*options, source="in"):
    """A function that yields the files by name, and then gets what was found."""

    def add(function):
        SITUATIONS.append((function.__name__, function, options, source))
        return function

    return add


def rows_of(folder):
    """Rows and types of all Parquet shards of a dataset."""
    tables = [pyarrow.parquet.read_table(path) for path in sorted(folder.glob("*/*.parquet")) if path.parent.name != "_shardify"]
    if not tables:
        return [], {}
    table = pyarrow.concat_tables(tables)
    return [tuple(row.values()) for row in table.to_pylist()], {field.name: str(field.type) for field in table.schema}


def members_of(folder):
    """Names and bytes of members of all tar shards of a dataset."""
    out = {}
    for path in sorted(folder.glob("*/*.tar")):
        with tarfile.open(path) as archive:
            out |= {member.name: archive.extractfile(member).read() for member in archive.getmembers()}
    return out


def convert(binary, folder, source, options):
    command = [binary, "convert", source, "--out", "out", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    out = folder / "out"
    rows, types = rows_of(out)
    return Found(done.returncode, done.stderr + done.stdout, rows, types, members_of(out))


def zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def arrow(rows):
    table = pyarrow.Table.from_pylist(rows)
    out = io.BytesIO()
    with pyarrow.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()


def parquet(rows):
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    return out.getvalue()


# Words of Python's JSON.


@situation()
def words_within_lists():
    lines = [{"id": 1, "v": [1.5, math.nan], "s": "NaN"}, {"id": 2, "v": [-math.inf], "s": "x"}, {"id": 3, "v": [], "s": None}]
    found = yield {"a.jsonl": "".join(json.dumps(line) + "\n" for line in lines)}
    found.has((1, [1.5, math.nan], "NaN"), (2, [-math.inf], "x"), (3, [], None))


@situation()
def words_in_a_document():
    found = yield {"a.json": json.dumps([{"x": math.inf, "n": 1}, {"x": 2.0, "n": None}], indent=1)}
    found.has((math.inf, 1), (2.0, None))


@situation("--on-error", "skip")
def words_that_python_does_not_write():
    found = yield {"a.jsonl": '{"x": 1}\n{"x": nan}\n{"x": 3}\n'}
    expect("exit code", found.code, 3)
    found.has((1,), (3,))
    found.says("line 2")


# Dialects.


@situation()
def german_without_a_word():
    found = yield {"a.csv": "id;betrag;tag\n1;1.234,56;31.12.2026\n2;7,5;01.01.2027\n"}
    found.has((1, "1.234,56", "31.12.2026"), (2, "7,5", "01.01.2027"))
    found.says("--read 'decimal=,' --read 'thousands=.'", "--read 'date=%d.%m.%Y'")


@situation("--read", "decimal=,", "--read", "thousands=.", "--read", "date=%d.%m.%Y")
def german_as_it_is_told():
    found = yield {"a.csv": "id;betrag;tag\n1;1.234,56;31.12.2026\n2;7,5;01.01.2027\n"}
    expect("types", found.types, {"id": "int64", "betrag": "double", "tag": "date32[day]"})
    expect("amounts", sorted(row[1] for row in found.rows), [7.5, 1234.56])


@situation()
def first_line_of_excel():
    found = yield {"a.csv": "sep=|\r\nid|x\r\n1|a,b\r\n2|c;d\r\n"}
    found.has((1, "a,b"), (2, "c;d"))
    found.says("sep=|")


@situation("--read", "null=\\N", "--read", "header=no")
def hive_with_control_characters():
    found = yield {"a.csv": "".join(f"{n}\x01name {n}\x01{n if n % 2 else chr(92) + 'N'}\n" for n in range(9))}
    found.has(*((n, f"name {n}", n if n % 2 else None) for n in range(9)))


@situation()
def null_of_postgres():
    found = yield {"a.csv": "id,x\n1,5\n2,\\N\n3,7\n"}
    found.has((1, "5"), (2, "\\N"), (3, "7"))
    found.says("--read 'null=\\N'")


@situation("--read", "header=no")
def ratings_of_movielens():
    found = yield {"ratings.csv": "".join(f"{n}::{n * 7}::{n / 2}\n" for n in range(1, 20))}
    found.has(*((n, n * 7, n / 2) for n in range(1, 20)))
    found.says("`::` was taken as the delimiter")


@situation()
def exports_of_mysql():
    text = "id,said\n" + "".join(f'{n},"He said \\"hi {n}\\", and left"\n' for n in range(20))
    found = yield {"a.csv": text}
    found.has(*((n, f'He said "hi {n}", and left') for n in range(20)))
    found.says("escape of quotes")


@situation()
def inches_without_quoting():
    text = "id\tsize\n" + "".join(f'{n}\t{n}" screen\n' if n % 3 else f'{n}\t"A" of {n}\n' for n in range(300))
    found = yield {"a.tsv": text}
    found.has(*((n, f'{n}" screen' if n % 3 else f'"A" of {n}') for n in range(300)))


@situation("--read", "quote=none")
def quotes_that_open_and_never_close():
    text = "id\tt\n" + "".join(f'{n}\t"begins {n}\n' if n in (3, 90) else f"{n}\tx\n" for n in range(100))
    found = yield {"a.tsv": text}
    found.has(*((n, f'"begins {n}' if n in (3, 90) else "x") for n in range(100)))


@situation()
def unicode_text_of_excel():
    found = yield {"a.txt": "id\tname\r\n1\tZoë\r\n2\tÅsa\r\n3\t\U0001f600\r\n".encode("utf-16")}
    found.has((1, "Zoë"), (2, "Åsa"), (3, "\U0001f600"))


# Records below members.


@situation("--read", "records=features")
def features_of_a_map():
    features = [{"type": "Feature", "id": n, "properties": {"pop": n * 10}} for n in range(50)]
    found = yield {"a.geojson": json.dumps({"type": "FeatureCollection", "features": features})}
    found.has(*(("Feature", n, {"pop": n * 10}) for n in range(50)))


@situation()
def records_below_two_members():
    items = [{"charge": n, "code": f"C{n}"} for n in range(200)]
    found = yield {"a.json": json.dumps({"hospital": "H", "data": {"items": items}})}
    expect("records", len(found.rows), 1)
    found.says("--read records=data.items")


@situation("--read", "records=data.items")
def records_below_two_members_as_told():
    items = [{"charge": n, "code": f"C{n}"} for n in range(200)]
    found = yield {"a.json": json.dumps({"hospital": "H", "data": {"items": items}})}
    found.has(*((n, f"C{n}") for n in range(200)))


# Leftovers of systems, and what tools write beside data.


LEFTOVERS = {
    "._a.csv": b"\0\5\x16\7",
    ".DS_Store": b"\0\0\0\1Bud1",
    "Thumbs.db": b"\xd0\xcf\x11\xe0",
    "desktop.ini": b"[.ShellClassInfo]\r\n",
}


@situation()
def leftovers_beside_tables():
    found = yield {"a.csv": "id\n1\n", "b.csv": "id\n2\n", "@eaDir/a.csv@SynoEAStream": b"x", **LEFTOVERS}
    found.has((1,), (2,))
    found.says("ignored")


@situation(source="in/a.zip")
def leftovers_in_a_zip():
    members = {"d/1.jpg": b"J1", "d/1.txt": b"one", "d/2.jpg": b"J2", "d/2.txt": b"two", "__MACOSX/d/._1.jpg": b"\0\5", "d/.DS_Store": b"x"}
    found = yield {"a.zip": zipped(members)}
    kept = {name: content for name, content in members.items() if "." not in name.split("/")[-1][:1] and "MACOSX" not in name}
    expect("members", found.members, {f"a.zip/{name}": content for name, content in kept.items()})


@situation(source="in/a.tar")
def leftovers_in_a_tar():
    found = yield {"a.tar": tarred({"._1.jpg": b"\0\5", "1.jpg": b"J1", "1.cls": b"0", "._2.jpg": b"\0\5", "2.jpg": b"J2", "2.cls": b"1"})}
    expect("members", found.members, {"1.jpg": b"J1", "1.cls": b"0", "2.jpg": b"J2", "2.cls": b"1"})


@situation()
def output_of_spark():
    parts = {f"part-0000{n}-c000.csv": f"id,x\n{n},2\n" for n in range(3)}
    sums = {"_SUCCESS": "", "._SUCCESS.crc": b"crc\0", ".part-00000-c000.csv.crc": b"crc\0"}
    found = yield {**parts, **sums, "README.md": "# Data\n", "SHA256SUMS": "0  x\n"}
    found.has((0, 2), (1, 2), (2, 2))


# Folders of other libraries.


@situation()
def cache_of_hugging_face():
    rows = [{"text": "a"}, {"text": "b"}]
    files = {"json-train.arrow": arrow(rows), "cache-0123456789abcdef.arrow": arrow(rows), "dataset_info.json": '{"features": {}}'}
    found = yield files
    found.has(("a",), ("b",))
    found.says("cache-0123456789abcdef.arrow")


@situation()
def episodes_of_lerobot():
    found = yield {
        "meta/info.json": '{"codebase_version": "v3.0"}',
        "meta/tasks.parquet": parquet([{"task": "grasp"}]),
        "meta/episodes/chunk-000/file-000.parquet": parquet([{"episode_index": 0}]),
        "data/chunk-000/file-000.parquet": parquet([{"index": 0}, {"index": 1}]),
        "videos/top/chunk-000/file-000.mp4": b"\0\0\0\x18ftypmp42",
    }
    found.refuses("LeRobot", "--include '**/data/**/*.parquet'")


@situation("--include", "**/data/**/*.parquet")
def frames_of_lerobot():
    found = yield {
        "meta/info.json": '{"codebase_version": "v3.0"}',
        "meta/episodes/chunk-000/file-000.parquet": parquet([{"episode_index": 0}]),
        "data/chunk-000/file-000.parquet": parquet([{"index": 0}, {"index": 1}]),
    }
    found.has((0,), (1,))


@situation(source="in/a.zip")
def tables_of_a_competition():
    files = {"train.csv": "id,x,y\n1,2,0\n", "test.csv": "id,x\n2,3\n", "sample_submission.csv": "id,y\n2,0\n"}
    found = yield {"a.zip": zipped(files)}
    found.says("2 of 3 tables lack columns that others have")


# Formats that are not read.


@situation()
def data_sets_of_sas():
    found = yield {"a.sas7bdat": b"\0" * 64, "b.sas7bdat": b"\0" * 64}
    found.refuses("a SAS data set", "--from files", "Python")


@situation()
def pickles_alone():
    found = yield {"a.pkl": b"\x80\x05K\x01.", "b.pickle": b"\x80\x05K\x02."}
    found.refuses("a Python pickle", "runs the code", "--from files")


@situation()
def scans_without_names():
    scan = b"\0" * 128 + b"DICM" + b"\2\0\0\0UL\4\0" + b"\0" * 64
    found = yield {"IM0001": scan, "IM0002": scan}
    found.refuses("a DICOM file", "may name the patient", "--from files")


@situation(source="in/export.dat")
def one_file_of_text():
    found = yield {"export.dat": "1 a\n2 b\n"}
    expect("members", list(found.members.values()), [b"1 a\n2 b\n"])
    found.says("if it holds records, name its format")


# Samples in parallel folders.


@situation("--key", "(?<part>images|labels)Tr/(case_[0-9]+)")
def images_and_labels_side_by_side():
    files = {}
    for number in range(3):
        files |= {f"imagesTr/case_{number}_0000.png": b"P%d" % number, f"labelsTr/case_{number}.txt": b"L%d" % number}
    found = yield files
    expect("members", sorted(found.members), sorted(f"case_{n}.{part}" for n in range(3) for part in ("images.0000.png", "labels.txt")))


@situation(source="in/logs.jsonl.gz")
def lines_in_two_members_of_gzip():
    found = yield {"logs.jsonl.gz": gzip.compress(b'{"a": 1}\n') + gzip.compress(b'{"a": 2}\n')}
    found.has((1,), (2,))


def run_one(binary, name, function, options, source):
    with tempfile.TemporaryDirectory(prefix=f"situations.{name}.") as folder:
        folder = pathlib.Path(folder)
        course = function()
        for path, content in next(course).items():
            path = folder / "in" / path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        found = convert(binary, folder, source, options)
        try:
            course.send(found)
        except StopIteration:
            return
        raise Failure("the situation did not end")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=pathlib.Path, required=True)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    given = parser.parse_args()
    failed = 0
    for name, function, options, source in SITUATIONS:
        if given.only and not any(part in name for part in given.only):
            continue
        try:
            run_one(str(given.shardify.resolve()), name, function, options, source)
        except Failure as failure:
            failed += 1
            print(f"FAIL  {name}: {failure}", flush=True)
    print(f"{'FAIL' if failed else 'ok'}    {len(SITUATIONS)} situations, {failed} failed", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    finish(main)
