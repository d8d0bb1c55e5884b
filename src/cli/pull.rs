//! `pull`: a copy of a version of a dataset.

use std::io::Write;

use super::{
    Session,
    args::PullArgs,
    exit::Outcome,
    human::{self, READ_LIVE, clean, plural},
    json,
};
use crate::{
    error::Result,
    ops::pull::{PullReport, pull},
    units::Size,
};

impl Session<'_> {
    pub(super) fn pull(&self, args: &PullArgs) -> Result<Outcome> {
        let upstream = self.dataset(Some(&args.dataset))?;
        let dir = self.dataset(Some(&args.dir))?;
        let report = pull(&self.context, &upstream, &dir, &args.options())?;
        self.progress.stop();
        self.report(|w| if self.global.json { json::summary(w, &report) } else { summary(w, &report) })?;
        Ok(Outcome::Done)
    }
}

/// Writes what `pull` did.
fn summary(w: &mut dyn Write, report: &PullReport) -> Result<()> {
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
    human::line(w, "pulled", format_args!("{}{part} of {upstream}", report.upstream_version))?;
    let (shards, records) = (plural(report.shards, "shard"), plural(report.records, "record"));
    human::line(w, "data", format_args!("{shards}, {records}, {} with all that belongs to them", Size(report.bytes)))?;
    let files = |files: u64, bytes: u64| format!("{}, {}", plural(files, "file"), Size(bytes));
    human::line(w, "fetched", files(report.files_fetched, report.bytes_fetched))?;
    if report.files_kept > 0 {
        human::line(w, "kept", files(report.files_kept, report.bytes_kept))?;
    }
    if report.erasures > 0 {
        let erasures = plural(report.erasures, "erasure");
        human::line(
            w,
            "erased",
            format_args!("{erasures} since the last pull: older versions of the copy are deleted"),
        )?;
    }
    if report.files_deleted > 0 {
        human::line(w, "deleted", format_args!("{} that no version needs", plural(report.files_deleted, "file")))?;
    }
    if report.files_older > 0 {
        let older = plural(report.files_older, "file");
        human::line(w, "older", format_args!("{older} of older versions stay; --prune deletes them: {READ_LIVE}"))?;
    }
    Ok(())
}
