//! The program, run as its users run it: a module for each thing they do, all in one binary, because each binary links the whole crate.

#[path = "../support/hdf5.rs"]
mod hdf5;
#[path = "../support/older.rs"]
mod older;
#[path = "../support/mod.rs"]
mod support;

mod adopt;
mod array_datasets;
mod arrays;
mod bench;
mod card;
mod check;
mod compat;
mod conformance_arrays;
mod consent;
mod convert;
mod corpus;
mod daily;
mod damage;
mod dedup;
mod delta;
mod delta_compact;
mod divide;
mod erase;
mod find;
mod first_use;
mod flips;
mod given_types;
mod hashes;
mod head;
mod help;
mod history;
mod hive;
mod indexes;
mod inputs;
mod keys;
mod labels;
mod lineage;
mod manners;
mod messages;
mod mirror;
mod mission;
mod mistakes;
mod names;
mod plan_adopt;
mod plan_compact;
mod plans;
mod private;
mod pull;
mod races;
mod reference;
mod remote_arrays;
mod report;
mod reshard;
mod reshard_shuffle;
mod select;
mod shuffle;
mod sizes;
mod sort;
mod split;
mod storage_faults;
mod subjects;
mod types;
mod undo;
mod verify;
