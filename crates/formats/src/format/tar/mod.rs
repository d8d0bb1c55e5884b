//! WebDataset tar: each record is a run of members that share a key.
//!
//! ```text
//! record   [ header 512 | content | zeros to 512 ]+     members key.ext of a sample, or key.json of a row
//! shard    record*  1024 zeros
//! ```
//!
//! Headers are plain ustar with fixed owner, mode and time, so that equal records are equal bytes and no space is spent
//! on extension headers; only a name that does not fit ustar gets a pax header.
//!
//! Archives of any origin can be read as well: [`TarReader`] makes samples of their members.
//!
//! Readers group *consecutive* members by the part of the name before the first dot of its last component. Hence the
//! invariants: a key has no dot in its last component, and no two records in a row have the same key.

#[cfg(test)]
mod corpus;
mod entry;
mod foreign;
mod header;
mod links;
pub mod places;
mod ranges;
mod read;
mod scan;
mod spans;

use std::io::Read;

use arrow::array::RecordBatch;

use self::{
    header::{BLOCK, MAX_NAME, MAX_OCTAL_SIZE, TRAILER, padding_length, push_member_header, push_padding, seal_header},
    places::Place,
};
pub use self::{
    links::ArchiveOpener,
    read::{TarReader, sniff},
    scan::{Member, Members, record_members},
    spans::{MemberSpan, SpanReader},
};
use crate::{
    error::{Error, Result},
    format::{Extent, Framed, Framing, Keyed, Scanned},
    record::{Payload, Sample, json::RowJson},
};

/// Frames records as members of a WebDataset tar.
#[derive(Debug, Clone, Copy, Default)]
pub struct TarFraming;

impl Framing for TarFraming {
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) for keys that readers of WebDataset would merge or skip.
    fn frame(&self, records: Keyed<'_>, out: &mut Framed) -> Result<()> {
        if records.keys.len() != records.payload.len() {
            let (keys, records) = (records.keys.len(), records.payload.len());
            return Err(Error::internal(format!("expected a key for each of {records} records, found {keys} keys")));
        }
        check_neighbours(records.keys)?;
        match records.payload {
            Payload::Samples(samples) => frame_samples(samples, records.keys, out),
            Payload::Rows(batch) => frame_rows(batch, records.keys, records.lacking, out),
        }
    }

    fn has_keys(&self) -> bool {
        true
    }

    /// A header, and half a block of padding on average.
    fn member_bytes(&self) -> u64 {
        (BLOCK + BLOCK / 2) as u64
    }

    /// Exact, unless a long name needs headers of its own.
    fn member_size(&self, content: u64) -> u64 {
        let block = BLOCK as u64;
        content.div_ceil(block).saturating_add(1).saturating_mul(block)
    }

    fn trailer(&self) -> &'static [u8] {
        &TRAILER
    }

    fn scan(&self, input: &mut dyn Read, visit: &mut dyn FnMut(Scanned) -> Result<()>) -> Result<()> {
        scan::scan_shard(input, visit)
    }

    fn scan_foreign(
        &self,
        input: &mut dyn Read,
        visit: &mut dyn FnMut(Scanned, Option<&str>) -> Result<()>,
    ) -> Result<Extent> {
        foreign::scan_samples(input, None, visit)
    }
}

