//! What the `shardify.toml` of a folder may set. A folder may come from somebody else, so its file never makes a
//! command write outside of the folder, name a host or a key, or delete what the user did not name. Such options are
//! taken from the command line, the environment, and the user's own file ([`own_path`]).

use std::path::{Component, Path, PathBuf};

use crate::{
    error::{Error, Result},
    storage::SmallFile,
};

/// Commands that delete, or say who is deleted. Only the options of [`HARMLESS`] may be set for them.
const DELETING: [&str; 6] = ["erase", "remove", "revert", "block", "unblock", "verify-proof"];

/// Options that change nothing but how a command works and what it prints.
const HARMLESS: [&str; 7] = ["jobs", "memory", "progress", "json", "quiet", "verbose", "dry-run"];

/// Options that write for the user, name hosts or keys, or take away a safeguard.
const OWN: [&str; 11] =
    ["html", "prometheus", "openlineage", "id-key", "receipt", "force", "tag", "untag", "prune", "add", "release"];

/// Schemes of URLs that do not name a host.
const BUCKETS: [&str; 5] = ["s3", "s3a", "gs", "az", "azure"];

/// A file of settings.
pub(super) const FILE: SmallFile = SmallFile::new("a file of settings", 1 << 20);

/// Returns the path of the user's own file, which may set everything.
pub(super) fn own_path(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let base = match environment("XDG_CONFIG_HOME").map(PathBuf::from) {
        Some(base) if base.is_absolute() => base,
        _ => PathBuf::from(environment("HOME")?).join(".config"),
    };
    Some(base.join("shardify/shardify.toml"))
}

/// Checks an option that the file of a folder sets for a command.
///
/// # Errors
/// When only the user may set it.
pub(super) fn check_option(command: &str, key: &str, value: &toml::Value, file: &str) -> Result<()> {
    let deletes = DELETING.contains(&command) && !HARMLESS.contains(&key);
    let writes_a_file = command == "manifest" && key == "out";
    if deletes || writes_a_file || OWN.contains(&key) || key == "all-versions" {
        return Err(Error::usage(format!("`{key}` of `{command}` may not be set by the file of a folder"))
            .at_location(file)
            .with_hint(format!("give --{key} on the command line, or set it in ~/.config/shardify/shardify.toml"))
            .with_hint(
                "a folder may come from somebody else: its file neither names hosts, keys and files to write, nor \
             deletes",
            ));
    }
    if key == "out" {
        check_dataset(value, file)?;
    }
    string_values(value).try_for_each(|text| check_host(key, text, file))
}

/// Checks the dataset that the file of a folder names.
///
/// # Errors
/// When it is not below the folder.
pub(super) fn check_dataset(value: &toml::Value, file: &str) -> Result<()> {
    let is_below = |text: &str| {
        !text.contains("://")
            && !text.starts_with("file:")
            && Path::new(text).components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    };
    match string_values(value).find(|text| !is_below(text)) {
        None => Ok(()),
        Some(_) => Err(Error::usage("expected a dataset below the folder, found one elsewhere")
            .at_location(file)
            .with_hint("name it on the command line, by $SHARDIFY_DATASET, or in ~/.config/shardify/shardify.toml")
            .with_hint("a folder may come from somebody else: its file does not make a command write elsewhere")),
    }
}

fn check_host(key: &str, text: &str, file: &str) -> Result<()> {
    match text.split_once("://") {
        Some((scheme, _)) if scheme.chars().all(|c| c.is_ascii_alphanumeric()) && !BUCKETS.contains(&scheme) => {
            Err(Error::usage(format!("`{key}` names a host, which the file of a folder may not"))
                .at_location(file)
                .with_hint("give it on the command line, or set it in ~/.config/shardify/shardify.toml"))
        }
        _ => Ok(()),
    }
}

fn string_values(value: &toml::Value) -> Box<dyn Iterator<Item = &str> + '_> {
    match value {
        toml::Value::Array(values) => Box::new(values.iter().flat_map(string_values)),
        toml::Value::String(text) => Box::new(std::iter::once(text.as_str())),
        _ => Box::new(std::iter::empty()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::cli::help;

    fn allowed(command: &str, key: &str, value: &str) -> bool {
        check_option(command, key, &toml::Value::String(value.to_owned()), "shardify.toml").is_ok()
    }

    #[test]
    fn every_option_that_takes_a_file_or_a_url_is_known_to_be_read_or_is_the_users() {
        let read = ["labels", "schema", "subject-table", "rules", "find-file"];
        for command in help::command_with_help().get_subcommands() {
            for option in command.get_arguments() {
                let Some(long) = option.get_long() else { continue };
                let names = option.get_value_names().unwrap_or_default();
                let names_a_place = option.get_action().takes_values()
                    && names.iter().any(|name| name.contains("FILE") || name.contains("URL"));
                if names_a_place && allowed(command.get_name(), long, "x") {
                    let only_reads = read.contains(&long) || long == "ids" && command.get_name() == "reshard";
                    assert!(only_reads, "--{long} of {} writes, or nobody has said that it reads", command.get_name());
                }
            }
        }
    }

    #[test]
    fn datasets_stay_below_the_folder_and_hosts_are_the_users_to_name() {
        for (command, key, value, expected) in [
            ("convert", "out", "shards", true),
            ("convert", "out", "./a/b", true),
            ("convert", "out", "../shards", false),
            ("convert", "out", "/shards", false),
            ("convert", "out", "s3://bucket/shards", false),
            ("convert", "out", "file:///shards", false),
            ("convert", "sources", "/data/raw", true),
            ("convert", "sources", "s3://bucket/raw", true),
            ("convert", "sources", "https://host/raw", false),
            ("convert", "openlineage", "events.jsonl", false),
            ("convert", "where", "url = 'a://b'", true),
            ("erase", "subject", "P1", false),
            ("erase", "memory", "2GiB", true),
            ("vacuum", "retain", "30d", true),
            ("vacuum", "force", "true", false),
            ("report", "html", "report.html", false),
        ] {
            assert_eq!(allowed(command, key, value), expected, "{command}.{key} = {value}");
        }
    }

    #[test]
    fn the_users_file_is_below_the_home_folder() {
        let of = |pairs: &'static [(&str, &str)]| {
            own_path(&|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(of(&[("HOME", "/h")]).unwrap(), Path::new("/h/.config/shardify/shardify.toml"));
        let both = of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")]);
        assert_eq!(both.unwrap(), Path::new("/x/shardify/shardify.toml"));
        assert_eq!(of(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "relative")]), of(&[("HOME", "/h")]));
        assert_eq!(of(&[]), None);
    }
}
