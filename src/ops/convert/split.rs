//! How the records of a run are divided: as those of the dataset are, or as the user asks for a new dataset.

use arrow::datatypes::Fields;

use super::{
    job::ConvertJob,
    options::{Accept, SplitChoice},
};
use crate::{
    dataset::{Settings, Snapshot},
    error::{Error, Result},
    events::Event,
    ops::inputs::LiveDataset,
    record::{
        path::field_at,
        split::{SplitBy, Splits},
    },
    schema::hint_columns,
};

/// What the records of a run have that their splits may follow from.
pub(super) struct RecordFacts<'a> {
    /// Whether they are samples, which have no columns.
    pub(super) are_samples: bool,
    /// Whether they have keys.
    pub(super) have_keys: bool,
    /// Their columns.
    pub(super) fields: &'a Fields,
}

impl RecordFacts<'_> {
    /// Finds a column.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if no source has it.
    pub(super) fn check_column(&self, name: &str) -> Result<()> {
        if self.fields.is_empty() || field_at(self.fields, name).is_some() {
            return Ok(());
        }
        let columns: Vec<&String> = self.fields.iter().map(|field| field.name()).collect();
        Err(hint_columns(Error::usage("no source has this column").in_column(name), name, &columns))
    }
}

/// Returns how records are divided, before the sources are known; `None` if they are not.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the dataset has another division.
pub(super) fn choose_splits(
    snapshot: Option<&Snapshot>,
    choice: Option<&SplitChoice>,
    settings: &Settings,
) -> Result<Option<Splits>> {
    let old = snapshot.map(|snapshot| &snapshot.entry().settings);
    let Some(SplitChoice { shares, by, seed }) = choice else { return Ok(old.and_then(|old| old.split.clone())) };
    let by = match (by, old.and_then(|old| old.split.as_ref())) {
        (Some(by), _) => by.clone(),
        (None, Some(old)) => old.by.clone(),
        (None, None) if settings.has_subjects() => SplitBy::Subject,
        (None, None) if !settings.id.is_empty() => SplitBy::Id,
        (None, None) => SplitBy::Content,
    };
    let splits = Splits { shares: shares.clone(), by, seed: *seed };
    let at = |error: Error| match snapshot {
        Some(snapshot) => error.at_location(snapshot.dataset().store().location().to_string()),
        None => error,
    };
    match old.map(|old| &old.split) {
        None => {}
        Some(Some(old)) => old.check_same(&splits).map_err(at)?,
        Some(None) => {
            let error =
                Error::usage("expected no --split, because the records of this dataset are not divided, found one");
            return Err(at(error.with_hint("name another dataset with --out")));
        }
    }
    Ok(Some(splits))
}

/// Returns how records are divided, given the datasets among the sources: a division is kept, or given up with a word
/// of consent.
///
/// # Errors
/// [`Kind::Changed`](crate::error::Kind::Changed) if the records of a source are divided in another way, without
/// consent.
pub(super) fn inherit_splits(
    job: &ConvertJob<'_>,
    settings: &Settings,
    live: &[LiveDataset],
) -> Result<Option<Splits>> {
    let Some((place, splits)) =
        live.iter().find_map(|source| Some((source.dataset_location(), source.split_splits()?)))
    else {
        return Ok(settings.split.clone());
    };
    let given_up = job.options.accept.contains(&Accept::Settings);
    match &settings.split {
        Some(own) if job.options.split.is_some() || own == splits => Ok(settings.split.clone()),
        None if job.snapshot.is_none()
            && !given_up
            && live.iter().all(|source| source.split_splits() == Some(splits)) =>
        {
            job.context.observer.event(Event::Note(format!(
                "the records are divided as in {place}, {splits}; --accept settings gives the division up"
            )));
            Ok(Some(splits.clone()))
        }
        own => {
            let found = own.as_ref().map_or_else(|| "not divided".to_owned(), ToString::to_string);
            job.require_accepted(Accept::Settings, "settings", || {
                format!(
                    "expected records that are divided as in {place}, {splits}, found a dataset whose records are \
                 {found}"
                )
            })?;
            Ok(own.clone())
        }
    }
}

/// Checks that the records have what their splits follow from. Samples that have no subjects are divided by their ids
/// unless the user said otherwise.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) that names what is missing.
pub(super) fn settle_splits(
    settings: &Settings,
    choice: Option<&SplitChoice>,
    known: &RecordFacts<'_>,
) -> Result<Option<Splits>> {
    let Some(mut splits) = settings.split.clone() else { return Ok(None) };
    if known.have_keys && splits.by == SplitBy::Content && choice.is_some_and(|choice| choice.by.is_none()) {
        splits.by = SplitBy::Id;
    }
    match &splits.by {
        SplitBy::Subject if !settings.has_subjects() => {
            return Err(Error::usage("expected subjects to split by, found none")
                .with_hint("name their column with --subject, or use --subject-from-path or --subject-table"));
        }
        SplitBy::Id if settings.id.is_empty() && !known.have_keys => {
            return Err(Error::usage("expected record ids to split by, found none")
                .with_hint("name their columns with --id, or split by content"));
        }
        SplitBy::Content | SplitBy::Column(_) if known.are_samples => {
            return Err(Error::usage(format!("expected samples to be split by subject or id, found {}", splits.by))
                .with_hint(
                    "samples have no columns; leave --split-by out, or say id: the parts of a sample have one split",
                ));
        }
        SplitBy::Column(name) => known.check_column(name)?,
        _ => {}
    }
    Ok(Some(splits))
}
