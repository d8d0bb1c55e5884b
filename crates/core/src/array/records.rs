//! Plans what the records of an array source are, from its header alone.
//!
//! ```text
//! t2m(time, lat, lon)  time(time)  lat(lat)          --read record-dim=time
//!   record 0: t2m[0, :, :]  time[0]                  lat has no `time`: a constant of the source
//!   --read patch=lat=64,lon=64   record 0 is t2m[0, 0:64, 0:64] with lat[0:64], record 1 the next patch of that time
//!   --read flatten=yes           a row per cell: time, lat, lon, t2m
//! ```
//!
//! By default, records are along a dimension that can grow. Without one, they are along the first dimension of the
//! largest variable that another variable has too, or else along its first dimension. A source of single values is one
//! record. [`dims`](super::dims) decides, and refuses sources in which other variables could be meant.
//!
//! Patches begin at every stride. If the last one does not reach the edge, one more patch is moved back so that it ends
//! there. So every cell is in a record, and all records have one shape.

use std::{collections::BTreeMap, sync::Arc};

use arrow::datatypes::{DataType, Field};

use super::{
    DType, Header, Variable,
    cf::Decode,
    dims::{list_some, record_dim},
    dtype::Padding,
};
use crate::{
    error::{Error, Result},
    schema::tensor_field,
};

/// User options for records.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ArrayOptions {
    /// Dimension along which records lie.
    pub record_dim: Option<String>,
    /// Variables to read; empty for all.
    pub vars: Vec<String>,
    /// Whether values stay as they are stored.
    pub raw: bool,
    /// Size of patches, by dimension.
    pub patch: Vec<(String, u64)>,
    /// Distance between patches, by dimension; the patch size by default.
    pub stride: Vec<(String, u64)>,
    /// Whether each cell becomes a row.
    pub flatten: bool,
    /// Whether a source may claim far more values than its stored bytes can hold.
    pub sparse: bool,
    /// Whether tensors may be [coded](crate::record::coded), because the consumer accepts keys.
    pub coded: bool,
    /// Variables whose numbers are rounded to floats of so many bytes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub floats: Vec<(String, usize)>,
}

/// A dimension that is cut into patches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Name of the dimension.
    pub dim: String,
    /// Length of the dimension.
    pub length: u64,
    /// Length of a patch.
    pub size: u64,
    /// First index of each patch.
    pub starts: Vec<u64>,
}

/// Role of a variable's dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Each index is a record.
    Record,
    /// Cut into the patches with this number.
    Patch(usize),
    /// Kept whole, with this length.
    Whole(u64),
}

/// A variable that becomes a column.
#[derive(Debug, Clone)]
pub struct PlanColumn {
    /// Number of the variable.
    pub variable: usize,
    /// The column.
    pub field: Field,
    /// Type of the elements, with characters joined to texts.
    pub dtype: DType,
    /// Decoding of the values.
    pub decode: Decode,
    /// Type to which the decoded numbers are rounded, if the user gave one.
    pub rounded: Option<DataType>,
    /// Role of each dimension, without that of the characters of a text.
    pub axes: Vec<Axis>,
    /// Names of the dimensions.
    pub dims: Vec<String>,
    /// Length of texts made of characters.
    pub characters: Option<u64>,
    /// Length of stored chunks along the records.
    pub chunk: u64,
}

impl PlanColumn {
    /// Returns the shape of the column's value in one record.
    pub fn record_shape(&self, patches: &[Patch]) -> Vec<u64> {
        let length = |axis: &Axis| match axis {
            Axis::Record => None,
            Axis::Patch(number) => Some(patches[*number].size),
            Axis::Whole(length) => Some(*length),
        };
        self.axes.iter().filter_map(length).collect()
    }
}

