//! Bars in a terminal: aligned, as wide as the terminal, and plain where it can show no more.

use std::io::Write;

use crate::{
    error::Result,
    ops::inspect::Bucket,
    units::{Size, grouped},
};

/// Columns of a terminal of unknown width, and the widest that bars get.
const WIDTH: std::ops::RangeInclusive<usize> = 40..=100;
/// Columns of everything beside the bars.
const TEXT: usize = 42;

/// How bars are drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    /// Columns to draw in.
    pub(super) width: usize,
    /// ASCII alone.
    pub(super) plain: bool,
}

impl Style {
    /// What the terminal can show: `TERM=dumb` and `NO_COLOR` ask for plain text.
    pub(super) fn of_terminal() -> Self {
        let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { width: width.clamp(*WIDTH.start(), *WIDTH.end()), plain: dumb || set("NO_COLOR") }
    }
}

/// A bar per bucket, its length by the number of files.
pub(super) fn histogram(w: &mut dyn Write, buckets: &[Bucket], style: Style) -> Result<()> {
    let most = buckets.iter().map(|b| b.files).max().unwrap_or(0).max(1);
    let room = style.width.saturating_sub(TEXT).max(8);
    for bucket in buckets {
        let from = Size(bucket.from).to_string();
        let files = grouped(bucket.files);
        let bytes = Size(bucket.bytes).to_string();
        let bar = bar(bucket.files, most, room, style.plain);
        let line = format!("  {from:>9}+ {files:>11} files {bytes:>9}  {bar}");
        writeln!(w, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A bar of up to `room` columns; what is not nothing shows something.
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
    fn bars_are_in_proportion_and_never_vanish() {
        assert_eq!(bar(10, 10, 8, true), "########");
        assert_eq!(bar(1, 1_000, 8, true), "#");
        assert_eq!(bar(0, 1_000, 8, false), "");
        assert_eq!(bar(9, 16, 2, false), "█▏");
        assert_eq!(bar(1, 1_000_000, 10, false), "▏");
    }
}
