#!/usr/bin/env python3
"""Records of web archives are those that warcio and FastWARC read, and damaged archives end in errors or in bad records.

    python3 scripts/checks/warc_check.py --shardify target/release/shardify [--rounds 30] [--flips 200] [--cuts 60] [--seed 1]

Archives of random records, written by warcio: plain, with a gzip member for each record, in one gzip member, in zstd, also with a dictionary; bodies stored,
chunked, in gzip, deflate, zstd and brotli, and combinations. The real files in `testdata/warc/`, too. Columns are compared with what warcio and FastWARC say
of each record, bodies with the bytes that were written, at 1 and 4 threads and with several sizes of memory. Hostile lengths and bombs are refused in little
time and memory. Of an archive that is cut anywhere, or has a bit flipped, every record that is kept is one of the whole, or one whose own bytes were hit.
"""

import datetime
import gzip
import io
import json
import time
import zlib

import fastwarc
import pyarrow as pa
import pyarrow.parquet as pq
import warcio
import zstandard
from warcio.statusandheaders import StatusAndHeaders

from harness import ROOT, Failure, convert_bounded, cuts_of, damage_check, expect, finish, flips_of


def convert(binary, source, out, *options, stdin=None):
    """Converts to Parquet; returns exit code, rows and standard error."""
    code, _, said = convert_bounded(binary, source, out, *options, stdin=stdin)
    shards = [pq.read_table(shard) for shard in sorted(out.rglob("*.parquet")) if "_shardify" not in shard.parts] if out.exists() else []
    return code, pa.concat_tables(shards).to_pylist() if shards else [], said


def deflate(data, bits):
    packer = zlib.compressobj(6, zlib.DEFLATED, bits)
    return packer.compress(data) + packer.flush()


def chunked(rng, data):
    out, at = b"", 0
    while at < len(data):
        size = rng.choice([1, 7, 100, 4000])
        piece = data[at : at + size]
        out += b"%x%s\r\n" % (len(piece), rng.choice([b"", b";x=1", b" "])) + piece + b"\r\n"
        at += size
    return out + b"0\r\n\r\n"


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :]),
    "deflate": lambda data: deflate(data, 15),
    "Deflate": lambda data: deflate(data, -15),
    "zstd": zstandard.ZstdCompressor(level=3).compress,
}


def content(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.choice([0, 1, 100, 5000, 70000]))
    if kind == 1:
        return b"\r\n\r\nWARC/1.0\r\nWARC-Type: response\r\nContent-Length: 3\r\n\r\nabc\r\n\r\n" * rng.randrange(4)
    return "".join(f"<p>page {rng.randrange(1000)} äöü</p>\n" for _ in range(rng.choice([0, 1, 30, 2000]))).encode()


def http_block(rng):
    """The header and the body of a message; also what the body becomes, and which codings stay."""
    body, stored, fields, left = content(rng), None, [("Server", "x"), ("Set-Cookie", "a=1"), ("set-cookie", "b=2")], None
    stored = body
    coding = rng.choice(["", "", "gzip", "x-gzip", "deflate", "Deflate", "zstd", "br", "identity", "broken"])
    if coding in PACKERS and body:
        stored = PACKERS[coding](body)
        fields.append(("Content-Encoding", coding))
    elif coding in ("br", "broken") and body:
        left = "br" if coding == "br" else "gzip"
        fields.append(("Content-Encoding", left))
    elif coding == "identity":
        fields.append(("Content-Encoding", coding))
    if rng.random() < 0.3:
        stored = chunked(rng, stored) if stored else b""
        fields.append(("Transfer-Encoding", "chunked"))
    elif rng.random() < 0.5:
        fields.append(("Content-Length", str(len(stored))))
    if rng.random() < 0.8:
        fields.append(("Content-Type", rng.choice(["text/html; charset=UTF-8", "Image/PNG", "text/plain;charset='latin1'; x=y"])))
    return fields, stored, body, left


