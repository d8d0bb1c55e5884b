//! Context of a run that is never serialised: the dataset, keys, lists of erased ids, and the user's options.

use super::{
    dedup, keys,
    options::{Accept, ConvertOptions},
    select::ALL_COLUMNS,
    shuffle, split,
};
use crate::{
    dataset::{Dataset, HashWidth, PlanRecord, Pseudonymizer, Settings, Snapshot, SuppressList, choose_private},
    error::{Error, Result},
    format::{OutputFormat, index::IndexKind},
    id::Version,
    ops::{Context, indexes, tasks::Tasks},
    units::Size,
};

/// The context of a conversion.
pub(super) struct ConvertJob<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) dataset: &'a Dataset,
    /// Version that the run is planned on; `None` if the dataset is new.
    pub(super) snapshot: Option<&'a Snapshot>,
    pub(super) options: &'a ConvertOptions,
    /// Pseudonymizes ids; `None` if they are not private.
    pub(super) pseudonymizer: Option<Pseudonymizer>,
    /// Erased records, which must not come back; `None` if nothing was erased.
    pub(super) suppress: Option<SuppressList>,
}

impl<'a> ConvertJob<'a> {
    /// Returns the tasks of a plan of this run.
    pub(super) fn plan_tasks<'t>(&'t self, record: &'t PlanRecord) -> Tasks<'t> {
        Tasks { context: self.context, dataset: self.dataset, record }
    }

    /// Chooses the settings of the dataset: those that it has, unless the user asks for others.
    ///
    /// # Errors
    /// When they contradict the dataset or each other.
    pub(super) fn new(
        context: &'a Context<'a>,
        dataset: &'a Dataset,
        snapshot: Option<&'a Snapshot>,
        options: &'a ConvertOptions,
        suppress: Option<SuppressList>,
    ) -> Result<(Self, Settings)> {
        let old = snapshot.map(|s| &s.entry().settings);
        if let (Some(old), Some(to)) = (old, options.to)
            && old.shard_format != to
        {
            return Err(Error::usage(format!(
                "this dataset has {} shards; you gave --to {to}",
                old.shard_format.title()
            ))
            .at_location(dataset.store().location().to_string())
            .with_hint("name another dataset with --out"));
        }
        let format = options.to.or(old.map(|o| o.shard_format)).unwrap_or(OutputFormat::Parquet);
        let id = if options.id.is_empty() { old.map(|o| o.id.clone()).unwrap_or_default() } else { options.id.clone() };
        let mut settings = Settings {
            shard_format: format,
            codec: options.codec.or(old.map(|o| o.codec)).unwrap_or_else(|| format.default_codec()),
            target_shard: options.target_shard.or(old.map(|o| o.target_shard)).unwrap_or(Size::from_mib(128)),
            row_group: options.write.row_group().or(old.map(|o| o.row_group)).unwrap_or(Size::from_mib(64)),
            id,
            subject: options.subject.clone().or_else(|| old.and_then(|o| o.subject.clone())),
            subjects_from: match &options.subjects {
                Some(source) => Some(source.to_recorded()),
                None => old.and_then(|o| o.subjects_from.clone()),
            },
            keys: keys::choose_key_rule(snapshot, options.key.as_ref())?,
            labels: old.and_then(|o| o.labels.clone()),
            label_types: old.and_then(|o| o.label_types.clone()),
            units: old.map(|o| o.units.clone()).unwrap_or_default(),
            label_column: options.label_column.clone().or_else(|| old.and_then(|o| o.label_column.clone())),
            classes: old.and_then(|o| o.classes.clone()).or_else(|| options.label_from_folder.then(Vec::new)),
            indexes: old.map(|o| o.indexes.clone()).unwrap_or_default(),
            columns: match options.columns.as_slice() {
                [] => old.map(|o| o.columns.clone()).unwrap_or_default(),
                [all] if all == ALL_COLUMNS => Vec::new(),
                some => some.to_vec(),
            },
            types: old.and_then(|o| o.types.clone()),
            retyped: old.map(|o| o.retyped.clone()).unwrap_or_default(),
            split: None,
            dedup: None,
            limit: choose_limit(snapshot, options)?,
            shuffle: shuffle::choose_seed(snapshot, options.shuffle)?,
            hash_records: options.hash_records || old.is_some_and(|o| o.hash_records),
            hashes: HashWidth::for_dataset(old.map(|o| o.hashes), options.proofs)
                .map_err(|error| error.at_location(dataset.store().location().to_string()))?,
            private: choose_private(old, options.private, context.id_key.as_ref())
                .map_err(|error| error.at_location(dataset.store().location().to_string()))?,
        };
        settings.dedup = dedup::choose_dedup(snapshot, options.dedup.as_ref())?;
        settings.split = split::choose_splits(snapshot, options.split.as_ref(), &settings)?;
        let pseudonymizer = Pseudonymizer::from_settings(&settings, context.id_key.as_ref())?;
        check_sizes(&settings)?;
        Ok((Self { context, dataset, snapshot, options, pseudonymizer, suppress }, settings))
    }

    /// Returns the version that the run is planned on; 0 if the dataset is new.
    pub(super) fn base_version(&self) -> Version {
        self.snapshot.map_or(Version(0), Snapshot::version)
    }

    /// Returns the indexes that shards get.
    ///
    /// # Errors
    /// When shards of the format cannot have a requested index.
    pub(super) fn choose_indexes(&self, settings: &Settings) -> Result<Vec<IndexKind>> {
        let old = self.snapshot.map(|s| s.entry().settings.indexes.as_slice());
        indexes::choose_indexes(self.options.index.as_deref(), old, settings.shard_format, settings.codec)
    }

    /// Returns an error unless the user has accepted a difference between new data and the dataset.
    ///
    /// # Errors
    /// [`Kind::Changed`](crate::error::Kind::Changed) with the message.
    pub(super) fn require_accepted(&self, accept: Accept, word: &str, message: impl FnOnce() -> String) -> Result<()> {
        if self.options.accept.contains(&accept) {
            return Ok(());
        }
        Err(Error::changed(message())
            .at_location(self.dataset.store().location().to_string())
            .with_hint("name another dataset with --out")
            .with_hint(format!("or accept it with --accept {word}")))
    }
}

/// Chooses how many records the dataset gets, if it is a trial.
fn choose_limit(snapshot: Option<&Snapshot>, options: &ConvertOptions) -> Result<Option<u64>> {
    // What replaces all records begins anew.
    let Some(snapshot) = snapshot.filter(|_| !options.overwrite) else { return Ok(options.limit) };
    let refused = |message: String| {
        let error = Error::usage(message).at_location(snapshot.dataset().store().location().to_string());
        Err(error.with_hint("name another dataset with --out, or replace all records of this one with --overwrite"))
    };
    match (snapshot.entry().settings.limit, options.limit) {
        (Some(limit), _) => {
            refused(format!("this dataset is a trial of the first records of its inputs (--limit {limit})"))
        }
        (None, Some(_)) => refused("expected a new dataset for --limit, found one with records".to_owned()),
        (None, None) => Ok(None),
    }
}

/// Checks the sizes of shards and row groups.
fn check_sizes(settings: &Settings) -> Result<()> {
    let (target, row_group) = (settings.target_shard, settings.row_group);
    if target.0 == 0 {
        return Err(Error::usage("expected a --target-shard of at least one byte, found 0"));
    }
    if row_group > Size::from_mib(128) {
        return Err(Error::usage(format!("expected a --write row-group of at most 128 MiB, found {row_group}"))
            .with_hint("readers decode a row group at once; larger ones exhaust their memory"));
    }
    Ok(())
}
