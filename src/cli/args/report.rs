//! Arguments of `report`.

use clap::Args;

/// Arguments of `report`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ReportArgs {
    /// Dataset, file, folder, glob or URL [default: ./shards].
    pub(in crate::cli) source: Option<String>,
    /// Write the report to a self-contained HTML file.
    ///
    /// Replaces an existing file atomically. The page is self-contained: no scripts, no network requests.
    #[arg(long, short = 'o', aliases = ["out", "output"], value_name = "FILE", help_heading = "Output")]
    pub(in crate::cli) html: Option<String>,
    /// Compare the values with those of another version.
    ///
    /// All rows of both versions are read, as by `manifest --drift`. A version (v12), a tag, an instant, a date or a
    /// duration before now.
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    pub(in crate::cli) against: Option<String>,
    /// Also describe the columns of record ids and subject ids.
    ///
    /// Without it, a report names no person: it may be sent to people who must not see ids. Ids that are private are
    /// never shown.
    #[arg(long, help_heading = "Selection")]
    pub(in crate::cli) ids: bool,
    /// Version of the dataset [default: newest].
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    pub(in crate::cli) at: Option<String>,
}
