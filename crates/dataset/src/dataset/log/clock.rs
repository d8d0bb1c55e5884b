//! Commit times of versions: all from one clock, and corrected where that clock was wrong.
//!
//! Time decides what is worth keeping (`--retain`, `--since`), never correctness. All versions of a dataset are dated
//! by the clock of its store: the server's for object stores, this machine's for a local folder. A machine whose clock
//! was wrong leaves commit times that later versions contradict. Entries never change, so the next entry states the
//! corrected times, and every later entry repeats them.
//!
//! ```text
//! version        7            8            9                      10
//! committed_at   2026-11-20   2099-01-01   2026-11-21             2026-11-22
//! corrections                              8..8 at 2026-11-21     8..8 at 2026-11-21
//! ```

use jiff::{SignedDuration, Timestamp, civil::date, tz::TimeZone};

use crate::{
    dataset::log::{
        entry::{Correction, Entry, corrected_time},
        snapshot::Dataset,
    },
    error::Result,
    id::Version,
};

/// Tolerated difference between the clocks of machines that write to one dataset.
const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// Maximum number of corrections that an entry repeats; beyond it, the oldest are merged.
const MAX_CORRECTIONS: usize = 16;

/// Entries read at a time to find how many have a wrong date.
const LOOK_BACK: u64 = 16;

/// The time of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::dataset) struct Moment {
    /// The time.
    pub(in crate::dataset) committed_at: Timestamp,
    /// Corrections to the commit times of older versions.
    pub(in crate::dataset) corrections: Vec<Correction>,
}

/// Returns the time of a commit on top of `parent`: the store's time, and later than that of all earlier versions.
///
/// # Errors
/// When the store fails.
pub(in crate::dataset) fn commit_moment(dataset: &Dataset, parent: Option<&Entry>) -> Result<Moment> {
    let now = dataset.store_time()?;
    let Some(parent) = parent else { return Ok(Moment { committed_at: now, corrections: Vec::new() }) };
    let corrections = parent.corrections.clone();
    let after = parent.effective_time().checked_add(SignedDuration::from_micros(1)).unwrap_or(Timestamp::MAX);
    if after <= now {
        return Ok(Moment { committed_at: now, corrections });
    }
    let ahead = after.duration_since(now);
    // A clock that is behind the release of this program is wrong itself.
    if ahead <= TOLERANCE || now < oldest_believable() {
        return Ok(Moment { committed_at: after, corrections });
    }
    let first = first_ahead(dataset, parent, now)?;
    Ok(Moment {
        committed_at: now,
        corrections: with_correction(corrections, Correction { first, last: parent.version, at: now }),
    })
}

/// Returns the first of the consecutive versions up to `parent` that are dated after `now`.
fn first_ahead(dataset: &Dataset, parent: &Entry, now: Timestamp) -> Result<Version> {
    let mut first = parent.version;
    while first.0 > 1 {
        let from = Version(first.0.saturating_sub(LOOK_BACK).max(1));
        let entries = dataset.entries_between(from, Version(first.0 - 1))?;
        let time = |entry: &Entry| corrected_time(&parent.corrections, entry.version, entry.committed_at);
        match entries.iter().rev().find(|entry| time(entry) <= now) {
            Some(right) => return Ok(right.version.next()),
            None => first = from,
        }
    }
    Ok(first)
}

/// Adds a correction; it supersedes older ones for the same versions.
fn with_correction(mut known: Vec<Correction>, new: Correction) -> Vec<Correction> {
    known.retain(|old| old.first < new.first || old.last > new.last);
    known.push(new);
    known.sort_by_key(|correction| correction.first);
    while known.len() > MAX_CORRECTIONS {
        // The oldest two are merged: versions between them are then dated slightly early, so they are not kept for
        // ever.
        let second = known.remove(1);
        known[0].last = second.last;
    }
    known
}

/// Lower bound of commit times: none is older than the first release.
fn oldest_believable() -> Timestamp {
    date(2026, 1, 1).to_zoned(TimeZone::UTC).map_or(Timestamp::UNIX_EPOCH, |zoned| zoned.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap_or_default()
    }

    #[test]
    fn a_time_that_is_corrected_is_no_later_than_the_correction() {
        let corrections = with_correction(Vec::new(), Correction { first: Version(3), last: Version(4), at: at(100) });
        let times: Vec<_> = [(2, 50), (3, 900), (4, 70), (5, 110)]
            .map(|(version, time)| corrected_time(&corrections, Version(version), at(time)))
            .to_vec();
        assert_eq!(times, [at(50), at(100), at(70), at(110)]);
    }

    #[test]
    fn corrections_are_limited_and_the_newest_is_kept() {
        let mut all = Vec::new();
        for i in 0..40 {
            all = with_correction(
                all,
                Correction { first: Version(2 * i), last: Version(2 * i), at: at(1_000 - i as i64) },
            );
        }
        assert_eq!(all.len(), MAX_CORRECTIONS);
        let again = with_correction(all, Correction { first: Version(0), last: Version(100), at: at(5) });
        assert_eq!(again, [Correction { first: Version(0), last: Version(100), at: at(5) }]);
    }
}
