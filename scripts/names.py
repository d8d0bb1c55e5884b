#!/usr/bin/env python3
"""How plain the names of the code are, crate by crate.

    python3 scripts/names.py [--list types|words|tuples] [--check]

Without tests: types whose name another type of the crate has, too; functions of one word, and of at most four letters, without those that
traits of others name; parameters that are anonymous tuples. `--list` prints what is counted. `--check` fails where a limit is exceeded.
For comparison, by the same count: object_store 30 % of one word and 4 % of types twice, tokio 29 and 15, regex-automata 32 and 13.
"""

import argparse
import collections
import pathlib
import re
import sys

# Shares in percent, and a number.
MOST_TWICE, MOST_ONE_WORD, MOST_TUPLES = 4.0, 35.0, 0
ROOT = pathlib.Path(__file__).resolve().parents[1]
CRATES = {"order": "crates/order/src", "core": "crates/core/src", "formats": "crates/formats/src", "dataset": "crates/dataset/src", "load": "crates/load/src", "engine": "crates/engine/src", "shardify": "src", "py": "crates/py/src"}
TYPE = re.compile(r"^(?:\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|union|trait)|(?:pub(?:\([^)]*\))?\s+)?type)\s+([A-Z]\w*)", re.M)
FUNCTION = re.compile(r"\bfn\s+([a-z_]\w*)\s*(?:<[^{;]*?>)?\(")
# What traits of the language and of well-known crates name.
NAMED_BY_OTHERS = frozenset("drop fmt next poll read write flush seek clone eq cmp hash from into default deref index visit serialize deserialize main".split())


def without_tests(text):
    """The text up to its tests, without comments and texts."""
    text = re.split(r"^#\[cfg\(test\)\]", text, maxsplit=1, flags=re.M)[0]
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def parameters(text, at):
    """What is between the brackets that open before a place."""
    depth, end = 1, at
    while depth and end < len(text):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return text[at : end - 1]


def has_tuple(signature):
    """Whether one of the parameters is an anonymous tuple: `(a, b): (A, B)`, or `name: (A, B)`."""
    depth = 0
    for i, letter in enumerate(signature):
        if letter in "<[":
            depth += 1
        elif letter in ">]" and signature[i - 1] != "-":
            depth -= 1
        elif letter == "(" and depth == 0 and re.search(r":\s*(?:&(?:'\w+\s+)?(?:mut\s+)?)?$", signature[:i]):
            inside = parameters(signature, i + 1)
            if "," in inside:
                return True
    return False


def look(folder):
    """Facts about one crate: names of types with their files, names of functions, functions with tuples."""
    types, functions, tuples = collections.defaultdict(list), [], []
    for path in sorted((ROOT / folder).rglob("*.rs")):
        text = path.read_text(encoding="utf-8")
        place = str(path.relative_to(ROOT))
        if path.name == "tests.rs" or "/tests/" in place:
            continue
        text = without_tests(text)
        for name in TYPE.findall(text):
            types[name].append(place)
        for match in FUNCTION.finditer(text):
            functions.append((match[1], place))
            if has_tuple(parameters(text, match.end())):
                tuples.append((match[1], place))
    return types, functions, tuples


def share(part, whole):
    return 100 * part / max(whole, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", choices=["types", "words", "tuples"], help="print what is counted")
    parser.add_argument("--check", action="store_true", help="fail where a limit is exceeded")
    options = parser.parse_args()
    print(f"{'crate':10} {'types':>6} {'twice %':>8} {'functions':>10} {'one word %':>11} {'short %':>8} {'tuples':>7}")
    failed = []
    for crate, folder in CRATES.items():
        types, functions, tuples = look(folder)
        count = sum(len(places) for places in types.values())
        twice = {name: places for name, places in types.items() if len(places) > 1}
        own = [(name, place) for name, place in functions if name not in NAMED_BY_OTHERS]
        one = [name for name, _ in own if "_" not in name.strip("_")]
        short = [name for name, _ in own if len(name) <= 4]
        print(
            f"{crate:10} {count:6} {share(len(twice), len(types)):8.1f} {len(own):10} {share(len(one), len(own)):11.1f} "
            f"{share(len(short), len(own)):8.1f} {len(tuples):7}"
        )
        limits = {"types twice": (share(len(twice), len(types)), MOST_TWICE), "one word": (share(len(one), len(own)), MOST_ONE_WORD)}
        limits["tuples"] = (len(tuples), MOST_TUPLES)
        failed += [f"{crate}: {what} {found:.1f}, at most {most}" for what, (found, most) in limits.items() if found > most]
        if options.list == "types":
            for name, places in sorted(twice.items()):
                print("   ", name, *places)
        if options.list == "words":
            print("   ", *(f"{name} {n}" for name, n in collections.Counter(one).most_common(150)), sep="\n    ")
        if options.list == "tuples":
            for name, place in tuples:
                print("   ", name, place)
    for line in failed if options.check else []:
        print(f"FAILED {line}", file=sys.stderr)
    return 1 if options.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
