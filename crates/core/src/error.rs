//! One error type for the whole crate: what went wrong, where, and what to do about it.
//!
//! An [`Error`] carries a [`Kind`] (which decides the exit code), a one-line message with what was expected and what
//! was found, the [`Place`] in the input, hints for the user, and the cause. Messages start in lower case and never
//! repeat their cause; the command line prints message, place, causes and hints on separate lines.

use std::fmt;

/// Result of every fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Kind of failure; each kind has one exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The command line or configuration asks for something impossible.
    Usage,
    /// Sources or options differ from those of the dataset, and the user has to decide how to proceed.
    Changed,
    /// Input data is malformed.
    Input,
    /// Another run committed first, or holds the lock; nothing was committed.
    Conflict,
    /// The file system or object store failed.
    Storage,
    /// Stored data does not match its checksum or count.
    Integrity,
    /// The user interrupted the run.
    Interrupted,
    /// A bug in shardify.
    Internal,
}

/// Location of the problem in an input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// File or URL.
    pub source: Option<String>,
    /// Line, counted from 1.
    pub line: Option<u64>,
    /// Character in the line, counted from 1.
    pub character: Option<u64>,
    /// Byte offset, counted from 0.
    pub byte: Option<u64>,
    /// Column or field name.
    pub column: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        let mut part = |f: &mut fmt::Formatter<'_>, text: fmt::Arguments<'_>| {
            let result = write!(f, "{comma}{text}");
            comma = ", ";
            result
        };
        if let Some(source) = &self.source {
            part(f, format_args!("{source}"))?;
        }
        if let Some(line) = self.line {
            part(f, format_args!("line {line}"))?;
        }
        if let Some(character) = self.character {
            part(f, format_args!("character {character}"))?;
        }
        if let Some(byte) = self.byte {
            part(f, format_args!("byte {byte}"))?;
        }
        if let Some(column) = &self.column {
            part(f, format_args!("column `{column}`"))?;
        }
        Ok(())
    }
}

/// Whether a failed operation may have taken effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing was changed, or the change was undone.
    #[default]
    None,
    /// Unknown, for example because the response of a store was lost: nothing that the operation would refer to may be
    /// deleted.
    Possible,
    /// It took effect and is visible, but it may not survive a power cut.
    Certain,
}

/// A failure with its context. Boxed, so that `Result<T>` stays small.
#[derive(Debug)]
pub struct Error(Box<Facts>);

#[derive(Debug)]
struct Facts {
    kind: Kind,
    message: String,
    place: Place,
    hints: Vec<String>,
    cause: Option<Cause>,
    effect: Effect,
}

macro_rules! constructors {
    ($($name:ident => $kind:ident),* $(,)?) => {
        $(
            #[doc = concat!("Creates an error of kind [`Kind::", stringify!($kind), "`].")]
            pub fn $name(message: impl Into<String>) -> Self {
                Self::new(Kind::$kind, message)
            }
        )*
    };
}

