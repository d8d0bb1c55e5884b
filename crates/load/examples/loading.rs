//! Measures how fast a dataset is loaded: `loading DATASET [BATCH] [STEPS] [THREADS] [COLUMNS]`.
#![expect(clippy::print_stdout, reason = "it is a program")]

use std::time::Instant;

use shardify_core::{
    error::{Error, Result},
    storage::{self, Location, StoreSettings},
};
use shardify_dataset::dataset::Dataset;
use shardify_load::{Loader, LoaderSettings};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = || Error::usage("usage: loading DATASET [BATCH] [STEPS] [THREADS] [COLUMNS]");
    let number =
        |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse().map_err(|_| usage()));
    let dataset = arguments.first().ok_or_else(usage)?;
    let defaults = LoaderSettings::default();
    let threads = number(3, defaults.threads as u64)?;
    let settings = LoaderSettings {
        global_batch_size: number(1, 256)?,
        threads: usize::try_from(threads).map_err(|_| usage())?,
        columns: arguments.get(4).map(|names| names.split(',').map(str::to_owned).collect()),
        shuffle: std::env::var_os("IN_ORDER").is_none(),
        ..defaults
    };
    let steps = number(2, u64::MAX)?;
    let location = Location::from_local_path(dataset.as_ref())?;
    let snapshot = Dataset::new(storage::open_store(&location, &StoreSettings::default())?).open_newest()?;
    let begun = Instant::now();
    let loader = Loader::open(&snapshot, settings)?;
    println!("open       {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    println!("facts      {:?}", loader.facts());
    let begun = Instant::now();
    let (mut left, mut epoch, mut samples, mut bytes) = (steps, 0, 0, 0);
    let mut first = None;
    let mut stats = None;
    while left > 0 && epoch < 100 {
        let mut batches = loader.start(epoch, 0)?;
        while left > 0
            && let Some(batch) = batches.next()
        {
            let batch = batch?;
            first.get_or_insert_with(|| begun.elapsed());
            samples += batch.columns.num_rows() as u64;
            bytes += batch.memory_bytes();
            left -= 1;
        }
        stats = Some(batches.stats());
        epoch += 1;
        if steps == u64::MAX {
            break;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("first      {:.1} ms", first.unwrap_or_default().as_secs_f64() * 1e3);
    println!("samples    {samples} in {seconds:.3} s and {epoch} epochs");
    println!("rate       {:.0} samples/s, {:.2} GB/s", samples as f64 / seconds, bytes as f64 / seconds / 1e9);
    println!("last epoch {stats:?}");
    Ok(())
}
