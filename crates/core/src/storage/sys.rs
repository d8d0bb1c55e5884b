//! System calls without a safe wrapper.
#![expect(unsafe_code, reason = "the one place that calls the C library")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, Ordering},
};

/// Size in bytes above which the allocator requests a separate mapping for each buffer.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPING_THRESHOLD: libc::c_int = 1 << 30;

/// Makes the allocator keep freed memory for the next buffer. Must be called before any thread starts.
///
/// Buffers of megabytes are allocated and freed thousands of times. By default each is returned to the system, which
/// has to clear every page of the next one. Freed memory is kept in pools, by default eight for each processor, and as
/// threads of a pipeline hand buffers on, each would keep some. Few pools, each shared by some processors, hold up to a
/// quarter less, and threads rarely wait for each other.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let pools = std::thread::available_parallelism().map_or(1, |processors| processors.get() / 2).clamp(1, 8);
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: `mallopt` only sets parameters of the allocator, and no other thread exists yet.
    unsafe {
        // The result is ignored: without these settings everything works, only slower.
        let _ = libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPING_THRESHOLD);
        let _ = libc::mallopt(libc::M_TRIM_THRESHOLD, MAPPING_THRESHOLD);
        let _ = libc::mallopt(libc::M_ARENA_MAX, libc::c_int::try_from(pools).unwrap_or(1));
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

/// What is printed when memory is refused.
const REFUSED: &[u8] = b"error: the system refused more memory; nothing of this run was committed\n hint: lower \
 --memory and --jobs, or raise the limit (ulimit -v, cgroup)\n";

/// Whether the system has refused memory.
static MEMORY_REFUSED: AtomicBool = AtomicBool::new(false);

/// The allocator of the system, which notes when memory is refused: the process then ends with a sentence and the exit
/// code of a lack of resources, see [`explain_refused_memory`].
#[derive(Debug)]
pub struct NotingAllocator;

/// Notes a refusal.
fn note_refusal(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        MEMORY_REFUSED.store(true, Ordering::Relaxed);
    }
    memory
}

// SAFETY: all calls are those of the allocator of the system, with the same arguments.
unsafe impl GlobalAlloc for NotingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as required of the caller.
        note_refusal(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as required of the caller.
        note_refusal(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as required of the caller.
        note_refusal(unsafe { System.realloc(memory, layout, bytes) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as required of the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Address space that every abort for another reason leaves free.
const SPARE: usize = 64 << 20;

/// Whether the process can get no more address space: what starts a panic needs memory that it does not ask of the
/// allocator, and aborts without it. Nothing is used; may be called in the handler of a signal.
fn is_exhausted() -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping without access, at a place that the system chooses, overlaps no other.
    unsafe { libc::mmap(std::ptr::null_mut(), SPARE, libc::PROT_NONE, flags, -1, 0) == libc::MAP_FAILED }
}

/// Makes an abort for lack of memory end the process with exit code 5 and a sentence. Must be called before any thread
/// starts.
pub fn explain_refused_memory() {
    extern "C" fn aborted(_signal: libc::c_int) {
        if MEMORY_REFUSED.load(Ordering::Relaxed) || is_exhausted() {
            // SAFETY: both calls may be made in the handler of a signal, and the text is static.
            unsafe {
                let _ = libc::write(2, REFUSED.as_ptr().cast(), REFUSED.len());
                libc::_exit(5);
            }
        }
        // Returning ends the process as an abort does.
    }
    let handler: extern "C" fn(libc::c_int) = aborted;
    // SAFETY: the handler calls only functions that are allowed in one, and no other thread exists yet.
    unsafe {
        let _ = libc::signal(libc::SIGABRT, handler as libc::sighandler_t);
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
