"""Mixtures: which records a step has, by the orders of the datasets alone; states, ranks, and what is refused."""

from __future__ import annotations

import importlib.util
import itertools
import json
import pickle
import random
import sys
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import extension
import shardify
from shardify import mixture
from test_loader import OfDataset, in_child

HAS_EXTENSION = extension.load()
HAS_NUMPY, HAS_TORCH, HAS_TORCHDATA = (importlib.util.find_spec(name) for name in ("numpy", "torch", "torchdata"))
WEIGHTS = {"train": 3, "val": 1}


@unittest.skipUnless(HAS_EXTENSION and HAS_NUMPY, "there is no extension or no numpy")
class Mixed(OfDataset):
    STEPS = 60

    def mixed(self, weights: dict[str, int] | None = None, **more: Any) -> mixture.Mixture:
        chosen = [(self.data.split(name), weight) for name, weight in (weights or WEIGHTS).items()]
        return shardify.mix(chosen, **{"global_batch_size": 16, "seed": 7, "steps": self.STEPS, "columns": ["id", "name"], **more})

    def expected(self, made: mixture.Mixture, step: int, rank: int = 0, ranks: int = 1) -> list[int]:
        """The positions of a step, by the text of docs/FORMAT.md."""
        found = []
        for loader, count in zip(made.loaders, made.counts, strict=True):
            facts = {name: loader._facts()[name] for name in ("basis", "block", "lanes", "window")}
            epoch, of_epoch = divmod(step, loader.records // count)
            order = shardify.Order(loader.records, seed=7, epoch=epoch, global_batch_size=count, **facts)
            found += order.step(of_epoch, rank, ranks)
        return found

    def test_steps_are_those_of_the_orders(self) -> None:
        made = self.mixed()
        self.assertEqual((made.counts, len(made)), ([12, 4], self.STEPS))
        batches = list(made)
        self.assertEqual([batch.step for batch in batches], list(range(self.STEPS)))
        for batch in batches:
            self.assertEqual(batch.positions.tolist(), self.expected(made, batch.step))
            self.assertEqual(batch.source.tolist(), [0] * 12 + [1] * 4)
            self.assertEqual(batch["name"].tolist(), [f"name {number}" for number in batch["id"].tolist()])
            self.assertEqual(batch.epochs, [batch.step // len(loader) for loader in made.loaders])
        self.assertGreater(min(batches[-1].epochs), 1)
        for at, name in enumerate(WEIGHTS):
            whole = self.data.split(name).take(range(made.loaders[at].records))["id"].tolist()
            ids = [number for batch in batches[: len(made.loaders[at])] for number in batch["id"][batch.source == at].tolist()]
            self.assertEqual((len(ids), len(set(ids)), set(ids) <= set(whole)), (len(ids), len(ids), True))
        self.assertEqual(list(made), [])
        self.assertEqual(self.mixed().stats(), [])

    def test_mappings_take_datasets(self) -> None:
        train, val = self.data.split("train"), self.data.split("val")
        # Two parts of one version are equal by their shards.
        made = shardify.mix({train: 3, val: 1}, global_batch_size=16, seed=7, steps=3, columns=["id"])
        self.assertEqual(
            [batch.positions.tolist() for batch in made], [batch.positions.tolist() for batch in itertools.islice(self.mixed(), 3)]
        )

    def test_ranks_have_equal_parts_of_each_dataset(self) -> None:
        for ranks in (2, 4):
            parts = [self.mixed(rank=rank, world_size=ranks, steps=20) for rank in range(ranks)]
            for batches in zip(*parts, strict=True):
                for rank, batch in enumerate(batches):
                    self.assertEqual(batch.positions.tolist(), self.expected(parts[0], batch.step, rank, ranks))
                    self.assertEqual((batch.expected, batch.source.tolist()), (16 // ranks, [0] * (12 // ranks) + [1] * (4 // ranks)))
        with self.assertRaisesRegex(shardify.UsageError, "12, 4 records.*use 2 or 4 ranks"):
            self.mixed(rank=0, world_size=3)

    def test_states_resume_at_any_number_of_ranks(self) -> None:
        made = self.mixed()
        expected = [batch.positions.tolist() for batch in made]
        running, rng = self.mixed(), random.Random(3)
        for batch in running:
            self.assertEqual(running.state_dict(), running.state_at(batch.step + 1))
            if rng.random() > 0.1:
                continue
            state = json.loads(json.dumps(running.state_dict()))
            other = self.mixed(columns=["id"], threads=1)
            other.load_state_dict(state)
            self.assertEqual([one.positions.tolist() for one in other], expected[batch.step + 1 :])
            ranks = [self.mixed(rank=rank, world_size=2) for rank in range(2)]
            for rank in ranks:
                rank.load_state_dict(state)
            joined = [sorted(a.positions.tolist() + b.positions.tolist()) for a, b in zip(*ranks, strict=True)]
            self.assertEqual(joined, [sorted(one) for one in expected[batch.step + 1 :]])
        again = pickle.loads(pickle.dumps(self.mixed(steps=5)))
        self.assertEqual([one.positions.tolist() for one in again], expected[:5])

    def test_a_break_continues_and_an_end_ends(self) -> None:
        made = self.mixed(steps=None)
        with self.assertRaisesRegex(TypeError, "no end"):
            len(made)
        for batch in made:
            if batch.step == 3:
                break
        self.assertEqual([batch.step for batch in itertools.islice(made, 3)], [4, 5, 6])
        self.assertEqual(made.state_dict()["step"], 7)
        # Steps 4 to 6 are in the first epoch of both datasets.
        self.assertEqual([epoch["steps"] for epoch in made.stats()], [3, 3])

    def test_a_child_continues_and_its_parent_too(self) -> None:
        expected = [batch.positions.tolist() for batch in self.mixed(steps=30)]
        for before in (0, 1, 15):
            batches = iter(self.mixed(steps=30))
            for _ in range(before):
                next(batches)

            def work(batches: Any = batches, before: int = before) -> None:
                assert [batch.positions.tolist() for batch in batches] == expected[before:]

            join = in_child(work)
            self.assertEqual([batch.positions.tolist() for batch in batches], expected[before:])
            join()

    def test_other_states_are_refused_with_both_values(self) -> None:
        state = self.mixed().state_dict()
        for name, other, found in (
            ("weight", {"weights": {"train": 1, "val": 1}}, "3.*1|1.*3"),
            ("basis", {"weights": {"val": 3, "train": 1}}, "sources.0"),
            ("sources", {"weights": {"train": 1}}, "number of sources is 1, found 2"),
            ("seed", {"seed": 8}, "order.seed is 8, found 7"),
            ("batch", {"global_batch_size": 32}, "global_batch_size is 32, found 16"),
        ):
            with self.subTest(name=name), self.assertRaisesRegex(shardify.UsageError, found):
                self.mixed(**other).load_state_dict(state)
        with self.assertRaisesRegex(shardify.UsageError, "state of a mixture"):
            self.mixed().load_state_dict(self.loader().state_dict())
        with self.assertRaisesRegex(shardify.UsageError, "state of a loader"):
            self.loader().load_state_dict(state)
        made = self.mixed()
        batches = iter(made)
        next(batches)
        with self.assertRaisesRegex(shardify.UsageError, "not ended"):
            made.load_state_dict(state)
        del batches
        made.load_state_dict(state)

    def test_datasets_that_do_not_fit_are_refused(self) -> None:
        raw = Path(self.folder.name, "other.csv")
        raw.write_text("id,name\n" + "".join(f"x{n},name {n}\n" for n in range(40)))
        shardify.convert(raw, out=f"{self.folder.name}/other", id="id")
        other = shardify.open(f"{self.folder.name}/other", at=1)
        with self.assertRaisesRegex(shardify.UsageError, "id Int64, name Utf8; found id Utf8"):
            iter(shardify.mix([(self.data, 1), (other, 1)], global_batch_size=8, seed=1, columns=["id", "name"]))
        made = shardify.mix([(self.data, 1), (other, 1)], global_batch_size=8, seed=1, columns=["name"])
        self.assertEqual(len(next(iter(made))), 8)
        with self.assertRaisesRegex(shardify.UsageError, "expected 64 records or more"):
            iter(shardify.mix([(self.data, 1), (other, 1)], global_batch_size=128, seed=1, columns=["name"]))
        with self.assertRaisesRegex(shardify.UsageError, r"found 2048[\s\S]*each of the 2 datasets"):
            iter(self.mixed(memory="4KiB"))
        with self.assertRaisesRegex(shardify.UsageError, "one of them twice"):
            iter(shardify.mix([(self.data, 1), (self.data, 1)], global_batch_size=8, seed=1))

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_torch_takes_tensors(self) -> None:
        from torch.utils.data import DataLoader

        for workers in (0, 2):
            found = list(DataLoader(self.mixed(steps=9).torch(), batch_size=None, num_workers=workers))
            self.assertEqual([batch["__step__"] for batch in found], list(range(9)))
            self.assertEqual(found[0]["__source__"].tolist(), [0] * 12 + [1] * 4)
            self.assertEqual(found[3]["id"].tolist(), next(itertools.islice(self.mixed(), 3, None))["id"].tolist())

    @unittest.skipUnless(HAS_TORCHDATA, "torchdata is not installed")
    def test_a_stateful_data_loader_stops_and_resumes(self) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        expected = [batch["id"].tolist() for batch in self.mixed(steps=20)]
        for workers in (0, 1, 3):
            first, other = (StatefulDataLoader(self.mixed(steps=20).torch(), batch_size=None, num_workers=workers) for _ in range(2))
            seen = [batch["id"].tolist() for batch in itertools.islice(first, 7)]
            other.load_state_dict(first.state_dict())
            self.assertEqual([*seen, *(batch["id"].tolist() for batch in other)], expected, workers)


class Weights(unittest.TestCase):
    def test_counts_follow_from_the_weights(self) -> None:
        for weights, batch, counts in (([3, 1], 16, [12, 4]), ([2, 2], 2, [1, 1]), ([6, 4], 10, [6, 4]), ([5], 7, [7])):
            self.assertEqual(mixture._counts(weights, batch), counts)

    def test_errors_name_weights_and_batches_that_fit(self) -> None:
        with self.assertRaises(shardify.UsageError) as raised:
            mixture._counts([2, 1], 1024)
        self.assertIn("683, 341 fit 1024", raised.exception.hints[0])
        self.assertIn("1023 or 1026", raised.exception.hints[1])
        for weights, batch in (([], 8), ([0, 1], 8), ([0.5, 0.5], 8), ([1], 0)):
            with self.assertRaises(shardify.UsageError):
                mixture._counts(weights, batch)  # type: ignore[arg-type]
        rng = random.Random(5)
        for _ in range(500):
            weights = [rng.randrange(1, 50) for _ in range(rng.randrange(1, 6))]
            batch = rng.randrange(len(weights), 300)
            near = mixture._nearest(weights, batch)
            self.assertEqual(batch % sum(near), 0)
            self.assertTrue(all(one > 0 for one in near))
            shares = [batch // sum(near) * one - batch * weight / sum(weights) for one, weight in zip(near, weights, strict=True)]
            self.assertTrue(max(map(abs, shares)) < len(weights), (weights, batch, near))


if __name__ == "__main__":
    unittest.main()
