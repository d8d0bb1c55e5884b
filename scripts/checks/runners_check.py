#!/usr/bin/env python3
"""Conversions whose tasks run on engines: every engine gives the shards of plain `convert`.

    python3 scripts/checks/runners_check.py --shardify target/release/shardify [--engines ray autoscaled spark dask processes] [--rounds 1]

Ray with three nodes on this machine, Ray with one node to which its autoscaler adds two during the conversion, Spark with two executors in
processes of their own, Dask with worker processes, and a pool of processes.
Each round converts a dozen tables as tasks, to Parquet, tar and TFRecord in turn. On Ray and Spark a second conversion kills the worker that runs the first attempt of each task. Engines that are not installed are named.
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
FORMATS = ("parquet", "tar", "tfrecord")
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
import ray, shardify.ray
from ray.cluster_utils import Cluster
if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    report = shardify.ray.convert(raw, out=out, **options)
    ray.shutdown()
    cluster.shutdown()
""",
    # Two more nodes come if tasks wait in Ray, the second of them only if the first gets tasks and others still wait. Not by
    # `AutoscalingCluster` of Ray: that runs `ray stop`, which kills the clusters of other programs.
    "autoscaled": """
import contextlib, json, os, pathlib, signal, socket, subprocess, time
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_enable_autoscaler_v2": "0"}
os.environ |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_memory_monitor_refresh_ms": "0"}
import ray, shardify.ray
log, started = pathlib.Path(out + "-nodes"), shardify.runners.run_task

@contextlib.contextmanager
def cluster():
    with socket.socket() as free:
        free.bind(("", 0))
        port = free.getsockname()[1]
    node = {"resources": {"CPU": 1}, "node_config": {}}
    configuration = {
        "cluster_name": "check", "max_workers": 2, "head_node_type": "ray.head.default",
        "idle_timeout_minutes": 5, "upscaling_speed": 1,
        # The nodes have one address.
        "provider": {"type": "fake_multinode", "gcs_address": f"127.0.0.1:{port}", "use_node_id_as_ip": True,
                     "disable_node_updaters": True, "disable_launch_config_check": True},
        "available_node_types": {"ray.head.default": {**node, "max_workers": 0}, "worker": {**node, "max_workers": 2}},
        **{key: {} for key in ("auth", "docker", "file_mounts")},
        **{key: [] for key in ("cluster_synced_files", "initialization_commands", "setup_commands", "worker_setup_commands")},
        **{key: [] for key in ("worker_start_ray_commands", "head_setup_commands", "head_start_ray_commands")},
    }
    pathlib.Path(out + ".json").write_text(json.dumps(configuration))
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", f"--port={port}", "--num-cpus=1"]
    command += [f"--autoscaling-config={out}.json", "--include-dashboard=false"]
    head = subprocess.Popen(command, start_new_session=True)
    try:
        for _ in range(60):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(1)
        ray.init(address=f"127.0.0.1:{port}", log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        head.terminate()
        head.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(head.pid, signal.SIGKILL)

def run_task(plan, task, **options):
    with log.open("a") as file:
        print(ray.get_runtime_context().get_node_id(), file=file)
    wanted, deadline = 2 if task < 2 else 3, time.monotonic() + 60
    while len(set(log.read_text().split())) < wanted:
        assert time.monotonic() < deadline, f"expected tasks on {wanted} nodes"
        time.sleep(0.1)
    return started(plan, task, **options)

if __name__ == "__main__":
    shardify.runners.run_task, shardify.ray.RayExecutor.least = run_task, 2
    with cluster():
        report = shardify.ray.convert(raw, out=out, **options)
    assert len(set(log.read_text().split())) == 3, log.read_text()
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
MODULES = {"processes": "concurrent.futures", "dask": "distributed", "ray": "ray", "autoscaled": "ray", "spark": "pyspark"}
HEAD = "import sys, shardify, shardify.runners\nraw, out = sys.argv[1], sys.argv[2]\n"
TAIL = "    assert report.version == 1, report\n"


def shards(program, dataset):
    """What is in the shards, in the order of their records; folders are named by chance."""
    listed = [one for one in objects(program, "manifest", dataset, "--list") if one["type"] == "shard"]
    return [(one["records"], one["bytes"], one["blake3"]) for one in listed]


# Stands for the program: the first attempt of each task starts, then the worker that waits for it is killed.
KILLER = """#!/bin/sh
case "$*" in *run-task*)
  if mkdir "{killed}/$(echo "$*" | tr -c 'A-Za-z0-9\\n' _)" 2>/dev/null; then "{program}" "$@" & sleep 0.01; kill -KILL "$PPID"; wait; fi;;
esac
exec "{program}" "$@"
"""


def convert(engine, program, raw, out, form, fault):
    script = out.parent / f"on_{engine}.py"
    script.write_text(f"{HEAD}options = {({**OPTIONS, 'to': form})!r}\n{ENGINES[engine]}{TAIL}")
    killed = out.parent / f"{out.name}-killed"
    if fault:
        killed.mkdir()
        killer = out.parent / f"{out.name}.sh"
        killer.write_text(KILLER.format(killed=killed, program=program))
        killer.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "SHARDIFY_BINARY": str(killer if fault else program)}
    command = [sys.executable, str(script), str(raw), str(out)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise Failure(f"{engine} ended with {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}")
    if fault:
        expect(f"tasks whose worker was killed on {engine}", len(list(killed.iterdir())), FILES)


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
        wanted = {}
        for form in FORMATS[: options.rounds]:
            run(program, "convert", folder / "raw", "--out", folder / form, "--to", form, *words)
            wanted[form] = shards(program, folder / form)
        for engine in options.engines:
            if importlib.util.find_spec(MODULES[engine]) is None:
                not_run(f"runners_check: {engine}", "it is not installed")
                continue
            for number in range(options.rounds):
                form = FORMATS[number % len(FORMATS)]
                for fault in (False, True) if engine in ("ray", "spark") else (False,):
                    out = folder / f"{engine}-{number}-{fault}"
                    convert(engine, program, folder / "raw", out, form, fault)
                    expect(f"shards of {form} by {engine}", shards(program, out), wanted[form])
                    run(program, "verify", out, "--read-data")
            print(f"ok    {engine}: {options.rounds} rounds, {', '.join(wanted)}", flush=True)
    return 0


if __name__ == "__main__":
    finish(main)
