//! The formats that sources may have: a file for each, which has its [`Format`] and how its files are opened, and a
//! line in [`INPUTS`].
//!
//! ```text
//! INPUTS ---> values of --from and their help, completion
//!        ---> which names say that a file holds records, and of which format
//!        ---> who is asked, in this order, whether a file is his by its first bytes; text is what nobody claims
//! ```
//!
//! A name and each ending belong to one format. A format is stored by its name.

mod arrays;
mod arrow;
mod avro;
mod excel;
mod files;
mod format;
mod parquet;
mod start;
mod tar;
mod text;
mod tfrecord;
mod warc;

use std::sync::LazyLock;

use self::format::Format;
pub(super) use self::{
    arrays::zarr_source,
    start::{HEAD_BYTES, PACKED, Start, first_range, locate_result, open_ranged},
    text::is_csv_name,
};
pub use self::{format::InputFormat, start::SniffOptions};
use super::source::RecordSource;
use crate::{error::Result, format::OutputFormat};

/// All formats.
const INPUTS: &[&Format] = &[
    &text::CSV,
    &text::TSV,
    &text::JSONL,
    &text::JSON,
    &parquet::PARQUET,
    &arrow::ARROW,
    &avro::AVRO,
    &excel::EXCEL,
    &files::FILES,
    &tar::TAR,
    &tfrecord::TFRECORD,
    &warc::WARC,
    &arrays::NETCDF,
    &arrays::HDF5,
    &arrays::ZARR,
    &arrays::NPY,
    &arrays::SAFETENSORS,
    &arrays::NIFTI,
];

impl InputFormat {
    /// Comma-separated or otherwise delimited text.
    pub const CSV: Self = Self(&text::CSV);
    /// Tab-separated text.
    pub const TSV: Self = Self(&text::TSV);
    /// One JSON object per line.
    pub const JSONL: Self = Self(&text::JSONL);
    /// A JSON document: an object, or an array of objects.
    pub const JSON: Self = Self(&text::JSON);
    /// Apache Parquet.
    pub const PARQUET: Self = Self(&parquet::PARQUET);
    /// Arrow IPC, as a file or a stream.
    pub const ARROW: Self = Self(&arrow::ARROW);
    /// Avro object container files.
    pub const AVRO: Self = Self(&avro::AVRO);
    /// A sheet of a workbook.
    pub const EXCEL: Self = Self(&excel::EXCEL);
    /// Any files, grouped into samples by name.
    pub const FILES: Self = Self(&files::FILES);
    /// An archive of samples.
    pub const TAR: Self = Self(&tar::TAR);
    /// TFRecord of `tf.train.Example`.
    pub const TFRECORD: Self = Self(&tfrecord::TFRECORD);
    /// WARC, WET or WAT.
    pub const WARC: Self = Self(&warc::WARC);
    /// NetCDF: classic, 64-bit offset, CDF-5, or netCDF-4.
    pub const NETCDF: Self = Self(&arrays::NETCDF);
    /// HDF5.
    pub const HDF5: Self = Self(&arrays::HDF5);
    /// Zarr, version 2 or 3.
    pub const ZARR: Self = Self(&arrays::ZARR);
    /// NPY or NPZ of NumPy.
    pub const NPY: Self = Self(&arrays::NPY);
    /// safetensors of Hugging Face.
    pub const SAFETENSORS: Self = Self(&arrays::SAFETENSORS);
    /// NIfTI, versions 1 and 2.
    pub const NIFTI: Self = Self(&arrays::NIFTI);

    /// All formats, as the help lists them.
    pub const ALL: [Self; INPUTS.len()] = {
        let (mut all, mut at) = ([Self::CSV; INPUTS.len()], 0);
        while at < all.len() {
            all[at] = Self(INPUTS[at]);
            at += 1;
        }
        all
    };

