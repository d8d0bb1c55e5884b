//! NIfTI, versions 1 and 2: images of magnetic resonance and other scanners, one to a file.
//!
//! ```text
//! header   extensions   image                      x varies fastest: in C order, the image is t, z, y, x
//! 0        352          vox_offset
//!
//! image(t, z, y, x)   affine(t, row, column)   spacing(t, axis)   time_step(t)
//! ```
//!
//! A record is a volume: one of an image of three dimensions, which has a `t` of length 1 here. The transform and the
//! distances of voxels are those of the file, and each record has them. [`header`] reads what the file states.
//!
//! An image that is compressed as a whole is unpacked when the first of its records is read: a folder may have tens of
//! thousands of them, of which only the headers are needed before.

mod affine;
mod header;
#[cfg(test)]
mod tests;

use std::{
    any::Any,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;

pub use self::header::HEAD;
use self::header::NiftiHeader;
use super::ranged::RangedInput;
use crate::{
    array::{
        Arrays, Attribute, DType, Header, Slab, Values, Variable,
        slab::{box_ranges, read_box},
    },
    error::{Error, Result},
};

/// Dimension of the volumes.
const VOLUMES: &str = "t";

/// Most bytes after an image that may be padding.
const MAX_PADDING: u64 = 1 << 20;

/// Whether a file with this head is NIfTI, or the header of a pair; `stated` says that the name or the user says so.
pub fn sniff(head: &[u8], stated: bool) -> bool {
    header::is_header(head, stated)
}

/// The content of a file that is compressed as a whole.
pub struct PackedImage {
    /// Its first bytes, unpacked.
    pub head: Bytes,
    /// Unpacks the file up to a number of bytes; calls [`check_padding`] with all that follows.
    pub unpack: UnpackImage,
}

/// Unpacks a number of bytes of a file.
pub type UnpackImage = Box<dyn Fn(u64) -> Result<UnpackedImage> + Send + Sync>;

/// An unpacked file, and what accounts for its memory.
#[derive(Debug, Clone)]
pub struct UnpackedImage {
    /// The bytes.
    pub input: RangedInput,
    /// Lives as long as the bytes do.
    pub kept: Option<std::sync::Arc<dyn Any + Send + Sync>>,
}

/// A NIfTI file.
pub struct NiftiSource {
    header: Header,
    swapped: bool,
    /// Offset of the image, and of its end if the type of its elements is known.
    begin: u64,
    end: Option<u64>,
    /// Values of the variables after the image, in the same order; each is that of all volumes.
    shared: Vec<Vec<u8>>,
    input: ImageInput,
}

/// The bytes of an image.
enum ImageInput {
    Stored(RangedInput),
    Packed(UnpackImage, Mutex<Option<UnpackedImage>>),
}

impl std::fmt::Debug for NiftiSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NiftiSource").field("header", &self.header).field("begin", &self.begin).finish_non_exhaustive()
    }
}

impl NiftiSource {
    /// Opens a file that is stored as it is.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input), naming the byte, if the header is damaged or contradicts the size of
    /// the file.
    pub fn open(input: RangedInput) -> Result<Self> {
        let total = input.byte_count();
        let head = input.read_range(0..total.min(HEAD as u64))?;
        let source = Self::of_header(&head, ImageInput::Stored(input.clone()))?;
        let Some(end) = source.end else { return Ok(source) };
        if end > total {
            return Err(source.cut_error(total));
        }
        let padding = input.read_range(end..total.min(end + MAX_PADDING + 1))?;
        check_padding(end, 0, &padding)?;
        Ok(source)
    }

    /// Opens a file that is compressed as a whole. Its end is checked when it is unpacked.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input), naming the byte, if the header is damaged.
    pub fn open_packed(packed: PackedImage) -> Result<Self> {
        let head = packed.head.slice(..packed.head.len().min(HEAD));
        Self::of_header(&head, ImageInput::Packed(packed.unpack, Mutex::default()))
    }

