//! Arrays as sources: one model for all array formats, one place that decides what their records are, and one that
//! converts them to rows.
//!
//! ```text
//! format::{npy, safetensors, netcdf, hdf5, zarr, nifti}  -- Header, read(slab) -->  records::Plan (pure)  -->  rows
//! ```
//!
//! A source has variables. A variable has a type, a shape with named dimensions, the shape of its stored chunks, and
//! attributes. Formats only read: they return a hyperslab of a variable as bytes of native order, in C order. For all
//! formats, [`records`] decides what a record is, and [`cf`] which values are missing and how packed values are
//! unpacked.

pub mod calendar;
pub mod cells;
pub mod cf;
pub mod claims;
mod dims;
pub mod dtype;
pub mod nested;
pub mod npy;
pub mod origin;
pub mod outputs;
pub mod records;
pub mod rows;
pub mod slab;

pub use dtype::DType;
pub use slab::Slab;

use std::any::Any;

use crate::error::Result;

/// Name of the file beside shards with the values that are the same for all their records. It begins with `_`, so that
/// readers of a folder of shards ignore it.
pub const CONSTANTS_FILE: &str = "_constants.arrow";

/// Metadata of a source.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// Variables in the order of the source; names of variables in groups are dotted.
    pub variables: Vec<Variable>,
    /// Attributes of the source as a whole.
    pub attributes: Vec<(String, Attribute)>,
    /// Names of dimensions that can grow.
    pub unlimited: Vec<String>,
    /// What users should know of the source, such as what is not taken from it.
    pub remarks: Vec<String>,
}

impl Header {
    /// Returns the approximate memory in bytes of the header and the plan made from it.
    pub fn memory_bytes(&self) -> u64 {
        let attributes: usize = self.variables.iter().map(|variable| variable.attributes.len()).sum();
        (8 << 10) + (1 << 10) * self.variables.len() as u64 + 256 * (attributes + self.attributes.len()) as u64
    }
}

/// An array of a source.
#[derive(Debug, Clone)]
pub struct Variable {
    /// Name of the variable.
    pub name: String,
    /// Type of an element.
    pub dtype: DType,
    /// Length of each dimension; empty for a single value.
    pub shape: Vec<u64>,
    /// Names of the dimensions.
    pub dims: Vec<String>,
    /// Whether the source does not name them, and the names are made from axes and lengths.
    pub unnamed: bool,
    /// Shape of the stored chunks, or of contiguous parts if axes are stored in another order; `None` if the variable
    /// is stored contiguously in C order.
    pub chunks: Option<Vec<u64>>,
    /// Compression of chunks, in the order of writing.
    pub codecs: Vec<String>,
    /// Attributes of the variable.
    pub attributes: Vec<(String, Attribute)>,
    /// Whether the last dimension counts the characters of a text.
    pub characters: bool,
    /// Whether values that were never written have netCDF's default fill value, unless attributes state another.
    pub fills: bool,
}

impl Variable {
    /// Creates a variable with dimensions of these names and lengths, and no other properties.
    pub fn with_dims(name: &str, dtype: DType, dims: &[(&str, u64)]) -> Self {
        Self {
            name: name.to_owned(),
            dtype,
            shape: dims.iter().map(|(_, length)| *length).collect(),
            dims: dims.iter().map(|(dim, _)| (*dim).to_owned()).collect(),
            unnamed: false,
            chunks: None,
            codecs: Vec::new(),
            attributes: Vec::new(),
            characters: false,
            fills: false,
        }
    }

    /// Returns an attribute by name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// Returns the number of elements.
    pub fn element_count(&self) -> u64 {
        self.shape.iter().fold(1, |all, length| all.saturating_mul(*length))
    }
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum Attribute {
    /// Text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
    /// Numbers, in native order.
    Numbers(DType, Vec<u8>),
    /// Something else, described.
    Other(String),
}

impl Attribute {
    /// Returns the text, if the value is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Texts(texts) if texts.len() == 1 => texts.first().map(String::as_str),
            _ => None,
        }
    }

    /// Returns the numbers as doubles; empty if the value is not numeric.
    pub fn to_doubles(&self) -> Vec<f64> {
        match self {
            Self::Numbers(dtype, bytes) => dtype.decode_doubles(bytes),
            _ => Vec::new(),
        }
    }

    /// Formats the value for messages: text as it is, numbers with commas.
    pub fn describe(&self) -> String {
        match self {
            Self::Text(text) | Self::Other(text) => text.clone(),
            Self::Texts(texts) => texts.join(", "),
            Self::Numbers(DType::Int(_) | DType::UInt(_), _) => {
                self.to_integers().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
            Self::Numbers(..) => self.to_doubles().iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }
    }

    /// Returns the numbers as integers; empty if the value has no integers.
    pub fn to_integers(&self) -> Vec<i128> {
        match self {
            Self::Numbers(dtype, bytes) => dtype.decode_integers(bytes),
            _ => Vec::new(),
        }
    }
}

/// Names unnamed dimensions: by axis and, where arrays differ in the length of an axis, also by length.
pub fn name_dims(variables: &mut [Variable]) {
    let mut known: Vec<(usize, u64)> = Vec::new();
    for variable in variables.iter_mut().filter(|variable| variable.dims.is_empty()) {
        variable.unnamed = true;
        for (axis, length) in variable.shape.iter().copied().enumerate() {
            let first = known.iter().find(|(other, _)| *other == axis).map(|(_, length)| *length);
            if first.is_none() {
                known.push((axis, length));
            }
            let same = first.is_none_or(|first| first == length);
            variable.dims.push(if same { format!("dim_{axis}") } else { format!("dim_{axis}_{length}") });
        }
    }
}

/// Elements of a hyperslab, in C order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Values {
    /// Elements of fixed width, one after the other, in native byte order.
    Fixed(Vec<u8>),
    /// Elements of any length: texts, or values in native byte order. Elements that contain such values are packed as
    /// [`nested`] describes.
    Varied(Vec<Vec<u8>>),
}

/// An array source that supports random access from many threads.
pub trait Arrays: Send + Sync + std::fmt::Debug {
    /// Returns the metadata.
    fn header(&self) -> &Header;

    /// Reads a hyperslab of the variable with this number.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) naming the variable and the place, when the source is damaged or uses
    /// an unsupported feature.
    fn read(&self, variable: usize, slab: &Slab) -> Result<Values>;

    /// For remote sources, fetches everything that these hyperslabs need before they are read; the bytes stay in memory
    /// as long as the returned guard lives.
    ///
    /// # Errors
    /// When the bytes cannot be fetched.
    fn prefetch(&self, wanted: &[(usize, Slab)]) -> Result<Option<Box<dyn Any + Send>>> {
        let _ = wanted;
        Ok(None)
    }

    /// Returns the approximate memory in bytes of the idle source.
    fn memory_bytes(&self) -> u64 {
        self.header().memory_bytes()
    }
}
