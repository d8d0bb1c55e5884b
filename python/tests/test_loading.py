"""Every record once an epoch, with any ranks, workers, stops and resumes."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import io
import pickle
import random
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shardify
from shardify import _values, loading

COMBINATIONS = 1_000


def dataset(records: list[int]) -> shardify.Dataset:
    """A version whose shards have so many records."""
    shards = tuple(shardify.Shard(f"{i}", count, 1, "none", "") for i, count in enumerate(records))
    return shardify.Dataset("nowhere", 1, "parquet", shards, {})


@dataclasses.dataclass
class Worker:
    id: int
    num_workers: int


def numbers(path: str, start: int, end: int, wanted: object):
    shard = path.rsplit("/", 1)[1]
    return ((shard, number) for number in range(start, end))


def batches_of(data: loading.ShardDataset, workers: int, size: int):
    """Batches of a rank in the order of a DataLoader."""
    if workers == 0:
        streams = [list(data)]
    else:
        streams = []
        for number in range(workers):
            with mock.patch.object(loading, "get_worker_info", lambda number=number: Worker(number, workers)):
                streams.append(list(data))
    queues = [[stream[at : at + size] for at in range(0, len(stream), size)] for stream in streams]
    while any(queues):
        for queue in queues:
            if queue:
                yield queue.pop(0)


class Dealing(unittest.TestCase):
    def test_parts_are_even_and_complete(self) -> None:
        rng = random.Random(1)
        for _ in range(COMBINATIONS):
            at, left = 0, []
            for _ in range(rng.randrange(6)):
                at += rng.randrange(1, 20)
                left.append((at, at := at + rng.randrange(1, 50)))
            consumers = rng.randrange(1, 12)
            parts = loading.deal(left, consumers)
            lengths = [sum(end - start for start, end in part) for part in parts]
            self.assertLessEqual(max(lengths) - min(lengths), 1)
            joined = [n for part in parts for start, end in part for n in range(start, end)]
            self.assertEqual(joined, [n for start, end in left for n in range(start, end)])

    def test_each_record_comes_once_whatever_stops_and_resumes(self) -> None:
        rng = random.Random(2)
        with mock.patch.dict(loading.READERS, {"parquet": numbers}):
            for number in range(COMBINATIONS):
                version = dataset([rng.randrange(1, 40) for _ in range(rng.randrange(1, 9))])
                expected = sorted((shard.path, n) for shard in version.shards for n in range(shard.records))
                seen, states, epoch = [], None, rng.randrange(5)
                for _ in range(rng.randrange(1, 5)):
                    states, seen = self.go_on(rng, version, number, epoch, states, seen, stop=True)
                _, seen = self.go_on(rng, version, number, epoch, states, seen, stop=False)
                self.assertEqual(sorted(seen), expected)

    def go_on(self, rng, version, seed, epoch, states, seen, stop):
        ranks, workers, size = rng.randrange(1, 5), rng.randrange(0, 4), rng.randrange(1, 8)
        new, steps = [], rng.randrange(0, 6)
        for rank in range(ranks):
            data = version.torch(seed=seed, rank=rank, ranks=ranks)
            data.set_epoch(epoch)
            if states is not None:
                data.load_state_dict(states)
            count = 0
            for batch in batches_of(data, workers, size):
                if stop and count == steps:
                    break
                seen = [*seen, *batch]
                count += 1
            new.append(data.state_dict(batches=count, batch_size=size, workers=workers))
        return new, seen

    def test_epochs_have_other_orders_and_the_same_twice(self) -> None:
        version = dataset([3] * 20)
        with mock.patch.dict(loading.READERS, {"parquet": numbers}):
            data = version.torch(seed=3)
            first = list(data)
            self.assertEqual(list(data), first)
            data.set_epoch(1)
            self.assertNotEqual(list(data), first)
            self.assertEqual(sorted(data), sorted(first))
            self.assertEqual(len(data), 60)
            self.assertEqual([shard for shard, _ in version.torch(shuffle=False)][::3], [str(i) for i in range(20)])

    def test_states_that_do_not_belong_together_are_refused(self) -> None:
        version = dataset([10, 10])
        one, other = version.torch(rank=0, ranks=2), version.torch(rank=1, ranks=2)
        states = [one.state_dict(1), other.state_dict(1)]
        for wrong in ([states[0], states[0]], [{**states[0], "seed": 9}], [states[0], {**states[1], "epoch": 3}]):
            with self.assertRaises(ValueError):
                version.torch().load_state_dict(wrong)


class Helping(unittest.TestCase):
    def test_options_are_named(self) -> None:
        import inspect

        mine, theirs = (inspect.signature(one).parameters for one in (shardify.Dataset.torch, loading.ShardDataset))
        self.assertEqual({name: one.default for name, one in mine.items()}, {"self": inspect.Parameter.empty} | _defaults(theirs))
        for name in list(mine)[1:]:
            self.assertIn(f"`{name}`", shardify.Dataset.torch.__doc__ or "")

    def test_names_of_other_packages_say_what_there_is(self) -> None:
        version = dataset([1])
        for name, there in (("to_pandas", r"\.pandas\(\)"), ("load", r"\.torch\(\)"), ("other", "'other'$")):
            with self.assertRaisesRegex(AttributeError, there):
                getattr(version, name)
        self.assertEqual(pickle.loads(pickle.dumps(version)), version)
        self.assertFalse(hasattr(version, "to_pandas"))


def _defaults(parameters) -> dict[str, object]:
    return {name: one.default for name, one in parameters.items() if name != "dataset"}


class Reading(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def test_every_format_and_codec_is_read_from_any_record(self) -> None:
        raw = self.folder / "raw.csv"
        raw.write_text("id,text\n" + "".join(f"{i},{random.Random(i).random()}{'x' * (i % 90)}\n" for i in range(3000)))
        for form, codec in (
            ("parquet", "zstd"),
            ("tar", "none"),
            ("tar", "gzip"),
            ("tar", "zstd"),
            ("tfrecord", "none"),
            ("tfrecord", "gzip"),
        ):
            if codec == "zstd" and form == "tar" and importlib.util.find_spec("zstandard") is None:
                continue
            out = self.folder / f"{form}-{codec}"
            shardify.convert(raw, out=out, to=form, codec=codec, id="id", target_shard="20KiB")
            version = shardify.open(out)
            self.assertGreater(len(version.shards), 1)
            whole = list(version.torch(shuffle=False))
            self.assertEqual(len(whole), 3000)
            if form == "parquet":
                self.assertEqual([row["id"] for row in whole], list(range(3000)))
            for consumers in (2, 7):
                parts = [list(version.torch(shuffle=False, rank=rank, ranks=consumers)) for rank in range(consumers)]
                self.assertEqual([one for part in parts for one in part], whole)

    def test_a_data_loader_takes_it(self) -> None:
        if importlib.util.find_spec("torch") is None:
            self.skipTest("torch is not installed")
        from torch.utils.data import DataLoader

        raw = self.folder / "raw.csv"
        raw.write_text("id,value\n" + "".join(f"{i},{i}.5\n" for i in range(1003)))
        shardify.convert(raw, out=self.folder / "out", target_shard="2KiB", write="row-group=64KiB")
        version = shardify.open(self.folder / "out")
        for workers in (0, 1, 3):
            seen, data = [], version.torch(seed=5)
            loader = DataLoader(data, batch_size=8, num_workers=workers)
            for step, batch in enumerate(loader):
                seen += batch["id"].tolist()
                if step == 20:
                    state = data.state_dict(batches=21, batch_size=8, workers=workers)
                    break
            for rank in range(2):
                rest = version.torch(seed=5, rank=rank, ranks=2)
                rest.load_state_dict(state)
                seen += [row["id"] for row in rest]
            self.assertEqual(sorted(seen), list(range(1003)))


def missing(*modules: str) -> bool:
    """Whether a test cannot run, which is told."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if absent:
        print(f"NOT RUN: {', '.join(absent)}: it is not installed")
    return bool(absent)


