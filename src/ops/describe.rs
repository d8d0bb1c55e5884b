//! `manifest --export croissant|mlflow|prov`: one JSON document that describes a version to other programs.
//!
//! | format | document |
//! |---|---|
//! | Croissant 1.1 | JSON-LD: the entry and live shards as resources, columns of Parquet as fields, provenance |
//! | MLflow | a dataset input, as `runs/log-inputs` accepts it |
//! | PROV | PROV-JSON: versions are entities, runs are activities, folders of sources are what the activities used |
//!
//! No document contains a record id, and each is made from the version's lists alone.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::DataType;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    codec::hex::to_hex,
    dataset::{Entry, Revision, Snapshot, VersionTree},
    error::{Error, Result},
    format::parquet,
    id::Version,
};

/// Maximum number of shards listed individually; beyond it, their folders are listed.
const MAX_SHARDS: usize = 1_000;
/// Maximum number of source folders listed.
const MAX_FOLDERS: usize = 1_000;

/// Formats in which a version can be described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Description {
    /// Croissant 1.1.
    Croissant,
    /// A dataset input of MLflow.
    Mlflow,
    /// W3C PROV-JSON.
    Prov,
}

/// Describes a version.
///
/// # Errors
/// When lists, the log or a footer cannot be read.
pub fn describe_version(snapshot: &Snapshot, description: Description) -> Result<Value> {
    let described = match description {
        Description::Croissant => describe_croissant(snapshot),
        Description::Mlflow => describe_mlflow(snapshot),
        Description::Prov => describe_prov(snapshot),
    };
    super::or_overtaken(Some(snapshot), described)
}

fn dataset_name(snapshot: &Snapshot) -> String {
    snapshot.dataset().store().location().split_name().map_or_else(|| "dataset".to_owned(), |(_, name)| name)
}

fn dataset_location(snapshot: &Snapshot) -> String {
    snapshot.dataset().store().location().to_string().trim_end_matches('/').to_owned()
}

