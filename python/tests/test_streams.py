"""Tables of other packages as sources: what is known, what is refused, and whose exception is raised."""

from __future__ import annotations

import contextlib
import decimal
import os
import pickle
import sys
import tempfile
import threading
import time
import traceback
import unittest
import unittest.mock
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shardify
from test_package import needs

with contextlib.suppress(ImportError):
    import pyarrow
    import pyarrow.parquet


class OwnError(Exception):
    """What a producer raises."""


class Asked:
    """A table that counts how often it is asked for its stream."""

    def __init__(self, table: Any) -> None:
        self.table, self.times = table, 0

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        self.times += 1
        return self.table.__arrow_c_stream__(requested_schema)


@needs("pyarrow")
class Streams(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "shards"
        self.table = pyarrow.table({"id": range(100), "day": [f"day {row % 7}" for row in range(100)]})
        self.threads = set(threading.enumerate())

    def tearDown(self) -> None:
        left = [thread.name for thread in threading.enumerate() if thread not in self.threads and thread.name == "shardify-stream"]
        self.assertEqual(left, [])

    def convert(self, *tables: Any, **options: Any) -> Any:
        return shardify.convert(*tables, **{"name": "visits", "out": self.out, **options})

    def rows(self) -> list[dict[str, Any]]:
        return [row for path in shardify.open(self.out).paths() for row in pyarrow.parquet.read_table(path).to_pylist()]

    def test_a_table_is_a_source_and_the_same_rows_are_known(self) -> None:
        report = self.convert(self.table)
        self.assertEqual((report.records_out, report.sources), (100, 1))
        self.assertEqual(self.rows(), self.table.to_pylist())
        self.assertEqual(shardify.find(self.out, "visits#7")[0].origin, {"source": "visits", "row": 7, "uri": "stream:visits"})
        packed = pyarrow.table({"id": self.table["id"], "day": self.table["day"].dictionary_encode()})
        for again in (self.table, self.table.to_reader(7), packed, [self.table.slice(0, 40), self.table.slice(40)], iter([self.table])):
            self.assertEqual((self.convert(again).sources, self.convert(self.table).sources_unchanged), (0, 1))
        with self.assertRaises(shardify.ChangedError) as caught:
            self.convert(self.table.slice(1))
        self.assertEqual(caught.exception.source, "stream:visits")
        self.assertEqual(self.convert(self.table.slice(1), on_changed="replace").records_out, 99)

    def test_a_table_whose_tag_is_known_is_never_asked(self) -> None:
        table = Asked(self.table)
        self.convert(table, etag="v1")
        self.convert(table, etag="v1")
        self.assertEqual(table.times, 1)
        self.assertEqual(self.convert(table, etag="v2").sources_unchanged, 1)
        self.assertEqual(table.times, 2)

    def test_what_does_not_fit_is_refused_before_a_table_is_asked(self) -> None:
        table = Asked(self.table)
        for message, call in {
            "expected a name": lambda: shardify.convert(table, out=self.out),
            "expected paths or objects, found both": lambda: self.convert(table, "file.csv"),
            "expected objects with `name`": lambda: self.convert("file.csv"),
            "expected objects with `etag`": lambda: shardify.convert("file.csv", etag="v1", out=self.out),
            "an empty list": lambda: shardify.convert([], out=self.out),
            "found builtins.int": lambda: self.convert(7),
            "expected paths with from_='csv'": lambda: self.convert(table, from_="csv"),
            "expected no `end` in `read`": lambda: self.convert(table, read={"end": "any"}),
            "expected paths to plan": lambda: shardify.plan(table, out=self.out),
            "in `where`": lambda: self.convert(table, where="id >"),
        }.items():
            with self.assertRaisesRegex(shardify.UsageError, message):
                call()
        self.assertEqual((table.times, self.out.exists()), (0, False))

    def test_an_exception_of_a_producer_is_raised_as_it_is(self) -> None:
        def batches(end: int) -> Iterator[Any]:
            for _ in range(end):
                yield self.table.to_batches()[0]
            raise OwnError(end)

        for end in (0, 1, 3):
            for options in ({}, {"on_error": "skip"}):
                reader = pyarrow.RecordBatchReader.from_batches(self.table.schema, batches(end))
                try:
                    self.convert(reader, **options)
                except OwnError as error:
                    self.assertEqual(error.args, (end,))
                    self.assertIn("batches", [frame.name for frame in traceback.extract_tb(error.__traceback__)])
                else:
                    self.fail("expected the producer's exception, found none")
                with self.assertRaises(OwnError):
                    self.convert((pyarrow.Table.from_batches([batch]) for batch in batches(end)), **options)
        self.assertEqual(list(self.folder.glob("shards/_shardify/log/*.json")), [])

    def test_objects_have_one_schema(self) -> None:
        other = self.table.rename_columns(["id", "date"])
        with self.assertRaisesRegex(shardify.UsageError, "object 2: columns id, date in place of id, day"):
            self.convert(self.table, other)
        text = pyarrow.table({"id": ["a"], "day": ["b"]})
        with self.assertRaisesRegex(shardify.UsageError, "column `id` is string in place of int64"):
            self.convert([self.table, text])
        with self.assertRaisesRegex(shardify.UsageError, "expected a table, found a column"):
            self.convert(self.table["id"])
        with self.assertRaisesRegex(shardify.UsageError, "expected objects, found none"):
            self.convert(iter([]))
        nullable = self.table.cast(pyarrow.schema([field.with_nullable(False) for field in self.table.schema]))
        self.assertEqual(self.convert(self.table, nullable).records_out, 200)

    def test_large_batches_are_written_in_pieces(self) -> None:
        values = [f"{row:07}" * 40 for row in range(100_000)]
        for kind in (pyarrow.string(), pyarrow.string_view(), pyarrow.large_string()):
            table = pyarrow.table({"id": range(len(values)), "text": pyarrow.array(values, kind)})
            report = self.convert(table, memory="64MiB", on_changed="replace")
            self.assertEqual((report.records_out, report.sources_unchanged), (len(values), 0) if report.sources else (0, 1))
        self.assertEqual(sum(1 for _ in self.rows()), len(values))

    def test_a_program_that_fails_first_is_not_waited_for(self) -> None:
        batch = self.table.to_batches()[0]
        program = self.folder / "program"
        program.write_text('#!/bin/sh\nhead -c 1000000 > /dev/null\necho \'{"type":"error","message":"a full disk"}\' >&2\nexit 5\n')
        program.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, {"SHARDIFY_BINARY": str(program)}), self.assertRaises(shardify.StorageError):
            self.convert(pyarrow.RecordBatchReader.from_batches(batch.schema, iter(lambda: batch, None)))

    def test_an_interrupted_call_ends_its_producer(self) -> None:
        ended = threading.Event()

        def batches() -> Iterator[Any]:
            try:
                while True:
                    yield self.table.to_batches()[0]
                    time.sleep(0.01)
            finally:
                ended.set()

        def interrupt(*_: Any) -> None:
            raise KeyboardInterrupt

        reader = pyarrow.RecordBatchReader.from_batches(self.table.schema, batches())
        with unittest.mock.patch("shardify._program._objects", side_effect=interrupt), self.assertRaises(KeyboardInterrupt):
            self.convert(reader)
        del reader
        self.assertEqual(list(self.folder.glob("shards/_shardify/log/*.json")), [])

    def test_producers_have_the_context_of_the_caller(self) -> None:
        seen = []

        def tables() -> Iterator[Any]:
            seen.append((decimal.getcontext().prec, threading.current_thread().name))
            yield self.table

        with decimal.localcontext(prec=7):
            self.convert(tables())
        self.assertEqual(seen, [(7, "shardify-stream")])

    @needs("pandas")
    def test_an_index_that_a_stream_leaves_out_is_a_warning(self) -> None:
        import pandas

        frame = pandas.DataFrame({"a": [1, 2, 3]}, index=pandas.RangeIndex(10, 16, 2, name="visit"))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            self.convert(frame)
        self.assertEqual([one.filename for one in said if "`visit`" in str(one.message)], [__file__])
        self.assertEqual(self.rows(), [{"a": 1}, {"a": 2}, {"a": 3}])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.convert(frame.reset_index(), on_changed="replace")
        self.assertEqual(self.rows()[2], {"visit": 14, "a": 3})

    def test_reports_and_errors_can_be_sent(self) -> None:
        report = self.convert(self.table)
        self.assertEqual(pickle.loads(pickle.dumps(report)), report)


class WithoutPyarrow(unittest.TestCase):
    def test_the_error_names_the_extra(self) -> None:
        class Table:
            def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
                raise AssertionError("asked")

        with unittest.mock.patch.dict(sys.modules, {"pyarrow": None}), self.assertRaises(shardify.MissingPackageError) as caught:
            shardify.convert(Table(), name="t", out="shards")
        self.assertEqual(caught.exception.hints, ["pip install 'shardify[pyarrow]'"])


if __name__ == "__main__":
    unittest.main()
