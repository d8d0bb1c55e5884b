#!/usr/bin/env python3
"""Dirty CSV: 200 files made from 10 clean ones, read by shardify, DuckDB, pandas and pyarrow.

Each clean file is spoiled in 20 ways (`KINDS`), after the Pollock benchmark (Vitagliano et al., VLDB 2023), with a seed. What a
careful reader would want from the spoiled file is known:

- Damage that leaves the values visible (another delimiter or quote, a quote too many or too few, spaces, line ends, trailing
  delimiters, marks) costs no record: all clean records are wanted, also where a tool cannot be expected to find them.
- Missing fields at the end of a record are nulls. A record with more values than there are columns has no right reading: it
  is not wanted, so that leaving it out is right, and any reading of it counts against precision.
- Notes, blank lines, repeated headers, lines of units below the header are no records; a reader that cannot know says that it kept
  them. Of two tables the first is wanted.
- A line of nothing but delimiters is a record of nulls.

Records are compared as multisets of values. Values are equal if their texts are, spaces around them aside, or the numbers or
times that they stand for; nulls at the end of a record count for nothing. Columns must have the names of the clean file,
unless it has lost its header or has two of them.

`shardify convert` with its defaults is right, refuses, reads a wrong table and tells so (reject, padded record, or note), or
reads a wrong table silently. `--on-error skip` is measured by the F1 of records. The other tools read the same files: DuckDB with
`ignore_errors`, pandas with `sep=None, engine="python", on_bad_lines="skip"`, pyarrow with the delimiter of the file's first
line and an `invalid_row_handler` that skips.

    python3 scripts/checks/dirty_csv.py --shardify target/release/shardify [--seed 1] [--keep DIR] [--only KIND] [-v]

Prints a line per kind and the totals; exit code 1 if a silent wrong table is found, more files are refused by default than
pandas refuses (one in a hundred aside), or the mean F1 with `--on-error skip` is below 0.99. Clean files must be right, without a note.
"""

import argparse
import collections
import csv
import dataclasses
import datetime as dt
import decimal
import io
import json
import pathlib
import random
import re
import shutil
import sys
import tempfile
import warnings

import duckdb
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from harness import INPUT, OK, REJECTS, USAGE, Shardify

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTDATA = ROOT / "testdata"
# File, delimiter, records taken of it: some have more than are looked at before reading, some only a few.
CLEAN = [
    ("csv/seattle-weather.csv", ",", 1461),
    ("csv/unemployment.tsv", "\t", 3218),
    ("csv/uspop.csv", ",", 100),
    ("csv/titanic.csv", ",", 891),
    ("csv/himym.csv", ",", 205),
    ("csv/venue_pipe.csv", "|", 202),
    ("patients/CONDITION_OCCURRENCE.csv", ",", 470),
    ("patients/PERSON.csv", ",", 28),
    ("patients/MEASUREMENT.csv", ",", 3000),
    ("jsonl/grade-school-math.jsonl", ",", 400),
]
LEAST_F1 = 0.99
BYTE_ORDER_MARK = "\ufeff"
NOTES = [
    "Report of the data office, all rights reserved",
    "Source: own survey; figures may be revised",
    "Generated on 2024-03-01 12:00 by the export service",
    "For questions, comments, and corrections write to the editors",
]


@dataclasses.dataclass
class Table:
    """A table as text; `quote_all` tells that every value is quoted."""

    names: list
    rows: list
    delimiter: str = ","
    quote: str = '"'
    quote_all: bool = False

    def field(self, value, delimiter=None, quote=None, always=False):
        delimiter, quote = delimiter or self.delimiter, quote or self.quote
        special = any(part in value for part in (delimiter, quote, "\n", "\r"))
        if special or always or (self.quote_all and value):
            return quote + value.replace(quote, quote * 2) + quote
        return value

    def line(self, row, delimiter=None, quote=None):
        delimiter = delimiter or self.delimiter
        return delimiter.join(self.field(value, delimiter, quote) for value in row)

    def lines(self):
        return [self.line(self.names), *map(self.line, self.rows)]


@dataclasses.dataclass
class Spoiled:
    """Text of a file, and what is to be read from it; any names will do where there are none."""

    text: str
    records: list
    names: list | None
    delimiter: str


def clean_tables():
    """Name -> table."""
    out = {}
    for file, delimiter, count in CLEAN:
        path = TESTDATA / file
        if path.suffix == ".jsonl":
            rows = [json.loads(line) for line in path.read_text().splitlines()[:count]]
            names = ["number", *rows[0]]
            rows = [[str(number), *row.values()] for number, row in enumerate(rows)]
        else:
            with open(path, newline="") as text:
                names, *rows = list(csv.reader(text, delimiter=delimiter))[: count + 1]
        if len(rows) != count or any(len(row) != len(names) for row in rows):
            sys.exit(f"{file} is not clean")
        out[path.stem] = Table(names, rows, delimiter)
    return out


