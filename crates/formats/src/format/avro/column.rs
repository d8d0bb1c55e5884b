//! Columns that grow value by value while the records of blocks are decoded.
//!
//! ```text
//! record 1   | id | name    | tags        |        each column takes its bytes of each record
//! record 2   | id | name      | tags |
//! ```
//!
//! A value that its type cannot have becomes a null and is noted, and its record is taken out at the end. After
//! damage, columns are cut back to the records before the block.

use std::sync::Arc;

use arrow::{
    array::{BooleanBufferBuilder, NullBufferBuilder},
    datatypes::i256,
};

use super::{
    fields::{Branches, branches_of},
    input::{Damage, Input},
    schema::{Meaning, Stored, Type, is_small},
};

/// Maximum number of items without any bytes in an array.
const MAX_EMPTY: u64 = 1 << 16;

/// Bytes that an item without any counts as.
const EMPTY_BYTES: u64 = 256;

/// What decoding needs beside the bytes.
pub(super) struct Decoding {
    /// Bytes of values that there is room for.
    pub(super) room: u64,
    /// Whether texts are checked one by one; else all at the end.
    pub(super) checks_text: bool,
    /// The first value of the current record that its type cannot have.
    pub(super) fault: Option<String>,
}

impl Decoding {
    /// Takes room for values.
    pub(super) fn spend(&mut self, count: u64, of: Weight, input: &Input<'_>) -> Result<(), Box<Damage>> {
        let bytes = if of.least == 0 { of.bytes.max(EMPTY_BYTES) } else { of.bytes };
        match self.room.checked_sub(count.saturating_mul(bytes)) {
            Some(left) => self.room = left,
            None => return Err(input.damage("expected blocks whose values fit into memory; raise --memory")),
        }
        Ok(())
    }

    fn note_fault(&mut self, reason: impl FnOnce() -> String) {
        if self.fault.is_none() {
            self.fault = Some(reason());
        }
    }
}

/// What a value takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weight {
    /// Bytes of a column, apart from those of texts and items.
    pub(super) bytes: u64,
    /// Fewest bytes in a block.
    pub(super) least: u64,
}

/// Values of variable length.
#[derive(Default)]
pub(super) struct Variable {
    pub(super) offsets: Vec<i32>,
    pub(super) bytes: Vec<u8>,
}

impl Variable {
    fn push(&mut self, value: &[u8]) {
        self.bytes.extend_from_slice(value);
        self.end_value();
    }

    fn end_value(&mut self) {
        // Blocks have fewer bytes than offsets can count.
        self.offsets.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
    }

    fn truncate(&mut self, length: usize) {
        self.offsets.truncate(length);
        self.bytes.truncate(end_of(&self.offsets));
    }
}

/// Returns the last offset, where the next value begins.
fn end_of(offsets: &[i32]) -> usize {
    offsets.last().and_then(|end| usize::try_from(*end).ok()).unwrap_or(0)
}

/// A column, or a part of one.
pub(super) struct AvroColumn {
    /// Number of the branch that is null, if values are in a union.
    union: Option<Option<i64>>,
    pub(super) valid: NullBufferBuilder,
    pub(super) values: Values,
    weight: Weight,
}

/// The values of a column. Offsets are those of the ends of values.
pub(super) enum Values {
    Null(usize),
    Boolean(BooleanBufferBuilder),
    Int(Vec<i32>),
    Long(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Bytes(Variable),
    Text(Variable),
    Enum(Arc<[String]>, Variable),
    Fixed(usize, Vec<u8>),
    /// Numbers of at most so many digits, of a fixed number of bytes or with a length.
    Decimal(Digits, Vec<i128>),
    LargeDecimal(Digits, Vec<i256>),
    List(Vec<i32>, Box<AvroColumn>),
    Map(Vec<i32>, Variable, Box<AvroColumn>),
    Struct(usize, Vec<AvroColumn>),
}

/// How decimals are stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Digits {
    digits: u32,
    fixed: Option<usize>,
}

