//! Ids of consecutive records that ascend, as encoded columns of a few bytes each, until enough of them make a segment
//! of the id index.
//!
//! ```text
//! worker      texts of a row group -> chunk of the sidecar's column -.
//!             few texts --------------------------------------------- | -.
//! gatherer                                           loose texts <----|--'
//!                                                        | enough     |
//!                                                        v            v
//!                                                      chunk ------> groups of a segment
//! ```
//!
//! A column that is encoded for a sidecar is the same in the index, so it is encoded once, by the thread that does so
//! anyway; whoever gathers ids compares two texts for each part. Ids that would take more than their hashes are not
//! kept.

use std::cmp::Ordering;

use arrow::{
    array::{Array, StringArray},
    datatypes::{DataType, Field, Schema},
};

use crate::{
    dataset::{
        ids::width::HashWidth,
        table::{
            self,
            chunks::{self, Chunk, Values},
        },
    },
    error::Result,
};

/// Rows from which on texts are encoded as a row group of their own.
pub(in crate::dataset) const LEAST_GROUP_ROWS: usize = 32 << 10;

/// Ids that ascend; equal ones may follow each other.
#[derive(Debug, Clone)]
pub(in crate::dataset) struct Ascending {
    first: String,
    last: String,
    /// Ids that equal the one before.
    repeated: u64,
    form: Form,
}

/// How ids are kept.
#[derive(Debug, Clone)]
pub(in crate::dataset) enum Form {
    /// As they are.
    Texts(StringArray),
    /// As columns of row groups.
    Encoded(Vec<Chunk>),
}

impl Ascending {
    /// Takes ids if they ascend; `None` if not, if one is missing, or if there are none.
    pub(in crate::dataset) fn from_texts(texts: &StringArray) -> Option<Self> {
        if texts.is_empty() || texts.null_count() > 0 {
            return None;
        }
        let (mut before, mut repeated) = (texts.value(0), 0);
        for row in 1..texts.len() {
            let text = texts.value(row);
            match text.cmp(before) {
                Ordering::Less => return None,
                Ordering::Equal => repeated += 1,
                Ordering::Greater => {}
            }
            before = text;
        }
        let (first, last) = (texts.value(0).to_owned(), before.to_owned());
        Some(Self { first, last, repeated, form: Form::Texts(texts.clone()) })
    }

    /// Takes the ids, if they are many, as columns that were encoded elsewhere; `None` if hashes of this width would
    /// take less.
    pub(in crate::dataset) fn encoded_as(self, chunks: Vec<Chunk>, width: HashWidth) -> Option<Self> {
        if self.len() < LEAST_GROUP_ROWS {
            return Some(self);
        }
        let rows = self.len();
        let encoded = Self { form: Form::Encoded(chunks), ..self };
        (encoded.len() == rows && encoded.memory_bytes() <= rows * usize::from(width.byte_count())).then_some(encoded)
    }

    /// Encodes the ids if they are many; `None` if hashes of this width would take less.
    ///
    /// # Errors
    /// If an id is longer than Parquet allows.
    pub(in crate::dataset) fn into_encoded(self, width: HashWidth) -> Result<Option<Self>> {
        match &self.form {
            Form::Texts(texts) if texts.len() >= LEAST_GROUP_ROWS => {
                let chunks = vec![encode_ids(texts)?];
                Ok(self.encoded_as(chunks, width))
            }
            _ => Ok(Some(self)),
        }
    }

    /// Number of ids.
    pub(in crate::dataset) fn len(&self) -> usize {
        match &self.form {
            Form::Texts(texts) => texts.len(),
            Form::Encoded(chunks) => chunks.iter().map(Chunk::row_count).sum(),
        }
    }

    /// Bytes in memory.
    pub(in crate::dataset) fn memory_bytes(&self) -> usize {
        match &self.form {
            Form::Texts(texts) => text_bytes(texts),
            Form::Encoded(chunks) => chunks.iter().map(|chunk| chunk.bytes.len()).sum(),
        }
    }

    /// Number of ids that equal the one before.
    pub(in crate::dataset) fn repeated_count(&self) -> u64 {
        self.repeated
    }

    /// The first id.
    pub(in crate::dataset) fn first_id(&self) -> &str {
        &self.first
    }

