"""The executor over engines and the driver of tasks, with an engine that is threads of this process."""

from __future__ import annotations

import functools
import sys
import threading
import time
import unittest
import unittest.mock
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from shardify import runners
from shardify.errors import StorageError
from shardify.progress import Watch

PATIENCE = 20.0


class Engine(runners.EngineExecutor):
    """Has a queue of its own: calls that it is given wait for one of its slots."""

    def __init__(self, slots: int, least: int) -> None:
        super().__init__()
        self.count, self.least, self.reachable = slots, least, True
        self.most_given, self.busy, self.most_busy, self.calls, self.stops = 0, 0, 0, 0, 0
        self.free = threading.Condition()
        self.queue: list[int] = []
        self.stopped: set[int] = set()

    def given(self) -> int:
        return len(self.queue) + self.busy

    def _slots(self) -> int:
        if not self.reachable:
            raise ConnectionError("the engine does not answer")
        return self.count

    def _give(self, work: functools.partial[runners.Result]) -> Any:
        if not self.reachable:
            raise ConnectionError("the engine does not answer")
        with self.free:
            self.calls += 1
            self.queue.append(self.calls)
            self.most_given = max(self.most_given, self.given())
            return self.calls, work

    def _call(self, given: Any) -> runners.Result:
        number, work = given
        with self.free:
            self.free.wait_for(lambda: number in self.stopped or (self.busy < self.count and self.queue[0] == number))
            self.queue.remove(number)
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
            self.free.notify_all()
        try:
            return (None, StorageError("cancelled")) if number in self.stopped else work()
        finally:
            with self.free:
                self.busy -= 1
                self.free.notify_all()

    def _stop(self) -> None:
        with self.free:
            self.stops += 1
            self.stopped.update(range(1, self.calls + 1))
            self.free.notify_all()

    def grow(self, slots: int) -> None:
        with self.free:
            self.count = slots
            self.free.notify_all()


class Case(unittest.TestCase):
    def setUp(self) -> None:
        self.gate = threading.Event()
        self.attempts: Counter[int] = Counter()

    def engine(self, slots: int, least: int = 2, kind: type[Engine] = Engine) -> Engine:
        engine = kind(slots, least)
        self.addCleanup(engine.shutdown)
        # Done first, so that no call is left that blocks.
        self.addCleanup(self.gate.set)
        return engine

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            self.assertLess(time.monotonic(), deadline, "it took too long")
            time.sleep(0.002)

    def drive(
        self, executor: Engine | ThreadPoolExecutor, tasks: int, work: Callable[[int], Any], soonest: float = runners.SOONEST
    ) -> Future[None]:
        """Runs tasks in the background. Those that take less than `soonest` seconds are not late."""

        def counted(plan: str, task: int) -> Any:
            self.attempts[task] += 1
            return work(task)

        def run() -> None:
            with unittest.mock.patch.object(runners, "SOONEST", soonest), Watch(None) as watch:
                runners._run_tasks("plan", executor, tasks, counted, watch)

        driver = ThreadPoolExecutor(1)
        self.addCleanup(driver.shutdown)
        return driver.submit(run)


class Calls(Case):
    def test_values_and_errors_come_back(self) -> None:
        engine = self.engine(2)
        values = [engine.submit(divmod, number, b) for number in range(200) for b in (0, 7)]
        for number in range(200):
            self.assertIsInstance(values[2 * number].exception(PATIENCE), ZeroDivisionError)
            self.assertEqual(values[2 * number + 1].result(PATIENCE), divmod(number, 7))
        self.assertLessEqual(engine.most_busy, 2)

    def test_an_exit_in_a_call_reaches_its_future(self) -> None:
        engine = self.engine(1)
        self.assertIsInstance(engine.submit(sys.exit, 3).exception(PATIENCE), SystemExit)
        self.assertEqual(engine.submit(int).result(PATIENCE), 0)

    def test_the_end_stops_all_calls(self) -> None:
        engine = self.engine(0)
        calls = [engine.submit(int) for _ in range(4)]
        self.until(lambda: engine.given() == 4)
        engine.shutdown()
        self.assertEqual([type(call.exception(0)) for call in calls], [StorageError] * 4)
        self.assertRaises(RuntimeError, engine.submit, int)

    def test_the_end_stops_a_call_that_was_on_its_way(self) -> None:
        class Slow(Engine):
            def _give(self, work: functools.partial[runners.Result]) -> Any:
                return work

            def _call(self, given: Any) -> runners.Result:
                time.sleep(0.5)
                return super()._call(super()._give(given))

        engine = self.engine(0, kind=Slow)
        call = engine.submit(int)
        engine.shutdown()
        self.assertIsInstance(call.exception(0), StorageError)
        self.assertGreater(engine.stops, 1)

    def test_an_end_without_calls_stops_nothing(self) -> None:
        engine = self.engine(1)
        self.assertEqual(engine.submit(int).result(PATIENCE), 0)
        engine.shutdown()
        self.assertEqual(engine.stops, 0)


