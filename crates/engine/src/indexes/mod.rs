//! Indexes for training tools: one file or folder for each kind, which says what the index asks of a dataset and
//! writes its files.
//!
//! | files | written | by |
//! |---|---|---|
//! | beside a shard | while the bytes of the shard pass by | [`shard`], [`Index::start_beside`] |
//! | of a folder | before the commit that adds the folder | [`of_folders`], [`Index::of_folder`] |
//! | of a version | after the commit, from its snapshot | [`version`], [`Index::of_version`] |
//!
//! A new kind is a file here, a line in [`index_for`], and a line in [`format::index`](crate::format::index) that says
//! what its files are called. Everything else asks these two.

mod dali;
mod delta;
mod energon;
mod hf;
pub mod kind;
pub mod names;
pub mod shard;
mod tfindex;
pub mod version;
mod wids;

use std::collections::BTreeMap;

use self::kind::{About, Index, ShardWithMd5};
use crate::{
    codec::Codec,
    dataset::folder_of,
    error::{Error, Result},
    format::{OutputFormat, index::IndexKind},
    storage::{Staged, Store},
};

/// Returns what a kind of index is.
pub fn index_for(kind: IndexKind) -> &'static dyn Index {
    match kind {
        IndexKind::Dali => &dali::Dali,
        IndexKind::Wids => &wids::Wids,
        IndexKind::Energon => &energon::Energon,
        IndexKind::TfIndex => &tfindex::TfIndex,
        IndexKind::Delta => &delta::Delta,
        IndexKind::Hf => &hf::Hf,
    }
}

/// Whether one of the kinds is such an index.
pub fn any_kind(kinds: &[IndexKind], is: impl Fn(&About) -> bool) -> bool {
    kinds.iter().any(|kind| is(index_for(*kind).about()))
}

/// Whether shards of this format and codec can have the index.
pub fn fits_shards(kind: IndexKind, format: OutputFormat, codec: Codec) -> bool {
    is_plain(format, codec) && index_for(kind).about().formats.contains(&format)
}

fn is_plain(format: OutputFormat, codec: Codec) -> bool {
    codec == Codec::None || format.is_columnar()
}

fn fitting_kinds(format: OutputFormat, codec: Codec) -> impl Iterator<Item = IndexKind> {
    IndexKind::ALL.iter().copied().filter(move |kind| fits_shards(*kind, format, codec))
}

/// Returns the kinds that datasets have by default.
pub fn default_kinds(format: OutputFormat, codec: Codec) -> Vec<IndexKind> {
    fitting_kinds(format, codec).filter(|kind| index_for(*kind).about().is_default).collect()
}

/// Fails on kinds that these shards cannot have, or that this program cannot write.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) that names the kinds that fit.
pub fn check_kinds(kinds: &[IndexKind], format: OutputFormat, codec: Codec) -> Result<()> {
    let Some(kind) = kinds.iter().find(|kind| !fits_shards(**kind, format, codec)) else {
        return IndexKind::check_built(kinds);
    };
    let names = |codec| {
        let names: Vec<&str> = fitting_kinds(format, codec).map(|kind| kind.files().name).collect();
        match names.split_last() {
            Some((last, [_, ..])) => format!("{} or {last}", names[..names.len() - 1].join(", ")),
            _ => names.concat(),
        }
    };
    let hint = match (names(codec), names(Codec::None)) {
        (now, plain) if now.is_empty() => format!("use --codec none, which allows {plain}, or --index none"),
        (now, _) => format!("use {now}"),
    };
    let packed = if is_plain(format, codec) { String::new() } else { format!("{codec}-compressed ") };
    let refused = format!("--index {kind} cannot be used with {packed}{} shards", format.title());
    Err(Error::usage(refused).with_hint(hint))
}

/// Stages the files of the folders of new shards.
///
/// # Errors
/// When the store fails.
pub fn of_folders<'a>(
    store: &dyn Store,
    kinds: &[IndexKind],
    shards: impl IntoIterator<Item = ShardWithMd5<'a>>,
) -> Result<Vec<Staged>> {
    let mut folders: BTreeMap<&str, Vec<ShardWithMd5<'_>>> = BTreeMap::new();
    for shard in shards {
        folders.entry(folder_of(&shard.0.path)).or_default().push(shard);
    }
    let files = kinds.iter().flat_map(|kind| folders.values().map(|shards| index_for(*kind).of_folder(store, shards)));
    files.filter_map(Result::transpose).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_do_not_fit_are_refused_with_those_that_do() {
        let hint = |kind, format, codec| check_kinds(&[kind], format, codec).unwrap_err().hints()[0].clone();
        assert_eq!(hint(IndexKind::TfIndex, OutputFormat::Tar, Codec::None), "use dali, wids, energon or hf");
        assert_eq!(
            hint(IndexKind::Dali, OutputFormat::Tar, Codec::Gzip(6)),
            "use --codec none, which allows dali, wids, energon or hf, or --index none"
        );
        assert_eq!(hint(IndexKind::Dali, OutputFormat::Parquet, Codec::Zstd(1)), "use delta or hf");
        for format in [OutputFormat::Parquet, OutputFormat::Tar, OutputFormat::TfRecord] {
            for codec in [Codec::None, Codec::Zstd(1), Codec::Gzip(6)] {
                assert!(check_kinds(&default_kinds(format, codec), format, codec).is_ok());
            }
        }
    }
}
