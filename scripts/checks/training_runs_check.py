#!/usr/bin/env python3
"""Which steps of a training run saw a record is what its trainer wrote down, whatever happened to the dataset since.

Makes datasets of several runs with record and subject ids, in every format, plain, shuffled or divided. A trainer reads them with a loader
that records a run, and writes down the ids of every step. It is stopped at random steps, killed without a word, and goes on from the state of
a checkpoint, with other numbers of ranks. Then, at random: more is converted, the dataset is compacted, a subject is erased from all
versions, old versions are vacuumed, or a copy is pulled. After each of these, `manifest --find ID --runs`, `runs NAME --find` and
`runs NAME --step` say what the trainer wrote down, without those who were erased, and the newest clean checkpoint is the one that the
written list names. No file of a run holds an id. A file of events, written by a trainer that may only read, says the same.

A replay without somebody ends with the weights of a training from step 0 without the same records, byte for byte, by torch where it is there.

Runs of other data, steps that do not follow each other, changed events and second attempts are refused.

    python3 scripts/check.py training_runs_check [--rounds N] [--seed S]
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from harness import ROOT, Failure, expect, finish, not_run, run

FORMATS = ["parquet", "tar", "tar --codec zstd", "tfrecord"]
PATIENTS = 23

# A process of its own, which may be killed: reads from a state on, and writes down what it has done before it goes on.
TRAINER = """
import json, os, re, sys
import shardify

def ids_of(batch):
    column = next(name for name in ("id", "json", "record") if name in batch)
    return [one if column == "id" and isinstance(one, str) else re.search(rb"REC-[0-9]{6}", bytes(one)).group().decode() for one in batch[column]]

order = json.loads(sys.argv[1])
data = shardify.open(order["dataset"], at=order["at"])
if order["split"]:
    data = data.split(order["split"])
loader = data.loader(global_batch_size=order["batch"], seed=order["seed"], drop_last=order["drop_last"], shuffle=order["shuffle"], **order["lanes"])
if order["state"]:
    loader.load_state_dict(order["state"])
run = loader.record("run-7", report_every=order["report_every"], to=order["to"])
done = 0
with open(order["log"], "a") as log:
    while done < order["steps"]:
        for batch in loader:
            said = {"step": batch.step, "epoch": batch.epoch, "ids": ids_of(batch)}
            log.write(json.dumps(said) + "\\n")
            log.flush()
            done += 1
            if order["checkpoint_every"] and (batch.step + 1) % order["checkpoint_every"] == 0:
                state = loader.state_dict()
                loader.checkpoint(f"ckpt/{state['step']}")
                log.write(json.dumps({"checkpoint": state}) + "\\n")
                log.flush()
            if done >= order["steps"]:
                break
if order["killed"]:
    os._exit(9)
