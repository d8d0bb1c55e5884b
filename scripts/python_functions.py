#!/usr/bin/env python3
"""Writes the functions of the Python package from the definitions of the command line, so that the two cannot differ.

    python3 scripts/python_functions.py            # writes python/shardify/commands.py and _definitions.py
    python3 scripts/python_functions.py --check    # exit code 1 if one of them is out of date

`docs/reference/commands.json` states every option of every command; a test of the program keeps it up to date. `commands.py` gets a
function for each command, with a typed keyword and a line of documentation for each option, and hands them to the function of the same
name in `_calls.py`, which is written by hand. `_definitions.py` gets what turning options into words, and hints into Python, has to know.

What a command line has and Python does not is listed below, with the reason. An option with a new kind of value ends the script, which
says where to describe it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFINITIONS = ROOT / "docs" / "reference" / "commands.json"
PACKAGE = ROOT / "python" / "shardify"
HEADER = "Written by scripts/python_functions.py from docs/reference/commands.json; do not edit."
WIDTH = 140

Definition = Mapping[str, Any]

# Python types of values, by the placeholder that the command line shows.
TYPES = {
    **dict.fromkeys(("FILE", "DIR", "DATASET", "FILE|URL", "FILE[:KEY]", "SOURCE", "SOURCES", "PLAN"), "Path"),
    **dict.fromkeys(("CODEC[:LEVEL]", "COLUMN", "CONDITION", "NAME", "PATTERN", "RULE", "TEXT", "WHAT"), "str"),
    **dict.fromkeys(("N", "SEED"), "int"),
    **dict.fromkeys(("PSI", "SHARE"), "float"),
    **dict.fromkeys(("WHEN", "VERSION"), "When"),
    "COLUMN=TYPE": "Mapping[str, str]",
    "DURATION": "Duration",
    "SHARES": "str | Mapping[str, float]",
    "SIZE": "int | str",
    **dict.fromkeys(("BY", "content|id|COLUMN[,COLUMN]|none"), "str | Iterable[str]"),
    "N[..M]": "int | str",
}
# Longest line of Python.
MAX_LINE = 140
# Types of the values of `read` and `write`; `yes` and `no` are a bool, and several words a `Literal`.
SETTINGS = {
    **dict.fromkeys(("CHAR", "CHAR|none", "FORMAT", "NAME", "NAME[.NAME]", "TEXT", "DIM"), "str"),
    "N": "int",
    "DIM=N[,DIM=N]": "Mapping[str, int]",
    **dict.fromkeys(("NAME[,NAME]", "TEXT[,TEXT]"), "str | Iterable[str]"),
    "SIZE": "int | str",
    "VERSION|INSTANT": "When",
}
# Placeholders of a version, for which Python has numbers: 12 is v12.
VERSIONS = ("WHEN", "VERSION", "VERSION|INSTANT")
# Lists and dictionaries of these are one value with commas, besides those of options with a delimiter.
JOINED = ("SHARES", "BY", "content|id|COLUMN[,COLUMN]|none")
# Types of words that several functions take, by option.
WORDS = {"from": "Format", "index": "Index", "accept": "Accept"}
# Lines of options whose help is in the words of a command line.
HELP = {
    "dry-run": "Report what would be done, without doing it",
    "ids": "Ids of the records, as a list or as a file with one per line",
    "read": "Settings of the input format, see `ReadSettings`",
    "write": "Settings of the shard format, see `WriteSettings`",
    "type": 'Types of columns, such as {"age": "int16"}',
    "SHARES": 'Shares of the splits, such as {"train": 0.8, "val": 0.1, "test": 0.1}',
}
# Python's own words.
KEYWORDS = ("as", "from")

GLOBALS = ("jobs", "memory")
# Options of all commands that no function has.
NOT_IN_PYTHON = {
    "json": "reports are always read as JSON",
    "quiet": "notes are warnings, which `warnings.filterwarnings` hides",
    "verbose": "reports are complete",
    "progress": "the parameter `progress` of Python also takes a function",
    "help": "help(shardify.convert)",
    "version": "shardify.__version__",
}
PRINTS_A_JOB = {"manifest": "it prints a script for a shell in place of a report"}
PROGRESS = "`True` for a bar, or a function that gets a `Progress` about once a second."


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of the package: the command that it runs, what stands before its options, and what its documentation says of it."""

    command: str
    about: str
    returns: str
    # Parameters before the options, as Python writes them, and what they are where the definitions do not say it in Python's words.
    before: tuple[str, ...] = ("dataset: Path",)
    arguments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Options that the function does not have, with the reason; or those that it has alone.
    omitted: Mapping[str, str] = dataclasses.field(default_factory=dict)
    only: tuple[str, ...] | None = None
    # Keywords that are no options, with their types and what they are.
    keywords: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)
    # Types of options that are not those of `TYPES`.
    types: Mapping[str, str] = dataclasses.field(default_factory=dict)
    progress: bool = False
    answer: str = ""
    raises: Mapping[str, str] = dataclasses.field(default_factory=dict)


