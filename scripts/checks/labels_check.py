#!/usr/bin/env python3
"""Labels beside files are what other programs read: webdataset, tfrecord, pyarrow and Hugging Face datasets.

Folders of images of the corpus, or of testdata without it, are labelled by a table (CSV, JSON Lines, Parquet), by the metadata of an
imagefolder, and by folders of classes. Each dataset is read by others, and each part `json` has to be the row as Python's csv or pyarrow
reads it, each `cls` the position of the folder among the sorted names, and each image the bytes of its file. Where datasets can be
imported, its own imagefolder and webdataset builders have to find the same labels in the folder and in the shards.

    python3 scripts/checks/labels_check.py --shardify target/release/shardify [--seed S]
"""

import argparse
import csv
import glob
import json
import os
import pathlib
import random
import shutil
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
from harness import ROOT, expect, finish, not_run, objects, run

ENDINGS = (".jpg", ".jpeg", ".png", ".webp")
FORMATS = ("tar", "tfrecord", "parquet")


def images():
    corpus = pathlib.Path(os.environ.get("SHARDIFY_CORPUS") or ROOT.parent / "shared" / "corpus")
    for folder in (corpus / "images", ROOT / "testdata" / "files" / "images"):
        found = sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and path.name.count(".") == 1)
        # Small ones are enough.
        found = [path for path in found if path.stat().st_size < 400_000][:24]
        if found:
            return found
        not_run(f"images of {folder}", "there are none")
    return []


def folder_of_classes(root, rng):
    """Copies images into folders of classes; returns the class of each file by its path below the root."""
    classes = ["Zebra", "ant", "b c", "émeu", "10", "9"]
    taken = {}
    for number, image in enumerate(images()):
        name = classes[number % len(classes)] if number < len(classes) else rng.choice(classes)
        path = pathlib.Path(["train", "val"][number % 2]) / name / f"{number:03}{image.suffix}"
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(image, root / path)
        taken[path.as_posix()] = name
    return taken


def rows_of(paths, rng):
    """A row of labels for each path, with values of several types."""
    texts = ["plain", 'quoted "text"', "two\nlines", "comma, here", "日本", "007", ""]
    return {
        path: {"label": rng.randrange(100), "score": rng.randrange(1000) / 8, "ok": rng.random() < 0.5, "caption": rng.choice(texts)}
        for path in paths
    }


def write_table(path, rows, key, names):
    """Writes rows in the format that the name states; returns what the JSON of each has to be."""
    table = [{key: names[name], **row} for name, row in rows.items()]
    if path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [key, *next(iter(rows.values()))])
            writer.writeheader()
            writer.writerows({**row, "ok": str(row["ok"]).lower()} for row in table)
        # An empty field is null.
        return {name: {**row, "caption": row["caption"] or None} for name, row in rows.items()}
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps({**row, "boxes": [[1, 2.5], []]}) + "\n" for row in table))
        return {name: {**row, "boxes": [[1, 2.5], []]} for name, row in rows.items()}
    pq.write_table(pa.Table.from_pylist(table), path)
    return rows


def read_tar(paths):
    import webdataset

    for sample in webdataset.WebDataset(paths, shardshuffle=False).decode():
        yield sample["__key__"], {name: value for name, value in sample.items() if not name.startswith("__")}


def read_tfrecord(paths):
    from tfrecord.reader import tfrecord_loader

    for path in paths:
        for row in tfrecord_loader(path, None):
            parts = {name: bytes(value) for name, value in row.items() if name != "__key__"}
            yield bytes(row["__key__"]).decode(), decoded(parts)


def read_parquet(paths):
    for path in paths:
        for row in pq.read_table(path).to_pylist():
            parts = {name: value for name, value in row.items() if name != "__key__" and value is not None}
            yield row["__key__"], decoded(parts)


def decoded(parts):
    """Decodes labels as webdataset does: `json` to an object, `cls` to a whole number."""
    decode = {"json": json.loads, "cls": int}
    return {name: decode.get(name, lambda value: value)(value) for name, value in parts.items()}


READERS = {"tar": read_tar, "tfrecord": read_tfrecord, "parquet": read_parquet}


def compare(what, root, dataset, form, taken, labels, numbers):
    """Each sample has its image, its label and its class, as another program reads them."""
    paths = sorted(glob.glob(f"{dataset}/*/*.{form}"))
    found = dict(READERS[form](paths))
    expect(f"{what}: keys", sorted(found), sorted(path.rsplit(".", 1)[0] for path in taken))
    for path in taken:
        key, extension = path.rsplit(".", 1)
        parts = dict(found[key])
        expect(f"{what}: {path}: image", parts.pop(extension), (root / path).read_bytes())
        if labels:
            expect(f"{what}: {path}: json", parts.pop("json"), labels[path])
            if form == "tar":
                expect(
                    f"{what}: types of json",
                    {k: type(v) for k, v in found[key]["json"].items()},
                    {k: type(v) for k, v in labels[path].items()},
                )
        if numbers:
            expect(f"{what}: {path}: cls", parts.pop("cls"), numbers[taken[path]])
        expect(f"{what}: {path}: other parts", parts, {})


