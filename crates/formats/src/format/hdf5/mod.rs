//! HDF5, and netCDF-4, which is HDF5 with dimensions, read by the `hdf5-reader` crate behind a guard.
//!
//! Groups are walked once, each object is listed once, and datasets get dotted names. Dimensions are named after their
//! attached scales, or by axis and length if there are none. Datasets that only represent a netCDF-4 dimension are not
//! variables, and a netCDF-4 variable shorter than its unlimited dimension is padded with its fill value. Object
//! headers that the crate does not support are corrected on the way to it (`headers.rs`), and damage that it does not
//! detect is found here (`checks.rs`). Chunks are located and read by our own code (`chunks.rs`, `indexes.rs`).

mod checks;
mod chunks;
mod filters;
mod headers;
mod heap;
mod indexes;
mod pytables;
mod storage;
mod types;
mod varied;

use std::{
    any::Any,
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use hdf5_reader::{
    Attribute as Hdf5Attribute, Dataset, Datatype, ExternalLinkResolver, FilterRegistry, H5Type, Hdf5File, OpenOptions,
    SliceInfo, SliceInfoElem, StringSize, VarLenKind, error::Error as Hdf5Error, group::Group, messages::HdfMessage,
};

use self::{
    chunks::{Chunked, ReadContext, contiguous_offset},
    filters::{MAX_CHUNK, MAX_READ, filter_registry},
    headers::Headers,
    heap::HeapCache,
    storage::Blocks,
    types::{dtype_of, to_native},
};
use super::{guard::guard_decoding, ranged::RangedInput};
use crate::{
    array::{Arrays, Attribute, DType, Header, Slab, Values, Variable, name_dims, slab::box_ranges},
    error::{Error, Result},
};

/// Format name in errors of the guard.
const HDF5: &str = "an HDF5 file";

const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";

/// Bytes of decoded chunks that the crate caches: none, because ranges cover whole chunks or read through the disk, and
/// thousands of open files would each keep some until the end of the run.
const CHUNK_CACHE: usize = 0;

/// Approximate bytes that the description of a dataset takes, with its attributes.
const OBJECT: u64 = 12 << 10;

/// Maximum datasets of a file, and levels of groups.
const MAX_DATASETS: usize = 100_000;
const MAX_DEPTH: usize = 64;

/// Offsets at which a file may begin.
fn possible_starts() -> impl Iterator<Item = usize> {
    std::iter::once(0).chain((9..18).map(|shift| 1_usize << shift))
}

/// Whether a file with this head is HDF5: its signature is at the start, or after a user block of 512 bytes, 1024 ...
pub fn sniff(head: &[u8]) -> bool {
    possible_starts().any(|start| head.get(start..).is_some_and(|rest| rest.starts_with(SIGNATURE)))
}

/// An HDF5 file.
pub struct Hdf5Source {
    name: String,
    header: Header,
    datasets: Vec<Dataset>,
    /// Chunks of each dataset, if it is chunked.
    chunked: Vec<Option<Chunked>>,
    /// Offset in the input of each dataset, if it is contiguous.
    begins: Vec<Option<u64>>,
    file: Hdf5File,
    blocks: Arc<Blocks>,
    registry: FilterRegistry,
    heaps: HeapCache,
    is_netcdf: bool,
}

impl std::fmt::Debug for Hdf5Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hdf5Source").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Hdf5Source {
    /// Reads the structure of a file. `name` is used in errors.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is damaged.
    pub fn open(input: RangedInput, name: &str) -> Result<Self> {
        let (contents, file, blocks) = guard_decoding(HDF5, name, || {
            let options = OpenOptions::default()
                .with_chunk_cache_bytes(CHUNK_CACHE)
                .with_filter_registry(filter_registry())
                .with_max_chunk_bytes(MAX_CHUNK)
                .with_max_read_bytes(MAX_READ)
                .with_max_object_header_bytes(16 << 20);
            let storage = Arc::new(Blocks::new(input)?);
            let elsewhere = Arc::new(Elsewhere::default());
            let options = options.with_external_link_resolver(Arc::clone(&elsewhere) as _);
            let file = Hdf5File::from_storage_with_options(Arc::clone(&storage) as _, options)?;
            let mut contents = Hdf5Contents::from_file(&file, storage.headers())?;
            contents.remarks.extend(elsewhere.remark_on_links());
            Ok::<_, Hdf5Error>((contents, file, storage))
        })?;
        contents.into_source(name, file, blocks)
    }

    /// Whether it is netCDF-4.
    pub fn is_netcdf(&self) -> bool {
        self.is_netcdf
    }
}