    /// Whether a name, in any case, ends as those of its files do.
    pub(super) fn matches_extension(self, name: &str) -> bool {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        extension.is_some_and(|extension| self.0.endings.iter().any(|ending| extension.eq_ignore_ascii_case(ending)))
    }

    /// Whether a name does, before an extension of compression.
    pub(super) fn matches_packed_name(self, name: &str) -> bool {
        let inner =
            name.rsplit_once('.').filter(|(_, last)| PACKED.iter().any(|packed| last.eq_ignore_ascii_case(packed)));
        self.matches_extension(inner.map_or(name, |(inner, _)| inner))
    }

    /// Whether settings of `--read` apply to it whose [scope](crate::settings::Setting::scope) this is.
    pub fn takes_settings(self, scope: &str) -> bool {
        scope.split(" and ").any(|scope| match scope {
            "CSV" => self.is_delimited(),
            "Text" => self.is_text(),
            "Arrays" => self.is_array(),
            // What these are for is no format.
            "Tables" | "Delta" | "Standard input" => true,
            own => own.eq_ignore_ascii_case(self.name()),
        })
    }

    /// Whether this is a format in whose files records lie in lines of delimited text.
    pub(super) fn is_delimited(self) -> bool {
        [Self::CSV, Self::TSV].contains(&self)
    }
}

impl From<OutputFormat> for InputFormat {
    fn from(format: OutputFormat) -> Self {
        match format {
            OutputFormat::Parquet => Self::PARQUET,
            OutputFormat::Tar => Self::TAR,
            OutputFormat::TfRecord => Self::TFRECORD,
        }
    }
}

impl TryFrom<String> for InputFormat {
    type Error = String;

    fn try_from(name: String) -> std::result::Result<Self, String> {
        let named = Self::ALL.into_iter().find(|format| format.name() == name);
        named.ok_or_else(|| format!("expected an input format that this release knows, found `{name}`"))
    }
}

/// Returns what a name with this last extension states, in words; `None` for an extension of no format.
pub(super) fn stated_format(extension: &str) -> Option<&'static str> {
    // There may be millions of names.
    static STATES: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
        let endings = |format: &&'static Format| format.endings.iter().map(|ending| (*ending, format.states));
        let mut all: Vec<(&str, &str)> = INPUTS.iter().flat_map(endings).collect();
        all.sort_unstable();
        all
    });
    let at = STATES.binary_search_by(|(ending, _)| (*ending).cmp(extension)).ok()?;
    STATES.get(at).map(|(_, states)| *states)
}

/// Returns the formats whose names state this.
pub(super) fn formats_stating(states: &'static str) -> impl Iterator<Item = InputFormat> {
    InputFormat::ALL.into_iter().filter(move |format| format.0.states == states)
}

/// Returns the records that a file holds: those of the first format that claims it, or text.
///
/// # Errors
/// When a format claims it, but it cannot be read.
pub(super) fn open(start: Start<'_>) -> Result<Option<RecordSource>> {
    for format in INPUTS {
        if let Some(open) = format.open.filter(|_| start.accepts_format(InputFormat(format)))
            && let Some(source) = open(&start)?
        {
            return Ok(Some(source));
        }
    }
    text::open_text(start)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_and_endings_belong_to_one_format() {
        let (mut names, mut endings) = (HashSet::new(), HashSet::new());
        for format in INPUTS {
            assert!(names.insert(format.name), "{}", format.name);
            for ending in format.endings {
                assert!(endings.insert(*ending), "{ending}");
                assert_eq!(*ending, ending.to_lowercase());
            }
            let stored = serde_json::to_string(&InputFormat(format)).unwrap_or_default();
            assert_eq!(stored, format!("\"{}\"", format.name));
            assert_eq!(serde_json::from_str::<InputFormat>(&stored).ok(), Some(InputFormat(format)));
        }
        assert!(serde_json::from_str::<InputFormat>("\"unheard-of\"").is_err());
    }
}
