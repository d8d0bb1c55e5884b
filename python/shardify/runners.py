"""Runs the tasks of a plan on any `concurrent.futures.Executor`: processes, or a cluster of Dask.

No scheduler of our own: the executor decides where tasks run. This module only repeats what may be repeated, starts a second
attempt of a task that takes too long, and goes on with the next plan if a value needed wider types.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from ._options import Path
from .commands import PlanAdoptOptions, PlanCompactOptions, PlanOptions, commit, plan, plan_adopt, plan_compact, run_task
from .errors import ConflictError, ShardifyError, StorageError, UsageError
from .progress import Progress, Wanted, Watch
from .reports import CommitReport, TaskReport

if TYPE_CHECKING:
    from typing_extensions import Unpack

# What an attempt returned, and what it raised. Engines wrap exceptions, or send only their text; values come back as they are.
Result = tuple[Any, BaseException | None]

# What is converted by an executor is cut into tasks of this size unless the caller says another: a cluster has work for all of its
# slots, and the shards depend on none of them, for the cut follows from the sources and this size alone.
TASK_SIZE = "512MiB"
# Attempts of a task that failed with a conflict or a fault of the storage.
ATTEMPTS = 4
# A task is late after so many times the time that three quarters of the others took, and not before so many seconds.
LATE, SOONEST = 3.0, 60.0
# Attempts of a task that run at the same time.
AT_ONCE = 2


def attempt(function: Callable[..., Any], *arguments: Any, **options: Any) -> Result:
    """Calls a function, on a machine of the engine."""
    try:
        return function(*arguments, **options), None
    except Exception as error:
        return None, error


class EngineExecutor(ThreadPoolExecutor):
    """An executor over an engine whose calls block: as many threads as the engine has slots, each waits for one task."""

    def __init__(self, slots: int) -> None:
        super().__init__(max_workers=max(slots, 1))

    def _call(self, work: functools.partial[Result]) -> Result:
        """Does the work on the engine, and waits for its result."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Cancels what still runs on the engine: a second attempt was faster, or the conversion failed."""
        raise NotImplementedError

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        self._stop()
        super().shutdown(wait=wait)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(self._wait, functools.partial(attempt, fn, *args, **kwargs))

    def _wait(self, work: functools.partial[Result]) -> Any:
        value, error = self._call(work)
        if error is not None:
            raise error
        return value


def convert(
    executor: Executor, *sources: Path, out: Path, jobs: int = 1, progress: Wanted = None, **options: Unpack[PlanOptions]
) -> CommitReport | None:
    """Plans a conversion, runs its tasks with `jobs` threads each, and commits it; `None` if there is nothing to do.

    If it is killed, the same call continues with the tasks that have no result yet. Tasks have about 512 MiB of sources each unless
    `task_size` says otherwise. Options are those of `shardify.plan`.
    """
    options.setdefault("task_size", TASK_SIZE)
    planned = plan(*sources, out=out, progress=progress, **options)
    return None if planned.plan is None else run(planned.plan, executor, planned.tasks, jobs=jobs, progress=progress)


def compact(
    executor: Executor, dataset: Path, jobs: int = 1, progress: Wanted = None, **options: Unpack[PlanCompactOptions]
) -> CommitReport | None:
    """Plans a compaction, runs its tasks with `jobs` threads each, and commits it; `None` if there is nothing to do.

    Options are those of `shardify.plan_compact`.
    """
    planned = plan_compact(dataset, progress=progress, **options)
    return None if planned.plan is None else run(planned.plan, executor, planned.tasks, jobs=jobs, progress=progress)


def adopt(
    executor: Executor, source: Path, jobs: int = 1, progress: Wanted = None, **options: Unpack[PlanAdoptOptions]
) -> CommitReport | None:
    """Plans an adoption, runs its tasks with `jobs` threads each, and commits it; `None` if there is nothing to do.

    Options are those of `shardify.plan_adopt`.
    """
    planned = plan_adopt(source, progress=progress, **options)
    return None if planned.plan is None else run(planned.plan, executor, planned.tasks, jobs=jobs, progress=progress)


def run(
    plan: str,
    executor: Executor,
    tasks: int,
    progress: Wanted = None,
    *,
    id_key: Path | None = None,
    jobs: int | None = None,
    memory: int | str | None = None,
) -> CommitReport:
    """Runs all tasks of a plan on an executor, and commits it. Plans with wider types that follow are run, too.

    The options are those of `shardify.run_task`, for each task.
    """
    work = functools.partial(run_task, id_key=id_key, jobs=jobs, memory=memory)
    while True:
        try:
            with Watch(progress) as watch:
                _run_tasks(plan, executor, tasks, work, watch)
        except UsageError:
            # Another driver may have committed the plan meanwhile, which `commit` tells.
            with contextlib.suppress(ShardifyError):
                return commit(plan)
            raise
        report = commit(plan)
        if report.next_plan is None:
            return report
        plan, tasks = report.next_plan, int(report.raw["tasks"])


def _run_tasks(plan: str, executor: Executor, tasks: int, work: Callable[[str, int], TaskReport], watch: Watch) -> None:
    running: dict[Future[TaskReport], tuple[int, float]] = {}
    failures = dict.fromkeys(range(tasks), 0)
    took: list[float] = []

    def start(task: int) -> None:
        running[executor.submit(work, plan, task)] = task, time.monotonic()

    for task in range(tasks):
        start(task)
    try:
        while failures:
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in done:
                task, started = running.pop(future)
                if task not in failures:
                    continue
                try:
                    future.result()
                except (ConflictError, StorageError):
                    failures[task] += 1
                    if failures[task] == ATTEMPTS:
                        raise
                    start(task)
                else:
                    del failures[task]
                    watch(Progress("running tasks", tasks - len(failures), tasks, "tasks"))
                    took.append(time.monotonic() - started)
            _repeat_late(running, failures, took, start)
    finally:
        # Also when an engine fails or the user interrupts. Attempts that still run find the outcome of the other one, and
        # delete what they wrote.
        _cancel(running)


def _repeat_late(
    running: dict[Future[TaskReport], tuple[int, float]],
    failures: dict[int, int],
    took: list[float],
    start: Callable[[int], None],
) -> None:
    """Starts a second attempt of tasks that take much longer than the others."""
    if len(took) < 4:
        return
    limit = max(SOONEST, LATE * sorted(took)[len(took) * 3 // 4])
    now = time.monotonic()
    attempts: dict[int, list[float]] = {}
    for future, (task, started) in running.items():
        if task in failures and future.running():
            attempts.setdefault(task, []).append(started)
    for task, begun in attempts.items():
        if len(begun) < AT_ONCE and now - max(begun) > limit:
            start(task)


def _cancel(running: dict[Future[TaskReport], tuple[int, float]]) -> None:
    for future in running:
        future.cancel()
