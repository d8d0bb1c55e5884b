//! The library, called as programs call it: what every format and every store promises, and compactions and records of
//! all kinds.

mod compact_runs;
mod conformance_format;
mod conformance_storage;
mod face;
mod prop_records;
