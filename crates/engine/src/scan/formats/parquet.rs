//! Parquet files.

use super::{
    super::source::RecordSource,
    format::{Class, Format, InputFormat},
    start::Start,
};
use crate::{
    error::Result,
    format::parquet::{self, ParquetReader},
};

pub(super) static PARQUET: Format = Format {
    name: "parquet",
    help: "Apache Parquet",
    states: "Parquet",
    endings: &["parq", "parquet", "pq"],
    class: Class::Table,
    open: Some(open),
    check_type: None,
};

fn open(start: &Start<'_>) -> Result<Option<RecordSource>> {
    if parquet::is_encrypted(&start.head.bytes) {
        return Err(parquet::encrypted_error().at_location(start.file.uri()));
    }
    if !parquet::sniff(&start.head.bytes) {
        return Ok(None);
    }
    let reader = ParquetReader::open_with_bytes(start.ranged_input()?, &start.file.uri(), &start.options.binary)?;
    let reader = match &start.options.taken {
        Some(taken) => reader.with_projection(taken),
        None => reader,
    };
    start.read_by(InputFormat(&PARQUET), reader)
}
