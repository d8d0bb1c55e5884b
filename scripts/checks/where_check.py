#!/usr/bin/env python3
"""`--where` keeps the rows that DuckDB's WHERE keeps, and `--columns` reads little more than these columns.

Generates random tables with nasty values (NaN, both zeros, ends of ranges, 2^53 + 1, empty text, text beyond ASCII, midnight and one
microsecond before it, nulls), in Parquet files of several row groups with bounds, in Arrow and as JSON Lines. Converts them with random
conditions, and compares the rows that are kept, in order, with those that DuckDB selects. The counts must add up, and the origin of each
row must be its row in the source.

    python3 scripts/checks/where_check.py --shardify target/release/shardify [--tables N] [--expressions N] [--seed S]

Then it converts one column of 17 of a Parquet file, counts the bytes that are read from it with strace, and expects at most 15 %.
"""

import argparse
import collections
import datetime as dt
import decimal
import glob
import pathlib
import random
import re
import shutil
import subprocess
import tempfile

import duckdb
import pyarrow as pa
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet as pq
from harness import Failure, Shardify, expect, finish, not_run

EPOCH = dt.datetime(1970, 1, 1)
TEXTS = ["", "a", "A", "ab", "a%", "a_b", "%", "é", "éa", "z", "日本", "a'b", 'a"b', "null", " a", "a\n", "\U0001f600"]
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, 1.5, 2.5, float("nan"), float("inf"), float("-inf"), 1e308, 5e-324, 9007199254740992.0, 3.0]
DAYS = [-719162, -1, 0, 1, 11016, 20000, 20453, 20454]
TIMES = [0, 1, -1, 86400 * 10**6, 86400 * 10**6 - 1, 1767225600 * 10**6, 1767225600 * 10**6 + 1, -(10**15)]
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}


def whole(bits, signed=True):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    nasty = [low, low + 1, high, high - 1, 0, 1, -1, 5, (1 << 53) + 1, 1 << 53]
    return [value for value in nasty if low <= value <= high]


def cents():
    return [decimal.Decimal(text) for text in ("0.00", "0.01", "-0.01", "1.50", "1.00", "-99999.99", "99999.99", "12.34")]


# Columns: their type, and values to choose from.
COLUMNS = {
    **{name: (getattr(pa, f"int{bits}")(), whole(bits)) for name, bits in BITS.items()},
    "u8": (pa.uint8(), whole(8, False)),
    "u32": (pa.uint32(), whole(32, False)),
    "u64": (pa.uint64(), whole(64, False)),
    "f64": (pa.float64(), FLOATS),
    "f32": (pa.float32(), [0.0, -0.0, 0.1, 1.5, 16777216.0, float("nan"), float("inf"), -2.5, 1.0]),
    "cents": (pa.decimal128(9, 2), cents()),
    "wide": (pa.decimal128(38, 10), [decimal.Decimal(t) for t in ("0", "0.0000000001", "1.5", "-1234567890123456789012345678", "0.1")]),
    "text": (pa.string(), TEXTS),
    "large": (pa.large_string(), TEXTS),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), DAYS),
    "moment": (pa.timestamp("us"), TIMES),
    "second": (pa.timestamp("s"), [0, -1, 86400, 1767225600]),
    "nano": (pa.timestamp("ns"), [0, 1, -1, 86400 * 10**9, 1767225600 * 10**9 + 1]),
    "zoned": (pa.timestamp("us", "UTC"), TIMES),
    "nothing": (pa.int64(), [None]),
}
NUMBERS = ["i8", "i16", "i32", "i64", "u8", "u32", "u64", "f64", "f32", "cents", "wide", "nothing"]
INSTANTS = ["day", "moment", "second", "nano", "zoned"]
LITERALS = (
    "0 1 -1 5 127 128 -129 255 256 65536 2147483648 9223372036854775807 9223372036854775808 -9223372036854775808 18446744073709551615 "
    "9007199254740993 0.1 1.5 -0.01 0.001 1.005 2.5 -2.5 99999.99 100000.001 1e0 1e308 1.5e0 9007199254740992e0 0e0 16777217 .5 5. 0.0"
).split()


