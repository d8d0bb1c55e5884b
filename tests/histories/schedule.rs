//! Every pair of commands: one of them is paused at each of its storage calls while the other runs to its end.
//!
//! The paused command is then resumed, or ended there. Afterwards, each acknowledged command has had exactly its
//! effect, and so has the other one unless it had a conflict; a command that failed can be repeated; and a vacuum
//! leaves nothing behind.
//!
//! ```text
//! first     call 1 .. call k |                      | resumed, or ended         repeated if it failed
//! second                     | from start to end    |                          vacuum, verify
//! ```
//!
//! By default, one point of every eighth pair is tested. `SHARDIFY_SCHEDULE` selects `all` points, or a number of
//! points of each pair, which `SHARDIFY_SEED` determines. Of all points, those are omitted that cannot differ from
//! others. `SHARDIFY_PAIR=first,second` selects one pair, `SHARDIFY_POINT=17` one point of it.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Once,
};

use super::dice::Dice;
use super::gate::{Call, Gate};
use super::world::{Command, Ended, Ground, World, describe};
use shardify::format::OutputFormat;

/// One in so many pairs is tested by default.
const PAIR_STEP: u64 = 8;

/// Number of points per pair by default.
const DEFAULT_POINTS: usize = 1;

/// Rows of each source.
const ROWS: usize = 3;

/// Adds threads to the global pool, so that waiting threads of one run do not block those of another. More of them only
/// look for work.
fn many_threads() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = rayon::ThreadPoolBuilder::new().num_threads(8).build_global();
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
    if format.is_columnar() {
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

/// What happened in a case.
struct Seen {
    failure: Option<String>,
    /// Calls of the first command, and those of the second one until the first continued.
    calls: [Vec<Call>; 2],
}

/// A pair of commands.
struct Pair<'a> {
    base: &'a World,
    first: &'a Command,
    second: &'a Command,
}

impl Pair<'_> {
    /// Pauses the first command at a point, runs the second, and checks everything.
    fn case(&self, point: usize, kill: bool) -> Seen {
        let Self { base, first, second } = *self;
        let mut world = base.copied();
        world.look_up_less(point);
        world.prepare(first);
        world.prepare(second);
        let (gate, open) = (Gate::new(point), Gate::open());
        let (mine, theirs) = std::thread::scope(|scope| {
            let (world, gate) = (&world, &gate);
            let stopped = scope.spawn(move || {
                let ended = catch_unwind(AssertUnwindSafe(|| world.run(first, Some(gate))));
                gate.mark_finished();
                ended
            });
            gate.wait();
            let theirs = catch_unwind(AssertUnwindSafe(|| world.run(second, Some(&open))));
            if kill {
                gate.end()
            } else {
                gate.go()
            }
            (stopped.join().unwrap(), theirs)
        });
        let failure = match (mine, theirs) {
            (Ok(mine), Ok(theirs)) => check(&mut world, &mine, &theirs),
            _ => Some("a command panicked".to_owned()),
        };
        Seen { failure, calls: [gate.trace(), open.trace()] }
    }

    /// Runs a case of each outcome that different points can have, and calls `tell` with each; returns the number of
    /// all cases.
    ///
    /// A pause before a call is the same as one after it if the call commutes with all that the second command does
    /// there. An end before a call is the same as one after it if the call has no lasting effect.
    fn all(&self, alone: &[Call], mut tell: impl FnMut(usize, bool, &Seen)) -> usize {
        let mut point = alone.len();
        loop {
            let seen = self.case(point, false);
            tell(point, false, &seen);
            let [mine, theirs] = &seen.calls;
            let alike = |point: &usize| {
                let before = &mine[..(*point).min(mine.len())];
                let commutes = before.last().is_some_and(|last| theirs.iter().all(|their| last.commutes_with(their)));
                commutes && !before.iter().any(|one| theirs.iter().any(|their| one.locks_against(their)))
            };
            let Some(other) = (1..=point).rev().find(|point| !alike(point)) else { break };
            point = other - 1;
        }
        for (point, _) in alone.iter().enumerate().filter(|(_, call)| call.has_effect()) {
            tell(point, true, &self.case(point, true));
        }
        2 * alone.len() + 1
    }
}

