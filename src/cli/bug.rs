//! Panics that nothing else has caught: a message and an exit code like those of other failures, in place of a trace.

use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// What the first panic said that is no damaged input, and where.
static FIRST: Mutex<Option<String>> = Mutex::new(None);

/// Notes panics from now on instead of printing them. Whoever catches one reports it.
pub(super) fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let text = panic.payload_as_str().unwrap_or("no reason given");
        let place = panic.location().map_or_else(String::new, |place| format!(" ({}:{})", place.file(), place.line()));
        if !crate::format::guard::is_decoding() {
            FIRST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| format!("{text}{place}"));
        }
    }));
}

/// The failure that a panic is.
pub(super) fn panic_error() -> Error {
    let first = FIRST.lock().unwrap_or_else(PoisonError::into_inner).take();
    let text = first.unwrap_or_else(|| "no reason given".to_owned());
    Error::of_refused_thread(&text).unwrap_or_else(|| {
        Error::internal(format!("the program met a bug: {text}"))
            .with_hint("please report this; `shardify verify` tells what is committed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn a_panic_is_reported_as_a_failure_with_its_location() {
        let hook = std::panic::take_hook();
        // Other tests may panic on purpose at the same time, and the first panic counts.
        let told = (0..100).any(|i| {
            note_panics();
            let panicked = std::panic::catch_unwind(|| panic!("odd number {i}")).is_err();
            let error = panic_error();
            panicked
                && error.kind() == Kind::Internal
                && error.message().contains("odd number")
                && error.message().contains("bug.rs:")
        });
        std::panic::set_hook(hook);
        assert!(told);
        assert!(panic_error().message().contains("no reason given"));
    }
}
