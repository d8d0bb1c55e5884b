"""Independent readers: what Python's own parsers find in a file, and whether a value of theirs is the same as a value of Arrow.

Nothing here is shardify's: delimited text is read with `csv`, JSON with `json`, archives with `tarfile`; TFRecord and
`tf.train.Example` with the parser below, which proves both checksums. Numbers in JSON keep their text (`Number`), so that no
digit is lost before it is compared. A value of Arrow is what `cells` makes of an array: times as counts of their unit, for
Python has no nanoseconds and no year 10000.
"""

import base64
import bz2
import csv
import decimal
import gzip
import io
import json
import lzma
import math
import re
import struct
import tarfile

import numpy as np
import pyarrow as pa
import zstandard

import mutators

csv.field_size_limit(1 << 30)
DELIMITERS = ",\t;|"


class Number(str):
    """A number of JSON, as it is written."""


class Bad(Exception):
    """A record that no reader takes."""


def content(path):
    """The bytes of a file, unpacked."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        return gzip.decompress(data)
    if data[:3] == b"BZh":
        return bz2.decompress(data)
    if data[:6] == b"\xfd7zXZ\0":
        return lzma.decompress(data)
    if data[:4] == b"\x04\x22\x4d\x18":
        return pa.input_stream(io.BytesIO(data), compression="lz4").read()
    if data[:4] == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(data)
    return data


def in_utf8(data):
    """Text in UTF-16 as UTF-8, without a byte order mark."""
    for mark, name in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            return data[2:].decode(name, "replace").encode()
    for at, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(data) > 3 and not any(data[at:200:2]) and all(data[1 - at : 200 : 2]):
            return data.decode(name, "replace").encode()
    return data.removeprefix(b"\xef\xbb\xbf")


# --- delimited text -------------------------------------------------------------------------------------------------


def csv_rows(data, names):
    """(header, rows) as Python's `csv` reads them with the delimiter that gives the names which shardify gives; fields are bytes."""
    # What the reader looks for is ASCII, so text of any encoding passes as Latin-1.
    text = data.decode("latin-1")
    for delimiter in DELIMITERS:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            rows = [[field.encode("latin-1") for field in row] for row in rows if row]
        except csv.Error:
            continue
        for start, row in enumerate(rows):
            if distinct(row) == names:
                return row, rows[start + 1 :]
            if not row[0].startswith(b"#"):
                break
    return None


def distinct(row):
    """Names of columns: `column_3` where there is none, `name_2` where there was one."""
    names = {}
    for number, field in enumerate(row, 1):
        name = wanted = field.decode("utf-8", "replace") or f"column_{number}"
        again = 2
        while name in names:
            name, again = f"{wanted}_{again}", again + 1
        names[name] = number
    return list(names)


def is_bad(row, width):
    """Whether a record is one that has to be rejected: too long, not UTF-8, or not closed."""
    if len(row) > width:
        return True
    try:
        b"".join(row).decode()
    except UnicodeDecodeError:
        return True
    return False


def field_agrees(field, value, kind):
    """Whether a field of delimited text is the value of a column."""
    text = field.decode()
    if value is None:
        return text == ""
    if pa.types.is_boolean(kind):
        return text.lower() == str(value).lower()
    if pa.types.is_integer(kind):
        return text == str(value)
    return text_agrees(text, value, kind)


# --- JSON -----------------------------------------------------------------------------------------------------------


def parsed(text):
    return json.loads(text, parse_int=Number, parse_float=Number, parse_constant=Number, object_pairs_hook=unique)


def unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Bad("a key that repeats")
    return found


def json_records(data, lines):
    """The records of a document (an object, or the elements of an array) or of lines; `Bad` where one cannot be read."""
    if not lines:
        document = parsed(data)
        return document if isinstance(document, list) else [document]
    out = []
    for line in data.split(b"\n"):
        if line.strip():
            try:
                out.append(parsed(line))
            except (ValueError, Bad) as error:
                out.append(Bad(str(error)))
    return out


