//! Id columns: which ids are equal, and their hashes.
//!
//! A subject has many records. Each repeated text is found once, so that it is hashed once (SHA-256 is slow on
//! processors without instructions for it) and stored once, in the dictionary of the sidecar. A column with almost no
//! repeats is detected after some rows and then costs nothing more.
//!
//! If the ids are a column of a Parquet shard, its pages are those of the sidecar, too.

use std::borrow::Cow;

use ::parquet::file::statistics::Statistics;
use arrow::{
    array::{Array, StringArray, StringBuilder},
    buffer::NullBuffer,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    codec::sha256,
    dataset::{
        ids::{
            ascending::{Ascending, text_bytes},
            private::Pseudonymizer,
            width::HashWidth,
        },
        table::chunks::Chunk,
    },
    error,
    format::parquet::{self, TextChunk},
    id::IdHash,
};

/// Rows after which grouping stops if nothing has repeated.
const TRIAL_ROWS: u32 = 32_768;

/// Maximum slots of the table of seen texts, 8 bytes each; it fits the cache of a core.
const MAX_SLOTS: usize = 1 << 17;

/// Length in bytes of a private id's token.
const TOKEN_BYTES: usize = 32;

/// Slots probed for a text.
const PROBES: usize = 4;

/// Ids of consecutive records; null for records without one.
#[derive(Debug, Clone)]
pub struct IdColumn {
    texts: StringArray,
    repeats: Repeats,
    /// Whether the texts are tokens of private ids.
    private: bool,
    /// All rows as a shard has them.
    encoded: Option<Chunk>,
}

#[derive(Debug, Clone)]
enum Repeats {
    /// Repeats have not been looked for.
    Unknown,
    /// Too few repeats for a dictionary.
    Few,
    /// Each row's key is an index into `firsts`, the rows where each text was first seen. A text may have more than one
    /// key. Keys of nulls are meaningless.
    Known { keys: Vec<u32>, firsts: Vec<u32> },
}

