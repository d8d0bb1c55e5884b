//! OpenLineage events of the commands that write, and of `check`: START before the run, COMPLETE or FAIL after it.
//!
//! An event names the job (`shardify.convert`), the run, the folders that it reads and the dataset that it makes, by
//! the naming of OpenLineage's specification 2-0-2: never a dataset for each file. Events are appended to a file, one
//! per line, or sent to a server. A run never fails because an event could not be delivered: that is a note.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Context,
    adopt::AdoptReport,
    compact::{CompactReport, TableReport},
    convert::ConvertReport,
    erase::EraseReport,
    undo::{RemoveReport, RevertReport},
};
use crate::{
    dataset::{Counts, PrivateChoice, PrivateIds, Pseudonymizer, choose_private},
    error::{Error, Result},
    events::Event,
    id::{Version, run_uuid},
    storage::{Location, append_line, plain_argument, post_json},
};

/// Identifies the program in events.
const PRODUCER: &str = concat!("urn:shardify:", env!("CARGO_PKG_VERSION"));
/// Path at which servers accept events, unless the URL has one.
const ENDPOINT: &str = "/api/v1/lineage";
/// Setting with the API key of the server.
const KEY_SETTING: &str = "OPENLINEAGE_API_KEY";
/// Setting with the namespace of jobs.
const NAMESPACE_SETTING: &str = "OPENLINEAGE_NAMESPACE";

const EVENT_SCHEMA: &str = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";
const VERSION_SCHEMA: &str =
    "https://openlineage.io/spec/facets/1-0-1/DatasetVersionDatasetFacet.json#/$defs/DatasetVersionDatasetFacet";
const FIELDS_SCHEMA: &str =
    "https://openlineage.io/spec/facets/1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet";
const STATISTICS_SCHEMA: &str = "https://openlineage.io/spec/facets/1-0-2/OutputStatisticsOutputDatasetFacet.json\
                                 #/$defs/OutputStatisticsOutputDatasetFacet";
const ERROR_SCHEMA: &str =
    "https://openlineage.io/spec/facets/1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet";
const JOB_SCHEMA: &str = "https://openlineage.io/spec/facets/2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet";

/// Name of the command that reads the dataset and writes nothing.
pub(super) const CHECK: &str = "check";

/// Description of a run before it starts.
#[derive(Debug, Clone)]
pub struct LineageJob<'a> {
    /// The command.
    pub name: &'static str,
    /// Sources as the user names them; empty if the run reads the dataset itself.
    pub sources: &'a [String],
    /// The dataset that it writes.
    pub output: &'a Location,
    /// How ids of a new dataset are to be stored.
    pub private: PrivateChoice,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct RunOutcome {
    /// The new version, or the current one if there was nothing to do.
    pub version: Option<Version>,
    /// Counts of the run.
    pub counts: Counts,
    /// Columns with their types, if known.
    pub columns: Vec<(String, String)>,
    /// Facets of the dataset as an input: results of `check`.
    pub(super) input_facets: Map<String, Value>,
}

impl From<&ConvertReport> for RunOutcome {
    fn from(report: &ConvertReport) -> Self {
        Self { version: report.version, counts: report.counts, columns: report.columns.clone(), ..Self::default() }
    }
}

impl From<&AdoptReport> for RunOutcome {
    fn from(report: &AdoptReport) -> Self {
        Self { version: report.version, counts: report.counts, ..Self::default() }
    }
}

impl From<&CompactReport> for RunOutcome {
    fn from(report: &CompactReport) -> Self {
        Self { version: Some(report.version), counts: report.counts, ..Self::default() }
    }
}

impl From<&TableReport> for RunOutcome {
    fn from(report: &TableReport) -> Self {
        let counts = Counts {
            records_in: report.records_in,
            records_out: report.records_out,
            bytes_in: report.bytes_in,
            bytes_out: report.bytes_out,
            ..Counts::default()
        };
        Self { version: Some(Version(report.version)), counts, ..Self::default() }
    }
}

impl From<&EraseReport> for RunOutcome {
    fn from(report: &EraseReport) -> Self {
        Self { version: Some(report.version), counts: report.counts, ..Self::default() }
    }
}

impl From<&RemoveReport> for RunOutcome {
    fn from(report: &RemoveReport) -> Self {
        Self { version: Some(report.version), counts: report.counts, ..Self::default() }
    }
}

impl From<&RevertReport> for RunOutcome {
    fn from(report: &RevertReport) -> Self {
        Self { version: Some(report.version), counts: report.counts, ..Self::default() }
    }
}