impl AvroColumn {
    /// Creates an empty column of a type that has an Arrow type.
    pub(super) fn new(of: &Type) -> Self {
        let (one, union) = match branches_of(of) {
            Some(Branches::Of(one, null)) => (one, Some(null)),
            Some(Branches::None(_)) | None => (of, None),
        };
        let values = Values::new(one);
        let weight = Weight { bytes: values.weight_bytes(), least: of.least };
        Self { union, valid: NullBufferBuilder::new(0), values, weight }
    }

    /// Returns what a value of it takes.
    pub(super) fn weight(&self) -> Weight {
        self.weight
    }

    /// Reads a value.
    pub(super) fn read_value(&mut self, input: &mut Input<'_>, decoding: &mut Decoding) -> Result<(), Box<Damage>> {
        if let Some(null) = self.union {
            let branch = input.take_long()?;
            if Some(branch) == null {
                self.push_null();
                return Ok(());
            }
            if !(0..=i64::from(null.is_some())).contains(&branch) {
                let branches = 1 + usize::from(null.is_some());
                return Err(input.damage(&format!("expected a branch of a union below {branches}, found {branch}")));
            }
        }
        match self.values.read_value(input, decoding)? {
            Read::Value => self.valid.append_non_null(),
            Read::Fault => self.valid.append_null(),
        }
        Ok(())
    }

    fn push_null(&mut self) {
        self.valid.append_null();
        self.values.push_null();
    }

    /// Cuts the column back to its first values.
    pub(super) fn truncate(&mut self, length: usize) {
        self.valid.truncate(length);
        self.values.truncate(length);
    }
}

/// What a value was.
enum Read {
    Value,
    /// A value that its type cannot have; a null is in its place.
    Fault,
}

impl Values {
    fn new(of: &Type) -> Self {
        let fixed = match &of.stored {
            Stored::Fixed(bytes) => Some(*bytes),
            _ => None,
        };
        if let Some(Meaning::Decimal { digits, .. }) = of.meaning {
            let stored = Digits { digits, fixed };
            return match is_small(digits) {
                true => Self::Decimal(stored, Vec::new()),
                false => Self::LargeDecimal(stored, Vec::new()),
            };
        }
        match &of.stored {
            Stored::Boolean => Self::Boolean(BooleanBufferBuilder::new(0)),
            Stored::Int => Self::Int(Vec::new()),
            Stored::Long => Self::Long(Vec::new()),
            Stored::Float => Self::Float(Vec::new()),
            Stored::Double => Self::Double(Vec::new()),
            Stored::Bytes => Self::Bytes(Variable::default()),
            Stored::Text => Self::Text(Variable::default()),
            Stored::Fixed(bytes) => Self::Fixed(*bytes, Vec::new()),
            Stored::Enum(symbols) => Self::Enum(Arc::clone(symbols), Variable::default()),
            Stored::Array(item) => Self::List(Vec::new(), Box::new(AvroColumn::new(item))),
            Stored::Map(value) => Self::Map(Vec::new(), Variable::default(), Box::new(AvroColumn::new(value))),
            Stored::Record(members) => {
                Self::Struct(0, members.iter().map(|member| AvroColumn::new(&member.of)).collect())
            }
            // Columns of other unions and of recursive types are refused.
            Stored::Null | Stored::Union(_) | Stored::Again(_) => Self::Null(0),
        }
    }

    fn weight_bytes(&self) -> u64 {
        match self {
            Self::Null(_) => 0,
            Self::Boolean(_) => 1,
            Self::Int(_) | Self::Float(_) | Self::Bytes(_) | Self::Text(_) | Self::Enum(..) => 4,
            Self::List(..) | Self::Map(..) => 4,
            Self::Long(_) | Self::Double(_) => 8,
            Self::Fixed(bytes, _) => *bytes as u64,
            Self::Decimal(..) => 16,
            Self::LargeDecimal(..) => 32,
            Self::Struct(_, parts) => parts.iter().map(|part| part.weight.bytes).fold(1, u64::saturating_add),
        }
    }

