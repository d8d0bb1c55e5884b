//! Zarr, versions 2 and 3: a folder with the metadata of arrays in JSON and a file for each chunk.
//!
//! ```text
//! data.zarr/.zgroup .zattrs .zmetadata   t2m/.zarray t2m/.zattrs t2m/0.0.0 t2m/0.0.1 ...        version 2
//! data.zarr/zarr.json                    t2m/zarr.json  t2m/c/0/0/0  t2m/c/0/0/1 ...            version 3
//! ```
//!
//! Each array is described by its own metadata. Consolidated metadata (`.zmetadata`, or in the root `zarr.json`) are a
//! copy that may be older: they count only if no array has metadata of its own, and a difference is remarked upon. A
//! missing chunk holds the fill value. Of a shard, only the index and the needed chunks are read.

mod codecs;
mod metadata;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use rayon::prelude::*;
use serde_json::Value;

use self::{
    codecs::{ElementLayout, MAX_CHUNK, Sharding},
    metadata::{ArrayMetadata, attributes_of, of_v2, of_v3},
};
use crate::{
    array::{
        Arrays, DType, Header, Slab, Values, name_dims,
        slab::{BufferExtent, copy_box, intersecting_chunks},
    },
    error::{Error, Result},
    storage::Folder,
};

/// Files that identify a folder as a store.
pub const MARKERS: [&str; 4] = ["zarr.json", ".zgroup", ".zarray", ".zmetadata"];

/// Whether a path below a store is that of metadata of an array or a group.
pub fn is_metadata(path: &str) -> bool {
    ["zarr.json", ".zarray", ".zattrs"].contains(&path.rsplit_once('/').map_or(path, |(_, name)| name))
}

/// Contents of metadata, by path.
type Nodes = BTreeMap<String, Value>;

/// Maximum bytes of one read.
const MAX_READ: usize = 1 << 30;

/// A store.
#[derive(Debug)]
pub struct ZarrSource {
    folder: Folder,
    header: Header,
    arrays: Vec<ArrayMetadata>,
}

fn parse_json(bytes: &[u8], path: &str) -> Result<Value> {
    let parsed = serde_json::from_slice(bytes).or_else(|error| match with_float_words(bytes) {
        Some(quoted) => serde_json::from_slice(&quoted),
        None => Err(error),
    });
    parsed.map_err(|e| {
        Error::input(format!("expected JSON in `{path}`, found something else"))
            .with_hint("the store may be damaged: get it again, or leave it out with --exclude")
            .with_cause(e)
    })
}

/// Quotes `NaN`, `Infinity` and `-Infinity`, which Python writes although JSON does not allow them, as the Zarr
/// specification does for fill values; `None` if there are none.
fn with_float_words(bytes: &[u8]) -> Option<Vec<u8>> {
    const WORDS: [&[u8]; 3] = [b"NaN", b"-Infinity", b"Infinity"];
    let mut out = Vec::with_capacity(bytes.len() + 16);
    let (mut at, mut in_text, mut found) = (0, false, false);
    while let Some(&byte) = bytes.get(at) {
        let word = WORDS.into_iter().find(|word| !in_text && bytes[at..].starts_with(word));
        if let Some(word) = word {
            found = true;
            out.extend([b"\"", word, b"\""].concat());
            at += word.len();
            continue;
        }
        // An escaped character does not end a text.
        let escaped = in_text && byte == b'\\';
        in_text ^= byte == b'"';
        let taken = if escaped { &bytes[at..(at + 2).min(bytes.len())] } else { &bytes[at..=at] };
        out.extend_from_slice(taken);
        at += taken.len();
    }
    found.then_some(out)
}

impl ZarrSource {
    /// Reads the metadata of the arrays, whose paths are `listed`; `None` lists the store.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is damaged, or a codec is not supported.
    pub fn open(folder: Folder, listed: Option<&[String]>) -> Result<Self> {
        let mut source = Self { folder, header: Header::default(), arrays: Vec::new() };
        match source.folder.get("zarr.json")? {
            Some(root) => source.open_v3(parse_json(&root, "zarr.json")?, listed)?,
            None => source.open_v2(listed)?,
        }
        source.header.variables = source.arrays.iter().map(|array| array.variable.clone()).collect();
        name_dims(&mut source.header.variables);
        Ok(source)
    }

