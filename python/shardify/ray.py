"""Converts, merges and adopts on a cluster of Ray: `shardify.ray.convert("s3://raw/scans", out="s3://data/scans")`.

The nodes need the package, and access to the sources and the dataset. Ray runs a task again whose node died; tasks that a frozen
worker holds get a second attempt from `shardify.runners`, since Ray would wait for them for ever.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from . import runners
from ._extras import needs
from ._options import Path
from .commands import PlanAdoptOptions, PlanCompactOptions, PlanOptions
from .errors import StorageError
from .progress import Wanted
from .reports import CommitReport

if TYPE_CHECKING:
    from typing_extensions import Unpack

with needs("ray"):
    import ray

# Attempts of a task whose worker or node died.
RETRIES = 3


class RayExecutor(runners.EngineExecutor):
    """Runs functions as tasks of Ray with so many CPUs each. Tasks for which the cluster has no room yet are demand for its autoscaler."""

    # Nodes take minutes to start. A cluster with few of them grows to this many tasks in one step, and doubles from there on.
    least = 100

    def __init__(self, cpus: int = 1) -> None:
        super().__init__()
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        self._cpus = cpus
        self._remote = ray.remote(num_cpus=cpus, max_retries=RETRIES)(_work)
        self._running: set[Any] = set()
        self._lock = threading.Lock()

    def _slots(self) -> int:
        cluster: Any = ray
        return int(cluster.cluster_resources().get("CPU", 0)) // self._cpus

    def _give(self, work: functools.partial[runners.Result]) -> Any:
        task = self._remote.remote(work)
        with self._lock:
            self._running.add(task)
        return task

    def _call(self, given: Any) -> runners.Result:
        try:
            result: runners.Result = ray.get(given)
        except ray.exceptions.RayError as error:
            return None, StorageError(f"the worker of a task was lost: {error}")
        finally:
            with self._lock:
                self._running.discard(given)
        return result

    def _stop(self) -> None:
        with self._lock:
            running, self._running = self._running, set()
        for task in running:
            ray.cancel(task, force=True)


def _work(work: functools.partial[runners.Result]) -> runners.Result:
    return work()


def convert(*sources: Path, out: Path, jobs: int = 1, progress: Wanted = None, **options: Unpack[PlanOptions]) -> CommitReport | None:
    """Converts with tasks on the cluster; `None` if there is nothing to do. Options are those of `shardify.plan`."""
    with RayExecutor(cpus=jobs) as executor:
        return runners.convert(executor, *sources, out=out, jobs=jobs, progress=progress, **options)


def compact(dataset: Path, jobs: int = 1, progress: Wanted = None, **options: Unpack[PlanCompactOptions]) -> CommitReport | None:
    """Merges small shards with tasks on the cluster; `None` if there is nothing to do. Options are those of `shardify.plan_compact`."""
    with RayExecutor(cpus=jobs) as executor:
        return runners.compact(executor, dataset, jobs=jobs, progress=progress, **options)


def adopt(source: Path, jobs: int = 1, progress: Wanted = None, **options: Unpack[PlanAdoptOptions]) -> CommitReport | None:
    """Registers existing shards with tasks on the cluster; `None` if there is nothing to do. Options are those of `shardify.plan_adopt`."""
    with RayExecutor(cpus=jobs) as executor:
        return runners.adopt(executor, source, jobs=jobs, progress=progress, **options)
