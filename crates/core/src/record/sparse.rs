//! Tables that outgrow their records: names that are data make a column each, and a record has few of them.
//!
//! A table has a cell for each record and column, so 20,000 objects with a key of their own are 400 million cells, of
//! which almost all are null: gigabytes of memory, and a footer larger than the data.
//!
//! ```text
//! {"id": 1, "user_8f2": 3}        id  user_8f2  user_c01  user_77a  ...
//! {"id": 2, "user_c01": 1}   ->    1         3         -         -
//! {"id": 3, "user_77a": 9}         2         -         1         -
//! ```
//!
//! Such a table is refused as soon as it is seen to be one. Objects *within* records become JSON long before.

use crate::error::{Error, Result};

/// Tables of at most so many columns never are too sparse.
const MANY_COLUMNS: u64 = 256;

/// Neither are tables of at most so many cells, of 8 bytes or more.
const MANY_CELLS: u64 = 4 << 20;

/// Cells for each byte of the text of records from which their table is too sparse. A value with its name has about ten
/// bytes or more, so a record has fewer than one in eighty columns then.
const CELLS_PER_BYTE: u64 = 8;

/// Cells for each value from which a table is too sparse, for records whose bytes may be compressed or few.
const CELLS_PER_VALUE: u64 = 128;

/// Most columns of a source whose types are looked for: what is known of each takes some hundred bytes.
pub const MOST_COLUMNS: usize = 1 << 20;

/// Returns the most records that so many bytes of text may be of a table with so many columns.
pub fn most_records(columns: usize, bytes: usize) -> usize {
    let columns = columns as u64;
    if columns <= MANY_COLUMNS {
        return usize::MAX;
    }
    let cells = MANY_CELLS.max((bytes as u64).saturating_mul(CELLS_PER_BYTE));
    usize::try_from(cells / columns).unwrap_or(usize::MAX)
}

/// Bytes of text from which the length of its records is estimated.
const HEAD: usize = 64 << 10;

/// Returns how many times as much memory as others these lines may take in a table with so many columns: usual ones
/// become about twice their bytes.
pub fn growth_factor(columns: usize, lines: &[u8]) -> u64 {
    let columns = columns as u64;
    if columns <= MANY_COLUMNS {
        return 1;
    }
    let head = &lines[..lines.len().min(HEAD)];
    let records = memchr::memchr_iter(b'\n', head).count().max(1) as u64;
    (8 * columns * records / (2 * head.len().max(1) as u64)).clamp(1, 4 * CELLS_PER_BYTE)
}

/// Returns the error for a table with so many columns that its records have few of.
pub fn too_sparse(columns: usize) -> Error {
    Error::usage(format!(
        "expected records that have most columns of their table, found {columns} columns, of which they have few"
    ))
    .with_hint(
        "take the columns you need with --columns; names that are data belong into an object within the record, which \
         is kept as JSON",
    )
}

/// Counts the cells and the values of a table that grows.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sparsity {
    cells: u64,
    values: u64,
}

impl Sparsity {
    /// Adds records.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::error::Kind::Usage) if the table is too sparse.
    pub fn add_records(&mut self, records: &arrow::array::RecordBatch) -> Result<()> {
        let (columns, rows) = (records.num_columns() as u64, records.num_rows() as u64);
        if columns <= MANY_COLUMNS {
            return Ok(());
        }
        let nulls: u64 = records.columns().iter().map(|column| column.logical_null_count() as u64).sum();
        self.cells += columns * rows;
        self.values += columns * rows - nulls;
        if self.cells > MANY_CELLS && self.cells > self.values.saturating_mul(CELLS_PER_VALUE) {
            return Err(too_sparse(records.num_columns()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch};

    use super::*;

    fn table(columns: usize, rows: usize, every: usize) -> RecordBatch {
        let column = |at: usize| -> ArrayRef {
            Arc::new((0..rows).map(|row| (row + at).is_multiple_of(every).then_some(7)).collect::<Int64Array>())
        };
        let columns = (0..columns).map(|at| (format!("c{at}"), column(at), true));
        RecordBatch::try_from_iter_with_nullable(columns).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn only_large_tables_of_many_columns_with_few_values_are_refused() {
        for (columns, rows, every, refused) in [
            (256, 20_000, 20_000, false),
            (512, 10_000, 200, true),
            (512, 10_000, 100, false),
            (512, 1_000, 999, false),
        ] {
            let found = Sparsity::default().add_records(&table(columns, rows, every));
            assert_eq!(found.is_err(), refused, "{columns} columns, {rows} rows, a value in {every}");
        }
    }

    #[test]
    fn the_cells_of_all_batches_count() {
        let (batch, mut sparsity) = (table(512, 1_000, 1_000), Sparsity::default());
        let first = (0..20).find(|_| sparsity.add_records(&batch).is_err());
        assert_eq!(first, Some(8));
    }

    #[test]
    fn only_lines_that_have_few_columns_take_more_memory() {
        let dense = format!("{{{}}}\n", r#""key":12345,"#.repeat(1_000));
        assert_eq!((growth_factor(1_000, dense.repeat(20).as_bytes()), growth_factor(1_000, b"")), (1, 32));
        assert_eq!(
            (growth_factor(256, b"{}\n"), growth_factor(4_000, "{\"k1\":1,\"k7\":2}\n".repeat(9).as_bytes())),
            (1, 32)
        );
        assert_eq!(growth_factor(1_000, format!("{}\n", "x".repeat(999)).repeat(99).as_bytes()), 3);
    }

    #[test]
    fn text_bounds_the_records_of_wide_tables() {
        assert_eq!(most_records(256, 1), usize::MAX);
        assert_eq!(most_records(4 << 10, 100), 1 << 10);
        assert_eq!(most_records(4 << 10, 1 << 20), 2 << 10);
    }
}
