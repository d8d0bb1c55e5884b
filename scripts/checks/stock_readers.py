#!/usr/bin/env python3
"""Reads shards with a reader that a user has: `stock_readers.py READER FORMAT FIELDS`, with a JSON array of [name, folder, paths] on stdin.

Run by readers_table.py with a Python that has the packages of the reader. FIELDS are the names of the columns, separated by commas. Prints
a line for each name: the name, and either its records as arrays of the values of these columns, null where the shard has none, or what
the reader says. `paths` are the shards, or what a user would give for the folder. Each function is what a user of that reader writes.
"""

import io
import json
import os
import sys

# The columns of a record.
FIELDS = []
# What stands for a null where a reader fills in a default.
ABSENT, NO_TEXT = -1.0, b""


def columns(table):
    """Records of columns that are lists."""
    return list(zip(*(table[name] for name in FIELDS), strict=True))


def record(row):
    """A record of a dictionary."""
    return tuple(row.get(name) for name in FIELDS)


def sample(parts):
    """A record of a sample of tar: columns are in its part `json`, arrays in parts `NAME.npy`."""
    row = parts["json"] if isinstance(parts["json"], dict) else json.loads(bytes(parts["json"]))
    return tuple(array(parts[f"{name}.npy"]) if f"{name}.npy" in parts else row.get(name) for name in FIELDS)


def array(content):
    """An array of a part `.npy`, which some readers have decoded."""
    import numpy

    return numpy.load(io.BytesIO(content)) if isinstance(content, bytes) else numpy.asarray(content)


def example(content):
    """A record of a parsed Example: arrays of numbers, bytes as text, tensors as bytes with a shape and a type beside them."""
    return tuple(feature(content, name) for name in FIELDS)


def feature(content, name):
    value = content.get(name)
    if value is None or len(value) == 0:
        return None
    if f"{name}/dtype" in content:
        import numpy

        kind = bytes(content[f"{name}/dtype"]).decode()
        return numpy.frombuffer(bytes(value), kind).reshape(content[f"{name}/shape"])
    return bytes(value) if isinstance(value, (bytes, bytearray)) else value[0]


def by_pyarrow(kind, folder, paths):
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(paths, format="parquet").to_table(columns=FIELDS)
    tensors = {name: table[name].combine_chunks().to_numpy_ndarray() for name in FIELDS if name == "grid"}
    return columns({**table.to_pydict(), **tensors})


def by_pandas(kind, folder, paths):
    import pandas

    return columns(pandas.read_parquet(paths).to_dict("list"))


def by_polars(kind, folder, paths):
    import polars

    return columns(polars.scan_parquet(paths).select(FIELDS).collect().to_dict(as_series=False))


def by_duckdb(kind, folder, paths):
    import duckdb

    return duckdb.read_parquet(paths).project(", ".join(FIELDS)).fetchall()


def by_dask(kind, folder, paths):
    import dask.dataframe

    return columns(dask.dataframe.read_parquet(paths).compute().to_dict("list"))


def by_pyspark(kind, folder, paths):
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    paths = [paths] if isinstance(paths, str) else paths
    return [tuple(row) for row in spark.read.parquet(*paths).select(*FIELDS).collect()]


def by_petastorm(kind, folder, paths):
    import petastorm

    rows = []
    paths = [paths] if isinstance(paths, str) else paths
    # Its threads lose records now and then, also of files that pyarrow has written.
    with petastorm.make_batch_reader([f"file://{path}" for path in paths], reader_pool_type="dummy", num_epochs=1) as reader:
        for batch in reader:
            rows += columns({name: list(getattr(batch, name)) for name in FIELDS})
    return rows


def by_ray(kind, folder, paths):
    import ray
    import ray.data

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, ignore_reinit_error=True)
    read = {"parquet": "read_parquet", "tar": "read_webdataset", "tfrecord": "read_tfrecords"}[kind]
    more = {"arrow_open_stream_args": {"compression": "gzip"}} if kind == "tfrecord" and zipped(paths) else {}
    rows = getattr(ray.data, read)(paths, **more).take_all()
    return [sample(row) for row in rows] if kind == "tar" else [record(row) for row in rows]


def zipped(paths):
    return paths[0].endswith(".gz")


def by_datasets(kind, folder, paths, **options):
    import datasets

    if isinstance(paths, str):
        read = datasets.load_dataset(paths, split="train", **options)
    else:
        read = datasets.load_dataset({"parquet": "parquet", "tar": "webdataset"}[kind], data_files=paths, split="train", **options)
    return [sample(row) for row in read] if kind == "tar" else [record(row) for row in read]


def by_datasets_streaming(kind, folder, paths):
    return by_datasets(kind, folder, paths, streaming=True)


