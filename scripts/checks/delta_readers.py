#!/usr/bin/env python3
"""Readers of Delta tables that live in Python environments of their own: DuckDB, ClickHouse and Sail, each in its own process.

DuckDB's extension `delta` is made for one release of DuckDB, which is older than the one that other checks use, so both live in
`target/venv-duckdb` (`scripts/duckdb_requirements.txt`; `.ci/run` makes it). ClickHouse (chdb) and Sail (with the client of Spark Connect) are
large, and `.ci/run` does not install them:

    python3 -m venv target/venv-mirror && target/venv-mirror/bin/pip install --requirement scripts/mirror_requirements.txt

`Reader` starts this file there and asks it by lines of JSON; the answer is a line with the number of bytes, and so many bytes of an Arrow
stream, or a line with an error.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Seconds for one scan.
PATIENCE = 120
# Environments, and how to make them.
PLACES = {
    "DuckDB": ("venv-duckdb", ".ci/run makes it"),
    "ClickHouse": ("venv-mirror", "scripts/checks/delta_readers.py says how to make it"),
    "Sail": ("venv-mirror", "scripts/checks/delta_readers.py says how to make it"),
}


class Reader:
    """Reads Delta tables by one of these programs; raises ImportError if it cannot. `seconds` is what all of its scans took."""

    def __init__(self, name):
        place, making = PLACES[name]
        python = ROOT / "target" / place / "bin" / "python"
        if not python.is_file():
            raise ImportError(f"target/{place} is missing; {making}")
        self.seconds, quiet = 0.0, {**os.environ, "RUST_LOG": "error"}
        command = [str(python), "-W", "ignore", str(pathlib.Path(__file__).resolve()), name]
        # ClickHouse reads no files outside the folder that it is started in.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=quiet, cwd="/")
        started = json.loads(self.process.stdout.readline() or '{"error": "it ended at once"}')
        if "error" in started:
            raise ImportError(started["error"])
        self.release = started["release"]

    def scan(self, folder, condition=None, version=None):
        """The rows of a version, by default the newest, that fulfil a condition, as an Arrow table."""
        import pyarrow as pa

        began, timer = time.perf_counter(), threading.Timer(PATIENCE, self.process.kill)
        timer.start()
        self.process.stdin.write(json.dumps({"folder": str(folder), "condition": condition, "version": version}).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or f'{{"error": "it ended, or took {PATIENCE} s"}}')
        body = self.process.stdout.read(answer.get("bytes", 0))
        timer.cancel()
        if "error" in answer:
            raise ValueError(answer["error"])
        table = pa.ipc.open_stream(body).read_all()
        self.seconds += time.perf_counter() - began
        return table


def by_duckdb():
    import duckdb
    import duckdb_extension_delta

    place = pathlib.Path(duckdb_extension_delta.__file__).parent / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
    connection = duckdb.connect(config={"allow_unsigned_extensions": True})
    connection.execute(f"load '{place}'; set timezone = 'UTC'")

    def scan(folder, condition, version):
        at = "" if version is None else f", version => {version}"
        return connection.execute(f"select * from delta_scan('{folder}'{at}) where {condition or 'true'}").to_arrow_table()

    return duckdb.__version__, scan


def by_clickhouse():
    import chdb
    import pyarrow as pa

    def scan(folder, condition, version):
        at = "" if version is None else f", delta_lake_snapshot_version = {version}"
        query = f"select * from deltaLakeLocal('{folder}') where {condition or 'true'} settings session_timezone = 'UTC'{at}"
        table = pa.ipc.open_stream(chdb.query(query, "ArrowStream").bytes()).read_all()
        # Its one type for bytes and text comes as text.
        for place, name in enumerate(table.column_names):
            try:
                table.column(place).validate(full=True)
            except pa.ArrowInvalid:
                table = table.set_column(place, name, table.column(place).cast(pa.binary()))
        return table

    return chdb.query("select version()", "TSV").data().strip(), scan


def by_sail():
    import importlib.metadata

    from pysail.spark import SparkConnectServer
    from pyspark.sql import SparkSession

    server = SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    host, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")

    # The server lives as long as this function refers to it.
    def scan(folder, condition, version, server=server):
        reader = spark.read.format("delta")
        rows = (reader if version is None else reader.option("versionAsOf", version)).load(f"file://{folder}")
        return (rows.filter(condition) if condition else rows).toArrow()

    return importlib.metadata.version("pysail"), scan


def serve(name):
    # What a library prints must not come between the answers.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def answer(value, body=b""):
        out.write(json.dumps(value).encode() + b"\n" + body)
        out.flush()

    try:
        import pyarrow as pa

        release, scan = {"DuckDB": by_duckdb, "ClickHouse": by_clickhouse, "Sail": by_sail}[name]()
    except Exception as why:
        return answer({"error": repr(why)})
    answer({"release": release})
    for line in sys.stdin:
        try:
            table = scan(**json.loads(line))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            body = sink.getvalue().to_pybytes()
        except Exception as why:
            answer({"error": str(why)})
            continue
        answer({"bytes": len(body)}, body)
    return None


if __name__ == "__main__":
    serve(sys.argv[1])
    # Threads of a server may never end.
    os._exit(0)