SOURCES = "Files, folders, globs or URLs [default: the current folder]"
DATASET = "Dataset: a folder or URL"
ALL_REJECTED = {"AllRejectedError": "There were records, and every one was rejected; its `report` has the version that was made."}
A_CONFLICT = {"ConflictError": "Another run was faster; try again."}
IDS = "Path | Iterable[str]"

FUNCTIONS = {
    "convert": Function(
        "convert",
        "Converts files, tables, archives and arrays into shards of a dataset.\n\nInputs that the dataset already has are skipped, so the"
        " same call can be repeated as data arrives. All shards of a run become visible in one version, or none. A conversion that was"
        " killed continues when it is repeated.\n\nTables of other packages are objects with `__arrow_c_stream__`: those of pyarrow, Polars,"
        " DuckDB, pandas, pyiceberg, ADBC and others. They are read in batches, and an exception of theirs is raised as it is; nothing is"
        " committed then.",
        "ConvertReport",
        before=("*sources: Source",),
        arguments={"sources": SOURCES + "; or tables of other packages, and lists or generators of tables, of one schema"},
        keywords={
            "name": ("str", "What tables are called, in origins such as visits#1 and in later calls; required with tables"),
            "etag": ("str", "State of the tables, such as a snapshot; in the state that the dataset has under this name, they are not read"),
        },
        progress=True,
        answer="What was read, written and rejected.",
        raises={**ALL_REJECTED, "InputError": "A source is bad.", "ChangedError": "A source or an option differs from the dataset."},
    ),
    "adopt": Function(
        "adopt",
        "Registers existing Parquet, tar or TFRecord shards as a dataset without rewriting them.",
        "AdoptReport",
        before=("source: Path",),
        progress=True,
        answer="The shards and records that the dataset has now.",
        raises=ALL_REJECTED,
    ),
    "compact": Function(
        "compact", "Merges small shards, and divides large ones.", "CompactReport", progress=True, answer="The shards before and after."
    ),
    "reshard": Function(
        "reshard",
        "Cuts a version into other shards, in a new dataset, with all of the records or some.",
        "ReshardReport",
        before=("dataset: Path", "out: Path"),
        arguments={"dataset": DATASET},
        omitted={"out": "an argument"},
        types={"ids": IDS},
        progress=True,
        answer="The new shards, and the ids that no record has.",
    ),
    "erase": Function(
        "erase",
        "Erases records, or all records of a subject, and blocks their re-import.\n\nIds are passed by standard input, since other users"
        " of the machine see command lines. Of ids of several kinds in one call, only those of the first kind are.",
        "EraseReport",
        before=("dataset: Path", "*words: str"),
        arguments={"words": "Record ids, subject ids or origins; an id that matches more than one kind is refused"},
        omitted={"as": "`subject`, `record` and `source` say it"},
        types={"ids": IDS},
        progress=True,
        answer="What was erased, the receipt, and the ids that no record has.",
    ),
    "remove": Function(
        "remove",
        "Removes the records of an input or a run from the newest version; older versions keep them.",
        "RemoveReport",
        progress=True,
        answer="The records and shards that were removed.",
    ),
    "revert": Function(
        "revert",
        "Restores the content of an older version as a new version.",
        "RevertReport",
        before=("dataset: Path", "to: When"),
        omitted={"to": "an argument"},
        progress=True,
        answer="The version that was made, and the records before and after.",
    ),
    "vacuum": Function(
        "vacuum",
        "Deletes files that no retained version needs.",
        "VacuumReport",
        progress=True,
        answer="What was deleted.",
    ),
    "pull": Function(
        "pull",
        "Copies a version of a dataset to a local folder, checked. A later pull fetches what is new.",
        "PullReport",
        before=("dataset: Path", "folder: Path"),
        arguments={"folder": "Local folder: new, empty, or pulled from the same dataset"},
        progress=True,
        answer="The version of the copy, and what was fetched.",
    ),
    "report": Function(
        "report",
        'Describes a dataset, or files that are not converted yet. `html="report.html"` writes it as a page, too.',
        "DatasetReport",
        before=("source: Path",),
        progress=True,
        answer="Versions, columns, rejects and drift.",
    ),
    "inspect": Function(
        "inspect",
        "Shows formats, sizes and columns of files, and what to do next. A sample is read, and nothing is written.",
        "InspectReport",
        before=('source: Path = "."',),
        answer="Formats, columns and problems; `call` is the next call.",
    ),
    "head": Function(
        "head",
        "Reads the first records of a dataset, file or folder.",
        "list[dict[str, Any]]",
        before=("source: Path", "n: int = {records}"),
        arguments={"source": "Dataset, file, folder, glob or URL", "n": "Number of records"},
        omitted={"records": "an argument, `n`"},
        answer="A dictionary for each record: the values of a row by column, or the `key` and `parts` of a sample.",
    ),
    "find": Function(
        "manifest",
        "Finds the records of record ids and subject ids.\n\n`PAT-000*` finds all ids that begin so; a literal star at the end is `\\\\*`."
        " Ids are passed by standard input, since other users of the machine see command lines.",
        "list[Hit]",
        before=("dataset: Path", "*ids: str"),
        arguments={"ids": "Record ids, subject ids, or beginnings of them with a star"},
        only=("limit", "at", "id-key"),
        answer="A `Hit` for each record: its shard, its origin, and the versions that have it.",
    ),
    "runs": Function(
        "runs",
        "Lists the training runs of a dataset, which `loader.record(...)` has recorded.",
        "list[TrainingRun]",
        only=(),
        answer="What each run reads, how far it came, and its checkpoints.",
    ),
    "find_in_runs": Function(
        "runs",
        "Says which steps of training runs had the records of some ids, and which checkpoint is the newest that saw none of them.\n\nThe ids"
        " are taken together. They are passed by standard input, since other users of the machine see command lines.",
        "list[SeenInRun]",
        before=("dataset: Path", "*ids: str"),
        arguments={"ids": "Record ids, subject ids, or origins (file#row)"},
        keywords={"run": ("str", "Name of a run [default: all of them]")},
        only=("id-key",),
        answer="A report for each run, with every step; it is false if no step had one of them.",
    ),
    "history": Function(
        "manifest",
        "Lists the versions of a dataset, the newest last.",
        "list[VersionReport]",
        only=(),
        answer="What each run did, its time and tags, and the live shards and records after it.",
    ),
    "diff": Function(
        "manifest",
        "Compares two versions: shards, sources and records that were added, removed, changed or moved.",
        "list[Report]",
        before=("dataset: Path", "before: When", "after: When"),
        arguments={"before": "Older version", "after": "Newer version"},
        only=("id-key",),
        answer="A report for each difference; the last one has the sums.",
    ),
    "tag": Function(
        "manifest",
        "Gives a version a name. `vacuum` keeps tagged versions, and whatever takes a version takes its tag.",
        "TagReport",
        before=("dataset: Path", "name: str"),
        arguments={"name": "Begins with a letter and consists of letters, digits and . _ - + /"},
        only=("at",),
        answer="The tag and its version.",
    ),
    "untag": Function(
        "manifest",
        "Deletes a tag. `vacuum` may then delete the version.",
        "TagReport",
        before=("dataset: Path", "name: str"),
        arguments={"name": "Name of the tag"},
        only=(),
        answer="The tag and its version.",
    ),
    "verify": Function(
        "verify",
        "Checks a dataset against its log.",
        "VerifyReport",
        progress=True,
        answer="A report that is false if something is damaged, and names it.",
    ),
    "check": Function(
        "check",
        "Checks the data of a version by a file of rules.",
        "CheckReport",
        before=("dataset: Path", "rules: Path"),
        omitted={"rules": "an argument"},
        progress=True,
        answer="A report that is false if a rule fails, with all rules and what was found.",
    ),
    "plan": Function(
        "plan convert",
        "Plans a conversion as tasks, which `run_task` runs anywhere and in any order, and `commit` makes visible.",
        "PlanReport",
        before=("*sources: Path",),
        arguments={"sources": SOURCES},
        omitted={**PRINTS_A_JOB, "dry-run": "`plan convert` refuses it; `convert(dry_run=True)` does it"},
        progress=True,
        answer="The path of the plan, and its number of tasks.",
    ),
    "plan_compact": Function(
        "plan compact",
        "Plans a compaction as tasks.",
        "PlanReport",
        omitted={
            **PRINTS_A_JOB,
            **dict.fromkeys(("sort-by", "zorder"), "`plan compact` refuses it: a task has only some of the records"),
            "dry-run": "`plan compact` refuses it; `compact(dry_run=True)` does it",
        },
        progress=True,
        answer="The path of the plan, and its number of tasks.",
    ),
    "plan_adopt": Function(
        "plan adopt",
        "Plans the adoption of existing shards as tasks.",
        "PlanReport",
        before=("source: Path",),
        omitted=PRINTS_A_JOB,
        progress=True,
        answer="The path of the plan, and its number of tasks.",
    ),
    "run_task": Function(
        "run-task",
        "Runs one task of a plan; a task that was run before ends at once.",
        "TaskReport",
        before=("plan: Path", "task: int"),
        arguments={"task": "Number of the task, from 0"},
        omitted={"task": "an argument"},
        progress=True,
        answer="What the task read and wrote.",
    ),
    "commit": Function(
        "commit",
        "Commits a plan whose tasks have all been run.",
        "CommitReport",
        before=("plan: Path",),
        answer="The version; or the next plan, with wider types, if a value fitted no column.",
        raises={**ALL_REJECTED, "ConflictError": "A task is missing, or another run was faster."},
    ),
}
# Commands without a function.
NO_FUNCTION = {
    "bench": "`python -m shardify.bench` measures the loaders of Python",
    "block": "rarely needed; `erase` blocks what it erases",
    "unblock": "rarely needed",
    "plan": "each kind of plan has its function",
    "verify-proof": "for those who have a proof alone",
    "completions": "for shells",
    "man": "for shells",
}
# Options as dictionaries, for functions that pass them on: their name, the function, and what those have as parameters of their own.
BUNDLES = {
    "PlanOptions": ("plan", ("out", "jobs")),
    "PlanCompactOptions": ("plan_compact", ("jobs",)),
    "PlanAdoptOptions": ("plan_adopt", ("jobs",)),
}


