"""The order in which a training loader reads a dataset, as a function: order 1 of docs/FORMAT.md, in pure Python.

No table and no shuffle buffer: the position of a turn, and the turn of a position, are computed one by one, whatever the dataset's size.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math

from .errors import UsageError

_GOLDEN, _MASK, _ROUNDS, _SMALL = 0x9E3779B97F4A7C15, (1 << 64) - 1, 12, 256
# Least and greatest value of each parameter.
LIMITS = {"records": (1, 2**48 - 1), "block": (1, 2**48 - 1), "lanes": (1, 65536), "window": (1, 2**40 - 1)}
LIMITS |= {"seed": (0, _MASK), "epoch": (0, _MASK), "global_batch_size": (1, 2**31 - 1)}


@dataclasses.dataclass(frozen=True)
class Order:
    """The order of one epoch: a permutation of the positions `0 .. records - 1`, and the steps that it is dealt to.

        order = shardify.Order(1_281_167, basis=basis, seed=1, block=140, lanes=64, window=1120, global_batch_size=1024)
        for step in range(order.steps):
            positions = order.step(step, rank, world_size)

    A step has the same records at any number of ranks. `dataclasses.replace(order, epoch=1)` is the next epoch.

    records: number of records of the dataset or split
    basis: 64 hexadecimal digits that name the data, such as a hash of its list of shards
    seed, epoch: each pair of them has an order of its own
    block: consecutive records that are read together
    lanes: number of sequences of blocks that take turns
    window: records of a lane that are shuffled together
    global_batch_size: records of a step over all ranks, a multiple of `lanes`, by default `lanes`
    drop_last: leave out the last records of the order, which do not fill a step; else the last step is shorter
    """

    records: int
    _: dataclasses.KW_ONLY
    basis: str
    seed: int
    block: int
    lanes: int
    window: int
    epoch: int = 0
    global_batch_size: int = 0
    drop_last: bool = True

    def __post_init__(self) -> None:
        if self.global_batch_size == 0:
            object.__setattr__(self, "global_batch_size", self.lanes)
        for name, (least, most) in LIMITS.items():
            if not least <= getattr(self, name) <= most:
                raise UsageError(f"`{name}` is {getattr(self, name)}; expected a number from {least} to {most}")
        if len(self.basis) != 64 or set(self.basis) - set("0123456789abcdef"):
            raise UsageError(f"`basis` is {self.basis!r}; expected 64 lowercase hexadecimal digits")
        if self.lanes > self.records:
            raise UsageError(f"`lanes` is {self.lanes}; expected at most one for each of the {self.records} records")
        batch = self.global_batch_size
        if batch % self.lanes:
            near = sorted({max(1, batch // self.lanes) * self.lanes, (batch // self.lanes + 1) * self.lanes})
            raise UsageError(f"`global_batch_size` {batch} is not a multiple of the {self.lanes} lanes; use {_either(near)}")

    def __len__(self) -> int:
        return self.records

    def position(self, turn: int) -> int:
        """Returns the position of the record whose turn it is."""
        lane, in_lane = self._checked(turn, "turn") % self.lanes, turn // self.lanes
        start, permutation = self._window(lane, in_lane)
        place = _share(self.records, self.lanes, lane) + start + permutation.forward(in_lane - start)
        if place >= self._after_short:
            place += self._missing
        return self._blocks.forward(place // self.block) * self.block + place % self.block

    def turn(self, position: int) -> int:
        """Returns the turn of the record at a position."""
        place = self._blocks.backward(self._checked(position, "position") // self.block) * self.block + position % self.block
        if place >= self._after_short:
            place -= self._missing
        lane = _share_of(self.records, self.lanes, place)
        in_lane = place - _share(self.records, self.lanes, lane)
        start, permutation = self._window(lane, in_lane)
        return (start + permutation.backward(in_lane - start)) * self.lanes + lane

    @property
    def steps(self) -> int:
        """Number of steps of the epoch."""
        full, rest = divmod(self.records, self.global_batch_size)
        return full + (rest > 0 and not self.drop_last)

    def step(self, step: int, rank: int = 0, world_size: int = 1) -> list[int]:
        """Returns the positions that a rank reads in a step, counted from the start of the epoch."""
        if not 0 <= step < self.steps:
            raise IndexError(f"step {step} of an epoch of {self.steps} steps")
        batch = self.global_batch_size
        if world_size < 1 or batch % world_size:
            near = [next((n for n in range(world_size, 0, -1) if batch % n == 0), 1)]
            near += [n for n in range(max(1, world_size), min(batch, 2 * max(1, world_size)) + 1) if batch % n == 0][:1]
            raise UsageError(f"`global_batch_size` {batch} cannot be divided among {world_size} ranks; use {_either(near)} ranks")
        if not 0 <= rank < world_size:
            raise UsageError(f"`rank` is {rank}; expected a number from 0 to {world_size - 1}")
        first = step * batch
        count = min(batch, self.records - first)
        positions = []
        for slot in range(_share(count, world_size, rank), _share(count, world_size, rank + 1)):
            lane = _share_of(count, self.lanes, slot)
            positions.append(self.position(first + (slot - _share(count, self.lanes, lane)) * self.lanes + lane))
        return positions

    def _checked(self, number: int, what: str) -> int:
        if not 0 <= number < self.records:
            raise IndexError(f"{what} {number} of an order of {self.records} records")
        return number

    @functools.cached_property
    def _blocks(self) -> _Permutation:
        return _Permutation(self._key("blocks"), -(-self.records // self.block))

    @functools.cached_property
    def _missing(self) -> int:
        """How many records the last block lacks."""
        return -self.records % self.block

    @functools.cached_property
    def _after_short(self) -> int:
        """The place after the last block of the dataset, where it is among the permuted blocks."""
        return (self._blocks.backward(self._blocks.count - 1) + 1) * self.block - self._missing

    def _key(self, purpose: str) -> bytes:
        lines = [f"basis {self.basis}", f"records {self.records}", f"block {self.block}", f"lanes {self.lanes}"]
        lines += [f"window {self.window}", f"seed {self.seed}", f"epoch {self.epoch}", purpose]
        return hashlib.sha256("".join(f"{line}\n" for line in ["shardify order 1", *lines]).encode()).digest()

    def _window(self, lane: int, turn: int) -> tuple[int, _Permutation]:
        """First turn, and permutation, of the window that contains a turn of a lane."""
        count = _share(self.records, self.lanes, lane + 1) - _share(self.records, self.lanes, lane)
        least = self.window // 2 + 1
        second = least + (((lane + 1) * _GOLDEN & _MASK) * self.window >> 64)
        last = max(0, (count - least - second) // self.window + 1)
        number = max(0, min(last, (turn - second) // self.window + 1))
        start = second + (number - 1) * self.window if number > 0 else 0
        end = second + number * self.window if number < last else count
        return start, _window_permutation(self, f"lane {lane} window {number}", end - start)


class _Permutation:
    """A permutation of the numbers below `count`, without a table where they are many."""

    def __init__(self, key: bytes, count: int) -> None:
        self.count = count
        keys = [int.from_bytes(key[at : at + 8], "little") for at in range(0, 32, 8)]
        drawn = [_mix(keys[i % 4] + (i + 1) * _GOLDEN) for i in range(min(count, _SMALL) if count <= _SMALL else _ROUNDS)]
        self._rounds, self._sorted, self._ranks = drawn, list[int](), list[int]()
        if count <= _SMALL:
            self._sorted = sorted(range(count), key=drawn.__getitem__)
            self._ranks = sorted(range(count), key=self._sorted.__getitem__)
            return
        root = math.isqrt(count - 1) + 1
        self._rows = root + root % 2
        self._columns = -(-count // self._rows)

    def forward(self, number: int) -> int:
        """Returns the image of a number."""
        if self._sorted:
            return self._sorted[number]
        while True:
            x, y = divmod(number, self._columns)
            for i, drawn in enumerate(self._rounds):
                if i % 2 == 0:
                    x = (x + (_mix(y + drawn) * self._rows >> 64)) % self._rows
                else:
                    y = (y + (_mix(x + drawn) * self._columns >> 64)) % self._columns
            number = x * self._columns + y
            if number < self.count:
                return number

    def backward(self, image: int) -> int:
        """Returns the number that has an image."""
        if self._ranks:
            return self._ranks[image]
        while True:
            x, y = divmod(image, self._columns)
            for i in range(_ROUNDS - 1, -1, -1):
                if i % 2 == 0:
                    x = (x - (_mix(y + self._rounds[i]) * self._rows >> 64)) % self._rows
                else:
                    y = (y - (_mix(x + self._rounds[i]) * self._columns >> 64)) % self._columns
            image = x * self._columns + y
            if image < self.count:
                return image


@functools.lru_cache(maxsize=4096)
def _window_permutation(order: Order, purpose: str, count: int) -> _Permutation:
    return _Permutation(order._key(purpose), count)


def _mix(z: int) -> int:
    """The finalizer of SplitMix64."""
    z &= _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def _share(count: int, parts: int, part: int) -> int:
    """Returns where a part begins if so many numbers are cut into so many parts that differ by one at most, larger ones first."""
    return part * (count // parts) + min(part, count % parts)


def _share_of(count: int, parts: int, number: int) -> int:
    """Returns the part that contains a number."""
    size, larger = divmod(count, parts)
    border = larger * (size + 1)
    return number // (size + 1) if number < border else larger + (number - border) // size


def _either(numbers: list[int]) -> str:
    return " or ".join(str(number) for number in dict.fromkeys(numbers))
