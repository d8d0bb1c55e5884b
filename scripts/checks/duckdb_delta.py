#!/usr/bin/env python3
"""DuckDB's `delta` extension as a reader, in a process of its own.

The extension is made for one release of DuckDB, which is older than the one that other checks use, so both live in
`target/venv-duckdb` (`scripts/duckdb_requirements.txt`; `.ci/run` makes it). `DuckDB` starts this file there and asks it by lines of JSON; the
answer is a line with the number of bytes, and so many bytes of an Arrow stream, or a line with an error.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class DuckDB:
    """Reads Delta tables with DuckDB; raises ImportError if it cannot."""

    def __init__(self):
        python = ROOT / "target" / "venv-duckdb" / "bin" / "python"
        if not python.is_file():
            raise ImportError("target/venv-duckdb is missing; .ci/run makes it")
        self.process = subprocess.Popen([str(python), __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started = json.loads(self.process.stdout.readline() or '{"error": "it ended at once"}')
        if "error" in started:
            raise ImportError(started["error"])
        self.release = started["release"]

    def scan(self, folder, condition=None):
        """The rows of the newest version that fulfil a condition, as an Arrow table."""
        import pyarrow as pa

        self.process.stdin.write(json.dumps({"folder": str(folder), "condition": condition}).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return pa.ipc.open_stream(self.process.stdout.read(answer["bytes"])).read_all()


def serve():
    def answer(value, body=b""):
        sys.stdout.buffer.write(json.dumps(value).encode() + b"\n" + body)
        sys.stdout.buffer.flush()

    try:
        import duckdb
        import duckdb_extension_delta
        import pyarrow as pa

        place = pathlib.Path(duckdb_extension_delta.__file__).parent / "extensions" / f"v{duckdb.__version__}" / "delta.duckdb_extension"
        connection = duckdb.connect(config={"allow_unsigned_extensions": True})
        connection.execute(f"load '{place}'; set timezone = 'UTC'")
    except Exception as why:
        return answer({"error": repr(why)})
    answer({"release": duckdb.__version__})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            table = connection.execute(f"select * from delta_scan('{asked['folder']}') where {asked['condition'] or 'true'}").to_arrow_table()
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
    serve()
