#!/usr/bin/env python3
"""Datasets that somebody else made: any field of any object says something else, and no command does harm outside of the dataset.

Datasets with every kind of object are built: logs, lists, index segments, tables of duplicates and of erased ids, an order that an erasure
left, receipts, an open plan with outcomes and intents, tags, index files for training tools, a Delta log, adopted shards. Then, in a copy,
one to three fields get other values: paths out of the dataset, absolute ones, NUL, backslashes, drives, URLs, huge and negative numbers,
other types, other fields' values. Checksums and seals are made anew, also in what refers to the object, as whoever made the dataset could.
Commands run on it, and
  - no file outside of the dataset and of what the command was told to write has changed, appeared or gone;
  - nobody asked the listener that the URLs name;
  - no command ends with the exit code of a bug or by a signal, takes more memory than it may, or takes long.

    python3 scripts/checks/fields_check.py --shardify target/release/shardify [--rounds 500] [--seed 1] [--keep]

A round that fails prints its seed and leaves its folder; `--only SEED` runs it again.
"""

import argparse
import concurrent.futures
import copy
import glob
import json
import os
import pathlib
import random
import resource
import shutil
import socket
import subprocess
import tempfile
import threading

import blake3
import harness
import pyarrow as pa
import pyarrow.parquet as pq
from harness import Failure, expect, finish

SECONDS = 30
MEMORY = "256MiB"
# What the program itself and its threads need, beside what --memory limits.
RESIDENT_KIB = 900 << 10
CODES = set(range(9))


def close(value, closed):
    """The JSON of an object, with its checksum if it had one."""
    text = json.dumps({key: inner for key, inner in value.items() if key != "checksum"}, indent=2, ensure_ascii=False)
    head = text[:-2].encode("utf-8", "surrogatepass")
    return head + (b',\n  "checksum": "' + blake3.blake3(head).hexdigest().encode() + b'"\n}\n' if closed else b"\n}\n")


def seal(data):
    return f"{len(data)}:{len(data)}:{blake3.blake3(data).hexdigest()}"


def rows(first, last, people=9):
    lines = [f"R{row},P{row % people},{row % 17}.5,m{row % 23}@x\n" for row in range(first, last)]
    return "rid,pat,score,mail\n" + "".join(lines)


class Datasets:
    """What is attacked: each dataset lies in a home of its own, beside files that nobody may touch."""

    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.made = [self.erased, self.planned, self.adopted, self.divided, self.copied]

    def run(self, home, *words, codes=(0,)):
        return harness.run(self.args.shardify, *words, codes=codes, folder=home)

    def build(self):
        homes = []
        for make in self.made:
            home = self.folder / make.__name__
            (home / "home" / ".ssh").mkdir(parents=True)
            for name in ("home/.bashrc", "home/.ssh/authorized_keys", "home/thesis.tex", "new.csv", "precious.txt"):
                (home / name).write_text(rows(900, 905) if name == "new.csv" else f"precious {name}\n")
            for number in range(4):
                (home / f"{number}.csv").write_text(rows(number * 40, number * 40 + 40))
            make(home)
            homes.append(home)
        return homes

    def erased(self, home):
        for number in range(3):
            options = ["--id", "rid", "--subject", "pat", "--dedup", "score,mail", "--index", "hf,delta"] if number == 0 else []
            self.run(home, "convert", f"{number}.csv", "--out", "ds", *options, "-q")
        self.run(home, "manifest", "ds", "--tag", "first", "--at", "v1")
        self.run(home, "erase", "ds", "--subject", "P3", "--all-versions", "-q")
        self.run(home, "erase", "ds", "--record", "R7", "-q")
        # The order of an erasure that was killed after its commit.
        receipts = sorted(glob.glob(f"{home}/ds/_shardify/receipts/*.json"))
        receipt = json.loads(pathlib.Path(receipts[0]).read_text())
        receipt.pop("checksum", None)
        newest = newest_entry(home / "ds")
        entry = json.loads(newest.read_text())
        order = json.dumps({"delete": [{"path": "_shardify/index/gone.parquet"}], "words": [], "receipt": receipt}).encode() + b"\n"
        place = f"_shardify/erasures/{entry['transaction']}.json"
        (home / "ds" / "_shardify/erasures").mkdir(exist_ok=True)
        (home / "ds" / place).write_bytes(order)
        unfinished = {"version": entry["version"], "transaction": entry["transaction"], "order": place}
        entry["erasures"]["unfinished"] = [{**unfinished, "blake3": blake3.blake3(order).hexdigest()}]
        newest.write_bytes(close(entry, True))

    def planned(self, home):
        self.run(home, "convert", "0.csv", "--out", "ds", "--id", "rid", "--subject", "pat", "-q")
        for operation in (["convert", "1.csv", "2.csv", "3.csv", "--out", "ds", "--task-size", "1KiB"],):
            plan = json.loads(self.run(home, "plan", *operation, "--json").splitlines()[-1])["plan"]
            self.run(home, "run-task", plan, "--task", "0..2")
            (home / "plan.txt").write_text(os.path.relpath(plan, home))

    def adopted(self, home):
        self.run(home, "convert", "0.csv", "--out", "one", "--id", "rid", "-q")
        (home / "ds").mkdir()
        for number, shard in enumerate(glob.glob(f"{home}/one/*/*.parquet")):
            shutil.copy(shard, home / "ds" / f"part-{number}.parquet")
        shutil.rmtree(home / "one")
        self.run(home, "adopt", "ds", "--id", "rid", "-q")

    def divided(self, home):
        options = ["--id", "rid", "--subject", "pat", "--split", "train=0.7,val=0.3", "--to", "tar", "--index", "wids", "--shards", "2"]
        self.run(home, "convert", "0.csv", "1.csv", "--out", "ds", *options, "-q")
        self.run(home, "convert", "2.csv", "--out", "ds", "-q")

    def copied(self, home):
        self.run(home, "convert", "0.csv", "1.csv", "--out", "source", "--id", "rid", "--shards", "3", "-q")
        self.run(home, "compact", "source", "--sort-by", "score", "-q")
        self.run(home, "pull", "source", "ds", "-q")
        shutil.rmtree(home / "source")