/// Texts of some rows.
pub(in crate::dataset) enum Texts<'a> {
    /// One text per row.
    Plain(StringArray),
    /// As a shard has them.
    Encoded(&'a Chunk),
    /// Dictionary-coded.
    Keyed { keys: Vec<u32>, dictionary: Vec<&'a str>, valid: Option<NullBuffer> },
}

impl From<StringArray> for IdColumn {
    fn from(texts: StringArray) -> Self {
        Self { texts, repeats: Repeats::Unknown, private: false, encoded: None }
    }
}

impl IdColumn {
    /// Concatenates columns and looks for repeated texts.
    ///
    /// # Errors
    /// If the result is larger than an array can be.
    pub fn join_parts(parts: &[StringArray]) -> error::Result<Self> {
        Ok(Self::from(concat_arrays(parts)?).with_repeats())
    }

    /// Concatenates columns whose repeats are known; `known` describes them as a whole.
    ///
    /// # Errors
    /// Like [`Self::join_parts`].
    pub fn join_known(parts: &[StringArray], known: parquet::Repeats) -> error::Result<Self> {
        let texts = concat_arrays(parts)?;
        // Repeats that do not match the texts would produce wrong ids.
        let fits = known.keys.len() == texts.len()
            && known.firsts.iter().all(|row| (*row as usize) < texts.len() && texts.is_valid(*row as usize));
        if !fits || known.firsts.len() * 10 > texts.len() * 9 {
            return Ok(Self::from(texts).with_repeats());
        }
        Ok(Self { repeats: Repeats::Known { keys: known.keys, firsts: known.firsts }, ..Self::from(texts) })
    }

    /// States that a shard has the same texts in a column.
    #[must_use]
    pub fn encoded_as(self, encoded: Option<TextChunk>) -> Self {
        // Columns of other rows would give wrong ids.
        let nulls = |chunk: &Chunk| chunk.close.metadata.statistics().and_then(Statistics::null_count_opt);
        let fits = |chunk: &Chunk| {
            chunk.row_count() == self.texts.len()
                && nulls(chunk).is_none_or(|nulls| nulls == self.texts.null_count() as u64)
        };
        Self { encoded: encoded.map(Chunk::from).filter(fits), ..self }
    }

    /// Returns the texts.
    pub fn texts(&self) -> &StringArray {
        &self.texts
    }

    /// Returns some of the rows, without knowledge of their repeats.
    pub fn slice(&self, first: usize, rows: usize) -> Self {
        Self { private: self.private, ..Self::from(self.texts.slice(first, rows)) }
    }

    /// Returns the hash of each row that has an id; hashes of the other rows are arbitrary.
    pub fn to_hashes(&self) -> IdHashes {
        self.for_index(HashWidth::Eight, true)
    }

    /// Returns the ids for an index whose hashes have this width. If it has no proofs, ids that ascend are hashed only
    /// if that turns out to be necessary, unless it is known already (`eager`).
    pub fn for_index(&self, width: HashWidth, eager: bool) -> IdHashes {
        let ascending = if self.private { None } else { Ascending::from_texts(&self.texts) };
        let known = match ascending {
            Some(_) if !eager && !width.has_proofs() => KnownHashes::Texts(self.texts.clone()),
            _ => self.known_hashes(),
        };
        IdHashes { known, ascending, width }
    }

    fn known_hashes(&self) -> KnownHashes {
        let valid = self.texts.nulls().cloned();
        if self.private {
            return KnownHashes::Hashes(
                self.texts.iter().map(|id| id.map_or(IdHash(0), IdHash::of_token)).collect(),
                valid,
            );
        }
        let hashes = match &self.repeats {
            Repeats::Known { keys, firsts } => {
                let known = hash_all(firsts.iter().map(|row| self.texts.value(*row as usize)));
                keys.iter().map(|key| known.get(*key as usize).copied().unwrap_or(IdHash(0))).collect()
            }
            _ if self.texts.null_count() == 0 => hash_texts(&self.texts),
            _ => {
                let mut known = hash_all(self.texts.iter().flatten()).into_iter();
                let ids = self.texts.iter();
                ids.map(|id| id.and_then(|_| known.next()).unwrap_or(IdHash(0))).collect()
            }
        };
        KnownHashes::Hashes(hashes, valid)
    }

    /// Returns the ids as a dataset with private ids stores them; each distinct text is converted once.
    ///
    /// # Errors
    /// If an id cannot be sealed.
    pub fn to_pseudonymized(&self, pseudonymizer: &Pseudonymizer) -> error::Result<Self> {
        let mut out = StringBuilder::with_capacity(self.texts.len(), TOKEN_BYTES * self.texts.len());
        let mut one = String::new();
        let mut known = Vec::new();
        if let Repeats::Known { firsts, .. } = &self.repeats {
            for row in firsts {
                pseudonymizer.encode_id(self.texts.value(*row as usize), &mut one)?;
                known.push(one.clone());
            }
        }
        for row in 0..self.texts.len() {
            match &self.repeats {
                _ if self.texts.is_null(row) => out.append_null(),
                Repeats::Known { keys, .. } => {
                    out.append_value(known.get(keys[row] as usize).map_or("", String::as_str));
                }
                _ => {
                    pseudonymizer.encode_id(self.texts.value(row), &mut one)?;
                    out.append_value(&one);
                }
            }
        }
        let texts = out.finish();
        Ok(Self { texts, repeats: self.repeats.clone(), private: true, encoded: None })
    }

    /// Looks for repeated texts.
    #[must_use]
    pub(in crate::dataset) fn with_repeats(self) -> Self {
        let repeats = match self.repeats {
            Repeats::Unknown => group_repeats(&self.texts),
            known => known,
        };
        Self { repeats, ..self }
    }

    /// Returns the texts of some rows in their most compact form.
    pub(in crate::dataset) fn compact_texts(&self, first: usize, rows: usize) -> Texts<'_> {
        if let Some(encoded) = self.encoded.as_ref().filter(|_| rows == self.texts.len()) {
            return Texts::Encoded(encoded);
        }
        let texts = self.texts.slice(first, rows);
        let Repeats::Known { keys, firsts } = &self.repeats else { return Texts::Plain(texts) };
        let mut numbers = vec![u32::MAX; firsts.len()];
        let mut dictionary = Vec::new();
        let mut own = Vec::with_capacity(rows);
        for (row, key) in keys[first..first + rows].iter().enumerate() {
            if texts.is_null(row) {
                own.push(0);
                continue;
            }
            let number = &mut numbers[*key as usize];
            if *number == u32::MAX {
                *number = u32::try_from(dictionary.len()).unwrap_or(u32::MAX);
                dictionary.push(self.texts.value(firsts[*key as usize] as usize));
            }
            own.push(*number);
        }
        if dictionary.len() * 2 > rows {
            return Texts::Plain(texts);
        }
        Texts::Keyed { keys: own, dictionary, valid: texts.nulls().cloned() }
    }
}

