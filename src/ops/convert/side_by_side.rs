//! Parts of samples that are in folders side by side, such as `images/7.jpg` and `labels/7.txt`: the rule for keys that
//! joins them.

use crate::{
    record::key::{extension_of, key_and_extension},
    scan::SourceFile,
};

/// Folders that are compared, at most.
const MAX_FOLDERS: usize = 64;
/// Files of a folder that are looked for in another one.
const SAMPLED: usize = 20;

/// What names of folders contain that hold what is to be learnt about files of the same kind elsewhere.
const TARGETS: [&str; 7] = ["mask", "label", "annot", "seg", "target", "gt", "depth"];

/// Returns a note that names the folders and the rule, if most of the first files of one folder have a namesake in
/// another one, whose path differs in one component. `files` are sorted by name.
pub(in crate::ops) fn namesake_note(files: &[SourceFile]) -> Option<String> {
    let folders = first_folders(files);
    for (at, (folder, first)) in folders.iter().enumerate() {
        for (other, _) in &folders[at + 1..] {
            let Some((one, two)) = differing_components(folder, other) else { continue };
            let own = files[*first..].iter().take(SAMPLED).take_while(|file| folder_of(file.name()) == *folder);
            let (mut looked, mut pairs) = (0, Vec::new());
            for file in own {
                looked += 1;
                pairs.extend(find_namesake(files, file, folder, other).map(|other| (file, other)));
            }
            let Some((file, namesake)) = pairs.first().filter(|_| pairs.len() * 2 > looked) else { continue };
            let extension = |file: &SourceFile| extension_of(key_and_extension(file.name()).1);
            let same = extension(file) == extension(namesake);
            let names_targets = |name: &str| TARGETS.iter().any(|word| name.to_ascii_lowercase().contains(word));
            // Classes and splits of pictures are numbered alike, too.
            if same && names_targets(one) == names_targets(two) {
                continue;
            }
            let group = if same { "?<part>" } else { "?:" };
            return Some(format!(
                "`{}` and `{}` have one name in folders side by side, and are samples of their own; to make them \
                 parts of one sample: --key '({group}{}|{})/(.*)'",
                file.name(),
                namesake.name(),
                regex::escape(one),
                regex::escape(two)
            ));
        }
    }
    None
}

fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns the first folders that have files, with their first files.
fn first_folders(files: &[SourceFile]) -> Vec<(&str, usize)> {
    let mut folders: Vec<(&str, usize)> = Vec::new();
    let mut at = 0;
    while let Some(file) = files.get(at).filter(|_| folders.len() < MAX_FOLDERS) {
        let folder = folder_of(file.name());
        if !folders.iter().any(|(known, _)| *known == folder) {
            folders.push((folder, at));
        }
        // Skips files of the same folder, without looking at each.
        let same = |step: usize| files.get(at + step).is_some_and(|next| folder_of(next.name()) == folder);
        let mut step = 1;
        while same(step) {
            step *= 2;
        }
        at += step / 2 + files[at + step / 2..].iter().take(step).take_while(|f| folder_of(f.name()) == folder).count();
    }
    folders
}

/// Returns the components in which two paths differ, if there is one.
fn differing_components<'a>(one: &'a str, other: &'a str) -> Option<(&'a str, &'a str)> {
    let (mut of_one, mut of_other) = (one.split('/'), other.split('/'));
    let mut found = None;
    loop {
        match (of_one.next(), of_other.next()) {
            (None, None) => return found,
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) if found.is_none() && !a.is_empty() && !b.is_empty() => found = Some((a, b)),
            _ => return None,
        }
    }
}

/// Returns the file in another folder whose name is the same up to its first dot.
fn find_namesake<'a>(files: &'a [SourceFile], file: &SourceFile, folder: &str, other: &str) -> Option<&'a SourceFile> {
    let (key, _) = key_and_extension(file.name());
    let wanted = format!("{other}{}.", key.get(folder.len()..)?);
    let at = files.partition_point(|file| file.name() < wanted.as_str());
    files.get(at).filter(|file| file.name().starts_with(&wanted))
}
