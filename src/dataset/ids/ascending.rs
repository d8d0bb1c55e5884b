//! Ids of consecutive records that ascend, in a few bytes each, until enough of them make a segment of the id index.
//!
//! ```text
//! texts      P0000017  P0000018  P0000020  P0000101
//! shared     0         7         6         5             bytes that a text begins with like the one before
//! lengths    8         1         2         3
//! endings    P0000017  8         20        101
//! ```
//!
//! Whether ids ascend is seen while they are hashed, by the threads that do so; whoever gathers them compares two texts for each part.
//! Ids that share so little with the one before that a hash would be smaller are not kept.

use arrow::array::{Array, StringArray};

/// Mean bytes of an ending above which ids are not worth keeping: endings of half-random digits compress to about two thirds, which
/// is what a hash and a record number take.
const MOST_ENDING_BYTES: usize = 12;

/// Ids after which the mean counts.
const TRIAL: usize = 256;

/// Ids that ascend; equal ones may follow each other.
#[derive(Debug, Clone, Default)]
pub(in crate::dataset) struct Ascending {
    shared: Vec<u8>,
    lengths: Vec<u8>,
    endings: String,
    last: String,
}

impl Ascending {
    /// Takes ids if they ascend and are similar to each other; `None` if not, if one is missing, or if there are none.
    pub(in crate::dataset) fn of(texts: &StringArray) -> Option<Self> {
        if texts.is_empty() || texts.null_count() > 0 {
            return None;
        }
        let mut taken = Self {
            shared: Vec::with_capacity(texts.len()),
            lengths: Vec::with_capacity(texts.len()),
            endings: String::with_capacity(texts.len() * 2),
            last: String::new(),
        };
        let mut before = "";
        for row in 0..texts.len() {
            let text = texts.value(row);
            let shared = shared(before, text);
            if row > 0 && text.as_bytes()[shared..] < before.as_bytes()[shared..] {
                return None;
            }
            // A part begins with a whole text, so that parts can be put together.
            let ending = &text[shared..];
            taken.shared.push(u8::try_from(shared).ok()?);
            taken.lengths.push(u8::try_from(ending.len()).ok()?);
            taken.endings.push_str(ending);
            if row >= TRIAL && taken.endings.len() > row * MOST_ENDING_BYTES {
                return None;
            }
            before = text;
        }
        before.clone_into(&mut taken.last);
        Some(taken)
    }

    /// Number of ids.
    pub(in crate::dataset) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Bytes in memory.
    pub(in crate::dataset) fn bytes(&self) -> usize {
        2 * self.lengths.len() + self.endings.len()
    }

    /// The first id.
    pub(in crate::dataset) fn first(&self) -> &str {
        self.lengths.first().map_or("", |length| &self.endings[..usize::from(*length)])
    }

    /// The last id.
    pub(in crate::dataset) fn last(&self) -> &str {
        &self.last
    }

    /// Passes the ids to `visit` in order.
    ///
    /// # Errors
    /// Those of `visit`.
    pub(in crate::dataset) fn each<E>(&self, visit: &mut dyn FnMut(&str) -> Result<(), E>) -> Result<(), E> {
        let (mut text, mut at) = (String::new(), 0);
        for (shared, length) in self.shared.iter().zip(&self.lengths) {
            let end = at + usize::from(*length);
            text.truncate(usize::from(*shared));
            text.push_str(&self.endings[at..end]);
            at = end;
            visit(&text)?;
        }
        Ok(())
    }
}

/// Bytes at the beginning of two texts that are equal, as whole characters and at most as many as a number of one byte can say.
fn shared(before: &str, text: &str) -> usize {
    let most = before.len().min(text.len()).min(usize::from(u8::MAX));
    let (a, b) = (&before.as_bytes()[..most], &text.as_bytes()[..most]);
    let (words_a, words_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let whole = 8 * words_a.iter().zip(words_b).take_while(|(a, b)| a == b).count();
    let same = whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count();
    text.floor_char_boundary(same)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn all(ids: &Ascending) -> Vec<String> {
        let mut found = Vec::new();
        let Ok(()) = ids.each::<Infallible>(&mut |id| {
            found.push(id.to_owned());
            Ok(())
        });
        found
    }

    #[test]
    fn ids_that_ascend_come_back() {
        let long = "x".repeat(300);
        let cases: [Vec<String>; 6] = [
            (0..70_000).map(|n| format!("P{n:07}")).collect(),
            (1_000_000..1_050_000).map(|n| n.to_string()).collect(),
            ["a", "a", "a", "b", "b\u{e4}", "b\u{e5}", "b\u{e5}\u{1f600}", "b\u{e5}\u{1f601}"]
                .map(str::to_owned)
                .to_vec(),
            vec![String::new(), "\u{0}".into(), "\u{7f}".into(), "\u{80}".into()],
            vec!["one".into()],
            (0..3).map(|n| format!("{}{n}", &long[..200])).collect(),
        ];
        for ids in cases {
            let taken = Ascending::of(&ids.iter().map(Some).collect()).unwrap();
            assert_eq!(all(&taken), ids);
            assert_eq!((taken.len(), taken.first(), taken.last()), (ids.len(), &*ids[0], &*ids[ids.len() - 1]));
        }
        let consecutive: StringArray = (1_000_000..1_100_000).map(|n| Some(n.to_string())).collect();
        assert!(Ascending::of(&consecutive).unwrap().bytes() < 100_000 * 4);
    }

    #[test]
    fn others_are_not_taken() {
        let taken = |ids: &[Option<&str>]| Ascending::of(&StringArray::from(ids.to_vec())).is_some();
        assert!(!taken(&[]));
        assert!(!taken(&[Some("a"), None]));
        assert!(!taken(&[Some("b"), Some("a")]));
        assert!(!taken(&[Some("10"), Some("9"), Some("10")]));
        assert!(!taken(&[Some("\u{e5}"), Some("\u{e4}")]));
        assert!(!taken(&[Some(&"x".repeat(300))]));
        let random: StringArray = (0..5_000_u64)
            .map(|n| Some(format!("{n:05}{:032x}", u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 60)))
            .collect();
        assert!(Ascending::of(&random).is_none());
    }
}
