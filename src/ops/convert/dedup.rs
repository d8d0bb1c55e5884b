//! Which duplicates a run omits: as the dataset does, or as the user asks.

use super::split::RecordFacts;
use crate::{
    dataset::{Settings, Snapshot},
    error::{Error, Result},
    record::dedup::{DedupBy, DedupChoice},
};

/// Returns what duplicates of the dataset have in common; `None` if they are kept.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the dataset omits other duplicates.
pub(super) fn choose_dedup(snapshot: Option<&Snapshot>, choice: Option<&DedupChoice>) -> Result<Option<DedupBy>> {
    let old = snapshot.and_then(|snapshot| Some((snapshot, snapshot.entry().settings.dedup.as_ref()?)));
    match (choice, old) {
        (None | Some(DedupChoice::None), old) => Ok(old.map(|(_, old)| old.clone())),
        (Some(DedupChoice::By(by)), Some((snapshot, old))) if by != old => {
            Err(Error::usage(format!("expected --dedup {old}, as in this dataset, found {by}"))
                .at_location(snapshot.dataset().store().location().to_string())
                .with_hint("name another dataset with --out"))
        }
        (Some(DedupChoice::By(by)), _) => Ok(Some(by.clone())),
    }
}

/// Checks that the records have what they are duplicates by.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) that names what is missing.
pub(super) fn check_dedup(settings: &Settings, known: &RecordFacts<'_>) -> Result<()> {
    match &settings.dedup {
        Some(DedupBy::Id) if settings.id.is_empty() && !known.have_keys => {
            Err(Error::usage("expected record ids for --dedup id, found none: origins differ for all records")
                .with_hint("name the columns of the record id with --id, or use --dedup content"))
        }
        Some(DedupBy::Columns(names)) if known.are_samples => {
            let parts: Vec<&str> = known.fields.iter().map(|field| field.name().as_str()).collect();
            let missing = names.iter().find(|name| !parts.is_empty() && !parts.contains(&name.as_str()));
            missing.map_or(Ok(()), |name| {
                Err(Error::usage(format!("no sample has a part `{name}` for --dedup"))
                    .with_hint(format!("the parts are {}", parts.join(", ")))
                    .with_hint("or use --dedup content or --dedup id"))
            })
        }
        Some(DedupBy::Columns(names)) => names.iter().try_for_each(|name| known.check_column(name)),
        _ => Ok(()),
    }
}
