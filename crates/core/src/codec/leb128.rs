//! Numbers in unsigned LEB128: seven bits a byte, the lowest first.

/// Appends a number.
pub fn put_leb128(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Takes a number below 2^63 off the front of some bytes; `None` if there is none.
pub fn take_leb128(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_taken_off_as_they_were_put() {
        let numbers = [0, 1, 127, 128, 300, 1 << 35, (1 << 63) - 1];
        let mut bytes = Vec::new();
        numbers.iter().for_each(|number| put_leb128(&mut bytes, *number));
        assert_eq!(bytes.get(3..7), Some(&[0x80, 1, 0xac, 2][..]));
        let mut rest = bytes.as_slice();
        assert!(numbers.iter().all(|number| take_leb128(&mut rest) == Some(*number)) && rest.is_empty());
        assert_eq!([&[][..], &[0x80], &[0xff; 10]].map(|mut bytes| take_leb128(&mut bytes)), [None; 3]);
    }
}
