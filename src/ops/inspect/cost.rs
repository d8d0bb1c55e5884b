//! What the advised `convert` will take: measured on a sample that is really converted, into memory.
//!
//! ```text
//! listing -draws, spread evenly-> first read -(the rest of inspect)-> trials of growing size -line-> whole source
//! ```
//!
//! The sample is read before anything else opens the files, so that a slow disk or network shows. The trials then find
//! it in memory, as a run finds what is read ahead: reading and converting overlap, so the longer of both counts. Two
//! trials of different size tell what grows with the source from what every run takes.

use std::{
    collections::{BTreeMap, HashSet},
    io::Read,
    ops::Range,
    sync::mpsc::{RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use rayon::prelude::*;
use serde::Serialize;

use super::report::InspectOptions;
use crate::{
    error::{Error, Result},
    events::{Cancel, Silent},
    format::files::TreeFile,
    ops::{
        Context,
        convert::{ConvertOptions, FileStart, Trial, leave_out_metadata, refusal_of_small as refusal_of, run_trial},
    },
    plan::roll::shard_count,
    scan::{SourceFile, names_arrays, names_records},
    storage::with_io_threads,
};

/// Weight of a source below which it is not sampled: converting it takes about as long as that.
const SMALL_SOURCE: u64 = 16 << 20;
/// Number of bytes that opening a file weighs as much as.
const OPENING: u64 = 4 << 10;
/// Bytes that a draw takes of a large file; files up to this size are taken whole.
const PIECE: u64 = 2 << 20;
/// Weight of the small files in a row that a draw takes.
const ROW: u64 = 512 << 10;
/// Weight up to which the files of a sample are taken together.
const MAX_SAMPLE: u64 = 4 << 20;
/// Size up to which a run has several tables open at a time.
const SMALL_TABLE: u64 = 256 << 10;

/// Maximum weight of a sample of a local source.
const MAX_LOCAL: u64 = 128 << 20;
/// Maximum weight of a sample of a remote source, and maximum number of its files: as many as a run requests at a time.
const MAX_REMOTE: u64 = 8 << 20;
const MAX_REMOTE_FILES: usize = 64;
/// Number of files above which a run may have many requests in flight, so that a smaller sample does not take less
/// time.
const FEW_FILES: u64 = 4;
/// Weight that is read first, and of the smaller trial.
const FIRST: u64 = 2 << 20;

/// Time after which no more of the sample is read for the first time, from a disk and over a network.
const READING: Duration = Duration::from_millis(60);
const REMOTE_READING: Duration = Duration::from_millis(500);
/// Wanted time of the larger trial.
const WANTED: Duration = Duration::from_millis(300);
/// Time after which a trial is cut off, of a local and of a remote source.
const LIMIT: Duration = Duration::from_millis(500);
const REMOTE_LIMIT: Duration = Duration::from_secs(1);
/// How often a trial looks whether it is to be cut off.
const PATIENCE: Duration = Duration::from_millis(20);

/// What the advised command will take on this machine, measured on a sample of the source.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cost {
    /// Seconds that the command will take.
    pub seconds: f64,
    /// Bytes of the shards.
    pub bytes: u64,
    /// Number of shards.
    pub shards: u64,
    /// Estimate of the memory that the command needs, in bytes.
    pub memory: u64,
    /// Stored bytes of the source that were converted to measure this.
    pub sampled_bytes: u64,
    /// Number of files that they are from.
    pub sampled_files: u64,
    /// Seconds that measuring took.
    pub sampled_seconds: f64,
}

/// Something measured at two sizes: of what, and how much.
type MeasuredLine = [(f64, f64); 2];

/// Returns how much it is at another size, on the line through both points; if they are no line, in proportion to the
/// second.
fn extrapolate_line([(x1, y1), (x2, y2)]: MeasuredLine, x: f64) -> f64 {
    let slope = (y2 - y1) / (x2 - x1);
    if slope.is_finite() && slope > 0.0 { y2 + slope * (x - x2) } else { y2 * x / x2.max(1.0) }
}

/// Files of a source in an order in which the first ones, up to any weight, are spread evenly over the listing.
#[derive(Debug, Default)]
struct Draws {
    /// The files of each draw, and how many more bytes of each are taken.
    pieces: Vec<Vec<(SourceFile, u64)>>,
    /// Weight and number of all files of the source.
    weight: u64,
    files: u64,
    is_remote: bool,
}

fn file_weight(file: &SourceFile) -> u64 {
    file.bytes() + OPENING
}

impl Draws {
    /// Draws places in a listing where files count by their weight. A large file is taken from its start on; small ones
    /// are taken in rows, with all files of a sample.
    fn new(files: &[SourceFile]) -> Self {
        let mut end = 0;
        let ends: Vec<u64> = files.iter().map(|file| (end += file_weight(file), end).1).collect();
        let is_remote = files.iter().any(SourceFile::is_remote);
        let mut draws = Self { pieces: Vec::new(), weight: end, files: files.len() as u64, is_remote };
        if end < SMALL_SOURCE {
            return draws;
        }
        let (most, most_row) = (draws.max_weight(), if is_remote { 0 } else { ROW });
        let mut taken: BTreeMap<usize, u64> = BTreeMap::new();
        let mut weight_taken = 0;
        for place in 0..most / OPENING {
            if weight_taken >= most.min(end) || (is_remote && taken.len() >= MAX_REMOTE_FILES) {
                break;
            }
            // The bits of a number in reverse order: each place halves the largest gap between those before it.
            let at = u64::try_from((u128::from(end) * u128::from(place.reverse_bits())) >> 64).unwrap_or(0);
            let number = ends.partition_point(|end| *end <= at);
            let row = if files[number].bytes() > PIECE {
                number..number + 1
            } else {
                small_file_run(files, &ends, number, most_row)
            };
            let mut drawn = Vec::new();
            for number in row {
                let is_new = !taken.contains_key(&number);
                let before = taken.entry(number).or_default();
                let more = (files[number].bytes() - *before).min(PIECE);
                *before += more;
                if more > 0 || is_new {
                    weight_taken += more + if is_new { OPENING } else { 0 };
                    drawn.push((files[number].to_unwatched(), more));
                }
            }
            if !drawn.is_empty() {
                draws.pieces.push(drawn);
            }
        }
        draws
    }

    /// Returns the maximum weight of a sample.
    fn max_weight(&self) -> u64 {
        if self.is_remote { MAX_REMOTE } else { MAX_LOCAL }
    }

    /// Whether a run reads the files one after the other.
    fn are_few(&self) -> bool {
        self.files <= FEW_FILES
    }

    /// Returns the sample of the first draws that reach a weight.
    fn sample_up_to(&self, wanted: u64) -> Vec<FileStart> {
        let mut sample: BTreeMap<&str, FileStart> = BTreeMap::new();
        let mut weight = 0;
        for drawn in &self.pieces {
            if weight >= wanted {
                break;
            }
            for (file, more) in drawn {
                let start = sample.entry(file.name()).or_insert_with(|| {
                    weight += OPENING;
                    FileStart { file: file.clone(), most: 0 }
                });
                weight += more;
                start.most += more;
            }
        }
        sample.into_values().collect()
    }
}

/// Returns the numbers of small files in a row from one of them on, up to a weight; all files of a sample are taken
/// together, unless they are so many that their names must mean something else.
fn small_file_run(files: &[SourceFile], ends: &[u64], file: usize, most: u64) -> Range<usize> {
    let belong = |a: usize, b: usize| files[a].key() == files[b].key();
    let (mut first, mut end) = (file, file + 1);
    let begin = ends[file] - file_weight(&files[file]);
    while first > 0 && belong(first - 1, first) && ends[file] - ends[first - 1] < MAX_SAMPLE {
        first -= 1;
    }
    while end < files.len() {
        let most = if belong(end - 1, end) { MAX_SAMPLE } else { most };
        if ends[end] - begin > most || files[end].bytes() > PIECE {
            break;
        }
        end += 1;
    }
    first..end
}

/// The beginning of a measurement: what is known before anything else has opened the files.
pub(super) struct Forecast {
    draws: Draws,
    /// Maximum weight of a trial.
    most: u64,
    /// Time to list the source.
    listing: Duration,
    /// Seconds to read weights of the sample for the first time.
    first_read: MeasuredLine,
    /// Time that measuring took.
    taken: Duration,
}

impl Forecast {
    /// Reads a sample of the files for the first time; `None` if the source is small or cannot be read.
    pub(super) fn new(context: &Context<'_>, files: &[SourceFile], listing: Duration) -> Option<Self> {
        let draws = Draws::new(files);
        // A record of an array may be in all parts of the object.
        if draws.pieces.is_empty() || (draws.is_remote && files.iter().any(|file| names_arrays(file.name()))) {
            return None;
        }
        let started = Instant::now();
        let points = if draws.is_remote { read_remote(context, &draws) } else { read_local(context, &draws) }.ok()?;
        let last = points.last().copied().unwrap_or_default();
        let first = points.first().copied().filter(|_| draws.are_few()).unwrap_or(last);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size that was read")]
        // What came slowly is not read again over the network.
        let most = if draws.is_remote && last.0 > 0.0 { last.0 as u64 } else { draws.max_weight() };
        Some(Self { draws, most, listing, first_read: [first, last], taken: started.elapsed() })
    }

    /// Measures what converting the source with these options takes; `None` if its sample cannot be converted.
    pub(super) fn estimate_cost(&self, context: &Context<'_>, options: &ConvertOptions) -> Option<Cost> {
        let started = Instant::now();
        let measured = self.run_trials(context, options);
        let (small, large) = (measured.first()?, measured.last()?);
        let (files, weight) = (self.draws.files as f64, self.draws.weight as f64);
        let line = |of: &dyn Fn(&MeasuredTrial) -> (f64, f64)| [of(small), of(large)];
        let opening = extrapolate_line(line(&|m| (m.files as f64, m.trial.opening.as_secs_f64())), files);
        let converting = extrapolate_line(line(&|m| (m.weight(), m.trial.converting.as_secs_f64())), weight);
        let bytes = extrapolate_line(line(&|m| (m.weight(), m.trial.written as f64)), weight);
        let reading = extrapolate_line(self.first_read, weight);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive estimate")]
        let bytes = bytes.round() as u64;
        Some(Cost {
            seconds: self.listing.as_secs_f64() + opening + converting.max(reading),
            bytes,
            shards: shard_count(bytes, large.trial.target),
            memory: large.trial.memory,
            sampled_bytes: large.trial.read,
            sampled_files: large.files,
            sampled_seconds: (self.taken + started.elapsed()).as_secs_f64(),
        })
    }

    /// Converts a small and a large part of the sample, as far as the time allows.
    fn run_trials(&self, context: &Context<'_>, options: &ConvertOptions) -> Vec<MeasuredTrial> {
        let run = |wanted: u64| self.run_trial(context, options, wanted).ok();
        if self.draws.is_remote && !self.draws.are_few() {
            return run(self.most).into_iter().collect();
        }
        let Some(small) = run(FIRST) else { return Vec::new() };
        if self.draws.is_remote {
            // The start of a remote file takes many times as long as its share: without a second point, there is no
            // estimate.
            let large = if self.most > FIRST { run(self.most) } else { None };
            return large.map_or_else(Vec::new, |large| vec![small, large]);
        }
        let taken = (small.trial.opening + small.trial.converting).as_secs_f64();
        let factor = WANTED.as_secs_f64() / taken.max(1e-4);
        if factor < 2.0 {
            return vec![small];
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive size")]
        let wanted = ((small.weight() * factor) as u64).min(self.most);
        let large = run(wanted);
        std::iter::once(small).chain(large).collect()
    }

    /// Converts the first draws, up to a weight.
    fn run_trial(&self, context: &Context<'_>, options: &ConvertOptions, wanted: u64) -> Result<MeasuredTrial> {
        let mut sample = self.draws.sample_up_to(wanted);
        let mut files: Vec<SourceFile> = sample.iter().map(|start| start.file.clone()).collect();
        leave_out_metadata(None, &mut files)?;
        let kept: HashSet<&str> = files.iter().map(SourceFile::name).collect();
        sample.retain(|start| kept.contains(start.file.name()));
        let of = usize::try_from(self.draws.files).unwrap_or(usize::MAX);
        let limit = if self.draws.is_remote { REMOTE_LIMIT } else { LIMIT };
        let trial = run_within(limit, &context.cancel, |cancel| {
            let context = Context {
                folder: context.folder.clone(),
                settings: context.settings.clone(),
                id_key: context.id_key.clone(),
                observer: &Silent,
                cancel: cancel.clone(),
                ..*context
            };
            run_trial(&context, &sample, of, options)
        })?;
        Ok(MeasuredTrial { files: sample.len() as u64, trial })
    }
}

/// A trial, and the number of its files.
struct MeasuredTrial {
    files: u64,
    trial: Trial,
}

impl MeasuredTrial {
    fn weight(&self) -> f64 {
        (self.trial.read + OPENING * self.files) as f64
    }
}

/// Reads the sample of a local source, more and more of it as long as there is time. Returns weights and the seconds
/// that they took.
fn read_local(context: &Context<'_>, draws: &Draws) -> Result<Vec<(f64, f64)>> {
    let started = Instant::now();
    let mut read: BTreeMap<String, u64> = BTreeMap::new();
    let (mut points, mut weight, mut wanted) = (Vec::new(), 0, FIRST);
    while started.elapsed() < READING && !context.cancel.is_cancelled() {
        let mut new = Vec::new();
        for start in draws.sample_up_to(wanted).into_iter().filter(|start| !start.file.is_store()) {
            let from = read.insert(start.file.name().to_owned(), start.most);
            weight += start.most - from.unwrap_or(0) + if from.is_none() { OPENING } else { 0 };
            if from.is_none_or(|from| from < start.most) {
                new.push((start.file, from.unwrap_or(0)..start.most));
            }
        }
        if new.is_empty() {
            break;
        }
        read_all(&new, |(file, range)| file.object().read_range(range.clone()))?;
        points.push((weight as f64, started.elapsed().as_secs_f64()));
        wanted *= 2;
    }
    Ok(points)
}

/// Reads the sample of a remote source: of a few files a little first, and more if the network is fast.
fn read_remote(context: &Context<'_>, draws: &Draws) -> Result<Vec<(f64, f64)>> {
    let mut points = Vec::new();
    for wanted in if draws.are_few() { &[FIRST, MAX_REMOTE][..] } else { &[MAX_REMOTE] } {
        context.cancel.check()?;
        let started = Instant::now();
        let sample = draws.sample_up_to(*wanted).into_iter().filter(|start| !start.file.is_store());
        let files: Vec<_> = sample.map(|start| (start.file, 0..start.most)).collect();
        if files.is_empty() {
            break;
        }
        let weight: u64 = files.iter().map(|(_, range)| range.end + OPENING).sum();
        // As a run does it, which requests several ranges at a time.
        read_all(&files, |(file, range)| Ok(Box::new(file.object().read()?.take(range.end))))?;
        points.push((weight as f64, started.elapsed().as_secs_f64()));
        if started.elapsed() > REMOTE_READING {
            break;
        }
    }
    Ok(points)
}

/// Reads parts of files: large tables one after the other and everything else at the same time, as a run does.
fn read_all(
    parts: &[(SourceFile, Range<u64>)],
    open: impl Fn(&(SourceFile, Range<u64>)) -> Result<Box<dyn Read + Send>> + Sync,
) -> Result<()> {
    let read = |part| -> Result<()> {
        std::io::copy(&mut open(part)?, &mut std::io::sink())?;
        Ok(())
    };
    let is_large_table = |file: &SourceFile| file.bytes() > SMALL_TABLE && names_records(file.name());
    if parts.iter().all(|(file, _)| is_large_table(file)) {
        return parts.iter().try_for_each(read);
    }
    let is_remote = parts.iter().any(|(file, _)| file.is_remote());
    with_io_threads(parts.len(), is_remote, || parts.par_iter().try_for_each(read))?
}

/// Runs work that is cancelled after some time, or with the whole command.
fn run_within<T>(limit: Duration, whole: &Cancel, work: impl FnOnce(&Cancel) -> Result<T>) -> Result<T> {
    let cancel = Cancel::default();
    std::thread::scope(|scope| {
        let (running, ended) = channel::<()>();
        let (started, cut_off) = (Instant::now(), cancel.clone());
        scope.spawn(move || {
            while matches!(ended.recv_timeout(PATIENCE), Err(RecvTimeoutError::Timeout)) {
                if whole.is_cancelled() || started.elapsed() > limit {
                    cut_off.cancel();
                    return;
                }
            }
        });
        let result = work(&cancel);
        drop(running);
        result
    })
}

/// Returns why `convert` refuses files of few bytes; `None` if it does not.
pub(super) fn convert_refusal(
    context: &Context<'_>,
    mut files: Vec<SourceFile>,
    options: &InspectOptions,
) -> Option<Error> {
    let context = Context {
        folder: context.folder.clone(),
        settings: context.settings.clone(),
        id_key: context.id_key.clone(),
        observer: &Silent,
        cancel: context.cancel.clone(),
        ..*context
    };
    leave_out_metadata(options.from, &mut files).ok()?;
    let read = options.read.clone();
    refusal_of(&context, &files, &ConvertOptions { from: options.from, read, ..ConvertOptions::default() })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{
        scan::{self, ScanOptions},
        storage::StoreSettings,
        units::Size,
    };

    /// Files of these sizes, without content.
    fn files(folder: &Path, sizes: impl IntoIterator<Item = (String, u64)>) -> Vec<SourceFile> {
        for (name, bytes) in sizes {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
        }
        found(folder)
    }

    fn found(folder: &Path) -> Vec<SourceFile> {
        scan::scan_sources(&[".".to_owned()], folder, &StoreSettings::default(), &ScanOptions::default()).unwrap().files
    }

    fn context(folder: &Path) -> Context<'static> {
        Context {
            folder: folder.to_owned(),
            settings: StoreSettings::default(),
            stdin: || Box::new(std::io::empty()),
            jobs: 2,
            memory: Size::from_mib(512),
            id_key: None,
            observer: &Silent,
            cancel: Cancel::default(),
        }
    }

    fn weight_of(sample: &[FileStart]) -> u64 {
        sample.iter().map(|start| start.most + OPENING).sum()
    }

    #[test]
    fn what_every_run_takes_is_not_scaled_with_the_size() {
        // A second, and a second for each ten.
        assert!((extrapolate_line([(10.0, 2.0), (30.0, 4.0)], 100.0) - 11.0).abs() < 1e-9);
        // Without a line, all of it grows.
        assert!((extrapolate_line([(20.0, 4.0), (20.0, 4.0)], 100.0) - 20.0).abs() < 1e-9);
        assert!((extrapolate_line([(10.0, 5.0), (20.0, 4.0)], 100.0) - 20.0).abs() < 1e-9);
        // The same number of files takes the same time.
        assert!((extrapolate_line([(1.0, 0.1), (1.0, 0.2)], 1.0) - 0.2).abs() < 1e-9);
        assert!(extrapolate_line([(0.0, 0.0), (0.0, 0.0)], 1e9).abs() < 1e-9);
    }

    #[test]
    fn small_sources_are_not_sampled() {
        let folder = tempfile::tempdir().unwrap();
        let files = files(folder.path(), [("a.csv".to_owned(), SMALL_SOURCE - 2 * OPENING), ("b.csv".to_owned(), 0)]);
        assert!(Draws::new(&files[..1]).pieces.is_empty() && Draws::new(&[]).pieces.is_empty());
        assert!(!Draws::new(&files).pieces.is_empty());
    }

    #[test]
    fn a_large_file_gives_its_start_and_small_ones_are_spread_over_the_listing() {
        let folder = tempfile::tempdir().unwrap();
        let one = files(folder.path(), [("a.csv".to_owned(), 1 << 30)]);
        let sample = Draws::new(&one).sample_up_to(FIRST * 4);
        assert_eq!((sample.len(), sample[0].most), (1, FIRST * 4));
        let all = Draws::new(&one).sample_up_to(u64::MAX);
        assert!(all[0].most >= MAX_LOCAL - PIECE && all[0].most <= MAX_LOCAL + PIECE, "{all:?}");

        let folder = tempfile::tempdir().unwrap();
        let many = files(folder.path(), (0..400).map(|n| (format!("{n:03}.csv"), 1 << 20)));
        let draws = Draws::new(&many);
        for wanted in [16 << 20, 64 << 20] {
            let sample = draws.sample_up_to(wanted);
            assert!((wanted..wanted + (4 << 20)).contains(&weight_of(&sample)));
            assert!(sample.iter().all(|start| start.most == 1 << 20));
            let of_quarter = |quarter: usize| {
                let number = |start: &FileStart| start.file.name()[..3].parse::<usize>().unwrap() / 100;
                sample.iter().filter(|start| number(start) == quarter).count()
            };
            let counts = [0, 1, 2, 3].map(of_quarter);
            assert!(counts.iter().all(|count| count.abs_diff(sample.len() / 4) <= 2), "{counts:?}");
        }
        // What is drawn first is among what is drawn later.
        let names = |wanted| {
            draws.sample_up_to(wanted).iter().map(|start| start.file.name().to_owned()).collect::<HashSet<_>>()
        };
        assert!(names(8 << 20).is_subset(&names(32 << 20)));
    }

    #[test]
    fn files_count_by_their_weight_and_samples_stay_whole() {
        let folder = tempfile::tempdir().unwrap();
        // One file holds nearly all bytes.
        let small = (0..300).map(|n| (format!("s/{n:03}.csv"), 1_000));
        let skewed = files(folder.path(), small.chain([("z.csv".to_owned(), 200 << 20)]));
        let sample = Draws::new(&skewed).sample_up_to(32 << 20);
        let large = sample.iter().find(|start| start.file.name() == "z.csv").unwrap();
        assert!(large.most > 28 << 20, "{}", large.most);

        let folder = tempfile::tempdir().unwrap();
        let parts =
            (0..3_000).flat_map(|n| ["jpg", "json", "cls"].map(|end| (format!("{:02}/{n:04}.{end}", n % 7), 8_000)));
        let tree = files(folder.path(), parts);
        for wanted in [1 << 20, 5 << 20, u64::MAX] {
            let mut samples: BTreeMap<String, usize> = BTreeMap::new();
            for start in Draws::new(&tree).sample_up_to(wanted) {
                assert_eq!(start.most, 8_000);
                *samples.entry(start.file.key().to_owned()).or_default() += 1;
            }
            assert!(samples.values().all(|parts| *parts == 3));
            assert!(wanted < u64::MAX || samples.len() == 3_000);
        }

        // Names with dots make one sample of all files.
        let folder = tempfile::tempdir().unwrap();
        let dotted = files(folder.path(), (0..3_000).map(|n| (format!("1.2.{n}.ima"), 200_000)));
        let sample = Draws::new(&dotted).sample_up_to(FIRST);
        assert!(weight_of(&sample) < 3 * MAX_SAMPLE, "{}", sample.len());
    }

    #[test]
    fn a_trial_ends_with_its_time_and_with_the_command() {
        let work = |cancel: &Cancel| {
            for _ in 0..500 {
                cancel.check()?;
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(())
        };
        let started = Instant::now();
        assert!(run_within(Duration::from_millis(30), &Cancel::default(), work).is_err());
        let whole = Cancel::default();
        whole.cancel();
        assert!(run_within(Duration::from_mins(1), &whole, work).is_err());
        assert!(started.elapsed() < Duration::from_secs(4));
        run_within(Duration::from_mins(1), &Cancel::default(), |_| Ok(())).unwrap();
    }

    /// Rows that compress about as real ones do.
    fn rows(count: u64) -> String {
        let row = |n: u64| {
            let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            format!("{n},{mixed},{}.{},ward {}\n", mixed % 97, mixed % 10, mixed % 12)
        };
        (0..count).map(row).collect()
    }

    #[test]
    fn bytes_of_a_sample_tell_those_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("one.csv"), format!("a,b,c,d\n{}", rows(600_000))).unwrap();
        let context = context(folder.path());
        let options = ConvertOptions { sources: vec!["one.csv".to_owned()], ..ConvertOptions::default() };
        let files = found(folder.path());
        let whole = vec![FileStart { file: files[0].clone(), most: u64::MAX }];
        let whole = run_trial(&context, &whole, 1, &options).unwrap();
        assert_eq!(whole.read, files[0].bytes());
        let forecast = Forecast::new(&context, &files, Duration::ZERO).unwrap();
        // Without a limit, because tests run on busy machines.
        let measured = [1 << 20, 6 << 20].map(|wanted| {
            let sample = forecast.draws.sample_up_to(wanted);
            MeasuredTrial { files: sample.len() as u64, trial: run_trial(&context, &sample, 1, &options).unwrap() }
        });
        assert!(measured.iter().all(|m| m.files == 1 && m.trial.read < whole.read / 2));
        let line = measured.map(|m| (m.weight(), m.trial.written as f64));
        let ratio = extrapolate_line(line, forecast.draws.weight as f64) / whole.written as f64;
        assert!((0.85..1.15).contains(&ratio), "{ratio}");
        // Compressed text counts by its stored bytes.
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, &std::fs::read(folder.path().join("one.csv")).unwrap()).unwrap();
        std::fs::write(folder.path().join("two.csv.gz"), packed.finish().unwrap()).unwrap();
        let file = found(folder.path()).pop().unwrap();
        let part =
            run_trial(&context, &[FileStart { most: file.bytes() / 4, file: file.clone() }], 1, &options).unwrap();
        let ratio = part.written as f64 / part.read as f64 * file.bytes() as f64 / whole.written as f64;
        assert!((0.8..1.25).contains(&ratio) && part.read < file.bytes() / 2, "{ratio} {part:?}");
    }
}