    fn open_v3(&mut self, root: Value, listed: Option<&[String]>) -> Result<()> {
        check_version(&root, 3)?;
        let attributes = root.get("attributes").and_then(Value::as_object).cloned().unwrap_or_default();
        self.header.attributes = attributes_of(&attributes, &DType::Bool);
        let is_array = |node: &Value| node.get("node_type").and_then(Value::as_str) == Some("array");
        let mut nodes = if is_array(&root) { Nodes::new() } else { self.nodes(listed, &["zarr.json"])? };
        if let Some(Value::Object(copy)) = root.get("consolidated_metadata").and_then(|c| c.get("metadata")) {
            let path = |(path, node): (&String, &Value)| (format!("{path}/zarr.json"), node.clone());
            let copy: Nodes = copy.iter().map(path).collect();
            nodes = self.with_copy(nodes, copy, |path, node| path != "zarr.json" && is_array(node));
        }
        nodes.insert("zarr.json".to_owned(), root);
        for (path, node) in nodes.iter().filter(|(_, node)| is_array(node)) {
            let path = path.strip_suffix("zarr.json").unwrap_or(path).trim_end_matches('/');
            check_path(path)?;
            self.arrays.push(of_v3(path, node).map_err(|e| named(e, path))?);
        }
        Ok(())
    }

    fn open_v2(&mut self, listed: Option<&[String]>) -> Result<()> {
        let mut nodes = self.nodes(listed, &[".zarray", ".zattrs"])?;
        if let Some(copy) = self.folder.get(".zmetadata")? {
            let copy = parse_json(&copy, ".zmetadata")?;
            let copy = copy.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
            let copy = copy.into_iter().filter(|(path, _)| is_metadata(path)).collect();
            nodes = self.with_copy(nodes, copy, |path, _| path.ends_with(".zarray"));
        }
        if let Some(Value::Object(attributes)) = nodes.get(".zattrs") {
            self.header.attributes = attributes_of(attributes, &DType::Bool);
        }
        for (key, metadata) in &nodes {
            let Some(path) = key.strip_suffix(".zarray") else { continue };
            let path = path.trim_end_matches('/');
            check_path(path)?;
            let beside = if path.is_empty() { ".zattrs".to_owned() } else { format!("{path}/.zattrs") };
            let attributes = nodes.get(&beside).unwrap_or(&Value::Null);
            self.arrays.push(of_v2(path, metadata, attributes).map_err(|e| named(e, path))?);
        }
        Ok(())
    }

    /// Returns the stored metadata with these names, by path.
    fn nodes(&self, listed: Option<&[String]>, names: &[&str]) -> Result<Nodes> {
        let mut paths = Vec::new();
        let mut take = |path: &str| {
            // The root of version 3 is known.
            if path != "zarr.json" && names.contains(&path.rsplit_once('/').map_or(path, |(_, name)| name)) {
                paths.push(path.to_owned());
            }
        };
        match listed {
            Some(listed) => listed.iter().for_each(|path| take(path)),
            None => self.folder.walk_names(&mut take)?,
        }
        let gone = |path: &str| Error::input(format!("expected `{path}`, found nothing"));
        let read = |path: String| {
            let value = parse_json(&self.folder.get(&path)?.ok_or_else(|| gone(&path))?, &path)?;
            Ok((path, value))
        };
        paths.into_par_iter().map(read).collect()
    }

    /// Returns the metadata that count: those stored, unless there is only the consolidated copy. Remarks upon arrays
    /// of which the copy says something else than their own metadata.
    fn with_copy(&mut self, nodes: Nodes, copy: Nodes, is_array: impl Fn(&str, &Value) -> bool) -> Nodes {
        if !nodes.iter().any(|(path, node)| is_array(path, node)) {
            return copy;
        }
        let folder = |path: &str| path.rsplit_once('/').map_or_else(String::new, |(folder, _)| folder.to_owned());
        let arrays = |all: &Nodes| -> BTreeSet<String> {
            all.iter().filter(|(path, node)| is_array(path, node)).map(|(path, _)| folder(path)).collect()
        };
        let (stored, copied) = (arrays(&nodes), arrays(&copy));
        let differs = |array: &&String| {
            let of = |all: &Nodes, name: &str| all.get(&format!("{array}/{name}")).cloned().unwrap_or_default();
            ["zarr.json", ".zarray", ".zattrs"].iter().any(|name| !agree(&of(&nodes, name), &of(&copy, name)))
        };
        let (added, gone) = (stored.difference(&copied), copied.difference(&stored));
        let changed = stored.intersection(&copied).filter(differs);
        let named = |array: &String, what: &str| format!("`{}` {what}", array.replace('/', "."));
        let differences: Vec<String> = changed
            .map(|array| named(array, "changed"))
            .chain(added.map(|array| named(array, "was added")))
            .chain(gone.map(|array| named(array, "was deleted")))
            .collect();
        if !differences.is_empty() {
            self.header.remarks.push(format!(
                "the consolidated metadata are older than the arrays, whose own metadata count: {}; \
                 zarr.consolidate_metadata renews them",
                differences.join(", ")
            ));
        }
        nodes
    }
}