/// As [`Framing::scan_foreign`], with the place of each file, which comes before its sample is reported.
///
/// # Errors
/// As [`Framing::scan_foreign`], and when a name is one that readers of WebDataset pass over.
pub fn scan_foreign_files(
    input: &mut dyn Read,
    files: &mut dyn FnMut(places::Place<'_>) -> Result<()>,
    visit: &mut dyn FnMut(Scanned, Option<&str>) -> Result<()>,
) -> Result<Extent> {
    foreign::scan_samples(input, Some(files), visit)
}

fn frame_samples(samples: &[Sample], keys: &[String], framed: &mut Framed) -> Result<()> {
    let Framed { bytes: out, lengths, members } = framed;
    // The rare name that needs a pax header is not counted.
    let bytes = |part: &crate::record::Part| BLOCK + part.bytes.len() + padding_length(part.bytes.len());
    out.reserve(samples.iter().flat_map(|sample| &sample.parts).map(bytes).sum());
    let mut name = String::new();
    for (sample, key) in samples.iter().zip(keys) {
        check_key(key)?;
        if sample.parts.is_empty() {
            return Err(
                Error::internal(format!("expected files in sample `{key}`, found none")).at_location(&*sample.origin)
            );
        }
        let start = out.len();
        for part in &sample.parts {
            join_name(key, &part.extension, &mut name)?;
            let (first, header, size) = (out.len() == start, out.len() as u64, part.bytes.len() as u64);
            push_member_header(out, &name, size);
            if let Some(members) = members {
                members.push(Place { name: &name, key: key.len(), first, header, content: out.len() as u64, size });
            }
            out.extend_from_slice(&part.bytes);
            push_padding(out, part.bytes.len());
        }
        lengths.push((out.len() - start) as u64);
    }
    Ok(())
}

fn frame_rows(batch: &RecordBatch, keys: &[String], lacking: &[String], framed: &mut Framed) -> Result<()> {
    let Framed { bytes: out, lengths, members } = framed;
    let rows = RowJson::new(batch).omit_nulls(lacking);
    let mut name = String::new();
    for (row, key) in keys.iter().enumerate() {
        check_key(key)?;
        join_name(key, "json", &mut name)?;
        let start = out.len();
        push_member_header(out, &name, 0);
        let content = out.len();
        rows.write_row(row, out);
        let size = out.len() - content;
        if size as u64 > MAX_OCTAL_SIZE {
            return Err(Error::input(format!(
                "expected a row of at most 8 GiB as JSON, found {size} bytes in `{key}`"
            ))
            .with_hint("write Parquet instead"));
        }
        seal_header(&mut out[content - BLOCK..content], size as u64);
        push_padding(out, size);
        lengths.push((out.len() - start) as u64);
        if let Some(members) = members {
            let (header, content, size) = (start as u64, content as u64, size as u64);
            members.push(Place { name: &name, key: key.len(), first: true, header, content, size });
        }
    }
    Ok(())
}

fn join_name(key: &str, extension: &str, name: &mut String) -> Result<()> {
    name.clear();
    name.push_str(key);
    name.push('.');
    name.push_str(extension);
    if name.len() > MAX_NAME {
        let found = name.len();
        return Err(Error::input(format!("expected a member name of at most {MAX_NAME} bytes, found {found}"))
            .with_hint("choose another --id"));
    }
    // The webdataset package skips members whose first path component begins and ends with two underscores.
    if name.starts_with("__") {
        let first = name.split('/').next().unwrap_or_default();
        if first.len() >= 4 && first.ends_with("__") {
            return Err(Error::input(format!("readers of WebDataset skip `{name}`, because `{first}` means metadata"))
                .with_hint("rename the file or folder, or choose another --id"));
        }
    }
    Ok(())
}

/// Fails if two neighbours have the same key: readers would merge them.
fn check_neighbours(keys: &[String]) -> Result<()> {
    match keys.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(()),
        Some(pair) => {
            Err(Error::input(format!("expected every record to have its own key, found `{}` twice", pair[0]))
                .with_hint("choose another --id: readers of WebDataset merge neighbours that have the same key"))
        }
    }
}

/// Keys are escaped before this point; an unescaped one would be merged with another, or cut.
fn check_key(key: &str) -> Result<()> {
    let base = key.rsplit('/').next().unwrap_or_default();
    if base.is_empty()
        || key.starts_with('/')
        || memchr::memchr2(b'.', 0, base.as_bytes()).is_some()
        || key.contains('\0')
    {
        return Err(Error::internal(format!("expected an escaped key without dots in its last part, found `{key:?}`")));
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests;
