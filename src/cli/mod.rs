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
use exit::Outcome;
use progress::Progress;
use serde_json::json;

use crate::{
    dataset::{IdKey, PrivateChoice},
    environment,
    error::{Error, Result},
    events::{Cancel, Observer},
    ops::{
        self, Context,
        block::BlockOptions,
        compact::TableReport,
        diff::{RecordChange, Wants},
        erase::{EraseId, EraseOptions},
        export::export,
        lineage::{self, Job},
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
        Err(_) => fail(&bug::error(), wants_json),
    }
}

fn dispatch(arguments: Vec<OsString>, wants_json: bool, cancel: &Cancel) -> ExitCode {
    match parse(arguments, wants_json) {
        Ok(Parsed::Run(cli, config)) => {
            let json = cli.global.json;
            match run(*cli, &config, cancel) {
                Ok(outcome) => outcome.into(),
                Err(error) => fail(&storage::explained(error), json),
            }
        }
        Ok(Parsed::Text(text, code)) => {
            let written = if code == 0 { write!(io::stdout(), "{text}") } else { write!(io::stderr(), "{text}") };
            // A closed pipe while help is printed is no failure.
            let _ = written;
            ExitCode::from(code)
        }
        Err(error) => fail(&error, wants_json),
    }
}

enum Parsed {
    Run(Box<Cli>, config::Config),
    /// Help, version, or the description of a mistake.
    Text(String, u8),
}

fn parse(arguments: Vec<OsString>, wants_json: bool) -> Result<Parsed> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let config = config::load(&environment::folder()?, trust::own_path(&variable).as_deref())?;
    let merged = config.merge(&help::command(), arguments)?;
    let parsed = help::command().try_get_matches_from(merged).and_then(|m| Cli::from_arg_matches(&m));
    Ok(match parsed {
        Ok(cli) => Parsed::Run(Box::new(cli), config),
        Err(e) => {
            let e = mistakes::printable(mistakes::with_safe_suggestions(e));
            if e.use_stderr() && wants_json {
                return Err(mistakes::as_error(&e));
            }
            let code = if e.use_stderr() { 2 } else { 0 };
            let colour = if code == 0 { io::stdout().is_terminal() } else { io::stderr().is_terminal() };
            let text = e.render();
            let text = if colour && !wants_plain() { text.ansi().to_string() } else { text.to_string() };
            // Where a suggestion was left out, its empty lines stay.
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
pub fn understand(arguments: impl IntoIterator<Item = OsString>) -> Result<()> {
    let merged = config::Config::default().merge(&help::command(), arguments.into_iter().collect())?;
    let parsed = help::command().try_get_matches_from(merged).and_then(|m| Cli::from_arg_matches(&m));
    let cli = parsed.map_err(|e| mistakes::as_error(&e))?;
    match &cli.command {
        Command::Convert(args) => args.options().map(|_| ()),
        Command::Compact(args) => args.options().map(|_| ()),
        _ => Ok(()),
    }
}

/// Returns the command line as clap knows it, to render its reference.
#[doc(hidden)]
pub fn command() -> clap::Command {
    help::command()
}

/// Threads for each core, at most: more only wait for each other.
const MOST_JOBS: usize = 4;

/// Everything a command needs.
struct Session<'a> {
    context: Context<'a>,
    global: &'a Global,
    config: &'a config::Config,
    progress: Arc<Progress>,
}

fn run(cli: Cli, config: &config::Config, cancel: &Cancel) -> Result<Outcome> {
    match &cli.command {
        Command::Completions { shell } => {
            // Into memory first: the generator panics where it cannot write.
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut help::command(), "shardify", &mut text);
            return closed_pipe_is_fine(io::stdout().write_all(&text)).map(|()| Outcome::Done);
        }
        Command::Man => {
            let rendered = clap_mangen::Man::new(help::command()).render(&mut io::stdout());
            return closed_pipe_is_fine(rendered).map(|()| Outcome::Done);
        }
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
        folder: environment::folder()?,
        settings: environment::store_settings(Vec::new()),
        stdin: || Box::new(io::stdin()),
        jobs,
        memory: global.memory,
        id_key: id_key(&cli.command, global.json)?,
        observer,
        cancel: cancel.clone(),
    };
    let session = Session { context, global, config, progress: Arc::clone(&progress) };
    let ticker = progress.start();
    let result = match &cli.command {
        Command::Convert(args) => session.convert(args),
        Command::Plan(args) => session.plan(args),
        Command::RunTask(args) => session.run_task(args),
        Command::Commit(args) => session.commit(args),
        Command::Adopt(args) => session.adopt(args),
        Command::Inspect(args) => session.inspect(args),
        Command::Head(args) => session.head(args),
        Command::Report(args) => session.write_report(args),
        Command::Bench(args) => session.bench(args),
        Command::Pull(args) => session.pull(args),
        Command::Reshard(args) => session.reshard(args),
        Command::Compact(args) => session.compact(args),
        Command::Manifest(args) => session.manifest(args),
        Command::Check(args) => session.check(args),
        Command::Verify(args) => session.verify(args),
        Command::Vacuum(args) => session.vacuum(args),
        Command::Remove(args) => session.remove(args),
        Command::Revert(args) => session.revert(args),
        Command::Erase(args) => session.erase(args),
        Command::Block(args) => session.block(args, false),
        Command::Unblock(args) => session.block(args, true),
        Command::VerifyProof(args) => session.verify_proof(args),
        Command::Completions { .. } | Command::Man => Ok(Outcome::Done),
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
        let parse = |key: String| IdKey::parse(key.as_bytes()).map_err(|error| error.at("$SHARDIFY_ID_KEY"));
        return Ok(key.map(parse).transpose()?.map(Arc::new));
    };
    // Somebody may give the key itself where its file belongs: it is shown nowhere.
    if !file.exists() && file.to_str().is_some_and(|text| IdKey::parse(text.as_bytes()).is_ok()) {
        return Err(Error::usage("expected a file with the id key, found a key")
            .hint("write the key into a file that only you can read, and name the file with --id-key")
            .hint("a key that was typed may stand in the history of the shell: make another one"));
    }
    let place = file.display().to_string();
    let bytes =
        KEY.read(file)?.ok_or_else(|| Error::usage("expected the file of the id key, found none").at(place.clone()))?;
    warn_of_readers(file, json);
    Ok(Some(Arc::new(IdKey::parse(&bytes).map_err(|error| error.at(place))?)))
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
            json::message("warning", &text);
        } else {
            let _ = writeln!(io::stderr(), "warning: {}", human::clean(&text));
        }
    }
}

