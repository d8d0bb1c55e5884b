//! Which files of a Delta table are merged, or put into an order, and why.
//!
//! Tags of the files say what earlier runs have made, so that a second run finds nothing to do:
//!
//! ```text
//! shardify.compactedFor   134217728                                                 the target of the merge
//! shardify.order          {"by":"zorder","columns":["a","b"],"set":"0198..."}    the order, and the run that made it
//! ```

use jiff::Timestamp;

use super::{
    options::{DEFAULT_MIN_INPUTS, Options},
    report::{FileChoice, TableReport},
};
use crate::{
    dataset::{Order, ShardOrder},
    delta::{LiveFile, LiveTable},
    error::{Error, Result},
    exec::arrange::{Arranging, key_ranges},
    id::Version,
    ops::manifest::parse_when,
    plan::{
        compact::{self as plan, Choice, CompactCandidate, CompactOptions, When, in_window},
        sort::{self, SortCandidate, SortChoice, SortOptions},
    },
    units::Size,
};

/// Target size of a file if neither the user nor the table states one.
pub const DEFAULT_TABLE_TARGET: Size = Size::from_mib(128);
/// Tag of a file: the target of the compaction that made it.
pub(super) const COMPACTED_FOR: &str = "shardify.compactedFor";
/// Tag of a file: the order of its rows, and the set of files that were put into it together.
pub(super) const ORDER: &str = "shardify.order";
/// Property of a table: the target size of its files.
const TARGET_PROPERTY: &str = "delta.targetFileSize";

/// Returns the target size of files.
pub(super) fn target_size(live: &LiveTable, options: &Options) -> Result<Size> {
    let stated = || live.property(TARGET_PROPERTY).and_then(stated_size).filter(|size| size.0 > 0);
    let target = options.target_shard.or_else(stated).unwrap_or(DEFAULT_TABLE_TARGET);
    if target.0 == 0 {
        return Err(Error::usage("expected a --target-shard of at least one byte, found 0"));
    }
    Ok(target)
}

/// Reads a size as properties of tables have it: a number of bytes, or one with a unit such as `128mb`.
fn stated_size(text: &str) -> Option<Size> {
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift).map(Size)
}

/// Files that are rewritten together.
pub(super) struct FileGroup {
    /// Their numbers.
    pub(super) inputs: Vec<usize>,
    /// Their bytes.
    pub(super) bytes: u64,
}

/// What happens to a file: a word for it, the group, and the reason.
type FileDecision = (&'static str, Option<usize>, &'static str);

/// Which files are rewritten.
pub(super) struct FilePlan<'a> {
    pub(super) target: Size,
    /// Live files by the time at which they were written.
    files: Vec<&'a LiveFile>,
    decisions: Vec<FileDecision>,
    pub(super) groups: Vec<FileGroup>,
    /// Whether rows are arranged, so that a group becomes files of the target size.
    is_ordered: bool,
}

impl<'a> FilePlan<'a> {
    /// Plans merges, or an arrangement.
    pub(super) fn for_table(
        live: &'a LiveTable,
        target: Size,
        options: &Options,
        arranging: Option<&Arranging>,
    ) -> Result<Self> {
        let selection = CompactOptions {
            target,
            min_inputs: options.min_inputs.unwrap_or(DEFAULT_MIN_INPUTS),
            since: parse_instant(options.since.as_deref())?,
            until: parse_instant(options.until.as_deref())?,
            max_bytes: options.max_bytes,
        };
        let mut files: Vec<&LiveFile> = live.files().iter().collect();
        files.sort_by(|a, b| {
            let of = |file: &LiveFile| file.add.modification_time;
            of(a).cmp(&of(b)).then_with(|| a.path.cmp(&b.path))
        });
        let (decisions, groups) = match arranging {
            None => plan_merges(&files, &selection),
            Some(arranging) => plan_arrangement(live, &files, &selection, arranging)?,
        };
        Ok(Self { target, files, decisions, groups, is_ordered: arranging.is_some() })
    }

    pub(super) fn to_report(&self, live: &LiveTable, dry_run: bool, order: Option<&Order>) -> TableReport {
        let choice = |(file, (choice, group, reason)): (&&LiveFile, &FileDecision)| FileChoice {
            file: file.path.clone(),
            bytes: file.stated_bytes(),
            choice,
            group: *group,
            reason,
        };
        let before = self.files.len() as u64;
        let removed: u64 = self.groups.iter().map(|group| group.inputs.len() as u64).sum();
        let target = self.target.0;
        let made = |group: &FileGroup| if self.is_ordered { ((group.bytes + target / 2) / target).max(1) } else { 1 };
        let added = self.groups.iter().map(made).sum::<u64>();
        TableReport {
            table: live.store().location().to_string(),
            version: live.version(),
            dry_run,
            order: order.map(ToString::to_string),
            target,
            files_before: before,
            files_after: if dry_run { before - removed + added } else { before },
            choices: self.files.iter().zip(&self.decisions).map(choice).collect(),
            ..TableReport::default()
        }
    }

    pub(super) fn files_of(&self, group: usize) -> Vec<&'a LiveFile> {
        let inputs = self.groups.get(group).map_or(&[][..], |group| &group.inputs);
        inputs.iter().filter_map(|number| self.files.get(*number).copied()).collect()
    }
}

fn plan_merges(files: &[&LiveFile], selection: &CompactOptions) -> (Vec<FileDecision>, Vec<FileGroup>) {
    let candidates: Vec<CompactCandidate> = files.iter().map(|file| merge_candidate(file, selection.target)).collect();
    let plan = plan::plan_compaction(&candidates, selection);
    let decision = |choice: &Choice| match choice {
        Choice::Merge(group) => ("merge", Some(*group), choice_reason(*choice)),
        _ => ("keep", None, choice_reason(*choice)),
    };
    let group = |group: plan::Group| FileGroup { inputs: group.inputs, bytes: group.bytes };
    (plan.choices.iter().map(decision).collect(), plan.groups.into_iter().map(group).collect())
}

