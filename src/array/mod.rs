//! Arrays as sources: one model that all array formats fill, one place that decides what their records are, and one
//! that makes rows of them.
//!
//! ```text
//! format::{npy, netcdf, hdf5, zarr}  -- Header, read(slab) -->  records::Plan (pure)  -->  rows (RecordBatch)
//! ```
//!
//! A source holds variables. A variable has a type, a shape with named dimensions, chunks in which it is stored, and
//! attributes. Formats only read: a hyperslab of a variable comes as bytes of native order, in C order. What a record is,
//! which values are missing and how packed values are unpacked is decided in [`records`] and [`cf`], for all formats alike.

pub mod calendar;
pub mod cells;
pub mod cf;
pub mod claims;
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

/// Name of the file beside shards with what is the same for all their records. It begins with `_`, so that readers of a
/// folder of shards pass it over.
pub const CONSTANTS_FILE: &str = "_constants.arrow";

/// What a source says about its variables.
#[derive(Debug, Clone, Default)]
pub struct Header {
    /// The variables, in the order of the source; those of groups have dotted names.
    pub variables: Vec<Variable>,
    /// Attributes of the source as a whole.
    pub attributes: Vec<(String, Attribute)>,
    /// Names of dimensions that can grow.
    pub unlimited: Vec<String>,
}

impl Header {
    /// Bytes of memory that it takes, and what is decided of it; roughly.
    pub fn held(&self) -> u64 {
        let attributes: usize = self.variables.iter().map(|variable| variable.attributes.len()).sum();
        (8 << 10) + (1 << 10) * self.variables.len() as u64 + 256 * (attributes + self.attributes.len()) as u64
    }
}

/// An array of a source.
#[derive(Debug, Clone)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Type of an element.
    pub dtype: DType,
    /// Length of each dimension; none for a single value.
    pub shape: Vec<u64>,
    /// Names of the dimensions.
    pub dims: Vec<String>,
    /// Shape of the stored chunks, or of what lies together where axes are stored in another order; `None` where it is stored in
    /// one piece in C order.
    pub chunks: Option<Vec<u64>>,
    /// How chunks are compressed, in the order of writing.
    pub codecs: Vec<String>,
    /// Its attributes.
    pub attributes: Vec<(String, Attribute)>,
    /// Whether its last dimension counts the characters of a text.
    pub characters: bool,
    /// Whether values that nobody wrote have the fill value of netCDF, where the attributes name no other.
    pub fills: bool,
}

impl Variable {
    /// One with dimensions of these names and lengths, and nothing else.
    #[cfg(test)]
    pub fn plain(name: &str, dtype: DType, dims: &[(&str, u64)]) -> Self {
        Self {
            name: name.to_owned(),
            dtype,
            shape: dims.iter().map(|(_, length)| *length).collect(),
            dims: dims.iter().map(|(dim, _)| (*dim).to_owned()).collect(),
            chunks: None,
            codecs: vec![],
            attributes: vec![],
            characters: false,
            fills: false,
        }
    }

    /// An attribute by name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|(found, _)| found == name).map(|(_, value)| value)
    }

    /// Number of elements.
    pub fn elements(&self) -> u64 {
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
    /// The text, where it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Texts(texts) if texts.len() == 1 => texts.first().map(String::as_str),
            _ => None,
        }
    }

    /// The numbers as doubles; none where these are no numbers.
    pub fn doubles(&self) -> Vec<f64> {
        match self {
            Self::Numbers(dtype, bytes) => dtype.doubles(bytes),
            _ => Vec::new(),
        }
    }

    /// The value for people: text as it is, numbers with commas.
    pub fn describe(&self) -> String {
        match self {
            Self::Text(text) | Self::Other(text) => text.clone(),
            Self::Texts(texts) => texts.join(", "),
            Self::Numbers(DType::Int(_) | DType::UInt(_), _) => {
                self.integers().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            }
            Self::Numbers(..) => self.doubles().iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        }
    }

    /// The numbers as integers; none where these are others.
    pub fn integers(&self) -> Vec<i128> {
        match self {
            Self::Numbers(dtype, bytes) => dtype.integers(bytes),
            _ => Vec::new(),
        }
    }
}

/// Names dimensions that have no names: by axis and, where two arrays differ in length, by that too.
pub fn name_dims(variables: &mut [Variable]) {
    let mut known: Vec<(usize, u64)> = Vec::new();
    for variable in variables.iter_mut().filter(|variable| variable.dims.is_empty()) {
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
    /// Elements of any length: texts, or values in native byte order; those that hold such values themselves are packed as
    /// [`nested`] says.
    Varied(Vec<Vec<u8>>),
}

/// An array source that can be read out of order, by many threads.
pub trait Arrays: Send + Sync + std::fmt::Debug {
    /// What it holds.
    fn header(&self) -> &Header;

    /// Reads a hyperslab of the variable with this number.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) naming the variable and the place, when the source is damaged or uses
    /// what is not supported.
    fn read(&self, variable: usize, slab: &Slab) -> Result<Values>;

    /// Asks for all that these hyperslabs need before they are read, where it comes over a network; it is held in memory for as
    /// long as what is returned lives.
    ///
    /// # Errors
    /// When it cannot be had.
    fn ahead(&self, wanted: &[(usize, Slab)]) -> Result<Option<Box<dyn Any + Send>>> {
        let _ = wanted;
        Ok(None)
    }

    /// Bytes of memory that it takes while nothing is read; roughly.
    fn held(&self) -> u64 {
        self.header().held()
    }
}
