//! The beginning of a compressed page: levels precede the values, and can be read without them.
//!
//! ```text
//! snappy   varint length of all | elements: 2 bits of kind, length, then bytes, or how far back to copy from
//! ```

/// Decompresses the first `wanted` bytes of a snappy page, or all if it has fewer; `None` if it is damaged.
pub(super) fn of_snappy<'a>(stored: &[u8], wanted: usize, out: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    out.clear();
    let length = stored.iter().position(|byte| *byte < 0x80)? + 1;
    let mut rest = stored.get(length..)?;
    while out.len() < wanted {
        let Some((&tag, after)) = rest.split_first() else { break };
        let long = usize::from(tag >> 2);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | usize::from(*byte));
        let (length, extra) = match tag & 3 {
            0 if long < 60 => (long + 1, 0),
            0 => (0, long - 59),
            1 => (4 + (long & 7), 1),
            2 => (long + 1, 2),
            _ => (long + 1, 4),
        };
        let (extra, after) = after.split_at_checked(extra)?;
        rest = after;
        if tag & 3 == 0 {
            let length = if extra.is_empty() { length } else { number(extra).checked_add(1)? };
            let (literal, after) = rest.split_at_checked(length)?;
            out.extend_from_slice(&literal[..length.min(wanted - out.len())]);
            rest = after;
        } else {
            let back = number(extra) | if tag & 3 == 1 { usize::from(tag >> 5) << 8 } else { 0 };
            let start = out.len().checked_sub(back).filter(|_| back > 0)?;
            // The copied range may overlap the bytes being written.
            (start..start + length).for_each(|at| out.push(out[at]));
        }
    }
    Some(&out[..wanted.min(out.len())])
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_prefix_is_that_of_the_whole(
            parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..90), 1_usize..40), 0..60), at in 0_usize..9000
        ) {
            let whole: Vec<u8> = parts.iter().flat_map(|(bytes, times)| bytes.repeat(*times)).collect();
            let packed = snap::raw::Encoder::new().compress_vec(&whole).unwrap();
            for wanted in [0, 1, at, whole.len(), whole.len() + 1] {
                let mut out = vec![7];
                prop_assert_eq!(of_snappy(&packed, wanted, &mut out).unwrap(), &whole[..wanted.min(whole.len())]);
            }
        }

        #[test]
        fn hostile_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), wanted in 0_usize..3000) {
            let mut out = Vec::new();
            if let Some(found) = of_snappy(&bytes, wanted, &mut out) {
                prop_assert!(found.len() <= wanted);
            }
        }
    }
}