/// Runs a command and sends its lineage events to `to`: a file or a URL.
///
/// # Errors
/// Only those of the run itself, and when `to` is not a valid destination of events.
pub fn with_events<R>(
    context: &Context<'_>,
    to: Option<&str>,
    job: &LineageJob<'_>,
    run: impl FnOnce() -> Result<R>,
) -> Result<R>
where
    for<'r> RunOutcome: From<&'r R>,
{
    let Some(to) = to else { return run() };
    let emitter =
        Emitter { context, to: context.parse_location(to)?, job, id: run_uuid(), private: private_ids(context, job) };
    if emitter.to.local_path().is_none() && !matches!(emitter.to.url().scheme(), "http" | "https") {
        return Err(Error::usage("expected a file or an http(s) URL for --openlineage, found another store")
            .at_location(plain_argument(to)));
    }
    emitter.emit_event("START", None, None);
    let result = run();
    match &result {
        Ok(report) => emitter.emit_event("COMPLETE", Some(&RunOutcome::from(report)), None),
        Err(error) => emitter.emit_event("FAIL", None, Some(error)),
    }
    result
}

/// Returns how the dataset stores its ids, or will store them.
fn private_ids(context: &Context<'_>, job: &LineageJob<'_>) -> Option<PrivateIds> {
    let latest = context.open_dataset(job.output).and_then(|dataset| dataset.newest_snapshot()).ok().flatten();
    match latest {
        Some(snapshot) => snapshot.entry().settings.private.clone(),
        None => choose_private(None, job.private, context.id_key.as_ref()).ok().flatten().map(unknown_salt),
    }
}

/// Returns the settings with an unknown salt: a new dataset draws its own, so its sources' tokens are not known until
/// it exists.
fn unknown_salt(private: PrivateIds) -> PrivateIds {
    let check = if private.salt.is_some() { String::new() } else { private.check };
    PrivateIds { check, ..private }
}

struct Emitter<'a> {
    context: &'a Context<'a>,
    to: Location,
    job: &'a LineageJob<'a>,
    id: String,
    private: Option<PrivateIds>,
}

impl Emitter<'_> {
    fn emit_event(&self, kind: &str, outcome: Option<&RunOutcome>, error: Option<&Error>) {
        if let Err(error) = self.send_event(&self.build_event(kind, outcome, error)) {
            let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
            let note = format!("the {kind} event of --openlineage was not delivered: {error}{cause}");
            self.context.observer.event(Event::Note(note));
        }
    }

    fn find_setting(&self, name: &str) -> Option<&str> {
        self.context.settings.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
    }

    fn send_event(&self, event: &Value) -> Result<()> {
        if let Some(path) = self.to.local_path() {
            return append_line(path, &event.to_string());
        }
        let mut url = self.to.url().clone();
        if matches!(url.path(), "" | "/") {
            url.set_path(ENDPOINT);
        }
        post_json(&url, event.to_string(), self.find_setting(KEY_SETTING), &self.context.settings)
    }

    fn build_event(&self, kind: &str, outcome: Option<&RunOutcome>, error: Option<&Error>) -> Value {
        let mut run = json!({ "runId": self.id });
        if let Some(error) = error {
            // Messages may contain names of files, ids and values.
            let message = match self.private {
                Some(_) => format!("shardify {} failed ({:?})", self.job.name, error.kind()),
                None => error.to_string(),
            };
            let message = json!({ "message": message, "programmingLanguage": "Rust" });
            run["facets"] = json!({ "errorMessage": new_facet(ERROR_SCHEMA, message) });
        }
        let job_type = json!({ "processingType": "BATCH", "integration": "SHARDIFY", "jobType": "COMMAND" });
        json!({
            "eventType": kind,
            "eventTime": format!("{:.6}", Timestamp::now()),
            "producer": PRODUCER,
            "schemaURL": EVENT_SCHEMA,
            "run": run,
            "job": {
                "namespace": self.find_setting(NAMESPACE_SETTING).unwrap_or("shardify"),
                "name": format!("shardify.{}", self.job.name),
                "facets": { "jobType": new_facet(JOB_SCHEMA, job_type) },
            },
            "inputs": if self.job.name == CHECK { vec![self.checked_dataset(outcome)] } else { self.input_datasets() },
            "outputs": if self.job.name == CHECK { Vec::new() } else { vec![self.output_dataset(outcome)] },
        })
    }

    /// Returns a dataset for each folder of the sources.
    fn input_datasets(&self) -> Vec<Value> {
        let mut names: BTreeSet<(String, String)> = BTreeSet::new();
        let redacted = self.private.as_ref().filter(|private| private.redacted_sources);
        let pseudonymizer = redacted.map(|private| Pseudonymizer::from_private(private, self.context.id_key.as_ref()));
        if self.job.sources.is_empty() {
            names.insert(name_of(self.job.output));
        }
        for source in self.job.sources {
            if source == "-" {
                names.insert(("file".to_owned(), "/dev/stdin".to_owned()));
            } else if let Some(folder) = source_folder(self.context, source) {
                match &pseudonymizer {
                    None => drop(names.insert(name_of(&folder))),
                    Some(Ok(pseudonymizer)) => {
                        let name = pseudonymizer.stored_uri(&folder.to_string()).into_owned();
                        names.insert(("shardify".to_owned(), name));
                    }
                    // Without the key, the folder cannot be determined.
                    Some(Err(_)) => {}
                }
            }
        }
        names.into_iter().map(|(namespace, name)| json!({ "namespace": namespace, "name": name })).collect()
    }

    /// Returns the dataset that `check` reads, with what it found.
    fn checked_dataset(&self, outcome: Option<&RunOutcome>) -> Value {
        let (namespace, name) = name_of(self.job.output);
        let mut input = json!({ "namespace": namespace, "name": name });
        if let Some(outcome) = outcome {
            let version = outcome.version.map(|version| json!({ "datasetVersion": version.0.to_string() }));
            input["facets"] = json!({ "version": version.map(|version| new_facet(VERSION_SCHEMA, version)) });
            input["inputFacets"] = Value::Object(outcome.input_facets.clone());
        }
        input
    }

    fn output_dataset(&self, outcome: Option<&RunOutcome>) -> Value {
        let (namespace, name) = name_of(self.job.output);
        let mut output = json!({ "namespace": namespace, "name": name });
        let Some(outcome) = outcome else { return output };
        let mut facets = Map::new();
        if let Some(version) = outcome.version {
            let version = json!({ "datasetVersion": version.0.to_string() });
            facets.insert("version".to_owned(), new_facet(VERSION_SCHEMA, version));
        }
        if !outcome.columns.is_empty() {
            let field = |(name, data_type): &(String, String)| json!({ "name": name, "type": data_type });
            let fields: Vec<Value> = outcome.columns.iter().map(field).collect();
            facets.insert("schema".to_owned(), new_facet(FIELDS_SCHEMA, json!({ "fields": fields })));
        }
        let counts = &outcome.counts;
        let statistics = json!({
            "rowCount": counts.records_out,
            "size": counts.bytes_out,
            "fileCount": counts.shards_added,
        });
        output["facets"] = Value::Object(facets);
        output["outputFacets"] = json!({ "outputStatistics": new_facet(STATISTICS_SCHEMA, statistics) });
        output
    }
}