    fn of_header(head: &[u8], input: ImageInput) -> Result<Self> {
        let stated = header::parse(head)?;
        let (variables, shared) = variables_of(&stated);
        let image = &variables[0];
        let bytes = image.dtype.byte_width().map(|width| {
            image.shape.iter().try_fold(width as u64, |all, length| all.checked_mul(*length)).unwrap_or(u64::MAX)
        });
        let end = bytes.map(|bytes| stated.begin.saturating_add(bytes));
        let mut header = Header { variables, unlimited: vec![VOLUMES.to_owned()], ..Header::default() };
        if !stated.extensions.is_empty() {
            let codes: Vec<String> = stated.extensions.iter().map(ToString::to_string).collect();
            header.remarks.push(format!("header extensions are not taken (code {})", codes.join(", ")));
        }
        Ok(Self { header, swapped: stated.swapped, begin: stated.begin, end, shared, input })
    }

    /// Returns the error for a file that ends before its image does.
    fn cut_error(&self, found: u64) -> Error {
        let image = &self.header.variables[0];
        let end = self.end.unwrap_or(u64::MAX);
        let what = format!("{} of the shape {:?}, up to byte {end}", image.dtype.name(), image.shape);
        Error::input(format!("expected an image of {what}, found the end of the file at {found}"))
            .at_byte(found)
            .with_hint("the file may have been cut short while it was copied or written, or its header is damaged")
    }

    /// Returns the bytes of the file, which the first caller unpacks.
    fn content(&self) -> Result<UnpackedImage> {
        let (unpack, unpacked) = match &self.input {
            ImageInput::Stored(input) => return Ok(UnpackedImage { input: input.clone(), kept: None }),
            ImageInput::Packed(unpack, unpacked) => (unpack, unpacked),
        };
        let mut unpacked = unpacked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = &*unpacked {
            return Ok(found.clone());
        }
        let end = self.end.ok_or_else(|| Error::internal("elements without a width"))?;
        let found = unpack(end)?;
        if found.input.byte_count() < end {
            return Err(self.cut_error(found.input.byte_count()));
        }
        *unpacked = Some(found.clone());
        Ok(found)
    }

    fn read_image(&self, slab: &Slab) -> Result<Vec<u8>> {
        let image = &self.header.variables[0];
        let width = image.dtype.byte_width().ok_or_else(|| Error::internal("elements without a width"))?;
        let content = self.content()?;
        let read = |start: u64, bytes: u64| {
            let start = self.begin.saturating_add(start);
            content.input.read_range(start..start.saturating_add(bytes))
        };
        let mut bytes = read_box(&image.shape, slab, width, read)?;
        if self.swapped {
            image.dtype.swap_bytes(&mut bytes);
        }
        Ok(bytes)
    }

    /// Returns the values that volumes share, once for each volume.
    fn read_shared(&self, number: usize, slab: &Slab) -> Result<Vec<u8>> {
        let values = number.checked_sub(1).and_then(|number| self.shared.get(number));
        let found = values.zip(self.header.variables.get(number));
        let (values, variable) = found.ok_or_else(|| Error::internal("no such variable"))?;
        let width = variable.dtype.byte_width().ok_or_else(|| Error::internal("elements without a width"))?;
        let of_one = Slab { start: slab.start[1..].to_vec(), count: slab.count[1..].to_vec() };
        let beyond = || Error::internal("a slab beyond its variable");
        let read = |start: u64, bytes: u64| {
            let (start, bytes) = usize::try_from(start).ok().zip(usize::try_from(bytes).ok()).ok_or_else(beyond)?;
            let found = values.get(start..).and_then(|rest| rest.get(..bytes));
            found.map(Bytes::copy_from_slice).ok_or_else(beyond)
        };
        let one = read_box(&variable.shape[1..], &of_one, width, read)?;
        slab.byte_count(width)?;
        Ok(one.repeat(usize::try_from(slab.count[0]).map_err(|_| beyond())?))
    }
}

