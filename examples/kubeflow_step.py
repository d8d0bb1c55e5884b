#!/usr/bin/env python3
"""The daily job as a step of a Kubeflow pipeline.

    python examples/kubeflow_step.py pipeline.yaml                      # writes the pipeline for the cluster
    python examples/kubeflow_step.py --local RAW OUT                    # runs it here, without a cluster
"""

import sys

from kfp import compiler, dsl, local


# An image of yours with Python and the wheel of shardify, which is all that the steps need.
IMAGE = "registry.example.com/shardify:0.1.0"


@dsl.component(base_image=IMAGE)
def shards(raw: str, out: str) -> int:
    """Converts what is new, merges small shards, and gives the version for the steps that train."""
    import shardify

    shardify.convert(raw, out=out, on_error="quarantine")
    shardify.compact(out, since="7d")
    return shardify.open(out).version


@dsl.component(base_image=IMAGE)
def count(out: str, version: int) -> int:
    """Stands for the training: reads exactly that version."""
    import shardify

    return shardify.open(out, at=version).records


@dsl.pipeline(name="shardify-daily")
def daily(raw: str = "s3://raw/scans", out: str = "s3://data/scans") -> int:
    step = shards(raw=raw, out=out)
    step.set_caching_options(False)
    step.set_retry(3)
    return count(out=out, version=step.output).output


if __name__ == "__main__":
    if sys.argv[1] == "--local":
        local.init(runner=local.SubprocessRunner(use_venv=False), pipeline_root=f"{sys.argv[3]}-kubeflow")
        run = daily(raw=sys.argv[2], out=sys.argv[3])
        print(f"records {run.output}")
    else:
        compiler.Compiler().compile(daily, package_path=sys.argv[1])
