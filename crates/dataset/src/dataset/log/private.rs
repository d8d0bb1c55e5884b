//! Private ids of a dataset: what its settings say about them.

use std::sync::Arc;

use super::{entry::Settings, snapshot::Snapshot};
use crate::{
    dataset::ids::private::{
        IdKey, IdMode, PrivateChoice, PrivateIds, Pseudonymizer, SEPARATOR, checked_key, is_token,
    },
    error::{Error, Result},
    id::{IdHash, TransactionId},
};

/// How content hashes of records compare with those that a dataset stores.
#[derive(Debug, Clone)]
pub enum ContentHashes {
    /// Stored unchanged.
    Plain,
    /// Stored keyed.
    Keyed(Arc<IdKey>),
    /// Stored keyed, and the key is unknown: only checksums of whole shards detect damage.
    Unknown,
}

impl ContentHashes {
    /// Returns how a snapshot's dataset stores them.
    pub fn from_snapshot(snapshot: &Snapshot) -> Self {
        match (&snapshot.entry().settings.private, snapshot.dataset().id_key()) {
            (Some(private), key) => match checked_key(private, key) {
                Ok(key) => Self::Keyed(key),
                Err(_) => Self::Unknown,
            },
            (None, _) => Self::Plain,
        }
    }

    /// Returns a content hash as it is stored; `None` without the key.
    pub fn to_stored(&self, hash: u64) -> Option<u64> {
        match self {
            Self::Plain => Some(hash),
            Self::Keyed(key) => Some(key.content_hash(hash)),
            Self::Unknown => None,
        }
    }

    /// Whether records cannot be compared.
    pub fn are_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }
}

/// Returns how the ids of a dataset are stored, given its current settings and the request.
///
/// # Errors
/// If the request contradicts the dataset, or there is no key.
pub fn choose_private(
    old: Option<&Settings>,
    choice: PrivateChoice,
    key: Option<&Arc<IdKey>>,
) -> Result<Option<PrivateIds>> {
    let PrivateChoice { mode: asked, redact_sources: redact, salted, key_named } = choice;
    let Some(old) = old else {
        if key_named && asked.is_none() {
            return Err(Error::usage(
                "expected --id-mode hmac or sealed beside --id-key, found none: ids would be plain",
            ));
        }
        let mode = asked.unwrap_or(IdMode::Plain);
        if mode == IdMode::Plain {
            return match (redact, salted) {
                (true, _) => {
                    Err(Error::usage("expected --id-mode hmac or sealed beside --redact-source-paths, found none")
                        .with_hint("source names are hidden with the key of the ids"))
                }
                (false, true) => Err(Error::usage("expected --id-mode hmac or sealed beside --id-salt, found none")),
                (false, false) => Ok(None),
            };
        }
        let key = key.ok_or_else(|| {
            Error::usage(format!("expected a key for --id-mode {}, found none", mode.name()))
                .with_hint("name a file with --id-key, or put the key into $SHARDIFY_ID_KEY")
                .with_hint("make one with `head -c 32 /dev/urandom > ids.key`, and keep it apart from the dataset")
        })?;
        let salt = if salted { Some(TransactionId::fresh().0) } else { None };
        let check =
            salt.as_ref().map_or_else(|| Ok(key.check.clone()), |salt| key.derive_key(salt).map(|key| key.check))?;
        return Ok(Some(PrivateIds { mode, check, redacted_sources: redact, salt }));
    };
    let mode = old.private.as_ref().map_or(IdMode::Plain, |private| private.mode);
    if asked.is_some_and(|asked| asked != mode) {
        let asked = asked.map_or("", IdMode::name);
        return Err(Error::usage(format!(
            "this dataset was created with --id-mode {}; you gave --id-mode {asked}",
            mode.name()
        ))
        .with_hint("how ids are stored is chosen when a dataset is made; name another one with --out"));
    }
    if redact && !old.private.as_ref().is_some_and(|private| private.redacted_sources) {
        return Err(Error::usage(
            "this dataset was made without --redact-source-paths: its source names are stored unredacted",
        )
        .with_hint("name another dataset with --out"));
    }
    if salted && old.private.as_ref().is_none_or(|private| private.salt.is_none()) {
        return Err(Error::usage("this dataset was made without --id-salt: its tokens depend on the key alone")
            .with_hint("name another dataset with --out"));
    }
    if let Some(private) = &old.private {
        checked_key(private, key)?;
    }
    Ok(old.private.clone())
}

/// Returns the hash of a stored id, as used in the id index.
pub fn stored_hash(settings: &Settings, stored: &str) -> IdHash {
    if settings.private.is_some() { IdHash::of_token(stored) } else { IdHash::from_id(stored) }
}

/// Returns the conversion of a snapshot's ids to their stored form; `None` if ids are plain.
///
/// # Errors
/// If the key is missing or wrong.
pub fn pseudonymizer_of(snapshot: &Snapshot) -> Result<Option<Pseudonymizer>> {
    Pseudonymizer::from_settings(&snapshot.entry().settings, snapshot.dataset().id_key())
        .map_err(|error| error.at_location(snapshot.dataset().store().location().to_string()))
}

impl Pseudonymizer {
    /// Returns the conversion that the settings of a dataset require; `None` if ids are plain.
    ///
    /// # Errors
    /// If there is no key, or it is not that of the dataset.
    pub fn from_settings(settings: &Settings, key: Option<&Arc<IdKey>>) -> Result<Option<Self>> {
        settings.private.as_ref().map(|private| Self::from_private(private, key)).transpose()
    }
}

impl Snapshot {
    /// Returns an id for display: sealed ids are decrypted if the key is known, otherwise shown as tokens.
    ///
    /// # Errors
    /// If the key is not that of the dataset, or a sealed id is damaged.
    pub fn shown_id(&self, stored: String) -> Result<String> {
        let Some(private) = &self.entry().settings.private else { return Ok(stored) };
        let Some((token, _)) = stored.split_once(SEPARATOR).filter(|(token, _)| is_token(token)) else {
            return Ok(stored);
        };
        match self.dataset().id_key() {
            Some(key) if private.mode == IdMode::Sealed => {
                Ok(checked_key(private, Some(key))?.unseal_id(&stored)?.unwrap_or(stored))
            }
            _ => Ok(token.to_owned()),
        }
    }
}
