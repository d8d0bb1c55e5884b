#!/usr/bin/env python3
"""Members of zip archives are what Python's zipfile reads, and damaged archives end in errors.

    python3 scripts/checks/zip_check.py --shardify target/release/shardify [--flips 200] [--cuts 60] [--members 20000] [--seed 1]

Archives with names in UTF-8, in code page 437 and in the extra field of Info-ZIP, with 64-bit fields, data descriptors and comments, stored, or packed by
deflate, bzip2, xz and, where Python can, zstd: tar shards have the names and bytes that zipfile reads, at 1 and 4 threads. So has a table in an archive of
many members. Bombs are refused in little time and memory. An archive that is cut at any place, or has a bit flipped, ends in an error that names it, or
gives the records of the whole one. Needs nothing but Python.
"""

import io
import json
import lzma
import struct
import tarfile
import time
import zipfile
import zlib

from harness import Failure, convert_bounded, cuts_of, damage_check, expect, finish, flips_of, not_run


class Unseekable(io.RawIOBase):
    """A target that cannot be sought, so that sizes follow the bytes of each member."""

    def __init__(self, path):
        self.file = open(path, "wb")

    def writable(self):
        return True

    def write(self, data):
        return self.file.write(data)

    def close(self):
        self.file.close()
        super().close()


def content(rng, number):
    kind = number % 3
    if kind == 0:
        return rng.randbytes(rng.choice([0, 1, 100, 5000]))
    return (f"line {number} " * rng.choice([1, 10, 3000])).encode()


def raw_zip(members):
    """An archive of (raw name, flags, method, content, packed, extra)."""
    out, directory = b"", b""
    for name, flags, method, data, packed, extra in members:
        common = struct.pack("<HHHHHIIIHH", 63, flags, method, 0, 0x21, zlib.crc32(data), len(packed), len(data), len(name), len(extra))
        directory += b"PK\x01\x02" + struct.pack("<H", 63) + common + struct.pack("<HHHII", 0, 0, 0, 0, len(out)) + name + extra
        out += b"PK\x03\x04" + common + name + extra + packed
    tail = struct.pack("<HHHHIIH", 0, 0, len(members), len(members), len(directory), len(out), 0)
    return out + directory + b"PK\x05\x06" + tail


