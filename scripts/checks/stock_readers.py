#!/usr/bin/env python3
"""Reads shards with a reader that a user has: `stock_readers.py READER FORMAT`, with a JSON array of [codec, folder, paths] on stdin.

Run by readers_table.py with a Python that has the packages of the reader. Prints a line for each codec: the codec, and either its
records as an array of `[id, text, value]`, value null where the shard has none, or what the reader says. Each function is what a
user of that reader writes.
"""

import json
import os
import sys

# What stands for a null where a reader fills in a default.
ABSENT = -1.0


def columns(table):
    """Records of columns that are lists."""
    return list(zip(table["id"], table["text"], table["value"], strict=True))


def sample(content):
    """A record of the JSON part of a sample of tar."""
    row = json.loads(bytes(content))
    return row["id"], row["text"], row.get("value")


def example(content):
    """A record of a parsed Example: arrays, bytes as text."""
    value = content.get("value")
    return int(content["id"][0]), bytes(content["text"][0] if isinstance(content["text"], list) else content["text"]).decode(), \
        None if value is None or len(value) == 0 else float(value[0])  # fmt: skip


def by_pyarrow(kind, codec, folder, paths):
    import pyarrow.dataset

    return columns(pyarrow.dataset.dataset(paths, format="parquet").to_table().to_pydict())


def by_pandas(kind, codec, folder, paths):
    import pandas

    return columns(pandas.read_parquet(paths).to_dict("list"))


def by_polars(kind, codec, folder, paths):
    import polars

    return columns(polars.scan_parquet(paths).collect().to_dict(as_series=False))


def by_duckdb(kind, codec, folder, paths):
    import duckdb

    return duckdb.read_parquet(paths).project("id, text, value").fetchall()


def by_dask(kind, codec, folder, paths):
    import dask.dataframe

    return columns(dask.dataframe.read_parquet(paths).compute().to_dict("list"))


def by_pyspark(kind, codec, folder, paths):
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    return [tuple(row) for row in spark.read.parquet(*paths).select("id", "text", "value").collect()]


def by_petastorm(kind, codec, folder, paths):
    import petastorm

    rows = []
    # Its threads lose records now and then, also of files that pyarrow has written.
    with petastorm.make_batch_reader([f"file://{path}" for path in paths], reader_pool_type="dummy", num_epochs=1) as reader:
        for batch in reader:
            rows += columns({"id": batch.id.tolist(), "text": batch.text.tolist(), "value": batch.value.tolist()})
    return rows


def by_ray(kind, codec, folder, paths):
    import ray
    import ray.data

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    read = {"parquet": "read_parquet", "tar": "read_webdataset", "tfrecord": "read_tfrecords"}[kind]
    more = {"arrow_open_stream_args": {"compression": "gzip"}} if kind == "tfrecord" and codec == "gzip" else {}
    rows = getattr(ray.data, read)(paths, **more).take_all()
    if kind == "tar":
        return [(row["json"]["id"], row["json"]["text"], row["json"].get("value")) for row in rows]
    return [(row["id"], row["text"].decode() if kind == "tfrecord" else row["text"], row["value"]) for row in rows]


def by_datasets(kind, codec, folder, paths):
    import datasets

    builder = {"parquet": "parquet", "tar": "webdataset"}[kind]
    read = datasets.load_dataset(builder, data_files=paths, split="train", cache_dir=os.path.join(folder, "cache"))
    if kind == "parquet":
        return columns(read.to_dict())
    return [(row["json"]["id"], row["json"]["text"], row["json"]["value"]) for row in read]


def by_datasets_streaming(kind, codec, folder, paths):
    import datasets

    builder = {"parquet": "parquet", "tar": "webdataset"}[kind]
    read = datasets.load_dataset(builder, data_files=paths, split="train", streaming=True)
    rows = [row["json"] if kind == "tar" else row for row in read]
    return [(row["id"], row["text"], row.get("value")) for row in rows]


