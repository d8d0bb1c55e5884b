#!/usr/bin/env python3
"""Whether indexes for training tools and frame tables are what other people's code finds in the shards.

Datasets are made with the binary, looked at, compacted, and looked at again, and so are shards of others that such datasets adopt. Offsets are derived anew with Python's
tarfile and struct; TFRecord is read by index through the tfrecord package, tar through webdataset, frames with zlib
and zstandard. Where megatron-energon, wids or DALI can be imported, their own readers are asked too.

usage: index_check.py --shardify BINARY
"""

import abc
import argparse
import contextlib
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import re
import sqlite3
import struct
import sys
import tarfile
import tempfile
import types
import zlib
from pathlib import Path

import harness
from harness import finish, not_run

KEY = re.compile(r"^((?:.*/|)[^.]+)[.]([^/]*)$")  # of webdataset and energon
WIDS = re.compile(r"^((?:.*/)?.*?)(\..*)$")  # of wids, which keeps the dot


def run(binary, *arguments, code=0):
    return harness.run(binary, *arguments, codes=(code,)).decode()


def summary(binary, *arguments):
    return json.loads(run(binary, *arguments, "--json").splitlines()[-1])


def live(binary, dataset):
    lines = run(binary, "manifest", dataset, "--list", "--json").splitlines()
    return [json.loads(line) for line in lines[:-1]]


def samples_of(path):
    """Samples of a tar as (key, [(extension, content offset, size, name, header offset)]), and where they end."""
    samples = []
    with tarfile.open(path, "r:") as tar:
        for member in tar:
            if not member.isfile():
                continue
            key, extension = KEY.match(member.name).groups()
            wids = WIDS.match(member.name).groups()
            dot = member.name.find(".", member.name.rfind("/") + 1)
            assert wids == (key, "." + extension), f"wids takes {member.name} apart as {wids}"
            assert member.name[:dot] == key, f"DALI takes {member.name} apart at {dot}"
            if not samples or samples[-1][0] != key:
                samples.append((key, []))
            samples[-1][1].append((extension, member.offset_data, member.size, member.name, member.offset))
        return samples, tar.offset


def check_tar(root, shards):
    everything = []
    for number, shard in enumerate(shards):
        path = root / shard["path"]
        samples, end = samples_of(path)
        assert len(samples) == shard["records"], path
        expected = f"v1.2 {len(samples)}\n" + "".join(
            " ".join(f"{e} {at} {size} {name}" for e, at, size, name, _ in parts) + "\n" for _, parts in samples
        )
        assert path.with_suffix(".idx").read_text() == expected, f"{path}: DALI"
        offsets = [parts[0][4] for _, parts in samples] + [end]
        assert (path.parent / (path.name + ".idx")).read_bytes() == struct.pack(f"<{len(offsets)}Q", *offsets), path
        for index, (key, parts) in enumerate(samples):
            everything.append((number, key, index, offsets[index], offsets[index + 1] - offsets[index], parts))
    if (root / "shardindex.json").exists():
        check_wids(root, shards)
    check_energon(root, shards, everything)
    return sum(len(parts) for *_, parts in everything)


def check_wids(root, shards):
    listed = json.loads((root / "shardindex.json").read_text())
    assert (listed["__kind__"], listed["wids_version"]) == ("wids-shard-index-v1", 1)
    assert [s["url"] for s in listed["shardlist"]] == [s["path"] for s in shards]
    records = {s["path"]: s["records"] for s in shards}
    lists = {folder: json.loads((root / folder / "shardindex.json").read_text())["shardlist"]
             for folder in {s["path"].split("/")[0] for s in shards}}
    for shard in listed["shardlist"]:
        content = (root / shard["url"]).read_bytes()
        assert shard["md5sum"] == hashlib.md5(content).hexdigest(), shard
        assert (shard["filesize"], shard["nsamples"]) == (len(content), records[shard["url"]]), shard
        folder, name = shard["url"].split("/")
        assert {**shard, "url": name} in lists[folder], shard