def table(random, rows):
    """A table of random values. Some columns are sorted, so that row groups have narrow bounds; some are null for a while."""
    columns = {"row": pa.array(range(1, rows + 1))}
    for name, (kind, values) in COLUMNS.items():
        picked = [random.choice(values) for _ in range(rows)]
        if random.random() < 0.4 and None not in values:
            picked.sort(key=lambda value: (value != value, value))
        share = random.choice([0, 0, 0.2, 0.9])
        picked = [None if random.random() < share else value for value in picked]
        if random.random() < 0.2:
            picked[: rows // 2] = [None] * (rows // 2)
        columns[name] = pa.array(picked, kind)
    record = [{"n": random.choice([None, 1, 2]), "t": random.choice(TEXTS)} if random.random() < 0.7 else None for _ in range(rows)]
    columns["nested"] = pa.array(record, pa.struct([("n", pa.int64()), ("t", pa.string())]))
    return pa.table(columns)


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def instant(random, name):
    days = dt.date(1970, 1, 1) + dt.timedelta(days=random.choice(DAYS[1:]))
    moment = EPOCH + dt.timedelta(microseconds=random.choice(TIMES[:-1]))
    if name == "second":
        # DuckDB rounds text to the precision of the column before it compares.
        moment = moment.replace(microsecond=0)
    forms = [f"date '{days}'", f"timestamp '{moment}'", f"'{days}'", f"date '{days}' - {random.randint(0, 400)}"]
    forms += [f"date '{days}' + interval '{random.randint(1, 30)} {random.choice(['days', 'hours', 'months'])}'"]
    if name != "day":
        forms.append(f"'{moment}'")
    return random.choice(forms)


def literal(random, name):
    if name in NUMBERS:
        return random.choice(LITERALS)
    if name in INSTANTS:
        return instant(random, name)
    if name == "flag":
        return random.choice(["true", "false"])
    return quoted(random.choice(TEXTS))


def leaf(random):
    name = random.choice([name for name in COLUMNS if name != "large"] + ["large", "nested.n", "nested.t"])
    kind = {"nested.n": "i64", "nested.t": "text"}.get(name, name)
    op = random.choice(["=", "==", "!=", "<>", "<", "<=", ">", ">="])
    negated = random.choice(["", "", "not "])
    value = literal(random, kind)
    shape = random.random()
    if shape < 0.12:
        return f"{name} is {negated}null"
    if shape < 0.24:
        values = [literal(random, kind) for _ in range(random.randint(1, 4))] + random.choice([[], [], ["null"]])
        return f"{name} {negated}in ({', '.join(values)})"
    if shape < 0.36:
        return f"{name} {negated}between {value} and {literal(random, kind)}"
    if shape < 0.42 and kind in ("text", "large"):
        pattern = "".join(random.choice(["%", "_", "a", "é", "b"]) for _ in range(random.randint(0, 4)))
        return f"{name} {negated}like {quoted(pattern)}"
    if shape < 0.54:
        group = NUMBERS if kind in NUMBERS else INSTANTS if kind in INSTANTS else ["text", "large"] if kind != "flag" else ["flag"]
        other = random.choice(group)
        # DuckDB cannot convert both to one decimal type, or every time to nanoseconds.
        if "wide" not in (kind, other) and "nano" not in (kind, other):
            return f"{name} {op} {other}"
    if shape < 0.58:
        return f"{value} {op} {name}"
    if kind == "flag" and shape < 0.8:
        return random.choice(["flag", "not flag"])
    return f"{name} {op} {value}" if shape < 0.97 else random.choice(["true", "false", "null", f"{name} = null"])


def expression(random, depth=3):
    if depth == 0 or random.random() < 0.35:
        return leaf(random)
    parts = [expression(random, depth - 1) for _ in range(random.randint(2, 3))]
    joined = random.choice([" and ", " or ", " AND ", " OR "]).join(f"({part})" if " or " in part.lower() else part for part in parts)
    return random.choice([joined, f"not ({joined})", f"({joined})"])


def expected_rows(database, source, condition):
    """Rows that DuckDB selects; `None` if it cannot convert a literal."""
    try:
        return [row for (row,) in database.execute(f'select "row" from {source} where {condition} order by "row"').fetchall()]
    except (duckdb.ConversionException, duckdb.OutOfRangeException, duckdb.BinderException):
        return None


def check_table(shardify, folder, random, expressions):
    """Compares some conditions on one table."""
    made = table(random, random.choice([1, 50, 400]))
    database = duckdb.connect()
    database.execute("set timezone = 'UTC'")
    database.register("made", made)
    parquet, arrow = folder / "made.parquet", folder / "made.arrow"
    pq.write_table(made, parquet, row_group_size=random.choice([7, 64, 1000]), write_statistics=random.random() < 0.9)
    pyarrow.feather.write_feather(made, arrow, compression="uncompressed", chunksize=33)
    done = collections.Counter()
    for _ in range(expressions):
        condition = expression(random)
        wanted = expected_rows(database, "made", condition)
        if wanted is None:
            done["omitted"] += 1
            continue
        source = random.choice([parquet, parquet, arrow])
        out = folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        columns = random.choice([[], ["--columns", "row"], ["--columns", "text,row"]])
        summary = shardify.ok("convert", source, f"--where={condition}", *columns, "--out", out)[-1]
        found = [row for path in sorted(glob.glob(f"{out}/*/*.parquet")) for row in pq.read_table(path, columns=["row"])["row"].to_pylist()]
        if found != wanted:
            raise Failure(f"{condition}: {source.name}: expected rows {wanted[:20]}, found {found[:20]}")
        counts = [summary[f"records_{part}"] for part in ("in", "out", "rejected", "deduplicated", "filtered")]
        expect(f"counts of {condition}", counts, [made.num_rows, len(wanted), 0, 0, made.num_rows - len(wanted)])
        done["compared"] += 1
        done["kept some"] += 0 < len(wanted) < made.num_rows
        if wanted:
            row = random.choice(wanted)
            origin = shardify.ok("manifest", out, "--find", f"{source.name}#{row}")
            expect(f"origin of row {row}", origin[-1]["found"] if "found" in origin[-1] else len(origin) > 0, True)
    return done


def bytes_read(trace, name):
    """Bytes of a file that a traced program read."""
    total, open_files = 0, set()
    for line in trace.read_text(errors="replace").splitlines():
        opened = re.search(r'openat\(.*"([^"]*)".*\) = (\d+)$', line)
        if opened:
            (open_files.add if opened[1].endswith(name) else open_files.discard)(opened[2])
        read = re.search(r"(?:read|pread64)\((\d+),.* = (\d+)$", line)
        if read and read[1] in open_files:
            total += int(read[2])
    return total


def check_projection(shardify, folder):
    """One column of 17 reads at most 15 % of the bytes."""
    if shutil.which("strace") is None:
        return not_run("bytes read of one column", "there is no strace")
    path = folder / "seventeen.parquet"
    rows = 300_000
    noise = random.Random(1)
    columns = {f"c{i}": pa.array([noise.getrandbits(62) for _ in range(rows)]) for i in range(17)}
    pq.write_table(pa.table(columns), path, row_group_size=50_000, use_dictionary=False)
    trace = folder / "trace"
    command = ["strace", "-f", "-e", "trace=openat,read,pread64", "-s", "0", "-o", trace, *shardify.command(
        "convert", path, "--columns", "c8", "--out", folder / "one")]
    done = subprocess.run(command, capture_output=True, env=shardify.environment)
    expect("exit code", done.returncode, 0)
    share = bytes_read(trace, path.name) / path.stat().st_size
    print(f"one column of 17: {share:.1%} of {path.stat().st_size:,} bytes read")
    if not 0 < share <= 0.15:
        raise Failure(f"one column of 17: expected at most 15 % of the bytes to be read, found {share:.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=pathlib.Path, required=True)
    parser.add_argument("--tables", type=int, default=40)
    parser.add_argument("--expressions", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shardify = Shardify(options.shardify)
    total = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="where_check.") as temporary:
        folder = pathlib.Path(temporary)
        check_projection(shardify, folder)
        for number in range(options.tables):
            total += check_table(shardify, folder, random.Random(options.seed * 1_000_003 + number), options.expressions)
    print(f"{total['compared']} conditions on {options.tables} tables, {total['kept some']} kept some rows; "
          f"{total['omitted']} omitted, whose literals DuckDB cannot convert")
    if total["kept some"] < total["compared"] / 10:
        raise Failure("too few conditions kept some rows")
    return 0


finish(main)
