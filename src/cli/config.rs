//! `shardify.toml`: a table per command whose keys are the long options. Options on the command line win, then the file
//! of the current folder, then the user's own, which may set more ([`trust`]).
//!
//! ```toml
//! dataset = "shards"          # for every command
//!
//! [convert]
//! sources = ["raw"]
//! subject = "person_id"
//!
//! [convert.read]              # settings of formats, which win one by one
//! delimiter = ";"
//! ```
//!
//! A file is turned into arguments, so that it means exactly what the same words on the command line mean.

use std::{collections::HashSet, ffi::OsString, path::Path};

use clap::{Arg, ArgAction, Command, parser::ValueSource};

use super::{shorthand, trust};
use crate::{
    error::{Error, Result},
    scan::CONFIG_FILE,
};

/// Options that hold a setting each time they are given, of which the last value counts.
const OF_FORMATS: [&str; 2] = ["read", "write"];

/// The configuration: that of the folder before that of the user; empty when there are no files.
#[derive(Debug, Default)]
pub(super) struct Config {
    files: Vec<File>,
}

/// A file of settings.
#[derive(Debug)]
struct File {
    /// The dataset for all commands.
    dataset: Option<String>,
    commands: toml::Table,
    path: String,
    /// Whether it is the user's own.
    own: bool,
}

/// Reads the configuration of a folder, and that of the user at `own`.
///
/// # Errors
/// When a file is not TOML, or sets what only the user may set.
pub(super) fn load_config(folder: &Path, own: Option<&Path>) -> Result<Config> {
    let below = folder.join(CONFIG_FILE);
    let paths = std::iter::once((below.as_path(), false)).chain(own.map(|own| (own, true)));
    let mut files = Vec::new();
    for (path, own) in paths {
        let place = path.display().to_string();
        let text = trust::FILE.read(path)?.map(String::from_utf8).transpose();
        let text =
            text.map_err(|e| Error::usage("expected settings in UTF-8").at_location(place.clone()).with_cause(e))?;
        files.extend(text.map(|text| parse_file(&text, &place, own)).transpose()?);
    }
    Ok(Config { files })
}

fn parse_file(text: &str, path: &str, own: bool) -> Result<File> {
    let mut commands: toml::Table = text.parse().map_err(|e: toml::de::Error| {
        let line = e.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count() as u64);
        Error::usage(format!("expected TOML: {}", e.message())).at_location(path).at_line(line)
    })?;
    let dataset = match commands.remove("dataset") {
        None => {
            commands.get("convert").and_then(|table| table.get("out")).and_then(|out| out.as_str()).map(str::to_owned)
        }
        Some(toml::Value::String(dataset)) => Some(dataset),
        Some(other) => {
            return Err(
                Error::usage(format!("expected `dataset` to be text, found {}", other.type_str())).at_location(path)
            );
        }
    };
    if let Some(dataset) = dataset.clone().filter(|_| !own) {
        trust::check_dataset(&toml::Value::String(dataset), path)?;
    }
    Ok(File { dataset, commands, path: path.to_owned(), own })
}

impl Config {
    /// Returns the dataset for all commands.
    pub(super) fn default_dataset(&self) -> Option<&str> {
        self.files.iter().find_map(|file| file.dataset.as_deref())
    }

    /// Adds what the files say about the command to its arguments.
    ///
    /// # Errors
    /// When a key is not an option, or a value has no meaning as one.
    pub(super) fn merge_into(&self, cli: &Command, mut arguments: Vec<OsString>) -> Result<Vec<OsString>> {
        let named = |word: &OsString| shorthand::COMMANDS.into_iter().find(|command| word == command);
        let found = arguments.iter().enumerate().find_map(|(at, word)| Some((at + 1, named(word)?)));
        if let Some((place, command)) = found
            && let Some(definition) = cli.find_subcommand(command)
        {
            let settings = shorthand::expand_settings(definition, &arguments[place..]);
            // Which command it is takes longer to find out than whether that matters.
            if settings != arguments[place..] && command_name(cli, &arguments).as_deref() == Some(command) {
                arguments.splice(place.., settings);
            }
        }
        self.files.iter().try_fold(arguments, |arguments, file| file.merge_into(cli, arguments))
    }
}

