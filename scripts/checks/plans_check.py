#!/usr/bin/env python3
"""Plans whose processes are killed, and commits beside other commands: every record is there once.

Five kinds of rounds, on a local folder or on S3 (moto):

- kill: `plan`, two processes of `run-task` at once and `commit` are killed at random moments and started again until the plan is
  committed. The shards have to be those of an undisturbed run.
- commits: two processes commit one plan at once. There is one version, and neither fails but for the other.
- erase: a plan with records of a subject is committed while the subject is erased. The subject is in no version and no object.
- compact: a plan is committed while the dataset is compacted.
- merges: the tasks of a planned compaction are killed and started again, then two processes commit it while a third converts, compacts
  or erases.

    python3 scripts/checks/plans_check.py --shardify target/release/shardify [--rounds 10] [--kinds KIND...] [--store local|s3]
        [--seed N]

Prints a line per kind and one per failure; exit code 1 if there was one. `--rounds` are those of each kind.
"""

import argparse
import collections
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import harness
from harness import CONFLICT, FORMATS, OK, USAGE, Failure, expect, finish, rounds_of
from stores_check import bucket_of

FILES = 12
ROWS = 300
TASKS = "24KiB"
KINDS = ("kill", "commits", "erase", "compact", "merges")


def write_inputs(folder):
    """Tables of a dozen tasks. Returns the ids, and those of subject 7."""
    ids, of_subject = collections.Counter(), set()
    folder.mkdir()
    for file in range(FILES):
        with open(folder / f"{file:02}.csv", "w", encoding="utf-8") as out:
            out.write("id,who,value\n")
            for row in range(ROWS):
                one, who = f"{file}-{row}", f"PAT-{row % 20}"
                out.write(f"{one},{who},{'x' * (row % 50)}\n")
                ids[one] += 1
                if who == "PAT-7":
                    of_subject.add(one)
    return ids, of_subject


class Place:
    """Where datasets are: a folder, or a bucket."""

    def __init__(self, root, bucket=None):
        self.root, self.bucket, self.count = root, bucket, 0

    def fresh(self):
        self.count += 1
        if self.bucket:
            return f"{self.bucket.root}/d{self.count}"
        return str(self.root / f"d{self.count}")

    def objects(self, dataset):
        if self.bucket:
            prefix = dataset.removeprefix(f"{self.bucket.root}/") + "/"
            return {key: self.bucket.get(key) for key in self.bucket.keys(prefix)}
        return {str(p): p.read_bytes() for p in pathlib.Path(dataset).rglob("*") if p.is_file()}

    def forget(self, dataset):
        if self.bucket:
            # moto looks at each object of a bucket to list a few.
            self.bucket.forget(dataset.removeprefix(f"{self.bucket.root}/") + "/")
        else:
            shutil.rmtree(dataset, ignore_errors=True)


