"""Runs the tasks of a plan on any `concurrent.futures.Executor`: processes, or a cluster of Dask.

No scheduler of our own: the executor decides where tasks run. This module only repeats what may be repeated, starts a second
attempt of a task that takes too long, and goes on with the next plan if a value needed wider types.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import sys
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
# Calls that an engine has for each of its slots. Those that wait in the engine are the demand that an autoscaler answers to.
AHEAD = 2
# Most calls that an engine has at once, for a thread waits for each.
THREADS = 10_000


def attempt(function: Callable[..., Any], *arguments: Any, **options: Any) -> Result:
    """Calls a function, on a machine of the engine."""
    try:
        return function(*arguments, **options), None
    except Exception as error:
        return None, error


class EngineExecutor(ThreadPoolExecutor):
    """An executor over an engine whose calls block: a thread waits for each call, also while the call waits for a slot of the engine."""

    # Calls that the engine has even if it has few slots, or none.
    least = AHEAD

    def __init__(self) -> None:
        super().__init__(THREADS)
        self._counted = 1
        self._calls: set[Future[Any]] = set()

    def slots(self) -> int:
        """Returns how many calls the engine can run at once now, at least 1: clusters grow and shrink."""
        # An engine may not answer for a moment, and the last count does until then. If it is gone, its calls fail.
        with contextlib.suppress(Exception):
            self._counted = max(self._slots(), 1)
        return self._counted

    def _slots(self) -> int:
        """Asks the engine for its slots."""
        raise NotImplementedError

    def _give(self, work: functools.partial[Result]) -> Any:
        """Gives a call to the engine, if that does not wait for the result; returns what `_call` is to have."""
        return work

    def _call(self, given: Any) -> Result:
        """Waits for the result of a call."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Cancels the calls that the engine has: a second attempt was faster, or the conversion failed."""
        raise NotImplementedError

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the executor. Unlike others, it stops its calls: one whose worker is frozen would never end."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        while self._calls:
            self._stop()
            if not wait:
                return
            # A call that was on its way to the engine was not stopped yet.
            time.sleep(0.1)
        super().shutdown(wait=wait)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(self._wait, self._give(functools.partial(attempt, fn, *args, **kwargs)))
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def _wait(self, given: Any) -> Any:
        value, error = self._call(given)
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
    # A task that is not done waits here, or has attempts: in the order in which the executor got them.
    waiting = collections.deque(range(tasks))
    attempts: dict[Future[TaskReport], int] = {}
    began: dict[Future[TaskReport], float] = {}
    failures = dict.fromkeys(range(tasks), 0)
    took: list[float] = []
    slots = room = most = sys.maxsize
    try:
        while failures:
            if isinstance(executor, EngineExecutor):
                slots = executor.slots()
                room = max(AHEAD * slots, executor.least)
            while waiting and len(attempts) < min(room, most):
                try:
                    attempts[executor.submit(work, plan, waiting[0])] = waiting[0]
                except RuntimeError:
                    # The system allows no more threads, so these have to do.
                    most = len(attempts)
                    if most == 0:
                        raise
                else:
                    waiting.popleft()
            done, _ = wait(attempts, timeout=1.0, return_when=FIRST_COMPLETED)
            now = time.monotonic()
            for future in done:
                task, start = attempts.pop(future), began.pop(future, now)
                if task not in failures:
                    continue
                try:
                    future.result()
                except (ConflictError, StorageError):
                    failures[task] += 1
                    if failures[task] == ATTEMPTS:
                        raise
                    waiting.append(task)
                else:
                    del failures[task]
                    watch(Progress("running tasks", tasks - len(failures), tasks, "tasks"))
                    took.append(now - start)
            # Engines do not tell when a call gets a slot, but they have a queue: the oldest calls have the slots.
            for future in itertools.islice(attempts, slots):
                if future.running():
                    began.setdefault(future, now)
            # A second attempt delays no first one.
            if not waiting:
                waiting.extend(_late(attempts, began, failures, took, now))
    finally:
        # Also when an engine fails or the user interrupts. Attempts that still run find the outcome of the other one, and
        # delete what they wrote.
        for future in attempts:
            future.cancel()


def _late(
    attempts: dict[Future[TaskReport], int],
    began: dict[Future[TaskReport], float],
    failures: dict[int, int],
    took: list[float],
    now: float,
) -> list[int]:
    """Returns the tasks that take much longer than the others, for a second attempt."""
    if len(took) < 4:
        return []
    limit = max(SOONEST, LATE * sorted(took)[len(took) * 3 // 4])
    counts = collections.Counter(attempts.values())
    late = (attempts[future] for future, start in began.items() if now - start > limit)
    return [task for task in late if task in failures and counts[task] < AT_ONCE]
