#!/usr/bin/env python3
"""Arrays, value for value and mask for mask, against the readers that everybody uses: numpy, netCDF4, h5py and zarr.

Every file that such a reader reads is converted to Parquet, raw and decoded, and compared; what shardify refuses must say
why, and every hostile file must end in an error within a time and a memory. Files are made here, and taken from the folders
npy, netcdf, hdf5 and zarr of $SHARDIFY_CORPUS where there is one.

    scripts/checks/arrays_check.py --shardify target/release/shardify [--only TEXT] [--keep]
"""

import argparse
import collections
import concurrent.futures
import http.server
import io
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from harness import ROOT, finish, not_run


# Of a hostile file, and of any other: seconds, and bytes of memory that the process may have at its peak.
TIMEOUT = 60
MEMORY = 1 << 30

failures = []
refused = []
checked = 0
hostile_files = 0
hostile_peak = (0, "")


def fail(what):
    failures.append(what)
    print(f"FAIL {what}", flush=True)


def run(shardify, source, out, *options):
    """Converts; returns the exit code and what was said on standard error."""
    code, said, _ = measured([shardify, "convert", str(source), "--out", str(out), "--progress", "never", *options])
    return code, said


def measured(command):
    """Runs; returns the exit code, what was said on standard error, and the most bytes that were in memory."""
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY, 4 * MEMORY))
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, preexec_fn=limit)
        timer = threading.Timer(TIMEOUT, child.kill)
        timer.start()
        # Of this child alone, which subprocess does not tell.
        _, status, used = os.wait4(child.pid, 0)
        hangs = not timer.is_alive()
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        if hangs:
            raise subprocess.TimeoutExpired(command, TIMEOUT)
        said.seek(0)
        return child.returncode, said.read().decode("utf-8", "replace").strip(), used.ru_maxrss << 10


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


def same(expected, expected_mask, found, found_mask, is_tensor):
    """Whether all values agree, those that are missing aside. Missing values of tensors of floats are NaN."""
    if expected.dtype.kind == "f" and is_tensor and expected.shape == found.shape and not found_mask.any():
        expected, expected_mask = np.where(expected_mask, np.asarray(np.nan, expected.dtype), expected), found_mask
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
        if f"{label.split()[0]}:{name}" in KNOWN:
            continue
        if name in constants:
            found, found_mask = constants[name]
            if not same(values, mask, np.asarray(found), np.asarray(found_mask), values.ndim > 0):
                fail(f"{label}: constant {name}: {values.dtype}{values.shape} != {np.asarray(found).dtype}{np.shape(found)}")
        elif name in rows:
            found, found_mask = rows[name]
            # The axis of the records is not known here: one of them must agree.
            axes = range(values.ndim) if values.ndim else [None]
            turned = [(values[None], mask[None])] + [
                (np.moveaxis(values, a, 0), np.moveaxis(mask, a, 0)) for a in axes if a is not None
            ]
            if not any(same(v, m, found, found_mask, v.ndim > 1) for v, m in turned):
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


# --- netCDF4 and h5py ------------------------------------------------------------------------------------------------


def netcdf_arrays(path, raw):
    """Variables of all groups; decoded as netCDF4 does, and times by cftime."""
    import cftime
    import netCDF4

    data = netCDF4.Dataset(path)
    expected = {}

    def visit(group, prefix):
        for name, variable in group.variables.items():
            variable.set_auto_maskandscale(not raw)
            variable.set_auto_chartostring(False)
            values = variable[...]
            if values is np.ma.masked:
                values = np.ma.array(np.zeros((), variable.dtype), mask=True)
            mask = np.ma.getmaskarray(values)
            values = np.ma.getdata(values)
            time = None if raw else time_units(variable)
            if time:
                values, mask = times(values, mask, *time)
            elif values.dtype.kind == "S" and not raw and values.ndim:
                rows = np.ascontiguousarray(values).reshape(-1, values.shape[-1])
                flat = np.empty(len(rows), dtype=object)
                flat[:] = [row.tobytes().rstrip(b"\0") for row in rows]
                values = flat.reshape(values.shape[:-1])
                mask = np.zeros(values.shape, dtype=bool)
            elif values.dtype.kind in "SU":
                values, mask = values.astype(object), np.zeros(values.shape, dtype=bool)
            elif values.dtype.names:
                flat = np.empty(values.size, dtype=object)
                flat[:] = [tuple(item) for item in values.reshape(-1).tolist()]
                values, mask = flat.reshape(values.shape), np.zeros(values.shape, dtype=bool)
            expected[prefix + name] = (np.asarray(values), np.asarray(mask))
        for name, child in group.groups.items():
            visit(child, f"{prefix}{name}.")

    visit(data, "")
    return expected