class Tasks(Case):
    def test_slots_that_come_while_all_tasks_run_are_used(self) -> None:
        engine = self.engine(0)
        done = self.drive(engine, 20, lambda task: self.gate.wait())
        for slots, given in ((0, 2), (1, 2), (3, 6), (5, 10)):
            engine.grow(slots)
            self.until(lambda slots=slots, given=given: (engine.busy, engine.given()) == (slots, given))  # type: ignore[misc]
        self.gate.set()
        done.result(PATIENCE)
        self.assertEqual((sorted(self.attempts), set(self.attempts.values()), engine.most_given), (list(range(20)), {1}, 10))

    def test_slots_that_are_taken_away_get_no_tasks(self) -> None:
        engine = self.engine(4)
        done = self.drive(engine, 16, lambda task: self.gate.wait() if task < 8 else time.sleep(0.01))
        self.until(lambda: engine.given() == 8)
        engine.grow(1)
        self.gate.set()
        self.until(lambda: engine.given() <= 2)
        engine.most_given = 0
        done.result(PATIENCE)
        self.assertLessEqual(engine.most_given, 2)

    def test_an_engine_that_does_not_tell_its_slots_keeps_its_tasks(self) -> None:
        engine = self.engine(3)
        self.assertEqual(engine.slots(), 3)
        with unittest.mock.patch.object(engine, "_slots", side_effect=ConnectionError):
            done = self.drive(engine, 12, lambda task: self.gate.wait())
            self.until(lambda: engine.given() == 6)
            self.gate.set()
            done.result(PATIENCE)
        self.assertEqual((len(self.attempts), engine.slots(), engine.most_given), (12, 3, 6))

    def test_an_engine_that_is_gone_ends_the_conversion(self) -> None:
        engine = self.engine(2)
        engine.reachable = False
        self.assertIsInstance(self.drive(engine, 10, lambda task: None).exception(PATIENCE), ConnectionError)

    def test_one_thread_does_all_tasks_if_there_are_no_more(self) -> None:
        begin, threads = threading.Thread.start, []

        def limited(thread: threading.Thread) -> None:
            if thread.name.startswith(engine._thread_name_prefix):
                if len(threads) == most:
                    raise RuntimeError("can't start new thread")
                threads.append(thread)
            begin(thread)

        for most in (1, 0):
            engine = self.engine(4)
            threads.clear()
            with unittest.mock.patch.object(threading.Thread, "start", limited):
                failed = self.drive(engine, 10, lambda task: time.sleep(0.01)).exception(PATIENCE)
            self.assertEqual(str(failed), "None" if most else "can't start new thread")
            # One is in its thread, and one found none.
            self.assertLessEqual(engine.most_given, 1 + most)
        self.assertEqual(len(self.attempts), 10)

    def test_a_task_is_repeated_after_a_fault_of_the_storage(self) -> None:
        def work(task: int) -> None:
            if task % 2 and self.attempts[task] < runners.ATTEMPTS:
                raise StorageError("once more")

        for executor in (self.engine(2), ThreadPoolExecutor(2)):
            self.attempts.clear()
            with executor:
                self.drive(executor, 10, work).result(PATIENCE)
            self.assertEqual([self.attempts[task] for task in range(10)], [1, runners.ATTEMPTS] * 5)

    def test_tasks_that_wait_are_not_late(self) -> None:
        for executor in (self.engine(1), self.engine(1, least=100), ThreadPoolExecutor(1)):
            self.attempts.clear()
            with executor:
                self.drive(executor, 50, lambda task: time.sleep(0.03), soonest=0.6).result(PATIENCE)
            self.assertEqual(set(self.attempts.values()), {1})

    def test_a_frozen_task_is_attempted_again_when_no_other_waits(self) -> None:
        def work(task: int) -> None:
            if self.attempts[task] == 1:
                if task == 2:
                    self.gate.wait()
                time.sleep(0.05)
            else:
                self.assertEqual(len(self.attempts), 20)

        for executor in (self.engine(2), ThreadPoolExecutor(2)):
            self.attempts.clear()
            self.drive(executor, 20, work, soonest=0.6).result(PATIENCE)
            self.assertEqual(self.attempts, Counter(range(20)) + Counter([2]))
            self.assertFalse(self.gate.is_set())
            self.addCleanup(wait, [executor.submit(int)], PATIENCE)


if __name__ == "__main__":
    unittest.main()
