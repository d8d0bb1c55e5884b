"""Damages files where their lengths and offsets lie.

A damaged byte at a random place of a file is mostly noticed by the first checksum or signature. So for each format there are
mutators that know where its lengths, counts and offsets are, change these, and make the checksums right again, so that the
damage gets as far into the reader as it can. All of them take the bytes and a `random.Random`, and return other bytes.
"""

import bz2
import functools
import gzip
import json
import lzma
import re
import struct
import zlib

INTERESTING = [
    0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 1000, 1023, 1024, 4095, 4096, 32767,
    32768, 65535, 65536, 1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 62), (1 << 63) - 1,
    1 << 63, (1 << 64) - 2, (1 << 64) - 1,
]  # fmt: skip


def _crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc32c_table()


def masked_crc32c(data):
    """As TFRecord has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def lookup3(data):
    """Checksum of the metadata of HDF5: Jenkins' hash of 2006."""
    mask = 0xFFFFFFFF

    def rot(x, k):
        return ((x << k) | (x >> (32 - k))) & mask

    length = len(data)
    a = b = c = (0xDEADBEEF + length) & mask
    at = 0
    while length > 12:
        x, y, z = struct.unpack_from("<III", data, at)
        a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
        a = (a - c) & mask ^ rot(c, 4)
        c = (c + b) & mask
        b = (b - a) & mask ^ rot(a, 6)
        a = (a + c) & mask
        c = (c - b) & mask ^ rot(b, 8)
        b = (b + a) & mask
        a = (a - c) & mask ^ rot(c, 16)
        c = (c + b) & mask
        b = (b - a) & mask ^ rot(a, 19)
        a = (a + c) & mask
        c = (c - b) & mask ^ rot(b, 4)
        b = (b + a) & mask
        at, length = at + 12, length - 12
    if length:
        x, y, z = struct.unpack("<III", data[at:].ljust(12, b"\0"))
        a, b, c = (a + x) & mask, (b + y) & mask, (c + z) & mask
        c = ((c ^ b) - rot(b, 14)) & mask
        a = ((a ^ c) - rot(c, 11)) & mask
        b = ((b ^ a) - rot(a, 25)) & mask
        c = ((c ^ b) - rot(b, 16)) & mask
        a = ((a ^ c) - rot(c, 4)) & mask
        b = ((b ^ a) - rot(a, 14)) & mask
        c = ((c ^ b) - rot(b, 24)) & mask
    return c


def number(rng, bits):
    """A number that tends to be at a limit of something."""
    kind = rng.randrange(4)
    value = rng.getrandbits(bits) if kind == 0 else rng.choice(INTERESTING)
    if kind == 1:
        value = rng.randrange(256)
    return value & ((1 << bits) - 1)