def time_units(variable):
    units = getattr(variable, "units", None)
    scaled = any(hasattr(variable, name) for name in ("scale_factor", "add_offset"))
    if not isinstance(units, str) or " since " not in units or variable.dtype.kind not in "iuf" or scaled:
        return None
    return units, getattr(variable, "calendar", "standard")


def times(values, mask, units, calendar):
    import cftime

    calendar = calendar.lower()
    if values.dtype.kind == "f":
        mask = mask | np.isnan(values)
    safe = np.where(mask, 0, values)
    dates = np.asarray(cftime.num2date(safe, units, calendar, only_use_cftime_datetimes=True))
    if calendar in ("360_day", "all_leap", "366_day"):
        text = lambda date: date.strftime("%Y-%m-%dT%H:%M:%S") + (f".{date.microsecond:06}" if date.microsecond else "")
        out = np.vectorize(text, otypes=[object])(dates)
        return out, mask
    if calendar in ("noleap", "365_day"):
        out = np.vectorize(lambda date: np.datetime64(date.isoformat(), "us"), otypes=["M8[us]"])(dates)
    else:
        # The instant itself.
        epoch = cftime.DatetimeGregorian(1970, 1, 1) if calendar in ("standard", "gregorian") else None
        kind = {"julian": cftime.DatetimeJulian, "proleptic_gregorian": cftime.DatetimeProlepticGregorian}
        epoch = epoch or kind[calendar](1969, 12, 19) if calendar == "julian" else epoch or kind[calendar](1970, 1, 1)
        micros = lambda date: round((date - epoch).total_seconds() * 1e6)
        out = np.vectorize(lambda date: np.datetime64(micros(date), "us"), otypes=["M8[us]"])(dates)
    return out, mask


def hdf5_arrays(path):
    import h5py

    expected = {}
    seen = set()

    def visit(name, item):
        if not isinstance(item, h5py.Dataset) or item.id.get_offset() in ():
            return
        if h5py.h5o.get_info(item.id).addr in seen:
            return
        seen.add(h5py.h5o.get_info(item.id).addr)
        if item.shape is None:
            return
        values = np.asarray(item[()])
        if values.dtype.names and not (item.dtype.kind == "c"):
            flat = np.empty(values.size, dtype=object)
            flat[:] = [tuple(item) for item in values.reshape(-1).tolist()]
            values = flat.reshape(values.shape)
        elif values.dtype.kind in "SU":
            values = values.astype(object)
        expected[name.replace("/", ".")] = (values, np.zeros(values.shape, dtype=bool))

    with h5py.File(path) as file:
        file.visititems(visit)
    return expected


def make_netcdf(folder):
    import netCDF4

    rng = np.random.default_rng(3)
    for kind in ("NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA", "NETCDF4", "NETCDF4_CLASSIC"):
        with netCDF4.Dataset(folder / f"{kind.lower()}.nc", "w", format=kind) as data:
            data.createDimension("time", None)
            data.createDimension("lat", 5)
            data.createDimension("lon", 8)
            data.createDimension("chars", 6)
            time = data.createVariable("time", "f8", ("time",))
            time.units, time.calendar = "hours since 1990-01-01 06:00:00", "gregorian"
            lat = data.createVariable("lat", "f4", ("lat",))
            packed = data.createVariable("packed", "i2", ("time", "lat", "lon"), fill_value=-999)
            packed.scale_factor, packed.add_offset = np.float32(0.01), np.float32(20)
            wide = data.createVariable("wide", "i2", ("time", "lat"), fill_value=-1)
            wide.scale_factor, wide.add_offset = 0.1, 273.15
            limited = data.createVariable("limited", "f4", ("time", "lat", "lon"))
            limited.valid_range = np.array([-1, 1], dtype="f4")
            unsigned = data.createVariable("unsigned", "i1", ("time", "lat"), fill_value=np.int8(-1))
            unsigned._Unsigned = "true"
            bare = data.createVariable("bare", "i4", ("time", "lat"))
            names = data.createVariable("names", "S1", ("time", "chars"))
            crs = data.createVariable("crs", "i4", ())
            for variable in data.variables.values():
                variable.set_auto_maskandscale(False)
            n = 7
            time[:] = np.arange(n) * 6
            lat[:] = np.linspace(-90, 90, 5)
            values = rng.integers(-2000, 2000, (n, 5, 8))
            packed[:] = np.where(values % 7 == 0, -999, values)
            wide[:] = values[:, :, 0]
            limited[:] = rng.normal(size=(n, 5, 8))
            unsigned[:] = rng.integers(-128, 128, (n, 5))
            bare[: n - 2] = values[: n - 2, :, 1]
            names[:] = netCDF4.stringtochar(np.array([f"n{i}" for i in range(n)], dtype="S6"))
            crs[...] = 7
            if kind != "NETCDF4":
                continue
            for calendar in ("noleap", "360_day", "julian", "all_leap", "proleptic_gregorian"):
                other = data.createVariable(calendar, "i4", ("time",))
                other.units, other.calendar = "days since 2001-02-27", calendar
                other[:] = np.arange(n) * 367
            text = data.createVariable("text", str, ("time",))
            text[:] = np.array([f"t\u00e4{i}" for i in range(n)], dtype=object)
            for codec in ("zlib", "zstd", "szip", "bzip2"):
                try:
                    options = {"compression": codec} if codec != "zlib" else {"zlib": True, "shuffle": True, "fletcher32": True}
                    packed = data.createVariable(f"c_{codec}", "f4", ("time", "lat", "lon"), chunksizes=(2, 5, 3), **options)
                    packed[:] = rng.normal(size=(n, 5, 8)).round(1)
                except RuntimeError:
                    pass
            group = data.createGroup("deep").createGroup("er")
            inner = group.createVariable("inner", "u8", ("time", "lat"))
            inner[:] = rng.integers(0, 1 << 60, (n, 5))
            compound = data.createCompoundType(np.dtype([("a", "i2"), ("b", "f8")]), "pair")
            pairs = data.createVariable("pairs", compound, ("time",))
            pairs[:] = np.array([(i, i / 2) for i in range(n)], dtype=[("a", "i2"), ("b", "f8")])


