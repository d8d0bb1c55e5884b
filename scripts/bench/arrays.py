#!/usr/bin/env python3
"""Times `shardify convert` of arrays beside the scripts that people write for it: the same bytes, one fresh process a run, in
rotating order, medians and ratios.

    python3 scripts/bench/arrays.py --shardify target/release/shardify [--data FOLDER] [--jobs nc4_parquet,nc4_tfrecord]
                                    [--files 24] [--reps 5] [--peers netcdf4] [--memory 1GiB] [--json FILE]

| job            | inputs: time x lat x lon, three packed variables, in FOLDER/grid        | must, aim           |
|----------------|-------------------------------------------------------------------------|---------------------|
| nc4_parquet    | NetCDF-4, chunks across the map, shuffle and deflate; one row per cell  | netCDF4 + pyarrow 3x, 6x |
| nc3_parquet    | NetCDF-3, 64-bit offsets                                                | netCDF4 + pyarrow 3x |
| zarr2_parquet, zarr3_parquet | Zarr of both versions, zstd                               | xarray + pandas 3x  |
| nc4_tfrecord   | one record per time                                                     | netCDF4 + TensorFlow 3x |

`shardify, one core` is pinned to one processor and has `--jobs 1`; two must make it 1.8 times as fast. Parquet is compressed with
zstd at level 3. shardify writes its log, checksums and sidecars in the time that is measured, and syncs everything; its peers do
neither. Values are unpacked to doubles, as the attributes demand and as netCDF4 does; the peers but xarray make floats of them, and so
half as many bytes of TFRecord.

After the runs every value of what shardify wrote is compared with what netCDF4 or zarr reads.

Peers: pip install netCDF4 zarr pyarrow xarray pandas tensorflow
"""

import argparse
import glob
import json
import multiprocessing
import os
import pathlib
import shutil
import subprocess
import tempfile

import convert as bench

GOALS = {"nc4_parquet": ("netcdf4", 3, 6), "nc3_parquet": ("netcdf4", 3, 6), "zarr2_parquet": ("xarray", 3, 6),
         "zarr3_parquet": ("xarray", 3, 6), "nc4_tfrecord": ("tensorflow", 3, 6)}
ONE_CORE = "shardify, one core"
TIMES, LATS, LONS = 54, 180, 360
VARIABLES = (("t2m", "K", 0.005, 273.15, 285.0, 20.0), ("msl", "Pa", 0.2, 101325.0, 101000.0, 1500.0),
             ("tp", "mm", 0.002, 60.0, 20.0, 15.0))
FILL = -32767

NETCDF4 = """
import glob, sys, netCDF4, numpy as np, pyarrow as pa, pyarrow.parquet as pq
source, out = sys.argv[1:]
for i, path in enumerate(sorted(glob.glob(source))):
    with netCDF4.Dataset(path) as d:
        time = np.datetime64("2020-01-01", "us") + d["time"][:].astype("i8") * np.timedelta64(3600 * 10**6, "us")
        lat, lon, columns = np.asarray(d["lat"][:]), np.asarray(d["lon"][:]), {}
        for name in ("t2m", "msl", "tp"):
            v = d[name]
            v.set_auto_maskandscale(False)
            q = v[:].ravel()
            columns[name] = pa.array(q.astype("f4") * np.float32(v.scale_factor) + np.float32(v.add_offset), mask=q == v._FillValue)
        t = np.repeat(np.asarray(time).astype("datetime64[us]"), len(lat) * len(lon))
        table = pa.table({"time": t, "lat": np.tile(np.repeat(lat, len(lon)), len(time)), "lon": np.tile(lon, len(time) * len(lat)),
                          **columns})
    pq.write_table(table, f"{out}/o-{i:03d}.parquet", compression="zstd", compression_level=3)
"""
XARRAY = """
import glob, sys, xarray as xr
source, out = sys.argv[1:]
for i, path in enumerate(sorted(glob.glob(source))):
    with xr.open_dataset(path, engine="zarr" if path.endswith(".zarr") else "netcdf4") as d:
        d.load().to_dataframe().reset_index().to_parquet(f"{out}/o-{i:03d}.parquet", compression="zstd", index=False)
"""
TENSORFLOW = """
import glob, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import netCDF4, numpy as np, tensorflow as tf
source, out = sys.argv[1:]
B, F, I, X = tf.train.BytesList, tf.train.Feature, tf.train.Int64List, tf.train.Example
for i, path in enumerate(sorted(glob.glob(source))):
    with netCDF4.Dataset(path) as d, tf.io.TFRecordWriter(f"{out}/o-{i:03d}.tfrecord") as w:
        v = {name: np.ma.filled(d[name][:].astype("f4"), np.nan) for name in ("t2m", "msl", "tp")}
        for k, t in enumerate(d["time"][:]):
            features = {name: F(bytes_list=B(value=[a[k].tobytes()])) for name, a in v.items()}
            w.write(X(features=tf.train.Features(feature={"time": F(int64_list=I(value=[int(t)])), **features})).SerializeToString())
"""
PEERS = {"netcdf4": NETCDF4, "xarray": XARRAY, "tensorflow": TENSORFLOW}


