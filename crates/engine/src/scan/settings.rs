//! Settings of input formats, which `--read` takes.

use std::sync::Arc;

use super::formats::{InputFormat, SniffOptions};
use crate::{
    array::records::ArrayOptions,
    codec::encoding::Encoding,
    delta::AsOf,
    error::{Error, Result},
    format::{
        arrays::OpenSources,
        csv::{self, CsvOptions, Notation, StatedDialect},
        excel::options::{ExcelOptions, Room},
        ipc::StreamEnd,
        json::JsonOptions,
        warc::WarcOptions,
    },
    settings::{Given, Setting, SettingValues, Settings, Table},
};

/// The settings of `--read`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read;

/// A setting that was given.
pub type ReadSetting = Given<Read>;

/// The settings of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct ReadSettings(Settings<Read>);

impl std::ops::Deref for ReadSettings {
    type Target = Settings<Read>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl FromIterator<ReadSetting> for ReadSettings {
    fn from_iter<I: IntoIterator<Item = ReadSetting>>(settings: I) -> Self {
        Self(settings.into_iter().collect())
    }
}

const fn text_setting(
    key: &'static str,
    name: &'static str,
    help: &'static str,
    check: fn(&str) -> Result<()>,
) -> Setting {
    Setting { key, values: SettingValues::Text { name, help, check } }
}

impl Table for Read {
    const SETTINGS: &'static [Setting] = &[
        text_setting("delimiter", "TEXT", "CSV: such as `;`, `tab` or `||`; detected by default", |text| {
            parse_delimiter(text).map(drop)
        }),
        text_setting("quote", "CHAR|none", "CSV: encloses values; `\"` by default", |text| parse_quote(text).map(drop)),
        text_setting("escape", "CHAR", "CSV: before a quote, delimiter or line end that is part of a value", |text| {
            parse_byte(text).map(drop)
        }),
        text_setting("comment", "CHAR", "CSV: begins lines that are no records", |text| parse_byte(text).map(drop)),
        text_setting(
            "skip",
            "N",
            "CSV and Excel: lines or rows before the header, or the first record, that are no records",
            |text| parse_lines(text).map(drop),
        ),
        text_setting("decimal", "CHAR", "CSV: before the fraction of a number; `.` by default", |text| {
            parse_byte(text).map(drop)
        }),
        text_setting("thousands", "CHAR", "CSV: between thousands, such as `.` in 1.234.567", |text| {
            parse_byte(text).map(drop)
        }),
        text_setting("date", "FORMAT", "CSV: dates beside ISO 8601, such as %d.%m.%Y", csv::check_date_format),
        text_setting(
            "timestamp",
            "FORMAT",
            "CSV: times beside ISO 8601, such as '%m/%d/%Y %I:%M %p'",
            csv::check_timestamp_format,
        ),
        text_setting(
            "encoding",
            "NAME",
            "Text: such as latin1, windows-1252, utf-16 or shift_jis; detected by default",
            |text| text.parse::<Encoding>().map(drop),
        ),
        Setting {
            key: "header",
            values: SettingValues::Words(&[
                ("yes", "CSV and Excel: the first row names the columns"),
                ("no", "CSV and Excel: the first row is data"),
            ]),
        },
        Setting {
            key: "null",
            values: SettingValues::List {
                name: "TEXT[,TEXT]",
                help: "CSV and Excel: texts to treat as null, in addition to empty fields",
            },
        },
        Setting {
            key: "tidy",
            values: SettingValues::Words(&[
                ("yes", "CSV: where the standard reading is impossible, read by another one that fits"),
                (
                    "no",
                    "CSV: only the standard reading (RFC 4180): the first line is the header, all others are records",
                ),
            ]),
        },
        text_setting("sheet", "NAME", "Excel: sheet to read; the only visible one with data by default", name),
        text_setting("records", "NAME[.NAME]", "JSON: member of a document that has the records", name),
        Setting {
            key: "hive-columns",
            values: SettingValues::Words(&[
                ("no", "Tables: folders KEY=VALUE in paths mean nothing"),
                ("yes", "Tables: a column for each folder KEY=VALUE in their paths (Hive partitions)"),
            ]),
        },
        text_setting(
            "name",
            "NAME",
            "Standard input: its name among the sources, as in origins; `stdin` by default",
            |text| stream_text(text, "a name"),
        ),
        text_setting(
            "etag",
            "TEXT",
            "Standard input: the state of what it is a copy of; the same one is not read again",
            |text| stream_text(text, "an entity tag"),
        ),
        Setting {
            key: "end",
            values: SettingValues::Words(&[
                ("mark", "Arrow: a stream on standard input is whole if it ends with the end mark"),
                ("any", "Arrow: a stream on standard input may end without the end mark"),
            ]),
        },
        text_setting("as-of", "VERSION|INSTANT", "Delta: version v12, or the newest at 2026-11-25T09:00:00Z", |text| {
            text.parse::<AsOf>().map(drop)
        }),
        Setting {
            key: "body",
            values: SettingValues::Words(&[
                ("decoded", "WARC: undo chunks, gzip, deflate and zstd of HTTP bodies"),
                ("raw", "WARC: keep bodies as stored"),
            ]),
        },
        Setting {
            key: "text",
            values: SettingValues::Words(&[
                ("auto", "WARC: a column of text for WET and WAT"),
                ("yes", "WARC: a column of text for content in UTF-8; other content stays in `payload`"),
                ("no", "WARC: all content in `payload`"),
            ]),
        },
        text_setting("record-dim", "DIM", "Arrays: dimension along which they are split into records", name),
        text_setting("var", "NAME[,NAME]", "Arrays: variables to read; all by default", name),
        text_setting("patch", "DIM=N[,DIM=N]", "Arrays: cut each record into patches of this size", |text| {
            sizes(text).map(drop)
        }),
        text_setting(
            "stride",
            "DIM=N[,DIM=N]",
            "Arrays: distance between the starts of patches; their size by default",
            |text| sizes(text).map(drop),
        ),
        Setting {
            key: "flatten",
            values: SettingValues::Words(&[("no", "Arrays: one row per record"), ("yes", "Arrays: one row per cell")]),
        },
        Setting {
            key: "raw",
            values: SettingValues::Words(&[
                ("no", "Arrays: decode CF conventions: _FillValue, scale_factor, units of time and the like"),
                ("yes", "Arrays: keep values as stored, and those without a column type, such as BF16, as their bits"),
            ]),
        },
        Setting {
            key: "sparse",
            values: SettingValues::Words(&[
                ("no", "Arrays: refuse those that declare far more values than their bytes can hold"),
                ("yes", "Arrays: accept them; what was never written are fill values"),
            ]),
        },
    ];
}

