//! Guard around the crates that decode binary formats, which may panic on damaged files instead of failing.
//!
//! Inside [`guard_decoding`], a panic becomes an error that names the file, and errors of the storage underneath keep
//! their kind.

use std::{
    cell::Cell,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use ::parquet::errors::ParquetError;
use arrow::error::ArrowError;

use crate::{
    error::{Error, Result},
    storage::capture_fault,
};

thread_local! {
    static DECODING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside a guarded call. A panic is then invalid input that is reported as an error, so a panic
/// hook must print nothing.
pub fn is_decoding() -> bool {
    DECODING.get()
}

/// Returns the result of a closure, or the payload of its panic, without printing the panic.
pub fn catch_quietly<T>(work: impl FnOnce() -> T) -> std::thread::Result<T> {
    let outer = DECODING.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    DECODING.set(outer);
    outcome
}

/// Calls a decoder and converts its errors and panics. `what` is the expected format, `name` the file.
pub(super) fn guard_decoding<T, E: Into<DecodeError>>(
    what: &str,
    name: &str,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T> {
    let (outcome, fault) = capture_fault(|| catch_quietly(work));
    // Whatever the decoder returned: a failed read is not the file's fault.
    if let Some(fault) = fault {
        return Err(fault);
    }
    let error = match outcome {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(error)) => error.into().into_error(what),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given");
            Error::input(format!("expected {what}, found one on which the decoder fails: {text}"))
        }
    };
    Err(error.at_location(name))
}

/// Errors of the crates for Parquet, Arrow and HDF5, or those that were made of another crate's.
pub(super) enum DecodeError {
    #[cfg(feature = "excel")]
    Ours(Error),
    Parquet(ParquetError),
    Arrow(ArrowError),
    Hdf5(hdf5_reader::error::Error),
}

#[cfg(feature = "excel")]
impl From<Error> for DecodeError {
    fn from(error: Error) -> Self {
        Self::Ours(error)
    }
}

impl From<hdf5_reader::error::Error> for DecodeError {
    fn from(error: hdf5_reader::error::Error) -> Self {
        Self::Hdf5(error)
    }
}

impl From<ParquetError> for DecodeError {
    fn from(error: ParquetError) -> Self {
        Self::Parquet(error)
    }
}

impl From<ArrowError> for DecodeError {
    fn from(error: ArrowError) -> Self {
        Self::Arrow(error)
    }
}

impl DecodeError {
    /// Converts to the error for the user; `what` is the expected format.
    fn into_error(self, what: &str) -> Error {
        #[cfg(feature = "excel")]
        if let Self::Ours(error) = self {
            return error;
        }
        let cause = match self.into_io_error() {
            Ok(io) => return Error::from(io),
            Err(cause) => cause,
        };
        let cut_short = ends_too_early(cause.as_ref());
        let error = Error::input(format!("expected {what}, found one that cannot be decoded")).with_cause(cause);
        if cut_short {
            error.with_hint("the file may have been cut short while it was copied or written")
        } else {
            error
        }
    }

    /// Returns the underlying I/O error, if it is one.
    fn into_io_error(self) -> Result<io::Error, Box<dyn std::error::Error + Send + Sync>> {
        match self {
            #[cfg(feature = "excel")]
            Self::Ours(error) => Err(error.into()),
            Self::Parquet(error) => io_error(error).map_err(Into::into),
            Self::Arrow(ArrowError::ExternalError(inner)) => match inner.downcast::<ParquetError>() {
                Ok(error) => io_error(*error).map_err(Into::into),
                Err(inner) => io_error(ParquetError::External(inner)).map_err(Into::into),
            },
            Self::Arrow(ArrowError::IoError(_, io)) if is_outside(&io) => Ok(io),
            Self::Arrow(error) => Err(error.into()),
            Self::Hdf5(hdf5_reader::error::Error::Io(io)) if is_outside(&io) => Ok(io),
            Self::Hdf5(error) => Err(error.into()),
        }
    }
}

/// Whether an error, or one of its causes, is an unexpected end of file.
fn ends_too_early(error: &(dyn std::error::Error + 'static)) -> bool {
    use hdf5_reader::error::Error as Hdf5Error;
    std::iter::successors(Some(error), |error| error.source()).any(|error| {
        // The cause may be boxed.
        let hdf5 = error.downcast_ref::<Hdf5Error>().or_else(|| error.downcast_ref::<Box<Hdf5Error>>().map(|e| &**e));
        matches!(hdf5, Some(Hdf5Error::UnexpectedEof { .. }))
    })
}

/// Returns the I/O error of a reader or writer that the parquet crate passed through.
pub(super) fn io_error(error: ParquetError) -> Result<io::Error, ParquetError> {
    match error {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) if is_outside(&io) => Ok(*io),
            Ok(io) => Err(ParquetError::External(io)),
            Err(inner) => match inner.downcast::<Error>() {
                Ok(ours) => Ok(io::Error::from(*ours)),
                Err(inner) => Err(ParquetError::External(inner)),
            },
        },
        other => Err(other),
    }
}

