//! Decides when a shard is full.
//!
//! Records that are framed individually roll to the next shard at the record that brings the size closest to the
//! target. Parquet rolls between row groups, whose size on disk is known only after encoding. So [`RowGroupPlanner`]
//! limits the rows that fill up a shard to the size that is still missing, estimated from the compression so far.
//! It uses only results that are a fixed number of units old (near the end of a shard, all results), never those that
//! happen to be finished, so its decisions do not depend on threads.
//!
//! A shard ends at its *aim*, so that no small remainder becomes the last shard. [`Spread`] estimates the rest of the
//! output, the open shard included, from the stored bytes of the input that are left and the output per input byte so
//! far, and divides it into equal shards:
//!
//! ```text
//! rest in targets   shards   aim of each, in targets
//! up to 1.12        1        all of the rest
//! 1.12 to 4.5       2 to 5   0.56 to 1.12: a rest of 1.3 becomes 0.65 + 0.65, not 1 + 0.3
//! from 4.5 on       5 ...    0.9 to 1.1
//! ```
//!
//! The number of shards is the one whose aim differs least from the target. Each new estimate differs a little from the
//! last one, so a planned number is kept as long as its aim is acceptable; this is how a shard may exceed 1.12 targets.
//! Without an estimate the aim is the target, and the last shard has what is left.

/// Returns whether a shard of `size` bytes should end before `next` bytes are added.
pub fn rolls_before(size: u64, next: u64, target: u64) -> bool {
    // Ending here misses the target by `target - size` bytes, continuing by `size + next - target`.
    size > 0 && size + next / 2 >= target
}

/// Maximum size of a shard that is planned, as a fraction of the target.
const MOST: f64 = 1.12;

/// Sizes, as fractions of the target, between which the planned number of shards is kept.
const KEPT: std::ops::RangeInclusive<f64> = 0.88..=1.16;

/// Maximum such size if the open shard is larger than it should be with one more shard.
const KEPT_LATE: f64 = 1.2;

/// Maximum difference between the planned number of shards and the rest in targets at which the number is kept.
const KEPT_OFF: f64 = 0.6;

/// Maximum error of the rest, as a fraction of the target.
const MAX_ERROR: f64 = 0.05;

/// Returns the number of shards for that many bytes of output.
pub fn shard_count(bytes: u64, target: u64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive whole number")]
    let count = nearest_count(bytes as f64 / target.max(1) as f64) as u64;
    count.min(bytes)
}

/// Returns the number of equal shards whose size differs least from the target and is not too large; `rest` is in
/// targets.
fn nearest_count(rest: f64) -> f64 {
    let fewer = rest.floor().max(1.0);
    let (above, below) = (rest / fewer - 1.0, 1.0 - rest / (fewer + 1.0));
    if above > below || above > MOST - 1.0 { fewer + 1.0 } else { fewer }
}

/// Stored bytes of the input of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputSize {
    /// Bytes of all sources.
    pub bytes: u64,
    /// Maximum error of the bytes read so far: those of the largest source of which only the start and the end are
    /// known to have been read, because it is compressed.
    pub error: u64,
}

/// Divides the rest of the output into equal shards.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    target: f64,
    /// `None` if it is unknown.
    input: Option<InputSize>,
    /// Planned number of shards, the open one included.
    shards: Option<f64>,
}

/// Size at which the open shard should end.
#[derive(Debug, Clone, Copy)]
pub struct Aim {
    bytes: f64,
    /// Whether no shard should follow it.
    is_last: bool,
}

impl Aim {
    /// Returns whether a shard of `size` bytes should end before `next` bytes are added.
    pub fn rolls_before(self, size: u64, next: u64) -> bool {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive size")]
        let bytes = self.bytes.round() as u64;
        !self.is_last && rolls_before(size, next, bytes)
    }
}

impl Spread {
    /// Creates a plan for shards of `target` bytes.
    pub fn new(target: u64, input: Option<InputSize>) -> Self {
        Self { target: target.max(1) as f64, input, shards: None }
    }

    /// Estimates the output that follows after `read` bytes of input, given that the first `known_read` of them gave
    /// `known_written` bytes of output; `None` if the estimate may be too far off.
    pub fn estimate_left(&self, read: u64, known_read: u64, known_written: u64) -> Option<f64> {
        let input = self.input?;
        let ratio = known_written as f64 / (known_read > 0).then_some(known_read as f64)?;
        let is_exact = input.error as f64 * ratio <= MAX_ERROR * self.target;
        is_exact.then(|| input.bytes.saturating_sub(read) as f64 * ratio)
    }

