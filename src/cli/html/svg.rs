//! Drawings as inline SVG, without a library: bars, pairs of bars and the graph of sources and versions.
//!
//! Colours come from classes of the style sheet, so that drawings follow the scheme of light and dark. Drawings that
//! are stretched to their place contain no text.

use std::fmt::Write as _;

use super::escape_html;
use crate::units::group_digits;

/// Width and height of a drawing of bars.
const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 60.0;

/// A bar: its value, and what is said of it.
pub(super) struct Bar {
    pub(super) value: f64,
    pub(super) title: String,
}

/// Draws bars side by side; values above 0 are always visible.
pub(super) fn draw_bars(bars: &[Bar], label: &str) -> String {
    let most = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let step = WIDTH / bars.len().max(1) as f64;
    let gap = (step * 0.14).min(3.0);
    let mut out = open_svg("bars", WIDTH, HEIGHT, label);
    for (at, bar) in bars.iter().enumerate() {
        let height = if bar.value > 0.0 { (bar.value / most * HEIGHT).max(1.0) } else { 0.0 };
        let (x, y) = (at as f64 * step + gap / 2.0, HEIGHT - height);
        let title = escape_html(&bar.title);
        // The title covers the whole height, or small bars could not be pointed at.
        let _ = write!(
            out,
            "<g><title>{title}</title><path class=\"hit\" d=\"M{} 0h{}v{HEIGHT}h-{}z\"/>\
             <path d=\"M{} {}h{}v{}h-{}z\"/></g>",
            format_coordinate(x),
            format_coordinate(step - gap),
            format_coordinate(step - gap),
            format_coordinate(x),
            format_coordinate(y),
            format_coordinate(step - gap),
            format_coordinate(height),
            format_coordinate(step - gap)
        );
    }
    out + "</svg>"
}

