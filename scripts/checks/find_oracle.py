#!/usr/bin/env python3
"""Holds `manifest --find-file` and `erase --dry-run` against `manifest --export`: for each id exactly the rows that have it.

Datasets are made to mislead: sources of one name from several folders and runs, rows that are rejected at the begin, in the
middle and at the end of a source, sources of which nothing is left, ids that several records share, subject ids that are record
ids of others, ids that look like origins of other records, private ids with and without names of sources. Each is converted
in several runs, compacted (or sorted), appended to, erased from, and some are adopted. Then every id of the export, and as many
that nobody has, are looked up: nothing may be missing, and nothing extra. `erase --dry-run` has to count the same records
of each id, and the same rows of each shard.
"""
import argparse
import hashlib
import hmac
import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path

import harness
from harness import Failure, finish

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--shardify", required=True)
parser.add_argument("--ids", type=int, default=20_000, help="ids over all datasets, about; 1000000 for the long run")
parser.add_argument("--erase-ids", type=int, default=200, help="ids of each dataset that `erase --dry-run` is asked for")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--only", help="one of the datasets")
options = parser.parse_args()
binary = str(Path(options.shardify).resolve())
KEY = hashlib.sha256(b"a key for the oracle").digest()


def mac(key, text):
    return hmac.new(key, text, "sha256").digest()


SOURCES_KEY = mac(mac(b"shardify private ids v1", KEY), b"sources\x01")


def shardify(*arguments, codes=(0,), cwd=None):
    return harness.run(binary, *arguments, codes=codes, folder=cwd)