def check_energon(root, shards, samples):
    meta = root / ".nv-meta"
    counts = json.loads((meta / ".info.json").read_text())["shard_counts"]
    assert list(counts.items()) == [(s["path"], s["records"]) for s in shards]
    split = (meta / "split.yaml").read_text()
    assert re.findall(r'- "(.*)"', split) == list(counts)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", (meta / "index.uuid").read_text())
    database = sqlite3.connect(meta / "index.sqlite")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    rows = database.execute("SELECT tar_file_id, sample_key, sample_index, byte_offset, byte_size FROM samples"
                            " ORDER BY tar_file_id, sample_index").fetchall()
    assert rows == [sample[:5] for sample in samples]
    parts = database.execute("SELECT tar_file_id, sample_index, part_name, content_byte_offset, content_byte_size"
                             " FROM sample_parts ORDER BY 1, 2, 4").fetchall()
    assert parts == [(number, index, e, at, size) for number, _, index, _, _, parts in samples
                     for e, at, size, _, _ in parts]
    database.close()


def check_energon_reader(root, shards, contents):
    """The readers of megatron-energon itself, where it is installed."""
    try:
        with without_torch():
            from megatron.energon.epathlib import EPath
            from megatron.energon.flavors.webdataset.itar_reader import ShardInfosITarReader, SqliteITarEntryReader
            from megatron.energon.flavors.webdataset.metadata import WebdatasetMeta
    except ImportError as error:
        print(f"  megatron-energon is not there ({error}): its tables were checked with sqlite3 only")
        return
    meta = WebdatasetMeta.from_config(EPath(root), split_part="train")
    assert [(s.name, s.count) for s in meta.shards] == [(s["path"], s["records"]) for s in shards]
    by_key = SqliteITarEntryReader(EPath(root), key_is_full_entryname=True)
    for name, content in contents.items():
        assert bytes(by_key[name][0]) == content, name
    by_number = ShardInfosITarReader(EPath(root), meta.shards, part_filter=None)
    found = {}
    for i in range(len(by_number)):
        sample = by_number[i]
        found |= {f"{sample['__key__']}.{e}": bytes(c) for e, c in sample.items() if not e.startswith("__")}
    assert found == contents
    print(f"  megatron-energon read {len(contents)} parts by key and by number")


def check_dali_reader(root, shards, contents):
    """The reader of NVIDIA DALI itself, on the processor, where it is installed."""
    try:
        from nvidia.dali import fn, pipeline_def
    except ImportError as error:
        print(f"  DALI is not there ({error}): its indexes were compared with tarfile only")
        return
    paths = [str(root / s["path"]) for s in shards]
    extensions = ["jpg", "json", "seg.png"]

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def samples():
        indexes = [path.removesuffix(".tar") + ".idx" for path in paths]
        return tuple(fn.readers.webdataset(paths=paths, index_paths=indexes, ext=extensions, name="tar",
                                           missing_component_behavior="error"))

    pipeline = samples()
    pipeline.build()
    count = pipeline.epoch_size("tar")
    assert count == sum(s["records"] for s in shards)
    found = [bytes(part.at(0)) for _ in range(count) for part in pipeline.run()]
    wanted = [contents[f"{key}.{extension}"] for path in paths for key, _ in samples_of(path)[0]
              for extension in extensions]
    assert found == wanted
    print(f"  DALI read {len(found)} parts by its index")


def check_wids_reader(root, contents):
    """The reader of wids itself, where it is installed. It cannot read long names, which were omitted for it."""
    try:
        with without_torch():
            from wids.wids import IndexedTarSamples
    except ImportError as error:
        not_run("wids", f"it is not there ({error}): its lists were checked with hashlib only")
        return
    found = {}
    for shard in json.loads((root / "shardindex.json").read_text())["shardlist"]:
        reader = IndexedTarSamples(path=str(root / shard["url"]))
        assert len(reader) == shard["nsamples"], shard
        for i in range(len(reader)):
            sample = reader[i]
            found |= {sample["__key__"] + e: c.read() if hasattr(c, "read") else bytes(c)
                      for e, c in sample.items() if not e.startswith("__")}
    assert found == contents
    print(f"  wids read {len(found)} parts")


@contextlib.contextmanager
def without_torch():
    """Index readers import torch for what is around them and do not use it: names are enough where it is missing."""
    if importlib.util.find_spec("torch"):
        yield
        return

    class Name(abc.ABCMeta):
        def __getattr__(cls, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return made(name)

        def __getitem__(cls, _):
            return cls

    def made(name):
        return Name(name, (), {"__class_getitem__": classmethod(lambda cls, _: cls)})

    class Torch(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path=None, target=None):
            ours = name.split(".")[0] == "torch"
            return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

        def create_module(self, spec):
            module = types.ModuleType(spec.name)
            module.__path__ = []
            names = {}

            def lookup(name):
                if name.startswith("__"):
                    raise AttributeError(name)
                return names.setdefault(name, made(name))

            module.__getattr__ = lookup
            return module

        def exec_module(self, module):
            pass

    finder = Torch()
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == "torch"]:
            del sys.modules[name]


