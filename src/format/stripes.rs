//! Chunks that lie across the records: each is read and decoded once, and its records are fetched from disk.
//!
//! ```text
//! records  0 1 2 3 | 4 5 6 7       a block is as many records as a chunk has; its chunks are turned so that records come
//! chunk A  ------- | -------       first, and put on disk one after the other. A split is read from there: of each chunk the
//! chunk B  ------- | -------       piece with its records.
//! ```
//!
//! A chunk of one value, such as one that nobody wrote, takes no room.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use rayon::prelude::*;

use crate::{
    array::{
        Arrays, Header, Slab, Values,
        slab::{Place, copy, permute},
    },
    error::{Error, Result},
    storage::Spill,
};

/// Blocks that are kept: the one that is read, and the one before it, which others may still read.
const KEPT: usize = 2;

/// Bytes of a decoded chunk at most.
const MAX_CHUNK: usize = 256 << 20;

/// An array source some of whose variables are read by way of the disk.
#[derive(Debug)]
pub(super) struct Striped {
    inner: Box<dyn Arrays>,
    /// Numbers of the variables, and of their axis of records.
    stripes: OnceLock<BTreeMap<usize, Stripe>>,
}

#[derive(Debug)]
struct Stripe {
    axis: usize,
    chunk: Vec<u64>,
    width: usize,
    blocks: Mutex<BTreeMap<u64, Slot>>,
}

/// A block, once somebody made it.
type Slot = Arc<Mutex<Option<Arc<Block>>>>;

/// As many records as a chunk has, turned.
#[derive(Debug)]
struct Block {
    spill: Spill,
    /// Where each chunk of the block is, with its box in the array.
    chunks: Vec<(Slab, Turned)>,
}

#[derive(Debug)]
enum Turned {
    /// At this offset.
    At(u64),
    /// All elements are this one.
    Uniform(Vec<u8>),
}

impl Striped {
    pub(super) fn new(inner: Box<dyn Arrays>) -> Self {
        Self { inner, stripes: OnceLock::new() }
    }

    /// Says which variables, with the axis of their records, have chunks that no split holds all records of.
    pub(super) fn stripe(&self, variables: impl Iterator<Item = (usize, usize)>) {
        let stripe = |(number, axis): (usize, usize)| {
            let variable = &self.inner.header().variables[number];
            let (chunk, width) = (variable.chunks.clone()?, variable.dtype.width()?);
            Some((number, Stripe { axis, chunk, width, blocks: Mutex::default() }))
        };
        let _ = self.stripes.set(variables.filter_map(stripe).collect());
    }
}

impl Arrays for Striped {
    fn header(&self) -> &Header {
        self.inner.header()
    }

    fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
        let stripe = self.stripes.get().and_then(|stripes| stripes.get(&variable));
        match stripe.filter(|stripe| stripe.chunk.len() == slab.count.len() && slab.elements() > 0) {
            Some(stripe) => stripe.read(self.inner.as_ref(), variable, slab).map(Values::Fixed),
            None => self.inner.read(variable, slab),
        }
    }
}

/// The axes with that of the records in front, and back.
fn turned(axes: usize, axis: usize) -> (Vec<usize>, Vec<usize>) {
    let order: Vec<usize> = std::iter::once(axis).chain((0..axes).filter(|other| *other != axis)).collect();
    let mut back = vec![0; axes];
    order.iter().enumerate().for_each(|(place, axis)| back[*axis] = place);
    (order, back)
}

fn reordered(values: &[u64], order: &[usize]) -> Vec<u64> {
    order.iter().map(|axis| values[*axis]).collect()
}

impl Stripe {
    fn read(&self, source: &dyn Arrays, variable: usize, slab: &Slab) -> Result<Vec<u8>> {
        let (order, back) = turned(slab.count.len(), self.axis);
        let (start, count) = (reordered(&slab.start, &order), reordered(&slab.count, &order));
        let mut out = vec![0; slab.bytes(self.width)?];
        let records = self.chunk[self.axis];
        for number in start[0] / records..(start[0] + count[0]).div_ceil(records) {
            let block = self.block(source, variable, number)?;
            for (chunk, turned) in &block.chunks {
                let chunk = Slab { start: reordered(&chunk.start, &order), count: reordered(&chunk.count, &order) };
                let Some(shared) =
                    (Slab { start: start.clone(), count: count.clone() }).shared(&chunk.start, &chunk.count)
                else {
                    continue;
                };
                // The records that are wanted are one piece of the chunk.
                let mut piece = chunk.clone();
                (piece.start[0], piece.count[0]) = (shared.start[0], shared.count[0]);
                let bytes = match turned {
                    Turned::Uniform(element) => element.repeat(piece.bytes(self.width)? / self.width.max(1)),
                    Turned::At(offset) => {
                        let record = chunk.bytes(self.width)? as u64 / chunk.count[0];
                        let mut bytes = vec![0; piece.bytes(self.width)?];
                        block.spill.read(offset + (piece.start[0] - chunk.start[0]) * record, &mut bytes)?;
                        bytes
                    }
                };
                let from = Place { start: &piece.start, shape: &piece.count };
                copy(&shared, self.width, from, &bytes, Place { start: &start, shape: &count }, &mut out);
            }
        }
        Ok(if self.axis == 0 { out } else { permute(&out, self.width, &count, &back) })
    }

