//! Finds parts of samples that have no column, or text that is not text: Parquet has a column for each kind of part.

use arrow::datatypes::{DataType, SchemaRef};

use super::{Gate, GatedBlock};
use crate::{
    error::Result,
    exec::source::SourceFacts,
    format::TypeMismatch,
    record::{Part, Payload},
};

/// Gate behind the parser that compares samples with the columns of shards.
#[derive(Debug)]
pub struct FitGate {
    /// The columns.
    pub columns: SchemaRef,
}

impl Gate for FitGate {
    fn pass_block(&self, gated: &mut GatedBlock, _source: &SourceFacts) -> Result<()> {
        let Payload::Samples(samples) = &gated.block.payload else { return Ok(()) };
        let unfit = |part: &Part| match self.columns.fields().find(&part.extension).map(|(_, field)| field.data_type())
        {
            None => Some("no part of this extension"),
            Some(DataType::Utf8) if simdutf8::basic::from_utf8(&part.bytes).is_err() => Some("text in UTF-8"),
            Some(_) => None,
        };
        let found = samples.iter().find_map(|s| s.parts.iter().find_map(|part| Some((s, part, unfit(part)?))));
        gated.effects.mismatch = found.map(|(sample, part, expected)| TypeMismatch {
            column: part.extension.clone(),
            line: 0,
            byte: 0,
            value: format!("{}.{}", sample.key, part.extension),
            expected: expected.to_owned(),
        });
        Ok(())
    }
}
