//! Checks that new data resembles the data of the dataset: a wrong `--out`, or two runs without one, must not silently
//! mix pictures with clinical rows.
//!
//! Columns that are added or removed over time do not stop a run, and neither does another table that shares a column.
//! A run stops for samples in a dataset of rows, for rows that share no column with the dataset, and for ids from other
//! columns than before. Each of these requires consent by `--accept`.

use std::collections::HashSet;

use arrow::datatypes::{FieldRef, Fields};
use bytes::Bytes;

use super::{
    classes,
    inputs::Inputs,
    job::ConvertJob,
    options::{Accept, OnSchema},
};
use crate::{
    dataset::{Operation, Settings, ShardMeta, folder_of},
    error::{Error, Result},
    events::Event,
    exec::{constants, types},
    format::{OutputFormat, parquet},
    id::Version,
    record::{parts::KEY_COLUMN, subject::SubjectsFrom},
    schema::{
        bound::{self, ColumnBinding, bind_column},
        file::print_type,
        plain_fields,
    },
};

/// Maximum number of earlier commits whose columns are compared if those of the last commit share none with the new
/// data.
const COMMITS: usize = 64;

impl ConvertJob<'_> {
    /// Returns an error if the new data is of another kind than the dataset's, and notes which columns change their
    /// type.
    ///
    /// # Errors
    /// [`Kind::Changed`](crate::error::Kind::Changed) without consent; when a shard of the dataset cannot be read.
    pub(super) fn check_alike(&self, inputs: &Inputs, fields: &Fields, settings: &Settings) -> Result<()> {
        let (format, none) = (settings.shard_format, Fields::empty());
        let types = settings.types.as_ref().unwrap_or(&none);
        let shards = self.snapshot.map(|snapshot| snapshot.live_shards()).transpose()?.unwrap_or_default();
        let Some(last) = shards.last() else { return Ok(()) };
        let known = self.columns_of(last, format)?;
        // Tar without types of rows holds samples, or rows as parts, which cannot be distinguished from samples.
        let Some(known) = known else { return Ok(()) };
        let had_samples = known.find(KEY_COLUMN).is_some();
        if inputs.give_samples() != had_samples && !fields.is_empty() {
            let name = |samples| if samples { "samples" } else { "rows" };
            let is_table_of_samples = !inputs.give_samples() && fields.find(KEY_COLUMN).is_some();
            return if is_table_of_samples {
                Ok(())
            } else {
                self.require_accepted(Accept::Kind, "kind", || {
                    format!("this dataset has {}; the sources give {}", name(had_samples), name(!had_samples))
                })
            };
        }
        if !inputs.give_samples() {
            self.check_columns(shards, format, &known, fields)?;
            self.check_types(types, &known, fields)?;
        }
        Ok(())
    }

    /// Returns the types of the columns of rows that the dataset has, if only its shards state them, as those of other
    /// programs do; `None` if there are none.
    ///
    /// # Errors
    /// When a shard of the dataset cannot be read.
    pub(super) fn types_of_shards(&self, format: OutputFormat) -> Result<Option<Fields>> {
        let shards = self.snapshot.map(|snapshot| snapshot.live_shards()).transpose()?.unwrap_or_default();
        let Some(last) = shards.last() else { return Ok(None) };
        let known = self.columns_of(last, format)?.filter(|known| known.find(KEY_COLUMN).is_none());
        known.map(|known| Ok(bound::stored_types(&plain_fields(&known)?))).transpose()
    }

    /// Returns the columns of a shard; `None` if the types of its rows are not recorded.
    pub(super) fn columns_of(&self, shard: &ShardMeta, format: OutputFormat) -> Result<Option<Fields>> {
        let store = self.dataset.store();
        if !format.is_columnar() {
            return types::of_shards(store.as_ref(), std::iter::once(shard.path.as_str()), None);
        }
        let place = store.location().join(&shard.path).to_string();
        let file = parquet::open(self.dataset.object_at(&shard.path, shard.bytes), &place)?;
        Ok(Some(file.schema().fields().clone()))
    }

    /// Returns an error unless the rows share a column with the last shard, or with a shard of another recent commit.
    fn check_columns(&self, shards: &[ShardMeta], format: OutputFormat, known: &Fields, found: &Fields) -> Result<()> {
        let names = |fields: &Fields| -> Vec<String> { fields.iter().map(|field| field.name().clone()).collect() };
        let (before, now) = (names(known), names(found));
        let share = |known: &Fields| now.iter().any(|name| known.find(name).is_some());
        if before.is_empty() || now.is_empty() || share(known) {
            return Ok(());
        }
        let mut seen = HashSet::new();
        for shard in shards.iter().rev().filter(|shard| seen.insert(shard.version)).take(COMMITS) {
            if self.columns_of(shard, format)?.is_none_or(|fields| share(&fields)) {
                return Ok(());
            }
        }
        self.require_accepted(Accept::Columns, "columns", || {
            format!(
                "expected at least one of this dataset's columns, {}, found {}",
                list_first(&before),
                list_first(&now)
            )
        })
    }

    /// Returns an error for other columns than the dataset's if the schema may not change, and reports which types do.
    fn check_types(&self, types: &Fields, known: &Fields, found: &Fields) -> Result<()> {
        if self.options.on_schema == OnSchema::Fail && !found.is_empty() {
            let names = |fields: &Fields| fields.iter().map(|f| f.name().clone()).collect::<Vec<_>>();
            let (mut before, mut now) = (names(known), names(found));
            before.sort_unstable();
            now.sort_unstable();
            if before != now {
                let (before, now) = (names(known).join(", "), names(found).join(", "));
                return Err(Error::input(format!("this dataset has the columns {before}; the sources have {now}"))
                    .at_location(self.dataset.store().location().to_string())
                    .with_hint("unite columns by name with --on-schema keep"));
            }
        }
        let change = |field: &FieldRef| {
            let (_, before) = types.find(field.name())?;
            let changes = match bind_column(before, field) {
                ColumnBinding::Fits(united) => print_type(&united) != print_type(before),
                ColumnBinding::Extends(_) | ColumnBinding::Conflict(_) => true,
            };
            changes.then(|| format!("`{}` from {} to {}", field.name(), print_type(before), print_type(field)))
        };
        let changes: Vec<String> = found.iter().filter_map(change).collect();
        if !changes.is_empty() {
            self.context.observer.event(Event::Note(format!(
                "types of columns of the dataset change: {}; `shardify compact {}` gives older shards these types \
                 where that changes no value",
                changes.join(", "),
                self.dataset.store().location()
            )));
        }
        Ok(())
    }

    /// Returns an error if packed numbers of arrays would be stored in another way than before: decoded, or as they
    /// are.
    ///
    /// # Errors
    /// [`Kind::Changed`](crate::error::Kind::Changed) without consent; when the log cannot be read.
    pub(super) fn check_raw(&self, inputs: &Inputs) -> Result<()> {
        let Inputs::Records(sources) = inputs else { return Ok(()) };
        let Some(snapshot) = self.snapshot.filter(|_| sources.iter().any(|source| source.format.is_array())) else {
            return Ok(());
        };
        for version in (1..=snapshot.version().0).rev().take(COMMITS) {
            let Ok(entry) = snapshot.dataset().read_entry(Version(version)) else { break };
            if entry.operation != Operation::Convert || entry.counts.records_out == 0 {
                continue;
            }
            let (then, now) =
                (entry.arguments.get("read.raw").is_some_and(|raw| raw == "yes"), self.options.read.is_raw());
            let named = |raw| {
                if raw { "numbers as they are stored (--read raw=yes)" } else { "decoded numbers (no --read raw=yes)" }
            };
            return match then == now {
                true => Ok(()),
                false => self.require_accepted(Accept::Settings, "settings", || {
                    format!("this dataset has {}; you asked for {}", named(then), named(now))
                }),
            };
        }
        Ok(())
    }

    /// Returns an error if arrays have other constants than those of the dataset, as two sources of one run must not.
    ///
    /// # Errors
    /// [`Kind::Changed`](crate::error::Kind::Changed) without consent; when the constants of the dataset cannot be
    /// read.
    pub(super) fn check_constants(&self, found: Option<&Bytes>) -> Result<()> {
        let shards = self.snapshot.map(|snapshot| snapshot.live_shards()).transpose()?.unwrap_or_default();
        let (Some(last), Some(found)) = (shards.last(), found) else { return Ok(()) };
        let known = constants::read(self.dataset.store().as_ref(), folder_of(&last.path))?;
        let Some(column) = known.map(|known| constants::difference_of(&known, found)).transpose()?.flatten() else {
            return Ok(());
        };
        self.require_accepted(Accept::Constants, "constants", || {
            "expected variables without the record dimension to have the values that they have in this dataset, found \
             a difference"
                .to_owned()
        })
        .map_err(|error| error.in_column(column).with_hint("or choose variables that agree with --read var"))
    }

    /// Returns an error if ids or subjects would come from other columns than before.
    ///
    /// # Errors
    /// [`Kind::Changed`](crate::error::Kind::Changed) without consent.
    pub(super) fn check_settings(&self, old: &Settings, now: &Settings) -> Result<()> {
        let changed = |what: &str, then: &str, now: &str| {
            self.require_accepted(Accept::Settings, "settings", || {
                let then = if then.is_empty() { format!("without --{what}") } else { format!("with --{what} {then}") };
                format!("this dataset was created {then}; you gave --{what} {now}")
            })
        };
        if !self.options.id.is_empty() && now.id != old.id {
            changed("id", &list_columns(&old.id), &list_columns(&now.id))?;
        }
        if self.options.subject.is_some() && now.subject != old.subject {
            changed("subject", &list_columns(old.subject.as_slice()), &list_columns(now.subject.as_slice()))?;
        }
        if now.columns != old.columns {
            let shown = |columns: &[String]| if columns.is_empty() { "'*'".to_owned() } else { columns.join(",") };
            changed("columns", &shown(&old.columns), &shown(&now.columns))?;
        }
        if now.label_column != old.label_column {
            changed(
                "label-column",
                old.label_column.as_deref().unwrap_or(""),
                now.label_column.as_deref().unwrap_or(""),
            )?;
        }
        if now.classes.is_some() && old.classes.is_none() && now.label_column.is_none() {
            self.require_accepted(Accept::Settings, "settings", || {
                format!("this dataset was created without classes; you gave {}", classes::OPTION)
            })?;
        }
        if now.subjects_from != old.subjects_from {
            self.require_accepted(Accept::Settings, "settings", || {
                format!("this dataset was created with {}; you gave {}", from(old), from(now))
            })?;
        }
        Ok(())
    }

    /// Tells which settings of the dataset the run changes, that need no consent.
    pub(super) fn tell_settings(&self, old: &Settings, now: &Settings) {
        for (what, then, now) in minor_changes(old, now) {
            let note =
                format!("the dataset's --{what} changes from {then} to {now}, for new shards of this and later runs");
            self.context.observer.event(Event::Note(note));
        }
    }
}

