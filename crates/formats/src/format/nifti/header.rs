//! The header of a NIfTI file: what its image is, and where it lies.
//!
//! ```text
//!              version 1, 348 bytes            version 2, 540 bytes
//! size            0  i32, tells the order         0  i32
//! magic         344  "n+1\0" or "ni1\0"           4  "n+2\0" or "ni2\0", then 0D 0A 1A 0A
//! datatype       70  i16                         12  i16
//! dim            40  i16 x 8                     16  i64 x 8     number of dimensions, then lengths from x on
//! pixdim         76  f32 x 8                    104  f64 x 8     sign of z, then distances
//! vox_offset    108  f32                        168  i64         first byte of the image
//! slope, inter  112  f32, f32                   176  f64, f64
//! glmin         144  i32                          -              length of x where dim has -1 (FreeSurfer)
//! units         123  u8                         500  i32
//! qform, sform  252  i16, i16                   344  i32, i32
//! quaternion    256  f32 x 3, offset f32 x 3    352  f64 x 3, f64 x 3
//! srow          280  f32 x 12                   400  f64 x 12
//! ```
//!
//! After the header, a byte other than 0 says that extensions follow. Neither these nor the texts of the header are
//! taken: they may hold names of patients.

use super::affine::{self, Transforms};
use crate::{
    array::DType,
    error::{Error, Result},
};

/// Bytes of a file that are looked at before its image: the header, and the first extensions.
pub const HEAD: usize = 32 << 10;

/// Names of the dimensions, from the one that varies fastest.
const DIMS: [&str; 7] = ["x", "y", "z", "t", "u", "v", "w"];

/// Number of dimensions that every image has here: x, y, z and t.
const LEAST_DIMS: usize = 4;

/// Bytes after a header that say whether there are extensions.
const EXTENDER: usize = 4;

/// Bytes of the size and the code of an extension, and the least that one takes.
const EXTENSION_HEAD: usize = 8;
const LEAST_EXTENSION: u64 = 16;

/// Version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The places of the fields of a version.
struct Places {
    bytes: usize,
    magic: usize,
    datatype: usize,
    dim: usize,
    pixdim: usize,
    vox_offset: usize,
    slope: usize,
    forms: usize,
    quaternion: usize,
    srow: usize,
}

impl Version {
    fn places(self) -> Places {
        match self {
            Self::One => Places {
                bytes: 348,
                magic: 344,
                datatype: 70,
                dim: 40,
                pixdim: 76,
                vox_offset: 108,
                slope: 112,
                forms: 252,
                quaternion: 256,
                srow: 280,
            },
            Self::Two => Places {
                bytes: 540,
                magic: 4,
                datatype: 12,
                dim: 16,
                pixdim: 104,
                vox_offset: 168,
                slope: 176,
                forms: 344,
                quaternion: 352,
                srow: 400,
            },
        }
    }
}

/// What a magic says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Magic {
    /// The image follows the header.
    Single,
    /// The image is in another file.
    Pair,
}

/// A header in the byte order of its file.
struct Fields<'a> {
    bytes: &'a [u8],
    version: Version,
    big: bool,
    places: Places,
}

/// What a header states.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NiftiHeader {
    pub(super) dtype: DType,
    /// Whether the elements are in the other byte order than this machine's.
    pub(super) swapped: bool,
    /// Number of samples of a colour, if voxels have colours.
    pub(super) colours: Option<u64>,
    /// Names and lengths of the dimensions in C order, without that of colours; `t` is one of them.
    pub(super) dims: Vec<(&'static str, u64)>,
    /// Offset of the image.
    pub(super) begin: u64,
    /// Slope and intercept of stored values, where they change something.
    pub(super) scale: Option<Scaling>,
    /// Affine transform from indices x, y, z to space, row by row.
    pub(super) affine: [f64; 16],
    /// Distances of voxels along x, y and z.
    pub(super) spacing: [f64; 3],
    pub(super) space_unit: Option<&'static str>,
    /// Distance of volumes, where the header states a fourth dimension.
    pub(super) time_step: Option<f64>,
    pub(super) time_unit: Option<&'static str>,
    /// Codes of the extensions, without repetition.
    pub(super) extensions: Vec<i32>,
}

/// Slope and intercept of stored values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scaling {
    pub(super) slope: f64,
    pub(super) intercept: f64,
}