def by_huggingface(kind, folder, paths):
    """`shardify.open(...).huggingface()`."""
    import shardify

    rows = shardify.open(folder).huggingface()
    return [sample(row) for row in rows] if kind == "tar" else [record(row) for row in rows]


def by_webdataset(kind, folder, paths):
    import webdataset

    return [sample(one) for one in webdataset.WebDataset(paths, shardshuffle=False)]


def by_torch(kind, folder, paths):
    """`DataLoader` with workers, over webdataset and over the torch dataset of the package tfrecord."""
    import torch

    if kind == "tar":
        import webdataset

        data = webdataset.WebDataset(paths, shardshuffle=False)
    else:
        from tfrecord.torch.dataset import TFRecordDataset

        index = [None if zipped(paths) else path.replace(".tfrecord", ".tfindex") for path in paths]
        more = {"compression_type": "gzip"} if zipped(paths) else {}
        # With a list of features, it refuses records that lack one, as those do that have a null.
        parts = [TFRecordDataset(path, one, None, transform=example, **more) for path, one in zip(paths, index, strict=True)]
        data = torch.utils.data.ChainDataset(parts)
    rows = torch.utils.data.DataLoader(data, batch_size=None, num_workers=2, collate_fn=lambda one: one)
    return [sample(one) for one in rows] if kind == "tar" else list(rows)


def by_shard_dataset(kind, folder, paths):
    """`DataLoader` over `shardify.open(...).torch()`."""
    import torch

    import shardify

    dates = {"value": ABSENT, "day": 0, "seen": 0} if kind == "parquet" and "day" in FIELDS else None
    data = shardify.open(folder).torch(global_batch_size=32, seed=1, drop_last=False, fill=dates)
    batches = [whole(batch) for batch in torch.utils.data.DataLoader(data, batch_size=None)]
    rows = [dict(zip(batch, row, strict=True)) for batch in batches for row in zip(*batch.values(), strict=True)]
    if kind == "parquet":
        return [unfilled(row) for row in rows]
    return [sample(row) for row in rows] if kind == "tar" else [example(of_bytes(row["record"])) for row in rows]


def whole(batch):
    """The columns of a batch of `.torch()`, without what says where it is from."""
    return {name: values for name, values in batch.items() if name not in ("__step__", "__epoch__", "__records__")}


def unfilled(row):
    """A record of a batch of `.torch()`: what stands for null as null, days and microseconds as dates and times."""
    import numpy

    row = {name: value.numpy() if hasattr(value, "numpy") else value for name, value in row.items()}
    if "day" in row:
        row["value"] = None if row["value"] == ABSENT else row["value"]
        row["day"] = numpy.datetime64(int(row["day"]), "D") if row["day"] else None
        row["seen"] = numpy.datetime64(int(row["seen"]), "us") if row["seen"] else None
    return record(row)


def of_bytes(content):
    """The features of the bytes of an Example, as the package tfrecord gives them."""
    from tfrecord import example_pb2

    found = {}
    for name, one in example_pb2.Example.FromString(content).features.feature.items():
        values = getattr(one, one.WhichOneof("kind")).value
        found[name] = values[0] if one.HasField("bytes_list") else list(values)
    return found


def by_tfrecord(kind, folder, paths):
    from tfrecord.reader import tfrecord_loader

    more = {"compression_type": "gzip"} if zipped(paths) else {}
    return [example(one) for path in paths for one in tfrecord_loader(path, None, **more)]


def by_tensorflow(kind, folder, paths):
    import tensorflow

    data = tensorflow.data.TFRecordDataset(paths, compression_type="GZIP" if zipped(paths) else "")
    text = tensorflow.io.FixedLenFeature([], tensorflow.string, NO_TEXT)
    features = {name: text for name in FIELDS}
    features["id"] = tensorflow.io.FixedLenFeature([], tensorflow.int64)
    if "value" in FIELDS:
        features["value"] = tensorflow.io.FixedLenFeature([], tensorflow.float32, ABSENT)
    if "grid" in FIELDS:
        features |= {"grid/dtype": text, "grid/shape": tensorflow.io.FixedLenFeature([2], tensorflow.int64)}
    rows = []
    for batch in data.batch(32).map(lambda batch: tensorflow.io.parse_example(batch, features)):
        found = {name: list(batch[name].numpy()) for name in features}
        rows += [example({name: known(value) for name, value in zip(found, row, strict=True)}) for row in zip(*found.values(), strict=True)]
    return rows


def known(value):
    """A value of TensorFlow or DALI as the package tfrecord gives it: none where a default stands for null."""
    if isinstance(value, bytes):
        return value or None
    return value if value.ndim else None if value == ABSENT else [value]


def by_wids(kind, folder, paths):
    from wids.wids import ShardListDataset

    data = ShardListDataset(os.path.join(folder, "shardindex.json"), transformations=[])
    rows = (data[at] for at in range(len(data)))
    return [sample({name[1:]: part.read() for name, part in row.items() if name[0] == "."}) for row in rows]


