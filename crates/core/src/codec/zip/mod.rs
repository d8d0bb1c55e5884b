//! ZIP archives: the directory at their end, and the content of members.
//!
//! ```text
//! [local header, name, extra, bytes]*   [central entry, name, extra]*   [zip64 end] [zip64 locator]   end
//! ```
//!
//! `directory` finds and reads the directory, which is authoritative; `names` decodes names; `content` decodes members
//! and compares them with the directory. NPZ is an archive of stored or deflated arrays ([`read_members`]); any other
//! archive is read as a folder by `storage`.

mod content;
mod directory;
mod fields;
mod names;

use std::{
    borrow::Cow,
    io::{BufReader, Read},
};

pub use self::content::{Content, MAGIC, Method};
use self::{content::Checked, directory::Directory};
use crate::error::{Error, Result};

/// First bytes of all archives: those with members, those without, and the first part of several.
pub const STARTS: [&[u8]; 3] = [MAGIC, b"PK\x05\x06", b"PK\x07\x08"];

/// Maximum size of the directory of an archive of arrays, in bytes.
const MAX_DIRECTORY: u64 = 64 << 20;

/// A member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZipMember {
    /// Name in the archive; that of a folder ends in `/`.
    pub name: String,
    /// Where its content is, and what it has to be.
    pub content: Content,
    /// Why the name leads out of the archive; `None` if it does not.
    unsafe_name: Option<Cow<'static, str>>,
    /// Whether it is a symbolic link.
    pub is_link: bool,
    /// Whether it is in another file of an archive of several.
    is_elsewhere: bool,
}

/// Reads ranges of an archive.
pub trait Ranges {
    /// Returns the size of the archive in bytes.
    fn byte_count(&self) -> u64;

    /// Reads `bytes` bytes at an offset.
    ///
    /// # Errors
    /// When the range is beyond the end of the archive.
    fn read(&self, offset: u64, bytes: u64) -> Result<bytes::Bytes>;
}

/// Calls `visit` with every member of an archive, in the order of its directory, which is read in pieces. Returns the
/// offset of the directory.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when the directory is damaged, or the archive is in several files; when
/// `visit` fails.
pub fn each_member(archive: &dyn Ranges, visit: &mut dyn FnMut(ZipMember) -> Result<()>) -> Result<u64> {
    let directory = Directory::find(archive)?;
    directory.each_member(archive, visit)?;
    Ok(directory.start)
}

/// Reads the members of an archive of arrays, in the order of its directory.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) when it is damaged or of an unsupported kind.
pub fn read_members(archive: &dyn Ranges) -> Result<Vec<ZipMember>> {
    let directory = Directory::find(archive)?;
    if directory.bytes > MAX_DIRECTORY {
        return Err(Error::input(format!(
            "expected a ZIP directory of at most 64 MiB, found {} bytes",
            directory.bytes
        )));
    }
    let mut members = Vec::new();
    directory.each_member(archive, &mut |member| {
        if let Some(refusal) = member.refusal() {
            return Err(refusal);
        }
        let (method, name) = (member.content.method, &member.name);
        if ![Method::STORED, Method::DEFLATE].contains(&method) {
            let message = format!("expected stored or deflated members, found `{name}` of method {}", method.0);
            return Err(Error::input(message));
        }
        members.push(member);
        Ok(())
    })?;
    Ok(members)
}

impl ZipMember {
    /// Whether it is a folder.
    pub fn is_folder(&self) -> bool {
        self.name.ends_with('/')
    }

    /// Returns why a name does not name a file below the folder that the archive stands for.
    pub fn unsafe_name(&self) -> Option<Error> {
        let fault = self.unsafe_name.as_deref()?;
        Some(
            Error::input(format!("expected names of members below a folder, found {:?}: {fault}", self.name))
                .with_hint("such a name may lead out of the folder: pack the files again, or skip it with --exclude"),
        )
    }

