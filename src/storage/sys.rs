//! System calls without a safe wrapper.
#![expect(unsafe_code, reason = "the one place that calls the C library")]

/// Size in bytes above which the allocator requests a separate mapping for each buffer.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPING_THRESHOLD: libc::c_int = 1 << 30;

/// Makes the allocator keep freed memory for the next buffer. Must be called before any thread starts.
///
/// Buffers of megabytes are allocated and freed thousands of times. By default each is returned to the system, which
/// has to clear every page of the next one. Peak memory is unaffected.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` only sets parameters of the allocator, and no other thread exists yet.
    unsafe {
        // The result is ignored: without these settings everything works, only slower.
        let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPING_THRESHOLD);
        let _ = libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPING_THRESHOLD);
    }
}

/// Turns a write beyond the file size limit into an error of the write, which names the file, instead of the end of the
/// process. Must be called before any thread starts.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal runs no code of this program, and no other thread exists yet.
    unsafe {
        // On failure the signal keeps its default effect and ends the process.
        let _ = libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Returns freed memory to the system if the process holds more than `limit` bytes. Free gaps between buffers in use
/// fit none of the next buffers when sizes differ, and would accumulate.
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

/// Returns the resident memory of this process in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn held_bytes() -> Option<u64> {
    let facts = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = facts.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}
