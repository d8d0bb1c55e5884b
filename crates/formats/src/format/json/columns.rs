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
    exact::MemberColumnsVisitor,
    fast::{self, GapOrder},
    fault::{self, RecordFault},
    names::Names,
};
use crate::{
    error::{Error, Result},
    record::typed::Typed,
    schema,
};

/// The columns of a schema, to which records are appended.
#[derive(Debug)]
pub(super) struct JsonTable {
    schema: SchemaRef,
    members: MemberColumns,
    rows: usize,
}

impl JsonTable {
    /// Returns empty columns; those named in `text` accept any value as text.
    pub(super) fn new(schema: &SchemaRef, text: &[String]) -> Self {
        let mut members = MemberColumns::new(schema.fields());
        for (field, column) in schema.fields().iter().zip(&mut members.columns) {
            if let JsonValues::Text { style: style @ TextStyle::Scalars, .. } = &mut column.values
                && text.contains(field.name())
            {
                *style = TextStyle::Any;
            }
        }
        Self { schema: Arc::clone(schema), members, rows: 0 }
    }

    /// Passes over all columns but these, if there are any.
    #[must_use]
    pub(super) fn with_projection(mut self, taken: Option<&[String]>) -> Self {
        self.members.passed = taken.map(|taken| Passed { taken: taken.to_vec(), ..Passed::default() });
        self
    }

    /// Marks columns whose types the user gave. They accept other notations as well: numbers and booleans as strings,
    /// and anything as text.
    #[must_use]
    pub(super) fn with_pinned(mut self, pinned: &[String]) -> Self {
        for (field, column) in self.schema.fields().iter().zip(&mut self.members.columns) {
            if pinned.contains(field.name()) {
                column.set_pinned();
                if let JsonValues::Text { style: style @ TextStyle::Scalars, .. } = &mut column.values {
                    *style = TextStyle::Any;
                }
            }
        }
        self
    }

    /// Appends a record, or leaves the columns unchanged.
    ///
    /// # Errors
    /// If the record is malformed or a value does not fit its column.
    pub(super) fn push_record(&mut self, record: &str) -> Result<(), RecordFault> {
        let result = fault::walk_record(record, |deserializer, trail| {
            if trail.is_careful() {
                self.members.truncate(self.rows);
            }
            let visitor = MemberColumnsVisitor { members: &mut self.members, len: self.rows, trail, depth: 1 };
            deserializer.deserialize_map(visitor)
        });
        match result {
            Ok(()) => self.rows += 1,
            Err(_) => self.members.truncate(self.rows),
        }
        result
    }

    /// Appends the record at `start` of a range of lines, if it looks like the one before, and returns its end, after
    /// which a line ends. Otherwise the columns are unchanged, which implies nothing about the record.
    #[inline]
    pub(super) fn push_line(&mut self, range: &[u8], start: usize) -> Option<usize> {
        let end = fast::append_line(&mut self.members, self.rows, range, start);
        match end {
            Some(_) => self.rows += 1,
            None => self.members.truncate(self.rows),
        }
        end
    }

    /// Reserves memory for a range of which the first `done` of `all` bytes have been appended.
    pub(super) fn make_room(&mut self, done: usize, all: usize) {
        // The lengths of values vary; growing by a copy costs more than some unused memory.
        let times = 1.05 * all as f64 / done.max(1) as f64;
        self.members.columns.iter_mut().for_each(|column| column.reserve(times));
    }

