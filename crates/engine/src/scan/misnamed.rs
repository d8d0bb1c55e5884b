//! Sources whose content is another format than their name states. They are read as what they are, and the user is
//! told.

use super::{
    InputFormat,
    formats::{self, PACKED},
    source::RecordSource,
};
use crate::record::key::split_key;

/// Returns what a name states, in words, and the formats that are meant; `None` if it states nothing.
fn stated_formats(name: &str) -> Option<(&'static str, Vec<InputFormat>)> {
    let (_, extension) = split_key(name);
    let mut words = extension.rsplit('.').map(str::to_ascii_lowercase).skip_while(|w| PACKED.contains(&w.as_str()));
    let last = words.next()?;
    match last.as_str() {
        "jpg" | "jpeg" | "png" | "gif" | "pdf" | "zip" | "mp3" | "wav" => Some(("no records", Vec::new())),
        last => formats::stated_format(last).map(|states| (states, formats::formats_stating(states).collect())),
    }
}

/// Whether a name states that the content is arrays.
pub fn names_arrays(name: &str) -> bool {
    stated_formats(name).is_some_and(|(_, formats)| formats.iter().any(|format| format.is_array()))
}

/// Returns a sentence about a source whose content is another format than its name states, which is read nonetheless.
pub fn misnamed_note(source: &RecordSource) -> Option<String> {
    let (name, packed) = (source.file.name(), if source.packed { "compressed " } else { "" });
    contradiction_note(name, packed, source.format)
}

/// Returns the same for a name and a format, with a word before the format.
pub fn contradiction_note(name: &str, packed: &str, format: InputFormat) -> Option<String> {
    let (states, formats) = stated_formats(name)?;
    let found = format.name();
    (!formats.contains(&format))
        .then(|| format!("`{name}` is named as {states} but contains {packed}{found}; reading it as {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_told() {
        let told = |name: &str, format| contradiction_note(name, "", format);
        assert_eq!(told("a.csv", InputFormat::CSV), None);
        assert_eq!(told("a.json.gz", InputFormat::JSONL), None);
        assert_eq!(told("a", InputFormat::CSV), None);
        assert!(names_arrays("a.nc") && names_arrays("b.NPY") && !names_arrays("c.csv") && !names_arrays("d"));
        assert_eq!(
            contradiction_note("a.parquet", "compressed ", InputFormat::CSV).as_deref(),
            Some("`a.parquet` is named as Parquet but contains compressed csv; reading it as csv")
        );
    }
}
