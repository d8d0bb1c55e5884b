//! What every layer of shardify stands on: errors, ids, schemas, codecs, records, arrays and stores.
//!
#![doc = include_str!("../README.md")]

pub mod array;
pub mod codec;
pub mod environment;
pub mod error;
pub mod events;
pub mod id;
pub mod record;
pub mod schema;
pub mod settings;
pub mod storage;
pub mod units;
