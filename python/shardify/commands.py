"""The commands of shardify as functions.

Options are keyword arguments named as on the command line, with `_` for `-`: `target_shard="128MiB"`, `on_error="quarantine"`,
`dry_run=True`. Lists may be given where an option takes several values, and a dictionary for `type`. See `shardify COMMAND --help`.

`progress=True` shows a bar, and `progress=FUNCTION` calls it about once a second; see `shardify.progress`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Union

from . import _program
from .progress import Wanted, Watch
from .reports import (
    AdoptReport,
    CheckReport,
    CommitReport,
    CompactReport,
    ConvertReport,
    DatasetReport,
    EraseReport,
    Hit,
    PlanReport,
    PullReport,
    Report,
    ReshardReport,
    TaskReport,
    VerifyReport,
)

Path = Union[str, "os.PathLike[str]"]
Option = Union[None, bool, int, str, "os.PathLike[str]", Iterable[str], Mapping[str, str]]

# Options whose values are separated by commas; those of the others are repeated.
_JOINED = frozenset({"id", "index", "patch", "stride", "var"})
# Ids of a lookup that are given on the command line; more go through a file.
_FEW_IDS = 100


def flags(options: Mapping[str, Option]) -> list[str]:
    """Options as words of a command line."""
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (str, int, os.PathLike)):
            words += [flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
        else:
            given = [f"{key}={one}" for key, one in value.items()] if isinstance(value, Mapping) else list(value)
            if name in _JOINED and given:
                words += [flag, ",".join(given)]
            else:
                words += [word for one in given for word in (flag, one)]
    return words


def _run(arguments: Sequence[str], progress: Wanted) -> list[dict[str, Any]]:
    with Watch(progress) as watch:
        return _program.run(arguments, progress=watch if watch else None)


def _summary(arguments: Sequence[str], progress: Wanted = None) -> dict[str, Any]:
    return _run(arguments, progress)[-1]


def _paths(paths: Iterable[Path]) -> list[str]:
    return [os.fspath(path) for path in paths]


def convert(*sources: Path, out: Path | None = None, progress: Wanted = None, **options: Option) -> ConvertReport:
    """Converts files, tables, archives and arrays into shards of a dataset. A killed conversion continues when repeated."""
    words = flags({"out": out, **options})
    return ConvertReport.of(_summary(["convert", *words, "--", *_paths(sources)], progress))


def adopt(source: Path, progress: Wanted = None, **options: Option) -> AdoptReport:
    """Registers existing Parquet, tar or TFRecord shards as a dataset without rewriting them."""
    return AdoptReport.of(_summary(["adopt", *flags(options), "--", os.fspath(source)], progress))


def compact(dataset: Path, progress: Wanted = None, **options: Option) -> CompactReport:
    """Merges small shards."""
    return CompactReport.of(_summary(["compact", *flags(options), "--", os.fspath(dataset)], progress))


def find(dataset: Path, *ids: str, **options: Option) -> list[Hit]:
    """Finds the records of record ids and subject ids. `PAT-000*` finds all ids that begin so, unless more than a hundred are given."""
    if not ids:
        return []
    words = ["manifest", os.fspath(dataset), *flags(options)]
    if len(ids) <= _FEW_IDS and not any(one.startswith("-") for one in ids):
        return _hits([*words, "--find", *ids])
    with _file_of(ids) as file:
        return _hits([*words, "--find-file", file])


@contextlib.contextmanager
def _file_of(ids: Iterable[str]) -> Iterator[str]:
    """A file with ids, one per line."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in ids)
        file.flush()
        yield file.name


def _hits(words: Sequence[str]) -> list[Hit]:
    return [Hit.of(one) for one in _program.run(words) if one.get("type") == "hit"]


def diff(dataset: Path, before: str, after: str, **options: Option) -> list[Report]:
    """What changed between two versions: shards, sources and records that were added, removed, changed or moved."""
    objects = _program.run(["manifest", os.fspath(dataset), "--diff", before, after, *flags(options)])
    return [Report.of(one) for one in objects]


