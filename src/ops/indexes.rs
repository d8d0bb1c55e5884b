//! Which indexes the shards of a dataset get.
//!
//! All shards of a dataset have the same ones, because most of them are of use only when they are complete; so they are
//! chosen when the dataset is made.

use crate::{
    codec::Codec,
    error::{Error, Result},
    format::{OutputFormat, index::IndexKind},
};

/// The indexes of a run: what was asked for, else what the dataset has, else what suits the shards and costs little.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) for kinds that these shards cannot have, or that older shards do not have.
pub fn choose(
    asked: Option<&[IndexKind]>,
    old: Option<&[IndexKind]>,
    format: OutputFormat,
    codec: Codec,
) -> Result<Vec<IndexKind>> {
    let asked = asked.map(|kinds| {
        let mut kinds = kinds.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    });
    let kinds = match (asked, old) {
        (Some(asked), Some(old)) if asked != old => {
            return Err(Error::usage(format!(
                "expected --index {}, as this dataset has, found {}",
                text(old),
                text(&asked)
            ))
            .hint(
                "all shards of a dataset have the same indexes: leave --index out, or name another dataset with --out",
            ));
        }
        (_, Some(old)) => old.to_vec(),
        (Some(asked), None) => asked,
        (None, None) => IndexKind::auto(format, codec),
    };
    IndexKind::check(&kinds, format, codec)?;
    Ok(kinds)
}

/// The kinds as on the command line.
pub fn text(kinds: &[IndexKind]) -> String {
    if kinds.is_empty() {
        return "none".to_owned();
    }
    kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_keeps_its_indexes() {
        use IndexKind::{Dali, TfIndex, Wids};
        let tar =
            |asked: Option<&[IndexKind]>, old: Option<&[IndexKind]>| choose(asked, old, OutputFormat::Tar, Codec::None);
        assert_eq!(tar(None, None).unwrap(), [Dali]);
        assert_eq!(tar(Some(&[Wids, Dali, Wids]), None).unwrap(), [Dali, Wids]);
        assert_eq!(tar(Some(&[Wids, Dali]), Some(&[Dali, Wids])).unwrap(), [Dali, Wids]);
        assert_eq!(tar(None, Some(&[])).unwrap(), []);
        assert_eq!(tar(Some(&[]), None).unwrap(), []);
        assert!(tar(Some(&[Dali]), Some(&[])).is_err());
        assert!(tar(Some(&[TfIndex]), None).is_err());
        assert!(choose(None, Some(&[Dali]), OutputFormat::Tar, Codec::Gzip(6)).is_err());
        assert_eq!(choose(None, None, OutputFormat::TfRecord, Codec::None).unwrap(), [Dali, TfIndex]);
        assert_eq!(choose(None, None, OutputFormat::TfRecord, Codec::Gzip(6)).unwrap(), []);
    }
}
