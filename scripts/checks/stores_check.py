#!/usr/bin/env python3
"""Object stores for real: every command with sources and dataset on S3 (moto) and Azure (Azurite).

For each store: a table and a tree of small files are converted, again, compacted, looked up and verified, and the shards
have to be byte for byte those of the local run. A run is interrupted (no upload may stay open) and another one killed
(the last version must stay readable). S3 also behind a proxy that drops the condition of conditional creates: such a
store must be refused. Last, failures are provoked with secrets in settings and URLs, which nothing may print or store.

    pip install -r scripts/requirements.txt
    python3 scripts/checks/stores_check.py --shardify target/release/shardify [--files 20000] [--azure-files 2000] [--azurite DIR]

Azurite is installed by npm into DIR (default: a temporary folder); without npm that half is omitted, and said so.
Prints a line per check; exit code 1 if one failed.
"""

import argparse
import contextlib
import array
import concurrent.futures
import http.client
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from harness import Failure, expect, finish, not_run

ATOMIC_MOTO = pathlib.Path(__file__).with_name("atomic_moto.py")
BUCKET = "shardify"
CANARY = "CANARY7f3a"
ROWS = 400_000
BATCHES = 6
ARRAY_SHAPE = (12, 64, 96)
UPLOADERS = 8
# Maximum keys of one request, as of S3.
KEYS_OF_DELETE = 1000
START_SECONDS = 60


def below_tag(path):
    """A path without the folder that is named by its run."""
    return re.sub(r"^[0-9a-f]{16}(-\d+)?/", "", path)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(port):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise Failure(f"the server on port {port} did not start")


class Server:
    """A process that is ended with the block."""

    def __init__(self, command, port, cwd=None):
        self.process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(port)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


class S3:
    """A bucket of moto."""

    name = "s3"
    root = f"s3://{BUCKET}"

    def __init__(self, port):
        import boto3
        from botocore.config import Config

        self.port = port
        self.settings = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": f"{CANARY}id",
            "AWS_SECRET_ACCESS_KEY": f"{CANARY}secret",
        }
        self.client = boto3.client(
            "s3",
            endpoint_url=self.settings["AWS_ENDPOINT_URL"],
            region_name="us-east-1",
            aws_access_key_id="x",
            aws_secret_access_key="x",
            config=Config(max_pool_connections=UPLOADERS),
        )
        self.client.create_bucket(Bucket=BUCKET)

    def put(self, key, content):
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)

    def get(self, key):
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def keys(self, prefix):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        return [found["Key"] for page in pages for found in page.get("Contents", [])]

    def forget(self, prefix):
        """Deletes the objects below a prefix."""
        keys = self.keys(prefix)
        for start in range(0, len(keys), KEYS_OF_DELETE):
            objects = [{"Key": key} for key in keys[start : start + KEYS_OF_DELETE]]
            self.client.delete_objects(Bucket=BUCKET, Delete={"Objects": objects})

    def open_uploads(self):
        found = self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        return sorted(upload["Key"] for upload in found)

    def forget_uploads(self):
        for upload in self.client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
            self.client.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])


@contextlib.contextmanager
def bucket_of(store):
    """A bucket on a server of its own for the store `s3`; None for `local`."""
    if store == "local":
        yield None
        return
    port = free_port()
    with Server([sys.executable, str(ATOMIC_MOTO), "-p", str(port)], port):
        yield S3(port)


class Azure:
    """A container of Azurite, whose account and key are public."""

    name = "azure"
    root = f"az://{BUCKET}"
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def __init__(self, port):
        from azure.storage.blob import ContainerClient

        url = f"http://127.0.0.1:{port}"
        self.settings = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}
        self.client = ContainerClient(f"{url}/devstoreaccount1", BUCKET, credential=self.key)
        self.client.create_container()

    def put(self, key, content):
        self.client.upload_blob(key, content)

    def get(self, key):
        return self.client.download_blob(key).readall()

    def keys(self, prefix):
        return [blob.name for blob in self.client.list_blobs(name_starts_with=prefix)]

    def open_uploads(self):
        # Azure has no uploads, only blocks that nothing refers to, and forgets those after a week.
        return []

    def forget_uploads(self):
        pass


