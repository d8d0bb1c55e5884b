"""shardify from Python: convert, compact, find and erase, and read exactly one version with the reader you have.

    import shardify

    shardify.convert("raw/", out="shards", subject="person_id")
    shardify.find("shards", "PAT-00023")
    table = shardify.open("shards").pyarrow().to_table()

Each call runs the program once; see `shardify.commands` for options, `shardify.errors` for exceptions.
"""

from .commands import (
    adopt,
    check,
    commit,
    compact,
    convert,
    diff,
    erase,
    find,
    plan,
    plan_adopt,
    plan_compact,
    pull,
    report,
    reshard,
    run_task,
    verify,
    version,
)
from .dataset import Dataset, Shard, open
from .errors import BugError, ChangedError, ConflictError, InputError, ShardifyError, StorageError, UsageError
from .progress import Progress
from .runners import run

__all__ = [
    "BugError",
    "ChangedError",
    "ConflictError",
    "Dataset",
    "InputError",
    "Progress",
    "Shard",
    "ShardifyError",
    "StorageError",
    "UsageError",
    "adopt",
    "check",
    "commit",
    "compact",
    "convert",
    "diff",
    "erase",
    "find",
    "open",
    "plan",
    "plan_adopt",
    "plan_compact",
    "pull",
    "report",
    "reshard",
    "run",
    "run_task",
    "verify",
    "version",
]