class Case:
    """A dataset, and what its ids are called by people."""

    def __init__(self, folder, name, rows, form="parquet", mode=None, redacted=False, ids=True, order=None, adopted=False):
        self.rng = random.Random(f"{options.seed} {name}")
        self.folder, self.name, self.rows, self.form = folder / name, name, rows, form
        self.mode, self.redacted, self.ids, self.order, self.adopted = mode, redacted, ids, order, adopted
        self.dataset = self.folder / "ds"
        self.folder.mkdir()
        (self.folder / "key").write_bytes(KEY)
        self.key = ["--id-key", self.folder / "key"] if mode else []
        self.given = set()
        self.sources = set()
        self.serial = 0

    def id(self):
        """A record id of one of many shapes; some were given before, some are those of subjects."""
        self.serial += 1
        shape, n = self.rng.randrange(12), self.serial
        return {
            0: f"rec-{n}", 1: f"x.csv#{self.rng.randrange(1, 60)}", 2: f"day/x.csv#{n}", 3: f"PAT-{self.rng.randrange(400)}",
            4: f"rec-{self.rng.randrange(max(1, n))}", 5: f"{n}", 6: f"0{n}", 7: f"a\u0308-{n}", 8: f"x.csv#0{n}", 9: f"#{n}",
            10: f"x.csv#{n}#1", 11: f"rec {n} *",
        }[shape]

    def source(self, path, rows):
        """A table whose name others have, with rows that are rejected."""
        path.parent.mkdir(parents=True, exist_ok=True)
        bad = self.rng.choice(["none", "begin", "end", "some", "most", "all" if rows < 30 else "some"])
        before = None
        with open(path, "w", newline="") as file:
            file.write("id,who,value\n" if self.ids else "value,more\n")
            for row in range(1, rows + 1):
                rejected = {"none": False, "begin": row <= rows // 3, "end": row > rows - rows // 3, "all": True,
                            "some": self.rng.random() < 0.2, "most": self.rng.random() < 0.9}[bad]
                if rejected:
                    file.write("1,2,3,4,5\n")
                elif self.ids:
                    record, who = self.id(), f"PAT-{self.rng.randrange(400)}"
                    if record == before:
                        # Samples that follow one another in a tar need keys of their own, and are refused otherwise.
                        record = f"twin-{self.serial}"
                    before = record
                    if self.rng.random() < 0.02:
                        who = f"x.csv#{self.rng.randrange(1, 60)}"
                    self.given.update((record, who))
                    file.write(f'{record},{who},{row}\n')
                else:
                    file.write(f"{row},{self.name}\n")

    def convert(self, runs):
        first = not self.dataset.exists()
        names = ["x.csv", "y.csv", "day/x.csv"]
        for run in range(runs):
            folder = self.folder / f"in{self.serial}-{run}-{self.rng.randrange(1 << 40)}"
            sizes = [self.rng.choice([5, 40, max(60, self.rows // (4 * runs))]) for _ in names]
            for name, rows in zip(names, sizes):
                self.source(folder / name, rows)
                self.sources.add(name)
            arguments = ["--on-error", self.rng.choice(["skip", "quarantine"]), "--out", self.dataset]
            if first:
                arguments += ["--to", self.form, *(["--id", "id", "--subject", "who"] if self.ids else [])]
                arguments += ["--id-mode", self.mode] if self.mode else []
                arguments += ["--redact-source-paths"] if self.redacted else []
                first = False
            # The folder, or one of its files: both give sources of the same names.
            what = folder if self.rng.random() < 0.7 else folder / "x.csv"
            shardify("convert", what, *arguments, *self.key, "--target-shard", "64KiB", codes=(0, 3))

    def adopt(self):
        """Shards that another dataset wrote, adopted in place and from several folders under one name."""
        for number in range(3):
            other = self.folder / f"other{number}"
            self.source(self.folder / f"o{number}" / "x.csv", max(60, self.rows // 6))
            shardify("convert", self.folder / f"o{number}" / "x.csv", "--out", other, "--to", self.form, "--on-error", "skip",
                     codes=(0, 3))
            place = self.folder / ("ds/part" if number == 0 else f"from{number}/part")
            place.mkdir(parents=True)
            for shard in sorted(other.glob(f"[0-9a-f]*/*.{self.form}*")):
                (place / shard.name).write_bytes(shard.read_bytes())
            ids = ["--id", "id", "--subject", "who"] if self.ids else []
            where = [self.dataset] if number == 0 else [self.folder / f"from{number}", "--out", self.dataset]
            shardify("adopt", *where, *ids)

    def export(self):
        return [json.loads(line) for line in shardify("manifest", self.dataset, "--export", "jsonl", *self.key).splitlines()]

    def names(self):
        """What people ask for, by what an export says: tokens of private ids lead nowhere by themselves."""
        if not self.mode:
            return {}
        out = {mac(KEY, text.encode())[:16].hex(): text for text in self.given}
        self.tokens = {mac(SOURCES_KEY, name.encode())[:16].hex(): name for name in self.sources} if self.redacted else {}
        return out

    def asked(self, stored, names):
        if not self.mode:
            return stored
        if stored in names:
            return names[stored]
        source, _, row = stored.rpartition("#")
        if source in self.tokens:
            return f"{self.tokens[source]}#{row}"
        return stored

    def expected(self):
        names, wanted = self.names(), defaultdict(set)
        self.origins = set()
        for row in self.export():
            place = (row["shard"], row["ordinal"])
            if row["record_id"] == f"{row['source']}#{row['row']}":
                self.origins.add(place)
            wanted[self.asked(row["record_id"], names)].add(("record", *place))
            if row.get("subject_id") is not None:
                wanted[self.asked(row["subject_id"], names)].add(("subject", *place))
        return wanted

    def check(self, step):
        wanted = self.expected()
        ids = list(wanted)
        ids += [f"nobody-{i}" for i in range(len(ids) // 4)] + [f"x.csv#{i}" for i in range(1, 200)]
        ids += [f"{name}#{row}" for name in self.sources for row in (0, 1, 10**9, 10**18)] + ["#", "x.csv#", "x.csv#-1", "x.csv#1 "]
        ids = list(dict.fromkeys(ids))
        self.rng.shuffle(ids)
        file = self.folder / "ids.jsonl"
        file.write_text("".join(json.dumps(one) + "\n" for one in ids))
        found = defaultdict(set)
        hits = 0
        for line in shardify("manifest", self.dataset, "--find-file", file, "--export", "jsonl", *self.key, codes=(0, 1)).splitlines():
            hit = json.loads(line)
            if hit.get("state") == "live":
                hits += 1
                found[hit["id"]].add((hit["kind"], hit["shard"], hit["ordinal"]))
        for one in ids:
            if found[one] != wanted.get(one, set()):
                missing, extra = wanted.get(one, set()) - found[one], found[one] - wanted.get(one, set())
                raise Failure(f"{self.name}, {step}: `{one}`: not found {sorted(missing)[:3]}, found as well {sorted(extra)[:3]}")
        some = self.rng.sample(ids, min(options.erase_ids, len(ids)))
        self.check_erase(step, some, wanted)
        return len(ids), hits, len(some)

    def check_erase(self, step, ids, wanted):
        kinds = {one: defaultdict(set) for one in ids}
        for one in ids:
            for kind, *place in wanted.get(one, ()):
                kind = "source" if kind == "record" and tuple(place) in self.origins else kind
                kinds[one][kind].add(tuple(place))
        for kind in ("record", "subject", "source"):
            self.check_plan(step, {one: kinds[one][kind] for one in ids}, "--as", kind)
        plain = {one: set().union(*kinds[one].values()) for one in ids}
        clear = {one: rows for one, rows in plain.items()
                 if not rows or rows in kinds[one].values() and len(kinds[one].get("source", ())) < 2}
        self.check_plan(step, clear)
        for one in [one for one in ids if one not in clear][:5]:
            shardify("erase", self.dataset, one, "--dry-run", *self.key, codes=(2,))

    def check_plan(self, step, rows, *words):
        ids = list(rows)
        file = self.folder / "erase.jsonl"
        file.write_text("".join(json.dumps(one) + "\n" for one in ids))
        plan = shardify("erase", self.dataset, "--ids", file, "--dry-run", "--json", *words, *self.key, codes=(0, 1))
        of_id, of_shard = {}, {}
        for line in plan.splitlines():
            row = json.loads(line)
            if row["type"] == "id":
                of_id[row["id"]] = row["records"]
            elif row["type"] == "shard":
                of_shard[row["was"]] = row["records_erased"]
        for one in ids:
            if of_id[one] != len(rows[one]):
                raise Failure(f"{self.name}, {step}: erase of `{one}`: expected {len(rows[one])} records, found {of_id[one]}")
        expected = Counter(shard for shard, _ in set().union(*rows.values(), set()))
        if expected != of_shard:
            raise Failure(f"{self.name}, {step}: erase: expected {expected}, found {of_shard}")

    def erase(self, all_versions):
        ids = list(self.expected())
        some = self.rng.sample(ids, min(3, len(ids)))
        file = self.folder / "gone.jsonl"
        file.write_text("".join(json.dumps(one) + "\n" for one in some))
        # What somebody else's records are called as well is nobody's name alone.
        for kind in ("record", "subject", "source"):
            shardify("erase", self.dataset, "--ids", file, "--as", kind, *(["--all-versions"] if all_versions else []), *self.key,
                     codes=(0, 1))

    def run(self):
        counts = Counter()

        def checked(step):
            asked, hits, erased = self.check(step)
            counts.update(checks=1, ids=asked, hits=hits, erased=erased)

        if self.adopted:
            self.adopt()
            checked("adopted")
            self.erase(False)
        else:
            self.convert(4)
            checked("converted")
        order = ["--sort-by", self.order] if self.order else []
        shardify("compact", self.dataset, "--min-inputs", 2, "--target-shard", "256KiB", *order)
        checked("compacted")
        if not self.adopted:
            self.convert(2)
        self.erase(False)
        checked("erased from the newest")
        self.erase(True)
        checked("erased from all")
        shardify("vacuum", self.dataset, "--retain", 0, "--force")
        checked("vacuumed")
        return counts


CASES = {
    "origins": dict(ids=False), "origins-tar": dict(ids=False, form="tar"), "origins-tfrecord": dict(ids=False, form="tfrecord"),
    "origins-sorted": dict(ids=False, order="value"), "ids": dict(), "ids-tar": dict(form="tar"), "ids-sorted": dict(order="value"),
    "hmac": dict(mode="hmac"), "sealed-redacted": dict(mode="sealed", redacted=True),
    "hmac-origins": dict(mode="hmac", ids=False), "redacted-origins": dict(mode="hmac", redacted=True, ids=False),
    "adopted": dict(adopted=True), "adopted-origins": dict(adopted=True, ids=False),
}


def main():
    begun, total = time.monotonic(), Counter()
    chosen = [options.only] if options.only else list(CASES)
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            # Each dataset is checked five times; together that are about as many ids as it has rows here.
            rows = max(400, options.ids // len(chosen))
            began = time.monotonic()
            counts = Case(Path(folder), name, rows, **CASES[name]).run()
            total.update(counts)
            print(f"{name}: {counts['checks']} checks of {counts['ids']} ids, {counts['hits']} rows found, "
                  f"{counts['erased']} ids for erase, {time.monotonic() - began:.1f} s", flush=True)
    print(f"ids looked up {total['ids']}, rows found {total['hits']}, ids for erase {total['erased']}, nothing missing, nothing extra, "
          f"{time.monotonic() - begun:.0f} s")


finish(main)
