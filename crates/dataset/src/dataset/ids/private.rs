//! Private ids: what a dataset stores in place of personal ids.
//!
//! A plain hash of `PAT-00023` can be reversed by hashing all such texts. With a 32-byte key that is never stored, each
//! id becomes a token that can be computed only with the key:
//!
//! ```text
//! token     first 16 bytes, as 32 hexadecimal digits, of HMAC-SHA-256(key, id)
//! stored    token                          mode hmac
//!           token "." sealed id            mode sealed: base64url of XChaCha20-Poly1305, nonce = token, 8 zero bytes
//! index     first 8 bytes of the token     sorted by hash, as for plain ids
//! hash      first 8 bytes of HMAC-SHA-256(key "content hashes", hash of the record or source), 0 stays 0
//! ```
//!
//! All other keys are derived from this one by HKDF-SHA-256, so that the output of one key reveals nothing about
//! another. Equal ids have equal tokens: the index requires it, and it is the only thing that tokens reveal.

use std::{borrow::Cow, sync::Arc};

use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce, aead::Aead};
use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use sha2::{Sha256, block_api::compress256};

use crate::{
    codec::{
        base64::{from_any_base64, push_base64url},
        hex::{from_hex, push_hex, to_hex},
        sha256::INITIAL,
    },
    dataset::ids::Wanted,
    error::{Error, Result},
    id::IdHash,
    record::{fingerprint::FingerprintKey, numbers::Numbers},
};

type HmacSha256 = Hmac<Sha256>;

/// Length of a key in bytes.
const KEY_BYTES: usize = 32;
/// Number of HMAC bytes in a token.
const TOKEN_BYTES: usize = 16;
/// Length of a token in characters.
const TOKEN_CHARS: usize = 2 * TOKEN_BYTES;
/// Separates a token and a sealed id.
pub(in crate::dataset) const SEPARATOR: char = '.';
/// Prefix of a redacted URL.
const REDACTED: &str = "hmac:";

/// How ids are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IdMode {
    /// Unchanged.
    Plain,
    /// As tokens.
    Hmac,
    /// As tokens, each followed by the encrypted id.
    Sealed,
}

impl IdMode {
    /// Returns the mode's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Hmac => "hmac",
            Self::Sealed => "sealed",
        }
    }
}

/// What a dataset with private ids records about them; fixed when the dataset is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateIds {
    /// `hmac` or `sealed`.
    pub mode: IdMode,
    /// Check value that identifies the right key and reveals nothing else.
    pub check: String,
    /// Whether source names are tokens as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redacted_sources: bool,
    /// Salt that makes the derived key specific to this dataset, so that other datasets with the same key have other
    /// tokens; 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<String>,
}

/// The requested handling of ids in a dataset.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct PrivateChoice {
    /// How ids are stored; `None`: as the dataset already stores them.
    pub mode: Option<IdMode>,
    /// Whether source names are private as well.
    pub redact_sources: bool,
    /// Whether tokens differ from those of other datasets with the same key.
    pub salted: bool,
    /// Whether the key was given for this run, rather than by a default for all runs.
    pub key_named: bool,
}

/// The id key of a dataset.
#[derive(Clone)]
pub struct IdKey {
    ids: Keyed,
    sources: Keyed,
    contents: Keyed,
    /// Key of fingerprints of records.
    fingerprints: FingerprintKey,
    cipher: XChaCha20Poly1305,
    pub(in crate::dataset) check: String,
    /// Key from which the keys of salted datasets are derived.
    extracted: Keyed,
}

impl std::fmt::Debug for IdKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdKey").field("check", &self.check).finish_non_exhaustive()
    }
}