def newest_entry(dataset):
    return sorted(dataset.glob("_shardify/log/*.json"))[0]


class Values:
    """What may stand in a field."""

    def __init__(self, chance, home, url):
        self.chance = chance
        ups = "../" * chance.randint(1, 7)
        files = ["home/.bashrc", "home/.ssh/authorized_keys", "home/thesis.tex", "precious.txt", "planted/x"]
        file = chance.choice(files)
        absolute = f"{home}/{file}"
        self.texts = [
            f"../{file}", f"{ups}{file}", f"_shardify/../../{file}", f"a/{ups}{file}", absolute, f"file://{absolute}", f"/{absolute}", f"{file}\0",
            f"..\\{file}", f"C:\\{file}", f"C:{file}", url, f"s3://bucket{url[5:]}", f"{url}/../x", "", ".", "..", "/", "~", "~/.bashrc", "$HOME/x",
            "%2e%2e/home/thesis.tex", "x" * 5000, "\x1b[31m", "\ud800", "-rf", "--out=/tmp/x", "pipe:touch x", "a/./b//c", "_shardify/log", "[", "{}",
        ]  # fmt: skip
        self.numbers = [-1, 0, 1, 2**26, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 1e300, -(2**63), 0.5]
        self.others = [None, True, [], {}, [[]], [None], {"path": f"../{file}"}, "0", [0] * 1000]

    def instead_of(self, value, others):
        kinds = [self.numbers] * 3 if isinstance(value, (int, float)) else [self.texts] * 5 if isinstance(value, str) else [self.others]
        return self.chance.choice(self.chance.choice([*kinds, self.others, others or self.others]))


def leaves(value, place=()):
    yield place, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value[:50]):
            yield from leaves(inner, (*place, number))


def put(value, place, new):
    for key in place[:-1]:
        value = value[key]
    value[place[-1]] = new


