#!/usr/bin/env python3
"""Checks that every link in the documentation leads to a file of the repository, every anchor to a heading, and that every path of a
source file in backticks exists and has the symbols that follow it in brackets: `crates/core/src/id.rs` (`IdHash`).

Checked are README.md, ARCHITECTURE.md, CONTRIBUTING.md, CHANGELOG.md, examples/README.md and docs/**/*.md. Links to the web are ignored.
Every page below docs/ has to be in docs/SUMMARY.md, and pages may link only to files below docs/, since the book holds
nothing else.

usage: links.py
"""

import pathlib
import re
import sys
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)|^\[[^\]]+\]:\s*(\S+)", re.M)
FENCE = re.compile(r"^ *(```+|~~~+)[^\n]*\n.*?^ *\1 *$", flags=re.M | re.S)
WEB = re.compile(r"[a-z][a-z0-9+.-]*:", flags=re.I)
# A path of the repository, from its root or from src/, and the symbols that it is said to have.
SOURCE = re.compile(r"`([\w./-]+\.(?:rs|py|toml|sh|md))`(?: \(((?:`[^`\n]+`(?:, | and )?)+)\))?")
OWN = ("src", "crates", "tests", "scripts", "docs", "testdata", "examples", "benches", "fuzz", "python", ".ci")


def prose(text):
    """The text without code, with as many line ends."""
    blank = lambda match: "\n" * match[0].count("\n")
    return re.sub(r"`[^`\n]*`", "``", FENCE.sub(blank, text))


def anchor(heading):
    """The anchor of a heading, as mdBook and GitHub make it."""
    heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    kept = [c for c in heading.strip().lower() if c in " -_" or unicodedata.category(c)[0] in "LNM"]
    return "".join(kept).replace(" ", "-")


def anchors(path):
    found, out = {}, set()
    for heading in re.findall(r"^#{1,6}\s+(.*?)\s*#*$", FENCE.sub("", path.read_text()), flags=re.M):
        name = anchor(heading)
        again = found[name] = found.get(name, -1) + 1
        out.add(f"{name}-{again}" if again else name)
    return out


def faults_of(page):
    text = prose(page.read_text())
    for match in LINK.finditer(text):
        link = match[1] or match[2]
        where = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
        if WEB.match(link):
            continue
        name, _, fragment = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.is_relative_to(ROOT) or not target.exists():
            yield f"{where}: expected a file of the repository, found `{link}`"
        elif DOCS in page.parents and DOCS not in target.parents:
            yield f"{where}: expected a link to a page of the book, found `{link}`"
        elif fragment and (target.suffix != ".md" or fragment not in anchors(target)):
            yield f"{where}: expected an anchor of {target.relative_to(ROOT)}, found `#{fragment}`"


def sources():
    """Paths of the repository's files, and the names of those below src/ from there."""
    listed = [p for top in OWN for p in (ROOT / top).rglob("*") if p.is_file()] + [p for p in ROOT.iterdir() if p.is_file()]
    return {p.relative_to(ROOT).as_posix(): p for p in listed}


def false_sources_of(page, paths):
    """Paths in backticks that no file has, and symbols that are not in their files. A name without a folder is one of many files."""
    text = FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text())
    folders = {path.partition("/")[0] for path in paths} | {path.partition("src/")[2].partition("/")[0] for path in paths if path.startswith(("src/", "crates/"))}
    for match in SOURCE.finditer(text):
        name, symbols = match[1], re.findall(r"`([^`]+)`", match[2] or "")
        if "/" not in name or name.startswith("/") or name.partition("/")[0] not in folders:
            continue
        where = f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}"
        found = paths.get(name) or paths.get(f"src/{name}") or next((p for path, p in paths.items() if path.endswith(f"/{name}")), None)
        if not found:
            yield f"{where}: expected a file of the repository, found `{name}`"
            continue
        content = found.read_text()
        for symbol in symbols:
            if not re.search(rf"\b{re.escape(symbol.split('::')[-1].rstrip('()'))}\b", content):
                yield f"{where}: expected a symbol of {name}, found `{symbol}`"


def main():
    pages = sorted(DOCS.glob("**/*.md"))
    listed = {(DOCS / link[1]).resolve() for link in LINK.finditer((DOCS / "SUMMARY.md").read_text())}
    faults = [f"docs/SUMMARY.md: expected every page, found no {p.relative_to(DOCS)}"
              for p in pages if p not in listed and p.name != "SUMMARY.md"]
    top = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")]
    paths = sources()
    for page in [*top, *pages]:
        faults += [*faults_of(page), *false_sources_of(page, paths)]
    print("\n".join(faults) or f"links and paths of {len(top) + len(pages)} pages lead somewhere")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
