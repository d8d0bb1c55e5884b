//! The help of every command, `-h` at 80 columns and `--help` at 100, as the binary prints it.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::process::{Command, Stdio};

/// Lines of `-h`: a screen.
const SCREEN: usize = 40;

fn help(arguments: &[&str], columns: &str) -> String {
    let ran = Command::new(env!("CARGO_BIN_EXE_shardify"))
        .args(arguments)
        .env("COLUMNS", columns)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{arguments:?}: {ran:?}");
    String::from_utf8(ran.stdout).unwrap()
}

#[test]
fn the_help_of_every_command_is_as_recorded_and_its_summary_fits_a_screen() {
    let root = shardify::cli::clap_command();
    let commands =
        std::iter::once(None).chain(root.get_subcommands().map(|command| Some(command.get_name().to_owned())));
    for name in commands {
        let words: Vec<&str> = name.as_deref().into_iter().collect();
        let short = help(&[&words[..], &["-h"]].concat(), "80");
        assert!(short.lines().count() <= SCREEN, "{name:?}: {} lines\n{short}", short.lines().count());
        let wide: Vec<&str> = short.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{name:?}: {wide:?}");
        let long = help(&[&words[..], &["--help"]].concat(), "100");
        assert!(long.contains("\nExamples:\n"), "{name:?} has no examples");
        assert!(!long.contains("[default: \""), "{name:?} quotes a default");
        insta::assert_snapshot!(
            name.as_deref().unwrap_or("shardify"),
            format!("{}\n---- --help ----\n{}", short.trim_end(), long.trim_end())
        );
    }
}
