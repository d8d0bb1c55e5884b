//! TFRecord files of `tf.train.Example`.

use super::{
    super::source::RecordSource,
    format::{Class, Format, InputFormat},
    start::{Start, types_beside},
};
use crate::{
    error::Result,
    format::tfrecord::{self, TfRecordReader},
};

pub(super) static TFRECORD: Format = Format {
    name: "tfrecord",
    help: "TFRecord files of tf.train.Example",
    states: "TFRecord",
    endings: &["tfrec", "tfrecord", "tfrecords"],
    class: Class::Samples,
    open: Some(open),
    check_type: None,
};

fn open(start: &Start<'_>) -> Result<Option<RecordSource>> {
    if !tfrecord::sniff(&start.head.bytes) {
        return Ok(None);
    }
    start.read_by(InputFormat(&TFRECORD), TfRecordReader::new(types_beside(start.file)?))
}
