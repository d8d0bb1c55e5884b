//! `plan`, `run-task` and `commit`: a conversion as tasks that many processes share.

use serde_json::json;

use super::{
    Session,
    args::{CommitArgs, ConvertArgs, Manifest, PlanArgs, PlanCommand, RunTaskArgs},
    exit::Outcome,
    human,
    json::{self},
};
use crate::{
    error::{Error, Result},
    ops::convert::{self, Committed, OpenedPlan, PlanReport},
    units::{Size, grouped},
};

impl Session<'_> {
    pub(super) fn plan(&self, args: &PlanArgs) -> Result<Outcome> {
        let args = match &args.what {
            PlanCommand::Convert(args) => args,
            PlanCommand::Other(words) => return Err(refused(words.first().map_or("", String::as_str))),
        };
        let report = self.plan_convert(&args.convert)?;
        self.report(|w| {
            if self.global.json {
                return json::summary(w, &report);
            }
            match (&report.plan, args.manifest) {
                (Some(plan), Some(manifest)) => Ok(w.write_all(manifest_of(manifest, plan, report.tasks).as_bytes())?),
                (Some(plan), None) => human::planned(w, plan, &report),
                (None, _) => Ok(writeln!(
                    w,
                    "nothing to do: {} already converted",
                    human::plural(report.sources_unchanged, "source")
                )?),
            }
        })?;
        Ok(Outcome::Done)
    }

    fn plan_convert(&self, args: &ConvertArgs) -> Result<PlanReport> {
        let out = self.dataset(args.output.out.as_deref())?;
        let options = args.options()?;
        if options.dry_run {
            return Err(Error::usage("expected `convert --dry-run` or `plan convert`, found both"));
        }
        convert::plan(&self.context, &out, &options)
    }

    pub(super) fn run_task(&self, args: &RunTaskArgs) -> Result<Outcome> {
        let (dataset, record) = match convert::open_plan(&self.context, &args.plan)? {
            OpenedPlan::Plan(dataset, record) => (dataset, record),
            OpenedPlan::Committed(_, version) => {
                let error = Error::usage(format!("this plan is committed already, as version {version}"));
                return Err(error.at(args.plan.clone()));
            }
        };
        let (mut done, mut records) = (0_u64, 0_u64);
        let mut reports = Vec::new();
        let result = convert::run_tasks(&self.context, (&dataset, &record), args.task.clone(), &mut |report| {
            done += 1;
            records += report.records_out;
            reports.push(report);
        });
        self.progress.stop();
        self.report(|w| {
            for report in &reports {
                if self.global.json {
                    json::object(w, "task", report)?;
                    continue;
                }
                let state = match (&report.mismatch, report.already_done) {
                    (Some(mismatch), _) => format!("{mismatch}; `commit` makes a plan with wider types"),
                    (None, true) => "done already".to_owned(),
                    (None, false) => format!(
                        "{} in, {} rejected, {} filtered, {} in {}",
                        human::plural(report.records_in, "record"),
                        grouped(report.records_rejected),
                        grouped(report.records_filtered),
                        Size(report.bytes_out),
                        human::plural(report.shards, "shard")
                    ),
                };
                writeln!(w, "task {}  {state}", report.task)?;
            }
            if self.global.json && result.is_ok() {
                json::summary(w, &json!({ "tasks": done, "records_out": records }))?;
            }
            Ok(())
        })?;
        result.map(|()| Outcome::Done)
    }

    pub(super) fn commit(&self, args: &CommitArgs) -> Result<Outcome> {
        let (dataset, committed) = match convert::open_plan(&self.context, &args.plan)? {
            OpenedPlan::Committed(dataset, version) => (dataset, Committed::Already(version)),
            OpenedPlan::Plan(dataset, record) => {
                let committed = convert::commit_plan(&self.context, &dataset, &record)?;
                (dataset, committed)
            }
        };
        let place = dataset.store().location().to_string();
        self.progress.stop();
        match committed {
            Committed::Version(report) => {
                self.report(
                    |w| if self.global.json { json::summary(w, &report) } else { human::committed(w, &report) },
                )?;
                self.suggest("manifest", &report.dataset, "shows what the dataset holds");
                Ok(if report.counts.records_refused() > 0 { Outcome::Rejects } else { Outcome::Done })
            }
            Committed::Already(version) => {
                self.report(|w| match self.global.json {
                    true => {
                        json::summary(w, &json!({ "dataset": place, "version": version, "already_committed": true }))
                    }
                    false => Ok(writeln!(w, "already committed as {version}")?),
                })?;
                Ok(Outcome::Done)
            }
            Committed::Next(next, why) => {
                let plan = convert::location_of(&dataset, &next.id);
                let tasks = next.tasks.len();
                self.report(|w| match self.global.json {
                    true => json::summary(
                        w,
                        &json!({ "dataset": place, "version": null, "next_plan": plan, "tasks": tasks, "why": why }),
                    ),
                    false => {
                        writeln!(w, "no version: {why}")?;
                        writeln!(w, "next plan, with wider types: {plan}")?;
                        Ok(writeln!(w, "run its {} and commit it", human::plural(tasks as u64, "task"))?)
                    }
                })?;
                Ok(Outcome::Done)
            }
        }
    }
}