/// Files that links lead to, which are not opened: a name in a file must not decide what else is read.
#[derive(Default)]
struct Elsewhere(Mutex<BTreeSet<String>>);

impl ExternalLinkResolver for Elsewhere {
    fn resolve_external_link(&self, filename: &str) -> std::result::Result<Option<Hdf5File>, Hdf5Error> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(filename.to_owned());
        Ok(None)
    }
}

impl Elsewhere {
    fn remark_on_links(&self) -> Option<String> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let names: Vec<String> = files.iter().map(|name| format!("`{name}`")).collect();
        let message = "links to other files are not followed, convert these files as well to take what is in them";
        (!names.is_empty()).then(|| format!("{message}: {}", names.join(", ")))
    }
}

/// A dataset, with its attributes.
struct FoundDataset {
    /// Dotted.
    path: String,
    dataset: Dataset,
    attributes: Vec<Hdf5Attribute>,
    /// Addresses of the scales of each dimension, if there are any.
    scales: Vec<Option<u64>>,
}

/// The contents of a file.
#[derive(Default)]
struct Hdf5Contents {
    datasets: Vec<FoundDataset>,
    attributes: Vec<(String, Attribute)>,
    is_netcdf: bool,
    /// Names of objects that have another name.
    aliases: Vec<(Alias, String)>,
    remarks: Vec<String>,
}

/// What another name stands for.
enum Alias {
    /// The dataset with this number.
    Dataset(usize),
    /// The group at this path.
    Group(String),
}

impl Hdf5Contents {
    fn from_file(file: &Hdf5File, headers: &Headers) -> std::result::Result<Self, Hdf5Error> {
        let root = file.root_group()?;
        let mut contents = Self::default();
        let attributes: Vec<Hdf5Attribute> =
            root.attributes()?.into_iter().chain(headers.removed_attributes(file, root.address())?).collect();
        let width = 8 + usize::from(root.offset_size());
        texts_are_there(&attributes, width, &|reference| root.resolve_vlen_reference_bytes(reference, 1))?;
        for attribute in attributes {
            contents.is_netcdf |= ["_NCProperties", "_nc3_strict"].contains(&attribute.name.as_str());
            if let Some(value) = value_of(&attribute) {
                contents.attributes.push((attribute.name, value));
            }
        }
        let mut seen = HashMap::from([(root.address(), String::new())]);
        let mut known: HashMap<u64, usize> = HashMap::new();
        let mut waiting = vec![(String::new(), root, 0)];
        while let Some((path, group, depth)) = waiting.pop() {
            let (groups, datasets) = group.members()?;
            in_order(file, &group, &mut groups.iter().map(|group| group.name()))?;
            in_order(file, &group, &mut datasets.iter().map(|dataset| dataset.name()))?;
            for dataset in datasets {
                // A link to a dataset of a subgroup is not its name.
                let mut name = format!("{path}{}", leaf_name(&dataset));
                match known.get(&dataset.address()).map(|number| (*number, &mut contents.datasets[*number])) {
                    Some((number, found)) => {
                        if path_depth(&found.path) < path_depth(&path) {
                            std::mem::swap(&mut name, &mut found.path);
                        }
                        contents.aliases.push((Alias::Dataset(number), name));
                    }
                    None => {
                        known.insert(dataset.address(), contents.datasets.len());
                        let named = headers.removed_attributes(file, dataset.address())?;
                        contents.add_dataset(&path, dataset, named)?;
                    }
                }
            }
            if contents.datasets.len() > MAX_DATASETS || depth > MAX_DEPTH {
                return Err(Hdf5Error::InvalidData(format!(
                    "expected at most {MAX_DATASETS} datasets and {MAX_DEPTH} levels of groups, found more"
                )));
            }
            let mut below = Vec::with_capacity(groups.len());
            for group in groups {
                let name = format!("{path}{}", group.name());
                if let Some(known) = seen.get(&group.address()) {
                    contents.aliases.push((Alias::Group(known.clone()), name));
                    continue;
                }
                seen.insert(group.address(), name.clone());
                below.push((format!("{name}."), group, depth + 1));
            }
            // The first group is popped first.
            waiting.extend(below.into_iter().rev());
        }
        headers.all_known(file.superblock().extension_address)?;
        contents.name_aliases();
        if contents.is_of_pytables() {
            contents.leave_out_indexes();
        }
        Ok(contents)
    }

    /// Whether PyTables wrote the file.
    fn is_of_pytables(&self) -> bool {
        self.attributes.iter().any(|(name, _)| name == pytables::VERSION)
    }

