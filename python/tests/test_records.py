"""Records by position, against the table that was converted: batches of them, one at a time, for torch, and for Grain."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import random
import sys
import threading
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import extension
import shardify
from shardify import grain as of_grain
from shardify import records
from test_loader import BATCH, RECORDS, OfDataset, in_child

HAS_EXTENSION = extension.load()
HAS_NUMPY, HAS_TORCH, HAS_GRAIN = (importlib.util.find_spec(name) for name in ("numpy", "torch", "grain"))
if HAS_EXTENSION and HAS_NUMPY:
    for package, found in (("torch", HAS_TORCH), ("grain", HAS_GRAIN)):
        if not found:
            print(f"NOT RUN: tests of records with {package}: it is not installed")
FILL = {"half": -1.0, "rest": -1}


def row_of(number: int) -> dict[str, Any]:
    """The record that was converted from this row."""
    half, rest = (number / 2 if number % 3 else -1.0), (number % 7 if number % 5 else -1)
    day = 20454 + number % 28  # 2026-01-01 and the days after it
    return {"id": number, "half": half, "rest": rest, "name": f"name {number}", "even": number % 2 == 0, "day": day}


def digest_of(found: Any) -> str:
    """Hash of rows, in any order."""
    rows = sorted((int(row["id"]), str(row["name"]), float(row["half"])) for row in found)
    return hashlib.sha256(repr(rows).encode()).hexdigest()


@unittest.skipUnless(HAS_EXTENSION and HAS_NUMPY, "there is no extension or no numpy")
class Taken(OfDataset):
    def ids(self) -> list[int]:
        """The id of the record at each position."""
        found: list[int] = self.data.take(range(RECORDS))["id"].tolist()
        self.assertEqual(sorted(found), list(range(RECORDS)))
        return found

    def test_records_come_in_the_order_that_was_asked_for(self) -> None:
        import numpy

        ids, rng = self.ids(), random.Random(1)
        batch = self.data.take([5, 17, 5, RECORDS - 1, 0], columns=["name", "id"])
        self.assertEqual(batch.keys(), ["name", "id"])
        self.assertEqual(batch["id"].tolist(), [ids[at] for at in (5, 17, 5, RECORDS - 1, 0)])
        self.assertEqual(batch["name"].tolist(), [f"name {ids[at]}" for at in (5, 17, 5, RECORDS - 1, 0)])
        self.assertEqual(batch.positions.tolist(), [5, 17, 5, RECORDS - 1, 0])
        for count in (0, 1, 3, 50, 500):
            wanted = [rng.randrange(RECORDS) for _ in range(count)]
            for positions in (wanted, numpy.array(wanted, "int32"), iter(wanted)):
                self.assertEqual(self.data.take(positions)["id"].tolist(), [ids[at] for at in wanted])

    def test_a_position_without_a_record_is_an_index_error(self) -> None:
        for wrong in ([RECORDS], [0, -1], [2**70]):
            with self.assertRaisesRegex(IndexError, f"{wrong[-1]} of {RECORDS} records"):
                self.data.take(wrong)
        with self.assertRaises(TypeError):
            self.data.take([1.5])  # type: ignore[list-item]
        with self.assertRaisesRegex(shardify.UsageError, "other"):
            self.data.take([0], columns=["other"])

    def test_a_loader_has_the_records_at_its_positions(self) -> None:
        batch = next(iter(self.loader()))
        again = self.data.take(batch.positions)
        self.assertEqual((again["id"].tolist(), again.records.tolist()), (batch["id"].tolist(), batch.records.tolist()))
        order = self.loader().order
        self.assertEqual(order.step(0), batch.positions.tolist())
        with self.assertRaisesRegex(shardify.UsageError, "shuffles"):
            _ = self.loader(shuffle=False, lanes=None, window=None).order

    def test_columns_that_some_shards_lack_are_null_there(self) -> None:
        raw = Path(self.folder.name, "grown")
        raw.mkdir()
        (raw / "a.csv").write_text("id\n" + "".join(f"{n}\n" for n in range(20)))
        shardify.convert(raw, out=f"{self.folder.name}/grown-shards")
        (raw / "b.csv").write_text("id,extra\n20,x\n")
        shardify.convert(raw, out=f"{self.folder.name}/grown-shards", on_schema="union")
        batch = shardify.open(f"{self.folder.name}/grown-shards").take(range(21), fill={"extra": ""})
        self.assertEqual((batch["id"].tolist(), batch["extra"].tolist()), (list(range(21)), [""] * 20 + ["x"]))

    def test_rows_are_dictionaries(self) -> None:
        batch = self.data.take([3, 1], fill=FILL)
        self.assertEqual(list(batch.rows()), [row_of(number) for number in batch["id"].tolist()])
        with self.assertRaisesRegex(shardify.UsageError, "null in `half`"):
            list(self.data.take(range(9)).rows())

    def test_it_is_a_sequence(self) -> None:
        ids, found = self.ids(), self.data.map_style(fill=FILL)
        self.assertEqual((len(found), found[0], found[-1]), (RECORDS, row_of(ids[0]), row_of(ids[-1])))
        self.assertEqual(found[7:1:-2], [row_of(ids[at]) for at in (7, 5, 3)])
        self.assertEqual(list(found), [row_of(number) for number in ids])
        self.assertEqual(found.__getitems__([4, 2]), [row_of(ids[4]), row_of(ids[2])])
        for wrong in (RECORDS, -RECORDS - 1):
            with self.assertRaises(IndexError):
                found[wrong]
        train = self.data.split("train").map_style(columns=["id"])
        self.assertEqual([row["id"] for row in train], [row["id"] for row in train[:]])
        self.assertEqual(len(list(train)), self.data.split("train").records)
        self.assertNotEqual(train.basis, found.basis)
        self.assertEqual(found.basis, self.loader().state_dict()["basis"])

    def test_it_is_used_by_threads_processes_and_copies(self) -> None:
        ids, found = self.ids(), self.data.map_style(columns=["id"])
        seen: list[int] = []
        threads = [
            threading.Thread(target=lambda part=part: seen.extend(found[at]["id"] for at in part)) for part in (range(9), range(9, 20))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(seen), sorted(ids[:20]))

        def work() -> None:
            assert found[5]["id"] == ids[5]
            assert pickle.loads(pickle.dumps(found))[6]["id"] == ids[6]
            assert self.data.take([8])["id"].tolist() == [ids[8]]

        work()
        in_child(work)()
        self.assertEqual(pickle.loads(pickle.dumps(self.data)), self.data)

    def test_parts_are_bytes_and_numbers(self) -> None:
        import numpy

        files = Path(self.folder.name, "files")
        files.mkdir()
        for i in range(30):
            (files / f"{i:03}.jpg").write_bytes(bytes([i]) * (i + 1))
            (files / f"{i:03}.cls").write_text(f"{i}\n")
        shardify.convert(files, out=f"{self.folder.name}/samples", to="tar", shards=2)
        samples = shardify.open(f"{self.folder.name}/samples", at=1)
        self.assertEqual(samples.map_style()[29], {"__key__": "029", "cls": b"29\n", "jpg": bytes([29]) * 30})
        numbers = samples.take([7, 3])["cls"].astype("int64")
        self.assertEqual((numbers.dtype, numbers.tolist()), (numpy.int64, [7, 3]))
        with self.assertRaises(ValueError):
            samples.take([1])["jpg"].astype("int64")

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_torch_loads_it(self) -> None:
        import torch
        from torch.utils.data import DataLoader

        for workers in (0, 2):
            loaded = DataLoader(self.data.map_style(fill=FILL), batch_size=7, shuffle=True, num_workers=workers)  # type: ignore[arg-type]
            seen = [{name: value[at] for name, value in batch.items()} for batch in loaded for at in range(len(batch["id"]))]
            self.assertEqual(digest_of(seen), digest_of(map(row_of, range(RECORDS))))
            self.assertEqual(
                [seen[0][name].dtype for name in ("id", "half", "even", "day")], [torch.int64, torch.float64, torch.bool, torch.int32]
            )


@unittest.skipUnless(HAS_EXTENSION and HAS_NUMPY, "there is no extension or no numpy")
class Sources(OfDataset):
    def source(self, **more: Any) -> of_grain.Source:
        return of_grain.Source(self.data, fill=FILL, **more)

    def test_an_order_is_that_of_the_loader(self) -> None:
        one = self.loader()
        source = self.source(order=one.order, epochs=2)
        steps = RECORDS // BATCH
        self.assertEqual(len(source), 2 * steps * BATCH)
        found = [{row["id"] for row in source._getitems(range(at, at + BATCH))} for at in range(0, len(source), BATCH)]
        self.assertEqual(found, [set(batch["id"].tolist()) for _ in range(2) for batch in one])
        with self.assertRaises(IndexError):
            source[len(source)]
        with self.assertRaisesRegex(shardify.UsageError, "basis"):
            of_grain.Source(self.data.split("train"), one.order)
        with self.assertRaisesRegex(shardify.UsageError, "repeat"):
            self.source(epochs=2)

    def test_its_text_names_the_data_and_the_order(self) -> None:
        source = self.source(columns=["id"])
        self.assertIn(self.loader().state_dict()["basis"], repr(source))
        self.assertEqual(repr(pickle.loads(pickle.dumps(source))), repr(source))
        others = [self.source(), of_grain.Source(self.data.split("train")), self.source(columns=["id"], order=self.loader().order)]
        self.assertEqual(len({repr(one) for one in [source, *others]}), 4)

    @unittest.skipUnless(HAS_GRAIN, "grain is not installed")
    def test_grain_reads_each_record_once(self) -> None:
        import grain
        import grain.python as old

        expected = digest_of(map(row_of, range(RECORDS)))
        self.assertIsInstance(self.source(), old.RandomAccessDataSource)
        shuffled = grain.MapDataset.source(self.source()).shuffle(seed=3)
        self.assertEqual(digest_of(shuffled), expected)
        self.assertEqual(digest_of(shuffled.to_iter_dataset()), expected)
        seen = [row for batch in shuffled.batch(10) for row in rows_of(batch)]
        self.assertEqual(digest_of(seen), expected)
        ours = grain.MapDataset.source(self.source(order=self.loader(drop_last=False).order))
        self.assertEqual(digest_of(ours), expected)

    @unittest.skipUnless(HAS_GRAIN, "grain is not installed")
    def test_grain_resumes_from_its_checkpoint(self) -> None:
        import grain

        made = grain.MapDataset.source(self.source()).shuffle(seed=3).batch(10).to_iter_dataset()
        running = iter(made)
        seen = [row for _ in range(6) for row in rows_of(next(running))]
        state = running.get_state()
        other = iter(grain.MapDataset.source(pickle.loads(pickle.dumps(self.source()))).shuffle(seed=3).batch(10).to_iter_dataset())
        other.set_state(state)
        seen += [row for batch in other for row in rows_of(batch)]
        self.assertEqual(digest_of(seen), digest_of(map(row_of, range(RECORDS))))

    @unittest.skipUnless(HAS_GRAIN, "grain is not installed")
    def test_the_data_loader_of_grain_has_workers_and_refuses_other_data(self) -> None:
        import grain.python as old

        def loaded(source: of_grain.Source, workers: int) -> Any:
            sampler = old.IndexSampler(len(source), old.NoSharding(), shuffle=True, num_epochs=1, seed=5)
            options = old.ReadOptions(num_threads=4, prefetch_buffer_size=16)
            return old.DataLoader(data_source=source, sampler=sampler, worker_count=workers, read_options=options)

        for workers in (0, 2):
            running = iter(loaded(self.source(), workers))
            seen = [next(running) for _ in range(50)]
            state = running.get_state()
            other = iter(loaded(self.source(), workers))
            other.set_state(state)
            self.assertEqual(digest_of([*seen, *other]), digest_of(map(row_of, range(RECORDS))))
        with self.assertRaisesRegex(ValueError, "basis"):
            iter(loaded(self.source(columns=["id"]), 2)).set_state(state)

    @unittest.skipUnless(HAS_GRAIN, "grain is not installed")
    def test_the_elastic_iterator_of_grain_has_the_steps_of_the_loader(self) -> None:
        import grain
        from grain.experimental import ElasticIterator

        one = self.loader(columns=["id"])
        expected = [set(batch["id"].tolist()) for _ in range(2) for batch in one]
        records = grain.MapDataset.source(self.source(order=self.loader().order, epochs=2))

        def parts(shards: int, state: Any, workers: int) -> list[Any]:
            options = grain.multiprocessing.MultiprocessingOptions(num_workers=workers) if workers else None
            made = [
                iter(ElasticIterator(records, BATCH, grain.sharding.ShardOptions(n, shards), multiprocessing_options=options))
                for n in range(shards)
            ]
            for part in made if state is not None else ():
                part.set_state(state)
            return made

        for workers in (0, 1):
            found, state = list[set[int]](), None
            for shards, steps in ((2, 7), (4, 9), (1, len(expected) - 16)):
                made = parts(shards, state, workers)
                found += [{int(number) for part in made for number in next(part)["id"]} for _ in range(steps)]
                state = made[-1].get_state()
                for part in made:
                    part.close()
            self.assertEqual(found, expected)


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch of Grain."""
    return [{name: value[at] for name, value in batch.items()} for at in range(len(batch["id"]))]


class WithoutExtension(unittest.TestCase):
    def test_datasets_are_keys_and_records_have_a_text(self) -> None:
        shards = tuple(shardify.Shard(str(number), 10, 1, "none", "") for number in range(2))
        data = shardify.Dataset("nowhere", 1, "parquet", shards, {})
        self.assertEqual({data: 1}[shardify.Dataset("nowhere", 1, "parquet", shards, {})], 1)
        self.assertIn("nowhere", repr(records.Records(data, columns=["a"])))
        with mock.patch.dict(sys.modules, {"shardify._native": None}), self.assertRaises(shardify.MissingPackageError):
            data.take([1])


if __name__ == "__main__":
    # Grain starts workers as copies of this module.
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    unittest.main()
