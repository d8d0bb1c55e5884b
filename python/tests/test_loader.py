"""The loader: its order, states, ranks, memory, forks, and what is refused. Its columns are compared with those that pyarrow reads."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import extension
import shardify
from shardify import _columns, loader

HAS_EXTENSION = extension.load()
HAS_NUMPY, HAS_PYARROW, HAS_TORCH, HAS_TORCHDATA, HAS_TENSORFLOW, HAS_JAX = (
    importlib.util.find_spec(name) for name in ("numpy", "pyarrow", "torch", "torchdata", "tensorflow", "jax")
)
if not HAS_EXTENSION:
    print("NOT RUN: tests of the loader: there is no extension; SHARDIFY_EXTENSION names one")
elif not HAS_NUMPY:
    print("NOT RUN: tests of the loader: numpy is not installed")
else:
    packages = {"torch": HAS_TORCH, "torchdata": HAS_TORCHDATA, "tensorflow": HAS_TENSORFLOW, "jax": HAS_JAX}
    for package in (name for name, found in packages.items() if not found):
        print(f"NOT RUN: tests of the loader with {package}: it is not installed")
RECORDS, BATCH = 203, 8
STEPS = RECORDS // BATCH
ORDER = {"block": 4, "lanes": 2, "window": 16}
LIMIT = 30

Steps = list[tuple[int, int, list[int]]]


def steps_of(batches: Any) -> Steps:
    return [(batch.epoch, batch.step, batch.positions.tolist()) for batch in batches]


def in_child(work: Callable[[], object]) -> Callable[[], None]:
    """Runs in a forked child; the function that is returned waits for it, and fails if it failed or hangs."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def join() -> None:
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            found, status = os.waitpid(child, os.WNOHANG)
            if found:
                assert os.waitstatus_to_exitcode(status) == 0, "the child failed"
                return
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise AssertionError("the child hangs")

    return join


class OfDataset(unittest.TestCase):
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        raw, cls.shards = Path(cls.folder.name, "raw.csv"), Path(cls.folder.name, "shards")
        rows = [("id", "half", "rest", "name", "even", "day")]
        for i in range(RECORDS):
            half, rest = i / 2 if i % 3 else "", i % 7 if i % 5 else ""
            rows.append((str(i), str(half), str(rest), f"name {i}", str(i % 2 == 0).lower(), f"2026-01-{i % 28 + 1:02}"))
        raw.write_text("".join(",".join(row) + "\n" for row in rows))
        shardify.convert(raw, out=cls.shards, id="id", shards=3, split={"train": 0.6, "val": 0.4}, split_by="id")
        cls.data = shardify.open(cls.shards, at=1)

    def loader(self, data: shardify.Dataset | None = None, **more: Any) -> loader.Loader:
        return (data or self.data).loader(**{"global_batch_size": BATCH, "seed": 1, **ORDER, **more})


