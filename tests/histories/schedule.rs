//! Every pair of commands: one of them is paused at each of its storage calls while the other runs to its end.
//!
//! The paused command is then resumed, or ended there. Afterwards, each acknowledged command has had exactly its
//! effect, and so has the other one unless it had a conflict; a command that failed can be repeated; and a vacuum
//! leaves nothing behind.
//!
//! ```text
//! first     call 1 .. call k |                      | resumed, or ended         repeated if it failed
//! second                     | from start to end    |                           |                          vacuum, verify
//! ```
//!
//! By default, one point of every eighth pair is tested. `SHARDIFY_SCHEDULE` selects `all` points, or a number of points
//! of each pair, which `SHARDIFY_SEED` determines. `SHARDIFY_PAIR=first,second` selects one pair, `SHARDIFY_POINT=17`
//! one point of it.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Once,
};

use super::dice::Dice;
use super::gate::Gate;
use super::world::{Command, Ended, Ground, World, describe};
use shardify::format::OutputFormat;

/// One in so many pairs is tested by default.
const PAIR_STEP: u64 = 8;

/// Number of points per pair by default.
const DEFAULT_POINTS: usize = 1;

/// Rows of each source.
const ROWS: usize = 3;

/// Adds threads to the global pool, so that waiting threads of one run do not block those of another.
fn many_threads() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rayon::ThreadPoolBuilder::new().num_threads(24).build_global();
    });
}

/// Returns the commands to pair. Sources 10 and 11 have the same name and size.
fn commands(format: OutputFormat) -> Vec<(&'static str, Command)> {
    let erase = |who: &str, all| Command::Erase { who: who.to_owned(), all };
    let mut out = vec![
        ("convert", Command::Convert(10)),
        ("convert-twin", Command::Convert(11)),
        ("convert-stdin", Command::ConvertStdin(12)),
        ("adopt", Command::AdoptLinked(13)),
        ("adopt-twin", Command::AdoptLinked(14)),
        ("adopt-in-place", Command::AdoptInPlace),
        ("compact", Command::Compact),
        ("erase", erase("P01", false)),
        ("erase-all", erase("P02", true)),
        ("vacuum", Command::Vacuum),
        ("remove", Command::Remove(3)),
        ("revert", Command::Revert { back: 2 }),
        ("tag", Command::Tag { name: "now".to_owned(), back: 1 }),
        ("untag", Command::Untag("first".to_owned())),
        ("read", Command::Read),
    ];
    if format == OutputFormat::Parquet {
        out.insert(7, ("sort", Command::Sort));
        out.insert(8, ("zorder", Command::ZOrder));
    }
    if format == OutputFormat::TfRecord {
        out.retain(|(_, command)| !matches!(command, Command::AdoptLinked(_) | Command::AdoptInPlace));
    }
    out
}

/// Creates a dataset with some history: conversions, a tag, a compaction, an adoption, and shards in its folder.
fn start(ground: Ground, format: OutputFormat, pipe: usize) -> World {
    let mut world = World::new(ground, format, 1 << 20, ROWS, pipe);
    let mut steps = vec![
        Command::Convert(1),
        Command::Convert(2),
        Command::Tag { name: "first".to_owned(), back: 0 },
        Command::Compact,
        Command::Convert(3),
        Command::Convert(4),
    ];
    if format != OutputFormat::TfRecord {
        world.give_in_place(20);
        steps.push(Command::AdoptLinked(5));
    }
    // A revert by two versions restores records.
    steps.push(Command::Remove(4));
    for step in steps {
        world.prepare(&step);
        let ended = world.run(&step, None);
        world.settle(&[&ended]).unwrap_or_else(|e| panic!("before anything happened: {step:?}: {e}"));
    }
    world.plant_beside_shards();
    world
}

