//! Columns built record by record, directly from the text of the source.
//!
//! There are two ways to append a record: [`fast`](super::fast) accepts records that look like the one before and gives
//! up on any other, and [`exact`](super::exact) accepts all valid records and reports what is wrong with the rest.
//!
//! Every column knows its length, and between two records all columns have as many values as there are records. This
//! makes appending a record atomic: a repeated key finds its column already longer than expected, and a record that
//! fails midway is undone by truncating every column to the old length.
//!
//! ```text
//! {"a":1,"c":[2,3]}     a: 1      b: -      c: [2,3]      walked
//!                       a: 1      b: null   c: [2,3]      columns without a value padded
//! {"a":4,"b":oops}      a: 1 4    b: null   c: [2,3]      fault
//!                       a: 1      b: null   c: [2,3]      cut back
//! ```

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, BooleanArray, FixedSizeListArray, Float64Array, Int64Array, LargeListArray, ListArray, RecordBatch,
        RecordBatchOptions, StringArray, StructArray, new_null_array,
    },
    buffer::{Buffer, OffsetBuffer, ScalarBuffer},
    datatypes::{DataType, Field, FieldRef, Fields, SchemaRef},
};
use serde::de::Deserializer;

use super::{
    bits::{Bits, Validity},
    exact::MembersVisitor,
    fast::{self, Order},
    fault::{self, Fault},
    names::Names,
};
use crate::{
    error::{Error, Result},
    record::typed::Typed,
    schema,
};

/// The columns of a schema, to which records are appended.
#[derive(Debug)]
pub(super) struct Table {
    schema: SchemaRef,
    members: Members,
    rows: usize,
}

impl Table {
    /// Returns empty columns; those named in `text` accept any value as text.
    pub(super) fn new(schema: &SchemaRef, text: &[String]) -> Self {
        let mut members = Members::new(schema.fields());
        for (field, column) in schema.fields().iter().zip(&mut members.columns) {
            if let Values::Text { style: style @ Style::Scalars, .. } = &mut column.values
                && text.contains(field.name())
            {
                *style = Style::Any;
            }
        }
        Self { schema: Arc::clone(schema), members, rows: 0 }
    }

    /// Passes over all columns but these, if there are any.
    #[must_use]
    pub(super) fn taking(mut self, taken: Option<&[String]>) -> Self {
        self.members.passed = taken.map(|taken| Passed { taken: taken.to_vec(), ..Passed::default() });
        self
    }

    /// Marks columns whose types the user gave. They accept other notations as well: numbers and booleans as strings,
    /// and anything as text.
    #[must_use]
    pub(super) fn pinning(mut self, pinned: &[String]) -> Self {
        for (field, column) in self.schema.fields().iter().zip(&mut self.members.columns) {
            if pinned.contains(field.name()) {
                column.pin();
                if let Values::Text { style: style @ Style::Scalars, .. } = &mut column.values {
                    *style = Style::Any;
                }
            }
        }
        self
    }

    /// Appends a record, or leaves the columns unchanged.
    ///
    /// # Errors
    /// If the record is malformed or a value does not fit its column.
    pub(super) fn push(&mut self, record: &str) -> Result<(), Fault> {
        let result = fault::walk(record, |deserializer, trail| {
            if trail.careful() {
                self.members.truncate(self.rows);
            }
            let visitor = MembersVisitor { members: &mut self.members, len: self.rows, trail, depth: 1 };
            deserializer.deserialize_map(visitor)
        });
        match result {
            Ok(()) => self.rows += 1,
            Err(_) => self.members.truncate(self.rows),
        }
        result
    }

    /// Appends the record at `start` of a split of lines, if it looks like the one before, and returns its end, after
    /// which a line ends. Otherwise the columns are unchanged, which implies nothing about the record.
    #[inline]
    pub(super) fn push_line(&mut self, split: &[u8], start: usize) -> Option<usize> {
        let end = fast::line(&mut self.members, self.rows, split, start);
        match end {
            Some(_) => self.rows += 1,
            None => self.members.truncate(self.rows),
        }
        end
    }

