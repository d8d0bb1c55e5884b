//! What a header claims, held against what is stored.
//!
//! A header of a few bytes can claim more elements than there are atoms, and where chunks that nobody wrote hold the fill value
//! every one of them can be read. Nothing that people store is compressed a thousand times over, so who claims more than that
//! is either damaged, or a grid of which most was never written; for the latter there is an option.

use super::{Header, records::Plan};
use crate::{
    error::{Error, Result},
    units::Size,
};

/// Elements that a stored byte may stand for, and how many there may be whatever is stored.
const ELEMENTS: u64 = 1 << 10;
const FEW_ELEMENTS: u64 = 1 << 20;

/// Bytes of elements that a stored byte may stand for, and how many there may be whatever is stored.
const BYTES: u64 = 1 << 12;
const FEW_BYTES: u64 = 64 << 20;

/// Rows that a stored byte may stand for, and how many there may be whatever is stored.
const ROWS: u64 = 1 << 8;
const FEW_ROWS: u64 = 1 << 16;

/// Refuses a source of so many stored bytes that claims to hold too much for them.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) that names the variable.
pub fn check(header: &Header, plan: &Plan, stored: u64) -> Result<()> {
    for column in &plan.columns {
        let variable = &header.variables[column.variable];
        let elements = variable.elements();
        let bytes = elements.saturating_mul(variable.dtype.width().unwrap_or(1) as u64);
        let most = (stored.saturating_mul(BYTES).max(FEW_BYTES), stored.saturating_mul(ELEMENTS).max(FEW_ELEMENTS));
        if bytes > most.0 || elements > most.1 {
            return Err(refused(stored, &format!("an array of the shape {:?} ({})", variable.shape, Size(bytes)))
                .column(variable.name.as_str()));
        }
    }
    // Patches may lie over each other.
    if plan.patches.is_empty() && plan.rows() > stored.saturating_mul(ROWS).max(FEW_ROWS) {
        return Err(refused(stored, &format!("{} records", plan.rows())));
    }
    Ok(())
}

fn refused(stored: u64, found: &str) -> Error {
    Error::input(format!("expected what {stored} stored bytes can hold, found {found}"))
        .hint("the file is probably damaged; if most of its values were just never written, use --sparse")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::array::{DType, Variable, records::ArrayOptions};

    fn checked(dims: &[(&str, u64)], stored: u64) -> Result<()> {
        let header = Header { variables: vec![Variable::plain("v", DType::Float(4), dims)], ..Header::default() };
        check(&header, &Plan::new(&header, &ArrayOptions::default()).unwrap(), stored)
    }

    #[test]
    fn more_than_the_stored_bytes_can_hold_is_refused() {
        checked(&[("t", 1_000), ("y", 1_000)], 1_400).unwrap();
        checked(&[("t", 365), ("y", 720), ("x", 1_440)], 1_500_000).unwrap();
        for dims in [
            &[("t", 5_600_000_000_000_000_000)][..],
            &[("t", 1_000), ("y", 100_000)],
            &[("t", u64::MAX), ("y", 0)],
            &[("t", 4), ("y", 1 << 40)],
        ] {
            // Some are too large even to be a plan.
            let header = Header { variables: vec![Variable::plain("v", DType::Float(4), dims)], ..Header::default() };
            if let Ok(plan) = Plan::new(&header, &ArrayOptions::default()) {
                let error = check(&header, &plan, 1_400).unwrap_err();
                assert!(error.message().contains("1400 stored bytes"), "{error}");
            }
        }
    }
}
