#!/usr/bin/env python3
"""Volumes of NIfTI files are what nibabel reads, and damaged files end in errors.

    python3 scripts/checks/nifti_check.py --shardify target/release/shardify [--files 40] [--flips 300] [--cuts 40] [--seed 1]

Images of all types, both versions and both byte orders, of one to six dimensions, with and without slope, transforms, extensions and compression: Parquet and tar
shards at 1 and 4 threads hold the voxels, the affine and the distances that nibabel returns, bit by bit (the affine of a quaternion to 1e-9), and so do folders of
all of them. A file that is cut, or has a bit flipped, ends in an error that names it, or gives what nibabel reads of it. Headers that claim too much, and bombs,
are refused in little time and memory. Needs nibabel, numpy and pyarrow.
"""

import gzip
import io
import logging
import random
import struct
import tarfile
import time
import warnings

import nibabel as nib
import numpy as np
import pyarrow
import pyarrow.parquet as pq

from harness import ROOT, Failure, convert_bounded, cuts_of, damage_check, expect, finish, flips_of

warnings.simplefilter("ignore")
logging.getLogger("nibabel").setLevel(logging.CRITICAL)

TYPES = ["u1", "i2", "i4", "f4", "f8", "i1", "u2", "u4", "i8", "u8"]
COLOURS = {128: [("R", "u1"), ("G", "u1"), ("B", "u1")], 2304: [("R", "u1"), ("G", "u1"), ("B", "u1"), ("A", "u1")]}


def convert(binary, source, out, *options):
    """Converts; returns exit code and standard error."""
    code, _, said = convert_bounded(binary, source, out, "--memory", "512MiB", *options)
    return code, said


def image_of(rng, number):
    """A file of any kind, as bytes."""
    made = np.random.default_rng(rng.randrange(1 << 30))
    kind = TYPES[number % len(TYPES)]
    dims = rng.choice([1, 2, 3, 3, 3, 4, 4, 4, 5, 6])
    shape = [rng.randrange(1, 7) for _ in range(dims)]
    if kind[0] == "f":
        voxels = made.normal(0, 100, shape).astype(kind)
        voxels.flat[0] = rng.choice([np.nan, np.inf, 0, -0.0])
    else:
        limits = np.iinfo(kind)
        voxels = made.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    two = number % 3 == 1
    header = (nib.Nifti2Header if two else nib.Nifti1Header)(endianness="><"[number % 2])
    if number % 13 == 5:
        code = rng.choice([128, 2304])
        voxels = made.integers(0, 255, [*shape, len(COLOURS[code])], dtype="u1").view(np.dtype(COLOURS[code])).reshape(shape)
        header["datatype"], header["bitpix"] = code, 8 * len(COLOURS[code])
    else:
        header.set_data_dtype(voxels.dtype)
    header.set_data_shape(shape)
    header.set_zooms([rng.choice([0.5, 1.25, 2, 3]) for _ in shape])
    header.set_xyzt_units("mm", rng.choice(["sec", None]))
    if number % 13 != 5 and number % 2:
        header["scl_slope"], header["scl_inter"] = rng.choice([(0.1, -3), (2, 0), (1, 0), (1, 5), (0, 5), (np.nan, 1), (1e-3, 1e3)])
    header["descrip"] = b"Jane Doe"
    form = rng.choice(["none", "sform", "qform", "both", "odd"])
    if form in ("sform", "both"):
        header["sform_code"] = rng.randrange(1, 6)
        for row in ("srow_x", "srow_y", "srow_z"):
            header[row] = made.normal(0, 10, 4)
    if form in ("qform", "both"):
        quaternion = made.normal(0, 1, 4)
        quaternion /= np.linalg.norm(quaternion) * (1 if rng.random() < 0.5 else 1.2)
        header["qform_code"] = rng.randrange(1, 6)
        header["quatern_b"], header["quatern_c"], header["quatern_d"] = quaternion[:3]
        header["qoffset_x"], header["qoffset_y"], header["qoffset_z"] = made.normal(0, 50, 3)
        header["pixdim"][0] = rng.choice([1, -1, 0])
    if form == "odd":
        header["sform_code"], header["pixdim"][1] = 9, 0
    more = b"\0" * 4
    if number % 4 == 3:
        sizes = [16 * rng.randrange(1, 5) for _ in range(rng.randrange(1, 4))]
        more = b"\1\0\0\0" + b"".join(struct.pack("><"[number % 2] + "2i", size, 6) + b"x" * (size - 8) for size in sizes)
    start = (540 if two else 348) + len(more)
    start += -start % 16 if number % 5 else 0
    header["vox_offset"] = start
    header["magic"] = b"n+2" if two else b"n+1"
    data = header.binaryblock + more
    data += b"\0" * (start - len(data)) + voxels.astype(voxels.dtype.newbyteorder("><"[number % 2])).tobytes(order="F")
    return data + b"\0" * rng.choice([0, 0, 0, 512])


