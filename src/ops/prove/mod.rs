//! Creates proofs that an id is in a version or not, and certificates that nobody is in two splits of one ([`split`]).
//! Verifies both without a dataset.
//!
//! A proof is a JSON object of a few kilobytes. It contains, for each segment of the id index, the block of pairs that
//! contains or would contain the id's hash, and the hashes that lead from there to the root of the version:
//!
//! ```text
//! block -> hash of its bucket -> leaf of the bucket -> root of the segment -> its leaf -> root of the version
//! ```
//!
//! The hash of the id determines the bucket. A proof reveals the hashes of some other ids, but no id. It covers stored
//! ids only, in datasets made with `--proofs`; a record whose only name is `source#row` has none. The head that leads
//! to the root states whether ids are stored as they are or as tokens: a proof that looks up a plain id where tokens
//! are stored proves nothing. The index contains the first 64 bits of a hash, so the presence of a token is proved only
//! for its first 16 digits.

mod check;
mod split;

use serde::{Deserialize, Serialize};

use self::check::{check_proof, proved_records};
pub use self::{
    check::{Verified, verify_bytes, verify_proof},
    split::{CertificateReport, SplitFacts, prove_split},
};
use super::{Context, manifest};
use crate::{
    codec::{base64::to_base64, hex::to_hex, merkle::Hash},
    dataset::{Block, HashWidth, IdQuery, PAIR_BYTES, Snapshot, VersionTree, has_origin, pseudonymizer_of},
    error::{Error, Result},
    events::Event,
    id::Version,
    storage::{self, Location},
};

/// Version of the proof format.
const SCHEMA: u32 = 2;

/// What a proof proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// A record of the version carries the id.
    Present,
    /// No record does.
    Absent,
}

/// A proof.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proof {
    r#type: String,
    schema: u32,
    claim: Claim,
    /// The id, or its token if ids are private.
    id: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    private: bool,
    /// Salt of a dataset that derives its own tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salt: Option<String>,
    version: Version,
    root: String,
    leaves: u64,
    head: String,
    head_path: Vec<String>,
    segments: Vec<SegmentProof>,
}

/// The part of a proof about one segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SegmentProof {
    leaf: u64,
    text: String,
    path: Vec<String>,
    bucket: BucketProof,
}

/// The bucket of a segment that contains the hash of the id, or would contain it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct BucketProof {
    text: String,
    path: Vec<String>,
    blocks: Vec<BlockProof>,
}

/// Pairs of a bucket.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct BlockProof {
    index: u64,
    pairs: String,
    path: Vec<String>,
}

/// How the ids of a version are stored, as stated by the head of its root.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ids {
    /// In plain form.
    Plain,
    /// As tokens: the mode, and the check value of the key.
    Tokens(String, String),
}

/// Result of creating or verifying a proof.
#[derive(Debug, Clone, Serialize)]
pub struct ProofReport {
    /// The id, or its token if ids are private.
    pub id: String,
    /// Whether it is a token.
    pub is_token: bool,
    /// The statement of the proof.
    pub claim: Claim,
    /// Version of the dataset.
    pub version: Version,
    /// Root of the version, in hexadecimal.
    pub root: String,
    /// Whether the root equals the one that the user expects. Otherwise the proof shows only what follows from the root
    /// that it contains itself.
    pub root_checked: bool,
    /// How ids are stored: `plain`, `hmac` or `sealed`; absent if the proof does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<String>,
    /// Check value of the key of private ids, as stated by the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_check: Option<String>,
    /// Whether the proof is about the id that the user gave; absent if none was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id_checked: Option<bool>,
    /// Numbers of the records that carry the id.
    pub records: Vec<u64>,
    /// What is wrong with the proof; absent if it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl ProofReport {
    /// Returns whether the proof holds and everything that it depends on was verified.
    pub fn is_complete(&self) -> bool {
        self.problem.is_none() && self.root_checked
    }
}

/// Values that the user knows from elsewhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected<'a> {
    /// Root of the version, in hexadecimal.
    pub root: Option<&'a str>,
    /// The id; if ids are private, comparing it requires their key.
    pub id: Option<&'a str>,
}

fn hex_hashes(hashes: &[Hash]) -> Vec<String> {
    hashes.iter().map(|hash| to_hex(hash)).collect()
}

