"""A snapshot of a dataset, and the readers of other projects on exactly its shards.

A folder of a dataset also holds shards of older versions and tables of its own, so readers are given the paths of the live shards,
never the folder.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import _display, _program
from ._extras import needs
from ._options import When, text
from .errors import ShardifyWarning, UsageError

if TYPE_CHECKING:
    import pandas
    import pyarrow.dataset

    from .loader import Batch, Loader, TorchSteps
    from .records import Records

# Columns that a notebook shows.
SHOWN = 20
COMPRESSIONS = {"none": "", "gzip": "GZIP"}
# Names that other packages have for what a dataset has.
INSTEAD = {
    "to_pandas": ".pandas()",
    "to_polars": ".polars()",
    "to_table": ".pyarrow().to_table()",
    "to_arrow": ".pyarrow().to_table()",
    "to_torch": ".torch()",
    "columns": ".schema",
    "load": ".pandas()` or `.loader()",
    "select": ".take(...)",
    "head": "shardify.head(...)",
}


@dataclasses.dataclass(frozen=True)
class Shard:
    """A shard: its path below the dataset, and what is in it."""

    path: str
    records: int
    bytes: int
    codec: str
    blake3: str


@dataclasses.dataclass(frozen=True, repr=False)
class Dataset:
    """A version of a dataset, or a part of it. It stays as it is whatever is committed later, until `vacuum` deletes its shards.

    `len(dataset)` is its number of live records.
    """

    location: str
    version: int
    format: str
    shards: tuple[Shard, ...] = dataclasses.field(hash=False)
    settings: Mapping[str, Any] = dataclasses.field(hash=False)
    _: dataclasses.KW_ONLY
    # Whether the version was named when it was opened, so that every process opens the same one.
    pinned: bool = dataclasses.field(default=False, compare=False)
    # The folders `key=value` that the shards were chosen by.
    chosen: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(shard.records for shard in self.shards)

    def __len__(self) -> int:
        return self.records

    def __bool__(self) -> bool:
        """True, also without records: `if dataset` asks whether there is one."""
        return True

    @functools.cached_property
    def schema(self) -> Mapping[str, str]:
        """The columns with their types, in order; of samples, the parts. `.pyarrow().schema` has the types of Arrow."""
        types = self.settings.get("types")
        if types:
            return {one["name"]: one["type"] for one in types}
        # Adopted shards and samples: their columns are in the shards alone.
        objects = _program.run(["report", "--ids", f"--at=v{self.version}", "--", self.location])
        columns = {one["column"]: one["data_type"] for one in objects if one.get("type") == "column"}
        parts = {one["extension"]: "binary" for one in objects if one.get("type") == "part"}
        return columns or ({"__key__": "text", **parts} if parts else {})

    def __repr__(self) -> str:
        return f"<shardify.Dataset {self.location!r} v{self.version}: {self._counts()}>"

    def _repr_html_(self) -> str:
        """A table for notebooks: what the dataset is, and the columns that it knows without reading shards."""
        columns = self.settings.get("types") or ()
        fields = {"shards": self._counts(), **{f"column {one['name']}": str(one["type"]) for one in columns[:SHOWN]}}
        if len(columns) > SHOWN:
            fields["..."] = _display.count(len(columns) - SHOWN, "more column")
        return _display.table(f"{self.location} v{self.version}", fields)

    def _counts(self) -> str:
        """`1,234,567 records, 10 shards of parquet`."""
        return f"{_display.count(self.records, 'record')}, {_display.count(len(self.shards), 'shard')} of {self.format}"

    def paths(self) -> list[str]:
        """Paths or URLs of the shards, in the order of their records."""
        return [f"{self.location.rstrip('/')}/{shard.path}" for shard in self.shards]

    def split(self, name: str) -> Dataset:
        """The shards in folders `split=NAME`. A name that the dataset does not have is an error that says which it has."""
        division = self.settings.get("split")
        known = [str(part) for part, _ in division["shares"]] if division else self._folders("split")
        if not known:
            raise UsageError(
                f"expected a dataset that is divided, found one that is not: {self.location}",
                hints=["`convert --split train=0.9,val=0.1` divides the records of a new dataset"],
            )
        if name not in known:
            raise unknown("part", name, known)
        return self._part({"split": name})

    def part(self, **values: str) -> Dataset:
        """The shards in folders `key=value` of these keys and values. Those that no shard has are an error that says which there are."""
        for key, value in values.items():
            known = self._folders(key)
            if not known:
                keys = {word.split("=", 1)[0] for shard in self.shards for word in shard.path.split("/")[:-1] if "=" in word}
                raise unknown("folder", f"{key}=", [f"{one}=" for one in sorted(keys)])
            if str(value) not in known:
                raise unknown("folder", f"{key}={value}", [f"{key}={one}" for one in known])
        return self._part(values)

    def _folders(self, key: str) -> list[str]:
        """The values of a key in the folders of the shards."""
        words = (word.split("=", 1) for shard in self.shards for word in shard.path.split("/")[:-1] if "=" in word)
        return sorted({value for one, value in words if one == key})

    def _part(self, values: Mapping[str, str]) -> Dataset:
        wanted = {f"{key}={value}" for key, value in values.items()}
        shards = tuple(shard for shard in self.shards if wanted <= set(shard.path.split("/")))
        return dataclasses.replace(self, shards=shards, chosen={**self.chosen, **values})

    def pandas(self, columns: Sequence[str] | None = None) -> pandas.DataFrame:
        """A `pandas.DataFrame` of Parquet shards: all of their records, in memory; of these columns only."""
        with needs("pandas"):
            import pandas  # noqa: F401

        frame: pandas.DataFrame = self.pyarrow().to_table(columns=columns).to_pandas()
        return frame

    def pyarrow(self) -> pyarrow.dataset.Dataset:
        """A `pyarrow.dataset.Dataset` of Parquet shards."""
        with needs("pyarrow"):
            import pyarrow.dataset
            import pyarrow.fs

        self._expect("parquet")
        system, root = None, self.location
        if "://" in self.location:
            system, root = pyarrow.fs.FileSystem.from_uri(self.location)
        paths = [f"{root.rstrip('/')}/{shard.path}" for shard in self.shards]
        shards = pyarrow.dataset.dataset(paths, format="parquet", filesystem=system)
        if len(paths) < 2:
            return shards
        # By itself, pyarrow takes the columns of the first shard for those of all.
        schemas = [shard.physical_schema for shard in shards.get_fragments()]
        united = pyarrow.unify_schemas(schemas, promote_options="permissive")
        return pyarrow.dataset.dataset(paths, schema=united, format="parquet", filesystem=system)

    def polars(self) -> Any:
        """A `polars.LazyFrame` of Parquet shards."""
        with needs("polars"):
            import polars

        self._expect("parquet")
        return polars.scan_parquet(self.paths())

    def duckdb(self, connection: Any = None) -> Any:
        """A `duckdb.DuckDBPyRelation` of Parquet shards."""
        with needs("duckdb"):
            import duckdb

        self._expect("parquet")
        return (connection or duckdb).read_parquet(self.paths(), union_by_name=True)

    def webdataset(self, **options: Any) -> Any:
        """A `webdataset.WebDataset` of tar shards. Unless given, `shardshuffle` is off, and ranks divide the shards."""
        with needs("webdataset"):
            import webdataset

        self._expect("tar")
        return webdataset.WebDataset(self.paths(), **{"shardshuffle": False, "nodesplitter": webdataset.split_by_node, **options})

    def tf(self, **options: Any) -> Any:
        """A `tf.data.TFRecordDataset` of serialized Examples."""
        with needs("tensorflow"):
            import tensorflow

        self._expect("tfrecord")
        codec = self.shards[0].codec.split(":")[0] if self.shards else "none"
        return tensorflow.data.TFRecordDataset(self.paths(), compression_type=COMPRESSIONS[codec], **options)

    def ray(self, **options: Any) -> Any:
        """A `ray.data.Dataset`. Its batches of NumPy have 0 for values of tensors that are null, which is warned of;
        `batch_format="pyarrow"` has the nulls."""
        with needs("ray"):
            import ray.data

        if self.format == "parquet":
            from ._tensors import tensors_with_nulls

            names = tensors_with_nulls(self.paths())
            if names:
                where = ", ".join(f"`{name}`" for name in names)
                told = f"batches of Ray in NumPy have 0 for values that are null in tensors of {where}"
                warnings.warn(f'{told}; batch_format="pyarrow" has the nulls', ShardifyWarning, stacklevel=2)
        read = {"parquet": "read_parquet", "tar": "read_webdataset", "tfrecord": "read_tfrecords"}[self.format]
        return getattr(ray.data, read)(self.paths(), **options)

    def huggingface(self, **options: Any) -> Any:
        """A `datasets.Dataset`, or an `IterableDataset` with `streaming=True`. Tensors are features `Array2D` to `Array5D`, in which a null
        is an error unless `fill={"column": value}` has a value for it."""
        with needs("huggingface"):
            import datasets

        if self.format == "parquet" and self.shards and not {"data_files", "features"} & set(options):
            from . import _huggingface

            if "fill" in options or _huggingface.has_tensors(self.paths()[0]):
                return _huggingface.load(self.paths(), [shard.blake3 for shard in self.shards], **options)
        builder = {"parquet": "parquet", "tar": "webdataset"}.get(self.format)
        if builder is None:
            raise TypeError(f"Hugging Face datasets read Parquet and tar, found {self.format}")
        return datasets.load_dataset(builder, data_files=self.paths(), **{"split": "train", **options})

    def loader(
        self,
        *,
        global_batch_size: int,
        seed: int,
        columns: Sequence[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        memory: str | int = "2GiB",
        threads: int | None = None,
        drop_last: bool = True,
        shuffle: bool = True,
        lanes: int | None = None,
        window: int | None = None,
        block: int | None = None,
        fill: Mapping[str, Any] | None = None,
    ) -> Loader:
        """A [`Loader`](shardify.loader.Loader): batches in memory that NumPy, torch and Arrow share, in a reproducible order.

        - `global_batch_size`: records of a step over all ranks, of which each rank gets an equal part.
        - `seed`, `shuffle`: the order follows from the seed and the epoch, or is that of the records.
        - `columns`: only these columns of Parquet, or parts of tar.
        - `rank`, `world_size`: of data parallelism; by default of torch.distributed, else `$RANK` and `$WORLD_SIZE`, else 0 of 1.
        - `memory`, `threads`: limits of this process; they never change the order.
        - `drop_last`: leaves out the records that do not fill a step, other ones in each epoch; else the last step is shorter.
        - `lanes`, `window`, `block`: parameters of the order, see `shardify.Order`; by default they follow from the version and the batch.
        - `fill`: what stands for nulls in arrays, by the name of the column. Without it, nulls are errors, except in `batch.arrow()`.
        """
        from .loader import Loader

        more: dict[str, Any] = {"lanes": lanes, "window": window, "block": block, "fill": fill, "memory": memory, "threads": threads}
        dealt: dict[str, Any] = {"rank": rank, "world_size": world_size, "drop_last": drop_last, "shuffle": shuffle}
        return Loader(self, global_batch_size=global_batch_size, seed=seed, columns=columns, **dealt, **more)

    def replay(
        self,
        run: str,
        *,
        without: Iterable[str],
        columns: Sequence[str] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        memory: str | int = "2GiB",
        threads: int | None = None,
        fill: Mapping[str, Any] | None = None,
    ) -> Loader:
        """A [`Loader`](shardify.loader.Loader) that repeats a recorded run from its newest clean checkpoint on, without some records.

            loader = shardify.open("shards", at="run/run-7").replay("run-7", without=["PAT-00023"])
            if loader.replays["checkpoint"]:
                load(model, loader.replays["checkpoint"]["name"])
            with loader.record("run-8"):
                ...

        The steps and the order are those of the run; the slots of the records stay empty, and no other record moves. So it ends with the
        weights of the same training from step 0 with these slots empty, if the trainer is deterministic.

        - `run`: name of the run.
        - `without`: record ids, subject ids or origins of the records.

        Raises UsageError: if no step of the run saw one of them, or if this is not the version of the run, or its split.
        """
        from ._calls import find_in_runs
        from .loader import Loader

        (seen,) = find_in_runs(self.location, list(without), run=run)
        if not seen:
            raise UsageError(f"expected records that the training run {run} saw, found none: its weights are those without them")
        known = _program.run(["runs", "--", os.fspath(self.location), run])[-1]
        if (seen.version, known.get("split")) != (self.version, self.chosen.get("split")):
            of_split = f".split({known['split']!r})" if known.get("split") else ""
            raise UsageError(
                f"expected the version that the training run {run} reads, v{seen.version}, found v{self.version}",
                hints=[f"`shardify.open({self.location!r}, at={seen.version}){of_split}.replay({run!r}, ...)`"],
            )
        order, batch = known["order"], known["global_batch_size"]
        chosen = {name: order[name] for name in ("seed", "shuffle", "lanes", "window", "block")}
        limits: dict[str, Any] = {"rank": rank, "world_size": world_size, "memory": memory, "threads": threads, "fill": fill}
        numbers: list[int] = seen.raw["numbers"]
        loader = Loader(self, global_batch_size=batch, drop_last=known["drop_last"], columns=columns, without=numbers, **chosen, **limits)
        clean = seen.clean_checkpoint
        loader.replays = {"run": run, "id": known["run_id"], "step": clean["step"] if clean else 0, "checkpoint": clean}
        if clean:
            loader.go_on(clean["epoch"], clean["turn"])
        return loader

    def torch(self, *, global_batch_size: int, seed: int, **options: Any) -> TorchSteps:
        """The loader as an iterable dataset of torch: `DataLoader(data.torch(global_batch_size=256, seed=1), batch_size=None)`.

        It has the options of `loader`; `.torch(...).loader` is the loader, which has the state.
        """
        return self.loader(global_batch_size=global_batch_size, seed=seed, **options).torch()

    def map_style(
        self,
        *,
        columns: Sequence[str] | None = None,
        fill: Mapping[str, Any] | None = None,
        threads: int | None = None,
    ) -> Records:
        """[`Records`](shardify.records.Records): a sequence of records by position, and a map-style dataset of torch.

        - `columns`: only these columns of Parquet, or parts of tar.
        - `fill`: what stands for nulls, by the name of the column. Without it, nulls are errors.
        - `threads`: how many read the records of a batch.
        """
        from .records import Records

        return Records(self, columns=columns, fill=fill, threads=threads)

    def take(
        self,
        positions: Iterable[SupportsIndex],
        *,
        columns: Sequence[str] | None = None,
        fill: Mapping[str, Any] | None = None,
    ) -> Batch:
        """The records at some positions of the list, in this order, as a [`Batch`](shardify.loader.Batch).

        What is known of the shards is kept from one call to the next. `columns` and `fill` are those of `map_style`.

        Raises IndexError: if a position is negative, or there is no record at it.
        """
        key = None if columns is None else tuple(columns)
        if key not in self._records:
            self._records[key] = self.map_style(columns=columns)
        return self._records[key].take(positions, fill)

    @functools.cached_property
    def _records(self) -> dict[tuple[str, ...] | None, Records]:
        """The records that were taken from, by their columns."""
        return {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Says which method stands for a name that other packages have."""
            hint = INSTEAD.get(name)
            words = f"; there is `{hint}`" if hint else ""
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{words}", name=name, obj=self)

    def _expect(self, format: str) -> None:
        if self.format != format:
            raise TypeError(f"expected shards of {format}, found {self.format}")


