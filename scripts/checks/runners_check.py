#!/usr/bin/env python3
"""Conversions whose tasks run on engines: every engine gives the shards of plain `convert`.

    python3 scripts/checks/runners_check.py --shardify target/release/shardify [--engines ray spark dask processes] [--rounds 1]

Ray with three nodes on this machine, Spark with two executors in processes of their own, Dask with worker processes, and a pool of processes.
Each round converts a dozen tables as tasks; on Ray, rounds kill a worker process in the middle. Engines that are not installed are named.
Exit code 1 if something differs.
"""

import argparse
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

from harness import Failure, expect, finish, not_run, objects, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES, ROWS = 12, 4000
OPTIONS = {"id": "id", "subject": "who", "task_size": "100KB", "target_shard": "64KiB"}

# A program for each engine: it converts sys.argv[1] to sys.argv[2] with `options`.
ENGINES = {
    "processes": """
from concurrent.futures import ProcessPoolExecutor
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        report = shardify.runners.convert(pool, raw, out=out, **options)
""",
    "dask": """
from dask.distributed import Client, LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        report = shardify.runners.convert(client.get_executor(), raw, out=out, **options)
""",
    "ray": """
import os, threading, time, ray, shardify.ray
from ray.cluster_utils import Cluster
if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)
    def lose_a_node():
        time.sleep(1.5)
        cluster.remove_node(nodes[0], allow_graceful=False)
    if fault:
        threading.Thread(target=lose_a_node, daemon=True).start()
    report = shardify.ray.convert(raw, out=out, **options)
    ray.shutdown()
    cluster.shutdown()
""",
    "spark": """
import os, sys, shardify.spark
from pyspark.sql import SparkSession
if __name__ == "__main__":
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false").getOrCreate()
    report = shardify.spark.convert(spark, raw, out=out, **options)
    spark.stop()
""",
}
MODULES = {"processes": "concurrent.futures", "dask": "distributed", "ray": "ray", "spark": "pyspark"}
HEAD = "import sys, shardify, shardify.runners\nraw, out, fault = sys.argv[1], sys.argv[2], sys.argv[3] == 'fault'\n"
TAIL = "    assert report.version == 1, report\n"


def shards(program, dataset):
    """What is in the shards, in the order of their records; folders are named by chance."""
    listed = [one for one in objects(program, "manifest", dataset, "--list") if one["type"] == "shard"]
    return [(one["records"], one["bytes"], one["blake3"]) for one in listed]


def convert(engine, program, raw, out, fault):
    script = out.parent / f"on_{engine}.py"
    script.write_text(f"{HEAD}options = {OPTIONS!r}\n{ENGINES[engine]}{TAIL}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SHARDIFY_BINARY": str(program)}
    command = [sys.executable, str(script), str(raw), str(out), "fault" if fault else "-"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Failure(f"{engine} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")


def write_inputs(raw):
    raw.mkdir()
    for file in range(FILES):
        rows = (f"{file}-{row},PAT-{row % 50},{'x' * (row % 30)}\n" for row in range(ROWS))
        (raw / f"{file:02}.csv").write_text("id,who,text\n" + "".join(rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shardify", required=True, help="the program under test")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    program = pathlib.Path(options.shardify).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_inputs(folder / "raw")
        words = [word for name, value in OPTIONS.items() for word in ("--" + name.replace("_", "-"), value)]
        run(program, "convert", folder / "raw", "--out", folder / "plain", *words)
        wanted = shards(program, folder / "plain")
        for engine in options.engines:
            if importlib.util.find_spec(MODULES[engine]) is None:
                not_run(f"runners_check: {engine}", "it is not installed")
                continue
            for number in range(options.rounds):
                for fault in (False, True) if engine == "ray" else (False,):
                    out = folder / f"{engine}-{number}-{fault}"
                    convert(engine, program, folder / "raw", out, fault)
                    expect(f"shards by {engine}", shards(program, out), wanted)
                    run(program, "verify", out, "--read-data")
            print(f"ok    {engine}: {options.rounds} rounds, {len(wanted)} shards", flush=True)
    return 0


if __name__ == "__main__":
    finish(main)
