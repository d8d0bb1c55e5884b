//! The zip archive that a workbook is, as its decoder sees it: an archive of the same parts, unpacked, whose bytes come
//! from our own reader of archives as they are asked for.
//!
//! ```text
//! the file           [header, deflated part]*   directory   end
//! what decoders see  [header, part]*            directory   end        no bytes of a part exist before they are read
//! ```
//!
//! So each part is unpacked once, never to more bytes than the directory states, and compared with its checksum. The
//! decoder allocates what it finds, so bytes are looked at before it gets them ([`watch`](super::watch)): no text, tag
//! or record is longer than a bound, and what is held in memory as a whole has bounds of its own.

use std::{
    io::{self, Read, Seek, SeekFrom},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::watch::Watch;
use crate::{
    codec::zip::{self, ZipMember},
    error::{Error, Result},
    format::ranged::RangedInput,
};

/// Most parts of a workbook.
const MOST_PARTS: usize = 1 << 16;

/// Bytes of a part, and of them for each stored byte, from which on together it is a bomb.
const BOMB_BYTES: u64 = 64 << 20;
const BOMB_RATIO: u64 = 250;

/// Bytes of the file per read.
const PIECE: u64 = 128 << 10;

/// Bytes of a local header before the name.
const LOCAL_BYTES: u64 = 30;

/// Returns the names of the members of an archive; an archive of very many is no workbook.
///
/// # Errors
/// When it is damaged.
pub(super) fn list_members(archive: &RangedInput) -> Result<Vec<ZipMember>> {
    let mut members = Vec::new();
    zip::each_member(archive, &mut |member| {
        if members.len() == MOST_PARTS {
            return Err(Error::input(format!("expected a workbook of at most {MOST_PARTS} parts, found more")));
        }
        // Some writers on Windows take its separator.
        let mut member = member;
        member.name = member.name.replace('\\', "/");
        members.push(member);
        Ok(())
    })?;
    Ok(members)
}

/// Whether a decoder reads parts of this name: not pictures, macros, fonts and the like.
fn is_part(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let of_office = lower.ends_with(".xml") || lower.ends_with(".rels") || lower.ends_with(".bin");
    of_office
        && !lower.ends_with("vbaproject.bin")
        && !lower.contains("/media/")
        && !lower.contains("/printersettings/")
}

/// The archive that a decoder sees. Clones read the same one.
#[derive(Clone)]
pub(super) struct Package(Arc<Mutex<State>>);

struct State {
    archive: RangedInput,
    parts: Vec<Part>,
    /// Directory and end, and where they begin.
    directory: Vec<u8>,
    directory_at: u64,
    /// Where is read next.
    at: u64,
    open: Option<OpenPart>,
    watch: Watch,
    /// Why reading failed first, which decoders tell with fewer words, or not at all.
    fault: Option<Error>,
}

struct Part {
    member: ZipMember,
    header: Vec<u8>,
    /// Where its header begins.
    start: u64,
}

impl Part {
    fn content_at(&self) -> u64 {
        self.start + self.header.len() as u64
    }

    fn end(&self) -> u64 {
        self.content_at() + self.member.content.bytes
    }
}

/// A part that is being unpacked.
struct OpenPart {
    number: usize,
    input: Box<dyn Read + Send>,
    /// Bytes that were read of it.
    read: u64,
}

impl Package {
    /// Opens an archive of these members.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if a part cannot be read, or is a bomb.
    pub(super) fn open(archive: RangedInput, members: Vec<ZipMember>, most_texts: u64) -> Result<Self> {
        check_headers(&archive, &members)?;
        let (mut parts, mut start): (Vec<Part>, u64) = (Vec::new(), 0);
        for member in members.into_iter().filter(|member| !member.is_folder() && is_part(&member.name)) {
            if let Some(refusal) = member.refusal() {
                return Err(refusal);
            }
            check_bomb(&member)?;
            let part = Part { header: local_header(&member), member, start };
            start = part.end();
            parts.push(part);
        }
        let mut names: Vec<String> = parts.iter().map(|part| part.member.name.to_ascii_lowercase()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Error::input(format!("expected parts of different names, found `{}` twice", twice[0])));
        }
        Ok(Self(Arc::new(Mutex::new(State {
            directory: directory_of(&parts, start),
            directory_at: start,
            archive,
            parts,
            at: 0,
            open: None,
            watch: Watch::new(most_texts),
            fault: None,
        }))))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes of the texts that cells share.
    pub(super) fn text_bytes(&self) -> u64 {
        let is_texts = |part: &&Part| Watch::has_texts(&part.member.name);
        self.lock().parts.iter().filter(is_texts).map(|part| part.member.content.bytes).sum()
    }

    /// Returns why reading failed, if it did.
    pub(super) fn take_fault(&self) -> Option<Error> {
        self.lock().fault.take()
    }

    /// Says that everything from here on is read as a stream, which need not fit into memory.
    pub(super) fn end_opening(&self) {
        self.lock().watch.end_opening();
    }

    /// Says that the decoder has passed on a cell, so that it holds nothing.
    pub(super) fn mark_cell(&self) {
        self.lock().watch.mark_cell();
    }

    /// Reads the rest of the part that is being read, whose end compares all of it with its checksum, and returns its
    /// last bytes, up to a bound.
    ///
    /// # Errors
    /// When it is damaged.
    pub(super) fn drain_part(&self) -> Result<Vec<u8>> {
        let mut state = self.lock();
        let Some(mut open) = state.open.take() else { return Ok(Vec::new()) };
        let mut tail = state.watch.take_tail();
        let (mut piece, number) = (vec![0; 64 << 10], open.number);
        loop {
            let read = open.input.read(&mut piece).map_err(|e| state.name_part(Error::from(e), number))?;
            if read == 0 {
                return Ok(tail);
            }
            tail.extend(piece[..read].iter().take(Watch::MOST_TAIL.saturating_sub(tail.len())));
        }
    }

    /// Returns a part as a stream of its own, past all bounds but those of the directory; `None` if there is none.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn open_part(&self, name: &str) -> Result<Option<Box<dyn Read + Send>>> {
        let state = self.lock();
        let number = state.parts.iter().position(|part| part.member.name.eq_ignore_ascii_case(name));
        number.map(|number| state.open_at(number)).transpose()
    }
}