impl File {
    fn merge_into(&self, cli: &Command, mut arguments: Vec<OsString>) -> Result<Vec<OsString>> {
        let chosen = command_name(cli, &arguments);
        for (name, table) in &self.commands {
            let Some(command) = cli.get_subcommands().find(|c| c.get_name() == name) else {
                let names: Vec<&str> = cli.get_subcommands().map(Command::get_name).collect();
                return Err(Error::usage(format!("`{name}` is not a command"))
                    .at_location(self.path.clone())
                    .with_hint(format!("tables are named after commands: {}", names.join(", "))));
            };
            let table = table.as_table().ok_or_else(|| {
                Error::usage(format!("expected `{name}` to be a table, found {}", table.type_str()))
                    .at_location(self.path.clone())
            })?;
            let is_it = chosen.as_deref() == Some(name);
            let position = arguments.iter().position(|a| is_it && a == name.as_str()).map(|i| i + 1);
            let given = given_arguments(cli, name, &arguments);
            let mut extra = Vec::new();
            for (key, value) in table {
                if !self.own {
                    trust::check_option(name, key, value, &self.path)?;
                }
                let of = |c: &Command| {
                    let option = c.get_arguments().find(|a| sets_value(a) && a.get_long() == Some(key.as_str()));
                    option.map(|option| option.get_id().to_string())
                };
                if key == "sources" && name == "convert" {
                    // Positional: only when the command line names none, which clap must decide; see below.
                    continue;
                }
                let Some(option) = of(command).or_else(|| of(cli)) else {
                    return Err(self.unknown_option(command, name, key));
                };
                // Settings of formats win one by one: those of the command line come later.
                if !given.contains(&option) || OF_FORMATS.contains(&key.as_str()) {
                    self.append_option(&format!("--{key}"), value, &mut extra)?;
                }
            }
            if let Some(position) = position {
                arguments.splice(position..position, extra);
                if name == "convert"
                    && let Some(sources) = table.get("sources")
                {
                    self.append_sources(cli, sources, &mut arguments)?;
                }
            }
        }
        Ok(arguments)
    }

    /// Appends the sources of the file when the command line has none.
    fn append_sources(&self, cli: &Command, sources: &toml::Value, arguments: &mut Vec<OsString>) -> Result<()> {
        if given_arguments(cli, "convert", arguments).contains("sources") {
            return Ok(());
        }
        let list = match sources {
            toml::Value::Array(list) => list.clone(),
            one => vec![one.clone()],
        };
        arguments.push("--".into());
        for source in list {
            arguments.push(self.value_text("sources", &source)?.into());
        }
        Ok(())
    }

    fn append_option(&self, long: &str, value: &toml::Value, out: &mut Vec<OsString>) -> Result<()> {
        match value {
            toml::Value::Boolean(true) => out.push(long.into()),
            toml::Value::Boolean(false) => {}
            toml::Value::Array(values) => {
                for value in values {
                    out.push(format!("{long}={}", self.value_text(long, value)?).into());
                }
            }
            toml::Value::Table(settings) if OF_FORMATS.iter().any(|name| long.ends_with(name)) => {
                for (key, value) in settings {
                    let value = match value {
                        toml::Value::Boolean(is_on) => if *is_on { "yes" } else { "no" }.to_owned(),
                        value => self.value_text(key, value)?,
                    };
                    out.push(format!("{long}={key}={value}").into());
                }
            }
            value => out.push(format!("{long}={}", self.value_text(long, value)?).into()),
        }
        Ok(())
    }

    fn value_text(&self, key: &str, value: &toml::Value) -> Result<String> {
        match value {
            toml::Value::String(text) => Ok(text.clone()),
            toml::Value::Integer(n) => Ok(n.to_string()),
            toml::Value::Datetime(d) => Ok(d.to_string()),
            other => Err(Error::usage(format!("expected text for `{key}`, found {}", other.type_str()))
                .at_location(self.path.clone())),
        }
    }

    fn unknown_option(&self, command: &Command, name: &str, key: &str) -> Error {
        let options: Vec<&str> =
            command.get_arguments().filter(|arg| sets_value(arg)).filter_map(Arg::get_long).collect();
        Error::usage(format!("`{key}` is not an option of {name}"))
            .at_location(self.path.clone())
            .with_hint(format!("the options are {}", options.join(", ")))
    }
}

/// Returns the command that the arguments name. A folder of the same name may be an argument of another command.
fn command_name(cli: &Command, arguments: &[OsString]) -> Option<String> {
    let matches = cli.clone().ignore_errors(true).try_get_matches_from(arguments).ok()?;
    matches.subcommand_name().map(str::to_owned)
}

/// Returns the ids of the arguments that the command line gives to a command, under whichever of their names.
fn given_arguments(cli: &Command, command: &str, arguments: &[OsString]) -> HashSet<String> {
    let matches = cli.clone().ignore_errors(true).try_get_matches_from(arguments).ok();
    let Some(matches) = matches.as_ref().and_then(|matches| matches.subcommand_matches(command)) else {
        return HashSet::new();
    };
    let ids = matches.ids().map(clap::Id::as_str);
    ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine)).map(str::to_owned).collect()
}