/// Whether two descriptions of an array agree in what both of them state; writers omit what is empty.
fn agree(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let both: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            both.into_iter().all(|key| {
                agree(&one.get(key).cloned().unwrap_or_default(), &other.get(key).cloned().unwrap_or_default())
            })
        }
        (Value::Null, some) | (some, Value::Null) => match some {
            Value::Null => true,
            Value::Object(members) => members.is_empty(),
            Value::Array(items) => items.is_empty(),
            _ => false,
        },
        (one, other) => one == other,
    }
}

/// Fails on metadata of another version of Zarr.
fn check_version(metadata: &Value, expected: u64) -> Result<()> {
    match metadata.get("zarr_format") {
        Some(found) if found.as_u64() != Some(expected) => Err(Error::input(format!(
            "expected metadata of Zarr {expected} (`zarr_format`), found those of Zarr {found}"
        ))
        .with_hint("Zarr 2 and 3 are read")),
        _ => Ok(()),
    }
}

fn named(error: Error, path: &str) -> Error {
    error.in_column(if path.is_empty() { "array".to_owned() } else { path.replace('/', ".") })
}

/// Fails unless a path from a file only descends.
fn check_path(path: &str) -> Result<()> {
    let fits = path.is_empty() || path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if fits { Ok(()) } else { Err(Error::input(format!("expected the path of an array, found `{path}`"))) }
}

/// Destination of decoded elements.
enum DecodeTarget {
    Fixed(Vec<u8>, usize),
    Varied(Vec<Vec<u8>>),
}

impl DecodeTarget {
    fn put(&mut self, slab: &Slab, shared: &Slab, chunk: BufferExtent<'_>, values: &Values) -> Result<()> {
        let to = BufferExtent { start: &slab.start, shape: &slab.count };
        match (self, values) {
            (Self::Fixed(out, width), Values::Fixed(bytes)) => copy_box(shared, *width, chunk, bytes, to, out),
            (Self::Varied(out), Values::Varied(values)) => {
                let numbers: Vec<u8> = (0..values.len() as u64).flat_map(u64::to_ne_bytes).collect();
                let mut places = vec![0xff; out.len() * 8];
                copy_box(shared, 8, chunk, &numbers, to, &mut places);
                for (target, number) in out.iter_mut().zip(places.as_chunks::<8>().0) {
                    if let Some(value) = usize::try_from(u64::from_ne_bytes(*number)).ok().and_then(|n| values.get(n)) {
                        target.clone_from(value);
                    }
                }
            }
            _ => return Err(Error::internal("decoded a chunk of another kind")),
        }
        Ok(())
    }
}

impl Arrays for ZarrSource {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
        let array = self.arrays.get(variable).ok_or_else(|| Error::internal("no such array"))?;
        let elements = usize::try_from(slab.element_count()).map_err(|_| Error::input("expected smaller records"))?;
        if slab.byte_count(array.variable.dtype.byte_width().unwrap_or(1))? > MAX_READ {
            return Err(named(
                Error::input(format!("expected smaller records, found {}", slab.describe())),
                &array.path,
            ));
        }
        if let Some(values) = self.whole_chunk(array, slab).map_err(|e| named(e, &array.path))? {
            return Ok(values);
        }
        let width = array.variable.dtype.byte_width().filter(|_| !array.codecs.is_varied());
        let mut target = match width {
            Some(width) if width > 0 => DecodeTarget::Fixed(array.fill.repeat(slab.byte_count(width)? / width), width),
            Some(_) => DecodeTarget::Fixed(Vec::new(), 1),
            None => DecodeTarget::Varied(vec![array.fill.clone(); elements]),
        };
        if elements > 0 {
            for at in intersecting_chunks(slab, &array.chunks) {
                self.chunk(array, &at, slab, &mut target).map_err(|e| named(e, &array.path))?;
            }
        }
        Ok(match target {
            DecodeTarget::Fixed(bytes, _) => Values::Fixed(bytes),
            DecodeTarget::Varied(values) => Values::Varied(values),
        })
    }
}

