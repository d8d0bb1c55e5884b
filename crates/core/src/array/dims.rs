//! Decides along which dimension the records of a source are, and refuses to guess.
//!
//! ```text
//! x(dim_0 100, dim_1 28)  y(dim_0 100)  mean(dim_1 28)     records along dim_0; `mean` has only dimensions of a record
//! x_train(dim_0 100)  x_test(dim_0_20 20)                  two dimensions that have nothing in common: refused
//! ```
//!
//! Dimensions with names are one if they have one name. Dimensions without names are one if arrays have the same length
//! on the same axis, and records are along the first axis only: equal lengths of other axes mean nothing.

use std::collections::{HashMap, HashSet};

use super::{
    Header,
    records::{ArrayOptions, View, length_of, no_such_dim},
};
use crate::error::{Error, Result};

/// Returns the dimension along which the records are; `None` if the source is one record.
///
/// # Errors
/// [`Kind::Usage`](crate::error::Kind::Usage) when the requested dimension does not exist,
/// [`Kind::Input`](crate::error::Kind::Input) when several could be meant.
pub(super) fn record_dim(header: &Header, views: &[View<'_>], options: &ArrayOptions) -> Result<Option<String>> {
    if let Some(dim) = &options.record_dim {
        return match length_of(views, dim) {
            Some(_) => Ok(Some(dim.clone())),
            None => Err(no_such_dim(views, "--read record-dim", dim)),
        };
    }
    let growing = growing_dims(header, views, options);
    let shared = |dim: &String| views.iter().filter(|view| view.dims.contains(dim)).count();
    if let Some(dim) = growing.iter().copied().max_by_key(|dim| (shared(dim), std::cmp::Reverse(*dim))) {
        // The source states it, unless it states another as well.
        let grows = |view: &View<'_>| growing.iter().any(|dim| view.dims.contains(dim));
        return unambiguous_dim(header, views, dim, &grows).map(Some);
    }
    let unpatched = |dim: &&String| options.patch.iter().all(|(patched, _)| patched != *dim);
    // The first one if several are equally large.
    let Some(largest) = views.iter().rev().max_by_key(|view| view.element_count()) else { return Ok(None) };
    let dims: Vec<&String> = largest.dims.iter().filter(unpatched).collect();
    let first_shared = dims.iter().find(|dim| !header.variables[largest.number].unnamed && shared(dim) > 1);
    let Some(dim) = first_shared.or(dims.first()) else { return Ok(None) };
    unambiguous_dim(header, views, dim, &|view| is_table(header, views, view)).map(Some)
}

/// Returns the dimensions that can grow and have grown; of unnamed ones those of the first axis, if there are any.
fn growing_dims<'a>(header: &'a Header, views: &[View<'_>], options: &ArrayOptions) -> Vec<&'a String> {
    let unpatched = |dim: &&String| options.patch.iter().all(|(patched, _)| patched != *dim);
    let grown = |dim: &&String| length_of(views, dim).is_some_and(|length| length > 0);
    let all: Vec<&String> = header.unlimited.iter().filter(unpatched).filter(grown).collect();
    let leads = |dim: &String| {
        let leads = |view: &View<'_>| view.dims.first() == Some(dim) || !header.variables[view.number].unnamed;
        views.iter().any(|view| view.dims.contains(dim) && leads(view))
    };
    let first: Vec<&String> = all.iter().copied().filter(|dim| leads(dim)).collect();
    if first.is_empty() { all } else { first }
}

/// Whether a variable that has nothing in common with the records could be records itself. A single list with a named
/// dimension of its own is a coordinate; without a name, it may be what belongs to other records.
fn is_table(header: &Header, views: &[View<'_>], view: &View<'_>) -> bool {
    let of_same = |other: &&View<'_>| other.dims.first() == view.dims.first();
    header.variables[view.number].unnamed || view.dims.len() > 1 || views.iter().filter(of_same).count() > 1
}

/// Returns the dimension, unless variables that have nothing in common with it could be the records as well.
fn unambiguous_dim(
    header: &Header,
    views: &[View<'_>],
    dim: &String,
    could_be: &dyn Fn(&View<'_>) -> bool,
) -> Result<String> {
    let (mut known, mut others): (Vec<&View<'_>>, Vec<&View<'_>>) =
        views.iter().partition(|view| view.dims.contains(dim) || view.element_count() <= 1);
    let shapes = RecordShapes::new(&known, dim);
    // Bounds of coordinates have a dimension in common with the coordinates, which have one with the records.
    loop {
        let (more, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|view| {
            if header.variables[view.number].unnamed { shapes.contain(view) } else { shares_dim(view, &known) }
        });
        others = rest;
        if more.is_empty() {
            break;
        }
        known.extend(more);
    }
    others.retain(|view| could_be(view));
    let mut seen = HashSet::from([dim]);
    let mut rivals: Vec<&String> = vec![dim];
    rivals.extend(others.iter().filter_map(|view| view.dims.first()).filter(|rival| seen.insert(*rival)));
    if rivals.len() == 1 {
        return Ok(dim.clone());
    }
    Err(ambiguity_error(header, views, &rivals))
}

/// Number of dimensions, and of variables of each, that an error names: a file of weights has hundreds.
const SHOWN_DIMS: usize = 4;
const SHOWN_NAMES: usize = 6;

/// Returns the error for a source whose records could be along any of these dimensions.
fn ambiguity_error(header: &Header, views: &[View<'_>], rivals: &[&String]) -> Error {
    let names_of = |dim: &String| -> Vec<&str> {
        let of_dim = views.iter().filter(|view| view.dims.contains(dim));
        of_dim.map(|view| header.variables[view.number].name.as_str()).collect()
    };
    let described = |dim: &&String| {
        let names = list_some(&names_of(dim), SHOWN_NAMES, ", ");
        format!("`{dim}` ({}) of {names}", length_of(views, dim).unwrap_or(0))
    };
    let all: Vec<String> = rivals.iter().take(SHOWN_DIMS).map(described).collect();
    let more = rivals.len() - all.len();
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    let choice = |names: Vec<&str>| (names.len() <= SHOWN_NAMES).then(|| format!("--read var={}", names.join(",")));
    let choices: Vec<String> = rivals.iter().take(2).filter_map(|dim| choice(names_of(dim))).collect();
    let choices = if choices.is_empty() { "--read var=NAME,NAME".to_owned() } else { choices.join(" or ") };
    let message = "expected one dimension for the records, found several that are unrelated";
    let first = rivals.first().map_or("", |dim| dim.as_str());
    Error::input(format!("{message}: {}{more}", all.join("; ")))
        .with_hint(format!("choose the variables of one of them: {choices}"))
        .with_hint(format!(
            "or name it with --read record-dim={first}: variables without it become constants, which are stored once"
        ))
}

/// Joins the first names, and says how many more there are.
pub(super) fn list_some(names: &[&str], most: usize, comma: &str) -> String {
    let shown = names[..names.len().min(most)].join(comma);
    if names.len() > most { format!("{shown}{comma}and {} more", names.len() - most) } else { shown }
}

/// The lengths of the arrays of one record, without its own dimension.
struct RecordShapes {
    shapes: Vec<Vec<u64>>,
    /// The shapes that have a length.
    by_length: HashMap<u64, Vec<usize>>,
}

impl RecordShapes {
    fn new(records: &[&View<'_>], dim: &str) -> Self {
        let inner = |record: &&View<'_>| -> Vec<u64> {
            let others = record.dims.iter().zip(record.shape).filter(|(other, _)| other.as_str() != dim);
            others.map(|(_, length)| *length).collect()
        };
        let distinct: HashSet<Vec<u64>> = records.iter().map(inner).collect();
        let shapes: Vec<Vec<u64>> = distinct.into_iter().collect();
        let mut by_length: HashMap<u64, Vec<usize>> = HashMap::new();
        for (number, shape) in shapes.iter().enumerate() {
            for length in shape {
                by_length.entry(*length).or_default().push(number);
            }
        }
        Self { shapes, by_length }
    }

    /// Whether the lengths of an array are all lengths of one of these.
    fn contain(&self, view: &View<'_>) -> bool {
        let long: Vec<u64> = view.shape.iter().copied().filter(|length| *length > 1).collect();
        if long.is_empty() {
            return !self.shapes.is_empty();
        }
        let with = |length: &u64| self.by_length.get(length).map_or(&[][..], Vec::as_slice);
        // The rarest length leaves the fewest shapes to compare.
        let Some(fewest) = long.iter().map(with).min_by_key(|numbers| numbers.len()) else { return false };
        fewest.iter().any(|number| {
            let mut inner = self.shapes[*number].clone();
            long.iter()
                .all(|length| inner.iter().position(|other| other == length).map(|at| inner.swap_remove(at)).is_some())
        })
    }
}

/// Whether a variable has a dimension of more than one index in common with one of these.
fn shares_dim(view: &View<'_>, known: &[&View<'_>]) -> bool {
    let mut long = view.dims.iter().zip(view.shape).filter(|(_, length)| **length > 1);
    long.any(|(dim, _)| known.iter().any(|other| other.dims.contains(dim)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::super::{DType, Variable, name_dims, records::Plan};
    use super::*;

    /// Arrays without names of dimensions.
    fn unnamed(arrays: &[(&str, &[u64])]) -> Header {
        let array = |(name, shape): &(&str, &[u64])| Variable {
            shape: shape.to_vec(),
            ..Variable::with_dims(name, DType::Float(4), &[])
        };
        let mut variables: Vec<Variable> = arrays.iter().map(array).collect();
        name_dims(&mut variables);
        Header { variables, ..Header::default() }
    }

    fn planned(header: &Header, options: &ArrayOptions) -> Result<(Option<String>, u64, Vec<String>)> {
        let plan = Plan::new(header, options)?;
        let constants = plan.constants.iter().map(|number| header.variables[*number].name.clone()).collect();
        Ok((plan.dim, plan.length, constants))
    }

    fn plain(header: &Header) -> Result<(u64, Vec<String>)> {
        planned(header, &ArrayOptions::default()).map(|(_, length, constants)| (length, constants))
    }

    #[test]
    fn unnamed_arrays_are_paired_by_their_first_axis_alone() {
        let paired = unnamed(&[("x", &[100, 28]), ("y", &[100])]);
        assert_eq!(plain(&paired).unwrap(), (100, vec![]));
        // The length of another axis is a coincidence, whichever array comes first.
        for arrays in [[("x", &[100, 28][..]), ("mean", &[1, 28])], [("mean", &[1, 28]), ("x", &[100, 28][..])]] {
            assert_eq!(plain(&unnamed(&arrays)).unwrap(), (100, vec!["mean".to_owned()]));
        }
        let names = unnamed(&[("x", &[100, 28]), ("names", &[28]), ("image", &[28, 1]), ("n", &[])]);
        assert_eq!(plain(&names).unwrap().1, ["names", "image", "n"]);
    }

    #[test]
    fn splits_and_parts_of_one_matrix_are_not_guessed_at() {
        let splits = unnamed(&[("x_train", &[60, 28]), ("y_train", &[60]), ("x_test", &[10, 28]), ("y_test", &[10])]);
        let error = plain(&splits).unwrap_err();
        assert!(
            error.message().contains("`dim_0` (60) of x_train, y_train; `dim_0_10` (10) of x_test, y_test"),
            "{error}"
        );
        assert!(error.hints()[0].contains("--read var=x_train,y_train or --read var=x_test,y_test"), "{error:?}");
        // scipy.sparse.save_npz
        let sparse = unnamed(&[("indices", &[7]), ("indptr", &[5]), ("format", &[]), ("shape", &[2]), ("data", &[7])]);
        let error = plain(&sparse).unwrap_err();
        assert!(["indices, data", "indptr", "shape"].iter().all(|name| error.message().contains(name)), "{error}");
        let dim = ArrayOptions { record_dim: Some("dim_0".into()), ..ArrayOptions::default() };
        assert_eq!(planned(&sparse, &dim).unwrap().2, ["indptr", "format", "shape"]);
        let vars = ArrayOptions { vars: vec!["x_test".into(), "y_test".into()], ..ArrayOptions::default() };
        assert_eq!(planned(&splits, &vars).unwrap().1, 10);
    }

    #[test]
    fn an_error_about_hundreds_of_arrays_names_a_few() {
        let names: Vec<String> = (0..300).map(|number| format!("w{number}")).collect();
        let shapes: Vec<[u64; 1]> = (0..300).map(|number| [number / 10 + 2]).collect();
        let arrays: Vec<(&str, &[u64])> =
            names.iter().zip(&shapes).map(|(name, shape)| (name.as_str(), &shape[..])).collect();
        let error = plain(&unnamed(&arrays)).unwrap_err();
        assert!(error.message().ends_with("; and 26 more") && error.message().contains(", and 4 more;"), "{error}");
        assert!(error.hints()[0].ends_with("--read var=NAME,NAME"), "{error:?}");
    }

    #[test]
    fn named_dimensions_are_told_apart_by_what_they_share() {
        let float = |name: &str, dims: &[(&str, u64)]| Variable::with_dims(name, DType::Float(4), dims);
        let (obs, profile) = (("obs", 90), ("profile", 9));
        let grid = [float("t", &[("time", 4), ("lat", 3)]), float("lat_bnds", &[("lat", 3), ("bnds", 2)])];
        let mut header = Header { variables: grid.to_vec(), ..Header::default() };
        header.variables.extend([float("edge", &[("bnds", 2)]), float("weights", &[("ens", 5)])]);
        assert_eq!(plain(&header).unwrap(), (3, vec!["edge".to_owned(), "weights".to_owned()]));
        // Profiles and their observations: either may be meant.
        let ragged = [float("temp", &[obs]), float("size", &[profile]), float("lon", &[profile])];
        let mut header = Header { variables: ragged.to_vec(), ..Header::default() };
        assert!(plain(&header).unwrap_err().message().contains("`obs` (90) of temp; `profile` (9) of size, lon"));
        header.unlimited = vec!["obs".into()];
        assert_eq!(plain(&header).unwrap(), (90, vec!["size".to_owned(), "lon".to_owned()]));
        header.unlimited = vec!["obs".into(), "profile".into()];
        assert!(plain(&header).is_err());
    }

    #[test]
    fn unnamed_dimensions_that_grow_count_on_the_first_axis() {
        let mut header = unnamed(&[("x", &[100, 28]), ("mean", &[1, 28])]);
        header.unlimited = vec!["dim_0".into(), "dim_1".into()];
        assert_eq!(plain(&header).unwrap().0, 100);
        let mut tables = unnamed(&[("one", &[5]), ("two", &[3]), ("fixed", &[4])]);
        tables.unlimited = vec!["dim_0".into()];
        assert_eq!(plain(&tables).unwrap().1, ["two", "fixed"]);
        tables.unlimited.push("dim_0_3".into());
        assert!(plain(&tables).unwrap_err().message().contains("`dim_0` (5) of one; `dim_0_3` (3) of two"));
        let mut along = unnamed(&[("signal", &[2, 50])]);
        along.unlimited = vec!["dim_1".into()];
        assert_eq!(plain(&along).unwrap().0, 50);
    }
}
