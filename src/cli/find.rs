//! `manifest --find`: where records are, which were erased, and what those repeat that were left out.

use std::io::{self, Write};

use super::{
    Session,
    args::ManifestArgs,
    exit::Outcome,
    found::{Form, Found},
    human::{self, clean},
};
use crate::{
    dataset::State,
    error::{Error, Result},
    ops::{
        self,
        manifest::{DuplicateReport, Wanted},
    },
    storage::Location,
};

/// Records of each begin of an id that a table shows unless told otherwise.
const SHOWN: u64 = 1_000;

impl Session<'_> {
    pub(super) fn find(&self, location: &Location, args: &ManifestArgs) -> Result<Outcome> {
        let form = args.find_form(self.global.json)?;
        let mut wanted = Wanted { limit: args.limit.or((form == Form::Table).then_some(SHOWN)), ..Wanted::default() };
        args.find.iter().for_each(|text| wanted.add(text));
        if let Some(file) = &args.find_file {
            let ids = self.read_ids(file)?;
            if ids.is_empty() {
                return Err(
                    Error::usage("expected ids to find, one on each line, found none").at(file.display().to_string())
                );
            }
            wanted.ids.extend(ids);
        }
        let mut all_found = true;
        self.print(|w| {
            let mut found = Found::new(form, w)?;
            let mut first = true;
            let report =
                ops::manifest::find_wanted(&self.context, location, args.at.as_deref(), &wanted, &mut |hit| {
                    if std::mem::take(&mut first) {
                        self.progress.stop();
                    }
                    found.hit(&hit)
                })?;
            self.progress.stop();
            let (erased, duplicates) = (&report.erased, &report.duplicates);
            let is_duplicate = |id: &String| duplicates.iter().any(|one| one.id == *id);
            if form == Form::Json {
                erased.iter().try_for_each(|id| found.erased(id))?;
                duplicates.iter().try_for_each(|duplicate| found.duplicate(duplicate))?;
            }
            found.finish(&report)?;
            if form == Form::Table {
                duplicates.iter().try_for_each(|of| writeln!(w, "{}", duplicate(of)))?;
            }
            if form != Form::Json && !self.global.quiet {
                for id in erased {
                    let _ = human::erased(&mut io::stderr(), id);
                }
                for of in duplicates.iter().filter(|_| form != Form::Table) {
                    let _ = writeln!(io::stderr(), "{}", duplicate(of));
                }
                let is_erased = |id: &String| erased.iter().any(|one| one.id == *id);
                for id in report.missing.iter().filter(|id| !is_erased(id) && !is_duplicate(id)) {
                    let name = human::clean(id);
                    let _ = writeln!(io::stderr(), "no record has the id `{name}` at {}", report.version);
                }
            }
            all_found = report.missing.iter().all(is_duplicate);
            Ok(())
        })?;
        Ok(if all_found { Outcome::Done } else { Outcome::No })
    }
}

/// Says what a record repeats that was left out.
fn duplicate(report: &DuplicateReport) -> String {
    let (id, source) = (clean(&report.id), clean(&report.source));
    let origin = report.row.map_or_else(|| source.to_string(), |row| format!("{source} row {row}"));
    let of = match &report.of {
        None => "a record that the dataset no longer has".to_owned(),
        Some(hit) => {
            let (first, shard) = (clean(&hit.record_id), clean(&hit.shard));
            format!("`{first}`, {} in shard {shard}, row {}", hit.state.name(), hit.ordinal)
        }
    };
    let again = match &report.of {
        Some(hit) if hit.state == State::Live => String::new(),
        _ => format!("; `shardify convert` takes it from {source} again"),
    };
    format!("`{id}` ({origin}) was left out in {} as a duplicate of {of}{again}", report.version)
}