    /// Reserves memory for a split of which the first `done` of `all` bytes have been appended.
    pub(super) fn make_room(&mut self, done: usize, all: usize) {
        // The lengths of values vary; growing by a copy costs more than some unused memory.
        let times = 1.05 * all as f64 / done.max(1) as f64;
        self.members.columns.iter_mut().for_each(|column| column.reserve(times));
    }

    /// Returns the columns that some records do not have, or whose objects lack members.
    pub(super) fn lacking(&self) -> Arc<[String]> {
        let columns = self.schema.fields().iter().zip(&self.members.columns);
        columns.filter(|(_, column)| column.is_lacking()).map(|(field, _)| field.name().clone()).collect()
    }

    /// Returns the columns as arrays.
    ///
    /// # Errors
    /// If a non-nullable column has nulls.
    pub(super) fn finish(self) -> Result<RecordBatch> {
        let columns = self.members.finish()?;
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(self.schema, columns, &options)?)
    }
}

/// Named columns: those of the table, or those of a struct.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) names: Names,
    pub(super) columns: Vec<Column>,
    pub(super) order: Order,
    /// Members that are passed over; `None` if there are none.
    pub(super) passed: Option<Passed>,
}

/// Keys that are passed over beyond this number are not remembered: they are data, not names of columns.
const MAX_PASSED: usize = 256;

/// Members of the table that are not among its columns, and are passed over.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Names of the columns that are not passed over.
    taken: Vec<String>,
    /// Keys that were passed over.
    keys: Vec<String>,
    /// The text that was passed over last.
    pub(super) text: Vec<u8>,
}

impl Passed {
    /// Returns whether the member of a name that is not a column is passed over.
    pub(super) fn passes(&self, key: &str) -> bool {
        !self.taken.iter().any(|name| name == key)
    }

    /// Returns the number of a key that is passed over; `None` if it is not, or if there are too many.
    pub(super) fn number(&mut self, key: &str) -> Option<usize> {
        if let Some(known) = self.keys.iter().position(|known| known == key) {
            return Some(known);
        }
        (self.passes(key) && self.keys.len() < MAX_PASSED).then(|| {
            self.keys.push(key.to_owned());
            self.keys.len() - 1
        })
    }
}

impl Members {
    fn new(fields: &Fields) -> Self {
        let mut names = Names::default();
        for field in fields {
            names.push(field.name().clone());
        }
        let columns: Vec<Column> = fields.iter().map(|f| Column::new(f)).collect();
        Self { names, order: Order::new(columns.len()), columns, passed: None }
    }

    fn truncate(&mut self, len: usize) {
        self.columns.iter_mut().for_each(|c| c.truncate(len));
    }

    fn finish(self) -> Result<Vec<ArrayRef>> {
        self.columns.into_iter().map(Column::finish).collect()
    }
}

/// One column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) data_type: DataType,
    pub(super) nulls: Validity,
    pub(super) values: Values,
    /// Whether the user gave the type.
    pub(super) pinned: bool,
    /// Whether an object did not have it.
    lacking: bool,
}

/// The values of a column; those in place of nulls are arbitrary.
#[derive(Debug)]
pub(super) enum Values {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Booleans(Bits),
    Text {
        offsets: Vec<i32>,
        bytes: Vec<u8>,
        style: Style,
    },
    List {
        offsets: Vec<i32>,
        item: Box<Column>,
        field: FieldRef,
        /// Items of each list, if fixed.
        width: Option<usize>,
    },
    Struct {
        members: Members,
        fields: Fields,
    },
    /// Scalars of a type that only users can choose.
    Typed(Typed),
    /// A type that JSON cannot represent.
    Nulls,
}

/// Values that a text column accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Content of strings, and other scalars as written.
    Scalars,
    /// Like `Scalars`, and lists and objects as written.
    Any,
    /// Every value as written.
    Json,
}

