//! Merges tables with the same columns whose rows are not records, such as sidecars: their codec is not an option, so
//! each column stays compressed as it was.

use ::parquet::{
    basic::Compression, column::writer::ColumnCloseResult, file::reader::ChunkReader, schema::types::ColumnDescPtr,
};

use super::{
    super::chunk::name_of,
    GroupPart,
    column::{Part, Target, merge_chunks},
    out::SplicedChunk,
};
use crate::{codec::Codec, error::Result};

/// Compression of columns that are compressed in some parts only.
const MIXED: Codec = Codec::Zstd(1);

/// An assembled column chunk.
#[derive(Debug)]
pub struct TableChunk(SplicedChunk);

impl TableChunk {
    /// Returns its pages, and their metadata.
    pub fn into_parts(self) -> (impl ChunkReader, ColumnCloseResult) {
        (self.0.pieces, self.0.close)
    }
}

/// Merges row groups whose files have exactly these columns; `None` if pages have a form that only the decoder
/// supports.
///
/// # Errors
/// When a file is damaged, naming it, or cannot be read.
pub fn splice_table(columns: &[ColumnDescPtr], parts: &[GroupPart]) -> Result<Option<Vec<TableChunk>>> {
    let mut chunks = Vec::with_capacity(columns.len());
    for (number, column) in columns.iter().enumerate() {
        let theirs: Vec<Part<'_>> = parts.iter().map(|part| part.column_part(number)).collect();
        let codec = codec_of(&theirs);
        let Some((chunk, _)) = merge_chunks(&Target { column, codec, name: name_of(codec)? }, &theirs)? else {
            return Ok(None);
        };
        chunks.push(TableChunk(chunk));
    }
    Ok(Some(chunks))
}

/// Returns the common codec of all parts, or else [`MIXED`].
fn codec_of(parts: &[Part<'_>]) -> Codec {
    match parts.iter().all(|part| part.chunk.compression() == Compression::UNCOMPRESSED) {
        true => Codec::None,
        false => MIXED,
    }
}
