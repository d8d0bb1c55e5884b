//! One hash for a version: over its shards, its id index and what was erased, such that a few kilobytes prove to somebody
//! without the dataset that an id is in the version, or that it is not.
//!
//! ```text
//! root -- head      "shardify root 1\nversion 5\nshards 2\nsegments 2\ntombstones <SHA-256>\n"
//!      |- shard     "shard <path> <records> <BLAKE3>\n"                               in record order
//!      '- segment   "segment <kind> <pairs> <blocks> <root of blocks>\n"              as the log entry lists them
//!                      '- block    64 pairs: hash u64, record u64, little-endian; sorted by hash
//! ```
//!
//! Both levels are Merkle trees as RFC 6962 has them ([`merkle`]). Pairs are sorted, so two neighbouring blocks show that
//! nothing lies between them. The head says how many segments there are, so that none can be left out. Record numbers
//! count from the base of the segment, made absolute. The root follows from what the version refers to and nothing else.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{
    Snapshot,
    erased::tombstones,
    find::IdKind,
    index::{SegmentRef, each_pair},
};
use crate::{
    codec::{
        hex::hex,
        merkle::{self, Hash},
    },
    error::Result,
    id::IdHash,
    storage::Store,
};

/// Pairs of a block.
pub const BLOCK_PAIRS: usize = 64;

/// Bytes of a pair.
pub const PAIR_BYTES: usize = 16;

/// A segment as it is in the tree.
#[derive(Debug)]
pub struct SegmentTree {
    /// What it is the index of.
    pub kind: IdKind,
    /// Hashes of its blocks.
    leaves: Vec<Hash>,
    /// Text of its leaf.
    pub text: String,
    /// Blocks that were asked for: number and bytes.
    kept: Vec<(usize, Vec<u8>)>,
}

/// A block, and how to climb from it to the root of its segment.
#[derive(Debug)]
pub struct Block {
    /// Its number.
    pub index: usize,
    /// Its pairs.
    pub pairs: Vec<u8>,
    /// Siblings on the way.
    pub path: Vec<Hash>,
}

impl SegmentTree {
    /// Reads a segment, and keeps the blocks around a hash.
    fn new(store: &Arc<dyn Store>, segment: &SegmentRef, around: Option<IdHash>) -> Result<Self> {
        let (mut leaves, mut kept): (Vec<Hash>, Vec<(usize, Vec<u8>)>) = (Vec::new(), Vec::new());
        let mut block: Vec<u8> = Vec::with_capacity(BLOCK_PAIRS * PAIR_BYTES);
        // The block before the hash is known to be that only when the next one begins.
        let mut before: Option<(usize, Vec<u8>)> = None;
        let mut close = |block: &mut Vec<u8>, kept: &mut Vec<(usize, Vec<u8>)>| {
            let number = leaves.len();
            leaves.push(merkle::leaf(block));
            let bytes = std::mem::take(block);
            let Some(wanted) = around else { return };
            let at = |pair: usize| bytes.get(pair * PAIR_BYTES..pair * PAIR_BYTES + 8).and_then(|b| b.first_chunk());
            let (Some(first), Some(end)) = (at(0), at((bytes.len() / PAIR_BYTES).saturating_sub(1))) else { return };
            let (first, end) = (u64::from_le_bytes(*first), u64::from_le_bytes(*end));
            if end < wanted.0 {
                before = Some((number, bytes));
            } else if first <= wanted.0 {
                before = None;
                kept.push((number, bytes));
            } else if kept.is_empty() {
                kept.extend(before.take());
                kept.push((number, bytes));
            }
        };
        each_pair(store, segment, &mut |hash, record| {
            block.extend_from_slice(&hash.0.to_le_bytes());
            block.extend_from_slice(&record.to_le_bytes());
            if block.len() == BLOCK_PAIRS * PAIR_BYTES {
                close(&mut block, &mut kept);
            }
            Ok(())
        })?;
        if !block.is_empty() {
            close(&mut block, &mut kept);
        }
        // All blocks are before the hash: the last one shows it.
        if kept.is_empty() {
            kept.extend(before);
        }
        let root = hex(&merkle::root(&leaves));
        let text = format!("segment {} {} {} {root}\n", segment.kind.name(), segment.pairs, leaves.len());
        Ok(Self { kind: segment.kind, leaves, text, kept })
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.leaves.len()
    }

    /// The blocks around the hash that was asked for.
    pub fn around(&self) -> Vec<Block> {
        let block = |(index, pairs): &(usize, Vec<u8>)| Block {
            index: *index,
            pairs: pairs.clone(),
            path: merkle::path(&self.leaves, *index),
        };
        self.kept.iter().map(block).collect()
    }
}

/// The tree of a version.
#[derive(Debug)]
pub struct VersionTree {
    /// Text of its first leaf.
    pub head: String,
    /// The segments, in the order of their leaves.
    pub segments: Vec<SegmentTree>,
    leaves: Vec<Hash>,
}

impl VersionTree {
    /// Makes the tree of a snapshot, and keeps the blocks of its segments around a hash.
    ///
    /// # Errors
    /// When the index or a list cannot be read.
    pub fn new(snapshot: &Snapshot, around: Option<IdHash>) -> Result<Self> {
        let store = snapshot.dataset().store();
        let entry = snapshot.entry();
        let segments: Vec<SegmentTree> =
            entry.segments.iter().map(|segment| SegmentTree::new(store, segment, around)).collect::<Result<_>>()?;
        let shards = snapshot.shards()?;
        let mut stones = Sha256::new();
        for stone in tombstones(snapshot.dataset(), entry)? {
            stones.update(format!("{} {} {}\n", stone.first, stone.records, stone.version));
        }
        let head = format!(
            "shardify root 1\nversion {}\nshards {}\nsegments {}\ntombstones {}\n",
            snapshot.version().0,
            shards.len(),
            segments.len(),
            hex(&stones.finalize())
        );
        let mut leaves = vec![merkle::leaf(head.as_bytes())];
        for shard in shards {
            let text = format!("shard {} {} {}\n", shard.path, shard.records, hex(&shard.checksum));
            leaves.push(merkle::leaf(text.as_bytes()));
        }
        leaves.extend(segments.iter().map(|segment| merkle::leaf(segment.text.as_bytes())));
        Ok(Self { head, segments, leaves })
    }

    /// The root.
    pub fn root(&self) -> Hash {
        merkle::root(&self.leaves)
    }

    /// How many leaves there are.
    pub fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// Siblings on the way from the head to the root.
    pub fn head_path(&self) -> Vec<Hash> {
        merkle::path(&self.leaves, 0)
    }

    /// Number of the leaf of a segment, and siblings on the way.
    pub fn segment_path(&self, segment: usize) -> (usize, Vec<Hash>) {
        let index = self.leaves.len() - self.segments.len() + segment;
        (index, merkle::path(&self.leaves, index))
    }
}
