//! Datasets: the log of versions, the id index, sidecars, lookup, erasure and retention.
//!
#![doc = include_str!("../README.md")]

pub mod dataset;

// `crate::error` and the like mean the same in every crate.
use shardify_core::{array, codec, error, events, id, record, schema, storage, units};
use shardify_formats::format;
use shardify_order::order;
