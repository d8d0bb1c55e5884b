//! The command line: the only place that knows a terminal, the environment and the clock of the wall.
//!
//! Arguments and `shardify.toml` become options, an operation runs, its report is rendered: for people on standard
//! output, or with `--json` as one object per line. Everything that is not the answer goes to standard error.

mod align;
mod args;
mod bench;
mod bug;
mod check;
mod config;
mod exit;
mod find;
mod found;
mod head;
mod help;
mod html;
mod human;
mod ids;
mod json;
mod mistakes;
mod plan;
mod progress;
mod prometheus;
mod prove;
mod pull;
mod report;
mod reshard;
mod runs;
mod shorthand;
mod trust;

use std::{
    ffi::OsString,
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
};

use clap::FromArgMatches;

use args::{
    AdoptArgs, BlockArgs, Cli, Command, CompactArgs, ConvertArgs, EraseArgs, Export, Global, InspectArgs, LineageArgs,
    ManifestArgs, PlanArgs, PlanCommand, RemoveArgs, RevertArgs, VacuumArgs, VerifyArgs,
};
use exit::CommandOutcome;
use progress::Progress;
use serde_json::json;

use crate::{
    dataset::{IdKey, PrivateChoice, Snapshot},
    environment,
    error::{Error, Result},
    events::{Cancel, Observer},
    ops::{
        self, Context,
        block::BlockOptions,
        compact::TableReport,
        diff::{RecordChange, Wants},
        erase::{EraseId, EraseOptions},
        export::export_records,
        lineage::{self, LineageJob},
    },
    storage::{self, Location, SmallFile},
};

/// Shards below this size, in bytes, are small.
const SMALL_SHARD: u64 = 16 << 20;

/// Runs the program with the given arguments and returns its exit code.
pub fn main(arguments: impl IntoIterator<Item = OsString>, cancel: &Cancel) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let wants_json = arguments.iter().any(|a| a == "--json");
    bug::note_panics();
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| dispatch(arguments, wants_json, cancel))) {
        Ok(code) => code,
        Err(_) => report_failure(&bug::panic_error(), wants_json),
    }
}

fn dispatch(arguments: Vec<OsString>, wants_json: bool, cancel: &Cancel) -> ExitCode {
    match parse_arguments(arguments, wants_json) {
        Ok(Parsed::Run(cli, config)) => {
            let json = cli.global.json;
            match run_command(*cli, &config, cancel) {
                Ok(outcome) => outcome.into(),
                Err(error) => report_failure(&storage::explain_error(error), json),
            }
        }
        Ok(Parsed::Text(text, code)) => {
            let written = if code == 0 { write!(io::stdout(), "{text}") } else { write!(io::stderr(), "{text}") };
            // A closed pipe while help is printed is no failure.
            let _ = written;
            ExitCode::from(code)
        }
        Err(error) => report_failure(&error, wants_json),
    }
}

enum Parsed {
    Run(Box<Cli>, config::Config),
    /// Help, version, or the description of a mistake.
    Text(String, u8),
}

fn parse_arguments(arguments: Vec<OsString>, wants_json: bool) -> Result<Parsed> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let config = config::load_config(&environment::current_folder()?, trust::own_path(&variable).as_deref())?;
    let merged = config.merge_into(&help::command_with_help(), arguments)?;
    let parsed = help::command_with_help().try_get_matches_from(merged).and_then(|m| Cli::from_arg_matches(&m));
    Ok(match parsed {
        Ok(cli) => Parsed::Run(Box::new(cli), config),
        Err(e) => {
            let e = mistakes::printable_error(mistakes::with_safe_suggestions(e));
            if e.use_stderr() && wants_json {
                return Err(mistakes::as_error(&e));
            }
            let code = if e.use_stderr() { 2 } else { 0 };
            let colour = if code == 0 { io::stdout().is_terminal() } else { io::stderr().is_terminal() };
            let text = e.render();
            let text = if colour && !wants_plain() { text.ansi().to_string() } else { text.to_string() };
            // Where a suggestion was omitted, its empty lines stay.
            Parsed::Text(text.replace("\n\n\n", "\n\n"), code)
        }
    })
}

