//! placeholder
/// Codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Codec {
    /// n
    None,
    /// z
    Zstd(i32),
}
