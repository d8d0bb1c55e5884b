#!/usr/bin/env python3
"""Checks that no sentence of the documentation has more than 24 words.

Checked is the prose of README.md and docs/**/*.md. Code, tables, headings and the reference pages in EXEMPT are not. A code span counts as one
word, and a link as its text. A sentence ends at `.`, `!` or `?` before a blank, and at the end of its paragraph or list item.

usage: sentences.py [--check] [--words N] [PAGE...]    # with --check, the exit code is 1 if there are such sentences
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXEMPT = ("reference/", "BENCHMARKS.md", "CORRECTNESS.md", "FORMAT.md", "RELIABILITY.md", "SUMMARY.md")
FENCE = re.compile(r"^ *(```+|~~~+)[^\n]*\n.*?^ *\1 *$", flags=re.M | re.S)
COMMENT = re.compile(r"<!--.*?-->", flags=re.S)
ENDS = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=\S)")
SKIPPED = re.compile(r"^(\s*\||#|!\[|    \S)")
ITEM = re.compile(r"^\s*([-*]|\d+\.)\s+")


def blank(match):
    return "\n" * match[0].count("\n")


def paragraphs(text):
    """Each paragraph or list item with the number of its first line."""
    first, lines = 0, []
    for number, line in enumerate([*COMMENT.sub(blank, FENCE.sub(blank, text)).splitlines(), ""], 1):
        ends = not line.strip() or SKIPPED.match(line) is not None
        if (ends or ITEM.match(line)) and lines:
            yield first, " ".join(lines)
            lines = []
        if not ends:
            first = first if lines else number
            lines.append(ITEM.sub("", line).strip())


def sentences(text):
    for line, paragraph in paragraphs(text):
        seen = re.sub(r"!?\[([^\[\]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "CODE", paragraph))
        for sentence in ENDS.split(seen):
            words = [word for word in sentence.split() if re.search(r"\w", word)]
            yield line, len(words), sentence


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--words", type=int, default=24)
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    docs = ROOT / "docs"
    every = [ROOT / "README.md", *(p for p in sorted(docs.glob("**/*.md")) if not p.relative_to(docs).as_posix().startswith(EXEMPT))]
    pages = [page.resolve() for page in arguments.pages] or every
    long = [f"{page.relative_to(ROOT)}:{line}: {count} words: {sentence}" for page in pages
            for line, count, sentence in sentences(page.read_text()) if count > arguments.words]
    print("\n".join(long) or f"no sentence of {len(pages)} pages has more than {arguments.words} words")
    sys.exit(bool(long) and arguments.check)


if __name__ == "__main__":
    main()