/// Returns a hash of the records alone: BLAKE3 over paths and checksums of the live shards, in record order.
fn content_hash(snapshot: &Snapshot) -> Result<String> {
    let mut hasher = blake3::Hasher::new();
    for shard in snapshot.live_shards()? {
        hasher.update(&(shard.path.len() as u64).to_le_bytes()).update(shard.path.as_bytes()).update(&shard.checksum);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Returns the folders of the sources, by the version that imported them.
fn source_folders(snapshot: &Snapshot) -> Result<BTreeMap<Version, BTreeSet<String>>> {
    let mut out: BTreeMap<Version, BTreeSet<String>> = BTreeMap::new();
    let mut count = 0;
    snapshot.each_source(&mut |source| {
        if source.removed.is_some() {
            return Ok(());
        }
        let folder = source.uri.rfind('/').map_or(source.uri.as_str(), |slash| &source.uri[..=slash]);
        let of_version = out.entry(source.version).or_default();
        if count < MAX_FOLDERS && !of_version.contains(folder) {
            of_version.insert(folder.to_owned());
            count += 1;
        }
        Ok(())
    })?;
    Ok(out)
}

/// Returns path and bytes of the log entry.
fn entry_file(snapshot: &Snapshot) -> Result<(String, Vec<u8>)> {
    let path = snapshot.entry().path();
    let store = snapshot.dataset().store();
    let bytes = store.get(&path)?.ok_or_else(|| {
        Error::integrity("expected a log entry, found none").at_location(store.location().join(&path).to_string())
    })?;
    Ok((path, bytes.to_vec()))
}

fn describe_croissant(snapshot: &Snapshot) -> Result<Value> {
    let entry = snapshot.entry();
    let (path, bytes) = entry_file(snapshot)?;
    let format = entry.settings.shard_format;
    let sha256 = to_hex(&Sha256::digest(&bytes));
    let shards = json!({
        "@type": "cr:FileSet",
        "@id": "shards",
        "name": "shards",
        "description": format!("{} shards of {format}, {} records", entry.totals.shards, entry.totals.records),
        "encodingFormat": format.facts().media_type,
        "includes": shard_patterns(snapshot)?,
    });
    let log = json!({
        "@type": "cr:FileObject",
        "@id": "log-entry",
        "name": "log-entry",
        "description": "entry of shardify's log: lists of shards, runs, sources, and segments of the id index",
        "contentUrl": path,
        "contentSize": format!("{} B", bytes.len()),
        "encodingFormat": "application/json",
        "sha256": sha256,
    });
    let mut document = json!({
        "@context": croissant_context(),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": dataset_name(snapshot),
        "description": format!(
            "{} of a shardify dataset: {} records in {} shards of {format}",
            entry.version, entry.totals.records, entry.totals.shards
        ),
        "url": dataset_location(snapshot),
        "version": format!("{}.0.0", entry.version.0),
        "datePublished": format!("{:.0}", entry.committed_at),
        "distribution": [log, shards],
        "prov:wasDerivedFrom": derived_from(snapshot)?,
        "prov:wasGeneratedBy": generated_by(entry),
    });
    let fields = if format.is_columnar() { croissant_fields(snapshot)? } else { Vec::new() };
    if !fields.is_empty() {
        let mut records = json!({ "@type": "cr:RecordSet", "@id": "records", "name": "records", "field": fields });
        // Croissant has no field for a key of several columns, or for a path into a nested column.
        if let [id] = entry.settings.id.as_slice()
            && fields.iter().any(|field| field["name"] == json!(id))
        {
            records["key"] = json!({ "@id": format!("records/{id}") });
        }
        document["recordSet"] = json!([records]);
    }
    Ok(document)
}

/// Returns the live shards, or patterns for all shards of their folders if there are too many.
fn shard_patterns(snapshot: &Snapshot) -> Result<Vec<String>> {
    let shards = snapshot.live_shards()?;
    if shards.len() <= MAX_SHARDS {
        return Ok(shards.iter().map(|shard| shard.path.clone()).collect());
    }
    let pattern = |path: &str| {
        let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
        let ending = file.find('.').map_or("", |dot| &file[dot..]);
        if folder.is_empty() { format!("*{ending}") } else { format!("{folder}/*{ending}") }
    };
    Ok(shards.iter().map(|shard| pattern(&shard.path)).collect::<BTreeSet<_>>().into_iter().collect())
}

/// Returns the columns of the newest shard for which Croissant has types.
fn croissant_fields(snapshot: &Snapshot) -> Result<Vec<Value>> {
    let Some(shard) = snapshot.live_shards()?.last() else { return Ok(Vec::new()) };
    let dataset = snapshot.dataset();
    let file = parquet::open(dataset.object_at(&shard.path, shard.bytes), &shard.path)?;
    let field = |name: &str, data_type: &DataType| {
        let (item, repeated) = match data_type {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                (item.data_type(), true)
            }
            plain => (plain, false),
        };
        let mut field = json!({
            "@type": "cr:Field",
            "@id": format!("records/{name}"),
            "name": name,
            "dataType": type_of(item)?,
            "source": { "fileSet": { "@id": "shards" }, "extract": { "column": name } },
        });
        if repeated {
            field["isArray"] = json!(true);
            field["arrayShape"] = json!("-1");
        }
        Some(field)
    };
    Ok(file.schema().fields().iter().filter_map(|f| field(f.name(), f.data_type())).collect())
}

fn type_of(data_type: &DataType) -> Option<&'static str> {
    Some(match data_type {
        DataType::Boolean => "sc:Boolean",
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => "sc:Date",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "sc:Text",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => "sc:Text",
        numeric if numeric.is_integer() => "sc:Integer",
        numeric if numeric.is_numeric() => "sc:Float",
        _ => return None,
    })
}

fn derived_from(snapshot: &Snapshot) -> Result<Vec<Value>> {
    let all: BTreeSet<String> = source_folders(snapshot)?.into_values().flatten().collect();
    let revisions = &snapshot.entry().revisions;
    let source = |uri: String| {
        let mut source = json!({ "@id": uri, "@type": "prov:Entity" });
        let of_source: Vec<String> = revisions.iter().filter(|r| is_of_folder(r, &uri)).map(text_of).collect();
        if !of_source.is_empty() {
            source["sc:version"] = json!(of_source);
        }
        source
    };
    Ok(all.into_iter().map(source).collect())
}

