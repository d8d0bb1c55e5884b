//! Pictures: as many as a page can hold.

use serde::Serialize;

/// Maximum number of pictures.
const MAX_PICTURES: usize = 24;
/// Maximum number of bytes of a picture.
pub(super) const MAX_PICTURE_BYTES: u64 = 256 << 10;
/// Maximum number of bytes of all pictures: base64 makes four of three.
const MAX_BYTES: u64 = 700 << 10;
/// Media types that every browser shows.
const SHOWN: [&str; 3] = ["image/png", "image/jpeg", "image/webp"];

/// Pictures of some records.
#[derive(Debug, Clone, Default)]
pub struct Media {
    /// Pictures.
    pub pictures: Vec<Picture>,
    /// Number of pictures that were too large or too many.
    pub omitted: u64,
}

/// A picture.
#[derive(Debug, Clone, Serialize)]
pub struct Picture {
    /// Record and part.
    pub name: String,
    /// Media type.
    pub media: &'static str,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its bytes.
    #[serde(skip)]
    pub content: Vec<u8>,
}

/// Collects pictures.
#[derive(Debug, Default)]
pub(super) struct Gallery {
    media: Media,
    bytes: u64,
}

impl Gallery {
    /// Adds a part of `bytes` bytes, of which `content` is the beginning.
    pub(super) fn add_part(&mut self, name: &str, media: &'static str, content: &[u8], bytes: u64) {
        if !SHOWN.contains(&media) {
            return;
        }
        let is_whole = content.len() as u64 == bytes;
        let fits = is_whole && bytes <= MAX_PICTURE_BYTES && self.bytes + bytes <= MAX_BYTES;
        if !fits || self.media.pictures.len() >= MAX_PICTURES {
            self.media.omitted += 1;
            return;
        }
        self.bytes += bytes;
        self.media.pictures.push(Picture { name: name.to_owned(), media, bytes, content: content.to_vec() });
    }

    pub(super) fn finish(self) -> Media {
        self.media
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_bounded_in_number_and_bytes() {
        let mut gallery = Gallery::default();
        let picture = vec![0; 100 << 10];
        (0..20).for_each(|_| gallery.add_part("a.png", "image/png", &picture, picture.len() as u64));
        gallery.add_part("cut.png", "image/png", &picture, 1 << 20);
        gallery.add_part("script.svg", "image/svg+xml", b"<svg/>", 6);
        let media = gallery.finish();
        assert_eq!((media.pictures.len(), media.omitted), (7, 14));
        assert!(media.pictures.iter().map(|picture| picture.bytes).sum::<u64>() <= MAX_BYTES);
        let mut gallery = Gallery::default();
        (0..100).for_each(|_| gallery.add_part("a.png", "image/png", b"x", 1));
        assert_eq!(gallery.finish().pictures.len(), MAX_PICTURES);
    }
}
