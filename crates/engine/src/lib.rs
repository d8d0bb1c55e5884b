//! What runs between a source and a dataset: scanning, planning, execution, Delta tables and training indexes.
//!
#![doc = include_str!("../README.md")]

pub mod delta;
pub mod exec;
pub mod indexes;
pub mod plan;
pub mod scan;

// `crate::error` and the like mean the same in every crate.
use shardify_core::{array, codec, error, events, id, record, schema, settings, storage, units};
use shardify_dataset::dataset;
use shardify_formats::format;
