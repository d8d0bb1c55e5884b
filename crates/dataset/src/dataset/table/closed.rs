//! JSON objects that end with a checksum of their own: log entries, receipts, plans, outcomes of tasks, intents, the
//! result of the store test, the record of a pull.
//!
//! ```text
//! {
//!   "field": {"a":1},                  a line for each field and for each element of a list, for those who read them
//!   "shards": [                        by eye; nothing more, because there are many entries
//!     {"path":"...","rows":31},
//!     {"path":"...","rows":33}],
//!   "checksum": "<BLAKE3 of all bytes before this field>"
//! }
//! ```

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::{
    codec::seal::{close_json, json_is_whole},
    error::{Error, Result},
    storage::{RESTORE_HINT, Store},
};

/// Encodes an object; `what` names it in errors.
///
/// # Errors
/// When it is no JSON object with fields.
pub fn encode_json<T: Serialize>(object: &T, what: &str) -> Result<Vec<u8>> {
    let failed = || Error::internal(format!("encoding {what} failed"));
    let mut json = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut json, Lines::default());
    object.serialize(&mut writer).map_err(|e| failed().with_cause(e))?;
    close_json(json).ok_or_else(failed)
}

/// Begins a line for each field of a document, and for each element of its lists.
#[derive(Default)]
struct Lines {
    depth: usize,
}

impl serde_json::ser::Formatter for Lines {
    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        out.write_all(if self.depth == 0 { b"\n}" } else { b"}" })
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b"," })?;
        out.write_all(if self.depth == 1 { b"\n  " } else { b"" })
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(if self.depth == 1 { b": " } else { b":" })
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth += 1;
        out.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.depth -= 1;
        out.write_all(b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b"," })?;
        out.write_all(if self.depth == 2 { b"\n    " } else { b"" })
    }
}

/// Decodes an object made by [`encode_json`]; `what` names it in errors.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if it is damaged.
pub(in crate::dataset) fn decode_json<T: for<'de> Deserialize<'de>>(
    store: &dyn Store,
    path: &str,
    bytes: &[u8],
    what: &str,
) -> Result<T> {
    let place = || store.location().join(path).to_string();
    if json_is_whole(bytes) != Some(true) {
        return Err(Error::integrity(format!("{what} is damaged: its checksum does not match its bytes"))
            .at_location(place())
            .with_hint(RESTORE_HINT));
    }
    serde_json::from_slice(bytes).map_err(|e| {
        Error::integrity(format!("{what} is damaged")).at_location(place()).at_line(e.line() as u64).with_cause(e)
    })
}