    #[inline]
    fn read_value(&mut self, input: &mut Input<'_>, decoding: &mut Decoding) -> Result<Read, Box<Damage>> {
        match self {
            Self::Long(values) => values.push(input.take_long()?),
            Self::Text(texts) => {
                let text = input.take_counted()?;
                if decoding.checks_text && !is_text(text) {
                    decoding.note_fault(|| not_text(text));
                    texts.end_value();
                    return Ok(Read::Fault);
                }
                texts.push(text);
            }
            Self::Int(values) => {
                let value = input.take_long()?;
                let Ok(value) = i32::try_from(value) else {
                    decoding.note_fault(|| format!("expected an int of 32 bits, found {value}"));
                    values.push(0);
                    return Ok(Read::Fault);
                };
                values.push(value);
            }
            Self::Double(values) => values.push(f64::from_le_bytes(input.take_array()?)),
            Self::Float(values) => values.push(f32::from_le_bytes(input.take_array()?)),
            Self::Boolean(values) => {
                let [byte] = input.take_array()?;
                values.append(byte == 1);
                if byte > 1 {
                    decoding.note_fault(|| format!("expected a boolean of 0 or 1, found {byte}"));
                    return Ok(Read::Fault);
                }
            }
            Self::Bytes(values) => values.push(input.take_counted()?),
            Self::Fixed(bytes, values) => values.extend_from_slice(input.take_bytes(*bytes)?),
            Self::Null(count) => *count += 1,
            Self::Struct(count, parts) => {
                *count += 1;
                parts.iter_mut().try_for_each(|part| part.read_value(input, decoding))?;
            }
            other => return other.read_composed(input, decoding),
        }
        Ok(Read::Value)
    }

    /// Reads a value that takes more than a step.
    fn read_composed(&mut self, input: &mut Input<'_>, decoding: &mut Decoding) -> Result<Read, Box<Damage>> {
        match self {
            Self::Enum(symbols, texts) => {
                let number = input.take_long()?;
                match usize::try_from(number).ok().and_then(|number| symbols.get(number)) {
                    Some(symbol) => {
                        let weight = Weight { bytes: symbol.len() as u64, least: 1 };
                        decoding.spend(1, weight, input)?;
                        texts.push(symbol.as_bytes());
                    }
                    None => {
                        let most = symbols.len();
                        decoding.note_fault(|| format!("expected one of {most} symbols, found number {number}"));
                        texts.end_value();
                        return Ok(Read::Fault);
                    }
                }
            }
            Self::Decimal(stored, values) => {
                let value = stored.take_bytes(input)?;
                let fits = |value: &i128| value.unsigned_abs() < 10_u128.pow(stored.digits);
                let Some(value) = signed::<16>(value).map(i128::from_be_bytes).filter(fits) else {
                    decoding.note_fault(|| stored.too_long());
                    values.push(0);
                    return Ok(Read::Fault);
                };
                values.push(value);
            }
            Self::LargeDecimal(stored, values) => {
                let value = stored.take_bytes(input)?;
                let most = i256::from_i128(10).wrapping_pow(stored.digits);
                let fits = |value: &i256| *value < most && *value > most.wrapping_neg();
                let Some(value) = signed::<32>(value).map(i256::from_be_bytes).filter(fits) else {
                    decoding.note_fault(|| stored.too_long());
                    values.push(i256::ZERO);
                    return Ok(Read::Fault);
                };
                values.push(value);
            }
            Self::List(offsets, items) => {
                let count =
                    read_items(input, decoding, items.weight, |input, decoding| items.read_value(input, decoding))?;
                push_end(offsets, count);
            }
            Self::Map(offsets, keys, values) => {
                let weight = Weight { bytes: values.weight.bytes + 4, least: values.weight.least + 1 };
                let count = read_items(input, decoding, weight, |input, decoding| {
                    let key = input.take_counted()?;
                    match decoding.checks_text && !is_text(key) {
                        true => {
                            decoding.note_fault(|| not_text(key));
                            keys.end_value();
                        }
                        false => keys.push(key),
                    }
                    values.read_value(input, decoding)
                })?;
                push_end(offsets, count);
            }
            _ => {}
        }
        Ok(Read::Value)
    }

