//! `plan`, `run-task` and `commit`: work as tasks that many processes share.

use serde_json::json;

use super::{
    CommandSession,
    args::{CommitArgs, ConvertArgs, Manifest, PlanAdoptArgs, PlanArgs, PlanCommand, PlanCompactArgs, RunTaskArgs},
    exit::CommandOutcome,
    human,
    json::{self},
};
use crate::{
    dataset::{Dataset, Operation},
    error::{Error, Result},
    id::Version,
    ops::{
        adopt, compact, convert, shell_word,
        tasks::{Committed, OpenedPlan, PlanReport, TaskReport, Tasks, location_of, never_planned, open_plan},
    },
    units::{Size, group_digits},
};

impl CommandSession<'_> {
    pub(super) fn run_plan(&self, args: &PlanArgs) -> Result<CommandOutcome> {
        let (report, manifest) = match &args.what {
            PlanCommand::Convert(args) => (self.plan_convert(&args.convert)?, args.manifest),
            PlanCommand::Compact(args) => (self.plan_compact(args)?, args.manifest),
            PlanCommand::Adopt(args) => (self.plan_adopt(args)?, args.manifest),
            PlanCommand::Other(words) => return Err(unplannable_error(words.first().map_or("", String::as_str))),
        };
        self.print_report(|w| {
            if self.global.json {
                return json::write_summary(w, &report);
            }
            match (&report.plan, manifest) {
                (Some(plan), Some(manifest)) => {
                    let needs = Needs::for_tasks(report.tasks, self.context.memory);
                    Ok(w.write_all(manifest_of(manifest, plan, needs).as_bytes())?)
                }
                (Some(plan), None) => human::write_plan(w, plan, &report),
                (None, _) => human::nothing_planned(w, &report),
            }
        })?;
        Ok(CommandOutcome::Done)
    }

    fn plan_convert(&self, args: &ConvertArgs) -> Result<PlanReport> {
        let out = self.dataset_location(args.output.out.as_deref())?;
        let options = args.to_options()?;
        if options.dry_run {
            return Err(Error::usage("expected `convert --dry-run` or `plan convert`, found both"));
        }
        convert::plan_conversion(&self.context, &out, &options)
    }

    fn plan_compact(&self, args: &PlanCompactArgs) -> Result<PlanReport> {
        let dataset = self.dataset_location(args.compact.dataset.as_deref())?;
        let options = args.compact.to_options()?;
        if options.dry_run {
            return Err(Error::usage("expected `compact --dry-run` or `plan compact`, found both"));
        }
        if compact::table_at(&self.context, &dataset)?.is_some() {
            return Err(Error::usage(
                "expected a dataset, found a Delta table, whose compaction is not cut into tasks",
            )
            .at_location(dataset.to_string())
            .with_hint("bound a run of `shardify compact TABLE` with --max-bytes; the next run goes on"));
        }
        compact::store_plan(&self.context, &dataset, &options, args.task_size)
    }

    fn plan_adopt(&self, args: &PlanAdoptArgs) -> Result<PlanReport> {
        let out = args.adopt.out.as_deref().map(|out| self.context.parse_location(out)).transpose()?;
        adopt::store_plan(&self.context, &args.adopt.to_options(out), args.task_size)
    }

    pub(super) fn run_task(&self, args: &RunTaskArgs) -> Result<CommandOutcome> {
        let (dataset, record) = match open_plan(&self.context, &args.plan)? {
            OpenedPlan::Plan(dataset, record) => (dataset, record),
            OpenedPlan::Committed(_, version) => {
                let error = Error::usage(format!("this plan is committed already, as version {version}"));
                return Err(error.at_location(args.plan.clone()));
            }
        };
        let (mut done, mut records) = (0_u64, 0_u64);
        let mut reports = Vec::new();
        let mut collect = |report: TaskReport| {
            done += 1;
            records += report.records_out;
            reports.push(report);
        };
        let tasks = Tasks { context: &self.context, dataset: &dataset, record: &record };
        let numbers = args.task.clone();
        let result = match record.operation {
            Operation::Convert => tasks.run_all::<convert::ConvertWork>(numbers, &mut collect),
            Operation::Compact => tasks.run_all::<compact::CompactWork>(numbers, &mut collect),
            Operation::Adopt => tasks.run_all::<adopt::AdoptWork>(numbers, &mut collect),
            _ => Err(never_planned(&record)),
        };
        self.progress.stop();
        self.print_report(|w| {
            for report in &reports {
                if self.global.json {
                    json::write_object(w, "task", report)?;
                    continue;
                }
                let state = match (&report.mismatch, report.already_done) {
                    (Some(mismatch), _) => format!("{mismatch}; `commit` makes a plan with wider types"),
                    (None, false) if !report.damaged.is_empty() => {
                        format!("{} omitted: {}", group_digits(report.damaged.len() as u64), report.damaged[0])
                    }
                    (None, true) => "done already".to_owned(),
                    (None, false) => format!(
                        "{} in, {} rejected, {} filtered, {} in {}",
                        human::plural(report.records_in, "record"),
                        group_digits(report.records_rejected.saturating_sub(report.records_erased)),
                        group_digits(report.records_filtered),
                        Size(report.bytes_out),
                        human::plural(report.shards, "shard")
                    ),
                };
                writeln!(w, "task {}  {state}", report.task)?;
            }
            if self.global.json && result.is_ok() {
                json::write_summary(w, &json!({ "tasks": done, "records_out": records }))?;
            }
            Ok(())
        })?;
        result.map(|()| CommandOutcome::Done)
    }

    pub(super) fn run_commit(&self, args: &CommitArgs) -> Result<CommandOutcome> {
        match open_plan(&self.context, &args.plan)? {
            OpenedPlan::Committed(dataset, version) => self.committed_already(&dataset, version),
            OpenedPlan::Plan(dataset, record) => {
                let tasks = Tasks { context: &self.context, dataset: &dataset, record: &record };
                match record.operation {
                    Operation::Convert => self.commit_conversion(tasks),
                    Operation::Compact => self.commit_compaction(tasks),
                    Operation::Adopt => self.commit_adoption(tasks),
                    _ => Err(never_planned(&record)),
                }
            }
        }
    }

    fn committed_already(&self, dataset: &Dataset, version: Version) -> Result<CommandOutcome> {
        self.progress.stop();
        let place = dataset.store().location().to_string();
        self.print_report(|w| match self.global.json {
            true => json::write_summary(w, &json!({ "dataset": place, "version": version, "already_committed": true })),
            false => Ok(writeln!(w, "already committed as {version}")?),
        })?;
        Ok(CommandOutcome::Done)
    }

    fn commit_conversion(&self, tasks: Tasks<'_>) -> Result<CommandOutcome> {
        let (committed, dataset) = (tasks.commit_plan::<convert::ConvertWork>()?, tasks.dataset);
        self.progress.stop();
        match committed {
            Committed::Already(version) => self.committed_already(dataset, version),
            Committed::Version(report) => {
                self.print_report(|w| {
                    if self.global.json { json::write_summary(w, &report) } else { human::write_committed(w, &report) }
                })?;
                self.suggest_command("manifest", &report.dataset, "shows what the dataset holds");
                Ok(if report.counts.records_refused() > 0 { CommandOutcome::Rejects } else { CommandOutcome::Done })
            }
            Committed::Next(next, why) => {
                let (place, plan) = (dataset.store().location().to_string(), location_of(dataset, &next));
                let tasks = next.tasks.len();
                self.print_report(|w| match self.global.json {
                    true => json::write_summary(
                        w,
                        &json!({ "dataset": place, "version": null, "next_plan": plan, "tasks": tasks, "why": why }),
                    ),
                    false => {
                        writeln!(w, "no version: {why}")?;
                        writeln!(w, "next plan, with wider types: {plan}")?;
                        Ok(writeln!(w, "run its {} and commit it", human::plural(tasks as u64, "task"))?)
                    }
                })?;
                Ok(CommandOutcome::Done)
            }
        }
    }

    fn commit_adoption(&self, tasks: Tasks<'_>) -> Result<CommandOutcome> {
        let (committed, dataset) = (tasks.commit_plan::<adopt::AdoptWork>()?, tasks.dataset);
        self.progress.stop();
        match committed {
            Committed::Version(report) => self.report_adopted(&report),
            Committed::Already(version) => self.committed_already(dataset, version),
            Committed::Next(..) => Err(Error::internal("an adoption has no next plan")),
        }
    }

    fn commit_compaction(&self, tasks: Tasks<'_>) -> Result<CommandOutcome> {
        let (committed, dataset) = (tasks.commit_plan::<compact::CompactWork>()?, tasks.dataset);
        self.progress.stop();
        let report = match committed {
            Committed::Version(report) => report,
            Committed::Already(version) => return self.committed_already(dataset, version),
            Committed::Next(..) => return Err(Error::internal("a compaction has no next plan")),
        };
        self.print_report(|w| {
            if self.global.json { json::write_summary(w, &report) } else { human::write_compact(w, &report, false) }
        })?;
        self.suggest_command("vacuum", &report.dataset, "deletes old shards after the retention of 7 days");
        Ok(CommandOutcome::Done)
    }
}

