//! safetensors: named tensors in one file, as Hugging Face stores weights, embeddings and latents.
//!
//! ```text
//! 0      8                    8 + size
//! size   header, in JSON      the tensors, one after the other, in C order
//! ```
//!
//! All numbers are little-endian. The header is read first and in full ([`header`]); of the tensors, only the bytes of
//! a hyperslab are. Tensors have no names of dimensions, so records are along the first dimension that they share, as
//! those of NPZ are.

mod header;
#[cfg(test)]
mod tests;

use std::{any::Any, ops::Range};

use self::header::{MAX_HEADER, SIZE_BYTES};
use super::ranged::RangedInput;
use crate::{
    array::{
        Arrays, Attribute, Header, Slab, Values, Variable, name_dims,
        slab::{box_ranges, read_box},
    },
    error::{Error, Result},
};

/// Whether a file with this head is safetensors. The format has no signature: a number before an object has to do.
/// `stated` says that the name or the user states the format, so that a number which is too large is told as such.
pub fn sniff(head: &[u8], stated: bool) -> bool {
    let Some((size, json)) = head.split_first_chunk() else { return false };
    let Some((b'{', members)) = json.split_first() else { return false };
    // The members may be far behind blanks, which pad the header.
    let is_object = matches!(members.trim_ascii_start().first(), None | Some(b'"' | b'}'));
    let is_text = size.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~'));
    is_object && (u64::from_le_bytes(*size) <= MAX_HEADER || stated && !is_text)
}

/// A safetensors file.
#[derive(Debug)]
pub struct SafetensorsSource {
    input: RangedInput,
    header: Header,
    /// Offset of the first byte of each tensor.
    begins: Vec<u64>,
}

impl SafetensorsSource {
    /// Reads the header. `raw` keeps numbers without a column type, such as BF16, as their bits.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input), naming the tensor and the byte, if the header is damaged or
    /// contradicts the size of the file.
    pub fn open(input: RangedInput, raw: bool) -> Result<Self> {
        let total = input.byte_count();
        if total < SIZE_BYTES {
            return Err(Error::input(format!("expected a number of {SIZE_BYTES} bytes, found {total}")).at_byte(total));
        }
        let size = input.read_range(0..SIZE_BYTES)?;
        let size = size.first_chunk().map_or(0, |size| u64::from_le_bytes(*size));
        if size > MAX_HEADER {
            return Err(Error::input(format!("expected a header of at most {MAX_HEADER} bytes, found {size}"))
                .at_byte(0)
                .with_hint("the file is damaged, or not safetensors: download or write it again"));
        }
        if SIZE_BYTES + size > total {
            return Err(Error::input(format!("expected a header of {size} bytes, found the end of the file"))
                .at_byte(total)
                .with_hint("the file may have been cut short while it was copied or written"));
        }
        let stated = header::parse(&input.read_range(SIZE_BYTES..SIZE_BYTES + size)?, raw, total)?;
        let texts = stated.metadata.into_iter().map(|(key, text)| (key, Attribute::Text(text)));
        let mut header = Header { attributes: texts.collect(), ..Header::default() };
        let mut begins = Vec::with_capacity(stated.tensors.len());
        for tensor in stated.tensors {
            begins.push(tensor.begin);
            let shape = tensor.shape;
            header.variables.push(Variable { shape, ..Variable::with_dims(&tensor.name, tensor.dtype, &[]) });
        }
        name_dims(&mut header.variables);
        Ok(Self { input, header, begins })
    }

    fn variable(&self, number: usize) -> Result<(&Variable, u64, usize)> {
        let found = self.header.variables.get(number).zip(self.begins.get(number));
        let found = found.and_then(|(variable, begin)| Some((variable, *begin, variable.dtype.byte_width()?)));
        found.ok_or_else(|| Error::internal("no such tensor"))
    }

    /// Returns the ranges that a hyperslab needs.
    fn slab_ranges(&self, number: usize, slab: &Slab) -> Vec<Range<u64>> {
        let Ok((variable, begin, width)) = self.variable(number) else { return Vec::new() };
        let ranges = box_ranges(&variable.shape, slab, width).into_iter();
        ranges.map(|range| begin.saturating_add(range.start)..begin.saturating_add(range.end)).collect()
    }
}

impl Arrays for SafetensorsSource {
    fn header(&self) -> &Header {
        &self.header
    }

    fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
        let (variable, begin, width) = self.variable(variable)?;
        let read = |start: u64, bytes: u64| {
            let start = begin.saturating_add(start);
            self.input.read_range(start..start.saturating_add(bytes))
        };
        let mut bytes = read_box(&variable.shape, slab, width, read)?;
        if cfg!(target_endian = "big") {
            variable.dtype.swap_bytes(&mut bytes);
        }
        Ok(Values::Fixed(bytes))
    }

    fn prefetch(&self, wanted: &[(usize, Slab)]) -> Result<Option<Box<dyn Any + Send>>> {
        self.input.prefetch_parts(wanted, |(number, slab)| self.slab_ranges(*number, slab))
    }

    fn memory_bytes(&self) -> u64 {
        self.input.memory_bytes() + self.header.memory_bytes()
    }
}
