//! What an erasure blocks: the ids of the records that it found, of those that were omitted as duplicates, and
//! contents at origins.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use super::{ErasureAttempt, kinds::NameKind};
use crate::{
    dataset::{IdQuery, Suppressed, SuppressedKind, content_text},
    id::Version,
    record::spelling::normal_form,
};

/// A text of the list of erased ids, and its kind.
type Text<'a> = (SuppressedKind, Cow<'a, str>);

impl ErasureAttempt<'_> {
    /// Returns the ids and contents to be blocked.
    pub(super) fn entries_to_block(&self, gone: &HashSet<String>) -> Vec<Suppressed> {
        let queries = self.id_queries();
        let has_subjects = self.newest.entry().settings.has_subjects();
        let mut rows: HashMap<Text<'_>, (Option<&str>, u64)> = HashMap::new();
        // Content hashes in sidecars of other formats are not those of the sources' bytes.
        let has_contents = self.newest.entry().settings.shard_format.is_columnar();
        let forms: Vec<String> = queries.iter().map(|query| normal_form(query.plain_id())).collect();
        let forms: Vec<IdQuery<'_>> =
            forms.iter().map(|form| IdQuery::new(self.pseudonymizer.as_ref(), form)).collect();
        for ((query, form), hits) in queries.iter().zip(&forms).zip(&self.hits) {
            for hit in hits {
                let name = NameKind::from_hit(hit);
                let (text, source) = match name {
                    NameKind::Source => (hit.record_id.as_str(), Some(hit.source.as_str())),
                    NameKind::Record | NameKind::Subject => (query.hashed_text(), None),
                };
                let mut kind = name.suppressed_kind(has_subjects);
                if kind == SuppressedKind::Origin
                    && has_contents
                    && let Some(hash) = hit.hash
                {
                    kind = SuppressedKind::Place;
                    let content = Cow::Owned(content_text(text, hash.get()));
                    rows.entry((SuppressedKind::Content, content)).or_insert((source, 1));
                }
                rows.entry((kind, text.into())).or_insert((source, 0)).1 += 1;
                if let Some(similar) = kind.to_similar() {
                    rows.entry((similar, form.hashed_text().into())).or_insert((None, 0)).1 += 1;
                }
            }
        }
        for left_out in &self.left_out {
            let (query, row) = (&queries[left_out.id], &left_out.row);
            let name = NameKind::of_left_out(left_out);
            let (text, source): (Cow<'_, str>, _) = match (name, row.row) {
                (NameKind::Source, Some(number)) => {
                    (format!("{}#{number}", row.source).into(), Some(row.source.as_str()))
                }
                _ => (query.hashed_text().into(), None),
            };
            let kind = name.suppressed_kind(has_subjects);
            rows.entry((kind, text)).or_insert((source, 0)).1 += 1;
            if let Some(similar) = kind.to_similar() {
                rows.entry((similar, forms[left_out.id].hashed_text().into())).or_insert((None, 0)).1 += 1;
            }
            let was = row.record_id.as_deref().map(|stored| (SuppressedKind::Was, self.hashed_part(stored).into()));
            was.into_iter().for_each(|was| {
                rows.entry(was).or_insert((None, 1));
            });
        }
        for hit in self.all_hits() {
            // Records about other subjects may have the same record id, so it blocks nothing.
            rows.entry((SuppressedKind::Was, self.hashed_part(&hit.record_id).into())).or_insert((None, 1));
        }
        for uri in gone {
            rows.entry((SuppressedKind::Source, uri.into())).or_insert((None, 0));
        }
        let row = |((kind, text), (source, records)): (Text<'_>, (Option<&str>, u64))| Suppressed {
            hash: self.salt.hash(&text),
            kind,
            source: source.map(|source| self.salt.hash(source)),
            version: Version(0),
            records,
        };
        let mut out: Vec<Suppressed> = rows.into_iter().map(row).collect();
        // The order reveals nothing about the order of the ids.
        out.sort_unstable_by_key(|row| (row.hash, row.kind));
        out
    }
}
