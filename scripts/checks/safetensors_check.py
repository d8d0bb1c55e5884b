#!/usr/bin/env python3
"""Tensors of safetensors files are what the safetensors library reads, and damaged files end in errors.

    python3 scripts/checks/safetensors_check.py --shardify target/release/shardify [--files 30] [--flips 200] [--cuts 40] [--seed 1]

Files with all types, of one first dimension, with scalars and tensors of other lengths beside them, and with metadata: Parquet and tar shards at 1 and 4 threads
hold the elements that the library returns, bit by bit, and so do files that are compressed. Numbers without a column type are compared as their bits. A file
that is cut at any place, or has a bit flipped, ends in an error that names it, or gives what the library reads of it. Headers that claim too much are refused in
little time and memory. Needs safetensors, numpy and pyarrow.
"""

import gzip
import io
import json
import struct
import tarfile
import time

import numpy as np
import pyarrow.ipc
import pyarrow.parquet as pq
from safetensors import SafetensorError, deserialize

from harness import Failure, convert_bounded, cuts_of, damage_check, expect, finish, flips_of

# Types of tensors as NumPy has them; those below have no column type, and are kept as their bits.
TYPES = {"BOOL": "?", "U8": "u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
BITS = {"BF16": "<u2", "F8_E4M3": "u1", "F8_E5M2": "u1", "F8_E8M0": "u1"}


def convert(binary, source, out, *options):
    """Converts; returns exit code and standard error."""
    code, _, said = convert_bounded(binary, source, out, "--memory", "512MiB", *options)
    return code, said


def file_of(tensors, metadata=None):
    """A file of (name, type, shape, bytes), with a header that is padded as the library pads it."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, kind, shape, content in tensors:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def tensors_of(rng, kinds, records):
    """Tensors with `records` as their first dimension."""
    for number, kind in enumerate(kinds):
        shape = [records, *(rng.randrange(1, 5) for _ in range(rng.randrange(0, 4)))]
        width = np.dtype({**TYPES, **BITS}[kind]).itemsize
        content = rng.randbytes(int(np.prod(shape)) * width)
        if kind == "BOOL":
            content = bytes(byte & 1 for byte in content)
        yield f"t{number}.{kind.lower()}", kind, shape, content


def read(data):
    """The tensors of a file by name, as the library reads them: arrays of numbers, or of their bits."""
    found = {}
    for name, view in deserialize(data):
        kind = {**TYPES, **BITS}.get(view["dtype"])
        if kind is None:
            return None
        found[name] = np.frombuffer(bytes(view["data"]), dtype=kind).reshape(view["shape"])
    return found


def array_of(column):
    """The elements of a column, whatever its type, as an array with a first dimension of records."""
    column = column.combine_chunks()
    if isinstance(column.type, pyarrow.FixedShapeTensorType):
        return column.to_numpy_ndarray() if column.type.value_type != pyarrow.bool_() else np.array(column.storage.to_pylist()).reshape(len(column), *column.type.shape)
    return column.to_numpy(zero_copy_only=False)


def same(found, wanted):
    """Whether arrays have the same bits; a NaN of any kind is one."""
    found = np.asarray(found).astype(wanted.dtype, copy=False).reshape(wanted.shape)
    if wanted.dtype.kind != "f":
        return np.array_equal(found, wanted)
    nan = np.isnan(wanted)
    return np.array_equal(nan, np.isnan(found)) and np.array_equal(found[~nan].view("u1"), wanted[~nan].view("u1"))


def compare(dataset, wanted, form, what):
    """Compares a dataset with the tensors of one first dimension, and its constants with the others."""
    records = {name: array for name, array in wanted.items() if array.ndim and array.shape[0] == wanted[min(wanted)].shape[0]}
    if form == "parquet":
        tables = [pq.read_table(path) for path in sorted(dataset.glob("*/*.parquet"))]
        table = pyarrow.concat_tables(tables)
        expect(f"{what}: columns", sorted(table.column_names), sorted(records))
        found = {name: array_of(table[name]) for name in records}
    else:
        parts = {}
        for shard in sorted(dataset.glob("*/*.tar")):
            with tarfile.open(shard) as tar:
                for one in tar:
                    key, _, part = one.name.partition(".")
                    parts.setdefault(key, {})[part] = tar.extractfile(one).read()
        found = {name: [] for name in records}
        for key in sorted(parts):
            rest = json.loads(parts[key].get("json", "{}"))
            for name in records:
                part = parts[key].get(f"{name}.npy")
                found[name].append(np.load(io.BytesIO(part)) if part is not None else rest[name])
        found = {name: np.array(values, dtype=records[name].dtype) for name, values in found.items()}
    for name, array in records.items():
        expect(f"{what}: {name}", same(found[name], array), True)
    others = {name: array for name, array in wanted.items() if name not in records}
    if others:
        [path] = dataset.glob("*/_constants.arrow")
        table = pyarrow.ipc.open_file(path).read_all() if path.read_bytes()[:6] == b"ARROW1" else pyarrow.ipc.open_stream(path).read_all()
        for name, array in others.items():
            expect(f"{what}: constant {name}", same(array_of(table[name])[0] if array.ndim else table[name][0].as_py(), array), True)


def check_equal(binary, folder, rng, count):
    for number in range(count):
        raw = number % 3 == 2
        kinds = rng.sample([*TYPES, *(BITS if raw else [])], rng.randrange(1, 9))
        records = rng.choice([1, 2, 7, 100])
        tensors = list(tensors_of(rng, kinds, records))
        if number % 4 == 1:
            tensors.append(("z.scalar", "F64", [], struct.pack("<d", rng.random())))
        rng.shuffle(tensors)
        data = file_of(tensors, {"format": "pt", "who": "ü"} if number % 2 else None)
        name = "x.safetensors.gz" if number % 5 == 4 else "x.safetensors"
        path = folder / name
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        wanted = read(data)
        for form, jobs in (("parquet", 1), ("parquet", 4), ("tar", 4)):
            options = ["--to", form, "--jobs", jobs, "--read", f"raw={'yes' if raw else 'no'}", "--read", "record-dim=dim_0"]
            code, said = convert(binary, path, folder / "out", *options)
            expect(f"file {number}: exit code\n{said}", code, 0)
            # Floats without a shape become JSON, which has no NaN.
            if form == "parquet" or not any(array.ndim < 2 and array.dtype.kind == "f" for array in wanted.values()):
                compare(folder / "out", wanted, form, f"file {number} of {kinds} as {form}")
        path.unlink()
    print(f"ok    {count} files of {len(TYPES) + len(BITS)} types: the elements that safetensors reads", flush=True)


def check_damage(binary, folder, rng, cuts, flips):
    tensors = [("x", "F32", [4, 2], rng.randbytes(32)), ("y", "U8", [4], b"abcd"), ("flag", "BOOL", [4, 1], bytes([1, 0, 0, 1]))]
    whole = file_of(tensors, {"a": "b"})
    spoilt = [*cuts_of(rng, whole, cuts), *flips_of(rng, whole, flips)]
    path, errors, equal = folder / "spoilt.safetensors", 0, 0
    for what, data in spoilt:
        path.write_bytes(data)
        code, said = convert(binary, path, folder / "out", "--read", "raw=yes", "--read", "record-dim=dim_0")
        try:
            wanted = read(data)
        except SafetensorError:
            expect(f"{what}: the library refuses it\n{said}", code != 0, True)
            wanted = None
        if code != 0:
            errors += 1
            if "error: " not in said or "spoilt.safetensors" not in said:
                raise Failure(f"{what}: expected an error that names the file, found {code}\n{said}")
            continue
        equal += 1
        if wanted:
            compare(folder / "out", wanted, "parquet", what)
    print(f"ok    {len(spoilt)} damaged files: {errors} errors, {equal} with the elements of the library", flush=True)


def hostile():
    """Files that claim too much, or say the same twice."""
    def header(text, data=b"", size=None):
        return struct.pack("<Q", len(text) if size is None else size) + text + data

    def one(**of):
        return json.dumps({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **of}}).encode()

    yield "size-2-63", header(one(), bytes(8), 1 << 63)
    yield "size-4-gib", header(one(), bytes(8), 4 << 30)
    yield "size-limit", header(one(), bytes(8), 100_000_001)
    yield "shape-overflow", header(one(shape=[1 << 62, 1 << 62]), bytes(8))
    yield "shape-vast", header(one(dtype="U8", shape=[1 << 62], data_offsets=[0, 1 << 62]), bytes(8))
    yield "shape-zero-vast", header(one(shape=[0, 1 << 61], data_offsets=[0, 0]))
    yield "twice", header(one()[:-1] + b"," + one()[1:], bytes(8))
    yield "gap", header(json.dumps({"x": {"dtype": "U8", "shape": [2], "data_offsets": [1, 3]}}).encode(), bytes(3))
    yield "overlap", header(json.dumps({n: {"dtype": "U8", "shape": [2], "data_offsets": [i, i + 2]} for i, n in enumerate("ab")}).encode(), bytes(3))
    yield "rank", header(one(shape=[1] * 100_000, dtype="U8", data_offsets=[0, 1]), b"x")
    yield "deep", header(b'{"x":' + b"[" * 200_000, b"")
    many = ",".join(f'"{n}":{{"dtype":"U8","shape":[{n % 977 + 1},1],"data_offsets":[0,0]}}' for n in range(200_000))
    yield "tensors", header(("{" + many + "}").encode())
    yield "blanks", header(one() + b" " * 50_000_000, bytes(7))


def check_hostile(binary, folder):
    for name, data in hostile():
        path = folder / f"{name}.safetensors"
        path.write_bytes(data)
        begun = time.monotonic()
        code, said = convert(binary, path, folder / "out")
        if name != "shape-zero-vast" and (code == 0 or f"{name}.safetensors" not in said):
            raise Failure(f"{name}: expected an error that names the file, found {code}\n{said}")
        first = next((line for line in said.splitlines() if line.startswith("error")), "no records")
        print(f"ok    {name}: {first[:120]} ({time.monotonic() - begun:.1f} s)", flush=True)
        path.unlink()


def main():
    with damage_check(__doc__, files=30, flips=200, cuts=40) as (options, rng, folder):
        binary = options.shardify
        check_equal(binary, folder, rng, options.files)
        check_damage(binary, folder, rng, options.cuts, options.flips)
        check_hostile(binary, folder)


if __name__ == "__main__":
    finish(main)