/// Returns whether a revision belongs to a folder or to a source in it.
fn is_of_folder(revision: &Revision, folder: &str) -> bool {
    revision.source.starts_with(folder) || folder.starts_with(&format!("{}/", revision.source.trim_end_matches('/')))
}

fn text_of(revision: &Revision) -> String {
    format!("{}:{}", revision.system, revision.revision)
}

fn generated_by(entry: &Entry) -> Value {
    json!({
        "@type": "prov:Activity",
        "@id": format!("urn:shardify:run:{}", entry.transaction),
        "prov:label": format!("shardify {}", entry.operation),
        "prov:endedAtTime": format!("{:.6}", entry.committed_at),
        "prov:wasAssociatedWith": { "@type": "prov:SoftwareAgent", "prov:label": entry.tool },
    })
}

/// Returns the JSON-LD context of Croissant's specification, extended by PROV.
fn croissant_context() -> Value {
    let mut context = Map::new();
    context.insert("@language".into(), json!("en"));
    context.insert("@vocab".into(), json!("https://schema.org/"));
    for (short, full) in [
        ("sc", "https://schema.org/"),
        ("cr", "http://mlcommons.org/croissant/"),
        ("rai", "http://mlcommons.org/croissant/RAI/"),
        ("dct", "http://purl.org/dc/terms/"),
        ("prov", "http://www.w3.org/ns/prov#"),
    ] {
        context.insert(short.into(), json!(full));
    }
    context.insert("conformsTo".into(), json!("dct:conformsTo"));
    let own = [
        "arrayShape",
        "citeAs",
        "column",
        "extract",
        "field",
        "fileObject",
        "fileProperty",
        "fileSet",
        "format",
        "includes",
        "excludes",
        "isArray",
        "isLiveDataset",
        "jsonPath",
        "key",
        "md5",
        "parentField",
        "path",
        "recordSet",
        "references",
        "regex",
        "repeated",
        "replace",
        "samplingRate",
        "separator",
        "source",
        "subField",
        "transform",
        "containedIn",
        "annotation",
        "equivalentProperty",
        "value",
        "unArchive",
        "sdVersion",
    ];
    for name in own {
        context.insert(name.into(), json!(format!("cr:{name}")));
    }
    context.insert("data".into(), json!({ "@id": "cr:data", "@type": "@json" }));
    context.insert("examples".into(), json!({ "@id": "cr:examples", "@type": "@json" }));
    context.insert("dataType".into(), json!({ "@id": "cr:dataType", "@type": "@vocab" }));
    Value::Object(context)
}

fn describe_mlflow(snapshot: &Snapshot) -> Result<Value> {
    let entry = snapshot.entry();
    let (content, location) = (content_hash(snapshot)?, dataset_location(snapshot));
    let root = to_hex(&VersionTree::new(snapshot, None)?.merkle_root());
    let source = json!({ "uri": format!("{location}/{}", entry.path()) });
    let profile = json!({
        "version": entry.version,
        "records": entry.totals.records,
        "shards": entry.totals.shards,
        "bytes": entry.totals.bytes,
        "content": format!("blake3:{content}"),
        // The value that `manifest --root` prints: it covers the version, not only its records.
        "root": format!("sha256:{root}"),
        "tags": snapshot.tags().iter().filter(|(_, v)| **v == entry.version).map(|(t, _)| t).collect::<Vec<_>>(),
    });
    let source_type = match location.split_once("://").map_or("file", |(scheme, _)| scheme) {
        "file" => "local",
        scheme => scheme,
    };
    Ok(json!({
        // MLflow allows at most ten characters; the whole hash is in the profile. Versions with the same records have
        // the same digest.
        "digest": content[..8],
        "name": format!("{}@{}", dataset_name(snapshot), entry.version),
        "profile": profile.to_string(),
        "source": source.to_string(),
        "source_type": source_type,
    }))
}

