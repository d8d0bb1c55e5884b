//! Records of tar and TFRecord within the bytes of a block: checked, parsed once, never copied.

use std::ops::Range;

use bytes::Bytes;

use super::{
    columns::PartColumns,
    piece::{Cell, PieceData},
    source::FramedBytes,
};
use crate::{
    codec::{Codec, checksum::xxh3_64},
    dataset::{Frame, RecordExtents},
    error::{Error, Result},
    format::{tar::SpanReader, tfrecord},
};

/// Returns the bytes from the first to the last of some records, which must not overlap.
pub(super) fn range_of(extents: &RecordExtents) -> Result<Range<u64>> {
    let first = extents.offsets.values().first().copied().unwrap_or_default();
    let mut end = first;
    for (offset, length) in extents.offsets.values().iter().zip(extents.lengths.values()) {
        match offset.checked_add(*length).filter(|_| *offset >= end) {
            Some(next) => end = next,
            None => return Err(Error::integrity("expected records in the order of their bytes").at_byte(*offset)),
        }
    }
    Ok(first..end)
}

/// Decompresses consecutive units, each given with its number of raw bytes.
pub(super) fn decompress(codec: Codec, stored: &[u8], units: &[(Frame, u64)]) -> Result<Bytes> {
    let start = units.first().map_or(0, |(unit, _)| unit.offset);
    let unpack = |(unit, raw): &(Frame, u64)| {
        let at = usize::try_from(unit.offset - start).unwrap_or(usize::MAX);
        let length = usize::try_from(unit.length).unwrap_or(usize::MAX);
        let of_unit = stored.get(at..at.saturating_add(length)).unwrap_or_default();
        codec.decompress_unit(of_unit, *raw).map_err(|e| e.at_byte(unit.offset))
    };
    match units {
        [unit] => unpack(unit).map(Bytes::from),
        units => {
            let mut out = Vec::with_capacity(units.iter().filter_map(|(_, raw)| usize::try_from(*raw).ok()).sum());
            for unit in units {
                out.extend_from_slice(&unpack(unit)?);
            }
            Ok(out.into())
        }
    }
}

/// Which records are compared with their hashes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Checked<'a> {
    None,
    /// Those with a flag, or all.
    Needed(Option<&'a [bool]>),
}

/// Whether a row is among those that are needed.
fn is_needed(needed: Option<&[bool]>, row: usize) -> bool {
    needed.and_then(|needed| needed.get(row)).copied().unwrap_or(true)
}

/// Compares records with their hashes while their bytes arrive, for they are in the cache of the core then.
#[derive(Debug)]
pub(super) struct HashCheck<'a> {
    extents: &'a RecordExtents,
    /// Offset of the first byte in the uncompressed shard.
    offset: u64,
    /// Number of the first record in the shard, from 0.
    first_row: u64,
    /// Records that have arrived.
    arrived: usize,
    checked: Checked<'a>,
}

impl<'a> HashCheck<'a> {
    pub(super) fn new(extents: &'a RecordExtents, offset: u64, first_row: u64, checked: Checked<'a>) -> Self {
        Self { extents, offset, first_row, arrived: 0, checked }
    }

    /// Compares the records that end within the bytes that have arrived. A record of hash 0 has none.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<()> {
        let Checked::Needed(needed) = self.checked else { return Ok(()) };
        let RecordExtents { offsets, lengths, hashes } = self.extents;
        let values = offsets.values().iter().zip(lengths.values()).zip(hashes.values());
        for ((&offset, &length), &hash) in values.skip(self.arrived) {
            let Some((_, record)) = record_in(bytes, self.offset, offset, length) else { break };
            if hash != 0 && is_needed(needed, self.arrived) && xxh3_64(record) != hash {
                let error = Error::integrity(format!("expected bytes with hash {hash:016x}, found others"));
                return Err(at_record(error, self.first_row + self.arrived as u64 + 1, offset));
            }
            self.arrived += 1;
        }
        Ok(())
    }
}

impl FramedBytes {
    /// Passes each record, and the place of its first byte among the bytes, to `visit`.
    fn each_record(&self, mut visit: impl FnMut(&[u8], usize) -> Result<()>) -> Result<()> {
        let RecordExtents { offsets, lengths, .. } = &self.extents;
        for (row, (&offset, &length)) in offsets.values().iter().zip(lengths.values()).enumerate() {
            let number = self.first_row + row as u64 + 1;
            let (at, record) = record_in(&self.bytes, self.offset, offset, length).ok_or_else(|| {
                Error::integrity(format!("expected all bytes of record {number}, found fewer")).at_byte(offset)
            })?;
            visit(record, at).map_err(|e| at_record(e, number, offset))?;
        }
        Ok(())
    }
}

