//! Blocked ids: erased ids stored as keyed hashes, so that they cannot be imported again.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `hash` | 32 bytes | HMAC-SHA-256 of the text, under the dataset's salt; of a private id the text is its token |
//! | `kind` | text | what is blocked: see [`SuppressedKind`] |
//! | `source` | 32 bytes, null | for origins: the hash of the source's name, so that other sources need no lookup |
//! | `version` | u64 | version that blocked it |
//! | `records` | u64 | number of records that had it |
//!
//! The `similar-` kinds are hashes of the normal form that other spellings of an erased id share
//! ([`normal_form`](crate::record::spelling::normal_form)); records with such ids are counted, and skipped on request.
//!
//! `id` is a record id or subject id, and blocks any record that has it; `record` and `subject` block records that have
//! it as their record id or subject id only; `origin` is `source#row`, for records without another id. A later file of
//! the same name has another record there: if the content hash of the erased record is known, its origin is a `place`,
//! accompanied by `content`, `source#row=<content hash>`, and a text record is blocked only if it has that hash as
//! well. `source` is the URI of a source whose name identified the person. `was` only lets `--find` answer for other
//! names of an erased record. No text can be read back, but whoever has the salt can test guesses: the list is personal
//! data while the set of possible ids is small. If ids are private, guessing also takes their key, because the hashes
//! cover the stored form: tokens, and redacted source names.

use std::{borrow::Cow, collections::HashMap, num::NonZeroU64, sync::Arc};

use arrow::{
    array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, UInt64Array},
    datatypes::{DataType, Field, Schema},
};

use crate::{
    dataset::{
        ids::{
            IdKind,
            private::{Pseudonymizer, token_of},
            salt::{KeyedHash, Salt},
        },
        log::{private::pseudonymizer_of, snapshot::Snapshot},
        table::{self, sealed::Sealed, typed_column},
    },
    error::{Error, Result},
    id::Version,
    record::spelling::normal_form,
    storage::Store,
};

/// Kind of a suppressed text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SuppressedKind {
    /// A record id or subject id.
    Id,
    /// A record id.
    Record,
    /// A subject id.
    Subject,
    /// `source#row`, whatever its content.
    Origin,
    /// `source#row`, for one content only.
    Place,
    /// `source#row=<content hash>`.
    Content,
    /// URI of a source.
    Source,
    /// Another name of an erased record; blocks nothing.
    Was,
    /// The normal form of a record id or subject id.
    SimilarId,
    /// The normal form of a record id.
    SimilarRecord,
    /// The normal form of a subject id.
    SimilarSubject,
}

impl SuppressedKind {
    const ALL: [Self; 11] = [
        Self::Id,
        Self::Record,
        Self::Subject,
        Self::Origin,
        Self::Place,
        Self::Content,
        Self::Source,
        Self::Was,
        Self::SimilarId,
        Self::SimilarRecord,
        Self::SimilarSubject,
    ];

    /// Returns the kind under which the normal form of such an id is stored; `None` if the kind has no spellings.
    pub fn to_similar(self) -> Option<Self> {
        match self {
            Self::Id => Some(Self::SimilarId),
            Self::Record => Some(Self::SimilarRecord),
            Self::Subject => Some(Self::SimilarSubject),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Record => "record",
            Self::Subject => "subject",
            Self::Origin => "origin",
            Self::Place => "place",
            Self::Content => "content",
            Self::Source => "source",
            Self::Was => "was",
            Self::SimilarId => "similar-id",
            Self::SimilarRecord => "similar-record",
            Self::SimilarSubject => "similar-subject",
        }
    }
}

/// A row of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suppressed {
    /// Hash of the text.
    pub hash: KeyedHash,
    /// Kind of the text.
    pub kind: SuppressedKind,
    /// For origins, hash of the source's name.
    pub source: Option<KeyedHash>,
    /// Version that blocked it.
    pub version: Version,
    /// Number of records that had it.
    pub records: u64,
}

/// Returns the text that is hashed for the content of an erased record, given its stored origin and content hash.
pub fn content_text(origin: &str, hash: u64) -> String {
    format!("{origin}={hash:016x}")
}

