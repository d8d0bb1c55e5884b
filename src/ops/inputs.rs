//! Which of the found sources are new to a dataset, and which have changed since they were converted.

use std::collections::HashMap;

use rayon::prelude::*;

use crate::{
    dataset::{Snapshot, SourceRow},
    error::{Error, Result},
    scan::{SourceFile, content_hash},
};

/// What to do with a source that changed since it was converted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnChanged {
    /// Stop and name it.
    #[default]
    Fail,
    /// Convert it again; the records of its old content stay.
    Append,
    /// Leave it out.
    Skip,
}

/// Sources by what they are to the dataset.
#[derive(Debug, Default)]
pub struct Sorted {
    /// To be converted.
    pub fresh: Vec<SourceFile>,
    /// Converted before and the same since.
    pub unchanged: u64,
    /// Changed since and left out.
    pub changed: u64,
}

/// Sorts sources by what the dataset knows of them.
///
/// # Errors
/// When one changed and `on_changed` says fail, or one cannot be read.
pub fn sort(found: Vec<SourceFile>, snapshot: Option<&Snapshot>, on_changed: OnChanged) -> Result<Sorted> {
    let Some(snapshot) = snapshot else {
        return Ok(Sorted { fresh: found, ..Sorted::default() });
    };
    let mut known: HashMap<String, SourceRow> = HashMap::new();
    for row in snapshot.sources()? {
        match known.get(&row.uri) {
            Some(newer) if newer.version > row.version => {}
            _ => {
                known.insert(row.uri.clone(), row);
            }
        }
    }
    let states: Vec<State> = found
        .par_iter()
        .map(|file| known.get(&file.uri).map_or(Ok(State::New), |row| compare(file, row)))
        .collect::<Result<_>>()?;
    let mut sorted = Sorted::default();
    for (file, state) in found.into_iter().zip(states) {
        match (state, on_changed) {
            (State::New, _) | (State::Changed, OnChanged::Append) => sorted.fresh.push(file),
            (State::Same, _) => sorted.unchanged += 1,
            (State::Changed, OnChanged::Skip) => sorted.changed += 1,
            (State::Changed, OnChanged::Fail) => {
                let version = known.get(&file.uri).map_or_else(String::new, |row| row.version.to_string());
                return Err(Error::usage(format!("this source changed since {version} converted it"))
                    .at(file.uri)
                    .hint("convert it again beside its old records with --on-changed append")
                    .hint("leave it out with --on-changed skip"));
            }
        }
    }
    Ok(sorted)
}

enum State {
    New,
    Same,
    Changed,
}

fn compare(file: &SourceFile, row: &SourceRow) -> Result<State> {
    if file.bytes() != row.bytes {
        return Ok(State::Changed);
    }
    let same_tag = file.etag.is_some() && file.etag == row.etag;
    if same_tag || (file.etag.is_none() && file.modified.as_microsecond() == row.modified.as_microsecond()) {
        return Ok(State::Same);
    }
    // Copied or touched: only the content can tell.
    Ok(if content_hash(file)? == row.hash { State::Same } else { State::Changed })
}
