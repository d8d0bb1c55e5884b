#!/usr/bin/env python3
"""Order 1 of docs/FORMAT.md is as random as a uniform permutation, and mixes data that is sorted by class as much as is promised.

The permutations of many keys are computed here with numpy, and are those of `shardify.Order`. Chi-square, z and Kolmogorov-Smirnov tests compare
them with the exact laws of uniform permutations: the images of numbers, of neighbours in a row and in a column, orders of three, fixed points,
cycles, signs, inversions, longest increasing runs, and for 5 numbers all 120 permutations. 12 rounds pass, and so do 6; 2 and 4 rounds must fail, and so
must a grid with an odd number of rows, which gives even permutations alone. The p-values of 1,000 seeds are uniform. Orders of `(seed, epoch + 1)`
and `(seed + 1, epoch)`, of one epoch and the next, and of neighbouring lanes and windows are not correlated.

For data sorted by class, the variance of a class's share of a step is 1 + (c-1)(q-1)/(W-1) times that of independent draws (c turns of a lane in a
step, q records a block, W a window), less where windows end, also at the ends of an epoch; with blocks of one record it is that of a uniform permutation.

All seeds are fixed. `--keys N` is the number of permutations, `--epochs N` that of the orders of sorted data.

    python3 scripts/check.py order_statistics [--keys N] [--epochs N]
"""

import argparse
import hashlib
import itertools
import math
import sys

import numpy as np
from harness import ROOT, Failure, expect, finish
from scipy import stats

sys.path.insert(0, str(ROOT / "python"))
import shardify  # noqa: E402

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# About 150 tests have to stay above the first; what is wrong on purpose falls below the second.
SUSPECT, HOPELESS = 1e-6, 1e-30
BASIS = "5a" * 32
# Records of sorted data.
RECORDS = 20_480
CODES = list(itertools.product(range(3), repeat=3))


