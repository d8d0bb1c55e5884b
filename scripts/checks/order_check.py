#!/usr/bin/env python3
"""`shardify.Order` and the crate `shardify-order` compute order 1 of docs/FORMAT.md, in both directions.

The oracle below is written from docs/FORMAT.md alone, in standard Python, and shares no code with either. For up to 10^4 records it is naive:
it lays the permuted blocks end to end in a list, cuts the list into lanes and the lanes into windows, permutes them and takes turns. For more
records it answers turn by turn. Compared are:

- the example in docs/FORMAT.md, number by number
- the committed table `testdata/order1.tsv`, which is never made again: every border of a case, and random sets
- `--sets` random sets of parameters with lists of all turns, positions and steps of all ranks, and as many large ones with some turns
- the crate, by its example `vectors`, for the same sets

All seeds are fixed.

    python3 scripts/check.py order_check [--sets N] [--without-rust]
    python3 scripts/checks/order_check.py --print-table        # rows of testdata/order1.tsv, as the oracle answers them
"""

import argparse
import hashlib
import math
import os
import random
import re
import subprocess
import sys

from harness import ROOT, Failure, expect, finish, not_run

sys.path.insert(0, str(ROOT / "python"))
import shardify  # noqa: E402

BITS = 2**64
G = 0x9E3779B97F4A7C15
COLUMNS = "records block lanes window seed epoch basis global_batch_size ranks step rank turns positions turns_of_positions step_positions"
PARAMETERS = COLUMNS.split()[:7]


# The oracle.


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % BITS
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % BITS
    return z ^ (z >> 31)


def hi(z, m):
    return z * m // BITS