/// Whether an option sets something; those for help and version do not.
fn sets_value(arg: &Arg) -> bool {
    !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::cli::help;

    fn merged(toml: &str, arguments: &[&str]) -> Result<Vec<String>> {
        let arguments = arguments.iter().map(OsString::from).collect();
        let merged = parse_file(toml, "shardify.toml", false)?.merge_into(&help::command_with_help(), arguments)?;
        Ok(merged.into_iter().map(|a| a.into_string().unwrap()).collect())
    }

    #[test]
    fn options_of_the_file_come_first_and_the_command_line_wins() {
        let toml =
            "[convert]\nsubject = \"person_id\"\ntarget-shard = \"1MiB\"\nproofs = true\ninclude = [\"a\", \"b\"]\n";
        let arguments = merged(toml, &["shardify", "convert", "--target-shard", "2MiB", "x"]).unwrap();
        assert_eq!(
            arguments,
            [
                "shardify",
                "convert",
                "--include=a",
                "--include=b",
                "--proofs",
                "--subject=person_id",
                "--target-shard",
                "2MiB",
                "x"
            ]
        );
        assert_eq!(merged(toml, &["shardify", "compact"]).unwrap(), ["shardify", "compact"]);
    }

    #[test]
    fn settings_of_formats_win_one_by_one() {
        let toml = "[convert.read]\ndelimiter = \";\"\nheader = false\n\n[convert]\nwrite = [\"media=hf\"]\n";
        let given = ["shardify", "convert", "--read", "header=yes", "x"];
        let [first, command, rest @ ..] = given;
        let file = ["--read=delimiter=;", "--read=header=no", "--write=media=hf"];
        assert_eq!(merged(toml, &given).unwrap(), [[first, command].as_slice(), &file, &rest].concat());
        assert!(merged("[convert.include]\na = 1\n", &given).is_err());
    }

    #[test]
    fn the_command_line_wins_under_every_name_of_an_option() {
        let toml = "[convert]\nout = \"a\"\ntarget-shard = \"1MiB\"\njobs = 4\nquiet = true\n";
        for names in [["--out", "--target-shard", "--jobs", "--quiet"], ["-o", "--shard-size", "-j", "-q"]] {
            let [out, target, jobs, quiet] = names;
            let given = ["shardify", "convert", out, "b", target, "2MiB", jobs, "1", quiet, "x"];
            assert_eq!(merged(toml, &given).unwrap(), given);
        }
        assert_eq!(merged(toml, &["shardify", "-qj1", "convert", "-ob", "x"]).unwrap().len(), 6);
    }

    #[test]
    fn sources_of_the_file_are_used_when_none_are_given() {
        let toml = "[convert]\nsources = [\"raw\"]\n";
        assert_eq!(merged(toml, &["shardify", "convert"]).unwrap(), ["shardify", "convert", "--", "raw"]);
        assert_eq!(merged(toml, &["shardify", "convert", "x"]).unwrap(), ["shardify", "convert", "x"]);
    }

    #[test]
    fn invalid_arguments_are_named() {
        for toml in ["[convert]\nsubjekt = 1\n", "[konvert]\n", "[convert\n", "dataset = 1\n", "[convert]\nid = 1.5\n"]
        {
            let error = merged(toml, &["shardify", "convert"]).unwrap_err();
            assert_eq!(error.kind(), crate::error::Kind::Usage, "{toml}");
        }
    }

    #[test]
    fn the_dataset_is_named_once_for_all() {
        assert_eq!(parse_file("dataset = \"d\"", "", false).unwrap().dataset.unwrap(), "d");
        assert_eq!(parse_file("[convert]\nout = \"e\"", "", false).unwrap().dataset.unwrap(), "e");
    }

    #[test]
    fn the_file_of_the_folder_wins_over_the_users_and_may_set_less() {
        let file = |text, own| parse_file(text, "shardify.toml", own).unwrap();
        let folder = file("[convert]\nmemory = \"1GiB\"\n", false);
        let own = file("dataset = \"/d\"\n[convert]\nmemory = \"2GiB\"\nopenlineage = \"https://h/\"\n", true);
        let config = Config { files: vec![folder, own] };
        let arguments = ["shardify", "convert", "x"].iter().map(OsString::from).collect();
        let merged = config.merge_into(&help::command_with_help(), arguments).unwrap();
        assert_eq!(merged[2..4], ["--openlineage=https://h/", "--memory=1GiB"]);
        assert_eq!(config.default_dataset(), Some("/d"));
        for text in ["dataset = \"/d\"", "[convert]\nout = \"../d\"", "[report]\nhtml = \"a\""] {
            assert!(merged_or_error(text).is_err(), "{text}");
        }
    }

    fn merged_or_error(toml: &str) -> Result<Vec<String>> {
        merged(toml, &["shardify", "report", "x"])
    }

    #[test]
    fn an_argument_named_like_a_command_is_an_argument() {
        let toml = "[convert]\nsubject = \"v\"\n";
        let given = ["shardify", "inspect", "convert"];
        assert_eq!(merged(toml, &given).unwrap(), given);
    }
}