/// Draws two series of shares side by side, such as before and after.
pub(super) fn draw_pairs(pairs: &[(f64, f64)], label: &str) -> String {
    let most = pairs.iter().map(|(a, b)| a.max(*b)).fold(0.0, f64::max);
    let step = WIDTH / pairs.len().max(1) as f64;
    let mut out = open_svg("bars pairs", WIDTH, HEIGHT, label);
    for (class, offset) in [("before", 0.08), ("after", 0.5)] {
        let _ = write!(out, "<path class=\"{class}\" d=\"");
        for (at, (before, after)) in pairs.iter().enumerate() {
            let value = if class == "before" { *before } else { *after };
            let height = if most > 0.0 { value / most * HEIGHT } else { 0.0 };
            let (x, y) = ((at as f64 + offset) * step, HEIGHT - height);
            let _ = write!(
                out,
                "M{} {}h{}v{}h-{}z",
                format_coordinate(x),
                format_coordinate(y),
                format_coordinate(step * 0.4),
                format_coordinate(height),
                format_coordinate(step * 0.4)
            );
        }
        out.push_str("\"/>");
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

/// Sizes of a graph in the units of its texts.
struct GraphSize {
    class: &'static str,
    width: f64,
    /// Width of a box, and the characters of its title and of its note that fit into it.
    box_width: f64,
    title: usize,
    note: usize,
}

/// On a wide page, and on one of 400 pixels: a page shows one of them.
const GRAPHS: [GraphSize; 2] = [
    GraphSize { class: "graph wide", width: 640.0, box_width: 232.0, title: 29, note: 36 },
    GraphSize { class: "graph narrow", width: 356.0, box_width: 150.0, title: 18, note: 22 },
];
/// Where the upper left corner of a box is.
#[derive(Clone, Copy)]
struct Corner {
    x: f64,
    y: f64,
}

/// Heights of a line, and of a box in it.
const LINE: f64 = 52.0;
const TALL: f64 = 40.0;

/// Draws sources on the left, versions on the right, and arrows between them; versions follow each other.
pub(super) fn draw_graph(sources: &[Node], versions: &[Node], edges: &[Edge], label: &str) -> String {
    GRAPHS.iter().map(|size| draw_graph_of(size, sources, versions, edges, label)).collect()
}

fn draw_graph_of(size: &GraphSize, sources: &[Node], versions: &[Node], edges: &[Edge], label: &str) -> String {
    let rows = sources.len().max(versions.len()) as f64;
    let height = rows * LINE;
    // The shorter column is centred.
    let top = |count: usize, at: usize| (rows - count as f64) * LINE / 2.0 + at as f64 * LINE + (LINE - TALL) / 2.0;
    let most = edges.iter().map(|edge| edge.weight).max().unwrap_or(1).max(1);
    let mut out = format!(
        "<svg class=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
        size.class,
        size.width,
        format_coordinate(height.max(LINE)),
        escape_html(label)
    );
    for edge in edges {
        let (a, b) = (top(sources.len(), edge.from) + TALL / 2.0, top(versions.len(), edge.to) + TALL / 2.0);
        let width = 1.0 + 5.0 * edge.weight as f64 / most as f64;
        let (left, right) = (size.box_width, size.width - size.box_width);
        let middle = (left + right) / 2.0;
        let _ = write!(
            out,
            "<path class=\"edge\" stroke-width=\"{}\" d=\"M{left} {}C{middle} {} {middle} {} {right} {}\">\
             <title>{} records</title></path>",
            format_coordinate(width),
            format_coordinate(a),
            format_coordinate(a),
            format_coordinate(b),
            format_coordinate(b),
            group_digits(edge.weight)
        );
    }
    for at in 1..versions.len() {
        let (x, y) = (size.width - size.box_width + 20.0, top(versions.len(), at));
        let _ = write!(
            out,
            "<path class=\"next\" d=\"M{} {}V{}\"/>",
            format_coordinate(x),
            format_coordinate(y - (LINE - TALL)),
            format_coordinate(y)
        );
    }
    for (nodes, x, class) in [(sources, 0.0, "source"), (versions, size.width - size.box_width, "version")] {
        for (at, node) in nodes.iter().enumerate() {
            draw_node(&mut out, size, node, Corner { x, y: top(nodes.len(), at) }, class);
        }
    }
    out + "</svg>"
}

fn draw_node(out: &mut String, size: &GraphSize, node: &Node, at: Corner, class: &str) {
    let Corner { x, y } = at;
    let (title, note) = (escape_html(&node.title), escape_html(&fit_end(&node.note, size.note)));
    let short_title = escape_html(&fit_end(&node.title, size.title));
    let _ = write!(
        out,
        "<g class=\"{class}\"><title>{title}</title><rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{TALL}\" rx=\"6\"/>\
         <text x=\"{}\" y=\"{}\">{short_title}</text><text class=\"note\" x=\"{}\" y=\"{}\">{note}</text></g>",
        format_coordinate(x + 0.5),
        format_coordinate(y),
        format_coordinate(size.box_width - 1.0),
        format_coordinate(x + 10.0),
        format_coordinate(y + 17.0),
        format_coordinate(x + 10.0),
        format_coordinate(y + 32.0)
    );
}

/// Returns the end of a text that is too long: the last folders of a path tell most.
fn fit_end(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        text.to_owned()
    } else {
        std::iter::once('…').chain(text.chars().skip(count + 1 - width)).collect()
    }
}

fn open_svg(class: &str, width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\">",
        format_coordinate(width),
        format_coordinate(height),
        escape_html(label)
    )
}

/// Writes a coordinate with at most two places.
fn format_coordinate(number: f64) -> String {
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
            draw_bars(&[Bar { value: 1.0, title: hostile.into() }, Bar { value: 0.0, title: String::new() }], hostile),
            draw_pairs(&[(0.5, 0.5), (0.0, f64::MIN_POSITIVE)], hostile),
            draw_graph(&[node()], &[node(), node()], &edges, hostile),
        ];
        for drawing in &all {
            assert!(!drawing.contains("<script") && !drawing.contains('\u{202e}'), "{drawing}");
            assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
            assert_eq!(drawing.matches("<svg").count(), drawing.matches("</svg>").count());
        }
        assert_eq!(draw_bars(&[], "").matches("<path").count(), 0);
    }

    #[test]
    fn texts_are_short() {
        assert_eq!(
            (format_coordinate(2.50), format_coordinate(100.0), format_coordinate(0.004)),
            ("2.5".into(), "100".into(), "0".into())
        );
        assert_eq!(fit_end("/data/a/b", 5), "…/a/b");
    }
}