/// Returns a facet with what every facet has.
pub(super) fn new_facet(schema: &str, fields: Value) -> Value {
    let mut facet = Map::from_iter([
        ("_producer".to_owned(), Value::from(PRODUCER)),
        ("_schemaURL".to_owned(), Value::from(schema)),
    ]);
    if let Value::Object(fields) = fields {
        facet.extend(fields);
    }
    Value::Object(facet)
}

/// Returns the location that a source names: itself, or the folder before the first wildcard.
pub(super) fn source_folder_or_file(context: &Context<'_>, source: &str) -> Option<Location> {
    let exists =
        |text: &str| context.parse_location(text).ok().is_some_and(|l| l.local_path().is_some_and(|p| p.exists()));
    let plain = match source.find(['*', '?', '[', '{']) {
        Some(wildcard) if !exists(source) => {
            let before = &source[..wildcard];
            before.rfind('/').map_or(".", |slash| &source[..=slash])
        }
        _ => source,
    };
    context.parse_location(plain).ok()
}

/// Returns the folder that a source names: itself, the folder of the file, or the folder before the first wildcard.
fn source_folder(context: &Context<'_>, source: &str) -> Option<Location> {
    let location = source_folder_or_file(context, source)?;
    match location.local_path() {
        Some(path) if !path.is_dir() => location.split_name().map(|(folder, _)| folder),
        // A name with a dot is taken for a file: stores cannot be asked whether it is a folder.
        None if location.split_name().is_some_and(|(_, name)| name.contains('.')) => {
            location.split_name().map(|(folder, _)| folder)
        }
        _ => Some(location),
    }
}

/// Returns namespace and name of a dataset by OpenLineage's naming.
fn name_of(location: &Location) -> (String, String) {
    if let Some(path) = location.local_path() {
        return ("file".to_owned(), path.to_string_lossy().into_owned());
    }
    let url = location.url();
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let namespace = format!("{}://{}{port}", url.scheme(), url.host_str().unwrap_or_default());
    let name = url.path().trim_matches('/');
    (namespace, if name.is_empty() { "/".to_owned() } else { name.to_owned() })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn datasets_have_the_names_of_the_specification() {
        let name = |text: &str| name_of(&Location::parse(text, Path::new("/home")).unwrap());
        let pair = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        assert_eq!(name("raw"), pair("file", "/home/raw"));
        assert_eq!(name("s3://bucket/raw/csv/"), pair("s3://bucket", "raw/csv"));
        assert_eq!(name("https://user:secret@host:8080/a?sig=x"), pair("https://host:8080", "a"));
    }
}
