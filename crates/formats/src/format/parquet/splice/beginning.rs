//! The beginning of a page that snappy compressed: levels precede the values, and can be read without them.

use super::snappy::{Element, parse_length};

/// Decompresses the first `wanted` bytes of a page, or all if it has fewer; `None` if it is damaged.
pub(super) fn of_snappy<'a>(stored: &[u8], wanted: usize, out: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    out.clear();
    let (_, mut rest) = parse_length(stored)?;
    while out.len() < wanted && !rest.is_empty() {
        let element = Element::parse_first(rest)?;
        let Element { header, length, distance } = element;
        if distance == 0 {
            out.extend_from_slice(&rest[header..header + length.min(wanted - out.len())]);
        } else {
            let start = out.len().checked_sub(distance)?;
            // The copied range may overlap the bytes being written.
            (start..start + length).for_each(|at| out.push(out[at]));
        }
        rest = &rest[element.stored_length()..];
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
            parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 1..90), 1_usize..40), 0..60),
                at in 0_usize..9000
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
