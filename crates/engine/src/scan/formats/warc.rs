//! WARC files, WET and WAT among them.

use super::{
    super::source::RecordSource,
    format::{Class, Format, InputFormat},
    start::Start,
};
use crate::{
    error::Result,
    format::warc::{self, WarcReader},
};

pub(super) static WARC: Format = Format {
    name: "warc",
    help: "Web archives: WARC, WET and WAT",
    states: "WARC",
    endings: &["warc", "wat", "wet"],
    class: Class::Table,
    open: Some(open),
    check_type: None,
};

fn open(start: &Start<'_>) -> Result<Option<RecordSource>> {
    if !warc::sniff(&start.head.bytes) {
        return Ok(None);
    }
    let reader = WarcReader::new(&start.head.bytes, start.options.warc, start.options.taken.as_deref());
    start.read_by(InputFormat(&WARC), reader)
}