/// Returns a record of a shard, and its place among bytes that begin at `start`; `None` if they do not have all of it.
fn record_in(bytes: &[u8], start: u64, offset: u64, length: u64) -> Option<(usize, &[u8])> {
    let at = usize::try_from(offset.checked_sub(start)?).ok()?;
    let end = at.checked_add(usize::try_from(length).ok()?)?;
    Some((at, bytes.get(at..end)?))
}

/// Adds a record to an error whose byte counts from the start of the record.
fn at_record(error: Error, number: u64, offset: u64) -> Error {
    let byte = offset + error.place().byte.unwrap_or_default();
    error.about(format_args!("record {number}")).at_byte(byte)
}

/// Finds the files of samples, whose hashes were compared.
pub(super) fn part_cells(framed: &FramedBytes, columns: &PartColumns, needed: Option<&[bool]>) -> Result<PieceData> {
    let records = framed.extents.offsets.len();
    let mut cells = vec![Cell::ABSENT; records * columns.len()];
    let mut keys = Vec::new();
    let mut spans = SpanReader::default();
    let mut rows = cells.chunks_exact_mut(columns.len().max(1)).enumerate();
    framed.each_record(|record, at| {
        let next = rows.next();
        let (number, row) = next.ok_or_else(|| Error::internal("expected a row of cells for each record"))?;
        if !is_needed(needed, number) {
            return Ok(());
        }
        let mut near = 0;
        spans.each_member(record, |member| {
            if let Some(cell) = columns.key.and_then(|key| row.get_mut(key)).filter(|cell| cell.is_absent()) {
                *cell = key_cell(&mut keys, member.name.get(..member.key).unwrap_or_default())?;
            }
            let Some(column) = columns.column_of(member.extension(), near) else {
                return if columns.complete { Err(unknown_extension(member.extension())) } else { Ok(()) };
            };
            near = column + 1;
            let cell = row.get_mut(column).ok_or_else(|| Error::internal("expected a cell for each column"))?;
            if !cell.is_absent() {
                let extension = String::from_utf8_lossy(member.extension()).into_owned();
                return Err(Error::integrity(format!("expected one file `{extension}` in a sample, found two")));
            }
            *cell = Cell::new(at + member.content.start, member.content.len()).ok_or_else(too_large)?;
            Ok(())
        })?;
        match columns.key.and_then(|key| row.get(key)) {
            Some(cell) if cell.is_absent() => Err(Error::integrity("expected a file in a sample, found none")),
            _ => Ok(()),
        }
    })?;
    Ok(PieceData::Cells { bytes: framed.bytes.clone(), keys, cells })
}

/// Finds the data of examples; each is compared with its checksums.
pub(super) fn example_cells(framed: &FramedBytes, needed: Option<&[bool]>) -> Result<PieceData> {
    let mut cells = Vec::with_capacity(framed.extents.offsets.len());
    framed.each_record(|record, at| {
        if !is_needed(needed, cells.len()) {
            cells.push(Cell::ABSENT);
            return Ok(());
        }
        let data = tfrecord::check_record(record, 0)?;
        cells.push(Cell::new(at + tfrecord::HEAD, data.len()).ok_or_else(too_large)?);
        Ok(())
    })?;
    Ok(PieceData::Cells { bytes: framed.bytes.clone(), keys: Vec::new(), cells })
}

fn key_cell(keys: &mut Vec<u8>, key: &[u8]) -> Result<Cell> {
    if std::str::from_utf8(key).is_err() {
        let found = String::from_utf8_lossy(key);
        return Err(Error::integrity(format!("expected a key in UTF-8, found `{found}`")));
    }
    let start = keys.len();
    keys.extend_from_slice(key);
    Cell::new(start, key.len()).ok_or_else(too_large)
}

fn unknown_extension(extension: &[u8]) -> Error {
    let found = String::from_utf8_lossy(extension);
    Error::usage(format!("expected files with the extensions of other shards, found `{found}`"))
        .with_hint("name the columns to load")
}

fn too_large() -> Error {
    Error::usage("expected a block of less than 4 GiB, found a larger one").with_hint("choose a smaller block")
}

/// Passes the extensions of the files of samples to `visit`.
pub(super) fn each_extension(framed: &FramedBytes, visit: &mut dyn FnMut(&[u8])) -> Result<()> {
    let mut spans = SpanReader::default();
    framed.each_record(|record, _| {
        spans.each_member(record, |member| {
            visit(member.extension());
            Ok(())
        })
    })
}
