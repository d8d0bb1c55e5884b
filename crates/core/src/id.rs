//! Newtypes for numbers and hashes that identify things, so that they cannot be confused.

use std::fmt;

use sha2::{Digest, Sha256, block_api::compress256};

/// Number of a dataset version; the first commit makes version 1, version 0 is the empty dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl Version {
    /// Returns the version that the next commit creates.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// Hash of a record id or subject id in the id index: the first eight bytes, big-endian, of the SHA-256 of the id's
/// UTF-8 text, so that any SQL engine with `sha256` can compute it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdHash(pub u64);

/// Initial state of SHA-256 (FIPS 180-4, 5.3.3).
const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Offset of the length in bits within the last SHA-256 block.
const LENGTH_AT: usize = 56;

impl IdHash {
    /// Hashes the text of an id.
    pub fn from_id(id: &str) -> Self {
        let text = id.as_bytes();
        if text.len() < LENGTH_AT {
            // Nearly all ids fit into one block with their padding; building that block here is faster than the general
            // hasher.
            let mut block = [0; 64];
            block[..text.len()].copy_from_slice(text);
            block[text.len()] = 0x80;
            block[LENGTH_AT..].copy_from_slice(&(8 * text.len() as u64).to_be_bytes());
            let mut state = INITIAL;
            compress256(&mut state, &[block]);
            return Self((u64::from(state[0]) << 32) | u64::from(state[1]));
        }
        let digest = Sha256::digest(id.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Self(u64::from_be_bytes(first))
    }
}

impl IdHash {
    /// Returns the hash of a private id, which is the first 16 hexadecimal digits of its token. The result for other
    /// texts is unspecified.
    pub fn of_token(token: &str) -> Self {
        Self(token.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default())
    }
}

/// Identifies one run that writes to a dataset: 32 hexadecimal digits that no other run has. The run wrote every log
/// entry that contains its id, and every object whose path contains the id or its [tag](Self::short_tag).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct TransactionId(pub String);

/// Number of hexadecimal digits of a tag.
const TAG_DIGITS: usize = 16;

impl TransactionId {
    /// Creates an id from the operating system's randomness and from facts that no two runs share.
    pub fn fresh() -> Self {
        use std::{collections::hash_map::RandomState, hash::BuildHasher, time::SystemTime};
        let mut hasher = blake3::Hasher::new();
        let mut random = [0_u8; 32];
        // If the system has no randomness yet, the facts below must suffice.
        let drawn = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::NONBLOCK).unwrap_or(0);
        hasher.update(&random[..drawn]);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
        hasher.update(&now.to_le_bytes());
        hasher.update(&std::process::id().to_le_bytes());
        hasher.update(&RandomState::new().hash_one(now).to_le_bytes());
        Self(hasher.finalize().to_hex()[..32].to_owned())
    }

    /// Returns the name of the folder for the run's shards: the first 16 digits.
    pub fn short_tag(&self) -> &str {
        self.0.get(..TAG_DIGITS).unwrap_or(&self.0)
    }

    /// Returns the name of one of several folders of the run, numbered from 0: `<tag>`, `<tag>-2`, `<tag>-3` ...
    pub fn tag_of(&self, folder: usize) -> String {
        if folder == 0 { self.short_tag().to_owned() } else { format!("{}-{}", self.short_tag(), folder + 1) }
    }
}

/// One of the writers of a run, which gives their objects names that no other writer uses. Most runs have one writer;
/// of a plan, each attempt of a task is one.
///
/// ```text
///                  folder of shards   below `_shardify/`
/// the only writer  <tag>              <id>-0, <id>-1, <id>.jsonl
/// writer 0         <tag>              <id>-0-0, <id>-0-1, <id>-0.jsonl
/// writer 7         <tag>-8            <id>-7-0, ...
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// The run.
    pub run: TransactionId,
    /// Number of the writer; `None` if it is the only one.
    pub serial: Option<usize>,
}

impl Writer {
    /// Returns the folder of the writer's shards.
    pub fn shard_folder(&self) -> String {
        self.run.tag_of(self.serial.unwrap_or(0))
    }
}

impl From<TransactionId> for Writer {
    fn from(run: TransactionId) -> Self {
        Self { run, serial: None }
    }
}

