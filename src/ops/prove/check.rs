//! Verifies a proof. This needs no dataset, only the root from a trusted origin.

use serde_json::Value;

use super::{
    BlockProof, BucketProof, Claim, Expected, Ids, Proof, ProofReport, SCHEMA, SegmentProof,
    split::{self, CertificateReport},
};
use crate::{
    codec::{
        base64::from_base64,
        chunk_tree,
        hex::from_hex,
        merkle::{self, Hash},
    },
    dataset::{BLOCK_PAIRS, IdKey, PAIR_BYTES, bucket_of},
    error::{Error, Result},
    id::IdHash,
    ops::Context,
    storage::{self, Location, SmallFile},
};

/// A proof, or a certificate with all leaves of a root.
const PROOF: SmallFile = SmallFile::new("a proof", 256 << 20);

/// What a verified document shows.
#[derive(Debug, Clone)]
pub enum Verified {
    /// Whether a version has an id.
    Id(ProofReport),
    /// That no id is in two splits.
    Split(CertificateReport),
}

/// Verifies a proof. Its statement holds relative to the expected root, which must come from elsewhere.
///
/// # Errors
/// When the file cannot be read or is not a proof; the report states whether the proof holds.
pub fn verify_proof(context: &Context<'_>, file: &Location, expected: Expected<'_>) -> Result<Verified> {
    let missing = || Error::usage("expected a proof, found nothing").at_location(file.to_string());
    let bytes = storage::read_small(PROOF, file, &context.settings)?.ok_or_else(missing)?;
    verify_bytes(&bytes, &file.to_string(), expected, context.id_key.as_deref())
}

/// Verifies a proof in memory; `place` names its origin.
///
/// # Errors
/// When it is not a proof.
pub fn verify_bytes(bytes: &[u8], place: &str, expected: Expected<'_>, key: Option<&IdKey>) -> Result<Verified> {
    let bad =
        |e: serde_json::Error| Error::input("expected a proof, found something else").at_location(place).with_cause(e);
    let value: Value = serde_json::from_slice(bytes).map_err(bad)?;
    if value["type"] == split::TYPE {
        return split::verify_bytes(bytes, &value, place, expected).map(Verified::Split);
    }
    if value["type"] != "proof" || value["schema"] != SCHEMA {
        return Err(Error::input(format!("expected a proof of schema {SCHEMA}, found something else"))
            .at_location(place)
            .with_hint("`shardify manifest --prove` writes one"));
    }
    let proof: Proof = serde_json::from_value(value).map_err(bad)?;
    if proof.private && expected.id.is_some() && key.is_none() {
        return Err(Error::usage("the proof is about the token of a private id: expected the key of the ids")
            .at_location(place)
            .with_hint("name the file of the key with --id-key, or leave --id out"));
    }
    Ok(Verified::Id(check_proof(&proof, expected, key)))
}

/// Returns what a proof shows, and the first problem with it.
pub(super) fn check_proof(proof: &Proof, expected: Expected<'_>, key: Option<&IdKey>) -> ProofReport {
    // The check value in the head shows whether this is the key of the dataset.
    let salted = proof.salt.as_ref().and_then(|salt| key.map(|key| key.derive_key(salt)));
    let key = match &salted {
        Some(salted) => salted.as_ref().ok(),
        None => key,
    };
    let found = ids_of(&proof.head).and_then(|ids| {
        let records = proved_records(proof)?;
        if expected.root.is_some_and(|root| !root.eq_ignore_ascii_case(&proof.root)) {
            return Err("it is about another root".to_owned());
        }
        let claim = if records.is_empty() { Claim::Absent } else { Claim::Present };
        if claim != proof.claim {
            return Err("it shows the opposite of what it claims".to_owned());
        }
        match (expected.id, key, &ids) {
            (None, _, _) => {}
            (Some(_), Some(key), Ids::Tokens(_, check)) if key.check_value() != check => {
                return Err(format!(
                    "the ids have another key: expected the check value {check}, found {}",
                    key.check_value()
                ));
            }
            (Some(id), Some(key), _) if proof.private && key.id_token(id) == proof.id => {}
            (Some(id), _, _) if !proof.private && id == proof.id => {}
            _ => return Err("it is about another id".to_owned()),
        }
        Ok((ids, records))
    });
    let (ids, records, problem) = match found {
        Ok((ids, records)) => (Some(ids), records, None),
        Err(problem) => (None, Vec::new(), Some(problem)),
    };
    let (ids, key_check) = match ids {
        None => (None, None),
        Some(Ids::Plain) => (Some("plain".to_owned()), None),
        Some(Ids::Tokens(mode, check)) => (Some(mode), Some(check)),
    };
    ProofReport {
        id: proof.id.clone(),
        is_token: proof.private,
        claim: proof.claim,
        version: proof.version,
        root: proof.root.clone(),
        root_checked: expected.root.is_some() && problem.is_none(),
        ids,
        key_check,
        id_checked: expected.id.map(|_| problem.is_none()),
        records,
        problem,
    }
}

