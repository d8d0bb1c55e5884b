//! NetCDF in the classic formats: CDF-1, CDF-2 (64-bit offset) and CDF-5. NetCDF-4 is HDF5.
//!
//! ```text
//! "CDF" version   number of records   dimensions   attributes   variables      all big-endian, padded to 4 bytes
//! variable: name   dimensions   attributes   type   size   begin
//! data:     [variable without records]*   [record 0: a slice of each variable with records] [record 1] ...
//! ```
//!
//! Numbers have 4 bytes, in CDF-5 8; offsets of variables have 8 bytes from CDF-2 on. Sizes in the file are not used,
//! because they follow from types and dimensions. A slice of a record is padded to 4 bytes, unless it is the only one
//! of its record.

use std::{any::Any, ops::Range};

use bytes::Bytes;

use super::ranged::RangedInput;
use crate::{
    array::{
        Arrays, Attribute, DType, Header, Slab, Values, Variable,
        dtype::Padding,
        slab::{box_ranges, read_box},
    },
    error::{Error, Result},
};

/// Maximum bytes of a header, which is read in growing pieces.
const MAX_HEADER: u64 = 64 << 20;
const FIRST_READ: u64 = 64 << 10;

/// Maximum bytes of one read that covers several records and the bytes between them.
const TOGETHER: u64 = 16 << 20;

/// Whether a file with this head is netCDF in a classic format.
pub fn sniff(head: &[u8]) -> bool {
    matches!(head, [b'C', b'D', b'F', 1 | 2 | 5, ..])
}

/// A netCDF file of a classic format.
#[derive(Debug)]
pub struct NetCdfSource {
    input: RangedInput,
    header: Header,
    stored: Vec<VariableStorage>,
    /// Bytes from one record to the next.
    record_bytes: u64,
}

/// Location of a variable.
#[derive(Debug, Clone, Copy)]
struct VariableStorage {
    begin: u64,
    has_records: bool,
    width: usize,
}

struct CutShort;

/// Parses the header front to back.
struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes of a number, and of an offset.
    number: usize,
    offset: usize,
}

enum NetCdfFault {
    /// More of the header is needed.
    Cut,
    Bad(Error),
}

impl From<CutShort> for NetCdfFault {
    fn from(_: CutShort) -> Self {
        Self::Cut
    }
}

type HeaderResult<T> = std::result::Result<T, NetCdfFault>;

impl<'a> Parser<'a> {
    fn take_bytes(&mut self, bytes: u64) -> std::result::Result<&'a [u8], CutShort> {
        let end = usize::try_from(bytes).ok().and_then(|bytes| self.at.checked_add(bytes)).ok_or(CutShort)?;
        let taken = self.bytes.get(self.at..end).ok_or(CutShort)?;
        self.at = end;
        Ok(taken)
    }

    fn big_endian(&mut self, width: usize) -> std::result::Result<u64, CutShort> {
        Ok(self.take_bytes(width as u64)?.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    fn read_number(&mut self) -> std::result::Result<u64, CutShort> {
        self.big_endian(self.number)
    }

    /// Returns bytes that are padded to a multiple of 4.
    fn take_padded(&mut self, bytes: u64) -> std::result::Result<&'a [u8], CutShort> {
        let taken = self.take_bytes(bytes)?;
        self.take_bytes((4 - bytes % 4) % 4)?;
        Ok(taken)
    }

    fn bad_header(&self, what: &str, found: &str) -> NetCdfFault {
        NetCdfFault::Bad(Error::input(format!("expected {what}, found {found}")).at_byte(self.at as u64))
    }

    fn read_name(&mut self) -> HeaderResult<String> {
        let length = self.read_number()?;
        let name = self.take_padded(length)?;
        // Some old writers include the NUL in the length.
        let name = name.strip_suffix(&[0]).unwrap_or(name);
        String::from_utf8(name.to_vec()).map_err(|_| self.bad_header("a name in UTF-8", "other bytes"))
    }

    /// Returns the number of entries of a list with this tag; 0 for an absent list.
    fn read_list(&mut self, tag: u64, what: &str) -> HeaderResult<u64> {
        let found = self.big_endian(4)?;
        let entries = self.read_number()?;
        if (found == tag && entries <= (1 << 24)) || (found == 0 && entries == 0) {
            return Ok(entries);
        }
        Err(self.bad_header(&format!("a list of {what}"), &format!("tag {found} with {entries} entries")))
    }

    fn read_dtype(&mut self) -> HeaderResult<DType> {
        Ok(match self.big_endian(4)? {
            1 => DType::Int(1),
            2 => DType::Text(1, Padding::Nul),
            3 => DType::Int(2),
            4 => DType::Int(4),
            5 => DType::Float(4),
            6 => DType::Float(8),
            7 => DType::UInt(1),
            8 => DType::UInt(2),
            9 => DType::UInt(4),
            10 => DType::Int(8),
            11 => DType::UInt(8),
            other => return Err(self.bad_header("a type of netCDF", &other.to_string())),
        })
    }

    fn read_attributes(&mut self) -> HeaderResult<Vec<(String, Attribute)>> {
        let mut attributes = Vec::new();
        for _ in 0..self.read_list(12, "attributes")? {
            let name = self.read_name()?;
            let dtype = self.read_dtype()?;
            let count = self.read_number()?;
            let width = dtype.byte_width().unwrap_or(1) as u64;
            let mut bytes = self.take_padded(count.saturating_mul(width))?.to_vec();
            let value = if let DType::Text(..) = dtype {
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                Attribute::Text(String::from_utf8_lossy(&bytes[..end]).into_owned())
            } else {
                if cfg!(target_endian = "little") {
                    dtype.swap_bytes(&mut bytes);
                }
                Attribute::Numbers(dtype, bytes)
            };
            attributes.push((name, value));
        }
        Ok(attributes)
    }
}

