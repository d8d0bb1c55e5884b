#!/usr/bin/env python3
"""With `--json`, each line of standard error is an event of the published schema, as the package `jsonschema` sees it.

Runs commands that succeed, reject records, find nothing, are interrupted, or fail by usage, input or storage, and validates what they
write to standard error by `docs/reference/events.schema.json`. Each kind of event has to occur. Standard output has objects with a type,
the last one a summary, or the error of standard error.

    python3 scripts/checks/events_check.py --shardify target/release/shardify
"""

import argparse
import collections
import json
import pathlib
import random
import signal
import subprocess
import tempfile
import time

import jsonschema

from harness import ROOT, Failure, expect, finish

SCHEMA = ROOT / "docs" / "reference" / "events.schema.json"


def inputs(folder):
    (folder / "raw").mkdir()
    for number in range(3):
        rows = "".join(f"{number * 1000 + row},{row / 7},w{row % 5}\n" for row in range(1000))
        (folder / "raw" / f"{number}.csv").write_text(f"id,x,word\n{rows}")
    (folder / "broken.csv").write_text("id,x\n1,2\n2,three\n3,4\n")
    (folder / "named.parquet").write_text("id,x\n1,2\n3,4\n")
    (folder / "doc.jsonl").write_text("%PDF-1.7\n1 0 obj\n")
    (folder / "bad.toml").write_text("[columns.id]\nuniqe = true\n")
    (folder / "rules.toml").write_text('[columns.id]\nunique = true\n[columns.word]\naccepted_values = ["w0"]\n')
    (folder / "key").write_text("0123456789abcdef" * 4)
    (folder / "key").chmod(0o644)
    rng = random.Random(1)
    rows = "".join(f"{row},{rng.random()},{rng.randbytes(20).hex()}\n" for row in range(400_000))
    (folder / "large.csv").write_text(f"id,x,text\n{rows}")


# Command lines, and the exit codes that they may have.
COMMANDS = [
    ("convert raw", 0),
    ("convert broken.csv --out rejects --type x=int64 --on-error skip", 3),
    ("convert broken.csv --out rejects2 --type x=int64 --on-error quarantine", 3),
    ("convert broken.csv --out never --type x=int64", 6),
    ("convert named.parquet --out named --memory 16MiB", 0),
    ("convert named.parquet --out private --id id --id-mode hmac --id-key key", 0),
    ("convert large.csv --out large --progress always --jobs 1 --codec zstd:19", 0),
    ("convert raw/0.csv raw/1.csv --out small --target-shard 16KiB", 0),
    ("compact small --progress always", 0),
    ("inspect raw", 0),
    ("inspect doc.jsonl", 6),
    ("inspect nothing", 2),
    ("check --rules rules.toml", 1),
    ("check --rules bad.toml", 2),
    ("check --rules rules.toml --prometheus /dev/full", 5),
    ("bench raw shards --time 100ms --step 1ms --readers 2", 0),
    ("bench raw shards --time 100ms --step 1ms --readers 1 --html /dev/full", 5),
    ("report --html report.html", 0),
    ("manifest --find nobody", 1),
    ("manifest --at v9", 2),
    ("manifest nowhere", 2),
    ("verify --read-data", 0),
    ("convert raw --nothing", 2),
    ("create shards", 2),
    ("convert raw --to nothing", 2),
    ("convert s4://bucket/key", 2),
    ("erase shards", 2),
]


def objects(what, text):
    found = []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError as error:
            raise Failure(f"{what}: expected an object a line, found {line!r}") from error
    return found


def look(validator, what, code, out, err, kinds):
    events = objects(what, err)
    for event in events:
        fault = jsonschema.exceptions.best_match(validator.iter_errors(event))
        if fault is not None:
            raise Failure(f"{what}: {event}: {fault.message}")
        kinds[event["type"]] += 1
    answer = objects(what, out)
    failed = code in (2, 4, 5, 6, 8, 70, 130)
    if not (answer or failed) or any(next(iter(one)) != "type" for one in answer):
        raise Failure(f"{what}: expected objects with a type on standard output, found {out[-500:]!r}")
    # An answer that was given before something else failed has one, too.
    if not failed:
        expect(f"{what}: summaries", [one["type"] for one in answer].count("summary"), 1)
    expect(f"{what}: errors", [one["type"] for one in events].count("error"), int(failed))
    if failed:
        expect(f"{what}: the code of the error", events[-1]["code"], code)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=pathlib.Path, required=True)
    binary = str(parser.parse_args().shardify.resolve())
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    kinds = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="events_check.") as temporary:
        folder = pathlib.Path(temporary)
        inputs(folder)
        for line, code in COMMANDS:
            done = subprocess.run([binary, *line.split(), "--json"], cwd=folder, capture_output=True, text=True, timeout=120)
            expect(f"exit code of `{line}` ({done.stderr[-500:]})", done.returncode, code)
            look(validator, line, code, done.stdout, done.stderr, kinds)
        line = "convert large.csv --out stopped --progress always --jobs 1 --codec zstd:19"
        process = subprocess.Popen([binary, *line.split(), "--json"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        expect("exit code of a run that was interrupted", process.returncode, 130)
        look(validator, "an interrupted run", 130, out, err, kinds)
    expect("kinds of events", sorted(kinds), sorted(schema["properties"]["type"]["enum"]))
    print(f"{len(COMMANDS) + 1} commands, events: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}")
    return 0


finish(main)