    /// The block with this number, made by whoever needs it first.
    fn block(&self, source: &dyn Arrays, variable: usize, number: u64) -> Result<Arc<Block>> {
        let slot = {
            let mut blocks = self.blocks.lock().unwrap_or_else(PoisonError::into_inner);
            let slot = Arc::clone(blocks.entry(number).or_default());
            while blocks.len() > KEPT && blocks.first_key_value().is_some_and(|(first, _)| *first < number) {
                blocks.pop_first();
            }
            slot
        };
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = &*slot {
            return Ok(Arc::clone(block));
        }
        let block = Arc::new(self.make(source, variable, number)?);
        *slot = Some(Arc::clone(&block));
        Ok(block)
    }

    fn make(&self, source: &dyn Arrays, variable: usize, number: u64) -> Result<Block> {
        let shape = &source.header().variables[variable].shape;
        let (order, _) = turned(shape.len(), self.axis);
        let spill = Spill::new()?;
        let counts: Vec<u64> = shape
            .iter()
            .zip(&self.chunk)
            .enumerate()
            .map(|(axis, (length, chunk))| if axis == self.axis { 1 } else { length.div_ceil(*chunk) })
            .collect();
        let total = counts.iter().try_fold(1_u64, |all, count| all.checked_mul(*count));
        let total = total.filter(|total| *total <= 1 << 24);
        let total = total.ok_or_else(|| Error::input("expected fewer chunks side by side").hint("raise --memory"))?;
        let most = Slab { start: vec![0; shape.len()], count: self.chunk.clone() }.bytes(self.width);
        if most.is_err() || most.is_ok_and(|bytes| bytes > MAX_CHUNK) || self.chunk.contains(&0) {
            return Err(Error::input(format!("expected chunks of at most {MAX_CHUNK} bytes, found {:?}", self.chunk)));
        }
        let chunk = |at: u64| -> Result<(Slab, Turned)> {
            let mut slab = Slab { start: vec![0; shape.len()], count: vec![0; shape.len()] };
            let mut rest = at;
            for axis in (0..shape.len()).rev() {
                let place = if axis == self.axis { number } else { rest % counts[axis] };
                rest /= counts[axis];
                slab.start[axis] = place * self.chunk[axis];
                slab.count[axis] = self.chunk[axis].min(shape[axis] - slab.start[axis]);
            }
            let Values::Fixed(bytes) = source.read(variable, &slab)? else {
                return Err(Error::internal("elements of any length in a chunk of fixed ones"));
            };
            let element = bytes.get(..self.width).unwrap_or_default();
            if bytes.chunks_exact(self.width.max(1)).all(|other| other == element) {
                return Ok((slab, Turned::Uniform(element.to_vec())));
            }
            let bytes = if self.axis == 0 { bytes } else { permute(&bytes, self.width, &slab.count, &order) };
            let at = spill.append(&bytes)?;
            Ok((slab, Turned::At(at)))
        };
        let chunks = (0..total).into_par_iter().map(chunk).collect::<Result<Vec<_>>>()?;
        Ok(Block { spill, chunks })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::array::{DType, Variable};

    /// An array whose elements are their own numbers, and which counts how often an element is read.
    #[derive(Debug)]
    struct Counting(Header, Arc<AtomicU64>);

    impl Arrays for Counting {
        fn header(&self) -> &Header {
            &self.0
        }

        fn read(&self, variable: usize, slab: &Slab) -> Result<Values> {
            let shape = &self.0.variables[variable].shape;
            self.1.fetch_add(slab.elements(), Ordering::Relaxed);
            let all: Vec<u8> =
                (0..u16::try_from(shape.iter().product::<u64>()).unwrap()).flat_map(u16::to_ne_bytes).collect();
            let mut out = vec![0; slab.bytes(2)?];
            let whole = Slab::all(shape);
            let from = Place { start: &whole.start, shape };
            copy(slab, 2, from, &all, Place { start: &slab.start, shape: &slab.count }, &mut out);
            Ok(Values::Fixed(out))
        }
    }

    #[test]
    fn every_chunk_is_read_once_and_every_record_is_right() {
        for axis in 0..3 {
            let reads = Arc::new(AtomicU64::new(0));
            let plain = Variable::plain("v", DType::UInt(2), &[("a", 7), ("b", 5), ("c", 6)]);
            let variable = Variable { chunks: Some(vec![4, 2, 5]), ..plain };
            let header = || Header { variables: vec![variable.clone()], ..Header::default() };
            let plain = Counting(header(), Arc::default());
            let striped = Striped::new(Box::new(Counting(header(), Arc::clone(&reads))));
            striped.stripe([(0, axis)].into_iter());
            for record in 0..variable.shape[axis] {
                let mut slab = Slab::all(&variable.shape);
                (slab.start[axis], slab.count[axis]) = (record, 1);
                assert_eq!(striped.read(0, &slab).unwrap(), plain.read(0, &slab).unwrap(), "{axis} {record}");
            }
            assert_eq!(reads.load(Ordering::Relaxed), variable.elements());
            let slab = Slab { start: vec![1, 1, 1], count: vec![5, 3, 4] };
            assert_eq!(striped.read(0, &slab).unwrap(), plain.read(0, &slab).unwrap());
        }
    }
}
