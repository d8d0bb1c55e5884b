//! `docs/reference/commands.md` is rendered from the definitions of the command line, and the examples in it run.
//! `commands.json` beside it states the same for programs: the functions of the Python package are written from it.
//!
//! The table of input formats in `docs/reference/formats.md` is that of the registry.
//!
//! `SHARDIFY_BLESS=1 cargo test --test cli reference` writes all three.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests fail loudly and write their own inputs")]

use crate::support;

use std::{fmt::Write as _, path::Path, process::Command};

use clap::{Arg, ArgAction, Command as Definition, builder::PossibleValue};
use serde_json::{Value, json};
use shardify::{
    scan::{InputFormat, settings::Read},
    settings::Table,
};

const HEAD: &str = "\
# Commands

<!-- Rendered from the definitions of the command line: SHARDIFY_BLESS=1 cargo test --test cli reference -->

Most options may also be set in `shardify.toml`, in a table named after the command; the command line takes precedence.

";

/// The definitions with everything that clap adds.
fn definitions() -> Definition {
    let mut root = shardify::cli::clap_command();
    root.build();
    root
}

/// Whether a command is shardify's, and not the one that clap adds.
fn is_own(command: &Definition) -> bool {
    command.get_name() != "help"
}

/// Text of help as Markdown: lists of values as lists, and angle brackets that are no tags.
fn markdown(text: &str) -> String {
    text.replace('<', "\\<").replace("Possible values:\n", "Possible values:\n\n").replace('*', "\\*")
}

/// The part of a text below the examples that begins with this heading.
fn after(command: &Definition, heading: &str) -> Option<String> {
    let text = command.get_after_long_help()?.to_string();
    let section = text.split_once(&format!("{heading}:\n"))?.1;
    let end = section.find("\n\nExit codes:").unwrap_or(section.len());
    Some(section[..end].lines().map(|line| line.trim_start_matches("  ")).collect::<Vec<_>>().join("\n"))
}

fn option(out: &mut String, arg: &Arg) {
    let short = arg.get_short().map_or_else(String::new, |short| format!("-{short}, "));
    let help = arg.get_long_help().or(arg.get_help()).unwrap().to_string();
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let default = match arg.get_action().takes_values() && !defaults.is_empty() {
        true => format!("\n\nDefault: `{}`", defaults.join(",")),
        false => String::new(),
    };
    let stop = if help.ends_with(['.', ']']) || help.contains("\n\n") { "" } else { "." };
    write!(out, "#### `{short}{}`\n\n{}{stop}{default}\n\n", arg.to_string().trim(), markdown(&help)).unwrap();
}

/// Options of a command by heading, in the order of its help.
fn headings(command: &Definition) -> Vec<(String, Vec<&Arg>)> {
    let mut out: Vec<(String, Vec<&Arg>)> = Vec::new();
    let heading = |arg: &Arg| match arg.get_help_heading() {
        Some(heading) => heading.to_owned(),
        None if arg.is_positional() => "Arguments".to_owned(),
        None => "Options".to_owned(),
    };
    for arg in command.get_arguments() {
        let heading = heading(arg);
        match out.iter_mut().find(|(name, _)| *name == heading) {
            Some((_, args)) => args.push(arg),
            None => out.push((heading, vec![arg])),
        }
    }
    out
}

/// Headings whose options are the same for all commands.
fn is_global(args: &[&Arg]) -> bool {
    args.iter().all(|arg| arg.is_global_set())
}

fn section(out: &mut String, command: &mut Definition) {
    let about = command.get_long_about().or(command.get_about()).unwrap().to_string();
    let usage = command.render_usage().to_string();
    writeln!(out, "## `shardify {}`\n\n{}\n\n```text\n{}\n```\n", command.get_name(), markdown(&about), usage.trim())
        .unwrap();
    if let Some(examples) = after(command, "Examples") {
        writeln!(out, "### Examples\n\n```sh\n{examples}\n```\n").unwrap();
    }
    if command.get_subcommands().any(is_own) {
        writeln!(out, "### Commands\n").unwrap();
        for below in command.get_subcommands().filter(|below| is_own(below)) {
            let about = markdown(&below.get_about().unwrap().to_string());
            writeln!(out, "- `{} {}`: {about}\n", command.get_name(), below.get_name()).unwrap();
        }
    }
    for (heading, args) in headings(command).iter().filter(|(_, args)| !is_global(args)) {
        writeln!(out, "### {heading}\n").unwrap();
        args.iter().for_each(|arg| option(out, arg));
    }
}

