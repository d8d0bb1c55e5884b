"""Exceptions: one for each exit code of the program that means a failure, and two of the package.

Each carries what the program said: `message`, and where it applies `source` (file or URL), `line`, `byte`, `column`, and
`hints`, which say what to do, in Python's words. Code 3 (records were rejected) is no exception while some records are left: reports have
the count. Neither is code 1: the answer is no. Notes of the program are `ShardifyWarning`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ._hints import in_python

if TYPE_CHECKING:
    from .reports import Written


class ShardifyWarning(UserWarning):
    """A note of the program about inputs, options or the environment."""


class ShardifyError(Exception):
    """A command failed."""

    code: ClassVar[int] = 0

    def __init__(self, message: str, **place: Any) -> None:
        super().__init__(message)
        self.message = message
        self.source: str | None = place.get("source")
        self.line: int | None = place.get("line")
        self.byte: int | None = place.get("byte")
        self.column: str | None = place.get("column")
        self.hints: list[str] = list(place.get("hints") or ())
        self.causes: list[str] = list(place.get("causes") or ())

    def __str__(self) -> str:
        places = (("at", self.source), ("line", self.line), ("byte", self.byte), ("column", self.column))
        at = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        lines = [self.message, *([f"  {at}"] if at else []), *(f"  hint: {hint}" for hint in self.hints)]
        return "\n".join(lines)


class UsageError(ShardifyError):
    """The command cannot do what was asked: an option is wrong, or something does not exist."""

    code = 2


class ConflictError(ShardifyError):
    """Another run was faster. Nothing was committed; try again."""

    code = 4


class StorageError(ShardifyError):
    """The disk or the object store failed, or an object is damaged."""

    code = 5


class InputError(ShardifyError):
    """A source is bad. `source`, `line` and `column` say where."""

    code = 6


class AllRejectedError(InputError):
    """There were records, and every one was rejected. `report` has the counts, and the version if one was made."""

    code = 3

    def __init__(self, message: str, report: Written | None = None, **place: Any) -> None:
        super().__init__(message, **place)
        self.report = report


class ChangedError(ShardifyError):
    """A source or an option differs from the dataset. The hints say how to accept it."""

    code = 8


class BugError(ShardifyError):
    """A bug of shardify. Please report it."""

    code = 70


class MissingPackageError(ShardifyError, ImportError):
    """A reader needs a package that is not installed. The hint is the command that installs it."""


BY_CODE: dict[int, type[ShardifyError]] = {
    kind.code: kind for kind in (UsageError, ConflictError, StorageError, InputError, ChangedError, BugError)
}


def of_code(code: int, said: dict[str, Any] | None, errors: str) -> ShardifyError:
    """The exception for an exit code, given the error object of the program, or else what it wrote to standard error."""
    kind = BY_CODE.get(code, ShardifyError)
    if said is None:
        return kind(errors.strip() or f"shardify ended with exit code {code}")
    place = {name: said.get(name) for name in ("source", "line", "byte", "column")}
    advice = {name: [in_python(one) for one in said.get(name) or ()] for name in ("hints", "causes")}
    return kind(in_python(said.get("message", "")), **place, **advice)