/// Returns how ids are stored, as stated by a head.
pub(super) fn ids_of(head: &str) -> Result<Ids, String> {
    let wrong = || "the head states how ids are stored in an unknown form".to_owned();
    let mut lines = head.lines();
    if lines.next() != Some("shardify root 1") {
        return Err("the head is not that of a version".to_owned());
    }
    let ids = lines.nth(1).and_then(|line| line.strip_prefix("ids ")).ok_or_else(wrong)?;
    match ids.split_once(' ') {
        None if ids == "plain" => Ok(Ids::Plain),
        Some((mode @ ("hmac" | "sealed"), check)) => Ok(Ids::Tokens(mode.to_owned(), check.to_owned())),
        _ => Err(wrong()),
    }
}

/// Returns the numbers of the records that carry the id, as shown by the proof; the error states what does not hold.
pub(super) fn proved_records(proof: &Proof) -> Result<Vec<u64>, String> {
    let root = decode_hash(&proof.root)?;
    let head_path = decode_hashes(&proof.head_path)?;
    if merkle::root_from_path(merkle::hash_leaf(proof.head.as_bytes()), 0, proof.leaves, &head_path) != Some(root) {
        return Err("the head does not lead to the root".to_owned());
    }
    let (lists, segments) = head_counts(proof)?;
    if lists.checked_add(segments).and_then(|n| n.checked_add(1)) != Some(proof.leaves)
        || proof.segments.len() as u64 != segments
    {
        return Err("it omits a segment of the id index".to_owned());
    }
    match (ids_of(&proof.head)?, proof.private) {
        (Ids::Plain, true) => return Err("it is about a token, but ids are stored in plain form".to_owned()),
        (Ids::Tokens(..), false) => {
            return Err("it is about a plain id, but ids are stored as tokens".to_owned());
        }
        _ => {}
    }
    let is_token = |id: &str| id.len() == 32 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let hash = match proof.private {
        true if is_token(&proof.id) => IdHash::of_token(&proof.id),
        true => return Err("its id is not the token of a private id".to_owned()),
        false => IdHash::from_id(&proof.id),
    };
    let mut records = Vec::new();
    for (segment, leaf) in proof.segments.iter().zip(lists + 1..) {
        if segment.leaf != leaf
            || merkle::root_from_path(
                merkle::hash_leaf(segment.text.as_bytes()),
                leaf,
                proof.leaves,
                &decode_hashes(&segment.path)?,
            ) != Some(root)
        {
            return Err("a segment does not lead to the root".to_owned());
        }
        records.extend(in_segment(segment, hash)?);
    }
    records.sort_unstable();
    records.dedup();
    Ok(records)
}

/// Returns the numbers of lists of shards and of segments in the head; the head must belong to the proof's version.
fn head_counts(proof: &Proof) -> Result<(u64, u64), String> {
    let wrong = || "the head is not that of the version".to_owned();
    let lines: Vec<&str> = proof.head.lines().collect();
    let number = |line: usize, name: &str| -> Result<u64, String> {
        let text = lines.get(line).and_then(|line| line.strip_prefix(name)?.strip_prefix(' ')).ok_or_else(wrong)?;
        text.parse().map_err(|_| wrong())
    };
    if number(1, "version")? != proof.version.0 {
        return Err(wrong());
    }
    Ok((number(3, "lists")?, number(4, "segments")?))
}