    /// Omits indexes of tables, and remarks upon them.
    fn leave_out_indexes(&mut self) {
        let mut indexes = BTreeSet::new();
        self.datasets.retain(|found| {
            let is_index = pytables::is_index(&found.path);
            if is_index {
                indexes.insert(found.path.rsplit_once('.').map_or("", |(index, _)| index).to_owned());
            }
            !is_index
        });
        if !indexes.is_empty() {
            let names = indexes.into_iter().collect::<Vec<_>>().join(", ");
            self.remarks.push(format!("indexes of tables repeat their values and are not taken: {names}"));
        }
    }

    /// Applies what the crate does not know of a dataset.
    fn refine_variable(&self, variable: &mut Variable, headers: &Headers, object: u64) {
        if self.is_of_pytables() {
            pytables::apply_attributes(variable);
        }
        if headers.is_virtual(object) {
            variable.dtype = DType::Refused("a virtual dataset, whose values lie in other datasets".to_owned());
        }
        if let Some(why) = headers.refused_type(object) {
            variable.dtype = DType::Refused(why);
        }
    }

    /// Remarks upon names of objects that are taken by another name.
    fn name_aliases(&mut self) {
        let named = |(alias, name): &(Alias, String)| {
            let known = match alias {
                Alias::Dataset(number) => &self.datasets[*number].path,
                Alias::Group(path) if path.is_empty() => return format!("`{name}` is the root"),
                Alias::Group(path) => path,
            };
            format!("`{name}` is `{known}`")
        };
        let names: Vec<String> = self.aliases.iter().map(named).collect();
        if !names.is_empty() {
            self.remarks.push(format!("objects with several names are taken once: {}", names.join(", ")));
        }
    }

    fn add_dataset(
        &mut self,
        path: &str,
        dataset: Dataset,
        named: Vec<Hdf5Attribute>,
    ) -> std::result::Result<(), Hdf5Error> {
        let attributes: Vec<Hdf5Attribute> = dataset.attributes().into_iter().chain(named).collect();
        let width = dataset.vlen_reference_size();
        texts_are_there(&attributes, width, &|reference| dataset.resolve_vlen_reference_bytes(reference, 1))?;
        let name = leaf_name(&dataset).to_owned();
        let named = |name: &str| attributes.iter().find(|attribute| attribute.name == name);
        self.is_netcdf |= named("_Netcdf4Dimid").is_some();
        let stands_in = named("NAME").and_then(value_of).is_some_and(|name| is_only_dim(name.as_text()));
        self.is_netcdf |= stands_in;
        let most = dataset.max_dims().unwrap_or_default();
        if let Some((length, most)) = dataset.shape().iter().zip(most).find(|(length, most)| length > most) {
            let message = format!("dataset `{name}`: expected a dimension of at most {most}, found {length}");
            return Err(Hdf5Error::InvalidData(message));
        }
        let mut scales = vec![None; dataset.ndim()];
        if let Some(list) = named("DIMENSION_LIST") {
            let width = dataset.vlen_reference_size();
            for (scale, reference) in scales.iter_mut().zip(list.raw_data.chunks_exact(width.max(1))) {
                let found = dataset.resolve_vlen_reference_bytes(reference, width - 8)?;
                *scale = (!found.is_empty()).then(|| {
                    let address = &found[..found.len().min(width - 8)];
                    address.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
                });
            }
        }
        self.datasets.push(FoundDataset { path: format!("{path}{name}"), dataset, attributes, scales });
        Ok(())
    }

