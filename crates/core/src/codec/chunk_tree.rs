//! The Merkle tree inside a BLAKE3 hash: one chunk of a long input and the sibling hashes on its path prove that it is
//! part of the input.
//!
//! BLAKE3 hashes chunks of 1,024 bytes and joins them pairwise; the left part is the largest power of two of chunks
//! that is smaller than their number. So the hash of the whole input is the root of a Merkle tree that anybody can
//! recompute.
//!
//! ```text
//!        hash                      siblings of chunk 1: chunk 0, then the join of 2 and 3, then 4
//!       /    \
//!      .      4
//!    /   \
//!   .     .
//!  0 1   2 3
//! ```

use blake3::{
    CHUNK_LEN, Hasher,
    hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root},
};

use super::merkle::Hash;

/// Bytes of a chunk; the last one may be shorter.
pub const CHUNK: usize = CHUNK_LEN;

/// Returns the tree hash of a non-empty chunk with this number.
pub fn hash_chunk(bytes: &[u8], index: u64) -> ChainingValue {
    Hasher::new().set_input_offset(index * CHUNK as u64).update(bytes).finalize_non_root()
}

/// Returns the number of chunks in the left part of a tree of more than one.
fn left_chunks(chunks: u64) -> u64 {
    chunks.next_power_of_two() / 2
}

/// Returns the joined hash of several chunks.
fn join_hashes(chunks: &[ChainingValue]) -> ChainingValue {
    match chunks {
        [] => [0; 32],
        [one] => *one,
        chunks => {
            let (left, right) = chunks.split_at(chunks.len().next_power_of_two() / 2);
            merge_subtrees_non_root(&join_hashes(left), &join_hashes(right), Mode::Hash)
        }
    }
}

/// Returns the sibling hashes from a chunk to the root, nearest first; empty if there is no such chunk.
pub fn sibling_hashes(chunks: &[ChainingValue], index: usize) -> Vec<Hash> {
    if chunks.len() < 2 || index >= chunks.len() {
        return Vec::new();
    }
    let (left, right) = chunks.split_at(chunks.len().next_power_of_two() / 2);
    let (mut siblings, sibling) = match index.checked_sub(left.len()) {
        None => (sibling_hashes(left, index), join_hashes(right)),
        Some(index) => (sibling_hashes(right, index), join_hashes(left)),
    };
    siblings.push(sibling);
    siblings
}

/// Computes the hash of an input of `length` bytes whose chunk `index` is `bytes`, with these sibling hashes; `None` if
/// no such input exists. The length has to be known: inputs of other lengths can have a chunk with the same path.
pub fn root_from_chunk(bytes: &[u8], index: u64, length: u64, siblings: &[Hash]) -> Option<Hash> {
    let chunks = length.div_ceil(CHUNK as u64).max(1);
    if index >= chunks || bytes.len() as u64 != (length - index * CHUNK as u64).min(CHUNK as u64) {
        return None;
    }
    if chunks == 1 {
        return siblings.is_empty().then(|| *blake3::hash(bytes).as_bytes());
    }
    // For each join, topmost first, whether the chunk is on the right side.
    let (mut at, mut left_over, mut is_right) = (index, chunks, Vec::new());
    while left_over > 1 {
        let left = left_chunks(left_over);
        is_right.push(at >= left);
        (at, left_over) = if at >= left { (at - left, left_over - left) } else { (at, left) };
    }
    let (top, below) = siblings.split_last()?;
    if siblings.len() != is_right.len() {
        return None;
    }
    let pair = |own: Hash, sibling: &Hash, right: bool| if right { (*sibling, own) } else { (own, *sibling) };
    let mut hash = hash_chunk(bytes, index);
    for (sibling, right) in below.iter().zip(is_right[1..].iter().rev()) {
        let (left, right) = pair(hash, sibling, *right);
        hash = merge_subtrees_non_root(&left, &right, Mode::Hash);
    }
    let (left, right) = pair(hash, top, is_right[0]);
    Some(*merge_subtrees_root(&left, &right, Mode::Hash).as_bytes())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_climbs_to_the_hash_of_the_whole_and_no_other_does() {
        assert_eq!(root_from_chunk(b"", 0, 0, &[]), Some(*blake3::hash(b"").as_bytes()));
        for length in [1, 16, 1_023, 1_024, 1_025, 2_048, 2_049, 3_072, 5_000, 8_192, 17_000, 33_000_u64] {
            let bytes: Vec<u8> = (0..length).map(|i| u8::try_from(i * 31 % 251).unwrap()).collect();
            let whole = *blake3::hash(&bytes).as_bytes();
            let parts: Vec<&[u8]> = bytes.chunks(CHUNK).collect();
            let chunks: Vec<ChainingValue> =
                parts.iter().enumerate().map(|(i, part)| hash_chunk(part, i as u64)).collect();
            for (index, part) in parts.iter().enumerate() {
                let (sibling, number) = (sibling_hashes(&chunks, index), index as u64);
                assert_eq!(root_from_chunk(part, number, length, &sibling), Some(whole), "{index} of {length}");
                let mut other = part.to_vec();
                other.iter_mut().take(1).for_each(|byte| *byte ^= 1);
                assert_ne!(root_from_chunk(&other, number, length, &sibling), Some(whole));
                for wrong in (0..chunks.len() as u64 + 2).filter(|wrong| *wrong != number) {
                    assert_ne!(
                        root_from_chunk(part, wrong, length, &sibling),
                        Some(whole),
                        "{index} as {wrong} of {length}"
                    );
                }
                if let Some((_, shorter)) = sibling.split_last() {
                    assert_eq!(root_from_chunk(part, number, length, shorter), None);
                }
                let longer = [&sibling[..], &[whole]].concat();
                assert_eq!(root_from_chunk(part, number, length, &longer), None);
            }
        }
    }
}