def write_archive(rng, count, packed, version):
    """An archive by warcio, and what each body is to become: its bytes, and the codings that stay."""
    out, wanted = io.BytesIO(), []
    writer = warcio.WARCWriter(out, gzip=packed, warc_version=version)
    for number in range(count):
        kind = rng.choice(["response"] * 4 + ["request", "resource", "metadata", "warcinfo", "conversion", "revisit"])
        uri = f"http://example.com/{number}?q=éß" if kind != "warcinfo" else ""
        more = {"WARC-IP-Address": "192.0.2.1"} if rng.random() < 0.5 else {}
        more |= {"WARC-Truncated": "length"} if rng.random() < 0.1 else {}
        if kind in ("response", "request", "revisit"):
            fields, stored, body, left = http_block(rng)
            line = "GET /e HTTP/1.1" if kind == "request" else rng.choice(["HTTP/1.1 200 OK", "HTTP/1.0 404 Not Found", "HTTP/2 301"])
            protocol, rest = line.split(" ", 1)
            headers = StatusAndHeaders(rest, fields, protocol=protocol)
            if kind == "revisit":
                stored = body = b""
            record = writer.create_warc_record(uri, kind, payload=io.BytesIO(stored), http_headers=headers, warc_headers_dict=more)
            wanted.append((body, left if body else None))
        else:
            body = content(rng)
            media = {"warcinfo": "application/warc-fields", "conversion": "text/plain", "metadata": "application/json"}.get(kind, "image/gif")
            record = writer.create_warc_record(uri, kind, payload=io.BytesIO(body), warc_content_type=media, warc_headers_dict=more)
            wanted.append((body, None))
        writer.write_record(record)
    return out.getvalue(), wanted


def bare(text):
    return text[1:-1] if text and text.startswith("<") and text.endswith(">") else text


def pairs(rows):
    return [(pair["name"], pair["value"]) for pair in rows] if rows is not None else None


def said_by_warcio(data):
    """What warcio says of each record; bodies as they are stored."""
    found = []
    for record in warcio.ArchiveIterator(io.BytesIO(data)):
        fields, http = record.rec_headers, record.http_headers
        found.append(
            {
                "id": bare(fields.get_header("WARC-Record-ID")).removeprefix("urn:uuid:"),
                "type": record.rec_type,
                "uri": bare(fields.get_header("WARC-Target-URI")),
                "ip": fields.get_header("WARC-IP-Address"),
                "date": fields.get_header("WARC-Date"),
                "warc": list(fields.headers),
                "http": list(http.headers) if http else None,
                "status": http.get_statuscode() if http and http.protocol.startswith("HTTP/") else None,
                "stored": record.raw_stream.read(),
            }
        )
    return found


def plain_uris(fields):
    """Fields, with the URI as warcio has it: it escapes blanks and removes brackets."""
    return [(name, bare(value.replace(" ", "%20")) if name == "WARC-Target-URI" else value) for name, value in fields]


def compare_rows(what, rows, data):
    """Compares the fields of each row with what warcio and FastWARC say."""
    theirs = said_by_warcio(data)
    expect(f"{what}: ids", [row["id"] for row in rows], [one["id"] for one in theirs])
    for row, one in zip(rows, theirs):
        place = f"{what}, {one['id']}"
        expect(f"{place}: type", row["type"], one["type"])
        expect(f"{place}: uri", (row["uri"] or "").replace(" ", "%20"), (one["uri"] or "").replace(" ", "%20"))
        expect(f"{place}: ip", row["ip"], one["ip"])
        date = datetime.datetime.fromisoformat(one["date"].replace("Z", "+00:00"))
        expect(f"{place}: date", row["date"], date)
        expect(f"{place}: fields", plain_uris(pairs(row["warc_headers"])), plain_uris(one["warc"]))
        expect(f"{place}: headers", pairs(row["headers"]), one["http"])
        expect(f"{place}: status", row["status"], int(one["status"]) if one["status"] else None)
    fast = fastwarc.ArchiveIterator(io.BytesIO(data), parse_http=True)
    for row, record in zip(rows, fast, strict=True):
        place = f"{what}, {row['id']}, FastWARC"
        expect(f"{place}: id", bare(record.record_id).removeprefix("urn:uuid:"), row["id"])
        expect(f"{place}: date", record.record_date, row["date"])
        if row["type"] == "response" and record.http_headers is not None:
            expect(f"{place}: status", record.http_headers.status_code, row["status"])
            expect(f"{place}: type", (record.http_content_type or "").lower(), row["mime"] or "")


def packings(rng, records):
    """The same records, packed in other ways."""
    plain = b"".join(records)
    yield "zst", zstandard.ZstdCompressor().compress(plain)
    yield "frames.zst", b"".join(map(zstandard.ZstdCompressor().compress, records))
    yield "one.gz", gzip.compress(plain)
    yield "members.gz", b"".join(map(gzip.compress, records))
    # A member holds some records, or a part of one.
    yield "odd.gz", b"".join(gzip.compress(plain[at : at + 5000]) for at in range(0, len(plain), 5000))
    if len(records) > 8:
        samples = [record[:2000] for record in records] * 20
        dictionary = zstandard.train_dictionary(4096, samples)
        packer = zstandard.ZstdCompressor(dict_data=dictionary)
        raw = dictionary.as_bytes()
        for name, stored in (("dict.zst", raw), ("packed-dict.zst", zstandard.ZstdCompressor().compress(raw))):
            head = b"\x5d\x2a\x4d\x18" + len(stored).to_bytes(4, "little") + stored
            yield name, head + b"".join(map(packer.compress, records))