/// Compares the header of each member with the directory: a part that damage has given another name would be missed by
/// nobody, although styles and texts are in some.
fn check_headers(archive: &RangedInput, members: &[ZipMember]) -> Result<()> {
    let header = |member: &ZipMember| {
        let start = member.content.local;
        let end = start.saturating_add(member.content.header_bytes()).min(archive.byte_count());
        std::iter::once(start.min(end)..end).collect()
    };
    let _prefetched = archive.prefetch_parts(members, header)?;
    members.iter().try_for_each(|member| member.data_offset(archive).map(|_| ()))
}

fn check_bomb(member: &ZipMember) -> Result<()> {
    let (bytes, packed) = (member.content.bytes, member.content.packed);
    if bytes > BOMB_BYTES && bytes / packed.max(1) > BOMB_RATIO {
        return Err(Error::input(format!(
            "expected parts of a workbook that unpack to at most {BOMB_RATIO} times their size, found `{}` of {packed} \
             bytes that unpacks to {bytes}",
            member.name
        ))
        .with_hint("it is a bomb, or made of very many equal rows: save it as CSV, or skip it with --exclude"));
    }
    Ok(())
}

impl State {
    fn open_at(&self, number: usize) -> Result<Box<dyn Read + Send>> {
        let member = &self.parts[number].member;
        let at = member.data_offset(&self.archive)?;
        let end = at + member.content.packed;
        member.content.open(Box::new(Packed { archive: self.archive.clone(), at, end }))
    }

    fn name_part(&self, error: Error, number: usize) -> Error {
        let part = &self.parts[number];
        if error.place().byte.is_some() { error } else { error.at_byte(part.member.content.local) }
    }

    /// Reads from the part of this number.
    fn read_part(&mut self, number: usize, buffer: &mut [u8]) -> Result<usize> {
        let offset = self.at - self.parts[number].content_at();
        let fits = self.open.as_ref().is_some_and(|open| open.number == number && open.read <= offset);
        if !fits {
            self.open = Some(OpenPart { number, input: self.open_at(number)?, read: 0 });
            self.watch.begin_part(&self.parts[number].member.name, self.parts[number].member.content.bytes)?;
        }
        let Some(open) = &mut self.open else { return Err(Error::internal("no part of a workbook is open")) };
        let ahead = io::copy(&mut open.input.by_ref().take(offset - open.read), &mut io::sink())?;
        open.read += ahead;
        let read = open.input.read(buffer)?;
        open.read += read as u64;
        self.watch.look_at(&buffer[..read])?;
        // The last read compares the checksum.
        let is_end = read > 0 && open.read == self.parts[number].member.content.bytes;
        if is_end && open.input.read(&mut [0])? > 0 {
            return Err(Error::internal("a part is longer than it may be"));
        }
        Ok(read)
    }

