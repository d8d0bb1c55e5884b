//! Merkle trees as defined by RFC 6962, with SHA-256: one hash for many leaves, and short proofs that a leaf is one of
//! them.
//!
//! ```text
//! leaf   SHA-256(00 | data)
//! node   SHA-256(01 | left | right)        the left part is the largest power of two below the number of leaves
//! path   siblings from the leaf to the root
//! ```
//!
//! The two prefixes distinguish nodes from leaves.

use sha2::{Digest, Sha256};

/// A hash in a tree.
pub type Hash = [u8; 32];

/// Returns the hash of a leaf.
pub fn hash_leaf(data: &[u8]) -> Hash {
    Sha256::new().chain_update([0]).chain_update(data).finalize().into()
}

fn hash_node(left: &Hash, right: &Hash) -> Hash {
    Sha256::new().chain_update([1]).chain_update(left).chain_update(right).finalize().into()
}

/// Returns the number of leaves in the left part of a tree of more than one.
fn left_leaves(leaves: usize) -> usize {
    leaves.next_power_of_two() / 2
}

/// Returns the root of all leaves; without leaves, the hash of the empty string.
pub fn merkle_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest(b"").into(),
        [one] => *one,
        leaves => {
            let (left, right) = leaves.split_at(left_leaves(leaves.len()));
            hash_node(&merkle_root(left), &merkle_root(right))
        }
    }
}

/// Returns the siblings on the path from a leaf to the root, nearest first; empty if there is no such leaf.
pub fn audit_path(leaves: &[Hash], index: usize) -> Vec<Hash> {
    if leaves.len() < 2 || index >= leaves.len() {
        return Vec::new();
    }
    let (left, right) = leaves.split_at(left_leaves(leaves.len()));
    let (mut path, sibling) = match index.checked_sub(left.len()) {
        None => (audit_path(left, index), merkle_root(right)),
        Some(index) => (audit_path(right, index), merkle_root(left)),
    };
    path.push(sibling);
    path
}

/// Returns the root of a tree of `leaves` leaves in which leaf `index` has these siblings; `None` if the number of
/// siblings does not match.
pub fn root_from_path(leaf: Hash, index: u64, leaves: u64, path: &[Hash]) -> Option<Hash> {
    if index >= leaves {
        return None;
    }
    // Algorithm of RFC 9162, 2.1.3.2.
    let (mut at, mut last, mut hash) = (index, leaves - 1, leaf);
    for sibling in path {
        if last == 0 {
            return None;
        }
        if at % 2 == 1 || at == last {
            hash = hash_node(sibling, &hash);
            while at % 2 == 0 && at != 0 {
                at /= 2;
                last /= 2;
            }
        } else {
            hash = hash_node(&hash, sibling);
        }
        at /= 2;
        last /= 2;
    }
    (last == 0).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::hex::to_hex;

    #[test]
    fn roots_are_those_of_certificate_transparency() {
        // Reference data of the RFC 6962 authors' implementation.
        let inputs: [&[u8]; 8] = [
            b"",
            &[0x00],
            &[0x10],
            &[0x20, 0x21],
            &[0x30, 0x31],
            &[0x40, 0x41, 0x42, 0x43],
            &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
            &[0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f],
        ];
        let leaves: Vec<Hash> = inputs.iter().map(|input| hash_leaf(input)).collect();
        let roots = [
            (0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (1, "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
            (2, "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
            (8, "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"),
        ];
        for (count, expected) in roots {
            assert_eq!(to_hex(&merkle_root(&leaves[..count])), expected, "{count}");
        }
    }

    #[test]
    fn every_leaf_climbs_to_the_root_and_no_other_does() {
        for count in 1..40_u64 {
            let leaves: Vec<Hash> = (0..count).map(|i| hash_leaf(&i.to_le_bytes())).collect();
            for index in 0..count {
                let siblings = audit_path(&leaves, usize::try_from(index).unwrap_or(0));
                let climbed = |leaf, index, count, siblings: &[Hash]| root_from_path(leaf, index, count, siblings);
                let own = hash_leaf(&index.to_le_bytes());
                assert_eq!(climbed(own, index, count, &siblings), Some(merkle_root(&leaves)), "{index} of {count}");
                assert_ne!(climbed(hash_leaf(b"other"), index, count, &siblings), Some(merkle_root(&leaves)));
                assert_eq!(climbed(own, count, count, &siblings), None);
                for other in (0..count).filter(|other| *other != index) {
                    assert_ne!(
                        climbed(own, other, count, &siblings),
                        Some(merkle_root(&leaves)),
                        "{other} for {index} of {count}"
                    );
                }
                if let Some((_, shorter)) = siblings.split_last() {
                    assert_ne!(climbed(own, index, count, shorter), Some(merkle_root(&leaves)));
                }
            }
        }
    }
}