impl ReadSettings {
    /// Returns how sources are read of which nothing else is known, in a format if one is named, by a run with so many
    /// bytes of memory.
    pub fn to_sniff_options(&self, from: Option<InputFormat>, memory: u64) -> SniffOptions {
        SniffOptions {
            from,
            encoding: self.encoding(),
            csv: CsvOptions {
                delimiter: self.delimiter(),
                has_header: self.has_header(),
                stated: self.stated_dialect(),
                skip: self.skipped_lines(),
                nulls: self.null_texts(),
                tidy: self.is_tidy(),
                ..CsvOptions::default()
            },
            json: JsonOptions { records: self.record_path(), ..JsonOptions::default() },
            warc: self.warc_options(),
            excel: self.excel_options(memory),
            open: Arc::new(OpenSources::with_memory(memory)),
            arrays: self.array_options(),
            ..SniffOptions::default()
        }
    }

    /// Whether delimited text may be read otherwise than by the standard where that is impossible.
    pub fn is_tidy(&self) -> bool {
        self.is_set_to("tidy", "yes")
    }

    /// Returns the delimiter of one byte; `None` detects it, or it is a longer text.
    pub fn delimiter(&self) -> Option<u8> {
        match self.parse_value("delimiter", parse_delimiter)?.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// Returns what is stated of the dialect of delimited text, beyond a delimiter of one byte.
    pub fn stated_dialect(&self) -> StatedDialect {
        let byte = |key| self.parse_value(key, parse_byte);
        StatedDialect {
            delimiter: self.parse_value("delimiter", parse_delimiter).filter(|delimiter| delimiter.len() > 1),
            quote: self.parse_value("quote", parse_quote).unwrap_or(Some(b'"')),
            escape: byte("escape"),
            comment: byte("comment"),
            notation: Notation {
                decimal: byte("decimal").filter(|decimal| *decimal != b'.'),
                thousands: byte("thousands"),
                date: self.text("date").map(str::to_owned),
                timestamp: self.text("timestamp").map(str::to_owned),
            },
        }
    }

    /// Returns the number of lines before the table.
    pub fn skipped_lines(&self) -> u64 {
        self.parse_value("skip", parse_lines).unwrap_or_default()
    }

    /// Returns the encoding of text; `None` detects it from the content.
    pub fn encoding(&self) -> Option<Encoding> {
        self.parse_value("encoding", str::parse)
    }

    /// Whether delimited text has a header.
    pub fn has_header(&self) -> bool {
        self.is_set_to("header", "yes")
    }

    /// Returns the texts that mean null, besides empty fields.
    pub fn null_texts(&self) -> Vec<String> {
        self.text("null").map(|texts| texts.split(',').map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Returns how a workbook is read, in a run with so many bytes of memory.
    pub fn excel_options(&self, memory: u64) -> ExcelOptions {
        ExcelOptions {
            sheet: self.text("sheet").map(str::to_owned),
            has_header: self.has_header(),
            skip: self.skipped_lines(),
            nulls: self.null_texts(),
            room: Arc::new(Room::with_memory(memory)),
        }
    }

    /// Returns the names of the members that lead to the records of a JSON document.
    pub fn record_path(&self) -> Vec<String> {
        self.text("records").map(|path| path.split('.').map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Whether `key=value` folders in the paths of sources become columns.
    pub fn hive_columns(&self) -> bool {
        self.is_set_to("hive-columns", "yes")
    }

    /// Returns the name of standard input; `None` if it has none.
    pub fn stream_name(&self) -> Option<&str> {
        self.text("name")
    }

    /// Returns the stated tag of the named standard input.
    pub fn stream_etag(&self) -> Option<&str> {
        self.text("etag")
    }

    /// Returns what ends an Arrow stream on standard input.
    pub fn stream_end(&self) -> StreamEnd {
        if self.is_set_to("end", "any") { StreamEnd::Any } else { StreamEnd::Mark }
    }

    /// Returns the version of the Delta tables among the sources; `None` is the newest.
    pub fn as_of(&self) -> Option<AsOf> {
        self.parse_value("as-of", str::parse)
    }

    /// Returns how the content of WARC records is read.
    pub fn warc_options(&self) -> WarcOptions {
        let text = self.text("text").filter(|word| *word != "auto").map(|word| word == "yes");
        WarcOptions { raw: self.is_set_to("body", "raw"), text }
    }

    /// Whether array values stay as they are stored.
    pub fn is_raw(&self) -> bool {
        self.is_set_to("raw", "yes")
    }

    /// Returns how arrays are divided into records.
    pub fn array_options(&self) -> ArrayOptions {
        ArrayOptions {
            record_dim: self.text("record-dim").map(str::to_owned),
            vars: self.text("var").map(|vars| vars.split(',').map(str::to_owned).collect()).unwrap_or_default(),
            raw: self.is_raw(),
            patch: self.parse_value("patch", sizes).unwrap_or_default(),
            stride: self.parse_value("stride", sizes).unwrap_or_default(),
            flatten: self.is_set_to("flatten", "yes"),
            sparse: self.is_set_to("sparse", "yes"),
            ..ArrayOptions::default()
        }
    }
}

/// Longest delimiter, in bytes.
const MAX_DELIMITER: usize = 16;

fn parse_delimiter(text: &str) -> Result<Vec<u8>> {
    let bytes = unescaped(text);
    if bytes.is_empty() || bytes.len() > MAX_DELIMITER || bytes.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err(Error::usage(format!(
            "expected a delimiter of one character or a few, `tab`, or such as `\\x01`, found `{text}`"
        )));
    }
    if bytes == b"\"" {
        return Err(Error::usage("expected a delimiter, found the quote").with_hint("another quote: --read quote=CHAR"));
    }
    Ok(bytes)
}

/// Returns the bytes that a text means: `tab`, `\t` and `\x1f` are control characters.
fn unescaped(text: &str) -> Vec<u8> {
    let code = |code: &str| u8::from_str_radix(code, 16).ok().filter(u8::is_ascii);
    match text {
        "tab" | "\\t" => vec![b'\t'],
        _ => match text.strip_prefix("\\x").filter(|code| code.len() == 2).and_then(code) {
            Some(byte) => vec![byte],
            None => text.as_bytes().to_vec(),
        },
    }
}

fn parse_quote(text: &str) -> Result<Option<u8>> {
    if text == "none" { Ok(None) } else { parse_byte(text).map(Some) }
}

fn parse_byte(text: &str) -> Result<u8> {
    match unescaped(text).as_slice() {
        [one] if one.is_ascii() && !matches!(one, b'\r' | b'\n' | 0) => Ok(*one),
        _ => Err(Error::usage(format!("expected one ASCII character, found `{text}`"))),
    }
}

fn parse_lines(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::usage(format!("expected a number of lines, found `{text}`")))
}

/// Longest name or tag of a stream, in bytes.
const MAX_STREAM_TEXT: usize = 1024;

fn stream_text(text: &str, what: &str) -> Result<()> {
    if text.is_empty() || text.len() > MAX_STREAM_TEXT || text.contains(char::is_control) {
        return Err(Error::usage(format!(
            "expected {what} of 1 to {MAX_STREAM_TEXT} bytes in one line, found `{text}`"
        )));
    }
    Ok(())
}

fn name(text: &str) -> Result<()> {
    match text {
        "" => Err(Error::usage("expected a name, found nothing")),
        _ => Ok(()),
    }
}

/// Parses dimensions with a number each, such as `lat=64,lon=64`.
fn sizes(text: &str) -> Result<Vec<(String, u64)>> {
    let size = |part: &str| {
        let (dim, size) =
            part.split_once('=').ok_or_else(|| Error::usage(format!("expected DIM=N, found `{part}`")))?;
        let size = size.parse().map_err(|_| Error::usage(format!("expected a number for `{dim}`, found `{size}`")))?;
        Ok((dim.to_owned(), size))
    };
    text.split(',').map(size).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn settings(texts: &[&str]) -> ReadSettings {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn settings_have_their_types() {
        let none = settings(&[]);
        assert!(none.is_tidy() && none.has_header() && !none.hive_columns() && !none.is_raw());
        assert_eq!((none.delimiter(), none.encoding(), none.null_texts().len(), none.as_of()), (None, None, 0, None));
        assert_eq!(none.array_options(), ArrayOptions::default());
        let all = settings(&[
            "delimiter=tab",
            "header=no",
            "null=NA",
            "null=N/A,-",
            "patch=lat=64,lon=32",
            "var=t,p",
            "raw=yes",
        ]);
        assert_eq!(
            (all.delimiter(), all.has_header(), all.null_texts().join("|")),
            (Some(b'\t'), false, "NA|N/A|-".to_owned())
        );
        let arrays = all.array_options();
        assert_eq!(arrays.patch, [("lat".to_owned(), 64), ("lon".to_owned(), 32)]);
        assert_eq!((arrays.vars.as_slice(), arrays.raw), (["t".to_owned(), "p".to_owned()].as_slice(), true));
        assert_eq!(settings(&["delimiter=="]).delimiter(), Some(b'='));
        assert!(none.stated_dialect().is_usual() && all.stated_dialect().is_usual() && none.skipped_lines() == 0);
        assert_eq!(settings(&["delimiter=\\x01"]).delimiter(), Some(1));
        let stated = settings(&["delimiter=||", "quote=none", "escape=\\", "decimal=,", "date=%d.%m.%Y", "skip=3"]);
        let dialect = stated.stated_dialect();
        assert_eq!(
            (dialect.delimiter.as_deref(), dialect.quote, dialect.escape),
            (Some(&b"||"[..]), None, Some(b'\\'))
        );
        assert_eq!((dialect.notation.decimal, dialect.notation.thousands), (Some(b','), None));
        assert_eq!((stated.delimiter(), stated.skipped_lines()), (None, 3));
    }

    #[test]
    fn standard_input_has_settings_of_its_own() {
        let none = settings(&[]);
        assert_eq!((none.stream_name(), none.stream_etag(), none.stream_end()), (None, None, StreamEnd::Mark));
        let all = settings(&["name=a/visits=1", "etag=0/16B3748", "end=any"]);
        assert_eq!((all.stream_name(), all.stream_etag()), (Some("a/visits=1"), Some("0/16B3748")));
        assert_eq!(all.stream_end(), StreamEnd::Any);
    }

    #[test]
    fn bad_values_are_refused() {
        for text in [
            "delimiter=\"",
            "delimiter=",
            "quote=ab",
            "escape=",
            "decimal=\u{a0}",
            "skip=-1",
            "date=dd.mm.yyyy",
            "encoding=klingon",
            "patch=lat",
            "patch=lat=x",
            "as-of=today",
            "var=",
            "name=",
            "name=a\nb",
            "etag=",
            "end=never",
        ] {
            assert!(text.parse::<ReadSetting>().is_err(), "{text}");
        }
    }
}
