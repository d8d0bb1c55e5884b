"""shardify from Python: turns files, tables and arrays into training shards, and finds and erases records in them.

    import shardify

    shardify.convert("raw/", out="shards", subject="person_id")
    shardify.find("shards", "PAT-00023")
    frame = shardify.open("shards").pandas()

Make and read datasets:

    convert     files, tables, archives and arrays into shards
    open        a version of a dataset, for pandas, pyarrow, torch and others
    inspect     formats, sizes and columns of files, and what to do next
    head        the first records
    report      versions, columns, rejects and drift, also as a page

Train:

    Dataset     `shardify.open(...).loader(...)` has shuffled batches, in memory that NumPy, torch and Arrow share; `.take` and
                `.map_style` have records by position
    mix         batches of several datasets, by weights
    Order       the records that each step reads, and the turn of each record

Keep them in order:

    compact     merge small shards
    reshard     the same records, or some of them, in other shards
    adopt       make a dataset of existing shards
    pull        a checked local copy
    vacuum      delete files that no version needs
    remove      the records of an input or a run
    revert      restore an older version
    tag, untag  name a version, and delete the name

Look up and prove:

    find        the records of ids: shard, origin, versions
    runs        the training runs that were recorded
    find_in_runs  which of their steps saw somebody, and which checkpoint did not
    erase       a person, from every version
    history     the versions
    diff        what changed between two versions
    verify      a dataset against its log
    check       the data by rules

Large inputs and clusters:

    plan, plan_compact, plan_adopt, run_task, commit, run

Each call runs the program once. `help(shardify.convert)` has all options of a function, `shardify.errors` the exceptions, and
`shardify.ray` and `shardify.spark` do all tasks on a cluster. `shardify.grain.Source` is for Grain.
"""

from typing import TYPE_CHECKING

from ._calls import version
from ._order import Order
from .commands import (
    adopt,
    check,
    commit,
    compact,
    convert,
    diff,
    erase,
    find,
    find_in_runs,
    head,
    history,
    inspect,
    plan,
    plan_adopt,
    plan_compact,
    pull,
    remove,
    report,
    reshard,
    revert,
    run_task,
    runs,
    tag,
    untag,
    vacuum,
    verify,
)
from .dataset import Dataset, Shard, open
from .errors import (
    AllRejectedError,
    BugError,
    ChangedError,
    ConflictError,
    InputError,
    MissingPackageError,
    ShardifyError,
    ShardifyWarning,
    StorageError,
    UsageError,
)
from .mixture import mix
from .progress import Progress
from .runners import run

__all__ = [
    "AllRejectedError",
    "BugError",
    "ChangedError",
    "ConflictError",
    "Dataset",
    "InputError",
    "MissingPackageError",
    "Order",
    "Progress",
    "Shard",
    "ShardifyError",
    "ShardifyWarning",
    "StorageError",
    "UsageError",
    "__version__",
    "adopt",
    "check",
    "commit",
    "compact",
    "convert",
    "diff",
    "erase",
    "find",
    "find_in_runs",
    "head",
    "history",
    "inspect",
    "mix",
    "open",
    "plan",
    "plan_adopt",
    "plan_compact",
    "pull",
    "remove",
    "report",
    "reshard",
    "revert",
    "run",
    "run_task",
    "runs",
    "tag",
    "untag",
    "vacuum",
    "verify",
    "version",
]

__version__: str

if not TYPE_CHECKING:

    def __getattr__(name: str) -> str:
        """`__version__`: that of the installed package, else that of the program. It is looked up when it is asked for."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import metadata

        try:
            found = metadata.version("shardify")
        except metadata.PackageNotFoundError:
            found = version()
        globals()["__version__"] = found
        return found