class Rounds:
    """All rounds of one store."""

    def __init__(self, shardify, place, inputs, rng):
        self.shardify, self.place, self.rng = shardify, place, rng
        self.inputs = inputs
        self.ids, self.of_subject = write_inputs(inputs)
        self.expected = {}
        self.kills = 0

    def options(self, form):
        return ["--id", "id", "--subject", "who", "--to", form, "--target-shard", "16KiB", "--task-size", TASKS]

    def plan(self, dataset, form):
        report = self.shardify.ok("plan", "convert", self.inputs, "--out", dataset, *self.options(form))[-1]
        return report["plan"], report["tasks"]

    def shards(self, dataset):
        listed = [one for one in self.shardify.ok("manifest", dataset, "--list") if one["type"] == "shard"]
        return collections.Counter((one["blake3"], one["records"]) for one in listed)

    def undisturbed(self, form):
        """Shards of a run without kills, and its time."""
        if form not in self.expected:
            dataset, started = self.place.fresh(), time.monotonic()
            self.shardify.ok("convert", self.inputs, "--out", dataset, *self.options(form))
            self.expected[form] = self.shards(dataset), time.monotonic() - started
        return self.expected[form]

    def check(self, dataset, ids):
        self.shardify.ok("verify", dataset, "--read-data")
        found = self.shardify.ids(dataset)
        if found != ids:
            lost, more = ids - found, found - ids
            raise Failure(f"{len(lost)} records are lost, {len(more)} are there that should not be: {list((lost + more))[:5]}")

    def start(self, *arguments):
        command = self.shardify.command(*arguments)
        return subprocess.Popen(
            command, env=self.shardify.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def killed(self, seconds, commands):
        """Starts commands at once and kills them at random moments; returns those that ended, with what they said."""
        processes = [self.start(*command) for command in commands]
        ended = []
        for process in processes:
            try:
                process.wait(timeout=self.rng.uniform(0, seconds))
                ended.append((process.returncode, process.stderr.read()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.kills += 1
        return ended

    def kill(self, form):
        expected, seconds = self.undisturbed(form)
        dataset = self.place.fresh()
        planning = ["plan", "convert", self.inputs, "--out", dataset, *self.options(form)]
        self.killed(seconds / 3, [planning])
        plan, tasks = self.plan(dataset, form)
        for _ in range(3):
            middle = self.rng.randrange(tasks)
            running = [["run-task", plan, "--task", f"0..{middle}"], ["run-task", plan, "--task", f"{middle // 2}..{tasks - 1}"]]
            for code, said in self.killed(seconds, running):
                expect(f"exit code of a task ({said})", code, OK)
        self.shardify.ok("run-task", plan, "--task", f"0..{tasks - 1}")
        for code, said in self.killed(seconds / 4, [["commit", plan]]):
            expect(f"exit code of a commit ({said})", code, OK)
        self.shardify.ok("commit", plan)
        self.check(dataset, self.ids)
        expect("shards", self.shards(dataset), expected)
        expect("versions", self.shardify.versions(dataset), [1])
        self.shardify.ok("vacuum", dataset, "--retain", "0s", "--force")
        self.check(dataset, self.ids)
        return dataset

    def ready(self, form, dataset):
        plan, tasks = self.plan(dataset, form)
        self.shardify.ok("run-task", plan, "--task", f"0..{tasks - 1}")
        return plan

    def together(self, *commands):
        processes = [self.start(*command) for command in commands]
        said = [process.communicate(timeout=300)[1] for process in processes]
        return [process.returncode for process in processes], said

    def commits(self, form):
        dataset = self.place.fresh()
        plan = self.ready(form, dataset)
        codes, said = self.together(["commit", plan], ["commit", plan])
        if OK not in codes or not set(codes) <= {OK, CONFLICT, USAGE}:
            raise Failure(f"commits ended with {codes}: {said}")
        self.shardify.ok("commit", plan)
        expect("versions", self.shardify.versions(dataset), [1])
        self.check(dataset, self.ids)
        return dataset

    def base(self, form, dataset, count):
        """A dataset with a few records of the subject and others; returns their ids."""
        ids = collections.Counter()
        for number in range(count):
            rows = "".join(f"base{number}-{row},PAT-{7 if row == 3 else 30},b\n" for row in range(20))
            table = self.inputs.parent / f"base{number}.csv"
            table.write_text("id,who,value\n" + rows)
            self.shardify.ok("convert", table, "--out", dataset, "--id", "id", "--subject", "who", "--to", form)
            ids.update(f"base{number}-{row}" for row in range(20))
        return ids

    def erase(self, form):
        dataset = self.place.fresh()
        base = self.base(form, dataset, 1)
        plan = self.ready(form, dataset)
        codes, said = self.together(["commit", plan], ["erase", "--subject", "PAT-7", dataset, "--all-versions"])
        if codes[1] != OK or codes[0] not in (OK, CONFLICT, USAGE):
            raise Failure(f"commit and erase ended with {codes}: {said}")
        all_ids = base + self.ids if codes[0] == OK else base
        self.check(dataset, collections.Counter({one: n for one, n in all_ids.items() if one not in self.of_subject and one != "base0-3"}))
        if codes[0] != OK:
            # Neither its shards nor the lists and segments of attempts that lost the race.
            own = [path for path in self.place.objects(dataset) if pathlib.Path(plan).stem[:16] in path]
            expect("objects of the plan", [path for path in own if "/locks/" not in path], [])
        return dataset

    def compact(self, form):
        dataset = self.place.fresh()
        base = self.base(form, dataset, 4)
        plan = self.ready(form, dataset)
        codes, said = self.together(["commit", plan], ["compact", dataset])
        if codes[0] != OK or codes[1] not in (OK, CONFLICT):
            raise Failure(f"commit and compact ended with {codes}: {said}")
        self.check(dataset, base + self.ids)
        return dataset

    def merges(self, form):
        dataset = self.place.fresh()
        ids = self.base(form, dataset, 8)
        select = ["--min-inputs", "2", "--target-shard", "64KiB", "--task-size", "1KiB"]
        report = self.shardify.ok("plan", "compact", dataset, *select)[-1]
        plan, last = report["plan"], report["tasks"] - 1
        for _ in range(2):
            middle = self.rng.randint(0, last)
            running = [["run-task", plan, "--task", f"0..{middle}"], ["run-task", plan, "--task", f"{middle}..{last}"]]
            for code, said in self.killed(0.1, running):
                expect(f"exit code of a task ({said})", code, OK)
        self.shardify.ok("run-task", plan, "--task", f"0..{last}")
        beside = self.rng.choice(("convert", "compact", "erase"))
        table = self.inputs.parent / "beside.csv"
        table.write_text("id,who,value\nbeside,PAT-30,b\n")
        command = {
            "convert": ["convert", table, "--out", dataset, "--id", "id", "--subject", "who", "--to", form],
            "compact": ["compact", dataset, "--min-inputs", "2", "--until", "v4"],
            "erase": ["erase", "--subject", "PAT-7", dataset, *self.rng.choice(([], ["--all-versions"]))],
        }[beside]
        codes, said = self.together(["commit", plan], ["commit", plan], command)
        if not set(codes[:2]) <= {OK, CONFLICT, USAGE} or codes[2] not in (OK, CONFLICT):
            raise Failure(f"two commits and {beside} ended with {codes}: {said}")
        if beside == "convert":
            ids["beside"] += 1
            if OK not in codes[:2]:
                raise Failure(f"two commits beside a conversion ended with {codes}: {said}")
        if beside == "erase" and codes[2] == OK:
            ids = collections.Counter({one: n for one, n in ids.items() if not one.endswith("-3")})
        self.check(dataset, ids)
        # Nothing that was written for merges which were not committed is left.
        self.shardify.ok("vacuum", dataset, "--retain", "0s", "--force")
        self.check(dataset, ids)
        return dataset

    def all(self, rounds, kinds):
        def killed(_):
            kills, self.kills = self.kills, 0
            return f", {kills} processes killed" if kills else ""

        plan = [(getattr(self, kind), rounds) for kind in kinds]
        return rounds_of(plan, [(form,) for form in FORMATS], self.place.forget, killed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--rounds", type=int, default=10, help="rounds of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        with bucket_of(options.store) as bucket:
            shardify = harness.Shardify(options.shardify, bucket and bucket.settings)
            return 1 if Rounds(shardify, Place(root, bucket), root / "raw", rng).all(options.rounds, options.kinds) else 0


if __name__ == "__main__":
    finish(main)
