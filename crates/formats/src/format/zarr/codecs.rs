//! Codecs of Zarr chunks, versions 2 and 3, as one pipeline that is undone from its end.
//!
//! ```text
//! elements --transpose--> --bytes | texts | shards of smaller chunks--> bytes --shuffle, compress, checksum--> stored
//! ```

use std::io::Read;

use serde_json::Value;

use crate::{
    array::{DType, Values, slab::permute_axes},
    codec::blosc,
    error::{Error, Result},
};

/// Maximum bytes of a decoded chunk.
pub(super) const MAX_CHUNK: usize = 256 << 20;

/// Chunks up to this size are decoded into memory that is allocated at once.
const MAX_PREALLOCATED: usize = 16 << 20;

/// A bytes-to-bytes codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Packing {
    Gzip,
    Zlib,
    Zstd,
    Blosc,
    Lz4,
    Bzip2,
    Crc32c,
    Fletcher32,
    Shuffle(usize),
}

/// Encoding of elements as bytes.
#[derive(Debug, Clone)]
pub(super) enum ElementLayout {
    /// Contiguous elements.
    Plain,
    /// Length-prefixed elements.
    Varied,
    /// Inner chunks with an index.
    Sharded(Box<Sharding>),
}

/// A chunk that holds smaller chunks.
#[derive(Debug, Clone)]
pub(super) struct Sharding {
    pub(super) chunks: Vec<u64>,
    pub(super) codecs: Codecs,
    pub(super) index: Codecs,
    pub(super) index_at_end: bool,
}

/// All codecs of a chunk.
#[derive(Debug, Clone)]
pub(super) struct Codecs {
    /// Axis `order[i]` of the chunk is axis `i` of the stored chunk.
    order: Option<Vec<usize>>,
    pub(super) layout: ElementLayout,
    swapped: bool,
    packing: Vec<Packing>,
    /// Names for display.
    pub(super) names: Vec<String>,
}

fn unsupported_error(what: &str, name: &str) -> Error {
    Error::input(format!("expected a supported Zarr {what}, found `{name}`")).with_hint(
        "supported are gzip, zlib, zstd, blosc, lz4, bz2, crc32c, fletcher32, shuffle, transpose, bytes, \
         vlen-utf8, vlen-bytes, sharding_indexed",
    )
}

fn parse_lengths(value: Option<&Value>) -> Option<Vec<u64>> {
    value?.as_array()?.iter().map(Value::as_u64).collect()
}

impl Codecs {
    /// Returns the codecs of version 2: a compressor and filters, elements in C or Fortran order.
    pub(super) fn of_v2(metadata: &Value, rank: usize, swapped: bool) -> Result<Self> {
        let mut codecs =
            Self { order: None, layout: ElementLayout::Plain, swapped, packing: Vec::new(), names: Vec::new() };
        if metadata.get("order").and_then(Value::as_str) == Some("F") {
            codecs.order = Some((0..rank).rev().collect());
        }
        let filters = metadata.get("filters").and_then(Value::as_array).into_iter().flatten();
        for codec in filters.chain(metadata.get("compressor").filter(|value| !value.is_null())) {
            let id = codec.get("id").and_then(Value::as_str).unwrap_or("nameless");
            codecs.add_codec(id, Some(codec), "filter or compressor")?;
        }
        Ok(codecs)
    }

