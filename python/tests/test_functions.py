"""The functions of the package as Python has them: signatures, types, warnings, hints, reports and errors about what is missing."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import os
import pickle
import pydoc
import subprocess
import sys
import tempfile
import typing
import unittest
import unittest.mock
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shardify
from shardify import _hints, commands, reports
from test_package import ROWS, Folder, needs

ROOT = Path(__file__).resolve().parents[2]
DEFINITIONS = ROOT / "docs" / "reference" / "commands.json"


class Signatures(unittest.TestCase):
    def test_modules_are_those_of_the_definitions(self) -> None:
        script = ROOT / "scripts" / "python_functions.py"
        ran = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
        self.assertEqual((ran.returncode, ran.stdout, ran.stderr), (0, "", ""))

    def test_every_option_of_convert_is_a_documented_keyword(self) -> None:
        definitions = {command["name"]: command for command in json.loads(DEFINITIONS.read_text())["commands"]}
        parameters = inspect.signature(shardify.convert).parameters
        for option in definitions["convert"]["options"]:
            if option["positional"]:
                continue
            name = {"from": "from_"}.get(option["name"], option["name"].replace("-", "_"))
            self.assertIs(parameters[name].kind, inspect.Parameter.KEYWORD_ONLY)
            self.assertIn(f"\n        {name}: ", shardify.convert.__doc__)
        hints = typing.get_type_hints(shardify.convert)
        self.assertEqual(hints["on_error"], typing.Optional[typing.Literal["fail", "skip", "quarantine"]])  # noqa: UP045

    def test_types_can_be_resolved(self) -> None:
        for name in shardify.__all__:
            function = getattr(commands, name, None)
            if inspect.isfunction(function):
                hints = typing.get_type_hints(function)
                self.assertIn("return", hints, name)

    def test_help_begins_with_the_functions(self) -> None:
        functions = [name for name in shardify.__all__ if inspect.isroutine(getattr(shardify, name))]
        first = pydoc.plain(pydoc.render_doc(shardify)).split("PACKAGE CONTENTS")[0]
        self.assertEqual([name for name in functions if name not in first and name != "version"], [])
        self.assertNotIn("class ", first)
        self.assertIn("target_shard: Shard size on disk", pydoc.plain(pydoc.render_doc(shardify.convert)))

    def test_the_version_is_there_without_being_asked_for_at_import(self) -> None:
        self.assertRegex(shardify.__version__, r"^\d+\.\d+")
        with self.assertRaisesRegex(AttributeError, "no attribute 'convrt'"):
            shardify.convrt  # noqa: B018

    def test_a_misspelt_option_is_a_type_error(self) -> None:
        with self.assertRaisesRegex(TypeError, "tagret_shard"):
            shardify.convert("raw", tagret_shard="1MiB")

    @needs("mypy")
    def test_mypy_finds_misspelt_options_and_values(self) -> None:
        wrong = [
            'shardify.convert("raw", tagret_shard="1MiB")',
            'shardify.convert("raw", on_error="ignore")',
            'shardify.convert("raw", read={"encodng": "latin1"})',
            'shardify.compact("shards", jobs="all")',
            'shardify.runners.convert(executor, "raw", out="shards", tagret_shard="1MiB")',
            "shardify.convrt",
        ]
        right = [
            'shardify.convert("raw", Path("more"), out=Path("shards"), type={"a": "text"}, index=["wids", "dali"], codec="zstd:3")',
            'shardify.convert("raw", read={"header": False, "patch": {"lat": 64}}, split={"train": 0.9, "val": 0.1}, target_shard=1 << 20)',
            'shardify.runners.convert(executor, "raw", out="shards", task_size="1GiB", id=["a", "b"])',
            'shardify.open("shards", at=12).pandas(["a"])',
        ]
        head = ["from concurrent.futures import Executor", "from pathlib import Path", "import shardify", "executor: Executor"]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "use.py"
            file.write_text("\n".join([*head, *right, *wrong, ""]))
            command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={folder}/cache", str(file)]
            environment = {**os.environ, "MYPYPATH": str(ROOT / "python")}
            ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
        lines = {int(line.split(":")[1]) for line in ran.stdout.splitlines() if line.startswith("use.py:") or line.startswith(str(file))}
        first = len(head) + len(right) + 1
        self.assertEqual(lines, set(range(first, first + len(wrong))), ran.stdout + ran.stderr)
        self.assertIn('Unexpected keyword argument "tagret_shard"', ran.stdout)


class Hints(unittest.TestCase):
    def test_options_become_keywords(self) -> None:
        for said, expected in (
            (
                "skip bad records with --on-error skip, or keep them with --on-error quarantine",
                'skip bad records with `on_error="skip"`, or keep them with `on_error="quarantine"`',
            ),
            ("name its encoding, as `--read encoding=windows-1252`", 'name its encoding, as `read={"encoding": "windows-1252"}`'),
            ("use --read header=no", 'use `read={"header": False}`'),
            ("--read patch=lat=64,lon=32 fits", '`read={"patch": {"lat": 64, "lon": 32}}` fits'),
            ("choose variables with --read var, or another --read record-dim", None),
            ("--type 'c=int16'", '`type={"c": "int16"}`'),
            ("name the format with --from csv, or rename the file", 'name the format with `from_="csv"`, or rename the file'),
            ("leave --index out, or name another dataset with --out", "leave `index` out, or name another dataset with `out`"),
            ("--exclude leaves it out", "`exclude` leaves it out"),
            ("leave --even out, or say --shards 8 at most", "leave `even=True` out, or say `shards=8` at most"),
            ("raise --memory, or: --memory 2MiB.", 'raise `memory`, or: `memory="2MiB"`.'),
            ("leave such files out with --exclude '*.json'", 'leave such files out with `exclude="*.json"`'),
            ("use --dedup content or --dedup id", 'use `dedup="content"` or `dedup="id"`'),
            ("invalid value 'zip' for '--to <FORMAT>'", "invalid value 'zip' for `to`"),
            ("run `shardify verify --read-data`", "run `shardify.verify(dataset, read_data=True)`"),
            ("`shardify manifest --history` lists the versions", "`shardify.history` lists the versions"),
            ("`manifest --find` shows the records", "`shardify.find` shows the records"),
            ("make one with `shardify convert SOURCE --out DATASET`", 'make one with `shardify.convert("SOURCE", out="DATASET")`'),
            ("`convert --split train=0.9,val=0.1` divides", '`shardify.convert(split={"train": 0.9, "val": 0.1})` divides'),
            ("as a whole: shardify convert 'a b' --dedup id", 'as a whole: `shardify.convert("a b", dedup="id")`'),
            # What is not simple, or none of ours, stays.
            ("mkdir x && tar xf x.tar -C x && shardify convert x --out y", "mkdir x && tar xf x.tar -C x && shardify convert x --out y"),
            ("`shardify manifest --prove` writes one", "`shardify manifest --prove` writes one"),
            ("`tar --concatenate` joins them", "`tar --concatenate` joins them"),
            ("shardify was built without this, see --other", "shardify was built without this, see --other"),
            ("found `a-b --c`, a lone ` and 3 --- 4", "found `a-b --c`, a lone ` and 3 --- 4"),
        ):
            if expected is None:
                expected = 'choose variables with `read={"var": ...}`, or another `read={"record_dim": ...}`'
            self.assertEqual(_hints.in_python(said), expected)

    def test_commands_become_calls(self) -> None:
        self.assertEqual(_hints.call_of("shardify convert raw --id a,b --dry-run"), 'shardify.convert("raw", id=["a", "b"], dry_run=True)')
        self.assertEqual(_hints.call_of("shardify plan compact shards"), 'shardify.plan_compact("shards")')
        self.assertEqual(_hints.call_of("shardify manifest shards --tag gold --at v3"), 'shardify.tag("shards", "gold", at="v3")')
        for other in ("shardify bench a b", "convert 'a", "shardify convert a --json", "shardify convert a | cat", ""):
            self.assertIsNone(_hints.call_of(other))


class Warnings(Folder):
    def test_notes_are_warnings_at_the_line_of_the_caller(self) -> None:
        (self.raw / "0.csv").write_text("# a note\nid,who,value\n1,2,3\n")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            shardify.convert(self.raw / "0.csv", out=self.out, read={"tidy": True})
        (note,) = caught
        self.assertIs(note.category, shardify.ShardifyWarning)
        self.assertTrue(issubclass(shardify.ShardifyWarning, UserWarning))
        self.assertIn("1 comment line", str(note.message))
        self.assertEqual(note.filename, __file__)

    def test_notes_come_with_progress_and_with_errors(self) -> None:
        program = self.folder / "program"
        lines = [
            {"type": "note", "message": "see --memory"},
            {"type": "progress", "phase": "converting", "bytes": 1, "bytes_total": 2, "records": 3, "shards": 4},
            {"type": "warning", "message": "slow"},
            {"type": "error", "code": 6, "message": "bad", "hints": ["raise --memory"]},
        ]
        said = "".join(json.dumps({"type": line["type"], "schema": 1, **line}, separators=(",", ":")) + "\n" for line in lines)
        program.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{said}END\nexit 6\n")
        program.chmod(0o755)
        seen: list[shardify.Progress] = []
        with unittest.mock.patch.dict(os.environ, {"SHARDIFY_BINARY": str(program)}), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with self.assertRaisesRegex(shardify.InputError, "hint: raise `memory`"):
                shardify.convert(self.raw, progress=seen.append)
        self.assertEqual([str(one.message) for one in caught], ["see `memory`", "slow"])
        self.assertEqual([now.records for now in seen], [3])

    def test_hints_of_errors_are_in_python(self) -> None:
        (self.raw / "bad.csv").write_text("id,who,value\n1,2,3,4\n")
        with self.assertRaises(shardify.InputError) as bad:
            shardify.convert(self.raw, out=self.out)
        self.assertIn('`on_error="skip"`', bad.exception.hints[0])
        self.assertNotIn("--", str(bad.exception))
        with self.assertRaisesRegex(shardify.UsageError, "for `to`"):
            shardify.convert(self.raw, out=self.out, to="zip")


class Rejected(Folder):
    def test_all_records_rejected_is_an_exception_with_the_report(self) -> None:
        (self.raw / "bad.csv").write_text("id,who,value\n1,2,3,4\n1,2,3,4,5\n")
        with self.assertRaisesRegex(shardify.AllRejectedError, "found 2, all rejected") as rejected:
            shardify.convert(self.raw / "bad.csv", out=self.out, on_error="skip")
        self.assertIsInstance(rejected.exception, shardify.InputError)
        self.assertIn('`on_error="quarantine"`', rejected.exception.hints[0])
        again = pickle.loads(pickle.dumps(rejected.exception))
        assert again.report is not None
        self.assertEqual((again.report.records_in, again.report.records_rejected, again.report.version), (2, 2, 1))
        with self.assertRaises(shardify.AllRejectedError) as kept:
            shardify.convert(self.raw / "bad.csv", out=self.folder / "kept", on_error="quarantine")
        self.assertIn("_shardify/rejects/", kept.exception.hints[0])

    def test_no_records_and_some_rejected_are_none(self) -> None:
        (self.raw / "none.csv").write_text("id,who,value\n")
        self.assertEqual(shardify.convert(self.raw / "none.csv", out=self.out).records_in, 0)
        (self.raw / "bad.csv").write_text("id,who,value\n1,2,3,4\n")
        self.assertEqual(shardify.convert(self.raw, out=self.folder / "some", on_error="skip").records_rejected, 1)

    def test_plans_are_told_too(self) -> None:
        (self.raw / "bad.csv").write_text("id,who,value\n1,2,3,4\n")
        planned = shardify.plan(self.raw / "bad.csv", out=self.out, on_error="skip")
        assert planned.plan is not None
        shardify.run_task(planned.plan, 0)
        with self.assertRaises(shardify.AllRejectedError):
            shardify.commit(planned.plan)


class Functions(Folder):
    def test_inspect_gives_the_next_call(self) -> None:
        found = shardify.inspect(self.raw)
        self.assertEqual((found.files, found.formats[0].format, [one.column for one in found.columns]), (5, "csv", ["id", "who", "value"]))
        assert found.call is not None and found.command is not None
        self.assertTrue(found.command.startswith("shardify convert "))
        self.assertEqual(found.call, f'shardify.convert("{self.raw}", id="id")')
        with contextlib.chdir(self.raw):
            self.assertEqual(shardify.inspect().files, 5)
        self.assertIsNotNone(shardify.inspect(self.convert().location).version)

    def test_head_gives_dictionaries(self) -> None:
        first = [{"id": f"0-{row}", "who": f"PAT-{row}", "value": row} for row in range(2)]
        self.assertEqual(shardify.head(self.raw / "0.csv", 2), first)
        self.convert()
        self.assertEqual(len(shardify.head(self.out)), 10)
        self.assertEqual(len(shardify.head(self.out, n=3, at=1)), 3)
        shardify.convert(self.raw, out=self.folder / "files", from_="files")
        (sample,) = shardify.head(self.folder / "files", 1)
        self.assertEqual((sample["key"], sample["parts"][0]["name"]), ("0", "0.csv"))

    def test_history_tags_revert_remove_and_vacuum(self) -> None:
        self.convert()
        tagged = shardify.tag(self.out, "first", at=1)
        self.assertEqual((tagged.tag, tagged.tagged, tagged.removed), ("first", 1, False))
        removed = shardify.remove(self.out, source=[str(self.raw / "0.csv"), str(self.raw / "1.csv")])
        self.assertEqual((removed.records, len(removed.sources), len(shardify.open(self.out))), (2 * ROWS, 2, 3 * ROWS))
        reverted = shardify.revert(self.out, "first")
        self.assertEqual((reverted.to, reverted.records_after, len(shardify.open(self.out))), (1, 5 * ROWS, 5 * ROWS))
        versions = shardify.history(self.out)
        self.assertEqual([one.version for one in versions], list(range(1, len(versions) + 1)))
        self.assertEqual((versions[0].operation, versions[0].tags, versions[0].records), ("convert", ["first"], 5 * ROWS))
        self.assertEqual(len(shardify.open(self.out, at="first")), 5 * ROWS)
        self.assertTrue(shardify.untag(self.out, "first").removed)
        self.assertTrue(shardify.vacuum(self.out, retain="0s", force=True, dry_run=True).dry_run)
        done = shardify.vacuum(self.out, retain="0s", force=True)
        self.assertGreater(done.objects_deleted, 0)
        with self.assertRaises(shardify.UsageError):
            shardify.vacuum(self.out, retain="0s")

    def test_no_ids_are_an_error_and_not_all_records(self) -> None:
        self.convert()
        with self.assertRaisesRegex(shardify.UsageError, "empty list"):
            shardify.reshard(self.out, self.folder / "none", ids=[])
        for call in (lambda: shardify.erase(self.out), lambda: shardify.erase(self.out, ids=[])):
            with self.assertRaisesRegex(shardify.UsageError, "expected ids to erase"):
                call()

    def test_ids_to_erase_are_a_list_or_a_file(self) -> None:
        self.convert()
        self.assertEqual(shardify.erase(self.out, ids=["0-1", "0-2"]).records_erased, 2)
        (self.folder / "ids.txt").write_text("0-3\n0-4\n")
        self.assertEqual(shardify.erase(self.out, ids=self.folder / "ids.txt").records_erased, 2)
        with self.assertRaisesRegex(shardify.UsageError, "found both"):
            shardify.erase(self.out, "0-5", ids=self.folder / "ids.txt")
        self.assertEqual(len(shardify.open(self.out)), 5 * ROWS - 4)

    def test_settings_and_lists_reach_the_program(self) -> None:
        (self.raw / "0.csv").write_text("1;PAT-1;2\n2;PAT-2;3\n")
        shares = {"train": 0.5, "val": 0.5, "seed": 7}
        report = shardify.convert(
            self.raw / "0.csv", out=self.out, read={"delimiter": ";", "header": False}, split=shares, index=["delta"], dedup=["column_1"]
        )
        self.assertEqual((report.records_out, report.raw["indexes"]), (2, ["delta"]))
        self.assertEqual(sum(len(shardify.open(self.out).split(name)) for name in ("train", "val")), 2)


class Objects(Folder):
    def test_a_dataset_is_short_in_print(self) -> None:
        dataset = self.convert()
        self.assertEqual(repr(dataset), f"<shardify.Dataset '{self.out}' v1: 2,500 records, 1 shard of parquet>")
        self.assertEqual((len(dataset), dataset.records), (5 * ROWS, 5 * ROWS))
        self.assertIn("<th style='text-align:left'>column value</th><td style='text-align:left'>int64</td>", dataset._repr_html_())
        self.assertLess(len(dataset._repr_html_()), 2000)
        shardify.erase(self.out, "0-1")
        self.assertEqual(len(shardify.open(self.out)), 5 * ROWS - 1)

    def test_a_dataset_without_records_is_still_one(self) -> None:
        (self.raw / "none.csv").write_text("id,who,value\n")
        shardify.convert(self.raw / "none.csv", out=self.out)
        dataset = shardify.open(self.out)
        self.assertEqual((len(dataset), bool(dataset)), (0, True))

    def test_a_schema_needs_no_package(self) -> None:
        self.assertEqual(dict(self.convert().schema), {"id": "text", "who": "text", "value": "int64"})
        theirs = self.folder / "theirs"
        theirs.mkdir()
        (theirs / "0.parquet").write_bytes(Path(shardify.open(self.out).paths()[0]).read_bytes())
        shardify.adopt(theirs)
        self.assertEqual(dict(shardify.open(theirs).schema), {"id": "text", "who": "text", "value": "int64"})
        shardify.convert(self.raw, out=self.folder / "files", from_="files")
        self.assertEqual(dict(shardify.open(self.folder / "files").schema), {"__key__": "text", "csv": "binary"})

    @needs("pandas", "pyarrow")
    def test_pandas(self) -> None:
        dataset = self.convert()
        frame = dataset.pandas()
        self.assertEqual((len(frame), list(frame.columns)), (5 * ROWS, list(dataset.schema)))
        self.assertEqual(int(frame["value"].sum()), 5 * sum(range(ROWS)))
        self.assertEqual(list(dataset.pandas(["value"]).columns), ["value"])

    def test_a_missing_package_is_named_with_its_extra(self) -> None:
        dataset = self.convert()
        extras = {"pandas": "pandas", "polars": "polars", "duckdb": "duckdb", "huggingface": "datasets", "tf": "tensorflow", "ray": "ray"}
        for reader, module in {**extras, "pyarrow": "pyarrow", "webdataset": "webdataset"}.items():
            # `None` makes an import fail as if nothing was installed.
            gone = dict.fromkeys((module, f"{module}.data", f"{module}.dataset"))
            with unittest.mock.patch.dict(sys.modules, gone), self.assertRaises(shardify.MissingPackageError) as missing:
                getattr(dataset, reader)()
            self.assertIsInstance(missing.exception, ImportError)
            extra = "tensorflow" if reader == "tf" else reader
            self.assertEqual(missing.exception.hints, [f"pip install 'shardify[{extra}]'"])

    def test_a_missing_cluster_is_named_too(self) -> None:
        with unittest.mock.patch.dict(sys.modules, {"ray": None}), self.assertRaises(shardify.MissingPackageError) as missing:
            importlib.import_module("shardify.ray")
        self.assertEqual(missing.exception.hints, ["pip install 'shardify[ray]'"])

    def test_every_extra_is_one_of_the_package(self) -> None:
        project = (ROOT / "pyproject.toml").read_text()
        for extra in ("pyarrow", "pandas", "polars", "duckdb", "torch", "webdataset", "tensorflow", "huggingface", "ray", "spark", "dask"):
            self.assertIn(f"\n{extra} = [", project)

    def test_reports_are_short_in_print(self) -> None:
        report = shardify.convert(self.raw, out=self.out, id="id", subject="who")
        self.assertRegex(repr(report), r"^ConvertReport\(dataset='[^']+', version=1, records_in=2500, .*codec='zstd:1'\)$")
        self.assertNotIn("raw", repr(report))
        whole = shardify.report(self.out, ids=True)
        self.assertIn("columns=<3 items>", repr(whole))
        html = whole._repr_html_()
        self.assertTrue(html.startswith("<table>"))
        many = reports.VerifyReport(raw={}, problems=tuple(f"<{one}>: damaged" for one in range(100_000)))
        for text in (repr(report), repr(whole), html, repr(many), many._repr_html_(), repr(shardify.find(self.out, "0-1"))):
            self.assertLess(len(text), 2000)
        escaped = reports.Hit(raw={}, id="<script>")._repr_html_()
        self.assertIn("&lt;script&gt;", escaped)


if __name__ == "__main__":
    unittest.main()
