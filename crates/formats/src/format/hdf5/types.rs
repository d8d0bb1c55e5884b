//! Conversion of HDF5 types to element types, and of elements to native order.

use hdf5_reader::{CompoundField, Datatype, StringPadding, StringSize, VarLenKind, error::ByteOrder};

use crate::array::{
    DType,
    dtype::{Member, Padding},
    npy,
};

/// Returns the element type; unsupported types carry the reason.
pub(super) fn dtype_of(datatype: &Datatype) -> DType {
    let refused = |why: &str| DType::Refused(why.to_owned());
    match datatype {
        Datatype::FixedPoint { size, signed, .. } => match (usize::from(*size), signed) {
            (width @ (1 | 2 | 4 | 8), true) => DType::Int(width),
            (width @ (1 | 2 | 4 | 8), false) => DType::UInt(width),
            (width, _) => refused(&format!("integers of {width} bytes")),
        },
        Datatype::FloatingPoint { size: size @ (2 | 4 | 8), .. } => DType::Float(usize::from(*size)),
        Datatype::FloatingPoint { size, .. } => refused(&format!("floats of {size} bytes")),
        Datatype::Bitfield { size: size @ (1 | 2 | 4 | 8), .. } => DType::UInt(usize::from(*size)),
        Datatype::Bitfield { .. } => refused("bit fields of unusual size"),
        Datatype::String { size: StringSize::Fixed(width), padding, .. } => {
            let padding = match padding {
                StringPadding::NullTerminate => Padding::Terminated,
                StringPadding::NullPad => Padding::Nul,
                StringPadding::SpacePad => Padding::Blank,
            };
            DType::Text(usize::try_from(*width).unwrap_or(usize::MAX), padding)
        }
        Datatype::String { size: StringSize::Variable, .. } => DType::AnyText,
        Datatype::VarLen { kind: VarLenKind::String, .. } => DType::AnyText,
        Datatype::VarLen { base, .. } => match dtype_of(base) {
            DType::Refused(why) => DType::Refused(why),
            item if item.byte_width() == Some(0) => refused("sequences of elements without a byte"),
            item => DType::Sequence(Box::new(item)),
        },
        Datatype::Compound { size, fields } => struct_dtype(*size, fields),
        Datatype::Array { base, dims } => {
            let count = dims.iter().try_fold(1_usize, |all, length| all.checked_mul(usize::try_from(*length).ok()?));
            match (dtype_of(base), count) {
                (DType::Refused(why), _) => DType::Refused(why),
                (item, Some(count)) => DType::Array(Box::new(item), count),
                (_, None) => refused("arrays of more elements than can be"),
            }
        }
        Datatype::Enum { base, members } => {
            let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
            match dtype_of(base) {
                // h5py's representation of booleans.
                DType::Int(1) if names == ["FALSE", "TRUE"] => DType::Bool,
                other => other,
            }
        }
        // h5py's representation of the times of numpy.
        Datatype::Opaque { size: 8, tag } if tag.starts_with("NUMPY:") => {
            let (dtype, swapped) = npy::parse_type_string(&tag["NUMPY:".len()..]).unwrap_or((DType::Opaque(8), false));
            if swapped { DType::Opaque(8) } else { dtype }
        }
        Datatype::Opaque { size, .. } => DType::Opaque(usize::try_from(*size).unwrap_or(usize::MAX)),
        Datatype::Reference { .. } => refused("references to objects or regions"),
    }
}

fn struct_dtype(size: u32, fields: &[CompoundField]) -> DType {
    let width = usize::try_from(size).unwrap_or(usize::MAX);
    let members: Vec<Member> = fields
        .iter()
        .map(|field| Member {
            name: field.name.clone(),
            offset: usize::try_from(field.byte_offset).unwrap_or(usize::MAX),
            dtype: dtype_of(&field.datatype),
        })
        .collect();
    if let Some(why) = members.iter().find_map(|member| member.dtype.refusal_reason()) {
        return DType::Refused(why.to_owned());
    }
    // h5py's representation of complex numbers.
    if let [re, im] = members.as_slice()
        && (re.name.as_str(), im.name.as_str()) == ("r", "i")
        && let (DType::Float(part @ (4 | 8)), true) = (&re.dtype, re.dtype == im.dtype)
        && (re.offset, im.offset, width) == (0, *part, 2 * part)
    {
        return DType::Complex(*part);
    }
    let within = |member: &Member| {
        // A member of variable length is stored as a reference.
        let end = member.offset.checked_add(member.dtype.byte_width().unwrap_or(1));
        end.is_some_and(|end| end <= width)
    };
    if members.is_empty() || !members.iter().all(within) {
        return DType::Refused("structs with members beyond their end".to_owned());
    }
    DType::Struct(members, width)
}

/// Converts elements to native byte order, in place.
pub(super) fn to_native(datatype: &Datatype, bytes: &mut [u8]) {
    let other = if cfg!(target_endian = "little") { ByteOrder::BigEndian } else { ByteOrder::LittleEndian };
    match datatype {
        Datatype::FixedPoint { byte_order, .. }
        | Datatype::FloatingPoint { byte_order, .. }
        | Datatype::Bitfield { byte_order, .. }
            if *byte_order == other =>
        {
            dtype_of(datatype).swap_bytes(bytes);
        }
        Datatype::Enum { base, .. } | Datatype::Array { base, .. } => to_native(base, bytes),
        Datatype::Compound { size, fields } if fields.iter().any(|field| has_byte_order(&field.datatype, other)) => {
            let size = usize::try_from(*size).unwrap_or(0).max(1);
            for element in bytes.chunks_exact_mut(size) {
                for field in fields {
                    let start = usize::try_from(field.byte_offset).unwrap_or(usize::MAX);
                    let end = dtype_of(&field.datatype).byte_width().and_then(|width| start.checked_add(width));
                    if let Some(member) = end.and_then(|end| element.get_mut(start..end)) {
                        to_native(&field.datatype, member);
                    }
                }
            }
        }
        _ => {}
    }
}

/// Whether some part of a type has this byte order.
fn has_byte_order(datatype: &Datatype, order: ByteOrder) -> bool {
    match datatype {
        Datatype::FixedPoint { byte_order, .. }
        | Datatype::FloatingPoint { byte_order, .. }
        | Datatype::Bitfield { byte_order, .. } => *byte_order == order,
        Datatype::Enum { base, .. } | Datatype::Array { base, .. } => has_byte_order(base, order),
        Datatype::Compound { fields, .. } => fields.iter().any(|field| has_byte_order(&field.datatype, order)),
        _ => false,
    }
}
