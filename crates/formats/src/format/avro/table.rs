//! The records of a range: decodes block after block, and takes out what is damaged.
//!
//! ```text
//! block 1  good        rows 0 ..= 99 become rows
//! block 2  damaged     rows 100 ..= 199 become rejects: none of them can be trusted
//! block 3  a bad text  row 217 becomes a reject, its neighbours become rows
//! gap                  row 300 becomes a reject: from damage between blocks up to the next sync marker
//! ```

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions},
    compute::filter_record_batch,
    datatypes::Schema,
    error::ArrowError,
};
use bytes::Bytes;

use super::{
    AvroReader,
    arrays::finish_column,
    column::{AvroColumn, Decoding},
    header::{BlockHead, BlockLimits},
    input::{Damage, Input},
    row_number,
    schema::Type,
    skip::skip_value,
    unpack::Codec,
};
use crate::{
    error::{Error, Result},
    record::{Reject, SourceRange},
};

/// Maximum records of a damaged block that become rejects of their own; those of one with more are counted.
pub(super) const MAX_REJECTS: u64 = 1 << 16;

/// What a field of a record is read to.
enum Step<'a> {
    Column(Box<AvroColumn>),
    Skipped(&'a Type),
}

/// The decoded records of a range.
struct Table<'a> {
    reader: &'a AvroReader,
    steps: Vec<Step<'a>>,
    decoding: Decoding,
    found: Found,
}

/// What is known of the records of a range beside their values.
#[derive(Default)]
struct Found {
    /// Records of the range so far, rejects included.
    records: u64,
    /// For each decoded record, its number in the range.
    rows: Vec<u32>,
    rejects: Vec<Reject>,
    /// Places among the decoded records of those that are rejected.
    bad: Vec<usize>,
}

/// The rows of a range and its rejects.
pub(super) struct Rows {
    pub(super) batch: RecordBatch,
    pub(super) rows: Vec<u32>,
    pub(super) rejects: Vec<Reject>,
}

/// Decodes the records of a range.
///
/// # Errors
/// If a block is damaged that has too many records to name each.
pub(super) fn decode_range(
    reader: &AvroReader,
    range: &SourceRange,
    bytes: &Bytes,
    limits: BlockLimits,
) -> Result<Rows> {
    let decode = |checks_text| {
        let mut table = Table::new(reader, limits, checks_text);
        table.read_blocks(range, bytes, limits)?;
        Ok::<_, Error>(table)
    };
    // Arrays check all texts at once; only if one of them is none, each is checked by itself.
    match decode(false)?.finish() {
        Ok(rows) => Ok(rows),
        Err(_) => Ok(decode(true)?.finish()?),
    }
}

impl<'a> Table<'a> {
    fn new(reader: &'a AvroReader, limits: BlockLimits, checks_text: bool) -> Self {
        let steps: Vec<Step<'_>> = reader
            .columns
            .iter()
            .zip(&reader.taken)
            .map(|(column, taken)| match taken {
                true => Step::Column(Box::new(AvroColumn::new(&column.of))),
                false => Step::Skipped(&column.of),
            })
            .collect();
        Self {
            reader,
            steps,
            decoding: Decoding { room: limits.bytes.saturating_mul(2), checks_text, fault: None },
            found: Found::default(),
        }
    }

    fn read_blocks(&mut self, range: &SourceRange, bytes: &Bytes, limits: BlockLimits) -> Result<()> {
        let (mut at, mut data) = (0, Vec::new());
        while at < bytes.len() {
            let byte = range.offset + at as u64;
            let head = match self.reader.whole_block(&bytes[at..], limits) {
                Ok(head) => head,
                Err(reason) => {
                    self.found.reject_gap(bytes.slice(at..), byte, reason);
                    return Ok(());
                }
            };
            let packed = bytes.slice(at + head.start..at + head.end);
            data.clear();
            let result = match self.reader.header.codec {
                Codec::Null => self.read_block(&packed, head.records),
                codec => match codec.unpack_to(&packed, limits.bytes, &mut data) {
                    Ok(()) => self.read_block(&data, head.records),
                    Err(reason) => Err(Box::new(Damage { reason, at: 0, column: None })),
                },
            };
            if let Err(damage) = result {
                self.reject_block(&damage, bytes.slice(at..at + head.next()), byte, &head)?;
            }
            at += head.next();
        }
        Ok(())
    }

    /// Decodes the records of a block; after damage, there are those before the block.
    fn read_block(&mut self, data: &[u8], records: u64) -> Result<(), Box<Damage>> {
        let (kept, room) = (self.found.rows.len(), self.decoding.room);
        let result = self.read_records(data, records);
        if result.is_err() {
            for step in &mut self.steps {
                if let Step::Column(column) = step {
                    column.truncate(kept);
                }
            }
            self.found.truncate(kept);
            (self.decoding.fault, self.decoding.room) = (None, room);
        }
        result
    }

