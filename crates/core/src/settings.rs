//! Settings of formats: options of the form `KEY=VALUE`, as `--read` and `--write` take them.
//!
//! Each setting has a line in the table of its option; the command line, its help and completion, plans and the log
//! take everything from there. A value is checked when it is given, and once more when it is read from a plan.

use std::{collections::BTreeMap, fmt, marker::PhantomData, str::FromStr};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::{Error, Result};

/// A setting: its key, and the values that it takes.
pub struct Setting {
    /// Name of the setting.
    pub key: &'static str,
    /// Its values.
    pub values: SettingValues,
}

/// Values of a setting.
pub enum SettingValues {
    /// One of these words, with their meanings; the first is the default.
    Words(&'static [(&'static str, &'static str)]),
    /// Any text that passes a check; the default is that nothing is set.
    Text {
        /// Stands for the value in help, like `CHAR`.
        name: &'static str,
        /// What it does.
        help: &'static str,
        /// Says what is wrong with a value.
        check: fn(&str) -> Result<()>,
    },
    /// Texts with commas between them; given several times, they are one list.
    List {
        /// Stands for the value in help.
        name: &'static str,
        /// What they do.
        help: &'static str,
    },
}

impl Setting {
    /// Returns the kind of formats that it applies to, with which its help begins, such as `CSV`.
    pub fn scope(&self) -> &'static str {
        let help = match self.values {
            SettingValues::Words(words) => words.first().map_or("", |(_, help)| *help),
            SettingValues::Text { help, .. } | SettingValues::List { help, .. } => help,
        };
        help.split_once(':').map_or("", |(scope, _)| scope)
    }
}

/// An option that takes settings.
pub trait Table: Clone + fmt::Debug + Default + PartialEq + Send + Sync + 'static {
    /// All settings.
    const SETTINGS: &'static [Setting];
}

/// A value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given<T> {
    key: &'static str,
    value: String,
    table: PhantomData<T>,
}

impl<T: Table> FromStr for Given<T> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let keys = || T::SETTINGS.iter().map(|setting| setting.key).collect::<Vec<_>>().join(", ");
        let Some(setting) = T::SETTINGS.iter().find(|setting| setting.key == key) else {
            return Err(Error::usage(format!("expected KEY=VALUE with one of the keys {}, found `{text}`", keys())));
        };
        match setting.values {
            SettingValues::Text { check, .. } => check(value)?,
            SettingValues::List { .. } => {}
            SettingValues::Words(words) if words.iter().any(|(word, _)| *word == value) => {}
            SettingValues::Words(words) => {
                let words = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
                return Err(Error::usage(format!("expected {key}={words}, found `{text}`")));
            }
        }
        Ok(Self { key: setting.key, value: value.to_owned(), table: PhantomData })
    }
}

/// The settings of a run; those that are not given have their defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent, bound = "T: Table")]
pub struct Settings<T> {
    #[serde(deserialize_with = "checked::<_, T>")]
    values: BTreeMap<String, String>,
    #[serde(skip)]
    table: PhantomData<T>,
}

fn checked<'de, D: serde::Deserializer<'de>, T: Table>(
    from: D,
) -> std::result::Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::<String, String>::deserialize(from)?;
    let check = |(key, value): (&String, &String)| format!("{key}={value}").parse::<Given<T>>().map(drop);
    values.iter().try_for_each(check).map_err(serde::de::Error::custom)?;
    Ok(values)
}

impl<T: Table> Settings<T> {
    /// Whether a setting of words has this value.
    pub fn is_set_to(&self, key: &str, word: &str) -> bool {
        let first = |setting: &Setting| match setting.values {
            SettingValues::Words(words) => words.first().map(|(word, _)| *word),
            SettingValues::Text { .. } | SettingValues::List { .. } => None,
        };
        let default = || T::SETTINGS.iter().find(|setting| setting.key == key).and_then(first);
        self.text(key).or_else(default) == Some(word)
    }

    /// Returns the text of a setting; `None` if it is not given.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// Returns the settings that were given, by key.
    pub fn given_settings(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Returns the value of a setting that is not one of a few words; `None` if it is not given.
    pub fn parse_value<V>(&self, key: &str, parse: impl FnOnce(&str) -> Result<V>) -> Option<V> {
        self.text(key).and_then(|text| parse(text).ok())
    }

    /// Returns the word of a setting as the value that it stands for; `None` if it is not given.
    pub fn parse_word<V: DeserializeOwned>(&self, key: &str) -> Option<V> {
        self.text(key).and_then(|word| serde_json::from_value(word.into()).ok())
    }
}

impl<T: Table> FromIterator<Given<T>> for Settings<T> {
    /// The last value of a setting counts; lists are joined.
    fn from_iter<I: IntoIterator<Item = Given<T>>>(settings: I) -> Self {
        let is_list = |key: &str| {
            T::SETTINGS.iter().any(|one| one.key == key && matches!(one.values, SettingValues::List { .. }))
        };
        let mut values: BTreeMap<String, String> = BTreeMap::new();
        for Given { key, value, .. } in settings {
            let value = match values.get(key) {
                Some(before) if is_list(key) => format!("{before},{value}"),
                _ => value,
            };
            values.insert(key.to_owned(), value);
        }
        Self { values, table: PhantomData }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Default, PartialEq)]
    struct Food;

    impl Table for Food {
        const SETTINGS: &'static [Setting] = &[
            Setting { key: "salt", values: SettingValues::Words(&[("yes", "with salt"), ("no", "without")]) },
            Setting {
                key: "grams",
                values: SettingValues::Text {
                    name: "N",
                    help: "how much",
                    check: |text| text.parse::<u32>().map(drop).map_err(|_| Error::usage("expected a number")),
                },
            },
        ];
    }

    fn settings(texts: &[&str]) -> Settings<Food> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_last_value_of_a_setting_counts() {
        assert!(settings(&[]).is_set_to("salt", "yes") && settings(&[]).given_settings().next().is_none());
        assert!(!settings(&["salt=yes", "salt=no"]).is_set_to("salt", "yes"));
        let all = settings(&["salt=no", "grams=7", "grams=8"]);
        assert_eq!(all.given_settings().collect::<Vec<_>>(), [("grams", "8"), ("salt", "no")]);
        assert_eq!(settings(&["grams=8"]).parse_value("grams", |text| Ok(text.len())), Some(1));
    }

    #[test]
    fn errors_name_what_is_possible() {
        for (text, part) in [
            ("salt", "salt=yes or no"),
            ("salt=maybe", "salt=yes or no"),
            ("pepper=yes", "keys salt, grams"),
            ("grams=much", "expected a number"),
        ] {
            let error = text.parse::<Given<Food>>().unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn stored_settings_are_checked() {
        let given = settings(&["salt=no", "grams=8"]);
        let stored = serde_json::to_string(&given).unwrap();
        assert_eq!(stored, r#"{"grams":"8","salt":"no"}"#);
        assert_eq!(serde_json::from_str::<Settings<Food>>(&stored).unwrap(), given);
        assert!(serde_json::from_str::<Settings<Food>>(r#"{"grams":"much"}"#).is_err());
        assert!(serde_json::from_str::<Settings<Food>>(r#"{"sugar":"1"}"#).is_err());
    }
}