def fields(number):
    """Variables of a file, packed: waves around the globe, with a little noise and, of rain, masked regions."""
    import numpy as np
    rng = np.random.default_rng([13, number])
    time = (np.arange(TIMES) + number * TIMES)[:, None, None]
    lat = np.linspace(-np.pi / 2, np.pi / 2, LATS)[None, :, None]
    lon = np.linspace(0, 2 * np.pi, LONS, endpoint=False)[None, None, :]
    for name, unit, scale, offset, mean, spread in VARIABLES:
        phase = rng.random(4) * 6
        value = mean + spread * (np.cos(lat * 2 + phase[0]) * 0.6 + 0.3 * np.sin(3 * lon + time * 0.1 + phase[1]) * np.cos(lat)
                                 + 0.1 * np.sin(7 * lon + 5 * lat + time * 0.3 + phase[2]))
        value = value + rng.normal(0, spread * 0.004, (TIMES, LATS, LONS))
        packed = np.clip(np.rint((value - offset) / scale), -32000, 32000).astype("i2")
        if name == "tp":
            packed[:, (np.sin(4 * lon + phase[3]) * np.cos(3 * lat) > 0.6)[0]] = FILL
        yield name, unit, scale, offset, packed


def make(folder, files):
    """Writes the same values as NetCDF-4, NetCDF-3 and Zarr of versions 2 and 3, unless they are there."""
    import netCDF4
    import numpy as np
    import zarr
    from numcodecs import Zstd
    if len(list(folder.glob("nc4/*.nc"))) == files and (folder / "zarr3" / f"grid-{files - 1:03d}.zarr").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    for kind in ("nc4", "nc3", "zarr2", "zarr3"):
        (folder / kind).mkdir(parents=True)
    lat = np.linspace(-89.5, 89.5, LATS).astype("f4")
    lon = np.linspace(0, 360, LONS, endpoint=False).astype("f4")
    chunks = (TIMES // 3, LATS // 2, LONS // 2)
    for number in range(files):
        time = (np.arange(TIMES) + number * TIMES).astype("i4")
        coordinates = (("time", time, "hours since 2020-01-01 00:00:00"), ("lat", lat, "degrees_north"), ("lon", lon, "degrees_east"))
        data = list(fields(number))
        for kind, of in (("nc4", "NETCDF4"), ("nc3", "NETCDF3_64BIT_OFFSET")):
            with netCDF4.Dataset(f"{folder}/{kind}/grid-{number:03d}.nc", "w", format=of) as file:
                for name, values, unit in coordinates:
                    file.createDimension(name, None if (kind, name) == ("nc4", "time") else len(values))
                    variable = file.createVariable(name, values.dtype, (name,))
                    variable.units = unit
                    variable[:] = values
                for name, unit, scale, offset, packed in data:
                    how = dict(zlib=True, complevel=4, shuffle=True, chunksizes=chunks) if kind == "nc4" else {}
                    variable = file.createVariable(name, "i2", ("time", "lat", "lon"), fill_value=FILL, **how)
                    variable.set_auto_maskandscale(False)
                    variable.units, variable.scale_factor, variable.add_offset = unit, scale, offset
                    variable[:] = packed
        for kind, version in (("zarr2", 2), ("zarr3", 3)):
            group = zarr.open_group(f"{folder}/{kind}/grid-{number:03d}.zarr", mode="w", zarr_format=version)

            def put(name, values, dims, chunks, fill, attributes):
                how = dict(compressors=Zstd(level=3)) if version == 2 else dict(dimension_names=dims)
                array = group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks, fill_value=fill, **how)
                array[:] = values
                array.attrs.update({**attributes, **({"_ARRAY_DIMENSIONS": list(dims)} if version == 2 else {})})
            for name, values, unit in coordinates:
                put(name, values, (name,), values.shape, None if version == 2 else 0, {"units": unit})
            for name, unit, scale, offset, packed in data:
                put(name, packed, ("time", "lat", "lon"), chunks, FILL,
                    {"units": unit, "scale_factor": scale, "add_offset": offset, "_FillValue": FILL})
            zarr.consolidate_metadata(group.store)


def expected(path):
    """Time, latitude, longitude, and the variables with their masks, as netCDF4 and numpy see them."""
    import netCDF4
    import numpy as np
    import zarr
    if path.endswith(".nc"):
        with netCDF4.Dataset(path) as d:
            time, lat, lon = (np.asarray(d[name][:]) for name in ("time", "lat", "lon"))
            variables = {name: d[name][:] for name, *_ in VARIABLES}
    else:
        d = zarr.open(path, mode="r")
        time, lat, lon = (d[name][:] for name in ("time", "lat", "lon"))
        variables = {name: np.ma.masked_equal(d[name][:], FILL) * scale + offset for name, _, scale, offset, *_ in VARIABLES}
    return np.datetime64("2020-01-01", "us") + time.astype("i8") * np.timedelta64(3600 * 10**6, "us"), lat, lon, variables


