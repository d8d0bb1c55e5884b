//! Arguments of `head`.

use clap::Args;

use super::choices::{SettingParser, choice};
use crate::scan::{
    InputFormat,
    settings::{Read, ReadSetting, ReadSettings},
};

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
    #[command(flatten)]
    pub(in crate::cli) input: InputArgs,
}

/// How a source is read, for commands that show what is in it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Input")]
pub(in crate::cli) struct InputArgs {
    /// Format of the source [default: detected from the content].
    #[arg(long, value_parser = choice::<InputFormat>(), value_name = "FORMAT")]
    pub(in crate::cli) from: Option<InputFormat>,
    /// Setting of an input format; may be repeated. `convert --help` lists them.
    #[arg(long, value_name = "KEY=VALUE", value_parser = SettingParser::<Read>::default(), hide_possible_values = true)]
    read: Vec<ReadSetting>,
}

impl InputArgs {
    /// Returns the settings of input formats.
    pub(in crate::cli) fn settings(&self) -> ReadSettings {
        self.read.iter().cloned().collect()
    }
}
