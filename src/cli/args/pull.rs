//! Arguments of `pull`.

use clap::Args;

use crate::ops::pull::PullOptions;

/// Arguments of `pull`.
#[derive(Debug, Args)]
pub(in crate::cli) struct PullArgs {
    /// Dataset to copy: a folder or URL.
    pub(in crate::cli) dataset: String,
    /// Local folder: new, empty, or pulled from the same dataset.
    pub(in crate::cli) dir: String,
    /// Version to copy [default: newest].
    ///
    /// A version (v12), a tag, an instant, a date or a duration before now. The tags of the version are copied, too.
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    at: Option<String>,
    /// Copy only these splits of a dataset made with `convert --split` [default: all].
    ///
    /// A later pull into the same folder may name other splits: its version has those, and older versions stay as they
    /// are.
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', help_heading = "Selection")]
    split: Vec<String>,
    /// Copy only the shards, and what readers need beside them.
    ///
    /// The folder is no dataset then: it has no ids, no log and no older versions. A later pull deletes the files that
    /// its version does not have.
    #[arg(long, help_heading = "Output")]
    data_only: bool,
    /// Delete older versions of the copy.
    ///
    /// Without it, they stay readable until `vacuum` deletes them. They are deleted in any case once somebody was
    /// erased from the dataset.
    #[arg(long, conflicts_with = "data_only", help_heading = "Output")]
    prune: bool,
}

impl PullArgs {
    pub(in crate::cli) fn to_options(&self) -> PullOptions {
        let split = self.split.clone();
        PullOptions { at: self.at.clone(), split, data_only: self.data_only, prune: self.prune }
    }
}
