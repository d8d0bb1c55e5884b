//! Fields by their names, for schemas with very many of them.
//!
//! `Fields::find` compares a name with one field after the other, so that looking up all columns of a table takes time
//! that grows with their square. Names are mostly looked up in the order in which they are stored; then no hash table
//! is needed.

use std::{
    cell::{Cell, OnceCell},
    collections::HashMap,
};

use arrow::datatypes::{FieldRef, Fields};

/// Finds fields, which have distinct names.
#[derive(Debug)]
pub struct ByName<'a> {
    fields: &'a Fields,
    /// Place behind the last one that was found.
    next: Cell<usize>,
    /// Made when a name is not at the next place.
    places: OnceCell<HashMap<&'a str, usize>>,
}

impl<'a> ByName<'a> {
    /// Creates a lookup of these fields.
    pub const fn new(fields: &'a Fields) -> Self {
        Self { fields, next: Cell::new(0), places: OnceCell::new() }
    }

    /// Returns the place of a field, and the field.
    pub fn find(&self, name: &str) -> Option<(usize, &'a FieldRef)> {
        let is_next = |at: &usize| self.fields.get(*at).is_some_and(|field| field.name() == name);
        let at = match Some(self.next.get()).filter(is_next) {
            Some(at) => at,
            None => *self.index_by_name().get(name)?,
        };
        self.next.set(at + 1);
        Some((at, self.fields.get(at)?))
    }

    fn index_by_name(&self) -> &HashMap<&'a str, usize> {
        self.places
            .get_or_init(|| self.fields.iter().enumerate().map(|(at, field)| (field.name().as_str(), at)).collect())
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn fields_are_found_in_any_order() {
        let fields: Fields = ["a", "b", "c"].into_iter().map(|name| Field::new(name, DataType::Int8, true)).collect();
        let names = ByName::new(&fields);
        for name in ["a", "b", "b", "c", "x", "a", "c", "", "b"] {
            assert_eq!(names.find(name), fields.find(name), "{name}");
        }
        let none = Fields::empty();
        assert_eq!(ByName::new(&none).find("a"), None);
    }
}