    fn read_next(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.at >= self.directory_at {
            let at = usize::try_from(self.at - self.directory_at).unwrap_or(usize::MAX);
            return Ok(copy_to(self.directory.get(at..).unwrap_or_default(), buffer));
        }
        let number = self.parts.partition_point(|part| part.end() <= self.at);
        let Some(part) = self.parts.get(number) else { return Ok(0) };
        if let Ok(at) = usize::try_from(self.at - part.start)
            && at < part.header.len()
        {
            return Ok(copy_to(&part.header[at..], buffer));
        }
        let left = usize::try_from(part.end() - self.at).unwrap_or(usize::MAX).min(buffer.len());
        self.read_part(number, &mut buffer[..left]).map_err(|error| self.name_part(error, number))
    }
}

fn copy_to(bytes: &[u8], buffer: &mut [u8]) -> usize {
    let length = bytes.len().min(buffer.len());
    buffer[..length].copy_from_slice(&bytes[..length]);
    length
}

impl Read for Package {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.lock();
        if buffer.is_empty() {
            return Ok(0);
        }
        match state.read_next(buffer) {
            Ok(read) => {
                state.at += read as u64;
                Ok(read)
            }
            Err(error) => {
                let told = io::Error::new(io::ErrorKind::InvalidData, error.message().to_owned());
                state.fault.get_or_insert(error);
                Err(told)
            }
        }
    }
}

impl Seek for Package {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut state = self.lock();
        let end = state.directory_at + state.directory.len() as u64;
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => end.checked_add_signed(by),
            SeekFrom::Current(by) => state.at.checked_add_signed(by),
        };
        state.at = at.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(state.at)
    }
}

/// The bytes of a part in the file.
struct Packed {
    archive: RangedInput,
    at: u64,
    end: u64,
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = (self.end - self.at).min(buffer.len() as u64).min(PIECE);
        if bytes == 0 {
            return Ok(0);
        }
        let read = self.archive.read_range(self.at..self.at + bytes).map_err(io::Error::from)?;
        self.at += read.len() as u64;
        Ok(copy_to(&read, buffer))
    }
}

/// Returns the local header of a part that is not packed; its sizes are those of the directory.
fn local_header(member: &ZipMember) -> Vec<u8> {
    let mut header = zip::MAGIC.to_vec();
    header.extend_from_slice(&45_u16.to_le_bytes());
    header.resize(26, 0);
    header.extend_from_slice(&name_bytes(member).to_le_bytes());
    header.extend_from_slice(&[0, 0]);
    debug_assert_eq!(header.len() as u64, LOCAL_BYTES);
    header.extend_from_slice(member.name.as_bytes());
    header
}

fn name_bytes(member: &ZipMember) -> u16 {
    u16::try_from(member.name.len()).unwrap_or(u16::MAX)
}

/// Returns the directory and the end of an archive of these parts, all numbers of which have 64 bits.
fn directory_of(parts: &[Part], at: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for Part { member, start, .. } in parts {
        let mut entry = b"PK\x01\x02".to_vec();
        // Made by and needed version 4.5, names in UTF-8, stored.
        entry.extend_from_slice(&[45, 0, 45, 0, 0, 8, 0, 0, 0, 0, 0x21, 0]);
        entry.extend_from_slice(&member.content.crc32.to_le_bytes());
        entry.extend_from_slice(&[0xff; 8]);
        entry.extend_from_slice(&name_bytes(member).to_le_bytes());
        entry.extend_from_slice(&28_u16.to_le_bytes());
        entry.resize(42, 0);
        entry.extend_from_slice(&[0xff; 4]);
        entry.extend_from_slice(member.name.as_bytes());
        entry.extend_from_slice(&[1, 0, 24, 0]);
        let sizes = [member.content.bytes, member.content.bytes, *start];
        sizes.iter().for_each(|size| entry.extend_from_slice(&size.to_le_bytes()));
        out.extend_from_slice(&entry);
    }
    let (bytes, count) = (out.len() as u64, parts.len() as u64);
    out.extend_from_slice(b"PK\x06\x06");
    out.extend_from_slice(&44_u64.to_le_bytes());
    out.extend_from_slice(&[45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    [count, count, bytes, at].iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
    out.extend_from_slice(&(at + bytes).to_le_bytes());
    out.extend_from_slice(&1_u32.to_le_bytes());
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    out.extend_from_slice(&[0xff; 12]);
    out.extend_from_slice(&[0, 0]);
    out
}