def make_hdf5(folder):
    import h5py

    rng = np.random.default_rng(5)
    for libver in ("earliest", "latest"):
        with h5py.File(folder / f"{libver}.h5", "w", libver=libver) as file:
            base = rng.integers(0, 100, (12, 6, 7))
            for kind in "i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split():
                file[f"le_{kind}"] = base.astype("<" + kind)
                file[f"be_{kind}"] = base.astype(">" + kind)
            file["bool"] = base > 50
            file["scalar"] = 3.25
            file["text"] = np.array([f"s{i}" for i in range(12)], dtype="S5")
            file.create_dataset("vlen_text", data=[f"\u00e4{i}" for i in range(12)], dtype=h5py.string_dtype())
            ragged = file.create_dataset("ragged", (12,), dtype=h5py.vlen_dtype("i4"))
            for i in range(12):
                ragged[i] = np.arange(i)
            struct = np.zeros(12, dtype=[("x", "<f4", (2,)), ("n", ">i8"), ("s", "S3")])
            struct["n"] = np.arange(12)
            file["struct"] = struct
            file["opaque"] = np.array([b"ab%d" % i for i in range(10)] + [b"abc"] * 2, dtype="V3")
            file["enum"] = np.arange(12, dtype="i2")
            for name, options in {
                "gzip": {"compression": "gzip"},
                "shuffled": {"compression": "gzip", "shuffle": True, "fletcher32": True},
                "lzf": {"compression": "lzf", "shuffle": True},
                "scaled": {"scaleoffset": True},
                "plain": {},
            }.items():
                file.create_dataset(name, data=base.astype("i4"), chunks=(5, 4, 7), **options)
            for name, maxshape in {"grow1": (None, 6, 7), "grow2": (None, None, 7), "fixed": (12, 6, 7)}.items():
                file.create_dataset(name, data=base.astype("f4"), chunks=(3, 2, 7), maxshape=maxshape)
            sparse = file.create_dataset("sparse", (12, 6, 7), "f4", chunks=(3, 2, 7), fillvalue=-7.5)
            sparse[4] = 1
            file["group/inner"] = base.astype("f8")
            file["named_t"], file["text_t"] = np.dtype("i2"), np.dtype("S5")
            named = file.create_dataset("named", data=np.arange(12, dtype="i2"), dtype=file["named_t"])
            named.attrs.create("level", np.array([7, 8], "i2"), dtype=file["named_t"])
            named.attrs.create("units", np.bytes_("m"), dtype=file["text_t"])
            file["link"] = h5py.SoftLink("/group/inner")


# --- zarr ------------------------------------------------------------------------------------------------------------


def zarr_arrays(path):
    import zarr

    root = zarr.open(str(path), mode="r")
    if isinstance(root, zarr.Array):
        return {"array": without_nat(fixed(np.asarray(root[...])))}
    found = {name: item for name, item in root.members(max_depth=None) if isinstance(item, zarr.Array)}
    return {name.replace("/", "."): without_nat(fixed(np.asarray(item[...]))) for name, item in found.items()}


