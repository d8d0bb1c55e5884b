//! Certificates that nobody is in two splits of a dataset, which are verified without the dataset.
//!
//! ```text
//! root -- head       "... \nsplit {"shares":[["train",0.8],...],"by":"subject","seed":0}\n"   the rule of splits
//!      |- list       the hashes of all these leaves, in order
//!      '- segment    "segment subject 0 100 1 <root of buckets> train\n"                       all segments, in order,
//!                    "sealed subject 0 100 1 <root of seals> train\n"                          in either form
//! ```
//!
//! A certificate has all leaves of the root, so the root is recomputed from them: nothing can be omitted, added or
//! moved. A rule gives an id one split. That every id of a segment has the split that the segment states is checked by
//! the program that writes the segment, while it writes, and by `verify` with the data; the root commits to it by the
//! line `split`. A certificate contains no ids and no hashes of ids.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Expected, check::decode_hash, check::ids_of, hex_hashes};
use crate::{
    codec::{
        hex::to_hex,
        merkle::{self, Hash},
    },
    dataset::{IdKind, Snapshot, VersionTree},
    error::{Error, Result},
    events::Event,
    id::Version,
    ops::{Context, manifest, or_overtaken},
    record::split::{SplitBy, Splits},
    storage::{self, Location},
    units::Size,
};

/// Type of the document.
pub(super) const TYPE: &str = "split-proof";

/// Version of the format of certificates.
const SCHEMA: u32 = 1;

/// Size above which a certificate is worth a note.
const USUAL_BYTES: usize = 10_000;

/// A certificate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Certificate {
    r#type: String,
    schema: u32,
    version: Version,
    root: String,
    split: Splits,
    splits: Vec<SplitFacts>,
    head: String,
    lists: Vec<String>,
    segments: Vec<String>,
}

/// What a certificate shows of a split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitFacts {
    /// Name of the split.
    pub name: String,
    /// Its share of the ids, as asked for.
    pub share: f64,
    /// Number of its segments with ids of the kind that the division follows from.
    pub segments: u64,
    /// Number of pairs of such an id and a record in these segments.
    pub pairs: u64,
}

/// Result of creating or verifying a certificate.
#[derive(Debug, Clone, Serialize)]
pub struct CertificateReport {
    /// Version of the dataset.
    pub version: Version,
    /// Root of the version, in hexadecimal.
    pub root: String,
    /// Whether the root equals the one that the user expects. Otherwise the certificate shows only what follows from
    /// the root that it contains itself.
    pub root_checked: bool,
    /// The rule.
    pub split: Splits,
    /// The splits, in their order.
    pub splits: Vec<SplitFacts>,
    /// What is wrong with the certificate; absent if it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl CertificateReport {
    /// Returns whether the certificate holds and its root was compared with the expected one.
    pub fn is_complete(&self) -> bool {
        self.problem.is_none() && self.root_checked
    }
}

/// Creates a certificate that no id is in two splits of a version, and saves it to `out` if one is given.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) if the splits of the dataset do not follow from ids that its index
/// states; when the version cannot be read.
pub fn prove_split(
    context: &Context<'_>,
    location: &Location,
    at: Option<&str>,
    out: Option<&Location>,
) -> Result<(Vec<u8>, CertificateReport)> {
    let snapshot = manifest::open_snapshot(context, location, at)?;
    let splits = provable_splits(&snapshot)?;
    let certificate = or_overtaken(Some(&snapshot), make_certificate(&snapshot, splits))?;
    let report = certificate_report(&certificate, Expected { root: Some(&certificate.root), id: None });
    if let Some(problem) = &report.problem {
        return Err(Error::internal(format!("a certificate does not hold: {problem}")));
    }
    let mut bytes = serde_json::to_vec_pretty(&certificate)
        .map_err(|e| Error::internal("encoding a proof failed").with_cause(e))?;
    bytes.push(b'\n');
    if bytes.len() > USUAL_BYTES {
        context.observer.event(Event::Note(format!(
            "the certificate has {}, because the id index has {} segments; `shardify compact` merges them",
            Size(bytes.len() as u64),
            certificate.segments.len()
        )));
    }
    if let Some(out) = out {
        storage::save_file(out, &context.settings, bytes.clone().into())?;
    }
    Ok((bytes, report))
}

/// Returns the rule of a version whose splits can be proved.
fn provable_splits(snapshot: &Snapshot) -> Result<&Splits> {
    let place = snapshot.dataset().store().location().to_string();
    let refused = |text: &str| Error::usage(text).at_location(place.clone());
    let entry = snapshot.entry();
    let Some(splits) = &entry.settings.split else {
        return Err(refused("expected a dataset made with --split, found one whose records are not divided"));
    };
    if entry.settings.divided_by().is_none() {
        return Err(match &splits.by {
            SplitBy::Content => refused("expected splits that follow from ids, found splits that follow from contents"),
            SplitBy::Column(name) => refused(
                "expected splits that follow from ids, found splits that follow from a \
             column",
            )
            .in_column(name.clone()),
            SplitBy::Id | SplitBy::Subject => refused(
                "expected splits that follow from stored ids, found samples or rows in archives, whose keys may have \
                 been renamed",
            ),
        }
        .with_hint("contents and columns are not in the id index, so its root cannot state their splits")
        .with_hint("divide a new dataset with --split-by subject, or with --split-by id for Parquet"));
    }
    Ok(splits)
}

