//! Finds values that the columns of a run were not made for: parts of samples that have no column, or text that is not
//! text, since Parquet has a column for each kind of part; and values in columns of rows whose types are still open.

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _},
    datatypes::{DataType, Field, Fields, SchemaRef},
    util::display::array_value_to_string,
};

use super::{Gate, GatedBlock};
use crate::{
    error::Result,
    exec::source::SourceFacts,
    format::TypeMismatch,
    record::{Part, Payload, json::shorten_text},
    schema::{file::print_type, is_open},
};

/// Gate behind the parser that compares samples with the columns of shards.
#[derive(Debug)]
pub struct FitGate {
    /// The columns.
    pub columns: SchemaRef,
}

impl Gate for FitGate {
    fn pass_block(&self, gated: &mut GatedBlock, _source: &SourceFacts) -> Result<()> {
        let Payload::Samples(samples) = &gated.block.payload else { return Ok(()) };
        let unfit = |part: &Part| match self.columns.fields().find(&part.extension).map(|(_, field)| field.data_type())
        {
            None => Some("no part of this extension"),
            Some(DataType::Utf8) if simdutf8::basic::from_utf8(&part.bytes).is_err() => Some("text in UTF-8"),
            Some(_) => None,
        };
        let found = samples.iter().find_map(|s| s.parts.iter().find_map(|part| Some((s, part, unfit(part)?))));
        gated.effects.mismatch = found.map(|(sample, part, expected)| TypeMismatch {
            column: part.extension.clone(),
            line: 0,
            byte: 0,
            value: format!("{}.{}", sample.key, part.extension),
            expected: expected.to_owned(),
        });
        Ok(())
    }
}

/// First gate of rows: it finds values where no record of those that types were inferred from has one.
///
/// Such columns, members and items are parsed as text, which every value fits. If a value came through, its type, and
/// whether it satisfies a condition, would depend on where in the source it is.
#[derive(Debug)]
pub struct OpenTypesGate {
    /// The columns that are open, or have open parts, with the types that were inferred.
    open: Fields,
}

impl OpenTypesGate {
    /// Creates the gate for columns as they were inferred; `None` if values were seen everywhere.
    pub fn new(inferred: &Fields) -> Option<Self> {
        let open: Fields = inferred.iter().filter(|field| is_open(field)).cloned().collect();
        (!open.is_empty()).then_some(Self { open })
    }
}

impl Gate for OpenTypesGate {
    fn pass_block(&self, gated: &mut GatedBlock, _source: &SourceFacts) -> Result<()> {
        let Payload::Rows(rows) = &gated.block.payload else { return Ok(()) };
        let found = |field: &Field| find_value(field, rows.column_by_name(field.name())?, field.name());
        gated.effects.mismatch = self.open.iter().find_map(|field| found(field));
        Ok(())
    }
}

/// Returns a value that is where none was when types were inferred; lists have the name of their column.
fn find_value(inferred: &Field, array: &ArrayRef, path: &str) -> Option<TypeMismatch> {
    match (inferred.data_type(), array.data_type()) {
        _ if !is_open(inferred) => None,
        (DataType::Null, _) => first_value(array, |_| true, path, inferred),
        // An object without members is text of JSON.
        (DataType::Struct(parts), DataType::Utf8) if parts.is_empty() => {
            first_value(array, |value| value != "{}", path, inferred)
        }
        (DataType::Struct(parts), DataType::Struct(_)) => {
            let columns = parts.iter().zip(array.as_struct().columns());
            columns.into_iter().find_map(|(part, column)| find_value(part, column, &format!("{path}.{}", part.name())))
        }
        (DataType::List(item), DataType::List(_)) => find_value(item, array.as_list::<i32>().values(), path),
        (DataType::LargeList(item), DataType::LargeList(_)) => find_value(item, array.as_list::<i64>().values(), path),
        (DataType::FixedSizeList(item, _), DataType::FixedSizeList(..)) => {
            find_value(item, array.as_fixed_size_list().values(), path)
        }
        _ => None,
    }
}

fn first_value(array: &ArrayRef, counts: impl Fn(&str) -> bool, path: &str, inferred: &Field) -> Option<TypeMismatch> {
    let valid = (array.null_count() < array.len()).then(|| (0..array.len()).filter(|row| array.is_valid(*row)))?;
    let value = valid.filter_map(|row| array_value_to_string(array, row).ok()).find(|value| counts(value))?;
    Some(TypeMismatch {
        column: path.to_owned(),
        line: 0,
        byte: 0,
        value: shorten_text(&value),
        expected: print_type(inferred),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{ListArray, StringArray, StructArray},
        buffer::OffsetBuffer,
    };

    use super::*;
    use crate::schema::mark_stated;

    fn field(name: &str, data_type: DataType) -> Field {
        Field::new(name, data_type, true)
    }

    fn text(values: &[Option<&str>]) -> ArrayRef {
        Arc::new(StringArray::from(values.to_vec()))
    }

    /// An empty list, and one with these items.
    fn lists(items: &[Option<&str>]) -> ArrayRef {
        let item = Arc::new(field("item", DataType::Utf8));
        Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([0, items.len()]), text(items), None))
    }

    fn found(inferred: &Field, array: &ArrayRef) -> String {
        find_value(inferred, array, "c")
            .map_or_else(String::new, |found| format!("{}: {}, {}", found.column, found.expected, found.value))
    }

    #[test]
    fn values_are_found_where_none_was() {
        let null = field("c", DataType::Null);
        assert_eq!(found(&null, &text(&[None, Some("7"), Some("8")])), "c: null, 7");
        assert_eq!(found(&null, &text(&[None, None])), "");
        let items = field("c", DataType::List(Arc::new(field("item", DataType::Null))));
        assert_eq!(found(&items, &lists(&[None, Some("x")])), "c: null, x");
        assert_eq!(found(&items, &lists(&[None])), "");
        let parts = |a| -> Fields { vec![field("a", a), field("b", DataType::Utf8)].into() };
        let object = |a, b| -> ArrayRef {
            Arc::new(StructArray::new(parts(DataType::Utf8), vec![text(&[a]), text(&[b])], None))
        };
        let inferred = field("c", DataType::Struct(parts(DataType::Null)));
        assert_eq!(found(&inferred, &object(Some("1"), None)), "c.a: null, 1");
        assert_eq!(found(&inferred, &object(None, Some("1"))), "");
        let empty = field("c", DataType::Struct(Fields::empty()));
        assert!(found(&empty, &text(&[Some("{}"), None, Some(r#"{"x":1}"#)])).ends_with(r#", {"x":1}"#));
        assert_eq!(found(&empty, &text(&[Some("{}"), None])), "");
    }

    #[test]
    fn only_types_that_nothing_states_are_open() {
        let gate = |data_type| OpenTypesGate::new(&vec![field("c", data_type)].into()).is_some();
        assert!(gate(DataType::Null) && !gate(DataType::Int64));
        assert!(OpenTypesGate::new(&mark_stated(&vec![field("c", DataType::Null)].into())).is_none());
    }
}