class Careless(http.server.BaseHTTPRequestHandler):
    """Hands every request on to S3 without its condition."""

    protocol_version = "HTTP/1.1"
    target = None

    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = {k: v for k, v in self.headers.items() if k.lower() not in ("if-none-match", "connection")}
        upstream = http.client.HTTPConnection("127.0.0.1", self.target)
        upstream.request(self.command, self.path, body, kept)
        answer = upstream.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
        self.send_header("Content-Length", length or "0")
        self.end_headers()
        self.wfile.write(content)
        upstream.close()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

    def log_message(self, *_):
        pass


class Shardify:
    """The program under test; everything that it prints is kept."""

    def __init__(self, binary, folder):
        self.binary = str(pathlib.Path(binary).resolve())
        self.folder = folder
        self.printed = []

    def command(self, *arguments):
        return [self.binary, *map(str, arguments), "--json", "--progress", "never"]

    def environment(self, settings):
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "AZURE", "GOOGLE_"))}
        return {**plain, **settings, "RUST_LOG": "trace"}

    def run(self, settings, *arguments, code=0):
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(settings),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=1800,
        )
        self.printed += [done.stdout, done.stderr]
        if code is not None and done.returncode != code:
            raise Failure(f"`{' '.join(map(str, arguments))}` ended with {done.returncode}: {done.stderr.strip()}")
        errors = [line for line in done.stderr.splitlines() if line.startswith('{"type":"error"')]
        lines = done.stdout.splitlines() or errors
        return json.loads(lines[-1]) if lines else {}

    def stop(self, settings, seconds, kind, *arguments):
        """Starts the command and sends it a signal after some time; returns its exit code."""
        process = subprocess.Popen(
            self.command(*arguments),
            env=self.environment(settings),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        time.sleep(seconds)
        process.send_signal(kind)
        self.printed.append(process.communicate()[0])
        return process.returncode


def table(first, rows):
    rng = random.Random(first)
    lines = [f"{row},PAT-{rng.randrange(50_000):05},{rng.random():.9f},{rng.randbytes(12).hex()}" for row in range(first, first + rows)]
    return ("id,patient,value,note\n" + "\n".join(lines) + "\n").encode()


def samples(files):
    rng = random.Random(5)
    for number in range(files // 2):
        key = f"site-{number % 37:02}/P-{number:06}"
        yield f"{key}.jpg", rng.randbytes(rng.randrange(1_500))
        yield f"{key}.json", json.dumps({"sample": number}).encode()


def arrays(local):
    """The same numbers as NPY and as Zarr, without numpy."""
    count = ARRAY_SHAPE[0] * ARRAY_SHAPE[1] * ARRAY_SHAPE[2]
    content = array.array("i", range(count))
    if sys.byteorder == "big":
        content.byteswap()
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': {ARRAY_SHAPE}, }}".ljust(117) + "\n"
    (local / "grid.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + content.tobytes())
    store = local / "grid.zarr"
    store.mkdir()
    layout = {"zarr_format": 2, "shape": ARRAY_SHAPE, "chunks": [1, *ARRAY_SHAPE[1:]], "dtype": "<i4", "fill_value": 0}
    layout |= {"compressor": None, "filters": None, "order": "C"}
    (store / ".zarray").write_text(json.dumps(layout))
    each = 4 * ARRAY_SHAPE[1] * ARRAY_SHAPE[2]
    for number in range(ARRAY_SHAPE[0]):
        (store / f"{number}.0.0").write_bytes(content.tobytes()[number * each : (number + 1) * each])


class StoreCheck:
    """All checks of one store. Inputs lie below `local` and in the store under the same names."""

    def __init__(self, shardify, store, local):
        self.shardify, self.store, self.local = shardify, store, local
        self.baseline = {}

    def at(self, path):
        return f"{self.store.root}/{path}"

    def ran(self, *arguments, code=0):
        return self.shardify.run(self.store.settings, *arguments, code=code)

    def shards(self, dataset):
        keys = [key for key in self.store.keys(f"{dataset}/") if "/_shardify/" not in key]
        return sorted((below_tag(key.removeprefix(f"{dataset}/")), self.store.get(key)) for key in keys)

    def local_shards(self, dataset):
        root = self.local / dataset
        paths = [p for p in root.rglob("*") if p.is_file() and "_shardify" not in p.parts]
        return sorted((below_tag(str(p.relative_to(root))), p.read_bytes()) for p in paths)

    def same(self, source, dataset, *options):
        """Converts locally and in the store; the shards must be the same bytes."""
        here = self.local / f"local-{dataset}"
        self.shardify.run({}, "convert", self.local / source, "--out", here, *options)
        done = self.ran("convert", self.at(source), "--out", self.at(dataset), *options)
        ours, theirs = self.shards(dataset), self.local_shards(here.name)
        expect("number of shards", len(ours), len(theirs))
        expect("shards are the same bytes", ours == theirs, True)
        shutil.rmtree(here)
        return done

    def upload(self):
        paths = [p for p in self.local.rglob("*") if p.is_file()]
        with concurrent.futures.ThreadPoolExecutor(UPLOADERS) as pool:
            list(pool.map(lambda p: self.store.put(str(p.relative_to(self.local)), p.read_bytes()), paths))

    def tables(self):
        options = ["--id", "id", "--subject", "patient", "--target-shard", "12MiB", "--codec", "none"]
        done = self.same("big.csv", "tables", *options)
        expect("records", done["records_out"], ROWS)
        again = self.ran("convert", self.at("big.csv"), "--out", self.at("tables"))
        expect("version after a run with nothing new", again["version"], done["version"])
        for number in range(BATCHES):
            self.ran("convert", self.at(f"batches/{number}.csv"), "--out", self.at("tables"))
        compacted = self.ran("compact", self.at("tables"))
        expect("shards compacted", compacted["shards_removed"] >= BATCHES, True)
        total = ROWS + BATCHES * 1_000
        expect("records checked", self.ran("verify", self.at("tables"), "--read-data")["records"], total)
        hits = self.ran("manifest", self.at("tables"), "--find", str(ROWS + 1_234))
        expect("records found", hits["found"] if "found" in hits else hits.get("hits"), 1)

    def files(self):
        done = self.same("tree", "files")
        again = self.ran("convert", self.at("tree"), "--out", self.at("files"))
        expect("unchanged sources", again["sources_unchanged"], done["sources"])
        self.ran("verify", self.at("files"), "--read-data")
        self.ran("manifest", self.at("files"), "--find", "site-01/P-000001")

    def arrays(self):
        for source in ("grid.npy", "grid.zarr"):
            name = source.replace(".", "-")
            done = self.same(source, name, "--read", "record-dim=dim_0")
            expect("records of arrays", done["records_out"], ARRAY_SHAPE[0])
            self.ran("convert", self.at(source), "--out", self.at(f"{name}-cut"), "--read", "patch=dim_1=16")
        self.ran("verify", self.at("grid-zarr"), "--read-data")

    def seen(self):
        """A dataset, a folder, an object, a Delta table and what is missing, as `inspect`, `check`, `bench` and `report` see them."""
        for path, version, records in (
            ("tables", BATCHES + 2, ROWS + BATCHES * 1_000),
            ("batches", None, BATCHES * 1_000),
            ("batches/", None, BATCHES * 1_000),
            ("batches/*.csv", None, BATCHES * 1_000),
            ("batches/0.csv", None, 1_000),
        ):
            found = self.ran("inspect", self.at(path))
            expect(f"inspect of {path}", (found["version"], found["records"]), (version, records))
        expect("samples", self.ran("inspect", self.at("tree/site-01"))["sampled_records"], 0)
        if self.store.name == "s3":
            self.delta()
        self.ran("inspect", self.at("nothing"), code=2)
        self.store.put("doc.jsonl", b"%PDF-1.7\n1 0 obj\n")
        found = self.ran("inspect", self.at("doc.jsonl"), code=6)
        expect("a PDF document is told", (found["message"].endswith("found a PDF document"), found["source"]), (True, self.at("doc.jsonl")))
        rules = self.local / "rules.toml"
        rules.write_text("[volume]\nmin_records = 1\n[columns.id]\nunique = true\nnot_null = true\n[columns.value]\nmax = 0.5\n")
        found = self.ran("check", self.at("tables"), "--rules", rules, "--prometheus", self.at("seen/metrics.prom"), code=1)
        expect("rules", (found["passed"], found["failed"], found["records"]), (3, 1, ROWS + BATCHES * 1_000))
        words = ["--time", "300ms", "--step", "5ms", "--readers", "2", "--html", self.at("seen/bench.html")]
        measured = self.ran("bench", self.at("tree/site-01"), self.at("files"), *words)
        expect("formats", (measured["source"]["format"], measured["dataset"]["format"]), ("files", "tar"))
        self.ran("report", self.at("tables"), "--html", self.at("seen/report.html"))
        starts = {name: self.store.get(f"seen/{name}")[:9] for name in ("metrics.prom", "bench.html", "report.html")}
        expect("pages", (starts["bench.html"], starts["report.html"]), (b"<!doctype", b"<!doctype"))
        expect("metrics", starts["metrics.prom"][:2], b"# ")

    def delta(self):
        try:
            import deltalake
            import pyarrow
        except ImportError as missing:
            not_run("inspect of a Delta table on S3", f"{missing.name} is not installed")
            return
        options = {**self.store.settings, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
        for start in (0, 500):
            rows = pyarrow.table({"id": list(range(start, start + 500))})
            deltalake.write_deltalake(self.at("delta"), rows, mode="append", storage_options=options)
        found = self.ran("inspect", self.at("delta"))
        expect("a Delta table", (found["files"], found["records"], found["table"]["version"]), (2, 1_000, 1))

    def interrupted(self):
        expect("open uploads of complete runs", self.store.open_uploads(), [])
        options = ["convert", self.at("big.csv"), "--out", self.at("stopped"), "--target-shard", "9MiB", "--codec", "none"]
        codes = {self.shardify.stop(self.store.settings, 0.1 + 0.25 * i, signal.SIGINT, *options) for i in range(6)}
        expect("exit codes of interrupted runs", codes <= {130, 0}, True)
        expect("a run was interrupted", 130 in codes, True)
        expect("open uploads of interrupted runs", self.store.open_uploads(), [])

    def killed(self):
        first = self.ran("convert", self.at("batches/0.csv"), "--out", self.at("killed"))
        for attempt in range(5):
            options = ["convert", self.at("big.csv"), "--out", self.at("killed"), "--target-shard", "9MiB"]
            self.shardify.stop(self.store.settings, 0.1 + 0.2 * attempt, signal.SIGKILL, *options)
            seen = self.ran("verify", self.at("killed"), "--read-data")
            expect("a whole version", seen["records"] in (1_000, 1_000 + ROWS), True)
        self.ran("convert", self.at("big.csv"), "--out", self.at("killed"))
        expect("records", self.ran("verify", self.at("killed"), "--read-data")["records"], 1_000 + ROWS)
        expect("first version", self.ran("verify", self.at("killed"), "--at", f"v{first['version']}")["records"], 1_000)
        self.store.forget_uploads()

    def failures(self):
        """Everything fails; what is printed is searched for secrets afterwards."""
        settings = self.store.settings
        sas = {"AZURE_STORAGE_SAS_TOKEN": f"sv=2021&sig={CANARY}sas"}
        broken = [settings, {**settings, **sas, "AWS_ENDPOINT_URL": f"http://user:{CANARY}pw@127.0.0.1:1"}]
        secret = f"?sig={CANARY}query"
        for wrong in broken:
            for source in (f"{self.store.root}x/gone.csv", self.at("gone.csv"), self.at("gone") + secret):
                for out in (self.at("fails"), f"{self.store.root}x/fails", f"http://user:{CANARY}pw@127.0.0.1:1/d"):
                    self.shardify.run(wrong, "convert", source, "--out", out, code=None)

    def secrets(self):
        for text in self.shardify.printed:
            if CANARY in text:
                line = next(line for line in text.splitlines() if CANARY in line)
                raise Failure(f"a secret was printed: {line}")
        for key in self.store.keys(""):
            if "/_shardify/" in key and CANARY.encode() in self.store.get(key):
                raise Failure(f"a secret was stored in {key}")

    def careless(self):
        """A store that ignores the condition of a create is refused by its name, and nothing is committed."""
        Careless.target = self.store.port
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Careless)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        settings = {**self.store.settings, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.server_port}"}
        source, out = self.at("batches/0.csv"), self.at("careless")
        self.shardify.run(settings, "convert", source, "--out", out, code=5)
        expect("the store is named", out in self.shardify.printed[-1], True)
        expect("objects of a refused dataset", self.store.keys("careless/"), [])
        proxy.shutdown()

    def run(self):
        steps = [self.upload, self.tables, self.files, self.arrays, self.seen, self.interrupted, self.killed]
        steps += [self.careless] if self.store.name == "s3" else []
        failed = 0
        for step in [*steps, self.failures, self.secrets]:
            started = time.monotonic()
            try:
                step()
                result = "ok"
            except Failure as failure:
                failed += 1
                result = f"FAILED: {failure}"
            print(f"{self.store.name:6} {step.__name__:12} {time.monotonic() - started:6.1f} s  {result}", flush=True)
        return failed


def write_inputs(local, files):
    (local / "batches").mkdir(parents=True)
    (local / "big.csv").write_bytes(table(0, ROWS))
    for number in range(BATCHES):
        (local / "batches" / f"{number}.csv").write_bytes(table(ROWS + number * 1_000, 1_000))
    arrays(local)
    for name, content in samples(files):
        path = local / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def azurite(folder):
    """The command that starts Azurite, installed if need be; None without npm."""
    script = folder / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    if not script.exists():
        if shutil.which("npm") is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "azurite"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return ["node", str(script), "--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]


def check(arguments, work):
    local = work / "inputs"
    write_inputs(local, arguments.files)
    failed = 0
    port = free_port()
    with Server([sys.executable, str(ATOMIC_MOTO), "-H", "127.0.0.1", "-p", str(port)], port):
        failed += StoreCheck(Shardify(arguments.shardify, work), S3(port), local).run()
    command = azurite(pathlib.Path(arguments.azurite).resolve() if arguments.azurite else work / "azurite")
    if command is None:
        not_run("azure", "npm is not installed")
        return failed
    port = free_port()
    with Server([*command, "--blobPort", str(port)], port, cwd=work):
        fewer = work / "fewer"
        write_inputs(fewer, arguments.azure_files)
        failed += StoreCheck(Shardify(arguments.shardify, work), Azure(port), fewer).run()
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", default="target/release/shardify")
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--azure-files", type=int, default=2_000, help="Azurite takes several times as long as moto")
    parser.add_argument("--azurite", help="folder to install Azurite into, or that has it")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        failed = check(arguments, pathlib.Path(work))
    print("passed" if failed == 0 else f"{failed} failed")
    return min(failed, 1)


if __name__ == "__main__":
    finish(main)
