//! Rejected records that name somebody who is erased: they lie in files of lines, as text.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    codec::base64::from_base64,
    error::{Error, Result},
    storage::{SYSTEM_FOLDER, Store},
};

/// Takes lines out of all files of rejects that hold one of the texts as a word; returns how many there were. A file of
/// which nothing is left is deleted.
///
/// # Errors
/// When the store fails or a file is damaged.
pub(super) fn erase(store: &dyn Store, needles: &[String]) -> Result<u64> {
    let mut erased = 0;
    for object in store.list(&format!("{SYSTEM_FOLDER}/rejects"))? {
        let Some(bytes) = store.get(&object.path)? else { continue };
        let text = std::str::from_utf8(&bytes)
            .map_err(|e| Error::integrity("expected rejects in UTF-8").at(object.path.clone()).cause(e))?;
        let kept: Vec<&str> = text.split_inclusive('\n').filter(|line| !names(line, needles)).collect();
        let gone = text.split_inclusive('\n').count() - kept.len();
        if gone == 0 {
            continue;
        }
        erased += gone as u64;
        if kept.is_empty() {
            store.delete(&object.path)?;
        } else {
            store.put(&object.path, Bytes::from(kept.concat()))?;
        }
    }
    Ok(erased)
}

/// Whether a line holds one of the texts; one that cannot be understood is looked at as it is.
fn names(line: &str, needles: &[String]) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
        return needles.iter().any(|needle| has_word(line, needle));
    };
    fields.iter().any(|(name, value)| {
        let Some(text) = value.as_str() else { return false };
        let raw = if name == "raw_base64" { from_base64(text).unwrap_or_default() } else { text.as_bytes().to_vec() };
        needles.iter().any(|needle| has_word_in(&raw, needle))
    })
}

/// Whether a text holds another one that is not part of a longer word.
pub(super) fn has_word(text: &str, word: &str) -> bool {
    has_word_in(text.as_bytes(), word)
}

fn has_word_in(text: &[u8], word: &str) -> bool {
    let inner = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || !b.is_ascii());
    memchr::memmem::find_iter(text, word.as_bytes()).any(|at| {
        let before = at.checked_sub(1).and_then(|before| text.get(before));
        !inner(before) && !inner(text.get(at + word.len()))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{codec::base64::base64, storage::RemoteStore};

    #[test]
    fn words_are_not_parts_of_longer_ones() {
        for text in ["PAT-1", "x,PAT-1,y", "PAT-10 PAT-1", "(PAT-1)", "dir/PAT-1.jpg"] {
            assert!(has_word(text, "PAT-1"), "{text}");
        }
        for text in ["PAT-10", "XPAT-1", "äPAT-1", ""] {
            assert!(!has_word(text, "PAT-1"), "{text}");
        }
    }

    #[test]
    fn lines_that_name_somebody_go() {
        let store = RemoteStore::memory().unwrap();
        let line = |raw: &str| format!("{{\"row\":1,\"reason\":\"bad\",\"raw\":\"{raw}\"}}\n");
        let packed = format!("{{\"row\":2,\"raw_base64\":\"{}\"}}\n", base64(b"\xff,PAT-1"));
        let put = |path: &str, text: String| store.put(path, text.into()).unwrap();
        put("_shardify/rejects/a.jsonl", [line("x,PAT-1"), line("x,PAT-12"), packed.clone()].concat());
        put("_shardify/rejects/b.jsonl", packed);
        assert_eq!(erase(&store, &["PAT-1".into(), "nobody".into()]).unwrap(), 3);
        let left = store.get("_shardify/rejects/a.jsonl").unwrap().unwrap();
        assert_eq!(left, line("x,PAT-12"));
        assert!(store.get("_shardify/rejects/b.jsonl").unwrap().is_none());
    }
}