    /// Decides where the open shard should end; `open` are its bytes so far, `left` those that follow, if known.
    pub fn next_aim(&mut self, open: f64, left: Option<f64>) -> Aim {
        let Some(rest) = left.map(|left| (open + left) / self.target) else {
            self.shards = None;
            return Aim { bytes: self.target, is_last: false };
        };
        let is_late = |planned: f64| open / self.target * (planned + 1.0) > rest && rest / planned <= KEPT_LATE;
        let shards = match self.shards {
            Some(planned) if KEPT.contains(&(rest / planned)) && (rest - planned).abs() <= KEPT_OFF => planned,
            Some(planned) if rest > planned && is_late(planned) => planned,
            _ => nearest_count(rest),
        };
        self.shards = Some(shards);
        Aim { bytes: rest * self.target / shards, is_last: shards <= 1.0 }
    }

    /// Notes that the open shard has ended.
    pub fn end_shard(&mut self) {
        self.shards = self.shards.map(|shards| (shards - 1.0).max(1.0));
    }
}

/// Number of newest row groups whose encoded size need not be known when the next one is cut.
const LAG: usize = 2;

/// A shard that reached this fraction of its aim gets no more row groups.
const FULL: f64 = 0.97;

/// A shard below this fraction of the target gets more row groups unless it reached [`CLOSE`] of its aim.
const MIN_FULL: f64 = 0.9;

/// A shard that reached this fraction of its aim gets no more row groups, however small the aim is.
const CLOSE: f64 = 0.99;

/// A row group may fill up a shard if at most this fraction of the aim is missing.
const MAX_LAST_FRACTION: f64 = 0.3;

/// Otherwise, a row group is limited to this fraction of the missing bytes.
const APPROACH_FRACTION: f64 = 0.6;

/// The row groups of the last shard have room for this multiple of the rows that are expected, so that no tiny one
/// follows.
const LAST_ROOM: f64 = 1.1;

/// Divisor of the target that gives the size of a run's first row group: small, because nothing is known yet.
const FIRST_DIVISOR: u64 = 8;

/// Divisor of the maximum size of a row group that gives the least size of those in the last shard.
const LEAST_DIVISOR: f64 = 16.0;

/// Decides the size of each row group and where shards begin.
#[derive(Debug)]
pub struct RowGroupPlanner {
    target: u64,
    unit_bytes: u64,
    spread: Spread,
    units: Vec<Unit>,
    /// First unit of the current shard.
    shard_start: usize,
}

#[derive(Debug, Clone, Copy)]
struct Unit {
    raw: u64,
    encoded: Option<u64>,
    /// Bytes of input read up to its end.
    read: u64,
    /// Encoded bytes up to its end, once they are known.
    written: u64,
}

/// Size of the next row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowGroupCut {
    /// Target size of the row group, in uncompressed bytes.
    pub raw_bytes: u64,
    /// Whether it starts a new shard.
    pub starts_shard: bool,
}

impl RowGroupPlanner {
    /// Creates a planner for shards of `target` bytes made of row groups of at most `unit_bytes` uncompressed bytes.
    /// The rest of the output is spread over the last shards if the size of the input is known.
    pub fn new(target: u64, unit_bytes: u64, input: Option<InputSize>) -> Self {
        let (target, unit_bytes) = (target.max(1), unit_bytes.max(1));
        Self { target, unit_bytes, spread: Spread::new(target, input), units: Vec::new(), shard_start: 0 }
    }

    /// Returns the maximum uncompressed bytes of a row group.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Returns how many units, from the first one, must have been [encoded](Self::report_encoded) before the next
    /// [cut](Self::next_cut).
    pub fn must_know(&self) -> usize {
        let all = self.units.len();
        // The first size is always known before the second cut.
        let lagging = all.saturating_sub(LAG).max(1);
        if all <= 1 {
            return all;
        }
        // Near the end of a shard, all sizes must be exact. The last shard ends with the input unless it grows too
        // large.
        let used = self.bytes_used(lagging);
        let mut spread = self.spread;
        let aim = spread.next_aim(used, self.bytes_left(lagging));
        let end = if aim.is_last { self.target as f64 } else { aim.bytes.min(self.target as f64) };
        let near = used + self.unit_bytes as f64 * self.recent_ratio(lagging) >= end;
        if near { all } else { lagging }
    }

