//! Arguments of `erase`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{LineageArgs, choices::choice};
use crate::{
    error::{Error, Result},
    ops::erase::{EraseId, NameKind},
    storage::SYSTEM_FOLDER,
};

/// Arguments of `erase`.
#[derive(Debug, Args)]
pub(in crate::cli) struct EraseArgs {
    /// Dataset [default: ./shards].
    ///
    /// A single argument is an id in the default dataset, unless options give ids.
    dataset: Option<String>,
    /// Record ids, subject ids or origins.
    ///
    /// An id that matches more than one kind is refused: use --record, --subject, --source or --as.
    #[arg(value_name = "ID")]
    words: Vec<String>,
    /// Erase all records of this subject; may be repeated.
    #[arg(long, value_name = "ID", help_heading = "Selection")]
    subject: Vec<String>,
    /// Erase the record with this record id; may be repeated.
    #[arg(long, value_name = "ID", help_heading = "Selection")]
    record: Vec<String>,
    /// Erase row N of an input; may be repeated.
    ///
    /// The input is given by its name or path. If several inputs have the name, the row is erased from each.
    #[arg(long, value_name = "SOURCE#N", help_heading = "Selection")]
    source: Vec<String>,
    /// File of ids, one per line; - is stdin.
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(in crate::cli) ids: Option<PathBuf>,
    /// Kind of the ids in arguments and --ids [default: any].
    #[arg(long = "as", value_name = "KIND", value_parser = choice::<NameKind>(), help_heading = "Selection")]
    kind: Option<NameKind>,
    /// Erase from all readable versions, not only the newest.
    ///
    /// The old bytes are deleted at once.
    #[arg(long, help_heading = "Selection")]
    pub(in crate::cli) all_versions: bool,
    /// Print what would be erased without writing anything.
    #[arg(long, help_heading = "Output")]
    pub(in crate::cli) dry_run: bool,
    /// Also write the receipt to this file.
    ///
    /// The receipt contains no ids.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(in crate::cli) receipt: Option<String>,
    /// Reason, stored with the version; must not name a person.
    ///
    /// It is also written to the receipt.
    #[arg(long, value_name = "TEXT", help_heading = super::IDS)]
    pub(in crate::cli) reason: Option<String>,
    /// File with the key of private ids.
    ///
    /// The default is the key in $SHARDIFY_ID_KEY.
    #[arg(long, value_name = "FILE", help_heading = super::IDS)]
    pub(in crate::cli) id_key: Option<PathBuf>,
    #[command(flatten)]
    pub(in crate::cli) lineage: LineageArgs,
}

impl EraseArgs {
    /// Returns the dataset, if one is given, and the ids among the arguments.
    pub(in crate::cli) fn dataset_and_ids(&self) -> (Option<&str>, &[String]) {
        match &self.dataset {
            Some(one) if self.words.is_empty() && self.ids.is_none() && self.ids_by_kind().next().is_none() => {
                (None, std::slice::from_ref(one))
            }
            dataset => (dataset.as_deref(), &self.words),
        }
    }

    /// Refuses a single argument that is a dataset: an id was forgotten.
    pub(in crate::cli) fn check_that_an_id_is_meant(&self) -> Result<()> {
        let (None, [one]) = self.dataset_and_ids() else { return Ok(()) };
        // An id may be a URL, so a dataset is only looked for on the local disk.
        if !Path::new(one).join(SYSTEM_FOLDER).is_dir() {
            return Ok(());
        }
        Err(Error::usage("expected an id to erase, found a dataset").at_location(one.clone()).with_hint(format!(
            "write `shardify erase {one} ID`, or --record or --subject before an id that is spelt like a dataset"
        )))
    }

    /// Returns an id of the kind given with --as.
    pub(in crate::cli) fn id_with_kind(&self, id: impl Into<String>) -> EraseId {
        EraseId { id: id.into(), kind: self.kind }
    }

    /// Returns the ids given with --subject, --record and --source.
    pub(in crate::cli) fn ids_by_kind(&self) -> impl Iterator<Item = EraseId> {
        let all =
            [(NameKind::Subject, &self.subject), (NameKind::Record, &self.record), (NameKind::Source, &self.source)];
        all.into_iter().flat_map(|(kind, ids)| ids.iter().map(move |id| EraseId { id: id.clone(), kind: Some(kind) }))
    }
}
