#!/usr/bin/env python3
"""Finds every id, and nothing else: `manifest --find` and `--find-file` against a full scan by DuckDB.

Ids are random and nasty: 4 kB long, with common begins, empty, with NUL, commas, quotes, line breaks, stars, in both
cases, in two Unicode forms, and such that look like origins or paths. They are appended in rounds; after each round,
again after each compaction, and after some of them were erased, all ids and as many that nobody has are looked up. Who was
erased does not come back with later rounds. The SQL of docs/FORMAT.md is run, too.
"""
import argparse
import json
import random
import re
import subprocess
import tempfile
import unicodedata
from collections import defaultdict
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import harness
from harness import Failure, finish

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--shardify", required=True)
parser.add_argument("--ids", type=int, default=20_000, help="record ids over all rounds; 1000000 for the long run")
parser.add_argument("--rounds", type=int, default=9, help="appends; the eighth crowds the id index")
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()
rng = random.Random(options.seed)
binary = str(Path(options.shardify).resolve())


def shardify(*arguments, codes=(0,), cwd=None):
    return harness.run(binary, *arguments, codes=codes, folder=cwd)


def word(length):
    return "".join(rng.choices("abcdefghijklmnopqrstuvwxyz0123456789-_.", k=length))


def nasty(number):
    """An id of one of many shapes; `number` makes it unique where the shape does not."""
    shape = number % 16
    unique = f"{number:x}"
    return {
        0: f"PAT-{number:09}",
        1: f"PAT-000{unique}",
        2: "x" * 4_000 + unique if number % 256 == 2 else word(30),
        3: f"part-0.parquet#{number}",
        4: f"a/b\\c/../{unique}",
        5: f"comma,{unique},\"quoted\"",
        6: f"line\nbreak\r\n{unique}",
        7: f"nul\0{unique}",
        8: f"star*{unique}*",
        9: ("CASE" if number % 32 == 9 else "case") + f"-{number // 32}",
        10: unicodedata.normalize("NFC" if number % 32 == 10 else "NFD", f"Zo\u00eb-\u00c5-{number // 32}"),
        11: f" blank {unique} ",
        12: f"{rng.getrandbits(128):032x}",
        13: f"\U0001f9ec{unique}\u202e",
        14: f"=1+{unique}",
        15: f"{number}",
    }[shape]


def absent(known):
    """Ids close to those that are there, which nobody has."""
    near = set()
    for id in rng.sample(sorted(known), min(len(known), options.ids)):
        for other in (id + " ", id.strip(), id.swapcase(), id[:-1], id + "#1", id + "\0", id.replace(",", ";"),
                      unicodedata.normalize("NFD", id), unicodedata.normalize("NFC", id)):
            near.add(other)
    return sorted(near - known)[:options.ids]


def scan(dataset):
    """Every place of every id, by reading all data."""
    live = [json.loads(line) for line in shardify("manifest", dataset, "--list", "--json").splitlines()]
    places = defaultdict(set)
    for shard in live:
        if shard["type"] != "shard":
            continue
        rows = duckdb.execute(
            "select rid, who from read_parquet(?) order by file_row_number", [f"{dataset}/{shard['path']}"]).fetchall()
        assert len(rows) == shard["records"], shard
        for ordinal, (rid, who) in enumerate(rows):
            if rid is not None:
                places[rid].add(("record", shard["path"], ordinal))
            if who is not None:
                places[who].add(("subject", shard["path"], ordinal))
    return places


def look_up(dataset, folder, expected, extra):
    ids = sorted(expected) + extra
    file = folder / "ids.jsonl"
    # Ids are separated by line feeds alone: some of them hold other line breaks, and JSON escapes them.
    file.write_text("".join(json.dumps(id) + "\n" for id in ids))
    found, summary = defaultdict(set), None
    process = subprocess.Popen([binary, "manifest", dataset, "--find-file", file, "--json"], stdout=subprocess.PIPE)
    for line in process.stdout:
        hit = json.loads(line)
        if hit["type"] == "summary":
            summary = hit
            continue
        if hit["type"] == "erased":
            assert hit["id"] in extra, hit
            continue
        assert hit["state"] == "live" and hit["stored"], hit
        place = (hit["kind"], hit["shard"], hit["ordinal"])
        assert place not in found[hit["id"]], f"twice: {hit}"
        found[hit["id"]].add(place)
    process.wait()
    assert summary and summary["ids"] == len(ids), summary
    if found != expected:
        wrong = [id for id in ids if found.get(id, set()) != expected.get(id, set())]
        raise Failure(f"{len(wrong)} ids are wrong, such as {wrong[0]!r}: "
                 f"{found.get(wrong[0])} instead of {expected.get(wrong[0])}")
    assert set(summary["missing"]) == set(extra), "what nobody has"


