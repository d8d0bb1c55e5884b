//! Settings of formats as options of their own, as other tools spell them: `--delimiter ';'` is `--read 'delimiter=;'`,
//! `--raw` is `--read raw=yes`, and `--no-header` is `--read header=no`.

use std::ffi::OsString;

use clap::Command;

use crate::{
    ops::convert::WriteOption,
    scan::settings::Read,
    settings::{Setting, SettingValues, Table},
};

/// Commands that take settings of formats.
pub(super) const COMMANDS: [&str; 3] = ["convert", "inspect", "head"];

/// Writes out the settings among the words behind the name of a command. Names of its own options are not settings.
pub(super) fn expand_settings(command: &Command, words: &[OsString]) -> Vec<OsString> {
    let has = |option: &str| command.get_arguments().any(|arg| arg.get_long() == Some(option));
    let mut out = Vec::with_capacity(words.len());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            out.push(word.clone());
            out.extend(words.cloned());
            break;
        }
        let option = word.to_str().and_then(|word| word.strip_prefix("--"));
        let (name, value) = match option.map(|option| option.split_once('=').unwrap_or((option, ""))) {
            None => ("", None),
            Some((name, value)) => (name, option.filter(|option| option.contains('=')).map(|_| value.to_owned())),
        };
        let is_off = |setting: &Setting| value.is_none() && name.strip_prefix("no-") == Some(setting.key);
        let found = of_tables()
            .filter(|(option, setting)| has(option) && !has(setting.key))
            .find(|(_, setting)| setting.key == name || (is_switch(setting) && is_off(setting)));
        let value = match &found {
            None => None,
            Some((_, setting)) if is_off(setting) => Some("no".to_owned()),
            Some((_, setting)) if is_switch(setting) => value.or_else(|| Some("yes".to_owned())),
            Some(_) => value.or_else(|| words.next().and_then(|word| word.to_str()).map(str::to_owned)),
        };
        match (found, value) {
            (Some((option, Setting { key, .. })), Some(value)) => out.push(format!("--{option}={key}={value}").into()),
            _ => out.push(word.clone()),
        }
    }
    out
}

/// Returns all settings, with the options that hold them.
fn of_tables() -> impl Iterator<Item = (&'static str, &'static Setting)> {
    let read = Read::SETTINGS.iter().map(|setting| ("read", setting));
    read.chain(WriteOption::SETTINGS.iter().map(|setting| ("write", setting)))
}

/// Whether a setting is on or off.
fn is_switch(setting: &Setting) -> bool {
    matches!(setting.values, SettingValues::Words(words) if words.iter().any(|(word, _)| *word == "yes"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn expanded(command: &str, words: &str) -> String {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let cli = crate::cli::clap_command();
        expand_settings(cli.find_subcommand(command).unwrap(), &words)
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn settings_are_options_too() {
        for (words, expected) in [
            ("a --delimiter ; --out d", "a --read=delimiter=; --out d"),
            ("a --delimiter== -q", "a --read=delimiter== -q"),
            ("--no-header --raw a", "--read=header=no --read=raw=yes a"),
            ("--row-group 1MiB --rows=parts", "--write=row-group=1MiB --write=rows=parts"),
            ("--patch lat=2,lon=2 --read raw=yes", "--read=patch=lat=2,lon=2 --read raw=yes"),
            ("--id id --where x -- --raw", "--id id --where x -- --raw"),
            ("--no-delimiter a --null", "--no-delimiter a --null"),
        ] {
            assert_eq!(expanded("convert", words), expected);
        }
        assert_eq!(expanded("head", "a --records 3 --delimiter ;"), "a --records 3 --read=delimiter=;");
        assert_eq!(expanded("inspect", "a --records x --rows=parts"), "a --read=records=x --rows=parts");
    }
}
