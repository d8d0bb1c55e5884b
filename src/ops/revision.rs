//! The revision of a source in its repository, as far as local files state it: commits of git, hashes of DVC, commits
//! of lakeFS.
//!
//! No program or server is queried. For git, `HEAD` is followed through worktrees and packed references to a commit;
//! whether files differ from it remains unknown, because all of them would have to be read. For DVC, the `.dvc` file
//! beside the source or beside a folder above it contains the hash. For lakeFS, the URL of a gateway may contain the
//! commit.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    dataset::{Pseudonymizer, Revision},
    storage::Location,
};

/// Size limit of a file that is read: packed references of large repositories can be long.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum number of references followed, so that circular ones end.
const MAX_STEPS: usize = 5;

/// Returns the revisions of the repositories that contain the sources.
pub(super) fn all_revisions(
    sources: impl Iterator<Item = Location>,
    pseudonymizer: Option<&Pseudonymizer>,
) -> Vec<Revision> {
    let mut sources: Vec<Location> = sources.collect();
    sources.sort();
    sources.dedup();
    let pseudonymized = |revision: Revision| match pseudonymizer {
        Some(pseudonymizer) => {
            let source = pseudonymizer.stored_uri(&revision.source).into_owned();
            // The name of a folder or branch could reveal what is private.
            let is_shown = source == revision.source;
            let root = revision.root.filter(|_| is_shown);
            let reference = revision.reference.filter(|_| is_shown || revision.system != "git");
            Revision { source, root, reference, ..revision }
        }
        None => revision,
    };
    sources.iter().flat_map(find_revisions).map(pseudonymized).collect()
}

/// Returns the revisions of the repositories that contain a source.
fn find_revisions(source: &Location) -> Vec<Revision> {
    let uri = source.to_string();
    let found = match source.local_path() {
        Some(path) => [git_revision(path), dvc_revision(path)],
        None => [lakefs(source), None],
    };
    found.into_iter().flatten().map(|revision| Revision { source: uri.clone(), ..revision }).collect()
}

fn new_revision(system: &str, revision: String) -> Revision {
    Revision { source: String::new(), system: system.to_owned(), revision, reference: None, root: None, dirty: None }
}

fn read(path: &Path) -> Option<String> {
    let small = fs::metadata(path).ok().is_some_and(|facts| facts.is_file() && facts.len() <= MAX_FILE_BYTES);
    small.then(|| fs::read_to_string(path).ok()).flatten()
}

/// Returns the commit that is checked out at a path.
fn git_revision(path: &Path) -> Option<Revision> {
    let (root, entry) = path.ancestors().map(|above| (above, above.join(".git"))).find(|(_, entry)| entry.exists())?;
    let folder = if entry.is_dir() {
        entry
    } else {
        // A worktree or submodule: the file contains the path of its git directory.
        let text = read(&entry)?;
        root.join(text.strip_prefix("gitdir:")?.trim())
    };
    let common = read(&folder.join("commondir")).map_or_else(|| folder.clone(), |text| folder.join(text.trim()));
    let mut head = read(&folder.join("HEAD"))?.trim().to_owned();
    let mut reference = None;
    for _ in 0..MAX_STEPS {
        let Some(name) = head.strip_prefix("ref:").map(|name| name.trim().to_owned()) else { break };
        head = read_loose_ref(&[&folder, &common], &name).or_else(|| read_packed_ref(&common, &name))?;
        reference.get_or_insert(name);
    }
    let is_commit = matches!(head.len(), 40 | 64) && head.bytes().all(|b| b.is_ascii_hexdigit());
    is_commit.then(|| Revision {
        reference,
        root: Location::from_local_path(root).ok().map(|root| root.to_string()),
        ..new_revision("git", head)
    })
}

fn read_loose_ref(folders: &[&PathBuf], name: &str) -> Option<String> {
    // A reference must be a path below the directory.
    if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return None;
    }
    folders.iter().find_map(|folder| read(&folder.join(name))).map(|text| text.trim().to_owned())
}

fn read_packed_ref(common: &Path, name: &str) -> Option<String> {
    let text = read(&common.join("packed-refs"))?;
    let lines = text.lines().filter(|line| !line.starts_with(['#', '^']));
    lines
        .filter_map(|line| line.split_once(' '))
        .find(|(_, known)| known.trim() == name)
        .map(|(hash, _)| hash.to_owned())
}

/// Returns the hash in the `.dvc` file beside a path, or beside a folder above it.
fn dvc_revision(path: &Path) -> Option<Revision> {
    path.ancestors().find_map(|tracked| {
        let name = tracked.file_name()?.to_str()?;
        let file = tracked.with_file_name(format!("{name}.dvc"));
        let (algorithm, hash) = dvc_hash(&read(&file)?, name)?;
        Some(Revision {
            reference: Some(algorithm),
            root: Location::from_local_path(&file).ok().map(|file| file.to_string()),
            ..new_revision("dvc", hash)
        })
    })
}