impl Session<'_> {
    fn convert(&self, args: &ConvertArgs) -> Result<Outcome> {
        let out = self.dataset(args.output.out.as_deref())?;
        let options = args.options()?;
        let private = options.private;
        let job = Job { name: "convert", sources: &options.sources, output: &out, private };
        let report = self.with_events(&args.lineage, options.dry_run, &job, || {
            ops::convert::convert(&self.context, &out, &options)
        })?;
        // Records that were erased before are skipped on purpose.
        let rejected = report.counts.records_refused() > 0;
        self.report(|w| if self.global.json { json::summary(w, &report) } else { human::convert(w, &report) })?;
        if counts_as_small(&report) {
            self.suggest("compact", &report.dataset, "merges small shards");
        } else if !report.dry_run && report.sources > 0 {
            self.suggest("manifest", &report.dataset, "shows what the dataset holds");
        }
        Ok(if rejected { Outcome::Rejects } else { Outcome::Done })
    }

    fn adopt(&self, args: &AdoptArgs) -> Result<Outcome> {
        let out = args.out.as_deref().map(|out| self.context.location(out)).transpose()?;
        let options = args.options(out);
        let sources = [options.source.clone()];
        let output = options.out.clone().map_or_else(|| self.context.location(&options.source), Ok)?;
        let private = options.private;
        let job = Job { name: "adopt", sources: &sources, output: &output, private };
        let report = self.with_events(&args.lineage, false, &job, || ops::adopt::adopt(&self.context, &options))?;
        self.adopted(&report)
    }

    fn adopted(&self, report: &ops::adopt::AdoptReport) -> Result<Outcome> {
        self.report(|w| {
            if !self.global.json {
                return human::adopt(w, report, self.global.verbose > 0);
            }
            report.skipped.iter().try_for_each(|file| json::object(w, "skipped", file))?;
            json::summary(w, report)
        })?;
        Ok(if report.skipped.is_empty() { Outcome::Done } else { Outcome::Rejects })
    }

    fn inspect(&self, args: &InspectArgs) -> Result<Outcome> {
        let report = ops::inspect::inspect(&self.context, args.source.as_deref().unwrap_or("."))?;
        self.progress.stop();
        self.print(|w| {
            if !self.global.json {
                return human::inspect(w, &report);
            }
            report.formats.iter().try_for_each(|format| json::object(w, "format", format))?;
            report.columns.iter().try_for_each(|column| json::object(w, "column", column))?;
            report.variables.iter().try_for_each(|variable| json::object(w, "variable", variable))?;
            report.sizes.iter().try_for_each(|bucket| json::object(w, "sizes", bucket))?;
            report.plans.iter().try_for_each(|plan| json::object(w, "plan", plan))?;
            json::summary(w, &report)
        })?;
        Ok(Outcome::Done)
    }

    fn compact(&self, args: &CompactArgs) -> Result<Outcome> {
        let dataset = self.dataset(args.dataset.as_deref())?;
        let options = args.options()?;
        let job = Job { name: "compact", sources: &[], output: &dataset, private: PrivateChoice::default() };
        if let Some(table) = ops::compact::table_at(&self.context, &dataset)? {
            let run = || ops::compact::compact_table(&self.context, &table, &options);
            let report = self.with_events(&args.lineage, options.dry_run, &job, run)?;
            return self.report_table(&report);
        }
        let report = self.with_events(&args.lineage, options.dry_run, &job, || {
            ops::compact::compact(&self.context, &dataset, &options)
        })?;
        self.report(|w| {
            if !self.global.json {
                return human::compact(w, &report, self.global.verbose > 0);
            }
            if report.dry_run {
                report.choices.iter().try_for_each(|c| json::object(w, "choice", c))?;
            }
            json::summary(w, &report)
        })?;
        if !report.dry_run && report.counts.shards_removed > 0 {
            self.suggest("vacuum", &report.dataset, "deletes old shards after the retention of 7 days");
        }
        Ok(Outcome::Done)
    }

    fn report_table(&self, report: &TableReport) -> Result<Outcome> {
        self.report(|w| {
            if !self.global.json {
                return human::table(w, report, self.global.verbose > 0);
            }
            if report.dry_run {
                report.choices.iter().try_for_each(|choice| json::object(w, "choice", choice))?;
            }
            json::summary(w, report)
        })?;
        Ok(Outcome::Done)
    }

    fn manifest(&self, args: &ManifestArgs) -> Result<Outcome> {
        let location = self.dataset(args.dataset.as_deref())?;
        let json = self.global.json;
        if let Some(name) = args.tag.as_ref().or(args.untag.as_ref()) {
            let report = if args.untag.is_some() {
                ops::tag::untag(&self.context, &location, name)?
            } else {
                ops::tag::tag(&self.context, &location, name, args.at.as_deref())?
            };
            self.report(|w| if json { json::summary(w, &report) } else { human::tag(w, &report) })?;
            return Ok(Outcome::Done);
        }
        if let [first, second] = args.diff.as_slice() {
            return self.diff(&location, first, second);
        }
        if let [older, newer] = args.drift.as_slice() {
            return self.drift(&location, older, newer, args);
        }
        if args.proof.is_asked_for() {
            return self.prove(&location, args);
        }
        if !args.find.is_empty() || args.find_file.is_some() {
            return self.find(&location, args);
        }
        let format = args.export_format(json)?;
        let snapshot = ops::manifest::snapshot(&self.context, &location, args.at.as_deref())?;
        if let Some(Export::Version(description)) = format {
            let document = ops::describe::describe(&snapshot, description)?;
            self.print(|w| Ok(writeln!(w, "{document:#}")?))?;
            return Ok(Outcome::Done);
        }
        if let Some(Export::Records(format)) = format {
            self.progress.stop();
            self.print(|w| {
                let cancel = &self.context.cancel;
                if json { json::export(w, &snapshot, cancel) } else { export(&snapshot, format, cancel, w).map(|_| ()) }
            })?;
            return Ok(Outcome::Done);
        }
        self.print(|w| {
            if args.history {
                let entries = ops::manifest::history(&snapshot)?;
                if json { json::history(w, &entries, &snapshot) } else { human::history(w, &entries, &snapshot) }
            } else if args.list {
                let of_side = args.split.as_deref().map(|side| ops::manifest::list_of_side(&snapshot, side));
                let of_side = of_side.transpose()?;
                let shards = match &of_side {
                    Some(shards) => shards,
                    None => ops::manifest::list(&snapshot)?,
                };
                let root = snapshot.dataset().store().location().to_string();
                let below = |path: &str| format!("{}/{path}", root.trim_end_matches('/'));
                if args.urls {
                    ops::manifest::check_literal(snapshot.dataset().store().location(), shards)?;
                    let patterns = ops::manifest::brace_patterns(shards);
                    json::places(w, "urls", "ranges", patterns.iter().map(|p| below(p)), json)
                } else if args.paths {
                    json::places(w, "path", "shards", shards.iter().map(|s| below(&s.path)), json)
                } else if json {
                    json::shards(w, shards)
                } else {
                    human::shards(w, shards)
                }
            } else {
                let report = ops::manifest::summary(&self.context, &snapshot)?;
                if json { json::summary(w, &report) } else { human::summary(w, &report) }
            }
        })?;
        Ok(Outcome::Done)
    }

    fn diff(&self, location: &Location, first: &str, second: &str) -> Result<Outcome> {
        let open = |at: &str| ops::manifest::snapshot(&self.context, location, Some(at));
        let (first, second) = (open(first)?, open(second)?);
        let (json, verbose) = (self.global.json, self.global.verbose > 0);
        self.print(|w| {
            let mut some: Vec<RecordChange> = Vec::new();
            let mut shown = 0;
            let report = ops::diff::diff(&self.context, &first, &second, &mut |change| {
                shown += 1;
                if json {
                    json::object(w, "record", &change)?;
                } else if verbose {
                    human::record_change(w, &change)?;
                } else {
                    some.push(change);
                }
                Ok(if json || verbose || shown < human::SOME_RECORDS { Wants::More } else { Wants::Count })
            })?;
            self.progress.stop();
            if json { json::diff(w, &report) } else { human::diff(w, &report, &some, verbose) }
        })?;
        Ok(Outcome::Done)
    }

    fn drift(&self, location: &Location, older: &str, newer: &str, args: &ManifestArgs) -> Result<Outcome> {
        let open = |at: &str| ops::manifest::snapshot(&self.context, location, Some(at));
        let (older, newer) = (open(older)?, open(newer)?);
        let report = ops::drift::drift(&self.context, &older, &newer, args.thresholds())?;
        self.progress.stop();
        self.print(|w| {
            if !self.global.json {
                return human::drift(w, &report, self.global.verbose > 0);
            }
            report.columns.iter().try_for_each(|column| json::object(w, "column", column))?;
            json::summary(w, &report)
        })?;
        Ok(if report.drifted { Outcome::No } else { Outcome::Done })
    }

    fn verify(&self, args: &VerifyArgs) -> Result<Outcome> {
        let location = self.dataset(args.dataset.as_deref())?;
        let report = ops::verify::verify(&self.context, &location, args.at.as_deref(), args.read_data)?;
        self.progress.stop();
        self.print(|w| {
            if !self.global.json {
                return human::verify(w, &report, self.global.quiet);
            }
            report.problems.iter().try_for_each(|p| json::object(w, "problem", p))?;
            json::summary(w, &report)
        })?;
        Ok(if report.problems.is_empty() { Outcome::Done } else { Outcome::No })
    }

    fn vacuum(&self, args: &VacuumArgs) -> Result<Outcome> {
        let dataset = self.dataset(args.dataset.as_deref())?;
        if let Some(table) = ops::compact::table_at(&self.context, &dataset)? {
            let report = ops::vacuum::vacuum_table(&self.context, &table, &args.options())?;
            self.progress.stop();
            self.report(|w| {
                if !self.global.json {
                    return human::vacuumed(w, &report, self.global.verbose > 0);
                }
                report.deleted.iter().try_for_each(|file| json::object(w, "object", file))?;
                report.unknown.iter().try_for_each(|path| json::object(w, "unknown", &json!({ "path": path })))?;
                json::summary(w, &report)
            })?;
            return Ok(Outcome::Done);
        }
        let report = ops::vacuum::vacuum(&self.context, &dataset, &args.options())?;
        self.progress.stop();
        self.report(|w| {
            if !self.global.json {
                return human::vacuum(w, &report, self.global.verbose > 0);
            }
            report.deleted.iter().try_for_each(|object| json::object(w, "object", object))?;
            report.foreign.iter().try_for_each(|path| json::object(w, "foreign", &json!({ "path": path })))?;
            json::summary(w, &report)
        })?;
        Ok(Outcome::Done)
    }

    fn erase(&self, args: &EraseArgs) -> Result<Outcome> {
        let (dataset, ids) = args.words();
        let mut ids: Vec<EraseId> = ids.iter().map(|id| args.meant(id)).chain(args.kinds()).collect();
        if let Some(file) = &args.ids {
            ids.extend(self.read_ids(file)?.into_iter().map(|id| args.meant(id)));
        }
        let options = EraseOptions {
            ids,
            all_versions: args.all_versions,
            reason: args.reason.clone(),
            receipt: args.receipt.as_deref().map(|file| self.context.location(file)).transpose()?,
            dry_run: args.dry_run,
        };
        args.check_that_an_id_is_meant()?;
        let dataset = self.dataset(dataset)?;
        let job = Job { name: "erase", sources: &[], output: &dataset, private: PrivateChoice::default() };
        let report = self.with_events(&args.lineage, options.dry_run, &job, || {
            ops::erase::erase(&self.context, &dataset, &options)
        })?;
        self.report(|w| {
            if !self.global.json {
                return human::erase(w, &report, self.global.verbose > 0);
            }
            report.ids.iter().try_for_each(|id| json::object(w, "id", id))?;
            report.shards.iter().try_for_each(|shard| json::object(w, "shard", shard))?;
            json::summary(w, &report)
        })?;
        if !self.global.json && !self.global.quiet {
            for id in &report.missing {
                let _ = writeln!(io::stderr(), "no record has the id `{}`", human::clean(id));
            }
        }
        Ok(if report.missing.is_empty() { Outcome::Done } else { Outcome::No })
    }

    fn remove(&self, args: &RemoveArgs) -> Result<Outcome> {
        let options = args.options()?;
        let dataset = self.dataset(args.dataset.as_deref())?;
        let job = Job { name: "remove", sources: &[], output: &dataset, private: PrivateChoice::default() };
        let run = || ops::undo::remove(&self.context, &dataset, &options);
        let report = self.with_events(&args.lineage, options.dry_run, &job, run)?;
        self.report(|w| {
            if !self.global.json {
                return human::remove(w, &report, self.global.verbose > 0);
            }
            report.removed.iter().try_for_each(|source| json::object(w, "source", source))?;
            json::summary(w, &report)
        })?;
        if !self.global.json && !self.global.quiet {
            for name in &report.missing {
                let _ = writeln!(io::stderr(), "no source in the dataset has the name `{}`", human::clean(name));
            }
        }
        Ok(if report.missing.is_empty() { Outcome::Done } else { Outcome::No })
    }

    fn block(&self, args: &BlockArgs, lift: bool) -> Result<Outcome> {
        let mut ids: Vec<EraseId> = args.kinds().collect();
        if let Some(file) = &args.ids {
            ids.extend(self.read_ids(file)?.into_iter().map(EraseId::any));
        }
        let options = BlockOptions { ids, reason: args.reason.clone(), lift, dry_run: args.dry_run };
        let dataset = self.dataset(args.dataset.as_deref())?;
        let report = ops::block::block(&self.context, &dataset, &options)?;
        self.progress.stop();
        self.report(|w| if self.global.json { json::summary(w, &report) } else { human::block(w, &report) })?;
        // Who is not on the list cannot be taken off it.
        Ok(if lift && !report.unchanged.is_empty() { Outcome::No } else { Outcome::Done })
    }

    fn revert(&self, args: &RevertArgs) -> Result<Outcome> {
        let dataset = self.dataset(args.dataset.as_deref())?;
        let job = Job { name: "revert", sources: &[], output: &dataset, private: PrivateChoice::default() };
        let run = || ops::undo::revert(&self.context, &dataset, &args.to, args.dry_run);
        let report = self.with_events(&args.lineage, args.dry_run, &job, run)?;
        self.report(|w| if self.global.json { json::summary(w, &report) } else { human::revert(w, &report) })?;
        Ok(Outcome::Done)
    }

    /// Runs a command that writes and tells whoever is to know of it, but of no plan; then the progress is over.
    fn with_events<R>(
        &self,
        args: &LineageArgs,
        dry_run: bool,
        job: &Job<'_>,
        run: impl FnOnce() -> Result<R>,
    ) -> Result<R>
    where
        for<'r> lineage::Outcome: From<&'r R>,
    {
        let to = args.openlineage.as_deref().filter(|_| !dry_run);
        let report = lineage::with_events(&self.context, to, job, run)?;
        self.progress.stop();
        Ok(report)
    }

    /// The dataset: the argument, then `shardify.toml`, then `SHARDIFY_DATASET`, then `./shards`.
    fn dataset(&self, argument: Option<&str>) -> Result<Location> {
        let named = argument
            .map(str::to_owned)
            .or_else(|| self.config.dataset().map(str::to_owned))
            .or_else(|| std::env::var("SHARDIFY_DATASET").ok().filter(|v| !v.is_empty()));
        let location = self.context.location(named.as_deref().unwrap_or("shards"))?;
        if location.local_path().is_some_and(|path| path.is_file()) {
            return Err(Error::usage("expected the folder of a dataset, found a file")
                .at(location.to_string())
                .hint("a dataset is a folder of shards: name one that is new, or has a dataset"));
        }
        Ok(location)
    }

    /// Writes what a command did to standard output: objects with --json, else a summary, which --quiet silences.
    fn report(&self, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
        if self.global.quiet && !self.global.json { Ok(()) } else { self.print(write) }
    }

    /// Suggests the next command below a summary, to people alone: on standard error, if that is a terminal.
    fn suggest(&self, command: &str, dataset: &str, purpose: &str) {
        if self.global.quiet || self.global.json || !io::stderr().is_terminal() {
            return;
        }
        let dataset = human::clean(dataset);
        let _ = writeln!(io::stderr(), "next: shardify {command} {}  # {purpose}", ops::shell_word(&dataset));
    }

    /// Writes the answer to standard output.
    fn print(&self, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
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
fn fail(error: &Error, json: bool) -> ExitCode {
    if json {
        json::error(error);
    } else {
        let mut text = Vec::new();
        // Writing to memory cannot fail, and there is nobody to tell that standard error is closed.
        let _ = human::error(&mut text, error);
        let _ = io::stderr().write_all(&text);
    }
    exit::code(error.kind()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn the_command_line_is_consistent() {
        help::command().debug_assert();
    }

    #[test]
    fn kinds_have_the_documented_codes() {
        for (kind, code) in
            [(Kind::Usage, 2), (Kind::Conflict, 4), (Kind::Storage, 5), (Kind::Input, 6), (Kind::Internal, 70)]
        {
            assert_eq!(exit::code(kind), code);
        }
    }
}
