//! Checks that records are in the split of a dataset that they belong to.

use crate::{
    dataset::{IdColumn, IdKind, Settings, token_of},
    error::{Error, Result},
    record::split::{Split, Splits},
};

/// Check that the stored ids of records belong to the split that the records are in.
#[derive(Debug, Clone, Copy)]
pub struct SplitCheck<'a> {
    splits: &'a Splits,
    split: Split,
    kind: IdKind,
    is_private: bool,
}

impl<'a> SplitCheck<'a> {
    /// Returns the check for records in a split; `None` if splits do not follow from ids that are stored.
    pub fn new(settings: &'a Settings, split: Split) -> Option<Self> {
        let (splits, kind) = settings.divided_by()?;
        Some(Self { splits, split, kind, is_private: settings.private.is_some() })
    }

    /// Checks the id of a row.
    ///
    /// # Errors
    /// [`Kind::Integrity`](crate::error::Kind::Integrity) if the id belongs to another side.
    pub fn check_row(&self, row: u64, kind: IdKind, stored: &str) -> Result<()> {
        if kind != self.kind {
            return Ok(());
        }
        let split = self.splits.split_of_group(if self.is_private { token_of(stored) } else { stored });
        if split == self.split {
            return Ok(());
        }
        let (own, found) = (self.splits.split_folder(split), self.splits.split_folder(self.split));
        Err(Error::integrity(format!(
            "the {} id `{stored}` of row {row} belongs to {own}, found it in {found}",
            kind.name()
        )))
    }

    /// Checks the ids of consecutive records, if they are of the kind that splits follow from.
    ///
    /// # Errors
    /// As [`Self::check_row`].
    pub fn check_column(&self, kind: IdKind, ids: Option<&IdColumn>) -> Result<()> {
        let Some(ids) = ids.filter(|_| kind == self.kind) else { return Ok(()) };
        // Neighbouring records often have one id.
        let mut last = None;
        for (row, id) in (0..).zip(ids.texts()) {
            if id.is_some() && id != last {
                self.check_row(row, kind, id.unwrap_or_default())?;
            }
            last = id;
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::array::StringArray;

    use super::*;
    use crate::record::split::SplitBy;

    #[test]
    fn an_id_in_the_folder_of_another_split_is_found() {
        let shares = "train=0.5,test=0.5".parse().unwrap();
        let splits = Splits { shares, by: SplitBy::Subject, seed: 0 };
        let check = |split| SplitCheck { splits: &splits, split, kind: IdKind::Subject, is_private: false };
        for patient in (0..100).map(|number| format!("PAT-{number}")) {
            let own = splits.split_of_group(&patient);
            assert!(check(own).check_row(7, IdKind::Subject, &patient).is_ok());
            assert!(check(1 - own).check_row(7, IdKind::Record, &patient).is_ok());
            let error = check(1 - own).check_row(7, IdKind::Subject, &patient).unwrap_err().to_string();
            assert!(error.contains(&format!("`{patient}` of row 7 belongs to split=")), "{error}");
            let column = IdColumn::from(StringArray::from(vec![None, Some(patient.as_str()), Some(patient.as_str())]));
            assert!(check(own).check_column(IdKind::Subject, Some(&column)).is_ok());
            assert!(check(1 - own).check_column(IdKind::Subject, Some(&column)).is_err());
            assert!(check(1 - own).check_column(IdKind::Record, Some(&column)).is_ok());
        }
    }
}
