//! Arguments of `bench`.

use std::{
    num::{NonZeroU64, NonZeroUsize},
    time::Duration,
};

use clap::Args;

use crate::{
    error::{Error, Result},
    units::parse_duration,
};

/// Arguments of `bench`.
#[derive(Debug, Args)]
pub(in crate::cli) struct BenchArgs {
    /// The original data: a folder, file, glob, URL or dataset.
    pub(in crate::cli) source: String,
    /// The dataset made from it [default: ./shards].
    pub(in crate::cli) dataset: Option<String>,
    /// Time that a training step takes, such as 100ms.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = short_duration)]
    pub(in crate::cli) step: Duration,
    /// Records of a batch.
    #[arg(long, value_name = "N", default_value = "32")]
    pub(in crate::cli) batch: NonZeroU64,
    /// Largest number of readers [default: 4, or all cores if there are fewer].
    #[arg(long, value_name = "N")]
    pub(in crate::cli) readers: Option<NonZeroUsize>,
    /// Longest time of a measurement, of which there are at most 14.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = short_duration)]
    pub(in crate::cli) time: Duration,
    /// Write the results to a self-contained HTML file.
    #[arg(long, short = 'o', aliases = ["out", "output"], value_name = "FILE", help_heading = "Output")]
    pub(in crate::cli) html: Option<String>,
}

/// Parses a duration that may be of milliseconds.
fn short_duration(text: &str) -> Result<Duration> {
    let parsed = match text.trim().strip_suffix("ms") {
        Some(number) => number.trim().parse().ok().map(Duration::from_millis),
        None => parse_duration(text).ok(),
    };
    parsed
        .filter(|time| !time.is_zero())
        .ok_or_else(|| Error::usage(format!("expected a time such as 100ms, 3s or 2m, found `{text}`")))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn times_may_be_short() {
        assert_eq!(short_duration("100ms").unwrap(), Duration::from_millis(100));
        assert_eq!(short_duration("3s").unwrap(), Duration::from_secs(3));
        assert!(short_duration("0ms").is_err() && short_duration("ms").is_err() && short_duration("5").is_err());
    }
}
