//! Reads all live records of a dataset, shard by shard on several threads, as a loader would.
//!
//! ```sh
//! cargo run --release --example read_shards -- DATASET
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it finds")]

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use shardify::{Batch, Result, Session};

/// Threads that read shards.
const WORKERS: usize = 2;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dataset = std::env::args().nth(1).ok_or("expected a dataset, found no argument")?;
    let opened = Session::new()?.open(&dataset)?;
    let shards = opened.shards()?;
    let next = AtomicUsize::new(0);
    let read = || -> Result<(u64, u64)> {
        let (mut records, mut bytes) = (0, 0);
        while let Some(shard) = shards.get(next.fetch_add(1, Ordering::Relaxed)) {
            for batch in shard.batches() {
                match batch? {
                    Batch::Rows(rows) => {
                        records += rows.num_rows() as u64;
                        bytes += rows.get_array_memory_size() as u64;
                    }
                    Batch::Samples(samples) => {
                        records += samples.len() as u64;
                        bytes += samples.iter().map(|sample| sample.byte_count()).sum::<u64>();
                    }
                    _ => {}
                }
            }
        }
        Ok((records, bytes))
    };
    let parts: Vec<Result<(u64, u64)>> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(read)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).collect()
    });
    let (mut records, mut bytes) = (0, 0);
    for part in parts {
        let (part_records, part_bytes) = part?;
        records += part_records;
        bytes += part_bytes;
    }
    println!("{records} of {} records in {} shards, {bytes} bytes", opened.records(), shards.len());
    Ok(())
}
