//! Files of PyTables and pandas: what their attributes say of types and dimensions that HDF5 itself does not.
//!
//! ```text
//! df.table         a struct for each row; columns of one type may share a member: values_block_0 with the names (a, c)
//! df._i_table      indexes of the table, which repeat its values: not taken
//! df.axis1         the rows of a fixed frame; df.block0_values(axis1, block0_items) are its columns of one type
//! PSEUDOATOM       objects that only unpickling would read: refused
//! ```

use arrow::datatypes::TimeUnit;

use crate::array::{
    Attribute, DType, Variable,
    dtype::{Member, NOT_A_TIME},
};

/// Attribute of the root of files that PyTables wrote.
pub(super) const VERSION: &str = "PYTABLES_FORMAT_VERSION";

/// Whether a dotted path is that of a part of an index; such names are reserved.
pub(super) fn is_index(path: &str) -> bool {
    path.split('.').any(|part| part.starts_with("_i_"))
}

/// Applies the attributes of a dataset to its type and the names of its dimensions.
pub(super) fn apply_attributes(variable: &mut Variable) {
    let text = |name: &str| variable.attribute(name).and_then(Attribute::as_text);
    if let Some(kind @ ("object" | "vlunicode")) = text("PSEUDOATOM") {
        variable.dtype = DType::Refused(match kind {
            "object" => "pickled Python objects, which only unpickling would read".to_owned(),
            other => format!("texts that PyTables stores as `{other}`"),
        });
        return;
    }
    let own = text("value_type").map(str::to_owned);
    let dtype = match &variable.dtype {
        DType::Struct(members, width) => {
            let members = members.iter().flat_map(|member| frame_columns(variable, member)).collect();
            DType::Struct(members, *width)
        }
        other => pandas_type(other, own.as_deref()),
    };
    let dims = frame_dims(variable);
    variable.dtype = dtype;
    if let Some(dims) = dims {
        variable.dims = dims;
    }
}

/// Returns the columns of a frame that are one member of its table.
fn frame_columns(table: &Variable, member: &Member) -> Vec<Member> {
    let text = |what: &str| table.attribute(&format!("{}_{what}", member.name)).and_then(Attribute::as_text);
    let stored = text("dtype");
    let one = || Member { dtype: pandas_type(&member.dtype, stored), ..member.clone() };
    let (DType::Array(item, count), Some(names)) = (&member.dtype, text("kind").map(unpickle_texts)) else {
        return vec![one()];
    };
    let Some(width) = item.byte_width().filter(|_| names.len() == *count) else { return vec![one()] };
    let column = |(number, name): (usize, String)| Member {
        name,
        offset: member.offset + number * width,
        dtype: pandas_type(item, stored),
    };
    names.into_iter().enumerate().map(column).collect()
}

/// Returns the texts of a pickled list, in the protocol that consists of lines: `(lp0`, `Va`, `p1`, `aVb`, `p2`, `a.`.
fn unpickle_texts(list: &str) -> Vec<String> {
    let text = |line: &str| line.strip_prefix('a').unwrap_or(line).strip_prefix('V').map(str::to_owned);
    list.lines().filter_map(text).collect()
}

/// Returns the type that pandas gave to stored values.
fn pandas_type(stored: &DType, name: Option<&str>) -> DType {
    let unit = |name: &str| {
        let unit = name.strip_prefix("datetime64")?;
        Some(match unit.split(']').next()?.trim_start_matches('[').split(',').next()? {
            "s" => TimeUnit::Second,
            "ms" => TimeUnit::Millisecond,
            "us" => TimeUnit::Microsecond,
            "" | "ns" => TimeUnit::Nanosecond,
            _ => return None,
        })
    };
    const { assert!(NOT_A_TIME == i64::MIN, "pandas' NaT is the smallest number") };
    match (stored, name) {
        (DType::UInt(1), Some("bool")) => DType::Bool,
        (DType::Int(8), Some(name)) => unit(name).map_or_else(|| stored.clone(), |unit| DType::Instant(unit, 1)),
        (other, _) => other.clone(),
    }
}

