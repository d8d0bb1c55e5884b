//! Proofs that an id is in a version or not, and the check of such a proof, which needs no dataset.
//!
//! A proof is a JSON object of a few kilobytes. It holds, for each segment of the id index, the block of pairs where the
//! hash of the id is or would be, with the hashes that lead from there to the root of the version:
//!
//! ```text
//! block -> hash of its bucket -> leaf of the bucket -> root of its segment -> leaf of the segment -> root of the version
//! ```
//!
//! Which bucket it is follows from the hash of the id. A proof shows the hashes of some other ids, but no id. It speaks of ids that are stored; a record whose only name is `source#row` has none.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Context, manifest};
use crate::{
    codec::{
        base64::{base64, from_base64},
        chunk_tree,
        hex::{from_hex, hex},
        merkle::{self, Hash},
    },
    dataset::{Asked, BLOCK_PAIRS, Block, PAIR_BYTES, VersionTree, bucket_of, has_origin, hiding_of},
    error::{Error, Result},
    id::{IdHash, Version},
    storage::{self, Location},
};

/// Version of the form of proofs.
const SCHEMA: u32 = 2;

/// What a proof proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Claim {
    /// A record of the version carries the id.
    Present,
    /// None does.
    Absent,
}

/// A proof.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Proof {
    r#type: String,
    schema: u32,
    claim: Claim,
    /// The id, or where ids are private its token.
    id: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    private: bool,
    version: Version,
    root: String,
    leaves: u64,
    head: String,
    head_path: Vec<String>,
    segments: Vec<SegmentProof>,
}

/// What a proof says of a segment.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct SegmentProof {
    leaf: u64,
    text: String,
    path: Vec<String>,
    bucket: BucketProof,
}

/// The bucket of a segment that has the hash of the id, or would have it.
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