run.end()
"""


class Trainer:
    """A training run and what it wrote down: the records of each step that counts, and its checkpoints."""

    def __init__(self, shardify, folder, dataset, rng, at, split):
        self.shardify, self.folder, self.dataset, self.rng = shardify, folder, dataset, rng
        self.at, self.split = at, split
        self.seed, self.drop_last, self.shuffle = rng.randrange(1000), rng.random() < 0.7, rng.random() < 0.8
        self.batch, self.lanes = rng.choice(
            [(16, {}), (24, {"lanes": 4, "block": 7, "window": 19}), (12, {"lanes": 2, "block": 3, "window": 50})]
        )
        if not self.shuffle:
            self.lanes = {}
        self.report_every = rng.randint(1, 9)
        self.steps, self.checkpoints, self.ended = {}, {}, False
        # Steps that were done after the newest event: the run cannot know of them.
        self.reported = 0

    def attempt(self, killed, to=None):
        log = self.folder / f"log-{self.rng.randrange(10**9)}"
        state = self.checkpoints[max(self.checkpoints)] if self.steps and self.checkpoints else None
        begun = state["step"] if state else 0
        words = {
            "dataset": str(self.dataset), "at": self.at, "split": self.split, "batch": self.batch, "seed": self.seed, "drop_last": self.drop_last,
            "shuffle": self.shuffle, "lanes": self.lanes, "state": state, "report_every": self.report_every, "to": to, "log": str(log),
            "steps": self.rng.randint(1, 60), "checkpoint_every": self.rng.choice([0, 7, 13]) if self.checkpoints else 5, "killed": killed,
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", TRAINER, json.dumps(words)], env=environment(self.shardify), capture_output=True, text=True
        )
        if done.returncode != (9 if killed else 0):
            raise Failure(f"the trainer ended with {done.returncode}: {done.stderr[-3000:]}")
        self.steps = {step: found for step, found in self.steps.items() if step < begun}
        self.checkpoints = {step: one for step, one in self.checkpoints.items() if step <= begun}
        self.reported = begun
        for line in log.read_text().splitlines():
            said = json.loads(line)
            if "checkpoint" in said:
                self.checkpoints[said["checkpoint"]["step"]] = said["checkpoint"]
                self.reported = said["checkpoint"]["step"]
            else:
                self.steps[said["step"]] = said
                if said["step"] + 1 - self.reported >= self.report_every:
                    self.reported = said["step"] + 1
        self.ended = not killed
        if self.ended:
            self.reported = max(self.steps) + 1

    def seen(self, ids):
        """Steps that had one of some records, once for each, with their epochs."""
        return sorted((step, one["epoch"]) for step, one in self.steps.items() for id in one["ids"] if id in ids)

    def clean(self, first):
        """Steps of the newest checkpoint that is clean."""
        return max((step for step in self.checkpoints if step <= first), default=None)


def environment(shardify):
    return {
        **os.environ,
        "SHARDIFY_BINARY": str(pathlib.Path(shardify).resolve()),
        "PYTHONPATH": str(ROOT / "python"),
        "PYTHONWARNINGS": "error::UserWarning",
    }


def objects(shardify, *words, codes=(0,)):
    return [json.loads(line) for line in run(shardify, *words, "--json", codes=codes).decode().splitlines()]


class Round:
    """A dataset, its trainer, and what happens to them."""

    def __init__(self, shardify, folder, rng):
        self.shardify, self.folder, self.rng = shardify, folder, rng
        self.dataset, self.rows = folder / "ds", 0
        self.form = rng.choice(FORMATS)
        self.is_divided = rng.random() < 0.3
        more = ["--shuffle", "3"] if rng.random() < 0.4 else []
        more += ["--split", "train=0.7,test=0.3"] if self.is_divided else []
        for _ in range(rng.randint(1, 4)):
            self.convert(*(more if self.rows == 0 else []))
        self.at = "train"
        run(shardify, "manifest", self.dataset, "--tag", self.at)
        # The record ids of each record id and each subject, as the inputs have them.
        ids = {f"REC-{n:06}": f"PAT-{n * 7 % PATIENTS:05}" for n in range(self.rows)}
        self.ids = {id: {id} for id in ids}
        for id, patient in ids.items():
            self.ids.setdefault(patient, set()).add(id)
        self.trainer = Trainer(shardify, folder, self.dataset, rng, self.at, "train" if self.is_divided else None)

    def convert(self, *more):
        rows = self.rng.randint(20, 160)
        source = self.folder / f"s{self.rows:06}.csv"
        lines = [f"REC-{n:06},PAT-{n * 7 % PATIENTS:05},{n}" for n in range(self.rows, self.rows + rows)]
        source.write_text("id,patient,value\n" + "\n".join(lines) + "\n")
        begins = ["--id", "id", "--subject", "patient", "--to", *self.form.split()] if self.rows == 0 else []
        run(self.shardify, "convert", source, "--out", self.dataset, *begins, *more, "--target-shard", "4KiB")
        self.rows += rows

    def compare(self, dataset=None):
        """Asks for subjects and records, and compares the answers with what was written down."""
        dataset, trainer = dataset or self.dataset, self.trainer
        asked = self.rng.sample(sorted(self.ids), 6)
        for id in asked:
            want = trainer.seen(self.ids[id])
            words = self.rng.choice([("manifest", dataset, "--find", id, "--runs"), ("runs", dataset, "run-7", "--find", id)])
            found = objects(self.shardify, *words, codes=(0, 1))
            (report,) = (one for one in found if one["type"] == "run")
            certain = sorted((one["step"], one["epoch"]) for one in report["seen"] if one["is_certain"])
            expect(f"steps that saw {id}", certain, [one for one in want if one[0] < trainer.reported])
            unsure = {(one["step"], one["epoch"]) for one in report["seen"] if not one["is_certain"]}
            missing = {one for one in want if one[0] >= trainer.reported} - unsure
            if missing or (trainer.ended and unsure):
                raise Failure(f"{id}: steps after the newest event: expected {missing} among {unsure}; ended: {trainer.ended}")
            if want:
                clean = report["clean_checkpoint"]
                first = min(one["step"] for one in report["seen"])
                expect(f"clean checkpoint of {id}", clean and clean["step"], trainer.clean(first))
        self.compare_steps(dataset)

    def compare_steps(self, dataset):
        trainer = self.trainer
        alive = set().union(*self.ids.values()) if self.ids else set()
        for step in self.rng.sample(sorted(trainer.steps), min(3, len(trainer.steps))):
            found = [one for one in objects(self.shardify, "runs", dataset, "run-7", "--step", str(step)) if one["type"] == "record"]
            expect(f"slots of step {step}", [one["slot"] for one in found], list(range(len(found))))
            read = [one["record_id"] if one["state"] != "erased" else None for one in found]
            expect(f"records of step {step}", read, [id if id in alive else None for id in trainer.steps[step]["ids"]])

    def change(self):
        """Something that happens to a dataset."""
        what = self.rng.choice(["convert", "compact", "erase", "vacuum", "revert", "nothing"])
        if what == "convert":
            self.convert()
        elif what == "compact":
            run(self.shardify, "compact", self.dataset, "--target-shard", self.rng.choice(["8KiB", "64KiB"]), codes=(0, 1))
        elif what == "vacuum":
            run(self.shardify, "vacuum", self.dataset, "--retain", "0s", "--force")
        elif what == "revert":
            run(self.shardify, "revert", self.dataset, "--to", self.at)
        elif what == "erase":
            patient = self.rng.choice(sorted(id for id in self.ids if id.startswith("PAT-")))
            run(self.shardify, "erase", self.dataset, "--subject", patient, "--all-versions")
            gone = self.ids.pop(patient)
            self.ids = {id: left for id, found in self.ids.items() if (left := found - gone)}
        return what

    def pull(self):
        copy = self.folder / "copy"
        run(self.shardify, "pull", self.dataset, copy, "--at", self.at)
        self.compare(copy)
        shutil.rmtree(copy)

    def look_for_ids(self):
        """No file of a run holds an id."""
        for path in (self.dataset / "_shardify" / "training").rglob("*.json"):
            text = path.read_text()
            if "REC-" in text or "PAT-" in text:
                raise Failure(f"{path} holds an id")

    def refuse(self):
        """Forged events and other data are refused, and change nothing."""
        folder = self.dataset / "_shardify" / "training" / "run-7"
        events = [json.loads(path.read_text()) for path in sorted(folder.iterdir())]
        before = len(events)
        for event in events:
            event.pop("checksum")
        start, last = {"run": "run-8", **events[0], "name": "run-8"}, events[-1]
        basis = ("0" if start["basis"][0] != "0" else "1") + start["basis"][1:]
        forged = [
            {**start, "basis": basis},
            {**start, "records": start["records"] + 1},
            {**start, "order": {**start["order"], "lanes": start["records"] + 1}},
            {**start, "version": start["version"] + 1000},
            {**start, "format": 2},
            {"run": "run-7", **last, "attempt": "f" * 32, "kind": "progress", "step": last["step"] + 1},
            {"run": "run-7", **last, "kind": "progress", "turn": last["turn"] + 1},
            {"run": "run-9", **last, "kind": "progress"},
            {"run": "../x", **events[0], "name": "../x"},
        ]
        for one in forged:
            file = self.folder / "forged.jsonl"
            file.write_text(json.dumps(one) + "\n")
            run(self.shardify, "runs", self.dataset, "--add", file, codes=(2, 4, 5, 6))
        expect("events", len(list(folder.iterdir())), before)
        # What is known is not added again.
        file.write_text("".join(json.dumps({"run": "run-7", **event}) + "\n" for event in events))
        expect("events added twice", objects(self.shardify, "runs", self.dataset, "--add", file)[-1]["added"], 0)
        # A changed event is damage, not another answer.
        path = folder / self.rng.choice(sorted(os.listdir(folder)))
        text = path.read_bytes()
        at = self.rng.randrange(len(text) - 1)
        path.write_bytes(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        run(self.shardify, "runs", self.dataset, "run-7", codes=(5,))
        path.write_bytes(text)


# Trains from step 0 and writes the weights of checkpoints; or repeats a run without somebody; or trains from step 0 with the same holes.
REPLAY = """
import json, pathlib, sys
import shardify
from shardify.loader import Loader
try:
    import torch