def without_nat(values):
    """Times that are none are missing."""
    return values, np.isnat(values) if values.dtype.kind in "Mm" else np.zeros(values.shape, dtype=bool)


def fixed(values):
    if values.dtype.names:
        flat = np.empty(values.size, dtype=object)
        flat[:] = [tuple(item) for item in values.reshape(-1).tolist()]
        return flat.reshape(values.shape)
    return values.astype(object) if values.dtype.kind in "SUT" else values


def make_zarr(folder):
    import numcodecs
    import zarr

    rng = np.random.default_rng(11)
    base = rng.integers(0, 90, (10, 7, 9))
    compressors = {
        "none": None,
        "zlib": numcodecs.Zlib(),
        "gzip": numcodecs.GZip(),
        "zstd": numcodecs.Zstd(),
        "lz4": numcodecs.LZ4(),
        "bz2": numcodecs.BZ2(),
        **{f"blosc_{name}": numcodecs.Blosc(cname=name) for name in ("lz4", "lz4hc", "blosclz", "zlib", "zstd", "snappy")
           if name in numcodecs.blosc.list_compressors()},
        "bits": numcodecs.Blosc(cname="lz4", shuffle=numcodecs.Blosc.BITSHUFFLE),
        "unshuffled": numcodecs.Blosc(cname="blosclz", shuffle=numcodecs.Blosc.NOSHUFFLE),
    }
    two = zarr.open_group(str(folder / "two.zarr"), mode="w", zarr_format=2)
    for name, compressor in compressors.items():
        for dtype in ("<f4", ">i2", "<f8"):
            array = two.create_array(f"{name}_{dtype[1:]}", shape=base.shape, chunks=(4, 3, 9), dtype=dtype, compressors=compressor)
            array[...] = base
    big = zarr.open_group(str(folder / "big.zarr"), mode="w", zarr_format=2)
    smooth = np.sin(np.arange(400 * 300).reshape(400, 300) / 500).astype("f4")
    for name, compressor in compressors.items():
        array = big.create_array(name, shape=smooth.shape, chunks=(100, 300), dtype="<f4", compressors=compressor)
        array[...] = smooth
    for dtype in "b1 i1 u2 u8 f2 c8 c16 S5 U3 M8[ns] m8[s]".split():
        array = two.create_array(f"t_{dtype[:2]}", shape=(10,), chunks=(3,), dtype=np.dtype(dtype))
        array[...] = base[:, 0, 0].astype(dtype) if dtype[0] not in "SU" else np.array([f"x{i}" for i in range(10)], dtype=dtype)
    fortran = two.create_array("fortran", shape=base.shape, chunks=(4, 3, 9), dtype="<i4", order="F")
    fortran[...] = base
    sparse = two.create_array("sparse", shape=(10, 6), chunks=(2, 2), dtype="<f4", fill_value=7.5)
    sparse[3] = 1
    deep = two.create_array("a/b/deep", shape=(10, 4), chunks=(5, 4), dtype="<u4")
    deep[...] = 9
    zarr.consolidate_metadata(str(folder / "two.zarr"), zarr_format=2)
    alone = zarr.create_array(str(folder / "alone.zarr"), shape=base.shape, chunks=(4, 3, 9), dtype="<i4", zarr_format=2)
    alone[...] = base
    three = zarr.open_group(str(folder / "three.zarr"), mode="w", zarr_format=3)
    from zarr.codecs import BloscCodec, BytesCodec, GzipCodec, TransposeCodec, ZstdCodec

    for name, compressor in {"none": None, "gzip": GzipCodec(), "zstd": ZstdCodec(checksum=True), "blosc": BloscCodec(typesize=4, shuffle="bitshuffle")}.items():
        array = three.create_array(name, shape=base.shape, chunks=(4, 3, 9), dtype="f4", compressors=compressor)
        array[...] = base
        array = three.create_array(f"sharded_{name}", shape=base.shape, chunks=(2, 3, 3), shards=(4, 6, 9), dtype="i4", compressors=compressor, fill_value=-1)
        array[:7] = base[:7]
    array = three.create_array("turned", shape=base.shape, chunks=(4, 3, 9), dtype="f4", filters=[TransposeCodec(order=(2, 0, 1))], serializer=BytesCodec(endian="big"))
    array[...] = base
    for dtype in ("bool", "int8", "uint64", "float16", "float64", "complex64", "complex128"):
        array = three.create_array(f"t_{dtype}", shape=(10,), chunks=(3,), dtype=dtype)
        array[...] = base[:, 0, 0].astype(dtype)
    array = three.create_array("words", shape=(10,), chunks=(3,), dtype=str)
    array[...] = np.array([f"w\u00e4{i}" for i in range(10)], dtype=object)
    array = three.create_array("v2keys", shape=(10, 4), chunks=(3, 2), dtype="i2", chunk_key_encoding={"name": "v2", "separator": "."})
    array[...] = 3


