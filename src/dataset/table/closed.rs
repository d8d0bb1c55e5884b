//! JSON objects that end with a checksum of their own: log entries, receipts, plans, outcomes of tasks, intents, the
//! result of the store test, the record of a pull.
//!
//! ```text
//! {"field": ..., "checksum": "<BLAKE3 of all bytes before this field>"}
//! ```

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
pub fn encode<T: Serialize>(object: &T, what: &str) -> Result<Vec<u8>> {
    let failed = || Error::internal(format!("encoding {what} failed"));
    let json = serde_json::to_vec_pretty(object).map_err(|e| failed().cause(e))?;
    close_json(json).ok_or_else(failed)
}

/// Decodes an object made by [`encode`]; `what` names it in errors.
///
/// # Errors
/// [`Kind::Integrity`](crate::error::Kind::Integrity) if it is damaged.
pub(in crate::dataset) fn decode<T: for<'de> Deserialize<'de>>(
    store: &dyn Store,
    path: &str,
    bytes: &[u8],
    what: &str,
) -> Result<T> {
    let place = || store.location().join(path).to_string();
    if json_is_whole(bytes) != Some(true) {
        return Err(Error::integrity(format!("{what} is damaged: its checksum does not match its bytes"))
            .at(place())
            .hint(RESTORE_HINT));
    }
    serde_json::from_slice(bytes)
        .map_err(|e| Error::integrity(format!("{what} is damaged")).at(place()).line(e.line() as u64).cause(e))
}