/// Encodes rows for a list.
pub(in crate::dataset) fn to_batch(rows: &[Suppressed]) -> Result<RecordBatch> {
    let schema = Schema::new(vec![
        Field::new("hash", DataType::Binary, false),
        Field::new("kind", DataType::Utf8, false),
        Field::new("source", DataType::Binary, true),
        Field::new("version", DataType::UInt64, false),
        Field::new("records", DataType::UInt64, false),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BinaryArray::from_iter_values(rows.iter().map(|row| row.hash))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.kind.name()))),
        Arc::new(BinaryArray::from_iter(rows.iter().map(|row| row.source))),
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.version.0))),
        Arc::new(UInt64Array::from_iter_values(rows.iter().map(|row| row.records))),
    ];
    Ok(RecordBatch::try_new(Arc::new(schema), columns)?)
}

/// Reads a list.
pub(in crate::dataset) fn read(store: &dyn Store, list: &Sealed) -> Result<Vec<Suppressed>> {
    let damaged = || Error::integrity("the list of erased ids is damaged").at_location(list.display_location(store));
    let mut out = Vec::new();
    for batch in table::read(store, list)? {
        let (hashes, sources) =
            (typed_column::<BinaryArray>(&batch, "hash")?, typed_column::<BinaryArray>(&batch, "source")?);
        let kinds: &StringArray = typed_column(&batch, "kind")?;
        let (versions, records) =
            (typed_column::<UInt64Array>(&batch, "version")?, typed_column::<UInt64Array>(&batch, "records")?);
        for i in 0..batch.num_rows() {
            let kind = SuppressedKind::ALL.into_iter().find(|kind| kind.name() == kinds.value(i));
            out.push(Suppressed {
                hash: hashes.value(i).try_into().map_err(|_| damaged())?,
                kind: kind.ok_or_else(damaged)?,
                source: match sources.is_valid(i) {
                    true => Some(sources.value(i).try_into().map_err(|_| damaged())?),
                    false => None,
                },
                version: Version(versions.value(i)),
                records: records.value(i),
            });
        }
    }
    Ok(out)
}

/// The blocked ids of a dataset.
#[derive(Debug)]
pub struct SuppressList {
    salt: Salt,
    rows: HashMap<(KeyedHash, SuppressedKind), Suppressed>,
    sources: std::collections::HashSet<KeyedHash>,
    /// Converts texts to their stored form; `None` if they are plain or their key is unknown.
    pseudonymizer: Option<Pseudonymizer>,
    /// Whether stored ids are tokens.
    private: bool,
}

impl SuppressList {
    /// Returns the list of a snapshot; `None` if nothing was ever erased or blocked.
    ///
    /// # Errors
    /// When it cannot be read, or ids are private and their key is not known.
    pub fn from_snapshot(snapshot: &Snapshot) -> Result<Option<Self>> {
        let Some(list) = Self::without_key(snapshot)? else { return Ok(None) };
        Ok(Some(Self { pseudonymizer: pseudonymizer_of(snapshot)?, ..list }))
    }