def hostile_zarr(folder):
    good = {"chunks": [4], "compressor": None, "dtype": "<f8", "fill_value": 0, "filters": None, "order": "C", "shape": [10], "zarr_format": 2}
    for name, change in {
        "huge": {"shape": [10**18], "chunks": [10**17]},
        "wide": {"shape": [4, 10**15], "chunks": [1, 10**15]},
        "zero": {"chunks": [0]},
        "rank": {"chunks": [4, 4]},
        "codec": {"compressor": {"id": "secret"}},
        "type": {"dtype": "<q9"},
        "objects": {"dtype": "|O"},
        "fill": {"fill_value": "nonsense"},
        "key": {"dimension_separator": "/../../"},
        "bomb": {"compressor": {"id": "zlib"}},
    }.items():
        store = folder / f"{name}.zarr"
        store.mkdir()
        (store / ".zarray").write_text(json.dumps({**good, **change}))
        import zlib

        (store / "0").write_bytes(zlib.compress(bytes(1 << 28)) if name == "bomb" else b"x" * 32)
    escape = folder / "escape.zarr"
    escape.mkdir()
    (escape / ".zmetadata").write_text(json.dumps({"metadata": {"../alone.zarr/.zarray": good}, "zarr_consolidated_format": 1}))
    (escape / ".zgroup").write_text('{"zarr_format": 2}')
    three = folder / "notjson.zarr"
    three.mkdir()
    (three / "zarr.json").write_text('{"zarr_format": 3, ')


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
        code, said = run(shardify, path, out, "--to", "tfrecord", "--write", f"tensors={choice}")
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
    code, said = run(shardify, path, out, "--read", "patch=dim_1=4,dim_2=5", "--read", "stride=dim_2=2")
    if code:
        return fail(f"patches: {said}")
    found = written(out)[0]["array"][0]
    starts = [(t, y, x) for t in range(2) for y in (0, 3) for x in (0, 2, 4, 5)]
    if not np.array_equal(found, np.stack([values[t, y : y + 4, x : x + 5] for t, y, x in starts])):
        fail("patches: values differ")
    out = scratch / "flat"
    code, said = run(shardify, path, out, "--read", "flatten=yes")
    if code:
        return fail(f"flatten: {said}")
    rows = written(out)[0]
    if not np.array_equal(rows["array"][0], values.reshape(-1)) or not np.array_equal(
        rows["dim_1"][0], np.tile(np.repeat(np.arange(7), 10), 2)
    ):
        fail("flatten: values differ")


def check_shapes(shardify, scratch):
    """Files that differ in shape: Parquet as pyarrow reads it, tar and TFRecord as numpy does."""
    folder = scratch / "shapes"
    folder.mkdir()
    rng = np.random.default_rng(8)
    arrays = {f"s{i}": rng.normal(size=(3, 2 + i % 3, 5)).astype("f4") for i in range(6)}
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    expected = [row for values in arrays.values() for row in values]
    out = scratch / "shaped"
    code, said = run(shardify, folder, out)
    if code:
        return fail(f"shapes: {said}")
    column = pq.read_table(next(out.glob("*/*.parquet")))["array"]
    marks = pq.read_schema(next(out.glob("*/*.parquet"))).field("array").metadata or {}
    if marks.get(b"ARROW:extension:name", b"arrow.variable_shape_tensor") != b"arrow.variable_shape_tensor":
        fail(f"shapes: {marks}")
    found = [np.array(row["data"], dtype="f4").reshape(row["shape"]) for row in column.to_pylist()]
    if len(found) != len(expected) or not all(np.array_equal(a, b) for a, b in zip(found, expected)):
        fail("shapes: values of Parquet differ")
    out = scratch / "shaped.tar"
    code, said = run(shardify, folder, out, "--to", "tar")
    if code:
        return fail(f"shapes: {said}")
    with tarfile.open(next(out.glob("*/*.tar"))) as archive:
        found = [np.load(io.BytesIO(archive.extractfile(member).read())) for member in archive if member.name.endswith(".npy")]
    if len(found) != len(expected) or not all(np.array_equal(a, b) for a, b in zip(found, expected)):
        fail("shapes: values of tar differ")


