//! Corrections of object headers between the file and the crate, which does not support three things that files
//! contain:
//!
//! ```text
//! layout of version 2       same bytes as version 1, which the crate supports: the number is changed
//! layout of class 3         a virtual dataset, for which the crate refuses the file: it loses its data, and is noted
//! attribute of a named type its type is in another object: the message is removed (type 0), and read here
//! ```
//! A header is recognised by the crate's requests: 16 bytes of version 1 and then as many as these state, or a piece
//! that begins with `OHDR` and ends in its own checksum. Headers may continue elsewhere, at addresses that they state.
//! Nothing else is changed.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
};

use hdf5_reader::{
    Attribute as Hdf5Attribute, Hdf5File,
    checksum::jenkins_lookup3,
    error::Error as Hdf5Error,
    io::Cursor,
    messages::{HdfMessage, dataspace, datatype},
};

use super::checks::{CHECKSUM, has_valid_checksum};

const LINKS: u8 = 0x02;
const DATATYPE: u8 = 0x03;
const LAYOUT: u8 = 0x08;
const ATTRIBUTE: u8 = 0x0c;
const CONTINUATION: u8 = 0x10;
const SYMBOLS: u8 = 0x11;

/// Versions of descriptions of types.
const TYPE_VERSIONS: std::ops::RangeInclusive<u8> = 1..=5;

/// Bytes before the messages of version 1.
const PREFIX: usize = 16;

/// What is known of the headers so far.
#[derive(Debug)]
pub(super) struct Headers {
    /// Offset of the file in its storage.
    base: u64,
    state: Mutex<HeaderState>,
}

#[derive(Debug, Default)]
struct HeaderState {
    /// The last header of version 1 whose start was read, and its bytes.
    begun: Option<(u64, usize)>,
    /// Continuations of headers: object and form, by offset.
    going_on: HashMap<u64, (u64, MessageFraming)>,
    /// Attributes that were removed from headers, by object.
    removed: HashMap<u64, Vec<RemovedAttribute>>,
    /// Virtual datasets, whose values are stored in other datasets.
    mapped: HashSet<u64>,
    /// Datasets whose chunks are unfiltered where they extend beyond the shape.
    bare_edges: HashSet<u64>,
    /// Objects whose type cannot be read, with the reason.
    refused_types: HashMap<u64, String>,
    /// Objects whose header was read, and whether a message identifies their kind.
    objects: HashMap<u64, bool>,
}

/// Framing of messages.
#[derive(Debug, Clone, Copy)]
struct MessageFraming {
    version: u8,
    /// Whether each message has a creation order.
    numbered: bool,
}

/// An attribute of a named type, as it is stored.
#[derive(Debug, Clone)]
struct RemovedAttribute {
    name: String,
    /// Address of the object that is the type.
    type_at: u64,
    dataspace: Vec<u8>,
    data: Vec<u8>,
}

fn number_at(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    Some(bytes.get(at..at + width)?.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)))
}

fn size_at(bytes: &[u8], at: usize, width: usize) -> Option<usize> {
    number_at(bytes, at, width).and_then(|number| usize::try_from(number).ok())
}

impl Headers {
    pub(super) fn new(base: u64) -> Self {
        Self { base, state: Mutex::default() }
    }

    /// Returns the offset of the file in its storage.
    pub(super) fn base_offset(&self) -> u64 {
        self.base
    }

