//! Errors of tables: those of the decoder, with the object that they concern.

use parquet::errors::ParquetError;

use crate::{
    error::{Error, Kind, Result},
    format::guard::quietly,
};

/// Runs a decode of stored bytes so that a panic inside becomes an error.
pub(in crate::dataset) fn guarded<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    quietly(decode).unwrap_or_else(|_| Err(Error::integrity("the decoder gave up on damaged bytes")))
}

/// What a table could not be read for: errors of the store stay what they are, anything else is damage.
pub(in crate::dataset) fn damaged(error: Error, message: &str, place: String) -> Error {
    if error.kind() == Kind::Storage { error } else { Error::integrity(message).at(place).cause(error) }
}

/// Errors of the store keep their kind.
pub(in crate::dataset) fn failed(error: ParquetError) -> Error {
    let internal = Error::internal("encoding a table failed");
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => Error::from(*error),
            Err(error) => match error.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(error) => internal.cause(ParquetError::External(error)),
            },
        },
        error => internal.cause(error),
    }
}