impl Column {
    fn new(field: &Field) -> Self {
        let text = |style| Values::Text { offsets: vec![0], bytes: Vec::new(), style };
        let list = |item: &FieldRef, width| Values::List {
            offsets: vec![0],
            item: Box::new(Self::new(item)),
            field: Arc::clone(item),
            width,
        };
        let values = match field.data_type() {
            DataType::Int64 => Values::Integers(Vec::new()),
            DataType::Float64 => Values::Floats(Vec::new()),
            DataType::Boolean => Values::Booleans(Bits::default()),
            DataType::Utf8 => text(if schema::is_json(field) { Style::Json } else { Style::Scalars }),
            DataType::List(item) | DataType::LargeList(item) => list(item, None),
            DataType::FixedSizeList(item, width) => list(item, usize::try_from(*width).ok()),
            DataType::Struct(fields) if !fields.is_empty() => {
                Values::Struct { members: Members::new(fields), fields: fields.clone() }
            }
            _ => Typed::new(field).map_or(Values::Nulls, Values::Typed),
        };
        Self { data_type: field.data_type().clone(), nulls: Validity::default(), values, pinned: false, lacking: false }
    }

    fn pin(&mut self) {
        self.pinned = true;
        match &mut self.values {
            Values::List { item, .. } => item.pin(),
            Values::Struct { members, .. } => members.columns.iter_mut().for_each(Self::pin),
            _ => {}
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Appends the place of an object that does not have it.
    pub(super) fn pad(&mut self) {
        self.lacking = true;
        self.push_null();
    }

    /// Whether an object did not have it, or lacked one of the members of its values.
    fn is_lacking(&self) -> bool {
        self.lacking
            || match &self.values {
                Values::List { item, .. } => item.is_lacking(),
                Values::Struct { members, .. } => members.columns.iter().any(Self::is_lacking),
                _ => false,
            }
    }

    pub(super) fn push_null(&mut self) {
        self.nulls.push_null();
        match &mut self.values {
            Values::Integers(values) => values.push(0),
            Values::Floats(values) => values.push(0.0),
            Values::Booleans(values) => values.push(false),
            Values::Text { offsets, bytes, .. } => offsets.push(offset(bytes.len())),
            Values::List { offsets, item, width, .. } => {
                (0..width.unwrap_or(0)).for_each(|_| item.push_null());
                offsets.push(offset(item.len()));
            }
            Values::Struct { members, .. } => members.columns.iter_mut().for_each(Self::push_null),
            Values::Typed(values) => values.push_null(),
            Values::Nulls => {}
        }
    }

    /// Reserves memory for the column to grow up to `times` its length.
    fn reserve(&mut self, times: f64) {
        match &mut self.values {
            Values::Integers(values) => reserve(values, times),
            Values::Floats(values) => reserve(values, times),
            Values::Text { offsets, bytes, .. } => {
                reserve(offsets, times);
                reserve(bytes, times);
            }
            Values::List { offsets, item, .. } => {
                reserve(offsets, times);
                item.reserve(times);
            }
            Values::Struct { members, .. } => members.columns.iter_mut().for_each(|column| column.reserve(times)),
            Values::Booleans(_) | Values::Typed(_) | Values::Nulls => {}
        }
    }

    fn truncate(&mut self, len: usize) {
        self.nulls.truncate(len);
        match &mut self.values {
            Values::Integers(values) => values.truncate(len),
            Values::Floats(values) => values.truncate(len),
            Values::Booleans(values) => values.truncate(len),
            Values::Text { offsets, bytes, .. } => {
                offsets.truncate(len + 1);
                bytes.truncate(position(offsets));
            }
            Values::List { offsets, item, .. } => {
                offsets.truncate(len + 1);
                item.truncate(position(offsets));
            }
            Values::Struct { members, .. } => members.truncate(len),
            Values::Typed(values) => values.truncate(len),
            Values::Nulls => {}
        }
    }

    fn finish(self) -> Result<ArrayRef> {
        let len = self.len();
        let nulls = self.nulls.finish();
        Ok(match self.values {
            Values::Integers(values) => Arc::new(Int64Array::try_new(values.into(), nulls)?),
            Values::Floats(values) => Arc::new(Float64Array::try_new(values.into(), nulls)?),
            Values::Booleans(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Text { offsets, bytes, .. } => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(StringArray::try_new(offsets, Buffer::from_vec(bytes), nulls)?)
            }
            Values::List { item, field, width: Some(_), .. } => {
                let DataType::FixedSizeList(_, width) = self.data_type else {
                    return Err(Error::internal("expected a list of a fixed size"));
                };
                Arc::new(FixedSizeListArray::try_new_with_length(field, width, item.finish()?, nulls, len)?)
            }
            Values::List { offsets, item, field, .. } if matches!(self.data_type, DataType::LargeList(_)) => {
                let offsets = OffsetBuffer::new(offsets.into_iter().map(i64::from).collect());
                Arc::new(LargeListArray::try_new(field, offsets, item.finish()?, nulls)?)
            }
            Values::List { offsets, item, field, .. } => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(ListArray::try_new(field, offsets, item.finish()?, nulls)?)
            }
            Values::Typed(mut values) => values.finish(nulls)?,
            Values::Struct { members, fields } => Arc::new(StructArray::try_new(fields, members.finish()?, nulls)?),
            Values::Nulls => new_null_array(&self.data_type, len),
        })
    }
}

fn reserve<T>(values: &mut Vec<T>, times: f64) {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "far below 2^63, and not below zero")]
    let expected = (values.len() as f64 * times) as usize;
    // Only an estimate: without that much memory, the column grows on demand.
    let _ = values.try_reserve_exact(expected.saturating_sub(values.len()));
}