def deflate(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def zstd_packer():
    try:
        from compression import zstd

        return zstd.compress
    except ImportError:
        pass
    try:
        import zstandard

        return zstandard.ZstdCompressor().compress
    except ImportError:
        not_run("members packed by zstd", "neither compression.zstd nor zstandard is installed")
        return None


def archives(folder, rng, count):
    """Writes archives; returns their paths with what is in them."""
    made = {}

    def keep(name, members):
        made[folder / name] = members

    def by_zipfile(name, members, target=None, **options):
        with zipfile.ZipFile(target or folder / name, "w", **options) as archive:
            for path, data in members.items():
                archive.writestr(path, data)
        if target:
            target.close()
        keep(name, members)

    names = ["a.bin", "deep/er/b.txt", "ümlaut/ß.txt", "日本/語.txt", "sp ace/c d.txt"]
    members = {name: content(rng, number) for number, name in enumerate(names)}
    for method, what in ((zipfile.ZIP_STORED, "stored"), (zipfile.ZIP_DEFLATED, "deflated"), (zipfile.ZIP_BZIP2, "bzip2")):
        by_zipfile(f"{what}.zip", members, compression=method)
    by_zipfile("descriptors.zip", members, target=Unseekable(folder / "descriptors.zip"), compression=zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(folder / "wide.zip", "w", compression=zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"a comment " * 6000
        for path, data in members.items():
            with archive.open(path, "w", force_zip64=True) as member:
                member.write(data)
    keep("wide.zip", members)
    # A comment that looks like an end, on which zipfile trips.
    comment = b"PK\x05\x06" + bytes(40)
    whole = (folder / "stored.zip").read_bytes()
    (folder / "comment.zip").write_bytes(whole[:-2] + struct.pack("<H", len(comment)) + comment)
    keep("comment.zip", members)
    # Names of code page 437, one of them with a field that states another.
    field_name, field = b"\x81.txt", "ў.txt".encode()
    extra = struct.pack("<HHBI", 0x7075, 5 + len(field), 1, zlib.crc32(field_name)) + field
    wrong = struct.pack("<HHBI", 0x7075, 5 + len(field), 1, 7) + field
    data = [(b"caf\x82/\xe1\x9b.txt", b""), (field_name, extra), (b"\x84.txt", wrong)]
    (folder / "cp437.zip").write_bytes(raw_zip([(name, 0, 8, name * 9, deflate(name * 9), more) for name, more in data]))
    keep("cp437.zip", {"café/ß¢.txt": data[0][0] * 9, "ў.txt": data[1][0] * 9, "ä.txt": data[2][0] * 9})
    plain = b"packed text " * 999
    packers = {95: lzma.compress, 93: zstd_packer()}
    others = {number: pack for number, pack in packers.items() if pack}
    (folder / "others.zip").write_bytes(raw_zip([(b"%d.txt" % n, 0, n, plain, pack(plain), b"") for n, pack in others.items()]))
    keep("others.zip", {f"{number}.txt": plain for number in others})
    many = {f"{number % 97:02}/{number:05}.txt": f"{number}".encode() * (number % 40) for number in range(count)}
    by_zipfile("many.zip", many, compression=zipfile.ZIP_DEFLATED)
    return made


def members_of(dataset):
    """Names and bytes of the members of all tar shards."""
    found = {}
    for shard in sorted(dataset.rglob("*.tar")):
        with tarfile.open(shard) as tar:
            found.update({one.name: tar.extractfile(one).read() for one in tar if one.isfile()})
    return found


def convert(binary, source, out, *options):
    """Converts to tar; returns exit code and standard error."""
    code, _, said = convert_bounded(binary, source, out, "--to", "tar", "--memory", "512MiB", *options)
    return code, said


def check_equal(binary, folder, rng, count):
    for path, members in archives(folder, rng, count).items():
        try:
            with zipfile.ZipFile(path) as archive:
                read = {one.filename: archive.read(one) for one in archive.infolist()}
            if path.name not in ("cp437.zip", "comment.zip"):
                expect(f"{path.name} by zipfile", read, members)
        except (NotImplementedError, zipfile.BadZipFile):
            # A method that this Python does not read, or the comment.
            expect("archives that zipfile does not read", path.name in ("others.zip", "comment.zip"), True)
        for jobs in (1, 4):
            code, said = convert(binary, path, folder / "out", "--jobs", jobs)
            expect(f"{path.name}: exit code\n{said}", code, 0)
            found = members_of(folder / "out")
            wanted = {f"{path.name}/{name}": data for name, data in members.items()}
            expect(f"{path.name}: names", sorted(found), sorted(wanted))
            expect(f"{path.name}: bytes", found == wanted, True)
        print(f"ok    {path.name}: {len(members)} members", flush=True)


def check_table(binary, folder):
    rows = [{"id": number, "text": f"row {number}"} for number in range(20000)]
    with zipfile.ZipFile(folder / "rows.zip", "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for part in range(20):
            lines = "".join(json.dumps(row) + "\n" for row in rows[part::20])
            archive.writestr(f"part-{part:02}.jsonl", lines)
    code, said = convert(binary, folder / "rows.zip", folder / "out", "--write", "rows=json")
    expect(f"rows.zip: exit code\n{said}", code, 0)
    found = sorted(json.loads(data)["id"] for name, data in members_of(folder / "out").items() if name.endswith(".json"))
    expect("rows.zip: ids", found, list(range(20000)))
    print("ok    rows.zip: 20,000 rows of 20 members", flush=True)


def bombs():
    """Archives that claim far more than they have."""
    kernel = deflate(bytes(20 << 20))
    name = b"%05d.txt"
    one = raw_zip([(name % 0, 0, 8, bytes(20 << 20), kernel, b"")])
    at = one.index(b"PK\x01\x02")
    entry = one[at : one.index(b"PK\x05\x06")]
    same = b"".join(entry.replace(name % 0, name % number) for number in range(5000))
    end = b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 5000, 5000, len(same), at, 0)
    yield "same-bytes.zip", one[:at] + same + end
    # Each member's content begins with the header of the next one, as in zbsm.zip.
    headers = [b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 0, 0, 0, 0, 9, 0) + name % number for number in range(100)]
    starts, body = [], b""
    for header in headers:
        starts.append(len(body))
        body += header + b"\0\x27\0\xd8\xff"
    body += kernel
    directory = b"".join(
        b"PK\x01\x02"
        + struct.pack("<HHHHHHIIIHH", 20, 20, 0, 8, 0, 0, 0, len(body) - start - 39, 20 << 20, 9, 0)
        + struct.pack("<HHHII", 0, 0, 0, 0, start)
        + name % number
        for number, start in enumerate(starts)
    )
    yield "quoted.zip", body + directory + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 100, 100, len(directory), len(body), 0)
    zeros = bytes(50 << 20)
    lies = bytearray(raw_zip([(b"a.txt", 0, 8, zeros, deflate(zeros), b"")]))
    for magic, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", lies, lies.index(magic) + place, 1000)
    yield "longer.zip", bytes(lies)
    for magic, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", lies, lies.index(magic) + place, 0xFFFFFF00)
    yield "shorter.zip", bytes(lies)
    yield "entries.zip", b"PK\x03\x04" + bytes(60) + b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 60000, 60000, 60, 4, 0)


