//! HDF5 files assembled byte by byte: several variables of bytes whose chunks are interleaved, as a program writes them
//! that appends one time step after another.
//!
//! ```text
//! superblock   root   headers   v0[0] v1[0] v2[0] v0[1] ... v2[63] leaf0 leaf1 leaf2   v0[64] ...   roots
//! ```
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use hdf5_reader::checksum::jenkins_lookup3;

const UNDEFINED_ADDRESS: u64 = u64::MAX;

/// Children of a B-tree node.
const CHILDREN: u64 = 64;

fn message(kind: u8, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    [&[kind][..], &length.to_le_bytes(), &[0], data].concat()
}

fn header(messages: &[Vec<u8>]) -> Vec<u8> {
    let messages = messages.concat();
    let mut out = b"OHDR\x02\x02".to_vec();
    out.extend_from_slice(&u32::try_from(messages.len()).unwrap().to_le_bytes());
    out.extend_from_slice(&messages);
    with_checksum(out)
}

fn with_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = jenkins_lookup3(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Encodes a node of a chunk B-tree: `first` is the record of its first child, and each child has `step` records.
fn node(level: u8, first: u64, step: u64, chunk: u32, children: &[u64]) -> Vec<u8> {
    let mut out = b"TREE\x01".to_vec();
    out.push(level);
    out.extend_from_slice(&u16::try_from(children.len()).unwrap().to_le_bytes());
    [UNDEFINED_ADDRESS, UNDEFINED_ADDRESS].iter().for_each(|sibling| out.extend_from_slice(&sibling.to_le_bytes()));
    for number in 0..=children.len() as u64 {
        out.extend_from_slice(&chunk.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        [first + number * step, 0, 0].iter().for_each(|offset| out.extend_from_slice(&offset.to_le_bytes()));
        if let Some(child) = children.get(usize::try_from(number).unwrap()) {
            out.extend_from_slice(&child.to_le_bytes());
        }
    }
    // Nodes have room for the maximum number of children.
    out.resize(24 + 65 * 32 + 64 * 8, 0);
    out
}

/// Encodes a file with `variables` variables named `v0`, `v1` ..., each of `records` chunks of `chunk` bytes:
/// `v(record, chunk)`.
pub(crate) fn interleaved(variables: u64, records: u64, chunk: u32) -> Vec<u8> {
    let header_at = |number: u64| 1024 + number * 256;
    let mut out = vec![0; usize::try_from(header_at(variables)).unwrap()];
    let mut leaves: Vec<Vec<u64>> = vec![Vec::new(); usize::try_from(variables).unwrap()];
    for first in (0..records).step_by(usize::try_from(CHILDREN).unwrap()) {
        let mut children: Vec<Vec<u64>> = vec![Vec::new(); leaves.len()];
        for record in first..(first + CHILDREN).min(records) {
            for (number, children) in (0_u64..).zip(&mut children) {
                children.push(out.len() as u64);
                let value = |at: u32| u8::try_from((u64::from(at) + record * 7 + number * 31) % 251).unwrap();
                out.extend((0..chunk).map(value));
            }
        }
        for (leaves, children) in leaves.iter_mut().zip(children) {
            leaves.push(out.len() as u64);
            out.extend_from_slice(&node(0, first, 1, chunk, &children));
        }
    }
    let mut links = vec![message(2, &[&[0, 0][..], &[0xff; 16]].concat())];
    for (number, leaves) in (0_u64..).zip(leaves) {
        let tree = out.len() as u64;
        out.extend_from_slice(&node(1, 0, CHILDREN, chunk, &leaves));
        let shape = [records.to_le_bytes(), u64::from(chunk).to_le_bytes()].concat();
        let layout = [&[3, 2, 3][..], &tree.to_le_bytes(), &1_u32.to_le_bytes(), &chunk.to_le_bytes(), &[1, 0, 0, 0]];
        let dataset = header(&[
            message(1, &[&[2, 2, 0, 1][..], &shape].concat()),
            message(3, &[0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0]),
            message(8, &layout.concat()),
        ]);
        let at = usize::try_from(header_at(number)).unwrap();
        out[at..at + dataset.len()].copy_from_slice(&dataset);
        let name = format!("v{number}");
        let length = u8::try_from(name.len()).unwrap();
        links.push(message(6, &[&[1, 0, length][..], name.as_bytes(), &header_at(number).to_le_bytes()].concat()));
    }
    let root = header(&links);
    out[48..48 + root.len()].copy_from_slice(&root);
    let mut superblock = b"\x89HDF\r\n\x1a\n\x02\x08\x08\x00".to_vec();
    [0, UNDEFINED_ADDRESS, out.len() as u64, 48]
        .iter()
        .for_each(|number| superblock.extend_from_slice(&number.to_le_bytes()));
    out[..48].copy_from_slice(&with_checksum(superblock));
    out
}
