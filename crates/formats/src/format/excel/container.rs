//! The compound file that an xls workbook is: streams of sectors, as in a file system.
//!
//! ```text
//! 0     d0 cf 11 e0 a1 b1 1a e1     30  sector shift u16     44  FAT sectors u32   48  directory u32
//! 56    mini cutoff u32             60  mini FAT u32         68  more of the FAT u32    76  FAT sectors u32 [109]
//! FAT        for each sector, the next one of its stream; ffff_fffe ends it
//! directory  entries of 128 bytes: name in UTF-16 [64], its bytes u16, kind u8, ... 116 first sector u32, 120 size u64
//! ```
//!
//! Streams shorter than the cutoff lie in sectors of 64 bytes within the stream of the root. Chains that run in circles
//! are refused. A decoder gets a new container with the one stream that it needs.

use bytes::Bytes;

use crate::error::{Error, Result};

/// First bytes of a compound file.
pub(super) const MAGIC: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

const HEADER_BYTES: usize = 512;
const ENTRY_BYTES: usize = 128;
const MINI_BYTES: usize = 64;
/// Sectors of the FAT that the header lists.
const LISTED: usize = 109;
const END: u32 = 0xffff_fffe;
/// The first number that is no sector.
const SPECIAL: u32 = 0xffff_fffa;

/// A stream, a folder, or the root.
#[derive(Debug)]
struct Entry {
    name: String,
    kind: u8,
    start: u32,
    bytes: u64,
}

/// A compound file.
#[derive(Debug)]
pub(super) struct Container {
    bytes: Bytes,
    sector_bytes: usize,
    fat: Vec<u32>,
    mini_fat: Vec<u32>,
    mini: Vec<u8>,
    cutoff: u64,
    entries: Vec<Entry>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(END, u32::from_le_bytes)
}

fn numbers(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.chunks_exact(4).map(|four| u32_at(four, 0))
}

fn damaged(what: &str) -> Error {
    Error::input(format!("expected a workbook in a compound file, found one with {what}"))
        .with_hint("the file may have been cut short while it was copied or written")
}