except ImportError:
    torch = None
dataset, folder, who, steps, every, first = json.loads(sys.argv[1])
folder = pathlib.Path(folder)

def train(loader, model, run=None):
    done = loader.state_dict()["step"]
    while done < steps:
        for batch in loader:
            model.learn(batch)
            done += 1
            if run is not None and done % every == 0 and done >= first:
                model.save(folder / f"{done}.weights")
                run.checkpoint(folder / f"{done}.weights")
            if done == steps:
                break
    return model

class Numpy:
    def __init__(self):
        import numpy
        self.weights = numpy.linspace(-1, 1, 8)
    def learn(self, batch):
        import numpy
        for value in batch["value"]:
            self.weights = numpy.tanh(1.1 * self.weights + numpy.roll(self.weights, 1) * value / 997 / batch.expected)
    def save(self, path):
        path.write_bytes(self.weights.tobytes())
    def load(self, path):
        import numpy
        self.weights = numpy.frombuffer(pathlib.Path(path).read_bytes())
    def bytes(self):
        return self.weights.tobytes()

class Torch:
    def __init__(self):
        torch.manual_seed(1)
        torch.use_deterministic_algorithms(True)
        self.model = torch.nn.Sequential(torch.nn.Linear(1, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
    def learn(self, batch):
        value = batch.torch()["value"].float()[:, None] / 1000
        if not len(value):
            return
        loss = ((self.model(value) - value.sin()) ** 2).sum() / batch.expected
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
    def save(self, path):
        torch.save([self.model.state_dict(), self.optimizer.state_dict()], path)
    def load(self, path):
        model, optimizer = torch.load(path)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)
    def bytes(self):
        return b"".join(one.detach().numpy().tobytes() for one in self.model.parameters())

Model = Numpy if torch is None else Torch
data = shardify.open(dataset, at="train")
options = dict(global_batch_size=12, seed=5, lanes=2, block=3, window=40, columns=["value"])
loader = data.loader(**options)
with loader.record("full") as run:
    full = train(loader, Model(), run)
replay = data.replay("full", without=[who], columns=["value"])
model, clean = Model(), replay.replays["checkpoint"]
if clean:
    model.load(clean["name"])
with replay.record("replay"):
    train(replay, model)
numbers = shardify.find_in_runs(dataset, who, run="full")[0].raw["numbers"]
scratch = train(Loader(data, without=numbers, **options), Model())
print(json.dumps([clean and clean["step"], model.bytes() == scratch.bytes(), model.bytes() != full.bytes(), torch is not None]))
"""


def repeat(shardify, folder, rng):
    """A replay ends with the weights of a training from step 0 without the same records, and with others than the run."""
    dataset, rows = folder / "again", rng.randint(100, 300)
    source = folder / "again.csv"
    # Some come late: of them, early checkpoints are clean.
    lines = [f"REC-{n:06},PAT-{n:05},{n * 7919 % 997}" for n in range(rows)]
    source.write_text("id,patient,value\n" + "\n".join(lines) + "\n")
    run(shardify, "convert", source, "--out", dataset, "--id", "id", "--subject", "patient", "--to", "parquet")
    run(shardify, "manifest", dataset, "--tag", "train")
    words = [str(dataset), str(folder), f"PAT-{rng.randrange(rows):05}", rng.randint(20, 300), rng.randint(1, 5), rng.randint(1, 3)]
    python = ROOT / "target" / "venv-torch" / "bin" / "python"
    python = python if python.is_file() else sys.executable
    done = subprocess.run([python, "-c", REPLAY, json.dumps(words)], env=environment(shardify), capture_output=True, text=True)
    if "found none: its weights are those without them" in done.stderr:
        # It fell among the records that fill no step.
        return "nothing to repeat"
    if done.returncode:
        raise Failure(f"the replay ended with {done.returncode}: {done.stderr[-3000:]}")
    clean, same, differs, has_torch = json.loads(done.stdout)
    if not same or not differs:
        raise Failure(f"a replay from step {clean}: weights as from step 0 without the record: {same}; others than with it: {differs}")
    return f"replayed from step {clean} of {words[3]} with {'torch' if has_torch else 'numpy'}"


def look_at(shardify, folder, rng):
    one = Round(shardify, folder, rng)
    to = str(folder / "events.jsonl") if rng.random() < 0.3 else None
    for number in range(rng.randint(1, 4)):
        one.trainer.attempt(killed=rng.random() < 0.5, to=to)
        if to:
            run(shardify, "runs", one.dataset, "--add", to)
        one.compare()
    one.refuse()
    happened = [one.change()]
    one.compare()
    while rng.random() < 0.75:
        happened.append(one.change())
        one.compare()
    one.pull()
    one.look_for_ids()
    happened.append(repeat(shardify, folder, rng))
    return f"{one.form}, {len(one.trainer.steps)} steps; {', '.join(happened)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "python"))
    import shardify.loader

    try:
        shardify.loader.native()
    except shardify.MissingPackageError:
        not_run("training_runs_check", "the extension is not built; .ci/run links it")
        return
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as name:
            print(f"round {number}: {look_at(options.shardify, pathlib.Path(name), random.Random(options.seed + number))}", flush=True)


if __name__ == "__main__":
    finish(main)
