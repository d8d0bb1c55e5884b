#!/usr/bin/env python3
"""Runs what the documentation shows, and builds the book.

Each page with fenced `console` blocks is run from top to bottom in a clean clone of the repository: what is not committed is not there. Lines
after `$ ` go to bash, lines after `> ` continue them, and `# exit N` at the end is the exit code that is expected. What
a command prints has to be what the page shows, numbers of versions and records too; random names, times, sizes in bytes
and blanks are not compared, and a line `...` stands for any lines. `python` blocks of such a page are run where their packages are
installed, and named where they are not, as are commands that need them. A block that begins with `# NAME.py` is written to this file instead.

The pages in WHOLE may have no other blocks, so that all of them are run. Builds are not repeated: `cargo` and `pip` are stand-ins that do
nothing, but for `cargo run`. `--update` writes output that differs into the pages, with as many lines before and after `...` as before.

usage: book.py --shardify BINARY [--mdbook BINARY] [--update] [PAGE...]
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HOME = "/home/you/work"
# Pages that a new user follows.
WHOLE = ("README.md", "docs/installation.md", "docs/quick-start.md")
# `cargo run --release -- ARGUMENTS` runs the program; every other command of these tools builds something.
STAND_INS = {"cargo": '#!/bin/sh\n[ "$1" = run ] || exit 0\nshift 3\nexec shardify "$@"\n', "pip": "#!/bin/sh\n"}
# What Python or bash says about a package that is not installed.
MISSING = re.compile(r"ModuleNotFoundError: No module named '(.*)'|(torchrun): command not found")
SCRIPT = re.compile(r"# ([\w-]+\.py)\n")
FENCE = re.compile(r"^```(.*)\n(?:.*\n)*?```$", flags=re.M)
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", flags=re.M | re.S)
EXIT = re.compile(r"\s+# exit (\d+)$")
# What differs from run to run or from build to build: times, random names, sizes, and the widths of columns that follow from them.
CHANGES = (
    (r"^\s*took .*$", "took"),
    (r"[0-9a-f]{12,}", "#"),
    (r"\bgit #(?: \(\S+\))?", "git"),
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"[\d.,]*\d (?:B|[KMG]iB)\b", "SIZE"),
    (r'"(\w*bytes\w*)":\s*\d+', r'"\1":SIZE'),
    (r"\s+|[-─]{2,}", " "),
)


def comparable(line):
    for pattern, instead in CHANGES:
        line = re.sub(pattern, instead, line, flags=re.M)
    return line.strip()


def commands_of(block):
    """The commands of a block as their lines, each with the lines of output that are shown."""
    commands = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append(([line], []))
        elif line.startswith("> ") and not commands[-1][1]:
            commands[-1][0].append(line)
        elif not commands:
            raise ValueError(f"a console block begins with output: {line!r}")
        else:
            commands[-1][1].append(line)
    return commands


def agree(shown, printed):
    """Whether the lines that are shown are those that were printed, where `...` is any lines."""
    pattern = "".join(r"(?:.*\n)*" if line == "..." else re.escape(comparable(line)) + r"\n" for line in shown)
    return re.fullmatch(pattern, "".join(comparable(line) + "\n" for line in printed)) is not None


def shortened(shown, printed):
    """What was printed, cut as what is shown is cut."""
    if "..." not in shown:
        return printed
    head = shown.index("...")
    tail = len(shown) - head - 1
    return [*printed[:head], "...", *printed[len(printed) - tail :]] if head + tail < len(printed) else printed


class Page:
    """A page, run in a folder of its own."""

    def __init__(self, path, binary, update):
        self.path, self.update, self.faults = path, update, []
        self.folder = tempfile.TemporaryDirectory(prefix="shardify-book-")
        self.home = pathlib.Path(self.folder.name).resolve() / "work"
        tools = self.home.with_name("bin")
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, self.home], check=True)
        if path.relative_to(ROOT).as_posix() not in WHOLE:
            shutil.rmtree(self.home / ".git")  # Histories would name the commit that each source is from.
        tools.mkdir()
        (self.home / "target/release").mkdir(parents=True)
        for place in (tools, self.home / "target/release"):
            (place / "shardify").symlink_to(pathlib.Path(binary).resolve())
        for name, script in STAND_INS.items():
            (tools / name).write_text(script)
            (tools / name).chmod(0o755)
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "AZURE", "GOOGLE_", "SHARDIFY_"))}
        path = f"{tools}:{pathlib.Path(sys.executable).parent}:{plain['PATH']}"
        package = {"PYTHONPATH": str(ROOT / "python"), "SHARDIFY_BINARY": f"{tools}/shardify", "PYTHONDONTWRITEBYTECODE": "1"}
        self.environment = {**plain, **package, "PATH": path, "HOME": str(self.home), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        self.environment.pop("NO_COLOR", None)

    def run(self, *command):
        ran = subprocess.run(command, cwd=self.home, env=self.environment, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        return ran.returncode, ran.stdout.decode().replace(str(self.home), HOME)

    def console(self, block):
        text = []
        for lines, shown in commands_of(block):
            command = "\n".join(line[2:] for line in lines)
            expected = int(found[1]) if (found := EXIT.search(command)) else 0
            code, printed = self.run("bash", "-c", EXIT.sub("", command))
            if missing := MISSING.search(printed):
                print(f"{self.path.relative_to(ROOT)}: NOT RUN, no package {missing[1] or missing[2]}: {command} and the rest of its block")
                return block
            printed = [line.rstrip() for line in printed.rstrip().splitlines()]
            if code != expected:
                self.faults.append(f"`{command}`: expected exit code {expected}, found {code}:\n" + "\n".join(printed))
            elif not agree([line for line in shown if line], [line for line in printed if line]):
                if self.update:
                    shown = shortened(shown, printed)
                else:
                    self.faults.append(f"`{command}`: expected the output of the page, found:\n" + "\n".join(printed))
            text += [*lines, *shown]
        return "".join(line + "\n" for line in text)

    def python(self, block):
        if script := SCRIPT.match(block):
            (self.home / script[1]).write_text(block)
            return block
        code, printed = self.run(sys.executable, "-c", block)
        if missing := MISSING.search(printed):
            print(f"{self.path.relative_to(ROOT)}: NOT RUN, no package {missing[1]}: {block.splitlines()[0]}")
        elif code:
            self.faults.append(f"python ended with {code}:\n{block}\n{printed}")
        return block

    def check(self):
        def replaced(block):
            return f"```{block[1]}\n{self.console(block[2]) if block[1] == 'console' else self.python(block[2])}```"

        old = self.path.read_text()
        if self.path.relative_to(ROOT).as_posix() in WHOLE:
            self.faults += [f"expected a console or python block, which is run, found `{block[0].splitlines()[1]}`"
                            for block in FENCE.finditer(old) if block[1] not in ("console", "python")]
        new = BLOCK.sub(replaced, old)
        if self.update and new != old:
            self.path.write_text(new)
        self.folder.cleanup()
        return [f"{self.path.relative_to(ROOT)}: {fault}" for fault in self.faults]


def build(mdbook):
    """Builds the book into target/book; warnings are errors."""
    ran = subprocess.run([mdbook, "build", ROOT], capture_output=True, text=True)
    complaints = [line for line in ran.stderr.splitlines() if re.search(r"\b(WARN|ERROR)\b", line)]
    return complaints or ([ran.stderr] if ran.returncode else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", required=True)
    parser.add_argument("--mdbook")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("pages", nargs="*", type=pathlib.Path)
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages] or [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
    pages = [page for page in pages if "```console\n" in page.read_text()]
    faults = [fault for page in pages for fault in Page(page, arguments.shardify, arguments.update).check()]
    faults += build(arguments.mdbook) if arguments.mdbook else []
    print("\n".join(faults) or f"{len(pages)} pages do what they show")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
