#!/usr/bin/env python3
"""The way to a loader, as docs/guides says it, with the newest and the oldest supported release of each reader.

    python3 scripts/checks/loaders_check.py --shardify target/release/shardify [--python VENV/bin/python ...] [--only ranks]
    python3 scripts/checks/loaders_check.py --shardify target/release/shardify --oldest      # makes target/oldest-readers

1. `snippets`: every block of training.md, loader.md and train-two-nodes.md is run, from top to bottom. A line of Python that ends in
   `# VALUE` after a `print` must have printed this value; a block that begins with `# NAME.py` is written to this file for the commands after
   it, whose output scripts/book.py compares. The datasets that the snippets read must have at least three shards.
2. `ranks`: two nodes with two ranks each and two workers per rank read every record once, by webdataset and by `.torch()`.
3. `resume`: such an epoch by `StatefulDataLoader` and by `.torch()` is stopped and continued, by other numbers of ranks too.
4. `kills`: ranks that are killed at any moment, and started again in another number with the last state, read each record of an epoch once.
5. `urls`: webdataset takes what `--urls` and `--paths` print for shards of several runs.
6. `bucket`: the loader, records by position and a mixture give the same from a bucket of moto as from the copy that was pulled from it.

A snippet is run by the first Python that has its packages: this one, those of `--python`, and those of target/venv*; with `--oldest`, by
the Python with scripts/oldest_requirements.txt alone. Snippets that none can run are named. Exit code 1 if something fails.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import venv

import stores_check
from harness import ROOT, Failure, expect, finish, not_run, objects, run

sys.path.insert(0, str(ROOT / "scripts"))
import book

PAGES = [ROOT / "docs" / "guides" / name for name in ("training.md", "loader.md", "train-two-nodes.md")]
OLDEST = ROOT / "target" / "oldest-readers"
REQUIREMENTS = ROOT / "scripts" / "oldest_requirements.txt"
# Packages of a snippet, the name of a dataset in it, and a value that it says it prints.
IMPORTS = re.compile(r"^(?:from|import) ([\w.]+)", re.M)
NAMES = re.compile(r"""["'](\w+)(?:\.txt)?["'/]""")
PRINTED = re.compile(r"^ *print\(.*\)  # (.*)$", re.M)
FIND = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
LEAST = 3
# Nodes x ranks of a node, and workers of a rank.
RANKS, WORKERS = 2 * 2, 2

TORCH = """
import json, sys, shardify
from torch.utils.data import DataLoader
data = shardify.open(sys.argv[1], at=1).torch(global_batch_size=8, seed=1, drop_last=False, columns=["{key}"])
print(json.dumps([key for batch in DataLoader(data, batch_size=None, num_workers={workers}) for key in batch["{key}"]], default=int))
"""
STOPPED = """
import json, sys, shardify
from torchdata.stateful_dataloader import StatefulDataLoader
data = shardify.open(sys.argv[1], at=1).torch(global_batch_size=8, seed=1, drop_last=False, columns=["{key}"])
loader, seen = StatefulDataLoader(data, batch_size=None, num_workers={workers}), []
for number, batch in enumerate(loader, 1):
    seen += batch["{key}"]
    if number == {stop}:
        break
print(json.dumps([seen, loader.state_dict(), data.loader.state_at({stop})], default=str))
"""
RESUMED = """
import json, sys, shardify
from torchdata.stateful_dataloader import StatefulDataLoader
from torch.utils.data import DataLoader
data = shardify.open(sys.argv[1], at=1).torch(global_batch_size=8, seed=1, drop_last=False, columns=["{key}"])
state = json.load(open(sys.argv[2]))
if {stateful}:
    loader = StatefulDataLoader(data, batch_size=None, num_workers={workers})
    loader.load_state_dict(state)
else:
    data.load_state_dict(state)
    loader = DataLoader(data, batch_size=None, num_workers={workers})
print(json.dumps([key for batch in loader for key in batch["{key}"]]))
"""
WEBDATASET = """
import json, sys, webdataset as wds
from torch.utils.data import DataLoader
data = wds.WebDataset(open(sys.argv[1] + ".txt").read().splitlines(), shardshuffle=False, nodesplitter=wds.split_by_node)
print(json.dumps([one["__key__"] for one in DataLoader(data, batch_size=None, num_workers={workers})]))
"""
METHOD = """
import json, sys, shardify
from torch.utils.data import DataLoader
print(json.dumps([one["__key__"] for one in DataLoader(shardify.open(sys.argv[1]).webdataset(), batch_size=None, num_workers={workers})]))
"""
RANK = """
import json, os, pathlib, sys, time, shardify
folder = pathlib.Path(sys.argv[2])
loader = shardify.open(sys.argv[1], at=1).loader(global_batch_size=12, seed=1, drop_last=False, columns=["id"], lanes=4, block=5, window=40)
state = folder / "state.json"
if state.exists():
    loader.load_state_dict(json.loads(state.read_text()))
logs = [folder / f"{sys.argv[3]}-{rank}.log" for rank in range(loader.world_size)]
with open(logs[loader.rank], "w") as log:
    for number, batch in enumerate(loader, 1):
        log.write(json.dumps([batch.step, batch["id"].tolist()]) + "\\n")
        log.flush()
        time.sleep(0.005)
        # As an all-reduce does, it waits until all ranks have done the step.
        while any(not one.exists() or one.read_text().count("\\n") < number for one in logs):
            time.sleep(0.001)
        if loader.rank == 0:
            (folder / "next.json").write_text(json.dumps(loader.state_dict()))
            os.replace(folder / "next.json", state)
"""
BUCKET = """
import json, sys, shardify
data = shardify.open(sys.argv[1], at=1)
text = lambda column: [value if isinstance(value, str) else bytes(value).hex() for value in column]
loader = data.loader(global_batch_size=12, seed=1, columns=["{key}"], lanes=4, block=7, window=30)
mixture = shardify.mix({{data: 1}}, global_batch_size=12, seed=1, columns=["{key}"], steps=50)
places = [500, 3, 3, 4, 250, 251, 0, 499, 7]
batches = [[text(batch["{key}"]) for batch in one] for one in (loader, loader, mixture)]
print(json.dumps([batches, text(data.take(places, columns=["{key}"])["{key}"]), text(data.take(range(501))["{key}"])]))
"""
URLS = """
import sys, webdataset as wds
print(sum(1 for _ in wds.WebDataset(sys.argv[1], shardshuffle=False)), sum(1 for _ in wds.WebDataset(sys.argv[2:], shardshuffle=False)))
"""


class Pythons:
    """The interpreters, and which of them has packages."""

    def __init__(self, paths):
        self.paths, self.known = paths, {}

    def having(self, *packages):
        """The first one that has these packages; None if none has."""
        needed = tuple(name for name in packages if name.split(".")[0] != "shardify")
        if needed not in self.known:
            fits = (path for path in self.paths if subprocess.run([path, "-c", FIND, *needed], capture_output=True).returncode == 0)
            self.known[needed] = next(fits, None)
        return self.known[needed]


class Place:
    """A folder to run things in, with the program and the package of this checkout."""

    def __init__(self, program, pythons, folder):
        self.program, self.pythons, self.folder = pathlib.Path(program).resolve(), pythons, pathlib.Path(folder).resolve()
        tools = self.folder / "bin"
        tools.mkdir()
        (tools / "shardify").symlink_to(self.program)
        more = {"SHARDIFY_BINARY": str(self.program), "PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        more |= {"HF_HUB_OFFLINE": "1", "HF_HOME": str(self.folder / "cache"), "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        more |= {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(self.folder)}
        self.environment = {**os.environ, **more}

    def ran(self, command, settings=None):
        done = subprocess.run(
            [str(word) for word in command], cwd=self.folder, env={**self.environment, **(settings or {})}, capture_output=True, text=True, timeout=600
        )
        return done.returncode, done.stdout, done.stderr

    def output(self, python, code, *arguments, settings=None):
        """What Python code prints; it has to succeed."""
        status, printed, errors = self.ran([python, "-c", code, *arguments], settings)
        if status:
            raise Failure(f"python ended with {status}:\n{code}\n{errors[-3000:]}")
        return printed


def snippets(place):
    """Runs the blocks of the pages; returns how many of Python."""
    shutil.copytree(ROOT / "testdata", place.folder / "testdata")
    ran, read, scripts = 0, set(), ""
    for kind, text in (block for page in PAGES for block in book.BLOCK.findall(page.read_text())):
        if kind == "console":
            console(place, text, scripts)
            continue
        if script := book.SCRIPT.match(text):
            (place.folder / script[1]).write_text(text)
            scripts += text
            continue
        packages = sorted({name for name in IMPORTS.findall(text) if name.split(".")[0] not in sys.stdlib_module_names})
        python = place.pythons.having(*packages)
        if python is None:
            not_run(f"loaders_check: a snippet with {', '.join(packages)}", "no Python has all of these packages")
            continue
        lines = place.output(python, text).splitlines()
        for value in PRINTED.findall(text):
            if value not in lines:
                raise Failure(f"expected the snippet to print {value}, found {lines}:\n{text}")
        read |= {name for name in NAMES.findall(text) if (place.folder / name / "_shardify").is_dir()}
        ran += 1
    for name in sorted(read):
        shards = shards_of(place, name)
        if len(shards) < LEAST:
            raise Failure(f"expected {LEAST} shards or more of {name}, which the snippets read, found {len(shards)}")
    return f"{ran} snippets of {len(PAGES)} pages on {len(read)} datasets"


def console(place, text, scripts):
    """Runs the commands of a block, those of Python by one that has the packages of all scripts so far."""
    for lines, _ in book.commands_of(text):
        command = "\n".join(line[2:] for line in lines)
        if found := re.search(r"\b(python|torchrun) ", command):
            packages = sorted({name for name in IMPORTS.findall(scripts) if name.split(".")[0] not in sys.stdlib_module_names})
            python = place.pythons.having(*packages)
            if python is None:
                not_run(f"loaders_check: `{command}`", f"no Python has {', '.join(packages)}")
                continue
            started = f"exec {python} " + ('-m torch.distributed.run "$@"' if found[1] == "torchrun" else '"$@"')
            tool = place.folder / "bin" / found[1]
            tool.write_text(f"#!/bin/sh\n{started}\n")
            tool.chmod(0o755)
        expected = int(found[1]) if (found := book.EXIT.search(command)) else 0
        status, printed, errors = place.ran(["bash", "-c", book.EXIT.sub("", command)])
        if status != expected:
            raise Failure(f"`{command}`: expected exit code {expected}, found {status}\n{printed}{errors}")


def shards_of(place, name):
    return [one["path"] for one in objects(place.program, "manifest", place.folder / name, "--list") if one["type"] == "shard"]


def made(place, name, form, shards, runs=1):
    """A dataset of several shards, and the ids of its records."""
    ids = []
    for number in range(runs):
        source = place.folder / f"{name}-{number}.csv"
        rows = [f"r{number}-{row:04},{row},2024-01-{row % 28 + 1:02}" for row in range(501)]
        source.write_text("id,value,day\n" + "\n".join(rows) + "\n")
        more = ["--id", "id", "--shards", shards] if number == 0 else []
        run(place.program, "convert", source, "--out", place.folder / name, *(["--to", form] if number == 0 else []), *more)
        ids += [row.split(",")[0] for row in rows]
    paths = run(place.program, "manifest", place.folder / name, "--list", "--paths")
    (place.folder / f"{name}.txt").write_bytes(paths)
    return sorted(ids)


def ranks(place):
    """Four ranks of two nodes, each a process of its own."""
    checked = 0
    jobs = (
        ("torch", TORCH, "parquet", "id", 3, ("torch", "numpy")),
        ("torch", TORCH, "tar", "__key__", 3, ("torch", "numpy")),
        ("webdataset", WEBDATASET, "tar", "__key__", RANKS * WORKERS, ("torch", "webdataset")),
        (".webdataset()", METHOD, "tar", "__key__", RANKS * WORKERS, ("torch", "webdataset")),
    )
    for number, (title, code, form, key, shards, packages) in enumerate(jobs):
        python = place.pythons.having(*packages)
        if python is None:
            not_run(f"loaders_check: ranks by {title}", f"no Python has {', '.join(packages)}")
            continue
        ids = made(place, f"ranks{number}", form, shards)
        found = []
        for rank in range(RANKS):
            settings = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2"}
            part = json.loads(place.output(python, code.format(workers=WORKERS, key=key), f"ranks{number}", settings=settings))
            if not part:
                raise Failure(f"{title} of {form}: rank {rank} has no records")
            found += part
        expect(f"records of {RANKS} ranks by {title} of {form}", sorted(found), ids)
        checked += 1
    return f"{checked} readers on {RANKS} ranks with {WORKERS} workers each"


def resume(place):
    """An epoch that is stopped: the same ranks and workers go on by the states of StatefulDataLoader, others by that of the loader."""
    python, checked = place.pythons.having("torch", "torchdata", "numpy"), 0
    if python is None:
        not_run("loaders_check: resume", "no Python has torch, torchdata, numpy")
        return "none"
    ids = made(place, "resumed", "parquet", 3)

    def of_ranks(code, ranks, states=(), **more):
        for rank in range(ranks):
            words = ["resumed", *(f"state-{rank % len(states)}.json" for _ in states[:1])]
            if states:
                (place.folder / words[1]).write_text(json.dumps(states[rank % len(states)]))
            yield json.loads(place.output(python, code.format(key="id", **more), *words, settings={"RANK": str(rank), "WORLD_SIZE": str(ranks)}))

    for workers in (0, 1, 3):
        stopped = list(of_ranks(STOPPED, 2, workers=workers, stop=11))
        seen = [key for keys, _, _ in stopped for key in keys]
        expect("records before the stop", len(seen), 11 * 8)
        again = of_ranks(RESUMED, 2, [state for _, state, _ in stopped], workers=workers, stateful=True)
        expect(f"records of {workers} workers that go on", sorted([*seen, *(key for keys in again for key in keys)]), ids)
        other = of_ranks(RESUMED, 4, [stopped[0][2]], workers=2, stateful=False)
        expect(f"records of {workers} workers and then 4 ranks of 2", sorted([*seen, *(key for keys in other for key in keys)]), ids)
        checked += 2
    return f"{checked} stops"


def kills(place, histories=8, most=4):
    """Histories of ranks that are killed; the last ones of each come to the end of the epoch."""
    python, rng, killed = place.pythons.having("numpy"), random.Random(1), 0
    resumed = 0
    if python is None:
        not_run("loaders_check: kills", "no Python has numpy")
        return "none"
    ids = made(place, "killed", "parquet", 3)
    for history in range(histories):
        folder, seen, first = place.folder / f"history-{history}", [], 0
        folder.mkdir()
        for attempt in range(most + 1):
            ranks = rng.choice((1, 2, 3, 4, 6))
            settings = [{**place.environment, "RANK": str(rank), "WORLD_SIZE": str(ranks)} for rank in range(ranks)]
            words = [str(python), "-c", RANK, "killed", str(folder), str(attempt)]
            running = [subprocess.Popen(words, cwd=place.folder, env=one, stderr=subprocess.PIPE, text=True) for one in settings]
            if attempt < most:
                time.sleep(rng.uniform(0.3, 1.2))
                for one in running:
                    killed += one.poll() is None
                    one.kill()
            for one in running:
                _, errors = one.communicate(timeout=120)
                if one.returncode not in (0, -signal.SIGKILL):
                    raise Failure(f"a rank ended with {one.returncode}:\n{errors[-2000:]}")
            state = json.loads((folder / "state.json").read_text()) if (folder / "state.json").exists() else {"step": 0, "epoch": 0}
            # The last line may be cut, and steps after the state are done again.
            lines = [line for log in folder.glob(f"{attempt}-*.log") for line in log.read_text().splitlines(keepends=True)]
            done = [json.loads(line) for line in lines if line.endswith("\n")]
            seen += [key for step, keys in done if first <= step < state["step"] for key in keys]
            first = state["step"]
            if state["epoch"]:
                break
            resumed += first > 0
        expect(f"records of history {history}", sorted(seen), ids)
    return f"{histories} histories with {killed} ranks killed, continued {resumed} times from within the epoch"


def urls(place):
    """Brace ranges of two runs as one text, and paths as a list."""
    python = place.pythons.having("webdataset")
    if python is None:
        not_run("loaders_check: urls", "no Python has webdataset")
        return "none"
    ids = made(place, "runs", "tar", 4, runs=2)
    ranges = run(place.program, "manifest", place.folder / "runs", "--list", "--urls").decode().splitlines()
    paths = (place.folder / "runs.txt").read_text().splitlines()
    expect("shards", len(paths), len(shards_of(place, "runs")))
    found = place.output(python, URLS, "::".join(ranges), *paths).split()
    expect("records by --urls and by --paths", found, [str(len(ids))] * 2)
    return f"{len(paths)} shards by {len(ranges)} ranges and by paths"


def bucket(place):
    """The same records from a bucket and from a local copy, by the loader, by position, and in a mixture."""
    python = place.pythons.having("numpy")
    if python is None or importlib.util.find_spec("moto") is None:
        not_run("loaders_check: bucket", "no Python has numpy, or moto is not installed")
        return "none"
    port = stores_check.free_port()
    with stores_check.Server([sys.executable, "-m", "moto.server", "-p", str(port)], port):
        store = stores_check.S3(port)
        settings, source = store.settings, place.folder / "bucket.csv"
        source.write_text("id,value,day\n" + "".join(f"r{row:04},{row},2024-01-{row % 28 + 1:02}\n" for row in range(501)))
        checked = 0
        for form, key in (("parquet", "id"), ("tar", "__key__"), ("tfrecord", "record")):
            remote, local = f"{store.root}/{form}", place.folder / f"copy-{form}"
            for words in (("convert", source, "--to", form, "--id", "id", "--shards", 3, "--out", remote), ("pull", remote, local)):
                status, _, errors = place.ran([place.program, *words], settings)
                expect(f"{words[0]} of {form}: exit code, {errors}", status, 0)
            found = [json.loads(place.output(python, BUCKET.format(key=key), path, settings=settings)) for path in (remote, local)]
            expect(f"records of {form} from a bucket and from its copy", found[0], found[1])
            expect(f"records of {form} by position", [len(found[0][1]), len(set(found[0][2]))], [9, 501])
            checked += 1
    return f"{checked} formats from a bucket"


def oldest_python():
    """The Python with the oldest supported releases, made if it is missing."""
    python, mark = OLDEST / "bin" / "python", OLDEST / "requirements.txt"
    wanted = REQUIREMENTS.read_text()
    if not mark.is_file() or mark.read_text() != wanted:
        venv.create(OLDEST, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", REQUIREMENTS], check=True)
        mark.write_text(wanted)
    return python


PARTS = {"snippets": snippets, "ranks": ranks, "resume": resume, "kills": kills, "urls": urls, "bucket": bucket}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--python", nargs="+", type=pathlib.Path, default=[], help="more interpreters, with other packages")
    parser.add_argument("--oldest", action="store_true", help="use the oldest supported releases of the readers")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    here = [pathlib.Path(sys.executable), *options.python, *sorted((ROOT / "target").glob("venv*/bin/python"))]
    pythons = Pythons([oldest_python()] if options.oldest else here)
    for name in options.only:
        with tempfile.TemporaryDirectory() as folder:
            print(f"ok    {name}: {PARTS[name](Place(options.shardify, pythons, folder))}", flush=True)
    return 0


if __name__ == "__main__":
    finish(main)
