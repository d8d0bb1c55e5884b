//! Orders against naive lists, and as bijections.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn parameters() -> impl Strategy<Value = OrderParameters> {
    let size = prop_oneof![1u64..20, 1u64..700, Just(1), Just(1 << 30)];
    (1u64..1500, size.clone(), 1u64..40, size, any::<u64>(), any::<u64>(), any::<[u8; 32]>()).prop_map(
        |(records, block, lanes, window, seed, epoch, basis)| OrderParameters {
            records,
            block,
            lanes: lanes.min(records),
            window,
            seed,
            epoch,
            basis,
        },
    )
}

fn divisors(number: u64) -> Vec<u64> {
    (1..=number).filter(|divisor| number.is_multiple_of(*divisor)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_order_is_a_bijection(parameters in parameters()) {
        let order = EpochOrder::new(parameters.clone()).unwrap();
        let positions: Vec<u64> = (0..parameters.records).map(|turn| order.position_at(turn).unwrap()).collect();
        let mut sorted = positions.clone();
        sorted.sort_unstable();
        prop_assert!(sorted.into_iter().eq(0..parameters.records));
        for (turn, position) in (0..).zip(&positions) {
            prop_assert_eq!(order.turn_of(*position), Some(turn));
        }
        prop_assert_eq!(order.position_at(parameters.records), None);
        prop_assert_eq!(order.turn_of(parameters.records), None);
    }

    #[test]
    fn windows_have_the_positions_of_their_turns(parameters in parameters()) {
        let order = EpochOrder::new(parameters.clone()).unwrap();
        for lane in 0..parameters.lanes {
            let mut next = 0;
            for window in order.windows(lane, 0..u64::MAX) {
                prop_assert_eq!(window.turns.start, next);
                next = window.turns.end;
                let turns = window.turns.clone().map(|turn| turn * parameters.lanes + lane);
                let of_turns = turns.map(|turn| order.position_at(turn).unwrap());
                let positions: Vec<u64> = order.window_positions(&window).collect();
                prop_assert!(of_turns.eq(positions.iter().copied()));
                let read: Vec<u64> = order.window_blocks(&window).flat_map(|block| block.positions).collect();
                let taken: Vec<u64> =
                    order.window_permutation(&window).map(|at| read[usize::try_from(at).unwrap()]).collect();
                prop_assert_eq!(taken, positions);
                for OrderBlock { number, positions } in order.window_blocks(&window) {
                    let last = positions.end - 1;
                    prop_assert_eq!((positions.start / parameters.block, last / parameters.block), (number, number));
                }
            }
            prop_assert_eq!(next, order.lane_records(lane));
        }
        prop_assert_eq!(order.lane_records(parameters.lanes), 0);
    }

    #[test]
    fn steps_deal_each_turn_once_lane_by_lane(
        parameters in parameters(), each in 1u64..6, which in any::<prop::sample::Index>(),
    ) {
        let order = EpochOrder::new(parameters.clone()).unwrap();
        let batch = parameters.lanes * each;
        let all = divisors(batch);
        let ranks = all[which.index(all.len())];
        let layout = StepLayout::new(&order, batch, Remainder::Delivered).unwrap();
        for step in 0..layout.steps() {
            let mut expected: Vec<u64> = (step * batch..parameters.records.min((step + 1) * batch)).collect();
            expected.sort_by_key(|turn| (turn % parameters.lanes, turn / parameters.lanes));
            let mut found = Vec::new();
            for rank in 0..ranks {
                let rank = layout.rank(rank, ranks).unwrap();
                let turns: Vec<u64> = layout.turns_of(step, rank).unwrap().collect();
                let least = expected.len() as u64 / ranks;
                prop_assert!((least..=least + 1).contains(&(turns.len() as u64)));
                for (slot, turn) in layout.slots_of(step, rank).unwrap().zip(&turns) {
                    prop_assert_eq!(layout.slot_of(*turn), Some(StepSlot { step, slot }));
                }
                found.extend(turns);
            }
            prop_assert_eq!(found, expected);
        }
        let dropped = StepLayout::new(&order, batch, Remainder::Dropped).unwrap();
        prop_assert_eq!(dropped.steps(), parameters.records / batch);
        prop_assert_eq!((dropped.dropped(), layout.dropped()), (parameters.records % batch, 0));
        prop_assert_eq!(dropped.slot_of(parameters.records - 1).is_some(), dropped.dropped() == 0);
        prop_assert_eq!(layout.slot_of(parameters.records), None);
    }

    #[test]
    fn reads_are_the_windows_of_the_steps_in_turn(
        parameters in parameters(), each in 1u64..6, which in any::<prop::sample::Index>(),
        start in 0u64..20, count in 0u64..20,
    ) {
        let order = EpochOrder::new(parameters.clone()).unwrap();
        let batch = parameters.lanes * each;
        let all = divisors(batch);
        let ranks = all[which.index(all.len())];
        let layout = StepLayout::new(&order, batch, Remainder::Delivered).unwrap();
        for rank in [0, ranks / 2, ranks - 1] {
            let rank = layout.rank(rank, ranks).unwrap();
            let reads: Vec<WindowRead> = order.window_reads(&layout, start..start + count, rank).collect();
            let mut expected = Vec::new();
            let mut seen = BTreeSet::new();
            for step in start..(start + count).min(layout.steps()) {
                for turn in layout.turns_of(step, rank).unwrap() {
                    let window = order.window_at(turn % parameters.lanes, turn / parameters.lanes).unwrap();
                    if seen.insert((window.lane, window.number)) {
                        expected.push(WindowRead { step, window });
                    }
                }
            }
            prop_assert_eq!(reads, expected);
        }
    }
}

#[test]
fn the_largest_parameters_are_inverted() {
    let records = (1 << 48) - 1;
    for (block, lanes, window) in [(1, 1, 1), ((1 << 48) - 1, 65_536, (1 << 40) - 1), (12_345, 65_535, 1 << 39)] {
        let order = EpochOrder::new(OrderParameters {
            records,
            block,
            lanes,
            window,
            seed: 1,
            epoch: u64::MAX,
            basis: [255; 32],
        })
        .unwrap();
        for turn in (0..records).step_by(1 << 39).chain([records - 1]) {
            let position = order.position_at(turn).unwrap();
            assert_eq!(order.turn_of(position), Some(turn), "{block} {lanes} {window}");
        }
    }
}

#[test]
fn wrong_parameters_are_named() {
    let right = OrderParameters { records: 10, block: 3, lanes: 4, window: 5, seed: 0, epoch: 0, basis: [0; 32] };
    let said = |change: &dyn Fn(&mut OrderParameters)| {
        let mut parameters = right.clone();
        change(&mut parameters);
        EpochOrder::new(parameters).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(said(&|_| {}), "");
    assert_eq!(said(&|p| p.records = 0), "records is 0; expected a number from 1 to 281474976710655");
    assert_eq!(said(&|p| p.window = 1 << 40), "window is 1099511627776; expected a number from 1 to 1099511627775");
    assert_eq!(said(&|p| p.lanes = 11), "lanes is 11; expected at most one for each of the 10 records");
    let order = EpochOrder::new(right).unwrap();
    let layout = StepLayout::new(&order, 8, Remainder::Dropped).unwrap();
    assert!(StepLayout::new(&order, 1 << 31, Remainder::Dropped).is_err());
    assert_eq!(layout.rank(0, 3), Err(OrderError::BatchNotOfRanks { batch: 8, ranks: 3 }));
    assert!(layout.rank(2, 2).is_err());
    let rank = layout.rank(1, 2).unwrap();
    assert_eq!(layout.slots_of(1, rank), Err(OrderError::NoSuchStep { step: 1, steps: 1 }));
}