/// Returns the root of a version, in hexadecimal.
///
/// # Errors
/// When there is no such version, or it cannot be read.
pub fn version_root(context: &Context<'_>, location: &Location, at: Option<&str>) -> Result<(Version, String)> {
    let snapshot = manifest::open_snapshot(context, location, at)?;
    let tree = super::or_overtaken(Some(&snapshot), VersionTree::new(&snapshot, None))?;
    Ok((snapshot.version(), to_hex(&tree.merkle_root())))
}

/// Proves that an id is in a version, or that it is not, and writes the proof to `out`.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) for ids that are not stored; when the version cannot be read.
pub fn prove_id(
    context: &Context<'_>,
    location: &Location,
    at: Option<&str>,
    id: &str,
    out: &Location,
) -> Result<ProofReport> {
    let snapshot = manifest::open_snapshot(context, location, at)?;
    let (proof, report) = super::or_overtaken(Some(&snapshot), proof_of(context, &snapshot, id))?;
    let mut bytes =
        serde_json::to_vec_pretty(&proof).map_err(|e| Error::internal("encoding a proof failed").with_cause(e))?;
    bytes.push(b'\n');
    storage::save_file(out, &context.settings, bytes.into())?;
    let others = proof.pairs_shown();
    if others > 0 && !proof.private {
        context.observer.event(Event::Note(format!(
            "the proof shows {others} hashes of ids; anyone who can guess ids may recognise others by them, so \
             give it only to those who may know them (ids of a private dataset cannot be guessed without its key)"
        )));
    }
    Ok(report)
}

impl Proof {
    /// Returns the number of index pairs that the proof reveals.
    fn pairs_shown(&self) -> u64 {
        let blocks = self.segments.iter().flat_map(|segment| &segment.bucket.blocks);
        blocks.map(|block| block.pairs.trim_end_matches('=').len() as u64 * 3 / 4 / PAIR_BYTES as u64).sum()
    }
}

/// Creates a proof about an id, and verifies it.
fn proof_of(context: &Context<'_>, snapshot: &Snapshot, id: &str) -> Result<(Proof, ProofReport)> {
    if has_origin(snapshot, id)? {
        return Err(Error::usage(
            "expected an id that is stored, found the origin of a record, which is not in the index",
        )
        .with_hint("records get ids of their own with `convert --id`"));
    }
    if !snapshot.entry().settings.hashes.has_proofs() {
        return Err(HashWidth::without_proofs()
            .at_location(snapshot.dataset().store().location().to_string())
            .with_hint(
                "`shardify manifest --find ID` tells whether it is there; to prove it, convert the sources with \
         --proofs into a new --out",
            ));
    }
    let pseudonymizer = pseudonymizer_of(snapshot)?;
    let query = IdQuery::new(pseudonymizer.as_ref(), id);
    let tree = VersionTree::new(snapshot, Some(query.hash))?;
    let segments = tree.segments.iter().enumerate().map(|(number, segment)| {
        let (leaf, path) = tree.segment_path(number);
        let shown = segment.bucket.as_ref().ok_or_else(|| Error::internal("a segment shows no bucket"))?;
        let block = |block: &Block| BlockProof {
            index: block.index,
            pairs: to_base64(&block.pairs),
            path: hex_hashes(&block.path),
        };
        let bucket = BucketProof {
            text: shown.text.clone(),
            path: hex_hashes(&shown.path),
            blocks: shown.blocks.iter().map(block).collect(),
        };
        Ok(SegmentProof { leaf: leaf as u64, text: segment.text.clone(), path: hex_hashes(&path), bucket })
    });
    let segments = segments.collect::<Result<_>>()?;
    let mut proof = Proof {
        r#type: "proof".to_owned(),
        schema: SCHEMA,
        claim: Claim::Absent,
        id: query.hashed_text().to_owned(),
        private: pseudonymizer.is_some(),
        salt: snapshot.entry().settings.private.as_ref().and_then(|private| private.salt.clone()),
        version: snapshot.version(),
        root: to_hex(&tree.merkle_root()),
        leaves: tree.leaf_count() as u64,
        head: tree.head_text().to_owned(),
        head_path: hex_hashes(&tree.head_path()),
        segments,
    };
    let records =
        proved_records(&proof).map_err(|problem| Error::internal(format!("a proof does not hold: {problem}")))?;
    proof.claim = if records.is_empty() { Claim::Absent } else { Claim::Present };
    let own = proof.root.clone();
    let report = check_proof(&proof, Expected { root: Some(&own), id: Some(id) }, context.id_key.as_deref());
    if let Some(problem) = &report.problem {
        return Err(Error::internal(format!("a proof does not hold: {problem}")));
    }
    Ok((proof, report))
}
