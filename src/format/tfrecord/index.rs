//! The index of a TFRecord: one text format for NVIDIA DALI (`tfrecord2idx`) and for the `tfrecord` package.
//!
//! ```text
//! <offset of the record> <its length, framing included>\n        one line per record, nothing before or after
//! ```

use std::io::Write as _;

/// Appends the line of a record.
pub fn push_record(out: &mut Vec<u8>, offset: u64, length: u64) {
    // Writing to memory cannot fail.
    let _ = writeln!(out, "{offset} {length}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_line() {
        let mut out = Vec::new();
        push_record(&mut out, 0, 80);
        push_record(&mut out, 80, 96);
        assert_eq!(out, b"0 80\n80 96\n");
    }
}