    /// Records the encoded size of a unit. Units are reported in order.
    pub fn report_encoded(&mut self, unit: usize, bytes: u64) {
        let before = unit.checked_sub(1).and_then(|before| self.units.get(before)).map_or(0, |unit| unit.written);
        if let Some(unit) = self.units.get_mut(unit) {
            unit.encoded = Some(bytes);
            unit.written = before + bytes;
        }
    }

    /// Decides the size of the next row group; report the actual size with [`Self::push`].
    pub fn next_cut(&mut self) -> RowGroupCut {
        let known = self.must_know();
        if self.units.is_empty() {
            return RowGroupCut {
                raw_bytes: (self.target / FIRST_DIVISOR).clamp(1, self.unit_bytes),
                starts_shard: true,
            };
        }
        let ratio = self.recent_ratio(known);
        let (mut used, left) = (self.bytes_used(known), self.bytes_left(known));
        let mut aim = self.spread.next_aim(used, left);
        let starts_shard = !aim.is_last && used >= self.full_size(aim, ratio);
        if starts_shard {
            self.shard_start = self.units.len();
            used = 0.0;
            self.spread.end_shard();
            aim = self.spread.next_aim(used, left);
        }
        let room = if aim.is_last { LAST_ROOM } else { 1.0 };
        let missing = (aim.bytes - used).max(0.0) / ratio * room;
        let groups = (missing / self.unit_bytes as f64).ceil().max(1.0);
        let raw = if aim.is_last || groups >= 3.0 {
            // Make the groups that remain equal, so that none is tiny, also where there is more input than was
            // expected.
            (missing / groups).max(if aim.is_last { self.unit_bytes as f64 / LEAST_DIVISOR } else { 0.0 })
        } else if aim.bytes - used > MAX_LAST_FRACTION * aim.bytes {
            // The estimate may be off, so the last group must be small enough for the error not to matter.
            missing * APPROACH_FRACTION
        } else {
            missing
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a range of u64")]
        let raw_bytes = (raw.ceil() as u64).clamp(1, self.unit_bytes);
        RowGroupCut { raw_bytes, starts_shard }
    }

    /// Records the uncompressed size of the unit that was cut, and the bytes of input that it accounts for.
    pub fn push(&mut self, raw_bytes: u64, bytes_in: u64) {
        let read = self.units.last().map_or(0, |unit| unit.read).saturating_add(bytes_in);
        self.units.push(Unit { raw: raw_bytes.max(1), encoded: None, read, written: 0 });
    }

    /// Returns the size at which a shard is full: half of a row group may be missing, but only a small part of the aim.
    fn full_size(&self, aim: Aim, ratio: f64) -> f64 {
        let half_unit = self.unit_bytes as f64 * ratio / 2.0;
        let least = (MIN_FULL * self.target as f64).min(CLOSE * aim.bytes);
        (FULL * aim.bytes).max(aim.bytes - half_unit).max(least)
    }

    /// Estimates the encoded bytes of what is not cut yet.
    fn bytes_left(&self, known: usize) -> Option<f64> {
        let (last, newest) = (self.units.last()?, self.units.get(known.checked_sub(1)?)?);
        self.spread.estimate_left(last.read, newest.read, newest.written)
    }

    /// Returns the encoded bytes of the current shard; units from `known` on are estimated.
    fn bytes_used(&self, known: usize) -> f64 {
        let ratio = self.recent_ratio(known);
        let size = |(i, unit): (usize, &Unit)| match unit.encoded {
            Some(bytes) if i < known => bytes as f64,
            _ => unit.raw as f64 * ratio,
        };
        self.units.iter().enumerate().skip(self.shard_start).map(size).sum()
    }

    /// Returns the encoded bytes per raw byte of the last few known units.
    fn recent_ratio(&self, known: usize) -> f64 {
        let recent = &self.units[known.saturating_sub(3)..known];
        let (raw, encoded) =
            recent.iter().fold((0, 0), |(r, e), unit| (r + unit.raw, e + unit.encoded.unwrap_or(unit.raw)));
        if raw == 0 { 1.0 } else { (encoded as f64 / raw as f64).max(1e-3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the planner over `total` raw bytes, each of which stands for a byte of input if that is known, and returns
    /// the encoded sizes of all shards.
    fn shards(target: u64, unit: u64, total: u64, input: Option<InputSize>, ratio: impl Fn(u64) -> f64) -> Vec<u64> {
        let mut planner = RowGroupPlanner::new(target, unit, input);
        let mut encoded = Vec::new();
        let mut sizes: Vec<u64> = Vec::new();
        let (mut at, mut reported) = (0, 0);
        while at < total {
            while reported < planner.must_know() {
                planner.report_encoded(reported, encoded[reported]);
                reported += 1;
            }
            let cut = planner.next_cut();
            let raw = cut.raw_bytes.min(total - at);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
            let size = (raw as f64 * ratio(at)) as u64;
            if cut.starts_shard {
                sizes.push(0);
            }
            *sizes.last_mut().unwrap_or(&mut 0) += size;
            encoded.push(size);
            planner.push(raw, raw);
            at += raw;
        }
        sizes
    }

    /// Appends units of a 32nd of the target, made of records of up to `longest` bytes each, and returns the sizes of
    /// all shards. The bytes per input byte alternate by `wobble`.
    fn framed(target: u64, longest: u64, total: u64, wobble: f64) -> Vec<u64> {
        let (mut units, mut written, mut number) = (Vec::new(), 0, 0_u64);
        while written < total {
            let mut lengths = Vec::new();
            while lengths.iter().sum::<u64>() < target / 32 {
                number += 1;
                lengths.push(1 + (number * 7919) % longest);
            }
            let bytes = lengths.iter().sum::<u64>();
            written += bytes;
            let ratio = if units.len().is_multiple_of(2) { 1.0 + wobble } else { 1.0 - wobble };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
            units.push((lengths, bytes, (bytes as f64 / ratio) as u64));
        }
        let mut spread = Spread::new(target, exact(units.iter().map(|(.., bytes_in)| bytes_in).sum()));
        let (mut sizes, mut read, mut written) = (vec![0], 0, 0);
        for (lengths, bytes, bytes_in) in units {
            (read, written) = (read + bytes_in, written + bytes);
            let left = spread.estimate_left(read, read, written);
            let mut rest = bytes;
            for length in lengths {
                let open = sizes.last().copied().unwrap_or(0);
                if spread.next_aim(open as f64, left.map(|left| left + rest as f64)).rolls_before(open, length) {
                    spread.end_shard();
                    sizes.push(0);
                }
                rest -= length;
                *sizes.last_mut().unwrap_or(&mut 0) += length;
            }
        }
        sizes
    }

    /// Bytes of input, known exactly.
    fn exact(bytes: u64) -> Option<InputSize> {
        Some(InputSize { bytes, error: 0 })
    }

    /// Checks the sizes of shards, of an output whose compression alternates by `wobble`.
    fn check_even(sizes: &[u64], target: u64, wobble: f64, what: &str) {
        let sizes: Vec<f64> = sizes.iter().map(|size| *size as f64 / target as f64).collect();
        let total: f64 = sizes.iter().sum();
        let least = sizes.iter().copied().fold(f64::MAX, f64::min);
        let most = sizes.iter().copied().fold(0.0, f64::max);
        let ok = if total >= 4.5 + 10.0 * wobble {
            least >= 0.88 - wobble / 4.0 && most <= 1.12 + wobble / 4.0
        } else if total > 1.12 + wobble {
            least >= 0.5 && most <= 1.12 + wobble
        } else {
            total > 1.12 - wobble || sizes.len() == 1
        };
        assert!(ok, "{what}, wobble {wobble}, {total:.3} targets: {sizes:.3?}");
    }

    #[test]
    fn the_rest_is_divided_into_equal_shards() {
        for (rest, shards) in [
            (0.0, 1.0),
            (0.3, 1.0),
            (1.1, 1.0),
            (1.3, 2.0),
            (2.2, 2.0),
            (2.3, 3.0),
            (3.3, 3.0),
            (3.4, 4.0),
            (4.4, 4.0),
            (4.5, 5.0),
            (5.4, 5.0),
            (5.6, 6.0),
            (20.4, 20.0),
        ] {
            assert!((nearest_count(rest) - shards).abs() < 1e-9, "{rest}");
        }
        assert_eq!((shard_count(0, 10), shard_count(11, 10), shard_count(13, 10), shard_count(100, 10)), (0, 1, 2, 10));
    }

    #[test]
    fn the_planned_number_of_shards_is_kept_while_it_is_good() {
        let mut spread = Spread::new(100, exact(1000));
        let aim = spread.next_aim(0.0, Some(545.0));
        assert!((aim.bytes - 109.0).abs() < 1e-9 && !aim.is_last);
        assert!((spread.next_aim(0.0, Some(560.0)).bytes - 112.0).abs() < 1e-9);
        assert!((spread.next_aim(0.0, Some(580.0)).bytes - 580.0 / 6.0).abs() < 1e-9);
        spread.end_shard();
        assert!((spread.next_aim(0.0, Some(450.0)).bytes - 90.0).abs() < 1e-9);
    }

    #[test]
    fn an_inexact_input_is_not_spread() {
        let spread = |error| Spread::new(100, Some(InputSize { bytes: 1000, error }));
        assert!(spread(4).estimate_left(500, 500, 500).is_some_and(|left| (left - 500.0).abs() < 1e-9));
        assert!(spread(4).estimate_left(500, 500, 1000).is_none());
        assert!(spread(4).estimate_left(0, 0, 0).is_none());
        assert!(Spread::new(100, None).estimate_left(500, 500, 500).is_none());
        let aim = spread(6).next_aim(0.0, None);
        assert!((aim.bytes - 100.0).abs() < 1e-9 && !aim.is_last);
    }

    #[test]
    fn no_total_leaves_a_small_last_shard() {
        for (ratio, wobble) in [(0.02, 0.02), (0.05, 0.15), (0.3, 0.05), (0.9, 0.03), (1.05, 0.0)] {
            let wobbling = |at: u64| ratio * if (at / 500_000).is_multiple_of(2) { 1.0 + wobble } else { 1.0 - wobble };
            for (target, unit) in [(128 << 20, 64 << 20), (100 << 20, 7 << 20), (64 << 20, 8 << 20)] {
                for tenth in 1..=120_u32 {
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "small positive numbers"
                    )]
                    let total = (f64::from(tenth) / 10.0 * target as f64 / ratio) as u64;
                    let sizes = shards(target, unit, total, exact(total), wobbling);
                    check_even(&sizes, target, wobble, &format!("ratio {ratio} target {target} unit {unit}"));
                }
            }
        }
    }

    #[test]
    fn no_total_leaves_a_small_last_shard_of_framed_records() {
        for (target, longest, wobble) in [(1 << 20, 1000, 0.15), (1 << 20, 50_000, 0.02), (64 << 10, 900, 0.0)] {
            for tenth in 1..=120 {
                let sizes = framed(target, longest, target * tenth / 10, wobble);
                check_even(&sizes, target, wobble, &format!("target {target} records {longest}"));
            }
        }
    }

    #[test]
    fn shards_hit_the_target_whatever_the_compression() {
        for ratio in [0.01, 0.11, 0.3, 0.47, 0.9, 1.05] {
            let wobble = |at: u64| ratio * if (at / 500_000).is_multiple_of(2) { 1.15 } else { 0.85 };
            for (target, unit) in [(128 << 20, 64 << 20), (1 << 20, 64 << 20), (100 << 20, 7 << 20)] {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
                let total = (5.3 * target as f64 / ratio) as u64;
                let sizes = shards(target, unit, total, None, wobble);
                for size in &sizes[..sizes.len() - 1] {
                    let off = *size as f64 / target as f64;
                    assert!((0.9..=1.1).contains(&off), "ratio {ratio} target {target} unit {unit}: {off}");
                }
            }
        }
    }

    #[test]
    fn shards_roll_at_the_nearer_size() {
        assert!(!rolls_before(0, 1000, 10));
        assert!(!rolls_before(90, 10, 100));
        assert!(rolls_before(95, 20, 100));
        assert!(!rolls_before(80, 30, 100));
    }

    #[test]
    fn more_input_than_expected_makes_no_tiny_row_groups() {
        let (target, unit, total) = (10_000_u64, 1_000_u64, 40_000_u64);
        let mut planner = RowGroupPlanner::new(target, unit, Some(InputSize { bytes: 8_000, error: 0 }));
        let (mut at, mut cuts) = (0, Vec::new());
        while at < total {
            for (number, raw) in cuts.iter().enumerate().take(planner.must_know()) {
                planner.report_encoded(number, *raw);
            }
            let raw = planner.next_cut().raw_bytes.min(total - at);
            planner.push(raw, raw);
            cuts.push(raw);
            at += raw;
        }
        let most = usize::try_from(total / (unit / 16)).unwrap_or_default();
        assert!(cuts.len() <= most, "{} row groups", cuts.len());
    }
}
