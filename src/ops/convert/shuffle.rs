//! `--shuffle`: the order of the records of a run. It is a setting of the dataset, so that later runs shuffle what they
//! add.

use crate::{
    dataset::{Settings, Snapshot},
    error::{Error, Result},
    format::files::Samples,
    record::shuffle::rank_of_sample,
    scan::SourceFile,
};

/// Returns the seed of the order of records: that of the dataset, or the user's choice for a new one; `None` if they
/// are not shuffled.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the dataset has another seed or none.
pub(super) fn choose_seed(snapshot: Option<&Snapshot>, choice: Option<u64>) -> Result<Option<u64>> {
    let Some(snapshot) = snapshot else { return Ok(choice) };
    let old = snapshot.entry().settings.shuffle;
    let message = match (old, choice) {
        (Some(old), Some(seed)) if old != seed => format!("expected the seed {old} of this dataset, found {seed}"),
        (None, Some(_)) => {
            "expected no --shuffle, because the records of this dataset are not shuffled, found it".to_owned()
        }
        _ => return Ok(old),
    };
    let error = Error::usage(message).at_location(snapshot.dataset().store().location().to_string());
    let error = if old.is_some() { error.with_hint("leave --shuffle out: later runs shuffle alike") } else { error };
    Err(error.with_hint("name another dataset with --out"))
}

/// Returns samples of files in the order of a run with these settings.
pub(super) fn in_order(settings: &Settings, samples: Samples, files: &[SourceFile]) -> Samples {
    match settings.shuffle {
        None => samples,
        Some(seed) => samples.ordered_by(files, |sample| rank_of_sample(seed, sample.key())),
    }
}