def share(n, m, i):
    return i * (n // m) + min(i, n % m)


class Key:
    """Key of a purpose; permutes."""

    def __init__(self, one, purpose):
        names = ("records", "block", "lanes", "window", "seed", "epoch")
        text = "shardify order 1\nbasis " + one["basis"] + "\n" + "".join(f"{name} {one[name]}\n" for name in names)
        self.bytes = hashlib.sha256((text + purpose + "\n").encode("ascii")).digest()
        self.k = [sum(byte << 8 * at for at, byte in enumerate(self.bytes[8 * i : 8 * i + 8])) for i in range(4)]

    def r(self, i):
        return mix((self.k[i % 4] + (i + 1) * G) % BITS)

    def few(self, n):
        return [number for _, number in sorted((self.r(i), i) for i in range(n))]

    def grid(self, n):
        a = 2
        if n > 4:
            a = math.isqrt(n)
            a += a % 2
        while a * a < n:
            a += 2
        return a, (n + a - 1) // a

    def image(self, n, v):
        if n <= 256:
            return self.few(n)[v]
        a, b = self.grid(n)
        while True:
            x, y = v // b, v % b
            for i in range(0, 12, 2):
                x = (x + hi(mix((y + self.r(i)) % BITS), a)) % a
                y = (y + hi(mix((x + self.r(i + 1)) % BITS), b)) % b
            v = x * b + y
            if v < n:
                return v

    def original(self, n, v):
        if n <= 256:
            return self.few(n).index(v)
        a, b = self.grid(n)
        while True:
            x, y = v // b, v % b
            for i in range(10, -1, -2):
                y = (y - hi(mix((x + self.r(i + 1)) % BITS), b)) % b
                x = (x - hi(mix((y + self.r(i)) % BITS), a)) % a
            v = x * b + y
            if v < n:
                return v

    def images(self, n):
        return self.few(n) if n <= 256 else [self.image(n, v) for v in range(n)]


def second_window(one, lane):
    return one["window"] // 2 + 1 + hi((lane + 1) * G % BITS, one["window"])


def naive(one):
    """The positions of all turns, by lists."""
    records, block, lanes, window = (one[name] for name in PARAMETERS[:4])
    blocks = [range(start, min(start + block, records)) for start in range(0, records, block)]
    places = [position for number in Key(one, "blocks").images(len(blocks)) for position in blocks[number]]
    of_lanes = []
    for lane in range(lanes):
        own = places[share(records, lanes, lane) : share(records, lanes, lane + 1)]
        begins, begin = [0], second_window(one, lane)
        while begin + window // 2 + 1 <= len(own):
            begins.append(begin)
            begin += window
        turns = []
        for number, (start, end) in enumerate(zip(begins, [*begins[1:], len(own)])):
            turns += [own[start + image] for image in Key(one, f"lane {lane} window {number}").images(end - start)]
        of_lanes.append(turns)
    return [of_lanes[turn % lanes][turn // lanes] for turn in range(records)]


def window_of(one, lane, u):
    n = share(one["records"], one["lanes"], lane + 1) - share(one["records"], one["lanes"], lane)
    h, e, w = one["window"] // 2 + 1, second_window(one, lane), one["window"]
    last = max(0, (n - h - e) // w + 1)
    k = max(0, min(last, (u - e) // w + 1))
    start, end = 0 if k == 0 else e + (k - 1) * w, n if k == last else e + k * w
    return start, end - start, Key(one, f"lane {lane} window {k}")


def short_end(one, key):
    m = -(-one["records"] // one["block"])
    gap = m * one["block"] - one["records"]
    return m, gap, (key.original(m, m - 1) + 1) * one["block"] - gap


def position_of(one, turn):
    lane, u = turn % one["lanes"], turn // one["lanes"]
    start, size, key = window_of(one, lane, u)
    t = share(one["records"], one["lanes"], lane) + start + key.image(size, u - start)
    key = Key(one, "blocks")
    m, gap, end = short_end(one, key)
    t += 0 if t < end else gap
    return key.image(m, t // one["block"]) * one["block"] + t % one["block"]


def turn_of(one, position):
    key = Key(one, "blocks")
    m, gap, end = short_end(one, key)
    t = key.original(m, position // one["block"]) * one["block"] + position % one["block"]
    t -= 0 if t < end else gap
    low, high = 0, one["lanes"]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if share(one["records"], one["lanes"], middle) <= t else (low, middle)
    u = t - share(one["records"], one["lanes"], low)
    start, size, key = window_of(one, low, u)
    return (start + key.original(size, u - start)) * one["lanes"] + low


def step_turns(one, batch, step, rank, ranks):
    """Turns of a rank in a step, by sorting them."""
    turns = sorted(range(step * batch, min((step + 1) * batch, one["records"])), key=lambda x: (x % one["lanes"], x // one["lanes"]))
    return turns[share(len(turns), ranks, rank) : share(len(turns), ranks, rank + 1)]


# The comparisons.


def any_of(rng, most):
    """A number from 1 on, small ones and those of every size alike."""
    return min(most, rng.choice([rng.randint(1, 4), rng.randint(1, 40), int(2 ** rng.uniform(0, math.log2(most)))]))


def parameters(rng, most):
    records = rng.choice([any_of(rng, most), rng.randint(1, most)])
    one = {"records": records, "block": rng.choice([1, records, any_of(rng, records), any_of(rng, 2**48 - 1)])}
    one["lanes"] = rng.choice([1, any_of(rng, min(records, 65536)), min(records, 64)])
    one["window"] = rng.choice([any_of(rng, 2**40 - 1), any_of(rng, max(1, 4 * records // one["lanes"]) if records < 2**38 else 2**39)])
    one |= {"seed": rng.choice([rng.randrange(3), rng.randrange(BITS)]), "epoch": rng.choice([rng.randrange(3), rng.randrange(BITS)])}
    return one | {"basis": rng.randbytes(32).hex()}


def question(rng, one, some=0):
    """Parameters with a batch and ranks, a step and a rank, and turns: all, or some."""
    each = any_of(rng, max(1, min(40, 4096 // one["lanes"])))
    batch = one["lanes"] * each
    ranks = rng.choice([n for n in range(1, min(batch, 4096) + 1) if batch % n == 0])
    steps = -(-one["records"] // batch)
    last = one["records"] - 1
    turns = sorted({0, last, *(rng.randrange(one["records"]) for _ in range(some))}) if some else range(one["records"])
    step = rng.choice([0, steps - 1, rng.randrange(steps)])
    return one | {"global_batch_size": batch, "ranks": ranks, "step": step, "rank": rng.randrange(ranks), "turns": turns}


def row(one, answers=()):
    turns = "all" if isinstance(one["turns"], range) else ",".join(map(str, one["turns"]))
    lists = [",".join(map(str, answer)) for answer in answers]
    return "\t".join([*(str(one[name]) for name in COLUMNS.split()[:11]), turns, *lists])


def parsed(line):
    columns = line.rstrip("\n").split("\t")
    one = {name: text if name == "basis" else int(text) for name, text in zip(COLUMNS.split()[:11], columns)}
    one["turns"] = range(one["records"]) if columns[11] == "all" else [int(number) for number in columns[11].split(",")]
    return one, [[int(number) for number in text.split(",") if number] for text in columns[12:]]


def oracle_answers(one):
    turns = step_turns(one, one["global_batch_size"], one["step"], one["rank"], one["ranks"])
    if one["records"] <= 10**4:
        every = naive(one)
        backward = {position: turn for turn, position in enumerate(every)}
        expect(f"number of positions of {one}", len(backward), one["records"])
        return [every[x] for x in one["turns"]], [backward[p] for p in one["turns"]], [every[x] for x in turns]
    at = lambda x: position_of(one, x)  # noqa: E731
    return [at(x) for x in one["turns"]], [turn_of(one, p) for p in one["turns"]], [at(x) for x in turns[:40]] if len(turns) <= 40 else []


def python_order(one):
    shape = {name: one[name] for name in PARAMETERS[1:]}
    return shardify.Order(one["records"], **shape, global_batch_size=one["global_batch_size"], drop_last=False)


def python_answers(one, steps=True):
    order = python_order(one)
    read = order.step(one["step"], one["rank"], one["ranks"]) if steps else []
    return [order.position(x) for x in one["turns"]], [order.turn(p) for p in one["turns"]], read


def compare(what, one, found, expected):
    for name, a, b in zip(("positions", "turns", "positions of a step"), found, expected):
        expect(f"{what}: {name} of {({k: v for k, v in one.items() if k != 'turns'})}", list(a), list(b))


def look_at_steps(one, every):
    """All ranks of each step, with and without the last one."""
    order = python_order(one)
    batch, ranks = one["global_batch_size"], one["ranks"]
    for step in range(order.steps):
        found = [order.step(step, rank, ranks) for rank in range(ranks)]
        expect(f"a step of {one}", found, [[every[x] for x in step_turns(one, batch, step, rank, ranks)] for rank in range(ranks)])
        expect(f"a step of one rank of {one}", order.step(step), sum(found, []))
    dropping = shardify.Order(**{name: one[name] for name in PARAMETERS}, global_batch_size=batch)
    expect(f"steps of {one}", (dropping.steps, order.steps), (one["records"] // batch, -(-one["records"] // batch)))


def look_at_python(questions):
    for number, one in enumerate(questions):
        expected = oracle_answers(one)
        compare("Python", one, python_answers(one, bool(expected[2]) or one["records"] <= 10**4), expected)
        if isinstance(one["turns"], range):
            if one["records"] * one["ranks"] <= 20_000:
                look_at_steps(one, expected[0])
            # The oracle answers turn by turn as it does by lists.
            some = one["turns"][:: max(1, len(one["turns"]) // 4)]
            expect(f"turns of {one}", [position_of(one, x) for x in some], [expected[0][x] for x in some])
            expect(f"positions of {one}", [turn_of(one, expected[0][x]) for x in some], list(some))
        yield expected


def rust_rows(rows):
    command = ["cargo", "run", "--quiet", "--locked", "-p", "shardify-order", "--example", "vectors"]
    try:
        done = subprocess.run(command, input="\n".join(rows) + "\n", capture_output=True, text=True, cwd=ROOT, env=os.environ)
    except FileNotFoundError:
        return None
    if done.returncode:
        raise Failure(f"the example `vectors` ended with {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


def look_at_rust(questions, answers):
    found = rust_rows([row(one) for one in questions])
    if found is None:
        return not_run("the crate shardify-order", "cargo is missing; its tests have testdata/order1.tsv")
    expect("rows of the crate", len(found), len(questions))
    for line, one, expected in zip(found, questions, answers):
        ours = parsed(line)[1]
        compare("Rust", one, ours if expected[2] else ours[:2], expected)
    return print(f"the crate: {len(questions)} sets of parameters", flush=True)


def look_at_table():
    lines = (ROOT / "testdata" / "order1.tsv").read_text().splitlines()
    expect("the first line of the table", lines[0], "# " + COLUMNS.replace(" ", "\t"))
    for line in lines[1:]:
        one, committed = parsed(line)
        compare("the oracle and the table", one, oracle_answers(one), committed)
        compare("Python and the table", one, python_answers(one), committed)
    print(f"the committed table: {len(lines) - 1} sets of parameters", flush=True)


def example():
    """The example of docs/FORMAT.md, line by line, as the oracle computes it."""
    one = {"records": 20, "block": 3, "lanes": 2, "window": 4, "seed": 1, "epoch": 0, "basis": "0" * 64}
    key, every = Key(one, "blocks"), naive(one)
    words = lambda numbers: " ".join(map(str, numbers))  # noqa: E731
    m, gap, end = short_end(one, key)
    windows = []
    for lane in (0, 1):
        begins = sorted({window_of(one, lane, u)[:2] for u in range(10)})
        windows.append(", ".join(f"{start}-{start + size - 1}" for start, size in begins))
    other = Key(one, "lane 1 window 1")
    yield "records 20, block 3, lanes 2, window 4, seed 1, epoch 0, basis 00...00 (64 zeros)"
    yield f"key(blocks)              {key.bytes.hex()}"
    yield f"r(0), r(1) of it         0x{key.r(0):016x} 0x{key.r(1):016x}"
    yield f"P(0) .. P(6)             {words(key.images(m))}       gap {gap}, end {end}"
    yield f"windows                  lane 0: {windows[0]}; lane 1: {windows[1]}"
    yield f"key(lane 1 window 1)     {other.bytes.hex()}"
    yield f"images of 0 .. 3 by it   {words(other.images(4))}"
    yield f"turns 0 .. 19            {words(every)}"
    yield f"turn of position 0       {every.index(0)}"
    for rank in (0, 1):
        turns = step_turns(one, 8, 1, rank, 2)
        yield f"B = 8, step 1, rank {rank} of 2   turns {words(turns)}   positions {words(every[x] for x in turns)}"
    last = step_turns(one, 8, 2, 0, 1)
    yield f"B = 8, the rest          turns {words(last)}   positions {words(every[x] for x in last)}"
    yield f"images of 0, 1, 999 of 1000 numbers by key(blocks)   {words(key.image(1000, v) for v in (0, 1, 999))}"


def look_at_example():
    text = (ROOT / "docs" / "FORMAT.md").read_text().split("\n## Orders\n")[1]
    found = re.search(r"^An example\..*?^```\n(.*?)^```$", text, flags=re.M | re.S)
    expect("the example of docs/FORMAT.md", found and found[1].splitlines(), list(example()))
    print(f"the example of docs/FORMAT.md: {len(list(example()))} lines", flush=True)


def look_at_refusals():
    right = {"records": 10, "basis": "0" * 64, "seed": 1, "block": 3, "lanes": 4, "window": 5}
    for change in ({"records": 0}, {"records": 2**48}, {"block": 0}, {"lanes": 11}, {"lanes": 0}, {"window": 2**40}, {"seed": -1}, {"epoch": BITS},
                   {"basis": "0"}, {"basis": "G" * 64}, {"global_batch_size": 10}, {"global_batch_size": 2**31}):  # fmt: skip
        try:
            shardify.Order(**(right | change))
        except shardify.UsageError:
            continue
        raise Failure(f"{change} was accepted")


def edges(rng):
    """Where cases begin and end: counts of blocks and windows about 256 and squares, one lane and as many as records, limits."""
    shape = {"seed": 3, "epoch": 4, "basis": "c3" * 32}
    for count in (1, 2, 3, 4, 5, 255, 256, 257, 288, 289, 290, 323, 324, 325):
        for block, lanes, window in ((1, 1, 1), (count, 1, count), (2, 1, count), (1, count, 1)):
            records = 2 * count - 1 if block == 2 else count
            yield question(rng, {"records": records, "block": block, "lanes": lanes, "window": window, **shape}, 6)
    most = 2**48 - 1
    for block, lanes, window in ((1, 1, 1), (most, 65536, 2**40 - 1), (most - 1, 3, 2**39), (2, 65535, 2)):
        one = {"records": most, "block": block, "lanes": lanes, "window": window, "seed": BITS - 1, "epoch": BITS - 1, "basis": "ff" * 32}
        yield question(rng, one, 6) | {"global_batch_size": lanes, "ranks": lanes, "step": (most - 1) // lanes, "rank": 0}


def table_rows():
    rng = random.Random(20)
    yield "# " + COLUMNS.replace(" ", "\t")
    for one in edges(rng):
        yield row(one, oracle_answers(one))
    for number in range(120):
        one = question(rng, parameters(rng, 40), 0) if number < 40 else question(rng, parameters(rng, 2**48 - 1 if number < 90 else 10**4), 12)
        while number >= 40 and one["global_batch_size"] // one["ranks"] > 40:
            one = question(rng, parameters(rng, 2**48 - 1 if number < 90 else 10**4), 12)
        yield row(one, oracle_answers(one))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", help="not used: the order is a function")
    parser.add_argument("--sets", type=int, default=10_000)
    parser.add_argument("--without-rust", action="store_true")
    parser.add_argument("--print-table", action="store_true")
    options = parser.parse_args()
    if options.print_table:
        return print("\n".join(table_rows()))
    look_at_example()
    look_at_table()
    look_at_refusals()
    rng = random.Random(1)
    # Few lists are long: they take most of the time.
    sizes = [rng.choice([30, 300, 300, 1000, 10**4 if number % 25 == 0 else 1000]) for number in range(options.sets)]
    questions = [question(rng, parameters(rng, size)) for size in sizes]
    questions += edges(rng)
    questions += [question(rng, parameters(rng, 2**48 - 1), 8) for _ in range(options.sets)]
    answers = list(look_at_python(questions))
    print(f"Python: {len(questions)} sets of parameters, {sum(len(one['turns']) for one in questions):,} turns", flush=True)
    if not options.without_rust:
        look_at_rust(questions, answers)
    return None


if __name__ == "__main__":
    finish(main)
