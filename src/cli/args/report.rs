//! Arguments of `report`.

use clap::Args;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ReportArgs {
    /// Dataset, file, folder, glob or URL [default: ./shards].
    pub(in crate::cli) source: Option<String>,
    /// Write the report to an HTML file, which needs nothing else.
    ///
    /// An existing file is replaced at once; a link or a device is written to. Scripts and requests are not in it.
    #[arg(long, short = 'o', aliases = ["out", "output"], value_name = "FILE", help_heading = "Output")]
    pub(in crate::cli) html: Option<String>,
    /// Compare the values with those of another version.
    ///
    /// All rows of both versions are read, as by `manifest --drift`. A version (v12), a tag, an instant, a date or a
    /// duration before now.
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    pub(in crate::cli) against: Option<String>,
    /// Version of the dataset [default: newest].
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    pub(in crate::cli) at: Option<String>,
}