/// The plan of a source's records.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Dimension along which the records are; `None` if the source is one record.
    pub dim: Option<String>,
    /// Length of that dimension.
    pub length: u64,
    /// Dimensions cut into patches.
    pub patches: Vec<Patch>,
    /// Dimensions of the cells of a record if each cell becomes a row.
    pub cells: Option<Vec<(String, u64)>>,
    /// The columns.
    pub columns: Vec<PlanColumn>,
    /// Numbers of the variables that are the same for all records.
    pub constants: Vec<usize>,
    /// Whether values stay as they are stored.
    pub raw: bool,
    /// Whether tensors may be [coded](crate::record::coded).
    pub coded: bool,
    /// Variables whose numbers are rounded to floats of so many bytes.
    floats: Vec<(String, usize)>,
}

/// A column with at least one eighth of a row's bytes counts as large.
const LARGE_COLUMN_DIVISOR: u64 = 8;

/// Number of constants that a remark names.
const SHOWN_CONSTANTS: usize = 20;

/// Bytes assumed for a value of any length.
const VARIABLE_BYTES: u64 = 16;

impl Plan {
    /// Plans the records of a source.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) when options name something that does not exist,
    /// [`Kind::Input`](crate::error::Kind::Input) when a variable cannot be read or its records are too large to count.
    pub fn new(header: &Header, options: &ArrayOptions) -> Result<Self> {
        let chosen = select_variables(header, options)?;
        let views: Vec<View<'_>> = chosen.iter().map(|number| View::new(header, *number, options.raw)).collect();
        check_lengths(header, &views)?;
        let dim = record_dim(header, &views, options)?;
        let length = dim.as_ref().map_or(1, |dim| length_of(&views, dim).unwrap_or(0));
        let patches = plan_patches(&views, dim.as_deref(), options)?;
        let ArrayOptions { raw, coded, .. } = *options;
        let (columns, constants, floats) = (vec![], vec![], options.floats.clone());
        let mut plan = Self { dim, length, patches, cells: None, columns, constants, raw, coded, floats };
        if options.flatten {
            plan.cells = Some(cell_dims(&views, plan.dim.as_deref(), options)?);
        }
        for view in &views {
            if plan.varies_by_record(view) {
                plan.columns.push(plan.plan_column(header, view)?);
            } else {
                // What cannot be read is an error here, not when all else was read.
                plan.plan_column(header, view)?;
                plan.constants.push(view.number);
            }
        }
        Ok(plan)
    }

    /// Returns what users should know of the plan: which variables are no part of the records.
    pub fn remark(&self, header: &Header) -> Option<String> {
        let named = |number: &usize| {
            let variable = &header.variables[*number];
            let lengths: Vec<String> = variable.shape.iter().map(ToString::to_string).collect();
            let lengths = if lengths.is_empty() { String::new() } else { format!(" ({})", lengths.join("x")) };
            format!("{}{lengths}", variable.name)
        };
        let names: Vec<String> = self.constants.iter().map(named).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let dim = self.dim.as_deref().filter(|_| !names.is_empty())?;
        Some(format!(
            "records are along `{dim}`; variables without it are constants, stored once, in _constants.arrow: {}",
            list_some(&names, SHOWN_CONSTANTS, ", ")
        ))
    }

