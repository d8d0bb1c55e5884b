//! Salts, which prevent erased ids from being recovered by hashing guesses without the dataset.

use hmac::{Hmac, KeyInit as _, Mac};
use sha2::{Digest as _, Sha256};

use crate::{
    codec::hex::{from_hex, to_hex},
    error::{Error, Result},
    id::TransactionId,
};

/// HMAC-SHA-256 of a text.
pub type KeyedHash = [u8; 32];

/// The random salt that makes the hashes of a dataset unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Salt([u8; 32]);

impl Salt {
    /// Returns a new random salt.
    pub fn fresh() -> Self {
        let mut hasher = Sha256::new();
        for _ in 0..2 {
            hasher.update(TransactionId::fresh().0.as_bytes());
        }
        Self(hasher.finalize().into())
    }

    /// Returns the text stored in the log.
    pub fn hex_text(&self) -> String {
        to_hex(&self.0)
    }

    /// Parses the text made by [`hex_text`](Self::hex_text).
    pub(in crate::dataset) fn from_hex(text: &str) -> Result<Self> {
        let bytes = from_hex(text).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        bytes.map(Self).ok_or_else(|| Error::integrity("expected a salt of 64 hexadecimal digits in the log entry"))
    }

    /// Returns the HMAC-SHA-256 of a text.
    pub fn hash(&self, text: &str) -> KeyedHash {
        // HMAC pads keys shorter than a block with zeros.
        let mut key = [0; 64];
        key[..self.0.len()].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&key.into());
        mac.update(text.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_hmac_sha256() {
        // RFC 4231, test case 2, has a key of 4 bytes, which HMAC pads with zeros.
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        let hex: String = Salt(key).hash("what do ya want for nothing?").iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