def parameter(option: str) -> str:
    """The name of an option in Python."""
    name = option.replace("-", "_")
    return f"{name}_" if name in KEYWORDS else name


def literal(words: Iterable[str]) -> str:
    """The type of one of several words."""
    return f"Literal[{', '.join(json.dumps(word) for word in words)}]"


def named_literal(name: str, words: Iterable[str]) -> str:
    """A line that names the type of one of several words, or lines, if it is long."""
    line = f"{name} = {literal(words)}"
    return line if len(line) <= MAX_LINE else f"{name} = Literal[\n{''.join(f'    {json.dumps(word)},{chr(10)}' for word in words)}]"


def type_of(option: Definition, function: Function) -> str:
    """The Python type of an option's value."""
    name, value = option["name"], option["value"]
    if name in function.types:
        return function.types[name]
    if value is None:
        return "bool"
    if value == "KEY=VALUE":
        return f"{name.capitalize()}Settings"
    if option["choices"]:
        words = WORDS.get(name) or literal(option["choices"])
        return f"{words} | Iterable[{words}]" if option["repeats"] else words
    if value in TYPES:
        return TYPES[value]
    if option["repeats"]:
        return "str | Iterable[str]"
    raise SystemExit(f"expected the placeholder {value} of --{name} in TYPES of {pathlib.Path(__file__).name}, found none")


