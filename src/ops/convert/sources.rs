//! Sources of a run as rows of the dataset's list of sources.

use std::sync::atomic::{AtomicU64, Ordering};

use super::inputs::Inputs;
use crate::{
    dataset::{NewSources, OptionalColumns, Pseudonymizer, SourceRow},
    delta::Mark,
    error::Result,
    exec::gather::{SourceTally, Tally},
    id::Version,
    scan::SourceFile,
};

/// Sources of a run as the dataset will record them.
pub(super) struct Fresh<'a> {
    pub(super) inputs: &'a Inputs,
    /// Hashes of sources of which only a part was read; empty if there are none.
    pub(super) hashes: &'a [Option<u64>],
    /// Hash of each file of samples; empty if they are not needed.
    pub(super) part_hashes: &'a [AtomicU64],
    pub(super) tally: &'a Tally,
    pub(super) pseudonymizer: Option<&'a Pseudonymizer>,
}

impl NewSources for Fresh<'_> {
    fn optional_columns(&self) -> OptionalColumns {
        let (arrays, other_firsts) = match self.inputs {
            Inputs::Samples { .. } => (false, false),
            Inputs::Records(sources) => {
                (sources.iter().any(|source| source.reader.facts().layout.is_some()), !self.tally.firsts.is_empty())
            }
        };
        OptionalColumns { arrays, part_hashes: !self.part_hashes.is_empty(), other_firsts, removed: false }
    }

    fn each_row(&self, visit: &mut dyn FnMut(SourceRow) -> Result<()>) -> Result<()> {
        self.source_rows().try_for_each(visit)
    }
}

impl Fresh<'_> {
    /// Returns the rows.
    pub(super) fn source_rows(&self) -> Box<dyn Iterator<Item = SourceRow> + '_> {
        let pseudonymizer = self.pseudonymizer;
        let stored = move |uri: String| match pseudonymizer {
            Some(pseudonymizer) => pseudonymizer.stored_uri(&uri).into_owned(),
            None => uri,
        };
        let etag = move |file: &SourceFile| match file.table_file() {
            Some(table) => {
                Some(Mark::new(table.version(), &stored(table.table_location()), table.table_id()).to_string())
            }
            None => file.etag().map(str::to_owned),
        };
        let hashed = move |hash: u64| pseudonymizer.map_or(hash, |pseudonymizer| pseudonymizer.content_hash(hash));
        let row = move |file: &SourceFile, tally: &SourceTally| SourceRow {
            uri: stored(file.uri()),
            name: pseudonymizer.map_or_else(
                || file.name().to_owned(),
                |pseudonymizer| pseudonymizer.stored_source(file.name()).into_owned(),
            ),
            bytes: file.bytes(),
            modified: file.modified(),
            etag: etag(file),
            hash: hashed(file.stream_hash().unwrap_or(tally.hash)),
            records: tally.records,
            first_record: tally.first_record,
            other_firsts: Vec::new(),
            arrays: None,
            part_hash: None,
            version: Version(0),
            removed: None,
        };
        match self.inputs {
            Inputs::Records(sources) => {
                Box::new(sources.iter().zip(&self.tally.sources).enumerate().map(move |(number, (source, tally))| {
                    let arrays =
                        source.reader.facts().layout.as_deref().and_then(|layout| serde_json::to_string(layout).ok());
                    let hash = self.hashes.get(number).copied().flatten().unwrap_or(tally.hash);
                    let firsts = self.tally.firsts.iter().filter_map(|firsts| firsts.get(number).copied().flatten());
                    let other_firsts = firsts.skip(1).collect();
                    SourceRow { arrays, other_firsts, ..row(&source.file, &SourceTally { hash, ..*tally }) }
                }))
            }
            // Each file is read once, as part of its sample; its own hash costs time, so it is computed only if needed.
            Inputs::Samples { files, .. } => Box::new(files.iter().enumerate().map(move |(number, file)| {
                let hash =
                    self.part_hashes.get(number).map(|hash| hash.load(Ordering::Relaxed)).filter(|hash| *hash != 0);
                SourceRow { part_hash: hash.map(hashed), ..row(file, &SourceTally::default()) }
            })),
        }
    }
}
