//! Media types of values: what a picture or a recording is, by its first bytes.

use arrow::{
    array::{Array, AsArray},
    datatypes::DataType,
};

use super::parts::is_media;

/// Returns the bytes of a value: binary, or an image or recording as Hugging Face stores it.
pub fn bytes_of(column: &dyn Array, index: usize) -> Option<&[u8]> {
    match column.data_type() {
        DataType::Binary => Some(column.as_binary::<i32>().value(index)),
        DataType::LargeBinary => Some(column.as_binary::<i64>().value(index)),
        DataType::BinaryView => Some(column.as_binary_view().value(index)),
        DataType::Struct(_) if is_media(column.data_type()) => {
            let bytes = column.as_struct().column_by_name("bytes")?;
            if bytes.is_null(index) { None } else { bytes_of(bytes.as_ref(), index) }
        }
        _ => None,
    }
}

/// How files of some types begin.
const MAGIC: [(&[u8], &str); 21] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"BM", "image/bmp"),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"%PDF-", "application/pdf"),
    (b"\x93NUMPY", "application/x-npy"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"ARROW1", "application/vnd.apache.arrow.file"),
    (b"\x89HDF\r\n\x1a\n", "application/x-hdf5"),
    (b"CDF\x01", "application/netcdf"),
    (b"CDF\x02", "application/netcdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
];

/// Returns the media type of a file by its first bytes, and of text by its extension.
pub fn media_type(extension: &str, start: &[u8]) -> &'static str {
    let last = extension.rsplit('.').next().unwrap_or_default();
    if start.is_empty() && last == "json" {
        return "application/json";
    }
    match (start.get(..4), start.get(4..8), start.get(8..12)) {
        (Some(b"RIFF"), _, Some(b"WAVE")) => return "audio/wav",
        (Some(b"RIFF"), _, Some(b"WEBP")) => return "image/webp",
        (_, Some(b"ftyp"), _) => return "video/mp4",
        _ if start.get(128..132) == Some(b"DICM") => return "application/dicom",
        _ => {}
    }
    // Two letters tell little: a bitmap begins with them, and so may a text.
    let is_text = is_text(start);
    let known =
        MAGIC.iter().filter(|(magic, _)| !is_text || magic.len() > 2).find(|(magic, _)| start.starts_with(magic));
    match known {
        Some((_, media)) => media,
        None if is_text && last == "json" => "application/json",
        None if is_text && !start.is_empty() => "text/plain",
        None => "application/octet-stream",
    }
}

/// Whether bytes are text; the last character may be cut.
fn is_text(start: &[u8]) -> bool {
    let sound = match std::str::from_utf8(start) {
        Ok(_) => true,
        Err(e) => e.error_len().is_none(),
    };
    sound && !start.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_the_media_type() {
        assert_eq!(media_type("jpg", b"\x89PNG\r\n\x1a\n...."), "image/png");
        assert_eq!(media_type("txt", b"BMI of the patient"), "text/plain");
        assert_eq!(media_type("json", b"{\"a\": 1}"), "application/json");
        assert_eq!(media_type("json", b"\0\x01"), "application/octet-stream");
        assert_eq!(media_type("", b"RIFF....WAVEfmt "), "audio/wav");
    }
}
