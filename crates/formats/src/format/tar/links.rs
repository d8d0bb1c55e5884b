//! The content of links: that of the file to which they lead, wherever it is in the archive.
//!
//! ```text
//! 1.jpg -> d/2.jpg (symbolic) -> d/3.jpg (hard) -> content
//! ```
//!
//! Targets may come before a link or after it, so the archive is opened again at its first link and its headers are
//! read: once to list the links, and once to find what they lead to. Memory holds links and their targets alone. Of
//! several members of one name, a hard link leads to the last one before it and a symbolic link to the last one of all,
//! as if the archive were unpacked.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use bytes::Bytes;

use super::{
    entry::{self, EntryKind, HeaderOutcome, Link, TarEntry},
    header::BLOCK,
    read::display_name,
};
use crate::{
    error::{Error, Result},
    format::ranged::RangedInput,
};

/// Opens the decompressed archive for reads of ranges.
#[derive(Clone)]
pub struct ArchiveOpener(Arc<dyn Fn() -> Result<RangedInput> + Send + Sync>);

impl ArchiveOpener {
    /// Opens it with this function.
    pub fn new(open: impl Fn() -> Result<RangedInput> + Send + Sync + 'static) -> Self {
        Self(Arc::new(open))
    }
}

impl fmt::Debug for ArchiveOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reopen")
    }
}

/// Maximum bytes of the names and targets of links.
const MAX_NAMES: usize = 256 << 20;
/// Estimated bytes of memory of a link besides its name and target.
const LINK_BYTES: usize = 128;
/// Maximum number of links that lead to one another.
const MAX_HOPS: usize = 40;
/// Bytes read at once to find headers.
const WINDOW: u64 = 1 << 20;
/// The same over a network, where requests are slow.
const REMOTE_WINDOW: u64 = 8 << 20;

/// What a name stands for, from an offset of the archive on.
#[derive(Debug, Clone)]
enum LinkTarget {
    /// A file: where its content is, and its size.
    File(u64, u64),
    Link(Link),
    Folder,
    Unreadable(&'static str),
}

/// The links of an archive.
#[derive(Debug)]
pub(super) struct Links {
    archive: RangedInput,
    /// Links and what they lead to, by name without `.` and `..`, in the order of the archive.
    members: HashMap<Vec<u8>, Vec<(u64, LinkTarget)>>,
}

impl Links {
    /// Finds all links of an archive, and what they lead to.
    ///
    /// # Errors
    /// If the archive cannot be read, or has too many links.
    pub(super) fn from_archive(reopen: &ArchiveOpener) -> Result<Self> {
        let archive = (reopen.0)()?;
        let mut members: HashMap<Vec<u8>, Vec<(u64, LinkTarget)>> = HashMap::new();
        let mut wanted: HashSet<Vec<u8>> = HashSet::new();
        let mut bytes = 0;
        each_member(&archive, &mut |at, entry| {
            let EntryKind::Link(link) = &entry.kind else { return Ok(()) };
            let Some(name) = normalize_name(b"", &entry.name) else { return Ok(()) };
            let target = target_of(&name, link);
            bytes += LINK_BYTES + name.len() + link.target.len() + target.as_ref().map_or(0, Vec::len);
            if bytes > MAX_NAMES {
                return Err(Error::input(format!(
                    "expected links whose names take {MAX_NAMES} bytes at most, found more"
                ))
                .at_byte(at)
                .with_hint("unpack the archive and convert the folder"));
            }
            wanted.extend(target);
            members.entry(name).or_default().push((at, LinkTarget::Link(link.clone())));
            Ok(())
        })?;
        each_member(&archive, &mut |at, entry| {
            let Some(name) = normalize_name(b"", &entry.name) else { return Ok(()) };
            let folders = memchr::memchr_iter(b'/', &name).map(|slash| &name[..slash]);
            for folder in folders.filter(|folder| wanted.contains(*folder)) {
                members.entry(folder.to_vec()).or_insert_with(|| vec![(at, LinkTarget::Folder)]);
            }
            let found = match entry.kind {
                EntryKind::Link(_) => return Ok(()),
                EntryKind::NoFile => LinkTarget::Folder,
                EntryKind::Unreadable(reason) => LinkTarget::Unreadable(reason),
                EntryKind::File | EntryKind::Ignored => LinkTarget::File(at + entry.header_bytes as u64, entry.size),
            };
            if wanted.contains(&name) {
                members.entry(name).or_default().push((at, found));
            }
            Ok(())
        })?;
        members.values_mut().for_each(|of_name| of_name.sort_by_key(|(at, _)| *at));
        Ok(Self { archive, members })
    }

