"""Messages of the program in Python's words: `--on-error skip` becomes `on_error="skip"`.

The program speaks of its options, and its hints are commands that can be pasted into a shell. Here an option becomes a keyword of a
call, and a command a call, where that is simple; what is not stays as it is. A word after an option is its value only if it looks like one:
in "name another dataset with --out, or leave --index out", no option has a value.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Iterator

from . import _definitions

# An option as the argument parser quotes it, such as '--to <FORMAT>'.
_QUOTED = re.compile(r"'--([a-z][a-z-]*)(?:[ =][<\[][^']*)?'")
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)(?![\w=-])(?: (?P<value>'[^']*'|[^\s;)]+))?")
# A command at the end of a hint, such as "convert it as a whole: shardify convert raw".
_COMMAND = re.compile(r"(?:^|(?<=: ))shardify [a-z][a-z-]* .*$", re.S)
_NUMBER = re.compile(r"\d+(\.\d+)?")

_NUMBERS = frozenset({"N", "SEED", "SHARE", "PSI", "N|A..B"})
_QUANTITIES = frozenset({"SIZE", "WHEN", "VERSION", "DURATION"})
_PAIRS = frozenset({"KEY=VALUE", "COLUMN=TYPE", "SHARES"})
# Words that are values of options which also take others.
_WORDS = {
    "codec": ("none", "zstd", "lz4", "snappy", "gzip"),
    "dedup": ("content", "id", "none"),
    "key": ("first-dot", "last-dot"),
    "labels": ("none",),
    "split-by": ("subject", "id", "content"),
}
# What `manifest` does with these options, as functions.
_MANIFEST = {"history": "history", "find": "find", "diff": "diff", "tag": "tag", "untag": "untag"}


def in_python(text: str) -> str:
    """A message or hint of the program in Python's words."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        # A lone backtick: no part is known to be code.
        return _prose(text)
    return "".join(f"`{_code(part)}`" if number % 2 else _prose(part) for number, part in enumerate(parts))


def call_of(command: str) -> str | None:
    """The call that a command for a shell stands for; `None` if it is not simple."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if words[:1] == ["shardify"]:
        words = words[1:]
    found = _function(words)
    return None if found is None else _call(*found)


def keyword(option: str, value: str | None) -> str:
    """An option as a keyword of a call: `on_error="skip"`, `dry_run=True`, `read={"header": False}`."""
    name = _name(option)
    if _is_flag(option):
        return f"{name}=True"
    return f"{name}={_literal(option, value)}" if value is not None else f"{name}=..."


def _prose(text: str) -> str:
    """Options outside of code, and a command at the end. Several commands for a shell stay as they are."""
    if " && " in text:
        return text
    command = _COMMAND.search(text)
    if command is not None and _function(command[0].split()[1:]) is not None:
        call = call_of(command[0])
        return _options(text[: command.start()]) + (f"`{call}`" if call else command[0])
    return _options(text)


def _options(text: str) -> str:
    text = _QUOTED.sub(lambda match: f"`{_name(match[1])}`" if match[1] in _definitions.VALUES else match[0], text)
    return _OPTION.sub(_option, text)


def _option(match: re.Match[str]) -> str:
    """An option in a sentence, with its value if the next word is one."""
    option, word = match[1], match["value"]
    if option not in _definitions.VALUES:
        return match[0]
    rest = f" {word}" if word else ""
    if _is_flag(option) or word is None:
        said = keyword(option, None) if _is_flag(option) else _name(option)
        return f"`{said}`{rest}"
    value = word if word.startswith("'") else word.rstrip(",.:")
    if _is_value(option, value):
        return f"`{keyword(option, value.strip(chr(39)))}`{word[len(value) :]}"
    if value in _settings(option):
        return f"`{_name(option)}={{{json.dumps(_name(value))}: ...}}`{word[len(value) :]}"
    return f"`{_name(option)}`{rest}"


def _code(text: str) -> str:
    """Text in backticks: a command, a single option, or something of the user's."""
    words = text.split(" ")
    if words[0] == "shardify" or (len(words) > 1 and _function(words) is not None):
        return call_of(text) or text
    option = _OPTION.fullmatch(text)
    if option is None or option[1] not in _definitions.VALUES:
        return text
    value = option["value"]
    return keyword(option[1], None if value is None else value.strip("'")) if value or _is_flag(option[1]) else _name(option[1])