impl ZarrSource {
    /// Returns the decoded content of a slab that is exactly one chunk; `None` for other slabs, and for missing chunks.
    fn whole_chunk(&self, array: &ArrayMetadata, slab: &Slab) -> Result<Option<Values>> {
        let mut axes = slab.start.iter().zip(&slab.count).zip(&array.chunks);
        let is_chunk = axes.all(|((start, count), chunk)| count == chunk && start.is_multiple_of(*chunk));
        if !is_chunk || slab.start.is_empty() || matches!(array.codecs.layout, ElementLayout::Sharded(_)) {
            return Ok(None);
        }
        let at: Vec<u64> = slab.start.iter().zip(&array.chunks).map(|(start, chunk)| start / chunk).collect();
        let name = array.chunk_name(&at);
        let Some(stored) = self.folder.get(&name)? else { return Ok(None) };
        let values = array.codecs.decode(&stored, &array.variable.dtype, &array.chunks);
        values.map(Some).map_err(|e| Error::new(e.kind(), format!("chunk `{name}`: {}", e.message())))
    }

    fn chunk(&self, array: &ArrayMetadata, at: &[u64], slab: &Slab, target: &mut DecodeTarget) -> Result<()> {
        let name = array.chunk_name(at);
        let in_chunk = |e: Error| Error::new(e.kind(), format!("chunk `{name}`: {}", e.message()));
        let start: Vec<u64> = at.iter().zip(&array.chunks).map(|(number, chunk)| number * chunk).collect();
        if let ElementLayout::Sharded(sharding) = &array.codecs.layout {
            return self.shard(array, sharding, &name, &start, slab, target).map_err(in_chunk);
        }
        let Some(stored) = self.folder.get(&name)? else { return Ok(()) };
        let values = array.codecs.decode(&stored, &array.variable.dtype, &array.chunks).map_err(in_chunk)?;
        match slab.intersect_box(&start, &array.chunks) {
            Some(shared) => target.put(slab, &shared, BufferExtent { start: &start, shape: &array.chunks }, &values),
            None => Ok(()),
        }
    }

    fn shard(
        &self,
        array: &ArrayMetadata,
        sharding: &Sharding,
        name: &str,
        start: &[u64],
        slab: &Slab,
        target: &mut DecodeTarget,
    ) -> Result<()> {
        let Some(total) = self.folder.object_bytes(name)? else { return Ok(()) };
        let counts: Vec<u64> = array.chunks.iter().zip(&sharding.chunks).map(|(outer, inner)| outer / inner).collect();
        let chunks = counts.iter().fold(1_u64, |all, count| all.saturating_mul(*count));
        let index_bytes = sharding.index_bytes(chunks)?;
        if index_bytes > total || index_bytes > MAX_CHUNK as u64 {
            return Err(Error::input(format!("expected an index of {index_bytes} bytes, found {total} in all")));
        }
        let index_at = if sharding.index_at_end { total - index_bytes } else { 0 };
        let index = self.folder.get_range(name, index_at..index_at + index_bytes)?;
        let places = sharding.chunk_places(&index)?;
        let Some(within) = slab.intersect_box(start, &array.chunks) else { return Ok(()) };
        let inside = Slab {
            start: within.start.iter().zip(start).map(|(at, start)| at - start).collect(),
            count: within.count.clone(),
        };
        for at in intersecting_chunks(&inside, &sharding.chunks) {
            let number = at.iter().zip(&counts).fold(0, |all, (number, count)| all * count + number);
            let place = usize::try_from(number).ok().and_then(|number| places.get(number).copied().flatten());
            let Some((offset, length)) = place else { continue };
            if offset.checked_add(length).is_none_or(|end| end > total) {
                return Err(Error::input(format!("expected a chunk within {total} bytes, found {length} at {offset}")));
            }
            let stored: Bytes = self.folder.get_range(name, offset..offset + length)?;
            let values = sharding.codecs.decode(&stored, &array.variable.dtype, &sharding.chunks)?;
            let first: Vec<u64> =
                at.iter().zip(&sharding.chunks).zip(start).map(|((n, chunk), start)| start + n * chunk).collect();
            if let Some(shared) = slab.intersect_box(&first, &sharding.chunks) {
                target.put(slab, &shared, BufferExtent { start: &first, shape: &sharding.chunks }, &values)?;
            }
        }
        Ok(())
    }
}
