"""What commands report, as the program prints it with `--json`.

Fields that a newer program adds are in `raw`, which has all of them. A report prints as one line of the fields that are not at their
default, and notebooks show a table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from . import _display
from ._hints import call_of, in_python

R = TypeVar("R", bound="Report")


@dataclasses.dataclass(frozen=True, repr=False)
class Report:
    """A report; `raw` is the object that the program printed."""

    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @classmethod
    def of(cls: type[R], raw: Mapping[str, Any]) -> R:
        names = [field.name for field in dataclasses.fields(cls) if field.name != "raw"]
        return cls(raw=raw, **{name: raw[name] for name in names if name in raw})

    def _shown(self) -> dict[str, Any]:
        """The fields that say something: those that are not at their default."""
        fields = [field for field in dataclasses.fields(self) if field.repr]
        return {field.name: getattr(self, field.name) for field in fields if getattr(self, field.name) != field.default}

    def __repr__(self) -> str:
        return _display.line(type(self).__name__, self._shown())

    def _repr_html_(self) -> str:
        return _display.table(type(self).__name__, self._shown())


@dataclasses.dataclass(frozen=True, repr=False)
class Written(Report):
    """A command that may have made a version. records_in = records_out + records_rejected + records_deduplicated + records_filtered."""

    dataset: str = ""
    version: int | None = None
    records_in: int = 0
    records_out: int = 0
    records_rejected: int = 0
    records_deduplicated: int = 0
    records_filtered: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    shards_added: int = 0
    shards_removed: int = 0
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, repr=False)
class ConvertReport(Written):
    """Report of `convert` and of the commit of its plan."""

    sources: int = 0
    sources_unchanged: int = 0
    records_padded: int = 0
    records_repaired: int = 0
    rejects: str | None = None
    format: str = ""
    codec: str = ""


@dataclasses.dataclass(frozen=True, repr=False)
class CompactReport(Written):
    """Report of `compact`."""

    shards_before: int = 0
    shards_after: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class AdoptReport(Written):
    """Report of `adopt`."""


@dataclasses.dataclass(frozen=True, repr=False)
class RemoveReport(Written):
    """Report of `remove`. `sources` are the inputs whose `records` were removed; `missing` are names that no input has."""

    dry_run: bool = False
    records: int = 0
    records_left: int = 0
    sources: tuple[Mapping[str, Any], ...] = ()
    missing: tuple[str, ...] = ()

    @classmethod
    def of_objects(cls, objects: Sequence[Mapping[str, Any]]) -> RemoveReport:
        """From the objects that the program printed."""
        sources = tuple(one for one in objects if one.get("type") == "source")
        return dataclasses.replace(cls.of(objects[-1]), sources=sources, missing=tuple(objects[-1].get("missing", ())))


@dataclasses.dataclass(frozen=True, repr=False)
class RevertReport(Written):
    """Report of `revert`: the version that was restored is `to`."""

    to: int = 0
    dry_run: bool = False
    records_before: int = 0
    records_after: int = 0
    records_restored: int = 0
    records_kept_out: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class VacuumReport(Report):
    """Report of `vacuum`. Versions are readable from `readable_from` on."""

    dataset: str = ""
    version: int | None = None
    dry_run: bool = False
    objects_deleted: int = 0
    bytes_deleted: int = 0
    objects_young: int = 0
    objects_in_use: int = 0
    versions_expired: int = 0
    versions_tagged: int = 0
    readable_from: int | None = None
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, repr=False)
class TagReport(Report):
    """Report of `tag` and `untag`: the tag names version `tagged`."""

    dataset: str = ""
    tag: str = ""
    tagged: int = 0
    changed: bool = False
    removed: bool = False
    version: int | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class InspectedColumn(Report):
    """A column in an `InspectReport`: its share of nulls, and whether all values are different."""

    column: str = ""
    data_type: str = ""
    nulls: float = 0.0
    unique: bool = False


@dataclasses.dataclass(frozen=True, repr=False)
class InspectedFormat(Report):
    """The files of one format in an `InspectReport`."""

    format: str = ""
    files: int = 0
    bytes: int = 0
    records: int | None = None
    exact: bool = False
    damaged: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class InspectReport(Report):
    """Report of `inspect`. `command` is what to do next, and `call` is the same in Python; `None` if there is nothing to do."""

    source: str = ""
    version: int | None = None
    files: int = 0
    bytes: int = 0
    records: int | None = None
    exact: bool = False
    id: str | None = None
    subject: str | None = None
    advice: str = ""
    problems: tuple[str, ...] = ()
    command: str | None = None
    columns: tuple[InspectedColumn, ...] = ()
    formats: tuple[InspectedFormat, ...] = ()

    @property
    def call(self) -> str | None:
        """The next call, or the command for a shell where no single call does it."""
        return self.command and (call_of(self.command) or self.command)

    @classmethod
    def of_objects(cls, objects: Sequence[Mapping[str, Any]]) -> InspectReport:
        """From the objects that the program printed."""
        return dataclasses.replace(
            cls.of(objects[-1]),
            problems=tuple(in_python(one) for one in objects[-1].get("problems", ())),
            columns=_all(InspectedColumn, objects, "column"),
            formats=_all(InspectedFormat, objects, "format"),
        )


@dataclasses.dataclass(frozen=True, repr=False)
class PullReport(Report):
    """Report of `pull`: `version` is that of the copy, `None` with `data_only`."""

    upstream: str = ""
    upstream_version: int = 0
    copy: str = ""
    version: int | None = None
    unchanged: bool = False
    shards: int = 0
    records: int = 0
    files: int = 0
    bytes: int = 0
    files_fetched: int = 0
    bytes_fetched: int = 0
    files_deleted: int = 0
    erasures: int = 0
    pruned: bool = False
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True, repr=False)
class ReshardedShard(Report):
    """A new shard; its size is estimated with `dry_run`."""

    path: str = ""
    records: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class ReshardReport(Written):
    """Report of `reshard`. Records that were omitted are `records_filtered`."""

    parent: str = ""
    parent_version: int = 0
    parent_root: str | None = None
    dry_run: bool = False
    shards_before: int = 0
    shards_after: int = 0
    bytes_copied: int = 0
    bytes_spliced: int = 0
    bytes_reencoded: int = 0
    ids: int | None = None
    ids_missing: tuple[str, ...] = ()
    shards: tuple[ReshardedShard, ...] = ()

    @classmethod
    def of_objects(cls, objects: Sequence[Mapping[str, Any]]) -> ReshardReport:
        """From the objects that the program printed."""
        missing = tuple(objects[-1].get("ids_missing", ()))
        return dataclasses.replace(cls.of(objects[-1]), ids_missing=missing, shards=_all(ReshardedShard, objects, "shard"))


@dataclasses.dataclass(frozen=True, repr=False)
class VersionReport(Written):
    """A version in a `DatasetReport`: what its run did, and the live `shards`, `records` and `bytes`."""

    committed_at: str = ""
    operation: str = ""
    tags: Sequence[str] = ()
    readable: bool = True
    shards: int = 0
    records: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class ColumnReport(Report):
    """A column in a `DatasetReport`. `nulls` is there if it is exact; `range_exact` says whether `min` and `max` are; other numbers are of
    the sample."""

    column: str = ""
    data_type: str = ""
    kind: str = ""
    nulls: int | None = None
    null_share: float = 0.0
    min: str | None = None
    max: str | None = None
    range_exact: bool = False
    sampled_values: int = 0
    sampled_distinct: int | None = None
    top: Sequence[Mapping[str, Any]] = ()
    bins: Sequence[Mapping[str, Any]] = ()
    stored_bytes: int | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class RejectReport(Report):
    """Records in a `DatasetReport` that were rejected for one reason."""

    reason: str = ""
    records: int = 0
    examples: Sequence[Mapping[str, Any]] = ()


@dataclasses.dataclass(frozen=True, repr=False)
class DatasetReport(Report):
    """Report of `report`. `objects` has everything that the page shows: sizes, parts, folders of sources, pictures and so on."""

    source: str = ""
    version: int | None = None
    format: str = ""
    codec: str | None = None
    files: int = 0
    bytes: int = 0
    records: int | None = None
    records_exact: bool = False
    sampled_records: int = 0
    sample_is_all: bool = False
    damaged: int = 0
    is_private: bool = False
    columns: tuple[ColumnReport, ...] = ()
    versions: tuple[VersionReport, ...] = ()
    rejects: tuple[RejectReport, ...] = ()
    drift: Mapping[str, Any] | None = None
    objects: tuple[Mapping[str, Any], ...] = dataclasses.field(default=(), repr=False)

    @classmethod
    def of_objects(cls, objects: Sequence[Mapping[str, Any]]) -> DatasetReport:
        """From the objects that the program printed."""
        return dataclasses.replace(
            cls.of(objects[-1]),
            columns=_all(ColumnReport, objects, "column"),
            versions=_all(VersionReport, objects, "version"),
            rejects=_all(RejectReport, objects, "reject"),
            drift=next((one for one in objects if one.get("type") == "drift"), None),
            objects=tuple(objects[:-1]),
        )


def _all(kind: type[R], objects: Sequence[Mapping[str, Any]], name: str) -> tuple[R, ...]:
    return tuple(kind.of(one) for one in objects if one.get("type") == name)


@dataclasses.dataclass(frozen=True, repr=False)
class EraseReport(Report):
    """Report of `erase`."""

    dataset: str = ""
    version: int | None = None
    records_erased: int = 0
    left_out: int = 0
    shards_rewritten: int = 0
    objects_deleted: int = 0
    receipt: str | None = None
    missing: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, repr=False)
class VerifyReport(Report):
    """Report of `verify`; it is false if something is damaged."""

    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems


@dataclasses.dataclass(frozen=True, repr=False)
class CheckReport(Report):
    """Report of `check`; it is false if a rule fails. `results` are the rules with `status`, `expected` and `found`."""

    dataset: str = ""
    version: int | None = None
    status: str = ""
    passed: int = 0
    warned: int = 0
    skipped: int = 0
    records: int = 0
    results: tuple[Mapping[str, Any], ...] = ()

    @property
    def failed(self) -> tuple[Mapping[str, Any], ...]:
        """The rules that fail."""
        return tuple(rule for rule in self.results if rule["status"] == "fail")

    def __bool__(self) -> bool:
        return self.status != "fail"


@dataclasses.dataclass(frozen=True, repr=False)
class PlanReport(Report):
    """Report of `plan`, `plan_compact` and `plan_adopt`: `plan` is its path or URL, or `None` if there is nothing to do. `sources` are
    inputs, shards to be merged, or files to be adopted; `shards` and `records` are estimates."""

    dataset: str = ""
    plan: str | None = None
    operation: str = ""
    tasks: int = 0
    tasks_done: int = 0
    sources: int = 0
    bytes: int = 0
    shards: int = 0
    records: int = 0
    sources_unchanged: int = 0


@dataclasses.dataclass(frozen=True, repr=False)
class TaskReport(Report):
    """Report of one task."""

    task: int = 0
    already_done: bool = False
    records_in: int = 0
    records_out: int = 0
    records_rejected: int = 0
    records_erased: int = 0
    shards: int = 0
    bytes_out: int = 0
    mismatch: str | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class CommitReport(Written):
    """Report of `commit`. Without a version, `next_plan` has the wider types that a value needs. If it was `already_committed`, numbers
    are 0."""

    next_plan: str | None = None
    already_committed: bool = False


@dataclasses.dataclass(frozen=True, repr=False)
class TrainingRun(Report):
    """A training run, as `loader.record(...)` has recorded it. `checkpoints` have a `step` and a `name`, oldest first."""

    run: str = ""
    run_id: str = dataclasses.field(default="", repr=False)
    version: int = 0
    split: str | None = None
    records: int = 0
    global_batch_size: int = 0
    steps: int = 0
    steps_per_epoch: int = 0
    epochs: int = 0
    attempts: int = 0
    checkpoints: tuple[Mapping[str, Any], ...] = ()
    state: str = ""
    role: str = "train"
    replay_of: str | None = None
    began: str = ""
    newest: str = ""

    @classmethod
    def of_object(cls, one: Mapping[str, Any]) -> TrainingRun:
        """From an object that the program printed."""
        return dataclasses.replace(cls.of(one), checkpoints=tuple(one.get("checkpoints", ())))


@dataclasses.dataclass(frozen=True, repr=False)
class SeenInRun(Report):
    """What a training run did with the records of some ids; false if none of its steps had one.

    seen: the steps, each with its `step`, `epoch`, `slot`, `record` and whether it `is_certain`
    dropped: the epochs in which a record was among those that fill no step
    clean_checkpoint: the newest checkpoint that saw none of them, with its `step` and `name`
    """

    run: str = ""
    version: int = 0
    records: int = 0
    records_seen: int = 0
    epochs: int = 0
    steps: int = 0
    first_step: int | None = None
    last_step: int | None = None
    is_certain: bool = False
    clean_checkpoint: Mapping[str, Any] | None = None
    steps_to_repeat: int = 0
    state: str = ""
    seen: tuple[Mapping[str, Any], ...] = dataclasses.field(default=(), repr=False)
    dropped: tuple[Mapping[str, Any], ...] = dataclasses.field(default=(), repr=False)

    def __bool__(self) -> bool:
        return self.records_seen > 0

    @classmethod
    def of_object(cls, one: Mapping[str, Any]) -> SeenInRun:
        """From an object that the program printed."""
        return dataclasses.replace(cls.of(one), seen=tuple(one.get("seen", ())), dropped=tuple(one.get("dropped", ())))


@dataclasses.dataclass(frozen=True, repr=False)
class Hit(Report):
    """A record that was found."""

    id: str = ""
    kind: str = ""
    record_id: str | None = None
    subject_id: str | None = None
    shard: str | None = None
    ordinal: int | None = None
    offset: int | None = None
    length: int | None = None
    origin: Mapping[str, Any] | None = None
    versions: Mapping[str, Any] | None = None
    state: str = ""