/// Whether a head is that of a NIfTI file; if the name or the user states it, the size of the header is enough.
pub(super) fn is_header(head: &[u8], stated: bool) -> bool {
    Fields::new(head).is_some_and(|fields| stated || fields.magic().is_some())
}

impl<'a> Fields<'a> {
    /// Tells version and byte order by the size of the header.
    fn new(bytes: &'a [u8]) -> Option<Self> {
        let size: [u8; 4] = *bytes.first_chunk()?;
        let of = |version, big| Some(Self { bytes, version, big, places: version.places() });
        match (u32::from_le_bytes(size), u32::from_be_bytes(size)) {
            (348, _) => of(Version::One, false),
            (_, 348) => of(Version::One, true),
            (540, _) => of(Version::Two, false),
            (_, 540) => of(Version::Two, true),
            _ => None,
        }
    }

    fn magic(&self) -> Option<Magic> {
        let found = self.bytes.get(self.places.magic..)?;
        match (self.version, found) {
            (Version::One, [b'n', b'+', b'1', 0, ..]) => Some(Magic::Single),
            (Version::One, [b'n', b'i', b'1', 0, ..]) => Some(Magic::Pair),
            (Version::Two, [b'n', b'+', b'2', 0, b'\r', b'\n', 0x1a, b'\n', ..]) => Some(Magic::Single),
            (Version::Two, [b'n', b'i', b'2', 0, b'\r', b'\n', 0x1a, b'\n', ..]) => Some(Magic::Pair),
            _ => None,
        }
    }

    /// Returns bytes as they are on a machine of little-endian order; zeros beyond the end, which is checked before.
    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut found = self.bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N]);
        if self.big {
            found.reverse();
        }
        found
    }

    /// Returns the integer of a field that has another width in each version.
    fn integer(&self, at: usize, widths: [usize; 2]) -> i64 {
        match widths[usize::from(self.version == Version::Two)] {
            2 => i16::from_le_bytes(self.take(at)).into(),
            4 => i32::from_le_bytes(self.take(at)).into(),
            _ => i64::from_le_bytes(self.take(at)),
        }
    }

    /// Returns the float with this number among those at a place.
    fn float(&self, at: usize, number: usize) -> f64 {
        let at = at + number * self.float_bytes();
        match self.version {
            Version::One => f32::from_le_bytes(self.take(at)).into(),
            Version::Two => f64::from_le_bytes(self.take(at)),
        }
    }

    fn float_bytes(&self) -> usize {
        match self.version {
            Version::One => 4,
            Version::Two => 8,
        }
    }
}

/// Parses the start of a file.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input), naming the byte.
pub(super) fn parse(head: &[u8]) -> Result<NiftiHeader> {
    let Some(fields) = Fields::new(head) else {
        return Err(Error::input("expected a header of NIfTI of 348 or 540 bytes, found something else").at_byte(0));
    };
    let Places { bytes, magic, .. } = fields.places;
    if head.len() < bytes + EXTENDER {
        let message = format!("expected a header of {bytes} bytes and {EXTENDER} after it, found the end of the file");
        return Err(Error::input(message)
            .at_byte(head.len() as u64)
            .with_hint("the file may have been cut short while it was copied or written"));
    }
    match fields.magic() {
        Some(Magic::Single) => {}
        Some(Magic::Pair) => return Err(other_file(magic)),
        None => return Err(wrong_magic(&fields)),
    }
    let (dtype, colours) = parse_datatype(&fields);
    let dims = parse_dims(&fields)?;
    let begin = parse_begin(&fields)?;
    let pixdim: [f64; 8] = std::array::from_fn(|number| fields.float(fields.places.pixdim, number));
    let units = match fields.version {
        Version::One => i32::from(fields.take::<1>(123)[0]),
        Version::Two => i32::from_le_bytes(fields.take(500)),
    };
    let has_time = fields.integer(fields.places.dim, [2, 8]) > 3;
    let length = |name: &str| dims.iter().find(|(dim, _)| *dim == name).map_or(1, |(_, length)| *length);
    Ok(NiftiHeader {
        dtype,
        swapped: fields.big != cfg!(target_endian = "big"),
        colours,
        begin,
        scale: parse_scale(&fields, colours.is_some())?,
        affine: parse_affine(&fields, pixdim, ["x", "y", "z"].map(length))?,
        spacing: [pixdim[1], pixdim[2], pixdim[3]],
        space_unit: space_unit(units),
        time_step: has_time.then_some(pixdim[4]),
        time_unit: time_unit(units).filter(|_| has_time),
        extensions: parse_extensions(&fields, begin)?,
        dims,
    })
}

