"""Orders of training loaders: both directions, steps, and what is refused. `scripts/checks/order_check.py` compares them with an oracle."""

from __future__ import annotations

import dataclasses
import pickle
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import shardify

# The example of docs/FORMAT.md.
EXAMPLE = [13, 3, 7, 2, 6, 1, 14, 18, 12, 19, 10, 5, 9, 4, 11, 17, 8, 16, 0, 15]


def example(**more: int) -> shardify.Order:
    return dataclasses.replace(shardify.Order(20, basis="0" * 64, seed=1, block=3, lanes=2, window=4), **more)


class Orders(unittest.TestCase):
    def test_turns_and_positions_are_those_of_the_format(self) -> None:
        order = example()
        self.assertEqual([order.position(turn) for turn in range(len(order))], EXAMPLE)
        self.assertEqual([order.turn(position) for position in EXAMPLE], list(range(20)))
        self.assertEqual(pickle.loads(pickle.dumps(order)), order)
        for wrong in (-1, 20):
            with self.assertRaises(IndexError):
                order.position(wrong)
            with self.assertRaises(IndexError):
                order.turn(wrong)

    def test_another_epoch_and_seed_are_other_orders(self) -> None:
        orders = [example(), example(epoch=1), example(seed=2), example(seed=0, epoch=1)]
        self.assertEqual(len({tuple(order.position(turn) for turn in range(20)) for order in orders}), 4)

    def test_ranks_share_a_step(self) -> None:
        order = example(global_batch_size=8)
        self.assertEqual((order.steps, dataclasses.replace(order, drop_last=False).steps), (2, 3))
        self.assertEqual(order.step(1), [12, 10, 9, 11, 19, 5, 4, 17])
        for ranks in (1, 2, 4, 8):
            self.assertEqual([one for rank in range(ranks) for one in order.step(1, rank, ranks)], order.step(1))
        self.assertEqual(dataclasses.replace(order, drop_last=False).step(2), [8, 0, 16, 15])
        with self.assertRaisesRegex(IndexError, "step 2 of an epoch of 2 steps"):
            order.step(2)

    def test_what_is_wrong_is_named_with_what_works(self) -> None:
        cases = [
            (lambda: example(records=2, lanes=3), "`lanes` is 3; expected at most one for each of the 2 records"),
            (lambda: example(window=0), "`window` is 0; expected a number from 1 to 1099511627775"),
            (lambda: example(global_batch_size=7), "use 6 or 8"),
            (lambda: example(global_batch_size=8).step(0, 0, 3), "use 2 or 4 ranks"),
            (lambda: example(global_batch_size=8).step(0, 0, 9), "use 8 ranks"),
            (lambda: example(global_batch_size=8).step(0, 2, 2), "`rank` is 2; expected a number from 0 to 1"),
        ]
        for call, said in cases:
            with self.assertRaises(shardify.UsageError) as raised:
                call()
            self.assertIn(said, str(raised.exception))


if __name__ == "__main__":
    unittest.main()
