//! Records that the readers of `convert` yield: columns, parts, pictures, recordings and tensors.
//!
//! Files are chosen at even distances, and of each the first records are read.

use std::collections::{BTreeMap, HashMap};

use arrow::array::RecordBatch;
use serde::Serialize;

use super::{
    media::{Gallery, MAX_PICTURE_BYTES, Media},
    profile::{Profile, TopValue},
};
use crate::{
    dataset::Snapshot,
    error::Result,
    events::Event,
    format::files,
    ops::{
        Context,
        columns::flat_columns,
        head::{HeadPart, HeadRecord, Hidden, first_records, shard_file},
        sizes::{SizeBin, Sizes},
    },
    record::{
        media::{bytes_of, media_type},
        size::logical_bytes,
    },
    scan::{InputFormat, SourceFile},
    units::group_digits,
};

/// Bytes of a part that are enough to tell its type.
const START_BYTES: u64 = 512;
/// Maximum number of bytes of records that statistics are made from.
const STATS_BYTES: u64 = 64 << 20;
/// Maximum number of different extensions in a report.
const MAX_PARTS: usize = 100;
/// Maximum number of files that are opened to learn what they are.
const MAX_FILES: usize = 100_000;

/// Parts of samples with one extension.
#[derive(Debug, Clone, Serialize)]
pub struct PartReport {
    /// Extension.
    pub extension: String,
    /// Media type of the first one.
    pub media: &'static str,
    /// Number of samples that have it.
    pub samples: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Sizes.
    pub sizes: Vec<SizeBin>,
    /// Of classes (`cls`): the most frequent ones, with their names where the dataset has them.
    pub classes: Vec<TopValue>,
}

/// Extension of the part that is the class of a sample.
const CLASS: &str = "cls";
/// Maximum number of classes that are counted.
const MAX_CLASSES: usize = 100_000;
/// Number of classes that are shown.
const SHOWN_CLASSES: usize = 20;

/// How much is read, and what for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pick {
    files: usize,
    /// Records of each file; for media, of all of them.
    records: u64,
    part_bytes: u64,
    /// Whether pictures are wanted, rather than statistics.
    media: bool,
}

impl Pick {
    /// Enough for statistics of records of so many bytes; 0 if that is unknown.
    pub(super) fn for_stats(bytes_each: u64) -> Self {
        let records = (STATS_BYTES / 16 / bytes_each.max(1)).clamp(8, 4_096);
        Self { files: 16, records, part_bytes: START_BYTES, media: false }
    }

    /// Enough for galleries.
    pub(super) fn for_media() -> Self {
        Self { files: 8, records: 48, part_bytes: MAX_PICTURE_BYTES, media: true }
    }
}

/// Returns so many items at even distances.
fn pick_evenly<T: Clone>(all: &[T], count: usize) -> Vec<T> {
    let chosen = count.min(all.len());
    (0..chosen).filter_map(|at| all.get(at * all.len() / chosen)).cloned().collect()
}

/// What was read.
pub(super) struct Collected {
    pub(super) records: u64,
    pub(super) rejected: u64,
    /// Which records were read, in words.
    pub(super) basis: String,
    pub(super) columns: Vec<Profile>,
    pub(super) parts: Vec<PartReport>,
    pub(super) sizes: Sizes,
    pub(super) media: Media,
}

/// Reads records of some shards.
pub(super) fn of_shards(context: &Context<'_>, snapshot: &Snapshot, hidden: &Hidden, pick: Pick) -> Result<Collected> {
    let shards = pick_evenly(snapshot.live_shards()?, pick.files);
    let mut collector = Collector::new(pick.of_each(shards.len()), hidden.is_private);
    collector.class_names = snapshot.entry().settings.classes.clone().unwrap_or_default();
    context.observer.event(Event::Phase { name: pick.phase_name(), bytes: None });
    for shard in &shards {
        let file = shard_file(snapshot.dataset(), &shard.path)?;
        collector.read(context, vec![file], hidden, None)?;
    }
    Ok(collector.finish(shards.len(), "shard"))
}

impl Pick {
    /// Returns how many records are read of each of so many files.
    fn of_each(self, files: usize) -> Self {
        let records = if self.media { self.records.div_ceil(files.max(1) as u64) } else { self.records };
        Self { records, ..self }
    }

    fn phase_name(self) -> &'static str {
        if self.media { "reading media" } else { "sampling" }
    }
}

/// Files of a source.
pub(super) struct Picked {
    files: Vec<SourceFile>,
    /// Whether files are grouped into samples.
    grouped: bool,
}