/// Returns the settings that differ and need no consent: the option, and both values.
pub(super) fn minor_changes(old: &Settings, now: &Settings) -> impl Iterator<Item = (&'static str, String, String)> {
    let all = [
        ("codec", old.codec.to_string(), now.codec.to_string()),
        ("target-shard", old.target_shard.to_string(), now.target_shard.to_string()),
        ("write row-group", old.row_group.to_string(), now.row_group.to_string()),
    ];
    all.into_iter().filter(|(_, then, now)| then != now)
}

fn list_columns(columns: &[String]) -> String {
    columns.join(",")
}

/// Describes the origin of subject ids as the options spell it.
fn from(settings: &Settings) -> String {
    match (&settings.subjects_from, &settings.subject) {
        (Some(SubjectsFrom::Path(pattern)), _) => format!("--subject-from-path {pattern}"),
        (Some(SubjectsFrom::Table), _) => "--subject-table".to_owned(),
        (None, Some(column)) => format!("--subject {column}"),
        (None, None) => "no subjects".to_owned(),
    }
}

/// Lists the first few of some names.
fn list_first(names: &[String]) -> String {
    let more = if names.len() > 5 { ", ..." } else { "" };
    format!("{}{more}", names.iter().take(5).cloned().collect::<Vec<_>>().join(", "))
}