/// Returns the numbers of the records that a segment contains for a hash.
fn in_segment(segment: &SegmentProof, wanted: IdHash) -> Result<Vec<u64>, String> {
    let wrong = || "a segment is not what it should be".to_owned();
    let number = |word: &str| word.parse::<u64>().map_err(|_| wrong());
    let words: Vec<&str> = segment.text.trim_end().split(' ').collect();
    // In a dataset that is divided, the split of the segment follows.
    let (["segment", _, base, _, buckets, root] | ["segment", _, base, _, buckets, root, _]) = words.as_slice() else {
        return Err(wrong());
    };
    let (base, buckets, root) = (number(base)?, number(buckets)?, decode_hash(root)?);
    // Only this bucket can contain the hash.
    let own = if buckets.is_power_of_two() { bucket_of(wanted, buckets) } else { return Err(wrong()) };
    let BucketProof { text, path, blocks: shown } = &segment.bucket;
    if merkle::root_from_path(merkle::hash_leaf(text.as_bytes()), own, buckets, &decode_hashes(path)?) != Some(root) {
        return Err("a bucket does not lead to its segment".to_owned());
    }
    let words: Vec<&str> = text.trim_end().split(' ').collect();
    let ["bucket", bucket, pairs, hash] = words.as_slice() else { return Err(wrong()) };
    let (bucket, pairs, hash) = (number(bucket)?, number(pairs)?, decode_hash(hash)?);
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
    // The blocks shown to the left and to the right of the hash must be adjacent.
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
    if closed { Ok(found) } else { Err("it omits the pairs where the id would be".to_owned()) }
}

