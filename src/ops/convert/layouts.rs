//! Folders in well-known layouts whose files become samples, although their content is tables or describes the other
//! files: tables named `.txt` (GTFS), annotations in COCO's form, and datasets in BIDS.
//!
//! A note says what happens and what to do. Few heads of files are read, and only of those whose names suggest it.

use crate::{
    format::files::TreeFile as _,
    ops::shell_word,
    scan::{BIDS, BIDS_IMAGES, BIDS_OPTIONS, SourceFile},
};

/// Endings of delimited text that is not named as such.
const ENDINGS: [&str; 4] = ["txt", "dat", "tab", "asc"];
/// Delimiters that are looked for.
const DELIMITERS: [char; 4] = [',', '\t', ';', '|'];
/// Maximum number of heads that are read for a note.
const HEADS: usize = 4;
/// Bytes of a head.
const HEAD: usize = 16 << 10;
/// Lines of a head that are looked at.
const LINES: usize = 50;
/// Keys of the document with the annotations of a folder, in COCO's form.
const COCO: [&str; 3] = ["\"images\"", "\"annotations\"", "\"categories\""];

/// Returns notes about files that become samples, given the sources that the user named.
pub(in crate::ops) fn layout_notes(files: &[SourceFile], sources: &[String]) -> Vec<String> {
    let sources: Vec<String> = sources.iter().map(|source| shell_word(source).into_owned()).collect();
    let sources = sources.join(" ");
    [delimited_note(files, &sources), coco_note(files), bids_note(files, &sources)].into_iter().flatten().collect()
}

/// Returns a note that files look like delimited text, if they all have endings of text.
fn delimited_note(files: &[SourceFile], sources: &str) -> Option<String> {
    let is_text = |file: &SourceFile| ENDINGS.iter().any(|one| last_extension(file).eq_ignore_ascii_case(one));
    if files.is_empty() || !files.iter().all(is_text) {
        return None;
    }
    let looked: Vec<&SourceFile> = files.iter().step_by(files.len().div_ceil(HEADS)).collect();
    let headers = looked.iter().filter_map(|file| Some((*file, parse_header(&head_of(file)?)?)));
    let found: Vec<(&SourceFile, String)> = headers.collect();
    let (file, header) = found.first().filter(|_| found.len() * 2 >= looked.len())?;
    let (path, count) = (shell_word(file.path()), files.len());
    let each = if count == 1 { "it".to_owned() } else { format!("each of the {count} files") };
    Some(format!(
        "`{}` looks like delimited text with the columns `{header}`, but {each} is stored whole, as a part of a \
         sample, because no name says so; to read such files as tables, a dataset for each: shardify convert \
         {sources} --from csv --include {path} --out DATASET",
        file.name()
    ))
}

fn last_extension(file: &SourceFile) -> &str {
    file.path().rsplit_once('.').map_or("", |(_, last)| last)
}

/// Returns the header of delimited text whose lines all have as many fields; `None` if this is something else.
fn parse_header(head: &[u8]) -> Option<String> {
    let text = match std::str::from_utf8(head) {
        Ok(text) => text,
        Err(cut) => std::str::from_utf8(&head[..cut.valid_up_to()]).ok().filter(|_| cut.error_len().is_none())?,
    };
    let text = text.trim_start_matches('\u{feff}');
    let whole = if head.len() < HEAD { text } else { &text[..=text.rfind('\n')?] };
    let mut lines = whole.lines().filter(|line| !line.is_empty()).take(LINES);
    let header = lines.next()?;
    let delimiter = DELIMITERS.into_iter().max_by_key(|delimiter| header.matches(*delimiter).count())?;
    let is_name = |field: &str| {
        let field = field.trim_matches('"');
        field.starts_with(|first: char| first.is_alphabetic() || first == '_')
            && field.chars().all(|c| c.is_alphanumeric() || " _-.()%/".contains(c))
            && field.split(' ').count() <= 3
    };
    let width = fields(header, delimiter)?;
    let mut rows = lines.map(|line| fields(line, delimiter) == Some(width)).peekable();
    let is_table = width > 1 && header.split(delimiter).all(is_name) && rows.peek().is_some() && rows.all(|fits| fits);
    is_table.then(|| header.chars().take(60).collect())
}