    fn read_records(&mut self, data: &[u8], records: u64) -> Result<(), Box<Damage>> {
        let Self { reader, steps, decoding, found } = self;
        let mut input = Input::new(data);
        decoding.spend(records, reader.weight, &input)?;
        for _ in 0..records {
            let start = input.offset();
            let mut fault = None;
            for (at, step) in steps.iter_mut().enumerate() {
                let read = match step {
                    Step::Column(column) => column.read_value(&mut input, decoding),
                    Step::Skipped(of) => skip_value(of, &mut input, &reader.header.schema.named),
                };
                if let Err(mut damage) = read {
                    damage.column = Some(reader.columns[at].name.clone());
                    return Err(damage);
                }
                if fault.is_none() {
                    fault = decoding.fault.take().map(|reason| (at, reason));
                }
            }
            if let Some((column, reason)) = fault {
                decoding.fault = None;
                found.reject_record(input.since(start), reader.columns[column].name.clone(), reason);
            }
            found.rows.push(row_number(found.records));
            found.records += 1;
        }
        match input.left() {
            0 => Ok(()),
            left => {
                Err(input.damage(&format!("expected the end of the block after its records, found {left} bytes more")))
            }
        }
    }

    /// Rejects all records of a block; the first one has its bytes.
    fn reject_block(&mut self, damage: &Damage, block: Bytes, byte: u64, head: &BlockHead) -> Result<()> {
        let Damage { reason, at, column } = damage;
        let place = match (self.reader.header.codec, *at) {
            (Codec::Null, at) => format!("byte {}", byte + (head.start + at) as u64),
            (_, 0) => format!("the block at byte {byte}"),
            (_, at) => format!("byte {at} of the unpacked block at byte {byte}"),
        };
        let reason = format!("{reason}, at {place}");
        if head.records > MAX_REJECTS {
            let error = Error::input(format!("{reason}; its {} records cannot be read", head.records)).at_byte(byte);
            return Err(if let Some(column) = column { error.in_column(column.clone()) } else { error });
        }
        let mut raw = block;
        for _ in 0..head.records {
            self.found.rejects.push(Reject {
                row: row_number(self.found.records),
                line: 0,
                byte,
                column: column.clone(),
                reason: reason.clone(),
                raw: std::mem::take(&mut raw),
            });
            self.found.records += 1;
        }
        Ok(())
    }

    fn finish(self) -> Result<Rows, ArrowError> {
        let Self { reader, steps, found: Found { rows, rejects, bad, .. }, .. } = self;
        let columns = steps.into_iter().filter_map(|step| match step {
            Step::Column(column) => Some(column),
            Step::Skipped(_) => None,
        });
        let fields = reader.fields.iter();
        let arrays = columns.zip(fields).map(|(column, field)| finish_column(*column, field));
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_, _>>()?;
        let schema = Arc::new(Schema::new(reader.fields.clone()));
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options)?;
        if bad.is_empty() {
            return Ok(Rows { batch, rows, rejects });
        }
        let mut good = vec![true; rows.len()];
        bad.into_iter().for_each(|row| good[row] = false);
        let keep = |row: &usize| good[*row];
        Ok(Rows {
            rows: (0..rows.len()).filter(keep).map(|row| rows[row]).collect(),
            batch: filter_record_batch(&batch, &BooleanArray::from(good))?,
            rejects,
        })
    }
}

impl Found {
    /// Rejects the current record, which has a value that its type cannot have.
    fn reject_record(&mut self, record: &[u8], column: String, reason: String) {
        self.bad.push(self.rows.len());
        let (row, raw) = (row_number(self.records), Bytes::copy_from_slice(record));
        self.rejects.push(Reject { row, line: 0, byte: 0, column: Some(column), reason, raw });
    }

    fn reject_gap(&mut self, raw: Bytes, byte: u64, reason: String) {
        let reason = format!("{reason}, at byte {byte}; {} bytes up to the next sync marker are no records", raw.len());
        self.rejects.push(Reject { row: row_number(self.records), line: 0, byte, column: None, reason, raw });
        self.records += 1;
    }

    /// Forgets what follows the first rows.
    fn truncate(&mut self, rows: usize) {
        self.records -= (self.rows.len() - rows) as u64;
        self.rows.truncate(rows);
        let good = self.bad.partition_point(|row| *row < rows);
        self.rejects.truncate(self.rejects.len() - (self.bad.len() - good));
        self.bad.truncate(good);
    }
}
