//! What training runs saw of records, in a line each.

use std::io::Write;

use super::{SOME_LINES, clean, plural, write_line, write_more};
use crate::{error::Result, ops::training::SeenSummary, units::group_digits};

/// Writes what training runs saw of records.
pub(super) fn write_training_runs(w: &mut dyn Write, runs: &[SeenSummary]) -> Result<()> {
    for run in runs.iter().take(SOME_LINES) {
        write_line(w, "training", describe_seen(run))?;
    }
    write_more(w, runs.len(), SOME_LINES, "training run")
}

/// Says in a line what a run did with records.
fn describe_seen(run: &SeenSummary) -> String {
    let (name, records) = (clean(&run.run), plural(run.records_seen, "record"));
    let Some(first) = run.first_step else {
        return format!("{name} ({}): no step saw them", run.version);
    };
    let (steps, epochs) = (plural(run.steps, "step"), plural(run.epochs, "epoch"));
    let clean_checkpoint = match &run.clean_checkpoint {
        Some(checkpoint) => format!("clean checkpoint {}", clean(&checkpoint.name)),
        None => "no clean checkpoint".to_owned(),
    };
    format!(
        "{name} ({}): {steps} of {epochs} saw {records}, from step {} on; {clean_checkpoint}",
        run.version,
        group_digits(first)
    )
}
