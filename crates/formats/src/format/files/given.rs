//! Parts of samples that are not files, such as the row of a table of labels.
//!
//! Their contents are in memory, one after the other, and samples name theirs by number, so that samples may share one:
//!
//! ```text
//! contents  {"x":1} | {"x":2} | {"x":3}
//! samples   a: 2   b: none   c: 0
//! ```

use std::sync::Arc;

use bytes::Bytes;

/// Contents of parts, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartContents {
    bytes: Bytes,
    ends: Arc<[usize]>,
}

impl PartContents {
    /// Creates contents from their bytes and the end of each.
    pub fn new(bytes: Vec<u8>, ends: Vec<usize>) -> Self {
        Self { bytes: bytes.into(), ends: ends.into() }
    }

    /// Returns the number of contents.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no contents.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn get(&self, number: u32) -> Bytes {
        let number = number as usize;
        let start = number.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        self.bytes.slice(start..self.ends.get(number).copied().unwrap_or(start))
    }
}

/// Number of a content that stands for none.
const NONE: u32 = u32::MAX;

/// A part that samples have besides their files: at most one for each sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenPart {
    extension: String,
    contents: PartContents,
    of_sample: Vec<u32>,
}

impl GivenPart {
    /// Creates the parts with an extension, given the number of each sample's content, in the order of the samples.
    pub fn new(extension: &str, contents: PartContents, numbers: impl Iterator<Item = Option<u32>>) -> Self {
        let known = |number: Option<u32>| number.filter(|number| (*number as usize) < contents.len()).unwrap_or(NONE);
        let of_sample = numbers.map(known).collect();
        Self { extension: extension.to_owned(), of_sample, contents }
    }

    /// Returns the extension.
    pub fn extension(&self) -> &str {
        &self.extension
    }

    /// Returns the contents of all samples.
    pub fn contents(&self) -> &PartContents {
        &self.contents
    }

    /// Returns the number of a sample's content.
    pub fn content_number(&self, sample: usize) -> Option<u32> {
        self.of_sample.get(sample).copied().filter(|number| *number != NONE)
    }

    /// Returns the content of a sample's part.
    pub fn content(&self, sample: usize) -> Option<Bytes> {
        self.content_number(sample).map(|number| self.contents.get(number))
    }
}
