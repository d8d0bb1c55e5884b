//! What all array formats have in common: a reader of records on top of an array source.
//!
//! Splits are cut so that each holds whole chunks along the records wherever memory has room for that; elsewhere chunks go by
//! way of the disk (`stripes.rs`). Either way every stored chunk is read and decoded once.

use std::sync::atomic::{AtomicU64, Ordering};

use arrow::{
    array::RecordBatch,
    datatypes::{Fields, SchemaRef},
};

use super::{Parsed, RecordReader, SourceBytes, SplitStream, rows::parsed_with, stripes::Striped};
use crate::{
    array::{
        Arrays,
        cells::cells,
        records::{ArrayOptions, Axis, Plan},
        rows::{fields, hashes, rows},
    },
    error::{Error, Result},
    record::{
        Content, Payload, RecordBlock, Split,
        coded::{batch_of, plain},
        numbers::Numbers,
    },
    units::Size,
};

/// Bytes that a record may take before `splits` tells the bound of the run.
const DEFAULT_LIMIT: u64 = 256 << 20;

/// Rows of a split at most.
const MAX_ROWS: u64 = 4 << 20;

/// Cells take a part of the memory that other records of as many bytes take: most of their columns are keys.
const CELLS: u64 = 4;

/// A split with whole chunks may take this part of what a record may: several are in flight.
const ALIGNED: u64 = 4;

/// Decoding so many bytes again costs less than keeping them.
const SMALL_CHUNK: u64 = 64 << 10;

/// Bytes of constants that are kept for all records.
const MAX_CONSTANTS: u64 = 64 << 20;

/// Reads the records of one array source.
#[derive(Debug)]
pub struct ArrayReader {
    name: String,
    source: Striped,
    plan: Plan,
    fields: Fields,
    columns: Vec<String>,
    /// Bytes of the source as stored.
    bytes: u64,
    limit: AtomicU64,
}

impl ArrayReader {
    /// Decides what the records of a source are. `name` stands in errors; `bytes` is the size of the source.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn new(source: Box<dyn Arrays>, options: &ArrayOptions, name: &str, bytes: u64) -> Result<Self> {
        let plan = Plan::new(source.header(), options).map_err(|e| e.at(name))?;
        let fields = fields(&plan);
        let columns = fields.iter().map(|field| field.name().clone()).collect();
        let limit = AtomicU64::new(DEFAULT_LIMIT);
        let source = Striped::new(source);
        Ok(Self { name: name.to_owned(), source, plan, fields, columns, bytes, limit })
    }

    /// The first split for a look at types, whatever its size.
    pub fn first_split(&self) -> Split {
        let rows = self.plan.rows().min(self.plan.cells.as_ref().map_or(1, |_| self.plan.rows_per_record()));
        // Large records are not read for an estimate.
        let rows = if rows.saturating_mul(self.plan.row_bytes()) > DEFAULT_LIMIT { 0 } else { rows };
        Split { offset: 0, content: Content::Rows { rows, bytes: self.share(0, rows) } }
    }

    /// Bytes of the source that rows stand for, so that all of them together are the source.
    fn share(&self, first: u64, count: u64) -> u64 {
        let rows = u128::from(self.plan.rows().max(1));
        let until = |row: u64| u64::try_from(u128::from(self.bytes) * u128::from(row) / rows).unwrap_or(u64::MAX);
        until(first + count) - until(first)
    }

    /// Rows of a split: whole chunks of records if they fit.
    fn rows_per_split(&self, split_bytes: u64, limit: u64) -> Result<u64> {
        let per_record = self.plan.rows_per_record().max(1);
        let record_bytes = self.plan.row_bytes().saturating_mul(per_record);
        let atom = if self.plan.cells.is_some() { record_bytes } else { self.plan.row_bytes() };
        if atom > limit {
            return Err(Error::input(format!(
                "expected records of at most {}, found some of {}",
                Size(limit),
                Size(atom)
            ))
            .hint(
                "a record may take an eighth of the memory: raise --memory, cut smaller records with --patch, or name \
                   another --record-dim",
            ));
        }
        if record_bytes > limit {
            return Ok((split_bytes / atom).max(1));
        }
        let room = if self.plan.cells.is_some() { split_bytes.saturating_mul(CELLS) } else { split_bytes };
        let fitting = (room / record_bytes).max(1);
        let chunk = self.plan.chunk();
        let records = if chunk <= fitting {
            fitting / chunk * chunk
        } else if record_bytes.saturating_mul(chunk) <= limit / ALIGNED {
            chunk
        } else {
            fitting
        };
        let rows = records.saturating_mul(per_record);
        Ok(if rows > MAX_ROWS { (MAX_ROWS / per_record).max(1) * per_record } else { rows })
    }
}