fn describe_prov(snapshot: &Snapshot) -> Result<Value> {
    let entries = snapshot.dataset().entries_up_to(snapshot.version())?;
    let folders = source_folders(snapshot)?;
    let mut document = Relations::default();
    let mut sources: BTreeMap<&str, String> = BTreeMap::new();
    for folder in folders.values().flatten() {
        let number = sources.len() + 1;
        sources.entry(folder).or_insert_with(|| format!("s:source-{number}"));
    }
    for (folder, id) in &sources {
        document.entities.insert(id.clone(), json!({ "prov:type": "source folder", "prov:location": folder }));
    }
    for entry in &entries {
        let (version, run) = (format!("s:{}", entry.version), format!("s:run-{}", entry.transaction));
        let agent = format!("s:{}", entry.tool.replace(' ', "-"));
        document.agents.insert(
            agent.clone(),
            json!({ "prov:type": { "$": "prov:SoftwareAgent", "type": "prov:QUALIFIED_NAME" },
                "prov:label": entry.tool }),
        );
        let mut facts = json!({
            "prov:type": "dataset version",
            "prov:location": dataset_location(snapshot),
            "prov:generatedAtTime": committed_instant(entry),
            "s:records": entry.totals.records,
            "s:shards": entry.totals.shards,
            "s:bytes": entry.totals.bytes,
        });
        let tags: Vec<&String> =
            snapshot.tags().iter().filter(|(_, v)| **v == entry.version).map(|(tag, _)| tag).collect();
        if !tags.is_empty() {
            facts["s:tag"] = json!(tags);
        }
        document.entities.insert(version.clone(), facts);
        let mut facts = json!({ "prov:type": entry.operation, "prov:endTime": format!("{:.6}", entry.committed_at) });
        if !entry.revisions.is_empty() {
            facts["s:revision"] = json!(entry.revisions.iter().map(text_of).collect::<Vec<_>>());
        }
        document.activities.insert(run.clone(), facts);
        document.add_relation("wasGeneratedBy", &[("prov:entity", &version), ("prov:activity", &run)]);
        document.add_relation("wasAssociatedWith", &[("prov:activity", &run), ("prov:agent", &agent)]);
        let parent = (entry.version.0 > 1).then(|| format!("s:{}", Version(entry.version.0 - 1)));
        let taken = folders.get(&entry.version).into_iter().flatten().filter_map(|f| sources.get(f.as_str()));
        for used in parent.iter().chain(taken) {
            document.add_relation("used", &[("prov:activity", &run), ("prov:entity", used)]);
            document.add_relation(
                "wasDerivedFrom",
                &[("prov:generatedEntity", &version), ("prov:usedEntity", used), ("prov:activity", &run)],
            );
        }
    }
    Ok(document.finish())
}

fn committed_instant(entry: &Entry) -> Value {
    json!({ "$": format!("{:.6}", entry.committed_at), "type": "xsd:dateTime" })
}

#[derive(Default)]
struct Relations {
    entities: Map<String, Value>,
    activities: Map<String, Value>,
    agents: Map<String, Value>,
    relations: BTreeMap<&'static str, Map<String, Value>>,
}

impl Relations {
    fn add_relation(&mut self, kind: &'static str, ends: &[(&str, &String)]) {
        let relations = self.relations.entry(kind).or_default();
        let id = format!("_:{kind}{}", relations.len() + 1);
        relations.insert(id, ends.iter().map(|(name, end)| ((*name).to_owned(), json!(end))).collect());
    }

    fn finish(self) -> Value {
        let prefix = json!({ "s": "urn:shardify:", "xsd": "http://www.w3.org/2001/XMLSchema#" });
        let mut document = Map::from_iter([
            ("prefix".to_owned(), prefix),
            ("entity".to_owned(), Value::Object(self.entities)),
            ("activity".to_owned(), Value::Object(self.activities)),
            ("agent".to_owned(), Value::Object(self.agents)),
        ]);
        document.extend(self.relations.into_iter().map(|(kind, all)| (kind.to_owned(), Value::Object(all))));
        Value::Object(document)
    }
}
