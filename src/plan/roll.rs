//! Decides when a shard is full.
//!
//! Records that are framed individually roll to the next shard at the record that brings the size closest to the
//! target. Parquet rolls between row groups, whose size on disk is known only after encoding. So [`RowGroupPlanner`]
//! limits the rows that fill up a shard to the size that is still missing, estimated from the compression seen so far.
//! It uses only results that are a fixed number of units old (near the end of a shard, all results), never those that
//! happen to be finished, so its decisions do not depend on threads.

/// Returns whether a shard of `size` bytes should end before `next` bytes are added.
pub fn rolls_before(size: u64, next: u64, target: u64) -> bool {
    // Ending here misses the target by `target - size` bytes, continuing by `size + next - target`.
    size > 0 && size + next / 2 >= target
}

/// Number of newest row groups whose encoded size need not be known when the next one is cut.
const LAG: usize = 2;

/// A shard that reached this fraction of the target gets no more row groups.
const FULL: f64 = 0.95;

/// A row group may fill up a shard if at most this fraction of the target is missing.
const MAX_LAST_FRACTION: f64 = 0.3;

/// Otherwise, a row group is limited to this fraction of the missing bytes.
const APPROACH_FRACTION: f64 = 0.6;

/// Divisor of the target that gives the size of a run's first row group: small, because nothing is known yet.
const FIRST_DIVISOR: u64 = 8;

/// Decides the size of each row group and where shards begin.
#[derive(Debug)]
pub struct RowGroupPlanner {
    target: u64,
    unit_bytes: u64,
    units: Vec<Unit>,
    /// First unit of the current shard.
    shard_start: usize,
}

#[derive(Debug, Clone, Copy)]
struct Unit {
    raw: u64,
    encoded: Option<u64>,
}

/// Size of the next row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Target size of the row group, in uncompressed bytes.
    pub raw_bytes: u64,
    /// Whether it starts a new shard.
    pub starts_shard: bool,
}

impl RowGroupPlanner {
    /// Creates a planner for shards of `target` bytes made of row groups of at most `unit_bytes` uncompressed bytes.
    pub fn new(target: u64, unit_bytes: u64) -> Self {
        Self { target: target.max(1), unit_bytes: unit_bytes.max(1), units: Vec::new(), shard_start: 0 }
    }

    /// Returns the maximum uncompressed bytes of a row group.
    pub fn unit_bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Returns how many units, from the first one, must have been [encoded](Self::encoded) before the next
    /// [cut](Self::cut).
    pub fn must_know(&self) -> usize {
        let all = self.units.len();
        let lagging = all.saturating_sub(LAG);
        if all <= 1 {
            return all;
        }
        // Near the end of a shard, all sizes must be exact.
        let near = self.used(lagging) + self.unit_bytes as f64 * self.ratio(lagging) >= self.target as f64;
        if near { all } else { lagging }
    }

    /// Records the encoded size of a unit.
    pub fn encoded(&mut self, unit: usize, bytes: u64) {
        if let Some(unit) = self.units.get_mut(unit) {
            unit.encoded = Some(bytes);
        }
    }

    /// Decides the size of the next row group; report the actual size with [`Self::push`].
    pub fn cut(&mut self) -> Cut {
        let known = self.must_know();
        if self.units.is_empty() {
            return Cut { raw_bytes: (self.target / FIRST_DIVISOR).clamp(1, self.unit_bytes), starts_shard: true };
        }
        let ratio = self.ratio(known);
        let mut used = self.used(known);
        let starts_shard = used >= FULL * self.target as f64;
        if starts_shard {
            self.shard_start = self.units.len();
            used = 0.0;
        }
        let missing = (self.target as f64 - used) / ratio;
        let groups = (missing / self.unit_bytes as f64).ceil().max(1.0);
        let raw = if groups >= 3.0 {
            // Several groups remain: make them equal, so that none is tiny.
            missing / groups
        } else if self.target as f64 - used > MAX_LAST_FRACTION * self.target as f64 {
            // The estimate may be off, so the last group must be small enough for the error not to matter.
            missing * APPROACH_FRACTION
        } else {
            missing
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a range of u64")]
        let raw_bytes = (raw.ceil() as u64).clamp(1, self.unit_bytes);
        Cut { raw_bytes, starts_shard }
    }

    /// Records the uncompressed size of the unit that was cut.
    pub fn push(&mut self, raw_bytes: u64) {
        self.units.push(Unit { raw: raw_bytes.max(1), encoded: None });
    }

    /// Returns the encoded bytes of the current shard; units from `known` on are estimated.
    fn used(&self, known: usize) -> f64 {
        let ratio = self.ratio(known);
        let size = |(i, unit): (usize, &Unit)| match unit.encoded {
            Some(bytes) if i < known => bytes as f64,
            _ => unit.raw as f64 * ratio,
        };
        self.units.iter().enumerate().skip(self.shard_start).map(size).sum()
    }

    /// Returns the encoded bytes per raw byte of the last few known units.
    fn ratio(&self, known: usize) -> f64 {
        let recent = &self.units[known.saturating_sub(3)..known];
        let (raw, encoded) =
            recent.iter().fold((0, 0), |(r, e), unit| (r + unit.raw, e + unit.encoded.unwrap_or(unit.raw)));
        if raw == 0 { 1.0 } else { (encoded as f64 / raw as f64).max(1e-3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the planner over `total` raw bytes and returns the encoded sizes of all shards.
    fn shards(target: u64, unit: u64, total: u64, ratio: impl Fn(u64) -> f64) -> Vec<u64> {
        let mut planner = RowGroupPlanner::new(target, unit);
        let mut encoded = Vec::new();
        let mut sizes: Vec<u64> = Vec::new();
        let mut at = 0;
        while at < total {
            for (i, bytes) in encoded.iter().enumerate().take(planner.must_know()) {
                planner.encoded(i, *bytes);
            }
            let cut = planner.cut();
            let raw = cut.raw_bytes.min(total - at);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
            let size = (raw as f64 * ratio(at)) as u64;
            if cut.starts_shard {
                sizes.push(0);
            }
            *sizes.last_mut().unwrap_or(&mut 0) += size;
            encoded.push(size);
            planner.push(raw);
            at += raw;
        }
        sizes
    }

    #[test]
    fn shards_hit_the_target_whatever_the_compression() {
        for ratio in [0.01, 0.11, 0.3, 0.47, 0.9, 1.05] {
            let wobble = |at: u64| ratio * if (at / 500_000).is_multiple_of(2) { 1.15 } else { 0.85 };
            for (target, unit) in [(128 << 20, 64 << 20), (1 << 20, 64 << 20), (100 << 20, 7 << 20)] {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive numbers")]
                let total = (5.3 * target as f64 / ratio) as u64;
                let sizes = shards(target, unit, total, wobble);
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
}