impl fmt::Display for Writer {
    /// Formats the start of the names of its objects below `_shardify/`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.serial {
            None => write!(f, "{}", self.run),
            Some(serial) => write!(f, "{}-{serial}", self.run),
        }
    }
}

/// Returns the tag of the run that wrote the objects in a folder of this name, `<tag>` or `<tag>-2`; `None` for other
/// names.
pub fn run_of_folder(folder: &str) -> Option<&str> {
    let (tag, serial) = folder.split_once('-').unwrap_or((folder, "2"));
    let is_serial = !serial.is_empty() && serial.bytes().all(|b| b.is_ascii_digit());
    (is_serial && tag.len() == TAG_DIGITS && is_hex(tag)).then_some(tag)
}

/// Returns the tag of the run whose id is at the start of a name, as in `<32 digits>.json` or
/// `<32 digits>-0-shards-0.parquet`.
pub fn run_of_name(name: &str) -> Option<&str> {
    let (id, rest) = (name.get(..2 * TAG_DIGITS)?, name.get(2 * TAG_DIGITS..)?);
    (is_hex(id) && (rest.is_empty() || rest.starts_with(['.', '-']))).then(|| &id[..TAG_DIGITS])
}

/// Whether a text consists of lower-case hexadecimal digits only.
pub fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Creates a UUID of version 7 (RFC 9562, 5.7): milliseconds since 1970, then bits that no two runs share.
pub fn run_uuid() -> String {
    use std::time::SystemTime;
    let millis = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_millis());
    let random = u128::from_str_radix(&TransactionId::fresh().0, 16).unwrap_or_default();
    let low = random & ((1 << 62) - 1) | (0b10 << 62);
    let number = (millis << 80) | (7 << 76) | ((random >> 100) & 0xfff) << 64 | low;
    let hex = format!("{number:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_hash_is_the_head_of_sha256() {
        // printf PAT-00023 | sha256sum | head -c 16
        let expected = u64::from_be_bytes(Sha256::digest(b"PAT-00023")[..8].try_into().unwrap_or([0; 8]));
        assert_eq!(IdHash::from_id("PAT-00023").0, expected);
        assert_ne!(IdHash::from_id("PAT-00023"), IdHash::from_id("PAT-00024"));
        for length in 0..200 {
            let id = "é7x".repeat(50)[..].chars().take(length).collect::<String>();
            let expected = u64::from_be_bytes(Sha256::digest(id.as_bytes())[..8].try_into().unwrap_or([0; 8]));
            assert_eq!(IdHash::from_id(&id).0, expected, "{length}");
        }
    }

    #[test]
    fn uuids_have_the_version_and_variant_of_the_standard() {
        let (one, other) = (run_uuid(), run_uuid());
        assert_ne!(one, other);
        assert_eq!((one.len(), &one[14..15]), (36, "7"));
        assert!(matches!(&one[19..20], "8" | "9" | "a" | "b"), "{one}");
        assert!(one[..13] <= other[..13]);
    }

    #[test]
    fn transaction_ids_differ() {
        assert_ne!(TransactionId::fresh(), TransactionId::fresh());
    }

    #[test]
    fn folders_and_names_reveal_their_run() {
        let id = TransactionId("0123456789abcdef0123456789abcdef".into());
        assert_eq!(
            (id.short_tag(), id.tag_of(0), id.tag_of(2)),
            ("0123456789abcdef", id.short_tag().into(), format!("{}-3", id.short_tag()))
        );
        for folder in ["0123456789abcdef", "0123456789abcdef-2", "0123456789abcdef-13"] {
            assert_eq!(run_of_folder(folder), Some(id.short_tag()), "{folder}");
        }
        for folder in
            ["0123456789ab", "0123456789abcdef-", "0123456789abcdef-x", "0123456789ABCDEF", "0123456789abcdef0"]
        {
            assert_eq!(run_of_folder(folder), None, "{folder}");
        }
        for name in [format!("{id}.json"), format!("{id}-0-shards-0.parquet"), id.to_string()] {
            assert_eq!(run_of_name(&name), Some(id.short_tag()), "{name}");
        }
        for name in ["0123456789abcdef.json".to_owned(), format!("{id}0.json"), "é".repeat(20)] {
            assert_eq!(run_of_name(&name), None, "{name}");
        }
    }
}
