"""A snapshot of a dataset, and the readers of other projects on exactly its shards.

A folder of a dataset also holds shards of older versions and tables of its own, so readers are given the paths of the live shards,
never the folder.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _program

if TYPE_CHECKING:
    import pyarrow.dataset

    from .loading import ShardDataset

COMPRESSIONS = {"none": "", "gzip": "GZIP"}


@dataclasses.dataclass(frozen=True)
class Shard:
    """A shard: its path below the dataset, and what is in it."""

    path: str
    records: int
    bytes: int
    codec: str
    blake3: str


@dataclasses.dataclass(frozen=True)
class Dataset:
    """A version of a dataset, or a part of it. It stays as it is whatever is committed later, until `vacuum` deletes its shards."""

    location: str
    version: int
    format: str
    shards: tuple[Shard, ...]
    settings: Mapping[str, Any]

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(shard.records for shard in self.shards)

    def paths(self) -> list[str]:
        """Paths or URLs of the shards, in the order of their records."""
        return [f"{self.location.rstrip('/')}/{shard.path}" for shard in self.shards]

    def split(self, name: str) -> Dataset:
        """The shards in folders `split=NAME`."""
        return self.part(split=name)

    def part(self, **values: str) -> Dataset:
        """The shards in folders `key=value` of these keys and values."""
        wanted = {f"{key}={value}" for key, value in values.items()}
        shards = tuple(shard for shard in self.shards if wanted <= set(shard.path.split("/")))
        return dataclasses.replace(self, shards=shards)

    def pyarrow(self) -> pyarrow.dataset.Dataset:
        """A `pyarrow.dataset.Dataset` of Parquet shards."""
        import pyarrow.dataset
        import pyarrow.fs

        self._expect("parquet")
        if "://" not in self.location:
            return pyarrow.dataset.dataset(self.paths(), format="parquet")
        system, root = pyarrow.fs.FileSystem.from_uri(self.location)
        paths = [f"{root.rstrip('/')}/{shard.path}" for shard in self.shards]
        return pyarrow.dataset.dataset(paths, format="parquet", filesystem=system)

    def polars(self) -> Any:
        """A `polars.LazyFrame` of Parquet shards."""
        import polars

        self._expect("parquet")
        return polars.scan_parquet(self.paths())

    def duckdb(self, connection: Any = None) -> Any:
        """A `duckdb.DuckDBPyRelation` of Parquet shards."""
        import duckdb

        self._expect("parquet")
        return (connection or duckdb).read_parquet(self.paths(), union_by_name=True)

    def webdataset(self, **options: Any) -> Any:
        """A `webdataset.WebDataset` of tar shards; `shardshuffle` is off unless given."""
        import webdataset

        self._expect("tar")
        return webdataset.WebDataset(self.paths(), **{"shardshuffle": False, **options})

    def tf(self, **options: Any) -> Any:
        """A `tf.data.TFRecordDataset` of serialized Examples."""
        import tensorflow

        self._expect("tfrecord")
        codec = self.shards[0].codec.split(":")[0] if self.shards else "none"
        return tensorflow.data.TFRecordDataset(self.paths(), compression_type=COMPRESSIONS[codec], **options)

    def ray(self, **options: Any) -> Any:
        """A `ray.data.Dataset`."""
        import ray.data

        read = {"parquet": "read_parquet", "tar": "read_webdataset", "tfrecord": "read_tfrecords"}[self.format]
        return getattr(ray.data, read)(self.paths(), **options)

    def huggingface(self, **options: Any) -> Any:
        """A `datasets.Dataset`, or an `IterableDataset` with `streaming=True`."""
        import datasets

        builder = {"parquet": "parquet", "tar": "webdataset"}.get(self.format)
        if builder is None:
            raise TypeError(f"Hugging Face datasets read Parquet and tar, found {self.format}")
        return datasets.load_dataset(builder, data_files=self.paths(), **{"split": "train", **options})

    def torch(self, **options: Any) -> ShardDataset:
        """A [`ShardDataset`](shardify.loading.ShardDataset) for a `torch.utils.data.DataLoader`."""
        from .loading import ShardDataset

        return ShardDataset(self, **options)

    def _expect(self, format: str) -> None:
        if self.format != format:
            raise TypeError(f"expected shards of {format}, found {self.format}")


def open(location: str | os.PathLike[str], at: str | int | None = None) -> Dataset:
    """Opens a version of a dataset: a number, `v12`, a tag or a time; the newest by default."""
    place = os.fspath(location)
    version = [] if at is None else ["--at", f"v{at}" if isinstance(at, int) else at]
    summary = _program.run(["manifest", place, *version])[-1]
    # The newest version may change between the two calls.
    exact = ["--at", f"v{summary['version']}"]
    listed = [one for one in _program.run(["manifest", place, "--list", *exact]) if one.get("type") == "shard"]
    listed.sort(key=lambda one: one["first_record"])
    names = [field.name for field in dataclasses.fields(Shard)]
    return Dataset(
        location=summary["dataset"],
        version=summary["version"],
        format=summary["settings"]["shard_format"],
        shards=tuple(Shard(**{name: one[name] for name in names}) for one in listed),
        settings=summary["settings"],
    )