/// Pauses `first` at a point, runs `second`, and checks everything.
fn case(base: &World, first: &Command, second: &Command, point: usize, kill: bool) -> (Option<String>, String) {
    let mut world = base.copied();
    world.prepare(first);
    world.prepare(second);
    let gate = Gate::new(point);
    let (mine, theirs) = std::thread::scope(|scope| {
        let (world, gate) = (&world, &gate);
        let stopped = scope.spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| world.run(first, Some(gate))));
            gate.mark_finished();
            ended
        });
        gate.wait();
        let theirs = catch_unwind(AssertUnwindSafe(|| world.run(second, None)));
        if kill {
            gate.end()
        } else {
            gate.go()
        }
        (stopped.join().unwrap(), theirs)
    });
    let call = gate.trace().get(point).cloned().unwrap_or_else(|| "the end".to_owned());
    let (Ok(mine), Ok(theirs)) = (mine, theirs) else {
        return (Some("a command panicked".to_owned()), call);
    };
    let check = || -> Result<(), String> {
        world.settle(&[&mine, &theirs])?;
        // Failed commands are repeated.
        for ended in [&mine, &theirs] {
            if ended.result.is_err() {
                let again = world.run(&ended.command, None);
                world.settle(&[&again]).map_err(|e| format!("again: {e}"))?;
            }
        }
        world.finish()
    };
    let checked = catch_unwind(AssertUnwindSafe(check));
    let checked = checked.unwrap_or_else(|_| Err("checking the dataset panicked".to_owned()));
    let outcome = |ended: &Ended| match &ended.result {
        Ok(version) => format!("ok {version:?}"),
        Err(e) => describe(e),
    };
    let failure =
        checked.err().map(|e| format!("{e}\n      first: {}\n      second: {}", outcome(&mine), outcome(&theirs)));
    (failure, call)
}

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Tests all pairs on one ground in one format.
fn all_pairs(ground: Ground, format: OutputFormat, pipe: usize) {
    many_threads();
    let base = start(ground, format, pipe);
    let commands = commands(format);
    let wanted = setting("SHARDIFY_SCHEDULE");
    let pair = setting("SHARDIFY_PAIR");
    let only: Option<usize> = setting("SHARDIFY_POINT").map(|point| point.parse().unwrap());
    let seed: u64 = setting("SHARDIFY_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut todo = Vec::new();
    let mut dice = Dice(seed);
    for (name, first) in &commands {
        // Count the calls that the command makes without interference.
        let world = base.copied();
        world.prepare(first);
        let gate = Gate::open();
        let ended = world.run(first, Some(&gate));
        assert!(ended.result.is_ok(), "{name} alone: {ended:?}");
        let calls = gate.calls();
        for (other, second) in &commands {
            if pair.as_ref().is_some_and(|pair| *pair != format!("{name},{other}")) {
                continue;
            }
            let points: Vec<usize> = match (&wanted, only) {
                (_, Some(point)) => vec![point],
                (Some(all), _) if all == "all" => (0..calls).collect(),
                (Some(some), _) => (0..some.parse().unwrap()).map(|_| dice.below(calls)).collect(),
                (None, _) => (0..DEFAULT_POINTS).map(|_| dice.below(calls)).collect(),
            };
            for point in points {
                let both = wanted.is_some() || only.is_some();
                let ends: &[bool] = if both { &[false, true] } else { &[[false, true][dice.below(2)]] };
                for kill in ends.iter().copied() {
                    todo.push((format!("{name},{other}"), first, second, point, kill));
                }
            }
        }
    }
    if wanted.is_none() && pair.is_none() {
        // Test a part of the pairs, which depends on the seed.
        let mut number = seed;
        todo.retain(|_| {
            number += 1;
            number.is_multiple_of(PAIR_STEP)
        });
    }
    let mut failed: BTreeMap<String, usize> = BTreeMap::new();
    for (name, first, second, point, kill) in &todo {
        let (failure, call) = case(&base, first, second, *point, *kill);
        if let Some(failure) = failure {
            let ended = if *kill { ", ended there" } else { "" };
            eprintln!("FAILED {ground:?} {format} {name} at {point}{ended} ({call}): {failure}");
            *failed.entry(name.clone()).or_default() += 1;
        }
    }
    eprintln!("{ground:?} {format}: {} cases of seed {seed}, failed {failed:?}", todo.len());
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn local_parquet() {
    all_pairs(Ground::Local, OutputFormat::Parquet, 0);
}

#[test]
fn local_tar() {
    all_pairs(Ground::Local, OutputFormat::Tar, 1);
}

#[test]
fn lockless_parquet() {
    all_pairs(Ground::Lockless, OutputFormat::Parquet, 2);
}

#[test]
fn lockless_tar() {
    all_pairs(Ground::Lockless, OutputFormat::Tar, 3);
}
