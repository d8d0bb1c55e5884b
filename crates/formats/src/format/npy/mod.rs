//! NPY and NPZ: numpy's array files, one array per file or several in a ZIP archive.
//!
//! Of an NPY file and of stored members, only the bytes of a hyperslab are read. A deflated member can only be read
//! from its start, so it is inflated once: into memory if all members are small, else to disk. [`crate::array::npy`]
//! parses the header.

use std::{
    any::Any,
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;

use super::ranged::RangedInput;
use crate::{
    array::{
        Arrays, DType, Header, Slab, Values, Variable, name_dims,
        npy::{HEAD, MAGIC, NpyHeader, data_offset, parse},
        slab::{box_ranges, layer_shape, permute_axes, read_box},
    },
    codec::zip::{self, Ranges},
    error::{Error, Result},
    storage::Spill,
};

/// Maximum inflated bytes of all members that are kept in memory.
const IN_MEMORY: u64 = 64 << 20;

/// Bytes of an array in Fortran order read together.
const LAYER: u64 = 4 << 20;

/// Deflated bytes read for a header: first attempt, and maximum.
const SHORT_HEAD: u64 = 16 << 10;
const LONG_HEAD: u64 = 2 << 20;

/// Approximate bytes that the description of an array takes.
const ARRAY_BYTES: u64 = 2 << 10;

/// Name of the array of an NPY file, which has no name of its own.
const ARRAY: &str = "array";

/// Container of the arrays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NpyForm {
    /// One array.
    Npy,
    /// An archive of arrays.
    Npz,
}

/// Detects files of numpy arrays by their head. An archive qualifies if its first member is an NPY file by name.
pub fn sniff(head: &[u8]) -> Option<NpyForm> {
    if head.starts_with(MAGIC) {
        return Some(NpyForm::Npy);
    }
    let name = head.strip_prefix(zip::MAGIC)?.get(22..)?;
    let length = usize::from(u16::from_le_bytes(*name.first_chunk()?));
    name.get(4..4 + length)?.ends_with(b".npy").then_some(NpyForm::Npz)
}

/// An NPY or NPZ file.
#[derive(Debug)]
pub struct NpySource {
    input: RangedInput,
    header: Header,
    stored: Vec<StoredArray>,
    /// Whether deflated members are inflated to disk.
    spills: bool,
}

/// One array.
#[derive(Debug)]
struct StoredArray {
    npy: NpyHeader,
    /// Offset of the NPY data, in the source or in the inflated member.
    offset: u64,
    /// The member to be inflated, if it is deflated.
    packed: Option<Packed>,
}

/// A deflated member, and its inflated content: nothing yet, or all of it.
#[derive(Debug)]
struct Packed {
    member: zip::ZipMember,
    inflated: Mutex<Option<Arc<Inflated>>>,
}

#[derive(Debug)]
enum Inflated {
    Memory(Vec<u8>),
    Disk(Spill),
}

impl Ranges for RangedInput {
    fn byte_count(&self) -> u64 {
        Self::byte_count(self)
    }

    fn read(&self, offset: u64, bytes: u64) -> Result<Bytes> {
        self.read_range(offset..offset.saturating_add(bytes))
    }
}

impl NpySource {
    /// Reads the headers.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if a header is damaged, or an array is shorter than its header
    /// states.
    pub fn open(input: RangedInput, form: NpyForm) -> Result<Self> {
        let mut source = Self { input, header: Header::default(), stored: Vec::new(), spills: false };
        match form {
            NpyForm::Npy => {
                let total = source.input.byte_count();
                let npy = source.read_header(0, total)?;
                source.add_array(ARRAY.to_owned(), npy, 0, total, None)?;
            }
            NpyForm::Npz => {
                let members = zip::read_members(&source.input)?;
                let deflated = members.iter().filter(|member| member.is_deflated()).map(|member| member.content.bytes);
                source.spills = deflated.fold(0, u64::saturating_add) > IN_MEMORY;
                for member in members {
                    source.add_member(member)?;
                }
            }
        }
        name_dims(&mut source.header.variables);
        Ok(source)
    }

