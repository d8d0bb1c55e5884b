//! `reshard`: cuts a dataset anew, into another dataset.

use std::io::Write;

use super::{
    CommandSession,
    args::ReshardArgs,
    exit::CommandOutcome,
    human::{self, clean, plural},
    json,
};
use crate::{
    error::{Error, Result},
    ops::reshard::{ReshardReport, reshard_dataset},
    units::{Size, group_digits},
};

/// Ids without a record that a summary names.
const NAMED: usize = 5;

impl CommandSession<'_> {
    pub(super) fn run_reshard(&self, args: &ReshardArgs) -> Result<CommandOutcome> {
        let parent = self.dataset_location(args.dataset.as_deref())?;
        let out = self.dataset_location(Some(&args.out))?;
        let ids = args.ids.as_deref().map(|file| self.read_ids(file)).transpose()?;
        if let (Some(file), Some([])) = (&args.ids, ids.as_deref()) {
            return Err(
                Error::usage("expected ids of records to take, found none").at_location(file.display().to_string())
            );
        }
        let report = reshard_dataset(&self.context, &parent, &out, &args.to_options(ids)?)?;
        self.progress.stop();
        self.print_report(|w| if self.global.json { write_objects(w, &report) } else { write_summary(w, &report) })?;
        if report.version.is_some() {
            self.suggest_command(
                "verify --read-data",
                &report.dataset,
                "reads the new dataset and compares all checksums",
            );
        }
        Ok(CommandOutcome::Done)
    }
}

/// Writes the shards and the summary as objects.
fn write_objects(w: &mut dyn Write, report: &ReshardReport) -> Result<()> {
    for shard in &report.shards {
        json::write_object(
            w,
            "shard",
            &serde_json::json!({ "path": shard.path, "records": shard.records, "bytes": shard.bytes }),
        )?;
    }
    json::write_summary(w, report)
}

/// Writes what `reshard` did, or would do.
fn write_summary(w: &mut dyn Write, report: &ReshardReport) -> Result<()> {
    let (parent, dataset) = (clean(&report.parent), clean(&report.dataset));
    match report.version {
        Some(version) => writeln!(w, "{version} of {dataset}")?,
        None => writeln!(w, "plan for {dataset} (nothing was written)")?,
    }
    human::write_line(w, "parent", format_args!("{} of {parent}", report.parent_version))?;
    let counts = &report.counts;
    let (taken, of) = (group_digits(counts.records_out), plural(counts.records_in, "record"));
    let duplicates = match counts.records_deduplicated {
        0 => String::new(),
        duplicates => format!(", {} duplicate", group_digits(duplicates)),
    };
    human::write_line(
        w,
        "records",
        format_args!("{taken} of {of} ({} filtered{duplicates})", group_digits(counts.records_filtered)),
    )?;
    let [smallest, largest] = report.shard_bytes.map(Size);
    let [fewest, most] = report.shard_records.map(group_digits);
    let shards = format!("{} from {}", plural(report.shards_after, "shard"), group_digits(report.shards_before));
    let about = if report.dry_run { "about " } else { "" };
    human::write_line(
        w,
        "shards",
        format_args!("{shards}: {about}{smallest} to {largest}, {fewest} to {most} records"),
    )?;
    if !report.dry_run {
        human::write_amounts(
            w,
            "bytes",
            &[
                ("copied", report.bytes_copied),
                ("spliced", report.bytes_spliced),
                ("re-encoded", report.bytes_reencoded),
            ],
        )?;
    }
    if let Some(ids) = report.ids {
        let missing = report.ids_missing.len();
        let mut text = format!("{} given", group_digits(ids));
        if missing > 0 {
            let named: Vec<String> = report.ids_missing.iter().take(NAMED).map(|id| clean(id).into_owned()).collect();
            let more = if missing > NAMED { ", ... (all with --json)" } else { "" };
            text = format!("{text}, {} that no record has: {}{more}", group_digits(missing as u64), named.join(", "));
        }
        human::write_line(w, "ids", text)?;
    }
    Ok(())
}
