//! Random commands, one after the other and interleaved, compared with a model of the content of each version.
//!
//! A seed determines a sequence: the location of the dataset, the format of its shards, the sources (all with one name
//! and size), and the steps. In some steps, a run is paused at one of its storage calls while others run; then it is
//! resumed or ended. After each step, every readable and tagged version is read and compared with the model, and so are
//! the user's own files.
//!
//! `SHARDIFY_SEQUENCES=10000 SHARDIFY_SEED=1 cargo test --release --test histories model`; only sequence 17:
//! `SHARDIFY_SEQUENCES=17..18`.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use super::dice::Dice;
use super::gate::Gate;
use super::world::{Command, Ended, Ground, SEQUENCE_PIPES, World};
use shardify::format::OutputFormat;

/// Number of sequences if `SHARDIFY_SEQUENCES` is not set.
const DEFAULT_SEQUENCES: u64 = 16;

/// Sequences that went wrong once, by seed and number.
const ONCE: &[(u64, u64)] = &[
    // A run that was paused before its commit gave the name of an entry again that a vacuum had deleted meanwhile.
    (9, 38),
    // An entry vanished between being listed and being read.
    (11, 58),
    // A run omitted a record as the duplicate of one that another run took out before it committed.
    (47, 8991),
];

/// Number of sources of a sequence.
const SOURCES: usize = 6;

/// A step of a sequence.
#[derive(Debug, Clone)]
enum Step {
    /// One command from start to end.
    Run(Command),
    /// The first command is paused at a call, the others run, and then it is resumed or ended.
    Interleave { first: Command, stop_at: usize, others: Vec<Command>, ended: bool },
    /// The user puts shards into the dataset's folder.
    Give(usize),
}

fn command(dice: &mut Dice, format: OutputFormat) -> Command {
    let source = dice.below(SOURCES);
    match dice.below(29) {
        0..=5 => Command::Convert(source),
        6..=7 => Command::ConvertStdin(10 + source),
        8..=9 if format != OutputFormat::TfRecord => Command::AdoptLinked(20 + source),
        10 if format != OutputFormat::TfRecord => Command::AdoptInPlace,
        8..=12 => Command::Compact,
        13 => Command::Sort,
        14 => Command::ZOrder,
        15..=16 => Command::Erase { who: person(dice), all: false },
        17..=18 => Command::Erase { who: person(dice), all: true },
        19..=21 => Command::Vacuum,
        22..=23 => Command::Read,
        24..=25 => Command::Remove(source),
        26 => Command::Revert { back: dice.below(4) as u64 },
        27 => Command::Tag { name: format!("t{}", dice.below(3)), back: dice.below(3) as u64 },
        _ => Command::Untag(format!("t{}", dice.below(3))),
    }
}

/// Returns a subject of one source, or one that all sources share.
fn person(dice: &mut Dice) -> String {
    if dice.below(2) == 0 { format!("Q{:02}", dice.below(SOURCES)) } else { format!("P{:02}", 1 + dice.below(2)) }
}

fn steps(dice: &mut Dice, format: OutputFormat) -> Vec<Step> {
    let mut given = 40;
    (0..3 + dice.below(7))
        .map(|_| match dice.below(10) {
            0 if format != OutputFormat::TfRecord => {
                given += 1;
                Step::Give(given)
            }
            0..=4 => Step::Run(command(dice, format)),
            _ => Step::Interleave {
                first: command(dice, format),
                // Near the start, where snapshots are opened, or anywhere.
                stop_at: if dice.below(3) == 0 { dice.below(12) } else { dice.below(220) },
                others: (0..1 + dice.below(3)).map(|_| command(dice, format)).collect(),
                ended: dice.below(4) == 0,
            },
        })
        .collect()
}

/// Returns the step with conversions in place of adoptions, which datasets refuse that are divided or without
/// duplicates.
fn without_adoptions(step: Step) -> Step {
    let converted = |command: Command| match command {
        Command::AdoptLinked(number) => Command::Convert(number % SOURCES),
        Command::AdoptInPlace => Command::Compact,
        other => other,
    };
    match step {
        Step::Run(command) => Step::Run(converted(command)),
        Step::Give(number) => Step::Run(Command::Convert(number % SOURCES)),
        Step::Interleave { first, stop_at, others, ended } => Step::Interleave {
            first: converted(first),
            stop_at,
            others: others.into_iter().map(converted).collect(),
            ended,
        },
    }
}