    /// Returns the codecs of version 3: a list.
    pub(super) fn of_v3(list: Option<&Value>, shape: &[u64], depth: usize) -> Result<Self> {
        let mut codecs =
            Self { order: None, layout: ElementLayout::Plain, swapped: false, packing: Vec::new(), names: Vec::new() };
        let list = list.and_then(Value::as_array).ok_or_else(|| Error::input("expected a list of codecs"))?;
        for codec in list {
            let name = codec.get("name").and_then(Value::as_str).or_else(|| codec.as_str()).unwrap_or("nameless");
            let configuration = codec.get("configuration");
            match name {
                "transpose" => {
                    let order = parse_lengths(configuration.and_then(|c| c.get("order")));
                    let order: Option<Vec<usize>> =
                        order.map(|order| order.iter().filter_map(|axis| usize::try_from(*axis).ok()).collect());
                    let sorted = order.clone().map(|mut order| {
                        order.sort_unstable();
                        order
                    });
                    if sorted != Some((0..shape.len()).collect()) || codecs.order.is_some() {
                        return Err(Error::input("expected one order of all axes for `transpose`"));
                    }
                    codecs.order = order;
                    codecs.names.push(name.to_owned());
                }
                "bytes" => {
                    let endian = configuration.and_then(|c| c.get("endian")).and_then(Value::as_str);
                    codecs.swapped = endian == Some(if cfg!(target_endian = "big") { "little" } else { "big" });
                }
                "sharding_indexed" => {
                    let sharding = parse_sharding(configuration, shape, depth)?;
                    codecs.names.push(format!("sharding({})", sharding.codecs.names.join(", ")));
                    codecs.layout = ElementLayout::Sharded(Box::new(sharding));
                }
                _ => codecs.add_codec(name.trim_start_matches("numcodecs."), configuration, "codec")?,
            }
        }
        Ok(codecs)
    }

    fn add_codec(&mut self, name: &str, configuration: Option<&Value>, what: &str) -> Result<()> {
        let element = || configuration.and_then(|c| c.get("elementsize")).and_then(Value::as_u64).unwrap_or(4);
        let packing = match name {
            "gzip" => Packing::Gzip,
            "zlib" => Packing::Zlib,
            "zstd" => Packing::Zstd,
            "blosc" => Packing::Blosc,
            "lz4" => Packing::Lz4,
            "bz2" => Packing::Bzip2,
            "crc32c" => Packing::Crc32c,
            "fletcher32" => Packing::Fletcher32,
            "shuffle" => Packing::Shuffle(usize::try_from(element()).unwrap_or(0).max(1)),
            "vlen-utf8" | "vlen-bytes" => {
                self.layout = ElementLayout::Varied;
                return Ok(());
            }
            other => return Err(unsupported_error(what, other)),
        };
        self.names.push(match configuration.and_then(|c| c.get("cname")).and_then(Value::as_str) {
            Some(inner) => format!("{name}({inner})"),
            None => name.to_owned(),
        });
        self.packing.push(packing);
        Ok(())
    }

    /// Whether elements have variable length.
    pub(super) fn is_varied(&self) -> bool {
        match &self.layout {
            ElementLayout::Varied => true,
            ElementLayout::Plain => false,
            ElementLayout::Sharded(sharding) => sharding.codecs.is_varied(),
        }
    }

    /// Undoes the bytes-to-bytes codecs of a chunk.
    pub(super) fn unpack_bytes(&self, stored: &[u8], limit: usize) -> Result<Vec<u8>> {
        let mut bytes = std::borrow::Cow::Borrowed(stored);
        for packing in self.packing.iter().rev() {
            bytes = undo_packing(*packing, &bytes, limit)?.into();
        }
        Ok(bytes.into_owned())
    }

