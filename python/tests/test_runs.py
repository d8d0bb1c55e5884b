"""Training runs: what a recorder writes and when, what it refuses, and what a program that fails costs. What they answer is compared with
logs of ids by scripts/checks/training_runs_check.py."""

from __future__ import annotations

import importlib.util
import json
import pickle
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import extension
import shardify
from shardify import _program

HAS_EXTENSION, HAS_NUMPY = extension.load(), importlib.util.find_spec("numpy")
if not HAS_EXTENSION or not HAS_NUMPY:
    print("NOT RUN: tests of training runs: there is no extension, or no numpy")
RECORDS, BATCH = 100, 8
STEPS = RECORDS // BATCH


@unittest.skipUnless(HAS_EXTENSION and HAS_NUMPY, "there is no extension, or no numpy")
class TrainingRuns(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.dataset = self.folder / "shards"
        source = self.folder / "rows.csv"
        source.write_text("id,who,x\n" + "".join(f"r{n},p{n % 9},{n}\n" for n in range(RECORDS)))
        shardify.convert(source, out=self.dataset, id="id", subject="who")

    def loader(self, **options: Any) -> Any:
        return shardify.open(self.dataset, at=1).loader(global_batch_size=BATCH, seed=3, **options)

    def kinds(self, name: str = "a") -> list[str]:
        folder = self.dataset / "_shardify" / "training" / name
        return [json.loads(path.read_text())["kind"] for path in sorted(folder.iterdir())]

    def test_an_epoch_is_a_run_with_an_end(self) -> None:
        loader = self.loader()
        with loader.record("a", report_every=5) as run:
            seen = {batch.step: list(batch["id"]) for batch in loader}
            loader.checkpoint(self.folder / "last.pt", digest="d1")
        self.assertEqual(self.kinds(), ["start", "progress", "progress", "checkpoint", "end"])
        (found,) = shardify.runs(self.dataset)
        self.assertEqual((found.run, found.steps, found.epochs, found.state, found.attempts), ("a", STEPS, 1, "ended", 1))
        self.assertEqual([(one["step"], one["digest"]) for one in found.checkpoints], [(STEPS, "d1")])
        (report,) = shardify.find_in_runs(self.dataset, "p4")
        steps = sorted(step for step, ids in seen.items() for id in ids if int(id[1:]) % 9 == 4)
        self.assertEqual([one["step"] for one in report.seen], steps)
        self.assertTrue(report and report.is_certain)
        (nobody,) = shardify.find_in_runs(self.dataset, "nobody", run="a")
        self.assertFalse(nobody)
        run.end("twice is once")
        self.assertEqual(len(self.kinds()), 5)

    def test_a_state_resumes_and_a_new_loader_does_not(self) -> None:
        loader = self.loader()
        run = loader.record("a")
        for batch in loader:
            if batch.step == 4:
                state = loader.state_dict()
                run.checkpoint("five")
                break
        again = self.loader(rank=0, world_size=2)
        again.load_state_dict(state)
        with again.record("a"):
            steps = [batch.step for batch in again]
        self.assertEqual((steps[0], self.kinds()), (5, ["start", "checkpoint", "resume", "end"]))
        anew = self.loader()
        anew.record("a")
        with self.assertRaises(shardify.UsageError) as raised:
            next(iter(anew))
        self.assertIn("begins anew", raised.exception.message)
        # The attempt that was left behind is told, and does not stop for it.
        with self.assertWarns(shardify.ShardifyWarning) as warned:
            run.checkpoint("late")
        self.assertIn("another attempt", str(warned.warning))
        self.assertEqual(len(self.kinds()), 4)

    def test_other_ranks_write_nothing(self) -> None:
        loader = self.loader(rank=1, world_size=2)
        with loader.record("a") as run:
            list(loader)
            run.checkpoint("x")
        self.assertFalse((self.dataset / "_shardify" / "training").exists())

    def test_a_file_takes_events_where_the_dataset_is_only_read(self) -> None:
        file = self.folder / "events.jsonl"
        for _ in range(2):
            loader = self.loader()
            if file.exists():
                loader.load_state_dict(loader.state_at(STEPS))
            with loader.record("a", to=file):
                list(loader)
        self.assertEqual(shardify.runs(self.dataset), [])
        kinds = [json.loads(line)["kind"] for line in file.read_text().splitlines()]
        self.assertEqual(kinds, ["start", "end", "resume", "end"])
        for added in (4, 0):
            (summary,) = _program.run(["runs", "--add", str(file), "--", str(self.dataset)])
            self.assertEqual(summary["added"], added)
        self.assertEqual(shardify.runs(self.dataset)[0].steps, 2 * STEPS)

    def test_what_cannot_be_written_waits(self) -> None:
        loader = self.loader()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with loader.record("a", report_every=4):
                for batch in loader:
                    if batch.step == 2:
                        broken = mock.patch.object(_program, "run", side_effect=shardify.StorageError("no space left"))
                        broken.start()
                    if batch.step == 5:
                        broken.stop()
        self.assertEqual([one.category for one in said], [shardify.ShardifyWarning])
        self.assertIn("no space left", str(said[0].message))
        self.assertEqual(self.kinds(), ["start", "progress", "progress", "progress", "end"])

    def test_a_replay_begins_at_the_clean_checkpoint_and_has_holes(self) -> None:
        loader = self.loader()
        with loader.record("a") as run:
            for _ in range(2):
                for batch in loader:
                    if batch.step in (1, 3, 9):
                        run.checkpoint(f"after-{batch.step + 1}")
        full = {batch.step: list(batch["id"]) for epoch in range(2) for batch in self.epoch(epoch)}
        first = next(id for id in full[5] if all(id not in full[step] for step in range(5)))
        seen = [step for step, ids in full.items() if first in ids]
        again = shardify.open(self.dataset, at="run/a").replay("a", without=[first], rank=0, world_size=1)
        self.assertEqual(again.replays, {"run": "a", "id": shardify.runs(self.dataset)[0].run_id, "step": 4, "checkpoint": mock.ANY})
        self.assertEqual(again.replays["checkpoint"]["name"], "after-4")
        with again.record("b"):
            found = {batch.step: (list(batch["id"]), batch.expected) for _ in range(2) for batch in again}
        without = {step: [id for id in ids if id != first] for step, ids in full.items() if step >= 4}
        self.assertEqual(found, {step: (ids, BATCH) for step, ids in without.items()})
        self.assertEqual(min(seen), 5)
        # The replay knows that it did not see the record, and says so.
        reports = {report.run: report for report in shardify.find_in_runs(self.dataset, first)}
        self.assertEqual([one["step"] for one in reports["a"].seen], seen)
        self.assertFalse(reports["b"])
        rows = _program.run(["runs", "--step", "5", "--", str(self.dataset), "b"])
        self.assertEqual([row["state"] for row in rows if row["type"] == "record"].count("omitted"), 1)
        # Its states leave out the same records, and those of others do not fit.
        with self.assertRaises(shardify.UsageError):
            again.load_state_dict(self.loader().state_dict())
        with self.assertRaises(shardify.UsageError):
            self.loader().load_state_dict(again.state_dict())
        for wrong in (
            lambda: shardify.open(self.dataset).replay("a", without=["nobody"]),
            lambda: self.newer().replay("a", without=[first]),
        ):
            with self.assertRaises(shardify.UsageError):
                wrong()

    def epoch(self, number: int) -> Any:
        loader = self.loader()
        loader.set_epoch(number)
        return list(loader)

    def newer(self) -> Any:
        source = self.folder / "more.csv"
        source.write_text("id,who,x\nz,p1,1\n")
        shardify.convert(source, out=self.dataset)
        return shardify.open(self.dataset)

    def test_mistakes_are_refused_before_anything_is_read(self) -> None:
        loader = self.loader()
        for options in ({"name": "a/b"}, {"name": ""}, {"name": "a", "report_every": 0}, {"name": "a", "role": "test"}):
            with self.assertRaises(shardify.UsageError):
                loader.record(**options)
        with self.assertRaises(shardify.UsageError):
            loader.checkpoint("x")
        iterating = iter(loader)
        next(iterating)
        with self.assertRaises(shardify.UsageError):
            loader.record("a")
        del iterating
        # The start is refused where it is wrong, not warned of.
        other = shardify.open(self.dataset).loader(global_batch_size=BATCH, seed=3)
        other.record("a")
        with mock.patch.object(_program, "run", side_effect=shardify.StorageError("gone")), self.assertRaises(shardify.StorageError):
            next(iter(other))

    def test_a_worker_cannot_record(self) -> None:
        loader = self.loader()
        loader.record("a")
        with mock.patch("os.getpid", return_value=1), self.assertRaises(shardify.UsageError) as raised:
            iter(pickle.loads(pickle.dumps(loader)))
        self.assertIn("worker", raised.exception.message)


if __name__ == "__main__":
    unittest.main()