impl Container {
    /// Reads the lists of sectors and streams.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it is damaged.
    pub(super) fn open(bytes: Bytes) -> Result<Self> {
        let sector_bytes = match bytes.get(30) {
            Some(9) => 512,
            Some(12) => 4096,
            _ => return Err(damaged("sectors of an unknown size").at_byte(30)),
        };
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
            return Err(damaged("no header").at_byte(0));
        }
        let mut container = Self {
            sector_bytes,
            fat: Vec::new(),
            mini_fat: Vec::new(),
            mini: Vec::new(),
            cutoff: u64::from(u32_at(&bytes, 56)),
            entries: Vec::new(),
            bytes,
        };
        container.read_fat()?;
        let directory = container.chain(u32_at(&container.bytes, 48), u64::MAX)?;
        container.entries =
            directory.chunks_exact(ENTRY_BYTES).filter_map(|entry| entry_of(entry, sector_bytes)).collect();
        container.mini_fat = numbers(&container.chain(u32_at(&container.bytes, 60), u64::MAX)?).collect();
        if let Some(root) = container.entries.iter().find(|entry| entry.kind == 5) {
            container.mini = container.chain(root.start, root.bytes)?;
        }
        Ok(container)
    }

    fn sector(&self, number: u32) -> Option<&[u8]> {
        let start = usize::try_from(number).ok()?.checked_add(1)?.checked_mul(self.sector_bytes)?;
        let end = start.checked_add(self.sector_bytes)?.min(self.bytes.len());
        self.bytes.get(start..end).filter(|sector| !sector.is_empty())
    }

    fn read_fat(&mut self) -> Result<()> {
        let most = self.bytes.len() / self.sector_bytes + 1;
        let mut listed: Vec<u32> = numbers(&self.bytes[76..76 + 4 * LISTED]).collect();
        let mut next = u32_at(&self.bytes, 68);
        let mut seen = 0;
        while next < SPECIAL {
            seen += 1;
            let sector = self.sector(next).filter(|_| seen <= most);
            let sector = sector.ok_or_else(|| damaged("a list of sectors that runs beyond its end"))?;
            listed.extend(numbers(sector));
            next = listed.pop().unwrap_or(END);
        }
        for number in listed.into_iter().filter(|number| *number < SPECIAL) {
            if self.fat.len() > most.saturating_add(self.sector_bytes) {
                return Err(damaged("a list of sectors that is longer than the file"));
            }
            let sector = self.sector(number).ok_or_else(|| damaged("a list of sectors beyond its end"))?;
            let more: Vec<u32> = numbers(sector).collect();
            self.fat.extend(more);
        }
        Ok(())
    }

    /// Returns the bytes of a chain of sectors, at most so many.
    fn chain(&self, start: u32, most: u64) -> Result<Vec<u8>> {
        let (mut out, mut next, mut seen) = (Vec::new(), start, 0);
        while next < SPECIAL && (out.len() as u64) < most {
            let sector = self.sector(next).filter(|_| seen <= self.fat.len());
            let sector = sector.ok_or_else(|| damaged("a stream that runs beyond its end, or in circles"))?;
            out.extend_from_slice(sector);
            seen += 1;
            let at = usize::try_from(next).unwrap_or(usize::MAX);
            next = self.fat.get(at).copied().unwrap_or(END);
        }
        out.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(out)
    }

    /// Whether there is a stream of this name.
    pub(super) fn has_stream(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.kind == 2 && entry.name.eq_ignore_ascii_case(name))
    }

    /// Returns the bytes of a stream; `None` if there is none of this name.
    ///
    /// # Errors
    /// When it is damaged, or shorter than the directory states.
    pub(super) fn stream(&self, name: &str) -> Result<Option<Vec<u8>>> {
        let Some(entry) = self.find(name) else { return Ok(None) };
        let bytes = match entry.bytes < self.cutoff {
            true => self.mini_chain(entry.start, entry.bytes)?,
            false => self.chain(entry.start, entry.bytes)?,
        };
        if (bytes.len() as u64) < entry.bytes {
            let message = format!("a stream of {} bytes instead of {}", bytes.len(), entry.bytes);
            return Err(damaged(&message).at_byte(self.bytes.len() as u64));
        }
        Ok(Some(bytes))
    }

    fn mini_chain(&self, start: u32, most: u64) -> Result<Vec<u8>> {
        let (mut out, mut next, mut seen) = (Vec::new(), start, 0);
        while next < SPECIAL && (out.len() as u64) < most {
            let at = usize::try_from(next).unwrap_or(usize::MAX);
            let start = at.saturating_mul(MINI_BYTES);
            let end = start.saturating_add(MINI_BYTES).min(self.mini.len());
            let sector = self.mini.get(start..end).filter(|sector| !sector.is_empty() && seen <= self.mini_fat.len());
            out.extend_from_slice(sector.ok_or_else(|| damaged("a short stream that runs beyond its end"))?);
            seen += 1;
            next = self.mini_fat.get(at).copied().unwrap_or(END);
        }
        out.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(out)
    }
}

fn entry_of(entry: &[u8], sector_bytes: usize) -> Option<Entry> {
    let kind = entry[66];
    let bytes = usize::from(u16::from_le_bytes([entry[64], entry[65]])).clamp(2, 64) - 2;
    let units: Vec<u16> = entry[..bytes].chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect();
    let high = if sector_bytes == 512 { 0 } else { u64::from(u32_at(entry, 124)) << 32 };
    let size = u64::from(u32_at(entry, 120)) | high;
    [1, 2, 5].contains(&kind).then(|| Entry {
        name: String::from_utf16_lossy(&units),
        kind,
        start: u32_at(entry, 116),
        bytes: size,
    })
}