    /// Decodes the elements of a chunk that is not a shard.
    pub(super) fn decode(&self, stored: &[u8], dtype: &DType, shape: &[u64]) -> Result<Values> {
        let elements = shape.iter().try_fold(1_usize, |all, length| all.checked_mul(usize::try_from(*length).ok()?));
        let elements = elements.filter(|elements| *elements <= MAX_CHUNK);
        let elements = elements.ok_or_else(|| Error::input(format!("expected smaller chunks, found {shape:?}")))?;
        let stored_shape: Vec<u64> = match &self.order {
            Some(order) => order.iter().map(|axis| shape[*axis]).collect(),
            None => shape.to_vec(),
        };
        // Position of each axis of the chunk in the stored chunk.
        let back = self.order.as_ref().map(|order| {
            let mut back = vec![0; order.len()];
            order.iter().enumerate().for_each(|(stored, axis)| back[*axis] = stored);
            back
        });
        let Some(width) = dtype.byte_width().filter(|_| !self.is_varied()) else {
            let values = decode_varied(&self.unpack_bytes(stored, MAX_CHUNK)?, elements)?;
            return Ok(Values::Varied(match back {
                None => values,
                Some(back) => {
                    let numbers: Vec<u8> = (0..values.len() as u64).flat_map(u64::to_ne_bytes).collect();
                    let turned = permute_axes(&numbers, 8, &stored_shape, &back);
                    let number = |bytes: &[u8; 8]| usize::try_from(u64::from_ne_bytes(*bytes)).unwrap_or(0);
                    turned.as_chunks::<8>().0.iter().map(|bytes| values[number(bytes)].clone()).collect()
                }
            }));
        };
        let expected = elements.checked_mul(width).filter(|bytes| *bytes <= MAX_CHUNK);
        let expected = expected.ok_or_else(|| Error::input(format!("expected smaller chunks, found {shape:?}")))?;
        let mut bytes = self.unpack_bytes(stored, expected.saturating_add(64))?;
        if bytes.len() != expected {
            return Err(Error::input(format!("expected a chunk of {expected} bytes, found {}", bytes.len())));
        }
        if self.swapped {
            dtype.swap_bytes(&mut bytes);
        }
        Ok(Values::Fixed(match back {
            Some(back) => permute_axes(&bytes, width, &stored_shape, &back),
            None => bytes,
        }))
    }
}

fn parse_sharding(configuration: Option<&Value>, shape: &[u64], depth: usize) -> Result<Sharding> {
    let bad = |what: &str| Error::input(format!("expected {what} in `sharding_indexed`"));
    let depth = depth.checked_sub(1).ok_or_else(|| bad("fewer levels"))?;
    let configuration = configuration.ok_or_else(|| bad("a configuration"))?;
    let chunks = parse_lengths(configuration.get("chunk_shape")).ok_or_else(|| bad("a shape of chunks"))?;
    let divides =
        chunks.len() == shape.len() && chunks.iter().zip(shape).all(|(inner, outer)| *inner > 0 && outer % inner == 0);
    if !divides {
        return Err(bad("chunks that divide the shard"));
    }
    let codecs = Codecs::of_v3(configuration.get("codecs"), &chunks, depth)?;
    if matches!(codecs.layout, ElementLayout::Sharded(_)) {
        return Err(bad("chunks that are no shards themselves"));
    }
    let index = Codecs::of_v3(configuration.get("index_codecs"), &[], 0)?;
    let index_at_end = configuration.get("index_location").and_then(Value::as_str) != Some("start");
    Ok(Sharding { chunks, codecs, index, index_at_end })
}

impl Sharding {
    /// Returns the bytes of the index of `chunks` chunks.
    pub(super) fn index_bytes(&self, chunks: u64) -> Result<u64> {
        match self.index.packing.as_slice() {
            [] => Ok(16 * chunks),
            [Packing::Crc32c] => Ok(16 * chunks + 4),
            _ => Err(Error::input("expected an index of shards that is not compressed, found another")),
        }
    }

    /// Returns the offset and length of each chunk in the shard; `None` for missing chunks.
    pub(super) fn chunk_places(&self, stored: &[u8]) -> Result<Vec<Option<(u64, u64)>>> {
        let bytes = self.index.unpack_bytes(stored, MAX_CHUNK)?;
        let number = |bytes: &[u8; 8]| {
            if self.index.swapped { u64::from_ne_bytes(*bytes).swap_bytes() } else { u64::from_ne_bytes(*bytes) }
        };
        let numbers: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(number).collect();
        Ok(numbers.as_chunks::<2>().0.iter().map(|[at, length]| (*at != u64::MAX).then_some((*at, *length))).collect())
    }
}

/// Decodes texts or bytes with their lengths: a count, then each length and its bytes, little-endian.
fn decode_varied(bytes: &[u8], elements: usize) -> Result<Vec<Vec<u8>>> {
    let damaged = || Error::input(format!("expected {elements} texts with their lengths, found damaged bytes"));
    let mut rest = bytes;
    let number = |rest: &mut &[u8]| -> Option<usize> {
        let (number, after) = rest.split_first_chunk::<4>()?;
        *rest = after;
        usize::try_from(u32::from_le_bytes(*number)).ok()
    };
    if number(&mut rest) != Some(elements) {
        return Err(damaged());
    }
    let mut values = Vec::new();
    for _ in 0..elements {
        let length = number(&mut rest).filter(|length| *length <= rest.len()).ok_or_else(damaged)?;
        let (value, after) = rest.split_at(length);
        values.push(value.to_vec());
        rest = after;
    }
    Ok(values)
}