/// Repeats what failed and checks the dataset; returns what is wrong with it.
fn check(world: &mut World, mine: &Ended, theirs: &Ended) -> Option<String> {
    let check = || -> Result<(), String> {
        world.settle(&[mine, theirs])?;
        for ended in [mine, theirs] {
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
    checked.err().map(|e| format!("{e}\n      first: {}\n      second: {}", outcome(mine), outcome(theirs)))
}

fn setting(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Which points of which pairs are tested.
struct Choice {
    /// Number of random points of each pair; every point if there is none.
    points: Option<usize>,
    /// Whether the first command is both resumed and ended at each point, instead of either.
    both: bool,
    point: Option<usize>,
    pair: Option<String>,
    /// One in so many pairs.
    step: u64,
    seed: u64,
}

impl Choice {
    fn read() -> Self {
        let number = |name: &str| setting(name).map(|text| text.parse::<usize>().unwrap());
        let all = setting("SHARDIFY_SCHEDULE").is_some_and(|points| points == "all");
        let some = if all { None } else { number("SHARDIFY_SCHEDULE") };
        let (point, pair) = (number("SHARDIFY_POINT"), setting("SHARDIFY_PAIR"));
        Self {
            points: (!all).then(|| some.unwrap_or(DEFAULT_POINTS)),
            both: some.is_some() || point.is_some(),
            step: if all || some.is_some() || pair.is_some() { 1 } else { PAIR_STEP },
            point,
            pair,
            seed: number("SHARDIFY_SEED").unwrap_or(1) as u64,
        }
    }
}

/// Tests all pairs on one ground in one format.
fn all_pairs(ground: Ground, format: OutputFormat, pipe: usize) {
    many_threads();
    let choice = Choice::read();
    let base = start(ground, format, pipe);
    let commands = commands(format);
    let mut dice = Dice(choice.seed);
    let mut number = choice.seed;
    let (mut run, mut equal) = (0, 0);
    let mut failed: BTreeMap<String, usize> = BTreeMap::new();
    for (first_name, first) in &commands {
        let alone = calls_alone(&base, first_name, first);
        for (second_name, second) in &commands {
            let name = format!("{first_name},{second_name}");
            number += 1;
            if choice.pair.as_ref().is_some_and(|pair| *pair != name) || !number.is_multiple_of(choice.step) {
                continue;
            }
            let pair = Pair { base: &base, first, second };
            let mut tell = |point: usize, kill: bool, seen: &Seen| {
                run += 1;
                if let Some(failure) = &seen.failure {
                    let ended = if kill { ", ended there" } else { "" };
                    let call = seen.calls[0].get(point).map_or_else(|| "the end".to_owned(), ToString::to_string);
                    eprintln!("FAILED {ground:?} {format} {name} at {point}{ended} ({call}): {failure}");
                    *failed.entry(name.clone()).or_default() += 1;
                }
            };
            let points = match (choice.point, choice.points) {
                (Some(point), _) => vec![point],
                (None, Some(points)) => (0..points).map(|_| dice.below(alone.len())).collect(),
                (None, None) => {
                    equal += pair.all(&alone, &mut tell);
                    continue;
                }
            };
            for point in points {
                let ends: &[bool] = if choice.both { &[false, true] } else { &[[false, true][dice.below(2)]] };
                ends.iter().for_each(|kill| tell(point, *kill, &pair.case(point, *kill)));
            }
        }
    }
    let stand_for = if equal > 0 { format!(", which stand for {equal}") } else { String::new() };
    eprintln!("{ground:?} {format}: {run} cases of seed {}{stand_for}, failed {failed:?}", choice.seed);
    assert!(failed.is_empty(), "{failed:?}");
}

/// Returns the calls that a command makes without interference.
fn calls_alone(base: &World, name: &str, command: &Command) -> Vec<Call> {
    let world = base.copied();
    world.prepare(command);
    let gate = Gate::open();
    let ended = world.run(command, Some(&gate));
    assert!(ended.result.is_ok(), "{name} alone: {ended:?}");
    gate.trace()
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
