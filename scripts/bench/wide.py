#!/usr/bin/env python3
"""Times `shardify convert` of tables with tens of thousands of columns beside DuckDB and Polars: seconds, most memory and bytes written.

    python3 scripts/bench/wide.py --shardify target/release/shardify [--memory 512MiB] [--only json]

CSV has random whole numbers. JSON Lines: `dense`, all keys in each record; `sparse`, 30 of 20,000 keys in each; `keys`, one of its own in
each; `nested`, 30 of 20,000 in an object of each. Whole processes, one run each; a refusal counts as a result and is named.
"""

import argparse
import pathlib
import random
import re
import subprocess
import sys
import tempfile

CSV = {"1,000 x 20,000": (1_000, 20_000), "300 x 50,000": (300, 50_000), "20 x 190,000": (20, 190_000)}
RECORDS = {
    "dense": (60, lambda at, chance: {f"k{key}": chance.randrange(1_000) for key in range(20_000)}),
    "sparse": (20_000, lambda at, chance: {"id": at} | {f"k{chance.randrange(20_000)}": chance.random() for _ in range(30)}),
    "keys": (20_000, lambda at, chance: {"id": at, f"key_{at}": 3 * at, "t": f"x{at}"}),
    "nested": (20_000, lambda at, chance: {"id": at, "m": {f"k{chance.randrange(20_000)}": chance.randrange(99) for _ in range(30)}}),
}
DUCKDB = "import duckdb; duckdb.sql(\"copy (from {read}('{source}')) to '{out}' (format parquet, compression zstd)\")"
POLARS = "import polars; polars.{read}('{source}').write_parquet('{out}', compression='zstd', compression_level=1)"


def make(folder):
    chance = random.Random(1)
    for name, (rows, columns) in CSV.items():
        lines = [",".join(f"c{column}" for column in range(columns))]
        lines += [",".join(str(chance.randrange(100_000)) for _ in range(columns)) for _ in range(rows)]
        yield f"csv {name}", write(folder / f"{columns}.csv", lines)
    for name, (rows, record) in RECORDS.items():
        lines = [str(record(at, chance)).replace("'", '"') for at in range(rows)]
        yield f"json {name}", write(folder / f"{name}.jsonl", lines)


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def measured(command):
    """Seconds, MiB and the last line of what a command said."""
    ran = subprocess.run(["/usr/bin/time", "-f", "TIME %e %M", *map(str, command)], capture_output=True, text=True, check=False)
    seconds, memory = re.search(r"TIME ([\d.]+) (\d+)", ran.stderr).groups()
    said = next((line for line in ran.stderr.splitlines() if "rror" in line), "") if ran.returncode else ""
    return float(seconds), int(memory) >> 10, said


def size(path):
    files = (
        [path]
        if path.is_file()
        else [file for file in path.rglob("*") if file.suffix in (".parquet", ".tar") and "_shardify" not in file.parts]
    )
    return sum(file.stat().st_size for file in files) / (1 << 20)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, source in make(folder):
            if args.only not in name:
                continue
            csv = name.startswith("csv")
            peers = {
                "shardify": [args.shardify, "convert", source, "--out", "{out}", "--memory", args.memory],
                "shardify tar": [args.shardify, "convert", source, "--to", "tar", "--out", "{out}", "--memory", args.memory],
                "DuckDB": [
                    sys.executable,
                    "-c",
                    DUCKDB.replace("{read}", "read_csv" if csv else "read_json").replace("{source}", str(source)),
                ],
                "Polars": [
                    sys.executable,
                    "-c",
                    POLARS.replace("{read}", "read_csv" if csv else "read_ndjson").replace("{source}", str(source)),
                ],
            }
            for number, (peer, command) in enumerate(peers.items()):
                out = folder / f"{source.stem}.{number}"
                seconds, memory, said = measured([str(part).replace("{out}", str(out)) for part in command])
                told = said[:120] if said else f"{size(out):.1f} MiB"
                print(f"{name:20} {peer:13} {seconds:7.1f} s {memory:6} MiB   {told}", flush=True)


if __name__ == "__main__":
    main()