/// Returns the error for a command that cannot be planned.
fn unplannable_error(command: &str) -> Error {
    let why = match command {
        "sort" => "sorting has to see all records of a dataset",
        "erase" => "an erasure must not wait for other machines",
        _ => {
            return Error::usage(format!(
                "expected `plan convert`, `plan compact` or `plan adopt`, found `plan {command}`"
            ));
        }
    };
    Error::usage(format!("expected `plan convert`, `plan compact` or `plan adopt`, found `plan {command}`: {why}"))
        .with_hint(format!(
            "run `shardify {}` on one machine",
            if command == "sort" { "compact --sort-by" } else { command }
        ))
}

/// What the jobs of a plan need.
#[derive(Clone, Copy)]
struct Needs {
    tasks: usize,
    /// MiB of a process: what its stages share, and the program, its threads and free buffers.
    mebibytes: u64,
}

/// Processors of a task, where nothing else is said.
const CPUS: u32 = 4;

impl Needs {
    fn for_tasks(tasks: usize, memory: Size) -> Self {
        Self { tasks, mebibytes: ((memory.0 / 4 * 5) >> 20) + 256 }
    }
}

/// Returns a job that runs all tasks of a plan, and commits it.
fn manifest_of(manifest: Manifest, plan: &str, needs: Needs) -> String {
    let name = plan.rsplit('/').next().unwrap_or_default().get(..16).unwrap_or("plan");
    match manifest {
        Manifest::Slurm => slurm_script(plan, name, needs),
        Manifest::K8s => kubernetes_jobs(plan, name, needs),
    }
}

