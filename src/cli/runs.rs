//! `runs`, and `manifest --find ID --runs`: training runs, and which of their steps had a record.

use std::{
    io::Write,
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{
    CommandSession,
    align::write_aligned,
    args::{RunsArgs, expect_ids},
    exit::CommandOutcome,
    human::{self, clean, plural},
    json,
};
use crate::{
    dataset::RunCheckpoint,
    error::Result,
    ops::{
        run_events,
        training::{self, SeenReport, StepRecord, TrainingRunReport},
    },
    storage::Location,
    units::group_digits,
};

/// Summary of a list.
#[derive(Serialize)]
struct Listed {
    dataset: String,
    runs: u64,
}

/// Summary of an answer.
#[derive(Serialize)]
struct Asked {
    dataset: String,
    ids: u64,
    runs: u64,
    runs_that_saw: u64,
}

impl CommandSession<'_> {
    pub(super) fn run_runs(&self, args: &RunsArgs) -> Result<CommandOutcome> {
        let location = self.dataset_location(args.dataset.as_deref())?;
        if let Some(file) = &args.add {
            return self.add_run_events(&location, file);
        }
        if args.has_ids() {
            return self.find_in_runs(&location, args.name.as_deref(), &args.find, args.find_file.as_ref());
        }
        match &args.name {
            Some(name) if args.release => {
                let run = run_events::release_run(&self.context, &location, name)?;
                self.progress.stop();
                self.print_report(|w| {
                    if self.global.json {
                        return json::write_summary(w, &run);
                    }
                    let (run, version) = (clean(&run.run), run.version);
                    Ok(writeln!(w, "{run} no longer keeps {version} of {location}: vacuum may delete it")?)
                })?;
            }
            Some(name) => match &args.step {
                Some(steps) => self.show_steps(&location, name, steps)?,
                None => {
                    let run = training::show_run(&self.context, &location, name)?;
                    self.progress.stop();
                    self.print_answer(|w| {
                        if self.global.json { json::write_summary(w, &run) } else { write_run(w, &run) }
                    })?;
                }
            },
            None => {
                let runs = training::list_runs(&self.context, &location)?;
                self.progress.stop();
                self.print_answer(|w| self.write_runs(w, &location, &runs))?;
            }
        }
        Ok(CommandOutcome::Done)
    }

    fn write_runs(&self, w: &mut dyn Write, location: &Location, runs: &[TrainingRunReport]) -> Result<()> {
        let summary = Listed { dataset: location.to_string(), runs: runs.len() as u64 };
        if self.global.json {
            runs.iter().try_for_each(|run| json::write_object(w, "run", run))?;
            return json::write_summary(w, &summary);
        }
        if !runs.is_empty() {
            let header = ["RUN", "VERSION", "EPOCHS", "STEPS", "CHECKPOINTS", "STATE", "BEGAN"].map(str::to_owned);
            let rows = runs.iter().map(|run| {
                let numbers = [run.epochs, run.steps, run.checkpoints.len() as u64].map(group_digits);
                let [epochs, steps, checkpoints] = numbers;
                let (name, state) = (clean(&run.run).into_owned(), run.state.to_owned());
                [name, run.version.to_string(), epochs, steps, checkpoints, state, run.began.clone()]
            });
            write_aligned(w, &std::iter::once(header).chain(rows).collect::<Vec<_>>(), &mut [0; 7])?;
        }
        write_count_of_runs(w, summary.runs, location)
    }

    fn add_run_events(&self, location: &Location, file: &Path) -> Result<CommandOutcome> {
        let bytes = self.read_list(file, "a file of events")?;
        let place = file.display().to_string();
        let report = run_events::add_events(&self.context, location, &bytes).map_err(|e| e.at_location(place))?;
        self.progress.stop();
        self.print_report(|w| {
            if self.global.json {
                return json::write_summary(w, &report);
            }
            let names: Vec<_> = report.runs.iter().map(|name| clean(name)).collect();
            let known = if report.known == 0 { String::new() } else { format!(", {} known before", report.known) };
            let added = plural(report.added, "event");
            Ok(writeln!(w, "added {added} of {} to {location}{known}", names.join(", "))?)
        })?;
        Ok(CommandOutcome::Done)
    }

    fn show_steps(&self, location: &Location, name: &str, steps: &RangeInclusive<u64>) -> Result<()> {
        self.print_answer(|w| {
            let mut rows: Vec<[String; 8]> = Vec::new();
            let header = ["STEP", "SLOT", "NUMBER", "RECORD", "SUBJECT", "SHARD", "ROW", "ORIGIN"].map(str::to_owned);
            let mut records = 0_u64;
            let count = training::each_step_record(&self.context, location, name, steps.clone(), &mut |record| {
                self.progress.stop();
                records += 1;
                if self.global.json {
                    return json::write_object(w, "record", &record);
                }
                if rows.is_empty() {
                    rows.push(header.clone());
                }
                rows.push(cells_of(&record));
                Ok(())
            })?;
            if self.global.json {
                return json::write_summary(w, &serde_json::json!({ "run": name, "steps": count, "records": records }));
            }
            write_aligned(w, &rows, &mut [0; 8])?;
            let (records, steps) = (plural(records, "record"), plural(count, "step"));
            Ok(writeln!(w, "{records} of {steps} of {}", clean(name))?)
        })
    }

    /// Answers which steps of runs had records with some ids.
    pub(super) fn find_in_runs(
        &self,
        location: &Location,
        name: Option<&str>,
        ids: &[String],
        file: Option<&PathBuf>,
    ) -> Result<CommandOutcome> {
        let mut ids = ids.to_vec();
        if let Some(file) = file {
            ids.extend(self.read_ids(file)?);
        }
        expect_ids(&ids, file)?;
        let found = training::find_in_runs(&self.context, location, name, &ids)?;
        self.progress.stop();
        let saw = found.iter().filter(|run| run.summary.records_seen > 0).count() as u64;
        let summary = Asked {
            dataset: location.to_string(),
            ids: ids.len() as u64,
            runs: found.len() as u64,
            runs_that_saw: saw,
        };
        self.print_answer(|w| {
            if self.global.json {
                found.iter().try_for_each(|run| json::write_object(w, "run", run))?;
                return json::write_summary(w, &summary);
            }
            if found.is_empty() {
                return write_count_of_runs(w, 0, location);
            }
            write_found(w, &found)?;
            let of = plural(summary.runs, "training run");
            let verb = if summary.ids == 1 { "it" } else { "them" };
            Ok(writeln!(w, "{} of {of} saw {verb}", group_digits(saw))?)
        })?;
        Ok(if saw > 0 { CommandOutcome::Done } else { CommandOutcome::No })
    }
}

