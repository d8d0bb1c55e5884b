//! Start-up: the allocator, Ctrl-C and the exit code. Everything else is in the library.

use std::process::ExitCode;

use shardify::{cli, events::Cancel, format::guard, storage::sys};

fn main() -> ExitCode {
    sys::keep_freed_memory();
    keep_quiet_about_bad_input();
    let cancel = Cancel::default();
    let raised = cancel.clone();
    // Without a handler Ctrl-C still ends the program; nothing uncommitted is visible then either.
    let _ = ctrlc::set_handler(move || {
        if raised.is_cancelled() {
            leave();
        }
        raised.cancel();
    });
    cli::main(std::env::args_os(), &cancel)
}

/// Decoders of foreign formats panic on damaged files; that becomes an error about the file, and is nothing to be told twice.
fn keep_quiet_about_bad_input() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !guard::decoding() {
            tell(panic);
        }
    }));
}

/// A second Ctrl-C does not wait for threads to notice the first.
#[expect(clippy::exit, reason = "the user insists")]
fn leave() {
    std::process::exit(130);
}