/// Returns a compound file that has one stream and nothing else.
pub(super) fn container_of(name: &str, stream: &[u8]) -> Vec<u8> {
    const SECTOR: usize = 4096;
    let count = |bytes: usize| bytes.div_ceil(SECTOR);
    // Shorter streams would have to be in sectors of 64 bytes.
    let stream_bytes = stream.len().max(SECTOR);
    let stream_sectors = count(stream_bytes);
    let (mut fat_sectors, mut list_sectors) = (1, 0);
    loop {
        let all = stream_sectors + 1 + fat_sectors + list_sectors;
        let needed = count(all * 4);
        let lists = needed.saturating_sub(LISTED).div_ceil(SECTOR / 4 - 1);
        if (needed, lists) == (fat_sectors, list_sectors) {
            break;
        }
        (fat_sectors, list_sectors) = (needed, lists);
    }
    let number = |at: usize| u32::try_from(at).unwrap_or(END);
    let directory_at = stream_sectors;
    let fat_at = directory_at + 1;
    let lists_at = fat_at + fat_sectors;
    let mut fat: Vec<u32> = (1..stream_sectors).map(number).collect();
    fat.extend([END, END]);
    fat.extend(std::iter::repeat_n(0xffff_fffd, fat_sectors));
    fat.extend(std::iter::repeat_n(0xffff_fffc, list_sectors));
    fat.resize(fat_sectors * SECTOR / 4, u32::MAX);

    let mut out = MAGIC.to_vec();
    out.resize(24, 0);
    // Versions, byte order, shifts of sectors.
    out.extend_from_slice(&[0x3e, 0, 4, 0, 0xfe, 0xff, 12, 0, 6, 0]);
    out.resize(40, 0);
    let first_list = if list_sectors == 0 { END } else { number(lists_at) };
    let head = [1, number(fat_sectors), number(directory_at), 0, 4096, END, 0, first_list, number(list_sectors)];
    head.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    let fat_numbers: Vec<u32> = (fat_at..lists_at).map(number).collect();
    let listed = fat_numbers.iter().copied().chain(std::iter::repeat(u32::MAX)).take(LISTED);
    listed.for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    out.resize(SECTOR, 0);
    out.extend_from_slice(stream);
    out.resize(SECTOR * (1 + stream_sectors), 0);
    // Without short streams the root has no sectors, but a decoder takes one that ends at once for a damaged file.
    push_entry(&mut out, "Root Entry", 5, 0, 0);
    push_entry(&mut out, name, 2, 0, stream_bytes as u64);
    out.resize(SECTOR * (2 + stream_sectors), 0);
    fat.iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    let rest = fat_numbers.get(LISTED..).unwrap_or_default();
    for (at, numbers) in rest.chunks(SECTOR / 4 - 1).enumerate() {
        let next = if at + 1 == list_sectors { END } else { number(lists_at + at + 1) };
        let padded = numbers.iter().copied().chain(std::iter::repeat(u32::MAX)).take(SECTOR / 4 - 1);
        padded.chain([next]).for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
    }
    out
}

fn push_entry(out: &mut Vec<u8>, name: &str, kind: u8, start: u32, bytes: u64) {
    let from = out.len();
    name.encode_utf16().for_each(|unit| out.extend_from_slice(&unit.to_le_bytes()));
    let length = u16::try_from(out.len() - from + 2).unwrap_or(64);
    out.resize(from + 64, 0);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&[kind, 1]);
    out.extend_from_slice(&[0xff; 12]);
    if kind == 5 {
        let at = out.len();
        out[at - 4..].copy_from_slice(&1_u32.to_le_bytes());
    }
    out.resize(from + 116, 0);
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&bytes.to_le_bytes());
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn streams_of_any_length_come_back() {
        for length in [0, 1, 4095, 4096, 4097, 1_000_000, 600 << 20 >> 7] {
            let stream: Vec<u8> = (0..length).map(|at: usize| u8::try_from(at % 251).unwrap()).collect();
            let container = Container::open(container_of("Workbook", &stream).into()).unwrap();
            let mut found = container.stream("workbook").unwrap().unwrap();
            found.truncate(length);
            assert!(found == stream, "{length}");
            assert!(container.has_stream("Workbook") && !container.has_stream("Book"));
            assert!(container.stream("Book").unwrap().is_none());
        }
    }

    #[test]
    fn chains_in_circles_end() {
        let mut bytes = container_of("Workbook", &[7; 3 * 4096]);
        let fat = 4096 * 5;
        assert_eq!(u32_at(&bytes, fat), 1);
        // The directory follows itself.
        bytes[fat + 12..fat + 16].copy_from_slice(&3_u32.to_le_bytes());
        let error = Container::open(bytes.clone().into()).unwrap_err();
        assert!(error.message().contains("circles"), "{error}");
        let cut = bytes.len() / 2;
        for end in (0..cut).step_by(97) {
            assert!(Container::open(bytes[..end].to_vec().into()).is_err(), "{end}");
        }
    }
}