def check_across(shardify, scratch):
    """An array whose chunks reach over all records: within its memory, each chunk opened at most twice."""
    source = scratch / "across.zarr"
    times, side, chunk = 2048, 512, 64
    (source / "v").mkdir(parents=True)
    (source / ".zgroup").write_text('{"zarr_format": 2}')
    (source / "v" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["t", "y", "x"]}')
    layout = {"zarr_format": 2, "shape": [times, side, side], "chunks": [times, chunk, chunk], "dtype": "<i2", "fill_value": 0,
              "compressor": {"id": "zlib", "level": 1}, "order": "C", "filters": None}
    (source / "v" / ".zarray").write_text(json.dumps(layout))
    base = (np.arange(chunk)[:, None] // 8 + np.arange(chunk)[None, :] // 16 + np.arange(times)[:, None, None]).astype("<i2")
    for y in range(side // chunk):
        for x in range(side // chunk):
            content = (base + np.int16(131 * y + 7 * x)).tobytes()
            (source / "v" / f"0.{y}.{x}").write_bytes(zlib.compress(content, 1))
    out = scratch / "across"
    command = [shardify, "convert", str(source), "--out", str(out), "--read", "record-dim=t", "--memory", "512MiB", "--progress", "never"]
    trace = scratch / "trace"
    traced = shutil.which("strace")
    if traced:
        command = [traced, "-f", "-qq", "-e", "trace=openat", "-o", str(trace), *command]
    code, said, peak = measured(command)
    if code:
        return fail(f"across: {said}")
    if peak > 512 << 20:
        fail(f"across: {peak >> 20} MiB for --memory 512MiB")
    if traced:
        opened = collections.Counter(re.findall(r"v/(0\.\d+\.\d+)", trace.read_text()))
        if len(opened) != (side // chunk) ** 2 or max(opened.values()) > 2:
            fail(f"across: {len(opened)} chunks, one read {max(opened.values(), default=0)} times")
    rows = 0
    for shard in sorted(out.glob("*/*.parquet")):
        for batch in pq.ParquetFile(shard).iter_batches(16):
            for row in range(0, len(batch), 7):
                found = values_of(batch.column(0).slice(row, 1), None)[0].reshape(side, side)
                y, x = np.arange(side)[:, None], np.arange(side)[None, :]
                wanted = (y % chunk // 8 + x % chunk // 16 + rows + row + 131 * (y // chunk) + 7 * (x // chunk)).astype("<i2")
                if not np.array_equal(found, wanted):
                    return fail(f"across: record {rows + row} differs")
            rows += len(batch)
    if rows != times:
        fail(f"across: {rows} records")
    print(f"chunks across the records: at most {peak >> 20} MiB" + ("" if traced else ", reads not counted: no strace"))


# What this process has in memory counts for its children, so a small one tells of its own child.
LAUNCHER = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def check_many(shardify, scratch):
    """Thousands of small files of each format: within the memory of the run, and none of them left open."""
    import netCDF4

    memory, different, copies = 128, 40, 50
    made = scratch / "many-made"
    made.mkdir()
    grid = np.arange(8 * 8, dtype="f4").reshape(8, 8)
    for number in range(different):
        for suffix, kind in ((".nc4", "NETCDF4"), (".nc", "NETCDF3_CLASSIC")):
            with netCDF4.Dataset(made / f"{number:02}{suffix}", "w", format=kind) as file:
                file.history = f"made as number {number}"
                for name, length in (("t", None), ("y", 8), ("x", 8)):
                    file.createDimension(name, length)
                file.createVariable("y", "f4", ("y",))[:] = np.arange(8)
                for name in ("t", "a", "b", "c"):
                    dims = ("t",) if name == "t" else ("t", "y", "x")
                    variable = file.createVariable(name, "f4", dims, zlib=kind == "NETCDF4" and name != "t")
                    variable.long_name = f"variable {name}"
                    variable[:] = np.arange(number, number + 3) if name == "t" else np.stack([grid + number] * 3)
        np.savez_compressed(made / f"{number:02}.npz", a=np.stack([grid + number] * 3), b=np.arange(3))
    for suffix in (".nc4", ".nc", ".npz"):
        folder = scratch / f"many{suffix}"
        for copy in range(copies):
            (folder / f"{copy:02}").mkdir(parents=True)
            for path in made.glob(f"*{suffix}"):
                os.link(path, folder / f"{copy:02}" / path.name)
        out = scratch / f"many-out{suffix}"
        command = [shardify, "convert", str(folder), "--out", str(out), "--memory", f"{memory}MiB", "--progress", "never"]
        # Fewer files than there are may be open at a time.
        code, said, _ = measured(["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", sys.executable, "-c", LAUNCHER, *command])
        said, _, peak = said.rpartition("peak ")
        peak = int(peak) << 10
        if code or peak > memory << 20:
            fail(f"{different * copies} files {suffix}: exit {code}, {peak >> 20} MiB for {memory} MiB: {said}")
        rows = sum(pq.ParquetFile(shard).metadata.num_rows for shard in out.glob("*/*.parquet"))
        if rows != different * copies * 3:
            fail(f"{different * copies} files {suffix}: {rows} records")
        print(f"{different * copies} files {suffix}: at most {peak >> 20} MiB")
        shutil.rmtree(folder)
        shutil.rmtree(out)


class RangeServer(http.server.BaseHTTPRequestHandler):
    """Files of a folder, in ranges; counts the bytes that it gives."""

    protocol_version = "HTTP/1.1"
    given = 0

    def log_message(self, *_):
        pass

    def answer(self, with_content):
        path = self.server.folder / self.path.strip("/")
        if not path.is_file():
            self.send_error(404)
            return
        size = path.stat().st_size
        start, end = 0, size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked:
            start, end = int(asked[1]), min(size, int(asked[2]) + 1 if asked[2] else size)
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(end - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        self.send_header("ETag", f'"{path.name}-{size}"')
        self.send_header("Last-Modified", "Sun, 01 Nov 2020 00:00:00 GMT")
        self.end_headers()
        if with_content:
            with open(path, "rb") as file:
                file.seek(start)
                self.wfile.write(file.read(end - start))
            RangeServer.given += end - start

    def do_GET(self):
        self.answer(True)

    def do_HEAD(self):
        self.answer(False)


def check_remote(shardify, scratch):
    """Of a file on a server only what is needed is asked for."""
    import h5py

    folder = scratch / "served"
    folder.mkdir()
    values = np.random.default_rng(1).integers(0, 255, (64, 512, 512), dtype="u1")
    with h5py.File(folder / "two.h5", "w") as file:
        for name in ("a", "b"):
            file.create_dataset(name, data=values, chunks=(4, 512, 512), compression="gzip", compression_opts=1)
    np.savez(folder / "two.npz", a=values, b=values)
    np.save(folder / "one.npy", values)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RangeServer)
    server.folder = folder
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    for name in ("two.h5", "two.npz", "one.npy"):
        RangeServer.given = 0
        code, said, _ = measured([shardify, "inspect", f"{url}/{name}"])
        if code or RangeServer.given > 6 << 20:
            fail(f"inspect of a remote {name}: exit {code}, {RangeServer.given} bytes: {said}")
        RangeServer.given = 0
        out = scratch / f"remote-{name}"
        size = (folder / name).stat().st_size
        most = size + (4 << 20) if name == "one.npy" else size * 3 // 4
        code, said = run(shardify, f"{url}/{name}", out, *([] if name == "one.npy" else ["--read", "var=b"]))
        if code or RangeServer.given > most:
            fail(f"convert of a remote {name}: exit {code}, {RangeServer.given} of {size} bytes: {said}")
        elif not np.array_equal(np.concatenate([v for v, _ in written(out)[0].values()]), values):
            fail(f"convert of a remote {name}: values differ")
    server.shutdown()


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
    bomb = io.BytesIO()
    np.savez_compressed(bomb, **{f"a{i}": np.zeros((1 << 13, 1 << 11)) for i in range(10)})
    (folder / "bomb.npz").write_bytes(bomb.getvalue())
    archive = io.BytesIO()
    np.savez_compressed(archive, a=np.zeros(100_000))
    archive = archive.getvalue()
    for at in range(0, len(archive), max(1, len(archive) // 40)):
        (folder / f"flip{at}.npz").write_bytes(archive[:at] + bytes([archive[at] ^ 0xFF]) + archive[at + 1 :])
    (folder / "cut.npz").write_bytes(archive[:-30])


def check_hostile(shardify, path, scratch):
    """Ends in an error that names the file, or reads it, within bounds."""
    global hostile_files, hostile_peak
    hostile_files += 1
    out = scratch / "hostile"
    form = ["--from", FORMATS.get(path.suffix, "zarr")]
    for command in (["convert", str(path), "--out", str(out), *form], ["inspect", str(path)]):
        shutil.rmtree(out, ignore_errors=True)
        try:
            code, said, peak = measured([shardify, *command, "--progress", "never"])
        except subprocess.TimeoutExpired:
            fail(f"{path.name}: {command[0]} hangs")
            continue
        hostile_peak = max(hostile_peak, (peak, path.name))
        if peak > MEMORY:
            fail(f"{path.name}: {command[0]} takes {peak >> 20} MiB")
        if code not in (0, 2, 6):
            fail(f"{path.name}: {command[0]}: exit {code}: {said[:300]}")
        elif code and path.name not in said:
            fail(f"{path.name}: {command[0]}: the error does not name the file: {said[:300]}")


# Files of which two readings are possible, and why.
KNOWN = {
    "f03tst_open_mem.nc": "nothing was ever written to it, and netCDF4 shows what memory holds",
    "ref_nccopy3_subset.nc:time": "cftime passes over the zone -9:00, which UDUNITS takes for an offset",
    "test_attribute_earliest.hdf5:hard_link_data": "a dataset with two names, of which h5py shows the other",
    "ubyte.nc": "netCDF4 takes an ignored fill value of bytes for missing where _Unsigned is false",
}

FORMATS = {".npy": "npy", ".npz": "npy", ".nc": "netcdf", ".h5": "hdf5", ".hdf5": "hdf5", ".zarr": "zarr"}


def isolated(read, *arguments):
    """What a reader says, which may take its process with it."""
    with concurrent.futures.ProcessPoolExecutor(1) as pool:
        return pool.submit(read, *arguments).result(timeout=TIMEOUT)


def check_file(shardify, path, scratch, must):
    """A netCDF or HDF5 file, raw and decoded."""
    is_hdf5 = path.suffix in (".h5", ".hdf5")
    for raw in (True, False):
        try:
            expected = isolated(hdf5_arrays, path) if is_hdf5 else isolated(netcdf_arrays, path, raw)
        except Exception as error:  # whatever a reader says of a file that it cannot read
            if must:
                fail(f"{path.name}: {error}")
            check_hostile(shardify, path, scratch)
            return
        check(shardify, path, expected, scratch, *(["--read", "raw=yes"] if raw else []), may_refuse=not must)


def hostile_others(made, folder):
    """Cut and changed files of the other formats."""
    for name in ("netcdf3_classic.nc", "netcdf3_64bit_data.nc", "netcdf4.nc", "earliest.h5", "latest.h5"):
        good = (made / name).read_bytes()
        stem, suffix = name.split(".")
        for part in (0.1, 0.5, 0.9):
            (folder / f"{stem}_cut{part}.{suffix}").write_bytes(good[: int(len(good) * part)])
        for at in np.linspace(8, min(len(good) - 1, 20000), 30).astype(int):
            (folder / f"{stem}_flip{at}.{suffix}").write_bytes(good[:at] + bytes([good[at] ^ 0xFF]) + good[at + 1 :])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--corpus", default=os.environ.get("SHARDIFY_CORPUS", ROOT / "../shared/corpus"))
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    shardify = str(Path(options.shardify).resolve())
    scratch = Path(tempfile.mkdtemp(prefix="arrays"))
    made, hostile = scratch / "made", scratch / "bad"
    made.mkdir()
    hostile.mkdir()
    make_numpy(made)
    hostile_numpy(hostile)
    make_netcdf(made)
    make_hdf5(made)
    make_zarr(made)
    hostile_zarr(hostile)
    hostile_others(made, hostile)
    files = sorted(made.iterdir())
    if not Path(options.corpus).is_dir():
        not_run("arrays of the corpus", f"there is none at {options.corpus}")
    else:
        files += sorted(path.parent for path in Path(options.corpus).glob("zarr/**/.zarray"))
        for kind in ("npy", "netcdf", "hdf5"):
            files += sorted(path for path in Path(options.corpus).glob(f"{kind}/**/*.*") if path.is_file())
    for path in files:
        if options.only not in str(path) or path.name in KNOWN:
            continue
        if path.is_dir():
            try:
                expected = isolated(zarr_arrays, path)
            except Exception as error:  # a codec that zarr has not either
                print(f"zarr cannot read {path.name}: {error}")
                check_hostile(shardify, path, scratch)
                continue
            check(shardify, path, expected, scratch, "--read", "raw=yes", may_refuse=path.parent != made)
            continue
        if path.suffix not in FORMATS:
            continue
        if path.suffix not in (".npy", ".npz"):
            check_file(shardify, path, scratch, must=path.parent == made)
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
        check_shapes(shardify, scratch)
        check_across(shardify, scratch)
        check_many(shardify, scratch)
        check_remote(shardify, scratch)
    for path in sorted(hostile.iterdir()):
        if options.only in str(path):
            check_hostile(shardify, path, scratch)
    shutil.rmtree(scratch)
    for line in refused:
        print(f"refused {line}")
    print(f"{hostile_files} hostile files, at most {hostile_peak[0] >> 20} MiB ({hostile_peak[1]})")
    print(f"{checked} arrays compared, {len(refused)} files refused, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    finish(main)
