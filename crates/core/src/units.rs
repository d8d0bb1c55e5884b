//! Sizes, durations and instants in the notation of users: `128MiB`, `7d`, `2026-11-21`.
//!
//! Binary units (`KiB`, `MiB`, `GiB`, `TiB`) are powers of 1024, decimal ones (`KB`, `MB`, `GB`, `TB`) of 1000.

use std::{fmt, str::FromStr, time::Duration};

use crate::error::{Error, Result};

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Size(pub u64);

impl Size {
    /// Returns the size of `n` mebibytes.
    pub const fn from_mib(n: u64) -> Self {
        Self(n << 20)
    }
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage(format!("expected a size, found `{text}`"))
                .with_hint("write it like 128MiB, 1GB or 4096 (bytes)")
        };
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(bad()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or_else(bad);
        }
        let value: f64 = number.parse().map_err(|_| bad())?;
        let bytes = value * factor as f64;
        if !bytes.is_finite() || bytes < 0.0 || bytes >= u64::MAX as f64 {
            return Err(bad());
        }
        #[expect(clippy::cast_possible_truncation, reason = "checked against the range above")]
        #[expect(clippy::cast_sign_loss, reason = "checked to be positive above")]
        Ok(Self(bytes.round() as u64))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        if unit == 0 {
            write!(f, "{} B", self.0)
        } else if value >= 99.95 {
            write!(f, "{value:.0} {}", UNITS[unit])
        } else {
            write!(f, "{value:.1} {}", UNITS[unit])
        }
    }
}

/// Parses a duration such as `7d`, `12h`, `90m`, `30s` or `2w`.
///
/// # Errors
/// When the text is not a whole number followed by one of these units.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let bad = || {
        Error::usage(format!("expected a duration, found `{text}`")).with_hint("write it like 7d, 12h, 90m, 30s or 2w")
    };
    let text = text.trim();
    let unit = text.chars().next_back().ok_or_else(bad)?;
    let number: u64 = text[..text.len() - unit.len_utf8()].trim().parse().map_err(|_| bad())?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return Err(bad()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(bad)
}

/// Formats a number with thousands separators: `6,500,000`.
pub fn group_digits(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_in_every_spelling() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("1b", 1),
            ("1k", 1024),
            ("1KiB", 1024),
            ("1kB", 1000),
            ("128MiB", 134_217_728),
            ("1.5 GiB", 1_610_612_736),
            ("2GB", 2_000_000_000),
            (" 3 TiB ", 3 << 40),
        ] {
            assert_eq!(text.parse::<Size>().unwrap().0, bytes, "{text}");
        }
        for text in ["", "MiB", "1XB", "-1", "1e400GB", "99999999999999999999", "1.2.3MB", "17000000 TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_print_with_three_digits_at_most() {
        for (bytes, text) in
            [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (134_217_728, "128 MiB"), (1 << 40, "1.0 TiB")]
        {
            assert_eq!(Size(bytes).to_string(), text);
        }
    }

    #[test]
    fn durations_parse() {
        for (text, seconds) in [("7d", 604_800), ("12h", 43_200), ("90m", 5_400), ("2w", 1_209_600), ("5 s", 5)] {
            assert_eq!(parse_duration(text).unwrap().as_secs(), seconds, "{text}");
        }
        for text in ["", "d", "7", "7y", "-1d", "1.5h", "99999999999999999999d", "7µ"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn grouped_puts_commas_every_three_digits() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (6_500_000, "6,500,000")] {
            assert_eq!(group_digits(n), text);
        }
    }
}