/// Codecs also report damaged pages as input errors; those are the file's fault, not the storage's.
fn is_outside(error: &io::Error) -> bool {
    let damaged = [io::ErrorKind::UnexpectedEof, io::ErrorKind::InvalidData, io::ErrorKind::InvalidInput];
    let ours = error.get_ref().is_some_and(|inner| inner.is::<Error>());
    ours || error.raw_os_error().is_some() || !damaged.contains(&error.kind()) && error.kind() != io::ErrorKind::Other
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn panics_become_errors_and_are_announced_to_the_hook() {
        let error = guard_decoding("a file", "x.parquet", || -> Result<(), ParquetError> {
            assert!(is_decoding());
            panic!("bad bit width")
        });
        let error = error.unwrap_err();
        assert!(!is_decoding());
        assert_eq!((error.kind(), error.place().source.as_deref()), (Kind::Input, Some("x.parquet")));
        assert!(error.message().contains("bad bit width"), "{error}");
    }

    #[test]
    fn a_file_that_ends_too_early_is_reported_as_truncated() {
        let short = hdf5_reader::error::Error::UnexpectedEof { offset: 7, needed: 8, available: 0 };
        let error = guard_decoding("an HDF5 file", "x.h5", || Err::<(), _>(short)).unwrap_err();
        assert_eq!(error.kind(), Kind::Input);
        assert!(error.hints().iter().any(|hint| hint.contains("cut short")), "{error}");
    }

    #[test]
    fn the_result_of_a_decoder_after_a_failed_read_is_discarded() {
        use crate::storage::{Object, RemoteStore};
        let store = std::sync::Arc::new(RemoteStore::in_memory().unwrap());
        let gone = || Object::new(std::sync::Arc::<RemoteStore>::clone(&store), "gone", 100).get_range(0..5);
        let reported = || gone().map(drop).map_err(|e| ArrowError::ParquetError(e.to_string()));
        assert_eq!(guard_decoding("a file", "x", reported).unwrap_err().kind(), Kind::Storage);
        let swallowed = || Ok::<_, ArrowError>(gone().unwrap_or_default());
        assert_eq!(guard_decoding("a file", "x", swallowed).unwrap_err().kind(), Kind::Storage);
        let panics = || -> Result<(), ArrowError> { panic!("{}", gone().unwrap_err()) };
        assert_eq!(guard_decoding("a file", "x", panics).unwrap_err().kind(), Kind::Storage);
    }

    #[test]
    fn failing_storage_is_a_storage_error() {
        let denied = || ParquetError::from(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(guard_decoding("a file", "x", || Err::<(), _>(denied())).unwrap_err().kind(), Kind::Storage);
        let nested = || ArrowError::ExternalError(Box::new(denied()));
        assert_eq!(guard_decoding("a file", "x", || Err::<(), _>(nested())).unwrap_err().kind(), Kind::Storage);
        let bare = || ParquetError::External(Box::new(Error::storage("reading failed")));
        assert_eq!(guard_decoding("a file", "x", || Err::<(), _>(bare())).unwrap_err().kind(), Kind::Storage);
        let eio = || ParquetError::from(io::Error::from_raw_os_error(5));
        assert_eq!(guard_decoding("a file", "x", || Err::<(), _>(eio())).unwrap_err().kind(), Kind::Storage);
        let ours = || ParquetError::from(io::Error::from(Error::interrupted()));
        assert_eq!(guard_decoding("a file", "x", || Err::<(), _>(ours())).unwrap_err().kind(), Kind::Interrupted);
    }
}
