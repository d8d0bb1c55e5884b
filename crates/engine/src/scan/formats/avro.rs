//! Avro files.

use super::{
    super::source::RecordSource,
    format::{Class, Format, InputFormat},
    start::{Start, locate_result},
};
use crate::{
    error::Result,
    format::avro::{self, AvroReader},
};

pub(super) static AVRO: Format = Format {
    name: "avro",
    help: "Avro object container files",
    states: "Avro",
    endings: &["avro"],
    class: Class::Table,
    open: Some(open),
    check_type: None,
};

fn open(start: &Start<'_>) -> Result<Option<RecordSource>> {
    let is_stated = start.options.from.is_some() || InputFormat(&AVRO).matches_extension(start.file.name());
    if is_stated && avro::is_single_object(&start.head.bytes) {
        return Err(avro::single_object_error().at_location(start.file.uri()));
    }
    if !avro::sniff(&start.head.bytes) {
        return Ok(None);
    }
    let reader = locate_result(open_reader(start), start.file)?;
    start.read_by(InputFormat(&AVRO), reader)
}

fn open_reader(start: &Start<'_>) -> Result<AvroReader> {
    let reader = match AvroReader::open(&mut start.head.bytes.as_slice())? {
        None if !start.head.complete => AvroReader::open(&mut start.file.open(|_| {})?)?,
        reader => reader,
    };
    let reader = reader.ok_or_else(|| AvroReader::cut_short(start.file.bytes()))?;
    reader.with_columns(start.options.taken.as_deref(), &start.options.binary)
}
