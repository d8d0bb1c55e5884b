#!/usr/bin/env python3
"""Checks the words of help and documentation against docs/glossary.md.

Each term of the glossary has to be used somewhere else, and words that the glossary replaces must not stand for its terms: those of
REPLACED, each with what is meant and what may precede or follow it in another sense. FORMAT.md keeps the names of fields on disk, and
BENCHMARKS.md and RELIABILITY.md tell what was done with older programs; the pages of help are docs/reference/commands.md.

usage: glossary.py [--check]    # with --check, the exit code is 1 if something is found
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "docs" / "glossary.md"
EXEMPT = ("FORMAT.md", "BENCHMARKS.md", "RELIABILITY.md", "glossary.md")
REPLACED = [
    (
        r"(?<!by )(?<!both )(?<!neither )(?<!either )(?<!other )(?<!left )(?<!right )\b[Ss]ides?\b(?! by side)",
        "split: one of the groups that --split makes",
    ),
    (r"\b[Ss]plits? of (?:a|the|its) (?:sources?|files?|inputs?)\b", "range: a piece of a source"),
    (r"\b[Pp]assed over\b", "skipped"),
    (r"\b[Tt]raining parts?\b", "split"),
    (r"\b[Bb]egins? of (?:an )?ids?\b", "prefix"),
    (r"\b[Ww]ays? of (?:a|the) records?\b", "data flow"),
]


def pages():
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [file for file in files if file.name not in EXEMPT]


def terms():
    """The terms of the glossary, each alone."""
    rows = re.findall(r"^\| ([^|]+?) \| ", GLOSSARY.read_text(), flags=re.M)
    return [term for row in rows if row not in ("Term", "---") for term in row.split(", ")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    texts = {page: page.read_text() for page in pages()}
    everything = "\n".join(texts.values()).lower()
    found = [f"{GLOSSARY.relative_to(ROOT)}: `{term}` is used nowhere else" for term in terms() if term.lower() not in everything]
    for page, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, meant in REPLACED:
                found += [f"{page.relative_to(ROOT)}:{number}: `{match[0]}`: {meant}" for match in re.finditer(pattern, line)]
    print("\n".join(found) or f"{len(terms())} terms, {len(texts)} pages: each word in its sense")
    return 1 if found and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