/// Returns the pairs of a block, which must belong to a tree of this length and hash.
fn pairs_of(block: &BlockProof, length: u64, hash: Hash) -> Result<Vec<(u64, u64)>, String> {
    let wrong = || "a block of pairs is not what it should be".to_owned();
    let bytes = from_base64(&block.pairs).ok_or_else(wrong)?;
    if chunk_tree::root_from_chunk(&bytes, block.index, length, &decode_hashes(&block.path)?) != Some(hash) {
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

pub(super) fn decode_hash(text: &str) -> Result<Hash, String> {
    let bytes = from_hex(text).and_then(|bytes| Hash::try_from(bytes).ok());
    bytes.ok_or_else(|| format!("expected a hash of 64 hexadecimal digits, found {} bytes", text.len()))
}

fn decode_hashes(texts: &[String]) -> Result<Vec<Hash>, String> {
    texts.iter().map(|text| decode_hash(text)).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use serde_json::json;

    use super::{super::hex_hashes, *};
    use crate::{
        codec::{base64::to_base64, hex::to_hex},
        dataset::{SegmentRef, bucket_leaf, segment_leaf},
        id::Version,
    };

    const PLAIN: &str = "shardify root 1\nversion 3\nids plain\nlists 1\nsegments ";
    const TOKENS: &str = "shardify root 1\nversion 3\nids hmac 0011223344556677\nlists 1\nsegments ";

    /// A version of a dataset: the beginning of its head, and for each segment its pairs, which are in two buckets.
    struct World {
        head: String,
        segments: Vec<Vec<(u64, u64)>>,
    }

    fn bytes(pairs: &[(u64, u64)]) -> Vec<u8> {
        pairs.iter().flat_map(|(hash, record)| [hash.to_le_bytes(), record.to_le_bytes()].concat()).collect()
    }

    impl World {
        /// Returns the proof about an id; it shows the blocks with these numbers of each segment, or the necessary
        /// ones.
        fn proof(&self, id: &str, private: bool, shown: Option<&[usize]>) -> Proof {
            let hash = if private { IdHash::of_token(id) } else { IdHash::from_id(id) };
            let own = usize::try_from(bucket_of(hash, 2)).unwrap();
            let head = format!("{}{}\ntombstones 00\n", self.head, self.segments.len());
            let mut top = vec![merkle::hash_leaf(head.as_bytes()), merkle::hash_leaf(b"list 1 00\n")];
            let mut segments = Vec::new();
            for (number, pairs) in self.segments.iter().enumerate() {
                let buckets = [0, 1].map(|bucket| {
                    let own = pairs.iter().filter(|pair| bucket_of(IdHash(pair.0), 2) == bucket);
                    own.copied().collect::<Vec<_>>()
                });
                let texts_of: Vec<String> = (0..)
                    .zip(&buckets)
                    .map(|(number, pairs)| {
                        bucket_leaf(number, pairs.len() as u64, blake3::hash(&bytes(pairs)).as_bytes())
                    })
                    .collect();
                let leaves: Vec<Hash> = texts_of.iter().map(|text| merkle::hash_leaf(text.as_bytes())).collect();
                let facts = json!({ "kind": "record", "path": "", "record_base": 1000 * number,
                                    "pairs": pairs.len(), "buckets": 2, "bytes": 0, "seals": "" });
                let segment: SegmentRef = serde_json::from_value(facts).unwrap();
                let text = segment_leaf(&segment, &merkle::merkle_root(&leaves));
                top.push(merkle::hash_leaf(text.as_bytes()));
                let blocks: Vec<Vec<u8>> = buckets[own].chunks(BLOCK_PAIRS).map(bytes).collect();
                let chunks: Vec<Hash> =
                    (0..).zip(&blocks).map(|(index, block)| chunk_tree::hash_chunk(block, index)).collect();
                let block = |index: &usize| BlockProof {
                    index: *index as u64,
                    pairs: to_base64(&blocks[*index]),
                    path: hex_hashes(&chunk_tree::sibling_hashes(&chunks, *index)),
                };
                let at = buckets[own].partition_point(|pair| pair.0 < hash.0);
                let mut around = vec![at.saturating_sub(1) / BLOCK_PAIRS, at / BLOCK_PAIRS];
                around.dedup();
                around.retain(|index| *index < blocks.len());
                let bucket = BucketProof {
                    text: texts_of[own].clone(),
                    path: hex_hashes(&merkle::audit_path(&leaves, own)),
                    blocks: shown.unwrap_or(&around).iter().map(block).collect(),
                };
                segments.push(SegmentProof { leaf: 2 + number as u64, text, path: Vec::new(), bucket });
            }
            for (number, segment) in segments.iter_mut().enumerate() {
                segment.path = hex_hashes(&merkle::audit_path(&top, 2 + number));
            }
            let mut proof = Proof {
                r#type: "proof".into(),
                schema: SCHEMA,
                claim: Claim::Absent,
                id: id.into(),
                private,
                salt: None,
                version: Version(3),
                root: to_hex(&merkle::merkle_root(&top)),
                leaves: top.len() as u64,
                head,
                head_path: hex_hashes(&merkle::audit_path(&top, 0)),
                segments,
            };
            if proved_records(&proof).is_ok_and(|records| !records.is_empty()) {
                proof.claim = Claim::Present;
            }
            proof
        }
    }

    /// Returns a proof about one segment of these pairs, with the blocks of these numbers.
    fn proof(pairs: &[(u64, u64)], shown: &[usize], claim: Claim, id: &str) -> Proof {
        // All pairs are in the bucket of the id.
        let world = World { head: PLAIN.into(), segments: vec![pairs.to_vec()] };
        Proof { claim, ..world.proof(id, false, Some(shown)) }
    }

    fn problem(proof: &Proof, root: Option<&str>) -> Option<String> {
        check_proof(proof, Expected { root, id: None }, None).problem
    }

    #[test]
    fn proofs_are_checked_by_the_blocks_that_they_show() {
        let wanted = IdHash::from_id("PAT-1").0;
        // Close to the id, so that all are in its bucket.
        let below = |i: u64| (wanted - 1_000_000 + 1000 * i, i);
        let above = |i: u64| (wanted + 1000 * i, 500 + i);
        let absent: Vec<(u64, u64)> = (0..200).map(below).chain((1..200).map(above)).collect();
        let mut present = absent.clone();
        present.push((wanted, 9));
        present.sort_unstable();
        let holds = |proof: &Proof| problem(proof, None).is_none();
        // The hash would be in block 3 of 7, which has pairs on both sides.
        assert!(holds(&proof(&absent, &[3], Claim::Absent, "PAT-1")));
        let shown = check_proof(&proof(&present, &[3], Claim::Present, "PAT-1"), Expected::default(), None);
        assert_eq!((shown.records, shown.root_checked), (vec![9], false));
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
        let wanted = IdHash::from_id("PAT-1").0;
        let pairs: Vec<(u64, u64)> = (1..300).map(|i| (wanted - 10_000 + i * 100, i)).collect();
        let good = proof(&pairs, &[1], Claim::Present, "PAT-1");
        let problem_of = |change: &dyn Fn(&mut Proof)| {
            let mut changed = good.clone();
            change(&mut changed);
            problem(&changed, Some(&good.root))
        };
        assert_eq!(problem_of(&|_| ()), None);
        let changes: [&dyn Fn(&mut Proof); 14] = [
            &|p| p.id = "PAT-2".into(),
            &|p| p.version = Version(4),
            &|p| p.root = "00".repeat(32),
            &|p| p.head = p.head.replace("segments 1", "segments 0"),
            &|p| p.head = p.head.replace("ids plain\n", ""),
            &|p| p.private = true,
            &|p| p.segments.clear(),
            &|p| p.segments[0].text = p.segments[0].text.replace("299", "298"),
            &|p| p.segments[0].text = p.segments[0].text.replace(" 2 ", " 1 "),
            &|p| p.segments[0].bucket.text = p.segments[0].bucket.text.replace("299", "298"),
            &|p| p.segments[0].bucket.text = "bucket 0 0 00\n".into(),
            &|p| p.segments[0].bucket.blocks[0].index = 2,
            &|p| p.segments[0].bucket.blocks[0].pairs = to_base64(&[0; 16]),
            &|p| p.leaves = 4,
        ];
        for (number, change) in changes.iter().enumerate() {
            assert!(problem_of(change).is_some(), "{number}");
        }
        assert!(problem(&good, Some(&"00".repeat(32))).is_some());
    }

    #[test]
    fn the_id_that_is_asked_for_is_compared_in_full() {
        let key = IdKey::parse(&[7; 32]).unwrap();
        let token = key.id_token("PAT-1");
        let head = TOKENS.replace("0011223344556677", key.check_value());
        let world = World { head, segments: vec![vec![(IdHash::of_token(&token).0, 4)]] };
        let good = world.proof(&token, true, None);
        let expected = |id| Expected { root: Some(&good.root), id: Some(id) };
        let report = check_proof(&good, expected("PAT-1"), Some(&key));
        assert_eq!((report.problem.as_deref(), report.id_checked, report.is_complete()), (None, Some(true), true));
        assert!(check_proof(&good, expected("PAT-2"), Some(&key)).problem.unwrap().contains("another id"));
        let other = IdKey::parse(&[8; 32]).unwrap();
        assert!(check_proof(&good, expected("PAT-1"), Some(&other)).problem.unwrap().contains("another key"));
        // Another token with the same first 16 digits has the same hash in the index.
        let similar = Proof { id: format!("{}{}", &token[..16], "0".repeat(16)), ..good.clone() };
        assert!(check_proof(&similar, expected("PAT-1"), Some(&key)).problem.is_some());
    }

    #[test]
    fn unverified_parts_of_a_proof_are_reported() {
        let ids: Vec<(u64, u64)> = vec![(IdHash::from_id("PAT-1").0, 1)];
        let complete = |head: &str, id, with_root: bool| {
            let proof = World { head: head.into(), segments: vec![ids.clone()] }.proof(id, false, None);
            let report =
                check_proof(&proof, Expected { root: with_root.then_some(proof.root.as_str()), id: None }, None);
            assert_eq!(report.problem, None);
            report.is_complete()
        };
        assert!(complete(PLAIN, "PAT-1", true) && complete(PLAIN, "PAT-2", true));
        assert!(!complete(PLAIN, "PAT-1", false), "the root is not known from elsewhere");
    }

    /// Pseudo-random numbers.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from((self.0 >> 33) % n.max(1) as u64).unwrap()
        }
    }

    /// Paths of all values of a document.
    fn places(value: &Value, at: String, out: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| places(value, format!("{at}/{name}"), out)),
            Value::Array(items) => {
                (0..).zip(items).for_each(|(i, value): (usize, _)| places(value, format!("{at}/{i}"), out));
            }
            _ => {}
        }
        out.push(at);
    }

    /// Makes one change that respects the structure of proofs: parts are taken from other proofs, omitted, duplicated,
    /// swapped, or changed a little.
    fn change(proof: &mut Value, donors: &[Value], ids: &[String], dice: &mut Dice) {
        let donor = &donors[dice.below(donors.len())];
        match dice.below(8) {
            0 => proof["id"] = ids[dice.below(ids.len())].clone().into(),
            1 => {
                let private = proof["private"] == true;
                if private && dice.below(2) == 0 {
                    proof.as_object_mut().unwrap().remove("private");
                } else {
                    proof["private"] = (!private).into();
                }
            }
            2 => proof["claim"] = if proof["claim"] == "absent" { "present" } else { "absent" }.into(),
            3 => {
                for field in ["head", "head_path", "leaves", "root", "segments", "version"] {
                    if dice.below(2) == 0 {
                        proof[field] = donor[field].clone();
                    }
                }
            }
            4 => {
                let head = proof["head"].as_str().unwrap().to_owned();
                let (old, new) = [
                    ("ids plain\n", ""),
                    ("root 1", "root 2"),
                    ("root 2", "root 1"),
                    ("ids hmac 0011223344556677", "ids plain"),
                    ("segments 3", "segments 2"),
                    ("segments 3", "segments 0"),
                    ("version 3", "version 2"),
                ][dice.below(7)];
                proof["head"] = head.replace(old, new).into();
            }
            _ => {
                let mut all = Vec::new();
                places(proof, String::new(), &mut all);
                let place = &all[dice.below(all.len())];
                let theirs = donor.pointer(place).cloned();
                let Some(value) = proof.pointer_mut(place) else { return };
                match (value, theirs) {
                    (value, Some(theirs)) if dice.below(2) == 0 => *value = theirs,
                    (Value::Number(number), _) => {
                        let number = number.as_u64().unwrap();
                        let double = number.saturating_mul(2);
                        let near = [number.saturating_add(1), number.saturating_sub(1), 0, double, u64::MAX];
                        let near = near[dice.below(5)];
                        *proof.pointer_mut(place).unwrap() = near.into();
                    }
                    (Value::Array(items), _) if !items.is_empty() => {
                        let at = dice.below(items.len());
                        match dice.below(3) {
                            0 => drop(items.remove(at)),
                            1 => items.push(items[at].clone()),
                            _ => items.swap(0, at),
                        }
                    }
                    (Value::String(text), _) if text.is_ascii() && !text.is_empty() => {
                        let at = dice.below(text.len());
                        let digit = ["0", "1", "7", "a", "f", " ", ""][dice.below(7)];
                        text.replace_range(at..=at, digit);
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn no_forgery_of_ten_thousand_makes_a_false_statement_under_the_true_root() {
        let key = IdKey::parse(&[7; 32]).unwrap();
        let names: Vec<String> = (0..600).map(|i| format!("PAT-{i}")).collect();
        let (there, missing) = names.split_at(570);
        let pairs = |hash: &dyn Fn(&str) -> IdHash| -> Vec<Vec<(u64, u64)>> {
            let all: Vec<(u64, u64)> = (0..).zip(there).map(|(i, id)| (hash(id).0, i)).collect();
            let mut segments: Vec<Vec<(u64, u64)>> = all.chunks(190).map(<[_]>::to_vec).collect();
            segments.iter_mut().for_each(|pairs| pairs.sort_unstable());
            segments
        };
        let plain = pairs(&|id| IdHash::from_id(id));
        let tokens = pairs(&|id| IdHash::of_token(&key.id_token(id)));
        let worlds = [
            (World { head: PLAIN.into(), segments: plain }, false),
            (World { head: TOKENS.into(), segments: tokens }, true),
        ];
        let texts: Vec<String> = names.iter().flat_map(|id| [id.clone(), key.id_token(id)]).collect();
        let mut genuine: Vec<(usize, Value)> = Vec::new();
        for (number, (world, private)) in worlds.iter().enumerate() {
            for id in there.iter().step_by(57).chain(missing.iter().step_by(3)) {
                let id = if *private { key.id_token(id) } else { id.clone() };
                let proof = world.proof(&id, *private, None);
                assert_eq!(problem(&proof, Some(&proof.root)), None, "{id}");
                genuine.push((number, serde_json::to_value(&proof).unwrap()));
            }
        }
        let donors: Vec<Value> = genuine.iter().map(|(_, proof)| proof.clone()).collect();
        let (mut dice, mut accepted, mut made) = (Dice(11), 0, 0);
        while made < 12_000 {
            let (number, proof) = &genuine[dice.below(genuine.len())];
            let private = &worlds[*number].1;
            let root = proof["root"].as_str().unwrap();
            let mut forged = proof.clone();
            for _ in 0..=dice.below(3) {
                change(&mut forged, &donors, &texts, &mut dice);
            }
            if forged == *proof {
                continue;
            }
            made += 1;
            let Ok(forged) = serde_json::from_value::<Proof>(forged) else { continue };
            let report = check_proof(&forged, Expected { root: Some(root), id: None }, None);
            if !report.is_complete() {
                continue;
            }
            accepted += 1;
            assert_eq!((report.version, report.root.as_str()), (Version(3), root));
            // The truth: of tokens, only the first 16 digits are in the index.
            let is_there = there.iter().any(|id| match private {
                true => report.is_token && key.id_token(id)[..16] == report.id[..16],
                false => *id == report.id,
            });
            assert_eq!(report.is_token, *private, "{forged:?}");
            assert_eq!(report.claim == Claim::Present, is_there, "{forged:?}");
        }
        // An accepted change makes another true statement: another missing id next to the same pairs.
        assert!(accepted > 0 && accepted < made / 2, "{accepted}");
    }
}
