"""Every record once an epoch, with any ranks, workers, stops and resumes."""

from __future__ import annotations

import dataclasses
import importlib.util
import random
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shardify
from shardify import loading

COMBINATIONS = 1_000


def dataset(records: list[int]) -> shardify.Dataset:
    """A version whose shards have so many records."""
    shards = tuple(shardify.Shard(f"{i}", count, 1, "none", "") for i, count in enumerate(records))
    return shardify.Dataset("nowhere", 1, "parquet", shards, {})


@dataclasses.dataclass
class Worker:
    id: int
    num_workers: int


def numbers(path: str, start: int, end: int, columns: object):
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


if __name__ == "__main__":
    unittest.main()
