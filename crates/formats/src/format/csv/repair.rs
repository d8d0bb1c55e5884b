//! Repairs damaged records by reading them in another way: with another delimiter or quote, or with quotes that are not
//! doubled or not closed.
//!
//! A reading fits only if it results in as many fields as there are columns, with values of the columns' types. If
//! several readings with different values fit, the record is not repaired.

use super::{
    profile::Profile,
    quotes::SINGLE,
    tokenize::{CR, LF, QUOTE},
};

/// Delimiters that are tried.
const DELIMITERS: [u8; 4] = *b",;\t|";

pub(super) const OTHER_DELIMITER: &str = "a record uses another delimiter than the others and was read with it";
pub(super) const OTHER_QUOTE: &str = "a record uses `'` as the quote and was read with it";
pub(super) const UNESCAPED: &str =
    "a quoted value contains quotes that are not doubled; it was read up to the quote before the next delimiter";
pub(super) const UNCLOSED: &str = "a quote is not closed; the value was read up to where the record has all its fields";
pub(super) const SPACED: &str = "a record has spaces between delimiters and quotes, which were ignored";

/// A field, and whether it was quoted.
pub(super) type ParsedField = (Vec<u8>, bool);

/// Rules for dividing a record into fields.
#[derive(Debug, Clone, Copy)]
struct FieldRules {
    delimiter: u8,
    quote: u8,
    /// Whether a quote closes only before a delimiter or the end of the record.
    lenient: bool,
    /// Whether spaces may precede an opening quote.
    spaced: bool,
}

/// What a reading of a damaged record must match.
#[derive(Debug, Clone, Copy)]
pub(super) struct RepairTarget<'a> {
    pub(super) delimiter: u8,
    pub(super) width: usize,
    pub(super) profile: &'a Profile,
}

impl RepairTarget<'_> {
    /// Whether there are as many fields as columns, and they have the columns' types.
    pub(super) fn accepts_fields(&self, fields: &[ParsedField]) -> bool {
        fields.len() == self.width
            && self.profile.first_mismatch(fields.iter().map(|(text, _)| text.as_slice())).is_none()
    }

    /// Whether any column has a type. Without one, nearly every record has several readings.
    pub(super) fn has_types(&self) -> bool {
        self.profile.typed_columns().next().is_some()
    }

    /// Returns the only reading of the record that fits, and a remark about it.
    pub(super) fn repair_record(&self, record: &[u8]) -> Option<(Vec<ParsedField>, &'static str)> {
        if !self.has_types() {
            return None;
        }
        let plain = self.plain_rules();
        let mut found: Option<(Vec<ParsedField>, &'static str)> = None;
        let mut take = |reading: Option<Vec<ParsedField>>, why| {
            let Some(fields) = reading.filter(|fields| self.accepts_fields(fields)) else { return true };
            let same = |(other, _): &(Vec<ParsedField>, _)| other.iter().map(|f| &f.0).eq(fields.iter().map(|f| &f.0));
            if found.as_ref().is_some_and(|other| !same(other)) {
                return false;
            }
            found.get_or_insert((fields, why));
            true
        };
        let mut unique = true;
        if record.contains(&QUOTE) {
            match plain.read_fields(record) {
                Some(fields) => unique &= take(Some(fields), UNESCAPED),
                None => unique &= take(self.read_unclosed(record), UNCLOSED),
            }
            if record.windows(2).any(|two| two == b" \"") {
                unique &= take(FieldRules { spaced: true, ..plain }.read_fields(record), SPACED);
            }
        }
        if record.contains(&SINGLE) {
            let reading = FieldRules { quote: SINGLE, ..plain }.read_fields(record);
            unique &= take(reading.filter(|fields| fields.iter().any(|(_, quoted)| *quoted)), OTHER_QUOTE);
        }
        for delimiter in DELIMITERS.into_iter().filter(|one| *one != self.delimiter && record.contains(one)) {
            unique &= take(FieldRules { delimiter, ..plain }.read_fields(record), OTHER_DELIMITER);
        }
        found.filter(|_| unique)
    }

    /// Reads the unclosed quote as if it were closed where the record has the right number of fields.
    fn read_unclosed(&self, record: &[u8]) -> Option<Vec<ParsedField>> {
        let mut fields = Vec::with_capacity(self.width);
        let mut rest = record;
        loop {
            if rest.first() == Some(&QUOTE) && read_field(rest, &self.plain_rules()).is_none() {
                break;
            }
            let (one, next) = read_field(rest, &self.plain_rules())?;
            fields.push(one);
            rest = &rest[next?..];
        }
        let pieces: Vec<&[u8]> = rest[1..].split(|byte| *byte == self.delimiter).collect();
        let joined = (fields.len() + pieces.len() + 1).checked_sub(self.width).filter(|joined| *joined > 0)?;
        let (value, others) = pieces.split_at_checked(joined)?;
        fields.push((value.join(&self.delimiter), true));
        fields.extend(others.iter().map(|piece| (piece.to_vec(), false)));
        Some(fields)
    }

    fn plain_rules(&self) -> FieldRules {
        FieldRules { delimiter: self.delimiter, quote: QUOTE, lenient: true, spaced: false }
    }

    /// Returns the fields of a record whose values, at least two, are all enclosed in `'`.
    pub(super) fn all_single(&self, record: &[u8]) -> Option<Vec<ParsedField>> {
        let reading = FieldRules { quote: SINGLE, ..self.plain_rules() };
        let fields = reading.read_fields(record).filter(|fields| fields.len() == self.width)?;
        let mut values = fields.iter().filter(|(text, quoted)| *quoted || !text.is_empty());
        (values.clone().count() > 1 && values.all(|(_, quoted)| *quoted)).then_some(fields)
    }
}