def check_webdataset(root, shards):
    import webdataset

    urls = [str(root / s["path"]) for s in shards]
    found = {s["__key__"]: s for s in webdataset.WebDataset(urls, shardshuffle=False)}
    assert len(found) == sum(s["records"] for s in shards)
    return {f"{key}.{extension}": content for key, sample in found.items()
            for extension, content in sample.items() if not extension.startswith("__")}


def check_tfrecord(root, shards):
    from tfrecord import tfrecord_loader

    records = 0
    for shard in shards:
        path = root / shard["path"]
        content, at, lines = path.read_bytes(), 0, ""
        while at < len(content):
            length = 16 + struct.unpack_from("<Q", content, at)[0]
            lines += f"{at} {length}\n"
            at += length
        assert path.with_suffix(".idx").read_text() == lines, path
        assert path.with_suffix(".tfindex").read_text() == lines, path
        index = str(path.with_suffix(".tfindex"))
        ids = [int(row["n"][0]) for row in tfrecord_loader(str(path), index, {"n": "int"}, shard=(0, 1))]
        # The second of three parts of the file, which is found by the index alone.
        middle = [int(row["n"][0]) for row in tfrecord_loader(str(path), index, {"n": "int"}, shard=(1, 3))]
        assert len(ids) == shard["records"] and middle == ids[len(ids) // 3:][:len(middle)] and middle, path
        records += len(ids)
    return records


def check_frames(binary, root, ids):
    """Reads single records out of compressed shards: only the bytes of the frame are touched."""
    out = run(binary, "manifest", root, "--json", "--find", *ids)
    hits = [json.loads(line) for line in out.splitlines()][:-1]
    assert len(hits) == len(ids)
    for hit in hits:
        with open(root / hit["shard"], "rb") as file:
            file.seek(hit["frame_offset"])
            stored = file.read(hit["frame_length"])
        if hit["shard"].endswith(".gz"):
            raw = zlib.decompressobj(wbits=-15).decompress(stored)
        else:
            import zstandard

            raw = zstandard.ZstdDecompressor().decompress(stored)
        record = raw[hit["offset_in_frame"]:][:hit["length"]]
        whole = decompressed(root / hit["shard"])
        assert record == whole[hit["offset"]:][:hit["length"]] and len(record) == hit["length"], hit
        assert hit["id"].encode() in record, hit
    return len(hits)


def decompressed(path):
    if path.name.endswith(".gz"):
        import gzip

        return gzip.decompress(path.read_bytes())
    import zstandard

    with open(path, "rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()


def check_seek_table(path):
    """The standard seek table at the end, by which every frame is found and decoded alone."""
    import zstandard

    content = path.read_bytes()
    count, descriptor, magic = struct.unpack("<IBI", content[-9:])
    assert (descriptor, magic) == (0, 0x8F92EAB1), path
    start = len(content) - 9 - 8 * count
    assert struct.unpack_from("<II", content, start - 8) == (0x184D2A5E, 8 * count + 9), path
    at, raw = 0, b""
    for i in range(count):
        stored, length = struct.unpack_from("<II", content, start + 8 * i)
        frame = zstandard.ZstdDecompressor().decompress(content[at:at + stored])
        assert len(frame) == length, path
        at, raw = at + stored, raw + frame
    assert at == start - 8 and raw == decompressed(path), path
    return count


def tree(folder, first, count, seed, long=True):
    """Small samples, some with names that need a pax header, some with an empty part."""
    rng = random.Random(seed)
    for i in range(first, first + count):
        stem = folder / f"class.{i % 3}" / (f"{i:05}" if i % 10 or not long else f"{i:05}-" + "long" * 40)
        stem.parent.mkdir(parents=True, exist_ok=True)
        for extension, size in [("jpg", rng.randrange(5000)), ("seg.png", rng.randrange(2) * 512), ("json", 20)]:
            stem.with_name(f"{stem.name}.{extension}").write_bytes(rng.randbytes(size))


def in_parts(binary, work, name, make, *options):
    """A dataset of six commits."""
    out = work / name
    for part in range(6):
        source = work / f"{name}-{part}"
        make(source, part)
        run(binary, "convert", source, "--out", out, "--target-shard", "64KiB", *options)
    return out


def adopted_tars(binary, work, name, kinds, first):
    """A dataset with these indexes that adopts archives of Python's tarfile, linked: GNU and pax, with folders in between."""
    dataset = in_parts(binary, work, name, lambda f, i: tree(f, first + 40 * i, 40, i, False), "--index", kinds)
    foreign = work / f"{name}-foreign"
    foreign.mkdir()
    for number, form in enumerate([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT]):
        source = work / f"{name}-tree-{number}"
        tree(source, first + 1000 * (number + 1), 30, number, False)
        with tarfile.open(foreign / f"{number}.tar", "w", format=form) as tar:
            tar.add(source, arcname=".", filter=None)
    run(binary, "adopt", foreign, "--out", dataset)
    return dataset


def adopted_records(binary, work, make):
    """The same for TFRecord, copied or linked."""
    from tfrecord import TFRecordWriter

    dataset = in_parts(binary, work, "adopted-tfrecord", make, "--to", "tfrecord", "--index", "dali,tfindex")
    foreign = work / "foreign-tfrecord"
    foreign.mkdir()
    writer = TFRecordWriter(str(foreign / "more.tfrecord"))
    for n in range(300):
        writer.write({"id": (f"F-{n}".encode(), "byte"), "n": (n, "int"), "x": (n / 7, "float")})
    writer.close()
    run(binary, "adopt", foreign, "--out", dataset)
    return dataset


def both(binary, dataset, check):
    """Before and after compaction; everything must be sound, and two compactions alike."""
    results = []
    for step in ["as converted", "compacted"]:
        if step == "compacted":
            made = summary(binary, "compact", dataset, "--target-shard", "1MiB")
            assert made["shards_removed"] > made["shards_added"] > 0, made
        report = summary(binary, "verify", dataset, "--read-data")
        assert (report["problem_count"], report["unreferenced"]) == (0, 0), report
        results.append(check(dataset, live(binary, dataset)))
    return results


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shardify", required=True)
    binary = os.path.abspath(parser.parse_args().shardify)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for name, kinds, long in [("short", "dali,wids,energon", False), ("long", "dali,energon", True)]:
            make = lambda f, i: tree(f, 40 * i, 40, i, long)  # noqa: E731
            dataset = in_parts(binary, work, name, make, "--index", kinds)
            print(f"tar, {name} names: parts checked", *both(binary, dataset, check_tar))
            shards = live(binary, dataset)
            contents = check_webdataset(dataset, shards)
            print(f"  webdataset read {len(contents)} parts")
            check_energon_reader(dataset, shards, contents)
            check_dali_reader(dataset, shards, contents)
            if not long:
                check_wids_reader(dataset, contents)
        dataset = adopted_tars(binary, work, "adopted", "dali,wids,energon", 5000)
        print("adopted tar: parts checked", *both(binary, dataset, check_tar))
        shards = live(binary, dataset)
        contents = check_webdataset(dataset, shards)
        check_energon_reader(dataset, shards, contents)
        check_dali_reader(dataset, shards, contents)
        check_wids_reader(dataset, contents)

        def table(folder, part):
            folder.mkdir()
            rows = "".join(f"ID-{part}-{i:05},{i},{random.Random(i).random()}\n" for i in range(4000))
            (folder / f"table{part}.csv").write_text("id,n,x\n" + rows)

        dataset = in_parts(binary, work, "tfrecord", table, "--to", "tfrecord", "--index", "dali,tfindex")
        print("tfrecord: records checked", *both(binary, dataset, check_tfrecord))
        print("adopted tfrecord: records checked", *both(binary, adopted_records(binary, work, table), check_tfrecord))
        ids = [f"ID-{part}-{i:05}" for part in (0, 3, 5) for i in (0, 1, 1999, 3999)]
        for to, codec in [("tar", "zstd"), ("tar", "gzip"), ("tfrecord", "gzip")]:
            options = ("--to", to, "--codec", codec, "--id", "id")
            dataset = in_parts(binary, work, f"{to}-{codec}", table, *options)
            print(f"{to} {codec}: records read alone", *both(binary, dataset, lambda d, _: check_frames(binary, d, ids)))
            if codec == "zstd":
                frames = [check_seek_table(dataset / s["path"]) for s in live(binary, dataset)]
                print(f"  frames found by the seek table: {sum(frames)}")
    print("index_check: all well")


if __name__ == "__main__":
    finish(main)