/// Returns a script that submits job arrays. Slurm limits the numbers in an array, by default to 1,000. A process that
/// a store or another run stopped (exit codes 4 and 5) is run again in its job; one that cannot succeed ends the array.
fn slurm_script(plan: &str, name: &str, Needs { tasks, mebibytes }: Needs) -> String {
    let plan = shell_word(plan);
    let number = "\"$((SHARDIFY_FIRST + SLURM_ARRAY_TASK_ID))\"";
    let again = |command: &str| {
        let text = format!(
            "for pause in 60 300 0; do {command} --jobs \"${{SLURM_CPUS_PER_TASK:-1}}\" && exit; code=$?; \
             case $code in 4|5) sleep $pause;; *) exit $code;; esac; done; exit $code"
        );
        // A word of the script that is a command itself, whatever is in the path.
        shell_word(&text).into_owned()
    };
    let task = again(&format!("shardify run-task {plan} --task {number}"));
    let commit = again(&format!("shardify commit {plan}"));
    format!(
        "#!/bin/sh\n\
         # Submits the tasks of a plan as job arrays, and the commit after all of them. Tasks that ran before end at \
         once.\n\
         # sbatch reads SBATCH_ACCOUNT, SBATCH_PARTITION, SBATCH_QOS, SBATCH_TIMELIMIT and others itself.\n\
         set -eu\n\
         tasks={tasks}\n\
         size=${{SHARDIFY_ARRAY_SIZE:-1000}}     # tasks of an array; MaxArraySize of the cluster limits them\n\
         at_once=${{SHARDIFY_AT_ONCE:-$size}}    # tasks of an array that run at a time\n\
         needs=\"--cpus-per-task=${{SHARDIFY_CPUS:-{CPUS}}} --mem=${{SHARDIFY_MEM:-{mebibytes}M}}\"\n\
         first=0\n\
         after=afterok\n\
         while [ \"$first\" -lt \"$tasks\" ]; do\n    \
             last=$((tasks - first < size ? tasks - first - 1 : size - 1))\n    \
             job=$(sbatch --parsable --requeue --job-name=shardify-{name} --array=\"0-$last%$at_once\" \
         $needs \\\n        \
             --export=ALL,SHARDIFY_FIRST=$first --wrap {task})\n    \
             after=\"$after:${{job%%;*}}\"\n    \
             first=$((first + size))\n\
         done\n\
         # Without all of its tasks, a plan cannot be committed: the job is cancelled.\n\
         sbatch --parsable --requeue --job-name=shardify-{name}-commit --dependency=\"$after\" \
         --kill-on-invalid-dep=yes \\\n    \
         $needs --wrap {commit}\n"
    )
}