def members(data):
    """The records of a packed archive, unpacked."""
    found = []
    while data:
        unpacker = zlib.decompressobj(31)
        found.append(unpacker.decompress(data))
        data = unpacker.unused_data
    return found


def check_equal(binary, folder, rng, rounds):
    total = 0
    for number in range(rounds):
        packed, version = number % 2 == 0, rng.choice(["WARC/1.0", "WARC/1.1"])
        data, wanted = write_archive(rng, rng.choice([1, 5, 40]), packed, version)
        path = folder / ("some.warc.gz" if packed else "some.warc")
        path.write_bytes(data)
        jobs, memory = (1, 4)[number // 2 % 2], rng.choice(["1GiB", "64MiB"])
        code, rows, said = convert(binary, path, folder / "out", "--jobs", jobs, "--memory", memory, "--read", "text=no")
        expect(f"round {number}: exit code\n{said}", code, 0)
        compare_rows(f"round {number}", rows, data)
        for at, (row, (body, left)) in enumerate(zip(rows, wanted, strict=True)):
            expect(f"round {number}, record {at}: coding", row["encoding"], left)
            expect(f"round {number}, record {at}: body", row["payload"], body)
        code, raw, said = convert(binary, path, folder / "out", "--read", "body=raw", "--read", "text=no")
        for row, one in zip(raw, said_by_warcio(data), strict=True):
            expect(f"round {number}: stored body of {row['id']}", row["payload"], one["stored"])
        for name, packing in packings(rng, members(data)) if packed else ():
            other = folder / f"other.warc.{name}"
            other.write_bytes(packing)
            code, again, said = convert(binary, other, folder / "out", "--jobs", jobs, "--read", "text=no")
            expect(f"round {number}, {name}: exit code\n{said}", code, 0)
            expect(f"round {number}, {name}: same rows", again == rows, True)
        code, piped, said = convert(binary, "-", folder / "out", "--from", "warc", "--read", "text=no", stdin=data)
        expect(f"round {number}: rows of standard input\n{said}", piped == rows, True)
        code, texts, said = convert(binary, path, folder / "out", "--read", "text=yes")
        for row, text in zip(rows, texts, strict=True):
            try:
                expected = (row["payload"].decode(), None)
            except UnicodeDecodeError:
                expected = (None, row["payload"])
            expect(f"round {number}: text of {row['id']}", (text["text"], text["payload"]), expected)
        total += len(rows)
    print(f"ok    {rounds} archives: {total:,} records", flush=True)


def check_real(binary, folder):
    for path in sorted((ROOT / "testdata" / "warc").iterdir()):
        data = path.read_bytes()
        code, rows, said = convert(binary, path, folder / "out", "--on-error", "skip", "--read", "text=no")
        if code == 0:
            try:
                compare_rows(path.name, rows, data)
            except warcio.exceptions.ArchiveLoadFailed:
                # Several records in a gzip member.
                fields = [bare(record.record_id).removeprefix("urn:uuid:") for record in fastwarc.ArchiveIterator(io.BytesIO(data))]
                expect(f"{path.name}: ids", [row["id"] for row in rows], fields)
        elif code != 3 or not rows:
            raise Failure(f"{path.name}: exit code {code}\n{said}")
        print(f"ok    {path.name}: {len(rows)} records, exit code {code}", flush=True)


def plain_record(kind, fields, block):
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Record-ID: <urn:uuid:{kind}>\r\nContent-Length: {len(block)}\r\n{fields}\r\n"
    return head.encode() + block + b"\r\n\r\n"


def hostile():
    """Archives that claim, or become, far more than they have; with the number of rows, or None for an error."""
    good = plain_record("resource", "", b"good")
    for length in (1 << 32, 1 << 63, (1 << 64) - 1):
        yield f"length-{length}.warc", good + b"WARC/1.0\r\nContent-Length: %d\r\n\r\nx\r\n\r\n" % length + good, 2
    yield "length-below.warc", good + b"WARC/1.0\r\nContent-Length: -1\r\n\r\nx\r\n\r\n" + good, 2
    yield "length-large.warc", good + b"WARC/1.0\r\nContent-Length: %d\r\n\r\nx\r\n\r\n" % (100 << 20) + good, 2
    large = b"WARC/1.0\r\nContent-Length: %d\r\n\r\n" % (100 << 20) + bytes(100 << 20)
    yield "large.warc", good + large + b"\r\n\r\n" + good, 2
    yield "large-wrong.warc", good + large + b"wrong\r\n\r\n" + good, None
    yield "lengths.warc", (b"WARC/1.0\r\nContent-Length: 50000000\r\n\r\nx\r\n\r\n") * 20000, 0
    yield "head.warc", good + b"WARC/1.0\r\n" + b"a: b\r\n" * 2000000 + b"\r\n" + good, 2
    yield "heads.warc", good + (b"WARC/1.0\r\n" + b"a\n" * 400000 + b"Content-Length: 0\r\n\r\n\r\n\r\n") * 5, 6
    fields = "Content-Type: application/http\r\n"
    bomb = gzip.compress(bytes(200 << 20), 9)
    yield "bomb.warc", plain_record("response", fields, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + bomb), 1
    small = gzip.compress(bytes(60 << 10), 9)
    yield "bombs.warc", plain_record("response", fields, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + small) * 20000, 20000
    twice = gzip.compress(bomb, 9)
    yield "twice.warc", plain_record("response", fields, b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip, gzip\r\n\r\n" + twice), 1
    frame = zstandard.ZstdCompressor().compress(bytes(200 << 20))
    yield "frame.warc", plain_record("response", fields, b"HTTP/1.1 200 OK\r\nContent-Encoding: zstd\r\n\r\n" + frame), 1
    chunk = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx"
    yield "chunk.warc", plain_record("response", fields, chunk), 1
    yield "http.warc", plain_record("response", fields, b"HTTP/1.1 200 OK\r\n" + b"a\n" * 20000000), 1
    yield "zeros.warc.gz", gzip.compress(good + bytes(300 << 20), 9), None


def check_hostile(binary, folder):
    for name, data, count in hostile():
        path = folder / name
        path.write_bytes(data)
        begun = time.monotonic()
        code, rows, said = convert(binary, path, folder / "out", "--on-error", "skip", "--memory", "512MiB", "--columns", "id,type,status,encoding,truncated")
        if count is None:
            if code == 0 or name not in said:
                raise Failure(f"{name}: expected an error with its name, found {code}\n{said}")
        else:
            expect(f"{name}: rows\n{said}", len(rows), count)
        print(f"ok    {name}: {len(rows)} rows, exit code {code} ({time.monotonic() - begun:.1f} s)", flush=True)
        path.unlink()


def check_damage(binary, folder, rng, cuts, flips):
    data, _ = write_archive(rng, 12, False, "WARC/1.1")
    whole = folder / "whole.warc"
    whole.write_bytes(data)
    _, rows, _ = convert(binary, whole, folder / "out", "--read", "text=no")
    known = [json.dumps(row, default=repr, sort_keys=True) for row in rows]
    kept = lost = 0
    spoilt = (*cuts_of(rng, data, cuts), *flips_of(rng, data, flips))
    for what, bytes_now in spoilt:
        path = folder / "spoilt.warc"
        path.write_bytes(bytes_now)
        code, found, said = convert(binary, path, folder / "out", "--read", "text=no", "--on-error", "skip")
        texts = [json.dumps(row, default=repr, sort_keys=True) for row in found]
        others = [text for text in texts if text not in known]
        # A flip changes one record; the bytes of a payload have no checksum that is compared. Of an archive that is one
        # record cut short, nothing may be left.
        if len(others) > 1 and "flipped" in what and len(found) <= len(rows):
            raise Failure(f"{what}: {len(others)} records are none of the whole\n{said}")
        if "cut" in what and (others or texts != known[: len(texts)]):
            raise Failure(f"{what}: expected the first records, found others\n{said}")
        if "cut" in what and len(found) < len(rows) and code == 0 and not data[len(bytes_now) :].startswith(b"WARC/"):
            raise Failure(f"{what}: records are missing without a word\n{said}")
        kept, lost = kept + len(found), lost + len(rows) - len(found)
    print(f"ok    {len(spoilt)} damaged archives: {kept} records kept, {lost} lost", flush=True)


def main():
    with damage_check(__doc__, rounds=30, flips=200, cuts=60) as (options, rng, folder):
        binary = options.shardify
        check_equal(binary, folder, rng, options.rounds)
        check_real(binary, folder)
        check_hostile(binary, folder)
        check_damage(binary, folder, rng, options.cuts, options.flips)


if __name__ == "__main__":
    finish(main)