fn other_file(at: usize) -> Error {
    Error::input(
        "expected an image after its header, found the header of a pair (.hdr and .img), whose image is elsewhere",
    )
    .at_byte(at as u64)
    .with_hint("write the pair as one file, such as with nibabel: nib.save(nib.load('x.hdr'), 'x.nii')")
    .with_hint("to store both files as they are, as a sample: --from files")
}

fn wrong_magic(fields: &Fields<'_>) -> Error {
    let at = fields.places.magic;
    let (expected, bytes, hint) = match fields.version {
        Version::One => ("`n+1`", 4, "a file of Analyze 7.5 has none: write it as NIfTI, such as with nibabel"),
        Version::Two => ("`n+2` and 0d 0a 1a 0a", 8, "a transfer as text changes line ends: copy the file again"),
    };
    let found: Vec<String> = fields.bytes.iter().skip(at).take(bytes).map(|byte| format!("{byte:02x}")).collect();
    Error::input(format!("expected {expected} at the place of the magic, found {}", found.join(" ")))
        .at_byte(at as u64)
        .with_hint(hint)
}

/// Returns the type of elements, and the number of samples of a colour.
fn parse_datatype(fields: &Fields<'_>) -> (DType, Option<u64>) {
    let code = fields.integer(fields.places.datatype, [2, 2]);
    let refused = |what: &str| DType::Refused(format!("{what} (NIfTI datatype {code}), which is not supported"));
    let dtype = match code {
        2 | 128 | 2304 => DType::UInt(1),
        4 => DType::Int(2),
        8 => DType::Int(4),
        16 => DType::Float(4),
        64 => DType::Float(8),
        256 => DType::Int(1),
        512 => DType::UInt(2),
        768 => DType::UInt(4),
        1024 => DType::Int(8),
        1280 => DType::UInt(8),
        1 => refused("voxels of one bit"),
        32 | 1792 | 2048 => refused("complex numbers"),
        1536 => refused("floats of 128 bits"),
        _ => refused("an unknown type"),
    };
    let colours = match code {
        128 => Some(3),
        2304 => Some(4),
        _ => None,
    };
    (dtype, colours)
}

/// Returns the dimensions in C order: those that the header states, but always x, y, z and t, and no others of length 1
/// at the end.
fn parse_dims(fields: &Fields<'_>) -> Result<Vec<(&'static str, u64)>> {
    let Places { dim, .. } = fields.places;
    let width = if fields.version == Version::One { 2 } else { 8 };
    let stated = |number: usize| fields.integer(dim + number * width, [2, 8]);
    let fault = |number: usize, message: String| {
        Error::input(message).at_byte((dim + number * width) as u64).with_hint("the header is damaged")
    };
    let count = match usize::try_from(stated(0)) {
        Ok(count @ 1..=7) => count,
        _ => return Err(fault(0, format!("expected 1 to 7 dimensions, found {}", stated(0)))),
    };
    let glmin = i32::from_le_bytes(fields.take(144));
    let is_long_vector = fields.version == Version::One && [stated(1), stated(2), stated(3)] == [-1, 1, 1] && glmin > 0;
    let mut dims = Vec::with_capacity(DIMS.len());
    for (axis, name) in DIMS.into_iter().enumerate() {
        let length = match stated(axis + 1) {
            _ if axis >= count => 1,
            -1 if axis == 0 && is_long_vector => glmin.into(),
            length => length,
        };
        match u64::try_from(length) {
            Ok(length @ 1..) => dims.push((name, length)),
            _ => return Err(fault(axis + 1, format!("expected a length of at least 1 of `{name}`, found {length}"))),
        }
    }
    while dims.len() > LEAST_DIMS && dims.last().is_some_and(|(_, length)| *length == 1) {
        dims.pop();
    }
    dims.reverse();
    Ok(dims)
}

