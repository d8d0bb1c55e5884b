//! Settings of input formats, as `--read KEY=VALUE` states them. Each has a line in [`SETTINGS`]; the command line, its
//! completion and help, and the log take them from there.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A setting: its key, its values, the default first, and what each of them does.
pub struct Setting {
    /// Name of the setting.
    pub key: &'static str,
    /// Values with their meanings; the first is the default.
    pub values: &'static [(&'static str, &'static str)],
}

/// All settings.
pub const SETTINGS: &[Setting] = &[Setting {
    key: "tidy",
    values: &[
        ("yes", "CSV: where the standard reading is impossible, read by another one that fits"),
        ("no", "CSV: only the standard reading (RFC 4180): the first line is the header, all others are records"),
    ],
}];

/// A value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadSetting {
    key: &'static str,
    value: &'static str,
}

impl FromStr for ReadSetting {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let keys = || SETTINGS.iter().map(|setting| setting.key).collect::<Vec<_>>().join(", ");
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            return Err(Error::usage(format!("expected KEY=VALUE with one of the keys {}, found `{text}`", keys())));
        };
        let values = || setting.values.iter().map(|(value, _)| *value).collect::<Vec<_>>().join(" or ");
        match setting.values.iter().find(|(one, _)| *one == value) {
            Some((value, _)) => Ok(Self { key: setting.key, value }),
            None => Err(Error::usage(format!("expected {key}={}, found `{text}`", values()))),
        }
    }
}

/// The settings of a run; those that are not given have their defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReadSettings(BTreeMap<String, String>);

impl ReadSettings {
    /// Whether the setting has this value.
    fn is(&self, key: &str, value: &str) -> bool {
        let default = || SETTINGS.iter().find(|setting| setting.key == key).map(|setting| setting.values[0].0);
        self.0.get(key).map(String::as_str).or_else(default) == Some(value)
    }

    /// Whether delimited text may be read otherwise than by the standard where that is impossible.
    pub fn tidy(&self) -> bool {
        self.is("tidy", "yes")
    }
}

impl FromIterator<ReadSetting> for ReadSettings {
    fn from_iter<I: IntoIterator<Item = ReadSetting>>(settings: I) -> Self {
        Self(settings.into_iter().map(|one| (one.key.to_owned(), one.value.to_owned())).collect())
    }
}

impl fmt::Display for ReadSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&settings.join(","))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_setting_counts() {
        let settings = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<ReadSettings>();
        assert!(settings(&[]).tidy() && settings(&[]).to_string().is_empty());
        assert!(!settings(&["tidy=yes", "tidy=no"]).tidy());
        assert_eq!(settings(&["tidy=no"]).to_string(), "tidy=no");
    }

    #[test]
    fn errors_name_what_is_possible() {
        for (text, part) in [("tidy", "tidy=yes or no"), ("tidy=maybe", "tidy=yes or no"), ("neat=yes", "keys tidy")] {
            let error = text.parse::<ReadSetting>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(text), "{error}");
        }
    }
}
