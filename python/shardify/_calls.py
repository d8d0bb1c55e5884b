"""What the functions of `commands.py` do: their options become words, the program runs, and what it prints becomes a report."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from . import _program
from ._options import Path, When, is_list, text, words
from ._sources import Source, is_table, sort_sources, stream_options
from .errors import AllRejectedError, UsageError
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
    InspectReport,
    PlanReport,
    PullReport,
    RemoveReport,
    Report,
    ReshardReport,
    RevertReport,
    SeenInRun,
    TagReport,
    TaskReport,
    TrainingRun,
    VacuumReport,
    VerifyReport,
    VersionReport,
    Written,
)

W = TypeVar("W", bound=Written)


def _run(arguments: Sequence[str], progress: Wanted, given: _program.Given = None) -> list[dict[str, Any]]:
    with Watch(progress) as watch:
        return _program.run(arguments, progress=watch if watch else None, given=given)


def _objects(
    command: str, places: Iterable[Path], options: dict[str, Any], progress: Wanted = None, given: _program.Given = None
) -> list[dict[str, Any]]:
    """Runs a command with options and what follows them; returns the objects that it printed."""
    return _run([*command.split(), *words(options), "--", *(os.fspath(place) for place in places)], progress, given)


def _summary(command: str, places: Iterable[Path], options: dict[str, Any], progress: Wanted = None) -> dict[str, Any]:
    return _objects(command, places, options, progress)[-1]


def _some_are_left(report: W) -> W:
    """Raises an exception if there were records, and every one was rejected: a dataset of nothing is hardly what the caller wants."""
    if report.records_in == 0 or report.records_out > 0 or report.records_rejected < report.records_in:
        return report
    rejects = report.raw.get("rejects")
    place = f"{report.dataset.rstrip('/')}/{rejects}"
    hint = f"the records and the reasons are in {place}" if rejects else '`on_error="quarantine"` keeps the records and the reasons'
    raise AllRejectedError(f"expected records that can be read, found {report.records_in:,}, all rejected", report, hints=[hint])


def convert(sources: Sequence[Source], progress: Wanted, *, name: str | None, etag: str | None, **options: Any) -> ConvertReport:
    paths, tables = sort_sources(sources, name)
    if tables is None:
        if name is not None or etag is not None:
            raise UsageError(
                f"expected objects with `{'etag' if name is None else 'name'}`, found paths: files have the names of their paths"
            )
        return _some_are_left(ConvertReport.of(_summary("convert", paths, options, progress)))
    # What writes to the program's standard input needs POSIX.
    from ._streams import Stream

    options = stream_options(name, etag, options)
    return _some_are_left(ConvertReport.of(_objects("convert", ["-"], options, progress, Stream(tables))[-1]))


def adopt(source: Path, progress: Wanted, **options: Any) -> AdoptReport:
    return _some_are_left(AdoptReport.of(_summary("adopt", [source], options, progress)))


def compact(dataset: Path, progress: Wanted, **options: Any) -> CompactReport:
    return CompactReport.of(_summary("compact", [dataset], options, progress))


def reshard(dataset: Path, out: Path, progress: Wanted, *, ids: Path | Iterable[str] | None, **options: Any) -> ReshardReport:
    with _ids_option("ids", ids) as (named, given):
        return ReshardReport.of_objects(_objects("reshard", [dataset], {"out": out, **named, **options}, progress, given))


def erase(
    dataset: Path,
    others: Sequence[str],
    progress: Wanted,
    *,
    subject: str | Iterable[str] | None,
    record: str | Iterable[str] | None,
    source: str | Iterable[str] | None,
    ids: Path | Iterable[str] | None,
    **options: Any,
) -> EraseReport:
    of_kind = {"any": list(others), "subject": _texts(subject), "record": _texts(record), "source": _texts(source)}
    file = None if is_list(ids) else ids
    if file is None:
        of_kind["any"] += _texts(ids)
    elif others:
        raise UsageError("expected ids as arguments or as a file, found both")
    if file is None and not any(of_kind.values()):
        raise UsageError("expected ids to erase, found none")
    # Other users of the machine see command lines, so the ids of one kind go through standard input: there is no room for two.
    first = "any" if file is not None else next(kind for kind, found in of_kind.items() if found)
    visible = {kind: found for kind, found in of_kind.items() if kind != first}
    kind = {} if first == "any" else {"as": first}
    with _given(of_kind[first]) as (place, given):
        named = {"ids": file if place is None else place}
        summary = _objects("erase", [dataset], {**options, **visible, **kind, **named}, progress, given)[-1]
    return EraseReport.of({**summary, "missing": tuple(summary.get("missing", ()))})


def remove(dataset: Path, progress: Wanted, **options: Any) -> RemoveReport:
    return RemoveReport.of_objects(_objects("remove", [dataset], options, progress))


def revert(dataset: Path, to: When, progress: Wanted, **options: Any) -> RevertReport:
    return RevertReport.of(_summary("revert", [dataset], {"to": to, **options}, progress))


def vacuum(dataset: Path, progress: Wanted, **options: Any) -> VacuumReport:
    return VacuumReport.of(_summary("vacuum", [dataset], options, progress))


def pull(dataset: Path, folder: Path, progress: Wanted, **options: Any) -> PullReport:
    return PullReport.of(_summary("pull", [dataset, folder], options, progress))


def report(source: Path, progress: Wanted, **options: Any) -> DatasetReport:
    return DatasetReport.of_objects(_objects("report", [source], options, progress))


def inspect(source: Path, **options: Any) -> InspectReport:
    return InspectReport.of_objects(_objects("inspect", [source], options))


def head(source: Path, n: int, **options: Any) -> list[dict[str, Any]]:
    records = [one for one in _objects("head", [source], {"records": n, **options}) if one.get("type") == "record"]
    return [one["values"] if "values" in one else {"key": one.get("key"), "parts": one.get("parts")} for one in records]


def find(dataset: Path, ids: Sequence[str], **options: Any) -> list[Hit]:
    if not ids:
        return []
    # Other users of the machine see command lines, so only the beginnings of ids stand there.
    starts = [one for one in ids if one.endswith("*") and not one.endswith("\\*")]
    whole = [one[:-2] + "*" if one.endswith("\\*") else one for one in ids if one not in starts]
    with _given(whole) as (place, given):
        objects = _objects("manifest", [dataset], {"find": starts, "find_file": place, **options}, given=given)
    return [Hit.of(one) for one in objects if one.get("type") == "hit"]


def runs(dataset: Path, **options: Any) -> list[TrainingRun]:
    return [TrainingRun.of_object(one) for one in _objects("runs", [dataset], options) if one.get("type") == "run"]


def find_in_runs(dataset: Path, ids: Sequence[str], *, run: str | None, **options: Any) -> list[SeenInRun]:
    if not ids:
        raise UsageError("expected ids to find, found none")
    with _given(ids) as (place, given):
        objects = _objects("runs", [dataset] if run is None else [dataset, run], {"find_file": place, **options}, given=given)
    return [SeenInRun.of_object(one) for one in objects if one.get("type") == "run"]


def history(dataset: Path, **options: Any) -> list[VersionReport]:
    objects = _objects("manifest", [dataset], {"history": True, **options})
    return [VersionReport.of(one) for one in objects if one.get("type") == "version"]


def diff(dataset: Path, before: When, after: When, **options: Any) -> list[Report]:
    versions = [text("at", version) for version in (before, after)]
    for version in versions:
        if version.startswith("-"):
            raise UsageError(f"expected a version, found {version!r}")
    objects = _run(["manifest", *words(options), "--diff", *versions, "--", os.fspath(dataset)], None)
    return [Report.of(one) for one in objects]


def tag(dataset: Path, name: str, **options: Any) -> TagReport:
    return TagReport.of(_summary("manifest", [dataset], {"tag": name, **options}))


def untag(dataset: Path, name: str, **options: Any) -> TagReport:
    return TagReport.of(_summary("manifest", [dataset], {"untag": name, **options}))


def verify(dataset: Path, progress: Wanted, **options: Any) -> VerifyReport:
    objects = _objects("verify", [dataset], options, progress)
    problems = tuple(f"{one['object']}: {one['problem']}" for one in objects if one.get("type") == "problem")
    return VerifyReport(raw=objects[-1], problems=problems)


def check(dataset: Path, rules: Path, progress: Wanted, **options: Any) -> CheckReport:
    objects = _objects("check", [dataset], {"rules": rules, **options}, progress)
    return CheckReport.of({**objects[-1], "results": tuple(one for one in objects if one.get("type") == "rule")})


def plan(sources: Iterable[Path], progress: Wanted, **options: Any) -> PlanReport:
    sources = list(sources)
    if any(is_table(source) for source in sources):
        raise UsageError(
            "expected paths to plan, found an object: a stream can be read only once, and not by other processes",
            hints=["convert it in this process: shardify.convert", "or write it to files, and plan those"],
        )
    return PlanReport.of(_summary("plan convert", sources, options, progress))


def plan_compact(dataset: Path, progress: Wanted, **options: Any) -> PlanReport:
    return PlanReport.of(_summary("plan compact", [dataset], options, progress))


def plan_adopt(source: Path, progress: Wanted, **options: Any) -> PlanReport:
    return PlanReport.of(_summary("plan adopt", [source], options, progress))


def run_task(plan: Path, task: int, progress: Wanted, **options: Any) -> TaskReport:
    objects = _objects("run-task", [plan], {"task": task, **options}, progress)
    return TaskReport.of(next(one for one in objects if one.get("type") == "task"))


def commit(plan: Path, **options: Any) -> CommitReport:
    return _some_are_left(CommitReport.of(_summary("commit", [plan], options)))


def version() -> str:
    """The version of the program."""
    said = subprocess.run([_program.find(), "--version"], capture_output=True, text=True, check=True)
    return said.stdout.split()[-1]


def _texts(value: object) -> list[str]:
    """One value or several as texts."""
    if value is None:
        return []
    return [str(one) for one in value] if isinstance(value, Iterable) and is_list(value) else [str(value)]


@contextlib.contextmanager
def _ids_option(option: str, ids: Path | Iterable[str] | None) -> Iterator[tuple[dict[str, Any], str | None]]:
    """The option for ids that are a file or a list, and the standard input that a list is read from."""
    if ids is None or not is_list(ids):
        yield {option: ids}, None
    elif not (ids := _texts(ids)):
        # The program would take all records.
        raise UsageError("expected ids, found an empty list")
    else:
        with _given(ids) as (place, given):
            yield {option: place}, given


@contextlib.contextmanager
def _given(ids: Sequence[str]) -> Iterator[tuple[str | None, str | None]]:
    """Where the program reads ids from, and what is its standard input. Ids that are more than a line go through a file."""
    if not ids:
        yield None, None
    elif all(one.strip() == one and one.isprintable() and one for one in ids):
        yield "-", "".join(f"{one}\n" for one in ids)
    else:
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in ids)
            file.flush()
            yield file.name, None
