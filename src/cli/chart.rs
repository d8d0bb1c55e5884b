//! Bar charts in a terminal: aligned, as wide as the terminal, and ASCII where it cannot show more.

use std::io::Write;

use crate::{
    error::Result,
    ops::inspect::Bucket,
    units::{Size, grouped},
};

/// Columns of a terminal of unknown width, and the widest that bars get.
const WIDTH: std::ops::RangeInclusive<usize> = 40..=100;
/// Columns of everything beside the bars.
const TEXT: usize = 48;

/// How bars are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// Columns to draw in.
    pub(super) width: usize,
    /// Whether to draw in ASCII.
    pub(super) plain: bool,
}

impl Style {
    /// Returns what the terminal can show.
    pub(super) fn of_terminal() -> Self {
        let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        Self { width: width.clamp(*WIDTH.start(), *WIDTH.end()), plain: plain() }
    }
}

/// Whether `TERM=dumb` or `NO_COLOR` asks for plain text.
pub(super) fn plain() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    set("NO_COLOR") || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Writes a bar per bucket, as long as its share of all files, or of what else `noun` says: the room for bars is 100 %.
pub(super) fn histogram(w: &mut dyn Write, buckets: &[Bucket], style: Style, noun: &str) -> Result<()> {
    let all = buckets.iter().map(|b| b.files).sum::<u64>().max(1);
    let room = style.width.saturating_sub(TEXT).max(8);
    for bucket in buckets {
        let from = Size(bucket.from).to_string();
        let files = grouped(bucket.files);
        let bytes = Size(bucket.bytes).to_string();
        let bar = bar(bucket.files, all, room, style.plain);
        let share = share(bucket.files, all);
        let noun = if bucket.files == 1 { format!("{} ", noun.trim_end_matches('s')) } else { noun.to_owned() };
        let line = format!("  {from:>9}+ {files:>11} {noun} {share:>5} {bytes:>9}  {bar}");
        writeln!(w, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Returns a share in percent, without a claim that few are none or most are all.
fn share(files: u64, all: u64) -> String {
    match (u128::from(files) * 200 / u128::from(all.max(1))).div_ceil(2) {
        0 if files > 0 => "< 1 %".to_owned(),
        100 if files < all => "99 %".to_owned(),
        percent => format!("{percent} %"),
    }
}

/// Returns a bar of up to `room` columns; values above 0 are always visible.
fn bar(value: u64, most: u64, room: usize, plain: bool) -> String {
    let steps = if plain { 1 } else { 8 };
    let eighths = u128::from(value) * (room * steps) as u128 / u128::from(most);
    let eighths = usize::try_from(eighths).unwrap_or(room * steps).max(usize::from(value > 0));
    if plain {
        return "#".repeat(eighths);
    }
    let mut out = "█".repeat(eighths / 8);
    out.extend(["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8).copied());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_and_never_empty() {
        assert_eq!(bar(10, 10, 8, true), "########");
        assert_eq!(bar(1, 1_000, 8, true), "#");
        assert_eq!(bar(0, 1_000, 8, false), "");
        assert_eq!(bar(9, 16, 2, false), "█▏");
        assert_eq!(bar(1, 1_000_000, 10, false), "▏");
        let shares = [share(0, 0), share(1, 1_000), share(999, 1_000), share(1, 3), share(2, 3), share(7, 7)];
        assert_eq!(shares, ["0 %", "< 1 %", "99 %", "33 %", "67 %", "100 %"]);
    }
}
