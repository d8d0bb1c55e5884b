//! NPY and NPZ: arrays as numpy saves them, one to a file or several in a ZIP archive.
//!
//! Of a file and of members that are stored, only the bytes of a hyperslab are read. A deflated member has no way in but
//! from its start, so it is held as a whole while the source is read. The header is read by [`crate::array::npy`].

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::ranged::RangedInput;
use crate::{
    array::{
        Arrays, DType, Header, Slab, Values, Variable, name_dims,
        npy::{HEAD, MAGIC, NpyHeader, data_offset, parse},
        slab::{Place, copy, permute},
    },
    codec::zip::{self, Ranges},
    error::{Error, Result},
};

/// Bytes of an array that cannot be read in pieces: a deflated member, or one in Fortran order.
const MAX_WHOLE: u64 = 256 << 20;

/// Name of the array of an NPY file, which has none of its own.
const ARRAY: &str = "array";

/// What a file is that begins so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NpyForm {
    /// One array.
    Npy,
    /// An archive of arrays.
    Npz,
}

/// Whether a file that begins so holds arrays of numpy. An archive does if its first member is called so.
pub fn sniff(head: &[u8]) -> Option<NpyForm> {
    if head.starts_with(MAGIC) {
        return Some(NpyForm::Npy);
    }
    let name = head.strip_prefix(zip::MAGIC)?.get(22..)?;
    let length = usize::from(u16::from_le_bytes([name[0], *name.get(1)?]));
    name.get(4..4 + length)?.ends_with(b".npy").then_some(NpyForm::Npz)
}

/// An NPY or NPZ file.
#[derive(Debug)]
pub struct NpySource {
    input: RangedInput,
    header: Header,
    stored: Vec<Stored>,
}

/// One array.
#[derive(Debug)]
struct Stored {
    npy: NpyHeader,
    /// Where the NPY file begins, in the source or in what was inflated.
    offset: u64,
    /// The member that is to be inflated.
    packed: Option<(zip::Member, OnceLock<Arc<Vec<u8>>>)>,
}

impl Ranges for RangedInput {
    fn bytes(&self) -> u64 {
        Self::bytes(self)
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<Bytes> {
        self.range(offset..offset.saturating_add(bytes))
    }
}

impl NpySource {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) when a header is damaged, or an array is shorter than it says.
    pub fn open(input: RangedInput, form: NpyForm) -> Result<Self> {
        let mut source = Self { input, header: Header::default(), stored: Vec::new() };
        match form {
            NpyForm::Npy => {
                let total = source.input.bytes();
                let npy = source.read_header(0, total)?;
                source.push(ARRAY.to_owned(), npy, 0, total, None)?;
            }
            NpyForm::Npz => {
                for member in zip::members(&source.input)? {
                    source.member(member)?;
                }
            }
        }
        name_dims(&mut source.header.variables);
        Ok(source)
    }

    fn member(&mut self, member: zip::Member) -> Result<()> {
        let Some(name) = member.name.strip_suffix(".npy").map(|name| name.replace('/', ".")) else {
            return Err(Error::input(format!("expected arrays in the archive, found `{}`", member.name)));
        };
        if !member.deflated {
            let offset = member.offset(&self.input)?;
            let npy = self.read_header(offset, member.bytes).map_err(|e| e.column(name.as_str()))?;
            return self.push(name, npy, offset, member.bytes, None);
        }
        let head = head_of(&self.input, &member)?;
        let npy = parse(&head).map_err(|e| e.column(name.as_str()))?;
        let total = member.bytes;
        self.push(name, npy, 0, total, Some((member, OnceLock::new())))
    }

    fn read_header(&self, offset: u64, total: u64) -> Result<NpyHeader> {
        let head = self.input.range(offset..offset + total.min(HEAD as u64))?;
        let length = data_offset(&head)? as u64;
        if length > total {
            return Err(Error::input("expected an NPY header, found the end of the file").byte(offset + total));
        }
        parse(&self.input.range(offset..offset + length)?)
    }

    fn push(
        &mut self,
        name: String,
        npy: NpyHeader,
        offset: u64,
        total: u64,
        packed: Option<(zip::Member, OnceLock<Arc<Vec<u8>>>)>,
    ) -> Result<()> {
        let dtype = match npy.dtype.width() {
            Some(0) => DType::Refused(format!("elements of no bytes ({})", npy.dtype.name())),
            _ => npy.dtype.clone(),
        };
        if let Some(width) = dtype.width() {
            let bytes = npy.shape.iter().try_fold(width as u64, |all, length| all.checked_mul(*length));
            let found = total - npy.offset as u64;
            if bytes.is_none_or(|bytes| bytes > found) {
                let message =
                    format!("expected an array of shape {:?}, found {found} bytes of {}", npy.shape, dtype.name());
                return Err(Error::input(message)
                    .byte(offset + npy.offset as u64)
                    .hint("the file may have been cut short"));
            }
        }
        self.header.variables.push(Variable {
            name,
            dtype,
            shape: npy.shape.clone(),
            dims: Vec::new(),
            chunks: None,
            codecs: packed.iter().map(|_| "deflate".to_owned()).collect(),
            attributes: Vec::new(),
            characters: false,
            fills: false,
        });
        self.stored.push(Stored { npy, offset, packed });
        Ok(())
    }

