//! The dataset card of Hugging Face (`--index hf`): a `README.md` whose YAML lists the live shards, so that
//! `datasets.load_dataset` reads exactly these.
//!
//! ```text
//! ---
//! # shardify: begin (written with every version; other lines are kept)
//! configs:
//! - config_name: default
//!   data_files:
//!   - split: train
//!     path:
//!     - "5f1c.../000000.parquet"
//! # shardify: end
//! license: mit                        users' own lines, and their text below
//! ---
//! ```
//!
//! Only the lines between the marks are ever replaced. A `README.md` without them is the user's: it is left alone, and
//! users are told.

use std::{collections::BTreeMap, fmt::Write as _};

use super::kind::{About, Difference, Index, OfVersion};
use crate::{
    dataset::{Dataset, NewShard, ShardMeta, Snapshot},
    error::{Error, Result},
    format::OutputFormat,
    scan::folders_in,
    storage::PutOutcome,
};

/// Name of the card in a dataset.
const CARD: &str = "README.md";

/// First and last line of what is replaced.
const BEGIN: &str = "# shardify: begin (written with every version; other lines are kept)";
const END: &str = "# shardify: end";

/// How the first line begins, whatever it explains.
const BEGIN_MARK: &str = "# shardify: begin";

/// Key of the folders that name splits.
const SPLIT: &str = "split";

/// Split of shards in other folders.
const TRAIN: &str = "train";

/// Names that `datasets` reserves.
const RESERVED: [&str; 1] = ["all"];

/// The index for Hugging Face datasets.
pub(super) struct Hf;

impl Index for Hf {
    fn about(&self) -> &'static About {
        &About {
            help: "For Hugging Face datasets: a dataset card, README.md, with the live shards",
            formats: &[OutputFormat::Parquet, OutputFormat::Tar],
            ..About::NONE
        }
    }

    fn of_version(&self) -> Option<Box<dyn OfVersion>> {
        Some(Box::new(Self))
    }
}

impl OfVersion for Hf {
    fn check_dataset(&self, dataset: &Dataset, snapshot: Option<&Snapshot>) -> Result<()> {
        if snapshot.is_some() {
            return Ok(());
        }
        match dataset.store().get(CARD)? {
            Some(found) if replace_block(&found, "").is_none() => Err(Error::usage(format!(
                "expected no {CARD}, or one with a line `{BEGIN_MARK}` and a line `{END}`, found another"
            ))
            .at_location(dataset.store().location().join(CARD).to_string())
            .with_hint(
                "add the two lines to its YAML, between `---` and `---`: what is between them is replaced, nothing \
                 else",
            )
            .with_hint("or name another dataset with --out, or leave hf out of --index")),
            _ => Ok(()),
        }
    }

    fn prepare_commit(
        &mut self,
        dataset: &Dataset,
        snapshot: Option<&Snapshot>,
        _adds: &[NewShard],
        shards: &[&ShardMeta],
    ) -> Result<()> {
        self.check_dataset(dataset, snapshot)?;
        encode_block(shards.iter().copied()).map(|_| ())
    }

    fn write(&mut self, snapshot: &Snapshot) -> Result<Option<String>> {
        let store = snapshot.dataset().store();
        let block = encode_block(snapshot.live_shards()?)?;
        let card = match store.get(CARD)? {
            Some(found) => match replace_block(&found, &block) {
                Some(card) if card != found => card,
                Some(_) => return Ok(None),
                None => return Ok(Some(foreign_note())),
            },
            None => match store.put_if_absent(CARD, format!("---\n{block}---\n").into())? {
                PutOutcome::Created => return Ok(None),
                // Another run was faster; it is up to date, or this run writes it again.
                PutOutcome::Exists => return refresh_existing(snapshot, &block),
            },
        };
        store.put(CARD, card.into())?;
        Ok(None)
    }

    fn find_differences(&self, snapshot: &Snapshot) -> Result<Vec<Difference>> {
        let block = encode_block(snapshot.live_shards()?)?;
        let what = match snapshot.dataset().store().get(CARD)? {
            None => "expected an index of the live shards, found none; `shardify compact` or `convert` writes it",
            Some(found) => match replace_block(&found, &block) {
                Some(card) if card == found => return Ok(Vec::new()),
                Some(_) => "the index belongs to another version; `shardify compact` or `convert` rewrites it",
                None => {
                    "expected the lines of shardify in its YAML, found none; add a line `# shardify: begin` and a line \
                     `# shardify: end` to it, or move the file away, and `shardify compact` or `convert` writes them"
                }
            },
        };
        Ok(vec![(CARD.to_owned(), what.to_owned())])
    }
}