def tables(shardify, work, root, taken, rng):
    names = {path: rng.choice([path, path.rsplit("/", 1)[1], path.rsplit(".", 1)[0], f"in/{path}"]) for path in taken}
    for ending, key in ((".csv", "image"), (".jsonl", "file"), (".parquet", "id")):
        table = work / f"labels{ending}"
        labels = write_table(table, rows_of(taken, rng), key, names)
        for form in FORMATS:
            dataset = work / f"table{ending}-{form}"
            run(shardify, "convert", root, "--labels", table, "--to", form, "--out", dataset, "--target-shard", "1MiB")
            compare(f"labels{ending} in {form}", root, dataset, form, taken, labels, None)
            tasks = work / f"tasks{ending}-{form}"
            run(shardify, "convert", root, "--labels", f"{table}:{key}", "--to", form, "--out", tasks, "--task-size", "1MiB")
            compare(f"labels{ending} in tasks of {form}", root, tasks, form, taken, labels, None)
    print(f"tables: {len(taken)} samples of {len(FORMATS)} formats by 3 tables")


def imagefolder(shardify, work, root, taken, rng):
    rows = rows_of(taken, rng)
    labels = {}
    written = []
    for folder, ending in (("train/", ".csv"), ("val/", ".parquet")):
        own = {path: row for path, row in rows.items() if path.startswith(folder)}
        table = root / folder / f"metadata{ending}"
        labels |= write_table(table, own, "file_name", {path: path.removeprefix(folder) for path in own})
        written.append(table)
    for form in FORMATS:
        dataset = work / f"imagefolder-{form}"
        run(shardify, "convert", root, "--to", form, "--out", dataset)
        compare(f"imagefolder in {form}", root, dataset, form, taken, labels, None)
    for table in written:
        table.unlink()
    # One table for all, which datasets can read, too.
    labels = write_table(root / "metadata.jsonl", rows, "file_name", {path: path for path in taken})
    dataset = work / "imagefolder-one"
    run(shardify, "convert", root, "--to", "tar", "--out", dataset)
    compare("imagefolder of one table", root, dataset, "tar", taken, labels, None)
    huggingface_metadata(root, taken, labels)
    (root / "metadata.jsonl").unlink()
    print(f"imagefolder: {len(taken)} samples by 3 tables")


def classes(shardify, work, root, taken):
    names = sorted(set(taken.values()))
    numbers = {name: number for number, name in enumerate(names)}
    for form in FORMATS:
        dataset = work / f"classes-{form}"
        run(shardify, "convert", root, "--label-from-folder", "--to", form, "--out", dataset, "--target-shard", "1MiB")
        settings = objects(shardify, "manifest", dataset)[-1]["settings"]
        expect(f"classes of {form}", settings["classes"], names)
        compare(f"classes in {form}", root, dataset, form, taken, None, numbers)
    huggingface_classes(shardify, work, root, taken, names)
    print(f"classes: {len(names)} classes of {len(taken)} samples")


def datasets_or_none(what):
    try:
        import datasets
        import PIL  # noqa: F401
    except ImportError as missing:
        not_run(what, str(missing))
        return None
    return datasets


def huggingface_metadata(root, taken, labels):
    datasets = datasets_or_none("the metadata as Hugging Face's imagefolder reads it")
    if datasets is None:
        return
    loaded = datasets.load_dataset("imagefolder", data_files={"every": f"{root}/**"}, split="every", cache_dir=str(root.parent / "cache"))
    found = {}
    for row in loaded.cast_column("image", datasets.Image(decode=False)):
        path = pathlib.Path(row.pop("image")["path"]).relative_to(root).as_posix()
        found[path] = row
    expect("imagefolder of datasets: files", sorted(found), sorted(taken))
    for path, row in found.items():
        expect(f"imagefolder of datasets: {path}", row, labels[path])


def huggingface_classes(shardify, work, root, taken, names):
    datasets = datasets_or_none("classes as Hugging Face's imagefolder and webdataset builders read them")
    if datasets is None:
        return
    loaded = datasets.load_dataset("imagefolder", data_dir=str(root), drop_labels=False, cache_dir=str(work / "cache"))
    for split in loaded.values():
        expect("classes of datasets", split.features["label"].names, names)
        for row in split.cast_column("image", datasets.Image(decode=False)):
            path = pathlib.Path(row["image"]["path"]).relative_to(root).as_posix()
            expect(f"class of datasets: {path}", names[row["label"]], taken[path])
    # Its webdataset builder wants samples of one kind.
    same = {path: name for path, name in taken.items() if path.endswith(".jpg")}
    if not same:
        not_run("classes as Hugging Face's webdataset builder reads them", "there are no .jpg")
        return
    names = sorted(set(same.values()))
    run(shardify, "convert", root, "--include", "*.jpg", "--label-from-folder", "--out", work / "same", "--to", "tar")
    shards = sorted(glob.glob(f"{work}/same/*/*.tar"))
    loaded = datasets.load_dataset("webdataset", data_files={"train": shards}, split="train", cache_dir=str(work / "cache"))
    found = {row["__key__"]: row["cls"] for row in loaded.select_columns(["__key__", "cls"])}
    expect("webdataset of datasets", found, {path.rsplit(".", 1)[0]: names.index(name) for path, name in same.items()})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        root = work / "in"
        taken = folder_of_classes(root, rng)
        tables(options.shardify, work, root, taken, rng)
        imagefolder(options.shardify, work, root, taken, rng)
        classes(options.shardify, work, root, taken)


if __name__ == "__main__":
    finish(main)
