//! Workbooks, whose readers are a feature of builds. Without it they are refused where they are meant as tables, and
//! are files like all others where they are not.

use super::{
    super::source::RecordSource,
    format::{Class, Format, InputFormat},
    start::Start,
};
use crate::error::Result;

pub(super) static EXCEL: Format = Format {
    name: "excel",
    help: "Workbooks of Excel and OpenDocument: a sheet; a feature of builds",
    states: "a workbook",
    endings: if cfg!(feature = "excel") { &["ods", "xls", "xlsb", "xlsm", "xlsx"] } else { &[] },
    class: Class::Table,
    open: Some(open),
    check_type: None,
};

#[cfg(feature = "excel")]
fn open(start: &Start<'_>) -> Result<Option<RecordSource>> {
    use super::start::{locate_result, open_ranged};
    use crate::format::excel::{ExcelReader, sniff};

    let (file, packed) = (start.file, start.head.packed);
    let ranged = {
        let file = file.clone();
        move || locate_result(open_ranged(&file, packed), &file)
    };
    let format = InputFormat(&EXCEL);
    let is_named = start.options.from == Some(format) || format.matches_extension(file.name());
    let Some(form) = locate_result(sniff(&start.head.bytes, is_named, &ranged), file)? else { return Ok(None) };
    let (reader, sample) = ExcelReader::open(form, Box::new(ranged), &start.options.excel, &file.uri(), file.bytes())?;
    let reader = std::sync::Arc::new(reader);
    Ok(Some(RecordSource { packed, sample: Some(sample), ..RecordSource::new(file, format, reader) }))
}

#[cfg(not(feature = "excel"))]
fn open(start: &Start<'_>) -> Result<Option<RecordSource>> {
    use super::super::foreign::WORKBOOK_HINT;

    let is_meant = start.options.from == Some(InputFormat(&EXCEL));
    match is_meant {
        true => Err(crate::error::Error::usage("expected a build with the feature `excel`, found one without it")
            .at_location(start.file.uri())
            .with_hint(WORKBOOK_HINT)),
        false => Ok(None),
    }
}