@unittest.skipIf(missing("numpy", "pyarrow"), "numpy or pyarrow is not installed")
class Values(unittest.TestCase):
    """Rows as batches take them, against the table that was converted."""

    ROWS = 60

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def table(self, **columns):
        import pyarrow

        return pyarrow.table({"id": list(range(self.ROWS)), **columns})

    def version(self, table, **options) -> shardify.Dataset:
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, self.folder / "raw.parquet")
        shardify.convert(self.folder / "raw.parquet", out=self.folder / "out", id="id", target_shard="1KiB", **options)
        version = shardify.open(self.folder / "out")
        self.assertGreaterEqual(len(version.shards), 3)
        return version

    def tensors(self, kind: str, shape: tuple[int, ...]):
        """An array of NumPy, and the column of tensors of it."""
        import numpy
        import pyarrow

        count = self.ROWS * int(numpy.prod(shape))
        block = (numpy.random.default_rng(1).integers(0, 2 if kind == "bool" else 99, count)).astype(kind).reshape(self.ROWS, *shape)
        storage = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(block.ravel()), int(numpy.prod(shape)))
        tensor = pyarrow.fixed_shape_tensor(storage.type.value_type, shape)
        return block, pyarrow.ExtensionArray.from_storage(tensor, storage)

    def test_tensors_have_the_stored_shape_and_type(self) -> None:
        import numpy

        kinds = {
            "uint8": (2, 3, 2),
            "int16": (4,),
            "uint32": (2, 2),
            "int64": (3, 1),
            "float16": (2, 3),
            "float32": (5,),
            "float64": (2, 2),
        }
        made = {name: self.tensors(name, shape) for name, shape in kinds.items()}
        version = self.version(self.table(**{name: column for name, (_, column) in made.items()}))
        rows = list(version.torch(shuffle=False))
        for name, (block, _) in made.items():
            read = numpy.stack([row[name] for row in rows])
            self.assertEqual((name, read.dtype, read.shape), (name, block.dtype, block.shape))
            numpy.testing.assert_array_equal(read, block)
        rows[0]["uint8"][:] = 0  # a row may be changed, and changes no other
        numpy.testing.assert_array_equal(rows[1]["uint8"], made["uint8"][0][1])

    def test_parts_that_are_arrays_are_read_from_tar(self) -> None:
        import numpy

        for number in range(12):
            stored = io.BytesIO()
            numpy.save(stored, numpy.full((2, 3), number, "int16"))
            (self.folder / f"{number:02}.grid.npy").write_bytes(stored.getvalue())
            (self.folder / f"{number:02}.txt").write_text(f"text {number}")
        shardify.convert(self.folder, out=self.folder / "out", to="tar", include=["*.npy", "*.txt"], target_shard="4KiB")
        version = shardify.open(self.folder / "out")
        self.assertGreaterEqual(len(version.shards), 3)
        for number, sample in enumerate(version.torch(shuffle=False)):
            self.assertEqual(sample["txt"], f"text {number}".encode())
            self.assertEqual((sample["grid.npy"].dtype.name, sample["grid.npy"].tolist()), ("int16", [[number] * 3] * 2))
        self.assertIsInstance(next(iter(version.torch(values="python")))["grid.npy"], bytes)

    def test_numbers_dates_times_and_nested_values(self) -> None:
        import pyarrow

        def every(value: object, kind: pyarrow.DataType):
            return pyarrow.array([value] * self.ROWS, kind)

        day, moment = datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 12, 30, 1, 5)
        version = self.version(
            self.table(
                small=every(7, pyarrow.int8()),
                single=every(1.5, pyarrow.float32()),
                whole=every(2**63 + 1, pyarrow.uint64()),
                flag=every(True, pyarrow.bool_()),
                day=every(day, pyarrow.date32()),
                moment=every(moment, pyarrow.timestamp("us")),
                text=every("ü", pyarrow.string()),
                data=every(b"\0a", pyarrow.binary()),
                points=every([1.0, 2.0], pyarrow.list_(pyarrow.float32())),
                words=every(["a", "b"], pyarrow.list_(pyarrow.string())),
                box=every({"left": 1, "day": day}, pyarrow.struct([("left", pyarrow.int32()), ("day", pyarrow.date32())])),
            )
        )
        days = (day - datetime.date(1970, 1, 1)).days
        moments = int((moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(microseconds=1))
        for row in version.torch():
            types = {name: getattr(value, "dtype", type(value)) for name, value in row.items()}
            self.assertEqual([str(types[name]) for name in ("small", "single", "day", "points")], ["int8", "float32", "int32", "float32"])
            self.assertEqual([types[name] for name in ("id", "whole", "flag", "moment")], [int, int, bool, int])
            self.assertEqual((row["small"], row["single"], row["whole"], row["flag"]), (7, 1.5, 2**63 + 1, True))
            self.assertEqual((row["day"], row["moment"], row["text"], row["data"]), (days, moments, "ü", b"\0a"))
            self.assertEqual((row["points"].tolist(), row["words"], row["box"]), ([1, 2], ["a", "b"], {"left": 1, "day": days}))
        python = next(iter(version.torch(shuffle=False, values="python")))
        self.assertEqual((python["day"], python["moment"], python["points"]), (day, moment, [1.0, 2.0]))

    def test_a_null_is_an_error_that_says_what_to_do_or_is_filled(self) -> None:
        import numpy

        ages = [None if number == 41 else number for number in range(self.ROWS)]
        texts = [None if number % 2 else f"{number}" for number in range(self.ROWS)]
        lists = [None if number % 3 == 0 else [number, number] for number in range(self.ROWS)]
        boxes = [None if number % 5 == 0 else {"left": None if number % 2 else number} for number in range(self.ROWS)]
        version = self.version(self.table(age=ages, text=texts, many=lists, box=boxes))
        fill = {"age": -1, "text": "", "many": numpy.zeros(2, "int64"), "box": {"left": -2}, "box.left": -3}
        rows = list(version.torch(shuffle=False, fill=fill))
        self.assertEqual([row["age"] for row in rows], [-1 if age is None else age for age in ages])
        self.assertEqual([row["text"] for row in rows], [text or "" for text in texts])
        self.assertEqual([row["many"].tolist() for row in rows], [one or [0, 0] for one in lists])
        lefts = [-2 if one is None else -3 if one["left"] is None else one["left"] for one in boxes]
        self.assertEqual([row["box"]["left"] for row in rows], lefts)
        with self.assertRaises(shardify.UsageError) as raised:
            list(version.torch(shuffle=False, columns=["age", "many"], fill={"many": 0}))
        said = str(raised.exception)
        for part in ("null in `age`", "fill={'age': ...}", "columns=[...]", 'values="python"', ".parquet"):
            self.assertIn(part, said)
        with self.assertRaisesRegex(shardify.UsageError, "box.left"):
            list(version.torch(columns=["box"], fill={"box": {"left": 0}}))
        with self.assertRaisesRegex(shardify.UsageError, "expected a value of int64"):
            list(version.torch(columns=["age"], fill={"age": "none"}))
        with self.assertRaisesRegex(shardify.UsageError, "did you mean `age`"):
            version.torch(fill={"agee": 0})
        self.assertEqual([row["age"] for row in version.torch(shuffle=False, values="python")], ages)

    def test_a_tensor_that_is_null_is_filled(self) -> None:
        import pyarrow

        _, column = self.tensors("int16", (2, 2))
        values = [None if number == 7 else one for number, one in enumerate(column.storage.to_pylist())]
        grids = pyarrow.ExtensionArray.from_storage(column.type, pyarrow.array(values, column.storage.type))
        # A piece of a batch begins inside of its buffers.
        batch = pyarrow.record_batch([grids], ["grid"]).slice(5)
        rows = list(_values.rows(batch, {"grid": 9}))
        self.assertEqual(rows[2]["grid"].tolist(), [[9, 9], [9, 9]])
        self.assertEqual([row["grid"].ravel().tolist() for row in rows[3:]], values[8:])
        with self.assertRaisesRegex(shardify.UsageError, "null in `grid`"):
            _values.rows(batch, {})

    def grids(self, kind, shape: tuple[int, ...], lacking: bool = True, **options):
        """An array of NumPy, which of its values are missing, and the column of tensors of it, of which one is null."""
        import numpy
        import pyarrow

        rng, size = numpy.random.default_rng(3), int(numpy.prod(shape))
        block = rng.integers(1, 2 if pyarrow.types.is_boolean(kind) else 99, (self.ROWS, size))
        mask = rng.random((self.ROWS, size)) < 0.2
        mask[::4] = False
        values = pyarrow.array(block.ravel()).cast(pyarrow.int32() if kind == pyarrow.date32() else pyarrow.int64()).cast(kind)
        items = pyarrow.array([None if hole else one for one, hole in zip(values.to_pylist(), mask.ravel().tolist(), strict=True)], kind)
        storage = pyarrow.FixedSizeListArray.from_arrays(items, size)
        if lacking:
            mask[7] = True
            storage = pyarrow.array([None if row == 7 else one for row, one in enumerate(storage.to_pylist())], storage.type)
        column = pyarrow.ExtensionArray.from_storage(pyarrow.fixed_shape_tensor(kind, shape, **options), storage)
        logical = tuple(column.type.permutation or range(len(shape)))
        axes = (0, *(at + 1 for at in logical))
        return block.reshape(-1, *shape).transpose(axes), mask.reshape(-1, *shape).transpose(axes), column

    def test_nulls_inside_of_tensors_are_an_error_or_filled_or_masked(self) -> None:
        import numpy
        import pyarrow

        kinds = (pyarrow.int8(), pyarrow.uint16(), pyarrow.int64(), pyarrow.bool_(), pyarrow.date32(), pyarrow.timestamp("us"))
        for kind in kinds:
            for shape, options in (((2, 3), {}), ((4,), {}), ((2, 3, 2), {"permutation": [2, 0, 1]})):
                block, mask, column = self.grids(kind, shape, **options)
                for start in (0, 5):
                    with self.subTest(kind=kind, shape=shape, start=start):
                        batch = pyarrow.record_batch([column], ["flag"]).slice(start)
                        expected, holes = block[start:], mask[start:]
                        first = pyarrow.array([1], pyarrow.int32() if kind == pyarrow.date32() else pyarrow.int64()).cast(kind)[0].as_py()
                        rows = list(_values.rows(batch, {"flag": first}))
                        numpy.testing.assert_array_equal(numpy.stack([row["flag"] for row in rows]), numpy.where(holes, 1, expected))
                        rows = list(_values.rows(batch, {}, masks=True))
                        numpy.testing.assert_array_equal(numpy.stack([row["flag"] for row in rows]), numpy.where(holes, 0, expected))
                        numpy.testing.assert_array_equal(numpy.stack([row["flag/mask"] for row in rows]), holes)
                        self.assertEqual({row["flag/mask"].dtype.name for row in rows}, {"bool"})
                        with self.assertRaisesRegex(shardify.UsageError, "null in `flag`"):
                            _values.rows(batch, {})
                        with self.assertRaisesRegex(shardify.UsageError, r"element of tensors.*null in `flag`[\s\S]*masks=True"):
                            _values.rows(batch.slice(10), {})

    def test_what_fills_tensors_is_an_array_or_a_value_of_their_type(self) -> None:
        import numpy
        import pyarrow

        block, mask, column = self.grids(pyarrow.int8(), (2, 3))
        batch = pyarrow.record_batch([column], ["flag"])
        grid = numpy.arange(-6, 0).reshape(2, 3)
        rows = list(_values.rows(batch, {"flag": grid}))
        numpy.testing.assert_array_equal(numpy.stack([row["flag"] for row in rows]), numpy.where(mask, grid, block))
        rows = list(_values.rows(batch, {"flag": 0, "flag[]": -1}))
        absent = numpy.arange(self.ROWS).reshape(-1, 1, 1) == 7
        found = numpy.stack([row["flag"] for row in rows])
        numpy.testing.assert_array_equal(found, numpy.where(absent, 0, numpy.where(mask, -1, block)))
        self.assertEqual(found.dtype.name, "int8")
        for wrong in (-1.5, 300, "x", None, [1, 2, 3, 4]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(shardify.UsageError, "to fill nulls with"):
                list(_values.rows(batch, {"flag": wrong}))
        with self.assertRaisesRegex(shardify.UsageError, "flag/mask"):
            _values.rows(pyarrow.record_batch([column, column], ["flag", "flag/mask"]), {}, masks=True)
        # Floats have NaN.
        block, mask, column = self.grids(pyarrow.float32(), (2, 3), lacking=False)
        batch = pyarrow.record_batch([column], ["t"])
        for fill, filled in (({}, numpy.nan), ({"t": -1}, -1)):
            rows = list(_values.rows(batch, fill, masks=True))
            self.assertEqual(list(rows[0]), ["t"])
            numpy.testing.assert_array_equal(numpy.stack([row["t"] for row in rows]), numpy.where(mask, numpy.float32(filled), block))

    def test_nulls_inside_of_lists_are_an_error_or_filled(self) -> None:
        import pyarrow

        pairs = [None if row == 3 else [None if row % 5 == 0 else row, row] for row in range(self.ROWS)]
        nested = [None if row == 3 else [[row, None], [row, row]] for row in range(self.ROWS)]
        fixed = pyarrow.list_(pyarrow.int16(), 2)
        version = self.version(
            self.table(pair=pyarrow.array(pairs, fixed), grid=pyarrow.array(nested, pyarrow.list_(fixed, 2)), many=pairs)
        )
        rows = list(version.torch(shuffle=False, fill={"pair": -1, "grid": -2, "many": [0], "many[]": -3}))
        self.assertEqual([row["pair"].tolist() for row in rows], [[-1 if v is None else v for v in one or [None] * 2] for one in pairs])
        grids = [[[-2 if v is None else v for v in line] for line in one or [[None] * 2] * 2] for one in nested]
        self.assertEqual([[line.tolist() for line in row["grid"]] for row in rows], grids)
        self.assertEqual([list(row["many"]) for row in rows], [[-3 if v is None else v for v in one] if one else [0] for one in pairs])
        self.assertEqual({row["pair"].dtype.name for row in rows}, {"int16"})
        for column, fill in (("pair", {"pair": [0, 0]}), ("grid", {"grid": [[0, 0]] * 2}), ("many", {"many": [0]})):
            with self.subTest(column=column), self.assertRaisesRegex(shardify.UsageError, f"null in `{column}\\["):
                list(version.torch(columns=[column], fill=fill))
        deep = version.torch(shuffle=False, columns=["grid"], fill={"grid": [[0, 0]] * 2, "grid[][]": 9})
        self.assertEqual([line.tolist() for line in next(iter(deep))["grid"]], [[0, 9], [0, 0]])

    @unittest.skipIf(missing("netCDF4"), "netCDF4 is not installed")
    def test_missing_values_of_netcdf_are_the_same_in_every_format(self) -> None:
        import netCDF4
        import numpy

        rng = numpy.random.default_rng(4)
        block, mask = rng.integers(0, 9, (6, 4, 4)).astype("int8"), rng.random((6, 4, 4)) < 0.3
        with netCDF4.Dataset(self.folder / "x.nc", "w") as made:
            for name, length in (("time", None), ("lat", 4), ("lon", 4)):
                made.createDimension(name, length)
            made.createVariable("flag", "i1", ("time", "lat", "lon"), fill_value=-127)[:] = numpy.ma.array(block, mask=mask)
        read = {"whole": "record-dim=time", "tar": "record-dim=time", "patch": ["record-dim=time", "patch=lat=2,lon=2"]}
        versions = {}
        for name, options in read.items():
            shardify.convert(self.folder / "x.nc", out=self.folder / name, read=options, to="tar" if name == "tar" else "parquet")
            versions[name] = shardify.open(self.folder / name)
        for name in ("whole", "patch"):
            with self.subTest(name=name), self.assertRaisesRegex(shardify.UsageError, "null in `flag`"):
                list(versions[name].torch())
        filled = [row["flag"] for row in versions["whole"].torch(shuffle=False, fill={"flag": -1})]
        numpy.testing.assert_array_equal(filled, numpy.where(mask, -1, block))
        patches = [row["flag"] for row in versions["patch"].torch(shuffle=False, fill={"flag": -1})]
        cut = numpy.where(mask, -1, block).reshape(6, 2, 2, 2, 2).transpose(0, 1, 3, 2, 4).reshape(-1, 2, 2)
        numpy.testing.assert_array_equal(patches, cut)
        masked = list(versions["whole"].torch(shuffle=False, masks=True))
        samples = list(versions["tar"].torch(shuffle=False))
        numpy.testing.assert_array_equal([row["flag/mask"] for row in masked], mask)
        numpy.testing.assert_array_equal([sample["flag.mask.npy"] for sample in samples], mask)
        numpy.testing.assert_array_equal([row["flag"] for row in masked], numpy.where(mask, 0, block))
        with self.assertRaisesRegex(shardify.UsageError, r"no `masks`[\s\S]*NAME.mask.npy"):
            versions["tar"].torch(masks=True)
        self.assertEqual(loading.tensors_with_nulls(versions["patch"].paths()), ["flag"])
        if not missing("datasets"):
            for streaming in (False, True):
                options = {"streaming": streaming, "cache_dir": str(self.folder / "cache")}
                with self.assertRaisesRegex(shardify.UsageError, r"null in `flag`[\s\S]*huggingface\(fill="):
                    list(versions["whole"].huggingface(**options))
                rows = list(versions["whole"].huggingface(fill={"flag": -1}, **options))
                numpy.testing.assert_array_equal([row["flag"] for row in rows], numpy.where(mask, -1, block))
            with self.assertRaisesRegex(shardify.UsageError, "did you mean `flag`"):
                versions["whole"].huggingface(fill={"flagg": -1})

    def samples(self, form: str, name: str = "out", **options) -> shardify.Dataset:
        """Samples with keys that have a dot, of which each has a class, and a picture of one of two kinds."""
        raw = self.folder / "files"
        raw.mkdir(exist_ok=True)
        for number in range(12):
            (raw / f"scan {number:02}.5mm.{'png' if number % 3 else 'jpg'}").write_bytes(b"picture %d" % number)
            (raw / f"scan {number:02}.5mm.cls").write_text(f"{number - 1}\n" if number != 5 else "cat")
        shardify.convert(raw, out=self.folder / name, to=form, key="last-dot", **options)
        return shardify.open(self.folder / name)

    def test_parts_that_samples_lack_are_an_error_or_filled_in_all_formats(self) -> None:
        for form in ("tar", "parquet"):
            version = self.samples(form, form)
            with self.assertRaisesRegex(shardify.UsageError, r"jpg.*png[\s\S]*'jpg': [\s\S]*columns=[\s\S]*python"):
                list(version.torch(shuffle=False))
            with self.assertRaisesRegex(shardify.UsageError, "jpg"):
                list(version.torch(shuffle=False, columns=["__key__", "jpg"]))
            rows = list(version.torch(shuffle=False, fill={"jpg": b"", "png": b"none"}))
            pictures = [(b"", b"picture %d" % n) if n % 3 else (b"picture %d" % n, b"none") for n in range(12)]
            self.assertEqual([(row["jpg"], row["png"]) for row in rows], pictures)
            few = list(version.torch(shuffle=False, columns=["__key__", "jpg"], fill={"jpg": b"", "png": b""}))
            self.assertEqual({tuple(sorted(row)) for row in few}, {("__key__", "jpg")})
        bare = list(shardify.open(self.folder / "tar").torch(shuffle=False, values="python"))
        self.assertEqual([sorted(one) for one in bare[:2]], [["__key__", "cls", "jpg"], ["__key__", "cls", "png"]])
        if not missing("torch"):
            from torch.utils.data import DataLoader

            data = shardify.open(self.folder / "tar").torch(shuffle=False, columns=["jpg"], fill={"jpg": b""})
            batch = next(iter(DataLoader(data, batch_size=4)))
            self.assertEqual(batch["jpg"], [b"picture 0", b"", b"", b"picture 3"])

    def test_a_class_is_a_number_in_all_formats(self) -> None:
        for form, other in (("tar", b"cat"), ("parquet", "cat")):
            found = [row["cls"] for row in self.samples(form, form).torch(shuffle=False, columns=["cls"])]
            self.assertEqual(found, [n - 1 if n != 5 else other for n in range(12)])
            self.assertEqual([type(one) for one in found[:2]], [int, int])
            raw = next(iter(shardify.open(self.folder / form).torch(shuffle=False, values="python")))
            self.assertEqual(raw["cls"], b"-1\n" if form == "tar" else "-1\n")
        for form in ("tar", "parquet"):
            rows = self.samples(form, f"{form}-2", exclude="*01.5mm.cls").torch(shuffle=False, columns=["cls"], fill={"cls": -9})
            self.assertEqual([row["cls"] for row in rows][:3], [-1, -9, 1])
        # A column of a table is what it is.
        version = self.version(self.table(cls=["7"] * self.ROWS))
        self.assertEqual(next(iter(version.torch()))["cls"], "7")

    def test_keys_are_those_of_the_id_index(self) -> None:
        keys = [f"scan {number:02}.5mm" for number in range(12)]
        for name, options in (("plain", {}), ("dali", {"index": "dali", "on_name": "rename"})):
            version = self.samples("tar", name, **options)
            found = [sample["__key__"] for sample in version.torch(shuffle=False, columns=["cls"])]
            self.assertEqual(found, keys)
            self.assertEqual([hit.record_id for hit in shardify.find(self.folder / name, found[3])], [keys[3]])
        for key, plain in {
            "%": "",
            "%25": "%",
            "100%": "100%",
            "100%2525": "100%25",
            "a%2e": "a%2e",
            "%2E%2E/x": "../x",
            "%5F_init__": "__init__",
            "a%0Ab%C2%85%C3%A9%20c": "a\nb\u0085é c",
            "a%41": "a%41",
            "cut%C3-0123456789abcdef": "cut%C3-0123456789abcdef",
        }.items():
            self.assertEqual(loading._plain_key(key), plain)
        # Keys of shards that were adopted are as they are.
        import tarfile

        (self.folder / "theirs").mkdir()
        with tarfile.open(self.folder / "theirs" / "a.tar", "w") as tar:
            tar.addfile(tarfile.TarInfo("a%2Eb.txt"))
        shardify.adopt(self.folder / "theirs")
        self.assertEqual([sample["__key__"] for sample in shardify.open(self.folder / "theirs").torch()], ["a%2Eb"])

    def test_decimals_and_other_values_are_refused(self) -> None:
        import pyarrow

        version = self.version(self.table(price=pyarrow.array([1] * self.ROWS, pyarrow.decimal128(9, 2))))
        with self.assertRaisesRegex(shardify.UsageError, "--type price=float64"):
            next(iter(version.torch()))
        with self.assertRaisesRegex(shardify.UsageError, "numpy or python"):
            version.torch(values="pandas")
        with self.assertRaisesRegex(shardify.UsageError, "no `fill`"):
            version.torch(values="python", fill={"price": 0})

    def test_a_data_loader_stacks_them(self) -> None:
        if missing("torch"):
            self.skipTest("torch is not installed")
        from torch.utils.data import DataLoader

        block, column = self.tensors("float32", (2, 3))
        version = self.version(self.table(grid=column, age=[None, *range(1, self.ROWS)]))
        found = [batch for batch in DataLoader(version.torch(shuffle=False, fill={"age": 0}), batch_size=7, num_workers=2)]
        self.assertEqual(str(found[0]["grid"].dtype), "torch.float32")
        self.assertEqual(found[0]["grid"].shape[1:], (2, 3))
        read = {int(number): grid for batch in found for number, grid in zip(batch["id"], batch["grid"].numpy(), strict=True)}
        self.assertTrue(all((read[number] == block[number]).all() for number in range(self.ROWS)))
        with self.assertRaisesRegex(shardify.UsageError, "null in `age`"):
            list(DataLoader(version.torch(), batch_size=7, num_workers=1))

    def test_hugging_face_reads_tensors(self) -> None:
        if missing("datasets"):
            self.skipTest("datasets is not installed")
        made = {name: self.tensors("uint8", shape) for name, shape in {"line": (3,), "grid": (2, 3), "cube": (2, 2, 3)}.items()}
        version = self.version(self.table(**{name: column for name, (_, column) in made.items()}, age=[None, *range(1, self.ROWS)]))
        loaded = version.huggingface(cache_dir=str(self.folder / "cache"))
        for found in (loaded, version.huggingface(streaming=True)):
            rows = list(found)
            self.assertEqual(type(found.features["cube"]).__name__, "Array3D")
            for name, (block, _) in made.items():
                self.assertEqual([row[name] for row in rows], block.tolist())
            self.assertEqual([row["age"] for row in rows], [None, *range(1, self.ROWS)])
        few = version.huggingface(cache_dir=str(self.folder / "cache"), columns=["id", "grid"])
        self.assertEqual(list(few.features), ["id", "grid"])
        _, deep = self.tensors("uint8", (1, 1, 1, 1, 1, 2))
        shardify.convert(self.deep(deep), out=self.folder / "deep")
        with self.assertRaisesRegex(shardify.UsageError, "at most 5 dimensions"):
            shardify.open(self.folder / "deep").huggingface()

    def test_hugging_face_reads_nulls_and_permutations(self) -> None:
        if missing("datasets"):
            self.skipTest("datasets is not installed")
        import numpy
        import pyarrow
        from shardify import _huggingface

        for kind in (pyarrow.int16(), pyarrow.float32(), pyarrow.bool_()):
            for shape, options in (((2, 3), {}), ((4,), {}), ((2, 3, 2), {"permutation": [2, 0, 1]})):
                block, mask, column = self.grids(kind, shape, **options)
                batch = pyarrow.record_batch([column], ["flag"]).slice(5)
                target = _huggingface.features_of(batch.schema).arrow_schema
                with self.subTest(kind=kind, shape=shape):
                    one = pyarrow.array([1]).cast(kind)[0].as_py()
                    read = _huggingface.as_features(batch, target, {"flag": one}).column(0)
                    found = numpy.array(read.to_pylist()).reshape(-1, *block.shape[1:])
                    numpy.testing.assert_array_equal(found, numpy.where(mask[5:], 1, block[5:]))
                    if len(shape) > 1 and not pyarrow.types.is_floating(kind):
                        with self.assertRaisesRegex(shardify.UsageError, r"huggingface\(fill="):
                            _huggingface.as_features(batch, target, {})
                    else:
                        read = _huggingface.as_features(batch, target, {}).column(0)
                        self.assertTrue(read.is_null().to_pylist()[2])
                        rows = (read.storage if len(shape) > 1 else read).to_pylist()
                        flat = [one for row in (*rows[:2], *rows[3:]) for one in numpy.array(row, dtype=object).ravel()]
                        kept = numpy.delete(mask[5:], 2, axis=0).ravel()
                        self.assertEqual([one is None or one != one for one in flat], kept.tolist())

    def deep(self, column) -> Path:
        import pyarrow.parquet

        pyarrow.parquet.write_table(self.table(deep=column), self.folder / "deep.parquet")
        return self.folder / "deep.parquet"


if __name__ == "__main__":
    unittest.main()
