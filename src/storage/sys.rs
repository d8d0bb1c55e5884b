//! Calls into the system for which there is no safe way.
#![expect(unsafe_code, reason = "the one place that calls the C library")]

/// Bytes from which on the allocator would ask the system for each buffer by itself.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: libc::c_int = 1 << 30;

/// Makes the allocator keep freed memory for the next buffer. To be called before there are threads.
///
/// Buffers of megabytes come and go by the thousand. By default each of them is given back to the system, which has to
/// clear every page of the next one. How much memory is used at a time stays the same.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` only sets numbers of the allocator, and there are no other threads yet.
    unsafe {
        // What it answers does not matter: without these settings everything works, only slower.
        let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        let _ = libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
    }
}

/// Lets a file that grows past its limit be an error of the write, with the name of the file, in place of the end of the
/// process. To be called before there are threads.
pub fn survive_file_limits() {
    // SAFETY: ignoring a signal runs no code of ours, and there are no other threads yet.
    unsafe {
        // Where it fails the process ends as it would have.
        let _ = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Gives freed memory back to the system where the process holds more than `limit` bytes: what lies free between buffers in
/// use fits none of the next ones when their sizes differ, and would add up.
pub fn release_freed_memory(limit: u64) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if held_bytes().is_some_and(|held| held > limit) {
        // SAFETY: `malloc_trim` may be called at any time by any thread.
        unsafe {
            let _ = libc::malloc_trim(0);
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = limit;
}

/// Memory of this process.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn held_bytes() -> Option<u64> {
    let facts = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = facts.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}
