//! Turns piles of files and dumps into sized training shards (Parquet, WebDataset tar, TFRecord), keeps them compacted,
//! and answers for any record id which shard holds it, where it came from and which versions contain it.
//!
//! ```
//! # let folder = tempfile::tempdir()?;
//! # let out = folder.path().join("patients");
//! use shardify::Session;
//!
//! let session = Session::new()?;
//! let report = session.convert("testdata/patients/OBSERVATION.csv", &out).subject("person_id").run()?;
//! assert_eq!((report.version(), report.counts().records_out), (Some(1), 8_099));
//!
//! let dataset = session.open(&out)?;
//! for record in dataset.find(["7"])?.records() {
//!     println!("{} {} from row {:?}", record.shard(), record.row(), record.source_row());
//! }
//! for shard in dataset.shards()? {
//!     for batch in shard.batches() {
//!         println!("{} records", batch?.records());
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What the command line does, [`Session`] and [`Dataset`] do: convert, adopt, compact, find, erase, verify. An
//! [`Error`] says what was expected, what was found, where, and what to do; its [`ErrorKind`] is what a program decides
//! by. Reports are serialised as the command line prints them with `--json`.
//!
//! `ARCHITECTURE.md` is the map of the code, `docs/FORMAT.md` specifies every byte on disk. Modules form layers, and
//! import only from lower ones; `tests/architecture/` enforces this.
#![deny(missing_docs)]

#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod fuzzing;
mod library;
#[doc(hidden)]
pub mod ops;

// For the program, its tests and benchmarks; they change with every release.
#[doc(hidden)]
pub use shardify_core::{array, codec, environment, error, events, id, record, schema, settings, storage, units};
#[doc(hidden)]
pub use shardify_dataset::dataset;
#[doc(hidden)]
pub use shardify_engine::{delta, exec, indexes, plan, scan};
#[doc(hidden)]
pub use shardify_formats::format;

/// The version of `arrow` whose `RecordBatch` [`Batch::Rows`] has.
pub use arrow;

/// ```
/// use shardify::Counts;
///
/// let counts = Counts { records_in: 10, records_out: 7, records_filtered: 3, ..Counts::default() };
/// assert!(counts.reconcile().is_ok());
/// ```
pub use dataset::Counts;

/// ```
/// use shardify::{ErrorKind, Session};
///
/// let error = Session::new()?.open("no/such/dataset").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Usage);
/// println!("{error}");
/// for hint in error.hints() {
///     println!("hint: {hint}");
/// }
/// # Ok::<(), shardify::Error>(())
/// ```
pub use error::Error;

/// ```
/// use shardify::{Error, ErrorKind};
///
/// /// Whether the same call may succeed later.
/// fn is_worth_another_try(error: &Error) -> bool {
///     matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Storage)
/// }
/// # assert!(is_worth_another_try(&Error::conflict("another run was faster")));
/// ```
pub use error::Kind as ErrorKind;

/// ```
/// # let folder = tempfile::tempdir()?;
/// # let (bad, out) = (folder.path().join("bad.csv"), folder.path().join("out"));
/// std::fs::write(&bad, "id,name\n1,Ann\n2,Bob,8\n")?;
/// let error = shardify::Session::new()?.convert(&bad, &out).run().unwrap_err();
/// assert_eq!(error.place().line, Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use error::Place;

pub use error::Result;

/// ```
/// use std::{thread, time::Duration};
/// use shardify::{Cancel, Session};
///
/// let cancel = Cancel::default();
/// let session = Session::new()?.cancel(cancel.clone());
/// let timer = thread::spawn(move || {
///     thread::sleep(Duration::from_millis(10));
///     cancel.cancel();
/// });
/// // Runs of the session end by now with `ErrorKind::Interrupted`, and commit nothing.
/// # timer.join().ok();
/// # Ok::<(), shardify::Error>(())
/// ```
pub use events::Cancel;