class Attack:
    """A copy of a dataset, changed."""

    def __init__(self, home, chance, url):
        self.home, self.dataset, self.chance = home, home / "ds", chance
        self.values = Values(chance, home, url)
        self.told = []

    def change(self):
        objects = [path for path in self.dataset.rglob("*") if path.is_file() and self.may_change(path)]
        # Many lists, few entries: each kind is as likely.
        kinds = {}
        for path in objects:
            kinds.setdefault((path.parent.name, path.suffix), []).append(path)
        for _ in range(self.chance.randint(1, 3)):
            path = self.chance.choice(kinds[self.chance.choice(sorted(kinds))])
            if path.exists():
                (self.table if path.suffix in (".table", ".parquet") else self.json)(path)

    @staticmethod
    def may_change(path):
        return path.suffix in (".json", ".table") or "_shardify" in path.parts and path.suffix == ".parquet"

    def json(self, path):
        text = path.read_text()
        lines = text.splitlines() if path.parent.name == "_delta_log" else [text]
        try:
            values = [json.loads(line) for line in lines if line.strip()]
        except json.JSONDecodeError:
            return
        if not values or not isinstance(values[0], dict):
            return
        value = self.chance.choice(values)
        places = [(place, inner) for place, inner in leaves(value) if place and place != ("checksum",)]
        if not places:
            return
        place, old = self.chance.choice(places)
        new = self.values.instead_of(old, [inner for _, inner in places if type(inner) is type(old)])
        put(value, place, copy.deepcopy(new))
        self.told.append(f"{path.relative_to(self.dataset)} {place}: {old!r:.80} -> {new!r:.80}")
        if len(lines) > 1:
            path.write_text("".join(json.dumps(value) + "\n" for value in values), errors="replace")
            return
        closed = "checksum" in values[0]
        old_bytes, new_bytes = path.read_bytes(), close(values[0], closed).decode("utf-8", "replace").encode()
        path.write_bytes(new_bytes)
        self.refer(path, old_bytes, new_bytes)
        self.name_plans()

    def name_plans(self):
        """Gives changed plans, of every second attack, the name that their bytes have; workers are given the old or the new one."""
        for plan in self.dataset.glob("_shardify/plans/*.json"):
            name = f"{plan.name[:32]}-{blake3.blake3(plan.read_bytes()).hexdigest()[:32]}.json"
            if name != plan.name and self.chance.random() < 0.5:
                plan.rename(plan.with_name(name))
                if self.chance.random() < 0.5:
                    given = self.home / "plan.txt"
                    given.write_text(os.path.join(os.path.dirname(given.read_text()), name))

    def table(self, path):
        old_bytes = path.read_bytes()
        table = pq.read_table(path)
        if not table.num_rows:
            return
        number, row = self.chance.randrange(table.num_columns), self.chance.randrange(table.num_rows)
        column = table.column(number)
        values = column.to_pylist()
        new = self.values.instead_of(values[row], values[:20])
        old, values[row] = values[row], new
        try:
            changed = pa.array(values, column.type)
            table = table.set_column(number, table.schema.field(number), changed)
            schema = table.schema.remove_metadata()
            pq.write_table(table.cast(schema), path, compression="zstd", store_schema=True)
        except (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError):
            return
        self.told.append(f"{path.relative_to(self.dataset)} {table.column_names[number]}[{row}]: {old!r:.80} -> {new!r:.80}")
        self.refer(path, old_bytes, path.read_bytes())
        self.name_plans()

    def refer(self, path, old, new):
        """Puts the new seal of an object wherever the old one stands."""
        pairs = [(seal(old), seal(new)), (blake3.blake3(old).hexdigest(), blake3.blake3(new).hexdigest())]
        for other in self.dataset.rglob("_shardify/**/*.json"):
            text = other.read_text(errors="replace")
            changed = text
            for before, after in pairs:
                changed = changed.replace(before, after)
            if changed != text:
                value = json.loads(changed)
                old_bytes, new_bytes = other.read_bytes(), close(value, "checksum" in value).decode("utf-8", "replace").encode()
                other.write_bytes(new_bytes)
                if other != path:
                    self.refer(other, old_bytes, new_bytes)

    def commands(self):
        chance, some = self.chance, str(self.chance.randrange(150))
        commands = [
            ["manifest", "ds"], ["manifest", "ds", "--list"], ["manifest", "ds", "--find", f"R{some}", "P4"], ["manifest", "ds", "--history"],
            ["manifest", "ds", "--export", "jsonl"], ["verify", "ds"], ["verify", "ds", "--read-data"], ["head", "ds"], ["inspect", "ds"],
            ["vacuum", "ds", "--retain", "0s", "--force"], ["compact", "ds", "--min-inputs", "2"], ["compact", "ds", "--sort-by", "rid"],
            ["erase", "ds", f"R{some}", "--all-versions"], ["erase", "ds", "--subject", "P5"], ["convert", "new.csv", "--out", "ds"],
            ["remove", "ds", "--source", "0.csv"], ["revert", "ds", "--to", "v1"], ["pull", "ds", "out"], ["reshard", "ds", "--shards", "2", "--out", "out"],
            ["convert", "ds", "--out", "out"], ["manifest", "ds", "--tag", "again"], ["report", "ds"], ["block", "ds", "--record", "nobody"], ["manifest", "ds", "--diff", "v1", "v2"],
        ]  # fmt: skip
        plan = self.home / "plan.txt"
        if plan.exists():
            where = plan.read_text()
            commands += [["commit", where], ["run-task", where, "--task", "0"], ["run-task", where, "--task", "1"]] * 3
        return chance.sample(commands, chance.randint(2, 4))