impl Picked {
    /// Takes the files of a source whose formats are known.
    pub(super) fn from_files(files: Vec<SourceFile>, format: &str) -> Self {
        Self { files, grouped: format.split(", ").any(|format| format == InputFormat::FILES.name()) }
    }

    pub(super) fn files(&self) -> &[SourceFile] {
        &self.files
    }
}

/// Reads records of some files of a source. Files that cannot be read are skipped.
pub(super) fn of_files(context: &Context<'_>, picked: &Picked, pick: Pick) -> Result<Collected> {
    let mut collector = Collector::new(pick, false);
    context.observer.event(Event::Phase { name: pick.phase_name(), bytes: None });
    if picked.grouped {
        let some = picked.files.get(..picked.files.len().min(MAX_FILES)).unwrap_or_default();
        let samples = files::group_samples(some);
        let count = if pick.media { 48 } else { 512 };
        let all: Vec<usize> = (0..samples.len()).collect();
        let chosen = pick_evenly(&all, count);
        for at in &chosen {
            let files =
                samples.iter_range(*at..at + 1, some).flat_map(|sample| sample.files().cloned().collect::<Vec<_>>());
            collector.read(context, files.collect(), &Hidden::default(), Some(InputFormat::FILES))?;
        }
        return Ok(collector.finish(chosen.len(), "sample"));
    }
    let files = pick_evenly(&picked.files, pick.files);
    collector.pick = pick.of_each(files.len());
    for file in &files {
        // `convert` says what is wrong with it.
        let read = collector.read(context, vec![file.clone()], &Hidden::default(), None);
        context.cancel.check()?;
        collector.unreadable += u64::from(read.is_err());
    }
    Ok(collector.finish(files.len(), "file"))
}

struct Parts {
    media: &'static str,
    samples: u64,
    bytes: u64,
    sizes: Sizes,
    /// How many samples have each class.
    classes: BTreeMap<String, u64>,
}

struct Collector {
    pick: Pick,
    is_private: bool,
    records: u64,
    rejected: u64,
    unreadable: u64,
    columns: Vec<Profile>,
    known: HashMap<String, usize>,
    parts: BTreeMap<String, Parts>,
    sizes: Sizes,
    gallery: Gallery,
    /// Names of the classes, in the order of their numbers.
    class_names: Vec<String>,
}

impl Collector {
    fn new(pick: Pick, is_private: bool) -> Self {
        Self {
            class_names: Vec::new(),
            pick,
            is_private,
            records: 0,
            rejected: 0,
            unreadable: 0,
            columns: Vec::new(),
            known: HashMap::new(),
            parts: BTreeMap::new(),
            sizes: Sizes::default(),
            gallery: Gallery::default(),
        }
    }

    fn read(
        &mut self,
        context: &Context<'_>,
        files: Vec<SourceFile>,
        hidden: &Hidden,
        from: Option<InputFormat>,
    ) -> Result<()> {
        let (records, part_bytes) = (self.pick.records, self.pick.part_bytes);
        let mut add = |record: HeadRecord<'_>| self.add_record(&record);
        let read = first_records(context, files, hidden, from, records, part_bytes, &mut add);
        let (records, rejected) = read?;
        self.records += records;
        self.rejected += rejected;
        Ok(())
    }

    fn add_record(&mut self, record: &HeadRecord<'_>) -> Result<()> {
        match record {
            HeadRecord::Row { source, row, batch, index } if self.pick.media => {
                self.media_of(batch, *index, &format!("{source} #{row}"));
                Ok(())
            }
            // The batch holds all of the rows that follow.
            HeadRecord::Row { batch, index: 0, .. } => self.add_batch(batch),
            HeadRecord::Row { .. } => Ok(()),
            HeadRecord::Sample(sample) => {
                self.sizes.add(sample.parts.iter().map(|part| part.bytes).sum());
                let key = sample.key.as_deref().unwrap_or("(private)");
                sample.parts.iter().for_each(|part| self.add_part(key, part));
                Ok(())
            }
        }
    }