impl NetCdfSource {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input), naming the byte, if it is damaged or variables extend beyond the
    /// end.
    pub fn open(input: RangedInput) -> Result<Self> {
        let total = input.byte_count();
        let mut size = FIRST_READ;
        loop {
            let head = input.read_range(0..size.min(total))?;
            match parse_header(&head, total) {
                Ok((header, stored, record_bytes)) => return Ok(Self { input, header, stored, record_bytes }),
                Err(NetCdfFault::Bad(error)) => return Err(error),
                Err(NetCdfFault::Cut) if size >= total.min(MAX_HEADER) => {
                    return Err(Error::input("expected the header of a netCDF file, found the end of the file")
                        .at_byte(size.min(total))
                        .with_hint("the file may have been cut short"));
                }
                Err(NetCdfFault::Cut) => size *= 4,
            }
        }
    }

    fn read_range(&self, start: u64, bytes: u64) -> Result<Bytes> {
        self.input.read_range(start..start.saturating_add(bytes))
    }
}

fn parse_header(head: &[u8], total: u64) -> HeaderResult<(Header, Vec<VariableStorage>, u64)> {
    let version = head.get(3).copied().unwrap_or_default();
    let (number, offset) = (if version == 5 { 8 } else { 4 }, if version == 1 { 4 } else { 8 });
    let mut parser = Parser { bytes: head, at: 4, number, offset };
    let streamed = if number == 8 { u64::MAX } else { u64::from(u32::MAX) };
    let records = parser.read_number()?;
    let mut dims: Vec<(String, u64)> = Vec::new();
    for _ in 0..parser.read_list(10, "dimensions")? {
        dims.push((parser.read_name()?, parser.read_number()?));
    }
    let grows = dims.iter().position(|(_, length)| *length == 0);
    let mut header = Header { attributes: parser.read_attributes()?, ..Header::default() };
    header.unlimited = grows.iter().map(|dim| dims[*dim].0.clone()).collect();
    let mut stored = Vec::new();
    let count = parser.read_list(11, "variables")?;
    for _ in 0..count {
        let (variable, place) = parse_variable(&mut parser, &dims, grows)?;
        header.variables.push(variable);
        stored.push(place);
    }
    let record_bytes = record_bytes(&header.variables, &stored);
    // A file that is still being written does not state its number of records.
    let first = stored.iter().filter(|place| place.has_records).map(|place| place.begin).min();
    let records = match first {
        Some(first) if records == streamed => total.saturating_sub(first) / record_bytes.max(1),
        _ => records,
    };
    for (variable, place) in header.variables.iter_mut().zip(&stored) {
        if place.has_records {
            variable.shape[0] = records;
        }
        check_end(variable, place, record_bytes, total).map_err(NetCdfFault::Bad)?;
    }
    Ok((header, stored, record_bytes))
}

fn parse_variable(
    parser: &mut Parser<'_>,
    dims: &[(String, u64)],
    grows: Option<usize>,
) -> HeaderResult<(Variable, VariableStorage)> {
    let name = parser.read_name()?;
    let rank = parser.read_number()?;
    let mut numbers = Vec::new();
    for _ in 0..rank {
        let number = parser.read_number()?;
        let found = usize::try_from(number).ok().filter(|number| *number < dims.len());
        numbers.push(found.ok_or_else(|| parser.bad_header("the number of a dimension", &number.to_string()))?);
    }
    let attributes = parser.read_attributes()?;
    let dtype = parser.read_dtype()?;
    let _size = parser.read_number()?;
    let begin = parser.big_endian(parser.offset)?;
    let has_records = numbers.first().is_some_and(|first| Some(*first) == grows);
    let width = dtype.byte_width().unwrap_or(1);
    let variable = Variable {
        name,
        characters: matches!(dtype, DType::Text(..)) && !numbers.is_empty(),
        dtype,
        shape: numbers.iter().map(|number| dims[*number].1).collect(),
        dims: numbers.iter().map(|number| dims[*number].0.clone()).collect(),
        unnamed: false,
        chunks: None,
        codecs: Vec::new(),
        attributes,
        fills: true,
    };
    Ok((variable, VariableStorage { begin, has_records, width }))
}

