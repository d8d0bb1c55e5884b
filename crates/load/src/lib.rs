//! The engine of a training loader: threads read, decode and gather the batches of a dataset.
//!
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

pub mod load;

pub use load::{Batches, LoadStats, LoadedBatch, Loader, LoaderFacts, LoaderSettings, Omitted, Records, join_batches};

// `crate::error` and the like mean the same in every crate.
use shardify_core::{codec, error, schema, storage};
use shardify_dataset::dataset;
use shardify_formats::format;
use shardify_order::order;
