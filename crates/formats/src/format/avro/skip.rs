//! Skips values that no column takes: their bytes are followed, not looked at.

use std::collections::HashMap;

use super::{
    input::{Damage, Input},
    schema::{Stored, Type},
};

/// Maximum depth of values of recursive types.
const MAX_DEPTH: usize = 256;

/// Skips a value. `named` has the recursive types.
pub(super) fn skip_value(of: &Type, input: &mut Input<'_>, named: &HashMap<String, Type>) -> Result<(), Box<Damage>> {
    skip_within(of, input, named, MAX_DEPTH)
}

fn skip_within(
    of: &Type,
    input: &mut Input<'_>,
    named: &HashMap<String, Type>,
    depth: usize,
) -> Result<(), Box<Damage>> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(input.damage(&format!("expected values of at most {MAX_DEPTH} levels, found a deeper one")));
    };
    match &of.stored {
        Stored::Null => Ok(()),
        Stored::Boolean => input.take_bytes(1).map(drop),
        Stored::Int | Stored::Long | Stored::Enum(_) => input.take_long().map(drop),
        Stored::Float => input.take_bytes(4).map(drop),
        Stored::Double => input.take_bytes(8).map(drop),
        Stored::Bytes | Stored::Text => input.take_counted().map(drop),
        Stored::Fixed(bytes) => input.take_bytes(*bytes).map(drop),
        Stored::Record(members) => members.iter().try_for_each(|member| skip_within(&member.of, input, named, depth)),
        Stored::Array(item) => skip_items(item.least, input, |input| skip_within(item, input, named, depth)),
        Stored::Map(value) => skip_items(value.least + 1, input, |input| {
            input.take_counted()?;
            skip_within(value, input, named, depth)
        }),
        Stored::Union(branches) => {
            let branch = input.take_long()?;
            match usize::try_from(branch).ok().and_then(|branch| branches.get(branch)) {
                Some(of) => skip_within(of, input, named, depth),
                None => {
                    Err(input.damage(&format!("expected a branch of a union below {}, found {branch}", branches.len())))
                }
            }
        }
        Stored::Again(name) => match named.get(&**name) {
            Some(of) => skip_within(of, input, named, depth),
            None => Err(input.damage("expected a value of a known type, found another")),
        },
    }
}

/// Skips the items of an array or a map.
fn skip_items<'a>(
    least: u64,
    input: &mut Input<'a>,
    mut skip: impl FnMut(&mut Input<'a>) -> Result<(), Box<Damage>>,
) -> Result<(), Box<Damage>> {
    loop {
        let (count, bytes) = input.take_count(least, u64::MAX)?;
        match bytes {
            _ if count == 0 => return Ok(()),
            Some(bytes) => input.take_bytes(bytes).map(drop)?,
            // Items that have no bytes need no time.
            None if least == 0 => {}
            None => (0..count).try_for_each(|_| skip(input))?,
        }
    }
}
