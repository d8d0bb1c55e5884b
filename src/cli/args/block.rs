//! Arguments of `block` and `unblock`.

use std::path::PathBuf;

use clap::Args;

use crate::ops::erase::{EraseId, NameKind};

/// Arguments of `block` and `unblock`.
#[derive(Debug, Args)]
pub(in crate::cli) struct BlockArgs {
    /// Dataset [default: ./shards].
    pub(in crate::cli) dataset: Option<String>,
    /// Subject id; may be repeated.
    #[arg(long, value_name = "ID", help_heading = "Selection")]
    subject: Vec<String>,
    /// Record id; may be repeated.
    #[arg(long, value_name = "ID", help_heading = "Selection")]
    record: Vec<String>,
    /// File of ids, one per line; - is stdin.
    ///
    /// They are subject ids or record ids.
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(in crate::cli) ids: Option<PathBuf>,
    /// Print what would be done without writing anything.
    #[arg(long, help_heading = "Output")]
    pub(in crate::cli) dry_run: bool,
    /// Reason, stored with the version; must not name a person.
    #[arg(long, value_name = "TEXT", help_heading = super::IDS)]
    pub(in crate::cli) reason: Option<String>,
    /// File with the key of private ids.
    ///
    /// The default is the key in $SHARDIFY_ID_KEY.
    #[arg(long, value_name = "FILE", help_heading = super::IDS)]
    pub(in crate::cli) id_key: Option<PathBuf>,
}

impl BlockArgs {
    /// Returns the ids given with --subject and --record.
    pub(in crate::cli) fn ids_by_kind(&self) -> impl Iterator<Item = EraseId> {
        let all = [(NameKind::Subject, &self.subject), (NameKind::Record, &self.record)];
        all.into_iter().flat_map(|(kind, ids)| ids.iter().map(move |id| EraseId { id: id.clone(), kind: Some(kind) }))
    }
}