def outside(home):
    """Everything beside the dataset and the output: what it is, and what is in it."""
    found = {}
    for folder, folders, files in os.walk(home):
        if pathlib.Path(folder) == home:
            folders[:] = [name for name in folders if name not in ("ds", "out")]
        for name in [*folders, *files]:
            path = os.path.join(folder, name)
            found[path] = open(path, "rb").read() if name in files else None
    return found


def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))


class Listener:
    """Counts who asks."""

    def __init__(self):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}/x"
        self.asked = 0
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            connection, _ = self.socket.accept()
            self.asked += 1
            connection.close()


def attack(args, homes, folder, seed, listener):
    chance = random.Random(seed)
    home = folder / f"round-{seed}"
    shutil.copytree(chance.choice(homes), home, symlinks=True)
    it = Attack(home, chance, listener.url)
    it.change()
    before, codes = outside(home), []
    environment = {"PATH": os.environ["PATH"], "HOME": str(home / "home"), "SHARDIFY_MEMORY": MEMORY, "TMPDIR": str(folder / "tmp")}
    for words in it.commands():
        command = [args.shardify, *words]
        what = " ".join(words)
        process = subprocess.Popen(command, cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, preexec_fn=limited)  # fmt: skip
        timer = threading.Timer(SECONDS, process.kill)
        timer.start()
        said = process.stdout.read(1 << 20).decode(errors="replace")
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        late = not timer.is_alive()
        timer.cancel()
        code = os.waitstatus_to_exitcode(status)
        codes.append(code)
        if late:
            raise Failure(f"`{what}` took more than {SECONDS} s")
        if code not in CODES:
            raise Failure(f"`{what}` ended with {code}: {said[-600:]}")
        if usage.ru_maxrss > RESIDENT_KIB:
            raise Failure(f"`{what}` took {usage.ru_maxrss >> 10} MiB")
        after = outside(home)
        for path in sorted(before.keys() | after.keys()):
            if before.get(path, b"absent") != after.get(path, b"absent"):
                raise Failure(f"`{what}` changed {path}")
        expect("requests to a host that nobody named", listener.asked, 0)
    shutil.rmtree(home)
    return it, codes


def attacks(share):
    """Runs the attacks of some seeds; returns how many failed, and the exit codes of all commands."""
    args, homes, folder, seeds = share
    failed, codes, listener = 0, [], Listener()
    for seed in seeds:
        try:
            codes += attack(args, homes, folder, seed, listener)[1]
        except Failure as failure:
            failed += 1
            listener.asked = 0
            print(f"FAIL  seed {seed}: {failure}", flush=True)
            # What was changed follows from the seed.
            again = random.Random(seed)
            shutil.rmtree(folder / f"again-{seed}", ignore_errors=True)
            shutil.copytree(again.choice(homes), folder / f"again-{seed}", symlinks=True)
            told = Attack(folder / f"again-{seed}", again, listener.url)
            told.change()
            print("      " + "\n      ".join(told.told), flush=True)
    return failed, codes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    args.shardify = str(pathlib.Path(args.shardify).resolve())
    # Nothing here depends on a disk, which would wait for each file.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="fields-", dir=os.environ.get("TMPDIR", memory)))
    (folder / "tmp").mkdir()
    homes = Datasets(args, folder).build()
    seeds = [args.only] if args.only is not None else range(args.seed, args.seed + args.rounds)
    shares = [(args, homes, folder, seeds[job :: args.jobs]) for job in range(args.jobs)]
    failed, ended = 0, {}
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for failures, codes in pool.map(attacks, shares):
            failed += failures
            for code in codes:
                ended[code] = ended.get(code, 0) + 1
    print(f"{'FAIL' if failed else 'ok'}    {args.rounds} rounds, {failed} failed; commands by exit code: {dict(sorted(ended.items()))}")
    if not failed:
        shutil.rmtree(folder)
        # A fuzzer whose changes are all refused at the door tests the door.
        if ended.get(0, 0) < args.rounds // 4 and args.only is None:
            raise Failure(f"expected many commands that succeed, found {ended}")
    else:
        print(f"      folders are in {folder}")
    return 1 if failed else 0


if __name__ == "__main__":
    finish(main)
