//! What a user has to know when a disk is full, when files may not grow, or when a server refuses.

use std::{
    io::{Error as IoError, ErrorKind},
    path::{Path, PathBuf},
};

use super::SYSTEM_FOLDER;
use crate::{error::Error, units::Size};

/// Returns the innermost error of the file system below an error.
fn cause_of(error: &Error) -> Option<&IoError> {
    let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
    causes.filter_map(|cause| cause.downcast_ref::<IoError>()).last()
}

/// Whether an operation failed because a file system, or a quota, is full.
pub fn is_full(error: &Error) -> bool {
    cause_of(error).is_some_and(|cause| matches!(cause.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
}

/// Adds to the error of a full disk how much is free there, to that of a file which may not grow what limits it, and to
/// the answer of a server without a bucket or permission what to look at.
#[must_use]
pub fn explain_error(error: Error) -> Error {
    let Some(kind) = cause_of(&error).map(IoError::kind) else { return of_store(error) };
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {}
        ErrorKind::FileTooLarge => {
            return error.with_hint(
                "files may not grow further there: raise `ulimit -f`, or make smaller shards with --target-shard",
            );
        }
        _ => return of_store(error),
    }
    let place = error.place().source.clone().map(PathBuf::from).filter(|path| path.is_absolute());
    let Some((folder, free, all)) = place.and_then(|path| free_at(&path)) else { return error };
    let quota = if kind == ErrorKind::QuotaExceeded { ", but your quota is used up" } else { "" };
    error.with_hint(format!(
        "{} of {} are free at {} after the run took back what it wrote{quota}: free some space, or name a folder \
         elsewhere",
        Size(free),
        Size(all),
        folder.display()
    ))
}

/// Adds what to do to an error of a store that has no hint, if the answer of the server says what is wrong.
fn of_store(error: Error) -> Error {
    if !error.hints().is_empty() {
        return error;
    }
    let mut said = String::new();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        said.push_str(&inner.to_string());
        cause = inner.source();
    }
    if said.contains("NoSuchBucket") {
        error.with_hint("there is no such bucket: check its name, and the endpoint that `$AWS_ENDPOINT_URL` names")
    } else if said.contains("403 Forbidden") || said.contains("401 Unauthorized") {
        error.with_hint("the server does not allow it: check the URL, the credentials and their permissions")
    } else {
        error
    }
}

/// Returns the dataset, or the closest folder above a path that exists, with the free bytes and all bytes of its file
/// system.
fn free_at(path: &Path) -> Option<(PathBuf, u64, u64)> {
    let dataset = path.ancestors().find(|folder| folder.join(SYSTEM_FOLDER).is_dir());
    let folder = dataset.or_else(|| path.ancestors().skip(1).find(|folder| folder.is_dir()))?;
    let facts = rustix::fs::statvfs(folder).ok()?;
    let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
    Some((folder.to_owned(), bytes(facts.f_bavail), bytes(facts.f_blocks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_states_what_is_free_and_other_errors_stay_as_they_are() {
        let error =
            |kind| Error::storage("writing failed").at_location("/tmp/nothing/here").with_cause(IoError::from(kind));
        let full = explain_error(error(ErrorKind::StorageFull));
        assert!(is_full(&full));
        assert!(full.hints()[0].contains(" are free at /tmp after"), "{:?}", full.hints());
        let wrapped =
            explain_error(Error::storage("outer").at_location("/tmp").with_cause(error(ErrorKind::QuotaExceeded)));
        assert!(wrapped.hints()[0].contains("quota"), "{:?}", wrapped.hints());
        assert!(explain_error(error(ErrorKind::FileTooLarge)).hints()[0].contains("ulimit"));
        for other in [error(ErrorKind::PermissionDenied), Error::storage("x")] {
            assert!(!is_full(&other) && explain_error(other).hints().is_empty());
        }
        assert!(
            explain_error(
                Error::storage("x").at_location("s3://a/b").with_cause(IoError::from(ErrorKind::StorageFull))
            )
            .hints()
            .is_empty()
        );
    }
}
