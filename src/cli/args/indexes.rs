//! The values of `--index`, and what the help says of each, from the registry of kinds.

use clap::{ValueEnum, builder::PossibleValue};

use crate::{
    codec::Codec,
    error::{Error, Result},
    format::{OutputFormat, index::IndexKind},
    indexes,
};

/// A value of `--index`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexChoice {
    /// Those that cost almost nothing.
    Auto,
    /// No index.
    None,
    /// This kind.
    Kind(IndexKind),
}

impl IndexChoice {
    const ALL: [Self; IndexKind::ALL.len() + 2] = {
        let (mut all, mut at) = ([Self::Auto; IndexKind::ALL.len() + 2], 0);
        all[1] = Self::None;
        while at < IndexKind::ALL.len() {
            all[at + 2] = Self::Kind(IndexKind::ALL[at]);
            at += 1;
        }
        all
    };
}

impl ValueEnum for IndexChoice {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(match self {
            Self::Auto => PossibleValue::new("auto").help(auto_help()),
            Self::None => PossibleValue::new("none").help("No index"),
            Self::Kind(kind) => {
                let about = indexes::index_for(*kind).about();
                PossibleValue::new(kind.files().name).help(format!("{} ({})", about.help, shard_names(about.formats)))
            }
        })
    }
}

/// Names the shards of these formats that may have an index.
fn shard_names(formats: &[OutputFormat]) -> String {
    let name = |format: &OutputFormat| match format.is_columnar() {
        true => format.title().to_owned(),
        false => format!("uncompressed {}", format.title()),
    };
    formats.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Returns the help of `auto`, which names the kinds of each format that has any.
fn auto_help() -> String {
    let of_format = |format: OutputFormat| {
        let kinds: Vec<&str> =
            indexes::default_kinds(format, Codec::None).into_iter().map(|kind| kind.files().name).collect();
        (!kinds.is_empty()).then(|| format!("{} for {}", kinds.join(" and "), shard_names(&[format])))
    };
    format!(
        "The inexpensive ones: {}",
        OutputFormat::ALL.into_iter().filter_map(of_format).collect::<Vec<_>>().join(", ")
    )
}

/// Returns the kinds of index to write; `None` means auto.
pub(super) fn index_kinds(choices: &[IndexChoice]) -> Result<Option<Vec<IndexKind>>> {
    let alone = |choice| choices.contains(&choice);
    if choices.is_empty() || choices == [IndexChoice::Auto] {
        return Ok(None);
    }
    if choices.len() > 1 && (alone(IndexChoice::Auto) || alone(IndexChoice::None)) {
        return Err(Error::usage("expected `auto` or `none` alone in --index, found other kinds beside it"));
    }
    let kind = |choice: &IndexChoice| match choice {
        IndexChoice::Auto | IndexChoice::None => None,
        IndexChoice::Kind(kind) => Some(*kind),
    };
    Ok(Some(choices.iter().filter_map(kind).collect()))
}
