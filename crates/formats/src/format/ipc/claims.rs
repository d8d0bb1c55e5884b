//! Validation of the sizes that a message states, against its body and a bound, before anything is decoded.

use arrow::ipc::{self, MessageHeader};

use crate::error::{Error, Result};

/// Checks the message of a batch or dictionary, a flatbuffer without its length, and its body. `limit` bounds the bytes
/// of the decompressed values.
///
/// # Errors
/// If the message is damaged, or its values are outside of its body or exceed `limit`.
pub(super) fn check_message(metadata: &[u8], body: &[u8], limit: u64) -> Result<()> {
    let Ok(message) = ipc::root_as_message(metadata) else {
        return Err(Error::input("expected a message, found damaged Arrow IPC data"));
    };
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|batch| batch.data()),
        _ => None,
    };
    let Some(batch) = batch else { return Ok(()) };
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(u64::MAX);
    // Nulls take no bytes here, but do after decoding.
    let values = batch.nodes().iter().flatten().map(|node| unsigned(node.length())).fold(0, u64::saturating_add);
    let values = values.max(unsigned(batch.length()));
    if values > limit.saturating_mul(2) {
        return Err(too_large(values, limit));
    }
    let mut inflated = 0_u64;
    // Empty buffers may have any offset.
    for buffer in batch.buffers().iter().flatten().filter(|buffer| buffer.length() > 0) {
        let end = unsigned(buffer.offset()).checked_add(unsigned(buffer.length()));
        if end.is_none_or(|end| end > body.len() as u64) {
            return Err(Error::input("expected values within the body of their message, found some beyond it"));
        }
        if batch.compression().is_some() {
            let prefix = usize::try_from(buffer.offset()).ok().and_then(|start| body.get(start..)?.first_chunk::<8>());
            // -1 marks uncompressed values.
            let length = prefix.map_or(0, |prefix| u64::try_from(i64::from_le_bytes(*prefix)).unwrap_or(0));
            inflated = inflated.saturating_add(length);
        }
    }
    if inflated > limit { Err(too_large(inflated, limit)) } else { Ok(()) }
}

/// Returns the error for a batch with too many bytes or values.
pub(super) fn too_large(bytes: u64, limit: u64) -> Error {
    Error::input(format!("expected batches of at most {limit} bytes, found one of {bytes}"))
        .with_hint("raise --memory; a batch may take a quarter of it")
        .with_hint("write smaller batches, e.g. with max_chunksize in pyarrow")
}
