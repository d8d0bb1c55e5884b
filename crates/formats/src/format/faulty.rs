//! A source that fails midway, for tests of how readers handle the records before the failure.

use std::io::Read;

use crate::{error::Result, record::SourceRange};

/// A source that returns a few bytes at a time and then fails.
#[derive(Debug)]
pub(crate) struct Faulty(pub(crate) &'static [u8]);

impl Faulty {
    /// Message of the final read error.
    const FAULT: &'static str = "the end of the line";

    /// Returns the text of the ranges before the fault, which must come last.
    pub(crate) fn before_fault(mut ranges: impl Iterator<Item = Result<SourceRange>>) -> String {
        let mut found = String::new();
        let error = loop {
            match ranges.next() {
                Some(Ok(range)) => found += &String::from_utf8_lossy(range.content_bytes()),
                Some(Err(error)) => break format!("{error:?}"),
                None => panic!("expected a fault, found the end after {found:?}"),
            }
        };
        assert!(error.contains(Self::FAULT), "{error}");
        assert!(ranges.next().is_none());
        found
    }
}

impl Read for Faulty {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.0.is_empty() {
            return Err(std::io::Error::other(Self::FAULT));
        }
        let n = self.0.len().min(buffer.len()).min(5);
        let (now, rest) = self.0.split_at(n);
        buffer[..n].copy_from_slice(now);
        self.0 = rest;
        Ok(n)
    }
}
