//! LZF as liblzf writes it: literals and copies of earlier output.
//!
//! ```text
//! 000LLLLL                    L + 1 literal bytes follow
//! LLLooooo oooooooo           copy L + 2 bytes from (o + 1) bytes back, 1 <= L <= 6
//! 111ooooo LLLLLLLL oooooooo  copy L + 9 bytes
//! ```

use crate::error::{Error, Result};

/// Decompresses a block to at most `limit` bytes.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when it is damaged or longer.
pub fn decompress(input: &[u8], limit: usize) -> Result<Vec<u8>> {
    let damaged = || Error::input("expected LZF, found damaged bytes");
    let mut out = Vec::with_capacity(limit.min(input.len().saturating_mul(4)));
    let mut rest = input.iter().copied();
    while let Some(control) = rest.next() {
        let control = usize::from(control);
        if control < 32 {
            for _ in 0..=control {
                out.push(rest.next().ok_or_else(damaged)?);
            }
        } else {
            let mut length = control >> 5;
            if length == 7 {
                length += usize::from(rest.next().ok_or_else(damaged)?);
            }
            let back = ((control & 0x1f) << 8) + usize::from(rest.next().ok_or_else(damaged)?) + 1;
            let start = out.len().checked_sub(back).ok_or_else(damaged)?;
            // A copy may overlap its own output.
            for at in start..start + length + 2 {
                out.push(out[at]);
            }
        }
        if out.len() > limit {
            return Err(Error::input(format!("expected at most {limit} bytes after LZF decompression, found more")));
        }
    }
    Ok(out)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn literals_and_copies_are_decoded() {
        assert_eq!(decompress(&[2, b'a', b'b', b'c', 0x20, 2], 100).unwrap(), b"abcabc");
        assert_eq!(decompress(&[0, b'a', 0xe0, 1, 0], 100).unwrap(), b"aaaaaaaaaaa");
        for bad in [&[3, b'a'][..], &[0x20, 5], &[0xe0], &[0, b'a', 0x20]] {
            assert!(decompress(bad, 100).is_err());
        }
        assert!(decompress(&[0, b'a', 0xe0, 200, 0], 100).is_err());
    }
}
