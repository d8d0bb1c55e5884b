//! Drawings as inline SVG, without a library: bars, pairs of bars, waves, heat strips and the graph of sources and
//! versions.
//!
//! Colours come from classes of the style sheet, so that drawings follow the scheme of light and dark. Drawings that
//! are stretched to their place contain no text.

use std::fmt::Write as _;

use super::escape;
use crate::units::grouped;

/// Width and height of a drawing of bars.
const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 60.0;
/// Number of colours of a heat strip.
const LEVELS: usize = 9;

/// A bar: its value, and what is said of it.
pub(super) struct Bar {
    pub(super) value: f64,
    pub(super) title: String,
}

/// Draws bars side by side; values above 0 are always visible.
pub(super) fn bars(bars: &[Bar], label: &str) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let step = WIDTH / bars.len().max(1) as f64;
    let gap = (step * 0.14).min(3.0);
    let mut out = open("bars", WIDTH, HEIGHT, label);
    for (at, bar) in bars.iter().enumerate() {
        let height = if bar.value > 0.0 { (bar.value / most * HEIGHT).max(1.0) } else { 0.0 };
        let (x, y) = (at as f64 * step + gap / 2.0, HEIGHT - height);
        let title = escape(&bar.title);
        // The title covers the whole height, or small bars could not be pointed at.
        let _ = write!(
            out,
            "<g><title>{title}</title><path class=\"hit\" d=\"M{} 0h{}v{HEIGHT}h-{}z\"/>\
             <path d=\"M{} {}h{}v{}h-{}z\"/></g>",
            short(x),
            short(step - gap),
            short(step - gap),
            short(x),
            short(y),
            short(step - gap),
            short(height),
            short(step - gap)
        );
    }
    out + "</svg>"
}

/// Draws two series of shares side by side, such as before and after.
pub(super) fn pairs(pairs: &[(f64, f64)], label: &str) -> String {
    let most = pairs.iter().map(|(a, b)| a.max(*b)).fold(0.0, f64::max);
    let step = WIDTH / pairs.len().max(1) as f64;
    let mut out = open("bars pairs", WIDTH, HEIGHT, label);
    for (class, offset) in [("before", 0.08), ("after", 0.5)] {
        let _ = write!(out, "<path class=\"{class}\" d=\"");
        for (at, (before, after)) in pairs.iter().enumerate() {
            let value = if class == "before" { *before } else { *after };
            let height = if most > 0.0 { value / most * HEIGHT } else { 0.0 };
            let (x, y) = ((at as f64 + offset) * step, HEIGHT - height);
            let _ = write!(
                out,
                "M{} {}h{}v{}h-{}z",
                short(x),
                short(y),
                short(step * 0.4),
                short(height),
                short(step * 0.4)
            );
        }
        out.push_str("\"/>");
    }
    out + "</svg>"
}

/// Draws an envelope of values from -1 to 1.
pub(super) fn wave(envelope: &[(f32, f32)], label: &str) -> String {
    let mut out = open("wave", envelope.len().max(1) as f64, 100.0, label);
    out.push_str("<path d=\"M0 50");
    let y = |value: f32| short(50.0 - f64::from(value) * 48.0);
    for (at, (_, high)) in envelope.iter().enumerate() {
        let _ = write!(out, "L{at} {}", y(high.max(0.004)));
    }
    for (at, (low, _)) in envelope.iter().enumerate().rev() {
        let _ = write!(out, "L{at} {}", y(low.min(-0.004)));
    }
    out + "z\"/></svg>"
}

/// Draws a grid of values between two bounds, in a colour for each of nine parts of the range.
pub(super) fn strip(cells: &[Vec<Option<f64>>], (min, max): (f64, f64), label: &str) -> String {
    let width = cells.first().map_or(1, Vec::len);
    let mut out = open("strip", width as f64, cells.len() as f64, label);
    let level = |value: f64| {
        let share = if max > min { (value / 2.0 - min / 2.0) / (max / 2.0 - min / 2.0) } else { 0.5 };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 8")]
        let level = (share.clamp(0.0, 1.0) * (LEVELS - 1) as f64).round() as usize;
        level
    };
    for wanted in 0..LEVELS {
        let mut path = String::new();
        for (y, row) in cells.iter().enumerate() {
            let mut x = 0;
            while x < row.len() {
                let same = row[x..].iter().take_while(|cell| cell.is_some_and(|value| level(value) == wanted)).count();
                if same > 0 {
                    let _ = write!(path, "M{x} {y}h{same}v1h-{same}z");
                }
                x += same.max(1);
            }
        }
        if !path.is_empty() {
            let _ = write!(out, "<path class=\"h{wanted}\" d=\"{path}\"/>");
        }
    }
    out + "</svg>"
}

/// A box of a graph.
pub(super) struct Node {
    pub(super) title: String,
    pub(super) note: String,
}

/// An arrow of a graph from a box on the left to one on the right, as wide as its weight is great.
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) weight: u64,
}

