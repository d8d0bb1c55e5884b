#!/usr/bin/env python3
"""Times `shardify.ray.convert` on three nodes of one CPU beside `shardify convert` on the same machine.

    python3 scripts/bench/ray_cluster.py SOURCE --shardify target/release/shardify [--rounds 5] [--work /dev/shm]

Needs ray. The nodes are processes of this machine, so the ratio shows what the cluster costs, not what more machines gain. The first
round starts the workers; it is printed, and not a part of the median.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source")
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/dev/shm"))
    arguments = parser.parse_args()
    binary = str(pathlib.Path(arguments.shardify).resolve())
    # The nodes take the program and the package from the environment that they are started in.
    os.environ |= {"SHARDIFY_BINARY": binary, "PYTHONPATH": str(ROOT / "python"), "RAY_AUTH_MODE": "disabled"}
    sys.path.insert(0, str(ROOT / "python"))
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    import shardify.ray

    plain, spread = arguments.work / "ray-plain", arguments.work / "ray-spread"
    ratios = []
    for number in range(arguments.rounds + 1):
        begun = time.monotonic()
        subprocess.run([binary, "convert", arguments.source, "--out", plain, "--quiet"], check=True)
        middle = time.monotonic()
        shardify.ray.convert(arguments.source, out=spread)
        end = time.monotonic()
        print(f"plain {middle - begun:6.2f} s   Ray {end - middle:6.2f} s   {(end - middle) / (middle - begun):5.2f}", flush=True)
        if number > 0:
            ratios.append((end - middle) / (middle - begun))
        shutil.rmtree(plain)
        shutil.rmtree(spread)
    print(f"median of {len(ratios)}: {statistics.median(ratios):.2f}")
    ray.shutdown()
    cluster.shutdown()


if __name__ == "__main__":
    main()