impl IdKey {
    /// Parses a key: 32 raw bytes, or 64 hexadecimal digits or base64, optionally surrounded by whitespace.
    ///
    /// # Errors
    /// If it is none of these; the message does not quote the input.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let bad = || {
            Error::usage("expected an id key of 32 bytes, raw or in hexadecimal or base64, found something else")
                .with_hint("make one with `head -c 32 /dev/urandom > ids.key`, and keep it apart from the dataset")
        };
        if let Ok(raw) = <[u8; KEY_BYTES]>::try_from(bytes) {
            return Self::new_checked(&raw);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| bad())?.trim();
        let key = if text.len() == 2 * KEY_BYTES { from_hex(text) } else { from_any_base64(text) };
        Self::new_checked(&key.and_then(|key| <[u8; KEY_BYTES]>::try_from(key).ok()).ok_or_else(bad)?)
    }

    /// Rejects keys that cannot be random: a file of zeros, or one byte repeated.
    fn new_checked(key: &[u8; KEY_BYTES]) -> Result<Self> {
        if key.iter().all(|byte| *byte == 0) {
            return Err(Error::usage("expected a random id key, found 32 zero bytes")
                .with_hint("make one with `head -c 32 /dev/urandom > ids.key`, and keep it apart from the dataset"));
        }
        Self::new(key)
    }

    fn new(key: &[u8; KEY_BYTES]) -> Result<Self> {
        let extracted = Keyed::new(&Keyed::new(b"shardify private ids v1")?.compute_mac(key))?;
        let derived =
            |label: &str| -> Result<[u8; 32]> { Ok(extracted.compute_mac(&[label.as_bytes(), &[1]].concat())) };
        Ok(Self {
            ids: Keyed::new(key)?,
            sources: Keyed::new(&derived("sources")?)?,
            contents: Keyed::new(&derived("content hashes")?)?,
            fingerprints: derived("record fingerprints")?,
            cipher: XChaCha20Poly1305::new(&derived("sealed ids")?.into()),
            check: to_hex(&derived("check")?[..8]),
            extracted,
        })
    }

    /// Returns the key of a dataset with this salt.
    ///
    /// # Errors
    /// None in practice, because all keys have one length.
    pub fn derive_key(&self, salt: &str) -> Result<Self> {
        Self::new(&self.extracted.compute_mac(&[b"dataset ", salt.as_bytes(), &[1]].concat()))
    }

    /// Returns the token of an id.
    pub fn id_token(&self, id: &str) -> String {
        to_hex(&self.ids.compute_mac(id.as_bytes())[..TOKEN_BYTES])
    }

    /// Returns the check value, which identifies the key.
    pub fn check_value(&self) -> &str {
        &self.check
    }

    /// Returns the token of a source name.
    fn source_token(&self, name: &str) -> String {
        to_hex(&self.sources.compute_mac(name.as_bytes())[..TOKEN_BYTES])
    }

    /// Returns the keyed content hash. 0, which means that no hash was computed, maps to 0, and nothing else does.
    pub(in crate::dataset) fn content_hash(&self, hash: u64) -> u64 {
        if hash == 0 {
            return 0;
        }
        let mac = self.contents.compute_mac(&hash.to_le_bytes());
        mac.first_chunk().map_or(1, |first| u64::from_le_bytes(*first).max(1))
    }

    /// Appends the token and the sealed id.
    fn seal_id(&self, id: &str, out: &mut String) -> Result<()> {
        let mac = self.ids.compute_mac(id.as_bytes());
        let sealed = self.cipher.encrypt(&token_nonce(&mac[..TOKEN_BYTES]), id.as_bytes());
        push_hex(&mac[..TOKEN_BYTES], out);
        out.push(SEPARATOR);
        push_base64url(&sealed.map_err(|_| Error::internal("sealing an id failed"))?, out);
        Ok(())
    }

    /// Decrypts a sealed id; `None` if nothing is sealed in the text.
    pub(in crate::dataset) fn unseal_id(&self, stored: &str) -> Result<Option<String>> {
        let Some((token, sealed)) = stored.split_once(SEPARATOR) else { return Ok(None) };
        let damaged =
            || Error::integrity("a sealed id cannot be opened: it is damaged, or was sealed with another key");
        let sealed = from_any_base64(sealed).ok_or_else(damaged)?;
        let nonce = token_nonce(&from_hex(token).ok_or_else(damaged)?);
        let id = self.cipher.decrypt(&nonce, sealed.as_slice()).map_err(|_| damaged())?;
        let id = String::from_utf8(id).map_err(|_| damaged())?;
        if self.id_token(&id) == token { Ok(Some(id)) } else { Err(damaged()) }
    }
}