    fn into_source(self, name: &str, file: Hdf5File, blocks: Arc<Blocks>) -> Result<Hdf5Source> {
        let text = |found: &FoundDataset, wanted: &str| {
            let attribute = found.attributes.iter().find(|attribute| attribute.name == wanted)?;
            value_of(attribute)?.as_text().map(str::to_owned)
        };
        let is_scale = |found: &FoundDataset| text(found, "CLASS").as_deref() == Some("DIMENSION_SCALE");
        let paths: HashMap<u64, &str> =
            self.datasets.iter().map(|found| (found.dataset.address(), found.path.as_str())).collect();
        // The library also notes the first dimension of some variables in this attribute; only scales are dimensions.
        let scales = self.datasets.iter().filter(|found| is_scale(found));
        let ids: HashMap<i128, &str> = scales
            .filter_map(|found| {
                Some((integer_attribute(found, "_Netcdf4Dimid").first().copied()?, found.path.as_str()))
            })
            .collect();
        let (attributes, remarks) = (self.attributes.clone(), self.remarks.clone());
        let mut header = Header { attributes, remarks, ..Header::default() };
        let mut lengths: HashMap<String, u64> = HashMap::new();
        let mut all = Vec::new();
        for found in &self.datasets {
            let dims = dims_of(found, is_scale(found), &paths, &ids);
            let growing = found.dataset.max_dims().unwrap_or_default();
            for ((dim, length), most) in dims.iter().zip(found.dataset.shape()).zip(growing) {
                if let Some(dim) = dim.as_ref().filter(|_| *most == u64::MAX) {
                    let longest = lengths.entry(dim.clone()).or_insert(*length);
                    *longest = (*longest).max(*length);
                }
            }
            if !(is_scale(found) && is_only_dim(text(found, "NAME").as_deref())) {
                all.push((found, dims));
            }
        }
        header.unlimited = lengths.keys().cloned().collect();
        header.unlimited.sort();
        let mut datasets = Vec::with_capacity(all.len());
        let (mut chunked, mut pieces) = (Vec::with_capacity(all.len()), Vec::with_capacity(all.len()));
        for (found, dims) in all {
            let stored = guard_decoding(HDF5, name, || {
                let chunked = Chunked::for_dataset(&file, blocks.headers(), &found.dataset, found.dataset.shape())?;
                Ok::<_, Hdf5Error>((chunked, contiguous_offset(&file, &found.dataset)?))
            });
            let (in_chunks, at) = stored.map_err(|e| e.in_column(found.path.as_str()))?;
            chunked.push(in_chunks);
            pieces.push(at);
            let (mut variable, dataset) = build_variable(found, dims, &lengths, self.is_netcdf, name)?;
            self.refine_variable(&mut variable, blocks.headers(), found.dataset.address());
            if self.is_of_pytables() {
                header.unlimited.extend(pytables::rows_of_frame(&variable));
            }
            header.variables.push(variable);
            datasets.push(dataset);
        }
        name_dims(&mut header.variables);
        add_growing(&mut header, &datasets);
        let (name, is_netcdf) = (name.to_owned(), self.is_netcdf);
        Ok(Hdf5Source {
            name,
            header,
            datasets,
            chunked,
            begins: pieces,
            file,
            blocks,
            registry: filter_registry(),
            heaps: HeapCache::default(),
            is_netcdf,
        })
    }
}

/// Resolves a reference into a heap.
type Resolve<'a> = dyn Fn(&[u8]) -> std::result::Result<Vec<u8>, Hdf5Error> + 'a;

/// Adds the dimensions of datasets that may grow to the unlimited ones.
fn add_growing(header: &mut Header, datasets: &[Dataset]) {
    for (variable, dataset) in header.variables.iter().zip(datasets) {
        let growing = dataset.max_dims().unwrap_or_default();
        for (dim, _) in variable.dims.iter().zip(growing).filter(|(_, most)| **most == u64::MAX) {
            if !header.unlimited.contains(dim) {
                header.unlimited.push(dim.clone());
            }
        }
    }
}

/// Fails on attributes whose texts are missing in their heap, which the crate ignores. `width` is the bytes of a
/// reference.
fn texts_are_there(
    attributes: &[Hdf5Attribute],
    width: usize,
    resolve: &Resolve<'_>,
) -> std::result::Result<(), Hdf5Error> {
    for attribute in attributes {
        let is_text = match &attribute.datatype {
            Datatype::String { size, .. } => *size == StringSize::Variable,
            Datatype::VarLen { kind, .. } => *kind == VarLenKind::String,
            _ => false,
        };
        let elements = attribute.shape.iter().fold(1, |all: u64, length| all.saturating_mul(*length));
        let unknown = is_text && attribute.decoded_strings.is_none();
        // Otherwise it is the text itself, in another encoding.
        if unknown && attribute.raw_data.len() as u64 == elements.saturating_mul(width as u64) {
            for reference in attribute.raw_data.chunks_exact(width) {
                resolve(reference).map_err(|error| error.with_context(format!("attribute `{}`", attribute.name)))?;
            }
        }
    }
    Ok(())
}

/// Fails on a group of the older kind whose names are not sorted: lookups of a changed name would fail.
fn in_order(
    file: &Hdf5File,
    group: &Group,
    names: &mut dyn Iterator<Item = &str>,
) -> std::result::Result<(), Hdf5Error> {
    let header = file.get_or_parse_header(group.address())?;
    if !header.messages.iter().any(|message| matches!(message, HdfMessage::SymbolTable(_))) {
        return Ok(());
    }
    let mut before = "";
    for name in names {
        if name <= before {
            let at = file.superblock().base_address.saturating_add(group.address());
            return Err(Hdf5Error::InvalidData(format!(
                "group at byte {at}: expected names in order, found `{name}` after `{before}`"
            )));
        }
        before = name;
    }
    Ok(())
}

