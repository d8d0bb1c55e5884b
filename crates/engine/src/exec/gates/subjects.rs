//! Resolves the subject ids of samples and sources from their paths or from a table, before they are filtered and
//! encoded.

use super::{Gate, GatedBlock};
use crate::{
    dataset::{IdKind, SuppressList},
    error::{Error, Result},
    exec::source::SourceFacts,
    format::files::SampleFiles,
    record::{
        Payload, Sample,
        subject::{SubjectMatch, Subjects},
    },
    scan::SourceFile,
};

/// Resolves subject ids that no column has.
#[derive(Debug, Clone)]
pub struct SubjectResolver {
    /// Pattern or table that gives the subject ids.
    pub subjects: Subjects,
    /// Whether a sample or source without a subject is an error.
    pub required: bool,
}

impl SubjectResolver {
    /// Calls `look` with the match of a file.
    pub fn of_file<T>(&self, file: &SourceFile, look: impl FnOnce(Option<SubjectMatch<'_>>) -> T) -> T {
        let (uri, name) = (file.uri(), file.name());
        let path = if uri.ends_with(name) { uri.as_str() } else { name };
        look(self.subjects.find_subject(path, name.len()))
    }

    /// Returns the subject id of a source.
    pub fn of_source(&self, file: &SourceFile) -> Option<String> {
        self.of_file(file, |matched| matched.map(|matched| matched.subject.to_owned()))
    }

    /// Returns the subject id of a sample made of files.
    pub fn of_sample(&self, files: SampleFiles<'_, SourceFile>) -> Option<String> {
        files.files().find_map(|file| self.of_source(file))
    }

    /// Returns the error for a sample or source without a subject id.
    pub fn missing_error(&self, what: &str) -> Error {
        Error::input(format!("expected a subject of {what}, found none"))
            .with_hint(self.subjects.missing_hint())
            .with_hint("convert it without a subject id with --accept subjects; lookups by subject will not find it")
    }

    /// Ignores rows of a table that match only a part of the member's name, because they may belong to another member.
    fn of_member(&self, sample: &Sample) -> Option<String> {
        let extension = sample.parts.first().map_or("", |part| part.extension.as_str());
        let member = format!("{}.{extension}", sample.key);
        let matched = self.subjects.find_subject(&member, member.len()).filter(|matched| matched.partial_key.is_none());
        matched.map(|matched| matched.subject.to_owned())
    }
}

impl Gate for SubjectResolver {
    /// Assigns subject ids to the samples of an archive: that of the archive, else the match of each member's name.
    fn pass_block(&self, gated: &mut GatedBlock, source: &SourceFacts) -> Result<()> {
        let Payload::Samples(samples) = &mut gated.block.payload else { return Ok(()) };
        for sample in samples {
            sample.subject = source.name.subject.clone().or_else(|| self.of_member(sample));
            if self.required && sample.subject.is_none() {
                return Err(self.missing_error(&format!("the sample `{}`", sample.key)));
            }
        }
        Ok(())
    }
}

/// Returns whether records with an id are rejected as erased, and whether the id is another spelling of an erased one.
pub fn is_erased(list: &SuppressList, kind: IdKind, id: &str, normalize: bool) -> (bool, bool) {
    let similar = list.has_similar(kind, id);
    (list.has_id(kind, id) || (similar && normalize), similar)
}
