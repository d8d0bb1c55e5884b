//! Predicts from a sample which encoding of a chunk gives the fewest bytes after compression, whether a dictionary is
//! worthwhile, and which search for matches is fastest for texts.

use ::parquet::basic::Encoding;

use super::{
    bits::width_of,
    column::Word,
    compress::{Compressor, MatchSearch},
    dictionary::{Dictionary, DictionaryEntry, expected_entries},
    stats::ValueOrder,
    values::{put_differences, put_range, put_texts, put_texts_after_lengths, put_texts_without_prefixes},
};
use crate::error::Result;

/// Sample from which the encoding is chosen: number of stretches, and of consecutive values in each.
pub(super) const STRETCHES: usize = 16;
pub(super) const STRETCH: usize = 1024;

/// Number of consecutive texts in each stretch: fewer, because texts are longer than numbers.
const TEXT_STRETCH: usize = 512;

/// Bytes of a text that encodings are tried on: the start of a long one tells as much as all of it.
const LONG_TEXT: usize = 64 << 10;

/// Approximate maximum size of the texts in the sample, in bytes.
const SAMPLE_BYTES: usize = 256 << 10;

/// Relative size up to which the results of two searches count as equal.
const SAME_SIZE: f64 = 1.002;

/// Minimum size of texts, in bytes, for which it is worthwhile to compare searches.
const SEARCHED_BYTES: usize = 512 << 10;

/// Maximum size of a dictionary encoding relative to the best other encoding: readers hold dictionaries in memory.
const DICTIONARY_GAIN: f64 = 0.95;

/// Maximum relative size of encodings that are slower to read, and of those whose values must be reassembled.
const SLOWER_GAIN: f64 = 0.8;

/// Maximum relative size of the other encodings, which excludes chance: packed differences need no search for matches.
const FASTER_GAIN: f64 = 0.99;

/// Size of a dictionary encoding relative to plain values below which no other encoding is tried.
const CLEAR_GAIN: f64 = 0.25;

/// Maximum size of the entries of a dictionary, in bytes.
const DICTIONARY_BYTES: usize = 4 << 20;

/// Chosen encoding of a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    /// Encoding without a dictionary.
    pub(super) encoding: Encoding,
    /// Maximum number of dictionary entries; 0 if no dictionary is to be used.
    pub(super) entries: usize,
    /// How the compressor searches for matches.
    pub(super) search: MatchSearch,
}

impl Plan {
    pub(super) fn plain() -> Self {
        Self::without_dictionary(Encoding::PLAIN)
    }

    fn without_dictionary(encoding: Encoding) -> Self {
        Self { encoding, entries: 0, search: MatchSearch::Usual }
    }

    /// Adds a dictionary if that gives fewer bytes than `other`.
    fn with_dictionary(self, expected: f64, entry_bytes: f64, dictionary: f64, other: f64) -> Self {
        if dictionary >= DICTIONARY_GAIN * other {
            return self;
        }
        let room = DICTIONARY_BYTES as f64 / entry_bytes;
        // The estimate may be wrong; twice as many entries are still acceptable.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between zero and a few million")]
        let entries = (2.0 * expected + 1024.0).min(room) as usize;
        Self { entries, ..self }
    }
}

/// Returns stretches of consecutive values, spread over all values.
fn sample_stretches<T: Copy>(values: &[T], stretch: usize) -> Vec<T> {
    if values.len() <= STRETCHES * stretch {
        return values.to_vec();
    }
    stretch_starts(values.len(), stretch).flat_map(|start| &values[start..start + stretch]).copied().collect()
}

/// Returns the starts of stretches of that many consecutive values: one in each part of the values, but at varying
/// positions in it, because consecutive maps would otherwise yield the same latitudes again and again.
pub(super) fn stretch_starts(values: usize, stretch: usize) -> impl Iterator<Item = usize> {
    const GOLDEN: u64 = 0x9e37_79b9;
    let step = values / STRETCHES;
    let room = step.saturating_sub(stretch) as u64;
    (0..STRETCHES).map(move |i| {
        let share = (u128::from((i as u64 * GOLDEN) & 0xffff_ffff) * u128::from(room)) >> 32;
        i * step + usize::try_from(share).unwrap_or_default()
    })
}

