//! Sources that contain records, and how they are read.

use std::{
    io::Read,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arrow::datatypes::Fields;

use super::{SourceFile, formats::InputFormat};
use crate::{
    codec::encoding::{self, Encoding},
    error::Result,
    format::{RangeStream, RecordReader, SourceBytes},
    record::{SourcePart, SourceRange},
};

/// A source that contains records.
#[derive(Debug, Clone)]
pub struct RecordSource {
    /// The file.
    pub file: SourceFile,
    /// Its format and dialect.
    pub format: InputFormat,
    /// Whether the whole source is compressed.
    pub packed: bool,
    /// Encoding of its text; `None` for UTF-8.
    pub encoding: Option<Encoding>,
    /// Reader of its format.
    pub reader: Arc<dyn RecordReader>,
    /// Its first records, if they are kept in memory.
    pub sample: Option<SourceRange>,
    /// Types of its first records.
    pub fields: Fields,
    /// The part of it that is read; `None` for all of it.
    pub part: Option<SourcePart>,
    /// How much of its start is read; `None` if it is read to its end.
    pub first: Option<Arc<First>>,
    /// Whether the hash of its content is needed, even if that takes reading bytes that the records do not need.
    pub hashed: bool,
}

impl RecordSource {
    /// Creates a source that is read whole, is not compressed, and of which nothing is in memory.
    pub(super) fn new(file: &SourceFile, format: InputFormat, reader: Arc<dyn RecordReader>) -> Self {
        Self {
            file: file.clone(),
            format,
            packed: false,
            encoding: None,
            reader,
            sample: None,
            fields: Fields::empty(),
            part: None,
            first: None,
            hashed: false,
        }
    }

    /// Opens the source, or the part of it that is read, as its reader expects it: decompressed, and text in UTF-8;
    /// `tap` observes the stored bytes.
    ///
    /// # Errors
    /// Fails if the source cannot be read.
    pub fn open(&self, tap: impl FnMut(&[u8]) + Send + 'static) -> Result<Box<dyn Read + Send>> {
        let mut tap = tap;
        let first = self.first.clone().filter(|_| self.is_recoded());
        first.iter().for_each(|first| first.start_over());
        let tap = move |bytes: &[u8]| {
            if let Some(first) = &first {
                first.add_read(bytes.len() as u64);
            }
            tap(bytes);
        };
        if let Some(range) = self.part.as_ref().and_then(SourcePart::byte_range) {
            return self.file.open_range(range, tap);
        }
        let input = self.file.open(tap)?;
        Ok(match self.encoding {
            Some(encoding) => encoding::decode_to_utf8(encoding, input),
            None => input,
        })
    }

    /// Whether its stored bytes are not those that its reader reads.
    fn is_recoded(&self) -> bool {
        self.packed || self.encoding.is_some()
    }

    /// Returns the stored bytes that are read: those of the source, of the part, or about those of its start.
    pub fn input_bytes(&self) -> u64 {
        let all = self.part.as_ref().map_or_else(|| self.file.bytes(), |part| part.bytes);
        self.first.as_ref().map_or(all, |first| first.most.min(all))
    }

    /// Cuts the source, or the part of it that is read, into ranges. `input` is what [`open`](Self::open) returns.
    pub fn ranges<'a>(
        &'a self,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        let ranges = match &self.part {
            Some(part) => self.reader.ranges_of(part, input, range_bytes, max_record_bytes),
            None => self.reader.ranges(input, range_bytes, max_record_bytes),
        };
        match &self.first {
            Some(first) => first.limit_ranges(ranges, !self.is_recoded()),
            None => ranges,
        }
    }

    /// Infers the types of its first records, and drops these unless `kept`.
    pub(super) fn infer_fields(&mut self, kept: bool) {
        if let Some(sample) = &self.sample {
            self.fields = self.reader.infer(sample);
        }
        if !kept {
            self.sample = None;
        }
    }

    /// Returns whether its records are samples rather than rows.
    pub fn yields_samples(&self) -> bool {
        self.reader.facts().yields_samples
    }
}

/// The start of a source: the ranges up to the first one that reaches a number of stored bytes.
#[derive(Debug)]
pub struct First {
    most: u64,
    read: AtomicU64,
}

impl First {
    /// Creates a start of about `most` stored bytes.
    pub fn new(most: u64) -> Self {
        Self { most, read: AtomicU64::new(0) }
    }

    /// Returns the stored bytes that were read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// The source is read anew.
    fn start_over(&self) {
        self.read.store(0, Ordering::Relaxed);
    }

    fn add_read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the first ranges. Their bytes are counted here, unless those that were stored are counted as they are
    /// read.
    fn limit_ranges<'a>(&'a self, mut ranges: RangeStream<'a>, counts: bool) -> RangeStream<'a> {
        if counts {
            self.start_over();
        }
        Box::new(std::iter::from_fn(move || {
            let range = if self.read() < self.most { ranges.next()? } else { return None };
            if let (true, Ok(range)) = (counts, &range) {
                self.add_read(range.bytes_in());
            }
            Some(range)
        }))
    }
}
