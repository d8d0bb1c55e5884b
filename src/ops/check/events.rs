//! OpenLineage events of `check`: the dataset as an input, with the results as its data quality facets.

use serde_json::{Map, Value, json};

use super::{CheckReport, ColumnMetrics, RuleReport, Severity, Status};
use crate::{
    dataset::PrivateChoice,
    error::Result,
    ops::{
        Context,
        lineage::{CHECK, LineageJob, RunOutcome, new_facet, with_events},
    },
    storage::Location,
};

const ASSERTIONS_SCHEMA: &str = "https://openlineage.io/spec/facets/1-1-0/DataQualityAssertionsDatasetFacet.json\
                                 #/$defs/DataQualityAssertionsDatasetFacet";
const METRICS_SCHEMA: &str = "https://openlineage.io/spec/facets/1-0-2/DataQualityMetricsInputDatasetFacet.json\
                              #/$defs/DataQualityMetricsInputDatasetFacet";

/// Checks a dataset and sends lineage events to `to`, as [`with_events`] does. A check whose rules fail is a run that
/// completes, with assertions that did not succeed.
///
/// # Errors
/// Those of [`with_events`].
pub fn with_check(
    context: &Context<'_>,
    to: Option<&str>,
    dataset: &Location,
    run: impl FnOnce() -> Result<CheckReport>,
) -> Result<CheckReport> {
    let job = LineageJob { name: CHECK, sources: &[], output: dataset, private: PrivateChoice::default() };
    with_events(context, to, &job, run)
}

impl From<&CheckReport> for RunOutcome {
    fn from(report: &CheckReport) -> Self {
        let assertion = |rule: &RuleReport| {
            let severity = if rule.severity == Severity::Warn { "warn" } else { "error" };
            let success = rule.status == Status::Pass;
            let mut fields = json!({
                "assertion": rule.rule,
                "success": success,
                "severity": severity,
                "expected": rule.expected,
                "actual": rule.found,
            });
            if let Some(column) = &rule.column {
                fields["column"] = json!(column);
            }
            fields
        };
        let decided = report.results.iter().filter(|rule| rule.status != Status::Skip);
        let assertions: Vec<Value> = decided.map(assertion).collect();
        let column = |column: &ColumnMetrics| {
            let mut fields =
                json!({ "nullCount": column.nulls, "count": column.records - column.nulls.min(column.records) });
            if let Some(distinct) = column.distinct {
                fields["distinctCount"] = json!(distinct);
            }
            for (name, number) in [("min", column.min), ("max", column.max)] {
                if let Some(number) = number {
                    fields[name] = json!(number);
                }
            }
            (column.column.clone(), fields)
        };
        let metrics = json!({
            "rowCount": report.records,
            "bytes": report.bytes,
            "fileCount": report.shards,
            "columnMetrics": report.columns.iter().map(column).collect::<Map<_, _>>(),
        });
        let input_facets = Map::from_iter([
            ("dataQualityAssertions".to_owned(), new_facet(ASSERTIONS_SCHEMA, json!({ "assertions": assertions }))),
            ("dataQualityMetrics".to_owned(), new_facet(METRICS_SCHEMA, metrics)),
        ]);
        Self { version: Some(report.version), input_facets, ..Self::default() }
    }
}
