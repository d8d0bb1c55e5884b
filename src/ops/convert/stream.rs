//! Standard input among the sources of a run: what the user says of it, and whether it has to be read.
//!
//! A named stream whose tag the dataset has is not read: nobody knows how long its writer would take. Only where other
//! sources decide that it is read again, because records of it were omitted as duplicates of theirs, it is.

use std::io::{self, Read};

use super::options::ConvertOptions;
use crate::{
    dataset::Snapshot,
    error::{Error, Result},
    events::Cancel,
    format::OutputFormat,
    ops::{Context, inputs},
    plan::memory::MemoryPlan,
    scan::{InputFormat, SourceFile, StatedStream},
    units::Size,
};

/// The name of standard input among the sources.
pub(super) const STDIN: &str = "-";

/// Standard input as a source.
pub(super) struct StandardInput<'a> {
    context: &'a Context<'a>,
    stated: StatedStream<'a>,
}

impl<'a> StandardInput<'a> {
    /// Returns what the options say of standard input; `None` if it is no source.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if they do not fit together.
    pub(super) fn of_options(context: &'a Context<'_>, options: &'a ConvertOptions) -> Result<Option<Self>> {
        let (name, etag) = (options.read.stream_name(), options.read.stream_etag());
        if !options.sources.iter().any(|source| source == STDIN) {
            return match name.map(|_| "name").or(etag.map(|_| "etag")) {
                Some(key) => Err(Error::usage(format!(
                    "expected `-`, standard input, among the sources with --read {key}, found none"
                ))
                .with_hint("files have the names of their paths")),
                None => Ok(None),
            };
        }
        if let (None, Some(etag)) = (name, etag) {
            return Err(Error::usage(format!("expected --read name=NAME with --read etag={etag}, found none"))
                .with_hint("the tag says that the stream of this name is unchanged"));
        }
        let from = options.from.ok_or_else(|| {
            Error::usage("expected --from with `-`, because the format of standard input cannot be derived from a name")
                .with_hint("name the format, such as --from csv or --from jsonl")
        })?;
        if from == InputFormat::FILES {
            return Err(Error::usage("expected records from standard input, found --from files"));
        }
        let memory = MemoryPlan::new(context.memory, context.jobs, OutputFormat::Parquet, Size(0), Size(0));
        let max_record_bytes = usize::try_from(memory.max_record_bytes).unwrap_or(usize::MAX);
        let stated = StatedStream { name, etag, from, end: options.read.stream_end(), max_record_bytes };
        Ok(Some(Self { context, stated }))
    }

    /// Returns the stream, which is read unless the dataset has it with the stated tag.
    ///
    /// # Errors
    /// When it cannot be read, or the dataset's list of sources.
    pub(super) fn list_source(&self, known_by: Option<&Snapshot>) -> Result<SourceFile> {
        if let (Some(snapshot), Some(_)) = (known_by, self.stated.etag) {
            let unread = self.stated.unread_source()?;
            if inputs::is_known_stream(self.context, &unread, snapshot)? {
                return Ok(unread);
            }
        }
        self.read_source()
    }

    /// Reads the stream if it was not, and has to be converted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read_listed(&self, fresh: &mut [SourceFile]) -> Result<()> {
        for file in fresh.iter_mut().filter(|file| file.is_unread()) {
            *file = self.read_source()?;
        }
        Ok(())
    }

    fn read_source(&self) -> Result<SourceFile> {
        self.stated.read_source(UntilCancelled { input: (self.context.stdin)(), cancel: &self.context.cancel })
    }
}

/// A stream that fails once the run is to stop: a writer may never end it.
struct UntilCancelled<'a> {
    input: Box<dyn Read + Send>,
    cancel: &'a Cancel,
}

impl Read for UntilCancelled<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check()?;
        self.input.read(buffer)
    }
}
