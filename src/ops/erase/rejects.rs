//! Removes rejected records that name an erased person from the files of rejects, which are lines of text, and from
//! tables of duplicates.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use serde_json::Value;

use crate::{
    codec::{base64::from_base64, seal::damaged_line},
    dataset::{DuplicateRow, FirstOccurrence, HashedText, RowFate, Salt, erase_duplicates},
    error::Result,
    record::spelling::{continues_word, possible_decodings, with_unescaped},
    storage::{SYSTEM_FOLDER, Store},
};

/// Texts that must not remain: in plain form, or as hashes if another run finishes the erasure.
pub(super) enum Words<'a> {
    /// The texts.
    Known(&'a [String]),
    /// Their hashes and their lengths.
    Hidden { salt: Salt, hashes: HashSet<HashedText>, lengths: BTreeSet<usize> },
}

impl Words<'_> {
    /// Creates the hashed form from an order.
    pub(super) fn from_hashed(salt: Salt, words: &[HashedText]) -> Self {
        let lengths = words.iter().map(|word| word.bytes).filter(|bytes| *bytes > 0).collect();
        Self::Hidden { salt, hashes: words.iter().copied().collect(), lengths }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Known(texts) => texts.is_empty(),
            Self::Hidden { hashes, .. } => hashes.is_empty(),
        }
    }

    /// Returns whether a text contains one of them as a whole word, not as a part of a longer word.
    fn are_in(&self, text: &[u8]) -> bool {
        match self {
            Self::Known(texts) => texts.iter().any(|word| has_word_in(text, word)),
            Self::Hidden { salt, hashes, lengths } => {
                // A text between two word borders may be one of them; its hash decides.
                let begins = |at: &usize| !continues_word(at.checked_sub(1).and_then(|before| text.get(before)));
                let ends =
                    |(at, bytes): &(usize, &usize)| at + *bytes <= text.len() && !continues_word(text.get(at + *bytes));
                let spans = (0..text.len()).filter(begins).flat_map(|at| lengths.iter().map(move |bytes| (at, bytes)));
                spans
                    .filter(ends)
                    .filter_map(|(at, bytes)| std::str::from_utf8(&text[at..at + bytes]).ok())
                    .any(|word| hashes.contains(&HashedText::from_text(salt, word)))
            }
        }
    }
}

/// What was searched for texts that must not remain.
#[derive(Debug, Default)]
pub(super) struct Searched {
    /// Number of lines and rows that were removed.
    pub(super) removed: u64,
    /// Paths of damaged objects, in which words may be damaged, too.
    pub(super) damaged: Vec<String>,
}

/// Removes what contains one of the texts as a word: lines from all files of rejects, and rows from all tables of
/// duplicates.
///
/// # Errors
/// When the store fails.
pub(super) fn erase_all(store: &Arc<dyn Store>, words: &Words<'_>) -> Result<Searched> {
    let mut searched = Searched::default();
    if words.is_empty() {
        return Ok(searched);
    }
    erase_lines(store.as_ref(), words, &mut searched)?;
    let names = |text: &Option<String>| text.as_ref().is_some_and(|text| words.are_in(text.as_bytes()));
    let fate = |row: &DuplicateRow| {
        if names(&row.record_id) || names(&row.subject_id) || words.are_in(row.source.as_bytes()) {
            return RowFate::Removed;
        }
        match &row.first {
            // The record is another person's, and is there again once its source is read again.
            FirstOccurrence::Id(first) | FirstOccurrence::Origin(first, _) if words.are_in(first.as_bytes()) => {
                RowFate::WithoutFirst
            }
            _ => RowFate::Kept,
        }
    };
    let (rows, damaged) = erase_duplicates(store, &fate)?;
    searched.removed += rows;
    searched.damaged.extend(damaged);
    Ok(searched)
}

/// Removes the lines that contain one of the texts as a word from all files of rejects. A file without remaining lines
/// is deleted.
///
/// # Errors
/// When the store fails.
fn erase_lines(store: &dyn Store, words: &Words<'_>, searched: &mut Searched) -> Result<()> {
    for object in store.list_folder(&format!("{SYSTEM_FOLDER}/rejects"))? {
        let Some(bytes) = store.get(&object.path)? else { continue };
        let Ok(text) = std::str::from_utf8(&bytes) else {
            searched.damaged.push(object.path);
            continue;
        };
        let kept: Vec<&str> = text.split_inclusive('\n').filter(|line| !line_contains_any(line, words)).collect();
        let gone = text.split_inclusive('\n').count() - kept.len();
        let kept = kept.concat();
        if damaged_line(&mut kept.as_bytes())?.is_some() {
            searched.damaged.push(object.path.clone());
        }
        if gone == 0 {
            continue;
        }
        searched.removed += gone as u64;
        if kept.is_empty() {
            store.delete(&object.path)?;
        } else {
            store.put(&object.path, Bytes::from(kept))?;
        }
    }
    Ok(())
}