    /// Returns the plan of the constants: one record of all of them.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_constants(&self, header: &Header) -> Result<Self> {
        let Self { raw, coded, ref floats, .. } = *self;
        let (columns, constants, floats) = (vec![], vec![], floats.clone());
        let (dim, patches, cells) = (None, vec![], None);
        let mut plan = Self { dim, length: 1, patches, cells, columns, constants, raw, coded, floats };
        for number in &self.constants {
            plan.columns.push(plan.plan_column(header, &View::new(header, *number, self.raw))?);
        }
        Ok(plan)
    }

    /// Whether a variable differs between records.
    fn varies_by_record(&self, view: &View<'_>) -> bool {
        let has = |dim: &String| view.dims.contains(dim);
        self.cells.is_some()
            || self.dim.is_none()
            || self.dim.iter().any(has)
            || self.patches.iter().any(|p| has(&p.dim))
    }

    fn plan_column(&self, header: &Header, view: &View<'_>) -> Result<PlanColumn> {
        let variable = &header.variables[view.number];
        let decode = if self.raw { Decode::default() } else { Decode::from_variable(variable)? };
        let mut sliced = false;
        let axes: Vec<Axis> = view
            .dims
            .iter()
            .zip(view.shape)
            .map(|(dim, length)| match self.patches.iter().position(|patch| patch.dim == *dim) {
                Some(patch) => Axis::Patch(patch),
                // If a variable has the record dimension twice, only the first axis is sliced.
                None if self.dim.as_ref() == Some(dim) && !std::mem::replace(&mut sliced, true) => Axis::Record,
                None => Axis::Whole(*length),
            })
            .collect();
        let float = self.floats.iter().find(|(name, _)| *name == variable.name);
        let float = float.map(|(_, width)| DType::Float(*width).column_type(false));
        let is_number = decode.column_type(&view.dtype, self.raw).is_numeric();
        let rounded = float.filter(|_| is_number);
        let along = axes.iter().position(|axis| *axis == Axis::Record);
        let chunk = along.and_then(|axis| variable.chunks.as_ref()?.get(axis).copied()).unwrap_or(1);
        let mut column = PlanColumn {
            variable: view.number,
            field: Field::new(&variable.name, DataType::Null, true),
            dtype: view.dtype.clone(),
            decode,
            rounded,
            dims: view.dims.to_vec(),
            axes,
            characters: view.characters,
            chunk,
        };
        column.field = self.column_field(&column, &variable.name)?;
        Ok(column)
    }

    fn column_field(&self, column: &PlanColumn, name: &str) -> Result<Field> {
        let decoded = column.decode.column_type(&column.dtype, self.raw);
        let data_type = column.rounded.clone().unwrap_or(decoded);
        let shape = column.record_shape(&self.patches);
        if shape.is_empty() || self.cells.is_some() {
            return Ok(Field::new(name, data_type, true));
        }
        if shape.contains(&0) {
            // No format supports tensors without elements.
            return Ok(Field::new_list(name, Field::new("item", data_type, true), true));
        }
        // Missing floats of tensors are NaN.
        let nulls = column.decode.gives_nulls() || column.dtype.may_be_null();
        let nullable = nulls && !data_type.is_floating();
        let lengths: Vec<usize> = shape.iter().map(|length| usize::try_from(*length).unwrap_or(usize::MAX)).collect();
        if data_type.is_primitive() || data_type == DataType::Boolean {
            let kept = column.dims.iter().zip(&column.axes).filter(|(_, axis)| **axis != Axis::Record);
            let dims: Vec<String> = kept.map(|(dim, _)| dim.clone()).collect();
            return tensor_field(name, data_type, nullable, &lengths, &dims);
        }
        // Tensors hold numbers; other values become nested lists.
        tensor_field(name, data_type.clone(), nullable, &lengths, &[])?;
        let item = Field::new("item", data_type, true);
        let list = |inner: Field, length: &usize| {
            let length = i32::try_from(*length).unwrap_or(i32::MAX);
            Field::new("item", DataType::FixedSizeList(Arc::new(inner), length), false)
        };
        Ok(lengths.iter().rev().fold(item, list).with_name(name).with_nullable(true))
    }

    /// Returns the number of patches per record; 1 without patches.
    pub fn patches_per_record(&self) -> u64 {
        self.patches.iter().map(|patch| patch.starts.len() as u64).product()
    }

    /// Returns the number of rows per index of the record dimension.
    pub fn rows_per_record(&self) -> u64 {
        match &self.cells {
            Some(cells) => cells.iter().fold(1, |all, (_, length)| all.saturating_mul(*length)),
            None => self.patches_per_record(),
        }
    }

    /// Returns the total number of rows.
    pub fn row_count(&self) -> u64 {
        self.length.saturating_mul(self.rows_per_record())
    }

    /// Returns the bytes of a row, as far as the header states them.
    pub fn row_bytes(&self) -> u64 {
        self.columns.iter().map(|column| self.column_bytes(column)).fold(0, u64::saturating_add).max(1)
    }

    /// Returns the bytes of a column in a row.
    fn column_bytes(&self, column: &PlanColumn) -> u64 {
        let elements = match self.cells {
            Some(_) => 1,
            None => column.record_shape(&self.patches).iter().fold(1_u64, |all, length| all.saturating_mul(*length)),
        };
        elements.saturating_mul(column.dtype.byte_width().map_or(VARIABLE_BYTES, |width| width as u64).max(1))
    }

    /// Returns the length of the longest stored chunk along the records among variables that make up a large part of a
    /// record: netCDF stores a time axis in chunks of a thousand while each map is its own chunk.
    pub fn chunk_length(&self) -> u64 {
        let row = self.row_bytes();
        let large = self.columns.iter().filter(|column| {
            let cells = column.axes.len() as u64 > 1 && self.cells.is_some();
            cells || self.cells.is_none() && self.column_bytes(column).saturating_mul(LARGE_COLUMN_DIVISOR) >= row
        });
        large.map(|column| column.chunk).max().unwrap_or(1).clamp(1, self.length.max(1))
    }
}

