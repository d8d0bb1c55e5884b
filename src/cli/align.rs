//! Text in columns of a terminal, of which a wide character takes two.

use std::io::Write;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::human::clean;
use crate::error::Result;

/// Columns between cells.
pub(super) const GAP: usize = 2;

/// Returns text in exactly so many columns.
pub(super) fn pad_to_width(text: &str, width: usize) -> String {
    let text = cut_to_width(&clean(text), width);
    let space = width.saturating_sub(text.width());
    text + &" ".repeat(space)
}

/// Returns as much of the text as fits; a cut is shown.
pub(super) fn cut_to_width(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns + 1 > width {
            break;
        }
        out.push(c);
        used += columns;
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Writes rows in columns that are at least so wide; wider cells make them wider.
///
/// # Errors
/// When `w` fails.
pub(super) fn write_aligned<const N: usize>(
    w: &mut dyn Write,
    rows: &[[String; N]],
    widths: &mut [usize; N],
) -> Result<()> {
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    for row in rows {
        let cells = row.iter().zip(&*widths).map(|(cell, width)| pad_to_width(cell, width + GAP));
        writeln!(w, "{}", cells.collect::<String>().trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_by_columns() {
        assert_eq!(cut_to_width("abc", 3), "abc");
        assert_eq!(cut_to_width("abcd", 3), "ab…");
        assert_eq!(cut_to_width("日本語", 5), "日本…");
        assert_eq!(cut_to_width("日本語", 4), "日…");
        assert_eq!(pad_to_width("日", 4), "日  ");
        assert_eq!(cut_to_width("x", 0), "");
    }
}