fn page() -> String {
    let mut root = definitions();
    let mut out = HEAD.to_owned();
    root.get_subcommands().filter(|command| is_own(command)).for_each(|command| {
        let name = command.get_name();
        writeln!(out, "- [`{name}`](#shardify-{name}): {}", markdown(&command.get_about().unwrap().to_string()))
            .unwrap();
    });
    out.push('\n');
    root.get_subcommands_mut().filter(|command| is_own(command)).for_each(|command| section(&mut out, command));
    writeln!(out, "## Options of every command\n").unwrap();
    for (heading, args) in headings(&root) {
        writeln!(out, "### {heading}\n").unwrap();
        args.iter().for_each(|arg| option(&mut out, arg));
    }
    let codes = root.get_after_long_help().unwrap().to_string();
    let codes = codes.split_once("Exit codes:\n").unwrap().1.lines().map(|line| line.trim().split_once("  ").unwrap());
    writeln!(out, "## Exit codes\n\n| Code | Meaning |\n|---|---|").unwrap();
    codes.for_each(|(code, meaning)| writeln!(out, "| {code} | {meaning} |").unwrap());
    out
}

/// An option or argument for programs.
fn stated_option(arg: &Arg) -> Value {
    let takes_value = arg.get_action().takes_values();
    let repeats =
        matches!(arg.get_action(), ArgAction::Append) || arg.get_num_args().is_some_and(|n| n.max_values() > 1);
    let defaults = || arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>();
    let shown = |value: &PossibleValue| (!value.is_hide_set()).then(|| value.get_name().to_owned());
    json!({
        "name": arg.get_long().unwrap_or(arg.get_id().as_str()),
        "short": arg.get_short(),
        "heading": arg.get_help_heading(),
        "help": arg.get_help().map(ToString::to_string),
        "long_help": arg.get_long_help().map(ToString::to_string),
        "positional": arg.is_positional(),
        "required": arg.is_required_set(),
        "value": arg.get_value_names().filter(|_| takes_value).map(|names| names.join(" ")),
        "values": arg.get_num_args().filter(|_| takes_value).map(|n| (n.min_values(), n.max_values().min(1_000))),
        "repeats": takes_value && repeats,
        "delimiter": arg.get_value_delimiter(),
        "choices": takes_value.then(|| arg.get_possible_values().iter().filter_map(shown).collect::<Vec<_>>()),
        "default": takes_value.then(defaults),
    })
}

/// The command and those below it, for programs.
fn stated_commands(command: &Definition, above: &str, out: &mut Vec<Value>) {
    let name = format!("{above}{}", command.get_name());
    let shown = |arg: &&Arg| !arg.is_hide_set() && !arg.is_global_set() && arg.get_id() != "help";
    let options: Vec<Value> = command.get_arguments().filter(shown).map(stated_option).collect();
    out.push(json!({
        "name": name,
        "about": command.get_about().map(ToString::to_string),
        "long_about": command.get_long_about().map(ToString::to_string),
        "options": options,
    }));
    for below in command.get_subcommands().filter(|below| is_own(below)) {
        stated_commands(below, &format!("{name} "), out);
    }
}

/// All definitions, for programs.
fn stated() -> String {
    let root = definitions();
    let mut commands = Vec::new();
    root.get_subcommands().filter(|command| is_own(command)).for_each(|c| stated_commands(c, "", &mut commands));
    let global: Vec<Value> = root.get_arguments().filter(|arg| arg.is_global_set()).map(stated_option).collect();
    let mut text = serde_json::to_string_pretty(&json!({ "commands": commands, "global": global })).unwrap();
    text.push('\n');
    text
}

/// Where the table of input formats begins, and the heading after it.
const INPUTS: &str = "<!-- The registry of formats: SHARDIFY_BLESS=1 cargo test --test cli reference -->\n\n";
const AFTER_INPUTS: &str = "\n## Tables and samples";