def _function(words: list[str]) -> tuple[str, list[str]] | None:
    """The function of a command, and the words after its name."""
    for length in (2, 1):
        name = _definitions.COMMANDS.get(" ".join(words[:length]))
        if name is not None:
            return name, words[length:]
    if words[:1] == ["manifest"]:
        for option, name in _MANIFEST.items():
            if f"--{option}" in words:
                at = words.index(f"--{option}")
                return name, [*words[1:at], *words[at + 1 :]]
    return None


def _call(name: str, words: list[str]) -> str | None:
    """A call with the arguments of a command; `None` if the function does not have them all."""
    from . import commands

    if not words:
        return f"shardify.{name}"
    parameters = inspect.signature(getattr(commands, name)).parameters
    places = [one for one in parameters.values() if one.kind is not one.KEYWORD_ONLY]
    arguments: list[str] = []
    keywords: list[str] = []
    for option, value in _arguments(words):
        if option is None:
            arguments.append(json.dumps(value, ensure_ascii=False))
        elif _name(option) in parameters:
            keywords.append(keyword(option, value))
        else:
            return None
    if any(re.match(r'"[&|<>;]', one) for one in arguments):
        return None
    if not arguments and places and places[0].kind is not places[0].VAR_POSITIONAL and places[0].default is places[0].empty:
        arguments = [places[0].name]
    return f"shardify.{name}({', '.join([*arguments, *keywords])})"


def _arguments(words: list[str]) -> Iterator[tuple[str | None, str | None]]:
    """The options of a command line with their values, and other words without an option."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            yield None, word
            continue
        option, equals, value = word[2:].partition("=")
        if equals:
            yield option, value
        else:
            yield option, None if _is_flag(option) else next(rest, None)


def _is_flag(option: str) -> bool:
    return _definitions.VALUES.get(option) == ("",)


def _is_value(option: str, word: str) -> bool:
    """Whether a word after an option in a sentence is its value."""
    kinds = {*_definitions.VALUES[option]}
    if word.startswith("'"):
        return True
    if kinds & _PAIRS and "=" in word:
        return True
    if kinds & _PAIRS:
        return False
    if all(one in (*_definitions.CHOICES.get(option, ()), *_WORDS.get(option, ())) for one in word.split(",")):
        return True
    if kinds & (_NUMBERS | _QUANTITIES):
        return re.match(r"v?\d", word) is not None
    return re.fullmatch(r"[A-Z][A-Z_]*", word) is not None or re.search(r"\w[*/.:]\w|\*", word) is not None


def _settings(option: str) -> set[str]:
    """The names of the settings of `--read` and `--write`."""
    return {choice.split("=", 1)[0] for choice in _definitions.CHOICES.get(option, ()) if "=" in choice}


def _literal(option: str, value: str) -> str:
    """A value as Python writes it."""
    kinds = {*_definitions.VALUES.get(option, ())}
    if kinds & _PAIRS and "=" in value:
        if option in _definitions.SETTINGS:
            key, setting = value.split("=", 1)
            return f"{{{json.dumps(_name(key))}: {_setting(setting)}}}"
        return f"{{{', '.join(f'{_text(key)}: {_plain(one)}' for key, one in _pairs(value))}}}"
    if kinds & _NUMBERS and _NUMBER.fullmatch(value):
        return value
    if option in _definitions.JOINED and "," in value:
        return f"[{', '.join(map(_text, value.split(',')))}]"
    return _text(value)


def _setting(value: str) -> str:
    """The value of a setting as Python writes it."""
    if value in ("yes", "no"):
        return str(value == "yes")
    if "=" in value:
        return f"{{{', '.join(f'{_text(key)}: {_plain(one)}' for key, one in _pairs(value))}}}"
    return f"[{', '.join(map(_text, value.split(',')))}]" if "," in value else _text(value)


def _pairs(text: str) -> list[tuple[str, str]]:
    """The pairs in `train=0.9,val=0.1`, or the one in `c=decimal(10,2)`."""
    parts = text.split(",")
    whole = parts if all("=" in part for part in parts) else [text]
    return [(key, value) for key, _, value in (part.partition("=") for part in whole)]


def _plain(text: str) -> str:
    return text if _NUMBER.fullmatch(text) else _text(text)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _name(option: str) -> str:
    """The name of an option or a setting in Python."""
    name = option.replace("-", "_")
    return f"{name}_" if name in ("as", "from") else name