/// Returns the first byte of the image.
fn parse_begin(fields: &Fields<'_>) -> Result<u64> {
    let at = fields.places.vox_offset;
    let least = (fields.places.bytes + EXTENDER) as u64;
    let (begin, found) = match fields.version {
        Version::One => {
            let stated = fields.float(at, 0);
            let whole = stated.fract() == 0.0 && (0.0..9e15).contains(&stated);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is whole and in the range")]
            (whole.then_some(stated as u64), stated.to_string())
        }
        Version::Two => {
            let stated = fields.integer(at, [8, 8]);
            (u64::try_from(stated).ok(), stated.to_string())
        }
    };
    begin.filter(|begin| *begin >= least).ok_or_else(|| {
        Error::input(format!("expected the image after the header, from byte {least} on, found the offset {found}"))
            .at_byte(at as u64)
            .with_hint("the header is damaged, or the image is in another file")
    })
}

/// Returns slope and intercept, unless they change nothing.
fn parse_scale(fields: &Fields<'_>, of_colours: bool) -> Result<Option<Scaling>> {
    let at = fields.places.slope;
    let (slope, intercept) = (fields.float(at, 0), fields.float(at, 1));
    // As other readers have it, these mean that values are not scaled.
    if slope == 0.0 || !slope.is_finite() || of_colours || (slope, intercept) == (1.0, 0.0) {
        return Ok(None);
    }
    if !intercept.is_finite() {
        return Err(Error::input(format!("expected a finite intercept for the slope {slope}, found {intercept}"))
            .at_byte((at + fields.float_bytes()) as u64)
            .with_hint("the header is damaged"));
    }
    Ok(Some(Scaling { slope, intercept }))
}

fn parse_affine(fields: &Fields<'_>, pixdim: [f64; 8], lengths: [u64; 3]) -> Result<[f64; 16]> {
    let Places { forms, quaternion, srow, .. } = fields.places;
    let width = if fields.version == Version::One { 2 } else { 4 };
    let floats = |from: usize| [0, 1, 2].map(|number| fields.float(quaternion, from + number));
    let transforms = Transforms {
        qform: fields.integer(forms, [2, 4]),
        sform: fields.integer(forms + width, [2, 4]),
        quaternion: floats(0),
        offset: floats(3),
        srow: std::array::from_fn(|number| fields.float(srow, number)),
        pixdim,
        lengths,
        dims: usize::try_from(fields.integer(fields.places.dim, [2, 8])).unwrap_or_default(),
        epsilon: if fields.version == Version::One { f32::EPSILON.into() } else { f64::EPSILON },
    };
    affine::best_affine(&transforms).map_err(|e| e.at_byte(quaternion as u64))
}

fn space_unit(units: i32) -> Option<&'static str> {
    match units & 7 {
        1 => Some("m"),
        2 => Some("mm"),
        3 => Some("um"),
        _ => None,
    }
}

fn time_unit(units: i32) -> Option<&'static str> {
    match units & 0x38 {
        8 => Some("s"),
        16 => Some("ms"),
        24 => Some("us"),
        32 => Some("Hz"),
        40 => Some("ppm"),
        48 => Some("rad/s"),
        _ => None,
    }
}

/// Returns the codes of the extensions, as far as they are in the head.
fn parse_extensions(fields: &Fields<'_>, begin: u64) -> Result<Vec<i32>> {
    let mut codes = Vec::new();
    let flag = fields.places.bytes;
    if fields.bytes.get(flag).is_none_or(|flag| *flag == 0) {
        return Ok(codes);
    }
    let mut at = flag + EXTENDER;
    // Fewer bytes than an extension takes are padding.
    while begin.saturating_sub(at as u64) >= LEAST_EXTENSION && at + EXTENSION_HEAD <= fields.bytes.len() {
        let (size, code) = (i32::from_le_bytes(fields.take(at)), i32::from_le_bytes(fields.take(at + 4)));
        let rest = begin - at as u64;
        match u64::try_from(size) {
            Ok(bytes) if bytes >= LEAST_EXTENSION && bytes % LEAST_EXTENSION == 0 && bytes <= rest => {
                at = at.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            _ => {
                let what = format!("a multiple of 16, up to {rest} bytes to where the image begins");
                return Err(Error::input(format!("expected {what}, as the size of an extension, found {size}"))
                    .at_byte(at as u64)
                    .with_hint("the header is damaged"));
            }
        }
        if !codes.contains(&code) {
            codes.push(code);
        }
    }
    Ok(codes)
}
