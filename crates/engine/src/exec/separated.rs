//! Finds samples of an archive whose key an earlier sample has: members of one name that both hold data, and samples
//! that are torn apart because the archive is sorted by extension.
//!
//! Members are parts of one sample only if they are neighbours, so such samples are records of their own. That is
//! seldom meant, and is told. The memory is bounded: beyond a number of samples, only the keys of earlier ones are
//! compared.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

/// Maximum number of samples of an archive whose keys are kept.
const MOST: usize = 200_000;
/// Maximum number of different endings that are kept.
const ENDINGS: usize = 63;

/// The samples of an archive, as far as their keys come again.
#[derive(Debug, Default)]
pub struct Separated {
    /// The endings of the parts of each key, as bits, by the hash of the key.
    seen: HashMap<u64, u64>,
    endings: Vec<String>,
    samples: u64,
    again: u64,
    /// Name of the first sample that comes again.
    first: String,
    members: u64,
    /// Name of the first member that comes again.
    member: String,
}

impl Separated {
    /// Adds a sample with the endings of its parts.
    pub fn add_sample<'e>(&mut self, key: &str, endings: impl Iterator<Item = &'e str>) {
        self.samples += 1;
        let hash = xxh3_64(key.as_bytes());
        let room = self.seen.len() < MOST;
        let before = self.seen.get(&hash).copied();
        let mut now = before.unwrap_or_default();
        for ending in endings {
            let Some(bit) = self.ending_bit(ending) else { continue };
            if before.unwrap_or_default() & bit != 0 {
                self.members += 1;
                if self.member.is_empty() {
                    self.member = format!("{key}.{ending}");
                }
            }
            now |= bit;
        }
        if before.is_some() {
            self.again += 1;
            if self.first.is_empty() {
                key.clone_into(&mut self.first);
            }
        }
        if before.is_some() || room {
            self.seen.insert(hash, now);
        }
    }

    /// Returns the bit of an ending; `None` if there are too many endings.
    fn ending_bit(&mut self, ending: &str) -> Option<u64> {
        let known = self.endings.iter().position(|one| one == ending);
        let at = known.or_else(|| {
            (self.endings.len() < ENDINGS).then(|| self.endings.push(ending.to_owned()))?;
            Some(self.endings.len() - 1)
        })?;
        Some(1 << at)
    }

    /// Returns what is to be told of an archive of this name; `None` if no key comes again.
    #[must_use]
    pub fn repeated_keys_note(&self, archive: &str) -> Option<String> {
        let Self { samples, again, first, members, member, .. } = self;
        if *again == 0 {
            return None;
        }
        let have = if *again == 1 { "has" } else { "have" };
        let what =
            format!("{archive}: {again} of {samples} samples {have} the key of an earlier sample, first `{first}`");
        if *members > 0 {
            let are = if *members == 1 { "1 member has" } else { &format!("{members} members have") };
            return Some(format!(
                "{what}; {are} the name of an earlier member, first `{member}`: both hold data and are records of \
                 their own, but whoever unpacks the archive gets the later one alone"
            ));
        }
        Some(format!(
            "{what}: members of an archive are parts of one sample only if they are neighbours, so these are records \
             of their own; if the archive is sorted by extension, unpack it and convert the folder, which joins files \
             by name: {}",
            unpack_commands(archive)
        ))
    }
}

/// Returns the commands that unpack an archive and convert the folder.
fn unpack_commands(archive: &str) -> String {
    let name = archive.rsplit('/').next().unwrap_or_default();
    let folder = name.split_once(".t").map_or("unpacked", |(stem, _)| stem);
    let word = |text: &str| match text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c)) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    };
    let (folder, archive) = (word(folder), word(archive));
    format!("mkdir {folder} && tar xf {archive} -C {folder} && shardify convert {folder} --out DATASET")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(samples: &[(&str, &[&str])]) -> Option<String> {
        let mut found = Separated::default();
        samples.iter().for_each(|(key, endings)| found.add_sample(key, endings.iter().copied()));
        found.repeated_keys_note("in/a b.tar.gz")
    }

    #[test]
    fn members_of_one_name_are_told_apart_from_samples_that_are_torn() {
        assert_eq!(note(&[("a", &["jpg"]), ("b", &["jpg"])]), None);
        let torn = note(&[("a", &["jpg"]), ("b", &["jpg"]), ("a", &["json"]), ("b", &["json"])]).unwrap_or_default();
        assert!(torn.contains("2 of 4 samples have the key of an earlier sample, first `a`: members"), "{torn}");
        assert!(torn.contains("mkdir 'a b' && tar xf 'in/a b.tar.gz' -C 'a b' && shardify convert 'a b'"), "{torn}");
        let twice = note(&[("a", &["jpg", "json"]), ("b", &["jpg"]), ("b", &["jpg", "txt"])]).unwrap_or_default();
        assert!(twice.contains("1 of 3 samples has the key of an earlier sample, first `b`; 1 member has"), "{twice}");
        assert!(twice.contains("first `b.jpg`: both hold data") && !twice.contains("mkdir"), "{twice}");
    }

    #[test]
    fn memory_is_bounded() {
        let mut found = Separated::default();
        for number in 0..MOST + 10 {
            found.add_sample(&number.to_string(), std::iter::once(format!("e{number}").as_str()));
        }
        assert_eq!((found.seen.len(), found.endings.len(), found.repeated_keys_note("a.tar")), (MOST, ENDINGS, None));
        found.add_sample("7", std::iter::once("e7"));
        assert_eq!((found.again, found.members), (1, 1));
    }
}