/// Whether JSON can represent values of the type.
pub(super) fn is_readable(field: &Field) -> bool {
    match field.data_type() {
        DataType::Null => true,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => is_readable(item),
        DataType::Struct(fields) => !fields.is_empty() && fields.iter().all(|field| is_readable(field)),
        _ => Typed::new(field).is_some(),
    }
}

/// Offsets fit, because a column never holds more bytes or items than its split, which is shorter than 2 GiB.
pub(super) fn offset(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

fn position(offsets: &[i32]) -> usize {
    offsets.last().and_then(|&last| usize::try_from(last).ok()).unwrap_or(0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use arrow::datatypes::Schema;

    use super::{super::fault::What, *};
    use crate::record::json::RowJson;

    fn schema_with(fields: Vec<Field>) -> SchemaRef {
        Arc::new(Schema::new(fields))
    }

    fn schema_abc() -> SchemaRef {
        let members: Fields =
            vec![Field::new("x", DataType::Int64, true), Field::new("y", DataType::Utf8, true)].into();
        schema_with(vec![
            Field::new("a", DataType::Int64, true),
            Field::new("b", DataType::Float64, true),
            Field::new("c", DataType::List(Arc::new(Field::new("item", DataType::Struct(members), true))), true),
            Field::new("d", DataType::Boolean, true),
            schema::json_field("j"),
            Field::new("t", DataType::Utf8, true),
            Field::new("date", DataType::Date32, true),
        ])
    }

    fn rows(table: Table) -> Vec<String> {
        let batch = table.finish().unwrap();
        let json = RowJson::new(&batch);
        let row = |row| {
            let mut out = Vec::new();
            json.write_row(row, &mut out);
            String::from_utf8(out).unwrap()
        };
        (0..batch.num_rows()).map(row).collect()
    }

    #[test]
    fn records_in_any_key_order_fill_the_columns() {
        let mut table = Table::new(&schema_abc(), &[]);
        table.push(r#"{"a":1,"b":2,"c":[{"x":1,"y":"s"},null,{}],"d":true,"j":[1, {}],"t":"é\n"}"#).unwrap();
        table.push(r#"{"t":1.50,"d":null,"j":"\u0041","c":[],"date":null}"#).unwrap();
        table.push("{}").unwrap();
        let nothing = r#"{"a":null,"b":null,"c":null,"d":null,"j":null,"t":null,"date":null}"#;
        assert_eq!(
            rows(table),
            [
                concat!(
                    r#"{"a":1,"b":2.0,"c":[{"x":1,"y":"s"},null,{"x":null,"y":null}],"#,
                    r#""d":true,"j":[1, {}],"t":"é\n","date":null}"#
                ),
                r#"{"a":null,"b":null,"c":[],"d":null,"j":"\u0041","t":"1.50","date":null}"#,
                nothing,
            ]
        );
    }

    #[test]
    fn a_failed_record_leaves_no_values() {
        let good = r#"{"a":1,"b":2,"c":[{"x":1}],"d":true,"j":1,"t":"s"}"#;
        let mut table = Table::new(&schema_abc(), &[]);
        table.push(good).unwrap();
        for bad in [
            r#"{"a":2,"b":3,"c":[{"x":1},{"y":"s"},{"x":"#,
            r#"{"a":2,"c":[{"x":1},{"x":"s"}]}"#,
            r#"{"a":2,"c":[{"x":1,"x":2}]}"#,
            r#"{"c":[{"x":1}],"j":2,"t":"long text","d":1}"#,
            r#"{"c":[{"x":1,"z":2}]}"#,
            r#"{"a":1}{"a":2}"#,
            r#"{"d":false,"date":"2020-01-32"}"#,
            r#"{"t":"\ud800"}"#,
        ] {
            table.push(bad).unwrap_err();
        }
        table.push(good).unwrap();
        let rows = rows(table);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0], rows[1]);
    }

    #[test]
    fn mismatches_name_the_path_and_the_value() {
        for (record, column, value) in [
            (r#"{"a":1.5}"#, "a", "1.5"),
            (r#"{"a":-0}"#, "a", "-0"),
            (r#"{"a":99999999999999999999}"#, "a", "99999999999999999999"),
            (r#"{"b":9007199254740993}"#, "b", "9007199254740993"),
            (r#"{"b":12345678901234567890123}"#, "b", "12345678901234567890123"),
            (r#"{"b":1e400}"#, "b", "1e400"),
            (r#"{"c":[{"x":"s"}]}"#, "c.x", "\"s\""),
            (r#"{"c":[{"n":{"m":1}}]}"#, "c.n", "{\"m\":1}"),
            (r#"{"c":5}"#, "c", "5"),
            (r#"{"c":{}}"#, "c", "{…}"),
            (r#"{"c":1e400}"#, "c", "1e400"),
            (r#"{"c":[{"x":1},-1e400]}"#, "c", "-1e400"),
            (r#"{"d":"true"}"#, "d", "\"true\""),
            (r#"{"t":[1]}"#, "t", "[1]"),
            (r#"{"new":null}"#, "new", "null"),
        ] {
            let fault = Table::new(&schema_abc(), &[]).push(record).unwrap_err();
            assert_eq!(fault.column.as_deref(), Some(column), "{record}");
            let What::Mismatch { value: found, .. } = fault.what else { panic!("{fault:?}") };
            assert_eq!(found, value);
        }
    }

    #[test]
    fn integers_at_the_edge_of_floats_are_exact() {
        let mut table = Table::new(&schema_abc(), &[]);
        table.push(r#"{"a":-9223372036854775808,"b":9007199254740992}"#).unwrap();
        table.push(r#"{"b":-0}"#).unwrap();
        table.push(r#"{"b":1e23}"#).unwrap();
        table.push(r#"{"b":5.1e-324}"#).unwrap();
        let rows = rows(table);
        assert!(rows[0].starts_with(r#"{"a":-9223372036854775808,"b":9007199254740992.0,"#), "{}", rows[0]);
        assert!(rows[1].contains(r#""b":-0.0"#));
        assert!(rows[2].contains(r#""b":1e+23"#));
        assert!(rows[3].contains(r#""b":5e-324"#));
    }

    #[test]
    fn text_columns_take_anything() {
        let schema = schema_with(vec![Field::new("t", DataType::Utf8, true)]);
        let mut table = Table::new(&schema, &["t".to_owned()]);
        for value in ["\"s\"", "1.0", "[1, 2]", "true", "null"] {
            table.push(&format!("{{\"t\":{value}}}")).unwrap();
        }
        assert_eq!(
            rows(table),
            [r#"{"t":"s"}"#, r#"{"t":"1.0"}"#, r#"{"t":"[1, 2]"}"#, r#"{"t":"true"}"#, r#"{"t":null}"#]
        );
    }

    #[test]
    fn depth_bombs_are_refused() {
        let schema = schema_with(vec![schema::json_field("j")]);
        let bomb = |depth: usize| format!("{{\"j\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        let mut table = Table::new(&schema, &[]);
        table.push(&bomb(126)).unwrap();
        for depth in [127, 128, 100_000] {
            let fault = table.push(&bomb(depth)).unwrap_err();
            assert!(matches!(fault.what, What::Broken { .. }), "{fault:?}");
        }
    }
}
