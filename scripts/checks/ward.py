#!/usr/bin/env python3
"""Simulates a hospital ward that sends files for 30 days, and holds the dataset against a model of it after every day.

Files are late, repeated, moved, corrected, wrong, empty or broken in part; columns come and types change; people opt out before
and after their records arrive, are let in again, and are mentioned in later files. A wrong file is removed, a bad day is
reverted. The model (`Model`) knows nothing of shards: it is a list of rows for each source, a set of people who are out, and what
each version held.

    python3 scripts/checks/ward.py --shardify target/release/shardify [--wards 3] [--days 30] [--seed 1] [--formats parquet]

After each day: the ids of the newest version are the model's, one for one; counts of every command are what the model says;
nobody who is out is there. Every fifth day `verify --read-data`, and every id is looked up. Prints a line per ward; exit code 1
if one failed, with its seed, day and command.
"""

import argparse
import collections
import json
import pathlib
import random
import tempfile
import time

from harness import FORMATS, Failure, Shardify, expect, finish

DONE, REJECTS, CHANGED = 0, 3, 8


class Model:
    """What the dataset has to hold."""

    def __init__(self):
        self.live = {}  # source -> [(id, pid)]
        self.out = set()  # people who must not be there
        self.versions = [None]  # what each version held: (live, out is global)

    def rows(self):
        return collections.Counter(row for rows in self.live.values() for row in rows)

    def take(self, source, rows):
        """Converts a source; returns how many records came in, and how many stayed out."""
        kept = [row for row in rows if row[1] not in self.out]
        self.live[source] = kept
        return len(kept), len(rows) - len(kept)

    def remove(self, source):
        return len(self.live.pop(source, []))

    def erase(self, pid):
        self.out.add(pid)
        before = sum(self.rows().values())
        self.live = {source: [row for row in rows if row[1] != pid] for source, rows in self.live.items()}
        return before - sum(self.rows().values())

    def committed(self):
        self.versions.append({source: list(rows) for source, rows in self.live.items()})

    def revert(self, version):
        then = self.versions[version]
        self.live = {source: [row for row in rows if row[1] not in self.out] for source, rows in then.items()}


