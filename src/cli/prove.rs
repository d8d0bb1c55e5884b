//! Proofs: `manifest --prove`, `--prove-split` and `--root`, and `verify-proof`.

use std::io::Write;

use super::{
    CommandSession,
    args::{ManifestArgs, VerifyProofArgs},
    exit::CommandOutcome,
    human::{self, clean, plural},
    json,
};
use crate::{
    error::Result,
    ops::{
        self,
        prove::{CertificateReport, Claim, ProofReport, Verified},
    },
    record::split::SplitBy,
    storage::Location,
    units::group_digits,
};

impl CommandSession<'_> {
    pub(super) fn run_prove(&self, location: &Location, args: &ManifestArgs) -> Result<CommandOutcome> {
        let (at, json) = (args.at.as_deref(), self.global.json);
        if let (Some(id), Some(out)) = (&args.proof.prove, &args.proof.out) {
            let report = ops::prove::prove_id(&self.context, location, at, id, &self.context.parse_location(out)?)?;
            self.progress.stop();
            self.print_report(|w| if json { json::write_summary(w, &report) } else { write_proof(w, &report) })?;
            return Ok(CommandOutcome::Done);
        }
        if args.proof.prove_split {
            let out = args.proof.out.as_deref().map(|out| self.context.parse_location(out)).transpose()?;
            let (bytes, report) = ops::prove::prove_split(&self.context, location, at, out.as_ref())?;
            self.progress.stop();
            if out.is_none() && json {
                // One object on a line; texts have no line breaks of their own.
                let lines = String::from_utf8_lossy(&bytes);
                self.print_answer(|w| Ok(writeln!(w, "{}", lines.lines().map(str::trim_start).collect::<String>())?))?;
            } else if out.is_none() {
                self.print_answer(|w| Ok(w.write_all(&bytes)?))?;
            } else {
                self.print_report(
                    |w| if json { json::write_summary(w, &report) } else { write_certificate(w, &report) },
                )?;
            }
            return Ok(CommandOutcome::Done);
        }
        let (version, root) = ops::prove::version_root(&self.context, location, at)?;
        self.progress.stop();
        self.print_answer(|w| {
            if json {
                return json::write_summary(w, &serde_json::json!({ "version": version, "root": root }));
            }
            Ok(writeln!(w, "{root}  {version}")?)
        })?;
        Ok(CommandOutcome::Done)
    }

    pub(super) fn verify_proof(&self, args: &VerifyProofArgs) -> Result<CommandOutcome> {
        let expected = ops::prove::Expected { root: args.root.as_deref(), id: args.id.as_deref() };
        let verified = ops::prove::verify_proof(&self.context, &self.context.parse_location(&args.file)?, expected)?;
        self.progress.stop();
        let json = self.global.json;
        let (problem, is_complete) = match &verified {
            Verified::Id(report) => {
                self.print_answer(|w| if json { json::write_summary(w, report) } else { write_proof(w, report) })?;
                (&report.problem, report.is_complete())
            }
            Verified::Split(report) => {
                self.print_answer(
                    |w| if json { json::write_summary(w, report) } else { write_certificate(w, report) },
                )?;
                (&report.problem, report.is_complete())
            }
        };
        Ok(match problem {
            Some(_) => CommandOutcome::No,
            None if is_complete => CommandOutcome::Done,
            None => CommandOutcome::Unchecked,
        })
    }
}

/// Writes what a proof says and what it is based on.
fn write_proof(w: &mut dyn Write, report: &ProofReport) -> Result<()> {
    let (id, version) = (clean(&report.id), report.version);
    match (&report.problem, report.claim) {
        (Some(problem), _) => writeln!(w, "the proof about `{id}` does not hold: {}", clean(problem))?,
        (None, Claim::Absent) => writeln!(w, "`{id}` is not in {version}: no record has it as its id or subject id")?,
        (None, Claim::Present) => {
            writeln!(w, "`{id}` is in {version}: {} with it", plural(report.records.len() as u64, "record"))?;
        }
    }
    if report.problem.is_some() {
        return human::write_line(w, "root", format_args!("{}", clean(&report.root)));
    }
    let checked =
        if report.root_checked { "as expected" } else { "root not checked: give the trusted one with --root" };
    human::write_line(w, "root", format_args!("{} ({checked})", clean(&report.root)))?;
    match (&report.ids, &report.key_check) {
        (Some(mode), Some(check)) => {
            human::write_line(w, "ids", format_args!("{}, key with the check value {}", clean(mode), clean(check)))?
        }
        (Some(mode), None) => human::write_line(w, "ids", format_args!("{}", clean(mode)))?,
        (None, _) => {}
    }
    if report.is_token && report.claim == Claim::Present {
        human::write_line(
            w,
            "token",
            "the index has its first 16 digits; use --id and the key to compare the whole id",
        )?;
    }
    human::write_line(
        w,
        "basis",
        format_args!("the id index under this root; its completeness depends on who made the root"),
    )
}

/// Writes what a certificate says and what it is based on.
fn write_certificate(w: &mut dyn Write, report: &CertificateReport) -> Result<()> {
    let version = report.version;
    if let Some(problem) = &report.problem {
        writeln!(w, "the certificate does not hold: {}", clean(problem))?;
        return human::write_line(w, "root", clean(&report.root));
    }
    let ids = match report.split.by {
        SplitBy::Id => "record id",
        _ => "subject id",
    };
    writeln!(w, "no {ids} is in two splits of {version}: {}", report.split)?;
    for split in &report.splits {
        let (pairs, segments) = (group_digits(split.pairs), plural(split.segments, "segment"));
        human::write_line(w, &split.name, format_args!("{pairs} pairs of a record and its {ids} in {segments}"))?;
    }
    let checked =
        if report.root_checked { "as expected" } else { "root not checked: give the trusted one with --root" };
    human::write_line(w, "root", format_args!("{} ({checked})", clean(&report.root)))?;
    human::write_line(w, "basis", "the splits that the writer of the root has checked as it wrote the id index")
}
