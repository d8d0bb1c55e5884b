#!/usr/bin/env python3
"""A store that fails: requests get errors, answers are cut, slow, or lost after what was asked for has been done.

A proxy stands between shardify and moto (S3), or Azurite. By a seed it answers with 500 or 503, closes the connection before or
after the request took effect, cuts bodies, sends them slowly, and in some runs refuses everything with 403 from one request on,
as when a token expires. Datasets grow by conversions, compactions, sorts, adoptions, erasures, tags and vacuums through it. Each
run either did what it says, exactly once, or ends with a clean error (4 or 5) and has done all of it or nothing; run again
without faults, it finishes; then every version that can be read is verified. No upload that was begun stays open.

    python3 scripts/checks/faulty_store.py --shardify target/release/shardify [--runs 1000] [--at-once 4] [--seed N]
        [--store s3|azure] [--azurite DIR]

Prints a line per failure and the counts; exit code 1 if there was a failure. Only addresses of this machine are used.
"""

import argparse
import collections
import http.client
import http.server
import pathlib
import random
import socket
import sys
import tempfile
import threading
import time

from harness import CONFLICT, OK, STORAGE, Failure, Shardify, expect, finish, not_run, table, table_ids
from stores_check import S3, Azure, Server, azurite, free_port

ATOMIC_MOTO = pathlib.Path(__file__).with_name("atomic_moto.py")
ROWS = 40
# Runs on one dataset, then there is a new one.
RUNS_EACH = 12
SKIPPED = ("transfer-encoding", "connection", "content-length", "date", "server")


class Faults:
    """What goes wrong in one run: decided by its seed, request by request."""

    KINDS = ("500", "503", "reset before", "reset after", "500 after", "cut", "slow")

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.lock = threading.Lock()
        self.share = self.rng.choice((0.01, 0.05, 0.15))
        # Some runs lose their token.
        self.refuse_from = self.rng.randrange(1, 80) if self.rng.random() < 0.15 else None
        self.requests = 0
        self.counts = collections.Counter()

    def next(self):
        with self.lock:
            self.requests += 1
            if self.refuse_from and self.requests >= self.refuse_from:
                self.counts["403"] += 1
                return "403"
            if self.rng.random() >= self.share:
                return None
            kind = self.rng.choice(self.KINDS)
            self.counts[kind] += 1
            return kind