def json_agrees(found, value, kind):
    """Whether a value of JSON is the value of a column. A type of `Null` stands for what a column holds nothing of."""
    if value is None:
        return found is None
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.json":
            return same_json(found, parsed(value))
        return json_agrees(found, value, kind.storage_type)
    if pa.types.is_struct(kind):
        if not isinstance(found, dict):
            return False
        fields = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
        return found.keys() <= fields.keys() and all(json_agrees(found.get(k), value[k], fields[k]) for k in fields)
    if pa.types.is_map(kind):
        return isinstance(found, list) and len(found) == len(value) and all(
            isinstance(f, dict) and json_agrees(f.get("key"), k, kind.key_type) and json_agrees(f.get("value"), v, kind.item_type)
            for f, (k, v) in zip(found, value)
        )
    if is_list(kind):
        return isinstance(found, list) and len(found) == len(value) and all(
            json_agrees(f, v, kind.value_type) for f, v in zip(found, value)
        )
    if pa.types.is_boolean(kind):
        return found is value
    if isinstance(found, (dict, list)) or found is None:
        return False
    if isinstance(found, bool):
        return is_text(kind) and value == str(found).lower()
    if isinstance(found, Number) and is_text(kind):
        return value == found
    return text_agrees(found, value, kind)


def same_json(one, other):
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same_json(v, other[k]) for k, v in one.items())
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same_json, one, other))
    return one == other and isinstance(one, Number) == isinstance(other, Number)


# --- values ---------------------------------------------------------------------------------------------------------


def text_agrees(text, value, kind):
    """Whether text says a value that is not null: numbers, dates and times, binary in base64."""
    if is_text(kind):
        return text == value
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return base64.b64decode(text) == value
    if pa.types.is_integer(kind):
        return int(text) == value
    if pa.types.is_floating(kind):
        return same_float(narrow(float(text.replace("Infinity", "inf")), kind), value)
    if pa.types.is_decimal(kind):
        return decimal.Decimal(str(text)) == value
    if pa.types.is_date32(kind):
        return int(np.datetime64(text, "D").astype(int)) == value
    if pa.types.is_date64(kind):
        return int(np.datetime64(text, "ms").astype(int)) == value
    if pa.types.is_timestamp(kind):
        return moment(text, kind.unit) == value
    if pa.types.is_time(kind):
        hours, minutes, seconds = text.removesuffix("Z").split(":")
        return count(3600 * int(hours) + 60 * int(minutes) + decimal.Decimal(seconds), kind.unit) == value
    if pa.types.is_duration(kind):
        sign, days, seconds = re.fullmatch(r"(-?)P(?:(\d+)D)?(?:T(-?[\d.]+)S)?", text).groups()
        total = 86400 * int(days or 0) + decimal.Decimal(seconds or 0)
        return count(-total if sign else total, kind.unit) == value
    if pa.types.is_null(kind):
        return False
    return str(text) == str(value)


def moment(text, unit):
    """A time in ISO 8601 as a count of units since 1970, in UTC where it has an offset."""
    body, fraction, offset = re.fullmatch(r"(.*?\d[T ][\d:]+)(\.\d+)?(Z|[+-]\d\d:?(?:\d\d)?)?", text).groups()
    seconds = int(np.datetime64(body.replace(" ", "T"), "s").astype(int))
    if offset and offset != "Z":
        minutes = 60 * int(offset[1:3]) + int(offset[3:].lstrip(":") or 0)
        seconds -= 60 * (minutes if offset[0] == "+" else -minutes)
    return count(seconds + decimal.Decimal(fraction or 0), unit)


def count(seconds, unit):
    with decimal.localcontext() as exact:
        exact.prec = 60
        return decimal.Decimal(seconds).scaleb({"s": 0, "ms": 3, "us": 6, "ns": 9}[unit])


def narrow(value, kind):
    """A double as a column of the type holds it."""
    with np.errstate(over="ignore"):
        return float({16: np.float16, 32: np.float32, 64: np.float64}[kind.bit_width](value))


def same_float(one, other):
    """Bit by bit, payloads of NaN aside."""
    return (one == other and math.copysign(1, one) == math.copysign(1, other)) or (one != one and other != other)


def is_text(kind):
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_list(kind):
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def plain_type(kind):
    """The type as shardify keeps it: dictionaries, views and run ends as their values."""
    if isinstance(kind, pa.BaseExtensionType):
        return kind
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return rebuilt(kind, plain_type) if pa.types.is_nested(kind) else kind