/// ```
/// use shardify::Event;
///
/// fn describe(event: &Event) -> Option<String> {
///     match event {
///         Event::Phase { name, .. } => Some(format!("{name} ...")),
///         Event::Shard { bytes } => Some(format!("a shard of {bytes} bytes")),
///         Event::Note(text) => Some(text.clone()),
///         _ => None,
///     }
/// }
/// # assert!(describe(&Event::Shard { bytes: 1 }).is_some());
/// ```
pub use events::Event;

/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use shardify::{Event, Observer, Session};
///
/// struct Bytes(Arc<AtomicU64>);
///
/// impl Observer for Bytes {
///     fn event(&self, event: Event) {
///         if let Event::Read { bytes, .. } = event {
///             self.0.fetch_add(bytes, Ordering::Relaxed);
///         }
///     }
/// }
///
/// # let folder = tempfile::tempdir()?;
/// let read = Arc::new(AtomicU64::new(0));
/// let session = Session::new()?.observer(Bytes(Arc::clone(&read)));
/// session.convert("testdata/patients/PERSON.csv", folder.path().join("out")).run()?;
/// assert!(read.load(Ordering::Relaxed) > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use events::Observer;

/// ```
/// # let folder = tempfile::tempdir()?;
/// # let (bad, out) = (folder.path().join("bad.csv"), folder.path().join("out"));
/// use shardify::{OnError, Session};
///
/// std::fs::write(&bad, "id,name\n1,Ann\n2,Bob,8\n")?;
/// let report = Session::new()?.convert(&bad, &out).on_error(OnError::Quarantine).run()?;
/// assert_eq!((report.counts().records_out, report.counts().records_rejected), (1, 1));
/// assert!(report.rejects().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use exec::gather::OnError;

/// ```
/// # let folder = tempfile::tempdir()?;
/// use shardify::{Format, Session};
///
/// for format in [Format::Parquet, Format::Tar, Format::TfRecord] {
///     let out = folder.path().join(format.name());
///     Session::new()?.convert("testdata/patients/PERSON.csv", &out).to(format).run()?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use format::OutputFormat as Format;

pub use library::{
    Adopt, AdoptReport, Batch, Batches, Compact, CompactReport, Convert, ConvertReport, Dataset, Erase, EraseReport,
    FindReport, FoundRecord, Session, Shard, VerifyReport,
};

/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("out");
/// use shardify::{Accept, ErrorKind, Session};
///
/// let session = Session::new()?;
/// session.convert("testdata/patients/PERSON.csv", &out).run()?;
/// let other = || session.convert("testdata/csv/uspop.csv", &out);
/// assert_eq!(other().run().map_err(|error| error.kind()).unwrap_err(), ErrorKind::Changed);
/// assert_eq!(other().accept(Accept::Columns).run()?.version(), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use ops::convert::Accept;

/// ```
/// # let folder = tempfile::tempdir()?;
/// # let (source, out) = (folder.path().join("ages.csv"), folder.path().join("out"));
/// use shardify::{OnChanged, Session};
///
/// let session = Session::new()?;
/// for ages in ["id,age\n1,30\n", "id,age\n1,31\n2,40\n"] {
///     std::fs::write(&source, ages)?;
///     session.convert(&source, &out).on_changed(OnChanged::Replace).run()?;
/// }
/// assert_eq!(session.open(&out)?.records(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use ops::inputs::OnChanged;

/// ```
/// use shardify::{Part, Sample};
///
/// fn picture(sample: &Sample) -> Option<&Part> {
///     sample.parts.iter().find(|part| ["jpg", "jpeg", "png"].contains(&part.extension.as_str()))
/// }
/// # let _ = picture;
/// ```
pub use record::Part;

/// ```
/// # let folder = tempfile::tempdir()?;
/// # let out = folder.path().join("out");
/// use shardify::{Batch, Session};
///
/// let session = Session::new()?;
/// session.convert("testdata/files/images", &out).run()?;
/// for batch in session.open(&out)?.shards()?[0].batches() {
///     let Batch::Samples(samples) = batch? else { continue };
///     for sample in samples {
///         println!("{}: {} parts, {} bytes", sample.key, sample.parts.len(), sample.byte_count());
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use record::Sample;