/// Returns algorithm and hash of an output in a `.dvc` file, which is YAML of a few plain lines.
///
/// ```text
/// outs:
/// - md5: 22e37ba7eb5a7f0d2e6bc10aba06bee1.dir
///   path: raw
/// ```
fn dvc_hash(text: &str, name: &str) -> Option<(String, String)> {
    let mut named = false;
    let mut hash = None;
    let mut in_outs = false;
    for line in text.lines() {
        if !line.starts_with([' ', '-']) {
            in_outs = line.trim_end() == "outs:";
            continue;
        }
        if !in_outs {
            continue;
        }
        let item = line.trim_start();
        let inside = item.strip_prefix("- ");
        if inside.is_some() {
            (hash, named) = (None, false);
        }
        let Some((key, value)) = inside.unwrap_or(item).split_once(':') else { continue };
        let value = value.trim().trim_matches(['"', '\'']);
        match key.trim() {
            algorithm @ ("md5" | "etag" | "checksum") => hash = Some((algorithm.to_owned(), value.to_owned())),
            "path" => named = value == name,
            _ => {}
        }
        if named && hash.is_some() {
            return hash;
        }
    }
    None
}

/// Returns the commit in a URL of a lakeFS gateway, where the bucket is the repository and the first part of the path
/// is the reference. Only commit ids can be distinguished from other folders.
fn lakefs(source: &Location) -> Option<Revision> {
    let url = source.url();
    let first = url.path_segments()?.next()?.to_owned();
    let is_commit = first.len() == 64 && first.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    let repository = url.host_str()?;
    (is_commit && url.scheme().starts_with("s3"))
        .then(|| Revision { root: Some(format!("lakefs://{repository}")), ..new_revision("lakefs", first) })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn commit(path: &Path) -> Option<(String, Option<String>)> {
        git_revision(path).map(|found| (found.revision, found.reference))
    }

    #[test]
    fn commits_are_found_loose_packed_detached_and_in_worktrees() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let main = || Some((COMMIT.to_owned(), Some("refs/heads/main".to_owned())));
        write(root, "r/.git/HEAD", "ref: refs/heads/main\n");
        write(root, "r/data/a.csv", "");
        assert_eq!(commit(&root.join("r/data/a.csv")), None);
        let refs =
            format!("# pack-refs with: peeled\n{}1 refs/heads/other\n{COMMIT} refs/heads/main\n^x\n", &COMMIT[1..]);
        write(root, "r/.git/packed-refs", &refs);
        assert_eq!(commit(&root.join("r/data/a.csv")), main());
        let newer = COMMIT.replace('0', "f");
        write(root, "r/.git/refs/heads/main", &format!("{newer}\n"));
        assert_eq!(commit(&root.join("r/data")).unwrap().0, newer);
        // A worktree has its own HEAD and shares references.
        write(root, "r/.git/worktrees/w/HEAD", "ref: refs/heads/side\n");
        write(root, "r/.git/worktrees/w/commondir", "../..\n");
        write(root, "r/.git/refs/heads/side", COMMIT);
        write(root, "w/.git", &format!("gitdir: {}\n", root.join("r/.git/worktrees/w").display()));
        assert_eq!(commit(&root.join("w/x")), Some((COMMIT.to_owned(), Some("refs/heads/side".to_owned()))));
        write(root, "r/.git/HEAD", COMMIT);
        assert_eq!(commit(&root.join("r")), Some((COMMIT.to_owned(), None)));
        for broken in ["ref: ../../secret", "ref: refs/heads/none", "nonsense", "ref: "] {
            write(root, "r/.git/HEAD", broken);
            assert_eq!(commit(&root.join("r")), None, "{broken}");
        }
        write(root, "r/.git/HEAD", "ref: refs/a");
        write(root, "r/.git/refs/a", "ref: refs/a");
        assert_eq!(commit(&root.join("r")), None);
    }

    #[test]
    fn hashes_of_dvc_are_found_beside_a_path_or_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let text =
            "outs:\n- md5: 22e37ba7eb5a7f0d2e6bc10aba06bee1.dir\n  size: 7\n  nfiles: 1\n  hash: md5\n  path: raw\n";
        write(folder.path(), "raw.dvc", text);
        write(folder.path(), "raw/deep/a.csv", "");
        let found = dvc_revision(&folder.path().join("raw/deep/a.csv")).unwrap();
        assert_eq!(found.revision, "22e37ba7eb5a7f0d2e6bc10aba06bee1.dir");
        assert_eq!(dvc_hash(text, "other"), None);
        assert_eq!(dvc_hash("md5: a\ndeps:\n- md5: b\n  path: raw\n", "raw"), None);
        let two = "outs:\n- path: a\n  md5: 1\n- path: b\n  md5: 2\n";
        assert_eq!(dvc_hash(two, "b"), Some(("md5".to_owned(), "2".to_owned())));
    }

    #[test]
    fn commits_of_lakefs_are_recognised_by_their_length() {
        let id = "a".repeat(64);
        let of = |text: &str| find_revisions(&Location::parse(text, Path::new("/")).unwrap());
        assert_eq!(of(&format!("s3://repo/{id}/raw"))[0].revision, id);
        assert!(of("s3://repo/main/raw").is_empty());
    }
}