/// Returns the bytes of a variable, or of one record of a record variable.
fn slice_bytes(variable: &Variable, place: &VariableStorage) -> u64 {
    let inner = &variable.shape[usize::from(place.has_records)..];
    inner.iter().fold(place.width as u64, |all, length| all.saturating_mul(*length))
}

fn record_bytes(variables: &[Variable], stored: &[VariableStorage]) -> u64 {
    let slices = variables.iter().zip(stored).filter(|(_, place)| place.has_records);
    let slices: Vec<u64> = slices.map(|(variable, place)| slice_bytes(variable, place)).collect();
    match slices.as_slice() {
        [one] => *one,
        all => all.iter().fold(0, |sum, bytes| sum.saturating_add(bytes.saturating_add((4 - bytes % 4) % 4))),
    }
}

fn check_end(variable: &Variable, place: &VariableStorage, record_bytes: u64, total: u64) -> Result<()> {
    let before = match (place.has_records, variable.shape.first()) {
        (true, Some(0)) => return Ok(()),
        (true, Some(records)) => record_bytes.saturating_mul(records - 1),
        _ => 0,
    };
    let end = place.begin.saturating_add(before).saturating_add(slice_bytes(variable, place));
    if end <= total {
        return Ok(());
    }
    Err(Error::input(format!("expected {end} bytes for a variable of shape {:?}, found {total}", variable.shape))
        .in_column(variable.name.as_str())
        .at_byte(place.begin)
        .with_hint("the file may have been cut short"))
}

impl Arrays for NetCdfSource {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
        let found = self.header.variables.get(variable).zip(self.stored.get(variable));
        let (variable, place) = found.ok_or_else(|| Error::internal("no such variable"))?;
        let mut bytes = if place.has_records {
            self.read_records(variable, place, slab)?
        } else {
            let read = |start, bytes| self.read_range(place.begin + start, bytes);
            read_box(&variable.shape, slab, place.width, read)?
        };
        if cfg!(target_endian = "little") {
            variable.dtype.swap_bytes(&mut bytes);
        }
        Ok(Values::Fixed(bytes))
    }

    fn prefetch(&self, wanted: &[(usize, Slab)]) -> Result<Option<Box<dyn Any + Send>>> {
        self.input.prefetch_parts(wanted, |(number, slab)| self.slab_ranges(*number, slab))
    }

    fn memory_bytes(&self) -> u64 {
        self.input.memory_bytes() + self.header.memory_bytes()
    }
}

impl NetCdfSource {
    /// Returns the ranges that a hyperslab of a remote file needs.
    fn slab_ranges(&self, number: usize, slab: &Slab) -> Vec<Range<u64>> {
        let Some((variable, place)) = self.header.variables.get(number).zip(self.stored.get(number)) else {
            return Vec::new();
        };
        let from =
            |begin: u64| move |range: Range<u64>| begin.saturating_add(range.start)..begin.saturating_add(range.end);
        if !place.has_records {
            return box_ranges(&variable.shape, slab, place.width).into_iter().map(from(place.begin)).collect();
        }
        let inner = Slab { start: slab.start[1..].to_vec(), count: slab.count[1..].to_vec() };
        let within = box_ranges(&variable.shape[1..], &inner, place.width);
        let records = slab.start[0]..slab.start[0] + slab.count[0];
        let begin = |record: u64| place.begin.saturating_add(record.saturating_mul(self.record_bytes));
        records.flat_map(|record| within.iter().cloned().map(from(begin(record)))).collect()
    }