def options_of(function: Function, commands: Mapping[str, Definition], shared: Iterable[Definition]) -> list[Definition]:
    """The options that a function has as keywords, those of all commands last."""
    own = [option for option in commands[function.command]["options"] if not option["positional"]]
    known = {option["name"] for option in own}
    for name in {*function.omitted, *(function.only or ())} - known:
        raise SystemExit(f"expected an option --{name} of `{function.command}`, found none; correct FUNCTIONS of {__file__}")
    kept = [one for one in own if one["name"] not in function.omitted and (function.only is None or one["name"] in function.only)]
    return [*kept, *(option for option in shared if option["name"] in GLOBALS)]


def in_python(help: str) -> str:
    """A line of help in Python's words: `With --shards: ...` becomes `With `shards`: ...`."""
    help = help.replace("; may be repeated", "").replace("; - is stdin", "")
    help = re.sub(r"`([a-z-]+) --([a-z-]+)`", lambda match: f"`{match[1]}({parameter(match[2])}=...)`", help)
    return re.sub(r"--([a-z][a-z-]*)", lambda match: f"`{parameter(match[1])}`", help)


def documented(option: Definition) -> str:
    """The line of an option in the documentation of a function."""
    help = HELP.get(option["name"]) or HELP.get(option["value"]) or in_python(option["help"])
    default = f" [default: {', '.join(option['default'])}]" if option["default"] and "[default" not in help else ""
    return f"{parameter(option['name'])}: {help}{default}"