/// Returns the number of fields of a line; `None` if a quote is not closed.
fn fields(line: &str, delimiter: char) -> Option<usize> {
    let (mut count, mut quoted) = (1, false);
    for c in line.chars() {
        quoted ^= c == '"';
        count += usize::from(c == delimiter && !quoted);
    }
    (!quoted).then_some(count)
}

/// Returns a note that a document has the annotations of the pictures next to it.
fn coco_note(files: &[SourceFile]) -> Option<String> {
    let may_be = |file: &&SourceFile| {
        // Of millions of names, most are told by their ends.
        if !file.name().ends_with(".json") {
            return false;
        }
        let (folder, name) = file.name().rsplit_once('/').unwrap_or(("", file.name()));
        let last = folder.rsplit('/').next().unwrap_or_default();
        last == "annotations" || name.ends_with(".coco.json")
    };
    let is_one = |file: &&SourceFile| {
        let (bytes, tail) = (file.bytes(), HEAD as u64);
        let mut text = head_of(file).unwrap_or_default();
        // A long document has its last keys at its end.
        if bytes > tail
            && let Ok(end) = file.open_range(bytes - tail..bytes, |_| {})
        {
            let _ = std::io::Read::read_to_end(&mut { end }, &mut text);
        }
        let text = String::from_utf8_lossy(&text);
        COCO.iter().filter(|key| text.contains(*key)).count() > 1
    };
    let file = files.iter().filter(may_be).take(HEADS).find(is_one)?;
    let uri = file.uri();
    let uri = shell_word(&uri);
    Some(format!(
        "`{}` has the annotations of pictures in COCO's form, and becomes a sample of its own, whole; to join them \
         with the pictures: jq -c '(.annotations | group_by(.image_id) | map({{key: (.[0].image_id | tostring), value: \
         .}}) | from_entries) as $of | .images[] | {{file_name, annotations: ($of[.id | tostring] // [])}}' {uri} > \
         labels.jsonl && shardify convert PICTURES --labels labels.jsonl",
        file.name()
    ))
}

/// Returns a note about a dataset in BIDS.
fn bids_note(files: &[SourceFile], sources: &str) -> Option<String> {
    let is_description =
        |file: &SourceFile| file.name().ends_with(BIDS) && file.name().rsplit('/').next() == Some(BIDS);
    let of_subject = |file: &SourceFile| file.path().starts_with("sub-");
    if !files.iter().any(is_description) || !files.iter().any(of_subject) {
        return None;
    }
    Some(format!(
        "`{BIDS}` says that this is a dataset in BIDS: files of one name, such as bold.nii.gz and bold.json, become \
         one sample, documents about the whole dataset samples of their own; for the recordings alone, with their \
         subjects: shardify convert {sources} {BIDS_OPTIONS}; for the images as arrays: {BIDS_IMAGES}"
    ))
}

fn head_of(file: &SourceFile) -> Option<Vec<u8>> {
    file.read_head(HEAD).ok().map(|head| head.bytes)
}

#[cfg(test)]
mod tests {
    use super::parse_header;

    #[test]
    fn only_lines_of_as_many_fields_below_names_are_a_table() {
        for (text, columns) in [
            ("stop_id,stop_name,lat\n1,\"a, b\",2\n", Some("stop_id,stop_name,lat")),
            ("\u{feff}a\tb\nx y\tz\n\nu\tv\n", Some("a\tb")),
            ("a,b\n1,2", Some("a,b")),
            ("a,b\n", None),
            ("a,b\n1,2,3\n", None),
            ("Hello, world\nThis is, text\n", None),
            ("0 0.5 0.5 0.1 0.2\n1 0.5 0.5 0.1 0.2\n", None),
            ("0,1\n2,3\n", None),
            ("a cat on a red mat\nanother\n", None),
            ("", None),
        ] {
            assert_eq!(parse_header(text.as_bytes()).as_deref(), columns, "{text:?}");
        }
        assert_eq!(parse_header(b"a,b\n\xff,2\n"), None);
    }
}