/// Whether a scale only represents a dimension of netCDF.
fn is_only_dim(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.starts_with("This is a netCDF dimension but not"))
}

/// Returns the name of a dataset in its group, by netCDF's conventions.
fn leaf_name(dataset: &Dataset) -> &str {
    let name = dataset.name().rsplit('/').next().unwrap_or_default();
    name.strip_prefix("_nc4_non_coord_").unwrap_or(name)
}

fn path_depth(path: &str) -> usize {
    path.matches('.').count()
}

fn integer_attribute(found: &FoundDataset, name: &str) -> Vec<i128> {
    let attribute = found.attributes.iter().find(|attribute| attribute.name == name);
    attribute.and_then(value_of).map(|value| value.to_integers()).unwrap_or_default()
}

/// Returns the names of the dimensions of a dataset that have scales.
fn dims_of(
    found: &FoundDataset,
    is_scale: bool,
    paths: &HashMap<u64, &str>,
    ids: &HashMap<i128, &str>,
) -> Vec<Option<String>> {
    let rank = found.dataset.ndim();
    let coordinates = integer_attribute(found, "_Netcdf4Coordinates");
    if coordinates.len() == rank && rank > 0 {
        return coordinates.iter().map(|id| ids.get(id).map(|name| (*name).to_owned())).collect();
    }
    if is_scale && rank == 1 {
        return vec![Some(found.path.clone())];
    }
    let name = |scale: &Option<u64>| scale.and_then(|scale| paths.get(&scale)).map(|name| (*name).to_owned());
    found.scales.iter().map(name).collect()
}

fn build_variable(
    found: &FoundDataset,
    dims: Vec<Option<String>>,
    lengths: &HashMap<String, u64>,
    is_netcdf: bool,
    name: &str,
) -> Result<(Variable, Dataset)> {
    let mut dataset = found.dataset.clone();
    let mut shape = dataset.shape().to_vec();
    if is_netcdf {
        let growing = dataset.max_dims().unwrap_or_default().to_vec();
        for ((length, dim), most) in shape.iter_mut().zip(&dims).zip(growing) {
            if let Some(longest) = dim.as_ref().and_then(|dim| lengths.get(dim)).filter(|_| most == u64::MAX) {
                *length = *longest;
            }
        }
        let padded = guard_decoding(HDF5, name, || dataset.clone().with_padded_shape(&shape));
        dataset = padded.map_err(|e| e.in_column(found.path.as_str()))?;
    } else if dataset.ndim() == 0 && dataset.num_elements().is_ok_and(|elements| elements == 0) {
        // A dataset without a dataspace.
        shape = vec![0];
    }
    let mut dtype = dtype_of(dataset.dtype());
    if let DType::Float(width) = dtype
        && !is_ieee(&dataset, width)
    {
        dtype = DType::Refused(format!("floats of {width} bytes that are not IEEE 754"));
    }
    let characters = is_netcdf && matches!(dtype, DType::Text(1, _)) && !shape.is_empty();
    let never_filled = dataset.fill_value().is_some_and(|fill| !fill.defined);
    let hidden = ["DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", "_Netcdf4Dimid", "_Netcdf4Coordinates"];
    let shown = found.attributes.iter().filter(|attribute| !hidden.contains(&attribute.name.as_str()));
    let attributes = shown.filter_map(|attribute| Some((attribute.name.clone(), value_of(attribute)?))).collect();
    // A dimension without a scale is named by its axis if other dimensions have scales.
    let named = dims.iter().any(Option::is_some);
    let dims = if named {
        let dim = |(axis, dim): (usize, Option<String>)| dim.unwrap_or_else(|| format!("{}.dim_{axis}", found.path));
        dims.into_iter().enumerate().map(dim).collect()
    } else {
        Vec::new()
    };
    let variable = Variable {
        name: found.path.clone(),
        dtype,
        shape,
        dims,
        unnamed: false,
        chunks: dataset.chunks().map(|chunks| chunks.into_iter().map(u64::from).collect()),
        codecs: Vec::new(),
        attributes,
        characters,
        fills: is_netcdf && !never_filled,
    };
    Ok((variable, dataset))
}

/// Whether a float has the IEEE 754 bit layout.
fn is_ieee(dataset: &Dataset, width: usize) -> bool {
    let exponent = match width {
        2 => 5,
        4 => 8,
        _ => 11,
    };
    // Class and flags, size; then bit offset, precision, and position and size of the exponent.
    dataset.raw_datatype().ok().and_then(|raw| raw.get(13).copied()).is_none_or(|found| found == exponent)
}