def filled(text: str, indent: int) -> str:
    """Text in lines of at most `WIDTH`; lines after the first one of a paragraph of `name: text` are indented further."""
    hang = "    " if re.match(r"\w+: ", text) else ""
    lead = " " * indent
    return textwrap.fill(text, WIDTH, initial_indent=lead, subsequent_indent=lead + hang, break_long_words=False, break_on_hyphens=False)


def name_of(parameter: str) -> str:
    """The name in a parameter as Python writes it, such as `*sources: Path`."""
    return parameter.lstrip("*").split(":")[0]


def docstring(function: Function, options: list[Definition], command: Definition) -> str:
    """The documentation of a function, in Google's style."""
    positional = {option["name"]: in_python(option["help"]) for option in command["options"]}
    first, *more = function.about.split("\n\n")
    lines = [f'    """{first}']
    for paragraph in more:
        lines += ["", filled(paragraph, 4)]
    lines += ["", "    Args:"]
    for one in map(name_of, function.before):
        about = function.arguments.get(one, positional.get(one, DATASET)).replace(" [default: ./shards]", "")
        lines.append(filled(f"{one}: {about}", 8))
    lines += [filled(f"{name}: {about}", 8) for name, (_, about) in function.keywords.items()]
    lines += [filled(documented(option), 8) for option in options]
    if function.progress:
        lines.append(filled(f"progress: {PROGRESS}", 8))
    lines += ["", "    Returns:", filled(function.answer, 8)]
    if function.raises:
        lines += ["", "    Raises:", *(filled(f"{kind}: {about}", 8) for kind, about in function.raises.items())]
    return "\n".join([*lines, '    """'])


def signature(name: str, function: Function, options: list[Definition], command: Definition) -> str:
    """The first lines of a function."""
    defaults = {option["name"]: (option["default"] or [""])[0] for option in command["options"]}
    before = [one.format(**defaults) for one in function.before]
    star = [] if any(one.startswith("*") for one in before) else ["*"]
    keywords = [f"{name}: {with_default(kind)}" for name, (kind, _) in function.keywords.items()]
    keywords += [f"{parameter(one['name'])}: {with_default(type_of(one, function))}" for one in options]
    progress = ["progress: Wanted = None"] if function.progress else []
    lines = [f"    {one}," for one in [*before, *star, *keywords, *progress]]
    return "\n".join([f"def {name}(", *lines, f") -> {function.returns}:"])


def with_default(kind: str) -> str:
    """The type of a keyword with its default, which stands for the program's own."""
    return "bool = False" if kind == "bool" else f"{kind} | None = None"


def body(name: str, function: Function, options: list[Definition]) -> str:
    """The call of the function that is written by hand."""
    before = [name_of(one) for one in function.before]
    keywords = [f"{name}={name}" for name in (*function.keywords, *(parameter(one["name"]) for one in options))]
    given = [*before, *(["progress"] if function.progress else []), *keywords]
    one_line = f"    return _calls.{name}({', '.join(given)})"
    if len(one_line) <= WIDTH:
        return one_line
    return "\n".join([f"    return _calls.{name}(", *(f"        {one}," for one in given), "    )"])


