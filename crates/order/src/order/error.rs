//! What is wrong with the parameters of an order, in words that name a value that works.

use std::fmt;

/// Parameters that make no order, or no step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// A parameter is outside of its limits.
    OutOfLimits {
        /// Name of the parameter.
        name: &'static str,
        /// Its value.
        value: u64,
        /// Least value.
        least: u64,
        /// Greatest value.
        most: u64,
    },
    /// There are more lanes than records.
    LanesExceedRecords {
        /// Number of lanes.
        lanes: u64,
        /// Number of records.
        records: u64,
    },
    /// A step does not take the same number of turns from each lane.
    BatchNotOfLanes {
        /// Records of a step.
        batch: u64,
        /// Number of lanes.
        lanes: u64,
    },
    /// A step cannot be divided equally among the ranks.
    BatchNotOfRanks {
        /// Records of a step.
        batch: u64,
        /// Number of ranks.
        ranks: u64,
    },
    /// The epoch has no such step.
    NoSuchStep {
        /// Number of the step, from 0.
        step: u64,
        /// Number of steps of the epoch.
        steps: u64,
    },
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfLimits { name, value, least, most } => {
                write!(f, "{name} is {value}; expected a number from {least} to {most}")
            }
            Self::LanesExceedRecords { lanes, records } => {
                write!(f, "lanes is {lanes}; expected at most one for each of the {records} records")
            }
            Self::BatchNotOfLanes { batch, lanes } => {
                let (below, above) = (batch / lanes * lanes, (batch / lanes + 1) * lanes);
                write!(f, "a global batch of {batch} records is not a multiple of the {lanes} lanes; use ")?;
                write_choice(f, (below > 0).then_some(below), above)
            }
            Self::BatchNotOfRanks { batch, ranks } => {
                let (below, above) = nearest_divisors(batch, ranks);
                write!(f, "a global batch of {batch} records cannot be divided among {ranks} ranks; use ")?;
                write_choice(f, below, above)?;
                f.write_str(" ranks")
            }
            Self::NoSuchStep { step, steps } => {
                write!(f, "step {step} of an epoch of {steps} steps, which are numbered from 0")
            }
        }
    }
}

impl std::error::Error for OrderError {}

fn write_choice(f: &mut fmt::Formatter<'_>, below: Option<u64>, above: u64) -> fmt::Result {
    match below.filter(|below| *below != above) {
        Some(below) => write!(f, "{below} or {above}"),
        None => write!(f, "{above}"),
    }
}

/// Returns the greatest divisor of a number up to `near`, and the least from there on; the number itself if it is less.
fn nearest_divisors(number: u64, near: u64) -> (Option<u64>, u64) {
    let small = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor));
    let divisors: Vec<u64> = small.flat_map(|divisor| [divisor, number / divisor]).collect();
    let below = divisors.iter().copied().filter(|divisor| *divisor <= near).max();
    let above = divisors.iter().copied().filter(|divisor| *divisor >= near).min();
    (below, above.unwrap_or(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_values_that_work() {
        let said = |error: OrderError| error.to_string();
        assert_eq!(
            said(OrderError::BatchNotOfLanes { batch: 100, lanes: 64 }),
            "a global batch of 100 records is not a multiple of the 64 lanes; use 64 or 128"
        );
        assert!(said(OrderError::BatchNotOfLanes { batch: 10, lanes: 64 }).ends_with("; use 64"));
        assert_eq!(
            said(OrderError::BatchNotOfRanks { batch: 96, ranks: 7 }),
            "a global batch of 96 records cannot be divided among 7 ranks; use 6 or 8 ranks"
        );
        assert!(said(OrderError::BatchNotOfRanks { batch: 96, ranks: 1000 }).ends_with("; use 96 ranks"));
        assert!(said(OrderError::BatchNotOfRanks { batch: 96, ranks: 0 }).ends_with("; use 1 ranks"));
    }
}