/// Whether `TERM=dumb` or `NO_COLOR` asks for plain text.
fn wants_plain() -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    is_set("NO_COLOR") || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Takes arguments apart as a run would, and does nothing.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) when they are not understood.
#[doc(hidden)]
pub fn check_arguments(arguments: impl IntoIterator<Item = OsString>) -> Result<()> {
    let merged = config::Config::default().merge_into(&help::command_with_help(), arguments.into_iter().collect())?;
    let parsed = help::command_with_help().try_get_matches_from(merged).and_then(|m| Cli::from_arg_matches(&m));
    let cli = parsed.map_err(|e| mistakes::as_error(&e))?;
    match &cli.command {
        Command::Convert(args) => args.to_options().map(|_| ()),
        Command::Compact(args) => args.to_options().map(|_| ()),
        _ => Ok(()),
    }
}

/// Returns the command line as clap knows it, to render its reference.
#[doc(hidden)]
pub fn clap_command() -> clap::Command {
    help::command_with_help()
}

/// Threads for each core, at most: more only wait for each other.
const MOST_JOBS: usize = 4;

/// Everything a command needs.
struct CommandSession<'a> {
    context: Context<'a>,
    global: &'a Global,
    config: &'a config::Config,
    progress: Arc<Progress>,
}

/// Prints the manual page, or writes one for each command into a folder.
fn write_manual(folder: Option<&Path>) -> Result<CommandOutcome> {
    let mut command = help::command_with_help();
    let Some(folder) = folder else {
        let rendered = clap_mangen::Man::new(command).render(&mut io::stdout());
        return closed_pipe_is_fine(rendered).map(|()| CommandOutcome::Done);
    };
    command.build();
    let folder = environment::current_folder()?.join(folder);
    let store = storage::open_store(&Location::from_local_path(&folder)?, &environment::store_settings(Vec::new()))?;
    let mut commands = vec![command];
    while let Some(command) = commands.pop() {
        let page = clap_mangen::Man::new(command.clone());
        let mut text = Vec::new();
        page.render(&mut text)?;
        store.put(&page.get_filename(), text.into())?;
        commands.extend(command.get_subcommands().filter(|one| !one.is_hide_set()).cloned());
    }
    Ok(CommandOutcome::Done)
}

fn run_command(cli: Cli, config: &config::Config, cancel: &Cancel) -> Result<CommandOutcome> {
    match &cli.command {
        Command::Completions { shell } => {
            // Into memory first: the generator panics where it cannot write.
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut help::command_with_help(), "shardify", &mut text);
            return closed_pipe_is_fine(io::stdout().write_all(&text)).map(|()| CommandOutcome::Done);
        }
        Command::Man { out } => return write_manual(out.as_deref()),
        _ => {}
    }
    let global = &cli.global;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = global.jobs.map_or(cores, usize::from).min(cores * MOST_JOBS);
    // A second pool in one process would be refused, which only tests could meet.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(jobs).build_global();
    let progress = Arc::new(Progress::new(global.progress, global.quiet, global.json));
    let observer: &dyn Observer = progress.as_ref();
    let context = Context {
        folder: environment::current_folder()?,
        settings: environment::store_settings(Vec::new()),
        stdin: || Box::new(io::stdin()),
        jobs,
        memory: global.memory,
        id_key: id_key(&cli.command, global.json)?,
        observer,
        cancel: cancel.clone(),
    };
    let session = CommandSession { context, global, config, progress: Arc::clone(&progress) };
    let ticker = progress.start_drawing();
    let result = match &cli.command {
        Command::Convert(args) => session.run_convert(args),
        Command::Plan(args) => session.run_plan(args),
        Command::RunTask(args) => session.run_task(args),
        Command::Commit(args) => session.run_commit(args),
        Command::Adopt(args) => session.run_adopt(args),
        Command::Inspect(args) => session.run_inspect(args),
        Command::Head(args) => session.run_head(args),
        Command::Report(args) => session.write_report(args),
        Command::Bench(args) => session.run_bench(args),
        Command::Pull(args) => session.run_pull(args),
        Command::Runs(args) => session.run_runs(args),
        Command::Reshard(args) => session.run_reshard(args),
        Command::Compact(args) => session.run_compact(args),
        Command::Manifest(args) => session.run_manifest(args),
        Command::Check(args) => session.run_check(args),
        Command::Verify(args) => session.run_verify(args),
        Command::Vacuum(args) => session.run_vacuum(args),
        Command::Remove(args) => session.run_remove(args),
        Command::Revert(args) => session.run_revert(args),
        Command::Erase(args) => session.run_erase(args),
        Command::Block(args) => session.run_block(args, false),
        Command::Unblock(args) => session.run_block(args, true),
        Command::VerifyProof(args) => session.verify_proof(args),
        Command::Completions { .. } | Command::Man { .. } => Ok(CommandOutcome::Done),
    };
    progress.stop();
    if let Some(ticker) = ticker {
        // The ticker only draws; what it did last does not matter any more.
        let _ = ticker.join();
    }
    result
}