def by_webdataset(kind, codec, folder, paths):
    import webdataset

    return [sample(one["json"]) for one in webdataset.WebDataset(paths, shardshuffle=False)]


def by_torch(kind, codec, folder, paths):
    """`DataLoader` with workers, over webdataset and over the torch dataset of the package tfrecord."""
    import torch

    if kind == "tar":
        import webdataset

        data = webdataset.WebDataset(paths, shardshuffle=False).map(lambda one: sample(one["json"]))
    else:
        from tfrecord.torch.dataset import TFRecordDataset

        index = [path.replace(".tfrecord", ".tfindex") if codec == "none" else None for path in paths]
        more = {"compression_type": "gzip"} if codec == "gzip" else {}
        # With a list of features, it refuses records that lack one, as those do that have a null.
        parts = [TFRecordDataset(path, one, None, transform=example, **more) for path, one in zip(paths, index, strict=True)]
        data = torch.utils.data.ChainDataset(parts)
    return list(torch.utils.data.DataLoader(data, batch_size=None, num_workers=2))


def by_shard_dataset(kind, codec, folder, paths):
    """`DataLoader` with workers, over `shardify.open(...).torch()`."""
    import torch

    import shardify

    data = shardify.open(folder).torch(seed=1)
    rows = list(torch.utils.data.DataLoader(data, batch_size=None, num_workers=2))
    if kind == "parquet":
        return [(row["id"], row["text"], row["value"]) for row in rows]
    return [sample(row["json"]) for row in rows] if kind == "tar" else [of_bytes(row) for row in rows]


def of_bytes(content):
    """A record of the bytes of an Example."""
    from tfrecord import example_pb2

    features = example_pb2.Example.FromString(content).features.feature
    value = features["value"].float_list.value if "value" in features else []
    return features["id"].int64_list.value[0], features["text"].bytes_list.value[0].decode(), value[0] if value else None


def by_tfrecord(kind, codec, folder, paths):
    from tfrecord.reader import tfrecord_loader

    more = {"compression_type": "gzip"} if codec == "gzip" else {}
    return [example(one) for path in paths for one in tfrecord_loader(path, None, **more)]


def by_tensorflow(kind, codec, folder, paths):
    import tensorflow

    data = tensorflow.data.TFRecordDataset(paths, compression_type={"none": "", "gzip": "GZIP"}[codec])
    features = {
        "id": tensorflow.io.FixedLenFeature([], tensorflow.int64),
        "text": tensorflow.io.FixedLenFeature([], tensorflow.string),
        "value": tensorflow.io.FixedLenFeature([], tensorflow.float32, ABSENT),
    }
    rows = []
    for batch in data.batch(32).map(lambda batch: tensorflow.io.parse_example(batch, features)):
        found = {name: batch[name].numpy().tolist() for name in features}
        rows += [(number, text.decode(), None if value == ABSENT else value) for number, text, value in columns(found)]
    return rows


def by_wids(kind, codec, folder, paths):
    from wids.wids import ShardListDataset

    data = ShardListDataset(os.path.join(folder, "shardindex.json"), transformations=[])
    return [sample(data[at][".json"].read()) for at in range(len(data))]


def by_energon(kind, codec, folder, paths):
    from megatron.energon import Cooker, DefaultTaskEncoder, TextSample, WorkerConfig, basic_sample_keys, get_savable_loader, get_val_dataset, stateless

    @stateless
    def cook(one):
        return TextSample(**basic_sample_keys(one), text=json.dumps(one["json"]) if isinstance(one["json"], dict) else bytes(one["json"]).decode())

    class Encoder(DefaultTaskEncoder):
        cookers = (Cooker(cook),)

    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    data = get_val_dataset(folder, split_part="train", batch_size=1, worker_config=config, task_encoder=Encoder())
    return [sample(text.encode()) for batch in get_savable_loader(data) for text in batch.text]