/// Plans which files are put into an order together. Those of one run that no other file overlaps stay as they are.
fn plan_arrangement(
    live: &LiveTable,
    files: &[&LiveFile],
    selection: &CompactOptions,
    arranging: &Arranging,
) -> Result<(Vec<FileDecision>, Vec<FileGroup>)> {
    let mut candidates: Vec<SortCandidate> = files
        .iter()
        .map(|file| SortCandidate {
            bytes: file.stated_bytes(),
            records: file.stated_rows().unwrap_or_default(),
            in_window: in_window(Version(0), written_at(file), selection),
            partition: partition_key(file),
            // Deleted rows go when the file is written again.
            order: order_of(file).filter(|_| file.deleted_row_count().is_none()),
            range: None,
        })
        .collect();
    for inputs in sort::undecided_shards(&candidates, &arranging.order) {
        let asked: Vec<&LiveFile> = inputs.iter().map(|number| files[*number]).collect();
        for (number, range) in inputs.into_iter().zip(key_ranges(live, &asked, arranging)?) {
            candidates[number].range = range;
        }
    }
    let options =
        SortOptions { order: arranging.order.clone(), target: selection.target, min_inputs: selection.min_inputs };
    let plan = sort::plan_sorts(&candidates, &options);
    let mut left = selection.max_bytes.map_or(u64::MAX, |bytes| bytes.0);
    let mut kept = Vec::new();
    for (number, group) in plan.groups.iter().enumerate() {
        if kept.is_empty() || group.bytes <= left {
            left = left.saturating_sub(group.bytes);
            kept.push(number);
        }
    }
    let decision = |choice: &SortChoice| match choice.group_number().map(|group| kept.binary_search(&group)) {
        Some(Ok(group)) => ("sort", Some(group), sort_reason(*choice)),
        Some(Err(_)) => ("keep", None, "left to another run by --max-bytes"),
        None => ("keep", None, sort_reason(*choice)),
    };
    let group = |number: &usize| {
        let mut inputs: Vec<usize> = plan.groups[*number].all_inputs().collect();
        inputs.sort_unstable();
        FileGroup { inputs, bytes: plan.groups[*number].bytes }
    };
    Ok((plan.choices.iter().map(decision).collect(), kept.iter().map(group).collect()))
}

/// Returns the order of a file's rows, if an earlier run has arranged them.
fn order_of(file: &LiveFile) -> Option<ShardOrder> {
    serde_json::from_str(file.add.tags.get(ORDER)?.as_deref()?).ok()
}

fn partition_key(file: &LiveFile) -> String {
    serde_json::to_string(&file.add.partition_values).unwrap_or_default()
}

fn written_at(file: &LiveFile) -> Timestamp {
    let written = file.add.modification_time.and_then(|millis| Timestamp::from_millisecond(millis).ok());
    written.unwrap_or_default()
}

/// Returns a point in time; versions of a table have none that is known without reading all of its log.
fn parse_instant(text: Option<&str>) -> Result<Option<When>> {
    match parse_when(text)? {
        Some(When::Version(version)) => Err(Error::usage(format!(
            "expected a duration, a date or an instant for files of a Delta table, found {version}"
        ))
        .with_hint("files are chosen by the time at which they were written, e.g. --since 7d")),
        when => Ok(when),
    }
}

fn merge_candidate(file: &LiveFile, target: Size) -> CompactCandidate {
    let rows = file.stated_rows().unwrap_or_default();
    // What is left of the file without its deleted rows.
    let bytes = match file.deleted_row_count() {
        Some(deleted) if rows > 0 => {
            let left = u128::from(rows.saturating_sub(deleted));
            u64::try_from(u128::from(file.stated_bytes()) * left / u128::from(rows)).unwrap_or_default()
        }
        _ => file.stated_bytes(),
    };
    let made_for = file.add.tags.get(COMPACTED_FOR).and_then(Option::as_deref).and_then(|text| text.parse().ok());
    CompactCandidate {
        path: file.path.clone(),
        bytes,
        records: rows,
        version: Version(0),
        committed_at: written_at(file),
        mergeable: true,
        partition: partition_key(file),
        settled: file.deleted_row_count().is_none() && made_for.is_some_and(|made_for: u64| made_for >= target.0),
        // Large files are not divided.
        made_for_target: true,
        sorted: order_of(file).is_some(),
        outdated: false,
    }
}

fn choice_reason(choice: Choice) -> &'static str {
    match choice {
        Choice::Oversized => "larger than 180% of the target; files of tables are not divided",
        Choice::Settled => "left over from the last compaction; will be merged once more data arrives",
        Choice::TooFew => "small; merging starts at --min-inputs such files of a partition (default 5)",
        Choice::OutsideWindow => "written outside the window",
        other => other.reason(),
    }
}

fn sort_reason(choice: SortChoice) -> &'static str {
    match choice {
        SortChoice::Stream(_) => "in this order already, but others overlap it",
        SortChoice::OutsideWindow => "written outside the window",
        other => other.reason(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_properties() {
        for (text, expected) in [
            ("104857600", Some(104_857_600)),
            ("128mb", Some(128 << 20)),
            ("1 GB", Some(1 << 30)),
            ("64k", Some(64 << 10)),
            ("much", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(stated_size(text).map(|size| size.0), expected, "{text}");
        }
    }
}