def verify(dataset: Path, progress: Wanted = None, **options: Option) -> VerifyReport:
    """Checks a dataset against its log. The report is false if something is damaged, and names it."""
    objects = _run(["verify", os.fspath(dataset), *flags(options)], progress)
    problems = tuple(f"{one['object']}: {one['problem']}" for one in objects if one.get("type") == "problem")
    return VerifyReport(raw=objects[-1], problems=problems)


def check(dataset: Path, rules: Path, progress: Wanted = None, **options: Option) -> CheckReport:
    """Checks the data of a version by a file of rules. The report is false if a rule fails, and has all rules with what was found."""
    objects = _run(["check", os.fspath(dataset), *flags({"rules": rules, **options})], progress)
    return CheckReport.of({**objects[-1], "results": tuple(one for one in objects if one.get("type") == "rule")})


def erase(
    dataset: Path,
    *ids: str,
    subject: str | Iterable[str] | None = None,
    record: str | Iterable[str] | None = None,
    all_versions: bool = False,
    progress: Wanted = None,
    **options: Option,
) -> EraseReport:
    """Erases records, or all records of a subject, and blocks their re-import."""
    words = flags({"subject": subject, "record": record, "all_versions": all_versions, **options})
    summary = _summary(["erase", *words, "--", os.fspath(dataset), *ids], progress)
    return EraseReport.of({**summary, "missing": tuple(summary.get("missing", ()))})


def pull(dataset: Path, folder: Path, progress: Wanted = None, **options: Option) -> PullReport:
    """Copies a version of a dataset to a local folder. A later pull fetches what is new."""
    return PullReport.of(_summary(["pull", *flags(options), "--", os.fspath(dataset), os.fspath(folder)], progress))


def reshard(
    dataset: Path, out: Path, *, ids: Path | Iterable[str] | None = None, progress: Wanted = None, **options: Option
) -> ReshardReport:
    """Cuts a version into other shards, in a new dataset, with all of the records or some. `ids` are ids, or a file with one per line."""
    words = ["reshard", *flags({"out": out, **options})]
    with contextlib.ExitStack() as stack:
        if ids is not None:
            words += ["--ids", os.fspath(ids) if isinstance(ids, (str, os.PathLike)) else stack.enter_context(_file_of(ids))]
        return ReshardReport.of_objects(_run([*words, "--", os.fspath(dataset)], progress))


def report(source: Path, progress: Wanted = None, **options: Option) -> DatasetReport:
    """Describes a dataset, or files that are not converted yet. `html="report.html"` writes it as a page, too."""
    return DatasetReport.of_objects(_run(["report", *flags(options), "--", os.fspath(source)], progress))


def plan(*sources: Path, out: Path | None = None, progress: Wanted = None, **options: Option) -> PlanReport:
    """Plans a conversion as tasks, which `run_task` runs anywhere and in any order, and `commit` makes visible."""
    words = flags({"out": out, **options})
    return PlanReport.of(_summary(["plan", "convert", *words, "--", *_paths(sources)], progress))


def plan_compact(dataset: Path, progress: Wanted = None, **options: Option) -> PlanReport:
    """Plans a compaction as tasks. Options are those of `compact` but `sort_by` and `zorder`."""
    return PlanReport.of(_summary(["plan", "compact", *flags(options), "--", os.fspath(dataset)], progress))


def plan_adopt(source: Path, progress: Wanted = None, **options: Option) -> PlanReport:
    """Plans the adoption of existing shards as tasks."""
    return PlanReport.of(_summary(["plan", "adopt", *flags(options), "--", os.fspath(source)], progress))


def run_task(plan: str, task: int, progress: Wanted = None, **options: Option) -> TaskReport:
    """Runs one task of a plan; a task that was run before ends at once."""
    objects = _run(["run-task", plan, "--task", str(task), *flags(options)], progress)
    return TaskReport.of(next(one for one in objects if one.get("type") == "task"))


def commit(plan: str, **options: Option) -> CommitReport:
    """Commits a plan whose tasks have all been run."""
    return CommitReport.of(_summary(["commit", plan, *flags(options)]))


def version() -> str:
    """The version of the program."""
    said = subprocess.run([_program.find(), "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[-1]