def by_dali(kind, codec, folder, paths):
    from nvidia.dali import fn, pipeline_def, tfrecord

    size = int(os.environ["RECORDS"])
    # Shards that are not compressed have an index.
    indexes = [f"{path.rpartition('.')[0]}.idx" for path in paths] if codec == "none" else []

    @pipeline_def(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    def records():
        if kind == "tar":
            return fn.readers.webdataset(paths=paths, ext=["json"], **({"index_paths": indexes} if indexes else {}))
        features = {
            "id": tfrecord.FixedLenFeature([1], tfrecord.int64, 0),
            "text": tfrecord.FixedLenFeature((), tfrecord.string, ""),
            "value": tfrecord.FixedLenFeature([1], tfrecord.float32, ABSENT),
        }
        read = fn.readers.tfrecord(path=paths, index_path=indexes, features=features)
        return read["id"], read["text"], read["value"]

    pipeline = records()
    pipeline.build()
    rows = []
    for _ in range(size):
        found = [one.at(0) for one in pipeline.run()]
        if kind == "tar":
            rows.append(sample(bytes(found[0])))
        else:
            value = found[2].item()
            rows.append((found[0].item(), bytes(found[1]).decode(), None if value == ABSENT else value))
    return rows


def images(kind, codec, folder, paths):
    """Columns of `Image` of Hugging Face, decoded: a checksum of the pixels of each picture, and that of the file itself."""
    import datasets
    from PIL import Image

    read = datasets.load_dataset("parquet", data_files=paths, split="train", cache_dir=os.path.join(folder, "cache"))
    (column,) = [name for name, feature in read.features.items() if isinstance(feature, datasets.Image)]
    return [(checksum(row[column]), checksum(Image.open(path)), None) for row, path in zip(read, files_of("images", column), strict=True)]


def checksum(picture):
    import zlib

    return f"{picture.size} {zlib.crc32(picture.convert('RGB').tobytes())}"


def audio(kind, codec, folder, paths):
    """Columns of `Audio` of Hugging Face, decoded: rate and sum of the samples of each recording, and those of the file itself."""
    import datasets

    read = datasets.load_dataset("parquet", data_files=paths, split="train", cache_dir=os.path.join(folder, "cache"))
    (column,) = [name for name, feature in read.features.items() if isinstance(feature, datasets.Audio)]
    sounds = [row[column].get_all_samples() for row in read]
    return [
        (heard(sound.sample_rate, sound.data.numpy()), of_wave(path), None)
        for sound, path in zip(sounds, files_of("audio", column), strict=True)
    ]


def heard(rate, samples):
    return f"{rate} Hz, {samples.shape[-1]} samples, {abs(samples).sum():.1f}"


def of_wave(path):
    """What is heard in a file of 16-bit PCM."""
    import wave

    import numpy

    with wave.open(path) as file:
        samples = numpy.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels()).T
        return heard(file.getframerate(), samples.astype("float32") / 32768)


def files_of(kind, extension):
    """The files of testdata that were converted, in the order of their names."""
    import glob

    return sorted(glob.glob(os.path.join(os.environ["FILES"], kind, f"*.{extension}")))


def said(error):
    """The type of an exception, and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("Caught "):  # torch puts the traceback of the worker before it
        return lines[-1]
    if "encountered:" in lines[:-1]:  # so does DALI, with that of the pipeline
        lines = lines[lines.index("encountered:") + 1 :]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def main():
    reader, kind = sys.argv[1:]
    # The results go where nobody else prints.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for codec, folder, paths in json.load(sys.stdin):
        try:
            found = globals()[reader](kind, codec, folder, paths)
            # Some readers of tables give NaN for null.
            found = [[number, text, None if value != value else value] for number, text, value in found]
        except Exception as error:
            found = said(error)
        print(json.dumps([codec, found]), file=results, flush=True)


if __name__ == "__main__":
    main()
