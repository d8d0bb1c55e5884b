//! What an id is the name of: record ids, subject ids and origins are told apart, so that an erasure takes nobody else's records.
//!
//! An id without a kind stands for whatever carries it, as long as that is one thing: where measurement 8 and patient 8 are
//! different records, nobody can tell which of them is meant.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::{
    dataset::{Hit, IdKind, SuppressList, SuppressedKind},
    error::{Error, Result},
    id::Version,
};

/// What an id is the name of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NameKind {
    /// One record, by its record id.
    Record,
    /// Whom records are about.
    Subject,
    /// A row of a source, `source#row`.
    Source,
}

impl NameKind {
    /// What carried the id.
    pub(in crate::ops) fn of(hit: &Hit) -> Self {
        match hit.kind {
            IdKind::Subject => Self::Subject,
            IdKind::Record if is_origin(hit) => Self::Source,
            IdKind::Record => Self::Record,
        }
    }

    /// How messages call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Record => "record id",
            Self::Subject => "subject id",
            Self::Source => "origin",
        }
    }

    fn option(self) -> &'static str {
        match self {
            Self::Record => "--record",
            Self::Subject => "--subject",
            Self::Source => "--source",
        }
    }

    /// What a list keeps out for it. Where a dataset has no subjects its record ids may be those of people, too.
    pub(super) fn suppressed(self, has_subjects: bool) -> SuppressedKind {
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
    /// What it is the name of; `None`: whatever carries it, if that is one thing.
    pub kind: Option<NameKind>,
}

impl EraseId {
    /// An id of any kind.
    pub fn any(id: impl Into<String>) -> Self {
        Self { id: id.into(), kind: None }
    }

    /// The version that erased it before as what it is, and how many records carried it.
    pub(super) fn erased_before(&self, list: &SuppressList) -> Option<(Version, u64)> {
        use SuppressedKind::{Id, Origin, Place, Record, Subject, Was};
        match self.kind {
            None => list.find(&self.id),
            Some(NameKind::Record) => list.find_as(&self.id, &[Id, Record, Was]),
            Some(NameKind::Subject) => list.find_as(&self.id, &[Id, Subject]),
            Some(NameKind::Source) => list.find_as(&self.id, &[Origin, Place, Was]),
        }
    }

    /// Leaves what is meant of the records that carry the id.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when several things carry it.
    pub(super) fn meant(&self, hits: &mut Vec<Hit>) -> Result<()> {
        if let Some(kind) = self.kind {
            hits.retain(|hit| NameKind::of(hit) == kind);
            return Ok(());
        }
        let mut kinds: BTreeMap<NameKind, BTreeSet<u64>> = BTreeMap::new();
        for hit in hits.iter() {
            kinds.entry(NameKind::of(hit)).or_default().insert(hit.record);
        }
        let all: BTreeSet<u64> = kinds.values().flatten().copied().collect();
        let sources = kinds.get(&NameKind::Source).map_or(0, BTreeSet::len);
        // Of a subject with the id of one of its own records that one is among the others.
        if kinds.values().all(|records| *records != all) && !all.is_empty() || sources > 1 {
            let counts: Vec<String> = kinds.iter().map(|(kind, records)| is_of(*kind, records.len())).collect();
            let options: Vec<String> = kinds.keys().map(|kind| format!("{} {}", kind.option(), self.id)).collect();
            return Err(Error::usage(format!("`{}` is {}: which is meant?", self.id, counts.join(" and ")))
                .hint(format!("say {}; `manifest --find` shows the records", options.join(" or "))));
        }
        Ok(())
    }
}

fn is_of(kind: NameKind, records: usize) -> String {
    let article = if kind == NameKind::Source { "an" } else { "a" };
    format!("{article} {} of {records} record{}", kind.name(), if records == 1 { "" } else { "s" })
}

/// Records that carry an id, by what it is to them.
pub(super) fn counts(hits: &[Hit]) -> BTreeMap<NameKind, u64> {
    let mut out = BTreeMap::new();
    hits.iter().for_each(|hit| *out.entry(NameKind::of(hit)).or_default() += 1);
    out
}

/// Whether the record id is the origin of the record: no other id is stored.
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
            hash: 0,
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
            EraseId { id: "8".into(), kind }.meant(&mut hits).map(|()| hits.len())
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