/// A variable with its characters joined to texts.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) number: usize,
    pub(super) dims: &'a [String],
    pub(super) shape: &'a [u64],
    dtype: DType,
    characters: Option<u64>,
}

impl<'a> View<'a> {
    fn new(header: &'a Header, number: usize, raw: bool) -> Self {
        let variable = &header.variables[number];
        let (dims, shape) = (variable.dims.as_slice(), variable.shape.as_slice());
        match (shape.split_last(), dims.split_last()) {
            (Some((length, outer)), Some((_, names))) if variable.characters && !raw && *length > 0 => {
                let width = usize::try_from(*length).unwrap_or(usize::MAX);
                let dtype = DType::Text(width, Padding::Nul);
                Self { number, dims: names, shape: outer, dtype, characters: Some(*length) }
            }
            _ => Self { number, dims, shape, dtype: variable.dtype.clone(), characters: None },
        }
    }

    pub(super) fn element_count(&self) -> u64 {
        self.shape.iter().fold(1, |all, length| all.saturating_mul(*length))
    }
}

fn variable_names(header: &Header) -> String {
    header.variables.iter().map(|variable| variable.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn select_variables(header: &Header, options: &ArrayOptions) -> Result<Vec<usize>> {
    let mut chosen: Vec<usize> = (0..header.variables.len()).collect();
    if !options.vars.is_empty() {
        let number = |name: &String| {
            header.variables.iter().position(|variable| variable.name == *name).ok_or_else(|| {
                Error::usage("no variable has this name")
                    .in_column(name.as_str())
                    .with_hint(format!("the variables are {}", variable_names(header)))
            })
        };
        chosen = options.vars.iter().map(number).collect::<Result<_>>()?;
        chosen.sort_unstable();
        chosen.dedup();
    }
    if chosen.is_empty() {
        return Err(Error::input("expected arrays, found none"));
    }
    let refused = |number: &usize| {
        let variable: &Variable = &header.variables[*number];
        let why = variable.dtype.refusal_reason()?;
        Some(
            Error::input(format!("expected elements that can be read, found {why}"))
                .in_column(variable.name.as_str())
                .with_hint("choose other variables with --read var"),
        )
    };
    match chosen.iter().find_map(refused) {
        Some(error) => Err(error),
        None => Ok(chosen),
    }
}

pub(super) fn length_of(views: &[View<'_>], dim: &str) -> Option<u64> {
    views.iter().find_map(|view| Some(view.shape[view.dims.iter().position(|found| found == dim)?]))
}

/// Checks that each dimension has the same length in all variables.
fn check_lengths(header: &Header, views: &[View<'_>]) -> Result<()> {
    let mut lengths: BTreeMap<&str, u64> = BTreeMap::new();
    for view in views {
        for (dim, length) in view.dims.iter().zip(view.shape) {
            let known = *lengths.entry(dim).or_insert(*length);
            if known != *length {
                let message = format!("expected {known} as the length of dimension `{dim}`, found {length}");
                return Err(Error::input(message)
                    .in_column(header.variables[view.number].name.as_str())
                    .with_hint("choose variables with --read var"));
            }
        }
    }
    Ok(())
}

fn dims_of(views: &[View<'_>]) -> String {
    let mut all: Vec<&str> = Vec::new();
    for dim in views.iter().flat_map(|view| view.dims) {
        if !all.contains(&dim.as_str()) {
            all.push(dim);
        }
    }
    all.join(", ")
}

pub(super) fn no_such_dim(views: &[View<'_>], option: &str, dim: &str) -> Error {
    Error::usage(format!("expected a dimension of the variables for {option}, found `{dim}`"))
        .with_hint(format!("the dimensions are {}", dims_of(views)))
}

fn plan_patches(views: &[View<'_>], record_dim: Option<&str>, options: &ArrayOptions) -> Result<Vec<Patch>> {
    if options.flatten && !options.patch.is_empty() {
        return Err(Error::usage("expected either --read patch or --read flatten=yes, found both"));
    }
    if let Some((dim, _)) = options.stride.iter().find(|(dim, _)| options.patch.iter().all(|(other, _)| other != dim)) {
        return Err(Error::usage(format!("expected a --read patch for the --read stride of `{dim}`, found none")));
    }
    let patch = |(dim, size): &(String, u64)| {
        let length = length_of(views, dim).ok_or_else(|| no_such_dim(views, "--read patch", dim))?;
        if record_dim == Some(dim) {
            return Err(Error::usage(format!(
                "expected patches along dimensions other than the record dimension, found `{dim}`"
            ))
            .with_hint("choose another record dimension with --read record-dim"));
        }
        let stride = options.stride.iter().find(|(other, _)| other == dim).map_or(*size, |(_, stride)| *stride);
        if *size == 0 || stride == 0 || *size > length {
            return Err(Error::usage(format!(
                "expected a patch and a stride of 1 to {length} for `{dim}`, found {size} and {stride}"
            ))
            .with_hint(format!("a patch fits into its dimension: --read patch={dim}={}", length.min(16))));
        }
        let starts = patch_starts(length, *size, stride).unwrap_or_default();
        Ok(Patch { dim: dim.clone(), length, size: *size, starts })
    };
    options.patch.iter().map(patch).collect()
}

/// Returns the first index of each patch of a dimension; `None` if no patch fits.
pub(super) fn patch_starts(length: u64, size: u64, stride: u64) -> Option<Vec<u64>> {
    let last = length.checked_sub(size)?;
    let step = usize::try_from(stride).ok().filter(|step| *step > 0 && size > 0)?;
    let mut starts: Vec<u64> = (0..=last).step_by(step).collect();
    if starts.last() != Some(&last) {
        starts.push(last);
    }
    Some(starts)
}

/// Returns the dimensions, apart from that of the records, whose indices are cells.
fn cell_dims(views: &[View<'_>], record_dim: Option<&str>, options: &ArrayOptions) -> Result<Vec<(String, u64)>> {
    let largest = views.iter().rev().max_by_key(|view| (view.dims.len(), view.element_count()));
    let Some(largest) = largest else { return Ok(Vec::new()) };
    let mut seen = Vec::new();
    for (dim, length) in largest.dims.iter().zip(largest.shape) {
        if record_dim != Some(dim) && seen.iter().all(|(other, _)| other != dim) {
            seen.push((dim.clone(), *length));
        }
    }
    let has = |dim: &String| record_dim == Some(dim) || seen.iter().any(|(other, _)| other == dim);
    if let Some((view, dim)) = views.iter().find_map(|view| Some((view, view.dims.iter().find(|dim| !has(dim))?))) {
        let _ = (view, options);
        return Err(Error::usage(format!(
            "expected variables with the dimensions {} for --read flatten=yes, found `{dim}`",
            largest.dims.join(", ")
        ))
        .with_hint("choose variables with --read var"));
    }
    Ok(seen)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::{error::Kind, schema::tensor_shape};

    fn header(variables: &[(&str, &[(&str, u64)])], unlimited: &[&str]) -> Header {
        let variable = |(name, dims): &(&str, &[(&str, u64)])| Variable::with_dims(name, DType::Float(4), dims);
        Header {
            variables: variables.iter().map(variable).collect(),
            unlimited: unlimited.iter().map(|dim| (*dim).to_owned()).collect(),
            ..Header::default()
        }
    }

    fn climate(unlimited: &[&str]) -> Header {
        header(
            &[
                ("lat", &[("lat", 5)]),
                ("time", &[("time", 3)]),
                ("t2m", &[("time", 3), ("lat", 5), ("lon", 4)]),
                ("crs", &[]),
            ],
            unlimited,
        )
    }

    fn columns(plan: &Plan) -> Vec<(String, Option<Vec<usize>>)> {
        plan.columns.iter().map(|column| (column.field.name().clone(), tensor_shape(&column.field))).collect()
    }

    #[test]
    fn records_are_along_an_unlimited_or_shared_dimension() {
        for unlimited in [&["time"][..], &[]] {
            let plan = Plan::new(&climate(unlimited), &ArrayOptions::default()).unwrap();
            assert_eq!((plan.dim.as_deref(), plan.row_count()), (Some("time"), 3));
            assert_eq!(columns(&plan), [("time".into(), None), ("t2m".into(), Some(vec![5, 4]))]);
            assert_eq!(plan.constants, [0, 3]);
        }
        let plan = Plan::new(&climate(&["lat"]), &ArrayOptions::default()).unwrap();
        assert_eq!((plan.dim.as_deref(), plan.row_bytes()), (Some("lat"), 4 + 4 * 12));
        let single = Plan::new(&header(&[("x", &[]), ("y", &[])], &[]), &ArrayOptions::default()).unwrap();
        assert_eq!((single.dim, single.length, single.columns.len()), (None, 1, 2));
    }

    #[test]
    fn patches_reach_the_edge() {
        let patch = vec![("lat".to_owned(), 2), ("lon".to_owned(), 4)];
        let plan = Plan::new(&climate(&[]), &ArrayOptions { patch, ..ArrayOptions::default() }).unwrap();
        assert_eq!(plan.patches[0].starts, [0, 2, 3]);
        assert_eq!((plan.row_count(), plan.patches[1].starts.len()), (9, 1));
        assert_eq!(columns(&plan)[2], ("t2m".into(), Some(vec![2, 4])));
        assert_eq!(columns(&plan)[0], ("lat".into(), Some(vec![2])));
    }

    #[test]
    fn cells_are_rows() {
        let plan = Plan::new(&climate(&[]), &ArrayOptions { flatten: true, ..ArrayOptions::default() }).unwrap();
        assert_eq!((plan.row_count(), plan.row_bytes(), plan.constants.len()), (60, 16, 0));
        assert_eq!(plan.cells.unwrap(), [("lat".to_owned(), 5), ("lon".to_owned(), 4)]);
    }

    #[test]
    fn missing_names_are_reported() {
        let fails = |options: &ArrayOptions| Plan::new(&climate(&[]), options).unwrap_err().kind();
        let option = |dim: &str, size| vec![(dim.to_owned(), size)];
        let plain = ArrayOptions::default;
        for options in [
            ArrayOptions { record_dim: Some("x".into()), ..plain() },
            ArrayOptions { vars: vec!["x".into()], ..plain() },
            ArrayOptions { patch: option("x", 1), ..plain() },
            ArrayOptions { patch: option("lat", 6), ..plain() },
            ArrayOptions { patch: option("lat", 0), ..plain() },
            ArrayOptions { patch: option("time", 1), record_dim: Some("time".into()), ..plain() },
            ArrayOptions { stride: option("lat", 1), ..plain() },
            ArrayOptions { patch: option("lat", 1), flatten: true, ..plain() },
        ] {
            assert_eq!(fails(&options), Kind::Usage, "{options:?}");
        }
        let mut header = climate(&[]);
        header.variables[0].dtype = DType::Refused("references".into());
        assert_eq!(Plan::new(&header, &plain()).unwrap_err().kind(), Kind::Input);
        assert!(Plan::new(&header, &ArrayOptions { vars: vec!["t2m".into()], ..plain() }).is_ok());
    }
}