    /// Returns why its content cannot be read, whatever its bytes are; `None` if it can.
    pub fn refusal(&self) -> Option<Error> {
        let Content { method, packed, bytes, .. } = self.content;
        let name = &self.name;
        if self.is_folder() {
            let message = format!("expected no content of the folder `{name}`, found {bytes} bytes");
            return (bytes > 0).then(|| Error::input(message).with_hint("the archive is damaged: copy it again"));
        }
        if self.is_elsewhere {
            let message = format!("expected a zip archive in one file, found `{name}` in another part");
            return Some(Error::input(message).with_hint("join its parts first: zip -s 0 PARTS.zip --out WHOLE.zip"));
        }
        if self.content.is_encrypted() {
            let message = format!("expected members without a password, found `{name}` with one");
            return Some(Error::input(message).with_hint("unpack the archive with its password, and pack it without"));
        }
        if !method.is_read() {
            let method = method.name().map_or_else(|| format!("method {}", method.0), str::to_owned);
            let message =
                format!("expected members stored or packed by deflate, bzip2, zstd or xz, found `{name}` by {method}");
            return Some(Error::input(message).with_hint("pack the files again, such as with `zip`, or unpack them"));
        }
        if method == Method::STORED && packed != bytes {
            let message = format!("expected `{name}` to be stored in {bytes} bytes, found {packed}");
            return Some(Error::input(message).with_hint("the archive is damaged: copy it again"));
        }
        None
    }

    /// Whether the content is deflated.
    pub fn is_deflated(&self) -> bool {
        self.content.method == Method::DEFLATE
    }

    /// Returns the offset of the member's bytes in the archive.
    ///
    /// # Errors
    /// When its header is damaged or it extends beyond the end.
    pub fn data_offset(&self, archive: &dyn Ranges) -> Result<u64> {
        let Content { local, packed, .. } = self.content;
        let named = |e: Error| e.in_column(self.name.as_str());
        let start = self.content.data_start(&archive.read(local, self.content.header_bytes())?).map_err(named)?;
        match start.checked_add(packed) {
            Some(end) if end <= archive.byte_count() => Ok(start),
            _ => {
                Err(Error::input(format!("expected all of `{}`, found the end of the file", self.name)).at_byte(start))
            }
        }
    }

    /// Passes the content of a deflated or stored member to `sink`, piece by piece.
    ///
    /// # Errors
    /// When it is damaged, or `sink` fails.
    pub fn inflate_to(&self, archive: &dyn Ranges, sink: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let at = self.data_offset(archive)?;
        let stored = BufReader::with_capacity(PIECE, Stored { archive, at, end: at + self.content.packed });
        let inner: Box<dyn Read + '_> = match self.is_deflated() {
            true => Box::new(flate2::bufread::DeflateDecoder::new(stored)),
            false => Box::new(stored),
        };
        let (mut input, mut piece) = (Checked::new(inner, &self.content), vec![0; PIECE]);
        loop {
            let read = input.read(&mut piece).map_err(|e| match Error::from(e) {
                e if e.place().byte.is_some() => e,
                e => e.in_column(self.name.as_str()).at_byte(self.content.local),
            })?;
            if read == 0 {
                return Ok(());
            }
            sink(&piece[..read])?;
        }
    }
}

/// Bytes of a member per read.
const PIECE: usize = 1 << 20;

/// A range of an archive as a sequential reader.
struct Stored<'a> {
    archive: &'a dyn Ranges,
    at: u64,
    end: u64,
}

impl Read for Stored<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let bytes = (self.end - self.at).min(buffer.len() as u64);
        if bytes == 0 {
            return Ok(0);
        }
        let read = self.archive.read(self.at, bytes).map_err(std::io::Error::from)?;
        buffer[..read.len()].copy_from_slice(&read);
        self.at += read.len() as u64;
        Ok(read.len())
    }
}
