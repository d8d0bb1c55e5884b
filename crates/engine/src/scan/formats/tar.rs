//! Tar archives of samples, or of rows that were written as such.

use std::{io::Read, sync::Arc};

use super::{
    super::{SourceFile, rows::RowsInTar, source::RecordSource},
    format::{Class, Format, InputFormat},
    start::{Start, types_beside},
};
use crate::{
    error::Result,
    format::{
        ranged::RangedInput,
        tar::{self, TarReader},
    },
    storage::{Object, Spool},
};

pub(super) static TAR: Format = Format {
    name: "tar",
    help: "Tar archives of samples (WebDataset)",
    states: "tar",
    endings: &["tar", "tbz", "tbz2", "tgz", "txz", "tzst"],
    class: Class::Samples,
    open: Some(open),
    check_type: None,
};

fn open(start: &Start<'_>) -> Result<Option<RecordSource>> {
    if !tar::sniff(&start.head.bytes) {
        return Ok(None);
    }
    match types_beside(start.file)? {
        Some(types) => start.read_by(InputFormat(&TAR), RowsInTar::new(types)),
        None => start.read_by(
            InputFormat(&TAR),
            TarReader::with_links(archive_of(start.file, start.head.packed || start.file.is_packed_member())),
        ),
    }
}

/// A stream that ends where it cannot be read: whoever reads it in order reports that.
struct UntilDamage<R>(R);

impl<R: Read> Read for UntilDamage<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self.0.read(buffer) {
            Err(e) if e.kind() != std::io::ErrorKind::Interrupted => Ok(0),
            read => read,
        }
    }
}

/// How an archive is read out of order: one that is compressed as a whole, or packed in another
/// archive, is unpacked to disk.
fn archive_of(file: &SourceFile, packed: bool) -> tar::ArchiveOpener {
    let file = file.clone();
    tar::ArchiveOpener::new(move || {
        if !packed {
            return Ok(RangedInput::Object(file.object()));
        }
        let spool = Spool::from_reader(UntilDamage(file.open(|_| {})?), |_| {})?;
        Ok(RangedInput::Object(Object::new(Arc::clone(spool.store()), Spool::NAME, spool.byte_count())))
    })
}