/// Sizes of the graph.
const GRAPH: f64 = 640.0;
const BOX: f64 = 232.0;
const LINE: f64 = 52.0;
const TALL: f64 = 40.0;
/// Characters that fit into a box.
const TITLE: usize = 29;
const NOTE: usize = 36;

/// Draws sources on the left, versions on the right, and arrows between them; versions follow each other.
pub(super) fn graph(sources: &[Node], versions: &[Node], edges: &[Edge], label: &str) -> String {
    let rows = sources.len().max(versions.len()) as f64;
    let height = rows * LINE;
    // The shorter column is centred.
    let top = |count: usize, at: usize| (rows - count as f64) * LINE / 2.0 + at as f64 * LINE + (LINE - TALL) / 2.0;
    let most = edges.iter().map(|edge| edge.weight).max().unwrap_or(1).max(1);
    let mut out = format!(
        "<svg class=\"graph\" viewBox=\"0 0 {GRAPH} {}\" role=\"img\" aria-label=\"{}\">",
        short(height.max(LINE)),
        escape(label)
    );
    for edge in edges {
        let (a, b) = (top(sources.len(), edge.from) + TALL / 2.0, top(versions.len(), edge.to) + TALL / 2.0);
        let width = 1.0 + 5.0 * edge.weight as f64 / most as f64;
        let (left, right) = (BOX, GRAPH - BOX);
        let middle = (left + right) / 2.0;
        let _ = write!(
            out,
            "<path class=\"edge\" stroke-width=\"{}\" d=\"M{left} {}C{middle} {} {middle} {} {right} {}\">\
             <title>{} records</title></path>",
            short(width),
            short(a),
            short(a),
            short(b),
            short(b),
            grouped(edge.weight)
        );
    }
    for at in 1..versions.len() {
        let (x, y) = (GRAPH - BOX + 20.0, top(versions.len(), at));
        let _ = write!(out, "<path class=\"next\" d=\"M{} {}V{}\"/>", short(x), short(y - (LINE - TALL)), short(y));
    }
    for (nodes, x, class) in [(sources, 0.0, "source"), (versions, GRAPH - BOX, "version")] {
        for (at, node) in nodes.iter().enumerate() {
            boxed(&mut out, node, (x, top(nodes.len(), at)), class);
        }
    }
    out + "</svg>"
}

fn boxed(out: &mut String, node: &Node, (x, y): (f64, f64), class: &str) {
    let (title, note) = (escape(&node.title), escape(&fitted(&node.note, NOTE)));
    let short_title = escape(&fitted(&node.title, TITLE));
    let _ = write!(
        out,
        "<g class=\"{class}\"><title>{title}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{TALL}\" rx=\"6\"/>\
         <text x=\"{}\" y=\"{}\">{short_title}</text><text class=\"note\" x=\"{}\" y=\"{}\">{note}</text></g>",
        short(x + 0.5),
        short(y),
        short(BOX - 1.0),
        short(x + 10.0),
        short(y + 17.0),
        short(x + 10.0),
        short(y + 32.0)
    );
}

/// Returns the end of a text that is too long: the last folders of a path tell most.
fn fitted(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        text.to_owned()
    } else {
        std::iter::once('…').chain(text.chars().skip(count + 1 - width)).collect()
    }
}

fn open(class: &str, width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        short(width),
        short(height),
        escape(label)
    )
}

/// Writes a coordinate with at most two places.
fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_hold_no_markup_of_others() {
        let hostile = "</title><script>\"'&\u{202e}";
        let node = || Node { title: hostile.into(), note: hostile.into() };
        let edges = [Edge { from: 0, to: 0, weight: 0 }];
        let all = [
            bars(&[Bar { value: 1.0, title: hostile.into() }, Bar { value: 0.0, title: String::new() }], hostile),
            pairs(&[(0.5, 0.5), (0.0, f64::MIN_POSITIVE)], hostile),
            wave(&[(-1.0, 1.0)], hostile),
            strip(&[vec![Some(1.0), None]], (f64::MIN, f64::MAX), hostile),
            graph(&[node()], &[node(), node()], &edges, hostile),
        ];
        for drawing in &all {
            assert!(!drawing.contains("<script") && !drawing.contains('\u{202e}'), "{drawing}");
            assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
            assert_eq!(drawing.matches("<svg").count(), drawing.matches("</svg>").count());
        }
        assert_eq!(bars(&[], "").matches("<path").count(), 0);
    }

    #[test]
    fn neighbours_of_one_colour_are_one_path() {
        let drawing = strip(&[vec![Some(0.0), Some(0.0), Some(1.0)]], (0.0, 1.0), "");
        assert!(
            drawing.contains("class=\"h0\" d=\"M0 0h2v1h-2z\"") && drawing.contains("class=\"h8\" d=\"M2 0h1v1h-1z\"")
        );
        assert_eq!((short(2.50), short(100.0), short(0.004)), ("2.5".into(), "100".into(), "0".into()));
        assert_eq!(fitted("/data/a/b", 5), "…/a/b");
    }
}