/// Converts an attribute; `None` if it is internal to HDF5 or netCDF.
fn value_of(attribute: &Hdf5Attribute) -> Option<Attribute> {
    match &attribute.datatype {
        Datatype::String { .. } | Datatype::VarLen { kind: VarLenKind::String, .. } => {
            let texts = match attribute.read_strings() {
                Ok(texts) => texts,
                Err(_) => vec![attribute.read_string().ok()?],
            };
            Some(match texts.as_slice() {
                [one] => Attribute::Text(one.clone()),
                _ => Attribute::Texts(texts),
            })
        }
        datatype => {
            let dtype = dtype_of(datatype);
            let numbers = matches!(dtype, DType::Int(_) | DType::UInt(_) | DType::Float(_) | DType::Bool);
            if !numbers {
                return Some(Attribute::Other(dtype.name()));
            }
            let mut bytes = attribute.raw_data.clone();
            to_native(datatype, &mut bytes);
            Some(Attribute::Numbers(dtype, bytes))
        }
    }
}

/// An element as its stored bytes.
#[derive(Clone)]
struct Raw<const N: usize>([u8; N]);

impl<const N: usize> H5Type for Raw<N> {
    fn hdf5_type() -> Datatype {
        Datatype::Opaque { size: u32::try_from(N).unwrap_or(u32::MAX), tag: String::new() }
    }

    fn from_bytes(bytes: &[u8], _: &Datatype) -> std::result::Result<Self, Hdf5Error> {
        let bytes = bytes.get(..N).and_then(|bytes| bytes.first_chunk::<N>());
        bytes.map(|bytes| Self(*bytes)).ok_or_else(|| Hdf5Error::InvalidData("an element is cut short".to_owned()))
    }

    fn element_size(_: &Datatype) -> usize {
        N
    }

    fn native_copy_compatible(_: &Datatype) -> bool {
        true
    }

    fn decode_vec(raw: &[u8], _: &Datatype, count: usize) -> Option<std::result::Result<Vec<Self>, Hdf5Error>> {
        let elements = raw.as_chunks::<N>().0.get(..count)?;
        Some(Ok(elements.iter().map(|bytes| Self(*bytes)).collect()))
    }
}

/// An element of any width.
#[derive(Clone)]
struct AnyRaw(Vec<u8>);

impl H5Type for AnyRaw {
    fn hdf5_type() -> Datatype {
        Datatype::Opaque { size: 1, tag: String::new() }
    }

    fn from_bytes(bytes: &[u8], _: &Datatype) -> std::result::Result<Self, Hdf5Error> {
        Ok(Self(bytes.to_vec()))
    }

    fn element_size(datatype: &Datatype) -> usize {
        hdf5_reader::dtype_element_size(datatype).unwrap_or(0)
    }
}

fn read<T: H5Type>(dataset: &Dataset, slab: &Slab) -> std::result::Result<Vec<T>, Hdf5Error> {
    let range = |(start, count): (&u64, &u64)| SliceInfoElem::Slice { start: *start, end: start + count, step: 1 };
    let selections = slab.start.iter().zip(&slab.count).map(range).collect();
    let array = if slab.count.is_empty() {
        dataset.read_array::<T>()?
    } else {
        dataset.read_slice::<T>(&SliceInfo { selections })?
    };
    let (elements, offset) = array.into_raw_vec_and_offset();
    if offset.unwrap_or(0) != 0 {
        return Err(Hdf5Error::InvalidData("an array that does not begin at its begin".to_owned()));
    }
    Ok(elements)
}

fn read_fixed<const N: usize>(dataset: &Dataset, slab: &Slab) -> std::result::Result<Vec<u8>, Hdf5Error> {
    // Collecting in place reuses the memory.
    let elements: Vec<[u8; N]> = read::<Raw<N>>(dataset, slab)?.into_iter().map(|element| element.0).collect();
    Ok(elements.into_flattened())
}

fn read_bytes(dataset: &Dataset, slab: &Slab, width: usize) -> std::result::Result<Vec<u8>, Hdf5Error> {
    match width {
        1 => read_fixed::<1>(dataset, slab),
        2 => read_fixed::<2>(dataset, slab),
        4 => read_fixed::<4>(dataset, slab),
        8 => read_fixed::<8>(dataset, slab),
        12 => read_fixed::<12>(dataset, slab),
        16 => read_fixed::<16>(dataset, slab),
        _ => Ok(read::<AnyRaw>(dataset, slab)?.into_iter().flat_map(|element| element.0).collect()),
    }
}

