"""The package, with the program in $SHARDIFY_BINARY: `python3 -m unittest discover python/tests`.

Readers of other projects are tested where they are installed, and named where they are not.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import importlib.util
import io
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest
import unittest.mock
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shardify
from shardify import _options, _program, progress

ROWS = 500


def needs(*modules: str):
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        print(f"NOT RUN: {', '.join(missing)}: it is not installed")
    return unittest.skipIf(missing, f"{missing} is not installed")


class Folder(unittest.TestCase):
    """Tests in a folder of their own, with five tables."""

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "raw").mkdir()
        for file in range(5):
            rows = "".join(f"{file}-{row},PAT-{row % 30},{row}\n" for row in range(ROWS))
            (self.folder / "raw" / f"{file}.csv").write_text("id,who,value\n" + rows)
        self.raw, self.out = self.folder / "raw", self.folder / "shards"

    def convert(self, **options: Any) -> shardify.Dataset:
        shardify.convert(self.raw, out=self.out, **{"id": "id", "subject": "who", **options})
        return shardify.open(self.out)


class Commands(Folder):
    def test_options_become_words(self) -> None:
        words = _options.words(
            {
                "on_error": "skip",
                "id": ["a", "b"],
                "include": ["*.csv", "x"],
                "type": {"a": "text"},
                "dry_run": True,
                "private": False,
                "codec": None,
                "jobs": 3,
                "from_": "csv",
                "split": {"train": 0.99999, "val": 1e-05, "seed": 7},
                "dedup": ["a", "b"],
                "at": 12,
                "since": datetime.timedelta(days=7),
                "until": datetime.date(2026, 1, 31),
                "against": datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
                "schema": Path("a b.json"),
                "read": {"delimiter": ";", "header": False, "patch": {"lat": 64, "lon": 32}, "var": ["a", "b"], "hive_columns": True},
            }
        )
        self.assertEqual(
            words,
            [
                "--on-error=skip",
                "--id=a,b",
                "--include=*.csv",
                "--include=x",
                "--type=a=text",
                "--dry-run",
                "--jobs=3",
                "--from=csv",
                "--split=train=0.99999,val=0.00001,seed=7",
                "--dedup=a,b",
                "--at=v12",
                "--since=604800s",
                "--until=2026-01-31",
                "--against=2026-01-31T10:00:00.000000Z",
                "--schema=a b.json",
                "--read=delimiter=;",
                "--read=header=no",
                "--read=patch=lat=64,lon=32",
                "--read=var=a,b",
                "--read=hive-columns=yes",
            ],
        )

    def test_convert_reports_and_continues(self) -> None:
        report = shardify.convert(self.raw, out=self.out, id="id")
        self.assertEqual((report.version, report.records_out, report.records_rejected), (1, 5 * ROWS, 0))
        again = shardify.convert(self.raw, out=self.out)
        self.assertEqual((again.sources, again.sources_unchanged), (0, 5))

    def test_rejects_are_counted_and_no_exception(self) -> None:
        (self.raw / "bad.csv").write_text("id,who,value\n1,2,3,4\n")
        report = shardify.convert(self.raw, out=self.out, on_error="skip")
        self.assertEqual((report.records_in, report.records_rejected), (5 * ROWS + 1, 1))

    def test_find_diff_compact_erase_verify(self) -> None:
        for file in sorted(self.raw.iterdir()):
            shardify.convert(file, out=self.out, id="id", subject="who")
        self.assertEqual(len(shardify.find(self.out, "PAT-7")), 5 * len(range(7, ROWS, 30)))
        self.assertEqual(shardify.find(self.out, "nobody"), [])
        many = [f"{file}-{row}" for file in range(5) for row in range(100)]
        self.assertEqual([hit.record_id for hit in shardify.find(self.out, *many)], many)
        self.assertEqual(shardify.compact(self.out).shards_after, 1)
        self.assertEqual(shardify.diff(self.out, "v1", "v5")[-1].raw["records_added"], 4 * ROWS)
        erased = shardify.erase(self.out, subject="PAT-7", all_versions=True)
        self.assertGreater(erased.records_erased, 0)
        self.assertEqual(shardify.find(self.out, "PAT-7"), [])
        self.assertTrue(shardify.verify(self.out, read_data=True))
        rules = self.folder / "rules.toml"
        rules.write_text("[volume]\nmin_records = 1\n[columns.value]\nmax = -1\n")
        checked = shardify.check(self.out, rules)
        self.assertFalse(checked)
        self.assertEqual([rule["rule"] for rule in checked.failed], ["max"])
        self.assertEqual((checked.passed, checked.version), (1, 7))
        Path(shardify.open(self.out).paths()[0]).unlink()
        damaged = shardify.verify(self.out)
        self.assertFalse(damaged)
        self.assertIn("expected a shard", damaged.problems[0])

    def test_values_are_never_options(self) -> None:
        (self.raw / "6.csv").write_text("id,who,value\n-7,-8,1\n--tag=x,--json,2\n a\tb,c,3\nstar*,d,4\nstars,e,5\n")
        dataset = self.convert()
        with self.assertRaises(shardify.ShardifyError):
            shardify.open("--tag=x")
        for call in (lambda: shardify.open(self.out, at="--prune"), lambda: shardify.diff(self.out, "v1", "--tag=x")):
            with self.assertRaises(shardify.UsageError):
                call()
        self.assertNotIn("tags", str(shardify.open(self.out).settings))
        self.assertEqual([hit.record_id for hit in shardify.find(self.out, "-7", "--tag=x")], ["-7", "--tag=x"])
        self.assertEqual([hit.record_id for hit in shardify.find(self.out, " a\tb")], [" a\tb"])
        self.assertEqual([hit.record_id for hit in shardify.find(self.out, "star\\*")], ["star*"])
        self.assertEqual(sorted(hit.record_id for hit in shardify.find(self.out, "star*")), ["star*", "stars"])
        self.assertEqual(shardify.erase(self.out, subject="-8").records_erased, 1)
        self.assertEqual(shardify.erase(self.out, "--tag=x", record=[" a\tb"], subject="d").records_erased, 3)
        self.assertEqual(shardify.open(self.out).records, dataset.records - 4)
        with contextlib.chdir(self.folder):
            (self.folder / "--tag=x").mkdir()
            shardify.convert("raw/0.csv", out="--tag=x/shards")
            self.assertEqual(shardify.open("--tag=x/shards").records, ROWS)
            self.assertTrue(shardify.verify("--tag=x/shards"))

    def test_ids_do_not_stand_on_command_lines(self) -> None:
        self.convert()
        seen: list[str] = []
        popen = subprocess.Popen

        def noting(command, **options):
            seen.extend(command)
            return popen(command, **options)

        with unittest.mock.patch.object(_program.subprocess, "Popen", noting):
            shardify.find(self.out, "PAT-7")
            shardify.reshard(self.out, self.folder / "some", ids=["PAT-7", "PAT-8"])
            shardify.erase(self.out, subject="PAT-7")
            shardify.erase(self.out, "PAT-8", "0-1")
        self.assertTrue(seen)
        self.assertFalse([word for word in seen if "PAT-" in word or "0-1" in word])

    def test_pull_fetches_what_is_new(self) -> None:
        self.convert(split="train=0.8,val=0.2", split_by="subject")
        copy = self.folder / "copy"
        first = shardify.pull(self.out, copy)
        self.assertEqual((first.version, first.upstream_version, first.records), (1, 1, 5 * ROWS))
        self.assertEqual(first.files, first.files_fetched)
        self.assertEqual(len(shardify.find(copy, "PAT-7")), len(shardify.find(self.out, "PAT-7")))
        again = shardify.pull(self.out, copy)
        self.assertEqual((again.unchanged, again.files_fetched, again.version), (True, 0, 1))
        part = shardify.pull(self.out, self.folder / "part", split=["val"], data_only=True)
        self.assertIsNone(part.version)
        self.assertLess(part.records, 5 * ROWS)
        with self.assertRaises(shardify.UsageError):
            shardify.pull(self.out, copy, at="v9")

    def test_reshard_reports_its_shards(self) -> None:
        self.convert()
        planned = shardify.reshard(self.out, self.folder / "eight", shards=8, dry_run=True)
        self.assertEqual((planned.version, planned.dry_run, len(planned.shards)), (None, True, 8))
        whole = shardify.reshard(self.out, self.folder / "eight", shards=8)
        self.assertEqual((whole.version, whole.parent_version, whole.shards_after), (1, 1, 8))
        self.assertEqual(sum(shard.records for shard in whole.shards), 5 * ROWS)
        self.assertEqual({shard.path for shard in whole.shards}, {one.path for one in shardify.open(self.folder / "eight").shards})
        some = shardify.reshard(self.out, self.folder / "some", ids=["PAT-7", "nobody"])
        self.assertEqual((some.ids, some.ids_missing), (2, ("nobody",)))
        self.assertEqual(some.records_out, len(shardify.find(self.out, "PAT-7")))
        self.assertEqual(some.records_in, some.records_out + some.records_filtered)
        (self.folder / "ids.txt").write_text("PAT-7\n")
        same = shardify.reshard(self.out, self.folder / "same", ids=self.folder / "ids.txt", where="value >= 0")
        self.assertEqual((same.records_out, same.ids_missing), (some.records_out, ()))
        with self.assertRaises(shardify.UsageError):
            shardify.reshard(self.out, self.folder / "eight")

    def test_a_report_has_columns_and_versions(self) -> None:
        (self.raw / "bad.csv").write_text("id,who,value\n1,2,3,4\n")
        shardify.convert(self.raw, out=self.out, id="id", on_error="quarantine")
        page = self.folder / "report.html"
        self.assertNotIn("id", [column.column for column in shardify.report(self.out).columns])
        report = shardify.report(self.out, html=page, ids=True)
        self.assertIn("<html", page.read_text())
        self.assertEqual((report.version, report.records, report.records_exact), (1, 5 * ROWS, True))
        columns = {column.column: column for column in report.columns}
        self.assertEqual(list(columns), ["id", "who", "value"])
        value = columns["value"]
        self.assertEqual((value.data_type, value.nulls, value.min, value.max), ("int64", 0, "0", str(ROWS - 1)))
        self.assertEqual(sum(one["count"] for one in value.bins), value.sampled_values)
        (version,) = report.versions
        self.assertEqual((version.operation, version.records_out, version.records), ("convert", 5 * ROWS, 5 * ROWS))
        (reject,) = report.rejects
        self.assertEqual((reject.records, reject.examples[0]["source"]), (1, str(self.raw / "bad.csv")))
        self.assertIsNone(report.drift)
        (self.raw / "more.csv").write_text("id,who,value\nmore,PAT-1,100000\n")
        shardify.convert(self.raw / "more.csv", out=self.out)
        drifted = shardify.report(self.out, against="v1").drift
        assert drifted is not None
        self.assertEqual((drifted["from"], drifted["to"]), (1, 2))
        self.assertIsNone(shardify.report(self.raw / "1.csv").version)

    def test_every_failure_has_its_exception(self) -> None:
        with self.assertRaises(shardify.UsageError) as usage:
            shardify.convert(self.folder / "nothing", out=self.out)
        self.assertIn("nothing", str(usage.exception.source))
        self.assertTrue(usage.exception.hints)
        (self.raw / "bad.csv").write_text("id,who,value\n1,2,3,4\n")
        with self.assertRaises(shardify.InputError) as bad:
            shardify.convert(self.raw, out=self.out)
        self.assertEqual(bad.exception.line, 2)
        (self.raw / "bad.csv").unlink()
        self.convert()
        (self.raw / "0.csv").write_text("id,who,value\nx,PAT-1,1\n")
        with self.assertRaises(shardify.ChangedError):
            shardify.convert(self.raw, out=self.out)
        newest = next((self.out / "_shardify" / "log").iterdir())
        newest.write_bytes(newest.read_bytes().replace(b'"version": 1', b'"version": 7'))
        with self.assertRaises(shardify.StorageError):
            shardify.open(self.out)

    def test_a_conflict_has_its_exception(self) -> None:
        planned = shardify.plan(self.raw, out=self.out, task_size="10KiB")
        assert planned.plan is not None
        with self.assertRaises(shardify.ConflictError):
            shardify.commit(planned.plan)

    def test_version_is_that_of_the_program(self) -> None:
        self.assertRegex(shardify.version(), r"^\d+\.\d+\.\d+")


class Progresses(Folder):
    """Lines of the program become calls."""

    def slow(self, progress: progress.Wanted) -> shardify.reports.ConvertReport:
        """A conversion of some seconds: level 19 is slow."""
        text = "id,text\n" + "".join(f"{row},{os.urandom(40).hex()}\n" for row in range(120_000))
        (self.raw / "large.csv").write_text(text)
        return shardify.convert(self.raw, out=self.out, progress=progress, codec="zstd:19", jobs=1)

    def test_a_function_is_called(self) -> None:
        seen: list[shardify.Progress] = []
        report = self.slow(seen.append)
        self.assertTrue(seen)
        self.assertEqual({now.phase for now in seen} - {"inferring types"}, {"converting"})
        totals = {now.total for now in seen if now.phase == "converting"}
        self.assertEqual(len(totals), 1)
        (total,) = totals
        assert total is not None
        self.assertAlmostEqual(total / report.bytes_in, 1, delta=0.06)
        done = [now.done for now in seen if now.phase == "converting"]
        self.assertEqual(done, sorted(done))
        self.assertLessEqual(seen[-1].records, report.records_in)

    def test_a_function_that_raises_ends_the_program(self) -> None:
        def enough(now: shardify.Progress) -> None:
            raise ZeroDivisionError("enough")

        with self.assertRaises(ZeroDivisionError):
            self.slow(enough)
        self.assertEqual(list(self.out.rglob("*.parquet")), [])

    def test_errors_are_told_as_without_progress(self) -> None:
        (self.raw / "bad.csv").write_text("id,who,value\n1,2,3,4\n")
        with self.assertRaises(shardify.InputError) as bad:
            shardify.convert(self.raw / "bad.csv", out=self.out, progress=True)
        self.assertEqual(bad.exception.line, 2)

    def test_tasks_are_counted(self) -> None:
        seen: list[shardify.Progress] = []
        with concurrent.futures.ThreadPoolExecutor(2) as workers:
            shardify.runners.convert(workers, self.raw, out=self.out, progress=seen.append, task_size="10KiB")
        tasks = [(now.done, now.total) for now in seen if now.unit == "tasks"]
        self.assertEqual(tasks, [(done, len(tasks)) for done in range(1, len(tasks) + 1)])
        self.assertGreater(len(tasks), 2)

    def test_lines_of_the_program(self) -> None:
        head = '{"type":"progress","schema":1,"bytes":1537,"bytes_total":'
        line = head + '3145728,"phase":"merging the id index","records":1234567,"shards":1}\n'
        expected = shardify.Progress("merging the id index", 1537, 3 << 20, "bytes", 1_234_567, 1)
        self.assertEqual(progress.of_line(line), expected)
        unknown = progress.of_line(head + 'null,"phase":"inferring types","records":1,"shards":0}')
        assert unknown is not None
        self.assertIsNone(unknown.total)
        for other in ("note: 3 of 5 records, 2 shards", "warning: slow", "", "converting: soon"):
            self.assertIsNone(progress.of_line(other))

    def test_bars(self) -> None:
        def shown(*, tqdm: bool) -> str:
            with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.ExitStack() as stack:
                if not tqdm:
                    stack.enter_context(unittest.mock.patch.dict(sys.modules, {"tqdm.auto": None, "tqdm": None}))
                watch = stack.enter_context(progress.Watch(True))
                for done in (0, 50 << 20, 100 << 20):
                    watch(shardify.Progress("converting", done, 100 << 20, records=done, shards=2))
                watch(shardify.Progress("running tasks", 3, 4, "tasks"))
            return said.getvalue()

        plain = shown(tqdm=False)
        self.assertIn("\rconverting: 50 %, 50 MiB, 52,428,800 records, 2 shards", plain)
        self.assertIn("\rrunning tasks: 75 %, 3 of 4 tasks", plain)
        self.assertTrue(plain.endswith("\n"))
        if importlib.util.find_spec("tqdm") is None:
            print("NOT RUN: tqdm: it is not installed")
        else:
            bar = shown(tqdm=True)
            self.assertIn("converting: 100%", bar)
            self.assertIn("104,857,600 records, 2 shards", bar)
            self.assertIn("running tasks:  75%", bar)


class Plans(Folder):
    def test_tasks_run_on_executors(self) -> None:
        shardify.convert(self.raw, out=self.folder / "plain", id="id", task_size="10KiB")
        expected = [(shard.blake3, shard.records) for shard in shardify.open(self.folder / "plain").shards]
        for number, executor in enumerate((concurrent.futures.ThreadPoolExecutor, concurrent.futures.ProcessPoolExecutor)):
            out = self.folder / f"planned{number}"
            planned = shardify.plan(self.raw, out=out, id="id", task_size="10KiB")
            assert planned.plan is not None
            self.assertGreater(planned.tasks, 2)
            with executor(2) as workers:
                self.assertEqual(shardify.run(planned.plan, workers, planned.tasks).version, 1)
            self.assertEqual([(shard.blake3, shard.records) for shard in shardify.open(out).shards], expected)

    def test_compactions_and_adoptions_are_planned(self) -> None:
        for file in sorted(self.raw.iterdir()):
            shardify.convert(file, out=self.out, id="id")
            shardify.convert(file, out=self.folder / "plain", id="id")
        theirs = self.folder / "theirs"
        theirs.mkdir()
        for number, path in enumerate(shardify.open(self.out).paths()):
            (theirs / f"{number}.parquet").write_bytes(Path(path).read_bytes())
        with concurrent.futures.ThreadPoolExecutor(2) as workers:
            merged = shardify.runners.compact(workers, self.out)
            assert merged is not None
            self.assertEqual((merged.version, merged.shards_added, merged.shards_removed), (6, 1, 5))
            self.assertIsNone(shardify.runners.compact(workers, self.out))
            adopted = shardify.runners.adopt(workers, theirs, id="id", task_size="1KiB")
            assert adopted is not None
            self.assertEqual((adopted.version, adopted.records_out, adopted.shards_added), (1, 5 * ROWS, 5))
        shardify.compact(self.folder / "plain")
        expected = [shard.blake3 for shard in shardify.open(self.folder / "plain").shards]
        self.assertEqual([shard.blake3 for shard in shardify.open(self.out).shards], expected)
        self.assertTrue(shardify.verify(theirs, read_data=True))
        nothing = shardify.plan_adopt(theirs, id="id")
        self.assertEqual((nothing.plan, nothing.operation, nothing.sources_unchanged), (None, "adopt", 5))
        planned = shardify.plan_compact(theirs, task_size="1KiB")
        self.assertEqual((planned.operation, planned.sources, planned.shards), ("compact", 5, 1))
        with self.assertRaises(TypeError):
            shardify.plan_compact(theirs, sort_by="id")

    def test_plans_with_wider_types_are_run_too(self) -> None:
        rows = "".join(f"{row},{row}\n" for row in range(60_000))
        for file in range(3):
            (self.raw / f"{file}.csv").write_text("id,value\n" + rows + ("1,late\n" if file == 1 else ""))
        planned = shardify.plan(*(self.raw / f"{file}.csv" for file in range(3)), out=self.out, task_size="600KiB")
        assert planned.plan is not None
        with concurrent.futures.ThreadPoolExecutor(2) as workers:
            self.assertEqual(shardify.run(planned.plan, workers, planned.tasks).version, 1)
        self.assertEqual(shardify.open(self.out).records, 180_001)

    def test_a_plan_that_another_driver_has_committed_is_done(self) -> None:
        planned = shardify.plan(self.raw, out=self.out, task_size="10KiB")
        assert planned.plan is not None
        with concurrent.futures.ThreadPoolExecutor(2) as workers:
            reports = [shardify.run(planned.plan, workers, planned.tasks) for _ in range(2)]
            self.assertEqual([report.already_committed for report in reports], [False, True])
            self.assertEqual([report.version for report in reports], [1, 1])

    def test_a_wrong_option_is_told_as_such(self) -> None:
        planned = shardify.plan(self.raw, out=self.out, task_size="10KiB")
        assert planned.plan is not None
        with concurrent.futures.ThreadPoolExecutor(2) as workers, self.assertRaises(shardify.UsageError):
            shardify.run(planned.plan, workers, planned.tasks, jobs="none")

    def test_a_failure_that_stays_is_raised(self) -> None:
        planned = shardify.plan(self.raw, out=self.out, task_size="10KiB")
        assert planned.plan is not None
        (self.raw / "3.csv").unlink()
        with concurrent.futures.ThreadPoolExecutor(2) as workers, self.assertRaises(shardify.InputError):
            shardify.run(planned.plan, workers, planned.tasks)


class Readers(Folder):
    def test_a_snapshot_stays_as_it_is(self) -> None:
        first = self.convert()
        (self.raw / "more.csv").write_text("id,who,value\nmore,PAT-1,1\n")
        shardify.convert(self.raw, out=self.out)
        self.assertEqual((first.records, shardify.open(self.out).records), (5 * ROWS, 5 * ROWS + 1))
        self.assertEqual(shardify.open(self.out, at=1), first)
        self.assertEqual(shardify.open(self.out, at="v1"), first)
        with self.assertRaisesRegex(shardify.UsageError, "found one that is not"):
            first.split("train")

    def test_names_that_do_not_exist_are_errors_that_say_what_does(self) -> None:
        divided = self.convert(split="train=0.8,val=0.2")
        self.assertEqual(divided.split("train").records + divided.split("val").records, 5 * ROWS)
        with self.assertRaisesRegex(shardify.UsageError, r"\(train, val\), found `trian`") as wrong:
            divided.split("trian")
        self.assertEqual(wrong.exception.hints, ["did you mean `train`?"])
        with self.assertRaisesRegex(shardify.UsageError, r"\(split=train, split=val\), found `split=dev`"):
            divided.part(split="dev")
        with self.assertRaisesRegex(shardify.UsageError, r"\(split=\), found `site=`"):
            divided.part(site="A")
        with self.assertRaisesRegex(shardify.UsageError, "v9"):
            shardify.open(self.out, at=9)
        with self.assertRaises(shardify.UsageError):
            shardify.open(self.folder / "none")

    @needs("pyarrow")
    def test_columns_of_any_shard_are_there(self) -> None:
        self.convert()
        (self.raw / "more.csv").write_text("id,who,value,extra\nmore,PAT-1,1.5,x\n")
        shardify.convert(self.raw, out=self.out, on_schema="union")
        both = shardify.open(self.out)
        table = both.pyarrow().to_table()
        self.assertEqual((table.column_names[-1], table["extra"].null_count), ("extra", 5 * ROWS))
        self.assertEqual(table["value"].to_pylist()[-1], 1.5)

    @needs("pyarrow")
    def test_pyarrow(self) -> None:
        self.assertEqual(self.convert().pyarrow().count_rows(), 5 * ROWS)

    @needs("polars")
    def test_polars(self) -> None:
        self.assertEqual(self.convert().polars().collect().height, 5 * ROWS)

    @needs("duckdb")
    def test_duckdb(self) -> None:
        self.assertEqual(self.convert().duckdb().aggregate("count(*)").fetchall(), [(5 * ROWS,)])

    @needs("webdataset")
    def test_webdataset(self) -> None:
        dataset = self.convert(to="tar")
        self.assertEqual(sum(1 for _ in dataset.webdataset()), 5 * ROWS)
        with self.assertRaises(TypeError):
            dataset.pyarrow()

    @needs("tensorflow")
    def test_tf(self) -> None:
        self.assertEqual(sum(1 for _ in self.convert(to="tfrecord").tf()), 5 * ROWS)

    @needs("datasets")
    def test_huggingface(self) -> None:
        self.assertEqual(len(self.convert().huggingface()), 5 * ROWS)

    @needs("ray")
    def test_ray(self) -> None:
        self.assertEqual(self.convert().ray().count(), 5 * ROWS)


class Processes(Folder):
    """What becomes of the program when its caller is interrupted or dies."""

    def setUp(self) -> None:
        super().setUp()
        # A gigabyte of text that does not compress: the program is still busy whenever it is looked at.
        first = self.raw / "large.csv"
        first.write_text("id,text\n" + "".join(f"{row},{os.urandom(40).hex()}\n" for row in range(300_000)))
        for file in range(40):
            os.link(first, self.raw / f"large{file}.csv")

    def start(self) -> subprocess.Popen[bytes]:
        script = textwrap.dedent(f"""
            import signal, sys
            # A shell starts what it runs in the background with Ctrl-C ignored.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.path.insert(0, {str(Path(shardify.__file__).parents[1])!r})
            import shardify
            try:
                shardify.convert({str(self.raw)!r}, out={str(self.out)!r}, codec="zstd:19", jobs=1)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                sys.exit(7)
        """)
        process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        deadline = time.monotonic() + 30
        while not self.children() and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.3)
        return process

    def children(self) -> list[int]:
        """Processes of the program that write to this folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if b"convert" in words and any(word.endswith(str(self.out).encode()) for word in words):
                    found.append(int(entry.name))
        return found

    def gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.children() and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.children()

    @unittest.skipUnless(sys.platform.startswith("linux"), "needs /proc")
    def test_ctrl_c_ends_the_program_and_leaves_nothing(self) -> None:
        process = self.start()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        self.assertEqual((process.returncode, said), (7, b"interrupted\n"))
        self.assertTrue(self.gone_within(2))
        self.assertEqual([path for path in self.out.rglob("*.parquet")], [])

    @unittest.skipUnless(sys.platform.startswith("linux"), "needs /proc")
    def test_the_program_dies_with_its_parent(self) -> None:
        process = self.start()
        self.assertTrue(self.children())
        process.kill()
        process.communicate()
        self.assertTrue(self.gone_within(2), "the program has outlived its parent")

    def test_calls_from_many_threads(self) -> None:
        done: list[str] = []
        threads = [threading.Thread(target=lambda: done.append(shardify.version())) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(len(done), 8)


class Program(unittest.TestCase):
    def test_the_module_is_the_program(self) -> None:
        environment = {**os.environ, "PYTHONPATH": str(Path(shardify.__file__).parents[1])}
        ran = subprocess.run([sys.executable, "-m", "shardify", "--version"], capture_output=True, env=environment, text=True)
        self.assertEqual((ran.returncode, ran.stdout), (0, f"shardify {shardify.version()}\n"))

    def test_a_missing_program_is_said(self) -> None:
        environment = {"SHARDIFY_BINARY": "/nonexistent", "PATH": ""}
        with unittest.mock.patch.dict(os.environ, environment), self.assertRaises(FileNotFoundError):
            _program.find()


if __name__ == "__main__":
    unittest.main()