def countable(kind):
    """The type with times as the numbers that they are, and extensions as what they store."""
    if isinstance(kind, pa.BaseExtensionType):
        return countable(kind.storage_type)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return rebuilt(kind, countable) if pa.types.is_nested(kind) else kind


def rebuilt(kind, change):
    """A nested type whose parts are changed; everything may be null."""
    if pa.types.is_struct(kind):
        return pa.struct([(kind.field(i).name, change(kind.field(i).type)) for i in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    item = change(kind.value_type)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    return pa.large_list(item) if pa.types.is_large_list(kind) else pa.list_(item)


def cells(array):
    """The values of an array of Arrow, chunked or not."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in cells(chunk)]
    if isinstance(array, pa.ExtensionArray):
        return cells(array.storage)
    kind = array.type
    if pa.types.is_dictionary(kind):
        return cells(array.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return cells(pa.compute.run_end_decode(array))
    if pa.types.is_struct(kind):
        parts = [(kind.field(i).name, cells(array.field(i))) for i in range(kind.num_fields)]
        missing = array.is_null().to_pylist()
        return [None if gone else {name: part[row] for name, part in parts} for row, gone in enumerate(missing)]
    if pa.types.is_map(kind):
        keys, items = cells(array.keys), cells(array.items)
        entries = list(zip(keys, items))
        return ranges(array, entries, array.offsets.to_pylist())
    if pa.types.is_fixed_size_list(kind):
        size, start = kind.list_size, array.offset * kind.list_size
        items = cells(array.values)
        missing = array.is_null().to_pylist()
        return [None if gone else items[start + i * size : start + i * size + size] for i, gone in enumerate(missing)]
    if is_list(kind):
        return ranges(array, cells(array.values), array.offsets.to_pylist())
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return array.view(countable(kind)).to_pylist()
    if is_text(kind):
        # Files hold text that is not UTF-8.
        return [None if value is None else value.decode("utf-8", "surrogateescape") for value in as_binary(array).to_pylist()]
    return array.to_pylist()


def as_binary(array):
    if pa.types.is_string_view(array.type):
        return array.cast(pa.string()).view(pa.binary())
    return array.view(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())


def ranges(array, items, offsets):
    first = 0 if len(items) >= (offsets[-1] if offsets else 0) else offsets[0]
    missing = array.is_null().to_pylist()
    return [None if gone else items[offsets[i] - first : offsets[i + 1] - first] for i, gone in enumerate(missing)]


def same(one, other):
    """Whether two values of Arrow are the same: as Python compares them, floats bit by bit."""
    if isinstance(one, float) and isinstance(other, float):
        return same_float(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


# --- archives -------------------------------------------------------------------------------------------------------


def members(path_or_data):
    """Files of a tar: (name, bytes), in order; `Bad` for one that is sparse."""
    source = {"fileobj": io.BytesIO(path_or_data)} if isinstance(path_or_data, bytes) else {"name": path_or_data}
    with tarfile.open(**source) as archive:
        for member in archive:
            if member.isfile():
                yield member.name, Bad("sparse") if member.issparse() else archive.extractfile(member).read()


def samples(files):
    """Samples by the rule of WebDataset: [(key, {extension: bytes})]."""
    out = []
    for name, data in files:
        name = name.removeprefix("./")
        folder, slash, base = name.rpartition("/")
        # The dot that a name begins with ends no stem.
        stem, dot, extension = base.partition(".")
        key = folder + slash + stem
        if not out or out[-1][0] != key:
            out.append((key, {}))
        out[-1][1].setdefault(extension.lower() if dot else "bin", []).append(data)
    return out


def frames(data):
    """Data of the records of a TFRecord, both checksums proved; `Bad` in place of what does not match its own."""
    at = 0
    while at < len(data):
        head = data[at : at + 8]
        (length,) = struct.unpack("<Q", head)
        if struct.unpack("<I", data[at + 8 : at + 12])[0] != mutators.masked_crc32c(head):
            raise Bad(f"byte {at}: a length that does not match its checksum")
        record = data[at + 12 : at + 12 + length]
        (expected,) = struct.unpack("<I", data[at + 12 + length : at + 16 + length])
        yield record if expected == crc(record) else Bad("checksum")
        at += 16 + length


def crc(data):
    import google_crc32c

    value = google_crc32c.value(data)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """Fields of a message of protobuf: (number, value)."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at : at + length], at + length
            if at > len(data):
                raise Bad("a field that is longer than its message")
        elif key & 7 in (1, 5):
            size = 8 if key & 7 == 1 else 4
            value, at = data[at : at + size], at + size
        else:
            raise Bad(f"wire type {key & 7}")
        yield key >> 3, value


def varint(data, at):
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Bad("a number that has no end")
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value & (1 << 64) - 1, at


class Feature:
    """A feature of an Example: its kind (bytes, float, int or nothing) and its values."""

    def __init__(self, data):
        self.kind, self.values, self.exact, self.document = None, [], None, False
        for kind, body in fields(data):
            if kind in (1, 2, 3):
                self.kind = {1: "bytes", 2: "float", 3: "int"}[kind]
                for number, value in fields(body):
                    self.values += self.items(value) if number == 1 else []

    def items(self, value):
        if self.kind == "bytes":
            return [bytes(value)]
        if self.kind == "float":
            return [float(x) for x in np.frombuffer(value, "<f4")]
        if isinstance(value, int):
            return [signed(value)]
        out, at = [], 0
        while at < len(value):
            number, at = varint(value, at)
            out.append(signed(number))
        return out

    def floats(self):
        """Values as doubles: in full where the Example has them, else the shortest text of the float."""
        if self.exact is not None:
            return self.exact
        return [float(str(np.float32(x))) for x in self.values]


def signed(value):
    return value - (1 << 64) if value >> 63 else value


def example(data):
    """Name -> feature."""
    found, exact = {}, {}
    for number, value in fields(data):
        if number == 1:
            for one, entry in fields(value):
                if one == 1:
                    parts = dict(fields(entry))
                    name = parts.get(1, b"").decode()
                    if name in found:
                        raise Bad(f"the feature {name} twice")
                    found[name] = Feature(parts.get(2, b""))
        elif number == 1000:
            parts = dict(fields(value))
            exact[parts[1].decode()] = parts
        elif number == 2:
            raise Bad("a SequenceExample, which has lists of features")
    for name, parts in exact.items():
        if 2 in parts:
            found[name].exact = list(struct.unpack(f"<{len(parts[2]) // 8}d", parts[2]))
        found[name].document = bool(parts.get(3))
    return found


def feature_agrees(feature, value, kind):
    """Whether a feature is the value of a column."""
    if value is None or feature is None or feature.kind is None and not feature.values and value != []:
        return value is None and (feature is None or feature.kind is None)
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.json":
            return same_json(parsed(feature.values[0]), parsed(value))
        return feature_agrees(feature, value, kind.storage_type)
    if is_list(kind) and not feature.document:
        item = kind.value_type
        if len(feature.values) == len(value) and not any(v is None for v in value):
            if all(one_agrees(feature, i, v, item) for i, v in enumerate(value)):
                return True
        return feature.kind == "bytes" and len(feature.values) == 1 and is_document(feature, value, kind)
    if pa.types.is_nested(kind):
        return feature.kind == "bytes" and is_document(feature, value, kind)
    return len(feature.values) == 1 and one_agrees(feature, 0, value, kind)


def is_document(feature, value, kind):
    try:
        return json_agrees(parsed(feature.values[0]), value, kind)
    except ValueError:
        return False


def one_agrees(feature, number, value, kind):
    found = feature.values[number]
    if feature.kind == "int":
        return (pa.types.is_integer(kind) or pa.types.is_boolean(kind)) and found == signed(int(value) & (1 << 64) - 1)
    if feature.kind == "float":
        if not pa.types.is_floating(kind):
            return False
        return same_float(feature.floats()[number] if kind.bit_width == 64 else found, value)
    if isinstance(value, bytes):
        return found == value
    if is_text(kind):
        return found.decode("utf-8", "surrogateescape") == value
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind):
        return json_agrees(parsed(found), value, kind)
    return text_agrees(found.decode(), value, kind)