/// Returns HDF5's variant of Fletcher's checksum: over big-endian 16-bit words, an odd byte padded with zeros.
fn fletcher32(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map(|byte| u32::from(*byte) << 8);
    let (mut low, mut high) = (0_u32, 0_u32);
    for word in words.iter().map(|word| u32::from(u16::from_be_bytes(*word))).chain(last) {
        low = (low + word) % 65_535;
        high = (high + low) % 65_535;
    }
    high << 16 | low
}

/// Whether the input is one frame that states the size of its content, and the size is within the limit.
fn zstd_fits(input: &[u8], limit: usize) -> bool {
    let content = zstd::zstd_safe::get_frame_content_size(input).ok().flatten();
    let whole = zstd::zstd_safe::find_frame_compressed_size(input).is_ok_and(|bytes| bytes == input.len());
    whole && content.is_some_and(|content| content <= limit as u64)
}

fn undo_packing(packing: Packing, input: &[u8], limit: usize) -> Result<Vec<u8>> {
    let bounded = |input: &mut dyn Read, name: &str| {
        // If the size of the chunk is known, the buffer never grows.
        let mut out = Vec::with_capacity(limit.saturating_add(1).min(MAX_PREALLOCATED));
        let read = input.take(limit as u64 + 1).read_to_end(&mut out);
        read.map_err(|e| Error::input(format!("expected {name}, found damaged bytes")).with_cause(e))?;
        if out.len() > limit {
            return Err(Error::input(format!("expected at most {limit} bytes of {name}, found more")));
        }
        Ok(out)
    };
    match packing {
        Packing::Gzip => bounded(&mut flate2::bufread::MultiGzDecoder::new(input), "gzip"),
        Packing::Zlib => bounded(&mut flate2::bufread::ZlibDecoder::new(input), "zlib"),
        Packing::Bzip2 => bounded(&mut bzip2::bufread::MultiBzDecoder::new(input), "bzip2"),
        Packing::Zstd if limit <= MAX_PREALLOCATED && zstd_fits(input, limit) => {
            let damaged = |e| Error::input("expected zstd, found damaged bytes").with_cause(e);
            zstd::bulk::decompress(input, limit).map_err(damaged)
        }
        Packing::Zstd => bounded(&mut zstd::stream::read::Decoder::with_buffer(input)?, "zstd"),
        Packing::Blosc => blosc::decompress(input, limit),
        Packing::Lz4 => {
            let damaged = || Error::input("expected lz4, found damaged bytes");
            let (length, block) = input.split_first_chunk::<4>().ok_or_else(damaged)?;
            let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
            if length > limit {
                return Err(damaged());
            }
            let mut out = vec![0; length];
            match lz4_flex::block::decompress_into(block, &mut out) {
                Ok(written) if written == length => Ok(out),
                _ => Err(damaged()),
            }
        }
        Packing::Crc32c => {
            let cut = || Error::input("expected a checksum, found the end of the chunk");
            let (content, sum) = input.split_last_chunk::<4>().ok_or_else(cut)?;
            let found = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, content);
            if found != u64::from(u32::from_le_bytes(*sum)) {
                return Err(Error::input("expected a chunk that matches its checksum, found another"));
            }
            Ok(content.to_vec())
        }
        Packing::Fletcher32 => {
            let cut = || Error::input("expected a checksum, found the end of the chunk");
            let (content, sum) = input.split_last_chunk::<4>().ok_or_else(cut)?;
            if fletcher32(content) != u32::from_le_bytes(*sum) {
                return Err(Error::input("expected a chunk that matches its checksum, found another"));
            }
            Ok(content.to_vec())
        }
        Packing::Shuffle(width) => {
            let mut out = vec![0; input.len()];
            blosc::unshuffle(input, &mut out, width);
            Ok(out)
        }
    }
}
