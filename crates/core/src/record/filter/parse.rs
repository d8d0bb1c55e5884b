//! Parses conditions.
//!
//! ```text
//! any        all ( "or" all )*
//! all        not ( "and" not )*
//! not        "not" not | "(" any ")" | predicate
//! predicate  operand [ op operand | ["not"] "in" "(" literals ")" | ["not"] "between" operand "and" operand
//!                    | ["not"] "like" text | "is" ["not"] "null" ]
//! operand    column | literal | ("today()" | "now()" | date | timestamp) ( ("+"|"-") (days | interval) )*
//! ```

use std::ops::Range;

use jiff::Timestamp;

use super::{
    Op,
    instant::{FilterInterval, Instant},
    token::{Placed, Token, expected_error, scan_tokens},
};
use crate::error::Result;

/// Maximum nesting of a condition.
const MAX_DEPTH: usize = 100;

/// Maximum digits of a number that is compared exactly; longer ones are floating-point numbers.
const MAX_DIGITS: usize = 38;

/// A condition.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expr {
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    /// True, false or null for every row.
    Known(Option<bool>),
    /// The value of a column of booleans.
    Flag(String),
    IsNull(String),
    Compare(Operand, Op, Operand),
    /// The first is at least the second and at most the third.
    Between(Operand, Operand, Operand),
    In(String, Vec<Literal>),
    Like(String, String),
}

/// A side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operand {
    Column(String),
    Literal(Literal),
}

/// A literal.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    Null,
    Boolean(bool),
    /// A decimal number: its digits, and how many of them follow the point.
    Exact(i128, u32),
    /// A number with an exponent, or with very many digits.
    Float(f64),
    Text(String),
    Instant(Instant),
}

impl Expr {
    /// Calls `visit` with each column that occurs.
    pub(super) fn each_column<'a>(&'a self, visit: &mut dyn FnMut(&'a str)) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.each_column(visit)),
            Self::Not(inner) => inner.each_column(visit),
            Self::Known(_) => {}
            Self::Flag(column) | Self::IsNull(column) | Self::In(column, _) | Self::Like(column, _) => visit(column),
            Self::Compare(left, _, right) => [left, right].into_iter().for_each(|side| side.each_column(visit)),
            Self::Between(value, low, high) => {
                [value, low, high].into_iter().for_each(|side| side.each_column(visit));
            }
        }
    }
}

impl Operand {
    fn each_column<'a>(&'a self, visit: &mut dyn FnMut(&'a str)) {
        if let Self::Column(column) = self {
            visit(column);
        }
    }
}

/// Parses a condition; also returns it with literals in place of what depends on the time.
pub(super) fn parse(text: &str, now: Timestamp) -> Result<(Expr, String)> {
    let mut parser = FilterParser { text, tokens: scan_tokens(text)?, at: 0, depth: 0, now, resolved: Vec::new() };
    let expr = parser.parse_any()?;
    if parser.peek().is_some() {
        return Err(parser.expected_here("`and`, `or` or the end"));
    }
    let mut resolved = String::new();
    let mut done = 0;
    for (at, literal) in parser.resolved {
        resolved.push_str(&text[done..at.start]);
        resolved.push_str(&literal);
        done = at.end;
    }
    resolved.push_str(&text[done..]);
    Ok((expr, resolved))
}

struct FilterParser<'a> {
    text: &'a str,
    tokens: Vec<Placed>,
    at: usize,
    depth: usize,
    now: Timestamp,
    /// Places of operands that depend on the time, with their values.
    resolved: Vec<(Range<usize>, String)>,
}