def erase(dataset, folder, known, all_versions):
    """Takes some ids out; returns these."""
    file = folder / "erased.jsonl"
    gone = rng.sample(sorted(known - {""}), 7) + ["PAT-000000016"]
    gone = sorted(set(gone) & known)
    file.write_text("".join(json.dumps(id) + "\n" for id in gone))
    erased, missing = 0, set(gone)
    # Some are record ids of some records and subject ids of others.
    for kind in ("record", "subject", "source"):
        report = json.loads(shardify("erase", dataset, "--ids", file, "--as", kind, "--json",
                                     *(["--all-versions"] if all_versions else []), codes=(0, 1)).splitlines()[-1])
        erased += report["records_erased"]
        missing &= set(report["missing"])
    assert erased > 0 and not missing, missing
    return gone


def look_up_some(dataset, expected, extra):
    """One by one, and by their begins."""
    for id in rng.sample(sorted(expected), 12) + extra[:3]:
        if "\0" in id or id.startswith("-"):
            continue
        argument = id[:-1] + "\\*" if id.endswith("*") else id
        lines = shardify("manifest", dataset, "--json", "--find", argument, codes=(0, 1)).splitlines()
        hits = {(hit["kind"], hit["shard"], hit["ordinal"]) for hit in map(json.loads, lines[:-1]) if hit["type"] == "hit"}
        assert hits == expected.get(id, set()), (id, hits, expected.get(id))
    for begin in ("PAT-000", "x" * 4_000, "Zo", "part-0.parquet#", "nobody has this"):
        count = sum(len(places) for id, places in expected.items() if id.startswith(begin))
        lines = shardify("manifest", dataset, "--json", "--limit", 5, "--find", begin + "*", codes=(0, 1)).splitlines()
        summary = json.loads(lines[-1])
        assert summary["hits"] == count and summary["shown"] == min(count, 5) == len(lines) - 1, (begin, summary, count)
        assert all(any(json.loads(line)[f].startswith(begin) for f in ("record_id", "subject_id"))
                   for line in lines[:-1])


def sql(dataset, expected):
    """The queries of the documentation."""
    text = (Path(__file__).resolve().parents[2] / "docs/FORMAT.md").read_text()
    queries = re.search(r"```sql\n(-- where the records of a subject are\n.*?)```", text, re.S)[1]
    subjects = [id for id, places in expected.items()
                if any(kind == "subject" for kind, _, _ in places) and not set(id) & set("'\0")]
    for id in rng.sample(sorted(subjects), 5):
        connection = duckdb.connect()
        statements = queries.replace("DATASET", str(dataset)).replace("PAT-00023", id).split(";\n")
        for statement in filter(str.strip, statements):
            rows = connection.execute(statement).fetchall()
        found = {("subject", shard, ordinal) for shard, ordinal in rows}
        assert found == {place for place in expected[id] if place[0] == "subject"}, (id, found, expected[id])


def main():
    with tempfile.TemporaryDirectory(prefix="shardify-ids-") as name:
        folder = Path(name)
        dataset = folder / "data"
        number, compacted, erased = 0, 0, set()
        for round in range(options.rounds):
            count = options.ids // options.rounds
            rids = [nasty(number + i) for i in range(count)]
            whos = [rng.choice([None, "", f"S-{rng.randrange(max(count // 8, 1))}", f"PAT-{rng.randrange(50):09}"])
                    for _ in range(count)]
            if round == 0:
                rids[0] = ""
            number += count
            source = folder / f"part-{round}.parquet"
            pq.write_table(pa.table({"rid": rids, "who": whos, "x": range(count)}), source)
            shardify("convert", source, "--out", dataset, "--id", "rid", "--subject", "who", "--quiet")
            last = round == options.rounds - 1
            if round % 4 == 3 or last:
                expected = scan(dataset)
                assert not erased & set(expected), "erased ids are back"
                extra = sorted({*absent(set(expected)), *erased})
                look_up(dataset, folder, expected, extra)
                look_up_some(dataset, expected, extra)
                shardify("compact", dataset, "--min-inputs", 2, *(["--sort-by", "x"] if round == 3 else []))
                compacted += 1
                expected = scan(dataset)
                look_up(dataset, folder, expected, extra)
                look_up_some(dataset, expected, extra)
                erased.update(erase(dataset, folder, set(expected), all_versions=compacted % 2 == 1))
                expected = scan(dataset)
                assert not erased & set(expected), "erased ids are still there"
                look_up(dataset, folder, expected, sorted({*extra, *erased}))
        # Scattered runs are not for SQL; a dataset that was never sorted is.
        plain = folder / "plain"
        for part in range(options.rounds):
            shardify("convert", folder / f"part-{part}.parquet", "--out", plain, "--id", "rid", "--subject", "who", "--quiet")
        expected = scan(plain)
        sql(plain, expected)
        report = json.loads(shardify("compact", plain, "--min-inputs", 2, "--json").splitlines()[-1])
        # Each commit has merged small segments before.
        assert report["segments_after"] < 4, report
        expected = scan(plain)
        sql(plain, expected)
        look_up(plain, folder, expected, [])
        shardify("verify", dataset)
        shardify("verify", plain)
        print(f"{len(expected)} ids before and after {compacted + 1} compactions, {len(erased)} of them erased: "
              "every record found, and no other")


finish(main)
