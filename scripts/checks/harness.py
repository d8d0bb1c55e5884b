"""What checks share: running the program, telling what is wrong and what was not run, files of the user's, datasets to start from.

A check ends by `finish(main)`: exit code 0 where all is well, 1 with a line `FAILED: ...` where a `Failure` says that it is not. What it
omits it says with `not_run`, which `scripts/check.py` repeats at the end.

A `Task` is a command on a dataset, with the records that have to be there before and after it. `Task.look` says whether they
are, whatever happened in between: one of both versions, whole, with every older version that can be read; `Task.redo` runs the
command again, undisturbed, after which exactly the wanted records are there and a vacuum leaves nothing behind.
"""

import argparse
import collections
import contextlib
import csv
import io
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile

# Exit codes of README.md.
OK, NO, USAGE, REJECTS, CONFLICT, STORAGE, INPUT = 0, 1, 2, 3, 4, 5, 6
FORMATS = ("parquet", "tar", "tfrecord")
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Bytes of address space, and longest time in seconds, of a run over a damaged or hostile file.
ADDRESS_SPACE, PATIENCE = 4 << 30, 60
# What `verify` says of shards that an erasure was to delete.
CUT_SHORT = "run the same `shardify erase` again"
# Rows of each source, shards of about so many bytes: ten or so in all.
ROWS, SHARD = 60, 3000


class Failure(Exception):
    """What was expected and what was found."""


def expect(what, found, expected):
    if found != expected:
        raise Failure(f"{what}: expected {expected!r}, found {found!r}")


def not_run(what, why):
    print(f"NOT RUN: {what}: {why}", flush=True)


def finish(main):
    """Runs a check, and ends with its exit code."""
    try:
        code = main()
    except Failure as failure:
        print(f"FAILED: {failure}", flush=True)
        code = 1
    sys.exit(code or 0)


def rounds_of(plan, forms, forget, more=lambda kind: ""):
    """Runs kinds of rounds, each so many times and with each form in turn; returns how many failed. `forget` deletes what one leaves."""
    failed = 0
    for kind, times in plan:
        bad = 0
        for number in range(times):
            form = forms[number % len(forms)]
            try:
                forget(kind(*form))
            except (Failure, subprocess.TimeoutExpired) as failure:
                bad += 1
                print(f"FAIL  {kind.__name__} {' '.join(form)}, round {number}: {failure}", flush=True)
        print(f"{'FAIL' if bad else 'ok'}    {kind.__name__}: {times} rounds{more(kind)}, {bad} failed", flush=True)
        failed += bad
    return failed


def forget_folders(folders):
    for folder in folders or ():
        shutil.rmtree(folder, ignore_errors=True)


def run(binary, *words, codes=(0,), folder=None, environment=None, timeout=600):
    """Standard output of a command of the program, as bytes, which has to end with one of these exit codes."""
    command = [str(pathlib.Path(binary).resolve()), *map(str, words)]
    try:
        done = subprocess.run(command, capture_output=True, cwd=folder, env=environment, timeout=timeout)
    except subprocess.TimeoutExpired as slow:
        raise Failure(f"`{' '.join(command[1:])}` hangs") from slow
    if done.returncode not in codes:
        said = (done.stdout[-2000:] + done.stderr).decode(errors="replace")
        raise Failure(f"`{' '.join(command[1:])}`: expected exit code {' or '.join(map(str, codes))}, found {done.returncode}\n{said}")
    return done.stdout


def convert_bounded(binary, source, out, *options, stdin=None):
    """Converts anew within limits of address space and time; returns exit code, standard output and standard error.

    A crash, a hang, or an error that blames the program is a failure, whatever the input."""
    shutil.rmtree(out, ignore_errors=True)
    command = [str(word) for word in (binary, "convert", source, "--out", out, "--progress", "never", *options)]
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))  # noqa: E731
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, preexec_fn=limit, input=stdin)
    except subprocess.TimeoutExpired as slow:
        raise Failure(f"{source} hangs") from slow
    said = done.stderr.decode(errors="replace")
    if not OK <= done.returncode <= INPUT or "panic" in said or "a bug" in said:
        raise Failure(f"{source}: exit code {done.returncode}\n{said}")
    return done.returncode, done.stdout, said