/// Concatenates arrays.
fn concat_arrays(parts: &[StringArray]) -> error::Result<StringArray> {
    if let [one] = parts {
        return Ok(one.clone());
    }
    let parts: Vec<&dyn Array> = parts.iter().map(|part| part as &dyn Array).collect();
    Ok(StringArray::from(arrow::compute::concat(&parts)?.to_data()))
}

/// Computes [`IdHash::from_id`] of many texts at once.
fn hash_all<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<IdHash> {
    let mut heads = Vec::new();
    sha256::sha256_heads(ids.map(str::as_bytes), &mut heads);
    heads.into_iter().map(IdHash).collect()
}

fn hash_texts(ids: &StringArray) -> Vec<IdHash> {
    hash_all((0..ids.len()).map(|row| ids.value(row)))
}

/// Ids of consecutive records as the id index needs them.
#[derive(Debug, Clone, Default)]
pub struct IdHashes {
    known: KnownHashes,
    /// The ids themselves if all records have one, none is private, they ascend, and they take less than hashes.
    ascending: Option<Ascending>,
    width: HashWidth,
}

/// What is known of the hashes of ids.
#[derive(Debug, Clone)]
enum KnownHashes {
    /// A hash for each record, arbitrary for records without an id.
    Hashes(Vec<IdHash>, Option<NullBuffer>),
    /// Nothing; all records have an id.
    Texts(StringArray),
}

impl Default for KnownHashes {
    fn default() -> Self {
        Self::Hashes(Vec::new(), None)
    }
}

impl IdHashes {
    /// Returns the number of records if all of them have an id.
    pub(in crate::dataset) fn len_if_complete(&self) -> Option<usize> {
        match &self.known {
            KnownHashes::Texts(texts) => Some(texts.len()),
            KnownHashes::Hashes(hashes, valid) => {
                valid.as_ref().is_none_or(|valid| valid.null_count() == 0).then_some(hashes.len())
            }
        }
    }

    /// Returns the hash of every record.
    pub(in crate::dataset) fn record_hashes(&self) -> Cow<'_, [IdHash]> {
        match &self.known {
            KnownHashes::Hashes(hashes, _) => Cow::Borrowed(hashes),
            KnownHashes::Texts(texts) => Cow::Owned(hash_texts(texts)),
        }
    }

    /// Bytes in memory, without those of ids that ascend.
    pub(in crate::dataset) fn memory_bytes(&self) -> usize {
        match &self.known {
            KnownHashes::Hashes(hashes, _) => size_of_val(hashes.as_slice()),
            KnownHashes::Texts(texts) => text_bytes(texts),
        }
    }

    /// Keeps ids that ascend as columns in which they are encoded already.
    #[must_use]
    pub(in crate::dataset) fn encoded_as(self, chunks: Vec<Chunk>) -> Self {
        let (width, ascending) = (self.width, self.ascending);
        Self { ascending: ascending.and_then(|ids| ids.encoded_as(chunks, width)), ..self }.hashed_if_needed()
    }

    /// Encodes ids that ascend, if there are many; can run on any thread.
    ///
    /// # Errors
    /// If an id is longer than Parquet allows.
    pub fn into_encoded(self) -> error::Result<Self> {
        let (width, ascending) = (self.width, self.ascending);
        let ascending = ascending.map(|ids| ids.into_encoded(width)).transpose()?.flatten();
        Ok(Self { ascending, ..self }.hashed_if_needed())
    }

    /// Hashes ids that are certain to be hashed, so that this is done where they are encoded.
    fn hashed_if_needed(self) -> Self {
        match &self.known {
            KnownHashes::Texts(texts) if self.ascending.is_none() => {
                Self { known: KnownHashes::Hashes(hash_texts(texts), None), ..self }
            }
            _ => self,
        }
    }

    /// Takes the ids if they ascend.
    pub(in crate::dataset) fn take_ascending(&mut self) -> Option<Ascending> {
        self.ascending.take()
    }

    /// Iterates over the hashes of records with an id, each with its row.
    pub fn iter(&self) -> impl Iterator<Item = (usize, IdHash)> + '_ {
        let valid = match &self.known {
            KnownHashes::Hashes(_, valid) => valid.as_ref(),
            KnownHashes::Texts(_) => None,
        };
        let is_valid = move |row: &usize| valid.is_none_or(|valid| valid.is_valid(*row));
        let hashes = self.record_hashes();
        (0..hashes.len()).filter(is_valid).map(move |row| (row, hashes[row]))
    }
}

/// Hash table of the rows where texts were seen. It has a fixed size and forgets entries when it is crowded.
///
/// ```text
/// slot   upper half of the hash | number + 1, or 0
/// ```
struct Seen {
    slots: Vec<u64>,
}

