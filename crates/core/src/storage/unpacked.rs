//! Members of archives that are unpacked in memory, because somebody reads them in ranges. The process keeps the ones
//! used last, in bounded memory: a table is read range after range, and then the next one.

use std::{
    collections::VecDeque,
    ops::Range,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;

use crate::error::{Error, Result};

/// Maximum bytes of one member, and of all that are kept.
const MAX_BYTES: u64 = 256 << 20;
/// Maximum bytes of members that are unpacked at the same time.
const SMALL: u64 = 8 << 20;
/// Maximum bytes of a range that is copied: a larger one refers to the whole member.
const COPIED: usize = 64 << 10;

/// A member: the number of its archive in this process, and its place in that.
pub(super) type MemberKey = (u64, usize);

static KEPT: Mutex<VecDeque<(MemberKey, Bytes)>> = Mutex::new(VecDeque::new());

/// Returns the content of a member of so many bytes, which `unpack` returns if it is not in memory.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if it is too large; when `unpack` fails.
pub(super) fn unpack_once(key: MemberKey, bytes: u64, unpack: impl Fn() -> Result<Bytes>) -> Result<Bytes> {
    if bytes > MAX_BYTES {
        return Err(Error::input(format!(
            "expected at most 256 MiB of a packed member of a format that is read in ranges, found {bytes} bytes"
        ))
        .with_hint("unpack the archive, or store the member in it as it is, such as with `zip -0`"));
    }
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = kept.iter().position(|(known, _)| *known == key) {
        let found = kept.remove(at).unwrap_or_default();
        kept.push_back(found.clone());
        return Ok(found.1);
    }
    let content = if bytes > SMALL {
        // One at a time: others wait.
        make_room(&mut kept, bytes);
        unpack()?
    } else {
        drop(kept);
        let content = unpack()?;
        kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        make_room(&mut kept, bytes);
        content
    };
    kept.push_back((key, content.clone()));
    Ok(content)
}

fn make_room(kept: &mut VecDeque<(MemberKey, Bytes)>, bytes: u64) {
    let total = |kept: &VecDeque<(MemberKey, Bytes)>| kept.iter().map(|(_, content)| content.len() as u64).sum::<u64>();
    while total(kept).saturating_add(bytes) > MAX_BYTES && kept.pop_front().is_some() {}
}

/// Forgets the members of an archive.
pub(super) fn forget_archive(archive: u64) {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).retain(|((of, _), _)| *of != archive);
}

/// Returns a range of a member, `None` if it is not within it.
pub(super) fn range_of(content: &Bytes, range: &Range<u64>) -> Option<Bytes> {
    let range = usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?;
    let found = content.get(range.clone())?;
    Some(if found.len() > COPIED { content.slice(range) } else { Bytes::copy_from_slice(found) })
}