def mixed(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def upper(z, limit):
    """The upper 64 bits of a product with a number below 2^32."""
    limit, low = np.uint64(limit), np.uint64(0xFFFFFFFF)
    return ((z >> np.uint64(32)) * limit + ((z & low) * limit >> np.uint64(32))) >> np.uint64(32)


def drawn(first, keys, count):
    """Draws of so many keys, which are hashes of consecutive numbers: keys, count."""
    hashes = b"".join(hashlib.sha256(f"key {number}".encode()).digest() for number in range(first, first + keys))
    words = np.frombuffer(hashes, "<u8").reshape(keys, 4)
    at = np.arange(count)
    return mixed(words[:, at % 4] + (at + 1).astype(np.uint64) * GOLDEN)


def on_grid(draws, numbers, count, even=True):
    """Images of numbers by the rounds of each key: keys, numbers."""
    rows = math.isqrt(count - 1) + 1
    rows += rows % 2 if even else 0
    columns = -(-count // rows)
    a, b = np.uint64(rows), np.uint64(columns)
    value = np.broadcast_to(numbers.astype(np.uint64), (len(draws), len(numbers))).copy()
    left = np.ones(value.shape, bool)
    while left.any():
        x, y = value[left] // b, value[left] % b
        of_key = np.broadcast_to(np.arange(len(draws))[:, None], value.shape)[left]
        for i in range(draws.shape[1]):
            draw = draws[of_key, i]
            if i % 2 == 0:
                x = (x + upper(mixed(y + draw), rows)) % a
            else:
                y = (y + upper(mixed(x + draw), columns)) % b
        value[left] = x * b + y
        left = value >= np.uint64(count)
    return value.astype(np.int64)


def images(first, keys, count, rounds=None, even=True, numbers=None):
    """Images under the permutation of each key: sorted draws up to 256 unless rounds are named."""
    if rounds is None and count <= 256:
        found = np.argsort(drawn(first, keys, count), axis=1, kind="stable")
        return found if numbers is None else found[:, numbers]
    return on_grid(drawn(first, keys, rounds or 12), np.arange(count) if numbers is None else numbers, count, even)


def look_at_python():
    """What is tested here is what `shardify.Order` computes: blocks of one record in windows of one."""
    from shardify._order import _Permutation

    for count in (1, 2, 5, 50, 256, 257, 289, 1000):
        for number in range(3):
            one = _Permutation(hashlib.sha256(f"key {number}".encode()).digest(), count)
            expect(f"the permutation of {count}", [one.forward(i) for i in range(count)], images(number, 1, count)[0].tolist())


def chi_square(values, probabilities):
    counts = np.bincount(values, minlength=len(probabilities))
    return stats.chisquare(counts, len(values) * np.asarray(probabilities)).pvalue


def in_bins(values, count):
    """P-value of numbers below `count`, in up to 64 bins."""
    bins = min(64, count)
    return chi_square(values * bins // count, [(-(-(b + 1) * count // bins) - -(-b * count // bins)) / count for b in range(bins)])


def normal(value, mean, variance, keys):
    """P-value of a sum over keys."""
    return 2 * stats.norm.sf(abs(value - keys * mean) / math.sqrt(keys * variance))


def derangements(count):
    return round(math.factorial(count) / math.e) if count else 1


def fixed_points(count, most=6):
    """Probabilities of 0, 1, ... fixed points; the last is of that many or more."""
    if count <= 20:
        exact = [math.comb(count, k) * derangements(count - k) / math.factorial(count) for k in range(min(most, count + 1))]
    else:
        exact = [math.exp(-1) / math.factorial(k) for k in range(most)]
    return [*exact, max(0.0, 1 - sum(exact))]


def cycles(found):
    """Number of cycles of each permutation: least number that each reaches, by doubling."""
    least, step = np.broadcast_to(np.arange(found.shape[1]), found.shape).copy(), found.copy()
    for _ in range(found.shape[1].bit_length()):
        least = np.minimum(least, np.take_along_axis(least, step, 1))
        step = np.take_along_axis(step, step, 1)
    return (least == np.arange(found.shape[1])).sum(1)


def longest_run(found):
    longest, now = np.ones(len(found), int), np.ones(len(found), int)
    for i in range(1, found.shape[1]):
        now = np.where(found[:, i] > found[:, i - 1], now + 1, 1)
        longest = np.maximum(longest, now)
    return longest


def inversions(found):
    return sum((found[:, i : i + 1] > found[:, i + 1 :]).sum(1) for i in range(found.shape[1] - 1))


def of_whole(found, reference):
    """P-values of whole permutations, and of their cycles, runs and inversions."""
    keys, count = found.shape
    points = np.minimum((found == np.arange(count)).sum(1), 6)
    probabilities = fixed_points(count)
    possible = [k for k, p in enumerate(probabilities) if p * keys >= 5]
    merged = np.searchsorted(possible, points, "right") - 1
    yield "fixed points", chi_square(merged, [sum(probabilities[k] for k in range(a, b)) for a, b in itertools.pairwise([*possible, 7])])
    number = cycles(found)
    harmonic = sum(1 / i for i in range(1, count + 1))
    yield "cycles", normal(number.sum(), harmonic, harmonic - sum(1 / i**2 for i in range(1, count + 1)), keys)
    yield "signs", stats.binomtest(int(((count - number) % 2).sum()), keys).pvalue
    yield "inversions", normal(inversions(found).sum(), count * (count - 1) / 4, count * (count - 1) * (2 * count + 5) / 72, keys)
    runs = [np.bincount(np.clip(longest_run(one), 0, 11), minlength=12) for one in (found, reference)]
    table = np.array([row for row in np.array(runs).T if row.min() >= 5])
    yield "longest runs", stats.chi2_contingency(table).pvalue if len(table) > 1 else 1.0
    if count == 5:
        code = (found * 5 ** np.arange(5)).sum(1)
        every = sorted(sum(v * 5**i for i, v in enumerate(one)) for one in itertools.permutations(range(5)))
        yield "all permutations", chi_square(np.searchsorted(every, code), [1 / 120] * 120)


def p_values(keys, count, rounds=None, even=True):
    """P-values of the permutations of so many keys."""
    columns = -(-count // (math.isqrt(count - 1) + 1 + (math.isqrt(count - 1) + 1) % 2))
    watched = np.array(sorted({0, 1, 2, columns, count - 1, count // 2}))
    places = dict(zip(watched.tolist(), images(0, keys, count, rounds, even, watched).T))
    for number, found in places.items():
        yield f"image of {number}", in_bins(found, count)
    for name, other in (("in a row", 1), ("in a column", columns)):
        yield f"neighbours {name}", in_bins((places[other] - places[0]) % count - 1, count - 1)
    three = np.stack([places[0], places[1], places[count - 1]])
    yield "orders of three", chi_square(three.argsort(0).T @ [9, 3, 1], [(len({*code}) == 3) / 6 or 1e-300 for code in CODES])
    fewer = max(200, keys * 50 // max(count, 50))
    rng = np.random.default_rng(count)
    found = np.concatenate([images(at, min(250, fewer - at), count, rounds, even) for at in range(0, fewer, 250)])
    yield from of_whole(found, rng.random((4 * fewer, count)).argsort(1))


def look_at_permutations(keys):
    tested = 0
    for count in (5, 17, 50, 256, 257, 289, 1000):
        for rounds in [None] if count <= 256 else [None, 6]:
            found = dict(p_values(keys, count, rounds))
            tested += len(found)
            name, least = min(found.items(), key=lambda one: one[1])
            what = f"{count} numbers, {'sorted' if count <= 256 else f'{rounds or 12} rounds'}"
            if least < SUSPECT:
                raise Failure(f"{what}: {name}: p = {least:.2g}")
            print(f"{what}: {len(found)} tests, least p = {least:.3g} ({name})", flush=True)
    weak = {"2 rounds": (1000, 2, True), "4 rounds": (257, 4, True), "an odd grid": (289, 12, False)}
    for what, shape in weak.items():
        wrong = dict(p_values(keys, *shape))
        name, least = min(wrong.items(), key=lambda one: one[1])
        if least > HOPELESS:
            raise Failure(f"{what}: expected to be found, least p = {least:.2g} ({name})")
        print(f"{what}: found, p = {least:.2g} ({name})", flush=True)
    return tested


def look_at_p_values():
    """Of each of 1,000 seeds, the images of 640 numbers of 10^6 in 64 bins."""
    found = images(10**6, 1000, 10**6, numbers=np.arange(640) * 1561)
    uniform = stats.kstest([in_bins(one, 10**6) for one in found], "uniform").pvalue
    if uniform < SUSPECT:
        raise Failure(f"the p-values of 1,000 seeds are not uniform: p = {uniform:.2g}")
    print(f"p-values of 1,000 seeds: uniform with p = {uniform:.3g}", flush=True)


def order(seed=0, epoch=0, **more):
    shape = {"records": 1000, "block": 7, "lanes": 5, "window": 60, **more}
    return shardify.Order(shape.pop("records"), basis=BASIS, seed=seed, epoch=epoch, **shape)


def listed(one):
    return np.array([one.position(turn) for turn in range(len(one))])


def look_at_pairs(pairs):
    """Orders that differ by little are not correlated, also with blocks of one record, and agree as often as by chance."""
    pairs_of = {
        "(s, e+1) and (s+1, e)": lambda s: (order(s, 1, block=1), order(s + 1, 0, block=1)),
        "an epoch and the next": lambda s: (order(s, 0, block=1), order(s, 1, block=1)),
        "a window and a larger one": lambda s: (order(s, window=60, block=1), order(s, window=61, block=1)),
    }
    for what, two in pairs_of.items():
        lists = [tuple(map(listed, two(1000 * s))) for s in range(pairs)]
        judge(what, lists)
    # Neighbouring windows of one lane, and of two lanes: the numbers of their permutations.
    lists = {"a window and the next": [], "a window and that of the next lane": []}
    for seed in range(pairs):
        one = order(seed, records=1000, block=1000, lanes=2, window=100)
        first = [one._window(0, 250), one._window(0, 350), one._window(1, 250)]
        numbers = [np.array([permutation.forward(i) for i in range(100)]) for _, permutation in first]
        lists["a window and the next"].append((numbers[0], numbers[1]))
        lists["a window and that of the next lane"].append((numbers[0], numbers[2]))
    for what, both in lists.items():
        judge(what, both)


def judge(what, lists):
    count = len(lists[0][0])
    scores = [np.corrcoef(a, b)[0, 1] * math.sqrt(count - 1) for a, b in lists]
    agreed = sum(int((a == b).sum()) for a, b in lists)
    found = {"correlation": stats.kstest(scores, "norm").pvalue, "agreements": normal(agreed, 1, 1, len(lists))}
    for name, p in found.items():
        if p < SUSPECT:
            raise Failure(f"{what}: {name}: p = {p:.2g}")
    print(f"{what}: " + ", ".join(f"{name} p = {p:.3g}" for name, p in found.items()), flush=True)


def excess(positions, batch, classes=10):
    """Variance of the shares of classes in each step, in terms of that of independent draws; data is sorted by class."""
    steps = len(positions) // batch
    of_step = (positions * classes // len(positions))[: steps * batch].reshape(steps, batch)
    counts = np.stack([(of_step == one).sum(1) for one in range(classes)], axis=1)
    return ((counts - batch / classes) ** 2 / (batch / classes * (1 - 1 / classes))).mean(axis=1)


def look_at_classes(epochs):
    """Steps of sorted data, over whole epochs and at their ends."""
    rng = np.random.default_rng(2)
    for block, lanes, window, batch in ((16, 16, 128, 128), (16, 16, 64, 256), (1, 16, 128, 128), (20, 8, 400, 128)):
        each = batch // lanes
        most = 1 + (each - 1) * (block - 1) / (window - 1)
        # Less where steps lie in two windows and where windows end in a block; and each block comes once, unlike independent draws.
        cut = (1 - (each + 1) / (3 * window)) * (1 - (block + 1) / (3 * window))
        expected = 1 + (most - 1) * cut - batch * block / RECORDS
        shape = {"records": RECORDS, "block": block, "lanes": lanes, "window": window}
        found = np.array([excess(listed(order(seed, **shape)), batch) for seed in range(epochs)])
        uniform = np.array([excess(rng.permutation(RECORDS), batch) for _ in range(epochs)]).mean()
        mean, ends = found.mean(), np.concatenate([found[:, :5], found[:, -5:]]).mean()
        print(f"block {block}, {lanes} lanes, window {window}, batch {batch}: {mean:.2f} x independent draws (formula {most:.2f}, "
              f"expected {expected:.2f}, uniform {uniform:.2f}), first and last five steps {ends:.2f}", flush=True)  # fmt: skip
        if not 0.9 * expected < mean < 1.1 * expected:
            raise Failure(f"class noise: expected {expected:.2f}, found {mean:.2f}")
        if ends > 1.25 * most:
            raise Failure(f"class noise at the ends of an epoch: expected at most {most:.2f}, found {ends:.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shardify", help="not used: the order is a function")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    look_at_python()
    look_at_permutations(options.keys)
    look_at_p_values()
    look_at_pairs(options.pairs)
    look_at_classes(options.epochs)


if __name__ == "__main__":
    finish(main)
