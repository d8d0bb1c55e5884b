//! Parquet files: facts of all rows from the footers, and profiles of a sample of rows that is spread over all files.

use std::collections::HashMap;

use arrow::array::RecordBatch;

use super::{
    MAX_COLUMNS, Report, is_hidden,
    profile::{Profile, Stated},
};
use crate::{
    error::Result,
    events::Event,
    ops::{
        Context,
        columns::{ColumnSample, Facts, Roots, Table, flat_columns},
        head::Hidden,
        sizes::Sizes,
    },
    record::size::logical_bytes,
};

/// Profiles of columns, and sizes of records.
type Profiles = (HashMap<String, Profile>, Sizes);

/// Describes the files.
pub(super) fn describe_files(
    context: &Context<'_>,
    tables: &[Table],
    hidden: &Hidden,
    report: &mut Report,
) -> Result<()> {
    context.observer.event(Event::Phase { name: "reading footers", bytes: None });
    let mut facts = Facts::read(context, tables)?;
    facts.columns.retain(|column| !is_hidden(hidden, &column.name));
    report.columns = facts.columns.len() as u64;
    facts.columns.truncate(MAX_COLUMNS);
    let sample = ColumnSample::new(context, tables, &facts);
    context.observer.event(Event::Phase { name: "sampling", bytes: None });
    let live = facts.live_rows();
    let (mut profiles, mut sizes) = read(&facts, &sample, false)?;
    if sample.has_large() {
        let (more, all_sizes) = read(&facts, &sample, true)?;
        profiles.extend(more);
        sizes = all_sizes;
    }
    report.sampled_records = sample.rows_to_read(false);
    report.sample_is_all = report.sampled_records == live && report.damaged == 0;
    report.sample = sample.describe_basis(sample.rows_to_read(false));
    report.record_sizes = sizes.size_bins();
    report.record_sizes_from = format!("{}, in memory", sample.describe_basis(sample.rows_to_read(sample.has_large())));
    for column in &facts.columns {
        let rows = sample.rows_to_read(sample.is_large(column));
        let mut profile = profiles.remove(&column.name).unwrap_or_else(|| Profile::new(&column.name, &column.field));
        profile.add_absent(rows.saturating_sub(profile.row_count()));
        let stated = Stated {
            nulls: column.nulls.map(|nulls| nulls + (live - column.rows.min(live))),
            range: column.range.known_range().cloned(),
            stored_bytes: Some(column.stored_bytes),
            records: live,
        };
        report.column_list.push(profile.report_with(&stated, rows == live));
    }
    Ok(())
}

/// Profiles columns with or without large values. Sizes of records need all columns, which are read with the large ones
/// if there are some.
fn read(facts: &Facts, sample: &ColumnSample<'_>, large: bool) -> Result<Profiles> {
    let roots = if large { Roots::All } else { Roots::Small };
    let add = |batch: &RecordBatch, own: &mut Profiles| {
        (0..batch.num_rows()).for_each(|row| own.1.add(logical_bytes(&batch.slice(row, 1))));
        for column in flat_columns(batch)? {
            let Some(known) = facts.columns.iter().find(|known| known.name == column.name) else { continue };
            if sample.is_large(known) == large {
                let empty = || Profile::new(&known.name, &known.field);
                own.0.entry(column.name).or_insert_with(empty).add_values(&column.values)?;
            }
        }
        Ok(())
    };
    let mut all = Profiles::default();
    sample.read(roots, add, &mut |(profiles, sizes): Profiles| {
        all.1.merge(&sizes);
        for (name, profile) in profiles {
            match all.0.get_mut(&name) {
                Some(own) => own.merge(profile),
                None => drop(all.0.insert(name, profile)),
            }
        }
    })?;
    Ok(all)
}