    fn add_part(&mut self, key: &str, part: &HeadPart) {
        if self.pick.media {
            if !part.is_hidden {
                let name = format!("{key}.{}", part.extension);
                let media = media_type(&part.extension, &part.start);
                self.gallery.add_part(&name, media, &part.start, part.bytes);
            }
            return;
        }
        // What precedes the last component may be a part of an id.
        let extension = match self.is_private {
            true => part.extension.rsplit('.').next().unwrap_or_default(),
            false => part.extension.as_str(),
        };
        if !self.parts.contains_key(extension) && self.parts.len() == MAX_PARTS {
            return;
        }
        let empty = || Parts {
            media: media_type(&part.extension, &part.start),
            samples: 0,
            bytes: 0,
            sizes: Sizes::default(),
            classes: BTreeMap::new(),
        };
        let parts = self.parts.entry(extension.to_owned()).or_insert_with(empty);
        parts.samples += 1;
        parts.bytes += part.bytes;
        parts.sizes.add(part.bytes);
        if let (CLASS, false, Ok(class)) = (extension, part.is_hidden, std::str::from_utf8(&part.start)) {
            let room = parts.classes.len() < MAX_CLASSES;
            match parts.classes.get_mut(class.trim()) {
                Some(count) => *count += 1,
                None if room => drop(parts.classes.insert(class.trim().to_owned(), 1)),
                None => {}
            }
        }
    }

    /// Returns the most frequent classes, with their names.
    fn top_classes(&self, classes: BTreeMap<String, u64>) -> Vec<TopValue> {
        let name = |class: &str| class.parse().ok().and_then(|number: usize| self.class_names.get(number));
        let shown = |class: String| name(&class).map_or_else(|| class.clone(), |name| format!("{class} {name}"));
        let mut all: Vec<(String, u64)> = classes.into_iter().collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.into_iter().take(SHOWN_CLASSES).map(|(class, count)| TopValue { value: shown(class), count }).collect()
    }

    fn add_batch(&mut self, batch: &RecordBatch) -> Result<()> {
        (0..batch.num_rows()).for_each(|row| self.sizes.add(logical_bytes(&batch.slice(row, 1))));
        let before = self.columns.iter().map(Profile::row_count).max().unwrap_or(0);
        for column in flat_columns(batch)? {
            let at = *self.known.entry(column.name.clone()).or_insert_with(|| {
                let mut profile = Profile::new(&column.name, &column.field);
                profile.add_absent(before);
                self.columns.push(profile);
                self.columns.len() - 1
            });
            if let Some(profile) = self.columns.get_mut(at) {
                profile.add_any(&column.field, &column.values)?;
            }
        }
        let all = before + batch.num_rows() as u64;
        self.columns.iter_mut().for_each(|profile| profile.add_absent(all.saturating_sub(profile.row_count())));
        Ok(())
    }

    fn media_of(&mut self, batch: &RecordBatch, row: usize, place: &str) {
        for (field, column) in batch.schema_ref().fields().iter().zip(batch.columns()) {
            let name = format!("{place} {}", field.name());
            if let Some(bytes) = bytes_of(column.as_ref(), row).filter(|_| column.is_valid(row)) {
                self.gallery.add_part(&name, media_type("", bytes), bytes, bytes.len() as u64);
            }
        }
    }

    fn finish(mut self, files: usize, noun: &str) -> Collected {
        let unreadable = match self.unreadable {
            0 => String::new(),
            some => format!(", of which {} cannot be read", group_digits(some)),
        };
        let (records, each) = (group_digits(self.records), group_digits(self.pick.records));
        let basis = match (noun, files) {
            ("sample", _) => format!("{records} samples at even distances"),
            (noun, 1) => format!("{records} records: the first {each} of 1 {noun}{unreadable}"),
            (noun, files) => {
                let files = group_digits(files as u64);
                format!("{records} records: the first {each} of each of {files} {noun}s{unreadable}")
            }
        };
        let parts = std::mem::take(&mut self.parts);
        let part = |(extension, parts): (String, Parts)| PartReport {
            classes: self.top_classes(parts.classes),
            extension,
            media: parts.media,
            samples: parts.samples,
            bytes: parts.bytes,
            sizes: parts.sizes.size_bins(),
        };
        let parts = parts.into_iter().map(part).collect();
        Collected {
            records: self.records,
            rejected: self.rejected,
            basis,
            columns: self.columns,
            parts,
            sizes: self.sizes,
            media: self.gallery.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_chosen_at_even_distances() {
        let all: Vec<usize> = (0..100).collect();
        assert_eq!(pick_evenly(&all, 4), [0, 25, 50, 75]);
        assert_eq!(pick_evenly(&all, 1_000).len(), 100);
        assert!(pick_evenly::<usize>(&[], 3).is_empty());
        assert_eq!(Pick::for_stats(0).records, 4_096);
        assert_eq!(Pick::for_stats(100 << 20).records, 8);
    }
}
