//! Deletion vectors: which rows of a data file are deleted.
//!
//! ```text
//! file    version 1 (1 byte) | per vector, at its offset: size u32be | data | CRC-32 of the data u32be
//! inline  data as text in Z85
//! data    magic 1681511377 u32le | bitmap of 64 bits, Roaring's portable form
//! ```

use roaring::RoaringTreemap;

use super::actions::{Descriptor, data_path};
use crate::{
    error::{Error, Result},
    storage::Store,
};

const MAGIC: [u8; 4] = 1_681_511_377_u32.to_le_bytes();

/// Characters of the id in the place of a vector's file; a folder may precede them.
const ID_CHARS: usize = 20;

/// Largest vector that is read. Roaring needs at most about two bytes per deleted row.
const MAX_BYTES: u64 = 1 << 30;

/// Reads a deletion vector of a table that `store` is rooted at.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if it is damaged or missing; if the store fails.
pub(super) fn read(store: &dyn Store, descriptor: &Descriptor) -> Result<RoaringTreemap> {
    let wrong = |message: String| Error::input(format!("expected a deletion vector, found {message}"));
    if descriptor.size_in_bytes > MAX_BYTES {
        return Err(wrong(format!("one of {} bytes", descriptor.size_in_bytes)));
    }
    let rows = match descriptor.storage_type.as_str() {
        "i" => decode_bitmap(&decode_inline(&descriptor.path_or_inline_dv)?)?,
        "u" => {
            let path = path_of(&descriptor.path_or_inline_dv)?;
            let at = |e: Error| e.at_location(store.location().join(&path).to_string());
            decode_bitmap(&read_stored(store, &path, descriptor).map_err(at)?).map_err(at)?
        }
        "p" => {
            return Err(wrong("one at an absolute path".to_owned())
                .with_hint("copy the table as a whole (e.g. a deep clone), and convert that"));
        }
        other => return Err(wrong(format!("one stored as `{other}`"))),
    };
    if rows.len() != descriptor.cardinality {
        return Err(wrong(format!("one of {} rows, where the log states {}", rows.len(), descriptor.cardinality)));
    }
    Ok(rows)
}

/// Returns the path of the file that has a deletion vector; `None` if the log itself has it.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if it is at an absolute path, or the place is none.
pub(super) fn file_of(descriptor: &Descriptor) -> Result<Option<String>> {
    match descriptor.storage_type.as_str() {
        "i" => Ok(None),
        "u" => path_of(&descriptor.path_or_inline_dv).map(Some),
        // An absolute path is refused by name.
        _ => data_path(&descriptor.path_or_inline_dv).map(Some),
    }
}

fn decode_inline(text: &str) -> Result<Vec<u8>> {
    z85::decode(text.as_bytes())
        .map_err(|e| Error::input("expected a deletion vector in Z85, found other text").with_cause(e))
}

/// Returns the path of the file that `folder` and id name.
fn path_of(place: &str) -> Result<String> {
    let wrong = || Error::input(format!("expected the id of a deletion vector, found `{place}`"));
    let start = place.len().checked_sub(ID_CHARS).filter(|start| place.is_char_boundary(*start)).ok_or_else(wrong)?;
    let id: [u8; 16] = decode_inline(&place[start..])?.try_into().map_err(|_| wrong())?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let id = [&id[..4], &id[4..6], &id[6..8], &id[8..10], &id[10..]].map(hex).join("-");
    let folder = if start == 0 { String::new() } else { format!("{}/", &place[..start]) };
    // Folder and id are no URL, so nothing is decoded: `%` stays.
    data_path(&format!("{folder}deletion_vector_{id}.bin").replace('%', "%25"))
}

fn read_stored(store: &dyn Store, path: &str, descriptor: &Descriptor) -> Result<Vec<u8>> {
    let offset = descriptor.offset.unwrap_or(1);
    let end = offset.saturating_add(descriptor.size_in_bytes).saturating_add(8);
    match store.head(path)? {
        Some(facts) if facts.bytes >= end => {}
        Some(facts) => {
            let message = format!("expected a deletion vector up to byte {end}, found {} bytes", facts.bytes);
            return Err(Error::input(message).at_byte(offset));
        }
        None => return Err(Error::input("expected the file of a deletion vector, found none")),
    }
    let bytes = store.get_range(path, offset..end)?;
    let word = |at: usize| bytes.get(at..at + 4).and_then(|word| Some(u32::from_be_bytes(word.try_into().ok()?)));
    let data = bytes.get(4..bytes.len().saturating_sub(4)).unwrap_or_default();
    if word(0).map(u64::from) != Some(descriptor.size_in_bytes) {
        return Err(Error::input(format!(
            "expected a deletion vector of {} bytes, found another",
            descriptor.size_in_bytes
        ))
        .at_byte(offset));
    }
    if word(bytes.len().saturating_sub(4)) != Some(crc32fast::hash(data)) {
        return Err(
            Error::input("expected a deletion vector with the checksum behind it, found another").at_byte(offset)
        );
    }
    Ok(data.to_vec())
}

fn decode_bitmap(data: &[u8]) -> Result<RoaringTreemap> {
    let damaged = || Error::input("expected a bitmap of deleted rows, found other bytes");
    let bitmap = data.strip_prefix(&MAGIC).ok_or_else(damaged)?;
    RoaringTreemap::deserialize_from(bitmap).map_err(|e| damaged().with_cause(e))
}

/// Returns which of `count` rows from `first` on are deleted, as their numbers from 0.
pub(super) fn deleted_rows_in(rows: &RoaringTreemap, first: u64, count: u64) -> impl Iterator<Item = u64> {
    let mut rows = rows.iter();
    rows.advance_to(first);
    rows.map(move |row| row - first).take_while(move |row| *row < count)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    /// Rows 3, 4, 7, 11, 18 and 29, as delta-kernel's tests state them.
    const VECTOR: &str = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L";

    #[test]
    fn names_are_those_of_the_protocol() {
        // The example of Delta's specification.
        let name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin";
        assert_eq!(path_of("ab^-aqEH.-t@S}K{vb[*k^").unwrap(), format!("ab/{name}"));
        assert_eq!(path_of("^-aqEH.-t@S}K{vb[*k^").unwrap(), name);
        for bad in ["", "short", "../^-aqEH.-t@S}K{vb[*k^", "é-aqEH.-t@S}K{vb[*k^"] {
            assert!(path_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn inline_vectors_are_those_of_the_protocol() {
        let rows = decode_bitmap(&decode_inline(VECTOR).unwrap()).unwrap();
        assert_eq!(rows.iter().collect::<Vec<_>>(), [3, 4, 7, 11, 18, 29]);
        assert_eq!(deleted_rows_in(&rows, 4, 8).collect::<Vec<_>>(), [0, 3, 7]);
        assert_eq!(deleted_rows_in(&rows, 30, 100).count(), 0);
    }

    #[test]
    fn damage_is_an_error() {
        let data = decode_inline(VECTOR).unwrap();
        for length in 0..data.len() {
            assert!(decode_bitmap(&data[..length]).is_err(), "{length}");
        }
    }
}
