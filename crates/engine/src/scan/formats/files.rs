//! Any files, which are parts of samples.

use super::format::{Class, Format};

pub(super) static FILES: Format = Format {
    name: "files",
    help: "Any files, grouped into samples by name",
    states: "files",
    endings: &[],
    class: Class::Files,
    open: None,
    check_type: None,
};