def unknown(what: str, name: str, known: list[str]) -> UsageError:
    """The error about a name that the dataset does not have."""
    there = ", ".join(known) or "none"
    near = difflib.get_close_matches(name, known, 1)
    hints = [f"did you mean `{one}`?" for one in near]
    return UsageError(f"expected a {what} of the dataset ({there}), found `{name}`", hints=hints)


def open(location: str | os.PathLike[str], at: When | None = None) -> Dataset:
    """Opens a version of a dataset: a number, `v12`, a tag or a time; the newest by default."""
    place = os.fspath(location)
    version = [] if at is None else [f"--at={text('at', at)}"]
    summary = _program.run(["manifest", *version, "--", place])[-1]
    # The newest version may change between the two calls.
    exact = f"--at=v{summary['version']}"
    listed = [one for one in _program.run(["manifest", "--list", exact, "--", place]) if one.get("type") == "shard"]
    listed.sort(key=lambda one: one["first_record"])
    names = [field.name for field in dataclasses.fields(Shard)]
    return Dataset(
        location=summary["dataset"],
        version=summary["version"],
        format=summary["settings"]["shard_format"],
        shards=tuple(Shard(**{name: one[name] for name in names}) for one in listed),
        settings=summary["settings"],
        pinned=at is not None,
    )
