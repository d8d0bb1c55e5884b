//! The order of a training loader as a closed-form function, in both directions.
//!
#![doc = include_str!("../README.md")]
#![deny(missing_docs)]

pub mod order;

pub use order::{
    DataRank, EpochOrder, LaneTurns, LaneWindow, OrderBlock, OrderError, OrderParameters, Remainder, StepLayout,
    StepSlot, WindowRead, WindowReads,
};