impl Arrays for Hdf5Source {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&self, number: usize, slab: &Slab) -> Result<Values> {
        let found = self.datasets.get(number).zip(self.header.variables.get(number));
        let (dataset, variable) = found.ok_or_else(|| Error::internal("no such dataset"))?;
        if slab.element_count() == 0 {
            let fixed = variable.dtype.byte_width().is_some();
            return Ok(if fixed { Values::Fixed(Vec::new()) } else { Values::Varied(Vec::new()) });
        }
        let values = guard_decoding(HDF5, &self.name, || {
            if let Some(width) = variable.dtype.byte_width() {
                let mut bytes = self.read_stored(number, slab, width)?;
                to_native(dataset.dtype(), &mut bytes);
                return Ok::<_, Hdf5Error>(Values::Fixed(bytes));
            }
            let width = dataset.raw_element_size()?;
            let stored = self.read_stored(number, slab, width)?;
            let elements =
                varied::resolve_elements(&self.read_context(), &self.heaps, dataset.dtype(), width, &stored)?;
            Ok(Values::Varied(elements))
        });
        values.map_err(|e| e.in_column(variable.name.as_str()))
    }

    fn prefetch(&self, wanted: &[(usize, Slab)]) -> Result<Option<Box<dyn Any + Send>>> {
        if !self.blocks.is_remote() {
            return Ok(None);
        }
        let prefetched = guard_decoding(HDF5, &self.name, || {
            let mut ranges = Vec::new();
            for (number, slab) in wanted.iter().filter(|(_, slab)| slab.element_count() > 0) {
                if let Some(Some(chunked)) = self.chunked.get(*number) {
                    ranges.extend(chunked.slab_ranges(&self.read_context(), slab)?);
                }
                if let (Some(Some(begin)), Some(dataset)) = (self.begins.get(*number), self.datasets.get(*number)) {
                    let found = box_ranges(dataset.shape(), slab, dataset.raw_element_size()?);
                    let at = |offset: u64| begin.saturating_add(offset);
                    ranges.extend(found.into_iter().map(|range| at(range.start)..at(range.end)));
                }
            }
            self.blocks.prefetch_ranges(ranges)
        })?;
        Ok(prefetched.map(|prefetched| Box::new(prefetched) as Box<dyn Any + Send>))
    }

    fn memory_bytes(&self) -> u64 {
        let indexes: u64 = self.chunked.iter().flatten().map(Chunked::memory_bytes).sum();
        self.blocks.memory_bytes() + self.heaps.memory_bytes() + indexes + OBJECT * (1 + self.datasets.len() as u64)
    }
}

