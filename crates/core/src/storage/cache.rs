//! The page cache of the system: emptied of single files, without privileges, to measure how a reader fares that comes
//! first.

use std::path::Path;

use crate::error::{Error, Result};

/// Writes the dirty pages of the file system that holds a path, because only clean ones can leave the cache.
///
/// # Errors
/// When the path cannot be opened, or writing fails.
pub fn write_dirty_pages(path: &Path) -> Result<()> {
    #[cfg(target_os = "linux")]
    {
        let failed = |e: std::io::Error| {
            Error::storage("writing the cache to the disk failed").at_location(path.display().to_string()).with_cause(e)
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        rustix::fs::syncfs(&file).map_err(|e| failed(e.into()))?;
    }
    Ok(())
}

/// Drops the pages of a local file from the cache of the system; pages that another process has mapped stay. Returns
/// false where the system has no such call.
///
/// # Errors
/// When the file cannot be opened.
pub fn drop_cached(path: &Path) -> Result<bool> {
    #[cfg(target_os = "linux")]
    {
        let failed = |e: std::io::Error| {
            Error::storage("dropping a file from the cache failed")
                .at_location(path.display().to_string())
                .with_cause(e)
        };
        let file = std::fs::File::open(path).map_err(failed)?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).map_err(|e| failed(e.into()))?;
        Ok(true)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = path;
        Ok(false)
    }
}

/// Returns the bytes that this process has read from disks so far, where the system tells.
pub fn bytes_from_disks() -> Option<u64> {
    let facts = std::fs::read_to_string("/proc/self/io").ok()?;
    facts.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn files_stay_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        super::super::save_file(
            &super::super::Location::from_local_path(&path).unwrap(),
            &Default::default(),
            vec![7; 10_000].into(),
        )
        .unwrap();
        write_dirty_pages(folder.path()).unwrap();
        drop_cached(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [7; 10_000]);
        assert!(drop_cached(&folder.path().join("none")).is_err());
    }
}
