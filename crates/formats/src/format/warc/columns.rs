//! Columns of the rows that records become.
//!
//! | column | from |
//! |---|---|
//! | `id`, `type`, `uri`, `date`, `ip` | fields of the record |
//! | `status`, `start_line`, `headers` | the HTTP message in its block |
//! | `mime`, `charset` | `Content-Type` of that message, else of the record |
//! | `encoding` | codings of the body that were not undone |
//! | `truncated` | `WARC-Truncated`, or by which header the body should be longer |
//! | `warc_headers` | all fields of the record |
//! | `text`, `payload` | the body of the message, else the block |

use std::{borrow::Cow, sync::Arc};

use arrow::{
    array::{
        ArrayRef, BinaryBuilder, Int32Builder, ListArray, NullBufferBuilder, RecordBatch, RecordBatchOptions,
        StringBuilder, StructArray, TimestampMicrosecondBuilder,
    },
    buffer::OffsetBuffer,
    datatypes::{DataType, Field, Fields, Schema, TimeUnit},
};

use super::{
    body::{Codings, HttpBody, decode_body},
    entry::WarcRecord,
    fields::{self, MediaType, text_of, uri_text, without_brackets},
    http::HttpMessage,
};
use crate::{
    error::Result,
    record::time::{parse_date, parse_instant},
};

/// How the content of records is read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WarcOptions {
    /// Whether bodies stay as they are stored.
    pub raw: bool,
    /// Whether there is a column for content that is text; `None` decides by the first records.
    pub text: Option<bool>,
}

/// Names of all columns, in order.
pub(super) const COLUMNS: [&str; 15] = [
    "id",
    "type",
    "uri",
    "date",
    "ip",
    "status",
    "mime",
    "charset",
    "encoding",
    "truncated",
    "start_line",
    "headers",
    "warc_headers",
    "text",
    "payload",
];

/// Returns the columns of records, with or without one for text.
pub(super) fn column_fields(text: bool) -> Vec<Field> {
    let names = COLUMNS.iter().filter(|name| text || **name != "text");
    names.map(|name| Field::new(*name, Column::new(name).data_type(), true)).collect()
}

/// A record on its way into columns. What few columns need is made when it is asked for.
pub(super) struct WarcRow<'a> {
    record: &'a WarcRecord<'a>,
    message: Option<HttpMessage<'a>>,
    mime: Option<MediaType>,
    body: HttpBody<'a>,
    truncated: Option<Cow<'a, str>>,
}

impl<'a> WarcRow<'a> {
    /// Takes a record apart; its body becomes no larger than `limit` bytes.
    pub(super) fn new(record: &'a WarcRecord<'a>, options: WarcOptions, limit: usize) -> Self {
        let stated = record.fields.value("Content-Type").and_then(MediaType::parse);
        let is_http = match &stated {
            Some(media) => media.essence == "application/http",
            None => ["response", "request", "revisit"].map(str::as_bytes).contains(&record_type(record)),
        };
        let message = is_http.then(|| HttpMessage::parse(record.block)).flatten();
        let stored = message.as_ref().map_or(record.block, |message| message.body);
        let mut row = Self { record, mime: stated, message, body: HttpBody::default(), truncated: None };
        row.body.bytes = Cow::Borrowed(stored);
        let Some(message) = &row.message else {
            row.truncated = record.fields.value("WARC-Truncated").map(text_of);
            return row;
        };
        row.mime = message.fields.value("Content-Type").and_then(MediaType::parse);
        let codings =
            Codings { content: message.codings("Content-Encoding"), transfer: message.codings("Transfer-Encoding") };
        let by_length = codings.transfer.is_empty() && lacks_bytes(record, message);
        row.body = if options.raw {
            HttpBody { left: codings.content.into_iter().chain(codings.transfer).collect(), ..row.body }
        } else {
            decode_body(stored, codings, limit)
        };
        let by_header = match (by_length, row.body.cut) {
            (true, _) => Some("content-length"),
            (_, true) => Some("transfer-encoding"),
            _ => None,
        };
        row.truncated = record.fields.value("WARC-Truncated").map(text_of).or(by_header.map(Cow::Borrowed));
        row
    }

    /// Whether its body is stored by codings that were not undone.
    pub(super) fn keeps_coding(&self) -> bool {
        !self.body.left.is_empty()
    }
}

fn record_type<'a>(record: &'a WarcRecord<'_>) -> &'a [u8] {
    record.fields.value("WARC-Type").unwrap_or_default()
}

/// Whether the body of a response has fewer bytes than its header states.
fn lacks_bytes(record: &WarcRecord<'_>, message: &HttpMessage<'_>) -> bool {
    // A revisit has the header of the response, and not its body.
    let has_body = !matches!(message.status(), Some(100..=199 | 204 | 304)) && record_type(record) != b"revisit";
    has_body && message.stated_length().is_some_and(|stated| stated > message.body.len() as u64)
}