/// Estimates the entries of a dictionary of all values from those of the sample, and the bytes of the indices.
fn predict_dictionary<E: DictionaryEntry>(sample: &[E], total: usize) -> (f64, f64) {
    let found = Dictionary::from_values(sample, usize::MAX, &mut Vec::new())
        .map_or(sample.len(), |dictionary| dictionary.entries.len());
    let entries = expected_entries(sample.len(), found, total);
    (entries, index_bytes(entries, total))
}

/// Returns the bytes of indices into a dictionary of that many entries.
pub(in super::super) fn index_bytes(entries: f64, total: usize) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the number of values")]
    let width = width_of(entries as u64);
    total as f64 * f64::from(width) / 8.0
}

pub(super) fn plan_words<W: Word>(values: &[W], order: ValueOrder, compressor: &mut Compressor) -> Result<Plan> {
    let sample = sample_stretches(values, STRETCH);
    let (entries, _) = predict_dictionary(&sample, values.len());
    plan_sample(&sample, values.len(), Entries { count: entries, bytes: entries * W::WIDTH as f64 }, order, compressor)
}

/// Number of dictionary entries, and their size in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entries {
    pub(super) count: f64,
    pub(super) bytes: f64,
}

/// Plans for `total` words like those of the sample, with that many distinct ones.
pub(super) fn plan_sample<W: Word>(
    sample: &[W],
    total: usize,
    entries: Entries,
    order: ValueOrder,
    compressor: &mut Compressor,
) -> Result<Plan> {
    if sample.is_empty() {
        return Ok(Plan::plain());
    }
    let scale = total as f64 / sample.len() as f64;
    let entry_bytes = W::WIDTH as f64;
    let dictionary = entries.bytes + index_bytes(entries.count, total);
    let plain = total as f64 * entry_bytes;
    if dictionary < CLEAR_GAIN * plain {
        return Ok(Plan::plain().with_dictionary(entries.count, entry_bytes, dictionary, plain));
    }
    let (mut page, mut packed) = (Vec::new(), Vec::new());
    let mut size = |put: &dyn Fn(&[W], &mut Vec<u8>)| -> Result<f64> {
        page.clear();
        put(sample, &mut page);
        Ok(compressor.compress(&page, &mut packed)?.len() as f64 * scale)
    };
    let plain = size(&W::put)?;
    let (encoding, other, gain) = if order.is_float() {
        (Encoding::BYTE_STREAM_SPLIT, size(&put_range)?, SLOWER_GAIN)
    } else {
        (Encoding::DELTA_BINARY_PACKED, size(&put_differences)?, FASTER_GAIN)
    };
    let (encoding, best) = if other < gain * plain { (encoding, other) } else { (Encoding::PLAIN, plain) };
    Ok(Plan::without_dictionary(encoding).with_dictionary(entries.count, entry_bytes, dictionary, best))
}

/// Appends texts in some encoding.
type PutTexts = fn(&[&[u8]], &mut Vec<u8>);

/// Plans for texts. The compressor may be left with another search.
pub(super) fn plan_texts(values: &[&[u8]], compressor: &mut Compressor) -> Result<Plan> {
    if values.is_empty() {
        return Ok(Plan::plain());
    }
    let total: usize = values.iter().map(|value| value.len()).sum();
    let mean = total as f64 / values.len() as f64;
    let stretch = (SAMPLE_BYTES * values.len() / STRETCHES / (total + 1)).clamp(1, TEXT_STRETCH);
    let mut sample = sample_stretches(values, stretch);
    let scale = values.len() as f64 / sample.len() as f64;
    let (entries, indices) = predict_dictionary(&sample, values.len());
    let entry_bytes = mean + 4.0;
    let plain = values.len() as f64 * entry_bytes;
    if entries * entry_bytes + indices < CLEAR_GAIN * plain {
        return Ok(Plan::plain().with_dictionary(entries, entry_bytes, 0.0, plain));
    }
    let whole: usize = sample.iter().map(|value| value.len()).sum();
    sample.iter_mut().for_each(|value| *value = &value[..value.len().min(LONG_TEXT)]);
    let shown: usize = sample.iter().map(|value| value.len()).sum();
    let scale = scale * (whole.max(1) as f64 / shown.max(1) as f64);
    let (mut page, mut packed) = (Vec::new(), Vec::new());
    let mut size = |put: PutTexts| -> Result<usize> {
        page.clear();
        put(&sample, &mut page);
        Ok(compressor.compress(&page, &mut packed)?.len())
    };
    let packed_plain = size(put_texts)?;
    let mut best = (Encoding::PLAIN, put_texts as PutTexts, packed_plain);
    for (encoding, put, gain) in [
        (Encoding::DELTA_LENGTH_BYTE_ARRAY, put_texts_after_lengths as PutTexts, FASTER_GAIN),
        (Encoding::DELTA_BYTE_ARRAY, put_texts_without_prefixes, SLOWER_GAIN),
    ] {
        let bytes = size(put)?;
        if (bytes as f64) < gain * best.2 as f64 {
            best = (encoding, put, bytes);
        }
    }
    let (encoding, put, bytes) = best;
    let dictionary = entries * entry_bytes * (packed_plain as f64 * scale / plain).min(1.0) + indices;
    let plan = Plan::without_dictionary(encoding);
    let mut plan = plan.with_dictionary(entries, entry_bytes, dictionary, bytes as f64 * scale);
    if plan.entries == 0 && total >= SEARCHED_BYTES {
        page.clear();
        put(&sample, &mut page);
        plan.search = plan_search(&page, bytes, compressor, &mut packed)?;
    }
    Ok(plan)
}

