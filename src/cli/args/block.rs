//! Arguments of `block` and `unblock`.

use std::path::PathBuf;

use clap::Args;

use crate::ops::erase::{EraseId, NameKind};

/// What `block` and `unblock` are given.
#[derive(Debug, Args)]
pub(in crate::cli) struct BlockArgs {
    /// The dataset
    pub(in crate::cli) dataset: Option<String>,
    /// The person with this subject id; may be repeated
    #[arg(long, value_name = "ID")]
    subject: Vec<String>,
    /// The record with this record id; may be repeated
    #[arg(long, value_name = "ID")]
    record: Vec<String>,
    /// File of ids, one per line, that are subject ids or record ids; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) ids: Option<PathBuf>,
    /// Why; kept with the version. Name nobody here
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) reason: Option<String>,
    /// File with the key of private ids; default: the key in $SHARDIFY_ID_KEY
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) id_key: Option<PathBuf>,
    /// Print what would be done and do nothing
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
}

impl BlockArgs {
    /// Returns the ids given with --subject and --record.
    pub(in crate::cli) fn kinds(&self) -> impl Iterator<Item = EraseId> {
        let all = [(NameKind::Subject, &self.subject), (NameKind::Record, &self.record)];
        all.into_iter().flat_map(|(kind, ids)| ids.iter().map(move |id| EraseId { id: id.clone(), kind: Some(kind) }))
    }
}