    /// The last id.
    pub(in crate::dataset) fn last_id(&self) -> &str {
        &self.last
    }

    /// The ids.
    pub(in crate::dataset) fn form(&self) -> &Form {
        &self.form
    }
}

/// Bytes of some texts with their offsets.
pub(in crate::dataset) fn text_bytes(texts: &StringArray) -> usize {
    let offsets = texts.value_offsets();
    let ends = offsets.first().zip(offsets.last());
    ends.map_or(0, |(first, last)| usize::try_from(last - first).unwrap_or(0)) + size_of_val(offsets)
}

/// Encodes ids as the column of a row group.
pub(in crate::dataset) fn encode_ids(texts: &StringArray) -> Result<Chunk> {
    let columns = table::parquet_schema(&Schema::new(vec![id_field()]))?;
    chunks::encode_chunk(&columns.column(0), texts.len(), &Values::Texts(texts))
}

/// The column of a segment that has the ids. By its type values may be missing, as in sidecars, but none is.
pub(in crate::dataset) fn id_field() -> Field {
    Field::new("id", DataType::Utf8, true)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn texts(count: usize) -> StringArray {
        (0..count).map(|n| Some(format!("P{n:07}"))).collect()
    }

    #[test]
    fn ids_that_ascend_are_taken() {
        for ids in
            [vec!["one"], vec!["", "\u{0}", "\u{7f}", "\u{80}"], vec!["a", "a", "b", "b\u{e4}", "b\u{e5}", "\u{1f600}"]]
        {
            let taken = Ascending::from_texts(&ids.iter().map(Some).collect()).unwrap();
            assert_eq!((taken.len(), taken.first_id(), taken.last_id()), (ids.len(), ids[0], ids[ids.len() - 1]));
        }
        let taken = |ids: &[Option<&str>]| Ascending::from_texts(&StringArray::from(ids.to_vec())).is_some();
        assert!(!taken(&[]));
        assert!(!taken(&[Some("a"), None]));
        assert!(!taken(&[Some("b"), Some("a")]));
        assert!(!taken(&[Some("10"), Some("9"), Some("10")]));
        assert!(!taken(&[Some("\u{e5}"), Some("\u{e4}")]));
    }

    #[test]
    fn many_are_encoded_unless_hashes_take_less() {
        let few = Ascending::from_texts(&texts(LEAST_GROUP_ROWS - 1))
            .unwrap()
            .into_encoded(HashWidth::Eight)
            .unwrap()
            .unwrap();
        assert!(matches!(few.form(), Form::Texts(_)) && few.memory_bytes() > 12 * few.len());
        let many =
            Ascending::from_texts(&texts(LEAST_GROUP_ROWS)).unwrap().into_encoded(HashWidth::Eight).unwrap().unwrap();
        assert!(matches!(many.form(), Form::Encoded(_)) && many.memory_bytes() < many.len());
        assert_eq!((many.len(), many.first_id(), many.last_id()), (LEAST_GROUP_ROWS, "P0000000", "P0032767"));
        let random: StringArray = (0..40_000_u64)
            .map(|n| Some(format!("{n:05}{:032x}", u128::from(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 60)))
            .collect();
        assert!(Ascending::from_texts(&random).unwrap().into_encoded(HashWidth::Eight).unwrap().is_none());
        // Some five random bytes each, and what tells them apart.
        let between: StringArray = (0..40_000_u64)
            .map(|n| Some(format!("{n:05}{:010x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24)))
            .collect();
        let packed = |width| Ascending::from_texts(&between).unwrap().into_encoded(width).unwrap().is_some();
        assert_eq!((packed(HashWidth::Eight), packed(HashWidth::Five)), (true, false));
        // Few stay as they are, for their own column would be large; chunks of other rows are never taken for these.
        let chunk = encode_ids(&texts(LEAST_GROUP_ROWS)).unwrap();
        let few = Ascending::from_texts(&texts(10))
            .unwrap()
            .encoded_as(vec![encode_ids(&texts(10)).unwrap()], HashWidth::Eight)
            .unwrap();
        assert!(matches!(few.form(), Form::Texts(_)));
        assert!(
            Ascending::from_texts(&texts(LEAST_GROUP_ROWS + 1))
                .unwrap()
                .encoded_as(vec![chunk], HashWidth::Eight)
                .is_none()
        );
    }
}