    /// Whether an object is a virtual dataset.
    pub(super) fn is_virtual(&self, object: u64) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.mapped.contains(&object.saturating_add(self.base))
    }

    /// Whether the chunks of a dataset are unfiltered where they extend beyond its shape.
    pub(super) fn has_bare_edges(&self, object: u64) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.bare_edges.contains(&object.saturating_add(self.base))
    }

    /// Returns why the type of an object cannot be read; `None` if it can.
    pub(super) fn refused_type(&self, object: u64) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.refused_types.get(&object.saturating_add(self.base)).cloned()
    }

    /// Fails on objects that are neither a group nor a dataset nor a type, which the crate ignores: their headers were
    /// altered. `extension` is the address of the superblock extension, which is none of these.
    ///
    /// # Errors
    /// If there is such an object.
    pub(super) fn all_known(&self, extension: Option<u64>) -> Result<(), Hdf5Error> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let extension = extension.map(|at| at.saturating_add(self.base));
        let unknown =
            state.objects.iter().filter(|(at, known)| !**known && Some(**at) != extension).map(|(at, _)| at).min();
        let Some(at) = unknown else { return Ok(()) };
        Err(Hdf5Error::InvalidData(format!(
            "object header at byte {at}: expected the messages of a group, a dataset or a type, found none of them"
        )))
    }

    /// Returns the bytes to give to the crate instead of these; `None` if they need no correction.
    pub(super) fn correct_bytes(&self, offset: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.starts_with(b"OHDR") {
            return self.correct_version_2(&mut state, offset, bytes);
        }
        if let Some((object, form)) = state.going_on.get(&offset).copied() {
            let messages = match form.version {
                1 => 0..bytes.len(),
                _ if bytes.starts_with(b"OCHK") && has_valid_checksum(bytes) => 4..bytes.len() - CHECKSUM,
                _ => return None,
            };
            return self.correct_messages(&mut state, object, form, bytes, messages);
        }
        if bytes.len() == PREFIX && bytes.starts_with(&[1, 0]) {
            state.objects.entry(offset).or_default();
            state.begun = size_at(bytes, 8, 4).and_then(|size| Some((offset, size.checked_add(PREFIX)?)));
            return None;
        }
        if state.begun == Some((offset, bytes.len())) && bytes.len() > PREFIX {
            let form = MessageFraming { version: 1, numbered: false };
            return self.correct_messages(&mut state, offset, form, bytes, PREFIX..bytes.len());
        }
        None
    }

    /// Corrects a header of version 2.
    fn correct_version_2(&self, state: &mut HeaderState, offset: u64, bytes: &[u8]) -> Option<Vec<u8>> {
        let flags = *bytes.get(5)?;
        let width = 1_usize << (flags & 3);
        let at = 6 + if flags & 0x20 != 0 { 16 } else { 0 } + if flags & 0x10 != 0 { 4 } else { 0 };
        let start = at + width;
        let end = start.checked_add(size_at(bytes, at, width)?)?;
        if end.checked_add(CHECKSUM)? != bytes.len() || bytes[4] != 2 || !has_valid_checksum(bytes) {
            return None;
        }
        state.objects.entry(offset).or_default();
        let form = MessageFraming { version: 2, numbered: flags & 4 != 0 };
        self.correct_messages(state, offset, form, bytes, start..end)
    }

    fn correct_messages(
        &self,
        state: &mut HeaderState,
        object: u64,
        form: MessageFraming,
        bytes: &[u8],
        messages: std::ops::Range<usize>,
    ) -> Option<Vec<u8>> {
        let mut changes: Vec<(usize, u8)> = Vec::new();
        let (envelope, type_width) = match form.version {
            1 => (8, 2),
            _ if form.numbered => (6, 1),
            _ => (4, 1),
        };
        let mut at = messages.start;
        while at + envelope <= messages.end {
            let (kind, length) = (size_at(bytes, at, type_width)?, size_at(bytes, at + type_width, 2)?);
            let flags = bytes[at + type_width + 2];
            let data = at + envelope;
            let message = bytes.get(data..data + length).filter(|_| data + length <= messages.end)?;
            let unshared = flags & 2 == 0;
            if [LINKS, DATATYPE, SYMBOLS].iter().any(|known| usize::from(*known) == kind) {
                state.objects.insert(object, true);
            }
            match u8::try_from(kind) {
                Ok(DATATYPE) if unshared => {
                    if let Some(why) = refused_type(message) {
                        state.refused_types.insert(object, why);
                    }
                }
                Ok(LAYOUT) if unshared && message.first() == Some(&2) => changes.push((data, 1)),
                // Version 4 or later, chunked, with an option that the crate ignores.
                Ok(LAYOUT) if unshared && matches!(message, [4 | 5, 2, flags, ..] if flags & 1 != 0) => {
                    state.bare_edges.insert(object);
                }
                // Version 4 or later, class 3; then the former address is the length of the data of class 0.
                Ok(LAYOUT) if unshared && matches!(message, [4 | 5, 3, _, _, ..]) => {
                    state.mapped.insert(object);
                    changes.extend((1..4).map(|at| (data + at, 0)));
                }
                Ok(ATTRIBUTE) if unshared => {
                    if let Some(removed) = self.removed_attribute(message) {
                        state.removed.entry(object).or_default().push(removed);
                        changes.push((at, 0));
                    }
                }
                Ok(CONTINUATION) => {
                    if let Some(next) = number_at(message, 0, 8) {
                        state.going_on.insert(next.saturating_add(self.base), (object, form));
                    }
                }
                _ => {}
            }
            at = data + length;
        }
        if changes.is_empty() {
            return None;
        }
        let mut corrected = bytes.to_vec();
        changes.into_iter().for_each(|(at, byte)| corrected[at] = byte);
        if form.version == 2 {
            let end = corrected.len() - CHECKSUM;
            let sum = jenkins_lookup3(&corrected[..end]);
            corrected[end..].copy_from_slice(&sum.to_le_bytes());
        }
        Some(corrected)
    }

    /// Returns an attribute whose type, and only that, is stored elsewhere.
    fn removed_attribute(&self, message: &[u8]) -> Option<RemovedAttribute> {
        let version = *message.first()?;
        if !matches!((version, message.get(1)?), (2 | 3, 1)) {
            return None;
        }
        let lengths = [size_at(message, 2, 2)?, size_at(message, 4, 2)?, size_at(message, 6, 2)?];
        let mut at = if version == 3 { 9 } else { 8 };
        let mut next = |length: usize| {
            at += length;
            message.get(at - length..at)
        };
        let (name, datatype, dataspace) = (next(lengths[0])?, next(lengths[1])?, next(lengths[2])?);
        let type_at = match datatype.first()? {
            1 => number_at(datatype, 8, 8)?,
            2 => number_at(datatype, 2, 8)?,
            3 if datatype.get(1) == Some(&2) => number_at(datatype, 2, 8)?,
            _ => return None,
        };
        let name = String::from_utf8(name.strip_suffix(b"\0").unwrap_or(name).to_vec()).ok()?;
        Some(RemovedAttribute { name, type_at, dataspace: dataspace.to_vec(), data: message[at..].to_vec() })
    }

    /// Returns the attributes of an object that were removed from its header.
    ///
    /// # Errors
    /// If a type cannot be read.
    pub(super) fn removed_attributes(&self, file: &Hdf5File, object: u64) -> Result<Vec<Hdf5Attribute>, Hdf5Error> {
        let removed = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.removed.get(&object.saturating_add(self.base)).cloned().unwrap_or_default()
        };
        let mut attributes: Vec<Hdf5Attribute> = Vec::with_capacity(removed.len());
        for RemovedAttribute { name, type_at, dataspace: space, data } in removed {
            // The crate may have read a header several times.
            if attributes.iter().any(|known| known.name == name) {
                continue;
            }
            let header = file.get_or_parse_header(type_at)?;
            let datatype = header.messages.iter().find_map(|message| match message {
                HdfMessage::Datatype(message) => Some(message),
                _ => None,
            });
            let Some(datatype::DatatypeMessage { datatype, size, .. }) = datatype else {
                return Err(Hdf5Error::InvalidData(format!(
                    "expected a type for attribute `{name}`, found another object"
                )));
            };
            let space = dataspace::parse(&mut Cursor::new(&space), 8, 8, space.len())?;
            let bytes = space.num_elements()?.checked_mul(u64::from(*size)).and_then(|n| usize::try_from(n).ok());
            let raw_data = bytes.and_then(|bytes| data.get(..bytes)).map(<[u8]>::to_vec);
            let cut = || Hdf5Error::InvalidData(format!("attribute `{name}` is cut short"));
            let raw_data = raw_data.ok_or_else(cut)?;
            let (datatype, shape) = (datatype.clone(), space.dims.clone());
            attributes.push(Hdf5Attribute { name, datatype, shape, raw_data, decoded_strings: None });
        }
        Ok(attributes)
    }
}