impl FieldRules {
    /// Returns all fields of a record; `None` if a quote is not closed.
    fn read_fields(&self, record: &[u8]) -> Option<Vec<ParsedField>> {
        let mut fields = Vec::new();
        let mut rest = record;
        loop {
            let (one, next) = read_field(rest, self)?;
            fields.push(one);
            match next {
                Some(next) => rest = &rest[next..],
                None => return Some(fields),
            }
        }
    }
}

/// Returns the first field, and where the next one begins; `None` if its quote is not closed.
fn read_field(rest: &[u8], reading: &FieldRules) -> Option<(ParsedField, Option<usize>)> {
    let FieldRules { delimiter, quote, lenient, spaced } = *reading;
    let spaces = if spaced { rest.iter().take_while(|byte| **byte == b' ').count() } else { 0 };
    if rest.get(spaces) != Some(&quote) {
        let end = memchr::memchr(delimiter, rest);
        return Some(((rest[..end.unwrap_or(rest.len())].to_vec(), false), end.map(|end| end + 1)));
    }
    let mut value = Vec::new();
    let mut at = spaces + 1;
    loop {
        let close = at + memchr::memchr(quote, &rest[at..])?;
        value.extend_from_slice(&rest[at..close]);
        let after = &rest[close + 1..];
        if after.first() == Some(&quote) {
            value.push(quote);
            at = close + 2;
            continue;
        }
        let blank = after.iter().take_while(|byte| **byte == b' ' && delimiter != b' ').count();
        match after.get(blank) {
            None => return Some(((value, true), None)),
            Some(&byte) if byte == delimiter => return Some(((value, true), Some(close + 1 + blank + 1))),
            Some(_) if lenient => {
                value.push(quote);
                at = close + 1;
            }
            Some(_) => return None,
        }
    }
}

/// Whether anything but spaces is between a closing quote of the record and the end of its field.
pub(super) fn is_torn(record: &[u8], delimiter: u8) -> bool {
    let reading = FieldRules { delimiter, quote: QUOTE, lenient: false, spaced: false };
    memchr::memchr(QUOTE, record).is_some() && reading.read_fields(record).is_none()
}

/// Appends a record of these fields, with its terminator.
pub(super) fn write(fields: &[ParsedField], delimiter: u8, out: &mut Vec<u8>) {
    for (number, (text, quoted)) in fields.iter().enumerate() {
        if number > 0 {
            out.push(delimiter);
        }
        let special = |byte: &u8| matches!(*byte, QUOTE | LF | CR) || *byte == delimiter;
        if *quoted || text.iter().any(special) {
            out.push(QUOTE);
            for &byte in text {
                out.extend_from_slice(if byte == QUOTE { b"\"\"" } else { std::slice::from_ref(&byte) });
            }
            out.push(QUOTE);
        } else {
            out.extend_from_slice(text);
        }
    }
    out.push(LF);
}