/// The page of formats, with the table of the registry.
fn formats(page: &str) -> String {
    let mut table = "| `--from` | Content | Endings | Settings of `--read` |\n|---|---|---|---|\n".to_owned();
    for format in InputFormat::ALL {
        let endings: Vec<String> = format.endings().iter().map(|ending| format!("`.{ending}`")).collect();
        let applies =
            |scope: &str| !["Tables", "Delta", "Standard input"].contains(&scope) && format.takes_settings(scope);
        let settings = Read::SETTINGS.iter().filter(|setting| applies(setting.scope()));
        let settings: Vec<String> = settings.map(|setting| format!("`{}`", setting.key)).collect();
        let (endings, settings) = (endings.join(" "), settings.join(" "));
        writeln!(table, "| `{}` | {} | {endings} | {settings} |", format.name(), format.help()).unwrap();
    }
    let (before, rest) = page.split_once(INPUTS).unwrap();
    let after = &rest[rest.find(AFTER_INPUTS).unwrap()..];
    format!("{before}{INPUTS}{table}{after}")
}

#[test]
fn the_pages_are_what_the_definitions_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference");
    let formats = formats(&std::fs::read_to_string(folder.join("formats.md")).unwrap());
    for (name, page) in [("commands.md", page()), ("commands.json", stated()), ("formats.md", formats)] {
        let path = folder.join(name);
        if std::env::var_os("SHARDIFY_BLESS").is_some() {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == page,
            "docs/reference/{name} is out of date: SHARDIFY_BLESS=1 cargo test --test cli reference"
        );
    }
    let page = page();
    for command in definitions().get_subcommands_mut().filter(|command| is_own(command)) {
        let help = command.render_long_help().to_string();
        let shown = help.lines().filter_map(|line| line.strip_suffix(':')).filter(|line| !line.starts_with([' ', '-']));
        let name = format!("## `shardify {}`\n", command.get_name());
        let own = page.split_once(&name).unwrap().1.split("\n## ").next().unwrap();
        for heading in shown {
            let shared = page.split_once("## Options of every command").unwrap().1;
            let line = format!("### {heading}\n");
            assert!(own.contains(&line) || shared.contains(&line), "{name}: {heading} is not on the page");
        }
    }
}

#[test]
fn the_examples_run() {
    let folder = support::Folder::new();
    for table in ["PERSON", "DEATH", "OBSERVATION"] {
        folder.copy(&format!("patients/{table}.csv"), &format!("raw/{table}.csv"));
    }
    folder.copy("inputs/people.csv", "people.csv");
    folder.copy("inputs/people.parquet", "train/people.parquet");
    folder.copy("arrays/grid.nc", "grid.nc");
    folder.write("rules.toml", "[volume]\nmin_records = 1\n[columns.person_id]\nnot_null = true\n");
    for part in ["aB/part-0.parquet", "part%1.parquet"] {
        folder.copy(&format!("delta/visits/{part}"), &format!("lake/visits/{part}"));
    }
    for version in 0..3 {
        let commit = format!("visits/_delta_log/{version:020}.json");
        folder.copy(&format!("delta/{commit}"), &format!("lake/{commit}"));
    }
    for image in ["triangle-001.gif", "triangle-001.json"] {
        folder.copy(&format!("files/images/{image}"), &format!("images/{image}"));
    }
    for below in ["bash-completion/completions", "man/man1"] {
        std::fs::create_dir_all(folder.path().join(".local/share").join(below)).unwrap();
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_shardify")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let root = definitions();
    for command in std::iter::once(&root).chain(root.get_subcommands().filter(|command| is_own(command))) {
        let examples = after(command, "Examples").unwrap();
        let lines: Vec<&str> =
            examples.lines().filter(|line| line.contains("shardify ") && !line.starts_with('#')).collect();
        assert!(!lines.is_empty(), "{} has no examples", command.get_name());
        for line in lines {
            let ran = Command::new("sh")
                .args(["-c", line])
                .current_dir(folder.path())
                .env("PATH", &path)
                .env("HOME", folder.path())
                .env_remove("SHARDIFY_DATASET")
                .output()
                .unwrap();
            // Without a root from somebody else, a proof is checked in part.
            let expected = match line {
                line if line.contains(" verify-proof ") => 7,
                // No training is recorded here, so none saw anybody.
                line if line.contains(" runs ") && line.contains("--find") => 1,
                _ => 0,
            };
            assert_eq!(ran.status.code(), Some(expected), "{line}: {}", String::from_utf8_lossy(&ran.stderr));
        }
    }
}