impl Error {
    /// Returns the error for work that panicked on a thread of its own, before the run committed anything.
    pub fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "unknown".to_owned());
        Self::of_refused_thread(&text).unwrap_or_else(|| {
            Self::internal(format!("the program met a bug: {text}"))
                .with_hint("nothing was committed; please report this")
        })
    }

    /// Returns the error for a panic whose text says that the system refused to start a thread, for which the standard
    /// library and `rayon` have no other way.
    pub fn of_refused_thread(text: &str) -> Option<Self> {
        let refused = ["failed to spawn thread", "ThreadPoolBuildError"].iter().any(|known| text.contains(known));
        refused.then(|| {
            Self::storage("the system refused to start a thread").with_hint(
                "fewer threads and less memory are needed with --jobs 1; `ulimit -u` and `ulimit -v` show \
                 limits of this shell",
            )
        })
    }

    /// Creates an error; `message` says what was expected and what was found.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let (place, hints, cause, effect) = (Place::default(), Vec::new(), None, Effect::None);
        Self(Box::new(Facts { kind, message: message.into(), place, hints, cause, effect }))
    }

    constructors! {
        usage => Usage, changed => Changed, input => Input, conflict => Conflict, storage => Storage,
        integrity => Integrity, internal => Internal,
    }

    /// Creates the error of a run that detected before the commit that its output is wrong.
    pub fn inconsistent_output(message: impl Into<String>) -> Self {
        Self::integrity(message).with_hint("nothing was committed; please report this as a bug")
    }

    /// Creates the error of a run that the user interrupted.
    pub fn interrupted() -> Self {
        Self::new(Kind::Interrupted, "interrupted; nothing was committed")
    }

    /// Sets the file or URL.
    #[must_use]
    pub fn at_location(mut self, source: impl Into<String>) -> Self {
        self.0.place.source = Some(source.into());
        self
    }

    /// Sets the line, counted from 1.
    #[must_use]
    pub fn at_line(mut self, line: u64) -> Self {
        self.0.place.line = Some(line);
        self
    }

    /// Sets the character in the line, counted from 1.
    #[must_use]
    pub fn at_character(mut self, character: u64) -> Self {
        self.0.place.character = Some(character);
        self
    }

    /// Sets the byte offset, counted from 0.
    #[must_use]
    pub fn at_byte(mut self, byte: u64) -> Self {
        self.0.place.byte = Some(byte);
        self
    }

    /// Sets the column.
    #[must_use]
    pub fn in_column(mut self, column: impl Into<String>) -> Self {
        self.0.place.column = Some(column.into());
        self
    }

    /// Puts what the message is about before it.
    #[must_use]
    pub fn about(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// Adds a suggestion what to do.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hints.push(hint.into());
        self
    }

    /// Replaces a phrase in the suggestions, for a caller to whom another command helps.
    #[must_use]
    pub fn rephrase_hints(mut self, phrase: &str, by: &str) -> Self {
        self.0.hints.iter_mut().for_each(|hint| *hint = hint.replace(phrase, by));
        self
    }

    /// Sets the underlying error.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Cause>) -> Self {
        self.0.cause = Some(cause.into());
        self
    }

    /// Sets whether the failed operation may have taken effect.
    #[must_use]
    pub fn with_effect(mut self, effect: Effect) -> Self {
        self.0.effect = effect;
        self
    }

    /// Returns whether the failed operation may have taken effect.
    pub fn effect(&self) -> Effect {
        self.0.effect
    }

    /// Returns a copy with its causes as one text, for a failure that is reported more than once.
    #[must_use]
    pub fn flatten_causes(&self) -> Self {
        let causes = std::iter::successors(std::error::Error::source(self), |cause| cause.source());
        let causes = causes.map(ToString::to_string).collect::<Vec<_>>().join(": ");
        let Facts { kind, message, place, hints, effect, .. } = &*self.0;
        let cause = (!causes.is_empty()).then(|| causes.into());
        let (message, place, hints) = (message.clone(), place.clone(), hints.clone());
        Self(Box::new(Facts { kind: *kind, message, place, hints, cause, effect: *effect }))
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Returns the message alone, without place, cause or hints.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns where the failure occurred.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Returns the message with its place and the suggestions what to do, on one line.
    pub fn to_line(&self) -> String {
        let Place { source, line, .. } = self.place();
        let line = line.map_or_else(String::new, |line| format!(", line {line}"));
        let place = source.as_ref().map_or_else(String::new, |source| format!("{source}{line}: "));
        let described = std::iter::once(format!("{place}{}", self.message())).chain(self.hints().iter().cloned());
        described.collect::<Vec<_>>().join("; ")
    }

    /// Returns the suggestions what to do.
    pub fn hints(&self) -> &[String] {
        &self.0.hints
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = self.0.place.to_string();
        if place.is_empty() { f.write_str(&self.0.message) } else { write!(f, "{place}: {}", self.0.message) }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.cause.as_deref().map(|c| c as _)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        // An [`Error`] that passed through an `io::Read` or `io::Write` keeps its own kind and place.
        match error.downcast::<Self>() {
            Ok(ours) => ours,
            Err(error) => Self::storage("input or output failed").with_cause(error),
        }
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        use arrow::error::ArrowError;
        match error {
            // A failure of the underlying reader or writer is not a bug.
            ArrowError::IoError(_, io) => Self::from(io),
            ArrowError::ExternalError(inner) => match inner.downcast::<std::io::Error>() {
                Ok(io) => Self::from(*io),
                Err(inner) => match inner.downcast::<Self>() {
                    Ok(ours) => *ours,
                    Err(inner) => Self::internal("building columns failed").with_cause(inner),
                },
            },
            error => Self::internal("building columns failed").with_cause(error),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn display_names_place_then_message() {
        let error =
            Error::input("expected 4 fields, found 6").at_location("a.csv").at_line(17).at_byte(290).in_column("age");
        assert_eq!(error.to_string(), "a.csv, line 17, byte 290, column `age`: expected 4 fields, found 6");
    }

    #[test]
    fn an_error_survives_a_trip_through_io() {
        let io: std::io::Error = Error::input("bad").at_line(3).into();
        let back = Error::from(io);
        assert_eq!(back.kind(), Kind::Input);
        assert_eq!(back.place().line.unwrap(), 3);
    }

    #[test]
    fn a_full_disk_below_arrow_is_a_storage_error() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        for error in [
            arrow::error::ArrowError::IoError("writing".to_owned(), full()),
            arrow::error::ArrowError::ExternalError(Box::new(full())),
            arrow::error::ArrowError::ExternalError(Box::new(Error::storage("writing failed"))),
        ] {
            assert_eq!(Error::from(error).kind(), Kind::Storage);
        }
        assert_eq!(Error::from(arrow::error::ArrowError::DivideByZero).kind(), Kind::Internal);
    }

    #[test]
    fn a_repeated_error_has_the_same_text() {
        let inner = Error::input("inner").with_cause("deepest");
        let error =
            Error::storage("outer").at_location("x").with_hint("do").with_cause(inner).with_effect(Effect::Possible);
        let again = error.flatten_causes();
        assert_eq!((again.kind(), again.to_string(), again.hints()), (Kind::Storage, "x: outer".into(), error.hints()));
        assert_eq!(std::error::Error::source(&again).unwrap().to_string(), "inner: deepest");
        assert_eq!(again.effect(), Effect::Possible);
    }
}
