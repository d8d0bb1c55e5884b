"""Runs the tasks of a plan on any `concurrent.futures.Executor`: processes, or a cluster of Dask.

No scheduler of our own: the executor decides where tasks run. This module only repeats what may be repeated, starts a second
attempt of a task that takes too long, and goes on with the next plan if a value needed wider types.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait

from .commands import Option, commit, run_task
from .errors import ConflictError, ShardifyError, StorageError
from .reports import CommitReport, TaskReport

# Attempts of a task that failed with a conflict or a fault of the storage.
ATTEMPTS = 4
# A task is late after so many times the time that three quarters of the others took, and not before so many seconds.
LATE, SOONEST = 3.0, 60.0
# Attempts of a task that run at the same time.
AT_ONCE = 2


def run(plan: str, executor: Executor, tasks: int, **options: Option) -> CommitReport:
    """Runs all tasks of a plan on an executor, and commits it. Plans with wider types that follow are run, too."""
    while True:
        _run_tasks(plan, executor, tasks, options)
        report = commit(plan)
        if report.next_plan is None:
            return report
        plan, tasks = report.next_plan, int(report.raw["tasks"])


def _run_tasks(plan: str, executor: Executor, tasks: int, options: dict[str, Option]) -> None:
    running: dict[Future[TaskReport], tuple[int, float]] = {}
    failures = dict.fromkeys(range(tasks), 0)
    took: list[float] = []

    def start(task: int) -> None:
        running[executor.submit(run_task, plan, task, **options)] = task, time.monotonic()

    for task in range(tasks):
        start(task)
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
                    _cancel(running)
                    raise
                start(task)
            except (ShardifyError, OSError):
                _cancel(running)
                raise
            else:
                del failures[task]
                took.append(time.monotonic() - started)
        _repeat_late(running, failures, took, start)
    # Attempts that are still running find the outcome of the other one, and delete what they wrote.
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