def check_parquet(source, shards):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    groups = (file.read_row_group(i) for path in shards for file in [pq.ParquetFile(path)] for i in range(file.num_row_groups))
    rest, total = pa.table({}), 0
    for path in sorted(glob.glob(source)):
        time, lat, lon, variables = expected(path)
        cells = len(time) * len(lat) * len(lon)
        parts = [rest] if rest.num_rows else []
        while sum(part.num_rows for part in parts) < cells:
            parts.append(next(groups))
        table = pa.concat_tables(parts)
        table, rest = table.slice(0, cells), table.slice(cells)
        same = [(table["time"].to_numpy() == np.repeat(time, len(lat) * len(lon))).all(),
                (table["lat"].to_numpy() == np.tile(np.repeat(lat, len(lon)), len(time))).all(),
                (table["lon"].to_numpy() == np.tile(lon, len(time) * len(lat))).all()]
        for name, values in variables.items():
            column, values = table[name].combine_chunks(), values.ravel()
            same.append((np.asarray(column.is_null()) == np.ma.getmaskarray(values)).all())
            same.append((column.fill_null(0).to_numpy() == np.ma.filled(values, 0)).all())
        if not all(same):
            raise ValueError(f"{path}: the output differs: {same}")
        total += cells
    if rest.num_rows or next(groups, None) is not None:
        raise ValueError("more rows than cells")
    return f"{total:,} cells, all columns equal"


def check_tfrecord(source, shards):
    import numpy as np
    from tfrecord.reader import tfrecord_loader
    records = (record for path in shards for record in tfrecord_loader(path, None))
    total = 0
    for path in sorted(glob.glob(source)):
        time, _, _, variables = expected(path)
        for step in range(len(time)):
            record = next(records)
            for name, values in variables.items():
                found = np.frombuffer(bytes(record[name]), np.dtype(bytes(record[f"{name}/dtype"]).decode()))
                if not np.array_equal(found, np.ma.filled(values[step].astype(found.dtype), np.nan).ravel(), equal_nan=True):
                    raise ValueError(f"{path}: {name} at {step} differs")
            total += 1
    if next(records, None) is not None:
        raise ValueError("more records than times")
    return f"{total:,} records, all values equal"


def warm(folder):
    """Reads all files below, and says how large they are."""
    return sum(len(path.read_bytes()) for path in folder.rglob("*") if path.is_file())


def measure(source, programs, out, reps):
    size = warm(pathlib.Path(source).parent)
    results = bench.in_turn(list(programs), reps, lambda name, watched: bench.run(programs[name], out, False, watched=watched))
    return size, results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "shardify-bench")
    parser.add_argument("--out", type=pathlib.Path, help="default: below the data")
    parser.add_argument("--files", type=int, default=24, help="files of 42 MB once unpacked to float32")
    parser.add_argument("--jobs", help="default: all")
    parser.add_argument("--peers", help="of netcdf4, xarray, tensorflow and one_core; default: all")
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--memory", help="given to shardify as --memory")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    make(options.data / "grid", options.files)
    shardify = str(pathlib.Path(options.shardify).resolve())
    out, reports = options.out or options.data / "out", []
    for job in options.jobs.split(",") if options.jobs else GOALS:
        kind, to = job.split("_")
        folder, goal = options.data / "grid" / kind, GOALS[job]
        source = f"{folder}/*.{'nc' if kind.startswith('nc') else 'zarr'}"
        how = ["--read", "flatten=yes", "--codec", "zstd:3"] if to == "parquet" else []
        convert = [shardify, "convert", str(folder), "--to", to, *how, "--quiet", "--out", f"{out}/ds", "--target-shard", str(bench.SHARD),
                   *(["--memory", options.memory] if options.memory else [])]
        core = str(min(os.sched_getaffinity(0)))
        programs = {"shardify": convert, ONE_CORE: ["taskset", "-c", core, *convert, "--jobs", "1"]}
        peers = [goal[0]] + (["xarray"] if job in ("nc4_parquet", "nc3_parquet") else [])
        programs.update({peer: [*bench.PYTHON, PEERS[peer], source, str(out)] for peer in peers})
        wanted = options.peers.split(",") if options.peers else None
        programs = {name: command for name, command in programs.items()
                    if name == "shardify" or wanted is None or ("one_core" if name == ONE_CORE else name) in wanted}
        size, results = measure(source, programs, out, options.reps)
        bench.run(convert, out, False)
        shards = sorted(glob.glob(f"{out}/ds/[!_]*/*.{to}"))
        # In a process of its own, whose memory later runs do not inherit.
        with multiprocessing.Pool(1) as pool:
            checked = pool.apply(check_parquet if to == "parquet" else check_tfrecord, (source, shards))
        reports.append(bench.report(job, size, [goal, (ONE_CORE, 1.8, 2)], results, checked))
        shutil.rmtree(out, ignore_errors=True)
    if options.json:
        options.json.write_text(json.dumps(reports, indent=1))


if __name__ == "__main__":
    main()