    fn add_member(&mut self, member: zip::ZipMember) -> Result<()> {
        let Some(name) = member.name.strip_suffix(".npy").map(|name| name.replace('/', ".")) else {
            return Err(Error::input(format!("expected arrays in the archive, found `{}`", member.name)));
        };
        if !member.is_deflated() {
            let offset = member.data_offset(&self.input)?;
            let npy = self.read_header(offset, member.content.bytes).map_err(|e| e.in_column(name.as_str()))?;
            return self.add_array(name, npy, offset, member.content.bytes, None);
        }
        let head = head_of(&self.input, &member)?;
        let npy = parse(&head).map_err(|e| e.in_column(name.as_str()))?;
        let total = member.content.bytes;
        self.add_array(name, npy, 0, total, Some(Packed { member, inflated: Mutex::default() }))
    }

    fn read_header(&self, offset: u64, total: u64) -> Result<NpyHeader> {
        let head = self.input.read_range(offset..offset + total.min(HEAD as u64))?;
        let length = data_offset(&head)? as u64;
        if length > total {
            return Err(Error::input("expected an NPY header, found the end of the file").at_byte(offset + total));
        }
        parse(&self.input.read_range(offset..offset + length)?)
    }

    fn add_array(
        &mut self,
        name: String,
        npy: NpyHeader,
        offset: u64,
        total: u64,
        packed: Option<Packed>,
    ) -> Result<()> {
        let dtype = match npy.dtype.byte_width() {
            Some(0) => DType::Refused(format!("elements of no bytes ({})", npy.dtype.name())),
            _ => npy.dtype.clone(),
        };
        if let Some(width) = dtype.byte_width() {
            let bytes = npy.shape.iter().try_fold(width as u64, |all, length| all.checked_mul(*length));
            let found = total.saturating_sub(npy.offset as u64);
            if bytes.is_none_or(|bytes| bytes > found) {
                let message =
                    format!("expected an array of shape {:?}, found {found} bytes of {}", npy.shape, dtype.name());
                return Err(Error::input(message)
                    .at_byte(offset + npy.offset as u64)
                    .with_hint("the file may have been cut short"));
            }
        }
        let chunks = match npy.dtype.byte_width() {
            Some(width) if npy.fortran && npy.shape.len() > 1 => {
                let turned: Vec<u64> = npy.shape.iter().rev().copied().collect();
                Some(layer_shape(&turned, width as u64, LAYER).into_iter().rev().collect())
            }
            _ => None,
        };
        self.header.variables.push(Variable {
            name,
            dtype,
            shape: npy.shape.clone(),
            dims: Vec::new(),
            unnamed: false,
            chunks,
            codecs: packed.iter().map(|_| "deflate".to_owned()).collect(),
            attributes: Vec::new(),
            characters: false,
            fills: false,
        });
        self.stored.push(StoredArray { npy, offset, packed });
        Ok(())
    }

    /// Returns bytes of an array from an offset after its header.
    fn read_range(&self, stored: &StoredArray, start: u64, bytes: u64) -> Result<Bytes> {
        let data = stored.npy.offset as u64 + start;
        let Some(packed) = &stored.packed else {
            return self.input.read_range(stored.offset + data..stored.offset + data + bytes);
        };
        let beyond = || Error::internal("an array reaches beyond its member");
        let length = usize::try_from(bytes).map_err(|_| beyond())?;
        match self.inflate_member(packed)?.as_ref() {
            Inflated::Memory(all) => {
                let start = usize::try_from(data).map_err(|_| beyond())?;
                let found = all.get(start..).and_then(|rest| rest.get(..length));
                found.map(Bytes::copy_from_slice).ok_or_else(beyond)
            }
            Inflated::Disk(spill) => {
                let mut out = vec![0; length];
                spill.read(data, &mut out)?;
                Ok(out.into())
            }
        }
    }

    /// Returns the ranges that a hyperslab needs; none for a deflated array, which is read from its start.
    fn slab_ranges(&self, number: usize, slab: &Slab) -> Vec<Range<u64>> {
        let stored = self.stored.get(number).filter(|stored| stored.packed.is_none());
        let Some((stored, width)) = stored.and_then(|stored| Some((stored, stored.npy.dtype.byte_width()?))) else {
            return Vec::new();
        };
        let begin = stored.offset.saturating_add(stored.npy.offset as u64);
        let ranges = if stored.npy.fortran {
            box_ranges(&reversed_axes(&stored.npy.shape), &turned_slab(slab), width)
        } else {
            box_ranges(&stored.npy.shape, slab, width)
        };
        ranges.into_iter().map(|range| begin.saturating_add(range.start)..begin.saturating_add(range.end)).collect()
    }