def cuts_of(rng, data, count, first=0, end=None):
    """Beginnings of a file, each with its description, which end at so many places between two."""
    places = range(first, len(data) if end is None else end)
    for at in sorted(rng.sample(places, min(count, len(places)))):
        yield f"cut at {at}", data[:at]


def flips_of(rng, data, count, first=0, end=None):
    """Copies of a file, each with its description, of which one bit between two places is another."""
    bits = range(8 * first, 8 * (len(data) if end is None else end))
    for number in rng.sample(bits, min(count, len(bits))):
        at, bit = divmod(number, 8)
        yield f"bit {bit} of byte {at} flipped", data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


@contextlib.contextmanager
def damage_check(about, **counts):
    """The options of a check of damaged files, with defaults for its counts; and a generator and a folder for it."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", type=os.path.abspath, required=True)
    for name, count in {**counts, "seed": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=count)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        yield options, random.Random(options.seed), pathlib.Path(folder)


def objects(binary, *words, **more):
    """The same with `--json`, as the objects that it prints."""
    return [json.loads(line) for line in run(binary, *words, "--json", **more).splitlines()]


def error_message(errors):
    """Returns the message of the error among the events that a command printed to standard error."""
    events = (json.loads(line) for line in errors.splitlines())
    return next(event["message"] for event in events if event["type"] == "error")


class Shardify:
    """The program under test. `wrapped` is what it is run by, `settings` is added to its environment."""

    def __init__(self, binary, settings=None, timeout=120):
        self.binary = str(pathlib.Path(binary).resolve())
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "AZURE", "GOOGLE_", "SHARDIFY_"))}
        self.environment = {**plain, "RUST_BACKTRACE": "0", **(settings or {})}
        self.timeout = timeout

    def command(self, *arguments):
        return [self.binary, *map(str, arguments), "--json", "--progress", "never", "--jobs", "1"]

    def run(self, *arguments, wrapped=(), stdin=None, folder=None):
        """Runs a command; returns its exit code, the objects that it printed, and its standard error."""
        command = [*wrapped, *self.command(*arguments)]
        try:
            done = subprocess.run(
                command, capture_output=True, timeout=self.timeout, env=self.environment, input=stdin, cwd=folder
            )
        except subprocess.TimeoutExpired as slow:
            raise Failure(f"`{' '.join(command)}` hangs") from slow
        lines = done.stdout.decode(errors="replace").splitlines()
        try:
            objects = [json.loads(line) for line in lines]
        except ValueError:
            objects = []
        return done.returncode, objects, done.stderr.decode(errors="replace").strip()

    def ok(self, *arguments, **more):
        """Runs a command that has to succeed; returns the objects that it printed."""
        code, objects, errors = self.run(*arguments, **more)
        if code != OK:
            raise Failure(f"`{' '.join(map(str, arguments))}` ended with {code}: {errors}")
        return objects

    def ids(self, dataset, at=None):
        """How often each record id is in a version."""
        more = ["--at", at] if at else []
        code, objects, errors = self.run("manifest", dataset, "--export", "jsonl", *more)
        if code != OK:
            raise Failure(f"the records of {at or 'the newest version'} cannot be listed, {code}: {errors}")
        return collections.Counter(one["record_id"] for one in objects if "record_id" in one)

    def versions(self, dataset):
        """Versions that can be read, newest last."""
        history = [one for one in self.ok("manifest", dataset, "--history") if one.get("type") == "version"]
        return [one["version"] for one in history if one.get("readable", True)]


class Canaries:
    """Files of the user's in and around a dataset; none of them may change."""

    NAMES = ["notes.txt", "000099.tar", "000099.parquet", ".hidden/file", "0123456789abcdef/000000.parquet", "sub/_SUCCESS"]

    def __init__(self, root, dataset):
        self.root, self.files = pathlib.Path(root), {}
        for place in (root, dataset):
            names = self.NAMES if os.environ.get("SHARDIFY_OWN_NAMES") != "no" else self.NAMES[:1]
            for name in names:
                self.plant(pathlib.Path(place) / name, f"mine: {name}".encode())
            if os.environ.get("SHARDIFY_ODD_NAMES") == "no":
                continue
            odd = os.path.join(os.fsencode(place), b"caf\xe9.txt")
            self.plant(odd, b"mine: a name that is not UTF-8")
            link = pathlib.Path(place) / "link"
            link.symlink_to("notes.txt")
            self.files[os.fsencode(link)] = (b"->notes.txt", None)

    def plant(self, path, content):
        path = os.fsencode(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
        self.files[path] = (content, None)

    def beside_shards(self, dataset):
        """Plants files in the folders of shards."""
        folders = {path.parent for path in pathlib.Path(dataset).rglob("000000.*") if "_shardify" not in path.parts}
        for folder in folders - {path.parent for path in map(pathlib.Path, map(os.fsdecode, self.files))}:
            names = ("notes.txt", "000099.tar", "000099.parquet", "000099.tfrecord")
            for name in names if os.environ.get("SHARDIFY_OWN_NAMES") != "no" else names[:1]:
                self.plant(folder / name, f"mine, beside shards: {name}".encode())

    def check(self, moved=lambda path: path):
        """None of them has changed; `moved` says where they are now."""
        for path, (content, _) in self.files.items():
            path = os.fsencode(moved(os.fsdecode(path)))
            try:
                found = b"->" + os.readlink(path) if os.path.islink(path) else open(path, "rb").read()
            except OSError as gone:
                raise Failure(f"a file of the user's is gone: {path!r}: {gone}") from gone
            if found != content:
                raise Failure(f"a file of the user's has changed: {path!r}")


def table(first, rows=ROWS):
    """A table whose rows are as long in every table, with ids from `first` on."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["rid", "who", "v"])
    writer.writerows((f"r{row:06}", f"P{row % 7:02}", f"x{row * 7919 % 10**8:08}") for row in range(first, first + rows))
    return out.getvalue().encode()


def table_ids(first, rows=ROWS, without=None):
    return collections.Counter(f"r{row:06}" for row in range(first, first + rows) if f"P{row % 7:02}" != without)


def foreign_tar(path, first, rows):
    """A shard as Python writes it."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for row in range(first, first + rows):
            content = json.dumps({"v": row}).encode()
            member = tarfile.TarInfo(f"r{row:06}.json")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


class Task:
    """A command on a dataset below a folder. `before` and `after` are its records; None where there is no dataset."""

    def __init__(self, name, arguments, before, after, all_versions=False):
        self.name, self.arguments = name, arguments
        self.before, self.after = before, after
        self.all_versions = all_versions

    def words(self, root):
        return [str(word).replace("{root}", str(root)) for word in self.arguments]

    def dataset(self, root):
        return pathlib.Path(root) / "deep" / "ds"

    def look(self, shardify, root, code=None):
        """The newest version is one of both, whole; all others are too. A command that said 0 has done it. Returns which."""
        dataset = self.dataset(root)
        code_now, _, errors = shardify.run("manifest", dataset)
        if code_now == USAGE and self.before is None and code != OK:
            return "before"
        if code_now != OK:
            raise Failure(f"the dataset cannot be read, {code_now}: {errors}")
        found = shardify.ids(dataset)
        state = "after" if found == self.after else "before"
        if found not in (self.before, self.after):
            lost = (self.before or self.after) & self.after
            raise Failure(f"lost {sorted(lost - found)[:5]}, doubled or invented {sorted(found - (self.after | (self.before or found)))[:5]}")
        if code == OK and state != "after":
            raise Failure("it said that all is done, and it is not")
        for version in shardify.versions(dataset):
            code_now, objects, errors = shardify.run("verify", dataset, "--read-data", "--at", f"v{version}")
            problems = [one["problem"] for one in objects if one.get("type") == "problem"]
            if self.all_versions and code != OK and problems:
                # What an erasure that was cut short has left is told, and the same command deletes it.
                problems = [problem for problem in problems if CUT_SHORT not in problem]
                code_now = code_now if problems else OK
            if code_now != OK:
                raise Failure(f"v{version} is damaged, {code_now}: {errors} {problems[:2]}")
        return state

    def redo(self, shardify, root):
        """The same command, undisturbed, finishes; then nothing is left over."""
        dataset = self.dataset(root)
        code, _, errors = shardify.run(*self.words(root))
        if code not in (OK, *self.done_codes()):
            raise Failure(f"run again, it ended with {code}: {errors}")
        self.look(shardify, root, OK)
        for _ in range(3):
            shardify.ok("vacuum", dataset, "--retain", "0s", "--force")
        self.look(shardify, root, OK)
        summary = shardify.ok("vacuum", dataset, "--retain", "0s", "--force", "--dry-run")[-1]
        left = [path for path in (dataset / "_shardify" / "staging").rglob("*") if path.is_file()]
        if summary["objects_deleted"] or summary["objects_young"] or left:
            raise Failure(f"a vacuum left something behind: {summary['objects_deleted']} objects, {left[:3]}")

    def done_codes(self):
        """Exit codes of the command when there is nothing left to do."""
        # An id that was erased from the newest version is found no more; a folder that was adopted has no more to give.
        return {"untag": (USAGE,)}.get(self.name, ())


def tasks(shardify, root, form):
    """Datasets below `root`, one for each task, and the tasks. Yields (task, folder to be copied)."""
    size = ["--target-shard", SHARD, "--id", "rid", "--subject", "who", "--to", form]
    codec = ["--codec", "none"]
    whole = pathlib.Path(root) / f"whole-{form}"
    (whole / "in").mkdir(parents=True)
    for number in range(4):
        (whole / "in" / f"{number}.csv").write_bytes(table(number * ROWS))
    dataset = whole / "deep" / "ds"
    convert = lambda number: ["convert", f"{{root}}/in/{number}.csv", "--out", "{root}/deep/ds", *size, *codec]
    here = lambda words: [str(word).replace("{root}", str(whole)) for word in words]
    empty = pathlib.Path(root) / f"empty-{form}"
    shutil.copytree(whole, empty)
    yield Task("convert-new", convert(0), None, table_ids(0)), empty, None
    for number in range(3):
        shardify.ok(*here(convert(number)))
    shardify.ok("manifest", dataset, "--tag", "second", "--at", "v2")
    other = pathlib.Path(root) / f"other-{form}"
    shardify.ok("convert", whole / "in" / "3.csv", "--out", other, *size, *codec, "--index", "none")
    for number, shard in enumerate(sorted(other.glob(f"*/*.{form}*"))):
        for place in (whole / "given", dataset / "mine"):
            place.mkdir(exist_ok=True)
            shutil.copy(shard, place / f"part-{number}.{form}")
    canaries = Canaries(whole, dataset)
    canaries.beside_shards(dataset)
    three = table_ids(0, 3 * ROWS)
    four = table_ids(0, 4 * ROWS)
    ds = "{root}/deep/ds"
    compact = ["compact", ds, "--target-shard", "1MiB", "--min-inputs", "2"]
    # Names of shards that were copied are not those of our own, so that `adopt` takes them for the user's.
    columns = [] if form == "tar" else ["--id", "rid", "--subject", "who"]
    yield Task("convert", convert(3), three, four), whole, canaries
    yield Task("compact", compact, three, three), whole, canaries
    if form == "parquet":
        yield Task("sort", [*compact, "--sort-by", "v"], three, three), whole, canaries
    some = table_ids(0, 3 * ROWS, without="P03")
    yield Task("erase", ["erase", ds, "P03"], three, some), whole, canaries
    yield Task("erase-all", ["erase", ds, "P03", "--all-versions"], three, some, all_versions=True), whole, canaries
    yield Task("adopt", ["adopt", "{root}/given", "--out", ds, *columns], three, four), whole, canaries
    yield Task("adopt-in-place", ["adopt", ds, "--include", "mine/*", *columns], three, four), whole, canaries
    # From here on there are shards that only expired versions have.
    shardify.ok(*here(compact))
    yield Task("vacuum", ["vacuum", ds, "--retain", "0s", "--force"], three, three), whole, canaries
    yield Task("tag", ["manifest", ds, "--tag", "now", "--at", "v3"], three, three), whole, canaries


def copied(start, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(start, target, symlinks=True)
    return pathlib.Path(target)