/// HMAC-SHA-256 with a fixed key. Nearly all ids fit one SHA-256 block with their padding; then only two blocks are
/// hashed, from states that are computed once.
#[derive(Clone)]
struct Keyed {
    inner: [u32; 8],
    outer: [u32; 8],
    general: HmacSha256,
}

impl Keyed {
    /// Creates an HMAC with a key of up to 64 bytes.
    fn new(key: &[u8]) -> Result<Self> {
        let wrong = || Error::internal("a key has a wrong length");
        let general = HmacSha256::new_from_slice(key).map_err(|_| wrong())?;
        let state = |mixed: u8| {
            let mut block = [mixed; 64];
            block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            let mut state = INITIAL;
            compress256(&mut state, &[block]);
            state
        };
        if key.len() > 64 { Err(wrong()) } else { Ok(Self { inner: state(0x36), outer: state(0x5c), general }) }
    }

    fn compute_mac(&self, text: &[u8]) -> [u8; 32] {
        if text.len() >= 56 {
            let mut mac = self.general.clone();
            mac.update(text);
            return mac.finalize().into_bytes().into();
        }
        digest_of(self.outer, &digest_of(self.inner, text))
    }
}

/// Returns the SHA-256 of an already processed block followed by a text of at most 55 bytes.
fn digest_of(mut state: [u32; 8], text: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..text.len()].copy_from_slice(text);
    block[text.len()] = 0x80;
    block[56..].copy_from_slice(&(8 * (64 + text.len() as u64)).to_be_bytes());
    compress256(&mut state, &[block]);
    let mut digest = [0; 32];
    digest.as_chunks_mut::<4>().0.iter_mut().zip(state).for_each(|(bytes, word)| *bytes = word.to_be_bytes());
    digest
}

/// Returns a nonce that is unique for each id, because no two ids share a token.
fn token_nonce(token: &[u8]) -> XNonce {
    let mut nonce = XNonce::default();
    nonce.iter_mut().zip(token).take(TOKEN_BYTES).for_each(|(byte, token)| *byte = *token);
    nonce
}

/// Converts ids and source names to their stored form.
#[derive(Debug, Clone)]
pub struct Pseudonymizer {
    pub(in crate::dataset) key: Arc<IdKey>,
    pub(in crate::dataset) mode: IdMode,
    sources: bool,
}

impl Pseudonymizer {
    /// Like [`Self::from_settings`], from the settings of a dataset.
    ///
    /// # Errors
    /// Like [`Self::from_settings`].
    pub fn from_private(private: &PrivateIds, key: Option<&Arc<IdKey>>) -> Result<Self> {
        let key = checked_key(private, key)?;
        Ok(Self { key, mode: private.mode, sources: private.redacted_sources })
    }

    /// Returns the key of fingerprints of records.
    pub fn fingerprint_key(&self) -> FingerprintKey {
        self.key.fingerprints
    }

    /// Replaces the content of `out` with the stored form of an id.
    ///
    /// # Errors
    /// If it cannot be sealed.
    pub fn encode_id(&self, id: &str, out: &mut String) -> Result<()> {
        out.clear();
        if self.mode == IdMode::Sealed {
            return self.key.seal_id(id, out);
        }
        push_hex(&self.key.ids.compute_mac(id.as_bytes())[..TOKEN_BYTES], out);
        Ok(())
    }