def read(data):
    """Volumes, affine, spacing and time step of a file, as nibabel reads it."""
    kind = nib.Nifti2Image if 540 in struct.unpack("<i", data[:4]) + struct.unpack(">i", data[:4]) else nib.Nifti1Image
    image = kind.from_bytes(data)
    slope, inter = kind.header_class.from_fileobj(io.BytesIO(data)).get_slope_inter()
    shape = image.shape
    voxels = np.asanyarray(image.dataobj)
    if voxels.dtype.names:
        voxels = np.ascontiguousarray(voxels).view("u1").reshape(*shape, len(voxels.dtype.names))
        colours = [voxels.shape[-1]]
    else:
        colours = []
        if slope not in (None, 1.0) or inter not in (None, 0.0):
            voxels = image.get_fdata()
    shape = list(shape) + [1] * (4 - len(shape))
    while len(shape) > 4 and shape[-1] == 1:
        shape.pop()
    voxels = voxels.reshape([*shape, *colours])
    axes = list(range(len(shape)))[::-1]
    # The volumes are first.
    axes.remove(3)
    voxels = voxels.transpose([3, *axes, *range(len(shape), voxels.ndim)])
    order = ">" if data[0] == 0 else "<"
    stored = np.frombuffer(data, dtype=kind.header_class.template_dtype.newbyteorder(order), count=1)[0]
    step = float(stored["pixdim"][4]) if stored["dim"][0] > 3 else None
    return {"image": voxels.astype(voxels.dtype.newbyteorder("=")), "affine": image.affine, "spacing": stored["pixdim"][1:4].astype("f8"), "time_step": step}


def same(found, wanted):
    """Whether arrays have the same shape, type and elements; a NaN of any kind is one."""
    return found.shape == wanted.shape and found.dtype == wanted.dtype and np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f")


def close(found, wanted):
    return np.allclose(np.asarray(found, dtype="f8").reshape(np.shape(wanted)), wanted, rtol=1e-9, atol=1e-9, equal_nan=True)


def tensors(column):
    """The value of each row of a column of tensors."""
    column = column.combine_chunks()
    if isinstance(column.type, pyarrow.FixedShapeTensorType):
        return list(column.to_numpy_ndarray())
    rows = []
    for row in column.storage if hasattr(column, "storage") else column:
        values = row["data"].values.to_numpy(zero_copy_only=False)
        rows.append(values.reshape(row["shape"].as_py()))
    return rows


def rows_of(dataset, form):
    """The records of a dataset in order."""
    if form == "parquet":
        for path in sorted(dataset.glob("*/*.parquet")):
            table = pq.read_table(path)
            columns = {name: tensors(table[name]) for name in ("image", "affine", "spacing")}
            steps = table["time_step"].to_pylist() if "time_step" in table.column_names else [None] * len(table)
            for number, step in enumerate(steps):
                yield {**{name: values[number] for name, values in columns.items()}, "time_step": step}
        return
    for path in sorted(dataset.glob("*/*.tar")):
        with tarfile.open(path) as tar:
            parts = {}
            for one in tar:
                key, _, part = one.name.partition(".")
                parts.setdefault(key, {})[part] = tar.extractfile(one).read()
        for key in sorted(parts):
            row = {name: np.load(io.BytesIO(parts[key][f"{name}.npy"])) for name in ("image", "affine", "spacing")}
            yield {**row, "time_step": None if "json" not in parts[key] else __import__("json").loads(parts[key]["json"])["time_step"]}