class Proxy(http.server.BaseHTTPRequestHandler):
    """Hands requests on, or spoils them. `server.faults` is None where nothing is to fail."""

    protocol_version = "HTTP/1.1"

    def answer(self, status, headers=(), content=b"", length=None):
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in SKIPPED:
                self.send_header(name, value)
        self.send_header("Content-Length", length if length is not None else str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def hang_up(self):
        self.close_connection = True
        # Bytes that were not read make this a reset.
        self.connection.shutdown(socket.SHUT_RDWR)

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = self.server.faults.next() if self.server.faults else None
        if fault in ("403", "500", "503"):
            text = b"<Error><Code>Spoiled</Code><Message>by the test</Message></Error>"
            return self.answer(int(fault), [("Content-Type", "application/xml")], b"" if self.command == "HEAD" else text)
        if fault == "reset before":
            return self.hang_up()
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        kept = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        upstream.request(self.command, self.path, body, kept)
        response = upstream.getresponse()
        content = response.read()
        upstream.close()
        if fault == "reset after":
            return self.hang_up()
        if fault == "500 after":
            return self.answer(500, (), b"")
        length = response.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        if fault == "cut" and len(content) > 1:
            self.answer(response.status, response.getheaders(), content[: len(content) // 2], length)
            return self.hang_up()
        if fault == "slow":
            time.sleep(0.2)
        return self.answer(response.status, response.getheaders(), content, length or "0")

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except OSError:
            pass


def proxy(target, faults=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    server.target, server.faults = target, faults
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class History:
    """One dataset after another, through a proxy of its own."""

    def __init__(self, number, store, options, folder):
        self.number, self.store, self.options = number, store, options
        self.folder = folder / f"h{number}"
        self.folder.mkdir()
        self.proxy = proxy(store.port)
        self.faulty = Shardify(options.shardify, {**store.settings, **self.endpoint(self.proxy.server_port)}, timeout=400)
        self.plain = Shardify(options.shardify, store.settings, timeout=400)
        self.counts, self.failed = collections.Counter(), 0

    def endpoint(self, port):
        name = "AWS_ENDPOINT_URL" if self.store.name == "s3" else "AZURITE_BLOB_STORAGE_URL"
        return {name: f"http://127.0.0.1:{port}"}

    def fresh(self, run):
        self.form = ("parquet", "tar", "parquet", "tfrecord")[(self.number + run // RUNS_EACH) % 4]
        self.dataset = f"{self.store.root}/faulty-{self.number}-{run}"
        self.records, self.first, self.tags = collections.Counter(), 0, 0

    def next(self, rng):
        """A command, and the records that there are after it."""
        source = self.folder / "export.csv"
        kind = rng.choice(("convert", "convert", "convert", "compact", "sort", "erase", "erase-all", "vacuum", "tag"))
        if not self.records or kind == "convert":
            # The same name and the same size each time.
            folder = self.folder / f"{self.first}"
            folder.mkdir(exist_ok=True)
            source = folder / "export.csv"
            source.write_bytes(table(self.first, ROWS))
            after = self.records + collections.Counter(
                {name: times for name, times in table_ids(self.first, ROWS).items() if self.who(name) not in self.erased}
            )
            self.first += ROWS
            size = ["--id", "rid", "--subject", "who", "--to", self.form, "--target-shard", rng.choice((2000, 1 << 20))]
            return ["convert", source, "--out", self.dataset, *size], after
        if kind in ("compact", "sort"):
            order = ["--sort-by", "v"] if kind == "sort" and self.form == "parquet" else []
            return ["compact", self.dataset, "--min-inputs", "2", "--target-shard", "1MiB", *order], self.records
        if kind in ("erase", "erase-all"):
            who = f"P{rng.randrange(7):02}"
            after = collections.Counter({name: times for name, times in self.records.items() if self.who(name) != who})
            if after == self.records:
                return ["manifest", self.dataset], self.records
            self.erasing = who
            return ["erase", self.dataset, who, *(["--all-versions"] if kind == "erase-all" else [])], after
        if kind == "vacuum":
            return ["vacuum", self.dataset, "--retain", "0s", "--force"], self.records
        self.tags += 1
        return ["manifest", self.dataset, "--tag", f"t{self.tags}", "--at", "0s"], self.records

    @staticmethod
    def who(name):
        return f"P{int(name[1:]) % 7:02}"

    def ids(self):
        code, _, errors = self.plain.run("manifest", self.dataset)
        return collections.Counter() if code == 2 and "found none" in errors else self.plain.ids(self.dataset)

    def run(self, run, seed):
        rng = random.Random(f"{seed} {run}")
        if run % RUNS_EACH == 0 or not hasattr(self, "dataset"):
            self.fresh(run)
            self.erased = set()
        self.erasing = None
        words, after = self.next(rng)
        faults = Faults(f"{seed} {run} faults")
        self.proxy.faults = faults
        started = time.monotonic()
        code, _, errors = self.faulty.run(*words)
        self.proxy.faults = None
        self.counts.update({f"fault {kind}": times for kind, times in faults.counts.items()})
        self.counts[f"exit {code}"] += 1
        title = f"{words[0]} ({time.monotonic() - started:.1f} s, {sum(faults.counts.values())} faults)"
        if code not in (OK, CONFLICT, STORAGE):
            raise Failure(f"{title} ended with {code}: {errors}")
        found = self.ids()
        if found != after and (code == OK or found != self.records):
            lost, more = sorted(after - found)[:4], sorted(found - after)[:4]
            raise Failure(f"{title} ended with {code}: lost {lost}, doubled or invented {more}")
        code, _, errors = self.plain.run(*words)
        # Who is erased already is found no more, and a tag may mean another version by now.
        if code not in (OK, *((1,) if words[0] == "erase" else ()), *((2,) if "--tag" in words else ())):
            raise Failure(f"{title}: run again without faults, it ended with {code}: {errors}")
        expect(f"records after {title} and again", self.ids(), after)
        self.records = after
        if self.erasing:
            self.erased.add(self.erasing)
        for version in self.plain.versions(self.dataset):
            self.plain.ok("verify", self.dataset, "--read-data", "--at", f"v{version}")

    def all(self, runs, seed):
        for run in runs:
            try:
                self.run(run, seed)
            except Failure as failure:
                self.failed += 1
                print(f"FAILED run {run} of {self.store.name}, {self.form if hasattr(self, 'form') else ''}: {failure}", flush=True)
                del self.dataset
            self.counts["runs"] += 1


def check(store, options, folder):
    histories = [History(number, store, options, folder) for number in range(options.at_once)]
    started = time.monotonic()
    # Whole histories, so that a run does not depend on how many there are at once.
    shares = [[] for _ in histories]
    for block, first in enumerate(range(0, options.runs, RUNS_EACH)):
        shares[block % len(shares)] += range(first, min(first + RUNS_EACH, options.runs))
    threads = [
        threading.Thread(target=history.all, args=(share, options.seed)) for history, share in zip(histories, shares)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = sum((history.counts for history in histories), collections.Counter())
    failed = sum(history.failed for history in histories)
    told = ", ".join(f"{what} {times}" for what, times in sorted(counts.items()))
    left = store.open_uploads()
    print(f"{store.name}: {told}; {len(left)} uploads left open, {failed} failed, seed {options.seed}, {time.monotonic() - started:.0f} s")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--store", choices=("s3", "azure"), default="s3")
    parser.add_argument("--azurite", help="folder to install Azurite into, or that has it")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        port = free_port()
        if options.store == "azure":
            command = azurite(pathlib.Path(options.azurite).resolve() if options.azurite else folder / "azurite")
            if command is None:
                not_run("azure", "npm is not installed")
                return 0
            with Server([*command, "--blobPort", str(port)], port, cwd=folder):
                store = Azure(port)
                store.port = port
                return min(check(store, options, folder), 1)
        with Server([sys.executable, str(ATOMIC_MOTO), "-H", "127.0.0.1", "-p", str(port)], port):
            return min(check(S3(port), options, folder), 1)


if __name__ == "__main__":
    finish(main)