    /// Like [`from_snapshot`](Self::from_snapshot) without the key of private ids: only [stored ids](Self::has_stored)
    /// can be checked.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn without_key(snapshot: &Snapshot) -> Result<Option<Self>> {
        let Some(erasures) = &snapshot.entry().erasures else { return Ok(None) };
        let store = snapshot.dataset().store().as_ref();
        let mut list = Self {
            salt: erasures.parse_salt()?,
            rows: HashMap::new(),
            sources: Default::default(),
            pseudonymizer: None,
            private: snapshot.entry().settings.private.is_some(),
        };
        for list_ref in &erasures.suppressed {
            for row in read(store, &list_ref.as_sealed())? {
                list.sources.extend(row.source);
                // If a text was erased twice, the first erasure counts.
                list.rows.entry((row.hash, row.kind)).or_insert(row);
            }
        }
        Ok(Some(list))
    }

    fn get(&self, text: &str, kind: SuppressedKind) -> Option<&Suppressed> {
        self.rows.get(&(self.salt.hash(text), kind))
    }

    /// Returns an id in the form that is hashed.
    fn hashed_form<'t>(&self, id: &'t str) -> Cow<'t, str> {
        self.pseudonymizer.as_ref().map_or(Cow::Borrowed(id), |pseudonymizer| Cow::Owned(pseudonymizer.id_token(id)))
    }

    /// Whether records with this record id or subject id are blocked.
    pub fn has_id(&self, kind: IdKind, id: &str) -> bool {
        self.has_text(kind, &self.hashed_form(id))
    }

    /// Like [`has_id`](Self::has_id), for an id as stored in sidecars.
    pub fn has_stored(&self, kind: IdKind, stored: &str) -> bool {
        self.has_text(kind, if self.private { token_of(stored) } else { stored })
    }

    fn has_text(&self, kind: IdKind, text: &str) -> bool {
        let own = match kind {
            IdKind::Record => SuppressedKind::Record,
            IdKind::Subject => SuppressedKind::Subject,
        };
        self.has_any(text, &[SuppressedKind::Id, own])
    }

    fn has_any(&self, text: &str, kinds: &[SuppressedKind]) -> bool {
        let hash = self.salt.hash(text);
        kinds.iter().any(|kind| self.rows.contains_key(&(hash, *kind)))
    }

    /// Whether an id is an erased one of its kind, or another spelling of one.
    pub fn has_similar(&self, kind: IdKind, id: &str) -> bool {
        let own = match kind {
            IdKind::Record => SuppressedKind::SimilarRecord,
            IdKind::Subject => SuppressedKind::SimilarSubject,
        };
        self.has_any(&self.hashed_form(&normal_form(id)), &[SuppressedKind::SimilarId, own])
    }

    /// Whether a text is an erased id of any kind.
    pub fn has_name(&self, text: &str) -> bool {
        self.has_any(&self.hashed_form(text), &[SuppressedKind::Id, SuppressedKind::Record, SuppressedKind::Subject])
    }

    /// Whether a source, given by its URI, is blocked as a whole.
    pub fn has_source(&self, uri: &str) -> bool {
        let uri = self.pseudonymizer.as_ref().map_or(Cow::Borrowed(uri), |pseudonymizer| pseudonymizer.stored_uri(uri));
        self.get(&uri, SuppressedKind::Source).is_some()
    }

    /// Whether any record of a source was erased by its origin.
    pub fn has_origins_in(&self, source: &str) -> bool {
        let pseudonymized = |source| {
            self.pseudonymizer
                .as_ref()
                .map_or(Cow::Borrowed(source), |pseudonymizer| pseudonymizer.stored_source(source))
        };
        !self.sources.is_empty() && self.sources.contains(&self.salt.hash(&pseudonymized(source)))
    }

    /// Whether the record with this origin is blocked, given its content hash if that is comparable, which is one of
    /// the record's bytes.
    pub fn has_origin(&self, origin: &str, content: Option<NonZeroU64>) -> bool {
        let pseudonymized = self.pseudonymizer.as_ref().and_then(|pseudonymizer| pseudonymizer.stored_origin(origin));
        let origin = pseudonymized.as_deref().unwrap_or(origin);
        if self.has_any(origin, &[SuppressedKind::Origin]) {
            return true;
        }
        let is_meant = self.has_any(origin, &[SuppressedKind::Place]);
        match content.filter(|_| is_meant) {
            None => is_meant,
            Some(hash) => {
                let hash = hash.get();
                let stored = self.pseudonymizer.as_ref().map_or(hash, |pseudonymizer| pseudonymizer.content_hash(hash));
                self.has_any(&content_text(origin, stored), &[SuppressedKind::Content])
            }
        }
    }

    /// Returns the version that erased an id, and the number of records that had it.
    pub fn find_erased(&self, id: &str) -> Option<(Version, u64)> {
        use SuppressedKind::{Id, Origin, Place, Record, Subject, Was};
        self.find_as(id, &[Id, Record, Subject, Origin, Place, Was])
    }

    /// Like [`find_erased`](Self::find_erased), for ids erased as one of some kinds.
    pub fn find_as(&self, id: &str, kinds: &[SuppressedKind]) -> Option<(Version, u64)> {
        let pseudonymized = self.pseudonymizer.as_ref().and_then(|pseudonymizer| pseudonymizer.stored_origin(id));
        let hashes = [self.salt.hash(&self.hashed_form(id)), self.salt.hash(pseudonymized.as_deref().unwrap_or(id))];
        let mut all = kinds.iter().flat_map(|kind| hashes.map(|hash| (hash, *kind)));
        let found = all.find_map(|key| self.rows.get(&key))?;
        Some((found.version, found.records))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn salts_round_trip_as_text_and_differ() {
        let salt = Salt::fresh();
        assert_eq!(Salt::from_hex(&salt.hex_text()).unwrap(), salt);
        assert_ne!(Salt::fresh(), salt);
        for wrong in ["", "00", &"g".repeat(64), &"é".repeat(32)] {
            assert!(Salt::from_hex(wrong).is_err(), "{wrong}");
        }
    }
}
