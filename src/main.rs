//! Start-up: the allocator, Ctrl-C and the exit code. Everything else is in the library.

use std::process::ExitCode;

use shardify::{cli, events::Cancel, storage::sys};

#[global_allocator]
static ALLOCATOR: sys::NotingAllocator = sys::NotingAllocator;

fn main() -> ExitCode {
    sys::explain_refused_memory();
    sys::keep_freed_memory();
    sys::ignore_file_size_signal();
    let cancel = Cancel::default();
    let raised = cancel.clone();
    // Without a handler Ctrl-C still ends the program; nothing uncommitted is visible in that case either.
    let _ = ctrlc::set_handler(move || {
        if raised.is_cancelled() {
            exit_now();
        }
        raised.cancel();
    });
    cli::main(std::env::args_os(), &cancel)
}

/// Exits at once on a second Ctrl-C, without waiting for threads to notice the first.
#[expect(clippy::exit, reason = "the user insists")]
fn exit_now() {
    std::process::exit(130);
}
