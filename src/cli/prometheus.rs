//! The results of `check` in the text format of Prometheus, 0.0.4, for the textfile collector of node_exporter or a
//! Pushgateway.
//!
//! All metrics are gauges, in base units. Labels are texts of the user's, so they are escaped.

use std::fmt::Write as _;

use crate::ops::check::{CheckReport, RuleReport, Severity, Status};

/// Returns the metrics.
pub(super) fn metrics_text(report: &CheckReport) -> String {
    let mut out = Metrics { text: String::new(), dataset: report.dataset.clone() };
    let whole = |number: u64| number as f64;
    out.write_gauge("check_success", "Whether no rule failed.", f64::from(report.status != Status::Fail));
    out.write_gauge("check_failed_rules", "Number of rules that failed.", whole(report.failed));
    out.write_gauge("check_warned_rules", "Number of rules of severity warn that do not hold.", whole(report.warned));
    out.write_gauge("check_timestamp_seconds", "When the dataset was checked.", unix_seconds(report.checked_at));
    out.write_gauge("check_duration_seconds", "Time that the check took.", report.seconds);
    out.write_gauge("dataset_version", "Version that was checked.", whole(report.version.0));
    out.write_gauge(
        "dataset_committed_timestamp_seconds",
        "When the version was committed.",
        unix_seconds(report.committed_at),
    );
    out.write_gauge("dataset_records", "Number of records.", whole(report.records));
    out.write_gauge("dataset_shards", "Number of shards.", whole(report.shards));
    out.write_gauge("dataset_bytes", "Bytes of the shards.", whole(report.bytes));
    out.write_head("check_rule_success", "Whether a rule holds; rules that were skipped are missing.");
    for rule in report.results.iter().filter(|rule| rule.status != Status::Skip) {
        out.write_sample("check_rule_success", &rule_labels(rule), f64::from(rule.status == Status::Pass));
    }
    out.write_head("check_rule_value", "The number that decides a rule: seconds, records, a share, or an index.");
    for rule in &report.results {
        if let Some(value) = rule.value {
            out.write_sample("check_rule_value", &rule_labels(rule), value);
        }
    }
    out.write_head("column_nulls", "Number of nulls of a column with rules.");
    for column in &report.columns {
        out.write_sample("column_nulls", &[("column", column.column.as_str())], whole(column.nulls));
    }
    out.text
}

fn unix_seconds(time: jiff::Timestamp) -> f64 {
    time.as_millisecond() as f64 / 1e3
}

fn rule_labels(rule: &RuleReport) -> Vec<(&'static str, &str)> {
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
    fn write_head(&mut self, name: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# HELP shardify_{name} {help}\n# TYPE shardify_{name} gauge");
    }

    fn write_gauge(&mut self, name: &str, help: &str, value: f64) {
        self.write_head(name, help);
        self.write_sample(name, &[], value);
    }

    fn write_sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "shardify_{name}{{dataset=\"{}\"", escape_label(&self.dataset));
        for (label, text) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escape_label(text));
        }
        let _ = writeln!(self.text, "}} {value}");
    }
}

fn escape_label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut metrics = Metrics { text: String::new(), dataset: "a\"b".to_owned() };
        metrics.write_sample("x", &[("column", "c\\d\ne")], 0.5);
        assert_eq!(metrics.text, "shardify_x{dataset=\"a\\\"b\",column=\"c\\\\d\\ne\"} 0.5\n");
    }
}
