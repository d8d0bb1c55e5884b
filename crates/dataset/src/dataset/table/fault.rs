//! Errors of tables: decoder errors, with the object concerned.

use parquet::errors::ParquetError;

use crate::{
    error::{Error, Kind, Result},
    format::guard::catch_quietly,
};

/// Decodes stored bytes and turns a panic of the decoder into an error.
pub(in crate::dataset) fn catch_panics<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_quietly(decode).unwrap_or_else(|_| Err(Error::integrity("the decoder failed on damaged bytes")))
}

/// Converts an error of reading a table: store errors are returned unchanged, all others are reported as damage.
pub(in crate::dataset) fn damage_error(error: Error, message: &str, place: String) -> Error {
    if error.kind() == Kind::Storage { error } else { Error::integrity(message).at_location(place).with_cause(error) }
}

/// Converts a Parquet error; store errors keep their kind.
pub(in crate::dataset) fn parquet_error(error: ParquetError) -> Error {
    let internal = Error::internal("encoding a table failed");
    match error {
        ParquetError::External(error) => match error.downcast::<std::io::Error>() {
            Ok(error) => Error::from(*error),
            Err(error) => match error.downcast::<Error>() {
                Ok(ours) => *ours,
                Err(error) => internal.with_cause(ParquetError::External(error)),
            },
        },
        error => internal.with_cause(error),
    }
}
