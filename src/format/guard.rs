//! A fence around the crates that decode binary formats: on damaged files they panic where they should fail.
//!
//! Inside [`guard`] a panic becomes an error that names the file, and failures of the storage underneath keep their kind.

use std::{
    cell::Cell,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use ::parquet::errors::ParquetError;
use arrow::error::ArrowError;

use crate::error::{Error, Result};