/// Fails if bytes that follow an image are more than padding. The image ends at `end`, and `before` bytes of what
/// follows were checked before.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input), naming the byte.
pub fn check_padding(end: u64, before: u64, bytes: &[u8]) -> Result<()> {
    let from = end.saturating_add(before);
    match bytes.iter().position(|byte| *byte != 0) {
        Some(at) => Err(longer_error(from + at as u64, end)),
        None if before + bytes.len() as u64 > MAX_PADDING => Err(longer_error(end + MAX_PADDING, end)),
        None => Ok(()),
    }
}

fn longer_error(at: u64, end: u64) -> Error {
    Error::input(format!("expected the end of the file after the image, which ends at byte {end}, found more"))
        .at_byte(at)
        .with_hint("the header may state too few volumes or another type; if it is right, cut the file at that byte")
}

/// Returns the variables, of which the image is the first, and the values of the others.
fn variables_of(stated: &NiftiHeader) -> (Vec<Variable>, Vec<Vec<u8>>) {
    let mut dims = stated.dims.clone();
    let volumes = dims.iter().find(|(name, _)| *name == VOLUMES).map_or(1, |(_, length)| *length);
    if let Some(samples) = stated.colours {
        dims.push((if samples == 3 { "rgb" } else { "rgba" }, samples));
    }
    let mut image = Variable::with_dims("image", stated.dtype.clone(), &dims);
    if let Some(scale) = stated.scale {
        // As doubles, so that values are computed as nibabel does: in double precision, and not rounded.
        let number = |value: f64| Attribute::Numbers(DType::Float(8), value.to_ne_bytes().to_vec());
        image.attributes.push(("scale_factor".to_owned(), number(scale.slope)));
        image.attributes.push(("add_offset".to_owned(), number(scale.intercept)));
    }
    let (mut variables, mut shared) = (vec![image], Vec::new());
    let mut add = |name: &str, inner: &[(&str, u64)], values: &[f64], unit: Option<&str>| {
        let dims: Vec<(&str, u64)> = std::iter::once((VOLUMES, volumes)).chain(inner.iter().copied()).collect();
        let mut variable = Variable::with_dims(name, DType::Float(8), &dims);
        variable.attributes =
            unit.iter().map(|unit| ("units".to_owned(), Attribute::Text((*unit).to_owned()))).collect();
        variables.push(variable);
        shared.push(values.iter().flat_map(|value| value.to_ne_bytes()).collect());
    };
    add("affine", &[("row", 4), ("column", 4)], &stated.affine, None);
    add("spacing", &[("axis", 3)], &stated.spacing, stated.space_unit);
    if let Some(step) = stated.time_step {
        add("time_step", &[], &[step], stated.time_unit);
    }
    (variables, shared)
}

impl Arrays for NiftiSource {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
        let bytes = if variable == 0 { self.read_image(slab) } else { self.read_shared(variable, slab) };
        bytes.map(Values::Fixed)
    }

    fn prefetch(&self, wanted: &[(usize, Slab)]) -> Result<Option<Box<dyn Any + Send>>> {
        let ImageInput::Stored(input) = &self.input else { return Ok(None) };
        let image = &self.header.variables[0];
        let width = image.dtype.byte_width().unwrap_or_default();
        input.prefetch_parts(wanted, |(number, slab)| -> Vec<Range<u64>> {
            let ranges = if *number == 0 { box_ranges(&image.shape, slab, width) } else { Vec::new() };
            let from_begin = |offset: u64| self.begin.saturating_add(offset);
            ranges.into_iter().map(|range| from_begin(range.start)..from_begin(range.end)).collect()
        })
    }

    fn memory_bytes(&self) -> u64 {
        let input = match &self.input {
            ImageInput::Stored(input) => input.memory_bytes(),
            // What is unpacked is accounted for by whoever unpacked it.
            ImageInput::Packed(..) => 0,
        };
        input + self.header.memory_bytes()
    }
}