/// A file with the key of private ids.
const KEY: SmallFile = SmallFile::new("the id key", 64 << 10);

/// The key of private ids, for commands that may need one: from a file, or from the environment.
fn id_key(command: &Command, json: bool) -> Result<Option<Arc<IdKey>>> {
    let file = match command {
        Command::Convert(args) => &args.private.id_key,
        Command::Plan(PlanArgs { what: PlanCommand::Convert(args) }) => &args.convert.private.id_key,
        Command::RunTask(args) => &args.id_key,
        Command::Commit(args) => &args.id_key,
        Command::Adopt(args) => &args.private.id_key,
        Command::Manifest(args) => &args.id_key,
        Command::Runs(args) => &args.id_key,
        Command::Erase(args) => &args.id_key,
        Command::Block(args) | Command::Unblock(args) => &args.id_key,
        Command::Remove(args) => &args.id_key,
        Command::Reshard(args) => &args.id_key,
        Command::Verify(args) => &args.id_key,
        Command::VerifyProof(args) => &args.id_key,
        _ => &None,
    };
    let Some(file) = file else {
        let key = std::env::var("SHARDIFY_ID_KEY").ok().filter(|key| !key.is_empty());
        let parse = |key: String| IdKey::parse(key.as_bytes()).map_err(|error| error.at_location("$SHARDIFY_ID_KEY"));
        return Ok(key.map(parse).transpose()?.map(Arc::new));
    };
    // Somebody may give the key itself where its file belongs: it is shown nowhere.
    if !file.exists() && file.to_str().is_some_and(|text| IdKey::parse(text.as_bytes()).is_ok()) {
        return Err(Error::usage("expected a file with the id key, found a key")
            .with_hint("write the key into a file that only you can read, and name the file with --id-key")
            .with_hint("a key that was typed may stand in the history of the shell: make another one"));
    }
    let place = file.display().to_string();
    let bytes = KEY
        .read(file)?
        .ok_or_else(|| Error::usage("expected the file of the id key, found none").at_location(place.clone()))?;
    warn_of_readers(file, json);
    Ok(Some(Arc::new(IdKey::parse(&bytes).map_err(|error| error.at_location(place))?)))
}

/// Warns of a key file that others on this machine can read.
fn warn_of_readers(file: &Path, json: bool) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let others =
            std::fs::metadata(file).is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o077 != 0);
        if !others {
            return;
        }
        let text = format!("others on this machine can read the id key {}; `chmod 600` it", file.display());
        if json {
            json::write_message("warning", &text);
        } else {
            let _ = writeln!(io::stderr(), "warning: {}", human::clean(&text));
        }
    }
}