/// Whether a column of one of these names shows what becomes of bodies.
pub(super) fn shows_bodies<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    names.any(|name| ["encoding", "truncated", "text", "payload"].contains(&name))
}

/// Builds the columns of these names.
pub(super) struct WarcColumns {
    columns: Vec<(String, Column)>,
    /// Whether content that is text has a column of its own.
    text: bool,
    rows: usize,
}

impl WarcColumns {
    /// Starts columns of these names; `text` says whether content that is text has one of its own. All content together
    /// has about so many bytes.
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a str>, text: bool, bytes: usize) -> Self {
        let columns = names.map(|name| (name.to_owned(), Column::new(name).with_capacity(text, bytes)));
        Self { columns: columns.collect(), text, rows: 0 }
    }

    /// Appends a row.
    pub(super) fn push_row(&mut self, row: &WarcRow<'_>) {
        self.rows += 1;
        let text = if self.text { simdutf8::basic::from_utf8(&row.body.bytes).ok() } else { None };
        for (_, column) in &mut self.columns {
            column.push_row(row, text);
        }
    }

    /// Returns the rows.
    pub(super) fn finish(self) -> Result<RecordBatch> {
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (name, column) in self.columns {
            fields.push(Field::new(name, column.data_type(), true));
            arrays.push(column.finish()?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)?)
    }
}

/// A column, by what it has.
enum Column {
    Text(TextOf, StringBuilder),
    Date(TimestampMicrosecondBuilder),
    Status(Int32Builder),
    Pairs(PairsOf, PairsBuilder),
    /// Content that is text.
    Content(StringBuilder),
    Payload(BinaryBuilder),
}

/// Which text a column has.
#[derive(Clone, Copy)]
enum TextOf {
    Id,
    /// A field of the record.
    Field(&'static str),
    Uri,
    Mime,
    Charset,
    Encoding,
    Truncated,
    StartLine,
}

/// Whose fields a column has.
#[derive(Clone, Copy)]
enum PairsOf {
    Record,
    Message,
}

impl Column {
    fn new(name: &str) -> Self {
        let of = match name {
            "date" => return Self::Date(TimestampMicrosecondBuilder::new().with_timezone("UTC")),
            "status" => return Self::Status(Int32Builder::new()),
            "headers" => return Self::Pairs(PairsOf::Message, PairsBuilder::default()),
            "warc_headers" => return Self::Pairs(PairsOf::Record, PairsBuilder::default()),
            "text" => return Self::Content(StringBuilder::new()),
            "payload" => return Self::Payload(BinaryBuilder::new()),
            "id" => TextOf::Id,
            "type" => TextOf::Field("WARC-Type"),
            "ip" => TextOf::Field("WARC-IP-Address"),
            "uri" => TextOf::Uri,
            "mime" => TextOf::Mime,
            "charset" => TextOf::Charset,
            "encoding" => TextOf::Encoding,
            "truncated" => TextOf::Truncated,
            _ => TextOf::StartLine,
        };
        Self::Text(of, StringBuilder::new())
    }

    /// Makes room for so many bytes in the column that has most content.
    fn with_capacity(self, text: bool, bytes: usize) -> Self {
        match self {
            Self::Content(_) => Self::Content(StringBuilder::with_capacity(0, bytes)),
            Self::Payload(_) if !text => Self::Payload(BinaryBuilder::with_capacity(0, bytes)),
            other => other,
        }
    }

    fn data_type(&self) -> DataType {
        match self {
            Self::Text(..) | Self::Content(_) => DataType::Utf8,
            Self::Date(_) => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Status(_) => DataType::Int32,
            Self::Pairs(..) => DataType::new_list(DataType::Struct(pair_fields()), true),
            Self::Payload(_) => DataType::Binary,
        }
    }

    /// Appends the value of a row; `text` is its content if that is text, and has a column of its own.
    fn push_row(&mut self, row: &WarcRow<'_>, text: Option<&str>) {
        match self {
            Self::Text(of, builder) => builder.append_option(of.text_in(row)),
            Self::Date(builder) => builder.append_option(row.record.fields.value("WARC-Date").and_then(parse_time)),
            Self::Status(builder) => builder.append_option(row.message.as_ref().and_then(HttpMessage::status)),
            Self::Pairs(PairsOf::Record, builder) => builder.push_fields(Some(&row.record.fields)),
            Self::Pairs(PairsOf::Message, builder) => {
                builder.push_fields(row.message.as_ref().map(|message| &message.fields));
            }
            Self::Content(builder) => builder.append_option(text),
            Self::Payload(builder) if text.is_some() => builder.append_null(),
            Self::Payload(builder) => builder.append_value(&row.body.bytes),
        }
    }

