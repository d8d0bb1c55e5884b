//! The receipt of an erasure: a record of what was erased, where, when and by which program, as evidence.
//!
//! It contains no ids: they are replaced by HMAC-SHA-256 under the dataset's salt, which the receipt contains, so a
//! known id can be matched; for private ids the token is hashed, so that matching requires their key as well. It is one
//! JSON object, kept permanently as `_shardify/receipts/<txn>.json`.

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    options::EraseOptions,
    report::{EraseReport, IdReport},
};
use crate::{
    codec::{
        hex::{hash_or_none, to_hex},
        merkle::Hash,
    },
    dataset::{Entry, FORMAT_VERSION, IdQuery, Rewrite, Salt, encode_closed, receipt_path},
    error::{Error, Result},
    exec::erase::AffectedShard,
    id::{TransactionId, Version},
    ops::training::SeenSummary,
    storage::{self, Location, Store, StoreSettings},
};

/// Effect of the erasure on a shard.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShardReceipt {
    /// Path of the old shard.
    pub was: String,
    /// BLAKE3 of the old shard.
    pub was_blake3: String,
    /// Number of its records.
    pub records_before: u64,
    /// Number of its records that were erased.
    pub records_erased: u64,
    /// Whether the newest version had it.
    pub live: bool,
    /// Path of the new shard; absent if no record was left.
    pub now: Option<String>,
    /// BLAKE3 of the new shard.
    pub now_blake3: Option<String>,
    /// Size of the new shard in bytes.
    pub now_bytes: Option<u64>,
}

impl ShardReceipt {
    /// Returns the entry of a rewritten shard.
    pub(super) fn from_rewrite(rewrite: &Rewrite) -> Self {
        let now = rewrite.now.as_ref().map(|shard| &shard.meta);
        Self {
            was: rewrite.was.path.clone(),
            was_blake3: to_hex(&rewrite.was.checksum),
            records_before: rewrite.was.records,
            records_erased: rewrite.was.records - now.map_or(0, |now| now.records),
            live: rewrite.live,
            now: now.map(|now| now.path.clone()),
            now_blake3: now.map(|now| to_hex(&now.checksum)),
            now_bytes: now.map(|now| now.bytes),
        }
    }

    /// Returns the entry of a shard that a plan would rewrite.
    pub(super) fn from_affected(affected: &AffectedShard, live: bool) -> Self {
        Self {
            was: affected.shard.path.clone(),
            was_blake3: to_hex(&affected.shard.checksum),
            records_before: affected.shard.records,
            records_erased: affected.ordinals.len() as u64,
            live,
            now: None,
            now_blake3: None,
            now_bytes: None,
        }
    }
}

/// An erased id.
#[derive(Debug, Serialize, Deserialize)]
struct IdReceipt {
    hmac_sha256: String,
    records: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    erased_in: Option<Version>,
}

/// The receipt. Its statements about versions and deletions are known only when the erasure is finished.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Receipt {
    r#type: String,
    schema: u32,
    dataset: String,
    erased_at: String,
    tool: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    pub(super) all_versions: bool,
    pub(super) version_before: Version,
    pub(super) version_after: Version,
    /// Root hashes that `manifest --root` prints for these versions.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    pub(super) root_before: Option<Hash>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hash_or_none")]
    pub(super) root_after: Option<Hash>,
    /// Oldest and newest version that still contain the records, until they are vacuumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept_in: Option<(Version, Version)>,
    salt: String,
    ids: Vec<IdReceipt>,
    records_erased: u64,
    shards: Vec<ShardReceipt>,
    /// Training runs whose version had some of the records, and which of their steps saw them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    training_runs: Vec<SeenSummary>,
    /// Whether the new shards were read back and compared with the old ones, record by record.
    verified: bool,
    pub(super) objects_deleted: Vec<String>,
    pub(super) rejects_erased: u64,
    /// Damaged objects that may name the erased, and were not searched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) not_searched: Vec<String>,
    sources_erased: u64,
    names_kept: u64,
    /// Objects that no version refers to; absent if not all locations of the dataset could be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) objects_unreferenced: Option<u64>,
}

impl Receipt {
    pub(super) fn new(
        ids: &[IdQuery<'_>],
        salt: &Salt,
        report: &EraseReport,
        newest: &Entry,
        options: &EraseOptions,
    ) -> Self {
        let id = |(query, report): (&IdQuery<'_>, &IdReport)| IdReceipt {
            hmac_sha256: to_hex(&salt.hash(query.hashed_text())),
            records: report.records,
            erased_in: report.erased_in,
        };
        Self {
            r#type: "erasure".to_owned(),
            schema: FORMAT_VERSION,
            dataset: report.dataset.clone(),
            erased_at: format!("{:.6}", Timestamp::now()),
            tool: concat!("shardify ", env!("CARGO_PKG_VERSION")).to_owned(),
            reason: options.reason.clone(),
            all_versions: options.all_versions,
            version_before: newest.version,
            version_after: newest.version,
            root_before: newest.root,
            root_after: newest.root,
            kept_in: report.kept_in,
            salt: salt.hex_text(),
            ids: ids.iter().zip(&report.ids).filter(|(_, report)| !report.is_missing()).map(id).collect(),
            records_erased: report.records_erased,
            shards: report.shards.clone(),
            training_runs: report.training_runs.clone(),
            verified: true,
            objects_deleted: Vec::new(),
            rejects_erased: 0,
            not_searched: Vec::new(),
            sources_erased: report.sources_erased,
            names_kept: report.names_kept.len() as u64,
            objects_unreferenced: None,
        }
    }

    /// Returns its form in an order, before it is complete.
    pub(super) fn to_value(&self) -> Result<Value> {
        serde_json::to_value(self).map_err(|e| Error::internal("encoding a receipt failed").with_cause(e))
    }

    /// Parses that form.
    pub(super) fn of_value(value: Value) -> Result<Self> {
        serde_json::from_value(value)
            .map_err(|e| Error::integrity("the receipt of an erasure is damaged").with_cause(e))
    }

    fn encode(&self) -> Result<Bytes> {
        Ok(encode_closed(self, "a receipt")?.into())
    }

    /// Writes it to the dataset, unless another run has done so already; returns its path.
    pub(super) fn write(&self, store: &dyn Store, transaction: &TransactionId) -> Result<String> {
        let path = receipt_path(transaction);
        store.put_if_absent(&path, self.encode()?)?;
        Ok(path)
    }
}

/// Copies a receipt to the user's destination.
pub(super) fn copy_receipt(store: &dyn Store, path: &str, to: &Location, settings: &StoreSettings) -> Result<()> {
    let missing = || Error::storage("the receipt is missing").at_location(store.location().join(path).to_string());
    storage::save_file(to, settings, store.get(path)?.ok_or_else(missing)?)
}