    /// Returns the stored form of a source name.
    pub fn stored_source<'n>(&self, name: &'n str) -> Cow<'n, str> {
        if self.sources && !name.is_empty() { Cow::Owned(self.key.source_token(name)) } else { Cow::Borrowed(name) }
    }

    /// Returns the stored form of the content hash of a record or source.
    pub fn content_hash(&self, hash: u64) -> u64 {
        self.key.content_hash(hash)
    }

    /// Returns the stored form of records' content hashes.
    pub fn content_hashes(&self, hashes: Numbers) -> Numbers {
        hashes.map_numbers(|hash| self.key.content_hash(hash))
    }

    /// Returns the text that is hashed for an erased id: the part of the stored id that both modes share.
    pub(in crate::dataset) fn id_token(&self, id: &str) -> String {
        self.key.id_token(id)
    }

    /// Returns the stored form of an origin, `source#row`; `None` if the text is not an origin.
    pub(in crate::dataset) fn stored_origin(&self, id: &str) -> Option<String> {
        let (name, row) = id.rsplit_once('#')?;
        Some(format!("{}#{row}", self.stored_source(name)))
    }

    /// Whether a stored id is the stored form of `id`.
    pub fn matches_id(&self, stored: &str, id: &str) -> bool {
        token_of(stored) == self.id_token(id)
    }

    /// Returns the stored form of a source URL.
    pub fn stored_uri<'n>(&self, uri: &'n str) -> Cow<'n, str> {
        if self.sources { Cow::Owned(format!("{REDACTED}{}", self.key.source_token(uri))) } else { Cow::Borrowed(uri) }
    }
}

/// Returns the dataset's key if it was made with the given one.
pub(in crate::dataset) fn checked_key(private: &PrivateIds, key: Option<&Arc<IdKey>>) -> Result<Arc<IdKey>> {
    let key = key.ok_or_else(|| {
        Error::usage(format!("the ids of this dataset are private ({}): expected their key", private.mode.name()))
            .with_hint("name the file of the key with --id-key, or put it into $SHARDIFY_ID_KEY")
    })?;
    let key = match &private.salt {
        Some(salt) => Arc::new(key.derive_key(salt)?),
        None => Arc::clone(key),
    };
    if key.check == private.check {
        return Ok(key);
    }
    Err(Error::usage(format!(
        "expected the id key of this dataset, whose check value is {}, found another one with {}",
        private.check, key.check
    ))
    .with_hint("each dataset has the key that it was made with"))
}

/// An id in a query.
#[derive(Debug)]
pub struct IdQuery<'a> {
    /// Its hash in the index.
    pub hash: IdHash,
    id: &'a str,
    token: Option<String>,
    pseudonymizer: Option<&'a Pseudonymizer>,
}

impl<'a> IdQuery<'a> {
    /// Creates a query from a plain id.
    pub fn new(pseudonymizer: Option<&'a Pseudonymizer>, id: &'a str) -> Self {
        let token = pseudonymizer.map(|pseudonymizer| pseudonymizer.key.id_token(id));
        let hash = token.as_ref().map_or_else(|| IdHash::from_id(id), |token| IdHash::of_token(token));
        Self { hash, id, token, pseudonymizer }
    }

    /// Whether a stored id is this one.
    pub(in crate::dataset) fn matches_stored(&self, stored: &str) -> bool {
        match &self.token {
            Some(token) => token_of(stored) == token || self.stored_origin().is_some_and(|origin| origin == stored),
            None => stored == self.id,
        }
    }

    /// Returns the stored form of the origin that the id may be.
    pub(in crate::dataset) fn stored_origin(&self) -> Option<String> {
        match self.pseudonymizer {
            Some(pseudonymizer) => pseudonymizer.stored_origin(self.id),
            None => self.id.contains('#').then(|| self.id.to_owned()),
        }
    }