def nearby(rng, value, bits):
    """A number that is near another one, or a limit."""
    if rng.random() < 0.4:
        value = rng.choice([value + 1, value - 1, value * 2, value // 2, -value, value ^ (1 << rng.randrange(bits))])
        return value & ((1 << bits) - 1)
    return number(rng, bits)


# --- any bytes


def flip(data, rng):
    """Some bits."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 4, 16])):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def cut(data, rng):
    """Less of it: often only the last bytes are missing."""
    return data[: rng.randrange(len(data))] if rng.random() < 0.5 else data[: -min(len(data), rng.randrange(1, 64))]


def zeros(data, rng):
    """A block of zeros, as file systems leave after a power cut."""
    start = rng.randrange(len(data))
    length = min(len(data) - start, rng.choice([1, 4, 16, 512, 4096]))
    return data[:start] + bytes(length) + data[start + length :]


def set_integer(data, rng):
    """An integer of any size at any place."""
    bits = rng.choice([8, 16, 32, 64])
    if len(data) < 8:
        return flip(data, rng)
    order = rng.choice(["little", "big"])
    at = rng.randrange(len(data) - bits // 8 + 1)
    old = int.from_bytes(data[at : at + bits // 8], order)
    return data[:at] + nearby(rng, old, bits).to_bytes(bits // 8, order) + data[at + bits // 8 :]


def blocks(data, rng):
    """A block is doubled, taken out, or moved."""
    start = rng.randrange(len(data))
    length = min(len(data) - start, rng.choice([1, 3, 8, 64, 512, 4096, len(data)]))
    block = data[start : start + length]
    kind = rng.randrange(3)
    if kind == 0:
        return data[:start] + block * rng.choice([2, 3, 100 if length < 100 else 2]) + data[start + length :]
    without = data[:start] + data[start + length :]
    if kind == 1:
        return without
    place = rng.randrange(len(without) + 1)
    return without[:place] + block + without[place:]


def splice(data, other, rng):
    """Part of another file of the format in place of part of this one."""
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    first, last = sorted(rng.randrange(len(other) + 1) for _ in range(2))
    return data[:start] + other[first:last] + data[end:]


# --- Parquet: Thrift's compact protocol


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


class Thrift:
    """Walks over a struct and notes where its numbers and lengths are: (start, end, kind)."""

    def __init__(self, data, at, limit=20000):
        self.data, self.at, self.spans, self.fields, self.limit = data, at, [], {}, limit
        self.struct(0)

    def varint(self, kind):
        start, value, shift = self.at, 0, 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:
                break
        self.spans.append((start, self.at, kind))
        if len(self.spans) > self.limit:
            raise ValueError("too much")
        return value

    def value(self, kind, depth, path):
        if depth > 32:
            raise ValueError("too deep")
        if kind == 3:
            self.at += 1
        elif kind in (4, 5, 6):
            value = self.varint("number")
            self.fields.setdefault(path, []).append((value >> 1) ^ -(value & 1))
        elif kind == 7:
            self.at += 8
        elif kind == 8:
            length = self.varint("length")
            if length:
                self.spans.append((self.at, self.at + min(length, len(self.data) - self.at), "bytes"))
            self.at += length
        elif kind in (9, 10):
            self.spans.append((self.at, self.at + 1, "byte"))
            head = self.data[self.at]
            self.at += 1
            size = head >> 4
            if size == 15:
                size = self.varint("length")
            if size > len(self.data) - self.at:
                raise ValueError("a list that does not fit")
            for _ in range(size):
                if head & 15 in (1, 2):
                    self.at += 1
                else:
                    self.value(head & 15, depth + 1, path)
        elif kind == 12:
            self.struct(depth + 1, path)

    def struct(self, depth, path=()):
        field = 0
        while True:
            head = self.data[self.at]
            self.spans.append((self.at, self.at + 1, "byte"))
            self.at += 1
            if head == 0:
                return
            if head >> 4:
                field += head >> 4
            else:
                number = self.varint("number")
                field = (number >> 1) ^ -(number & 1)
            if head & 15 not in (1, 2):
                self.value(head & 15, depth, (*path, field))


def footer_of_parquet(data):
    """Where the footer begins and ends."""
    if len(data) < 12 or data[-4:] != b"PAR1":
        return None
    length = struct.unpack("<I", data[-8:-4])[0]
    return (len(data) - 8 - length, len(data) - 8) if length + 12 <= len(data) else None


@functools.lru_cache(maxsize=64)
def pages_of_parquet(data):
    """(start of header, end of header, start of data, end of data, whether it has a checksum) of pages."""
    found = footer_of_parquet(data)
    if not found:
        return []
    try:
        footer = Thrift(data, found[0])
    except (IndexError, ValueError):
        return []
    out = []
    chunk = (4, 1, 3)
    starts = footer.fields.get((*chunk, 9), []) + footer.fields.get((*chunk, 11), [])
    for start in starts[:200]:
        at = start
        for _ in range(50):
            if not 4 <= at < found[0]:
                break
            try:
                header = Thrift(data, at, 200)
            except (IndexError, ValueError):
                break
            size = header.fields.get((3,), [-1])[0]
            kind = header.fields.get((1,), [-1])[0]
            if size < 0 or kind not in (0, 2, 3) or header.at + size > found[0]:
                break
            out.append((at, header.at, header.at, header.at + size, (4,) in header.fields))
            at = header.at + size
    return sorted(set(out))


def change_span(data, span, rng, keep_length):
    start, end, kind = span
    if kind == "byte":
        return data[:start] + bytes([rng.randrange(256)]) + data[end:]
    if kind == "bytes":
        return data[:start] + rng.randbytes(end - start) + data[end:]
    if keep_length:
        new = bytearray(rng.choice(data[start:end]) | 128 for _ in range(end - start))
        new[-1] = rng.randrange(128)
        return data[:start] + bytes(new) + data[end:]
    value = 0
    for place, byte in enumerate(data[start:end]):
        value |= (byte & 127) << 7 * place
    value = (value >> 1) ^ -(value & 1) if kind == "number" else value
    new = nearby(rng, value & ((1 << 64) - 1), 64)
    if kind == "number":
        signed = new - (1 << 64) if new >> 63 else new
        new = ((signed << 1) ^ (signed >> 63)) & ((1 << 64) - 1)
    return data[:start] + varint(new) + data[end:]


@functools.lru_cache(maxsize=64)
def footer_spans(data, start):
    """Where numbers and lengths of the footer are; none when it is damaged."""
    try:
        return Thrift(data, start).spans
    except (IndexError, ValueError):
        return []


def parquet_footer(data, rng):
    """Numbers, lengths, types and lists of the footer; its length is right."""
    found = footer_of_parquet(data)
    if not found:
        return set_integer(data, rng)
    spans = footer_spans(data, found[0])
    if not spans:
        return set_integer(data, rng)
    numbers = [span for span in spans if span[2] in ("number", "length")]
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        pool = numbers if rng.random() < 0.8 else spans
        span = rng.choice(pool)
        new = change_span(data, span, rng, False)
        if len(new) != len(data):
            # What follows has moved: only one such change can be made.
            length = found[1] - found[0] + len(new) - len(data)
            return new[:-8] + struct.pack("<I", max(length, 0)) + new[-4:]
        data = new
    return data


def parquet_pages(data, rng):
    """Headers of pages, and how their data begins, where levels and bit widths are."""
    pages = pages_of_parquet(data)
    if not pages:
        return parquet_footer(data, rng)
    start, end, first, last, _ = rng.choice(pages)
    if rng.random() < 0.5 or first == last:
        spans = Thrift(data, start, 200).spans
        return change_span(data, rng.choice(spans), rng, True)
    out = bytearray(data)
    reach = min(last - first, rng.choice([8, 16, 64, last - first]))
    for _ in range(rng.choice([1, 2, 4])):
        out[first + rng.randrange(reach)] = number(rng, 8)
    return bytes(out)


# --- HDF5


@functools.lru_cache(maxsize=64)
def _blocks_with_checksum(data):
    """(start, place of the checksum) of metadata blocks whose checksum is right."""
    out = []
    base = data.find(b"\x89HDF\r\n\x1a\n")
    if base >= 0 and data[base + 8 : base + 9] in (b"\2", b"\3"):
        out.append((base, base + 44))
    fixed = {b"FAHD": 24, b"EAHD": 68, b"BTHD": 34, b"FRHP": 142}
    for match in re.finditer(rb"OHDR|FAHD|EAHD|BTHD|FRHP", data):
        at, sign = match.start(), match.group()
        if sign in fixed:
            out.append((at, at + fixed[sign]))
            continue
        if at + 12 > len(data) or data[at + 4] != 2:
            continue
        flags = data[at + 5]
        place = at + 6 + (16 if flags & 32 else 0) + (4 if flags & 16 else 0)
        width = 1 << (flags & 3)
        size = int.from_bytes(data[place : place + width], "little")
        out.append((at, place + width + size))
    good = []
    for start, end in out:
        if end + 4 <= len(data) and end - start < 4096:
            if struct.unpack_from("<I", data, end)[0] == lookup3(data[start:end]):
                good.append((start, end))
    return good


def hdf5_checked(data, rng):
    """Fields of blocks that have checksums, which are made right."""
    good = _blocks_with_checksum(data)
    if not good:
        return hdf5_fields(data, rng)
    start, end = rng.choice(good)
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        width = rng.choice([1, 1, 2, 4, 8])
        at = rng.randrange(start + 4, max(start + 5, end - width))
        old = int.from_bytes(out[at : at + width], "little")
        out[at : at + width] = nearby(rng, old, 8 * width).to_bytes(width, "little")
    out[end : end + 4] = struct.pack("<I", lookup3(bytes(out[start:end])))
    return bytes(out[: len(data)])


_HDF5_SIGNS = rb"OHDR|OCHK|TREE|HEAP|SNOD|FRHP|FHDB|FHIB|BTHD|BTIN|BTLF|FAHD|FADB|EAHD|EAIB|EASB|EADB|GCOL|SMTB|\x89HDF"
# Messages of object headers of version 1 are not signed; those of dataspaces, layouts, types and filters look like this.
_HDF5_MESSAGES = rb"[\x01\x03\x05\x08\x0b\x0c\x10\x11]\x00[\x08\x10\x18\x20\x28\x30\x38\x40\x48\x50]\x00[\x00-\x05]\x00\x00\x00[\x01-\x04]"


@functools.lru_cache(maxsize=64)
def _fields_of_hdf5(data):
    signs = [match.start() + 4 for match in re.finditer(_HDF5_SIGNS, data)]
    return signs, [match.start() for match in re.finditer(_HDF5_MESSAGES, data)]


def hdf5_fields(data, rng):
    """Fields behind signatures and of messages of object headers."""
    places, messages = _fields_of_hdf5(data)
    if messages and rng.random() < 0.6:
        places = messages
    if not places:
        return set_integer(data, rng)
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        width = rng.choice([1, 2, 4, 8, 8])
        at = min(rng.choice(places) + rng.randrange(72), len(out) - width)
        old = int.from_bytes(out[at : at + width], "little")
        out[at : at + width] = nearby(rng, old, 8 * width).to_bytes(width, "little")
    return bytes(out)


# --- NetCDF classic, NPY, zip, tar, TFRecord, Arrow


def netcdf_header(data, rng):
    """Numbers of the header: records, dimensions, kinds, sizes and offsets."""
    out = bytearray(data)
    reach = min(len(data), rng.choice([64, 256, 2048, 8192]))
    for _ in range(rng.choice([1, 1, 2])):
        width = rng.choice([4, 4, 8])
        at = rng.randrange(1, max(2, reach // 4 - 2)) * 4
        old = int.from_bytes(out[at : at + width], "big")
        out[at : at + width] = nearby(rng, old, 8 * width).to_bytes(width, "big")
    return bytes(out[: len(data)])


def npy_header(data, rng):
    """Shape, type and order in the header, whose length is right, mostly."""
    if data[:6] != b"\x93NUMPY" or len(data) < 12:
        return set_integer(data, rng)
    width = 2 if data[6] == 1 else 4
    length = int.from_bytes(data[8 : 8 + width], "little")
    start = 8 + width
    text, body = data[start : start + length], data[start + length :]
    kind = rng.randrange(5)
    if kind == 0:
        dims = ", ".join(str(nearby(rng, 10, 64)) for _ in range(rng.randrange(0, 5)))
        text = re.sub(rb"\([^)]*\)", b"(" + dims.encode() + b",)", text)
    elif kind == 1:
        types = [b"'|V0'", b"'<f8'", b"'|S0'", b"'<U1000000000'", b"'|O'", b"'<M8[ns]'", b"'|b1'", b"'>c16'", b"[('a', '<f8', (0,))]",
                 b"[('a', '<i4', (1000000, 1000000)), ('b', '|V4')]", b"'<f2'", b"'<m8[25s]'", b"'|S4294967296'", b"[]"]  # fmt: skip
        text = re.sub(rb"'descr': *('[^']*'|\[[^\]]*\])", b"'descr': " + rng.choice(types), text)
    elif kind == 2:
        text = flip(text, rng) if text else text
    elif kind == 3:
        text = text.replace(b"False", rng.choice([b"True", b"None", b"0"]))
    else:
        return data[:8] + nearby(rng, length, 8 * width).to_bytes(width, "little") + data[start:]
    return data[:8] + (len(text) & ((1 << 8 * width) - 1)).to_bytes(width, "little") + text + body


def zip_fields(data, rng):
    """Fields of the directories of a zip."""
    places = [(m.start(), m.group()) for m in re.finditer(rb"PK\x01\x02|PK\x03\x04|PK\x05\x06|PK\x06\x06|PK\x06\x07", data)]
    if not places:
        return set_integer(data, rng)
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        at, sign = rng.choice(places)
        width = rng.choice([2, 4, 4])
        place = min(at + 4 + rng.randrange(46 if sign == b"PK\x01\x02" else 26 if sign == b"PK\x03\x04" else 18), len(out) - width)
        old = int.from_bytes(out[place : place + width], "little")
        out[place : place + width] = nearby(rng, old, 8 * width).to_bytes(width, "little")
    return bytes(out)


TAR_FIELDS = [(0, 100), (100, 8), (108, 8), (116, 8), (124, 12), (124, 12), (124, 12), (136, 12), (156, 1), (156, 1), (157, 100),
              (257, 8), (265, 32), (329, 8), (345, 155)]  # fmt: skip


@functools.lru_cache(maxsize=64)
def _headers_of_tar(data):
    return [at for at in range(0, len(data) - 511, 512) if data[at + 257 : at + 262] == b"ustar"]


def tar_headers(data, rng):
    """Fields of headers, with right checksums; records of pax headers."""
    headers = _headers_of_tar(data)
    if not headers:
        return set_integer(data, rng)
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        at = rng.choice(headers)
        if out[at + 156] in b"xgLK" and rng.random() < 0.5 and at + 1024 <= len(out):
            body = bytes(out[at + 512 : at + 1024])
            out[at + 512 : at + 1024] = pax(body, rng)[:512].ljust(512, b"\0")
            continue
        start, width = rng.choice(TAR_FIELDS)
        out[at + start : at + start + width] = tar_field(out[at + start : at + start + width], start, width, rng)
        block = bytearray(out[at : at + 512])
        block[148:156] = b" " * 8
        out[at + 148 : at + 156] = b"%06o\0 " % sum(block)
    return bytes(out)


def tar_field(old, start, width, rng):
    kind = rng.randrange(5)
    if start == 156:
        return rng.choice([b"0", b"1", b"2", b"5", b"x", b"g", b"L", b"K", b"S", b"V", b"M", b"N", b"\0", b"7", bytes([rng.randrange(256)])])
    if kind == 0 and width in (8, 12):
        # Base 256.
        return bytes([rng.choice([0x80, 0xFF])]) + number(rng, 64).to_bytes(width - 1, "big", signed=False) if width == 12 else b"\x80" + rng.randbytes(7)
    if kind == 1 and width in (8, 12):
        return (b"%0*o" % (width - 1, number(rng, 33) % 8 ** (width - 1))) + b"\0"
    if kind == 2:
        return flip(bytes(old), rng)
    if kind == 3:
        return rng.choice([b"../" * 60, b"/" * 200, b"a/" * 90, b"\xff" * 200, b"." * 200, b"", b".hidden"])[:width].ljust(width, b"\0")
    return rng.randbytes(width)


def pax(body, rng):
    """Records of a pax header: `LENGTH KEY=VALUE` and a line end."""
    keys = [b"size", b"path", b"linkpath", b"GNU.sparse.size", b"GNU.sparse.map", b"GNU.sparse.realsize", b"GNU.sparse.major", b"hdrcharset", b"mtime"]
    if rng.random() < 0.3:
        return flip(body, rng)
    value = rng.choice([str(number(rng, 64)).encode(), b"-1", b"", b"\xff\xfe", b"a" * 400, b"../x", b"1.5e9", b"9" * 30])
    record = b" " + rng.choice(keys) + b"=" + value + b"\n"
    length = len(record) + len(str(len(record) + 2))
    if rng.random() < 0.3:
        length = number(rng, 32)
    return str(length).encode() + record


def tfrecord_frames(data, rng):
    """Lengths and data of records, with right checksums."""
    frames, at = [], 0
    while at + 12 <= len(data) and len(frames) < 2000:
        length = struct.unpack_from("<Q", data, at)[0]
        if at + 16 + length > len(data):
            break
        frames.append((at, length))
        at += 16 + length
    if not frames:
        return set_integer(data, rng)
    at, length = rng.choice(frames)
    if rng.random() < 0.25:
        new = struct.pack("<Q", nearby(rng, length, 64))
        return data[:at] + new + struct.pack("<I", masked_crc32c(new)) + data[at + 12 :]
    body = data[at + 12 : at + 12 + length]
    for _ in range(rng.choice([1, 1, 2, 3])):
        if body:
            body = rng.choice([flip, set_integer, cut, blocks, protobuf])(body, rng)[: 1 << 20]
    head = struct.pack("<Q", len(body))
    frame = head + struct.pack("<I", masked_crc32c(head)) + body + struct.pack("<I", masked_crc32c(body))
    return data[:at] + frame + data[at + 16 + length :]


def protobuf(body, rng):
    """A number near the begin, where lengths of messages are, with as many bytes as one likes."""
    at = rng.randrange(min(len(body), 64))
    return body[:at] + varint(number(rng, 64)) + body[at + 1 :]


def arrow_metadata(data, rng):
    """Numbers of the metadata, which is made of aligned integers, and the lengths before it."""
    places = [match.start() for match in re.finditer(rb"\xff\xff\xff\xff", data)]
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 2])):
        width = rng.choice([1, 2, 4, 4, 8])
        base = rng.choice(places) if places and rng.random() < 0.6 else max(0, len(data) - 512)
        at = min(base + rng.randrange(0, 512 // width) * width, len(out) - width)
        old = int.from_bytes(out[at : at + width], "little")
        out[at : at + width] = nearby(rng, old, 8 * width).to_bytes(width, "little")
    return bytes(out)


# --- text


TOKENS = [
    b"null", b"true", b"NaN", b"-Infinity", b"-0", b"1e400", b"1E-400", b"9223372036854775808", b"-9223372036854775809", b"123456789012345678901234567890",
    b"0.1", b"\"\"", b"\"\\ud800\"", b"\"\\u0000\"", b"{}", b"[]", b"[[[[[[", b"{\"a\":" * 200, b"[" * 600, b"}", b"]", b",", b":", b"\"", b"\"\"", b"\\",
    b"\n", b"\r", b"\r\n", b"\0", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\xff\xfe", b";", b"\t", b"|", b"'", b"#", b"2020-02-30", b"0001-01-01", b"9999-12-31T23:59:60Z",
    b"1970-01-01T00:00:00.123456789123+14:00", b"=1+1", b" ", b"a" * 5000, b",,,,,,,,,,", b"\"a\":1,\"a\":2",
]  # fmt: skip


def text_tokens(data, rng):
    """Tokens in place of others."""
    for _ in range(rng.choice([1, 1, 2, 4])):
        found = list(re.finditer(rb"[^\s,;:\[\]{}\"]+|[\s,;:\[\]{}\"]", data[: 1 << 16]))
        if not found:
            return rng.choice(TOKENS)
        match = rng.choice(found)
        kind = rng.randrange(3)
        token = rng.choice(TOKENS) if kind else rng.choice(found).group()
        end = match.end() if kind != 2 else match.start()
        data = data[: match.start()] + token + data[end:]
    return data


def zarr_document(data, rng):
    """A document of a Zarr store: numbers at limits, members gone or of another kind."""
    try:
        document = json.loads(data)
    except ValueError:
        return text_tokens(data, rng)
    places = []

    def walk(value):
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            places.append((value, key))
            walk(inner)

    walk(document)
    for _ in range(rng.choice([1, 1, 2])):
        if not places:
            break
        parent, key = rng.choice(places)
        kind = rng.randrange(6)
        try:
            if kind == 0:
                del parent[key]
            elif kind == 1:
                parent[key] = rng.choice([None, True, -1, 0, 1.5, "", "x", [], {}, [0], "NaN", "|V0", "<f8", "bytes", "gzip", "sharding_indexed"])
            elif kind == 2 and isinstance(parent, list):
                parent.append(parent[key])
            elif isinstance(parent[key], int):
                value = nearby(rng, parent[key] & ((1 << 64) - 1), 64)
                parent[key] = value - (1 << 64) if value >> 63 and rng.random() < 0.5 else value
            elif isinstance(parent[key], str):
                parent[key] = rng.choice(["<f8", ">i2", "|S0", "<U4", "int8", "float16", "complex128", "r8", "blosc", "zstd", "crc32c", "transpose", "/", ".", "nan"])
        except (IndexError, KeyError):
            pass
    return json.dumps(document).encode()


# --- compressed as a whole

WRAPPERS = {
    b"\x1f\x8b": (gzip.decompress, lambda data: gzip.compress(data, 1, mtime=0)),
    b"BZh": (bz2.decompress, lambda data: bz2.compress(data, 1)),
    b"\xfd7zXZ": (lzma.decompress, lambda data: lzma.compress(data, preset=0)),
}


@functools.lru_cache(maxsize=64)
def unwrapped(data):
    """The bytes within and how they are packed again; `None` when they are not compressed."""
    for signature, (unpack, pack) in WRAPPERS.items():
        if data.startswith(signature):
            try:
                return unpack(data)[: 4 << 20], pack
            except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error):
                return None
    return None


BY_FORMAT = {
    "parquet": [parquet_footer, parquet_footer, parquet_pages],
    "hdf5": [hdf5_checked, hdf5_fields, hdf5_fields],
    "netcdf": [netcdf_header],
    "npy": [npy_header, zip_fields],
    "tar": [tar_headers],
    "tfrecord": [tfrecord_frames],
    "arrow": [arrow_metadata],
    "csv": [text_tokens],
    "json": [text_tokens],
    "jsonl": [text_tokens],
    "zarr": [zarr_document],
    "files": [],
}

PLAIN = [flip, cut, zeros, set_integer, set_integer, blocks]


def mutant(data, form, others, rng):
    """A damaged copy of a file of a format; `others` are the bytes of other files of it."""
    if not data:
        return rng.randbytes(rng.randrange(1, 64))
    inner = unwrapped(data) if rng.random() < 0.5 else None
    if inner and inner[0]:
        return inner[1](mutant(inner[0], form, others, rng))
    kind = rng.random()
    if kind < 0.05 and others:
        out = splice(data, rng.choice(others), rng)
    elif kind < 0.7 and BY_FORMAT[form]:
        special = BY_FORMAT[form]
        if form == "npy":
            special = [zip_fields] if data.startswith(b"PK") else [npy_header]
        if form == "netcdf" and data.startswith(b"\x89HDF"):
            special = BY_FORMAT["hdf5"]
        out = rng.choice(special)(data, rng)
    else:
        out = rng.choice(PLAIN)(data, rng)
    return out or b"\0"


def damage(data, rng):
    """A copy damaged as disks and networks do it, with no checksum made right."""
    out = data
    while out == data:
        out = rng.choice([flip, flip, cut, zeros, set_integer])(data, rng)
    return out