def compare(rows, wanted, what, typed=True):
    """Compares the records of one file; `typed` says that the column has the type of the file."""
    expect(f"{what}: volumes", len(rows), len(wanted["image"]))
    for number, (row, volume) in enumerate(zip(rows, wanted["image"])):
        image = row["image"] if typed else row["image"].astype(volume.dtype)
        if not same(image, volume):
            raise Failure(f"{what}: volume {number}: expected {volume.dtype} {volume.shape} {volume.ravel()[:4]}, found {image.dtype} {image.shape} {image.ravel()[:4]}")
        for name in ("affine", "spacing"):
            if not close(row[name], wanted[name]):
                raise Failure(f"{what}: {name}: expected {wanted[name]}, found {row[name]}")
        step = wanted["time_step"]
        if not (row["time_step"] == step or step is None or step != step):
            raise Failure(f"{what}: time_step: expected {step}, found {row['time_step']}")


def check_equal(binary, folder, rng, count):
    """Files alone."""
    for number in range(count):
        data = image_of(rng, number)
        path = folder / ("x.nii.gz" if number % 3 == 0 else "x.nii")
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        wanted = read(data)
        for form, jobs in (("parquet", 1 + 3 * (number % 2)), ("tar", 4)):
            code, said = convert(binary, path, folder / "out", "--to", form, "--jobs", jobs)
            expect(f"file {number}: exit code\n{said}", code, 0)
            expect(f"file {number}: nothing of the texts", "Jane" in said, False)
            compare(list(rows_of(folder / "out", form)), wanted, f"file {number} as {form}")
        path.unlink()
    for path in sorted((ROOT / "testdata" / "nifti").iterdir()):
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        code, said = convert(binary, path, folder / "out")
        expect(f"{path.name}: exit code\n{said}", code, 0)
        compare(list(rows_of(folder / "out", "parquet")), read(data), path.name)
    print(f"ok    {count} files of {len(TYPES) + 2} types: voxels, affine and distances as nibabel reads them", flush=True)


def check_folder(binary, folder, rng, count):
    """Files of several shapes in one dataset: of three dimensions and integers that doubles hold."""
    source = folder / "scans"
    wanted = []
    for number in range(count):
        while True:
            data = image_of(rng, number * 10 + rng.choice([0, 1, 3, 5, 6]))
            image = read(data)["image"]
            if image.ndim == 4 and image.dtype.names is None and image.dtype.itemsize <= 4 or image.dtype == "f8" and image.ndim == 4:
                break
        path = source / f"{number // 10:02}" / (f"{number:03}.nii.gz" if number % 2 else f"{number:03}.nii")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(data) if number % 2 else data)
        wanted.append(read(data))
    shards = []
    for jobs in (1, 4):
        code, said = convert(binary, source, folder / f"out{jobs}", "--jobs", jobs, "--target-shard", "1MiB")
        expect(f"folder: exit code\n{said}", code, 0)
        rows = list(rows_of(folder / f"out{jobs}", "parquet"))
        for number, one in enumerate(wanted):
            here, rows = rows[: len(one["image"])], rows[len(one["image"]) :]
            compare(here, one, f"folder: file {number}", typed=False)
        expect("folder: more rows", len(rows), 0)
        shards.append([path.read_bytes() for path in sorted((folder / f"out{jobs}").glob("*/*.parquet"))])
    expect("folder: shards at 1 and 4 threads", shards[0] == shards[1], True)
    print(f"ok    a folder of {count} scans of several shapes and types", flush=True)