    /// Returns the stored name of the source whose origin the id may be.
    pub fn source_of_origin(&self) -> Option<String> {
        let origin = self.stored_origin()?;
        let (source, row) = origin.rsplit_once('#')?;
        row.parse::<u64>().is_ok().then(|| source.to_owned())
    }

    /// Returns what the index is asked for.
    pub(in crate::dataset) fn as_wanted(&self) -> Wanted<'_> {
        Wanted { hash: self.hash, id: self.hashed_text() }
    }

    /// Returns the plain id.
    pub fn plain_id(&self) -> &'a str {
        self.id
    }

    /// Returns the text to hash when only a hash of the id may be kept: the id itself, or its token.
    pub fn hashed_text(&self) -> &str {
        self.token.as_deref().unwrap_or(self.id)
    }
}

/// Returns a stored id without its sealed part; other texts unchanged.
pub fn token_of(stored: &str) -> &str {
    stored.split_once(SEPARATOR).filter(|(token, _)| is_token(token)).map_or(stored, |(token, _)| token)
}

pub(in crate::dataset) fn is_token(text: &str) -> bool {
    text.len() == TOKEN_CHARS && text.bytes().all(|b| b.is_ascii_hexdigit())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn key() -> IdKey {
        IdKey::parse(&[7; 32]).unwrap()
    }

    fn sealed(id: &str) -> String {
        let mut out = String::new();
        key().seal_id(id, &mut out).unwrap();
        out
    }

    #[test]
    fn short_texts_have_the_code_of_the_general_hasher() {
        for key in [&[7; 32][..], b"", &[255; 64]] {
            let keyed = Keyed::new(key).unwrap();
            for length in 0..130 {
                let text = vec![b'x'; length];
                let mut general = HmacSha256::new_from_slice(key).unwrap();
                general.update(&text);
                let expected: [u8; 32] = general.finalize().into_bytes().into();
                assert_eq!(keyed.compute_mac(&text), expected, "{length}");
            }
        }
        assert!(Keyed::new(&[0; 65]).is_err());
    }

    #[test]
    fn tokens_are_hmac_sha_256() {
        // RFC 4231, test case 2, with the zero padding that HMAC applies to a short key.
        let mut padded = [0; 32];
        padded[..4].copy_from_slice(b"Jefe");
        let token = IdKey::parse(&padded).unwrap().id_token("what do ya want for nothing?");
        assert_eq!(token, "5bdcc146bf60754e6a042426089575c7");
        assert_eq!(IdHash::of_token(&token).0, 0x5bdc_c146_bf60_754e);
    }

    #[test]
    fn keys_are_read_in_three_forms_and_never_printed() {
        let text = to_hex(&[7; 32]);
        let base64 = "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
        for form in [text.as_str(), &format!("{text}\n"), base64, base64.trim_end_matches('=')] {
            assert_eq!(IdKey::parse(form.as_bytes()).unwrap().check, key().check, "{form}");
        }
        assert!(!format!("{:?}", key()).contains(&text));
        for bad in ["", "secret", &text[1..], &format!("{text}0")] {
            let error = IdKey::parse(bad.as_bytes()).unwrap_err().to_string();
            assert!(bad.is_empty() || !error.contains(bad), "{error}");
        }
    }

    #[test]
    fn sealed_ids_are_opened_by_their_key_alone() {
        for id in ["", "PAT-00023", "é漢", &"x".repeat(10_000)] {
            let sealed = sealed(id);
            assert_eq!(sealed, self::sealed(id));
            assert_eq!(token_of(&sealed), key().id_token(id));
            assert_eq!(key().unseal_id(&sealed).unwrap().unwrap(), id);
            assert!(IdKey::parse(&[8; 32]).unwrap().unseal_id(&sealed).is_err());
            let mut damaged = sealed.clone();
            let last = damaged.pop().unwrap();
            damaged.push(if last == 'A' { 'Q' } else { 'A' });
            assert!(key().unseal_id(&damaged).is_err());
        }
    }
}
