//! `manifest --find`: where records are, which were erased, and what those repeat that were omitted.

use std::io::{self, Write};

use super::{
    CommandSession,
    args::ManifestArgs,
    exit::CommandOutcome,
    found::{Form, FoundWriter},
    human::{self, clean},
};
use crate::{
    dataset::PlaceState,
    error::{Error, Result},
    ops::{
        self,
        manifest::{DuplicateReport, LookupIds},
    },
    storage::Location,
};

/// Records of each id, and of each prefix of ids, that a table shows unless told otherwise.
const SHOWN: u64 = 1_000;

impl CommandSession<'_> {
    /// Returns an error if the last of several ids to find is a dataset, which was probably meant as such.
    pub(super) fn refuse_dataset_as_id(&self, args: &ManifestArgs) -> Result<()> {
        match (&args.dataset, args.find.as_slice()) {
            (None, [first, .., last]) if self.is_local_dataset(last) => {
                Err(Error::usage("the last id to find is a dataset, and no dataset is named")
                    .at_location(last.clone())
                    .with_hint(format!("write the dataset first: shardify manifest {last} --find {first}")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn run_find(&self, location: &Location, args: &ManifestArgs) -> Result<CommandOutcome> {
        let form = args.find_form(self.global.json)?;
        let mut wanted =
            LookupIds { limit: args.limit.or((form == Form::Table).then_some(SHOWN)), ..LookupIds::default() };
        args.find.iter().for_each(|text| wanted.add_query(text));
        if let Some(file) = &args.find_file {
            let ids = self.read_ids(file)?;
            if ids.is_empty() {
                return Err(Error::usage("expected ids to find, one on each line, found none")
                    .at_location(file.display().to_string()));
            }
            wanted.ids.extend(ids);
        }
        let mut all_found = true;
        self.print_answer(|w| {
            let mut found = FoundWriter::new(form, w)?;
            let mut first = true;
            let report =
                ops::manifest::find_wanted(&self.context, location, args.at.as_deref(), &wanted, &mut |hit| {
                    if std::mem::take(&mut first) {
                        self.progress.stop();
                    }
                    found.write_hit(&hit)
                })?;
            self.progress.stop();
            let (erased, duplicates) = (&report.erased, &report.duplicates);
            let is_duplicate = |id: &String| duplicates.iter().any(|one| one.id == *id);
            if form == Form::Json {
                erased.iter().try_for_each(|id| found.write_erased(id))?;
                duplicates.iter().try_for_each(|duplicate| found.write_duplicate(duplicate))?;
            }
            found.finish(&report)?;
            if form == Form::Table {
                duplicates.iter().try_for_each(|of| writeln!(w, "{}", describe_duplicate(of)))?;
            }
            if form != Form::Json && !self.global.quiet {
                for id in erased {
                    let _ = human::write_erased(&mut io::stderr(), id);
                }
                for of in duplicates.iter().filter(|_| form != Form::Table) {
                    let _ = writeln!(io::stderr(), "{}", describe_duplicate(of));
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
        Ok(if all_found { CommandOutcome::Done } else { CommandOutcome::No })
    }
}

/// Says what a record repeats that was omitted.
fn describe_duplicate(report: &DuplicateReport) -> String {
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
        Some(hit) if hit.state == PlaceState::Live => String::new(),
        _ => format!("; `shardify convert` takes it from {source} again"),
    };
    format!("`{id}` ({origin}) was omitted in {} as a duplicate of {of}{again}", report.version)
}
