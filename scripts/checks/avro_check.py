#!/usr/bin/env python3
"""Avro files give the values that fastavro reads, and damaged ones end in errors or rejects.

    python3 scripts/checks/avro_check.py --shardify target/release/shardify [--files 120] [--flips 300] [--cuts 60] [--seed 1]

Files of random schemas (named, nested and nullable types, arrays, maps, logical types) in blocks of random sizes and every codec: Parquet shards, as pyarrow
reads them, have the values that fastavro reads, and the same bytes at 1 and 4 threads; some of the columns alone have the values of all. A file that is cut,
or has a bit flipped, ends in an error that names it, or gives records and rejects, in which every record is one of the whole file if blocks have checksums.
Hostile files are refused in little time and memory.
"""

import bz2
import datetime
import decimal
import io
import json
import lzma
import math
import time
import uuid
import zlib

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from harness import Failure, convert_bounded, cuts_of, damage_check, expect, finish, flips_of

EPOCH = datetime.datetime(1970, 1, 1)
SYNC = bytes(range(100, 116))


def deflate(data):
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def snappy(data):
    return pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")


CODECS = {
    "null": bytes,
    "deflate": deflate,
    "snappy": snappy,
    "zstandard": zstandard.ZstdCompressor(write_checksum=True).compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
# Codecs in which a flipped bit is always found.
CHECKED = ("snappy", "zstandard", "bzip2", "xz")


def number(value):
    bits, out = (value << 1) ^ (value >> 63), b""
    bits &= (1 << 64) - 1
    while bits >= 0x80:
        out += bytes([bits & 0x7F | 0x80])
        bits >>= 7
    return out + bytes([bits])


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return number(len(value)) + value


def header(schema, codec, more=()):
    entries = [("avro.schema", schema if isinstance(schema, (bytes, str)) else json.dumps(schema)), ("avro.codec", codec), *more]
    return b"Obj\x01" + number(len(entries)) + b"".join(text(key) + text(value) for key, value in entries) + b"\0" + SYNC


def block(records, data):
    return number(records) + text(data) + SYNC


class Schemas:
    """Random schemas and values of them."""

    def __init__(self, rng):
        self.rng, self.names, self.enums = rng, 0, []

    def name(self):
        self.names += 1
        return f"n{self.names}"

    def primitive(self):
        rng = self.rng
        logical = [
            {"type": "int", "logicalType": "date"},
            {"type": "int", "logicalType": "time-millis"},
            {"type": "long", "logicalType": "time-micros"},
            *({"type": "long", "logicalType": f"{local}timestamp-{unit}"} for local in ("", "local-") for unit in ("millis", "micros", "nanos")),
            {"type": "bytes", "logicalType": "decimal", "precision": rng.choice([5, 38, 60]), "scale": rng.choice([0, 3])},
            {"type": "fixed", "name": self.name(), "size": 9, "logicalType": "decimal", "precision": 20, "scale": 2},
            {"type": "string", "logicalType": "uuid"},
            {"type": "fixed", "name": self.name(), "size": 12, "logicalType": "duration"},
            {"type": "string", "logicalType": "of-nobody"},
        ]
        plain = ["boolean", "int", "long", "float", "double", "bytes", "string", {"type": "fixed", "name": self.name(), "size": rng.choice([1, 3, 16])}]
        if rng.random() < 0.2:
            if self.enums and rng.random() < 0.5:
                return rng.choice(self.enums)[0]
            name = self.name()
            self.enums.append((f"check.{name}", [f"s{number}" for number in range(rng.choice([1, 3, 200]))]))
            return {"type": "enum", "name": name, "symbols": self.enums[-1][1]}
        return rng.choice(plain if rng.random() < 0.6 else logical)

    def any(self, depth):
        rng = self.rng
        kind = rng.choice(["plain"] * 5 + (["array", "map", "record"] if depth else []))
        if kind == "plain":
            made = self.primitive()
        elif kind == "record":
            made = {"type": "record", "name": self.name(), "fields": self.fields(depth - 1, rng.randint(1, 4))}
        else:
            made = {"type": kind, "items" if kind == "array" else "values": self.any(depth - 1)}
        return rng.choice([made, made, ["null", made], [made, "null"]])

    def fields(self, depth, count):
        return [{"name": f"f{number}", "type": self.any(depth)} for number in range(count)]

    def value(self, schema):
        """A value as it is stored: logical types are numbers and bytes."""
        rng = self.rng
        if isinstance(schema, list):
            other = next(branch for branch in schema if branch != "null")
            return None if rng.random() < 0.3 else self.value(other)
        kind = schema if isinstance(schema, str) else schema["type"]
        logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
        if logical == "decimal":
            digits = rng.randint(1, schema["precision"])
            return decimal.Decimal(rng.choice([-1, 1]) * rng.randrange(10**digits)).scaleb(-schema["scale"], decimal.Context(prec=80))
        if logical == "uuid":
            return str(uuid.UUID(int=rng.getrandbits(128)))
        if logical:
            spans = {"date": 40000, "time-millis": 86_400_000, "time-micros": 86_400_000_000}
            if logical in spans:
                return rng.randrange(spans[logical])
            if "timestamp" in logical:
                return rng.randrange(-(10**9), 2 * 10**9) * {"millis": 10**3, "micros": 10**6, "nanos": 10**9}[logical.rsplit("-", 1)[1]] + rng.randrange(1000)
        match kind:
            case "boolean":
                return rng.random() < 0.5
            case "int" | "long":
                bits = rng.randrange(1, 32 if kind == "int" else 64)
                return rng.choice([-1, 1]) * rng.getrandbits(bits - 1) if bits > 1 else 0
            case "float":
                return rng.choice([0.5, -1.25, 3e38, math.nan, math.inf])
            case "double":
                return rng.choice([rng.random(), -0.0, math.nan, 1e300])
            case "bytes":
                return rng.randbytes(rng.choice([0, 1, 20, 200]))
            case "string":
                return rng.choice(["", "a", "ß語🙂", "x" * rng.choice([5, 300])])
            case "fixed":
                return rng.randbytes(schema["size"])
            case "enum":
                return rng.choice(schema["symbols"])
            case "array":
                return [self.value(schema["items"]) for _ in range(rng.choice([0, 1, 2, 9]))]
            case "map":
                return {f"k{number}": self.value(schema["values"]) for number in range(rng.choice([0, 1, 3]))}
            case "record":
                return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
            case name:
                return rng.choice(next(symbols for known, symbols in self.enums if known == name))


def comparable(value):
    """A value as fastavro gives it, in a form that both sides have."""
    match value:
        case dict():
            return {key: comparable(inner) for key, inner in value.items()}
        case list() | tuple():
            return [comparable(inner) for inner in value]
        case datetime.datetime():
            span = value.replace(tzinfo=None) - EPOCH
            return (span.days * 86400 + span.seconds) * 10**6 + span.microseconds
        case datetime.date():
            return (value - EPOCH.date()).days
        case datetime.time():
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
        case uuid.UUID():
            return str(value)
        case float():
            return repr(value)
        case decimal.Decimal():
            return str(value.normalize(decimal.Context(prec=80)))
        case _:
            return value


def of_arrow(scalar):
    """The same for a value of Arrow."""
    kind = scalar.type
    if isinstance(kind, pa.BaseExtensionType):
        return str(uuid.UUID(bytes=scalar.value.as_py())) if scalar.is_valid else None
    if not scalar.is_valid:
        return None
    if pa.types.is_struct(kind):
        return {field.name: of_arrow(scalar[field.name]) for field in kind}
    if pa.types.is_map(kind):
        return {key.as_py(): of_arrow(value) for key, value in zip(scalar.values.field(0), scalar.values.field(1))}
    if pa.types.is_list(kind):
        return [of_arrow(item) for item in scalar.values]
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        scale = {"ms": 1000, "us": 1, "ns": 1}[kind.unit]
        return scalar.value * scale
    if pa.types.is_date32(kind):
        return scalar.value
    return comparable(scalar.as_py())


def rows_of(dataset):
    shards = sorted(path for path in dataset.rglob("*.parquet") if "_shardify" not in path.parts)
    rows = []
    for table in map(pq.read_table, shards):
        columns = [[of_arrow(scalar) for scalar in column] for column in table.columns]
        rows.extend(dict(zip(table.column_names, row)) for row in zip(*columns))
    return rows


def by_fastavro(data, schema):
    """The rows that fastavro reads of data, whose blocks are unpacked."""
    try:
        return [comparable(row) for row in fastavro.reader(io.BytesIO(data))]
    except (OverflowError, ValueError) as error:
        raise Failure(f"fastavro cannot read what it wrote with {schema}: {error}") from error


def made_file(rng, codec, columns, rows):
    """A file of random columns; returns its bytes, those of the same file without compression, and its schema."""
    schemas = Schemas(rng)
    schema = {"type": "record", "name": "top", "namespace": "check", "fields": schemas.fields(3, columns)}
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
    packed, plain = header(schema, codec), header(schema, "null")
    while rows > 0:
        records = min(rows, rng.choice([0, 1, 7, 50, 400]))
        data = io.BytesIO()
        for _ in range(records):
            fastavro.schemaless_writer(data, parsed, schemas.value(schema))
        packed += block(records, CODECS[codec](data.getvalue()))
        plain += block(records, data.getvalue())
        rows -= records
    return packed, plain, schema


def convert(binary, source, out, *options):
    """Converts to Parquet; returns exit code, summary and standard error."""
    code, printed, said = convert_bounded(binary, source, out, "--json", "--memory", "512MiB", *options)
    return code, json.loads(printed) if printed.strip() else None, said


def check_values(binary, folder, rng, files):
    counted = 0
    for turn in range(files):
        codec = list(CODECS)[turn % len(CODECS)]
        data, plain, schema = made_file(rng, codec, rng.randint(1, 7), rng.choice([0, 1, 30, 600]))
        path = folder / f"{turn}.avro"
        path.write_bytes(data)
        wanted, shards = by_fastavro(plain, schema), None
        if codec not in ("snappy", "zstandard"):
            expect(f"{path.name}: fastavro of both", by_fastavro(data, schema), wanted)
        for jobs in (1, 4):
            code, _, said = convert(binary, path, folder / "out", "--jobs", jobs)
            expect(f"{path.name}, {codec}, {json.dumps(schema)}: exit code\n{said}", code, 0)
            made = {shard.name: shard.read_bytes() for shard in sorted((folder / "out").glob("*/*.parquet"))}
            expect(f"{path.name}: has shards", bool(made), bool(wanted))
            expect(f"{path.name}: bytes at {jobs} threads", shards in (None, made), True)
            shards = made
        found = rows_of(folder / "out")
        different = [(one, other) for one, other in zip(found, wanted) if one != other]
        if different or len(found) != len(wanted):
            raise Failure(f"{path.name}, {codec}, {json.dumps(schema)}: {len(found)} of {len(wanted)} rows, first difference: {different[:1]}")
        taken = rng.sample([field["name"] for field in schema["fields"]], rng.randint(1, len(schema["fields"])))
        code, _, said = convert(binary, path, folder / "out", "--columns", ",".join(taken))
        expect(f"{path.name}: exit code with --columns\n{said}", code, 0)
        expect(f"{path.name}: some columns", rows_of(folder / "out"), [{name: row[name] for name in taken} for row in wanted])
        path.unlink()
        counted += len(wanted)
    print(f"ok    {files} files of {len(CODECS)} codecs: {counted} rows are those of fastavro", flush=True)


def check_counts(what, summary):
    counts = {key: summary[f"records_{key}"] for key in ("in", "out", "rejected")}
    if counts["in"] != counts["out"] + counts["rejected"]:
        raise Failure(f"{what}: expected in = out + rejected, found {counts}")


def check_damage(binary, folder, rng, flips, cuts):
    errors = rejected = same = 0
    for codec in CODECS:
        data, plain, schema = made_file(rng, codec, 5, 300)
        whole = [json.dumps(row, default=str) for row in by_fastavro(plain, schema)]
        start = data.index(SYNC) + len(SYNC)
        spoilt = (*cuts_of(rng, data, cuts // len(CODECS), first=5), *flips_of(rng, data, flips // len(CODECS)))
        for what, bytes_of in spoilt:
            path = folder / "spoilt.avro"
            path.write_bytes(bytes_of)
            what = f"{codec}: {what}"
            code, summary, said = convert(binary, path, folder / "out", "--on-error", "quarantine")
            if code not in (0, 3):
                if "spoilt.avro" not in said:
                    raise Failure(f"{what}: expected an error that names the file, found {code}\n{said}")
                errors += 1
                continue
            check_counts(what, summary)
            rejected += code == 3
            same += code == 0
            in_header = bytes_of[:start] != data[:start]
            if codec in CHECKED and not in_header:
                found = [json.dumps(row, default=str) for row in rows_of(folder / "out")]
                if not set(found) <= set(whole):
                    raise Failure(f"{what}: expected records of the whole file, found others")
                if code == 0 and found != whole[: len(found)]:
                    raise Failure(f"{what}: expected the records in order, found others")
    print(f"ok    {errors + rejected + same} damaged files: {errors} errors, {rejected} with rejects, {same} without", flush=True)


def hostile():
    """Files that claim far more than they have."""
    of = lambda kind: json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]})
    nulls, longs, array = of("null"), of("long"), of({"type": "array", "items": "null"})
    yield "records.avro", header(nulls, "null") + block(1 << 40, b"")
    yield "records-again.avro", header(longs, "null") + block((1 << 63) - 1, b"\0" * 9)
    yield "negative.avro", header(longs, "null") + number(-5) + number(9) + b"\0" * 9 + SYNC
    yield "size.avro", header(longs, "null") + number(1) + number(1 << 32) + b"\0" * 99
    yield "size-again.avro", header(longs, "null") + number(1) + number((1 << 63) - 1) + b"\0" * 99
    yield "items.avro", header(array, "null") + block(1, number(1 << 40) + b"\0") * 100
    yield "items-again.avro", header(array, "null") + block(300, (number(1 << 16) + b"\0") * 300) * 100
    yield "text.avro", header(of("string"), "null") + block(1, number(1 << 33) + b"abc")
    yield "metadata.avro", b"Obj\x01" + number(1) + number(1 << 40) + b"x" * 99
    yield "entries.avro", b"Obj\x01" + number(1 << 50) + b"\0\0" * 99
    zeros = number(400 << 20) + bytes(400 << 20)
    for codec in ("deflate", "zstandard", "xz", "bzip2"):
        yield f"bomb-{codec}.avro", header(of("bytes"), codec) + block(1, CODECS[codec](zeros))
    many = number(20 << 20) + bytes(20 << 20)
    yield "bombs.avro", header(of("bytes"), "zstandard") + (block(1, CODECS["zstandard"](many)[:-1] + b"x") * 300)
    wide = of(["null", {"type": "fixed", "name": "f", "size": 1 << 28}])
    yield "wide.avro", header(wide, "null") + block(1000, b"\0" * 1000)
    symbols = of({"type": "enum", "name": "e", "symbols": ["x" * 1_000_000]})
    yield "symbols.avro", header(symbols, "null") + block(100_000, b"\0" * 100_000)
    grown = '"int"'
    for level in range(40):
        again = f'"r{level - 1}"' if level else '"int"'
        grown = f'{{"type":"record","name":"r{level}","fields":[{{"name":"a","type":{grown}}},{{"name":"b","type":{again}}}]}}'
    yield "grown.avro", header(grown, "null") + block(1, b"\0")
    yield "deep.avro", header('{"type":"array","items":' * 5000 + '"int"' + "}" * 5000, "null")
    yield "self.avro", header(json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "r"}]}), "null") + block(1, b"")


def check_hostile(binary, folder):
    for name, data in hostile():
        (folder / name).write_bytes(data)
        for options in ((), ("--on-error", "skip")):
            begun = time.monotonic()
            code, summary, said = convert(binary, folder / name, folder / "out", *options)
            if code == 0 or (not options and name not in said):
                raise Failure(f"{name}: expected an error with its name, found {code}\n{said}")
            if summary:
                check_counts(name, summary)
        print(f"ok    {name}: {said.splitlines()[0][:110] if said else ''} ({time.monotonic() - begun:.1f} s)", flush=True)
        (folder / name).unlink()


def main():
    with damage_check(__doc__, files=120, flips=300, cuts=60) as (options, rng, folder):
        binary = options.shardify
        check_values(binary, folder, rng, options.files)
        check_damage(binary, folder, rng, options.flips, options.cuts)
        check_hostile(binary, folder)


if __name__ == "__main__":
    finish(main)