def check_damage(binary, folder, rng, cuts, flips):
    whole = image_of(random.Random(7), 23)
    header = nib.Nifti1Header.from_fileobj(io.BytesIO(whole))
    spoilt = [*cuts_of(rng, whole, cuts, end=len(whole) - 512), *flips_of(rng, whole, flips, end=int(header["vox_offset"]) + 16)]
    spoilt += [(f"{what} in gzip", data) for what, data in flips_of(rng, gzip.compress(whole), flips // 4, first=10)]
    errors = equal = 0
    for what, data in spoilt:
        path = folder / ("spoilt.nii.gz" if "gzip" in what else "spoilt.nii")
        path.write_bytes(data)
        code, said = convert(binary, path, folder / "out")
        path.unlink()
        if code != 0:
            errors += 1
            if "error: " not in said or "spoilt.nii" not in said:
                raise Failure(f"{what}: expected an error that names the file, found {code}\n{said}")
            continue
        equal += 1
        try:
            wanted = read(whole if "gzip" in what else data)
        except Exception as refused:  # what nibabel does not read is no oracle
            print(f"      {what}: nibabel says {str(refused)[:80]!r}", flush=True)
            continue
        compare(list(rows_of(folder / "out", "parquet")), wanted, what)
    print(f"ok    {len(spoilt)} damaged files: {errors} errors, {equal} with the voxels of nibabel", flush=True)


def hostile():
    """Headers that claim too much."""
    plain = bytearray(348)
    struct.pack_into("<i", plain, 0, 348)
    struct.pack_into("<8h", plain, 40, 3, 2, 2, 2, 1, 1, 1, 1)
    struct.pack_into("<2h", plain, 70, 2, 8)
    struct.pack_into("<f", plain, 108, 352)
    plain[344:348] = b"n+1\0"

    def one(at, form, *values, tail=bytes(12)):
        other = bytearray(plain)
        struct.pack_into("<" + form, other, at, *values)
        return bytes(other) + tail

    yield "vast.nii", one(40, "8h", 7, *[32767] * 7, tail=bytes(29))
    yield "vast-18-gb.nii", one(40, "8h", 3, 2700, 2700, 2700, 1, 1, 1, 1, tail=bytes(29))
    yield "vast-18-gb.nii.gz", gzip.compress(one(40, "8h", 3, 2700, 2700, 2500, 1, 1, 1, 1, tail=bytes(29)))
    yield "minus.nii", one(42, "h", -1)
    yield "none.nii", one(40, "h", 0)
    yield "nine.nii", one(40, "h", 9)
    yield "nan.nii", one(108, "f", float("nan"))
    yield "beyond.nii", one(108, "f", 1e9)
    yield "inside.nii", one(108, "f", 100)
    for size in (0, 8, 17, 1 << 30, -16):
        yield f"extension-{size}.nii", one(108, "f", 384, tail=b"\1\0\0\0" + struct.pack("<2i", size, 4) + bytes(32))
    # A gigabyte of zeros behind an image.
    yield "bomb.nii.gz", gzip.compress(bytes(plain) + bytes(12) + bytes(1 << 30), 1)


def check_hostile(binary, folder):
    for name, data in hostile():
        (folder / name).write_bytes(data)
        begun = time.monotonic()
        code, said = convert(binary, folder / name, folder / "out")
        if code == 0 or name not in said:
            raise Failure(f"{name}: expected an error that names the file, found {code}\n{said}")
        first = next(line for line in said.splitlines() if line.startswith("error"))
        print(f"ok    {name}: {first[:120]} ({time.monotonic() - begun:.1f} s)", flush=True)
        (folder / name).unlink()


def main():
    with damage_check(__doc__, files=40, flips=300, cuts=40) as (options, rng, folder):
        binary = options.shardify
        check_equal(binary, folder, rng, options.files)
        check_folder(binary, folder, rng, options.files)
        check_damage(binary, folder, rng, options.cuts, options.flips)
        check_hostile(binary, folder)


if __name__ == "__main__":
    finish(main)