fn refresh_existing(snapshot: &Snapshot, block: &str) -> Result<Option<String>> {
    let store = snapshot.dataset().store();
    match store.get(CARD)?.map(|found| replace_block(&found, block)) {
        Some(Some(card)) => store.put(CARD, card.into()).map(|()| None),
        Some(None) => Ok(Some(foreign_note())),
        None => Ok(None),
    }
}

fn foreign_note() -> String {
    format!("{CARD} was not written by shardify, and is left as it is: see `shardify verify`")
}

/// Returns a card with other lines between the marks; `None` if it has no marks in its YAML.
fn replace_block(card: &[u8], block: &str) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(card).ok()?;
    let mut lines = text.split_inclusive('\n').scan(0, |end, line| {
        *end += line.len();
        Some((line.trim_end(), *end - line.len(), *end))
    });
    lines.next().filter(|(line, ..)| *line == "---")?;
    let (mut begin, mut end) = (None, None);
    for (line, from, to) in lines {
        match line {
            "---" => break,
            END if begin.is_some() => end = end.or(Some(to)),
            _ if line.starts_with(BEGIN_MARK) => begin = begin.or(Some(from)),
            _ => {}
        }
    }
    let (begin, end) = (begin?, end?);
    Some([&text[..begin], block, &text[end..]].concat().into_bytes())
}

/// Encodes the lines between the marks, and the marks.
fn encode_block<'a>(shards: impl IntoIterator<Item = &'a ShardMeta>) -> Result<String> {
    let mut splits: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for shard in shards {
        let path = shard.path.as_str();
        let split = split_of(path);
        if !is_split_name(&split) {
            return Err(Error::input(format!(
                "expected a folder `{SPLIT}=NAME` whose name has letters, digits, `_` and `.`, as splits of Hugging \
                 Face do, found `{split}`"
            ))
            .at_location(path.to_owned())
            .with_hint("rename the folder, or leave hf out of --index"));
        }
        splits.entry(split).or_default().push(path);
    }
    if splits.is_empty() {
        // Without a list, readers would take every file below the folder.
        splits.insert(TRAIN.to_owned(), Vec::new());
    }
    let mut out = format!("{BEGIN}\nconfigs:\n- config_name: default\n  data_files:\n");
    for (split, paths) in splits {
        // Writing to memory cannot fail.
        let _ =
            write!(out, "  - split: {}\n    path:{}\n", quote_yaml(&split), if paths.is_empty() { " []" } else { "" });
        for path in paths {
            let _ = writeln!(out, "    - {}", quote_yaml(&escape_glob(path)));
        }
    }
    out.push_str(END);
    out.push('\n');
    Ok(out)
}

fn split_of(path: &str) -> String {
    let folders = folders_in(path).into_iter();
    folders.filter(|(key, _)| key == SPLIT).find_map(|(_, value)| value).unwrap_or_else(|| TRAIN.to_owned())
}

fn is_split_name(name: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || c == '_');
    name.split('.').all(is_word) && !RESERVED.contains(&name)
}

/// Quotes a text: every JSON text is one of YAML.
fn quote_yaml(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the pattern that matches this path alone.
fn escape_glob(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '*' | '?' | '[' => out.extend(['[', c, ']']),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_between_the_marks_are_replaced() {
        let of = |text: &str| replace_block(text.as_bytes(), "NEW\n").map(|card| String::from_utf8(card).unwrap());
        let card = format!("---\nlicense: mit\n{BEGIN}\nold\n{END}\ntags: [a]\n---\n# Mine\n{BEGIN}\n");
        assert_eq!(of(&card).unwrap(), format!("---\nlicense: mit\nNEW\ntags: [a]\n---\n# Mine\n{BEGIN}\n"));
        assert_eq!(of(&card.replace('\n', "\r\n")).unwrap().matches("old").count(), 0);
        for other in [
            "",
            "# Mine\n",
            "---\nlicense: mit\n---\n",
            &format!("---\n{BEGIN}\n---\n{END}\n"),
            &format!("---\n{END}\n{BEGIN}\n---\n"),
            &format!("{BEGIN}\n{END}\n"),
        ] {
            assert_eq!(of(other), None, "{other:?}");
        }
        assert_eq!(replace_block(b"---\n\xff", ""), None);
    }

    #[test]
    fn splits_are_those_of_folders() {
        for (path, split) in [
            ("t/000000.parquet", "train"),
            ("split=test/a.parquet", "test"),
            ("x/split=a.b_1/y=2/a.parquet", "a.b_1"),
            ("split=__HIVE_DEFAULT_PARTITION__/a.parquet", "train"),
        ] {
            assert_eq!(split_of(path), split);
            assert!(is_split_name(split));
        }
        for bad in ["", "a-b", "a b", ".a", "a..b", "all"] {
            assert!(!is_split_name(bad), "{bad}");
        }
        assert_eq!(escape_glob("a[1]*?.parquet"), "a[[]1][*][?].parquet");
    }
}
