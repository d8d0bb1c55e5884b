//! The formats of inputs and shards: readers that give blocks of records, encoders that take them.
//!
#![doc = include_str!("../README.md")]

pub mod format;

// `crate::error` and the like mean the same in every crate.
use shardify_core::{array, codec, error, record, schema, storage, units};
