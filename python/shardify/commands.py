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
from .errors import UsageError
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
Setting = bool | int | str | Iterable[str] | Mapping[str, int]
Option = Union[None, bool, int, str, "os.PathLike[str]", Iterable[str], Mapping[str, str], Mapping[str, Setting]]

# Options whose values are separated by commas; those of the others are repeated.
_JOINED = frozenset({"id", "index"})


def _setting(value: Setting) -> str:
    """The value of a setting in a dictionary, such as `read={"header": False, "patch": {"lat": 64, "lon": 64}}`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={one}" for key, one in value.items())
    return str(value) if isinstance(value, (str, int)) else ",".join(value)


def flags(options: Mapping[str, Option]) -> list[str]:
    """Options as words of a command line. A value is a part of its word, so that none is taken for an option."""
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, (str, int, os.PathLike)):
            words.append(f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}")
        else:
            given = [f"{key}={_setting(one)}" for key, one in value.items()] if isinstance(value, Mapping) else list(value)
            if name in _JOINED and given:
                words.append(f"{flag}={','.join(given)}")
            else:
                words += [f"{flag}={one}" for one in given]
    return words


def _run(arguments: Sequence[str], progress: Wanted, given: str | None = None) -> list[dict[str, Any]]:
    with Watch(progress) as watch:
        return _program.run(arguments, progress=watch if watch else None, given=given)


def _summary(arguments: Sequence[str], progress: Wanted = None, given: str | None = None) -> dict[str, Any]:
    return _run(arguments, progress, given)[-1]


def _texts(value: Option) -> list[str]:
    if value is None:
        return []
    return [str(value)] if isinstance(value, (str, int, os.PathLike)) else [str(one) for one in value]


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
    """Finds the records of record ids and subject ids. `PAT-000*` finds all ids that begin so; a literal star at the end is `\\*`."""
    if not ids:
        return []
    # Other users of the machine see command lines, so only the beginnings of ids stand there.
    starts = [one for one in ids if one.endswith("*") and not one.endswith("\\*")]
    whole = [one[:-2] + "*" if one.endswith("\\*") else one for one in ids if one not in starts]
    words = ["manifest", *flags({"find": starts, **options})]
    with _given("find_file", whole) as (option, given):
        objects = _program.run([*words, *option, "--", os.fspath(dataset)], given=given)
    return [Hit.of(one) for one in objects if one.get("type") == "hit"]


@contextlib.contextmanager
def _given(option: str, ids: Sequence[str]) -> Iterator[tuple[list[str], str | None]]:
    """The option for a list of ids, and the standard input that it is read from. Ids that are more than a line go through a file."""
    if not ids:
        yield [], None
    elif all(one.strip() == one and one.isprintable() and one for one in ids):
        yield flags({option: "-"}), "".join(f"{one}\n" for one in ids)
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in ids)
            file.flush()
            yield flags({option: file.name}), None


def diff(dataset: Path, before: str, after: str, **options: Option) -> list[Report]:
    """What changed between two versions: shards, sources and records that were added, removed, changed or moved."""
    for version in (before, after):
        if version.startswith("-"):
            raise UsageError(f"expected a version, found {version!r}")
    objects = _program.run(["manifest", *flags(options), "--diff", before, after, "--", os.fspath(dataset)])
    return [Report.of(one) for one in objects]


def verify(dataset: Path, progress: Wanted = None, **options: Option) -> VerifyReport:
    """Checks a dataset against its log. The report is false if something is damaged, and names it."""
    objects = _run(["verify", *flags(options), "--", os.fspath(dataset)], progress)
    problems = tuple(f"{one['object']}: {one['problem']}" for one in objects if one.get("type") == "problem")
    return VerifyReport(raw=objects[-1], problems=problems)


def check(dataset: Path, rules: Path, progress: Wanted = None, **options: Option) -> CheckReport:
    """Checks the data of a version by a file of rules. The report is false if a rule fails, and has all rules with what was found."""
    objects = _run(["check", *flags({"rules": rules, **options}), "--", os.fspath(dataset)], progress)
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
    """Erases records, or all records of a subject, and blocks their re-import.

    Ids are passed by standard input, as other users of the machine see command lines; of ids of several kinds in one call, only those of
    the first kind are.
    """
    of_kind = {"any": list(ids), "subject": _texts(subject), "record": _texts(record), "source": _texts(options.pop("source", None))}
    first = next((kind for kind, texts in of_kind.items() if texts), "any")
    others = {kind: texts for kind, texts in of_kind.items() if kind != first}
    words = flags({"all_versions": all_versions, **options, **others})
    if first != "any":
        words += flags({"as": first})
    with _given("ids", of_kind[first]) as (option, given):
        summary = _summary(["erase", *words, *option, "--", os.fspath(dataset)], progress, given)
    return EraseReport.of({**summary, "missing": tuple(summary.get("missing", ()))})


def pull(dataset: Path, folder: Path, progress: Wanted = None, **options: Option) -> PullReport:
    """Copies a version of a dataset to a local folder. A later pull fetches what is new."""
    return PullReport.of(_summary(["pull", *flags(options), "--", os.fspath(dataset), os.fspath(folder)], progress))


def reshard(
    dataset: Path, out: Path, *, ids: Path | Iterable[str] | None = None, progress: Wanted = None, **options: Option
) -> ReshardReport:
    """Cuts a version into other shards, in a new dataset, with all of the records or some. `ids` are ids, or a file with one per line."""
    words, given = ["reshard", *flags({"out": out, **options})], None
    with contextlib.ExitStack() as stack:
        if ids is not None:
            if isinstance(ids, (str, os.PathLike)):
                words += flags({"ids": ids})
            else:
                option, given = stack.enter_context(_given("ids", list(ids)))
                words += option
        return ReshardReport.of_objects(_run([*words, "--", os.fspath(dataset)], progress, given))


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
    objects = _run(["run-task", *flags({"task": task, **options}), "--", plan], progress)
    return TaskReport.of(next(one for one in objects if one.get("type") == "task"))


def commit(plan: str, **options: Option) -> CommitReport:
    """Commits a plan whose tasks have all been run."""
    return CommitReport.of(_summary(["commit", *flags(options), "--", plan]))


def version() -> str:
    """The version of the program."""
    said = subprocess.run([_program.find(), "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[-1]