impl FilterParser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|placed| &placed.token)
    }

    fn next(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.at += usize::from(token.is_some());
        token
    }

    /// Returns the place of a token in the text.
    fn token_range(&self, at: usize) -> Range<usize> {
        self.tokens.get(at).map_or(self.text.len()..self.text.len(), |placed| placed.at.clone())
    }

    fn expected_here(&self, what: &str) -> crate::error::Error {
        expected_error(what, self.text, &self.token_range(self.at))
    }

    /// Returns whether a token, counted from the next one, is this keyword.
    fn is_word(&self, ahead: usize, keyword: &str) -> bool {
        let token = self.tokens.get(self.at + ahead).map(|placed| &placed.token);
        matches!(token, Some(Token::Word(word)) if word.eq_ignore_ascii_case(keyword))
    }

    fn is_symbol(&self, ahead: usize, symbol: &str) -> bool {
        let token = self.tokens.get(self.at + ahead).map(|placed| &placed.token);
        matches!(token, Some(Token::Symbol(found)) if *found == symbol)
    }

    fn accept_word(&mut self, keyword: &str) -> bool {
        let found = self.is_word(0, keyword);
        self.at += usize::from(found);
        found
    }

    fn accept_symbol(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(0, symbol);
        self.at += usize::from(found);
        found
    }

    fn require_symbol(&mut self, symbol: &str) -> Result<()> {
        if self.accept_symbol(symbol) { Ok(()) } else { Err(self.expected_here(&format!("`{symbol}`"))) }
    }

    fn parse_any(&mut self) -> Result<Expr> {
        let mut parts = vec![self.parse_all()?];
        while self.accept_word("or") {
            parts.push(self.parse_all()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Any(parts) })
    }

    fn parse_all(&mut self) -> Result<Expr> {
        let mut parts = vec![self.parse_negation()?];
        while self.accept_word("and") {
            parts.push(self.parse_negation()?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::All(parts) })
    }

    fn parse_negation(&mut self) -> Result<Expr> {
        if self.depth >= MAX_DEPTH {
            return Err(self.expected_here(&format!("at most {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let expr = if self.accept_word("not") {
            Expr::Not(Box::new(self.parse_negation()?))
        } else if self.accept_symbol("(") {
            let inner = self.parse_any()?;
            self.require_symbol(")")?;
            inner
        } else {
            self.parse_predicate()?
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn parse_predicate(&mut self) -> Result<Expr> {
        let operand = self.parse_operand()?;
        if let Some(op) = self.parse_operator() {
            let right = self.parse_operand()?;
            return Ok(Expr::Compare(operand, op, right));
        }
        if self.accept_word("is") {
            let negated = self.accept_word("not");
            if !self.accept_word("null") {
                return Err(self.expected_here("`null`"));
            }
            let test = match operand {
                Operand::Column(column) => Expr::IsNull(column),
                Operand::Literal(literal) => Expr::Known(Some(literal == Literal::Null)),
            };
            return Ok(negated_if(negated, test));
        }
        let negated = self.is_word(0, "not") && ["in", "between", "like"].iter().any(|word| self.is_word(1, word));
        self.at += usize::from(negated);
        if self.accept_word("in") {
            let column = self.column_of(operand, "in")?;
            return Ok(negated_if(negated, Expr::In(column, self.parse_list()?)));
        }
        if self.accept_word("between") {
            let low = self.parse_operand()?;
            if !self.accept_word("and") {
                return Err(self.expected_here("`and` of `between`"));
            }
            return Ok(negated_if(negated, Expr::Between(operand, low, self.parse_operand()?)));
        }
        if self.accept_word("like") {
            let column = self.column_of(operand, "like")?;
            let Some(Token::Text(pattern)) = self.peek().cloned() else {
                return Err(self.expected_here("a pattern such as 'a%'"));
            };
            self.at += 1;
            return Ok(negated_if(negated, Expr::Like(column, pattern)));
        }
        match operand {
            Operand::Column(column) => Ok(Expr::Flag(column)),
            Operand::Literal(Literal::Boolean(value)) => Ok(Expr::Known(Some(value))),
            Operand::Literal(Literal::Null) => Ok(Expr::Known(None)),
            Operand::Literal(_) => Err(self.expected_here("a comparison")),
        }
    }

    fn column_of(&self, operand: Operand, what: &str) -> Result<String> {
        match operand {
            Operand::Column(column) => Ok(column),
            Operand::Literal(_) => Err(self.expected_here(&format!("a column before `{what}`"))),
        }
    }

    fn parse_operator(&mut self) -> Option<Op> {
        let op = match self.peek()? {
            Token::Symbol("=" | "==") => Op::Equal,
            Token::Symbol("!=" | "<>") => Op::NotEqual,
            Token::Symbol("<") => Op::Less,
            Token::Symbol("<=") => Op::AtMost,
            Token::Symbol(">") => Op::Greater,
            Token::Symbol(">=") => Op::AtLeast,
            _ => return None,
        };
        self.at += 1;
        Some(op)
    }

    fn parse_list(&mut self) -> Result<Vec<Literal>> {
        self.require_symbol("(")?;
        let mut list = Vec::new();
        loop {
            let at = self.at;
            match self.parse_operand()? {
                Operand::Literal(literal) => list.push(literal),
                Operand::Column(_) => return Err(expected_error("a literal", self.text, &self.token_range(at))),
            }
            if self.accept_symbol(")") {
                return Ok(list);
            }
            if !self.accept_symbol(",") {
                return Err(self.expected_here("`,` or `)`"));
            }
        }
    }

    /// Parses a side of a comparison.
    fn parse_operand(&mut self) -> Result<Operand> {
        let start = self.at;
        let (mut operand, clock) = self.parse_primary()?;
        while self.is_symbol(0, "+") || self.is_symbol(0, "-") {
            let Operand::Literal(Literal::Instant(instant)) = operand else {
                return Err(self
                    .expected_here("a comparison")
                    .with_hint("only dates and times are added to, such as today() - 30"));
            };
            operand = Operand::Literal(Literal::Instant(self.parse_offset(instant)?));
        }
        if let (true, Operand::Literal(Literal::Instant(instant))) = (clock, &operand) {
            let place = self.token_range(start).start..self.token_range(self.at - 1).end;
            self.resolved.push((place, instant.to_string()));
        }
        Ok(operand)
    }

    /// Parses what is added to an instant, and adds it.
    fn parse_offset(&mut self, instant: Instant) -> Result<Instant> {
        let minus = self.next() == Some(Token::Symbol("-"));
        let start = self.at;
        let moved = if self.accept_word("interval") {
            let interval = self.parse_interval()?;
            instant.checked_add(if minus { interval.negated() } else { interval })
        } else {
            let days = match self.next() {
                Some(Token::Number(digits)) if instant.is_date => digits.parse::<i64>().ok(),
                _ => None,
            };
            let Some(days) = days else {
                self.at = start;
                let what = if instant.is_date { "days, such as 30, or an interval" } else { "an interval" };
                return Err(self.expected_here(what).with_hint("an interval is written so: interval '7 days'"));
            };
            instant.plus_days(if minus { -days } else { days })
        };
        moved.ok_or_else(|| expected_error("a date from the year -9999 to 9999", self.text, &self.token_range(start)))
    }

    fn parse_interval(&mut self) -> Result<FilterInterval> {
        let start = self.at;
        let unit = |parser: &mut Self| match parser.next() {
            Some(Token::Word(unit)) => Some(unit),
            _ => None,
        };
        let interval = match self.next() {
            Some(Token::Text(text)) => match text.trim().parse() {
                Ok(count) => unit(self).and_then(|unit| FilterInterval::from_units(count, &unit)),
                Err(_) => FilterInterval::parse(&text),
            },
            Some(Token::Number(count)) => {
                count.parse().ok().zip(unit(self)).and_then(|(n, unit)| FilterInterval::from_units(n, &unit))
            }
            _ => None,
        };
        interval.ok_or_else(|| {
            expected_error("an interval", self.text, &self.token_range(start))
                .with_hint("such as '7 days'; units are seconds, minutes, hours, days, weeks, months and years")
        })
    }

    /// Parses a column or a literal; also returns whether it depends on the time.
    fn parse_primary(&mut self) -> Result<(Operand, bool)> {
        let literal = |literal| Ok((Operand::Literal(literal), false));
        let Some(token) = self.peek().cloned() else { return Err(self.expected_here("a column or a literal")) };
        match token {
            Token::Text(text) => {
                self.at += 1;
                literal(Literal::Text(text))
            }
            Token::Number(_) | Token::Symbol("+" | "-") => literal(self.parse_number()?),
            Token::Name(_) => Ok((Operand::Column(self.parse_path()?), false)),
            Token::Word(word) => self.parse_named(&word.to_ascii_lowercase()),
            Token::Symbol(_) => Err(self.expected_here("a column or a literal")),
        }
    }

    fn parse_number(&mut self) -> Result<Literal> {
        let mut negative = false;
        while let Some(Token::Symbol(sign @ ("+" | "-"))) = self.peek() {
            negative ^= *sign == "-";
            self.at += 1;
        }
        let Some(Token::Number(digits)) = self.peek().cloned() else { return Err(self.expected_here("a number")) };
        self.at += 1;
        Ok(number_literal(&digits, negative))
    }

    /// Parses what begins with a word, given in lower case.
    fn parse_named(&mut self, word: &str) -> Result<(Operand, bool)> {
        let literal = |literal| (Operand::Literal(literal), false);
        let clock = |instant| (Operand::Literal(Literal::Instant(instant)), true);
        let called = self.is_symbol(1, "(") && self.is_symbol(2, ")");
        let text = match self.tokens.get(self.at + 1).map(|placed| &placed.token) {
            Some(Token::Text(text)) => Some(text.clone()),
            _ => None,
        };
        let (found, length) = match (word, text) {
            ("true" | "false", _) => (literal(Literal::Boolean(word == "true")), 1),
            ("null", _) => (literal(Literal::Null), 1),
            ("today" | "current_date", _) if called => (clock(Instant::day_of(self.now)), 3),
            ("now" | "current_timestamp", _) if called => (clock(Instant::from_timestamp(self.now)), 3),
            ("current_date", _) => (clock(Instant::day_of(self.now)), 1),
            ("current_timestamp", _) => (clock(Instant::from_timestamp(self.now)), 1),
            ("date" | "timestamp" | "timestamptz", Some(text)) => {
                let is_date = word == "date";
                let parsed = if is_date { Instant::parse_date(&text) } else { Instant::parse_timestamp(&text) };
                let form = if is_date { "a date such as '2026-01-31'" } else { "a time such as '2026-01-31 12:00:00'" };
                let instant = parsed.ok_or_else(|| expected_error(form, self.text, &self.token_range(self.at + 1)))?;
                (literal(Literal::Instant(instant)), 2)
            }
            ("and" | "or" | "not" | "in" | "is" | "like" | "between" | "interval", _) => {
                return Err(self.expected_here("a column or a literal"));
            }
            _ if self.is_symbol(1, "(") => {
                return Err(self
                    .expected_here("a column or a literal")
                    .with_hint("the only functions are today() and now()"));
            }
            _ => return Ok((Operand::Column(self.parse_path()?), false)),
        };
        self.at += length;
        Ok(found)
    }

    /// Parses the name of a column, or the path of a nested one.
    fn parse_path(&mut self) -> Result<String> {
        let mut path = String::new();
        loop {
            match self.peek() {
                Some(Token::Word(name) | Token::Name(name)) => path.push_str(name),
                _ => return Err(self.expected_here("the name of a column")),
            }
            self.at += 1;
            if !self.accept_symbol(".") {
                return Ok(path);
            }
            path.push('.');
        }
    }
}

fn negated_if(negated: bool, expr: Expr) -> Expr {
    if negated { Expr::Not(Box::new(expr)) } else { expr }
}

/// Returns the value of a number: exact, unless it has an exponent or too many digits.
fn number_literal(text: &str, negative: bool) -> Literal {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let exact = (!text.contains(['e', 'E']) && significant.len() <= MAX_DIGITS && fraction.len() <= MAX_DIGITS)
        .then(|| if significant.is_empty() { Some(0) } else { significant.parse::<i128>().ok() })
        .flatten();
    let sign = |value: f64| if negative { -value } else { value };
    match (exact, u32::try_from(fraction.len())) {
        (Some(value), Ok(scale)) => Literal::Exact(if negative { -value } else { value }, scale),
        _ => Literal::Float(sign(text.parse().unwrap_or(f64::INFINITY))),
    }
}