impl Hdf5Source {
    fn read_context(&self) -> ReadContext<'_> {
        ReadContext { file: &self.file, blocks: &self.blocks, registry: &self.registry }
    }

    /// Returns elements of `width` bytes each, as stored.
    fn read_stored(&self, number: usize, slab: &Slab, width: usize) -> std::result::Result<Vec<u8>, Hdf5Error> {
        match (self.chunked.get(number), self.datasets.get(number)) {
            (Some(Some(chunked)), _) if chunked.element_width() == width => chunked.read(&self.read_context(), slab),
            (_, Some(dataset)) => read_bytes(dataset, slab, width),
            _ => Err(Hdf5Error::InvalidData("no such dataset".to_owned())),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::{
        array::{Array, AsArray},
        datatypes::{Float32Type, Int16Type, Int32Type},
    };
    use bytes::Bytes;

    use super::*;

    fn testdata(name: &str) -> Vec<u8> {
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/arrays/").to_owned() + name).unwrap()
    }

    /// Returns all values of a file by variable name.
    fn values(bytes: Vec<u8>) -> Result<Vec<(String, Values)>> {
        let source = Hdf5Source::open(RangedInput::Bytes(Bytes::from(bytes)), "x.h5")?;
        let variables = source.header().variables.iter().enumerate();
        variables.map(|(number, v)| Ok((v.name.clone(), source.read(number, &Slab::from_shape(&v.shape))?))).collect()
    }

    #[test]
    fn chunks_are_found_by_every_newer_kind_of_index() {
        let found = values(testdata("chunk_indexes.h5")).unwrap();
        let mut names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["extensible", "fixed", "fixed_smaller", "second", "single", "tree"]);
        for (name, values) in found {
            let Values::Fixed(bytes) = values else { panic!("{name}") };
            let expected: Vec<u8> = (0_i16..).flat_map(i16::to_ne_bytes).take(bytes.len()).collect();
            assert_eq!(bytes, expected, "{name}");
        }
    }

    #[test]
    fn chunks_at_the_edge_may_be_left_unfiltered() {
        let found = values(testdata("bare_edges.h5")).unwrap();
        assert_eq!(found.len(), 4);
        for (name, values) in found {
            assert_eq!(values, Values::Fixed((0_i32..35).flat_map(i32::to_ne_bytes).collect()), "{name}");
        }
    }

    #[test]
    fn no_changed_byte_of_a_file_under_checksums_gives_other_values() {
        let whole = testdata("chunk_indexes.h5");
        let expected = values(whole.clone()).unwrap();
        let mut refused = 0;
        for at in (0..whole.len()).step_by(2) {
            let mut changed = whole.clone();
            changed[at] ^= 1 << (at / 2 % 8);
            match values(changed) {
                Ok(found) => assert!(found == expected, "byte {at}"),
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.kind(), crate::error::Kind::Input, "byte {at}: {error}");
                }
            }
        }
        // The rest is free space, and bytes outside of all chunks.
        assert!(refused > 1200, "{refused}");
        for end in (0..whole.len()).step_by(97) {
            assert!(values(whole[..end].to_vec()).is_err(), "{end} bytes");
        }
        assert_eq!(values([whole, vec![0; 100]].concat()).unwrap(), expected);
    }

    #[test]
    fn names_that_changed_are_refused() {
        let whole = testdata("varied.h5");
        let at = whole.windows(8).position(|bytes| bytes == b"own\0\0\0\0\0").unwrap();
        let mut changed = whole.clone();
        changed[at] = b'y';
        let error = values(changed).unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("expected names in order, found `rows` after `ywn`"), "{cause}");
        assert!(values(whole).is_ok());
    }

    #[test]
    fn structs_hold_texts_and_sequences_of_any_length() {
        let source = Hdf5Source::open(RangedInput::Bytes(Bytes::from(testdata("varied.h5"))), "x.h5").unwrap();
        let column = |name: &str| {
            let number = source.header().variables.iter().position(|v| v.name == name).unwrap();
            let variable = &source.header().variables[number];
            let values = source.read(number, &Slab::from_shape(&variable.shape)).unwrap();
            let column = variable.dtype.decode_column(values, false).unwrap();
            assert_eq!(column.data_type(), &variable.dtype.column_type(false));
            column
        };
        let rows = column("rows");
        let rows = rows.as_struct();
        assert_eq!(rows.column(0).as_primitive::<Int32Type>().values(), &[1, 0, 3]);
        assert_eq!(rows.column(1).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["ä", "", ""]);
        let seq = rows.column(2).as_list::<i32>();
        assert_eq!((seq.value_length(0), seq.value_length(1), seq.value_length(2)), (2, 0, 0));
        assert_eq!(seq.values().as_primitive::<Int16Type>().values(), &[1, -2]);
        let pairs = rows.column(3).as_list::<i32>();
        assert_eq!((pairs.value_length(0), pairs.value_length(1), pairs.value_length(2)), (2, 0, 1));
        assert_eq!(pairs.values().as_struct().column(1).as_primitive::<Float32Type>().values(), &[0.5, 1.5, 0.5]);
        let two = rows.column(4).as_fixed_size_list().values();
        assert_eq!(two.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["a", "bc", "", "", "", "d"]);
        let words = column("words");
        let words = words.as_list::<i32>();
        assert_eq!((words.value_length(0), words.value_length(1)), (3, 0));
        assert_eq!(words.values().as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["x", "", "yz"]);
    }

    #[test]
    fn values_of_another_length_than_their_reference_says_are_refused() {
        let whole = testdata("varied.h5");
        // The reference to `ä`: two bytes, the heap, its object.
        let heap = whole.windows(4).position(|bytes| bytes == b"GCOL").unwrap() as u64;
        let reference = [&2_u32.to_le_bytes()[..], &heap.to_le_bytes()].concat();
        let at = whole.windows(12).position(|bytes| bytes == reference).unwrap();
        for count in [1, 3] {
            let mut changed = whole.clone();
            changed[at] = count;
            let error = values(changed).unwrap_err();
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains(&format!("expected {count} bytes in object")), "{cause}");
        }
    }

    #[test]
    fn virtual_datasets_are_refused_by_name_and_others_beside_them_read() {
        let source = Hdf5Source::open(RangedInput::Bytes(Bytes::from(testdata("virtual.h5"))), "x.h5").unwrap();
        let [own, view] = source.header().variables.as_slice() else { panic!() };
        assert_eq!((own.name.as_str(), own.dtype.refusal_reason()), ("own", None));
        assert!(view.dtype.refusal_reason().unwrap().contains("virtual dataset"));
        assert_eq!(
            source.read(0, &Slab::from_shape(&own.shape)).unwrap(),
            Values::Fixed([0_i32, 1, 2].map(i32::to_ne_bytes).concat())
        );
    }
}
