//! The one wrapper of readers: its rows become others, and everything else is that of the reader within.

use std::sync::Arc;

use arrow::datatypes::{Fields, SchemaRef};

use super::{Parsed, ReaderFacts, RecordReader, SourceBytes, SplitStream, arrays::ArraySource};
use crate::{
    error::Result,
    record::{PartSizes, SourcePart, Split, filter::SplitBounds},
};

/// How rows of a reader become others.
pub trait Adapter: Send + Sync + std::fmt::Debug {
    /// Infers the column types, as [`RecordReader::infer`] does.
    fn infer(&self, inner: &dyn RecordReader, split: &Split) -> Fields {
        inner.infer(split)
    }

    /// Parses a split, as [`RecordReader::parse`] does.
    ///
    /// # Errors
    /// Those of the reader, and of the change.
    fn parse(&self, inner: &dyn RecordReader, split: &Split, schema: &SchemaRef) -> Result<Parsed>;

    /// Returns bounds of the rows of a split, as [`RecordReader::bounds`] does.
    fn bounds<'a>(&'a self, inner: &'a dyn RecordReader, split: &Split) -> Option<SplitBounds<'a>> {
        inner.bounds(split)
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

    fn splits<'a>(&'a self, input: SourceBytes<'a>, split_bytes: usize, max_record_bytes: usize) -> SplitStream<'a> {
        self.inner.splits(input, split_bytes, max_record_bytes)
    }

    fn parts(&self, input: SourceBytes<'_>, sizes: &PartSizes) -> Result<Vec<SourcePart>> {
        self.inner.parts(input, sizes)
    }

    fn splits_of<'a>(
        &'a self,
        part: &SourcePart,
        input: SourceBytes<'a>,
        split_bytes: usize,
        max_record_bytes: usize,
    ) -> SplitStream<'a> {
        self.inner.splits_of(part, input, split_bytes, max_record_bytes)
    }

    fn settle(&self, input: SourceBytes<'_>) -> Result<Option<&'static str>> {
        self.inner.settle(input)
    }

    fn arrays(&self) -> Option<&dyn ArraySource> {
        self.inner.arrays()
    }

    fn bounds<'a>(&'a self, split: &Split) -> Option<SplitBounds<'a>> {
        self.adapter.bounds(self.inner.as_ref(), split)
    }

    fn infer(&self, split: &Split) -> Fields {
        self.adapter.infer(self.inner.as_ref(), split)
    }

    fn parse(&self, split: &Split, schema: &SchemaRef) -> Result<Parsed> {
        self.adapter.parse(self.inner.as_ref(), split, schema)
    }
}