def settings_of(option: Definition) -> str:
    """The class of the settings of `read` or `write`: a key for each, with its type and what it does."""
    lines = dict(re.findall(r"^- (\S+) +(.+)$", option["long_help"] or "", re.M))
    words: dict[str, list[str]] = {}
    for choice in option["choices"]:
        key, value = choice.split("=", 1)
        words.setdefault(key, []).append(value)
    about, fields = [], []
    for key, values in words.items():
        field = parameter(key)
        # Such as "CSV: one character": the inputs that have the setting, and what it is.
        said = [lines[f"{key}={value}"].split(": ", 1) for value in values]
        texts = (
            [text for _, text in said]
            if len(values) == 1
            else [f"{spelled(value)}: {text}" for value, (_, text) in zip(values, said, strict=True)]
        )
        about.append(filled(f"{field}: {said[0][0]}. {'. '.join(text[:1].upper() + text[1:] for text in texts)}.", 8))
        fields.append(f"    {field}: {setting_type(option['name'], key, values)}")
    head = f"class {option['name'].capitalize()}Settings(TypedDict, total=False):"
    summary = in_python(option["help"]).split(",")[0].replace("Setting", "Settings")
    return "\n".join([head, f'    """{summary}.', "", "    Keys:", *about, '    """', "", *fields])


def spelled(word: str) -> str:
    """A value of a setting as Python writes it."""
    return {"yes": "True", "no": "False"}.get(word, json.dumps(word))


def setting_type(option: str, key: str, values: list[str]) -> str:
    """The type of a setting's value."""
    if set(values) == {"yes", "no"}:
        return "bool"
    if len(values) > 1:
        return literal(values)
    if values[0] not in SETTINGS:
        raise SystemExit(f"expected the placeholder {values[0]} of --{option} {key} in SETTINGS of {__file__}, found none")
    return SETTINGS[values[0]]


def bundle(name: str, function: str, own: tuple[str, ...], options: list[Definition]) -> str:
    """The class of a dictionary of options, for functions that pass them on."""
    fields = [
        f"    {parameter(one['name'])}: {kind if kind == 'bool' else kind + ' | None'}"
        for one in options
        if one["name"] not in own
        for kind in [type_of(one, FUNCTIONS[function])]
    ]
    return "\n".join([f"class {name}(TypedDict, total=False):", f'    """Options of `{function}`."""', "", *fields])


def functions(definitions: Definition) -> str:
    """The module of the functions."""
    commands = {command["name"]: command for command in definitions["commands"]}
    for name in commands.keys() - {one.command for one in FUNCTIONS.values()} - NO_FUNCTION.keys():
        raise SystemExit(f"expected the command {name} in FUNCTIONS or NO_FUNCTION of {pathlib.Path(__file__).name}, found none")
    for option in definitions["global"]:
        if option["name"] not in {*GLOBALS, *NOT_IN_PYTHON}:
            raise SystemExit(f"expected --{option['name']} in GLOBALS or NOT_IN_PYTHON of {pathlib.Path(__file__).name}, found none")
    own = {option["name"]: option for option in commands["convert"]["options"]}
    kept = {name: options_of(one, commands, definitions["global"]) for name, one in FUNCTIONS.items()}
    reports = sorted({name for one in FUNCTIONS.values() for name in re.findall(r"\b(?:\w*Report|Hit|TrainingRun|SeenInRun)\b", one.returns)})
    parts = [
        f'"""The commands of shardify as functions, with all of their options.\n\n{HEADER}\n\n'
        "Options are named as on the command line, with `_` for `-`. An option that is not given has the default of the program.\n"
        '"""',
        # Without `from __future__ import annotations`, so that help shows types and not texts.
        "from collections.abc import Iterable, Mapping\n"
        "from typing import Any, Literal, TypedDict\n\nfrom . import _calls\nfrom ._options import Duration, Path, When\nfrom ._sources import Source\n"
        "from .progress import Wanted\nfrom .reports import (\n" + "".join(f"    {name},\n" for name in reports) + ")",
        "\n".join(named_literal(name, own[option]["choices"]) for option, name in WORDS.items()),
        *(settings_of(own[name]) for name in ("read", "write")),
        *(bundle(name, function, skipped, kept[function]) for name, (function, skipped) in BUNDLES.items()),
    ]
    for name, function in FUNCTIONS.items():
        command = commands[function.command]
        head, about = signature(name, function, kept[name], command), docstring(function, kept[name], command)
        parts.append(f"{head}\n{about}\n{body(name, function, kept[name])}")
    head, *rest = parts
    return "\n\n".join([head, rest[0], rest[1]]) + "\n\n\n" + "\n\n\n".join(rest[2:]) + "\n"