/// Returns the dimensions of a part of a frame in the fixed format.
fn frame_dims(part: &Variable) -> Option<Vec<String>> {
    let (group, leaf) = part.name.rsplit_once('.').unwrap_or(("", &part.name));
    let of = |leaf: &str| if group.is_empty() { leaf.to_owned() } else { format!("{group}.{leaf}") };
    let block = |ending: &str| {
        let number = leaf.strip_prefix("block")?.strip_suffix(ending)?;
        number.bytes().all(|byte| byte.is_ascii_digit()).then(|| of(&format!("block{number}_items")))
    };
    let transposed = part.attribute("transposed").is_some_and(|value| value.to_integers() == [1]);
    match (leaf, part.shape.len()) {
        ("axis0" | "axis1", 1) => Some(vec![of(leaf)]),
        (_, 1) => block("_items").map(|items| vec![items]),
        (_, 2) if transposed => block("_values").map(|items| vec![of("axis1"), items]),
        (_, 2) => block("_values").map(|items| vec![items, of("axis1")]),
        _ => None,
    }
}

/// Returns the dimension of the rows of a fixed frame, if this is their index.
pub(super) fn rows_of_frame(variable: &Variable) -> Option<String> {
    let leaf = variable.name.rsplit('.').next()?;
    variable.dims.first().filter(|_| leaf == "axis1" && variable.dims.len() == 1).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, value: &str) -> (String, Attribute) {
        (name.to_owned(), Attribute::Text(value.to_owned()))
    }

    #[test]
    fn tables_have_the_columns_of_their_frames() {
        let member = |name: &str, offset, dtype| Member { name: name.to_owned(), offset, dtype };
        let members = vec![
            member("index", 0, DType::Int(8)),
            member("values_block_0", 8, DType::Array(Box::new(DType::Int(8)), 2)),
            member("values_block_1", 24, DType::Array(Box::new(DType::UInt(1)), 1)),
        ];
        let mut table = Variable::with_dims("df.table", DType::Struct(members, 25), &[("rows", 5)]);
        table.attributes = vec![
            text("index_kind", "integer"),
            text("values_block_0_kind", "(lp0\nVt\np1\naVu\np2\na."),
            text("values_block_0_dtype", "datetime64[ms]"),
            text("values_block_1_kind", "(lp0\nVok\np1\na."),
            text("values_block_1_dtype", "bool"),
        ];
        apply_attributes(&mut table);
        let instant = || DType::Instant(TimeUnit::Millisecond, 1);
        let expected = vec![
            member("index", 0, DType::Int(8)),
            member("t", 8, instant()),
            member("u", 16, instant()),
            member("ok", 24, DType::Bool),
        ];
        assert_eq!(table.dtype, DType::Struct(expected, 25));
    }

    #[test]
    fn fixed_frames_state_which_dimensions_are_one() {
        let described = |name: &str, dims: &[(&str, u64)], attributes: Vec<(String, Attribute)>| {
            let mut part = Variable { attributes, ..Variable::with_dims(name, DType::Int(8), dims) };
            part.dims.clear();
            apply_attributes(&mut part);
            (part.dims, part.dtype)
        };
        let square = [("a", 2), ("b", 2)];
        let transposed = || ("transposed".to_owned(), Attribute::Numbers(DType::UInt(1), vec![1]));
        let (dims, dtype) =
            described("df.block0_values", &square, vec![transposed(), text("value_type", "datetime64")]);
        assert_eq!(dims, ["df.axis1", "df.block0_items"]);
        assert_eq!(dtype, DType::Instant(TimeUnit::Nanosecond, 1));
        assert_eq!(described("df.block0_values", &square, vec![]).0, ["df.block0_items", "df.axis1"]);
        assert_eq!(described("df.axis0", &square[..1], vec![]).0, ["df.axis0"]);
        let rows = |name: &str| rows_of_frame(&Variable::with_dims(name, DType::Int(8), &square[..1]));
        assert_eq!((rows("df.axis1").as_deref(), rows("df.axis0")), (Some("a"), None));
        assert_eq!(described("df.other", &square, vec![]).0, [""; 0]);
        let (_, objects) = described("df.block1_values", &square[..1], vec![text("PSEUDOATOM", "object")]);
        assert!(objects.refusal_reason().is_some_and(|why| why.contains("pickled")));
        assert!(is_index("df._i_table.index.sortedLR") && !is_index("df.table"));
    }
}