    /// Bytes of an array from its first element on.
    fn range(&self, stored: &Stored, start: u64, bytes: u64) -> Result<Bytes> {
        let data = stored.npy.offset as u64 + start;
        let Some((member, cache)) = &stored.packed else {
            return self.input.range(stored.offset + data..stored.offset + data + bytes);
        };
        let all = match cache.get() {
            Some(all) => all,
            None => {
                let content = Arc::new(member.content(&self.input, MAX_WHOLE)?);
                cache.get_or_init(|| content)
            }
        };
        let range = usize::try_from(data).ok().zip(usize::try_from(data + bytes).ok());
        let found = range.and_then(|(start, end)| all.get(start..end));
        found.map(Bytes::copy_from_slice).ok_or_else(|| Error::internal("an array reaches beyond its member"))
    }
}

/// The NPY header of a deflated member.
fn head_of(input: &RangedInput, member: &zip::Member) -> Result<Vec<u8>> {
    use std::io::Read;
    let offset = member.offset(input)?;
    let packed = input.range(offset..offset + member.packed.min(2 << 20))?;
    let mut inflated = flate2::bufread::DeflateDecoder::new(&packed[..]);
    let mut head = Vec::new();
    let damaged = |e: std::io::Error| Error::input(format!("expected deflated bytes in `{}`", member.name)).cause(e);
    inflated.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(damaged)?;
    let length = data_offset(&head)?;
    inflated.take(length.saturating_sub(head.len()) as u64).read_to_end(&mut head).map_err(damaged)?;
    Ok(head)
}

impl Arrays for NpySource {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
        let stored = self.stored.get(variable).ok_or_else(|| Error::internal("no such array"))?;
        let dtype = &stored.npy.dtype;
        let width = dtype.width().ok_or_else(|| Error::internal("elements of any length in NPY"))?;
        let mut bytes = if stored.npy.fortran && slab.count.len() > 1 {
            self.read_fortran(stored, slab, width)?
        } else {
            self.read_c(stored, slab, width)?
        };
        if stored.npy.swapped {
            dtype.swap(&mut bytes);
        }
        Ok(Values::Fixed(bytes))
    }
}

impl NpySource {
    /// Reads the rows of the first axis from the first to the last that the slab has, and copies its box out of them.
    fn read_c(&self, stored: &Stored, slab: &Slab, width: usize) -> Result<Vec<u8>> {
        let total = slab.bytes(width)?;
        if total == 0 {
            return Ok(Vec::new());
        }
        let shape = &stored.npy.shape;
        let (Some((_, inner)), Some(first), Some(rows)) = (shape.split_first(), slab.start.first(), slab.count.first())
        else {
            return Ok(self.range(stored, 0, width as u64)?.to_vec());
        };
        let row = inner.iter().fold(width as u64, |all, length| all * length);
        if slab.count[1..] == *inner {
            return Ok(self.range(stored, first * row, rows * row)?.to_vec());
        }
        let mut out = vec![0; total];
        let to_shape: Vec<u64> = slab.count[1..].to_vec();
        let row_out = total / usize::try_from(*rows).unwrap_or(1);
        let box_in_row = Slab { start: slab.start[1..].to_vec(), count: to_shape.clone() };
        let zero = vec![0; inner.len()];
        for (number, target) in (*first..).zip(out.chunks_exact_mut(row_out)) {
            let bytes = self.range(stored, number * row, row)?;
            let to = Place { start: &box_in_row.start, shape: &to_shape };
            copy(&box_in_row, width, Place { start: &zero, shape: inner }, &bytes, to, target);
        }
        Ok(out)
    }

    /// In Fortran order the array is its own transpose in C order.
    fn read_fortran(&self, stored: &Stored, slab: &Slab, width: usize) -> Result<Vec<u8>> {
        let total = Slab::all(&stored.npy.shape).bytes(width)?;
        if total as u64 > MAX_WHOLE {
            return Err(Error::input(format!("expected at most {MAX_WHOLE} bytes in Fortran order, found {total}"))
                .hint("save the array in C order, with numpy.ascontiguousarray"));
        }
        let bytes = self.range(stored, 0, total as u64)?;
        let shape: Vec<u64> = stored.npy.shape.iter().rev().copied().collect();
        let reversed = |axes: &[u64]| axes.iter().rev().copied().collect::<Vec<u64>>();
        let turned = Slab { start: reversed(&slab.start), count: reversed(&slab.count) };
        let mut out = vec![0; slab.bytes(width)?];
        let zero = vec![0; shape.len()];
        let to = Place { start: &turned.start, shape: &turned.count };
        copy(&turned, width, Place { start: &zero, shape: &shape }, &bytes, to, &mut out);
        let order: Vec<usize> = (0..shape.len()).rev().collect();
        Ok(permute(&out, width, &turned.count, &order))
    }
}