/// Returns the error for a command that cannot be planned.
fn refused(command: &str) -> Error {
    let why = match command {
        "compact" => "merging shards copies bytes and seldom takes longer than an hour for each terabyte",
        "sort" => "sorting has to see all records of a dataset",
        "adopt" => "adopting reads each file once and writes no shards",
        "erase" => "an erasure must not wait for other machines",
        _ => return Error::usage(format!("expected `plan convert`, found `plan {command}`")),
    };
    Error::usage(format!("expected `plan convert`, found `plan {command}`: {why}")).hint(format!(
        "run `shardify {}` on one machine",
        if command == "sort" { "compact --sort-by" } else { command }
    ))
}

/// Returns a job that runs all tasks of a plan.
fn manifest_of(manifest: Manifest, plan: &str, tasks: usize) -> String {
    let (plan, last) = (human::shell_word(plan), tasks.saturating_sub(1));
    let name = plan.rsplit('/').next().unwrap_or_default().get(..16).unwrap_or("plan").to_owned();
    match manifest {
        Manifest::Slurm => format!(
            "#!/bin/sh\n\
             # Submits the tasks of a plan as a job array, and the commit after all of them. Tasks that ran before end at once.\n\
             set -eu\n\
             plan={plan}\n\
             tasks=$(sbatch --parsable --requeue --job-name=shardify-{name} --array=0-{last} \\\n    \
             --wrap \"shardify run-task '$plan' --task \\$SLURM_ARRAY_TASK_ID\")\n\
             sbatch --parsable --job-name=shardify-{name}-commit --dependency=\"afterok:$tasks\" \\\n    \
             --wrap \"shardify commit '$plan'\"\n"
        ),
        Manifest::K8s => kubernetes(&plan, &name, tasks),
    }
}

/// Returns a Kubernetes Indexed Job. Exit codes that another attempt cannot change fail the index at once.
fn kubernetes(plan: &str, name: &str, tasks: usize) -> String {
    let parallel = tasks.min(64);
    format!(
        "# Runs the tasks of a plan. Replace IMAGE, and give the pods access to the dataset and its sources.\n\
         # Then: shardify commit {plan}\n\
         apiVersion: batch/v1\n\
         kind: Job\n\
         metadata:\n  name: shardify-{name}\n\
         spec:\n  completionMode: Indexed\n  completions: {tasks}\n  parallelism: {parallel}\n  \
         backoffLimitPerIndex: 3\n  \
         podFailurePolicy:\n    rules:\n      - action: FailIndex\n        onExitCodes:\n          containerName: task\n          \
         operator: In\n          values: [2, 6]\n  \
         template:\n    spec:\n      restartPolicy: Never\n      containers:\n        - name: task\n          image: IMAGE\n          \
         command: [\"shardify\", \"run-task\", {plan:?}, \"--task\", \"$(JOB_COMPLETION_INDEX)\"]\n"
    )
}
