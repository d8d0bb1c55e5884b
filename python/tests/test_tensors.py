"""Tensors for readers of other projects: their shapes, and what stands for values that are missing."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shardify


def missing(*modules: str) -> bool:
    """Whether a test cannot run, which is told."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if absent:
        print(f"NOT RUN: {', '.join(absent)}: it is not installed")
    return bool(absent)


@unittest.skipIf(missing("numpy", "pyarrow"), "numpy or pyarrow is not installed")
class Tensors(unittest.TestCase):
    """Values as readers take them, against the table that was converted."""

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

    def test_a_tensor_that_is_null_is_filled(self) -> None:
        import pyarrow
        from shardify import _tensors

        _, column = self.tensors("int16", (2, 2))
        values = [None if number == 7 else one for number, one in enumerate(column.storage.to_pylist())]
        # A piece of a batch begins inside of its buffers.
        grids = pyarrow.ExtensionArray.from_storage(column.type, pyarrow.array(values, column.storage.type)).slice(5)
        block = _tensors.block_of(grids, "grid", {"grid": 9})
        self.assertEqual(block[2].tolist(), [[9, 9], [9, 9]])
        self.assertEqual([one.ravel().tolist() for one in block[3:]], values[8:])
        for kind in ("int16", "float32"):
            with self.assertRaisesRegex(shardify.UsageError, r"element of tensors.*null in `grid`[\s\S]*huggingface\(fill="):
                _tensors.block_of(_nulled(self.tensors(kind, (2, 2))[1]), "grid", {})

    def test_nulls_inside_of_tensors_are_an_error_or_filled(self) -> None:
        import numpy
        import pyarrow
        from shardify import _tensors

        for kind in (pyarrow.int8(), pyarrow.uint16(), pyarrow.int64(), pyarrow.bool_(), pyarrow.float32()):
            for shape, options in (((2, 3), {}), ((4,), {}), ((2, 3, 2), {"permutation": [2, 0, 1]})):
                block, mask, column = self.grids(kind, shape, lacking=False, **options)
                for start in (0, 5):
                    with self.subTest(kind=kind, shape=shape, start=start):
                        one = pyarrow.array([1]).cast(kind)[0].as_py()
                        found = _tensors.block_of(column[start:], "flag", {"flag": one})
                        numpy.testing.assert_array_equal(found, numpy.where(mask[start:], 1, block[start:]))
                        if pyarrow.types.is_floating(kind):
                            found = _tensors.block_of(column[start:], "flag", {})
                            numpy.testing.assert_array_equal(found, numpy.where(mask[start:], numpy.float32(numpy.nan), block[start:]))
                            continue
                        with self.assertRaisesRegex(shardify.UsageError, "null in `flag`"):
                            _tensors.block_of(column[start:], "flag", {})

    def test_what_fills_tensors_is_an_array_or_a_value_of_their_type(self) -> None:
        import numpy
        import pyarrow
        from shardify import _tensors

        block, mask, column = self.grids(pyarrow.int8(), (2, 3))
        grid = numpy.arange(-6, 0).reshape(2, 3)
        found = _tensors.block_of(column, "flag", {"flag": grid})
        numpy.testing.assert_array_equal(found, numpy.where(mask, grid, block))
        self.assertEqual(found.dtype.name, "int8")
        for wrong in (-1.5, 300, "x", None, [1, 2, 3, 4]):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(shardify.UsageError, "to fill nulls with"):
                _tensors.block_of(column, "flag", {"flag": wrong})

    @unittest.skipIf(missing("netCDF4", "datasets"), "netCDF4 or datasets is not installed")
    def test_missing_values_of_netcdf_are_named_and_filled(self) -> None:
        import netCDF4
        import numpy
        from shardify import _tensors

        rng = numpy.random.default_rng(4)
        block, mask = rng.integers(0, 9, (6, 4, 4)).astype("int8"), rng.random((6, 4, 4)) < 0.3
        with netCDF4.Dataset(self.folder / "x.nc", "w") as made:
            for name, length in (("time", None), ("lat", 4), ("lon", 4)):
                made.createDimension(name, length)
            made.createVariable("flag", "i1", ("time", "lat", "lon"), fill_value=-127)[:] = numpy.ma.array(block, mask=mask)
        shardify.convert(self.folder / "x.nc", out=self.folder / "out", read="record-dim=time", to="parquet")
        version = shardify.open(self.folder / "out")
        self.assertEqual(_tensors.tensors_with_nulls(version.paths()), ["flag"])
        for streaming in (False, True):
            options = {"streaming": streaming, "cache_dir": str(self.folder / "cache")}
            with self.assertRaisesRegex(shardify.UsageError, r"null in `flag`[\s\S]*huggingface\(fill="):
                list(version.huggingface(**options))
            rows = list(version.huggingface(fill={"flag": -1}, **options))
            numpy.testing.assert_array_equal([row["flag"] for row in rows], numpy.where(mask, -1, block))
        with self.assertRaisesRegex(shardify.UsageError, "did you mean `flag`"):
            version.huggingface(fill={"flagg": -1})

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


def _nulled(column):
    """A column of tensors of which one is null."""
    import pyarrow

    values = [None if number == 7 else one for number, one in enumerate(column.storage.to_pylist())]
    return pyarrow.ExtensionArray.from_storage(column.type, pyarrow.array(values, column.storage.type))


if __name__ == "__main__":
    unittest.main()
