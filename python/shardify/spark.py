"""Converts, merges and adopts on a cluster of Spark: `shardify.spark.convert(spark, "s3://raw/scans", out="s3://data/scans")`.

The executors need the package, and access to the sources and the dataset. Each task is a Spark job of one task, so that stages
have no barrier between slow and fast tasks; Spark repeats what is lost with a node.
"""

from __future__ import annotations

import functools
import uuid
from typing import TYPE_CHECKING, Any

from . import runners
from ._options import Path
from .commands import PlanAdoptOptions, PlanCompactOptions, PlanOptions
from .errors import StorageError
from .progress import Wanted
from .reports import CommitReport

if TYPE_CHECKING:
    from typing_extensions import Unpack


class SparkExecutor(runners.EngineExecutor):
    """Runs functions as jobs of a `SparkSession`. Jobs for which it has no room yet are demand for dynamic allocation."""

    def __init__(self, spark: Any) -> None:
        super().__init__()
        self._context = spark.sparkContext
        self._group = f"shardify-{uuid.uuid4()}"

    def _slots(self) -> int:
        return int(self._context.defaultParallelism)

    def _call(self, given: functools.partial[runners.Result]) -> runners.Result:
        from py4j.protocol import Py4JJavaError

        self._context.setJobGroup(self._group, "tasks of a plan of shardify", interruptOnCancel=True)
        try:
            result: runners.Result = self._context.parallelize([0], 1).map(lambda _: given()).collect()[0]
        except Py4JJavaError as error:
            return None, StorageError(f"the job of a task failed: {error.java_exception}")
        return result

    def _stop(self) -> None:
        self._context.cancelJobGroup(self._group)


def convert(
    spark: Any, *sources: Path, out: Path, jobs: int = 1, progress: Wanted = None, **options: Unpack[PlanOptions]
) -> CommitReport | None:
    """Converts with tasks on the cluster; `None` if there is nothing to do. Options are those of `shardify.plan`."""
    with SparkExecutor(spark) as executor:
        return runners.convert(executor, *sources, out=out, jobs=jobs, progress=progress, **options)


def compact(
    spark: Any, dataset: Path, jobs: int = 1, progress: Wanted = None, **options: Unpack[PlanCompactOptions]
) -> CommitReport | None:
    """Merges small shards with tasks on the cluster; `None` if there is nothing to do. Options are those of `shardify.plan_compact`."""
    with SparkExecutor(spark) as executor:
        return runners.compact(executor, dataset, jobs=jobs, progress=progress, **options)


def adopt(spark: Any, source: Path, jobs: int = 1, progress: Wanted = None, **options: Unpack[PlanAdoptOptions]) -> CommitReport | None:
    """Registers existing shards with tasks on the cluster; `None` if there is nothing to do. Options are those of `shardify.plan_adopt`."""
    with SparkExecutor(spark) as executor:
        return runners.adopt(executor, source, jobs=jobs, progress=progress, **options)
