//! Arguments of `remove` and `revert`.

use clap::Args;

use super::LineageArgs;
use crate::{
    error::{Error, Result},
    id::Version,
    ops::remove::RemoveOptions,
};

/// What `remove` is given.
#[derive(Debug, Args)]
pub(in crate::cli) struct RemoveArgs {
    /// The dataset
    pub(in crate::cli) dataset: Option<String>,
    /// Remove the records of the source with this name, path or URL; may be repeated
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,
    /// Remove what this version took in; with --source, only that source
    #[arg(long, value_name = "VERSION")]
    run: Option<String>,
    /// File with the key of private ids; default: the key in $SHARDIFY_ID_KEY
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) id_key: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) lineage: LineageArgs,
    /// Print what would be removed and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl RemoveArgs {
    pub(in crate::cli) fn options(&self) -> Result<RemoveOptions> {
        let version = |text: &String| {
            let number = text.strip_prefix('v').unwrap_or(text).parse::<u64>();
            number.map(Version).map_err(|_| {
                Error::usage(format!("expected a version such as v12 for --run, found `{text}`"))
                    .hint("`shardify manifest --history` lists the runs")
            })
        };
        Ok(RemoveOptions {
            sources: self.source.clone(),
            run: self.run.as_ref().map(version).transpose()?,
            dry_run: self.dry_run,
        })
    }
}

/// What `revert` is given.
#[derive(Debug, Args)]
pub(in crate::cli) struct RevertArgs {
    /// The dataset
    pub(in crate::cli) dataset: Option<String>,
    /// The version to go back to: a version (v12), a tag, an instant, a date or a duration back from now
    #[arg(long, value_name = "WHEN")]
    pub(in crate::cli) to: String,
    #[command(flatten)]
    pub(in crate::cli) lineage: LineageArgs,
    /// Print what would change and do nothing
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
}