def tables(definitions: Definition) -> str:
    """The module of what is known about options."""
    every = [option for command in definitions["commands"] for option in command["options"] if not option["positional"]]
    every += [option for option in definitions["global"] if option["name"] in GLOBALS]
    values: dict[str, dict[str, None]] = {}
    choices: dict[str, dict[str, None]] = {}
    for option in every:
        values.setdefault(option["name"], {})[option["value"] or ""] = None
        choices.setdefault(option["name"], {}).update(dict.fromkeys(option["choices"] or ()))
    settings = [choice.split("=", 1) for one in every if one["value"] == "KEY=VALUE" for choice in one["choices"]]
    versions = {one["name"] for one in every if one["value"] in VERSIONS} | {key for key, value in settings if value in VERSIONS}
    joined = {one["name"] for one in every if one["delimiter"] or one["value"] in JOINED}
    commands = {function.command: name for name, function in FUNCTIONS.items() if function.command != "manifest"}
    return "\n".join(
        [
            f'"""What is known about the options of the command line.\n\n{HEADER}\n"""\n',
            "from __future__ import annotations\n",
            "# Options that name a version, and may be a number in Python.",
            constant("VERSIONS", "frozenset[str]", "frozenset(", sorted(versions)),
            "# Options whose values are joined by commas; values of others are repeated.",
            constant("JOINED", "frozenset[str]", "frozenset(", sorted(joined)),
            "# Options of settings KEY=VALUE.",
            constant("SETTINGS", "frozenset[str]", "frozenset(", sorted({one["name"] for one in every if one["value"] == "KEY=VALUE"})),
            "# Functions of commands; those of `manifest` depend on its options.",
            mapping("COMMANDS", "dict[str, str]", {name: json.dumps(function) for name, function in sorted(commands.items())}),
            "# Placeholders of the values of options; that of a flag is empty.",
            mapping("VALUES", "dict[str, tuple[str, ...]]", {name: listed(values[name]) for name in sorted(values)}),
            "# Words that options take.",
            mapping("CHOICES", "dict[str, tuple[str, ...]]", {name: listed(choices[name]) for name in sorted(choices) if choices[name]}),
        ]
    )


def listed(words: Iterable[str]) -> str:
    """Words as a tuple."""
    words = list(words)
    return f"({', '.join(json.dumps(word) for word in words)}{',' if len(words) == 1 else ''})"


def constant(name: str, kind: str, made: str, words: list[str]) -> str:
    """A constant that is a set of words."""
    return f"{name}: {kind} = {made}{{{', '.join(json.dumps(word) for word in words)}}})"


def mapping(name: str, kind: str, entries: Mapping[str, str]) -> str:
    """A constant that is a dictionary, an entry in each line; a tuple that is too long for one has a line for each word."""
    lines = []
    for key, value in entries.items():
        line = f"    {json.dumps(key)}: {value},"
        if len(line) > WIDTH:
            words = "".join(f"        {json.dumps(word)},\n" for word in json.loads(f"[{value.strip('()')}]"))
            line = f"    {json.dumps(key)}: (\n{words}    ),"
        lines.append(line)
    return "\n".join([f"{name}: {kind} = {{", *lines, "}"])


def main() -> int:
    """Writes the modules, or says which are out of date."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a module is out of date")
    check = arguments.parse_args().check
    definitions = json.loads(DEFINITIONS.read_text())
    stale = 0
    for path, text in ((PACKAGE / "commands.py", functions(definitions)), (PACKAGE / "_definitions.py", tables(definitions) + "\n")):
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if check:
            print(f"expected {path.relative_to(ROOT)} as the definitions have it, found another; run scripts/python_functions.py")
        else:
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