fn make_certificate(snapshot: &Snapshot, split: &Splits) -> Result<Certificate> {
    let tree = VersionTree::new(snapshot, None)?;
    let segments: Vec<String> = tree.segments.iter().map(|segment| segment.text.clone()).collect();
    let splits =
        split_facts(split, &segments).map_err(|problem| Error::internal(format!("a certificate fails: {problem}")))?;
    Ok(Certificate {
        r#type: TYPE.to_owned(),
        schema: SCHEMA,
        version: snapshot.version(),
        root: to_hex(&tree.merkle_root()),
        split: split.clone(),
        splits,
        head: tree.head_text().to_owned(),
        lists: hex_hashes(tree.list_hashes()),
        segments,
    })
}

/// Verifies a certificate in memory; `place` names its origin.
///
/// # Errors
/// When it is not a certificate.
pub(super) fn verify_bytes(
    bytes: &[u8],
    value: &Value,
    place: &str,
    expected: Expected<'_>,
) -> Result<CertificateReport> {
    if value["schema"] != SCHEMA {
        return Err(
            Error::input(format!("expected a certificate of schema {SCHEMA}, found another")).at_location(place)
        );
    }
    if expected.id.is_some() {
        return Err(
            Error::usage("expected no --id, because the certificate is about all ids, found one").at_location(place)
        );
    }
    let bad = |e: serde_json::Error| {
        Error::input("expected a certificate of a split, found something else").at_location(place).with_cause(e)
    };
    // A field that stands twice is an error, and so is one that the format does not have.
    let certificate: Certificate = serde_json::from_slice(bytes).map_err(bad)?;
    if serde_json::to_value(&certificate).map_err(bad)? != *value {
        return Err(Error::input("expected a certificate of a split, found one with other fields").at_location(place));
    }
    Ok(certificate_report(&certificate, expected))
}

/// Returns what a certificate shows, and the first problem with it.
fn certificate_report(certificate: &Certificate, expected: Expected<'_>) -> CertificateReport {
    let problem = check_certificate(certificate)
        .and_then(|()| match expected.root {
            Some(root) if !root.eq_ignore_ascii_case(&certificate.root) => Err("it is about another root".to_owned()),
            _ => Ok(()),
        })
        .err();
    CertificateReport {
        version: certificate.version,
        root: certificate.root.clone(),
        root_checked: expected.root.is_some() && problem.is_none(),
        split: certificate.split.clone(),
        splits: certificate.splits.clone(),
        problem,
    }
}

/// Checks that a certificate follows from its root; the error states what does not.
fn check_certificate(certificate: &Certificate) -> Result<(), String> {
    let mut leaves = vec![merkle::hash_leaf(certificate.head.as_bytes())];
    let lists: Vec<Hash> = certificate.lists.iter().map(|list| decode_hash(list)).collect::<Result<_, _>>()?;
    leaves.extend(lists);
    leaves.extend(certificate.segments.iter().map(|text| merkle::hash_leaf(text.as_bytes())));
    if decode_hash(&certificate.root)? != merkle::merkle_root(&leaves) {
        return Err("its leaves do not lead to the root".to_owned());
    }
    let split = parse_head(certificate)?;
    if split != certificate.split {
        return Err("it states another rule than the root".to_owned());
    }
    if split_facts(&split, &certificate.segments)? != certificate.splits {
        return Err("it states other facts of the splits than the segments".to_owned());
    }
    Ok(())
}

/// Returns the rule that the head states; the head must be that of the certificate's version and leaves.
fn parse_head(certificate: &Certificate) -> Result<Splits, String> {
    let wrong = || "the head is not that of the version".to_owned();
    let lines: Vec<&str> = certificate.head.split('\n').collect();
    let (lines, rule) = match lines.as_slice() {
        [lines @ .., rule, ""] if lines.len() == 6 => (lines, rule.strip_prefix("split ")),
        _ => return Err("the head does not state the rule of the splits".to_owned()),
    };
    ids_of(&certificate.head)?;
    let expected = [
        (1, format!("version {}", certificate.version.0)),
        (3, format!("lists {}", certificate.lists.len())),
        (4, format!("segments {}", certificate.segments.len())),
    ];
    if expected.iter().any(|(at, text)| lines.get(*at) != Some(&text.as_str())) || !lines[5].starts_with("tombstones ")
    {
        return Err(wrong());
    }
    let rule = rule.ok_or_else(wrong)?;
    let splits: Splits = serde_json::from_str(rule).map_err(|_| wrong())?;
    if serde_json::to_string(&splits).ok().as_deref() != Some(rule) {
        return Err(wrong());
    }
    Ok(splits)
}

/// Returns what segments show of each split. Every segment must state one of the splits.
fn split_facts(rule: &Splits, segments: &[String]) -> Result<Vec<SplitFacts>, String> {
    let kind = match rule.by {
        SplitBy::Subject => IdKind::Subject,
        SplitBy::Id => IdKind::Record,
        SplitBy::Content | SplitBy::Column(_) => return Err("its splits do not follow from ids".to_owned()),
    };
    let empty = |(name, share): (&str, f64)| SplitFacts { name: name.to_owned(), share, segments: 0, pairs: 0 };
    let mut splits: Vec<SplitFacts> = rule.shares.names().zip(rule.shares.shares()).map(empty).collect();
    for text in segments {
        let wrong = || "a segment does not state its split".to_owned();
        let words: Vec<&str> = text.strip_suffix('\n').ok_or_else(wrong)?.split(' ').collect();
        let ["segment" | "sealed", of, _, pairs, _, _, name] = words.as_slice() else { return Err(wrong()) };
        let split = splits.iter_mut().find(|split| split.name == *name).ok_or_else(wrong)?;
        if *of == kind.name() {
            split.segments += 1;
            let pairs: u64 = pairs.parse().map_err(|_| wrong())?;
            split.pairs = split.pairs.checked_add(pairs).ok_or_else(wrong)?;
        }
    }
    Ok(splits)
}
