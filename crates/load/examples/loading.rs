//! Measures how fast a dataset is loaded.
//!
//! `loading DATASET [batch=256] [steps=N] [threads=N] [columns=a,b] [memory=BYTES] [window=N] [block=N] [lanes=N]
//! [ranks=N] [order=dataset]`; without `steps`, one epoch is loaded.
#![expect(clippy::print_stdout, reason = "it is a program")]

use std::time::Instant;

use shardify_core::{
    error::{Error, Result},
    storage::{self, Location, StoreSettings},
};
use shardify_dataset::dataset::Dataset;
use shardify_load::{Loader, LoaderSettings};

/// Adds one `name=value` to the settings; returns the number of steps if it is that.
fn apply_setting(settings: &mut LoaderSettings, text: &str) -> Option<Option<u64>> {
    let (name, value) = text.split_once('=')?;
    let number = || value.parse::<u64>().ok();
    match name {
        "batch" => settings.global_batch_size = number()?,
        "steps" => return Some(number()),
        "threads" => settings.threads = value.parse().ok()?,
        "columns" => settings.columns = Some(value.split(',').map(str::to_owned).collect()),
        "memory" => settings.memory = number()?,
        "window" => settings.window = Some(number()?),
        "block" => settings.block = Some(number()?),
        "lanes" => settings.lanes = Some(number()?),
        "ranks" => settings.world_size = number()?,
        "order" if value == "dataset" => settings.shuffle = false,
        _ => return None,
    }
    Some(None)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || Error::usage("usage: loading DATASET [NAME=VALUE]...");
    let dataset = arguments.first().ok_or_else(usage)?;
    let (mut settings, mut steps) = (LoaderSettings::default(), None);
    for text in arguments.iter().skip(1) {
        steps = apply_setting(&mut settings, text).ok_or_else(usage)?.or(steps);
    }
    let location = Location::from_local_path(&std::path::absolute(dataset)?)?;
    let snapshot = Dataset::new(storage::open_store(&location, &StoreSettings::default())?).open_newest()?;
    let begun = Instant::now();
    let loader = Loader::open(&snapshot, settings)?;
    let facts = loader.facts();
    println!("open     {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    let (block, lanes, window) = (facts.block, facts.lanes, facts.window);
    println!("records  {} in {} shards: block {block}, {lanes} lanes, window {window}", facts.records, facts.shards);
    let wanted = steps.unwrap_or(facts.steps_per_epoch);
    let (mut taken, mut epoch, mut samples, mut bytes) = (0, 0, 0, 0);
    let (begun, mut first) = (Instant::now(), None);
    while taken < wanted && facts.steps_per_epoch > 0 {
        let mut batches = loader.start(epoch, 0)?;
        while taken < wanted
            && let Some(batch) = batches.next()
        {
            let batch = batch?;
            if first.is_none() {
                first = Some(Instant::now());
            } else {
                samples += batch.columns.num_rows() as u64;
                bytes += batch.memory_bytes();
            }
            taken += 1;
        }
        println!("epoch {epoch}  {:?}", batches.stats());
        epoch += 1;
    }
    let first = first.unwrap_or(begun);
    let seconds = first.elapsed().as_secs_f64().max(f64::MIN_POSITIVE);
    println!("first    {:.1} ms", (first - begun).as_secs_f64() * 1e3);
    println!("then     {samples} samples of {taken} steps in {seconds:.3} s");
    println!("rate     {:.0} samples/s, {:.2} GB/s", samples as f64 / seconds, bytes as f64 / seconds / 1e9);
    Ok(())
}
