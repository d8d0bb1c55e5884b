//! The library, as other programs use it: a [`Session`] with what runs have in common, a builder for each command, and
//! the [`Dataset`] that they make.
//!
//! ```text
//! Session --convert, adopt--> builder --run--> report
//!    |
//!    +--open--> Dataset --compact, erase--> builder --run--> report
//!                  |----verify, find------------------------> report
//!                  +----shards--> Shard --batches--> Batch, Batch, ...
//! ```
//!
//! A builder takes texts in the notation of the command line, and returns what is wrong with them from `run`. Types of
//! inner crates do not show: numbers and texts of reports are plain values, and each report is serialised as the
//! command line's `--json`.

mod adopt;
mod batches;
mod compact;
mod convert;
mod dataset;
mod erase;
mod find;
mod session;
mod verify;

use serde::de::{DeserializeOwned, IntoDeserializer, value::Error as NoSuchWord};

pub use self::{
    adopt::{Adopt, AdoptReport},
    batches::{Batch, Batches},
    compact::{Compact, CompactReport},
    convert::{Convert, ConvertReport},
    dataset::{Dataset, Shard},
    erase::{Erase, EraseReport},
    find::{FindReport, FoundRecord},
    session::Session,
    verify::VerifyReport,
};
use crate::error::{Error, Result};

/// What is wrong with the options of a builder: the first mistake, which its `run` returns.
#[derive(Debug, Default)]
struct Mistake(Option<Error>);

impl Mistake {
    /// Returns the value of an option, or keeps the mistake in its text.
    fn accept<T, E: Into<Invalid>>(&mut self, option: &str, value: std::result::Result<T, E>) -> Option<T> {
        let error = match value {
            Ok(value) => return Some(value),
            Err(invalid) => match invalid.into() {
                Invalid::Error(error) => error,
                Invalid::Text(text) => Error::usage(format!("{option}: {text}")),
            },
        };
        self.0.get_or_insert(error);
        None
    }

    /// Returns the value that a word stands for.
    fn accept_word<T: DeserializeOwned>(&mut self, option: &str, word: &str) -> Option<T> {
        let value: std::result::Result<T, NoSuchWord> = T::deserialize(word.into_deserializer());
        self.accept(option, value.map_err(|error| error.to_string()))
    }

    /// Fails with the mistake, if there is one.
    fn check(&mut self) -> Result<()> {
        self.0.take().map_or(Ok(()), Err)
    }
}

/// What is wrong with a text.
enum Invalid {
    Error(Error),
    Text(String),
}

impl From<Error> for Invalid {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<String> for Invalid {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Declares the report of a command: what the command line prints with `--json`.
macro_rules! report {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(pub(super) $inner);
    };
}
use report;