fn write_count_of_runs(w: &mut dyn Write, runs: u64, location: &Location) -> Result<()> {
    if runs == 0 {
        return Ok(writeln!(
            w,
            "no training run of {location}: `loader.record(NAME)` of the Python package records one"
        )?);
    }
    Ok(writeln!(w, "{} of {location}", plural(runs, "training run"))?)
}

fn write_run(w: &mut dyn Write, run: &TrainingRunReport) -> Result<()> {
    writeln!(w, "{}", clean(&run.run))?;
    let of_split = run.split.as_ref().map_or_else(String::new, |split| format!(", split {}", clean(split)));
    human::write_line(w, "version", format_args!("{}{of_split}", run.version))?;
    let (records, batch) = (plural(run.records, "record"), group_digits(run.global_batch_size));
    human::write_line(w, "epoch", format_args!("{records} in {} steps of {batch}", group_digits(run.steps_per_epoch)))?;
    let (steps, epochs, attempts) = (group_digits(run.steps), run.epochs, plural(run.attempts, "attempt"));
    human::write_line(w, "steps", format_args!("{steps} in {} and {attempts}", plural(epochs, "epoch")))?;
    human::write_line(w, "state", run.state)?;
    human::write_line(w, "began", &run.began)?;
    human::write_line(w, "newest", &run.newest)?;
    if let Some(of) = &run.replay_of {
        human::write_line(w, "repeats", clean(of))?;
    }
    for checkpoint in &run.checkpoints {
        human::write_line(w, "checkpoint", describe_checkpoint(checkpoint))?;
    }
    Ok(())
}

fn describe_checkpoint(checkpoint: &RunCheckpoint) -> String {
    format!("{} after {}", clean(&checkpoint.name), plural(checkpoint.step, "step"))
}

fn write_found(w: &mut dyn Write, found: &[SeenReport]) -> Result<()> {
    let header = ["RUN", "VERSION", "RECORDS", "EPOCHS", "STEPS", "FIRST", "LAST", "CLEAN CHECKPOINT", "STATE"];
    let mut rows = vec![header.map(str::to_owned)];
    for run in found.iter().map(|run| &run.summary) {
        let step = |step: Option<u64>| step.map_or_else(|| "-".to_owned(), group_digits);
        let clean_checkpoint = match &run.clean_checkpoint {
            Some(checkpoint) => format!("{} ({})", clean(&checkpoint.name), group_digits(checkpoint.step)),
            None => "-".to_owned(),
        };
        let of = if run.records_seen == run.records {
            group_digits(run.records)
        } else {
            format!("{} of {}", group_digits(run.records_seen), group_digits(run.records))
        };
        let [epochs, steps] = [run.epochs, run.steps].map(group_digits);
        let (name, version, state) = (clean(&run.run).into_owned(), run.version.to_string(), run.state.clone());
        let (first, last) = (step(run.first_step), step(run.last_step));
        rows.push([name, version, of, epochs, steps, first, last, clean_checkpoint, state]);
    }
    write_aligned(w, &rows, &mut [0; 9])?;
    for run in found.iter().map(|run| &run.summary).filter(|run| run.records_seen > 0) {
        let name = clean(&run.run);
        if !run.is_certain {
            writeln!(
                w,
                "{name}: its newest event is from before the first of these steps, so it may not have done them"
            )?;
        }
        let repeat = plural(run.steps_to_repeat, "step");
        match &run.clean_checkpoint {
            Some(_) => writeln!(w, "{name}: a replay without them repeats {repeat} from the clean checkpoint on")?,
            None => writeln!(w, "{name}: no checkpoint is clean; a replay without them repeats {repeat}")?,
        }
    }
    for run in found.iter().filter(|run| run.summary.records_seen == 0 && !run.dropped.is_empty()) {
        let epochs = plural(run.dropped.len() as u64, "epoch");
        writeln!(
            w,
            "{}: it has them, but they were among the records that fill no step, in {epochs}",
            clean(&run.summary.run)
        )?;
    }
    Ok(())
}

fn cells_of(record: &StepRecord) -> [String; 8] {
    let number = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let text = |text: &Option<String>| text.as_ref().map_or_else(|| "-".to_owned(), |text| clean(text).into_owned());
    let origin = match (&record.source, record.row) {
        (Some(source), Some(row)) => format!("{} row {row}", clean(source)),
        (source, _) => text(source),
    };
    let of_record = if record.record.is_none() { record.state.to_owned() } else { text(&record.record_id) };
    let (step, slot) = (record.step.to_string(), record.slot.to_string());
    let (subject, shard) = (text(&record.subject_id), text(&record.shard));
    [step, slot, number(record.record), of_record, subject, shard, number(record.ordinal), origin]
}