    /// Returns the columns that some records do not have, or whose objects lack members.
    pub(super) fn lacking_columns(&self) -> Arc<[String]> {
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
pub(super) struct MemberColumns {
    pub(super) names: Names,
    pub(super) columns: Vec<JsonColumn>,
    pub(super) order: GapOrder,
    /// Members that are skipped; `None` if there are none.
    pub(super) passed: Option<Passed>,
}

/// Keys that are skipped beyond this number are not remembered: they are data, not names of columns.
const MAX_PASSED: usize = 256;

/// Members of the table that are not among its columns, and are skipped.
#[derive(Debug, Default)]
pub(super) struct Passed {
    /// Names of the columns that are not skipped.
    taken: Vec<String>,
    /// Keys that were skipped.
    keys: Vec<String>,
    /// The text that was skipped last.
    pub(super) text: Vec<u8>,
}

impl Passed {
    /// Returns whether the member of a name that is not a column is skipped.
    pub(super) fn passes_over(&self, key: &str) -> bool {
        !self.taken.iter().any(|name| name == key)
    }

    /// Returns the number of a key that is skipped; `None` if it is not, or if there are too many.
    pub(super) fn passed_number(&mut self, key: &str) -> Option<usize> {
        if let Some(known) = self.keys.iter().position(|known| known == key) {
            return Some(known);
        }
        (self.passes_over(key) && self.keys.len() < MAX_PASSED).then(|| {
            self.keys.push(key.to_owned());
            self.keys.len() - 1
        })
    }
}

impl MemberColumns {
    fn new(fields: &Fields) -> Self {
        let mut names = Names::default();
        for field in fields {
            names.push(field.name().clone());
        }
        let columns: Vec<JsonColumn> = fields.iter().map(|f| JsonColumn::new(f)).collect();
        Self { names, order: GapOrder::new(columns.len()), columns, passed: None }
    }

    fn truncate(&mut self, len: usize) {
        self.columns.iter_mut().for_each(|c| c.truncate(len));
    }

    fn finish(self) -> Result<Vec<ArrayRef>> {
        self.columns.into_iter().map(JsonColumn::finish).collect()
    }
}

/// One column.
#[derive(Debug)]
pub(super) struct JsonColumn {
    pub(super) data_type: DataType,
    pub(super) nulls: Validity,
    pub(super) values: JsonValues,
    /// Whether the user gave the type.
    pub(super) pinned: bool,
    /// Whether an object did not have it.
    lacking: bool,
}

/// The values of a column; those in place of nulls are arbitrary.
#[derive(Debug)]
pub(super) enum JsonValues {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Booleans(Bits),
    Text {
        offsets: Vec<i32>,
        bytes: Vec<u8>,
        style: TextStyle,
    },
    List {
        offsets: Vec<i32>,
        item: Box<JsonColumn>,
        field: FieldRef,
        /// Items of each list, if fixed.
        width: Option<usize>,
    },
    Struct {
        members: MemberColumns,
        fields: Fields,
    },
    /// Scalars of a type that only users can choose.
    Typed(Typed),
    /// A type that JSON cannot represent.
    Nulls,
}

/// Values that a text column accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextStyle {
    /// Content of strings, and other scalars as written.
    Scalars,
    /// Like `Scalars`, and lists and objects as written.
    Any,
    /// Every value as written.
    Json,
}

impl JsonColumn {
    fn new(field: &Field) -> Self {
        let text = |style| JsonValues::Text { offsets: vec![0], bytes: Vec::new(), style };
        let list = |item: &FieldRef, width| JsonValues::List {
            offsets: vec![0],
            item: Box::new(Self::new(item)),
            field: Arc::clone(item),
            width,
        };
        let values = match field.data_type() {
            DataType::Int64 => JsonValues::Integers(Vec::new()),
            DataType::Float64 => JsonValues::Floats(Vec::new()),
            DataType::Boolean => JsonValues::Booleans(Bits::default()),
            DataType::Utf8 => text(if schema::is_json(field) { TextStyle::Json } else { TextStyle::Scalars }),
            DataType::List(item) | DataType::LargeList(item) => list(item, None),
            DataType::FixedSizeList(item, width) => list(item, usize::try_from(*width).ok()),
            DataType::Struct(fields) if !fields.is_empty() => {
                JsonValues::Struct { members: MemberColumns::new(fields), fields: fields.clone() }
            }
            _ => Typed::new(field).map_or(JsonValues::Nulls, JsonValues::Typed),
        };
        Self { data_type: field.data_type().clone(), nulls: Validity::default(), values, pinned: false, lacking: false }
    }