    fn finish(self) -> Result<ArrayRef> {
        Ok(match self {
            Self::Text(_, mut builder) | Self::Content(mut builder) => Arc::new(builder.finish()),
            Self::Date(mut builder) => Arc::new(builder.finish()),
            Self::Status(mut builder) => Arc::new(builder.finish()),
            Self::Pairs(_, builder) => builder.finish()?,
            Self::Payload(mut builder) => Arc::new(builder.finish()),
        })
    }
}

impl TextOf {
    fn text_in<'a>(self, row: &'a WarcRow<'_>) -> Option<Cow<'a, str>> {
        let fields = &row.record.fields;
        match self {
            Self::Id => fields.value("WARC-Record-ID").map(|id| {
                let id = without_brackets(id);
                text_of(id.strip_prefix(b"urn:uuid:").unwrap_or(id))
            }),
            Self::Field(name) => fields.value(name).map(text_of),
            Self::Uri => fields.value("WARC-Target-URI").map(uri_text),
            Self::Mime => row.mime.as_ref().map(|mime| mime.essence.as_str().into()),
            Self::Charset => row.mime.as_ref()?.charset.as_deref().map(Cow::Borrowed),
            Self::Encoding => (!row.body.left.is_empty()).then(|| row.body.left.join(", ").into()),
            Self::Truncated => row.truncated.as_deref().map(Cow::Borrowed),
            Self::StartLine => row.message.as_ref().map(|message| text_of(message.start_line)),
        }
    }
}

/// Returns microseconds since 1970 of a date of WARC 1.0 or 1.1, which may lack a time of day, days or months.
fn parse_time(value: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(value).ok().filter(|text| text.is_ascii())?;
    let digits =
        text.find('.').map(|point| (point + 7, text[point + 1..].bytes().take_while(u8::is_ascii_digit).count()));
    let text = match digits {
        // Dates may have nanoseconds.
        Some((end, 7..)) => {
            &format!("{}{}", &text[..end], text[end..].trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        _ => text,
    };
    if let Some(time) = parse_instant(text, TimeUnit::Microsecond) {
        return Some(time);
    }
    let whole = match text.len() {
        4 => format!("{text}-01-01"),
        7 => format!("{text}-01"),
        10 => text.to_owned(),
        // Minutes without seconds.
        17 if text.ends_with('Z') => return parse_instant(&format!("{}:00Z", &text[..16]), TimeUnit::Microsecond),
        _ => return None,
    };
    parse_date(&whole).map(|days| i64::from(days) * 86_400_000_000)
}

fn pair_fields() -> Fields {
    vec![Field::new("name", DataType::Utf8, true), Field::new("value", DataType::Utf8, true)].into()
}

/// Builds lists of names and values.
struct PairsBuilder {
    names: StringBuilder,
    values: StringBuilder,
    offsets: Vec<i32>,
    valid: NullBufferBuilder,
}

impl Default for PairsBuilder {
    fn default() -> Self {
        Self {
            names: StringBuilder::new(),
            values: StringBuilder::new(),
            offsets: vec![0],
            valid: NullBufferBuilder::new(0),
        }
    }
}

impl PairsBuilder {
    fn push_fields(&mut self, fields: Option<&fields::Fields<'_>>) {
        for field in fields.iter().flat_map(|fields| &fields.list) {
            self.names.append_value(text_of(field.name));
            self.values.append_option(field.value.as_deref().map(text_of));
        }
        // Ranges are far shorter than the number of pairs that this cannot count.
        self.offsets.push(i32::try_from(self.pairs()).unwrap_or(i32::MAX));
        self.valid.append(fields.is_some());
    }

    fn pairs(&self) -> usize {
        use arrow::array::ArrayBuilder as _;
        self.names.len()
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let columns: Vec<ArrayRef> = vec![Arc::new(self.names.finish()), Arc::new(self.values.finish())];
        let pairs = StructArray::try_new(pair_fields(), columns, None)?;
        let item = Arc::new(Field::new_list_field(DataType::Struct(pair_fields()), true));
        let offsets = OffsetBuffer::new(self.offsets.into());
        Ok(Arc::new(ListArray::try_new(item, offsets, Arc::new(pairs), self.valid.finish())?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_any_precision_are_read() {
        let day = 16_801 * 86_400_000_000;
        for (text, time) in [
            ("2016-01-01T00:00:00Z", Some(day)),
            ("2016-01-01T00:00:00.123456789Z", Some(day + 123_456)),
            ("2016-01-01T00:01Z", Some(day + 60_000_000)),
            ("2016-01-01", Some(day)),
            ("2016-01", Some(day)),
            ("2016", Some(day)),
            ("2016-13", None),
            ("yesterday", None),
            ("1234567", None),
            ("", None),
        ] {
            assert_eq!(parse_time(text.as_bytes()), time, "{text}");
        }
        assert_eq!(parse_time("2016-01-01T00:0éZ".as_bytes()), None);
        assert_eq!(parse_time(b"\xff\xff\xff\xff"), None);
    }
}
