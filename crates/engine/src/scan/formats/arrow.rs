//! Arrow files and streams.

use super::{
    super::source::RecordSource,
    format::{Class, Format, InputFormat},
    start::Start,
};
use crate::{
    error::Result,
    format::ipc::{self, IpcForm, IpcReader},
};

pub(super) static ARROW: Format = Format {
    name: "arrow",
    help: "Arrow IPC, file or stream",
    states: "Arrow",
    endings: &["arrow", "arrows", "feather", "ipc"],
    class: Class::Table,
    open: Some(open),
    check_type: None,
};

fn open(start: &Start<'_>) -> Result<Option<RecordSource>> {
    let Some(form) = ipc::sniff(&start.head.bytes) else { return Ok(None) };
    let reader = match form {
        IpcForm::File => IpcReader::open(start.ranged_input()?, &start.file.uri())?,
        IpcForm::Stream => IpcReader::of_stream(),
    };
    start.read_by(InputFormat(&ARROW), reader)
}
