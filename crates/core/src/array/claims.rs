//! Plausibility check of a header's claims against the stored bytes.
//!
//! A header of a few bytes can claim more elements than there are atoms, and if chunks that were never written hold the
//! fill value, every one of them can be read. Real data is not compressed a thousandfold, so a source that claims more
//! is either damaged, or a grid of which most was never written; `--read sparse=yes` allows the latter.

use super::{Header, records::Plan};
use crate::{
    error::{Error, Result},
    units::Size,
};

/// Maximum elements per stored byte, and the number of elements that is always accepted.
const ELEMENTS_PER_STORED_BYTE: u64 = 1 << 10;
const ALWAYS_ALLOWED_ELEMENTS: u64 = 1 << 20;

/// Maximum bytes of elements per stored byte, and the number of bytes that is always accepted.
const BYTES_PER_STORED_BYTE: u64 = 1 << 12;
const ALWAYS_ALLOWED_BYTES: u64 = 64 << 20;

/// Maximum rows per stored byte, and the number of rows that is always accepted.
const ROWS_PER_STORED_BYTE: u64 = 1 << 8;
const ALWAYS_ALLOWED_ROWS: u64 = 1 << 16;

/// Rejects a source whose header claims more than its stored bytes can plausibly hold.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) that names the variable.
pub fn check_claimed_size(header: &Header, plan: &Plan, stored: u64) -> Result<()> {
    for column in &plan.columns {
        let variable = &header.variables[column.variable];
        let elements = variable.element_count();
        let bytes = elements.saturating_mul(variable.dtype.byte_width().unwrap_or(1) as u64);
        let most = (
            stored.saturating_mul(BYTES_PER_STORED_BYTE).max(ALWAYS_ALLOWED_BYTES),
            stored.saturating_mul(ELEMENTS_PER_STORED_BYTE).max(ALWAYS_ALLOWED_ELEMENTS),
        );
        if bytes > most.0 || elements > most.1 {
            return Err(implausible_size(
                stored,
                &format!("an array of the shape {:?} ({})", variable.shape, Size(bytes)),
            )
            .in_column(variable.name.as_str()));
        }
    }
    // Patches may overlap.
    if plan.patches.is_empty()
        && plan.row_count() > stored.saturating_mul(ROWS_PER_STORED_BYTE).max(ALWAYS_ALLOWED_ROWS)
    {
        return Err(implausible_size(stored, &format!("{} records", plan.row_count())));
    }
    Ok(())
}

fn implausible_size(stored: u64, found: &str) -> Error {
    Error::input(format!("expected no more than {stored} stored bytes can hold, found {found}"))
        .with_hint("the file is probably damaged; if most of its values were never written, use --read sparse=yes")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::array::{DType, Variable, records::ArrayOptions};

    fn checked(dims: &[(&str, u64)], stored: u64) -> Result<()> {
        let header = Header { variables: vec![Variable::with_dims("v", DType::Float(4), dims)], ..Header::default() };
        check_claimed_size(&header, &Plan::new(&header, &ArrayOptions::default()).unwrap(), stored)
    }

    #[test]
    fn more_than_the_stored_bytes_can_hold_is_rejected() {
        checked(&[("t", 1_000), ("y", 1_000)], 1_400).unwrap();
        checked(&[("t", 365), ("y", 720), ("x", 1_440)], 1_500_000).unwrap();
        for dims in [
            &[("t", 5_600_000_000_000_000_000)][..],
            &[("t", 1_000), ("y", 100_000)],
            &[("t", u64::MAX), ("y", 0)],
            &[("t", 4), ("y", 1 << 40)],
        ] {
            // Some are too large even for a plan.
            let header =
                Header { variables: vec![Variable::with_dims("v", DType::Float(4), dims)], ..Header::default() };
            if let Ok(plan) = Plan::new(&header, &ArrayOptions::default()) {
                let error = check_claimed_size(&header, &plan, 1_400).unwrap_err();
                assert!(error.message().contains("1400 stored bytes"), "{error}");
            }
        }
    }
}
