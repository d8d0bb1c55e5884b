//! Arguments of `reshard`.

use std::path::PathBuf;

use clap::Args;

use super::{count, size};
use crate::{
    error::{Error, Result},
    ops::{
        convert,
        reshard::{RecordSample, ReshardOptions, cut_of},
    },
    record::dedup::{DedupBy, DedupChoice},
    units::Size,
};

/// Arguments of `reshard`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ReshardArgs {
    /// Dataset to rewrite [default: ./shards].
    pub(in crate::cli) dataset: Option<String>,
    /// Version to rewrite [default: newest].
    ///
    /// A version (v12), a tag, an instant, a date or a duration before now.
    #[arg(long, value_name = "WHEN", help_heading = "Selection")]
    at: Option<String>,
    /// Take the records with the ids of a file, one per line.
    ///
    /// Record ids, subject ids or origins (file#row), as `manifest --find` takes them. In a file .jsonl, each line is a
    /// JSON string. - is standard input. Ids that no record has are counted, and --json lists them.
    #[arg(long, value_name = "FILE", help_heading = "Selection")]
    pub(in crate::cli) ids: Option<PathBuf>,
    /// Take the records that satisfy a condition.
    ///
    /// Parquet only. The condition is written as in SQL, as for `convert`: "age >= 18 and site in ('A', 'B')".
    #[arg(long = "where", value_name = "CONDITION", help_heading = "Selection")]
    filter: Option<String>,
    /// Take only these splits of a dataset made with `convert --split`.
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', help_heading = "Selection")]
    split: Vec<String>,
    /// Take a random share of the records, such as 0.1.
    ///
    /// Whether a record is taken follows from its number and --seed alone. A larger share contains a smaller one.
    #[arg(long, value_name = "SHARE", help_heading = "Selection")]
    sample: Option<f64>,
    /// With --sample: choose other records.
    #[arg(long, value_name = "N", requires = "sample", default_value_t = 0, help_heading = "Selection")]
    seed: u64,
    /// Take the first of duplicates: by content, id, or columns.
    ///
    /// As `convert --dedup` finds them: of samples, columns are parts, such as jpg; `column:id` is the column of that
    /// name. Which record is first follows from the order of the dataset. Of an image whose file is repeated under
    /// other names, `--dedup jpg` takes one.
    #[arg(long, value_name = "BY", value_parser = dedup_by, help_heading = "Selection")]
    dedup: Option<DedupBy>,
    /// Put the records in a random order, which follows from a seed.
    ///
    /// Exact over all records, as by `convert --shuffle`: the same seed gives the same order. Each split is
    /// shuffled by itself. Later conversions into the new dataset shuffle what they add.
    #[arg(long, value_name = "SEED", help_heading = "Output")]
    shuffle: Option<u64>,
    /// New dataset: a folder or URL without one.
    #[arg(long, short = 'o', alias = "output", value_name = "DATASET", help_heading = "Output")]
    pub(in crate::cli) out: String,
    /// Shard size on disk [default: that of the dataset].
    ///
    /// Shards are even, and near this size.
    #[arg(long, alias = "shard-size", value_name = "SIZE", value_parser = size, conflicts_with_all = ["shards",
        "records_per_shard"],
          help_heading = "Output")]
    target_shard: Option<Size>,
    /// Number of shards, of about equal size.
    ///
    /// The end of a Parquet shard is moved by up to 5 % to the end of a row group, which then needs no decoding.
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "records_per_shard", help_heading = "Output")]
    shards: Option<u64>,
    /// With --shards: even in records, not in bytes.
    ///
    /// Numbers of records differ by at most one, for ranks that wait for each other. Each split has so many
    /// shards.
    #[arg(long, requires = "shards", help_heading = "Output")]
    even: bool,
    /// Records of each shard; the last one has the rest.
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Output")]
    records_per_shard: Option<u64>,
    /// Print the plan without writing anything.
    #[arg(long, help_heading = "Output")]
    dry_run: bool,
    /// File with the key of private ids.
    ///
    /// The default is the key in $SHARDIFY_ID_KEY. Used by --ids.
    #[arg(long, value_name = "FILE", help_heading = super::IDS, hide_short_help = true)]
    pub(in crate::cli) id_key: Option<PathBuf>,
}

fn dedup_by(text: &str) -> Result<DedupBy, String> {
    match text.parse()? {
        DedupChoice::By(by) => Ok(by),
        DedupChoice::None => {
            Err("expected content, id, or names of columns; without --dedup, all are taken".to_owned())
        }
    }
}

impl ReshardArgs {
    /// Returns the options; `ids` are the lines of the file of ids.
    pub(in crate::cli) fn to_options(&self, ids: Option<Vec<String>>) -> Result<ReshardOptions> {
        if let Some(share) = self.sample.filter(|share| !(*share > 0.0 && *share <= 1.0)) {
            return Err(Error::usage(format!("expected a --sample above 0 and up to 1, found {share}")));
        }
        Ok(ReshardOptions {
            at: self.at.clone(),
            cut: cut_of(self.target_shard, self.shards, self.records_per_shard, self.even),
            ids,
            filter: self.filter.as_deref().map(convert::parse_condition).transpose()?,
            sample: self.sample.map(|share| RecordSample { share, seed: self.seed }),
            split: self.split.clone(),
            dedup: self.dedup.clone(),
            shuffle: self.shuffle,
            dry_run: self.dry_run,
        })
    }
}
