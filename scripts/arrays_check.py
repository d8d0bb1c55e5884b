#!/usr/bin/env python3
"""Arrays, value for value and mask for mask, against the readers that everybody uses: numpy, netCDF4, h5py and zarr.

Every file that such a reader reads is converted to Parquet, raw and decoded, and compared; what shardify refuses must say
why, and every hostile file must end in an error within a time and a memory. Files are made here, and taken from the folders
npy, netcdf, hdf5 and zarr of $SHARDIFY_CORPUS where there is one.

    scripts/arrays_check.py --shardify target/release/shardify [--only TEXT] [--keep]
"""

import argparse
import io
import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

TIMEOUT = 60
MEMORY = 1 << 30

failures = []
refused = []
checked = 0


def fail(what):
    failures.append(what)
    print(f"FAIL {what}", flush=True)


def run(shardify, source, out, *options):
    """Converts; returns the exit code and what was said on standard error."""
    command = [shardify, "convert", str(source), "--out", str(out), "--progress", "never", *options]
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY, 4 * MEMORY))
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, preexec_fn=limit)
    return done.returncode, done.stderr.strip()


# --- what shardify wrote, as numpy arrays ---------------------------------------------------------------------------


def values_of(array, field):
    """An arrow array as (values, mask), where a tensor adds its dimensions."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        shape = kind.shape if hasattr(kind, "shape") else None
        values, mask = values_of(array.storage, field)
        return values.reshape(len(array), *shape), mask.reshape(len(array), *shape)
    if pa.types.is_fixed_size_list(kind):
        inner, mask = values_of(array.flatten(), field)
        shape = (len(array), kind.list_size, *inner.shape[1:])
        return inner.reshape(shape), mask.reshape(shape)
    mask = np.asarray(array.is_null())
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        parts = [values_of(array.field(i), None) for i in range(kind.num_fields)]
        if names == ["re", "im"]:
            return parts[0][0] + 1j * parts[1][0], mask
        out = np.empty(len(array), dtype=object)
        for row in range(len(array)):
            out[row] = tuple(plain(values[row]) for values, _ in parts)
        return out, mask
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_list(kind):
        out = np.empty(len(array), dtype=object)
        for row, value in enumerate(array.to_pylist()):
            out[row] = value
        return out, mask
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return array.to_numpy(zero_copy_only=False), mask
    if isinstance(array, pa.ExtensionArray):
        raise TypeError(kind)
    if array.null_count:
        filled = array.fill_null(False if pa.types.is_boolean(kind) else pa.scalar(0, kind))
        return filled.to_numpy(zero_copy_only=False), mask
    return array.to_numpy(zero_copy_only=False), mask


def plain(value):
    return value.tolist() if isinstance(value, np.ndarray) else value


def written(out):
    """Columns of all shards, and the constants: name -> (values, mask)."""
    rows, constants = {}, {}
    shards = sorted(out.glob("*/*.parquet"))
    if shards:
        table = pa.concat_tables([pq.read_table(shard) for shard in shards]).combine_chunks()
        for name, column in zip(table.column_names, table.columns):
            column = column.combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            rows[name] = values_of(column, None)
    for path in out.glob("*/_constants.arrow"):
        batch = pa.ipc.open_file(path).read_all().combine_chunks()
        for name, column in zip(batch.column_names, batch.columns):
            values, mask = values_of(column.chunk(0), None)
            constants[name] = (values[0], mask[0])
    return rows, constants


def same(expected, expected_mask, found, found_mask):
    """Whether all values agree, those that are missing aside."""
    if expected.shape != found.shape or not np.array_equal(expected_mask, found_mask):
        return False
    if expected.dtype == object or found.dtype == object or expected.dtype.names:
        one, other = expected.reshape(-1), found.reshape(-1)
        missing = found_mask.reshape(-1)
        return all(missing[i] or equal(one[i], other[i]) for i in range(one.size))
    if expected.dtype.kind in "SUV" or found.dtype.kind in "SUV":
        return np.array_equal(expected, found)
    if expected.dtype.kind in "Mm":
        return np.array_equal(expected[~expected_mask], found[~found_mask].astype(expected.dtype))
    if expected.dtype.kind == "b" or found.dtype.kind == "b":
        return np.array_equal(expected.astype(bool), found.astype(bool))
    if expected.dtype.newbyteorder("=") != found.dtype.newbyteorder("="):
        return False
    return np.array_equal(expected[~expected_mask], found[~found_mask], equal_nan=expected.dtype.kind in "fc")


def equal(one, other):
    """Single values of any kind; text and its bytes are the same."""
    one = one.tolist() if isinstance(one, (np.generic, np.ndarray)) else one
    if isinstance(one, bytes) and isinstance(other, str):
        return one.rstrip(b"\0").decode("utf-8", "replace") == other
    if isinstance(one, str) and isinstance(other, bytes):
        return one.encode() == other
    if isinstance(one, bytes) and isinstance(other, bytes):
        return one.rstrip(b"\0") == other.rstrip(b"\0")
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other))
    if isinstance(one, complex) and isinstance(other, dict):
        return one == complex(other["re"], other["im"])
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    if isinstance(other, dict):
        return equal(one, tuple(other.values()))
    return one == other


def compare(label, expected, out):
    """Holds name -> (values, mask) against what was written."""
    global checked
    rows, constants = written(out)
    for name, (values, mask) in expected.items():
        checked += 1
        if name in constants:
            found, found_mask = constants[name]
            if not same(values, mask, np.asarray(found), np.asarray(found_mask)):
                fail(f"{label}: constant {name}: {values.dtype}{values.shape} != {np.asarray(found).dtype}{np.shape(found)}")
        elif name in rows:
            found, found_mask = rows[name]
            # The axis of the records is not known here: one of them must agree.
            axes = range(values.ndim) if values.ndim else [None]
            turned = [(values[None], mask[None])] + [
                (np.moveaxis(values, a, 0), np.moveaxis(mask, a, 0)) for a in axes if a is not None
            ]
            if not any(same(v, m, found, found_mask) for v, m in turned):
                fail(f"{label}: column {name}: {values.dtype}{values.shape} != {found.dtype}{found.shape}")
        elif values.size:
            fail(f"{label}: {name} is missing")


def check(shardify, path, expected, scratch, *options, may_refuse=True):
    label = f"{path.name} {' '.join(options)}"
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    code, said = run(shardify, path, out, *options)
    if code == 0:
        compare(label, expected, out)
    elif code in (2, 6) and may_refuse:
        refused.append(f"{label}: {said.splitlines()[0] if said else code}")
    else:
        fail(f"{label}: exit {code}: {said[:300]}")


def no_mask(values):
    return values, np.zeros(values.shape, dtype=bool)


# --- numpy -----------------------------------------------------------------------------------------------------------


def numpy_arrays(path):
    loaded = np.load(path, allow_pickle=False)
    arrays = {name: loaded[name] for name in loaded.files} if isinstance(loaded, np.lib.npyio.NpzFile) else {"array": loaded}
    expected = {}
    for name, values in arrays.items():
        mask = np.isnat(values) if values.dtype.kind in "Mm" else np.zeros(values.shape, dtype=bool)
        if values.dtype.names:
            flat = np.empty(values.size, dtype=object)
            flat[:] = [tuple(item) for item in values.reshape(-1).tolist()]
            values = flat.reshape(values.shape)
        if values.dtype.kind in "SU":
            values = values.astype(object)
        expected[name.replace("/", ".")] = (values, mask)
    return expected


def make_numpy(folder):
    rng = np.random.default_rng(7)
    base = rng.integers(0, 200, size=(5, 3, 4))
    for kind in "b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split():
        for order in "<>":
            np.save(folder / f"{kind}{'le' if order == '<' else 'be'}.npy", base.astype(order + kind))
    np.save(folder / "fortran.npy", np.asfortranarray(base.astype("f4")))
    np.save(folder / "fortran_1d.npy", np.asfortranarray(np.arange(5)))
    np.save(folder / "scalar.npy", np.float32(3.5))
    np.save(folder / "empty.npy", np.zeros((0, 3), "f4"))
    np.save(folder / "text.npy", np.array([["a", "b\u00e4"], ["", "ccc"]]))
    np.save(folder / "bytes.npy", np.array([b"a", b"", b"ccc"]))
    np.save(folder / "void.npy", np.array([b"abc", b"d\0f"], dtype="V3"))
    np.save(folder / "times.npy", np.array(["2020-01-01", "NaT", "1969-12-31T23"], dtype="M8[h]"))
    np.save(folder / "spans.npy", np.array([1, "NaT", -5], dtype="m8[ms]"))
    struct = np.zeros(4, dtype=[("x", "<f4", (2,)), ("n", "<i8"), ("s", "S3"), ("in", [("y", "u1")])])
    struct["n"] = np.arange(4)
    struct["s"] = b"ab"
    np.save(folder / "struct.npy", struct)
    np.save(folder / "struct_be.npy", struct.astype(struct.dtype.newbyteorder(">")))
    with open(folder / "v2.npy", "wb") as file:
        np.lib.format.write_array(file, base.astype("f4"), version=(2, 0))
    with open(folder / "v3.npy", "wb") as file:
        np.lib.format.write_array(file, np.zeros(2, dtype=[("\u00e4\u4e2d", "i4")]), version=(3, 0))
    np.savez(folder / "several.npz", a=base, b=base[:, 0].astype("f8"), c=np.arange(4), d=np.float64(2))
    np.savez_compressed(folder / "deflated.npz", a=base, b=np.asfortranarray(base[:, 0]))
    big = rng.normal(size=(300, 40, 50)).astype("f4")
    np.save(folder / "big.npy", big)


def check_outputs(shardify, scratch):
    """The same tensors in tar and TFRecord."""
    values = np.arange(24, dtype="<i2").reshape(4, 3, 2)
    path = scratch / "cube.npy"
    np.save(path, values)
    out = scratch / "tar"
    code, said = run(shardify, path, out, "--to", "tar")
    if code:
        return fail(f"tar: {said}")
    members = {}
    for shard in sorted(out.glob("*/*.tar")):
        with tarfile.open(shard) as archive:
            for member in archive:
                members[member.name] = archive.extractfile(member).read()
    found = [np.load(io.BytesIO(content)) for name, content in sorted(members.items()) if name.endswith("array.npy")]
    if not np.array_equal(np.stack(found), values):
        fail("tar: values differ")
    import tfrecord

    for choice in ("bytes", "lists"):
        out = scratch / f"tfrecord_{choice}"
        code, said = run(shardify, path, out, "--to", "tfrecord", "--tensors", choice)
        if code:
            return fail(f"tfrecord: {said}")
        found = []
        for shard in sorted(out.glob("*/*.tfrecord")):
            for record in tfrecord.tfrecord_loader(str(shard), None):
                row = record["array"]
                if choice == "bytes":
                    row = np.frombuffer(bytes(row), dtype=bytes(record["array/dtype"]).decode()).reshape(record["array/shape"])
                found.append(np.asarray(row).reshape(3, 2).astype("<i2"))
        if not np.array_equal(np.stack(found), values):
            fail(f"tfrecord {choice}: values differ")


def check_patches(shardify, scratch):
    values = np.arange(2 * 7 * 10, dtype="f4").reshape(2, 7, 10)
    path = scratch / "patched.npy"
    np.save(path, values)
    out = scratch / "patches"
    code, said = run(shardify, path, out, "--patch", "dim_1=4,dim_2=5", "--stride", "dim_2=2")
    if code:
        return fail(f"patches: {said}")
    found = written(out)[0]["array"][0]
    starts = [(t, y, x) for t in range(2) for y in (0, 3) for x in (0, 2, 4, 5)]
    if not np.array_equal(found, np.stack([values[t, y : y + 4, x : x + 5] for t, y, x in starts])):
        fail("patches: values differ")
    out = scratch / "flat"
    code, said = run(shardify, path, out, "--flatten")
    if code:
        return fail(f"flatten: {said}")
    rows = written(out)[0]
    if not np.array_equal(rows["array"][0], values.reshape(-1)) or not np.array_equal(
        rows["dim_1"][0], np.tile(np.repeat(np.arange(7), 10), 2)
    ):
        fail("flatten: values differ")


def hostile_numpy(folder):
    good = io.BytesIO()
    np.save(good, np.arange(1000))
    good = good.getvalue()
    (folder / "cut.npy").write_bytes(good[:-5])
    (folder / "cut_header.npy").write_bytes(good[:20])
    head = lambda text: b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    shape = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%s), }\n"
    (folder / "huge.npy").write_bytes(head(shape % b"1000000000000, 1000000000000"))
    (folder / "large.npy").write_bytes(head(shape % b"100000000000,") + b"x" * 100)
    (folder / "deep.npy").write_bytes(head(b"(" * 5000))
    (folder / "long.npy").write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
    objects = io.BytesIO()
    np.save(objects, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (folder / "objects.npy").write_bytes(objects.getvalue())
    archive = io.BytesIO()
    np.savez_compressed(archive, a=np.zeros(100_000))
    archive = archive.getvalue()
    for at in range(0, len(archive), max(1, len(archive) // 40)):
        (folder / f"flip{at}.npz").write_bytes(archive[:at] + bytes([archive[at] ^ 0xFF]) + archive[at + 1 :])
    (folder / "cut.npz").write_bytes(archive[:-30])


def check_hostile(shardify, path, scratch):
    """Ends in an error that names the file, or reads it, within bounds."""
    out = scratch / "hostile"
    shutil.rmtree(out, ignore_errors=True)
    try:
        code, said = run(shardify, path, out, "--from", FORMATS[path.suffix])
    except subprocess.TimeoutExpired:
        return fail(f"{path.name}: hangs")
    if code not in (0, 2, 6):
        fail(f"{path.name}: exit {code}: {said[:300]}")
    elif code and path.name not in said:
        fail(f"{path.name}: the error does not name the file: {said[:300]}")


FORMATS = {".npy": "npy", ".npz": "npy", ".nc": "netcdf", ".h5": "hdf5", ".hdf5": "hdf5", ".zarr": "zarr"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--corpus", default=os.environ.get("SHARDIFY_CORPUS"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    shardify = str(Path(options.shardify).resolve())
    scratch = Path(tempfile.mkdtemp(prefix="arrays"))
    made, hostile = scratch / "made", scratch / "bad"
    made.mkdir()
    hostile.mkdir()
    make_numpy(made)
    hostile_numpy(hostile)
    files = sorted(made.iterdir())
    if options.corpus:
        files += sorted(Path(options.corpus).glob("npy/**/*.np?"))
    for path in files:
        if options.only not in str(path) or path.suffix not in (".npy", ".npz"):
            continue
        try:
            expected = numpy_arrays(path)
        except (ValueError, OSError) as error:
            check_hostile(shardify, path, scratch)
            continue
        check(shardify, path, expected, scratch, may_refuse=False)
    if options.only in "outputs":
        check_outputs(shardify, scratch)
        check_patches(shardify, scratch)
    for path in sorted(hostile.iterdir()):
        if options.only in str(path):
            check_hostile(shardify, path, scratch)
    shutil.rmtree(scratch)
    for line in refused:
        print(f"refused {line}")
    print(f"{checked} arrays compared, {len(refused)} files refused, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