@unittest.skipUnless(HAS_EXTENSION and HAS_NUMPY, "there is no extension or no numpy")
class Epochs(OfDataset):
    def test_an_epoch_is_that_of_the_order(self) -> None:
        one = self.loader()
        self.assertEqual((len(one), one.records, one.dropped), (STEPS, RECORDS, RECORDS % BATCH))
        for epoch in range(2):
            parameters: dict[str, Any] = {**ORDER, "basis": one.state_dict()["basis"], "global_batch_size": BATCH, "epoch": epoch}
            order = shardify.Order(RECORDS, seed=1, **parameters)
            expected = [(epoch, epoch * STEPS + step, order.step(step)) for step in range(STEPS)]
            self.assertEqual(steps_of(one), expected)

    def test_list_order_and_a_last_step_that_is_shorter(self) -> None:
        found = list(self.loader(shuffle=False, drop_last=False, lanes=None, window=None, block=None))
        self.assertEqual([n for batch in found for n in batch.positions.tolist()], list(range(RECORDS)))
        self.assertEqual([len(found), len(found[0]), len(found[-1])], [STEPS + 1, BATCH, RECORDS % BATCH])
        self.assertEqual([found[0].expected, found[-1].expected], [BATCH, RECORDS % BATCH])

    def test_ranks_have_parts_of_the_steps_of_one(self) -> None:
        whole = steps_of(self.loader())
        for ranks in (2, 4, 8):
            parts = [steps_of(self.loader(rank=rank, world_size=ranks)) for rank in range(ranks)]
            joined = [(*step[0][:2], [n for part in step for n in part[2]]) for step in zip(*parts, strict=True)]
            self.assertEqual(joined, whole)
        with self.assertRaisesRegex(shardify.UsageError, "3"):
            len(self.loader(rank=0, world_size=3))

    def test_a_split_is_a_dataset(self) -> None:
        train = self.data.split("train")
        numbers = [n for batch in self.loader(train, drop_last=False) for n in batch.records.tolist()]
        self.assertEqual((len(numbers), len(set(numbers))), (train.records, train.records))
        with self.assertRaisesRegex(shardify.UsageError, "reshard"):
            self.loader(train.part(**{"split": "train"})._part({"other": "x"}))

    def test_iterating_again_is_the_next_epoch_also_after_a_break(self) -> None:
        expected = [steps_of(epoch) for one in [self.loader()] for epoch in (one, one, one)]
        one = self.loader()
        for batch in one:
            if batch.step == 3:
                break
        self.assertEqual(steps_of(one), expected[1])
        one.set_epoch(2)
        self.assertEqual(steps_of(one), expected[2])
        first, second = iter(one), iter(one)
        self.assertEqual(list(first), [])
        self.assertEqual(next(second).epoch, 3)

    def test_ranks_come_from_the_environment(self) -> None:
        with mock.patch.dict(os.environ, {"RANK": "1", "WORLD_SIZE": "2"}):
            one = self.loader()
            self.assertEqual((one.rank, one.world_size), (1, 2))
            self.assertEqual((self.loader(rank=0, world_size=1).rank, self.loader(rank=0, world_size=1).world_size), (0, 1))
            with self.assertRaisesRegex(shardify.UsageError, "at a version"):
                self.loader(shardify.open(self.shards))
        with self.assertRaisesRegex(shardify.UsageError, "both"):
            self.loader(rank=1)

    def test_no_thread_runs_before_the_first_batch(self) -> None:
        program = (
            "import sys, time; sys.path[:0] = sys.argv[1:3]; import extension, shardify; extension.load(); from pathlib import Path\n"
            "threads = lambda: len(list(Path('/proc/self/task').iterdir()))\n"
            "import numpy; data = shardify.open(sys.argv[3], at=1); time.sleep(0.2); before = threads()\n"
            "one = data.loader(global_batch_size=8, seed=1); state = one.state_dict(); batches = iter(one)\n"
            "end = time.monotonic() + 5\n"
            "while threads() > before and time.monotonic() < end: time.sleep(0.01)\n"
            "assert threads() <= before, (before, threads())\n"
            "next(batches); assert threads() > before\n"
            "del batches\n"
            "while threads() > before and time.monotonic() < end: time.sleep(0.01)\n"
            "assert threads() <= before, (before, threads())\n"
        )
        here = [str(Path(shardify.__file__).parents[1]), str(Path(__file__).parent), str(self.shards)]
        done = subprocess.run([sys.executable, "-c", program, *here], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)


