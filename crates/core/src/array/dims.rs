//! Decides along which dimension the records of a source are, and refuses to guess.
//!
//! ```text
//! x(dim_0 100, dim_1 28)  y(dim_0 100)  mean(dim_1 28)     records along dim_0; `mean` has only dimensions of a record
//! x_train(dim_0 100)  x_test(dim_0_20 20)                  two dimensions that have nothing in common: refused
//! ```
//!
//! Dimensions with names are one if they have one name. Dimensions without names are one if arrays have the same length
//! on the same axis, and records are along the first axis only: equal lengths of other axes mean nothing.

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
    let records = known.clone();
    // Bounds of coordinates have a dimension in common with the coordinates, which have one with the records.
    loop {
        let (more, rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|view| {
            if header.variables[view.number].unnamed {
                fits_within(view, dim, &records)
            } else {
                shares_dim(view, &known)
            }
        });
        others = rest;
        if more.is_empty() {
            break;
        }
        known.extend(more);
    }
    others.retain(|view| could_be(view));
    let mut rivals: Vec<&String> = Vec::new();
    for rival in others.iter().filter_map(|view| view.dims.first()) {
        if !rivals.contains(&rival) {
            rivals.push(rival);
        }
    }
    if rivals.is_empty() {
        return Ok(dim.clone());
    }
    rivals.insert(0, dim);
    let of = |dim: &String, comma: &str| {
        let names = views.iter().filter(|view| view.dims.contains(dim)).map(|view| &header.variables[view.number].name);
        names.map(String::as_str).collect::<Vec<_>>().join(comma)
    };
    let described = |dim: &&String| format!("`{dim}` ({}) of {}", length_of(views, dim).unwrap_or(0), of(dim, ", "));
    let all: Vec<String> = rivals.iter().map(described).collect();
    let choices: Vec<String> = rivals.iter().take(2).map(|dim| format!("--read var={}", of(dim, ","))).collect();
    let message = "expected one dimension for the records, found several that are unrelated";
    Err(Error::input(format!("{message}: {}", all.join("; ")))
        .with_hint(format!("choose the variables of one of them: {}", choices.join(" or ")))
        .with_hint(format!(
            "or name it with --read record-dim={dim}: variables without it become constants, which are stored once"
        )))
}

/// Whether the lengths of an array are all lengths of a record of one of these arrays.
fn fits_within(view: &View<'_>, dim: &str, records: &[&View<'_>]) -> bool {
    records.iter().any(|record| {
        let inner = record.dims.iter().zip(record.shape).filter(|(other, _)| other.as_str() != dim);
        let mut inner: Vec<u64> = inner.map(|(_, length)| *length).collect();
        let mut long = view.shape.iter().filter(|length| **length > 1);
        long.all(|length| inner.iter().position(|other| other == length).map(|at| inner.swap_remove(at)).is_some())
    })
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
