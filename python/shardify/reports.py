"""What commands report, as the program prints it with `--json`.

Fields that a newer program adds are in `raw`, which has all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

R = TypeVar("R", bound="Report")


@dataclasses.dataclass(frozen=True)
class Report:
    """A report; `raw` is the object that the program printed."""

    raw: Mapping[str, Any] = dataclasses.field(repr=False, compare=False)

    @classmethod
    def of(cls: type[R], raw: Mapping[str, Any]) -> R:
        names = [field.name for field in dataclasses.fields(cls) if field.name != "raw"]
        return cls(raw=raw, **{name: raw[name] for name in names if name in raw})


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
class ConvertReport(Written):
    """Report of `convert` and of the commit of its plan."""

    sources: int = 0
    sources_unchanged: int = 0
    records_padded: int = 0
    records_repaired: int = 0
    rejects: str | None = None
    format: str = ""
    codec: str = ""


@dataclasses.dataclass(frozen=True)
class CompactReport(Written):
    """Report of `compact`."""

    shards_before: int = 0
    shards_after: int = 0


@dataclasses.dataclass(frozen=True)
class AdoptReport(Written):
    """Report of `adopt`."""


@dataclasses.dataclass(frozen=True)
class EraseReport(Report):
    """Report of `erase`."""

    dataset: str = ""
    version: int | None = None
    records_erased: int = 0
    shards_rewritten: int = 0
    objects_deleted: int = 0
    receipt: str | None = None
    missing: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class VerifyReport(Report):
    """Report of `verify`; it is false if something is damaged."""

    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return not self.problems


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
class PlanReport(Report):
    """Report of `plan`: `plan` is its path or URL, or `None` if there is nothing to do."""

    dataset: str = ""
    plan: str | None = None
    tasks: int = 0
    tasks_done: int = 0
    sources: int = 0
    bytes: int = 0


@dataclasses.dataclass(frozen=True)
class TaskReport(Report):
    """Report of one task."""

    task: int = 0
    already_done: bool = False
    records_in: int = 0
    records_out: int = 0
    records_rejected: int = 0
    shards: int = 0
    bytes_out: int = 0
    mismatch: str | None = None


@dataclasses.dataclass(frozen=True)
class CommitReport(Report):
    """Report of `commit`. Without a version, `next_plan` has the wider types that a value needs."""

    dataset: str = ""
    version: int | None = None
    next_plan: str | None = None
    already_committed: bool = False


@dataclasses.dataclass(frozen=True)
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