    fn read_records(&self, variable: &Variable, place: &VariableStorage, slab: &Slab) -> Result<Vec<u8>> {
        let inner = Slab { start: slab.start[1..].to_vec(), count: slab.count[1..].to_vec() };
        let mut out = Vec::new();
        let (first, count) = (slab.start[0], slab.count[0]);
        let slice = slice_bytes(variable, place);
        if count == 0 || slice == 0 {
            return Ok(out);
        }
        // Small slices are read together with the bytes between them: one read instead of many.
        let per_read = (TOGETHER / self.record_bytes.max(1)).clamp(1, count);
        // Prefetched ranges are available piece by piece.
        if slice > TOGETHER || self.input.is_remote() {
            for record in first..first + count {
                let read = |at, bytes| self.read_range(place.begin + record * self.record_bytes + at, bytes);
                out.extend_from_slice(&read_box(&variable.shape[1..], &inner, place.width, read)?);
            }
            return Ok(out);
        }
        let mut at = first;
        while at < first + count {
            let records = per_read.min(first + count - at);
            let start = place.begin + at * self.record_bytes;
            let bytes = self.read_range(start, (records - 1) * self.record_bytes + slice)?;
            for record in 0..records {
                let offset = record * self.record_bytes;
                let piece = |start: u64, length: u64| {
                    let start = usize::try_from(offset + start).unwrap_or(usize::MAX);
                    let end = start.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
                    let cut = || Error::internal("a record reaches beyond what was read");
                    (end <= bytes.len()).then(|| bytes.slice(start..end)).ok_or_else(cut)
                };
                out.extend_from_slice(&read_box(&variable.shape[1..], &inner, place.width, piece)?);
            }
            at += records;
        }
        Ok(out)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    /// Returns a CDF-1 file: `t` is unlimited and has 2 records, `x` is 3; `v(x)` of shorts, `r(t, x)` of bytes, `s(t)`
    /// of ints.
    fn file() -> Vec<u8> {
        let mut out = b"CDF\x01".to_vec();
        let number = |out: &mut Vec<u8>, n: u32| out.extend_from_slice(&n.to_be_bytes());
        let name = |out: &mut Vec<u8>, name: &str| {
            out.extend_from_slice(&u32::try_from(name.len()).unwrap().to_be_bytes());
            out.extend_from_slice(name.as_bytes());
            out.resize(out.len().next_multiple_of(4), 0);
        };
        number(&mut out, 2);
        [10, 2].iter().for_each(|n| number(&mut out, *n));
        name(&mut out, "t");
        number(&mut out, 0);
        name(&mut out, "x");
        number(&mut out, 3);
        [12, 1].iter().for_each(|n| number(&mut out, *n));
        name(&mut out, "title");
        [2, 2].iter().for_each(|n| number(&mut out, *n));
        out.extend_from_slice(b"ab\0\0");
        [11, 3].iter().for_each(|n| number(&mut out, *n));
        // Offsets of the three variables, which are known only at the end.
        let mut begins = Vec::new();
        for (variable, dims, kind) in [("v", &[1][..], 3), ("r", &[0, 1], 1), ("s", &[0], 4)] {
            name(&mut out, variable);
            number(&mut out, u32::try_from(dims.len()).unwrap());
            dims.iter().for_each(|dim| number(&mut out, *dim));
            [0, 0, kind, 0].iter().for_each(|n| number(&mut out, *n));
            begins.push(out.len());
            number(&mut out, 0);
        }
        let start = u32::try_from(out.len()).unwrap();
        for (at, begin) in begins.into_iter().zip([start, start + 8, start + 12]) {
            out[at..at + 4].copy_from_slice(&begin.to_be_bytes());
        }
        out.extend_from_slice(&[0, 1, 0, 2, 0, 3, 0, 0]);
        out.extend_from_slice(&[10, 11, 12, 0, 0, 0, 0, 7]);
        out.extend_from_slice(&[20, 21, 22, 0, 0, 0, 0, 8]);
        out
    }

    fn open(bytes: Vec<u8>) -> Result<NetCdfSource> {
        NetCdfSource::open(RangedInput::Bytes(bytes.into()))
    }

    fn read(source: &NetCdfSource, variable: usize, start: &[u64], count: &[u64]) -> Vec<u8> {
        let slab = Slab { start: start.to_vec(), count: count.to_vec() };
        let Values::Fixed(bytes) = source.read(variable, &slab).unwrap() else { panic!("not fixed") };
        bytes
    }

    #[test]
    fn variables_with_records_and_without_are_read() {
        let source = open(file()).unwrap();
        assert_eq!(source.header.unlimited, ["t"]);
        assert_eq!(source.header.attributes, [("title".to_owned(), Attribute::Text("ab".to_owned()))]);
        assert_eq!(source.header.variables[1].shape, [2, 3]);
        assert_eq!(read(&source, 0, &[1], &[2]), [2_i16.to_ne_bytes(), 3_i16.to_ne_bytes()].concat());
        assert_eq!(read(&source, 1, &[0, 1], &[2, 2]), [11, 12, 21, 22]);
        assert_eq!(read(&source, 2, &[1], &[1]), 8_i32.to_ne_bytes());
    }

    #[test]
    fn truncation_is_an_error_and_changed_bytes_never_panic() {
        let whole = file();
        for length in 0..whole.len() {
            assert!(open(whole[..length].to_vec()).is_err(), "{length}");
        }
        for at in 4..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let Ok(source) = open(changed) else { continue };
                for (number, variable) in source.header.variables.iter().enumerate() {
                    if variable.element_count() < 1000 {
                        let _ = source.read(number, &Slab::from_shape(&variable.shape));
                    }
                }
            }
        }
    }
}