impl CommandSession<'_> {
    fn run_convert(&self, args: &ConvertArgs) -> Result<CommandOutcome> {
        let out = self.dataset_location(args.output.out.as_deref())?;
        let options = args.to_options()?;
        if args.output.out.is_none() {
            self.refuse_dataset_as_source(&options.sources, &out)?;
        }
        let private = options.private;
        let job = LineageJob { name: "convert", sources: &options.sources, output: &out, private };
        let report = self.with_events(&args.lineage, options.dry_run, &job, || {
            ops::convert::convert_sources(&self.context, &out, &options)
        })?;
        // Records that were erased before are skipped on purpose.
        let rejected = report.counts.records_refused() > 0;
        self.print_report(|w| {
            if self.global.json { json::write_summary(w, &report) } else { human::write_convert(w, &report) }
        })?;
        if counts_as_small(&report) {
            self.suggest_command("compact", &report.dataset, "merges small shards");
        } else if !report.dry_run && report.sources > 0 {
            self.suggest_command("manifest", &report.dataset, "shows what the dataset holds");
        }
        Ok(if rejected { CommandOutcome::Rejects } else { CommandOutcome::Done })
    }

    /// Whether a path is that of a folder with a dataset.
    fn is_local_dataset(&self, path: &str) -> bool {
        let location = self.context.parse_location(path).ok();
        let folder = location.as_ref().and_then(Location::local_path);
        folder.is_some_and(|folder| folder.join(storage::SYSTEM_FOLDER).join("log").is_dir())
    }

    /// Returns an error if the last of several sources is a dataset that was probably meant as the output.
    fn refuse_dataset_as_source(&self, sources: &[String], out: &Location) -> Result<()> {
        let [_, .., last] = sources else { return Ok(()) };
        let is_output = self.context.parse_location(last).is_ok_and(|named| named == *out);
        match is_output || !self.is_local_dataset(last) {
            true => Ok(()),
            false => Err(Error::usage("the last source is a dataset, and no --out says which dataset to write")
                .at_location(last.clone())
                .with_hint(format!("to add the other sources to it: --out {last}"))
                .with_hint(format!("to read its records too, name the new dataset: --out {out}"))),
        }
    }

    fn run_adopt(&self, args: &AdoptArgs) -> Result<CommandOutcome> {
        let out = args.out.as_deref().map(|out| self.context.parse_location(out)).transpose()?;
        let options = args.to_options(out);
        let sources = [options.source.clone()];
        let output = options.out.clone().map_or_else(|| self.context.parse_location(&options.source), Ok)?;
        let private = options.private;
        let job = LineageJob { name: "adopt", sources: &sources, output: &output, private };
        let report =
            self.with_events(&args.lineage, false, &job, || ops::adopt::adopt_shards(&self.context, &options))?;
        self.report_adopted(&report)
    }

    fn report_adopted(&self, report: &ops::adopt::AdoptReport) -> Result<CommandOutcome> {
        self.print_report(|w| {
            if !self.global.json {
                return human::write_adopt(w, report, self.global.verbose > 0);
            }
            report.skipped.iter().try_for_each(|file| json::write_object(w, "skipped", file))?;
            json::write_summary(w, report)
        })?;
        Ok(if report.skipped.is_empty() { CommandOutcome::Done } else { CommandOutcome::Rejects })
    }

    fn run_inspect(&self, args: &InspectArgs) -> Result<CommandOutcome> {
        let report = ops::inspect::inspect_source(&self.context, &args.to_options())?;
        self.progress.stop();
        self.print_answer(|w| {
            if !self.global.json {
                return human::write_inspect(w, &report);
            }
            report.formats.iter().try_for_each(|format| json::write_object(w, "format", format))?;
            report.columns.iter().try_for_each(|column| json::write_object(w, "column", column))?;
            report.variables.iter().try_for_each(|variable| json::write_object(w, "variable", variable))?;
            report.sizes.iter().try_for_each(|bucket| json::write_object(w, "sizes", bucket))?;
            report.plans.iter().try_for_each(|plan| json::write_object(w, "plan", plan))?;
            json::write_summary(w, &report)
        })?;
        Ok(CommandOutcome::Done)
    }

    fn run_compact(&self, args: &CompactArgs) -> Result<CommandOutcome> {
        let dataset = self.dataset_location(args.dataset.as_deref())?;
        let options = args.to_options()?;
        let job = LineageJob { name: "compact", sources: &[], output: &dataset, private: PrivateChoice::default() };
        if let Some(table) = ops::compact::table_at(&self.context, &dataset)? {
            let run = || ops::compact::compact_table(&self.context, &table, &options);
            let report = self.with_events(&args.lineage, options.dry_run, &job, run)?;
            return self.report_table(&report);
        }
        let report = self.with_events(&args.lineage, options.dry_run, &job, || {
            ops::compact::compact_dataset(&self.context, &dataset, &options)
        })?;
        self.print_report(|w| {
            if !self.global.json {
                return human::write_compact(w, &report, self.global.verbose > 0);
            }
            if report.dry_run {
                report.choices.iter().try_for_each(|c| json::write_object(w, "choice", c))?;
            }
            json::write_summary(w, &report)
        })?;
        if !report.dry_run && report.counts.shards_removed > 0 {
            self.suggest_command("vacuum", &report.dataset, "deletes old shards after the retention of 7 days");
        }
        Ok(CommandOutcome::Done)
    }

    fn report_table(&self, report: &TableReport) -> Result<CommandOutcome> {
        self.print_report(|w| {
            if !self.global.json {
                return human::write_table(w, report, self.global.verbose > 0);
            }
            if report.dry_run {
                report.choices.iter().try_for_each(|choice| json::write_object(w, "choice", choice))?;
            }
            json::write_summary(w, report)
        })?;
        Ok(CommandOutcome::Done)
    }

    fn run_manifest(&self, args: &ManifestArgs) -> Result<CommandOutcome> {
        let location = self.dataset_location(args.dataset.as_deref())?;
        let json = self.global.json;
        if let Some(name) = args.tag.as_ref().or(args.untag.as_ref()) {
            let report = if args.untag.is_some() {
                ops::tag::remove_tag(&self.context, &location, name)?
            } else {
                ops::tag::tag_version(&self.context, &location, name, args.at.as_deref())?
            };
            self.print_report(|w| if json { json::write_summary(w, &report) } else { human::write_tag(w, &report) })?;
            return Ok(CommandOutcome::Done);
        }
        if let [first, second] = args.diff.as_slice() {
            return self.run_diff(&location, first, second);
        }
        if let [older, newer] = args.drift.as_slice() {
            return self.run_drift(&location, older, newer, args);
        }
        if args.proof.is_asked_for() {
            return self.run_prove(&location, args);
        }
        if !args.find.is_empty() || args.find_file.is_some() {
            self.refuse_dataset_as_id(args)?;
            if args.runs {
                return self.find_in_runs(&location, None, &args.find, args.find_file.as_ref());
            }
            return self.run_find(&location, args);
        }
        let format = args.export_format(json)?;
        let snapshot = ops::manifest::open_snapshot(&self.context, &location, args.at.as_deref())?;
        if let Some(Export::Version(description)) = format {
            let document = ops::describe::describe_version(&snapshot, description)?;
            self.print_answer(|w| Ok(writeln!(w, "{document:#}")?))?;
            return Ok(CommandOutcome::Done);
        }
        if let Some(Export::Records(format)) = format {
            self.progress.stop();
            self.print_answer(|w| {
                let cancel = &self.context.cancel;
                if json {
                    json::write_records(w, &snapshot, cancel)
                } else {
                    export_records(&snapshot, format, cancel, w).map(|_| ())
                }
            })?;
            return Ok(CommandOutcome::Done);
        }
        self.print_answer(|w| {
            if args.history {
                let entries = ops::manifest::log_entries(&snapshot)?;
                if json {
                    json::write_history(w, &entries, &snapshot)
                } else {
                    human::write_history(w, &entries, &snapshot)
                }
            } else if args.list {
                write_list(w, &snapshot, args, json)
            } else {
                let report = ops::manifest::summarize_snapshot(&self.context, &snapshot)?;
                if json { json::write_summary(w, &report) } else { human::write_summary(w, &report) }
            }
        })?;
        Ok(CommandOutcome::Done)
    }

    fn run_diff(&self, location: &Location, first: &str, second: &str) -> Result<CommandOutcome> {
        let open = |at: &str| ops::manifest::open_snapshot(&self.context, location, Some(at));
        let (first, second) = (open(first)?, open(second)?);
        let (json, verbose) = (self.global.json, self.global.verbose > 0);
        self.print_answer(|w| {
            let mut some: Vec<RecordChange> = Vec::new();
            let mut shown = 0;
            let report = ops::diff::diff_versions(&self.context, &first, &second, &mut |change| {
                shown += 1;
                if json {
                    json::write_object(w, "record", &change)?;
                } else if verbose {
                    human::record_change(w, &change)?;
                } else {
                    some.push(change);
                }
                Ok(if json || verbose || shown < human::SOME_RECORDS { Wants::More } else { Wants::Count })
            })?;
            self.progress.stop();
            if json { json::write_diff(w, &report) } else { human::write_diff(w, &report, &some, verbose) }
        })?;
        Ok(CommandOutcome::Done)
    }

    fn run_drift(&self, location: &Location, older: &str, newer: &str, args: &ManifestArgs) -> Result<CommandOutcome> {
        let open = |at: &str| ops::manifest::open_snapshot(&self.context, location, Some(at));
        let (older, newer) = (open(older)?, open(newer)?);
        let report = ops::drift::measure_drift(&self.context, &older, &newer, args.drift_thresholds())?;
        self.progress.stop();
        self.print_answer(|w| {
            if !self.global.json {
                return human::write_drift(w, &report, self.global.verbose > 0);
            }
            report.columns.iter().try_for_each(|column| json::write_object(w, "column", column))?;
            json::write_summary(w, &report)
        })?;
        Ok(if report.drifted { CommandOutcome::No } else { CommandOutcome::Done })
    }

    fn run_verify(&self, args: &VerifyArgs) -> Result<CommandOutcome> {
        let location = self.dataset_location(args.dataset.as_deref())?;
        let report = ops::verify::verify_dataset(&self.context, &location, args.at.as_deref(), args.read_data)?;
        self.progress.stop();
        self.print_answer(|w| {
            if !self.global.json {
                return human::write_verify(w, &report, self.global.quiet);
            }
            report.problems.iter().try_for_each(|p| json::write_object(w, "problem", p))?;
            json::write_summary(w, &report)
        })?;
        Ok(if report.problems.is_empty() { CommandOutcome::Done } else { CommandOutcome::No })
    }

    fn run_vacuum(&self, args: &VacuumArgs) -> Result<CommandOutcome> {
        let dataset = self.dataset_location(args.dataset.as_deref())?;
        if let Some(table) = ops::compact::table_at(&self.context, &dataset)? {
            let report = ops::vacuum::vacuum_table(&self.context, &table, &args.to_options())?;
            self.progress.stop();
            self.print_report(|w| {
                if !self.global.json {
                    return human::write_table_vacuum(w, &report, self.global.verbose > 0);
                }
                report.deleted.iter().try_for_each(|file| json::write_object(w, "object", file))?;
                report
                    .unknown
                    .iter()
                    .try_for_each(|path| json::write_object(w, "unknown", &json!({ "path": path })))?;
                json::write_summary(w, &report)
            })?;
            return Ok(CommandOutcome::Done);
        }
        let report = ops::vacuum::vacuum_dataset(&self.context, &dataset, &args.to_options())?;
        self.progress.stop();
        self.print_report(|w| {
            if !self.global.json {
                return human::write_vacuum(w, &report, self.global.verbose > 0);
            }
            report.deleted.iter().try_for_each(|object| json::write_object(w, "object", object))?;
            report.foreign.iter().try_for_each(|path| json::write_object(w, "foreign", &json!({ "path": path })))?;
            json::write_summary(w, &report)
        })?;
        Ok(CommandOutcome::Done)
    }

    fn run_erase(&self, args: &EraseArgs) -> Result<CommandOutcome> {
        let (dataset, ids) = args.dataset_and_ids();
        let mut ids: Vec<EraseId> = ids.iter().map(|id| args.id_with_kind(id)).chain(args.ids_by_kind()).collect();
        if let Some(file) = &args.ids {
            ids.extend(self.read_ids(file)?.into_iter().map(|id| args.id_with_kind(id)));
        }
        let options = EraseOptions {
            ids,
            all_versions: args.all_versions,
            reason: args.reason.clone(),
            receipt: args.receipt.as_deref().map(|file| self.context.parse_location(file)).transpose()?,
            dry_run: args.dry_run,
        };
        args.check_that_an_id_is_meant()?;
        let dataset = self.dataset_location(dataset)?;
        let job = LineageJob { name: "erase", sources: &[], output: &dataset, private: PrivateChoice::default() };
        let report = self.with_events(&args.lineage, options.dry_run, &job, || {
            ops::erase::erase_records(&self.context, &dataset, &options)
        })?;
        self.print_report(|w| {
            if !self.global.json {
                return human::write_erase(w, &report, self.global.verbose > 0);
            }
            report.ids.iter().try_for_each(|id| json::write_object(w, "id", id))?;
            report.shards.iter().try_for_each(|shard| json::write_object(w, "shard", shard))?;
            json::write_summary(w, &report)
        })?;
        if !self.global.json && !self.global.quiet {
            for id in &report.missing {
                let is_origin = id.rsplit_once('#').is_some_and(|(_, row)| row.bytes().all(|b| b.is_ascii_digit()));
                let hint = if is_origin { "; an origin is erased with --source" } else { "" };
                let _ = writeln!(io::stderr(), "no record has the id `{}`{hint}", human::clean(id));
            }
        }
        Ok(if report.missing.is_empty() { CommandOutcome::Done } else { CommandOutcome::No })
    }

    fn run_remove(&self, args: &RemoveArgs) -> Result<CommandOutcome> {
        let options = args.to_options()?;
        let dataset = self.dataset_location(args.dataset.as_deref())?;
        let job = LineageJob { name: "remove", sources: &[], output: &dataset, private: PrivateChoice::default() };
        let run = || ops::undo::remove_sources(&self.context, &dataset, &options);
        let report = self.with_events(&args.lineage, options.dry_run, &job, run)?;
        self.print_report(|w| {
            if !self.global.json {
                return human::write_remove(w, &report, self.global.verbose > 0);
            }
            report.removed.iter().try_for_each(|source| json::write_object(w, "source", source))?;
            json::write_summary(w, &report)
        })?;
        if !self.global.json && !self.global.quiet {
            for name in &report.missing {
                let _ = writeln!(io::stderr(), "no source in the dataset has the name `{}`", human::clean(name));
            }
        }
        Ok(if report.missing.is_empty() { CommandOutcome::Done } else { CommandOutcome::No })
    }

    fn run_block(&self, args: &BlockArgs, lift: bool) -> Result<CommandOutcome> {
        let mut ids: Vec<EraseId> = args.ids_by_kind().collect();
        if let Some(file) = &args.ids {
            ids.extend(self.read_ids(file)?.into_iter().map(EraseId::with_any_kind));
        }
        let options = BlockOptions { ids, reason: args.reason.clone(), lift, dry_run: args.dry_run };
        let dataset = self.dataset_location(args.dataset.as_deref())?;
        let report = ops::block::block_ids(&self.context, &dataset, &options)?;
        self.progress.stop();
        self.print_report(|w| {
            if self.global.json { json::write_summary(w, &report) } else { human::write_block(w, &report) }
        })?;
        // An id that is not on the list cannot be removed from it.
        Ok(if lift && !report.unchanged.is_empty() { CommandOutcome::No } else { CommandOutcome::Done })
    }

    fn run_revert(&self, args: &RevertArgs) -> Result<CommandOutcome> {
        let dataset = self.dataset_location(args.dataset.as_deref())?;
        let job = LineageJob { name: "revert", sources: &[], output: &dataset, private: PrivateChoice::default() };
        let run = || ops::undo::revert_dataset(&self.context, &dataset, &args.to, args.dry_run);
        let report = self.with_events(&args.lineage, args.dry_run, &job, run)?;
        self.print_report(|w| {
            if self.global.json { json::write_summary(w, &report) } else { human::write_revert(w, &report) }
        })?;
        Ok(CommandOutcome::Done)
    }

    /// Runs a command that writes and sends its OpenLineage events, except for a dry run; then stops the progress.
    fn with_events<R>(
        &self,
        args: &LineageArgs,
        dry_run: bool,
        job: &LineageJob<'_>,
        run: impl FnOnce() -> Result<R>,
    ) -> Result<R>
    where
        for<'r> lineage::RunOutcome: From<&'r R>,
    {
        let to = args.openlineage.as_deref().filter(|_| !dry_run);
        let report = lineage::with_events(&self.context, to, job, run)?;
        self.progress.stop();
        Ok(report)
    }

    /// The dataset: the argument, then `shardify.toml`, then `SHARDIFY_DATASET`, then `./shards`.
    fn dataset_location(&self, argument: Option<&str>) -> Result<Location> {
        let named = argument
            .map(str::to_owned)
            .or_else(|| self.config.default_dataset().map(str::to_owned))
            .or_else(|| std::env::var("SHARDIFY_DATASET").ok().filter(|v| !v.is_empty()));
        let location = self.context.parse_location(named.as_deref().unwrap_or("shards"))?;
        if location.local_path().is_some_and(|path| path.is_file()) {
            return Err(Error::usage("expected the folder of a dataset, found a file")
                .at_location(location.to_string())
                .with_hint("a dataset is a folder of shards: name one that is new, or has a dataset"));
        }
        Ok(location)
    }

    /// Writes what a command did to standard output: objects with --json, else a summary, which --quiet silences.
    fn print_report(&self, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        if self.global.quiet && !self.global.json { Ok(()) } else { self.print_answer(write) }
    }

    /// Suggests the next command below a summary, to people alone: on standard error, if that is a terminal.
    fn suggest_command(&self, command: &str, dataset: &str, purpose: &str) {
        if self.global.quiet || self.global.json || !io::stderr().is_terminal() {
            return;
        }
        let dataset = human::clean(dataset);
        let _ = writeln!(io::stderr(), "next: shardify {command} {}  # {purpose}", ops::shell_word(&dataset));
    }

    /// Writes the answer to standard output.
    fn print_answer(&self, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = write(&mut out).and_then(|()| Ok(out.flush()?));
        match written {
            Err(e) if is_broken_pipe(&e) => Ok(()),
            other => other,
        }
    }
}

