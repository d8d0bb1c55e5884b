//! Arguments of `check`.

use clap::Args;

use super::LineageArgs;

/// What help says of rules. As a doc comment, the example would be a test of Rust code.
const RULES: &str = r#"File of rules, in TOML

A path or a URL. Every table and every key is optional:

    [freshness]
    max_age = "26h"                 # since records were added
    column = "visited_at"           # or the newest value of a column

    [volume]
    min_records = 1_000
    max_records = 9_000_000
    max_change = 0.5                # relative, against another version
    against = "previous"            # or a version, tag, date, duration before now

    [schema]
    columns = { person_id = "int64", city = "text" }
    extra_columns = false           # no others
    against = "v1"                  # the columns of another version

    [columns.person_id]
    not_null = true
    unique = true

    [columns.year_of_birth]
    max_null_share = 0.01
    min = 1900
    max = 2026
    severity = "warn"               # in any table: reported, exit code 0

    [columns.city]
    accepted_values = ["Bonn", "Kiel"]
    pattern = "^[A-Z]"              # a regular expression that finds a match

    [drift]
    against = "release-1"
    max_psi = 0.2                   # population stability index
    max_null_change = 0.1
    columns = ["city"]              # all by default

    [splits]                        # nobody is in two splits
    by = "subject"                  # or id, or a column
    column = "split"                # states the split, unless folders split=NAME do"#;

/// Arguments of `check`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CheckArgs {
    /// Dataset [default: ./shards].
    pub(in crate::cli) dataset: Option<String>,
    #[arg(long, short = 'r', value_name = "FILE", help = "File of rules, in TOML", long_help = RULES)]
    pub(in crate::cli) rules: String,
    /// Version to check [default: newest].
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    pub(in crate::cli) at: Option<String>,
    /// Write the results as Prometheus metrics to a file; `-` is standard output.
    ///
    /// The file is replaced at once, as the textfile collector of node_exporter needs it. If the check cannot be run,
    /// it stays as it was: an alert on the age of shardify_check_timestamp_seconds notices that.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(in crate::cli) prometheus: Option<String>,
    #[command(flatten)]
    pub(in crate::cli) lineage: LineageArgs,
}
