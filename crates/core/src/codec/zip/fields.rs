//! Numbers and extra fields of headers: little-endian, at fixed places.

/// Returns the number of so many bytes at a place; 0 if the bytes end before.
pub(super) fn uint_at(bytes: &[u8], at: usize, width: usize) -> u64 {
    bytes.get(at..at + width).unwrap_or_default().iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

/// Iterates over the extra fields of a member: ids and contents. What is cut short is omitted.
pub(super) fn extra_fields(mut extra: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = extra.split_at_checked(4)?;
        let (content, rest) = rest.split_at_checked(usize::try_from(uint_at(head, 2, 2)).ok()?)?;
        extra = rest;
        Some((uint_at(head, 0, 2), content))
    })
}