/// What was proved, or checked.
#[derive(Debug, Clone, Serialize)]
pub struct ProofReport {
    /// The id.
    pub id: String,
    /// What the proof says.
    pub claim: Claim,
    /// Version of the dataset.
    pub version: Version,
    /// Root of the version, in hexadecimal.
    pub root: String,
    /// Numbers of the records that carry the id.
    pub records: Vec<u64>,
    /// What is wrong with it; absent when it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

fn texts(hashes: &[Hash]) -> Vec<String> {
    hashes.iter().map(|hash| hex(hash)).collect()
}

/// The root of a version, in hexadecimal.
///
/// # Errors
/// When there is no such version, or it cannot be read.
pub fn root(context: &Context<'_>, location: &Location, at: Option<&str>) -> Result<(Version, String)> {
    let snapshot = manifest::snapshot(context, location, at)?;
    Ok((snapshot.version(), hex(&VersionTree::new(&snapshot, None)?.root())))
}

/// Proves that an id is in a version, or that it is not, and writes the proof to `out`.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) for ids that are not stored; when the version cannot be read.
pub fn prove(
    context: &Context<'_>,
    location: &Location,
    at: Option<&str>,
    id: &str,
    out: &Location,
) -> Result<ProofReport> {
    let snapshot = manifest::snapshot(context, location, at)?;
    if has_origin(&snapshot, id)? {
        return Err(Error::usage(
            "expected an id that is stored, found the origin of a record, which is not in the index",
        )
        .hint("records get ids of their own with `convert --id`"));
    }
    let hiding = hiding_of(&snapshot)?;
    let asked = Asked::new(hiding.as_ref(), id);
    let tree = VersionTree::new(&snapshot, Some(asked.hash))?;
    let segments = tree.segments.iter().enumerate().map(|(number, segment)| {
        let (leaf, path) = tree.segment_path(number);
        let shown = segment.bucket.as_ref().ok_or_else(|| Error::internal("a segment shows no bucket"))?;
        let block =
            |block: &Block| BlockProof { index: block.index, pairs: base64(&block.pairs), path: texts(&block.path) };
        let bucket = BucketProof {
            text: shown.text.clone(),
            path: texts(&shown.path),
            blocks: shown.blocks.iter().map(block).collect(),
        };
        Ok(SegmentProof { leaf: leaf as u64, text: segment.text.clone(), path: texts(&path), bucket })
    });
    let segments = segments.collect::<Result<_>>()?;
    let mut proof = Proof {
        r#type: "proof".to_owned(),
        schema: SCHEMA,
        claim: Claim::Absent,
        id: asked.text().to_owned(),
        private: hiding.is_some(),
        version: snapshot.version(),
        root: hex(&tree.root()),
        leaves: tree.leaves() as u64,
        head: tree.head().to_owned(),
        head_path: texts(&tree.head_path()),
        segments,
    };
    let records = records(&proof).map_err(|problem| Error::internal(format!("a proof does not hold: {problem}")))?;
    proof.claim = if records.is_empty() { Claim::Absent } else { Claim::Present };
    let report = check(&proof, None);
    if let Some(problem) = &report.problem {
        return Err(Error::internal(format!("a proof does not hold: {problem}")));
    }
    let mut bytes =
        serde_json::to_vec_pretty(&proof).map_err(|e| Error::internal("encoding a proof failed").cause(e))?;
    bytes.push(b'\n');
    storage::save(out, &context.settings, bytes.into())?;
    Ok(report)
}

/// Checks a proof. What it says holds for whoever knows the root from elsewhere.
///
/// # Errors
/// When the file cannot be read or is no proof; one that does not hold is in the report.
pub fn verify(context: &Context<'_>, file: &Location, root: Option<&str>) -> Result<ProofReport> {
    let missing = || Error::usage("expected a proof, found nothing").at(file.to_string());
    let (folder, name) = file.split_name().ok_or_else(missing)?;
    let bytes = storage::open(&folder, &context.settings)?.get(&name)?.ok_or_else(missing)?;
    verify_bytes(&bytes, &file.to_string(), root)
}

/// Checks a proof that is in memory; `place` says where it came from.
///
/// # Errors
/// When it is no proof.
pub fn verify_bytes(bytes: &[u8], place: &str, root: Option<&str>) -> Result<ProofReport> {
    let bad = |e: serde_json::Error| Error::input("expected a proof, found something else").at(place).cause(e);
    let value: Value = serde_json::from_slice(bytes).map_err(bad)?;
    if value["type"] != "proof" || value["schema"] != SCHEMA {
        return Err(Error::input(format!("expected a proof of schema {SCHEMA}, found something else"))
            .at(place)
            .hint("`shardify manifest --prove` writes one"));
    }
    Ok(check(&serde_json::from_value(value).map_err(bad)?, root))
}

fn check(proof: &Proof, root: Option<&str>) -> ProofReport {
    let found = records(proof).and_then(|records| {
        if root.is_some_and(|root| !root.eq_ignore_ascii_case(&proof.root)) {
            return Err("it is about another root".to_owned());
        }
        let claim = if records.is_empty() { Claim::Absent } else { Claim::Present };
        if claim == proof.claim { Ok(records) } else { Err("it shows the contrary of what it claims".to_owned()) }
    });
    let (records, problem) = match found {
        Ok(records) => (records, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    let (id, root) = (proof.id.clone(), proof.root.clone());
    ProofReport { id, claim: proof.claim, version: proof.version, root, records, problem }
}

/// Numbers of the records that carry the id, as the proof shows them; an error says what does not hold.
fn records(proof: &Proof) -> Result<Vec<u64>, String> {
    let root = unhex(&proof.root)?;
    let head_path = unhex_all(&proof.head_path)?;
    if merkle::climb(merkle::leaf(proof.head.as_bytes()), 0, proof.leaves, &head_path) != Some(root) {
        return Err("the head does not lead to the root".to_owned());
    }
    let (lists, segments) = counts(proof)?;
    if lists.checked_add(segments).and_then(|n| n.checked_add(1)) != Some(proof.leaves)
        || proof.segments.len() as u64 != segments
    {
        return Err("it leaves out a segment of the id index".to_owned());
    }
    let hash = match proof.private {
        true if proof.id.len() == 32 && from_hex(&proof.id).is_some() => IdHash::of_token(&proof.id),
        true => return Err("it is about the token of a private id, which its id is not".to_owned()),
        false => IdHash::of(&proof.id),
    };
    let mut records = Vec::new();
    for (segment, leaf) in proof.segments.iter().zip(lists + 1..) {
        if segment.leaf != leaf
            || merkle::climb(merkle::leaf(segment.text.as_bytes()), leaf, proof.leaves, &unhex_all(&segment.path)?)
                != Some(root)
        {
            return Err("a segment does not lead to the root".to_owned());
        }
        records.extend(in_segment(segment, hash)?);
    }
    records.sort_unstable();
    records.dedup();
    Ok(records)
}

/// How many lists of shards and segments the head tells of; it has to be about the version that the proof is about.
fn counts(proof: &Proof) -> Result<(u64, u64), String> {
    let wrong = || "the head is not that of the version".to_owned();
    let lines: Vec<&str> = proof.head.lines().collect();
    let number = |line: usize, name: &str| -> Result<u64, String> {
        let text = lines.get(line).and_then(|line| line.strip_prefix(name)?.strip_prefix(' ')).ok_or_else(wrong)?;
        text.parse().map_err(|_| wrong())
    };
    if lines.first() != Some(&"shardify root 2") || number(1, "version")? != proof.version.0 {
        return Err(wrong());
    }
    Ok((number(2, "lists")?, number(3, "segments")?))
}

/// Numbers of the records that a segment has under a hash.
fn in_segment(segment: &SegmentProof, wanted: IdHash) -> Result<Vec<u64>, String> {
    let wrong = || "a segment is not what it should be".to_owned();
    let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
    let words: Vec<&str> = segment.text.trim_end().split(' ').collect();
    let ["segment", _, base, _, buckets, root] = words.as_slice() else { return Err(wrong()) };
    let (base, buckets, root) = (number(base)?, number(buckets)?, unhex(root)?);
    // Only this bucket can have the hash.
    let own = if buckets.is_power_of_two() { bucket_of(wanted, buckets) } else { return Err(wrong()) };
    let BucketProof { text, path, blocks: shown } = &segment.bucket;
    if merkle::climb(merkle::leaf(text.as_bytes()), own, buckets, &unhex_all(path)?) != Some(root) {
        return Err("a bucket does not lead to its segment".to_owned());
    }
    let words: Vec<&str> = text.trim_end().split(' ').collect();
    let ["bucket", bucket, pairs, hash] = words.as_slice() else { return Err(wrong()) };
    let (bucket, pairs, hash) = (number(bucket)?, number(pairs)?, unhex(hash)?);
    let length = pairs.checked_mul(PAIR_BYTES as u64).ok_or_else(wrong)?;
    if bucket != own {
        return Err("it is about another bucket".to_owned());
    }
    if pairs == 0 {
        return Ok(Vec::new());
    }
    let blocks = pairs.div_ceil(BLOCK_PAIRS as u64);
    let shown: Vec<(u64, Vec<(u64, u64)>)> =
        shown.iter().map(|block| Ok((block.index, pairs_of(block, length, hash)?))).collect::<Result<_, String>>()?;
    let own = shown.iter().flat_map(|(_, pairs)| pairs).filter(|(hash, _)| *hash == wanted.0);
    let found: Option<Vec<u64>> = own.map(|(_, record)| base.checked_add(*record)).collect();
    let found = found.ok_or_else(wrong)?;
    if !found.is_empty() {
        return Ok(found);
    }
    // Nothing may lie between what is shown to the left of the hash and to the right of it.
    let first = |(_, pairs): &(u64, Vec<(u64, u64)>)| pairs.first().map_or(0, |pair| pair.0);
    let last = |(_, pairs): &(u64, Vec<(u64, u64)>)| pairs.last().map_or(0, |pair| pair.0);
    let left = shown.iter().filter(|block| first(block) < wanted.0).map(|block| block.0).max();
    let right = shown.iter().filter(|block| last(block) > wanted.0).map(|block| block.0).min();
    let closed = match (left, right) {
        (Some(left), Some(right)) => right == left || left.checked_add(1) == Some(right),
        (Some(left), None) => left.checked_add(1) == Some(blocks),
        (None, Some(right)) => right == 0,
        (None, None) => false,
    };
    if closed { Ok(found) } else { Err("it leaves out the pairs where the id would be".to_owned()) }
}

/// Pairs of a block, which has to be a part of what has this length and hash.
fn pairs_of(block: &BlockProof, length: u64, hash: Hash) -> Result<Vec<(u64, u64)>, String> {
    let wrong = || "a block of pairs is not what it should be".to_owned();
    let bytes = from_base64(&block.pairs).ok_or_else(wrong)?;
    if chunk_tree::climb(&bytes, block.index, length, &unhex_all(&block.path)?) != Some(hash) {
        return Err("a block does not lead to its bucket".to_owned());
    }
    let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let pairs: Vec<(u64, u64)> =
        bytes.chunks_exact(PAIR_BYTES).map(|pair| (number(pair), number(&pair[8..]))).collect();
    if pairs.is_empty() || bytes.len() % PAIR_BYTES != 0 || !pairs.is_sorted_by_key(|pair| pair.0) {
        return Err(wrong());
    }
    Ok(pairs)
}

fn unhex(text: &str) -> Result<Hash, String> {
    let bytes = from_hex(text).and_then(|bytes| Hash::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("expected a hash of 64 hexadecimal digits, found {} bytes", text.len()))
}

fn unhex_all(texts: &[String]) -> Result<Vec<Hash>, String> {
    texts.iter().map(|text| unhex(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::{IdKind, SegmentRef, bucket_leaf, segment_leaf};

    /// A proof about a segment of these pairs, with the blocks of these numbers.
    fn proof(pairs: &[(u64, u64)], shown: &[usize], claim: Claim, id: &str) -> Proof {
        let bytes = |pairs: &[(u64, u64)]| -> Vec<u8> {
            pairs.iter().flat_map(|(hash, record)| [hash.to_le_bytes(), record.to_le_bytes()].concat()).collect()
        };
        let blocks: Vec<Vec<u8>> = pairs.chunks(BLOCK_PAIRS).map(bytes).collect();
        let chunks: Vec<Hash> = (0..).zip(&blocks).map(|(index, block)| chunk_tree::chunk(block, index)).collect();
        // Two buckets, of which the other one is empty.
        let nothing = blake3::hash(b"");
        let facts = [(pairs.len() as u64, blake3::hash(&bytes(pairs))), (0, nothing)];
        let own = usize::try_from(bucket_of(IdHash::of(id), 2)).unwrap_or(0);
        let texts_of = [0, 1].map(|bucket| {
            let (pairs, hash) = facts[usize::from(bucket != own)];
            bucket_leaf(bucket as u64, pairs, hash.as_bytes())
        });
        let leaves = texts_of.each_ref().map(|text| merkle::leaf(text.as_bytes()));
        let segment = SegmentRef {
            kind: IdKind::Record,
            path: String::new(),
            record_base: 0,
            pairs: pairs.len() as u64,
            buckets: 2,
            bytes: 0,
            root: None,
        };
        let text = segment_leaf(&segment, &merkle::root(&leaves));
        let head = "shardify root 2\nversion 3\nlists 1\nsegments 1\ntombstones 00\n".to_owned();
        let top = [merkle::leaf(head.as_bytes()), merkle::leaf(b"list 1 00\n"), merkle::leaf(text.as_bytes())];
        let block = |index: &usize| BlockProof {
            index: *index as u64,
            pairs: base64(&blocks[*index]),
            path: texts(&chunk_tree::way(&chunks, *index)),
        };
        let bucket = BucketProof {
            text: texts_of[own].clone(),
            path: texts(&merkle::path(&leaves, own)),
            blocks: shown.iter().map(block).collect(),
        };
        Proof {
            r#type: "proof".into(),
            schema: SCHEMA,
            claim,
            id: id.into(),
            private: false,
            version: Version(3),
            root: hex(&merkle::root(&top)),
            leaves: 3,
            head,
            head_path: texts(&merkle::path(&top, 0)),
            segments: vec![SegmentProof { leaf: 2, text, path: texts(&merkle::path(&top, 2)), bucket }],
        }
    }

    #[test]
    fn only_what_is_shown_is_believed() {
        let wanted = IdHash::of("PAT-1").0;
        let below = |i: u64| (wanted / 1000 * i, i);
        let above = |i: u64| (wanted + 1000 * i, 500 + i);
        let absent: Vec<(u64, u64)> = (0..200).map(below).chain((1..200).map(above)).collect();
        let mut present = absent.clone();
        present.push((wanted, 9));
        present.sort_unstable();
        let holds = |proof: &Proof| check(proof, None).problem.is_none();
        // The hash would stand in block 3 of 7, which has pairs on both sides.
        assert!(holds(&proof(&absent, &[3], Claim::Absent, "PAT-1")));
        assert_eq!(check(&proof(&present, &[3], Claim::Present, "PAT-1"), None).records, [9]);
        assert!(!holds(&proof(&absent, &[3], Claim::Present, "PAT-1")));
        assert!(!holds(&proof(&present, &[3], Claim::Absent, "PAT-1")), "what is there cannot be denied");
        for shown in [&[2][..], &[4], &[2, 4], &[]] {
            assert!(!holds(&proof(&present, shown, Claim::Absent, "PAT-1")), "{shown:?}");
            assert!(!holds(&proof(&absent, shown, Claim::Absent, "PAT-1")), "{shown:?}");
        }
        let edges: Vec<(u64, u64)> = (1..200).map(above).collect();
        assert!(holds(&proof(&edges, &[0], Claim::Absent, "PAT-1")));
        assert!(!holds(&proof(&edges, &[1], Claim::Absent, "PAT-1")));
        let lower: Vec<(u64, u64)> = (0..200).map(below).collect();
        assert!(holds(&proof(&lower, &[3], Claim::Absent, "PAT-1")));
        assert!(!holds(&proof(&lower, &[2], Claim::Absent, "PAT-1")));
        let between: Vec<(u64, u64)> = (0..64).map(below).chain((1..65).map(above)).collect();
        assert!(holds(&proof(&between, &[0, 1], Claim::Absent, "PAT-1")));
        assert!(!holds(&proof(&between, &[0], Claim::Absent, "PAT-1")));
    }

    #[test]
    fn a_proof_that_was_changed_does_not_hold() {
        let wanted = IdHash::of("PAT-1").0;
        let pairs: Vec<(u64, u64)> = (1..300).map(|i| (wanted - 10_000 + i * 100, i)).collect();
        let good = proof(&pairs, &[1], Claim::Present, "PAT-1");
        let problem = |change: &dyn Fn(&mut Proof)| {
            let mut changed = good.clone();
            change(&mut changed);
            check(&changed, Some(&good.root)).problem
        };
        assert_eq!(problem(&|_| ()), None);
        let changes: [&dyn Fn(&mut Proof); 12] = [
            &|p| p.id = "PAT-2".into(),
            &|p| p.version = Version(4),
            &|p| p.root = "00".repeat(32),
            &|p| p.head = p.head.replace("segments 1", "segments 0"),
            &|p| p.segments.clear(),
            &|p| p.segments[0].text = p.segments[0].text.replace("299", "298"),
            &|p| p.segments[0].text = p.segments[0].text.replace(" 2 ", " 1 "),
            &|p| p.segments[0].bucket.text = p.segments[0].bucket.text.replace("299", "298"),
            &|p| p.segments[0].bucket.text = "bucket 0 0 00\n".into(),
            &|p| p.segments[0].bucket.blocks[0].index = 2,
            &|p| p.segments[0].bucket.blocks[0].pairs = base64(&[0; 16]),
            &|p| p.leaves = 4,
        ];
        for (number, change) in changes.iter().enumerate() {
            assert!(problem(change).is_some(), "{number}");
        }
        assert!(check(&good, Some(&"00".repeat(32))).problem.is_some());
    }
}
