//! Words, names, literals and symbols of a condition.

use std::ops::Range;

use crate::error::{Error, Result};

/// Symbols, longest first.
const SYMBOLS: [&str; 14] = ["==", "!=", "<>", "<=", ">=", "=", "<", ">", "(", ")", ",", ".", "+", "-"];

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A word without quotes: a keyword, or a name.
    Word(String),
    /// A name in double quotes.
    Name(String),
    /// A number without a sign.
    Number(String),
    /// Text in single quotes.
    Text(String),
    /// An operator or other symbol.
    Symbol(&'static str),
}

/// A token and its place in the text, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) at: Range<usize>,
}

/// Returns the error for a place in the text of a condition: what was expected, and what is there.
pub(super) fn expected_error(what: &str, text: &str, at: &Range<usize>) -> Error {
    let character = text.get(..at.start).map_or(0, |before| before.chars().count()) + 1;
    let found = match text.get(at.clone()).unwrap_or_default() {
        "" => "its end".to_owned(),
        found => format!("`{found}`"),
    };
    Error::usage(format!("expected {what} in --where, found {found} at character {character}"))
}

/// Cuts a condition into tokens.
pub(super) fn scan_tokens(text: &str) -> Result<Vec<Placed>> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, length) = match first {
            '\'' | '"' => {
                let (content, length) = quoted(rest, first).ok_or_else(|| {
                    expected_error(&format!("a closing {first}"), text, &(text.len()..text.len()))
                        .with_hint("text is written 'so', names of columns \"so\"; a quote within is doubled")
                })?;
                (if first == '"' { Token::Name(content) } else { Token::Text(content) }, length)
            }
            '0'..='9' => number(rest),
            '.' if rest[1..].starts_with(|c: char| c.is_ascii_digit()) => number(rest),
            _ if first.is_alphabetic() || first == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                (Token::Word(rest[..end].to_owned()), end)
            }
            _ => match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
                Some(symbol) => (Token::Symbol(symbol), symbol.len()),
                None => {
                    let place = at..at + first.len_utf8();
                    let hint = match first {
                        '&' => "write `and`",
                        '|' => "write `or`",
                        '!' => "write `not`, or `!=`",
                        _ => "put names of columns with other characters in double quotes",
                    };
                    return Err(expected_error("a column, a literal or an operator", text, &place).with_hint(hint));
                }
            },
        };
        out.push(Placed { token, at: at..at + length });
        at += length;
    }
    Ok(out)
}

/// Returns the content of the quotes at the start, and the length of everything; a doubled quote is one.
fn quoted(rest: &str, quote: char) -> Option<(String, usize)> {
    let mut content = String::new();
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((at, character)) = characters.next() {
        if character != quote {
            content.push(character);
        } else if characters.peek().is_some_and(|(_, next)| *next == quote) {
            content.push(quote);
            characters.next();
        } else {
            return Some((content, at + 1));
        }
    }
    None
}

/// Returns the number at the start: digits with a point and an exponent.
fn number(rest: &str) -> (Token, usize) {
    let bytes = rest.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(|byte| byte.is_ascii_digit() || *byte == b'_') {
            at += 1;
        }
        at
    };
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            end = digits(end + 1 + sign);
        }
    }
    (Token::Number(rest[..end].replace('_', "")), end)
}