/// Executes a step and compares the dataset with the model.
fn execute(world: &mut World, step: &Step) -> Result<(), String> {
    match step {
        Step::Give(number) => {
            world.give_in_place(*number);
            Ok(())
        }
        Step::Run(command) => {
            world.prepare(command);
            let ended = world.run(command, None);
            world.settle(&[&ended])
        }
        Step::Interleave { first, stop_at, others, ended } => {
            world.prepare(first);
            let gate = Gate::new(*stop_at);
            let (mine, theirs) = std::thread::scope(|scope| {
                let (world, gate) = (&*world, &gate);
                let stopped = scope.spawn(move || {
                    let done = catch_unwind(AssertUnwindSafe(|| world.run(first, Some(gate))));
                    gate.mark_finished();
                    done
                });
                gate.wait();
                let run = |command: &Command| {
                    // Two commands that read standard input would share it.
                    let piped = |command: &Command| matches!(command, Command::ConvertStdin(_));
                    (!piped(command) || !piped(first)).then(|| {
                        world.prepare(command);
                        world.run(command, None)
                    })
                };
                let theirs = catch_unwind(AssertUnwindSafe(|| others.iter().filter_map(run).collect::<Vec<Ended>>()));
                if *ended {
                    gate.end()
                } else {
                    gate.go()
                }
                (stopped.join(), theirs)
            });
            let (Ok(Ok(mine)), Ok(theirs)) = (mine, theirs) else { return Err("a command panicked".to_owned()) };
            let mut all: Vec<&Ended> = theirs.iter().collect();
            all.push(&mine);
            world.settle(&all)
        }
    }
}

/// Runs a sequence; the error names the failed step and the reason.
fn sequence(seed: u64, number: u64, pipe: usize) -> Result<usize, String> {
    let mut dice = Dice(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let ground = if dice.below(2) == 0 { Ground::Local } else { Ground::Lockless };
    let format =
        [OutputFormat::Parquet, OutputFormat::Parquet, OutputFormat::Tar, OutputFormat::TfRecord][dice.below(4)];
    let target = [1, 1 << 20][dice.below(2)];
    let mut world = World::new(ground, format, target, 1 + dice.below(4), pipe);
    let mut todo = vec![Step::Run(Command::Convert(dice.below(SOURCES)))];
    todo.extend(steps(&mut dice, format));
    let (divided, unique) = (number % 3 == 2, number % 4 == 3);
    if divided {
        world.divide();
    }
    if unique {
        world.make_unique();
    }
    if divided || unique {
        todo = todo.into_iter().map(without_adoptions).collect();
    }
    for (at, step) in todo.iter().enumerate() {
        execute(&mut world, step).map_err(|e| {
            let before: Vec<String> = todo[..=at].iter().map(|step| format!("    {step:?}")).collect();
            format!("{ground:?} {format} target {target} divided {divided} unique {unique}: {e}\n{}", before.join("\n"))
        })?;
        if at == 0 {
            world.plant_beside_shards();
        }
    }
    world.finish().map_err(|e| {
        let steps: Vec<String> = todo.iter().map(|step| format!("    {step:?}")).collect();
        format!(
            "{ground:?} {format} target {target} divided {divided} unique {unique}, at the end: {e}\n{}",
            steps.join("\n")
        )
    })?;
    Ok(todo.len())
}

fn wanted() -> Range<u64> {
    let text = std::env::var("SHARDIFY_SEQUENCES").unwrap_or_default();
    match text.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => 0..text.parse().unwrap_or(DEFAULT_SEQUENCES),
    }
}

#[test]
fn each_version_holds_what_was_put_into_it() {
    let _ = rayon::ThreadPoolBuilder::new().num_threads(24).build_global();
    let seed: u64 = std::env::var("SHARDIFY_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let wanted = wanted();
    for (seed, number) in ONCE {
        sequence(*seed, *number, SEQUENCE_PIPES.start).unwrap();
    }
    let (next, done) = (AtomicU64::new(wanted.start), AtomicUsize::new(0));
    let failures: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for pipe in SEQUENCE_PIPES {
            let (next, done, failures, wanted) = (&next, &done, &failures, &wanted);
            scope.spawn(move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= wanted.end {
                        return;
                    }
                    match catch_unwind(|| sequence(seed, number, pipe))
                        .unwrap_or_else(|_| Err("it panicked".to_owned()))
                    {
                        Ok(steps) => {
                            done.fetch_add(steps, Ordering::Relaxed);
                        }
                        Err(e) => {
                            eprintln!("FAILED sequence {number} of seed {seed}: {e}");
                            failures.lock().unwrap().push(format!("{number}"));
                        }
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    let (count, steps) = (wanted.end - wanted.start, done.load(Ordering::Relaxed));
    eprintln!("{count} sequences of seed {seed}, {steps} steps, {} failed", failures.len());
    assert!(failures.is_empty(), "{} of {count} sequences failed: {failures:?}", failures.len());
}