def by_energon(kind, folder, paths):
    from megatron.energon import Cooker, DefaultTaskEncoder, TextSample, WorkerConfig, basic_sample_keys, get_savable_loader, get_val_dataset, stateless

    @stateless
    def cook(one):
        values = [value.tolist() if hasattr(value, "tolist") else value for value in sample(one)]
        return TextSample(**basic_sample_keys(one), text=json.dumps(values))

    class Encoder(DefaultTaskEncoder):
        cookers = (Cooker(cook),)

    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    data = get_val_dataset(folder, split_part="train", batch_size=1, worker_config=config, task_encoder=Encoder())
    return [tuple(json.loads(text)) for batch in get_savable_loader(data) for text in batch.text]


def by_dali(kind, folder, paths):
    from nvidia.dali import fn, pipeline_def, tfrecord

    # Shards that are not compressed have an index.
    indexes = [] if paths[0].endswith((".gz", ".zst")) else [f"{path.rpartition('.')[0]}.idx" for path in paths]
    parts = ["json", "grid.npy"] if "grid" in FIELDS else ["json"]
    features = {name: tfrecord.FixedLenFeature((), tfrecord.string, "") for name in FIELDS}
    features["id"] = tfrecord.FixedLenFeature([1], tfrecord.int64, 0)
    features["value"] = tfrecord.FixedLenFeature([1], tfrecord.float32, ABSENT)
    features["grid/dtype"] = tfrecord.FixedLenFeature((), tfrecord.string, "")
    features["grid/shape"] = tfrecord.FixedLenFeature([2], tfrecord.int64, 0)
    wanted = [name for name in features if name.split("/")[0] in FIELDS]

    @pipeline_def(batch_size=1, num_threads=1, device_id=None, prefetch_queue_depth=1)
    def records():
        if kind == "tar":
            read = fn.readers.webdataset(paths=paths, ext=parts, **({"index_paths": indexes} if indexes else {}))
            return tuple(read) if len(parts) > 1 else read
        read = fn.readers.tfrecord(path=paths, index_path=indexes, features=features)
        return tuple(read[name] for name in wanted)

    pipeline = records()
    pipeline.build()
    rows = []
    for _ in range(int(os.environ["RECORDS"])):
        found = [one.at(0) for one in pipeline.run()]
        if kind == "tar":
            rows.append(sample(dict(zip(parts, map(bytes, found), strict=True))))
        else:
            values = (bytes(value) if value.dtype == "uint8" else value.squeeze() for value in found)
            rows.append(example({name: known(value) for name, value in zip(wanted, values, strict=True)}))
    return rows


def images(kind, folder, paths):
    """Columns of `Image` of Hugging Face, decoded: a checksum of the pixels of each picture, and that of the file itself."""
    import datasets
    from PIL import Image

    read = datasets.load_dataset("parquet", data_files=paths, split="train")
    (column,) = [name for name, feature in read.features.items() if isinstance(feature, datasets.Image)]
    return [(checksum(row[column]), checksum(Image.open(path))) for row, path in zip(read, files_of("images", column), strict=True)]


def checksum(picture):
    import zlib

    return f"{picture.size} {zlib.crc32(picture.convert('RGB').tobytes())}"


def audio(kind, folder, paths):
    """Columns of `Audio` of Hugging Face, decoded: rate and sum of the samples of each recording, and those of the file itself."""
    import datasets

    read = datasets.load_dataset("parquet", data_files=paths, split="train")
    (column,) = [name for name, feature in read.features.items() if isinstance(feature, datasets.Audio)]
    sounds = [row[column].get_all_samples() for row in read]
    return [
        (heard(sound.sample_rate, sound.data.numpy()), of_wave(path))
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


def plain(name, value):
    """A value as JSON has it: dates and times as text in ISO 8601, NaN and the like as null."""
    if value is None or isinstance(value, (str, bytes)):
        return value.decode() if isinstance(value, bytes) else value
    if name == "grid":
        return value.tolist() if hasattr(value, "tolist") else list(value)
    if name in ("day", "seen"):
        text = str(value).replace(" ", "T")
        return None if text == "NaT" else text[: 10 if name == "day" else 19]
    value = value.item() if hasattr(value, "item") else value
    return None if value != value else value


def main():
    reader, kind, fields = sys.argv[1:]
    FIELDS.extend(fields.split(","))
    # The results go where nobody else prints.
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name, folder, paths in json.load(sys.stdin):
        try:
            found = globals()[reader](kind, folder, paths)
            found = [[plain(*pair) for pair in zip(FIELDS, row, strict=True)] for row in found]
        except Exception as error:
            found = said(error)
        print(json.dumps([name, found]), file=results, flush=True)


if __name__ == "__main__":
    main()