/// Returns a text as YAML and JSON have it, in ASCII: YAML takes some characters that JSON leaves for line ends, and
/// refuses others.
fn yaml_text(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    let mut out = String::with_capacity(quoted.len());
    for c in quoted.chars() {
        if c.is_ascii() && c != '\u{7f}' {
            out.push(c);
        } else {
            let code = u32::from(c);
            out.push_str(&if code > 0xffff { format!("\\U{code:08x}") } else { format!("\\u{code:04x}") });
        }
    }
    out
}

/// Returns a Kubernetes Indexed Job, and a Job that commits the plan once all its tasks have run: Kubernetes starts
/// none after another, so it tries again while outcomes are missing (exit code 4). Exit codes that another attempt
/// cannot change fail a task at once.
fn kubernetes_jobs(plan: &str, name: &str, Needs { tasks, mebibytes }: Needs) -> String {
    let parallel = tasks.min(64);
    // Kubernetes replaces `$(NAME)` in a command.
    let argument = yaml_text(&plan.replace("$(", "$$("));
    let resources = format!(
        "          resources:\n            requests: {{cpu: \"{CPUS}\", memory: {mebibytes}Mi}}\n            \
         limits: {{memory: {mebibytes}Mi}}\n"
    );
    format!(
        "# Runs the tasks of a plan, and commits it. Replace IMAGE in both jobs, and give their pods access to the\n\
         # dataset and its sources: credentials of the store, or volumes mounted where the folders were for the plan.\n\
         apiVersion: batch/v1\n\
         kind: Job\n\
         metadata:\n  name: shardify-{name}\n\
         spec:\n  completionMode: Indexed\n  completions: {tasks}\n  parallelism: {parallel}\n  \
         backoffLimitPerIndex: 3\n  \
         podFailurePolicy:\n    rules:\n      - action: FailIndex\n        onExitCodes:\n          containerName: task\n          \
         operator: In\n          values: [2, 6]\n  \
         template:\n    spec:\n      restartPolicy: Never\n      containers:\n        \
         - name: task\n          image: IMAGE\n\
         {resources}          \
         command: [\"shardify\", \"run-task\", {argument}, \"--task\", \"$(JOB_COMPLETION_INDEX)\"]\n\
         ---\n\
         # Waits for the tasks for at most a day.\n\
         apiVersion: batch/v1\n\
         kind: Job\n\
         metadata:\n  name: shardify-{name}-commit\n\
         spec:\n  backoffLimit: 3\n  activeDeadlineSeconds: 86400\n  \
         template:\n    spec:\n      restartPolicy: Never\n      containers:\n        \
         - name: commit\n          image: IMAGE\n\
         {resources}          \
         command: [\"sh\", \"-c\", \"until shardify commit \\\"$0\\\"; do code=$?; case $code in 4|5) sleep 30;; \
         *) exit $code;; esac; done\", {argument}]\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_jobs_are_yaml_whatever_the_path_contains() {
        // The escapes are those of YAML 1.2, section 5.7.
        for (path, argument) in [
            ("/a'b\"c: #d", r#""/a'b\"c: #d""#),
            ("/a\nb\tc\\", r#""/a\nb\tc\\""#),
            ("/\u{85}\u{2028}\u{7f}\u{feff}\u{1b}", r#""/\u0085\u2028\u007f\ufeff\u001b""#),
            ("/ä\u{1f600}", r#""/\u00e4\U0001f600""#),
            ("/$(HOME)", r#""/$$(HOME)""#),
        ] {
            let job = manifest_of(Manifest::K8s, path, Needs::for_tasks(3, Size::from_mib(1024)));
            assert!(job.contains(&format!("command: [\"shardify\", \"run-task\", {argument}, ")), "{job}");
            assert!(job.contains(&format!("done\", {argument}]\n")) && job.contains("memory: 1536Mi"), "{job}");
            let comments = job.lines().take_while(|line| line.starts_with('#')).count();
            assert_eq!((comments, job.lines().nth(2)), (2, Some("apiVersion: batch/v1")), "{job}");
            let odd = |c: char| c.is_control() && c != '\n' || matches!(c, '\u{2028}' | '\u{feff}');
            assert!(!job.contains(odd), "{job}");
        }
    }
}
