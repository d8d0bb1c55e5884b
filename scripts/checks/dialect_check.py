#!/usr/bin/env python3
"""CSV in stated dialects: every value comes back, as its writer had it and as DuckDB reads it.

    python3 scripts/checks/dialect_check.py --shardify target/release/shardify [--rounds 40] [--seed 1]

Each round writes a table of random values in a random dialect: delimiters of one to three characters, other quotes, escapes, comments, lines
before the table, decimal commas, thousands, dates and times in other formats. It is converted with the dialect stated, at one and four
threads; the shards are the same, and their values those that were written. DuckDB, with the same statements, agrees where it has them.
Exit code 1 if something differs.
"""

import argparse
import datetime
import pathlib
import random
import tempfile

import duckdb
import pyarrow.parquet
from harness import Failure, run

DATES = {"%d.%m.%Y": "%d.%m.%Y", "%m/%d/%Y": "%m/%d/%Y", "%Y%m%d": "%Y%m%d", "%d %b %Y": "%d %b %Y"}
TIMES = ["%d.%m.%Y %H:%M", "%m/%d/%Y %I:%M:%S %p", "%Y-%m-%d %H.%M.%S"]
WORDS = ["", "a", "Müller", "x y", "007", "1,5", "NA", "é\U0001f600", "#no", "'", '"', "\\", "\n", "||", ";", "::", "\t", "~"]


class Dialect:
    def __init__(self, chance):
        self.delimiter = chance.choice([",", ";", "\t", "|", "||", "::", "~|~", "\x1f"])
        self.quote = chance.choice(['"', '"', "'"])
        self.escape = chance.choice([None, "\\"])
        self.comment = chance.choice([None, "#", "%"])
        self.skip = chance.choice([0, 0, 3])
        self.decimal = chance.choice([".", ","])
        self.thousands = chance.choice([None, "." if self.decimal == "," else ","])
        self.date, self.time = chance.choice(list(DATES)), chance.choice(TIMES)

    def options(self):
        said = [("delimiter", self.delimiter), ("quote", self.quote), ("escape", self.escape), ("comment", self.comment)]
        said += [
            ("skip", self.skip),
            ("decimal", self.decimal),
            ("thousands", self.thousands),
            ("date", self.date),
            ("timestamp", self.time),
        ]
        typed = ["--type", "day=date"] if self.date == "%Y%m%d" else []
        return typed + [word for key, value in said if value is not None for word in ("--read", f"{key}={value}")]

    def text(self, value):
        if value is None:
            return ""
        escape = self.escape or self.quote
        marked = value.replace(escape, 2 * escape) if self.escape else value
        return self.quote + marked.replace(self.quote, escape + self.quote) + self.quote

    def number(self, value):
        whole, fraction = f"{abs(value):.2f}".split(".")
        if self.thousands:
            whole = f"{int(whole):,}".replace(",", self.thousands)
        written = ("-" if value < 0 else "") + whole + self.decimal + fraction
        return self.quote + written + self.quote if self.delimiter in written else written

    def line(self, row):
        key, name, amount, day, time = row
        cells = [str(key), self.text(name), "" if amount is None else self.number(amount)]
        cells += ["" if day is None else day.strftime(self.date), "" if time is None else time.strftime(self.time)]
        return self.delimiter.join(cells) + "\n"


def rows(chance):
    start = datetime.datetime(1999, 1, 1)
    for key in range(chance.choice([3, 40, 3000])):
        some = lambda value: None if chance.random() < 0.1 else value  # noqa: E731
        name = "".join(chance.choice(WORDS) for _ in range(chance.randrange(4)))
        time = start + datetime.timedelta(minutes=chance.randrange(20_000_000))
        yield key, some(name), some(round(chance.uniform(-2e6, 2e6), 2)), some(time.date()), some(time)


def convert(binary, folder, name, dialect, jobs):
    out = folder / f"out{jobs}"
    run(binary, "convert", str(folder / name), "--out", str(out), "--jobs", str(jobs), *dialect.options(), "--quiet")
    shards = sorted(path for path in out.rglob("*.parquet") if "_shardify" not in path.parts)
    return [path.read_bytes() for path in shards], pyarrow.parquet.read_table(shards[0])


def by_duckdb(path, dialect):
    """The rows as DuckDB reads them; `None` if it does not have the dialect."""
    if len(dialect.delimiter.encode()) > 4 or dialect.skip:
        return None
    text = lambda value: "'" + value.replace("'", "''") + "'"  # noqa: E731
    options = {"delim": dialect.delimiter, "quote": dialect.quote, "escape": dialect.escape or dialect.quote, "new_line": "\\n"}
    options |= {"comment": dialect.comment or "", "decimal_separator": dialect.decimal, "dateformat": dialect.date}
    options |= {"timestampformat": dialect.time} | ({"thousands": dialect.thousands} if dialect.thousands else {})
    said = ", ".join(f"{key}={text(value)}" for key, value in options.items())
    types = "{'key': 'BIGINT', 'name': 'VARCHAR', 'amount': 'DOUBLE', 'day': 'DATE', 'time': 'TIMESTAMP'}"
    query = f"from read_csv({text(str(path))}, {said}, columns={types}, header=true, auto_detect=false)"
    try:
        return duckdb.sql(query).fetchall()
    except duckdb.Error:
        return None


def check(binary, folder, chance):
    dialect, table = Dialect(chance), list(rows(chance))
    lines = [dialect.line(row) for row in table]
    if dialect.comment:
        lines.insert(chance.randrange(len(lines)), f"{dialect.comment} it's \"one{dialect.delimiter}\n")
    head = "".join(f'line {number} "\n' for number in range(dialect.skip)) + dialect.delimiter.join(
        ["key", "name", "amount", "day", "time"]
    )
    (folder / "a.csv").write_text(head + "\n" + "".join(lines))
    one, found = convert(binary, folder, "a.csv", dialect, 1)
    if one != convert(binary, folder, "a.csv", dialect, 4)[0]:
        raise Failure(f"{vars(dialect)}: other shards with four threads")
    expected = [tuple(row) for row in table]
    ours = list(zip(*(found.column(name).to_pylist() for name in found.column_names), strict=True))
    compare(vars(dialect), "written", expected, ours, found.schema)
    theirs = by_duckdb(folder / "a.csv", dialect)
    if theirs is not None:
        # DuckDB has no empty text beside null unless it is told.
        empty = lambda row: tuple(None if value == "" else value for value in row)  # noqa: E731
        compare(vars(dialect), "DuckDB", [empty(row) for row in theirs], [empty(row) for row in ours], found.schema)
    return theirs is not None


def compare(dialect, whose, expected, ours, schema):
    if len(expected) != len(ours):
        raise Failure(f"{dialect}: {len(ours)} records, {whose} {len(expected)}")
    for number, (theirs, row) in enumerate(zip(expected, ours, strict=True)):
        if theirs != row:
            raise Failure(f"{dialect}: record {number} is {row}, {whose} {theirs}; {schema}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    both = 0
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory(prefix="dialect_check.") as folder:
            try:
                both += check(str(given.shardify.resolve()), pathlib.Path(folder), random.Random(given.seed * 100_003 + number))
            except Failure as failure:
                raise SystemExit(f"round {number}: {failure}") from None
    print(f"ok    {given.rounds} tables in stated dialects, {both} of them also read by DuckDB")


if __name__ == "__main__":
    main()
