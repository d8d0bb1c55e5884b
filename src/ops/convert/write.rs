//! Settings of shard formats, which `--write` takes.

use crate::{
    error::Result,
    exec::encode::RowsAs,
    settings::{Given, Setting, SettingValues, Settings, Table},
    units::Size,
};

/// The settings of `--write`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOption;

/// A setting that was given.
pub type WriteSetting = Given<WriteOption>;

/// The settings of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct WriteSettings(Settings<WriteOption>);

impl std::ops::Deref for WriteSettings {
    type Target = Settings<WriteOption>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FromIterator<WriteSetting> for WriteSettings {
    fn from_iter<I: IntoIterator<Item = WriteSetting>>(settings: I) -> Self {
        Self(settings.into_iter().collect())
    }
}

impl Table for WriteOption {
    const SETTINGS: &'static [Setting] = &[
        Setting {
            key: "row-group",
            values: SettingValues::Text {
                name: "SIZE",
                help: "Parquet: uncompressed size of a row group, at most 128MiB; 64MiB by default",
                check: |text| parse_size(text).map(drop),
            },
        },
        Setting {
            key: "media",
            values: SettingValues::Words(&[
                ("bytes", "Parquet: images and audio of samples are one binary column per extension"),
                ("hf", "Parquet: they are structs of bytes and path, as in Hugging Face datasets"),
            ]),
        },
        Setting {
            key: "rows",
            values: SettingValues::Words(&[
                ("auto", "Tar: rows with a column __key__ become the samples they came from, other rows JSON"),
                ("json", "Tar: a row is one member KEY.json with all columns"),
                ("parts", "Tar: a row is one member KEY.COLUMN for each column that is not null"),
            ]),
        },
        Setting {
            key: "tensors",
            values: SettingValues::Words(&[
                ("bytes", "TFRecord: a tensor is its bytes, beside its shape and type"),
                ("lists", "TFRecord: a tensor is a list of numbers"),
            ]),
        },
    ];
}

impl WriteSettings {
    /// Returns the uncompressed bytes of a row group; `None` for those of the dataset.
    pub fn row_group(&self) -> Option<Size> {
        self.parse_value("row-group", parse_size)
    }

    /// Returns the form of rows in tar; `None` derives it from their columns.
    pub fn row_form(&self) -> Option<RowsAs> {
        self.parse_word("rows")
    }

    /// Whether pictures and recordings are stored in Parquet as Hugging Face does.
    pub fn is_hf_media(&self) -> bool {
        self.is_set_to("media", "hf")
    }

    /// Whether tensors in TFRecord are lists of numbers rather than bytes.
    pub fn tensor_lists(&self) -> bool {
        self.is_set_to("tensors", "lists")
    }
}

fn parse_size(text: &str) -> Result<Size> {
    text.parse()
}
