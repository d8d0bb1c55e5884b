//! Arguments of `remove` and `revert`.

use clap::Args;

use super::LineageArgs;
use crate::{
    error::{Error, Result},
    id::Version,
    ops::undo::RemoveOptions,
};

/// Arguments of `remove`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RemoveArgs {
    /// Dataset [default: ./shards].
    pub(in crate::cli) dataset: Option<String>,
    /// Remove the records of this input: a name, path or URL.
    ///
    /// May be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Selection")]
    source: Vec<String>,
    /// Remove the records that this version added.
    ///
    /// With --source, only those of that input.
    #[arg(long, value_name = "VERSION", help_heading = "Selection")]
    run: Option<String>,
    /// Print what would be removed without writing anything.
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
    /// File with the key of private ids.
    ///
    /// The default is the key in $SHARDIFY_ID_KEY.
    #[arg(long, value_name = "FILE", help_heading = super::IDS)]
    pub(in crate::cli) id_key: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) lineage: LineageArgs,
}

impl RemoveArgs {
    pub(in crate::cli) fn to_options(&self) -> Result<RemoveOptions> {
        let version = |text: &String| {
            let number = text.strip_prefix('v').unwrap_or(text).parse::<u64>();
            number.map(Version).map_err(|_| {
                Error::usage(format!("expected a version such as v12 for --run, found `{text}`"))
                    .with_hint("`shardify manifest --history` lists the runs")
            })
        };
        Ok(RemoveOptions {
            sources: self.source.clone(),
            run: self.run.as_ref().map(version).transpose()?,
            dry_run: self.dry_run,
        })
    }
}

/// Arguments of `revert`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RevertArgs {
    /// Dataset [default: ./shards].
    pub(in crate::cli) dataset: Option<String>,
    /// Version to restore.
    ///
    /// A version (v12), a tag, an instant, a date or a duration before now.
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    pub(in crate::cli) to: String,
    /// Print what would change without writing anything.
    #[arg(long, help_heading = "Output")]
    pub(in crate::cli) dry_run: bool,
    #[command(flatten)]
    pub(in crate::cli) lineage: LineageArgs,
}