class Ward:
    def __init__(self, options, form, seed, root):
        self.rng = random.Random(f"{seed}-{form}")
        self.shardify = Shardify(options.shardify)
        self.form, self.root, self.model = form, root, Model()
        self.inbox, self.dataset = root / "inbox", root / "ds"
        self.serial, self.commands, self.command, self.texts = 0, 0, "", {}
        self.columns, self.oldest = ["value"], 1

    def run(self, code, *words):
        self.command = " ".join(map(str, words))
        self.commands += 1
        found, objects, errors = self.shardify.run(*words)
        expect(f"exit code of `{self.command}` ({errors.strip()[-300:]})", found, code)
        return objects

    def people(self, count):
        return [f"PAT-{self.rng.randrange(40):02}" for _ in range(count)]

    def rows(self):
        self.serial += 1
        return [(f"r{self.serial}-{i}", pid) for i, pid in enumerate(self.people(self.rng.randrange(1, 30)))]

    def write(self, source, rows, broken=0):
        """Writes a source as CSV or JSON Lines."""
        path = self.inbox / source
        path.parent.mkdir(parents=True, exist_ok=True)
        value = self.rng.choice(["12", "13", "7.5", "high"] if len(self.columns) > 2 else ["12", "13"])
        if path.suffix == ".csv":
            lines = [",".join(["id", "pid", *self.columns])]
            lines += [",".join([*row, *([value] * len(self.columns))]) for row in rows]
            lines += [f"b{i},PAT-99,1,2,3,4,5,6,7,8,9" for i in range(broken)]
        else:
            lines = [json.dumps({"id": i, "pid": p, **dict.fromkeys(self.columns, value)}) for i, p in rows]
        path.write_text("".join(line + "\n" for line in lines))
        self.texts[source] = rows
        return path

    def convert(self, path, rows, broken=0, extra=(), removed=0):
        source = str(path)
        words = ["convert", path, "--out", self.dataset, "--to", self.form, "--id", "id", "--subject", "pid"]
        # Types change from file to file.
        words += ["--type", "id=text", "--type", "pid=text", "--on-error", "quarantine", "--on-schema", "union", *extra]
        summary = self.run(REJECTS if broken else DONE, *words)[-1]
        into, out = self.model.take(source, rows)
        found = tuple(summary.get(name, 0) for name in ("records_in", "records_out", "records_erased", "records_removed"))
        expect(f"counts of `{self.command}`", found, (len(rows) + broken, into, out, removed))
        self.model.committed()

    def look(self, deep):
        rows = [row for row in self.run(DONE, "manifest", self.dataset, "--export", "jsonl")]
        found = collections.Counter((row["record_id"], row["subject_id"]) for row in rows if "record_id" in row)
        expect("records", sorted((found - self.model.rows()).items()) + sorted((self.model.rows() - found).items()), [])
        expect("people who are out", sorted({pid for _, pid in found} & self.model.out), [])
        newest = self.run(DONE, "manifest", self.dataset)[-1]["version"]
        expect("version", newest, len(self.model.versions) - 1)
        if deep:
            self.run(DONE, "verify", self.dataset, "--read-data")
            ids = self.root / "ids"
            known = sorted(self.model.rows())
            ids.write_text("".join(f"{name}\n" for name, _ in known))
            if known:
                hits = [o for o in self.run(DONE, "manifest", self.dataset, "--find-file", ids) if o["type"] == "hit"]
                live = collections.Counter(hit["record_id"] for hit in hits if hit["state"] == "live")
                expect("ids found", live, collections.Counter(name for name, _ in self.model.rows().elements()))
            for pid in sorted(self.model.out)[:5]:
                # Older versions may still have them.
                found = self.shardify.run("manifest", self.dataset, "--find", pid)[1]
                expect(f"live hits of {pid}", [hit for hit in found if hit.get("state") == "live"], [])

    def day(self, number):
        rng, model = self.rng, self.model
        folder = f"day-{number:02}"
        for part in range(rng.randrange(1, 4)):
            rows, broken = self.rows(), rng.choice([0, 0, 0, 2])
            kind = "csv" if broken else rng.choice(["csv", "csv", "jsonl"])
            self.convert(self.write(f"{folder}/{part}/export.{kind}", rows, broken), rows, broken)
        event = rng.randrange(13) if number > 1 else 12
        known = sorted(name for name in model.live if (path := pathlib.Path(name)).exists() and path.stat().st_size > 0)
        source = pathlib.Path(rng.choice(known))
        if event == 0:  # the same file again: nothing to do
            summary = self.run(DONE, "convert", source, "--out", self.dataset)[-1]
            expect("sources unchanged", summary["sources_unchanged"], 1)
        elif event == 1:  # it was moved, and is known by its content
            copy = self.inbox / folder / f"again{source.suffix}"
            copy.write_bytes(source.read_bytes())
            summary = self.run(DONE, "convert", copy, "--out", self.dataset, "--identity", "content")[-1]
            expect("sources moved", summary["sources_moved"], 1)
        elif event == 2:  # corrected
            rows = self.rows()
            self.write(source.relative_to(self.inbox), rows)
            self.run(CHANGED, "convert", source, "--out", self.dataset)
            removed = len(model.live[str(source)])
            self.convert(source, rows, extra=["--on-changed", "replace"], removed=removed)
        elif event == 3:  # a wrong file, found the same day
            rows = self.rows()
            path = self.write(f"{folder}/wrong.csv", rows)
            self.convert(path, rows)
            gone = self.run(DONE, "remove", self.dataset, "--source", path)[-1]
            expect("records removed", gone["records"], model.remove(str(path)))
            model.committed()
            path.unlink()
        elif event == 4:  # an empty day
            self.convert(self.write(f"{folder}/header.csv", []), [])
            empty = self.inbox / folder / "empty.jsonl"
            empty.write_text("")
            self.convert(empty, [])
        elif event == 5:
            self.columns.append(f"extra{number}")
        elif event in (6, 7) and (people := sorted({pid for _, pid in model.rows()})):
            who = rng.choice(people)
            every = ["--all-versions"] if event == 6 else []
            summary = self.run(DONE, "erase", self.dataset, "--subject", who, *every)[-1]
            gone = model.erase(who)
            if not every:
                expect("records erased", summary["records_erased"], gone)
            model.committed()
        elif event == 8:  # opts out before anything arrives, or is let in again
            who = f"PAT-{40 + rng.randrange(10)}"
            if who in model.out:
                self.run(DONE, "unblock", self.dataset, "--subject", who, "--reason", "asked for")
                model.out.discard(who)
            elif any(pid == who for _, pid in model.rows()):  # too late to opt out in advance
                self.run(DONE, "erase", self.dataset, "--subject", who, "--all-versions")
                model.erase(who)
            else:
                self.run(DONE, "block", self.dataset, "--subject", who, "--reason", "asked for")
                model.out.add(who)
            model.committed()
            rows = [(f"o{number}-{i}", f"PAT-{40 + i}") for i in range(10)]
            self.convert(self.write(f"{folder}/others.csv", rows), rows)
        elif event == 9:  # the whole day was bad
            newest = len(model.versions) - 1
            to = rng.randrange(max(self.oldest, newest - 3), newest + 1)
            summary = self.run(DONE, "revert", self.dataset, "--to", f"v{to}")[-1]
            model.revert(to)
            if summary["version"] > newest:
                model.committed()
        elif event == 10:
            before = len(model.versions) - 1
            version = self.run(DONE, "compact", self.dataset, "--min-inputs", "2")[-1]["version"]
            if version > before:
                model.committed()
        elif event == 11:
            before = len(model.versions) - 1
            version = self.run(DONE, "vacuum", self.dataset, "--retain", "0s", "--force")[-1]["version"]
            if version > before:
                model.committed()
            self.oldest = before
        self.look(number % 5 == 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--wards", type=int, default=3)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    options = parser.parse_args()
    failed = 0
    for form in options.formats:
        for seed in range(options.seed, options.seed + options.wards):
            begun, number = time.monotonic(), 0
            with tempfile.TemporaryDirectory() as root:
                ward = Ward(options, form, seed, pathlib.Path(root))
                try:
                    for number in range(1, options.days + 1):
                        ward.day(number)
                    ward.look(True)
                except Failure as failure:
                    failed += 1
                    print(f"FAILED {form}, seed {seed}, day {number}, `{ward.command}`: {failure}", flush=True)
                rows, out = sum(ward.model.rows().values()), len(ward.model.out)
            seconds = time.monotonic() - begun
            print(
                f"{form}, seed {seed}: {number} days, {ward.commands} commands, {rows} records, {out} people out, {seconds:.0f} s",
                flush=True,
            )
    print(f"{len(options.formats) * options.wards} wards, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    finish(main)