def some(table, dice, share=0.02, where=lambda row: True):
    """Numbers of a few rows, at least one of them, that are neither the first nor the last few."""
    fit = [number for number, row in enumerate(table.rows) if 2 < number < len(table.rows) - 2 and where(row)]
    return sorted(dice.sample(fit, min(len(fit), max(1, int(len(table.rows) * share)))))


def later(table, dice):
    """A row from which on something changes."""
    return dice.randrange(len(table.rows) // 4, 3 * len(table.rows) // 4)


def texts(table):
    """Columns that hold words."""
    words = collections.Counter()
    for row in table.rows:
        words.update(column for column, value in enumerate(row) if re.search("[A-Za-z]{3}", value))
    return [column for column, count in words.items() if count > len(table.rows) / 2]


def other_delimiter(table, dice):
    return dice.choice([one for one in ",;\t|" if one != table.delimiter])


def spoiled(table, lines, records=None, names=..., end="\n", delimiter=None):
    names = table.names if names is ... else names
    return Spoiled(end.join(lines) + end, table.rows if records is None else records, names, delimiter or table.delimiter)


def delimiter_file(table, dice):
    """Another delimiter in the whole file."""
    delimiter = dice.choice([one for one in ",;\t|:^~" if one != table.delimiter])
    return spoiled(table, dataclasses.replace(table, delimiter=delimiter).lines(), delimiter=delimiter)


def delimiter_from_line(table, dice):
    """Another delimiter from some line on."""
    at, delimiter = later(table, dice), other_delimiter(table, dice)
    lines = table.lines()
    lines[at + 1 :] = [table.line(row, delimiter) for row in table.rows[at:]]
    return spoiled(table, lines)


def delimiter_records(table, dice):
    """Another delimiter in a few records."""
    lines, delimiter = table.lines(), other_delimiter(table, dice)
    for number in some(table, dice):
        lines[number + 1] = table.line(table.rows[number], delimiter)
    return spoiled(table, lines)


def quote_file(table, dice):
    """Another quote in the whole file."""
    return spoiled(table, dataclasses.replace(table, quote="'", quote_all=dice.random() < 0.5).lines())


def quote_from_line(table, dice):
    """Another quote from some line on."""
    table = dataclasses.replace(table, quote_all=dice.random() < 0.5)
    at, lines = later(table, dice), table.lines()
    lines[at + 1 :] = [table.line(row, quote="'") for row in table.rows[at:]]
    return spoiled(table, lines)


def stray_quote(table, dice):
    """A quote within a value that is not quoted, as in 6" pipe."""
    lines, rows, columns = table.lines(), list(table.rows), texts(table)
    for number in some(table, dice):
        row = list(rows[number])
        column = dice.choice(columns or range(len(row)))
        value = row[column]
        if not value or table.field(value) != value:
            continue
        at = dice.randrange(1, len(value)) if len(value) > 1 else 1
        row[column] = value[:at] + '"' + value[at:]
        rows[number] = row
        lines[number + 1] = table.delimiter.join(cell if c == column else table.field(cell) for c, cell in enumerate(row))
    return spoiled(table, lines, rows)


def unescaped_quote(table, dice):
    """Quotes within a quoted value that are not doubled."""
    lines, rows, columns = table.lines(), list(table.rows), texts(table)
    for number in some(table, dice):
        row = list(rows[number])
        column = dice.choice(columns or range(len(row)))
        words = row[column].replace('"', "").split(" ")
        at = dice.randrange(len(words))
        words[at] = f'"{words[at]}"' if 0 < at < len(words) - 1 else f'{words[at]}"x'
        row[column] = " ".join(words)
        rows[number] = row
        fields = [f'"{cell}"' if c == column else table.field(cell) for c, cell in enumerate(row)]
        lines[number + 1] = table.delimiter.join(fields)
    return spoiled(table, lines, rows)


def missing_end_quote(table, dice):
    """A quoted value that is not closed."""
    lines, columns = table.lines(), texts(table)
    for number in some(table, dice, 0.005):
        row = table.rows[number]
        column = dice.choice(columns or range(len(row)))
        fields = [table.field(cell) for cell in row]
        fields[column] = table.field(row[column], always=True)[:-1]
        lines[number + 1] = table.delimiter.join(fields)
    return spoiled(table, lines)


def no_header(table, dice):
    """The header is missing."""
    return spoiled(table, table.lines()[1:], names=None)


def header_twice(table, dice):
    """The header again: below itself, or further down, as where files were joined, then also with a byte order mark."""
    lines, again = table.lines(), table.line(table.names)
    where = dice.randrange(3)
    lines.insert(1 if where == 0 else later(table, dice) + 1, again if where < 2 else BYTE_ORDER_MARK + again)
    text = spoiled(table, lines)
    text.text = BYTE_ORDER_MARK * (where == 2) + text.text
    return text


def header_of_two_lines(table, dice):
    """A line of units below the header, or one of groups above it."""
    lines, width = table.lines(), len(table.names)
    if dice.random() < 0.5:
        lines.insert(1, table.line([dice.choice(["(text)", "(unit)", "(m)", "[-]"]) for _ in range(width)]))
    else:
        lines.insert(0, table.line([f"Group {column // 2 + 1}" if column % 2 == 0 else "" for column in range(width)]))
    return spoiled(table, lines, names=None)


def notes(table, dice):
    lines = dice.sample(NOTES, dice.randrange(1, 4))
    if dice.random() < 0.4 and len(table.names) > 2:
        # As spreadsheets write them: with all delimiters.
        lines = [table.field(line) + table.delimiter * (len(table.names) - 1) for line in lines]
    return lines


def notes_before(table, dice):
    """Lines of text before the table, with a blank line or without."""
    return spoiled(table, [*notes(table, dice), *[""] * dice.randrange(2), *table.lines()])


def notes_after(table, dice):
    """Lines of text after the table, with a blank line or without."""
    return spoiled(table, [*table.lines(), *[""] * dice.randrange(2), *notes(table, dice)])


def short_rows(table, dice):
    """Records that lack fields at their end."""
    lines, rows = table.lines(), list(table.rows)
    for number in some(table, dice):
        kept = dice.randrange(1, len(table.names))
        rows[number] = rows[number][:kept]
        lines[number + 1] = table.line(rows[number])
    return spoiled(table, lines, rows)


def long_rows(table, dice):
    """Records with values that belong to no column."""
    lines, bad = table.lines(), set(some(table, dice))
    for number in bad:
        at = dice.randrange(1, len(table.names) + 1)
        row = table.rows[number]
        lines[number + 1] = table.line([*row[:at], *["more"] * dice.randrange(1, 3), *row[at:]])
    return spoiled(table, lines, [row for number, row in enumerate(table.rows) if number not in bad])


def line_ends(table, dice):
    """Line ends of several kinds, or lone CR throughout."""
    lines, lone = table.lines(), dice.random() < 0.3
    text = spoiled(table, lines)
    text.text = "".join(line + ("\r" if lone else dice.choice(["\n", "\r\n", "\r"])) for line in lines)
    return text


def blank_lines(table, dice):
    """Lines with nothing, or nothing but delimiters."""
    lines, empty = table.lines(), table.delimiter * (len(table.names) - 1)
    added = [dice.choice(["", "", empty]) for _ in range(max(2, len(lines) // 50))]
    for line in added:
        lines.insert(dice.randrange(1, len(lines) + 1), line)
    nulls = [[""] * len(table.names) for line in added if line]
    return spoiled(table, lines, records=[*table.rows, *nulls])


def two_tables(table, dice):
    """Another table below the first, which is the one that is wanted."""
    others = [other for other in TABLES.values() if other.names != table.names]
    other = dice.choice(others)
    count = max(3, min(len(other.rows), len(table.rows) // 4))
    other = dataclasses.replace(other, delimiter=table.delimiter, rows=other.rows[:count])
    return spoiled(table, [*table.lines(), *[""] * dice.randrange(3), *other.lines()])


def trailing_delimiters(table, dice):
    """A delimiter after each record, and after the header or not."""
    lines = [line + table.delimiter for line in table.lines()]
    if dice.random() < 0.5:
        lines[0] = lines[0][:-1]
    return spoiled(table, lines)


def spaces(table, dice):
    """Spaces around values, in all records, before the quotes too."""
    before, after = dice.choice([(" ", ""), (" ", " "), ("", " ")])

    def line(row):
        fields = [table.field(value) for value in row]
        # The last quote ends the field for most readers.
        fields = [before * (at > 0) + field + after * (at + 1 < len(row)) for at, field in enumerate(fields)]
        return table.delimiter.join(fields)

    return spoiled(table, [line(row) for row in [table.names, *table.rows]])


KINDS = [
    delimiter_file, delimiter_from_line, delimiter_records, quote_file, quote_from_line, stray_quote, unescaped_quote,
    missing_end_quote, no_header, header_twice, header_of_two_lines, notes_before, notes_after, short_rows, long_rows, line_ends,
    blank_lines, two_tables, trailing_delimiters, spaces,
]  # fmt: skip
TABLES = clean_tables()


def suite(seed):
    """Name -> (kind, file); one in four lacks the line end at its end."""
    for kind in KINDS:
        for name, table in TABLES.items():
            dice = random.Random(f"{seed} {kind.__name__} {name}")
            file = kind(table, dice)
            if dice.random() < 0.25:
                file.text = file.text.rstrip("\r\n")
            yield f"{kind.__name__}-{name}", kind.__name__, file


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d)(?:\.0*)?)?)?(?:Z|\+00:00)?")
NULLS = {"", "na", "n/a", "nan", "none", "null", "<na>", "nat"}


def value(cell):
    """A value such that those which mean the same are equal."""
    if cell is None:
        return None
    if isinstance(cell, (dt.datetime, dt.date)):
        cell = cell.isoformat()
    text = str(cell).strip()
    if text.lower() in NULLS:
        return None
    if NUMBER.fullmatch(text) and len(text) < 30:
        number = decimal.Decimal(text)
        return number if abs(number) > 2**53 else float(number)
    if found := TIME.fullmatch(text):
        year, month, day, *clock = found.groups(default="00")
        return f"{year}-{month}-{day}" + (" " + ":".join(clock) if set(clock) != {"00"} else "")
    if text.lower() in ("true", "false"):
        return text.lower()
    return text.replace("\r\n", "\n").replace("\r", "\n")


def record(row):
    out = [value(cell) for cell in row]
    while out and out[-1] is None:
        out.pop()
    return tuple(out)


def multiset(rows):
    return collections.Counter(map(record, rows))


def f1(found, wanted):
    same = (found & wanted).total()
    return 2 * same / (found.total() + wanted.total()) if found.total() + wanted.total() else 1.0


def arrow_rows(table):
    return list(zip(*(column.to_pylist() for column in table.columns))) if table.num_columns else []


class Read:
    """What a tool made of a file: names and rows, or nothing if it refused; and whether it said that something is odd."""

    def __init__(self, names=None, rows=None, told=""):
        self.names, self.told = names, told
        self.rows = None if rows is None else multiset(rows)

    def is_right(self, file):
        # A column without a name at the end holds what stands after trailing delimiters: nothing.
        names = [str(name).strip().lower() for name in (self.names or [])][: len(file.names or [])]
        known = file.names is None or names == [name.strip().lower() for name in file.names]
        return known and self.rows == multiset(file.records)

    def outcome(self, file):
        if self.rows is None:
            return "refused"
        return "right" if self.is_right(file) else "told" if self.told else "silent"

    def f1(self, file):
        return 0.0 if self.rows is None else f1(self.rows, multiset(file.records))


class Tool:
    """Reads a file by default (`careless` false), and so that as much as possible is read."""

    def __init__(self, shardify, folder):
        self.shardify, self.folder = shardify, folder

    def shardify_(self, path, file, skip):
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        code, objects, errors = self.shardify.run("convert", path, "--out", out, *(["--on-error", "skip"] if skip else []))
        if code not in (OK, REJECTS):
            if code not in (INPUT, USAGE) or not errors:
                sys.exit(f"{path.name}: exit code {code}: {errors}")
            return Read(told=errors)
        summary = objects[-1]
        told = errors + "".join(f" {part}" for part in ("records_rejected", "records_padded") if summary[part])
        shards = [pq.read_table(shard) for shard in sorted(out.glob("*/*.parquet"))]
        rows = [row for shard in shards for row in arrow_rows(shard)]
        return Read([name for name, _ in summary["columns"]], rows, told.strip())

    def duckdb(self, path, file, skip):
        with duckdb.connect() as base:
            more = ", ignore_errors = true, store_rejects = true" if skip else ""
            table = base.sql(f"select * from read_csv('{path}'{more})").to_arrow_table()
            rejects = base.execute("select count(*) from reject_errors").fetchone()[0] if skip else 0
            return Read(table.column_names, arrow_rows(table), "rejects" if rejects else "")

    def pandas(self, path, file, skip):
        more = {"sep": None, "engine": "python", "on_bad_lines": "skip"} if skip else {"sep": file.delimiter}
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            table = pandas.read_csv(path, dtype_backend="pyarrow", **more)
        if not isinstance(table.index, pandas.RangeIndex):
            table = table.reset_index()
        rows = table.astype(object).where(table.notna(), None).values.tolist()
        return Read(list(table.columns), rows, str([one.category for one in told]) if told else "")

    def pyarrow(self, path, file, skip):
        skipped = []

        def handler(row):
            skipped.append(row)
            return "skip"

        options = pa.csv.ParseOptions(
            delimiter=file.delimiter, newlines_in_values=True, invalid_row_handler=handler if skip else None
        )
        table = pa.csv.read_csv(path, parse_options=options)
        return Read(table.column_names, arrow_rows(table), "rows" if skipped else "")

    def read(self, tool, path, file, skip):
        try:
            return getattr(self, tool)(path, file, skip)
        except (duckdb.Error, pa.ArrowException, pandas.errors.ParserError, csv.Error, ValueError, KeyError, UnicodeError) as error:
            if tool == "shardify_":
                raise
            return Read(told=str(error))


NAMES = ["shardify_", "duckdb", "pandas", "pyarrow"]


def write(folder, name, file):
    path = folder / f"{name}.csv"
    path.write_bytes(file.text.encode())
    return path


def check_clean(tool, folder):
    problems = []
    for name, table in TABLES.items():
        file = spoiled(table, table.lines())
        read = tool.read("shardify_", write(folder, f"clean-{name}", file), file, False)
        if read.outcome(file) != "right" or read.told:
            problems.append(f"clean {name}: {read.outcome(file)}: {read.told}")
    return problems


def run(arguments, folder):
    tool = Tool(Shardify(arguments.shardify), folder)
    problems = check_clean(tool, folder)
    outcomes = {name: collections.defaultdict(collections.Counter) for name in NAMES}
    scores = {name: collections.defaultdict(list) for name in NAMES}
    for name, kind, file in suite(arguments.seed):
        if arguments.only and arguments.only not in name:
            continue
        path = write(folder, name, file)
        for one in NAMES[:1] if arguments.alone else NAMES:
            plain, skip = (tool.read(one, path, file, skip) for skip in (False, True))
            for part in (kind, "all"):
                outcomes[one][part][plain.outcome(file)] += 1
                scores[one][part].append(skip.f1(file))
            if one != "shardify_":
                continue
            silent = [how for how, read in (("by default", plain), ("with skip", skip)) if read.outcome(file) == "silent"]
            problems += [f"{name}: wrong and silent {how}" for how in silent]
            if arguments.verbose:
                print(f"{name}: {plain.outcome(file)}, F1 {skip.f1(file):.4f}; {plain.told}", flush=True)
                if skip.rows is not None and skip.f1(file) < 1:
                    wanted = multiset(file.records)
                    print(f"    missing {list((wanted - skip.rows).items())[:2]} too many {list((skip.rows - wanted).items())[:2]}")
    shown = [f"shardify right/refused/told/silent  F1 with skip"] + [f"{name} refused/silent  F1" for name in NAMES[1:]]
    print(f"{'kind':22} " + "   ".join(shown))
    for kind in [*(kind.__name__ for kind in KINDS), "all"]:
        cells = []
        for one in NAMES:
            found, all_scores = outcomes[one][kind], scores[one][kind]
            mean = sum(all_scores) / max(1, len(all_scores))
            parts = ("right", "refused", "told", "silent") if one == "shardify_" else ("refused", "silent")
            cells.append("/".join(str(found[part]) for part in parts) + f"  {mean:.4f}")
        print(f"{kind:22} " + "   ".join(f"{cell:>{len(title)}}" for cell, title in zip(cells, shown)))
    versions = f"duckdb {duckdb.__version__}, pandas {pandas.__version__}, pyarrow {pa.__version__}"
    count = len(scores["shardify_"]["all"])
    refused, mean = outcomes["shardify_"]["all"]["refused"] / count, sum(scores["shardify_"]["all"]) / count
    print(f"{count} files, seed {arguments.seed}; {versions}; refused by default {refused:.1%}, mean F1 with skip {mean:.4f}")
    most = outcomes["pandas"]["all"]["refused"]
    if not arguments.alone and not arguments.only and outcomes["shardify_"]["all"]["refused"] > most:
        problems.append("more files refused than by pandas")
    if mean < LEAST_F1:
        problems.append(f"mean F1 below {LEAST_F1}")
    for problem in problems:
        print(f"FAILED {problem}")
    return 1 if problems else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="folder to write the files to, which stay there")
    parser.add_argument("--only", help="only files whose name holds this")
    parser.add_argument("--alone", action="store_true", help="without the other tools")
    parser.add_argument("--verbose", "-v", action="store_true", help="a line per file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(arguments.keep or folder)
        folder.mkdir(parents=True, exist_ok=True)
        return run(arguments, folder)


if __name__ == "__main__":
    sys.exit(main())