def check_bombs(binary, folder):
    for name, data in bombs():
        (folder / name).write_bytes(data)
        begun = time.monotonic()
        code, said = convert(binary, folder / name, folder / "out")
        if code == 0 or name not in said or "hint: " not in said:
            raise Failure(f"{name}: expected an error with its name and a hint, found {code}\n{said}")
        print(f"ok    {name}: {said.splitlines()[0][:120]} ({time.monotonic() - begun:.1f} s)", flush=True)


def check_damage(binary, folder, rng, cuts, flips):
    """A small archive with every feature, and pieces and copies of it."""
    files = {"a.txt": b"first " * 90, "b/c.jpg": rng.randbytes(200), "d.bin": b"", "e.txt": b"e" * 70}
    path = folder / "whole.zip"
    with zipfile.ZipFile(path, "w", compression=zipfile.ZIP_DEFLATED) as archive:
        for number, (name, data) in enumerate(files.items()):
            archive.writestr(name, data, compress_type=(zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2)[number % 3])
    whole = path.read_bytes()
    same = errors = 0
    for what, data in (*cuts_of(rng, whole, cuts), *flips_of(rng, whole, flips)):
        path = folder / "spoilt.zip"
        path.write_bytes(data)
        code, said = convert(binary, path, folder / "out")
        if code != 0:
            errors += 1
            if "error: " not in said or ("spoilt.zip" not in said and code != 2):
                raise Failure(f"{what}: expected an error that names the archive, found {code}\n{said}")
            continue
        found = members_of(folder / "out")
        wanted = {f"spoilt.zip/{name}": bytes for name, bytes in files.items()}
        lacking = {name for name, bytes in wanted.items() if found.get(name) != bytes}
        # Nothing tells a link from a file but its mode, and what it was is said.
        if set(found) - set(wanted) or (lacking and "links in archives are not followed" not in said):
            raise Failure(f"{what}: expected the members or an error, found {sorted(found)}\n{said}")
        same += 1
    print(f"ok    {errors + same} damaged archives: {errors} errors, {same} with the same records", flush=True)


def main():
    with damage_check(__doc__, flips=200, cuts=60, members=20000) as (options, rng, folder):
        binary = options.shardify
        check_equal(binary, folder, rng, options.members)
        check_table(binary, folder)
        check_bombs(binary, folder)
        check_damage(binary, folder, rng, options.cuts, options.flips)


if __name__ == "__main__":
    finish(main)
