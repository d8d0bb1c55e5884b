//! The receipt of an erasure: what was erased, where, when and by what, for whoever has to show that it was done.
//!
//! It names nobody: ids are HMAC-SHA-256 under the dataset's salt, which stands beside them, so that whoever knows an id can
//! find it; of private ids the token is hashed, so that it takes their key, too. It is one JSON object, kept as
//! `_shardify/receipts/<txn>.json` for ever.

use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;

use super::{EraseOptions, EraseReport};
use crate::{
    codec::{
        hex::{hash_or_none, hex},
        merkle::Hash,
        seal::close_json,
    },
    dataset::{Asked, CHECKED_RECEIPT, Entry, Rewrite, Salt},
    error::{Error, Result},
    exec::erase::Victim,
    id::{TransactionId, Version},
    storage::{self, Location, SYSTEM_FOLDER, Store, StoreSettings},
};

/// What became of a shard.
#[derive(Debug, Clone, Serialize)]
pub struct ShardReceipt {
    /// Path of the old shard.
    pub was: String,
    /// BLAKE3 of its bytes.
    pub was_blake3: String,
    /// Its records.
    pub records_before: u64,
    /// Records of it that were erased.
    pub records_erased: u64,
    /// Whether the newest version had it.
    pub live: bool,
    /// Path of the new shard; absent when no record was left.
    pub now: Option<String>,
    /// BLAKE3 of its bytes.
    pub now_blake3: Option<String>,
    /// Its size.
    pub now_bytes: Option<u64>,
}

impl ShardReceipt {
    /// A shard that was written anew.
    pub(super) fn of(rewrite: &Rewrite) -> Self {
        let now = rewrite.now.as_ref().map(|shard| &shard.meta);
        Self {
            was: rewrite.was.path.clone(),
            was_blake3: hex(&rewrite.was.checksum),
            records_before: rewrite.was.records,
            records_erased: rewrite.was.records - now.map_or(0, |now| now.records),
            live: rewrite.live,
            now: now.map(|now| now.path.clone()),
            now_blake3: now.map(|now| hex(&now.checksum)),
            now_bytes: now.map(|now| now.bytes),
        }
    }

    /// A shard that would be.
    pub(super) fn planned(victim: &Victim, live: bool) -> Self {
        Self {
            was: victim.shard.path.clone(),
            was_blake3: hex(&victim.shard.checksum),
            records_before: victim.shard.records,
            records_erased: victim.ordinals.len() as u64,
            live,
            now: None,
            now_blake3: None,
            now_bytes: None,
        }
    }
}

/// An erased id.
#[derive(Debug, Serialize)]
struct IdReceipt {
    hmac_sha256: String,
    records: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    erased_in: Option<Version>,
}

/// The receipt.
#[derive(Debug, Serialize)]
pub(super) struct Receipt {
    r#type: &'static str,
    schema: u32,
    dataset: String,
    erased_at: String,
    tool: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    all_versions: bool,
    version_before: Version,
    version_after: Version,
    /// What `manifest --root` prints of these versions; absent where an older release wrote something of them.
    #[serde(skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    root_before: Option<Hash>,
    #[serde(skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    root_after: Option<Hash>,
    /// Versions that still have the records, until they are vacuumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_in: Option<(Version, Version)>,
    salt: String,
    ids: Vec<IdReceipt>,
    records_erased: u64,
    shards: Vec<ShardReceipt>,
    /// What the new shards were held against: record by record, after they were written.
    verified: bool,
    objects_deleted: Vec<String>,
    rejects_erased: u64,
    sources_erased: u64,
    names_kept: u64,
    objects_unreferenced: u64,
}

impl Receipt {
    pub(super) fn new(
        ids: &[Asked<'_>],
        salt: &Salt,
        report: &EraseReport,
        deleted: Vec<String>,
        (before, after): (&Entry, &Entry),
        options: &EraseOptions,
    ) -> Self {
        let id = |(asked, report): (&Asked<'_>, &super::IdReport)| IdReceipt {
            hmac_sha256: hex(&salt.hash(asked.text())),
            records: report.records,
            erased_in: report.erased_in,
        };
        Self {
            r#type: "erasure",
            schema: CHECKED_RECEIPT,
            dataset: report.dataset.clone(),
            erased_at: format!("{:.6}", Timestamp::now()),
            tool: concat!("shardify ", env!("CARGO_PKG_VERSION")),
            reason: options.reason.clone(),
            all_versions: options.all_versions,
            version_before: before.version,
            version_after: after.version,
            root_before: before.root,
            root_after: after.root,
            kept_in: report.kept_in,
            salt: salt.encode(),
            ids: ids.iter().zip(&report.ids).filter(|(_, report)| !report.is_missing()).map(id).collect(),
            records_erased: report.records_erased,
            shards: report.shards.clone(),
            verified: true,
            objects_deleted: deleted,
            rejects_erased: report.rejects_erased,
            sources_erased: report.sources_erased,
            names_kept: report.names_kept.len() as u64,
            objects_unreferenced: report.objects_unreferenced,
        }
    }

    fn encode(&self) -> Result<Bytes> {
        let failed = || Error::internal("encoding a receipt failed");
        let json = serde_json::to_vec_pretty(self).map_err(|e| failed().cause(e))?;
        Ok(close_json(json).ok_or_else(failed)?.into())
    }

    /// Keeps it in the dataset; returns its path.
    pub(super) fn write(&self, store: &dyn Store, transaction: &TransactionId) -> Result<String> {
        let path = format!("{SYSTEM_FOLDER}/receipts/{transaction}.json");
        store.put(&path, self.encode()?)?;
        Ok(path)
    }

    /// Writes it where the user wants it.
    pub(super) fn write_to(&self, location: &Location, settings: &StoreSettings) -> Result<()> {
        storage::save(location, settings, self.encode()?)
    }
}
