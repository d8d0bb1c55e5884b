//! `pull`: a copy of a version of a dataset.

use std::io::Write;

use super::{
    CommandSession,
    args::PullArgs,
    exit::CommandOutcome,
    human::{self, READ_LIVE, clean, plural},
    json,
};
use crate::{
    error::Result,
    ops::pull::{PullReport, pull_version},
    units::Size,
};

impl CommandSession<'_> {
    pub(super) fn run_pull(&self, args: &PullArgs) -> Result<CommandOutcome> {
        let upstream = self.dataset_location(Some(&args.dataset))?;
        let dir = self.dataset_location(Some(&args.dir))?;
        let report = pull_version(&self.context, &upstream, &dir, &args.to_options())?;
        self.progress.stop();
        self.print_report(
            |w| if self.global.json { json::write_summary(w, &report) } else { write_summary(w, &report) },
        )?;
        Ok(CommandOutcome::Done)
    }
}

/// Writes what `pull` did.
fn write_summary(w: &mut dyn Write, report: &PullReport) -> Result<()> {
    let (copy, upstream) = (clean(&report.copy), clean(&report.upstream));
    let title = match report.version {
        Some(version) => format!("{version} of {copy}"),
        None => copy.to_string(),
    };
    let part = match report.split.as_slice() {
        [] => String::new(),
        names => format!(" ({})", names.join(", ")),
    };
    if report.unchanged {
        return Ok(writeln!(w, "nothing to do: {copy} has {}{part} of {upstream}", report.upstream_version)?);
    }
    writeln!(w, "{title}")?;
    human::write_line(w, "pulled", format_args!("{}{part} of {upstream}", report.upstream_version))?;
    let (shards, records) = (plural(report.shards, "shard"), plural(report.records, "record"));
    human::write_line(
        w,
        "data",
        format_args!("{shards}, {records}, {} with all that belongs to them", Size(report.bytes)),
    )?;
    let files = |files: u64, bytes: u64| format!("{}, {}", plural(files, "file"), Size(bytes));
    human::write_line(w, "fetched", files(report.files_fetched, report.bytes_fetched))?;
    if report.files_kept > 0 {
        human::write_line(w, "kept", files(report.files_kept, report.bytes_kept))?;
    }
    if report.erasures > 0 {
        let erasures = plural(report.erasures, "erasure");
        human::write_line(
            w,
            "erased",
            format_args!("{erasures} since the last pull: older versions of the copy are deleted"),
        )?;
    }
    if report.files_deleted > 0 {
        human::write_line(
            w,
            "deleted",
            format_args!("{} that no version needs", plural(report.files_deleted, "file")),
        )?;
    }
    if report.files_older > 0 {
        let older = plural(report.files_older, "file");
        human::write_line(
            w,
            "older",
            format_args!("{older} of older versions stay; --prune deletes them: {READ_LIVE}"),
        )?;
    }
    Ok(())
}