/// Returns whether a line contains one of the texts; a line that cannot be parsed is searched as it is.
fn line_contains_any(line: &str, words: &Words<'_>) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
        return words.are_in(line.as_bytes());
    };
    fields.iter().any(|(name, value)| {
        let Some(text) = value.as_str() else { return false };
        if name == "raw_base64" {
            let bytes = from_base64(text).unwrap_or_default();
            return words.are_in(&bytes) || possible_decodings(&bytes).iter().any(|text| are_in_text(words, text));
        }
        are_in_text(words, text)
    })
}

/// Returns whether a text contains one of them, as it is or without escapes.
fn are_in_text(words: &Words<'_>, text: &str) -> bool {
    with_unescaped(text).any(|text| words.are_in(text.as_bytes()))
}

/// Returns whether a text contains a word that is not part of a longer word.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    has_word_in(text.as_bytes(), word)
}

fn has_word_in(text: &[u8], word: &str) -> bool {
    memchr::memmem::find_iter(text, word.as_bytes()).any(|at| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !continues_word(before) && !continues_word(text.get(at + word.len()))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{
        codec::{base64::to_base64, seal::close_line},
        storage::RemoteStore,
    };

    #[test]
    fn words_are_not_parts_of_longer_ones() {
        for text in ["PAT-1", "x,PAT-1,y", "PAT-10 PAT-1", "(PAT-1)", "dir/PAT-1.jpg"] {
            assert!(has_word(text, "PAT-1"), "{text}");
            assert!(hidden(&["PAT-1"]).are_in(text.as_bytes()), "{text}");
        }
        for text in ["PAT-10", "XPAT-1", "äPAT-1", ""] {
            assert!(!has_word(text, "PAT-1"), "{text}");
            assert!(!hidden(&["PAT-1"]).are_in(text.as_bytes()), "{text}");
        }
    }

    fn hidden(words: &[&str]) -> Words<'static> {
        let salt = Salt::fresh();
        Words::from_hashed(salt, &words.iter().map(|word| HashedText::from_text(&salt, word)).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_found_by_their_hashes_where_they_are_found_as_they_are() {
        let words = ["PAT-1", "-7", "Jörg M.", "a", "scan 1/x", "né"];
        let parts = ["PAT-1", "PAT-10", "-7", "Jörg M.", " ", ",", "a", "scan 1/x", "né", "né!", "\"", "b", "漢"];
        let mut seed = 7_u64;
        for _ in 0..2000 {
            let mut text = String::new();
            for _ in 0..(seed >> 40) % 6 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text += parts[usize::try_from(seed >> 33).unwrap() % parts.len()];
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let known = words.map(str::to_owned);
            let expected = Words::Known(&known).are_in(text.as_bytes());
            assert_eq!(hidden(&words).are_in(text.as_bytes()), expected, "{text}");
        }
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        assert_eq!(erase_all(&store, &hidden(&[])).unwrap().removed, 0);
    }

    #[test]
    fn lines_that_contain_an_erased_id_are_removed() {
        let store: Arc<dyn Store> = Arc::new(RemoteStore::in_memory().unwrap());
        let line = |raw: &str| {
            let mut line = format!("{{\"row\":1,\"reason\":\"bad\",\"raw\":\"{raw}\"}}").into_bytes();
            close_line(&mut line);
            String::from_utf8(line).unwrap() + "\n"
        };
        let packed = format!("{{\"row\":2,\"raw_base64\":\"{}\"}}\n", to_base64(b"\xff,PAT-1"));
        let put = |path: &str, text: String| store.put(path, text.into()).unwrap();
        put("_shardify/rejects/a.jsonl", [line("x,PAT-1"), line("x,PAT-12"), packed.clone()].concat());
        put("_shardify/rejects/b.jsonl", packed);
        store.put("_shardify/rejects/c.jsonl", b"\xff,PAT-1\n".as_slice().into()).unwrap();
        // In this line the id is no longer what it was, and the file is named.
        put("_shardify/rejects/d.jsonl", line("x,PAT-2").replace("PAT-2", "PBT-1"));
        let damaged = ["c", "d"].map(|name| format!("_shardify/rejects/{name}.jsonl")).to_vec();
        let words = ["PAT-1".to_owned(), "nobody".to_owned()];
        let searched = erase_all(&store, &Words::Known(&words)).unwrap();
        assert_eq!((searched.removed, searched.damaged), (3, damaged));
        let left = store.get("_shardify/rejects/a.jsonl").unwrap().unwrap();
        assert_eq!(left, line("x,PAT-12"));
        assert!(store.get("_shardify/rejects/b.jsonl").unwrap().is_none());
    }
}