impl Seen {
    fn new(rows: usize) -> Self {
        Self { slots: vec![0; (rows * 2).next_power_of_two().clamp(1 << 8, MAX_SLOTS)] }
    }

    /// Returns the number stored under a hash for which `is` returns true, or else the slot for a new one.
    #[expect(clippy::cast_possible_truncation, reason = "halves are taken on purpose")]
    fn find_number(&self, hash: u64, is: impl Fn(u32) -> bool) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let home = hash as usize & mask;
        for slot in (home..home + PROBES).map(|slot| slot & mask) {
            let kept = self.slots[slot];
            if kept == 0 {
                return Err(slot);
            }
            if kept >> 32 == hash >> 32 && is(kept as u32 - 1) {
                return Ok(kept as u32 - 1);
            }
        }
        // The text in the home slot is evicted.
        Err(home)
    }

    fn set_slot(&mut self, slot: usize, hash: u64, number: u32) {
        self.slots[slot] = ((hash >> 32) << 32) | u64::from(number + 1);
    }
}

/// Numbers the texts in order of first appearance.
fn group_repeats(texts: &StringArray) -> Repeats {
    // Rows are numbered in 32 bits, with one value to spare.
    if u32::try_from(texts.len() + 1).is_err() {
        return Repeats::Few;
    }
    let mut seen = Seen::new(texts.len());
    let mut keys = Vec::with_capacity(texts.len());
    let mut firsts: Vec<u32> = Vec::new();
    for (row, text) in (0_u32..).zip(texts) {
        let Some(text) = text else {
            keys.push(u32::MAX);
            continue;
        };
        if row >= TRIAL_ROWS && firsts.len() as u64 * 10 > u64::from(row) * 9 {
            return Repeats::Few;
        }
        let hash = xxh3_64(text.as_bytes());
        let number = seen.find_number(hash, |number| texts.value(firsts[number as usize] as usize) == text);
        keys.push(number.unwrap_or_else(|slot| {
            let number = u32::try_from(firsts.len()).unwrap_or(u32::MAX);
            firsts.push(row);
            seen.set_slot(slot, hash, number);
            number
        }));
    }
    if firsts.len() * 10 > texts.len() * 9 { Repeats::Few } else { Repeats::Known { keys, firsts } }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn check(texts: &StringArray) -> IdColumn {
        let column = IdColumn::join_parts(std::slice::from_ref(texts)).unwrap();
        let hashes = column.to_hashes();
        let found: Vec<(usize, IdHash)> = hashes.iter().collect();
        let expected: Vec<(usize, IdHash)> =
            texts.iter().enumerate().filter_map(|(row, id)| Some((row, IdHash::from_id(id?)))).collect();
        assert_eq!(found, expected);
        let middle = texts.len() / 3;
        if let Texts::Keyed { keys, dictionary, valid } = column.compact_texts(middle, texts.len() - middle) {
            for (i, key) in keys.iter().enumerate() {
                let valid = valid.as_ref().is_none_or(|valid| valid.is_valid(i));
                let text = texts.is_valid(middle + i).then(|| texts.value(middle + i));
                assert_eq!(valid.then(|| dictionary[*key as usize]), text);
            }
        }
        column
    }

    #[test]
    fn repeats_are_found_and_hashes_are_right() {
        let few = check(&(0..100_000).map(|i| (i % 7 != 0).then(|| format!("PAT-{}", i % 1_000))).collect());
        assert!(matches!(few.compact_texts(0, 100_000), Texts::Keyed { dictionary, .. } if dictionary.len() == 1_000));
        let many = check(&(0..300_000_u64).map(|i| Some(format!("P{}", xxh3_64(&i.to_le_bytes()) % 60_000))).collect());
        assert!(matches!(many.repeats, Repeats::Known { .. }));
        let unique = check(&(0..50_000).map(|i| Some(format!("V{i}"))).collect());
        assert!(matches!(unique.repeats, Repeats::Few));
        check(&StringArray::new_null(10));
        check(&StringArray::from(Vec::<Option<&str>>::new()));
    }

    #[test]
    fn parts_are_joined() {
        let parts = [StringArray::from(vec!["a", "b"]), StringArray::from(vec![Some("a"), None])];
        let column = IdColumn::join_parts(&parts).unwrap();
        assert_eq!(column.texts().iter().collect::<Vec<_>>(), [Some("a"), Some("b"), Some("a"), None]);
        assert_eq!(column.to_hashes().iter().count(), 3);
    }
}