    /// Returns the whole inflated member, which the first caller inflates.
    fn inflate_member(&self, packed: &Packed) -> Result<Arc<Inflated>> {
        let mut inflated = packed.inflated.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inflated) = &*inflated {
            return Ok(Arc::clone(inflated));
        }
        let content = if self.spills {
            let spill = Spill::new()?;
            packed.member.inflate_to(&self.input, &mut |bytes| spill.append(bytes).map(|_| ()))?;
            Inflated::Disk(spill)
        } else {
            let mut content = Vec::new();
            packed.member.inflate_to(&self.input, &mut |bytes| {
                content.extend_from_slice(bytes);
                Ok(())
            })?;
            Inflated::Memory(content)
        };
        let content = Arc::new(content);
        *inflated = Some(Arc::clone(&content));
        Ok(content)
    }
}

/// Returns the NPY header of a deflated member, which is usually short.
fn head_of(input: &RangedInput, member: &zip::ZipMember) -> Result<Vec<u8>> {
    match head_within(input, member, SHORT_HEAD) {
        Ok(head) if head.len() as u64 >= data_offset(&head).map_or(u64::MAX, |length| length as u64) => Ok(head),
        _ => head_within(input, member, LONG_HEAD),
    }
}

/// Returns the NPY header as far as it is within `packed` deflated bytes.
fn head_within(input: &RangedInput, member: &zip::ZipMember, packed: u64) -> Result<Vec<u8>> {
    use std::io::Read;
    let offset = member.data_offset(input)?;
    let packed = input.read_range(offset..offset + member.content.packed.min(packed))?;
    let mut inflated = flate2::bufread::DeflateDecoder::new(&packed[..]);
    let mut head = Vec::new();
    let damaged =
        |e: std::io::Error| Error::input(format!("expected deflated bytes in `{}`", member.name)).with_cause(e);
    inflated.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(damaged)?;
    let length = data_offset(&head)?;
    inflated.take(length.saturating_sub(head.len()) as u64).read_to_end(&mut head).map_err(damaged)?;
    Ok(head)
}

fn reversed_axes(axes: &[u64]) -> Vec<u64> {
    axes.iter().rev().copied().collect()
}

fn turned_slab(slab: &Slab) -> Slab {
    Slab { start: reversed_axes(&slab.start), count: reversed_axes(&slab.count) }
}

impl Arrays for NpySource {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
        let stored = self.stored.get(variable).ok_or_else(|| Error::internal("no such array"))?;
        let dtype = &stored.npy.dtype;
        let width = dtype.byte_width().ok_or_else(|| Error::internal("elements of any length in NPY"))?;
        let read = |start, bytes| self.read_range(stored, start, bytes);
        let mut bytes = if stored.npy.fortran {
            // An array in Fortran order is the transpose of an array in C order.
            let from = turned_slab(slab);
            let bytes = read_box(&reversed_axes(&stored.npy.shape), &from, width, read)?;
            let order: Vec<usize> = (0..from.count.len()).rev().collect();
            permute_axes(&bytes, width, &from.count, &order)
        } else {
            read_box(&stored.npy.shape, slab, width, read)?
        };
        if stored.npy.swapped {
            dtype.swap_bytes(&mut bytes);
        }
        Ok(Values::Fixed(bytes))
    }

    fn prefetch(&self, wanted: &[(usize, Slab)]) -> Result<Option<Box<dyn Any + Send>>> {
        self.input.prefetch_parts(wanted, |(number, slab)| self.slab_ranges(*number, slab))
    }

    fn memory_bytes(&self) -> u64 {
        let inflated = |packed: &Packed| match packed.inflated.lock().unwrap_or_else(PoisonError::into_inner).as_deref()
        {
            Some(Inflated::Memory(bytes)) => bytes.len() as u64,
            Some(Inflated::Disk(_)) | None => 0,
        };
        let members = self.stored.iter().filter_map(|stored| stored.packed.as_ref());
        self.input.memory_bytes() + members.map(inflated).sum::<u64>() + ARRAY_BYTES * (1 + self.stored.len() as u64)
    }
}
