//! Arguments of `erase`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::LineageArgs;
use crate::ops::erase::{EraseId, NameKind};

/// What `erase` is given.
#[derive(Debug, Args)]
pub(in crate::cli) struct EraseArgs {
    /// Dataset, then record ids, subject ids or origins. A single argument is an id in the default dataset, unless ids come from
    /// options. An id that matches more than one kind is refused: use --record, --subject or --source
    #[arg(value_name = "DATASET] [ID")]
    words: Vec<String>,
    /// Erase all records of this subject
    #[arg(long, value_name = "ID")]
    subject: Vec<String>,
    /// Erase the record with this record id
    #[arg(long, value_name = "ID")]
    record: Vec<String>,
    /// Erase row N of the source, or of every source with this name
    #[arg(long, value_name = "SOURCE#N")]
    source: Vec<String>,
    /// Kind of the ids given as arguments or with --ids [default: any]
    #[arg(long = "as", value_name = "KIND", value_enum)]
    kind: Option<IdsAre>,
    /// File of ids, one per line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) ids: Option<PathBuf>,
    /// Erase from every version that can be read, not only the newest, and delete the old bytes at once
    #[arg(long)]
    pub(in crate::cli) all_versions: bool,
    /// Write the receipt to this file, too; it names nobody
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) receipt: Option<String>,
    /// Why; kept with the version and in the receipt. Name nobody here
    #[arg(long, value_name = "TEXT")]
    pub(in crate::cli) reason: Option<String>,
    /// File with the key of private ids; default: the key in $SHARDIFY_ID_KEY
    #[arg(long, value_name = "FILE")]
    pub(in crate::cli) id_key: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) lineage: LineageArgs,
    /// Print what would be erased and do nothing
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
}

impl EraseArgs {
    /// The dataset, if one is named, and the ids that are.
    pub(in crate::cli) fn words(&self) -> (Option<&str>, &[String]) {
        match self.words.as_slice() {
            [one] if self.ids.is_none() && self.kinds().next().is_none() => (None, std::slice::from_ref(one)),
            [dataset, ids @ ..] => (Some(dataset), ids),
            [] => (None, &[]),
        }
    }

    /// Returns an id of the kind given with --as.
    pub(in crate::cli) fn meant(&self, id: impl Into<String>) -> EraseId {
        EraseId { id: id.into(), kind: self.kind.map(NameKind::from) }
    }

    /// Returns the ids given with --subject, --record and --source.
    pub(in crate::cli) fn kinds(&self) -> impl Iterator<Item = EraseId> {
        let all =
            [(NameKind::Subject, &self.subject), (NameKind::Record, &self.record), (NameKind::Source, &self.source)];
        all.into_iter().flat_map(|(kind, ids)| ids.iter().map(move |id| EraseId { id: id.clone(), kind: Some(kind) }))
    }
}

/// Kind of an id.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum IdsAre {
    /// Subject ids
    Subject,
    /// Record ids
    Record,
    /// Origins, `source#row`
    Source,
}

impl From<IdsAre> for NameKind {
    fn from(kind: IdsAre) -> Self {
        match kind {
            IdsAre::Subject => Self::Subject,
            IdsAre::Record => Self::Record,
            IdsAre::Source => Self::Source,
        }
    }
}
