//! What is found but is no source: hidden files, leftovers of systems, configuration and parts of datasets.

use crate::{record::clutter::is_clutter, storage::SYSTEM_FOLDER};

/// Name of the configuration file, which is never an input.
pub const CONFIG_FILE: &str = "shardify.toml";

/// Folder of the log of a Delta table.
pub(super) const DELTA_LOG: &str = "_delta_log";

/// Folder of the metadata of an Iceberg table.
pub(super) const ICEBERG_LOG: &str = "metadata";

/// Whether a folder of this name may hold a table's log, or the folder of one.
fn is_of_a_log(folder: &str) -> bool {
    [DELTA_LOG, ICEBERG_LOG, SYSTEM_FOLDER].contains(&folder)
}

/// The folder of the last object, in which the next one usually is, too.
#[derive(Debug, Default)]
pub(super) struct LastFolder {
    folder: String,
    /// Whether objects in it may be ignored or part of a table's log for the sake of the folder.
    special: bool,
}

impl LastFolder {
    /// Whether neither the folder nor the name of an object needs a closer look: it is not [ignored](is_ignored), and
    /// part of no table's log. This is a hot path, because there may be millions of objects in few folders.
    pub(super) fn is_plain(&mut self, path: &str) -> bool {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        if self.folder != folder {
            folder.clone_into(&mut self.folder);
            self.special = folder.split('/').any(|part| is_hidden(part) || is_of_a_log(part));
        }
        !(self.special || is_hidden(name) || name == SYSTEM_FOLDER || name == CONFIG_FILE)
    }
}

/// Whether a path is that of no source.
pub(super) fn is_ignored(path: &str) -> bool {
    path.split('/').any(|part| is_hidden(part) || part == SYSTEM_FOLDER) || path.rsplit('/').next() == Some(CONFIG_FILE)
}

/// Whether a component of a path is hidden, or a leftover of a system.
fn is_hidden(part: &str) -> bool {
    part.starts_with('.') || is_clutter(part.as_bytes())
}