impl RecordReader for ArrayReader {
    fn splits<'a>(&'a self, _: SourceBytes<'a>, split_bytes: usize, max_record_bytes: usize) -> SplitStream<'a> {
        self.limit.store(max_record_bytes as u64, Ordering::Relaxed);
        let step = match self.rows_per_split(split_bytes.max(1) as u64, max_record_bytes as u64) {
            Ok(step) => step,
            Err(error) => return Box::new(std::iter::once(Err(error.at(self.name.as_str())))),
        };
        let total = self.plan.rows();
        let records = step / self.plan.rows_per_record().max(1);
        self.source.stripe(self.plan.columns.iter().filter_map(|column| {
            let along = column.axes.iter().position(|axis| *axis == Axis::Record)?;
            // Of a chunk that reaches beyond a split, each split would decode all.
            let variable = &self.source.header().variables[column.variable];
            let elements = variable.chunks.iter().flatten().fold(1_u64, |all, length| all.saturating_mul(*length));
            let bytes = elements.saturating_mul(variable.dtype.width().map_or(0, |width| width as u64));
            (column.chunk > records.max(1) && bytes > SMALL_CHUNK).then_some((column.variable, along))
        }));
        Box::new((0..total.div_ceil(step)).map(move |number| {
            let first = number * step;
            let count = step.min(total - first);
            Ok(Split { offset: first, content: Content::Rows { rows: count, bytes: self.share(first, count) } })
        }))
    }

    fn reads_by_itself(&self) -> bool {
        true
    }

    fn columns(&self) -> Option<&[String]> {
        Some(&self.columns)
    }

    fn infer(&self, _: &Split) -> Fields {
        self.fields.clone()
    }

    fn arrays(&self) -> Option<(&dyn Arrays, &Plan)> {
        Some((&self.source, &self.plan))
    }

    fn constants(&self) -> Result<Option<RecordBatch>> {
        if self.plan.constants.is_empty() {
            return Ok(None);
        }
        let plan = self.plan.of_constants(self.source.header()).map_err(|e| e.at(self.name.as_str()))?;
        if plan.row_bytes() > MAX_CONSTANTS {
            let names: Vec<&str> = plan.columns.iter().map(|column| column.field.name().as_str()).collect();
            return Err(Error::input(format!(
                "expected at most {} of values without the dimension `{}` of the records, found {} ({})",
                Size(MAX_CONSTANTS),
                self.plan.dim.as_deref().unwrap_or_default(),
                Size(plan.row_bytes()),
                names.join(", ")
            ))
            .at(self.name.as_str())
            .hint("choose variables with --var, or name another --record-dim"));
        }
        rows(&self.source, &plan, 0, 1).map(Some).map_err(|e| self.placed(e))
    }

    fn parse(&self, split: &Split, schema: &SchemaRef) -> Result<Parsed> {
        let Content::Rows { rows: count, bytes } = split.content else {
            return Err(Error::internal("expected records of arrays, found bytes").at(self.name.as_str()));
        };
        if self.plan.cells.is_some() {
            return self.parse_cells(split.offset, count, schema, bytes).map_err(|e| self.placed(e));
        }
        let batch = rows(&self.source, &self.plan, split.offset, count).map_err(|e| self.placed(e))?;
        parsed_with(hashes(&batch)?, &batch, schema, bytes).map_err(|e| self.placed(e))
    }
}

impl ArrayReader {
    fn parse_cells(&self, first: u64, count: u64, schema: &SchemaRef, bytes: u64) -> Result<Parsed> {
        let cells = cells(&self.source, &self.plan, first, count)?;
        let sharing = usize::try_from(self.plan.rows_per_record()).unwrap_or(0);
        let same = schema.fields().len() == self.fields.len()
            && schema
                .fields()
                .iter()
                .zip(&self.fields)
                .all(|(to, own)| to.name() == own.name() && to.data_type() == own.data_type());
        if !same {
            let hashes = Numbers::shared(cells.hashes, sharing).iter().collect();
            return parsed_with(hashes, &plain(&cells.batch)?, schema, bytes);
        }
        let (columns, rows) = (cells.batch.columns().to_vec(), cells.batch.num_rows());
        let payload = Payload::Rows(batch_of(schema.fields(), columns, rows)?);
        let (hashes, bytes_in) = (cells.hashes, bytes);
        Ok(Parsed::Block(RecordBlock { payload, hashes, sharing, bytes_in, ..RecordBlock::empty() }))
    }

    fn placed(&self, error: Error) -> Error {
        if error.place().source.is_some() { error } else { error.at(self.name.as_str()) }
    }
}
