//! The results of `check` in the text format of Prometheus, 0.0.4, for the textfile collector of node_exporter or a
//! Pushgateway.
//!
//! All metrics are gauges, in base units. Labels are texts of the user's, so they are escaped.

use std::fmt::Write as _;

use crate::ops::check::{CheckReport, RuleReport, Severity, Status};

/// Returns the metrics.
pub(super) fn text(report: &CheckReport) -> String {
    let mut out = Metrics { text: String::new(), dataset: report.dataset.clone() };
    let whole = |number: u64| number as f64;
    out.one("check_success", "Whether no rule failed.", f64::from(report.status != Status::Fail));
    out.one("check_failed_rules", "Number of rules that failed.", whole(report.failed));
    out.one("check_warned_rules", "Number of rules of severity warn that do not hold.", whole(report.warned));
    out.one("check_timestamp_seconds", "When the dataset was checked.", seconds(report.checked_at));
    out.one("check_duration_seconds", "Time that the check took.", report.seconds);
    out.one("dataset_version", "Version that was checked.", whole(report.version.0));
    out.one("dataset_committed_timestamp_seconds", "When the version was committed.", seconds(report.committed_at));
    out.one("dataset_records", "Number of records.", whole(report.records));
    out.one("dataset_shards", "Number of shards.", whole(report.shards));
    out.one("dataset_bytes", "Bytes of the shards.", whole(report.bytes));
    out.head("check_rule_success", "Whether a rule holds; rules that were skipped are missing.");
    for rule in report.results.iter().filter(|rule| rule.status != Status::Skip) {
        out.sample("check_rule_success", &labels(rule), f64::from(rule.status == Status::Pass));
    }
    out.head("check_rule_value", "The number that decides a rule: seconds, records, a share, or an index.");
    for rule in &report.results {
        if let Some(value) = rule.value {
            out.sample("check_rule_value", &labels(rule), value);
        }
    }
    out.head("column_nulls", "Number of nulls of a column with rules.");
    for column in &report.columns {
        out.sample("column_nulls", &[("column", column.column.as_str())], whole(column.nulls));
    }
    out.text
}

fn seconds(time: jiff::Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1e3
}

fn labels(rule: &RuleReport) -> Vec<(&'static str, &str)> {
    let severity = if rule.severity == Severity::Warn { "warn" } else { "error" };
    let mut labels = vec![("rule", rule.rule), ("severity", severity)];
    labels.extend(rule.column.as_deref().map(|column| ("column", column)));
    labels
}

struct Metrics {
    text: String,
    dataset: String,
}

impl Metrics {
    fn head(&mut self, name: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP shardify_{name} {help}\n# TYPE shardify_{name} gauge");
    }

    fn one(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help);
        self.sample(name, &[], value);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "shardify_{name}{{dataset=\"{}\"", escaped(&self.dataset));
        for (label, text) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escaped(text));
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut metrics = Metrics { text: String::new(), dataset: "a\"b".to_owned() };
        metrics.sample("x", &[("column", "c\\d\ne")], 0.5);
        assert_eq!(metrics.text, "shardify_x{dataset=\"a\\\"b\",column=\"c\\\\d\\ne\"} 0.5\n");
    }
}
