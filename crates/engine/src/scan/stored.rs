//! Sources that were listed by another process: where each is, so that it can be opened again.

use std::{collections::HashMap, io::Read, path::Path, sync::Arc};

use xxhash_rust::xxh3::Xxh3Default;

use super::{
    archives::reopen_root,
    file::{PACKED_NAMES, Root, SourceFile, StatedSource},
};
use crate::{
    error::{Error, Result},
    storage::{self, Location, StoreSettings},
};

/// What to do about a source that has changed.
const AGAIN: &str = "nothing of it was committed: convert it, or plan again, when nothing writes to it any more";

/// Place of a source and the state in which it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Location below which it was found, without secrets.
    pub root: Arc<str>,
    /// What its name has before the path below the root.
    pub prefix: Arc<str>,
    /// Path below the root.
    pub path: String,
    /// Whether it is a folder that is one source.
    pub is_store: bool,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last modification, in microseconds since 1970.
    pub modified: i64,
    /// Entity tag, if the store provides one.
    pub etag: Option<String>,
}

impl SourceFile {
    /// Returns the place of the source; `None` for a stream, which no other process can read.
    pub fn to_listed(&self) -> Option<Listed> {
        self.root().stream.is_none().then(|| Listed {
            root: Arc::clone(&self.root().shown),
            prefix: Arc::clone(&self.root().prefix),
            path: self.path().to_owned(),
            is_store: self.is_store,
            bytes: self.bytes,
            modified: self.modified,
            etag: self.etag().map(str::to_owned),
        })
    }
}

/// Returns listed sources, to be opened again; sources below one location share its store.
///
/// # Errors
/// If a store cannot be opened.
pub fn reopen_sources(listed: impl Iterator<Item = Listed>, settings: &StoreSettings) -> Result<Vec<SourceFile>> {
    let mut roots: HashMap<(Arc<str>, Arc<str>), Arc<Root>> = HashMap::new();
    let mut files: Vec<SourceFile> = Vec::with_capacity(listed.size_hint().0);
    // Neighbours below one root, which get a text together.
    let mut below: Option<(Arc<Root>, Vec<StatedSource>)> = None;
    for one in listed {
        let key = (one.root, one.prefix);
        let root = match roots.get(&key) {
            Some(root) => Arc::clone(root),
            None => {
                let location = Location::parse(&key.0, Path::new("/"))?;
                let root = reopen_root(&location, key.1.to_string(), settings)?;
                roots.insert(key.clone(), Arc::clone(&root));
                root
            }
        };
        let name = format!("{}{}", key.1, one.path);
        let stated = StatedSource { name, bytes: one.bytes, modified: one.modified, etag: one.etag };
        if one.is_store {
            let store = SourceFile::of_store(&root, &stated, None);
            add_packed(&mut files, below.take());
            files.push(store);
            continue;
        }
        match &mut below {
            Some((of, names)) if Arc::ptr_eq(of, &root) && names.len() < PACKED_NAMES => names.push(stated),
            _ => add_packed(&mut files, below.replace((root, vec![stated]))),
        }
    }
    add_packed(&mut files, below);
    Ok(files)
}

fn add_packed(files: &mut Vec<SourceFile>, below: Option<(Arc<Root>, Vec<StatedSource>)>) {
    files.extend(below.into_iter().flat_map(|(root, names)| SourceFile::pack_sources(&root, &names)));
}

impl SourceFile {
    /// Fails if the source is no longer as it was listed: somebody writes to it, so what was read may end within a
    /// record. Objects of remote stores with entity tags are not looked at: each read of them states the tag. Neither
    /// are streams and folders that are one source.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) if it has changed or vanished; if the store fails.
    pub fn check_unchanged(&self) -> Result<()> {
        if self.is_store || self.root().stream.is_some() || (self.is_remote() && self.etag().is_some()) {
            return Ok(());
        }
        let now = self.root().store.head(self.path())?;
        let is_same = |facts: &storage::ObjectFacts| {
            // Without entity tags, the times of a web server may be those of its answers.
            let is_time = self.is_remote() || facts.modified.as_microsecond() == self.modified;
            facts.bytes == self.bytes && is_time && facts.etag.as_deref() == self.etag()
        };
        match now {
            Some(facts) if is_same(&facts) => Ok(()),
            Some(facts) => {
                let size = if facts.bytes == self.bytes { String::new() } else { format!(" to {} bytes", facts.bytes) };
                let was =
                    format!("expected the source of {} bytes as it was listed, found it changed{size}", self.bytes);
                Err(Error::input(was).at_location(self.uri()).with_hint(AGAIN))
            }
            None => Err(Error::input("expected the source as it was listed, found none")
                .at_location(self.uri())
                .with_hint(AGAIN)),
        }
    }
}

/// Returns the XXH3-64 of the stored bytes of a file, or the hash that identifies a named stream.
///
/// # Errors
/// Fails if it cannot be read.
pub fn content_hash(file: &SourceFile) -> Result<u64> {
    if let Some(hash) = file.stream_hash() {
        return Ok(hash);
    }
    let mut hasher = Xxh3Default::new();
    let mut input = file.object().read()?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let n = input.read(&mut buffer)?;
        if n == 0 {
            return Ok(hasher.digest());
        }
        hasher.update(&buffer[..n]);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn listed_sources_come_back_in_their_order() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots: Vec<Arc<str>> =
            [&one, &two].map(|root| Location::from_local_path(root.path()).unwrap().to_string().into()).to_vec();
        let listed = |number: u64| Listed {
            // The root changes after runs of other lengths than those that share a text.
            root: Arc::clone(&roots[usize::from(number % 1500 > 1100)]),
            prefix: if number.is_multiple_of(7) { "p/".into() } else { "".into() },
            path: format!("{number:05}.jpg"),
            is_store: number.is_multiple_of(1999),
            bytes: number,
            modified: -1,
            etag: number.is_multiple_of(3).then(|| format!("\"{number}\"")),
        };
        let files = reopen_sources((0..5000).map(listed), &StoreSettings::default()).unwrap();
        assert_eq!(files.len(), 5000);
        for (file, number) in files.iter().zip(0..) {
            assert_eq!(file.to_listed(), Some(listed(number)));
        }
    }
}
