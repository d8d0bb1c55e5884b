//! Arguments of `head`.

use clap::Args;

use super::choices::choice;
use crate::scan::InputFormat;

/// Maximum number of records that can be shown.
const MAX_RECORDS: u64 = 10_000;

/// Arguments of `head`.
#[derive(Debug, Args)]
pub(in crate::cli) struct HeadArgs {
    /// Dataset, file, folder, glob or URL; - is stdin [default: ./shards].
    pub(in crate::cli) source: Option<String>,
    /// Number of records.
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=MAX_RECORDS), help_heading = "Selection")]
    pub(in crate::cli) records: u64,
    /// Version of the dataset [default: newest].
    ///
    /// A version (v12), a tag, an instant, a date or a duration before now.
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    pub(in crate::cli) at: Option<String>,
    /// Format of the source [default: detected from the content].
    #[arg(long, value_parser = choice::<InputFormat>(), value_name = "FORMAT", help_heading = "Input")]
    pub(in crate::cli) from: Option<InputFormat>,
}
