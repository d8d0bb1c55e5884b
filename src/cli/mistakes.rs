//! Usage errors: makes the suggestions of clap safe to follow, and turns its messages into errors for `--json`.
//!
//! A suggestion is followed without much thought, so none names a command that deletes something.

use clap::error::{ContextKind, ContextValue};

use crate::error::Error;

/// Commands that delete, or take records out.
const DELETING: [&str; 4] = ["erase", "remove", "revert", "vacuum"];

/// Options of other tools, and what they are called in `convert`.
const OTHER_NAMES: [(&str, &str); 3] = [("--format", "--to"), ("--key", "--id"), ("--workers", "--jobs")];

/// Returns the error with suggestions that are safe to follow.
pub(super) fn with_safe_suggestions(mut error: clap::Error) -> clap::Error {
    let suggested = error.remove(ContextKind::SuggestedSubcommand);
    let names = match suggested {
        Some(ContextValue::String(name)) => vec![name],
        Some(ContextValue::Strings(names)) => names,
        _ => Vec::new(),
    };
    let safe: Vec<String> = names.into_iter().filter(|name| !DELETING.contains(&name.as_str())).collect();
    if !safe.is_empty() {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(safe));
    }
    let is_convert = error.get(ContextKind::Usage).is_some_and(|usage| usage.to_string().contains(" convert "));
    let meant = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(given)) if is_convert => OTHER_NAMES.iter().find(|(other, _)| other == given),
        _ => None,
    };
    if let Some((_, ours)) = meant {
        error.insert(ContextKind::SuggestedArg, ContextValue::String((*ours).to_owned()));
        // The usage line is that of the option which clap took for the closest.
        error.remove(ContextKind::Usage);
    }
    error
}

/// Returns the mistake as an error of the program: the first line is the message, tips are hints.
pub(super) fn as_error(error: &clap::Error) -> Error {
    let text = error.to_string();
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let is_message =
        |line: &&str| !line.starts_with("tip:") && !line.starts_with("Usage:") && !line.starts_with("For more");
    let message = lines().take_while(is_message).collect::<Vec<_>>().join(" ");
    let tips = lines().filter_map(|line| line.strip_prefix("tip:"));
    let result = Error::usage(message.strip_prefix("error:").unwrap_or(&message).trim().to_owned());
    tips.fold(result, |result, tip| result.hint(tip.trim().to_owned()))
}
