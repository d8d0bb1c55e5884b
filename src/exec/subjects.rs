//! Tells samples and sources whom they are about, by their paths or by a table, before anything else sees them.

use crate::{
    dataset::{IdKind, SuppressList},
    error::{Error, Result},
    format::files::SampleFiles,
    record::{
        Payload, RecordBlock, Sample,
        subject::{Subjects, Told},
    },
    scan::SourceFile,
};

/// Who is told, and whether everything must have a subject.
#[derive(Debug, Clone)]
pub struct Telling {
    /// What tells.
    pub subjects: Subjects,
    /// Whether a sample or source without a subject is an error.
    pub required: bool,
}

impl Telling {
    /// Calls `look` with what is told about a file.
    pub fn of_file<T>(&self, file: &SourceFile, look: impl FnOnce(Option<Told<'_>>) -> T) -> T {
        let (uri, name) = (file.uri(), file.name());
        let path = if uri.ends_with(name) { uri.as_str() } else { name };
        look(self.subjects.of(path, name.len()))
    }

    /// The subject of a source.
    pub fn of_source(&self, file: &SourceFile) -> Option<String> {
        self.of_file(file, |told| told.map(|told| told.subject.to_owned()))
    }

    /// The subject of a sample made of files.
    pub fn of_sample(&self, files: SampleFiles<'_, SourceFile>) -> Option<String> {
        files.files().find_map(|file| self.of_source(file))
    }

    /// Gives the samples of an archive their subjects: that of the archive, or what their own names say.
    ///
    /// # Errors
    /// [`Kind::Input`](crate::error::Kind::Input) when one has none and must have one.
    pub fn tell_members(&self, block: &mut RecordBlock, archive: Option<&str>) -> Result<()> {
        let Payload::Samples(samples) = &mut block.payload else { return Ok(()) };
        for sample in samples {
            sample.subject = archive.map(str::to_owned).or_else(|| self.of_member(sample));
            if self.required && sample.subject.is_none() {
                return Err(missing(&format!("the sample `{}`", sample.key)));
            }
        }
        Ok(())
    }

    /// A row of a table that names a part of the member's name only may be about another one.
    fn of_member(&self, sample: &Sample) -> Option<String> {
        let extension = sample.parts.first().map_or("", |part| part.extension.as_str());
        let member = format!("{}.{extension}", sample.key);
        let told = self.subjects.of(&member, member.len()).filter(|told| told.short_row.is_none());
        told.map(|told| told.subject.to_owned())
    }
}

/// Whether records about somebody stay out, and whether that is for another spelling of the subject only.
pub fn is_erased(list: &SuppressList, subject: &str, normalize: bool) -> (bool, bool) {
    let similar = list.has_similar(IdKind::Subject, subject);
    (list.has_id(IdKind::Subject, subject) || (similar && normalize), similar)
}

/// Something has no subject.
pub fn missing(what: &str) -> Error {
    Error::input(format!("expected a subject of {what}, found none"))
        .hint("mend the pattern or the table, or leave it out with --exclude")
        .hint("--accept subjects takes in what has no subject; nobody finds it by one")
}
