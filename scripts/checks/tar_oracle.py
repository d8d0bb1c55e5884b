#!/usr/bin/env python3
"""Makes archives as Python's tarfile writes them, breaks some of them, and says what tarfile reads.

    python3 scripts/checks/tar_oracle.py FOLDER COUNT

Writes FOLDER/<n>.tar and FOLDER/<n>.txt: `end|error`, then a line `sha256 name-in-hexadecimal` per regular file.
"""
import hashlib, io, random, sys, tarfile


def member(rng):
    length = rng.choice([1, 5, 20, 99, 100, 101, 155, 160, 256, 400])
    letters = rng.choice(["ab", "ab/", "aä", "xy.", "a./b"])
    name = "".join(rng.choice(letters) for _ in range(length)).strip("/") or "n"
    info = tarfile.TarInfo(name + rng.choice(["", ".txt", ".jpg", ".JSON"]))
    info.size = rng.choice([0, 1, 511, 512, 513, 2000])
    info.mtime = rng.choice([0, 1.5])
    kind = rng.random()
    if kind > 0.8:
        types = [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
        # Of names of more than 100 bytes tarfile looks at what the header has, and may see a folder.
        info.type = rng.choice(types + [tarfile.AREGTYPE] * (len(info.name.encode()) < 100))
        info.linkname = name[::-1] if info.type in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
        if info.type != tarfile.AREGTYPE:
            info.size = 0
    if rng.random() < 0.2:
        info.pax_headers = {"comment": "c" * rng.randrange(600)}
    return info


def build(rng):
    out = io.BytesIO()
    formats = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
    headers = {"comment": "whole"} if rng.random() < 0.2 else None
    with tarfile.open(fileobj=out, mode="w", format=rng.choice(formats), pax_headers=headers) as tar:
        for _ in range(rng.randrange(1, 8)):
            info = member(rng)
            try:
                tar.addfile(info, io.BytesIO(rng.randbytes(info.size)))
            except ValueError:  # no room for the name in ustar
                pass
    return bytearray(out.getvalue())


def seal(block, signed):
    """Sets the checksum."""
    block[148:156] = b" " * 8
    total = sum(b - 256 if signed and b > 127 else b for b in block)
    block[148:156] = b"%06o\0 " % (total % 0o1000000)


def broken(rng, data):
    """Changes a field of a header, and sometimes its checksum to fit, or cuts the archive."""
    blocks = [i for i in range(0, len(data), 512) if data[i + 257 : i + 262] == b"ustar"]
    if not blocks:
        return data
    at = rng.choice(blocks)
    kind = rng.randrange(6)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        field = rng.choice([b"00000000000\0", b"00000002000\0", b"       1000 ", b"\x80" + b"\0" * 9 + b"\x02\0", b"77777777777\0"])
        data[at + 124 : at + 136] = field
    elif kind == 2:
        data[at + 156] = rng.choice(b"012345670SxgLKVDA")
    elif kind == 3:
        data[at + 257 : at + 265] = rng.choice([b"\0" * 8, b"ustar\x0000"])
        data[at + 345 : at + 500] = bytes(155)
    elif kind == 4:
        data[at + rng.randrange(100)] = rng.choice(b"a/.\xff\0")
    else:
        data[at + rng.randrange(512)] ^= 1 << rng.randrange(8)
        return data
    block = data[at : at + 512]
    seal(block, rng.random() < 0.3)
    data[at : at + 512] = block
    return data


def read(data):
    """Regular files, and whether tarfile came to the end without a complaint."""
    lines, end = [], "end"
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for info in tar:
                # An empty file called `name/` is a folder to GNU tar.
                folder = info.name.endswith("/") and info.size == 0
                if info.isreg() and not info.issparse() and not folder:
                    content = tar.extractfile(info).read()
                    if len(content) != info.size:
                        raise tarfile.ReadError("cut short")
                    name = info.name.encode("utf-8", "surrogateescape").hex()
                    lines.append(f"{hashlib.sha256(content).hexdigest()} {name}")
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        # No members are no error: so `git archive` makes them of an empty tree.
        end = "end" if "end of file header" in str(error) or not data else "error"
    return [end, *lines]


folder, count = sys.argv[1], int(sys.argv[2])
for number in range(count):
    rng = random.Random(number)
    data = build(rng)
    if number % 3:
        data = broken(rng, data)
    with open(f"{folder}/{number}.tar", "wb") as file:
        file.write(data)
    with open(f"{folder}/{number}.txt", "w") as file:
        file.write("\n".join(read(bytes(data))))