    fn set_pinned(&mut self) {
        self.pinned = true;
        match &mut self.values {
            JsonValues::List { item, .. } => item.set_pinned(),
            JsonValues::Struct { members, .. } => members.columns.iter_mut().for_each(Self::set_pinned),
            _ => {}
        }
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Appends the place of an object that does not have it.
    pub(super) fn push_missing(&mut self) {
        self.lacking = true;
        self.push_null();
    }

    /// Whether an object did not have it, or lacked one of the members of its values.
    fn is_lacking(&self) -> bool {
        self.lacking
            || match &self.values {
                JsonValues::List { item, .. } => item.is_lacking(),
                JsonValues::Struct { members, .. } => members.columns.iter().any(Self::is_lacking),
                _ => false,
            }
    }

    pub(super) fn push_null(&mut self) {
        self.nulls.push_null();
        match &mut self.values {
            JsonValues::Integers(values) => values.push(0),
            JsonValues::Floats(values) => values.push(0.0),
            JsonValues::Booleans(values) => values.push(false),
            JsonValues::Text { offsets, bytes, .. } => offsets.push(to_offset(bytes.len())),
            JsonValues::List { offsets, item, width, .. } => {
                (0..width.unwrap_or(0)).for_each(|_| item.push_null());
                offsets.push(to_offset(item.len()));
            }
            JsonValues::Struct { members, .. } => members.columns.iter_mut().for_each(Self::push_null),
            JsonValues::Typed(values) => values.push_null(),
            JsonValues::Nulls => {}
        }
    }

    /// Reserves memory for the column to grow up to `times` its length.
    fn reserve(&mut self, times: f64) {
        match &mut self.values {
            JsonValues::Integers(values) => reserve_growth(values, times),
            JsonValues::Floats(values) => reserve_growth(values, times),
            JsonValues::Text { offsets, bytes, .. } => {
                reserve_growth(offsets, times);
                reserve_growth(bytes, times);
            }
            JsonValues::List { offsets, item, .. } => {
                reserve_growth(offsets, times);
                item.reserve(times);
            }
            JsonValues::Struct { members, .. } => members.columns.iter_mut().for_each(|column| column.reserve(times)),
            JsonValues::Booleans(_) | JsonValues::Typed(_) | JsonValues::Nulls => {}
        }
    }

    fn truncate(&mut self, len: usize) {
        self.nulls.truncate(len);
        match &mut self.values {
            JsonValues::Integers(values) => values.truncate(len),
            JsonValues::Floats(values) => values.truncate(len),
            JsonValues::Booleans(values) => values.truncate(len),
            JsonValues::Text { offsets, bytes, .. } => {
                offsets.truncate(len + 1);
                bytes.truncate(last_offset(offsets));
            }
            JsonValues::List { offsets, item, .. } => {
                offsets.truncate(len + 1);
                item.truncate(last_offset(offsets));
            }
            JsonValues::Struct { members, .. } => members.truncate(len),
            JsonValues::Typed(values) => values.truncate(len),
            JsonValues::Nulls => {}
        }
    }

    fn finish(self) -> Result<ArrayRef> {
        let len = self.len();
        let nulls = self.nulls.finish();
        Ok(match self.values {
            JsonValues::Integers(values) => Arc::new(Int64Array::try_new(values.into(), nulls)?),
            JsonValues::Floats(values) => Arc::new(Float64Array::try_new(values.into(), nulls)?),
            JsonValues::Booleans(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            JsonValues::Text { offsets, bytes, .. } => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(StringArray::try_new(offsets, Buffer::from_vec(bytes), nulls)?)
            }
            JsonValues::List { item, field, width: Some(_), .. } => {
                let DataType::FixedSizeList(_, width) = self.data_type else {
                    return Err(Error::internal("expected a list of a fixed size"));
                };
                Arc::new(FixedSizeListArray::try_new_with_length(field, width, item.finish()?, nulls, len)?)
            }
            JsonValues::List { offsets, item, field, .. } if matches!(self.data_type, DataType::LargeList(_)) => {
                let offsets = OffsetBuffer::new(offsets.into_iter().map(i64::from).collect());
                Arc::new(LargeListArray::try_new(field, offsets, item.finish()?, nulls)?)
            }
            JsonValues::List { offsets, item, field, .. } => {
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                Arc::new(ListArray::try_new(field, offsets, item.finish()?, nulls)?)
            }
            JsonValues::Typed(mut values) => values.finish(nulls)?,
            JsonValues::Struct { members, fields } => Arc::new(StructArray::try_new(fields, members.finish()?, nulls)?),
            JsonValues::Nulls => new_null_array(&self.data_type, len),
        })
    }
}

fn reserve_growth<T>(values: &mut Vec<T>, times: f64) {
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

/// Offsets fit, because a column never holds more bytes or items than its range, which is shorter than 2 GiB.
pub(super) fn to_offset(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

fn last_offset(offsets: &[i32]) -> usize {
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

    fn rows(table: JsonTable) -> Vec<String> {
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
        let mut table = JsonTable::new(&schema_abc(), &[]);
        table.push_record(r#"{"a":1,"b":2,"c":[{"x":1,"y":"s"},null,{}],"d":true,"j":[1, {}],"t":"é\n"}"#).unwrap();
        table.push_record(r#"{"t":1.50,"d":null,"j":"\u0041","c":[],"date":null}"#).unwrap();
        table.push_record("{}").unwrap();
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
        let mut table = JsonTable::new(&schema_abc(), &[]);
        table.push_record(good).unwrap();
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
            table.push_record(bad).unwrap_err();
        }
        table.push_record(good).unwrap();
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
            let fault = JsonTable::new(&schema_abc(), &[]).push_record(record).unwrap_err();
            assert_eq!(fault.column.as_deref(), Some(column), "{record}");
            let What::Mismatch { value: found, .. } = fault.what else { panic!("{fault:?}") };
            assert_eq!(found, value);
        }
    }

    #[test]
    fn integers_at_the_edge_of_floats_are_exact() {
        let mut table = JsonTable::new(&schema_abc(), &[]);
        table.push_record(r#"{"a":-9223372036854775808,"b":9007199254740992}"#).unwrap();
        table.push_record(r#"{"b":-0}"#).unwrap();
        table.push_record(r#"{"b":1e23}"#).unwrap();
        table.push_record(r#"{"b":5.1e-324}"#).unwrap();
        let rows = rows(table);
        assert!(rows[0].starts_with(r#"{"a":-9223372036854775808,"b":9007199254740992.0,"#), "{}", rows[0]);
        assert!(rows[1].contains(r#""b":-0.0"#));
        assert!(rows[2].contains(r#""b":1e+23"#));
        assert!(rows[3].contains(r#""b":5e-324"#));
    }

    #[test]
    fn text_columns_take_anything() {
        let schema = schema_with(vec![Field::new("t", DataType::Utf8, true)]);
        let mut table = JsonTable::new(&schema, &["t".to_owned()]);
        for value in ["\"s\"", "1.0", "[1, 2]", "true", "null"] {
            table.push_record(&format!("{{\"t\":{value}}}")).unwrap();
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
        let mut table = JsonTable::new(&schema, &[]);
        table.push_record(&bomb(126)).unwrap();
        for depth in [127, 128, 100_000] {
            let fault = table.push_record(&bomb(depth)).unwrap_err();
            assert!(matches!(fault.what, What::Broken { .. }), "{fault:?}");
        }
    }
}
