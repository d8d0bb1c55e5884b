//! The one wrapper of readers: its rows become others, and everything else is that of the reader within.

use std::sync::Arc;

use arrow::datatypes::{Fields, SchemaRef};

use super::{Parsed, RangeStream, ReaderFacts, RecordReader, SourceBytes, arrays::ArraySource};
use crate::{
    error::Result,
    record::{PartSizes, SourcePart, SourceRange, filter::RowBounds},
};

/// How rows of a reader become others.
pub trait Adapter: Send + Sync + std::fmt::Debug {
    /// Infers the column types, as [`RecordReader::infer`] does.
    fn infer(&self, inner: &dyn RecordReader, range: &SourceRange) -> Fields {
        inner.infer(range)
    }

    /// Parses a range, as [`RecordReader::parse`] does.
    ///
    /// # Errors
    /// Those of the reader, and of the change.
    fn parse(&self, inner: &dyn RecordReader, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed>;

    /// Returns bounds of the rows of a range, as [`RecordReader::bounds`] does.
    fn bounds<'a>(&'a self, inner: &'a dyn RecordReader, range: &SourceRange) -> Option<RowBounds<'a>> {
        inner.bounds(range)
    }
}

/// A reader whose rows are adapted.
#[derive(Debug)]
pub struct Adapted<A> {
    inner: Arc<dyn RecordReader>,
    facts: ReaderFacts,
    adapter: A,
}

impl<A: Adapter> Adapted<A> {
    /// Wraps a reader; `facts` are those of `inner`, as far as the change leaves them as they are.
    pub fn new(inner: Arc<dyn RecordReader>, facts: ReaderFacts, adapter: A) -> Self {
        Self { inner, facts, adapter }
    }
}

impl<A: Adapter> RecordReader for Adapted<A> {
    fn facts(&self) -> &ReaderFacts {
        &self.facts
    }

    fn ranges<'a>(&'a self, input: SourceBytes<'a>, range_bytes: usize, max_record_bytes: usize) -> RangeStream<'a> {
        self.inner.ranges(input, range_bytes, max_record_bytes)
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        self.inner.parts(input, sizes)
    }

    fn ranges_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        range_bytes: usize,
        max_record_bytes: usize,
    ) -> RangeStream<'a> {
        self.inner.ranges_of(part, input, range_bytes, max_record_bytes)
    }

    fn settle(&self, input: SourceBytes<'_>) -> Result<Option<&'static str>> {
        self.inner.settle(input)
    }

    fn arrays(&self) -> Option<&dyn ArraySource> {
        self.inner.arrays()
    }

    fn bounds<'a>(&'a self, range: &SourceRange) -> Option<RowBounds<'a>> {
        self.adapter.bounds(self.inner.as_ref(), range)
    }

    fn infer(&self, range: &SourceRange) -> Fields {
        self.adapter.infer(self.inner.as_ref(), range)
    }

    fn parse(&self, range: &SourceRange, schema: &SchemaRef) -> Result<Parsed> {
        self.adapter.parse(self.inner.as_ref(), range, schema)
    }
}