/// Returns why a type cannot be read although the crate parses it: its version does not exist, or its integers have
/// fewer bits than bytes, so that bits would have to be moved and signs extended.
fn refused_type(message: &[u8]) -> Option<String> {
    let (version, class) = (message.first()? >> 4, message.first()? & 0x0f);
    if !TYPE_VERSIONS.contains(&version) {
        return Some(format!("a datatype of version {version}, which HDF5 does not define"));
    }
    let (bytes, first, bits) = (number_at(message, 4, 4)?, number_at(message, 8, 2)?, number_at(message, 10, 2)?);
    (class == 0 && (first, bits) != (0, 8 * bytes)).then(|| format!("integers of {bits} bits in {bytes} bytes"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    /// A message of version 1.
    fn message(kind: u16, data: &[u8]) -> Vec<u8> {
        let mut out = kind.to_le_bytes().to_vec();
        out.extend_from_slice(&u16::try_from(data.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(data);
        out
    }

    fn header(messages: &[u8]) -> Vec<u8> {
        let mut out = vec![1, 0, 1, 0, 1, 0, 0, 0];
        out.extend_from_slice(&u32::try_from(messages.len()).unwrap().to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(messages);
        out
    }

    #[test]
    fn layouts_of_version_2_become_those_of_version_1() {
        let headers = Headers::new(0);
        let mut moved = 900_u64.to_le_bytes().to_vec();
        moved.extend_from_slice(&16_u64.to_le_bytes());
        let messages = [message(8, &[2, 3, 1, 0, 0, 0, 0, 0]), message(0x10, &moved)].concat();
        let bytes = header(&messages);
        // It was not requested as a header.
        assert_eq!(headers.correct_bytes(100, &bytes), None);
        assert_eq!(headers.correct_bytes(100, &bytes[..16]), None);
        let corrected = headers.correct_bytes(100, &bytes).unwrap();
        let changed: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != corrected[*at]).collect();
        assert_eq!((changed, corrected[24]), (vec![24], 1));
        // It continues elsewhere.
        let rest = message(8, &[2, 1, 2, 0, 0, 0, 0, 0]);
        assert_eq!(headers.correct_bytes(900, &rest).unwrap()[8], 1);
        assert_eq!(headers.correct_bytes(901, &rest), None);
    }

    #[test]
    fn invalid_objects_are_refused_and_virtual_ones_are_recorded() {
        let headers = Headers::new(512);
        let read = |at: u64, bytes: &[u8]| {
            headers.correct_bytes(at, &bytes[..16]);
            headers.correct_bytes(at, bytes)
        };
        read(1000, &header(&[message(3, &[0; 8]), message(8, &[3, 1, 0, 0, 0, 0, 0, 0])].concat()));
        read(1100, &header(&message(0x11, &[0; 16])));
        assert!(headers.all_known(None).is_ok());
        // The type of its message was changed to an unknown one.
        read(1200, &header(&message(0x43, &[0; 8])));
        let error = headers.all_known(None).unwrap_err().to_string();
        assert!(error.contains("object header at byte 1200: expected the messages of a group"), "{error}");
        assert!(headers.all_known(Some(688)).is_ok());
        let corrected = read(1300, &header(&message(8, &[4, 3, 9, 9, 9, 0, 0, 0]))).unwrap();
        assert_eq!(corrected[24..32], [4, 0, 0, 0, 9, 0, 0, 0]);
        assert!(headers.is_virtual(788) && !headers.is_virtual(488));
    }

    #[test]
    fn attributes_of_named_types_are_taken_out() {
        let headers = Headers::new(0);
        let mut attribute = vec![3, 1, 2, 0, 10, 0, 4, 0, 0, b'a', 0, 3, 2];
        attribute.extend_from_slice(&77_u64.to_le_bytes());
        attribute.extend_from_slice(&[2, 0, 0, 0, 42]);
        let mut bytes = b"OHDR\x02\x00".to_vec();
        bytes.push(u8::try_from(attribute.len() + 4).unwrap());
        bytes.extend_from_slice(&[0x0c, u8::try_from(attribute.len()).unwrap(), 0, 0]);
        bytes.extend_from_slice(&attribute);
        let sum = jenkins_lookup3(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let corrected = headers.correct_bytes(50, &bytes).unwrap();
        assert!(corrected[7] == 0 && has_valid_checksum(&corrected));
        let state = headers.state.lock().unwrap();
        let removed = &state.removed[&50][0];
        assert_eq!((removed.name.as_str(), removed.type_at, removed.data.as_slice()), ("a", 77, &[42][..]));
        drop(state);
        // The crate detects the damage.
        bytes[9] ^= 1;
        assert_eq!(headers.correct_bytes(50, &bytes), None);
        for cut in 0..bytes.len() {
            assert_eq!(headers.correct_bytes(50, &bytes[..cut]), None);
        }
    }
}