/// Whether a conversion appended to a dataset shards that are worth merging: smaller than an eighth of the default
/// target.
fn counts_as_small(report: &ops::convert::ConvertReport) -> bool {
    let (shards, bytes) = (report.counts.shards_added, report.counts.bytes_out);
    let appended = report.version.is_some_and(|version| version.0 > 1);
    !report.dry_run && appended && shards > 0 && bytes / shards < SMALL_SHARD
}

fn is_broken_pipe(error: &Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        if inner.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) {
            return true;
        }
        cause = inner.source();
    }
    false
}

fn closed_pipe_is_fine(result: io::Result<()>) -> Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// Reports an error and returns its exit code.
fn report_failure(error: &Error, json: bool) -> ExitCode {
    if json {
        json::write_error(error);
    } else {
        let mut text = Vec::new();
        // Writing to memory cannot fail, and there is nobody to tell that standard error is closed.
        let _ = human::write_error(&mut text, error);
        let _ = io::stderr().write_all(&text);
    }
    exit::exit_code(error.kind()).into()
}

/// Writes the live shards, or those of one part of a divided dataset: as a table, as paths, or as patterns.
fn write_list(w: &mut dyn Write, snapshot: &Snapshot, args: &ManifestArgs, json: bool) -> Result<()> {
    let of_split = args.split.as_deref().map(|split| ops::manifest::list_of_split(snapshot, split)).transpose()?;
    let shards = match &of_split {
        Some(shards) => shards,
        None => ops::manifest::live_shards(snapshot)?,
    };
    let location = snapshot.dataset().store().location();
    let root = location.to_string();
    let below = |path: &str| format!("{}/{path}", root.trim_end_matches('/'));
    if args.urls {
        ops::manifest::check_literal(location, shards)?;
        let patterns = ops::manifest::brace_patterns(shards);
        json::write_places(w, "urls", "ranges", patterns.iter().map(|p| below(p)), json)
    } else if args.paths {
        json::write_places(w, "path", "shards", shards.iter().map(|s| below(&s.path)), json)
    } else if json {
        json::write_shards(w, shards)
    } else {
        human::write_shards(w, shards)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn the_command_line_is_consistent() {
        help::command_with_help().debug_assert();
    }

    #[test]
    fn kinds_have_the_documented_codes() {
        for (kind, code) in
            [(Kind::Usage, 2), (Kind::Conflict, 4), (Kind::Storage, 5), (Kind::Input, 6), (Kind::Internal, 70)]
        {
            assert_eq!(exit::exit_code(kind), code);
        }
    }
}