    /// Returns where the content of a link at an offset of the archive is, and its size, or why it has none.
    pub(super) fn resolve_link(&self, at: u64, name: &[u8], link: &Link) -> Result<(u64, u64), String> {
        let found = |what: &str| {
            let (name, target) = (display_name(name), display_name(&link.target));
            format!("expected the content of `{name}`, found a link to `{target}`, {what}")
        };
        let absent = || found("which is not in the archive");
        let (mut name, mut at, mut link) = (normalize_name(b"", name).ok_or_else(absent)?, at, link);
        for _ in 0..MAX_HOPS {
            let target = target_of(&name, link).ok_or_else(absent)?;
            let all = self.members.get(&target).map(Vec::as_slice).unwrap_or_default();
            let before = |member: &&(u64, LinkTarget)| link.symbolic || member.0 < at;
            // A hard link never precedes its target where an archive is unpacked, but some programs write it so.
            let next = all.iter().rfind(before).or(all.first()).ok_or_else(absent)?;
            match &next.1 {
                LinkTarget::File(offset, size) => return Ok((*offset, *size)),
                LinkTarget::Folder => return Err(found("which is a folder")),
                LinkTarget::Unreadable(reason) => return Err(found(&format!("which is {reason}"))),
                LinkTarget::Link(other) => (name, at, link) = (target, next.0, other),
            }
        }
        Err(found("which leads to itself"))
    }

    /// Reads the content of this size at an offset of the archive.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read_content(&self, offset: u64, size: u64) -> Result<Bytes> {
        let cut_short = || {
            Error::input("expected the content of a link, found the end of the archive")
                .at_byte(self.archive.byte_count())
                .with_hint("the archive was cut short; get it anew from where it came from")
        };
        let end = offset.checked_add(size).filter(|end| *end <= self.archive.byte_count()).ok_or_else(cut_short)?;
        self.archive.exact_range(offset..end)
    }
}

/// Returns the name to which a link of this name leads; `None` if that is outside of the archive.
fn target_of(name: &[u8], link: &Link) -> Option<Vec<u8>> {
    let folder = match memchr::memrchr(b'/', name) {
        Some(slash) if link.symbolic => &name[..slash],
        _ => b"",
    };
    if link.symbolic && link.target.starts_with(b"/") {
        return None;
    }
    normalize_name(folder, &link.target)
}

/// Returns a name below a folder without empty components, `.` and `..`; `None` if it leads out of the archive or to
/// its root.
fn normalize_name(folder: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let mut out = folder.to_vec();
    for component in name.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." if out.is_empty() => return None,
            b".." => out.truncate(memchr::memrchr(b'/', &out).unwrap_or(0)),
            component => {
                if !out.is_empty() {
                    out.push(b'/');
                }
                out.extend_from_slice(component);
            }
        }
    }
    (!out.is_empty()).then_some(out)
}

/// Passes on the offset and the headers of each member. Damage ends it: whoever reads the archive reports that.
fn each_member(archive: &RangedInput, visit: &mut dyn FnMut(u64, &TarEntry) -> Result<()>) -> Result<()> {
    let step = if archive.is_remote() { REMOTE_WINDOW } else { WINDOW };
    let (mut window, mut start, mut at, mut needed) = (Bytes::new(), 0u64, 0u64, BLOCK as u64);
    while at.checked_add(needed).is_some_and(|end| end <= archive.byte_count()) {
        if at + needed > start + window.len() as u64 {
            start = at;
            window = archive.exact_range(at..at.saturating_add(step.max(needed)).min(archive.byte_count()))?;
        }
        let within = usize::try_from(at - start).unwrap_or(usize::MAX);
        match entry::read_entry(&window[within.min(window.len())..]) {
            Ok(HeaderOutcome::Needs(count)) if count as u64 > needed => needed = count as u64,
            Ok(HeaderOutcome::Entry(entry)) => {
                visit(at, &entry)?;
                (at, needed) = (at.saturating_add(entry.total_length()), BLOCK as u64);
            }
            Ok(HeaderOutcome::Needs(_) | HeaderOutcome::End(_)) | Err(_) => return Ok(()),
        }
    }
    Ok(())
}