/// Returns the fastest search that compresses this page as well as any other; `usual` is its size, in bytes, by the
/// usual search. `packed` is memory for the compressed page.
fn plan_search(page: &[u8], usual: usize, compressor: &mut Compressor, packed: &mut Vec<u8>) -> Result<MatchSearch> {
    let mut found = vec![(MatchSearch::Usual, usual)];
    for search in compressor.faster_searches() {
        compressor.set_search(*search)?;
        found.push((*search, compressor.compress(page, packed)?.len()));
    }
    let least = found.iter().map(|(_, bytes)| *bytes).min().unwrap_or(usual);
    let close = |(_, bytes): &&(MatchSearch, usize)| (*bytes as f64) < SAME_SIZE * least as f64;
    Ok(found.iter().rev().find(close).map_or(MatchSearch::Usual, |(search, _)| *search))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::codec::Codec;

    fn mixed(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 17
    }

    fn pick<'t>(number: u64, of: &[&'t str]) -> &'t str {
        of[usize::try_from(mixed(number) % of.len() as u64).unwrap()]
    }

    /// Random times, notes made of few phrases, and tokens without order.
    fn texts() -> [Vec<String>; 3] {
        let time = |i: u64| {
            let (day, second) = (mixed(i) % 1800, mixed(i) / 1800 % 86_400);
            let (year, month) = (2019 + day / 360, 1 + day / 30 % 12);
            let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
            format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02}", 1 + day % 30)
        };
        let phrases =
            ["stable over night; ", "no chest pain; ", "ambulatory without aid, ", "follow-up in two weeks; "];
        let note = |i: u64| (0..9).map(|k| pick(i * 16 + k, &phrases)).collect::<String>();
        let tokens = |i: u64| {
            let token = |k| [pick(i * 16 + k, &["acgu", "ucaa", "ggcu"]), pick(i * 77 + k, &["1", "2", "3", "5", "7"])];
            (0..9).flat_map(token).collect::<String>()
        };
        [(0..40_000).map(time).collect(), (0..40_000).map(note).collect(), (0..40_000).map(tokens).collect()]
    }

    #[test]
    fn a_faster_search_is_chosen_where_it_finds_as_much() {
        let mut chosen = Vec::new();
        for texts in texts() {
            let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
            let mut compressor = Compressor::new(Codec::Zstd(3)).unwrap();
            let plan = plan_texts(&texts, &mut compressor).unwrap();
            let mut page = Vec::new();
            put_texts_after_lengths(&texts[..10_000], &mut page);
            let mut bytes = |search| {
                compressor.set_search(search).unwrap();
                compressor.compress(&page, &mut Vec::new()).unwrap().len() as f64
            };
            assert!(bytes(plan.search) < 1.01 * bytes(MatchSearch::Usual), "{plan:?}");
            chosen.push(plan.search);
            for other in [Codec::Zstd(9), Codec::Snappy, Codec::None] {
                let plan = plan_texts(&texts, &mut Compressor::new(other).unwrap()).unwrap();
                assert_eq!(plan.search, MatchSearch::Usual);
            }
        }
        assert_eq!(chosen[0], MatchSearch::Double);
        assert!(chosen.contains(&MatchSearch::Usual), "where all matches are short, they are sought: {chosen:?}");
    }
}