    fn push_null(&mut self) {
        match self {
            Self::Null(count) => *count += 1,
            Self::Boolean(values) => values.append(false),
            Self::Int(values) => values.push(0),
            Self::Long(values) => values.push(0),
            Self::Float(values) => values.push(0.0),
            Self::Double(values) => values.push(0.0),
            Self::Bytes(values) | Self::Text(values) | Self::Enum(_, values) => values.end_value(),
            Self::Fixed(bytes, values) => values.resize(values.len() + *bytes, 0),
            Self::Decimal(_, values) => values.push(0),
            Self::LargeDecimal(_, values) => values.push(i256::ZERO),
            Self::List(offsets, _) | Self::Map(offsets, ..) => push_end(offsets, 0),
            Self::Struct(count, parts) => {
                *count += 1;
                parts.iter_mut().for_each(AvroColumn::push_null);
            }
        }
    }

    fn truncate(&mut self, length: usize) {
        match self {
            Self::Null(count) => *count = length,
            Self::Boolean(values) => values.truncate(length),
            Self::Int(values) => values.truncate(length),
            Self::Long(values) => values.truncate(length),
            Self::Float(values) => values.truncate(length),
            Self::Double(values) => values.truncate(length),
            Self::Bytes(values) | Self::Text(values) | Self::Enum(_, values) => values.truncate(length),
            Self::Fixed(bytes, values) => values.truncate(length * *bytes),
            Self::Decimal(_, values) => values.truncate(length),
            Self::LargeDecimal(_, values) => values.truncate(length),
            Self::List(offsets, items) => {
                offsets.truncate(length);
                items.truncate(end_of(offsets));
            }
            Self::Map(offsets, keys, values) => {
                offsets.truncate(length);
                keys.truncate(end_of(offsets));
                values.truncate(end_of(offsets));
            }
            Self::Struct(count, parts) => {
                *count = length;
                parts.iter_mut().for_each(|part| part.truncate(length));
            }
        }
    }
}

/// Reads the items of an array or a map; returns their number.
fn read_items<'a>(
    input: &mut Input<'a>,
    decoding: &mut Decoding,
    weight: Weight,
    mut read: impl FnMut(&mut Input<'a>, &mut Decoding) -> Result<(), Box<Damage>>,
) -> Result<usize, Box<Damage>> {
    let mut all = 0;
    loop {
        let (count, bytes) = input.take_count(weight.least, MAX_EMPTY)?;
        if count == 0 {
            return Ok(all);
        }
        decoding.spend(count, weight, input)?;
        let start = input.offset();
        for _ in 0..count {
            read(input, decoding)?;
            all += 1;
        }
        let found = input.offset() - start;
        if let Some(expected) = bytes.filter(|bytes| *bytes != found) {
            return Err(input.damage(&format!("expected {expected} bytes of items, found {found}")));
        }
    }
}

fn push_end(offsets: &mut Vec<i32>, count: usize) {
    let end = offsets.last().copied().unwrap_or(0);
    offsets.push(end.saturating_add(i32::try_from(count).unwrap_or(i32::MAX)));
}

impl Digits {
    fn take_bytes<'a>(self, input: &mut Input<'a>) -> Result<&'a [u8], Box<Damage>> {
        match self.fixed {
            Some(bytes) => input.take_bytes(bytes),
            None => input.take_counted(),
        }
    }

    fn too_long(self) -> String {
        format!("expected a decimal of at most {} digits, found one of more", self.digits)
    }
}

/// Returns a number in two's complement with more bytes, or with fewer if these only repeat its sign.
fn signed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let fill = if bytes.first().is_some_and(|first| *first >= 0x80) { 0xff } else { 0 };
    let mut all = [fill; N];
    match bytes.len().checked_sub(N) {
        None | Some(0) => all[N - bytes.len()..].copy_from_slice(bytes),
        Some(more) => {
            let (sign, rest) = bytes.split_at(more);
            let keeps_sign = (rest[0] >= 0x80) == (fill == 0xff);
            if !keeps_sign || sign.iter().any(|byte| *byte != fill) {
                return None;
            }
            all.copy_from_slice(rest);
        }
    }
    Some(all)
}

fn is_text(bytes: &[u8]) -> bool {
    simdutf8::basic::from_utf8(bytes).is_ok()
}

fn not_text(bytes: &[u8]) -> String {
    format!("expected text in UTF-8, found `{}`", shown(bytes))
}

/// Returns bytes as messages show them.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(40)].escape_ascii().to_string()
}