@unittest.skipUnless(HAS_EXTENSION and HAS_NUMPY, "there is no extension or no numpy")
class States(OfDataset):
    def test_every_step_resumes_at_any_number_of_ranks(self) -> None:
        first = self.loader()
        expected = steps_of(first) + steps_of(first)
        running = self.loader()
        states = [running.state_dict()]
        for _ in range(2):
            for batch in running:
                self.assertEqual(running.state_dict(), running.state_at(batch.step + 1))
                states.append(json.loads(json.dumps(running.state_dict())))
        self.assertEqual([state["step"] for state in states], list(range(2 * STEPS + 1)))
        for at in range(0, 2 * STEPS, 7):
            one = self.loader(columns=["id"], threads=1)
            one.load_state_dict(states[at])
            self.assertEqual(one.state_dict(), states[at])
            self.assertEqual(steps_of(one), [step for step in expected[at:] if step[0] == at // STEPS])
            parts = [self.loader(rank=rank, world_size=2) for rank in range(2)]
            for part in parts:
                part.load_state_dict(states[at])
            joined = [a[2] + b[2] for a, b in zip(*map(steps_of, parts), strict=True)]
            self.assertEqual(joined, [step[2] for step in expected[at:] if step[0] == at // STEPS])

    def test_another_batch_size_continues_at_the_same_turn(self) -> None:
        one, half = self.loader(), self.loader(global_batch_size=BATCH // 2)
        seen = [batch.positions.tolist() for batch in itertools.islice(one, 3)]
        half.load_state_dict(one.state_dict())
        seen += [batch.positions.tolist() for batch in half]
        flat = [n for part in seen for n in part]
        self.assertEqual(len(flat), len(set(flat)))
        self.assertEqual(len(flat), RECORDS // (BATCH // 2) * (BATCH // 2))

    def test_other_data_and_orders_are_refused_with_both_values(self) -> None:
        state = self.loader().state_dict()
        for name, other, found in (
            ("order.seed", {"seed": 2}, ("1", "2")),
            ("order.window", {"window": 32}, ("16", "32")),
            ("order.shuffle", {"shuffle": False, "lanes": None, "window": None}, ("True", "False")),
            ("drop_last", {"drop_last": False}, ("True", "False")),
        ):
            with self.assertRaises(shardify.UsageError) as raised:
                self.loader(**other).load_state_dict(state)
            message = raised.exception.message
            self.assertTrue(name in message or name.startswith("order"), message)
            self.assertTrue(all(value in message for value in found) or name == "order.shuffle", message)
        with self.assertRaisesRegex(shardify.UsageError, "basis|split"):
            self.loader(self.data.split("train")).load_state_dict(state)
        with self.assertRaisesRegex(shardify.UsageError, "basis"):
            self.loader().load_state_dict({**state, "basis": "0" * 64})
        with self.assertRaisesRegex(shardify.UsageError, "version, left, epoch"):
            self.loader().load_state_dict({"version": 1, "left": [], "epoch": 0})

    def test_a_state_from_before_an_erasure_is_refused_unless_it_skips(self) -> None:
        shards = Path(self.folder.name, "erased")
        shutil.copytree(self.shards, shards)
        whole = [(batch.positions.tolist(), [str(one) for one in batch["id"]]) for batch in self.loader(shardify.open(shards, at=1))]
        state = self.loader(shardify.open(shards, at=1)).state_at(5)
        gone = {*whole[7][1], whole[2][1][0], whole[9][1][3]}
        shardify.erase(shards, record=sorted(gone), all_versions=True)
        left = [[at for at, one in zip(*step, strict=True) if one not in gone] for step in whole]
        one = self.loader(shardify.open(shards, at=1))
        self.assertEqual((one.records, one.state_dict()["basis"]), (RECORDS, state["basis"]))
        with self.assertRaisesRegex(shardify.UsageError, f"{len(gone)} of them were erased since") as raised:
            one.load_state_dict(state)
        self.assertIn('erased="skip"', raised.exception.hints[0])
        with self.assertRaisesRegex(shardify.UsageError, "found 'drop'"):
            one.load_state_dict(state, erased="drop")
        one.load_state_dict(state, erased="skip")
        batches = list(one)
        self.assertEqual([batch.positions.tolist() for batch in batches], left[5:])
        self.assertEqual([batch.expected for batch in batches], [BATCH] * (STEPS - 5))
        self.assertEqual([len(batches[2]), len(batches[2]["id"])], [0, 0])
        after = self.loader(shardify.open(shards, at=1)).state_at(5)
        one.load_state_dict(after)
        with self.assertRaisesRegex(shardify.UsageError, f"without the {len(gone)} records") as raised:
            self.loader().load_state_dict(after)
        self.assertIn("pull", raised.exception.hints[0])

    def test_a_running_loader_takes_no_state(self) -> None:
        one = self.loader()
        state, batches = one.state_dict(), iter(one)
        next(batches)
        with self.assertRaisesRegex(shardify.UsageError, "not ended"):
            one.load_state_dict(state)
        del batches
        one.load_state_dict(state)
        self.assertEqual(next(iter(one)).step, 0)

    def test_a_pickled_loader_continues(self) -> None:
        one = self.loader()
        expected = steps_of(self.loader())
        batches = iter(one)
        next(batches)
        other = pickle.loads(pickle.dumps(one))
        self.assertEqual(other.state_dict(), one.state_dict())
        other.load_state_dict(one.state_dict())
        self.assertEqual(steps_of(other), expected[1:])


@unittest.skipUnless(HAS_EXTENSION and HAS_NUMPY, "there is no extension or no numpy")
class Processes(OfDataset):
    def test_a_child_continues_and_its_parent_too(self) -> None:
        expected = steps_of(self.loader())
        for before in (0, 1, STEPS // 2, STEPS - 1):
            batches = iter(self.loader())
            steps_of(itertools.islice(batches, before))

            def work(batches: Any = batches, before: int = before) -> None:
                assert steps_of(batches) == expected[before:]

            join = in_child(work)
            self.assertEqual(steps_of(batches), expected[before:])
            join()

    def test_a_child_begins_anew(self) -> None:
        one = self.loader()
        expected = steps_of(one)

        def work() -> None:
            assert steps_of(self.loader()) == expected
            one.set_epoch(0)
            assert steps_of(one) == expected

        in_child(work)()

    def test_a_child_may_end_with_batches_of_its_parent(self) -> None:
        batches = iter(self.loader())
        kept = next(batches)
        in_child(lambda: (kept["id"].sum(), batches.close()))()
        self.assertEqual(len(list(batches)), STEPS - 1)

    def test_an_interrupt_ends_the_loop_within_a_second(self) -> None:
        program = (
            "import sys, time; sys.path[:0] = sys.argv[1:3]; import extension, shardify; extension.load()\n"
            "one = shardify.open(sys.argv[3], at=1).loader(global_batch_size=8, seed=1)\n"
            "try:\n"
            "    print('ready', flush=True)\n"
            "    while True:\n"
            "        for batch in one: pass\n"
            "except KeyboardInterrupt:\n"
            "    print('stopped', flush=True)\n"
        )
        here = [str(Path(shardify.__file__).parents[1]), str(Path(__file__).parent), str(self.shards)]
        with subprocess.Popen([sys.executable, "-c", program, *here], stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            running.stdout.readline()
            time.sleep(0.5)
            started = time.monotonic()
            running.send_signal(signal.SIGINT)
            self.assertEqual(running.stdout.readline(), "stopped\n")
            self.assertEqual(running.wait(LIMIT), 0)
            self.assertLess(time.monotonic() - started, 1)


@unittest.skipUnless(HAS_EXTENSION and HAS_NUMPY, "there is no extension or no numpy")
class Batches(OfDataset):
    def test_columns_are_arrays_that_outlive_their_batch(self) -> None:
        import numpy

        batch = next(iter(self.loader(fill={"half": -1, "rest": 9})))
        ids = batch["id"]
        self.assertEqual((len(batch), batch.step, ids.dtype, ids.flags.writeable), (BATCH, 0, numpy.int64, True))
        self.assertIs(ids, batch["id"])
        self.assertEqual(batch["half"].tolist(), [i / 2 if i % 3 else -1 for i in ids.tolist()])
        self.assertEqual(batch["rest"].tolist(), [i % 7 if i % 5 else 9 for i in ids.tolist()])
        self.assertEqual(batch["even"].tolist(), [i % 2 == 0 for i in ids.tolist()])
        days = [f"2026-01-{i % 28 + 1:02}" for i in ids.tolist()]
        self.assertEqual(batch["day"].astype("datetime64[D]").astype(str).tolist(), days)
        names, texts = batch["name"], [f"name {i}" for i in ids.tolist()]
        self.assertEqual((names.tolist(), names[-1], names[1:3], len(names)), (texts, texts[-1], texts[1:3], BATCH))
        with self.assertRaises(IndexError):
            names[BATCH]
        kept = ids.tolist()
        del batch
        self.assertEqual((ids.tolist(), names.tolist()), (kept, texts))
        ids += 1
        self.assertEqual(ids.tolist(), [i + 1 for i in kept])

    def test_nulls_are_errors_that_say_what_helps(self) -> None:
        # Of few records, which differ from run to run with the paths of the shards, none may have a null.
        most: dict[str, Any] = {"global_batch_size": RECORDS - RECORDS % ORDER["lanes"]}
        batch = next(iter(self.loader(**most)))
        with self.assertRaises(shardify.UsageError) as raised:
            batch["half"]
        self.assertIn("fill=", raised.exception.hints[0])
        self.assertIn(".arrow()", raised.exception.hints[1])
        for value in ("x", 1.5):
            with self.assertRaisesRegex(shardify.UsageError, "to fill nulls"):
                next(iter(self.loader(fill={"rest": value}, **most)))["rest"]
        with self.assertRaisesRegex(KeyError, "half"):
            batch["other"]
        for wrong in (lambda: len(self.loader(fill={"halb": 0})), lambda: self.data.take([0], fill={"halb": 0})):
            with self.assertRaisesRegex(shardify.UsageError, "did you mean `half`"):
                wrong()

    @unittest.skipUnless(HAS_PYARROW, "pyarrow is not installed")
    def test_arrow_has_the_same_memory_and_the_nulls(self) -> None:
        import pyarrow

        batch = next(iter(self.loader()))
        table = batch.arrow()
        self.assertEqual(table.column("half").to_pylist(), [i / 2 if i % 3 else None for i in batch["id"].tolist()])
        self.assertEqual(table.column("id").buffers()[1].address, batch["id"].ctypes.data)
        self.assertEqual(pyarrow.schema(batch), table.schema)
        self.assertEqual(batch.keys(), table.schema.names)
        expected = {row["id"]: row for row in self.data.pyarrow().to_table().to_pylist()}
        del batch
        self.assertEqual([expected[row["id"]] for row in table.to_pylist()], table.to_pylist())

    def test_settings_that_cannot_be_are_refused(self) -> None:
        for wrong, found in (
            ({"seed": -1}, "`seed` is -1"),
            ({"global_batch_size": 0}, "from 1 to"),
            ({"threads": 0}, "`threads` is 0"),
            ({"lanes": 3}, "not a multiple of the 3 lanes"),
            ({"memory": "much"}, "expected a size"),
            ({"memory": "1KiB"}, "memory for windows"),
        ):
            with self.assertRaisesRegex(shardify.UsageError, found):
                len(self.loader(**wrong))

    def test_columns_are_chosen(self) -> None:
        batch = next(iter(self.loader(columns=["name", "id"])))
        self.assertEqual(batch.keys(), ["name", "id"])
        with self.assertRaisesRegex(shardify.UsageError, "other"):
            next(iter(self.loader(columns=["other"])))

    def test_damage_is_an_error_with_its_place(self) -> None:
        copy = Path(self.folder.name, "damaged")
        shutil.copytree(self.shards, copy)
        data = shardify.open(copy, at=1)
        one = self.loader(data, columns=["name"])
        batches = iter(one)
        for path in data.paths():
            content = bytearray(Path(path).read_bytes())
            content[len(content) // 4 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 4)
            Path(path).write_bytes(content)
        with self.assertRaises(shardify.ShardifyError) as raised:
            list(batches)
        self.assertIn(raised.exception.code, (5, 6))
        self.assertIn("damaged", str(raised.exception.source))
        self.assertIn("step", raised.exception.message)
        self.assertEqual(list(batches), [])
        with self.assertRaises(shardify.UsageError):
            len(shardify.Dataset(f"{copy}/nothing", 1, "parquet", data.shards, {}).loader(global_batch_size=2, seed=1))

    def test_stats_are_numbers(self) -> None:
        one = self.loader()
        batches = iter(one)
        next(batches)
        stats = one.stats()
        self.assertGreaterEqual(stats["samples"], BATCH)
        self.assertEqual(len(list(batches)), STEPS - 1)
        del batches
        self.assertEqual((one.stats()["steps"], one.stats()["samples"]), (STEPS, STEPS * BATCH))
        self.assertTrue(all(isinstance(value, (int, float)) for value in stats.values()), stats)

    def test_arrays_are_taken_by_dlpack(self) -> None:
        import numpy

        batch = next(iter(self.loader()))
        taken = {"numpy": numpy.from_dlpack(batch["id"])}
        if HAS_TORCH:
            import torch

            taken["torch"] = torch.from_dlpack(batch["id"]).numpy()
        for package, array in taken.items():
            self.assertEqual((array.tolist(), array.ctypes.data), (batch["id"].tolist(), batch["id"].ctypes.data), package)

    @unittest.skipUnless(HAS_JAX, "jax is not installed")
    def test_jax_takes_arrays(self) -> None:
        import jax

        with jax.enable_x64(True):
            for batch in self.loader(columns=["id", "even"]):
                self.assertEqual(jax.dlpack.from_dlpack(batch["id"]).tolist(), batch["id"].tolist())
                self.assertEqual(jax.numpy.asarray(batch["even"]).tolist(), batch["even"].tolist())

    @unittest.skipUnless(HAS_TENSORFLOW, "tensorflow is not installed")
    def test_tensorflow_takes_tensors(self) -> None:
        columns = ["id", "name", "even", "day"]
        mixed = shardify.mix([(self.data, 1)], global_batch_size=BATCH, seed=1, steps=STEPS, columns=columns)
        for made in (self.loader(columns=columns), mixed):
            expected = [(batch["id"].tolist(), [name.encode() for name in batch["name"]]) for batch in pickle.loads(pickle.dumps(made))]
            found = [(batch["id"].numpy().tolist(), batch["name"].numpy().tolist()) for batch in made.tf()]
            self.assertEqual(found, expected)

    @unittest.skipUnless(HAS_TENSORFLOW, "tensorflow is not installed")
    def test_tensorflow_takes_lists_and_tensors(self) -> None:
        rows = [{"id": n, "some": list(range(n % 4)), "words": [f"w{n}"] * (n % 3), "deep": [[n], [n, n]][: n % 3]} for n in range(40)]
        raw = Path(self.folder.name, "lists.jsonl")
        raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
        shardify.convert(raw, out=f"{self.folder.name}/lists", to="parquet")
        data = shardify.open(f"{self.folder.name}/lists", at=1)
        found = [
            {name: column[at] for name, column in batch.items()}
            for batch in data.loader(global_batch_size=8, seed=1).tf()
            for at in range(len(batch["id"]))
        ]
        self.assertEqual(sorted(int(row["id"]) for row in found), list(range(40)))
        for row in found:
            expected = rows[int(row["id"])]
            self.assertEqual((row["some"].numpy().tolist(), row["deep"].to_list()), (expected["some"], expected["deep"]))
            self.assertEqual(row["words"].numpy().tolist(), [word.encode() for word in expected["words"]])

    @unittest.skipUnless(HAS_TORCH, "torch is not installed")
    def test_torch_takes_tensors(self) -> None:
        import torch
        from torch.utils.data import DataLoader

        expected = steps_of(self.loader())
        for workers in (0, 1, 3):
            data = self.loader(columns=["id", "name"]).torch()
            data.set_epoch(0)
            found = list(DataLoader(data, batch_size=None, num_workers=workers))
            self.assertEqual([batch["__step__"] for batch in found], [step[1] for step in expected])
            self.assertIsInstance(found[0]["id"], torch.Tensor)
            self.assertIsInstance(found[0]["name"][0], str)
        # As a StatefulDataLoader does: each of three workers stops and resumes by itself.
        steps = []
        for number in range(3):
            with mock.patch.object(loader, "_worker", lambda number=number: (number, 3)):
                data = self.loader(columns=["id"]).torch()
                steps.append([batch["__step__"] for batch in itertools.islice(data, 3)])
                other = self.loader(columns=["id"]).torch()
                other.load_state_dict(data.state_dict())
                steps[-1] += [batch["__step__"] for batch in other]
                # It made no batch of another worker's step.
                self.assertEqual(other.loader.stats()["steps"], len(steps[-1]) - 3)
        self.assertEqual(steps, [list(range(number, STEPS, 3)) for number in range(3)])

    @unittest.skipUnless(HAS_TORCHDATA, "torchdata is not installed")
    def test_a_stateful_data_loader_stops_and_resumes(self) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        expected = [n for batch in self.loader() for n in batch["id"].tolist()]

        def loaded(workers: int) -> Any:
            return StatefulDataLoader(self.loader(columns=["id"]).torch(), batch_size=None, num_workers=workers)

        for workers in (0, 1, 3):
            for stop in (0, 1, 5, STEPS - 1):
                first, other = loaded(workers), loaded(workers)
                seen = [n for batch in itertools.islice(first, stop) for n in batch["id"].tolist()] if stop else []
                if stop:
                    other.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
                seen += [n for batch in other for n in batch["id"].tolist()]
                self.assertEqual(seen, expected, (workers, stop))
            # The next epoch of the loader that was resumed has each record once, too.
            again = sorted(n for batch in other for n in batch["id"].tolist())
            self.assertEqual((len(again), len(set(again))), (STEPS * BATCH, STEPS * BATCH))


@unittest.skipUnless(HAS_EXTENSION and HAS_NUMPY, "there is no extension or no numpy")
class Samples(OfDataset):
    def test_parts_are_views(self) -> None:
        files = Path(self.folder.name, "files")
        files.mkdir()
        for i in range(30):
            (files / f"{i:03}.jpg").write_bytes(bytes([i]) * (i + 1))
            (files / f"{i:03}.cls").write_text(str(i))
        shardify.convert(files, out=f"{self.folder.name}/samples", to="tar", shards=2)
        one = shardify.open(f"{self.folder.name}/samples", at=1).loader(global_batch_size=6, seed=1, columns=["jpg", "cls"])
        seen = []
        for batch in one:
            parts = batch["jpg"]
            self.assertIsInstance(parts[0], memoryview)
            for part, label in zip(parts, batch["cls"], strict=True):
                self.assertEqual(bytes(part), bytes([int(bytes(label))]) * (int(bytes(label)) + 1))
            self.assertEqual(parts.tolist(), [bytes(part) for part in parts])
            seen += [len(part) for part in parts]
        self.assertEqual(sorted(seen), list(range(1, 31)))


class WithoutExtension(unittest.TestCase):
    def test_the_error_says_why_there_is_no_loader(self) -> None:
        shard = shardify.Shard("0", 10, 1, "none", "")
        data = shardify.Dataset("nowhere", 1, "parquet", (shard,), {})
        with mock.patch.dict(sys.modules, {"shardify._native": None}), self.assertRaises(shardify.MissingPackageError) as raised:
            len(data.loader(global_batch_size=2, seed=1))
        self.assertIn("_native", raised.exception.message)
        self.assertIn("cp310-abi3", raised.exception.hints[0])

    @unittest.skipUnless(HAS_NUMPY, "numpy is not installed")
    def test_tensors_and_lists_are_described(self) -> None:
        import numpy

        plain: dict[str, Any] = {"extension": None, "parameters": None, "type": "any"}
        tensor = {**plain, "kind": "array", "values": numpy.arange(12).reshape(2, 6), "extension": _columns.TENSOR}
        found = _columns.of_native({**tensor, "parameters": '{"shape":[3,2],"permutation":[1,0]}'}, "x", {})
        self.assertEqual(found.shape, (2, 2, 3))
        self.assertEqual(found[0].tolist(), [[0, 2, 4], [1, 3, 5]])
        gaps = numpy.zeros((2, 6), bool)
        gaps[1, 2] = True
        holes = {**tensor, "extension": None, "missing_items": gaps}
        with self.assertRaises(shardify.UsageError):
            _columns.of_native(holes, "x", {})
        self.assertEqual(_columns.of_native(holes, "x", {"x": -1})[1, 2], -1)
        floats = _columns.of_native({**holes, "values": numpy.ones((2, 6))}, "x", {})
        self.assertTrue(numpy.isnan(floats[1, 2]))
        items = {**plain, "kind": "array", "values": numpy.arange(5)}
        lists = _columns.of_native({**plain, "kind": "list", "offsets": numpy.array([0, 2, 2, 5]), "items": items}, "x", {})
        self.assertEqual(lists.tolist(), [[0, 1], [], [2, 3, 4]])
        with self.assertRaisesRegex(shardify.UsageError, "Struct"):
            _columns.of_native({**plain, "kind": "other", "type": "Struct"}, "x", {})


if __name__ == "__main__":
    unittest.main()
