//! Indexes beside shards, written while the bytes of the shard pass by, so that nothing is read a second time.
//!
//! Members of a tar are found by parsing its headers, or are passed with their offsets if another program wrote the
//! tar; records of a TFRecord are passed with their offsets. For each open shard, memory holds one header and, for
//! DALI, whose index begins with a count, the text of the index compressed with zstd.

use std::{
    io::{Read as _, Write as _},
    ops::Range,
};

use super::shard::finished::FinishedShard;
use crate::{
    codec::hex::hex,
    dataset::{PartRow, PartsWriter, SealingSink, ShardMeta, stage_small},
    error::{Error, Result},
    format::{
        OutputFormat,
        index::IndexKind,
        tar::index::{MemberScanner, Members, Place, WidsList, WidsShard, dali_head, push_dali},
        tfrecord::index::push_record,
    },
    storage::{Staged, Store},
};

/// Text to collect before it is written.
const TEXT_BYTES: usize = 64 << 10;

/// Indexes of one shard that is being written.
pub struct ShardIndexes {
    scanner: MemberScanner,
    tar: Option<TarIndexes>,
    /// Sinks of indexes that list records; all have the same text.
    record_lists: Vec<SealingSink>,
    text: Vec<u8>,
}

/// Compressed text of an open index.
type Lines = zstd::stream::write::Encoder<'static, Vec<u8>>;

struct TarIndexes {
    dali: Option<(SealingSink, Lines)>,
    energon: Option<(SealingSink, PartsWriter)>,
    samples: u64,
}

impl ShardIndexes {
    /// Starts the indexes of the shard at `path`, whose sidecar is at `sidecar`.
    ///
    /// # Errors
    /// When the store fails.
    pub fn create(
        store: &dyn Store,
        path: &str,
        sidecar: &str,
        format: OutputFormat,
        kinds: &[IndexKind],
    ) -> Result<Self> {
        let sink = |kind: IndexKind| kind.beside(path).map(|place| SealingSink::whole(store, &place)).transpose();
        let sink_if = |kind: IndexKind| if kinds.contains(&kind) { sink(kind) } else { Ok(None) };
        let mut tar = None;
        let mut record_lists = Vec::new();
        match format {
            OutputFormat::Parquet => {}
            OutputFormat::TfRecord => {
                record_lists =
                    [sink_if(IndexKind::Dali)?, sink_if(IndexKind::TfIndex)?].into_iter().flatten().collect();
            }
            OutputFormat::Tar => {
                let dali = sink_if(IndexKind::Dali)?.map(|sink| Ok::<_, Error>((sink, lines()?))).transpose()?;
                let energon = sink_if(IndexKind::Energon)?
                    .map(|sink| Ok::<_, Error>((sink, PartsWriter::create(store, sidecar)?)))
                    .transpose()?;
                tar = (dali.is_some() || energon.is_some()).then_some(TarIndexes { dali, energon, samples: 0 });
            }
        }
        Ok(Self { scanner: MemberScanner::default(), tar, record_lists, text: Vec::new() })
    }

    /// Parses the next bytes of the records, as stored.
    ///
    /// # Errors
    /// Fails if a name does not fit an index or the store fails.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(tar) = &mut self.tar else { return Ok(()) };
        let text = &mut self.text;
        self.scanner.feed(bytes, &mut |place| tar.member(&place, text))
    }

    /// Adds the next member of a tar, by its place instead of its bytes.
    ///
    /// # Errors
    /// Fails if its name does not fit an index or the store fails.
    pub fn member(&mut self, place: &Place<'_>) -> Result<()> {
        self.tar.as_mut().map_or(Ok(()), |tar| tar.member(place, &mut self.text))
    }

    /// Adds the members of the next records, which are a range of the bytes of a unit, instead of these bytes.
    ///
    /// # Errors
    /// Fails if a name does not fit an index or the store fails.
    pub fn members(&mut self, members: &Members, range: Range<u64>) -> Result<()> {
        let (at, length) = (self.scanner.offset(), range.end - range.start);
        self.scanner.pass_over(length);
        members.within(range, at).try_for_each(|place| self.member(&place))
    }

    /// Adds a record that begins at byte `offset` of the shard.
    ///
    /// # Errors
    /// When the store fails.
    pub fn record(&mut self, offset: u64, length: u64) -> Result<()> {
        if self.record_lists.is_empty() {
            return Ok(());
        }
        push_record(&mut self.text, offset, length);
        if self.text.len() < TEXT_BYTES { Ok(()) } else { self.flush_records() }
    }

    /// Finishes the indexes, which are not published yet; the last record ends at byte `end` of the shard.
    ///
    /// # Errors
    /// Fails if the tar does not contain `records` samples or the store fails.
    pub fn finish(mut self, records: u64, end: u64) -> Result<Vec<Staged>> {
        self.flush_records()?;
        let mut staged: Vec<Staged> = self.record_lists.into_iter().map(SealingSink::finish).collect::<Result<_>>()?;
        if let Some(tar) = self.tar {
            let found = tar.samples;
            if found != records {
                return Err(Error::integrity(format!("expected {records} samples in the tar, found {found}"))
                    .hint("two neighbouring records have the same key; choose a unique --id"));
            }
            staged.extend(tar.finish(end)?);
        }
        Ok(staged)
    }

    fn flush_records(&mut self) -> Result<()> {
        self.record_lists.iter_mut().try_for_each(|list| list.write_all(&self.text))?;
        self.text.clear();
        Ok(())
    }
}

