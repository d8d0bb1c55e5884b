//! The affine transform of an image, by the rules of nibabel.
//!
//! ```text
//! x in space    [ a a a a ]   index x          the sform, if its code says that there is one,
//! y           = [ a a a a ] * index y          else the qform: rotation by a quaternion, distances, offset,
//! z             [ a a a a ]   index z          else distances about the centre of the image, with x mirrored
//! 1             [ 0 0 0 1 ]   1
//! ```

use crate::error::{Error, Result};

/// The fields of a header that say where an image is.
pub(super) struct Transforms {
    pub(super) qform: i64,
    pub(super) sform: i64,
    /// The three stored numbers of a unit quaternion.
    pub(super) quaternion: [f64; 3],
    pub(super) offset: [f64; 3],
    pub(super) srow: [f64; 12],
    pub(super) pixdim: [f64; 8],
    /// Lengths of x, y and z.
    pub(super) lengths: [u64; 3],
    /// Number of dimensions that the image has.
    pub(super) dims: usize,
    /// Precision of the stored numbers.
    pub(super) epsilon: f64,
}

/// Codes that say what a transform leads to; others mean none.
const CODES: std::ops::RangeInclusive<i64> = 1..=5;

/// Returns the affine transform, row by row.
///
/// # Errors
/// [`Kind::Input`](crate::error::Kind::Input) if it comes from numbers that are no quaternion.
pub(super) fn best_affine(of: &Transforms) -> Result<[f64; 16]> {
    if CODES.contains(&of.sform) {
        return Ok(with_last_row(&of.srow));
    }
    if CODES.contains(&of.qform) { from_quaternion(of) } else { Ok(about_centre(of)) }
}

fn with_last_row(rows: &[f64; 12]) -> [f64; 16] {
    let mut out = [0.0; 16];
    out[..12].copy_from_slice(rows);
    out[15] = 1.0;
    out
}

/// Returns the distances of voxels, of which 0 stands for 1, and a sign for nothing.
fn distances(of: &Transforms) -> [f64; 3] {
    [1, 2, 3].map(|axis| match of.pixdim[axis] {
        0.0 => 1.0,
        distance => distance.abs(),
    })
}

fn from_quaternion(of: &Transforms) -> Result<[f64; 16]> {
    let [x, y, z] = of.quaternion;
    let square = 1.0 - (x * x + y * y + z * z);
    // A rotation by half a turn has a square of 0, which rounding may make negative.
    let w = if square.abs() < 3.0 * of.epsilon { 0.0 } else { square.sqrt() };
    if w.is_nan() {
        return Err(Error::input(format!("expected the numbers of a unit quaternion, found {x}, {y}, {z}"))
            .with_hint("the header is damaged; nibabel can write another affine: set_sform"));
    }
    let scale = 2.0 / (w * w + x * x + y * y + z * z);
    let of_pair = |one: f64, other: f64| one * other * scale;
    let rotation = [
        [1.0 - (of_pair(y, y) + of_pair(z, z)), of_pair(x, y) - of_pair(w, z), of_pair(x, z) + of_pair(w, y)],
        [of_pair(x, y) + of_pair(w, z), 1.0 - (of_pair(x, x) + of_pair(z, z)), of_pair(y, z) - of_pair(w, x)],
        [of_pair(x, z) - of_pair(w, y), of_pair(y, z) + of_pair(w, x), 1.0 - (of_pair(x, x) + of_pair(y, y))],
    ];
    let mut along = distances(of);
    if of.pixdim[0] == -1.0 {
        along[2] = -along[2];
    }
    let mut rows = [0.0; 12];
    for row in 0..3 {
        for column in 0..3 {
            rows[row * 4 + column] = rotation[row][column] * along[column];
        }
        rows[row * 4 + 3] = of.offset[row];
    }
    Ok(with_last_row(&rows))
}

fn about_centre(of: &Transforms) -> [f64; 16] {
    let mut along = distances(of);
    along.iter_mut().skip(of.dims).for_each(|distance| *distance = 1.0);
    let mut rows = [0.0; 12];
    for (axis, distance) in [-along[0], along[1], along[2]].into_iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "as nibabel does")]
        let middle = (of.lengths[axis] - 1) as f64 / 2.0;
        rows[axis * 4 + axis] = distance;
        rows[axis * 4 + 3] = -middle * distance;
    }
    with_last_row(&rows)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn plain() -> Transforms {
        Transforms {
            qform: 0,
            sform: 0,
            quaternion: [0.0; 3],
            offset: [7.0, 8.0, 9.0],
            srow: std::array::from_fn(|number| f64::from(u8::try_from(number).unwrap())),
            pixdim: [1.0, 3.0, 2.0, 1.0, 0.0, 0.0, 0.0, 0.0],
            lengths: [3, 5, 7],
            dims: 3,
            epsilon: f32::EPSILON.into(),
        }
    }

    /// The matrices are those that nibabel 5.4.2 documents or returns for these headers.
    #[test]
    fn the_best_transform_is_that_of_nibabel() {
        let of = plain();
        let centre = [-3.0, 0.0, 0.0, 3.0, 0.0, 2.0, 0.0, -4.0, 0.0, 0.0, 1.0, -3.0, 0.0, 0.0, 0.0, 1.0];
        assert_eq!(best_affine(&of).unwrap(), centre);
        let turned = Transforms { qform: 1, quaternion: [1.0, 0.0, 0.0], ..plain() };
        let half = [3.0, 0.0, 0.0, 7.0, 0.0, -2.0, 0.0, 8.0, 0.0, 0.0, -1.0, 9.0, 0.0, 0.0, 0.0, 1.0];
        assert_eq!(best_affine(&turned).unwrap(), half);
        let mut mirrored = Transforms { qform: 2, ..plain() };
        mirrored.pixdim[..4].copy_from_slice(&[-1.0, 0.0, -2.0, 1.0]);
        let expected = [1.0, 0.0, 0.0, 7.0, 0.0, 2.0, 0.0, 8.0, 0.0, 0.0, -1.0, 9.0, 0.0, 0.0, 0.0, 1.0];
        assert_eq!(best_affine(&mirrored).unwrap(), expected);
        let rows = Transforms { qform: 1, sform: 4, ..plain() };
        assert_eq!(best_affine(&rows).unwrap()[..5], [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!(best_affine(&Transforms { sform: 6, ..plain() }).unwrap(), centre);
        let flat = Transforms { dims: 1, lengths: [3, 1, 1], ..plain() };
        assert_eq!(best_affine(&flat).unwrap()[..8], [-3.0, 0.0, 0.0, 3.0, 0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn numbers_that_are_no_quaternion_are_refused() {
        for quaternion in [[1.0, 1.0, 0.0], [f64::NAN, 0.0, 0.0]] {
            let error = best_affine(&Transforms { qform: 1, quaternion, ..plain() }).unwrap_err();
            assert!(error.message().contains("unit quaternion"), "{error}");
            assert!(best_affine(&Transforms { quaternion, ..plain() }).is_ok());
        }
        // Rounding of a half turn.
        let rounded = Transforms { qform: 1, quaternion: [1.000_000_1, 0.0, 0.0], ..plain() };
        assert!(best_affine(&rounded).is_ok());
    }
}
