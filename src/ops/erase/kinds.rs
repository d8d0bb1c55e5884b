//! Kinds of ids: record ids, subject ids and origins are distinguished, so that an erasure removes only the records it
//! is meant for.
//!
//! An id without a kind matches records of any kind as long as only one kind matches: if measurement 8 and patient 8
//! are different records, the id is ambiguous.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    dataset::{Hit, IdKind, LeftOut, SuppressList, SuppressedKind},
    error::{Error, Result},
    id::Version,
};

/// What an id identifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameKind {
    /// One record, by its record id.
    Record,
    /// The subject of records, by its subject id.
    Subject,
    /// A row of a source, `source#row`.
    Source,
}

impl NameKind {
    /// Returns the kind in which a hit matched.
    pub(in crate::ops) fn from_hit(hit: &Hit) -> Self {
        match hit.kind {
            IdKind::Subject => Self::Subject,
            IdKind::Record if is_origin(hit) => Self::Source,
            IdKind::Record => Self::Record,
        }
    }

    /// Returns what an id is of a record that was omitted as a duplicate.
    pub(super) fn of_left_out(left_out: &LeftOut) -> Self {
        match left_out.kind {
            Some(IdKind::Record) => Self::Record,
            Some(IdKind::Subject) => Self::Subject,
            None => Self::Source,
        }
    }

    /// Returns the kind's name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Record => "record id",
            Self::Subject => "subject id",
            Self::Source => "origin",
        }
    }

    fn option_name(self) -> &'static str {
        match self {
            Self::Record => "--record",
            Self::Subject => "--subject",
            Self::Source => "--source",
        }
    }

    /// Returns the kind under which the id is blocked. If a dataset has no subjects, its record ids may identify
    /// people, too.
    pub(super) fn suppressed_kind(self, has_subjects: bool) -> SuppressedKind {
        match self {
            Self::Source => SuppressedKind::Origin,
            Self::Record if has_subjects => SuppressedKind::Record,
            Self::Subject => SuppressedKind::Subject,
            Self::Record => SuppressedKind::Id,
        }
    }
}

/// An id of records that are to be erased.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EraseId {
    /// The id.
    pub id: String,
    /// Its kind; `None` stands for any kind, if only one matches.
    pub kind: Option<NameKind>,
}

impl EraseId {
    /// Returns an id of any kind.
    pub fn with_any_kind(id: impl Into<String>) -> Self {
        Self { id: id.into(), kind: None }
    }

    /// Returns the version that erased this id in this kind before, and how many records carried it.
    pub(super) fn erased_before(&self, list: &SuppressList) -> Option<(Version, u64)> {
        use SuppressedKind::{Id, Origin, Place, Record, Subject, Was};
        match self.kind {
            None => list.find_erased(&self.id),
            Some(NameKind::Record) => list.find_as(&self.id, &[Id, Record, Was]),
            Some(NameKind::Subject) => list.find_as(&self.id, &[Id, Subject]),
            Some(NameKind::Source) => list.find_as(&self.id, &[Origin, Place, Was]),
        }
    }

    /// Reduces the hits to those that are meant.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if several kinds match different records.
    pub(super) fn disambiguate_hits(&self, hits: &mut Vec<Hit>) -> Result<()> {
        if let Some(kind) = self.kind {
            hits.retain(|hit| NameKind::from_hit(hit) == kind);
            return Ok(());
        }
        let mut kinds: BTreeMap<NameKind, BTreeSet<u64>> = BTreeMap::new();
        for hit in hits.iter() {
            kinds.entry(NameKind::from_hit(hit)).or_default().insert(hit.record);
        }
        let all: BTreeSet<u64> = kinds.values().flatten().copied().collect();
        let sources = kinds.get(&NameKind::Source).map_or(0, BTreeSet::len);
        // A subject may have the id of one of its own records, which is then among the subject's records.
        if kinds.values().all(|records| *records != all) && !all.is_empty() || sources > 1 {
            let counts: Vec<String> = kinds.iter().map(|(kind, records)| is_of(*kind, records.len())).collect();
            let options: Vec<String> = kinds.keys().map(|kind| format!("{} {}", kind.option_name(), self.id)).collect();
            return Err(Error::usage(format!("`{}` is {}: which is meant?", self.id, counts.join(" and ")))
                .with_hint(format!("say {}; `manifest --find` shows the records", options.join(" or "))));
        }
        Ok(())
    }
}

fn is_of(kind: NameKind, records: usize) -> String {
    let article = if kind == NameKind::Source { "an" } else { "a" };
    format!("{article} {} of {records} record{}", kind.name(), if records == 1 { "" } else { "s" })
}

/// Counts the records that carry an id, by its kind.
pub(super) fn count_by_kind(hits: &[Hit]) -> BTreeMap<NameKind, u64> {
    let mut out = BTreeMap::new();
    hits.iter().for_each(|hit| *out.entry(NameKind::from_hit(hit)).or_default() += 1);
    out
}

/// Returns whether the record id is the record's origin, so that no other id is stored.
pub(super) fn is_origin(hit: &Hit) -> bool {
    hit.row.is_some_and(|row| {
        let origin = hit.record_id.strip_prefix(&hit.source).and_then(|rest| rest.strip_prefix('#'));
        origin.is_some_and(|origin| origin == row.to_string())
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn hit(kind: IdKind, record: u64) -> Hit {
        Hit {
            kind,
            record_id: "8".into(),
            subject_id: None,
            record,
            source: "a.csv".into(),
            uri: None,
            hyperslab: None,
            row: Some(record),
            hash: None,
            since: Version(1),
            places: Vec::new(),
        }
    }

    fn origin(record: u64) -> Hit {
        Hit { record_id: "a.csv#1".into(), row: Some(1), ..hit(IdKind::Record, record) }
    }

    #[test]
    fn an_id_of_several_things_is_refused() {
        let (record, subject) = (|n| hit(IdKind::Record, n), |n| hit(IdKind::Subject, n));
        let meant = |kind, hits: Vec<Hit>| {
            let mut hits = hits;
            EraseId { id: "8".into(), kind }.disambiguate_hits(&mut hits).map(|()| hits.len())
        };
        assert_eq!(meant(None, vec![record(1), record(2)]).unwrap(), 2);
        assert_eq!(meant(None, vec![subject(1), subject(2), record(2)]).unwrap(), 3);
        assert_eq!(meant(None, vec![origin(1)]).unwrap(), 1);
        assert_eq!(meant(None, Vec::new()).unwrap(), 0);
        let refused = meant(None, vec![subject(1), subject(2), record(3)]).unwrap_err().to_string();
        assert!(refused.contains("a record id of 1 record and a subject id of 2 records"), "{refused}");
        assert!(meant(None, vec![origin(1), origin(2)]).is_err(), "two files of one name");
        assert_eq!(meant(Some(NameKind::Subject), vec![subject(1), subject(2), record(3)]).unwrap(), 2);
        assert_eq!(meant(Some(NameKind::Record), vec![subject(1), subject(2), record(3)]).unwrap(), 1);
        assert_eq!(meant(Some(NameKind::Source), vec![origin(1), origin(2), subject(3)]).unwrap(), 2);
    }
}