impl TarIndexes {
    fn member(&mut self, place: &Place<'_>, text: &mut Vec<u8>) -> Result<()> {
        self.samples += u64::from(place.first);
        if let Some((_, lines)) = &mut self.dali {
            text.clear();
            push_dali(text, place, place.first && self.samples == 1)?;
            lines.write_all(text)?;
        }
        if let Some((offsets, parts)) = &mut self.energon {
            if place.first {
                offsets.write_all(&place.header.to_le_bytes())?;
            }
            parts.push(PartRow {
                record: self.samples - 1,
                name: place.name.to_owned(),
                offset: place.content,
                size: place.size,
            })?;
        }
        Ok(())
    }

    fn finish(self, end: u64) -> Result<Vec<Staged>> {
        let mut staged = Vec::new();
        if let Some((mut sink, lines)) = self.dali {
            sink.write_all(dali_head(self.samples).as_bytes())?;
            let packed = lines.finish()?;
            let mut text = zstd::stream::read::Decoder::new(packed.as_slice())?;
            let mut buffer = vec![0; TEXT_BYTES];
            loop {
                let n = text.read(&mut buffer)?;
                if n == 0 {
                    break;
                }
                sink.write_all(&buffer[..n])?;
            }
            if self.samples > 0 {
                sink.write_all(b"\n")?;
            }
            staged.push(sink.finish()?);
        }
        if let Some((mut offsets, parts)) = self.energon {
            offsets.write_all(&end.to_le_bytes())?;
            staged.extend([parts.finish()?, offsets.finish()?]);
        }
        Ok(staged)
    }
}

fn lines() -> Result<Lines> {
    Lines::new(Vec::new(), 1).map_err(|e| Error::internal("cannot set up a buffer for an index").cause(e))
}

/// Returns the path of the wids list in the folder of a shard.
pub fn wids_path(shard: &str) -> String {
    let folder = shard.rfind('/').map_or("", |slash| &shard[..=slash]);
    format!("{folder}{WIDS_LIST}")
}

/// Name of wids lists: the one in a folder lists the shards of one commit, the one of the dataset lists all live
/// shards.
pub const WIDS_LIST: &str = "shardindex.json";

/// Stages the wids list of the shards of one commit, which are in one folder; `None` if these shards do not need one.
///
/// # Errors
/// When the store fails.
pub fn wids_list<'a>(store: &dyn Store, shards: impl IntoIterator<Item = &'a FinishedShard>) -> Result<Option<Staged>> {
    wids_list_of(store, shards.into_iter().map(|finished| (&finished.shard.meta, finished.md5)))
}

/// Stages the wids list of shards, given with the MD5 of their bytes if an index needs it.
///
/// # Errors
/// When the store fails.
pub fn wids_list_of<'a>(
    store: &dyn Store,
    shards: impl IntoIterator<Item = (&'a ShardMeta, Option<[u8; 16]>)>,
) -> Result<Option<Staged>> {
    let mut shards = shards.into_iter().peekable();
    let Some((first, _)) = shards.peek().copied() else { return Ok(None) };
    let entry = |(meta, md5): (&ShardMeta, Option<[u8; 16]>)| {
        let md5 = md5?;
        Some(WidsShard {
            url: meta.path.rsplit('/').next().unwrap_or_default().to_owned(),
            md5sum: hex(&md5),
            nsamples: meta.records,
            filesize: meta.bytes,
        })
    };
    let Some(list) = shards.map(entry).collect::<Option<Vec<_>>>() else { return Ok(None) };
    Ok(Some(stage_small(store, &wids_path(&first.path), &WidsList::new(list).encode()?)?))
}
