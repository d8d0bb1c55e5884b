//! Proofs: `manifest --prove`, `--prove-split` and `--root`, and `verify-proof`.

use std::io::Write;

use super::{
    Session,
    args::{ManifestArgs, VerifyProofArgs},
    exit::Outcome,
    human::{self, clean, plural},
    json,
};
use crate::{
    error::Result,
    ops::{
        self,
        prove::{Claim, ProofReport, SplitReport, Verified},
    },
    record::side::SideBy,
    storage::Location,
    units::grouped,
};

impl Session<'_> {
    pub(super) fn prove(&self, location: &Location, args: &ManifestArgs) -> Result<Outcome> {
        let (at, json) = (args.at.as_deref(), self.global.json);
        if let (Some(id), Some(out)) = (&args.proof.prove, &args.proof.out) {
            let report = ops::prove::prove(&self.context, location, at, id, &self.context.location(out)?)?;
            self.progress.stop();
            self.report(|w| if json { json::summary(w, &report) } else { proof(w, &report) })?;
            return Ok(Outcome::Done);
        }
        if args.proof.prove_split {
            let out = args.proof.out.as_deref().map(|out| self.context.location(out)).transpose()?;
            let (bytes, report) = ops::prove::prove_split(&self.context, location, at, out.as_ref())?;
            self.progress.stop();
            if out.is_none() && json {
                // One object on a line; texts have no line breaks of their own.
                let lines = String::from_utf8_lossy(&bytes);
                self.print(|w| Ok(writeln!(w, "{}", lines.lines().map(str::trim_start).collect::<String>())?))?;
            } else if out.is_none() {
                self.print(|w| Ok(w.write_all(&bytes)?))?;
            } else {
                self.report(|w| if json { json::summary(w, &report) } else { split(w, &report) })?;
            }
            return Ok(Outcome::Done);
        }
        let (version, root) = ops::prove::root(&self.context, location, at)?;
        self.progress.stop();
        self.print(|w| {
            if json {
                return json::summary(w, &serde_json::json!({ "version": version, "root": root }));
            }
            Ok(writeln!(w, "{root}  {version}")?)
        })?;
        Ok(Outcome::Done)
    }

    pub(super) fn verify_proof(&self, args: &VerifyProofArgs) -> Result<Outcome> {
        let expected = ops::prove::Expected { root: args.root.as_deref(), id: args.id.as_deref() };
        let verified = ops::prove::verify(&self.context, &self.context.location(&args.file)?, expected)?;
        self.progress.stop();
        let json = self.global.json;
        let (problem, is_complete) = match &verified {
            Verified::Id(report) => {
                self.print(|w| if json { json::summary(w, report) } else { proof(w, report) })?;
                (&report.problem, report.is_complete())
            }
            Verified::Split(report) => {
                self.print(|w| if json { json::summary(w, report) } else { split(w, report) })?;
                (&report.problem, report.is_complete())
            }
        };
        Ok(match problem {
            Some(_) => Outcome::No,
            None if is_complete => Outcome::Done,
            None => Outcome::Unchecked,
        })
    }
}

/// Writes what a proof says and what it is based on.
fn proof(w: &mut dyn Write, report: &ProofReport) -> Result<()> {
    let (id, version) = (clean(&report.id), report.version);
    match (&report.problem, report.claim) {
        (Some(problem), _) => writeln!(w, "the proof about `{id}` does not hold: {}", clean(problem))?,
        (None, Claim::Absent) => writeln!(w, "`{id}` is not in {version}: no record has it as its id or subject id")?,
        (None, Claim::Present) => {
            writeln!(w, "`{id}` is in {version}: {} with it", plural(report.records.len() as u64, "record"))?;
        }
    }
    if report.problem.is_some() {
        return human::line(w, "root", format_args!("{}", clean(&report.root)));
    }
    let checked =
        if report.root_checked { "as expected" } else { "root not checked: give the trusted one with --root" };
    human::line(w, "root", format_args!("{} ({checked})", clean(&report.root)))?;
    match (&report.ids, &report.key_check) {
        (Some(mode), Some(check)) => {
            human::line(w, "ids", format_args!("{}, key with the check value {}", clean(mode), clean(check)))?
        }
        (Some(mode), None) => human::line(w, "ids", format_args!("{}", clean(mode)))?,
        (None, _) => {}
    }
    if report.is_token && report.claim == Claim::Present {
        human::line(w, "token", "the index has its first 16 digits; use --id and the key to compare the whole id")?;
    }
    human::line(w, "basis", format_args!("the id index under this root; its completeness depends on who made the root"))
}

/// Writes what a certificate says and what it is based on.
fn split(w: &mut dyn Write, report: &SplitReport) -> Result<()> {
    let version = report.version;
    if let Some(problem) = &report.problem {
        writeln!(w, "the certificate does not hold: {}", clean(problem))?;
        return human::line(w, "root", clean(&report.root));
    }
    let ids = match report.split.by {
        SideBy::Id => "record id",
        _ => "subject id",
    };
    writeln!(w, "no {ids} is on two sides of {version}: {}", report.split)?;
    for side in &report.sides {
        let (pairs, segments) = (grouped(side.pairs), plural(side.segments, "segment"));
        human::line(w, &side.name, format_args!("{pairs} pairs of a record and its {ids} in {segments}"))?;
    }
    let checked =
        if report.root_checked { "as expected" } else { "root not checked: give the trusted one with --root" };
    human::line(w, "root", format_args!("{} ({checked})", clean(&report.root)))?;
    human::line(w, "basis", "the sides that the writer of the root has checked as it wrote the id index")
}
