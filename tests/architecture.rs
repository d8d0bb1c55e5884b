//! The architecture as a test: layers, module docs, file sizes, who may print, write files or read the environment, and
//! a catalogue of test data that is complete.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Lowest layer first; a module imports from lower layers, and from its own layer only what [`SAME_LAYER`] lists.
const LAYERS: &[&[&str]] = &[
    &["error", "id", "units", "events"],
    &["array", "record", "schema", "codec", "storage"],
    &["format"],
    &["scan", "dataset"],
    &["plan"],
    &["exec"],
    &["ops"],
    &["cli"],
];

/// Imports within a layer: who, and whom. Never in a circle.
const SAME_LAYER: &[(&str, &str)] = &[
    ("id", "error"),
    ("units", "error"),
    ("events", "error"),
    ("events", "units"),
    ("record", "schema"),
    ("record", "codec"),
    ("storage", "codec"),
    ("array", "record"),
    ("array", "schema"),
];

const MAX_LINES: usize = 800;

/// A source file: the module below `src/` that it belongs to, its path, its text without tests and comments.
struct Source {
    module: String,
    path: PathBuf,
    text: String,
    code: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn files_below(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files_below(&path, out) } else { out.push(path) }
    }
    out.sort();
}

fn sources() -> Vec<Source> {
    let src = root().join("src");
    let mut files = Vec::new();
    files_below(&src, &mut files);
    files.retain(|path| path.extension().is_some_and(|e| e == "rs"));
    assert!(files.len() > 20, "the sources are not where they were");
    files
        .into_iter()
        .map(|path| {
            let inside = path.strip_prefix(&src).unwrap();
            let module = inside.components().next().unwrap().as_os_str().to_string_lossy().replace(".rs", "");
            let text = fs::read_to_string(&path).unwrap();
            let own = if is_test(&path) { "" } else { text.split("\n#[cfg(test)]").next().unwrap() };
            let code = own.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
            Source { module, path, text, code }
        })
        .collect()
}

/// Whether the module that holds this file has it only in tests.
fn is_test(path: &Path) -> bool {
    let stem = path.file_stem().unwrap().to_string_lossy();
    let parent = fs::read_to_string(path.with_file_name("mod.rs")).unwrap_or_default();
    let declared = format!("mod {stem};");
    parent.split("\n\n").flat_map(|block| block.split(";\n")).any(|part| {
        let part = format!("{part};");
        part.contains("#[cfg(test)]") && part.contains(&declared)
    })
}

/// The identifier that `text` begins with.
fn identifier(text: &str) -> String {
    text.trim_start().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Identifiers that follow `prefix`, each member of a `{a, b::{c, d}}` group included (here `a` and `b`).
fn names_after(code: &str, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        let rest = &code[at + prefix.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.push(identifier(rest));
            continue;
        };
        let (mut depth, mut start) = (0, 0);
        for (at, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' | ',' if depth == 0 => {
                    names.push(identifier(&group[start..at]));
                    start = at + 1;
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn complain(bad: &[String]) {
    assert!(bad.is_empty(), "\n{}\n", bad.join("\n"));
}

/// Lines of code outside of the given modules that contain one of the patterns.
fn uses_outside(allowed: &[&str], patterns: &[&str]) -> Vec<String> {
    let mut bad = Vec::new();
    for source in sources().iter().filter(|source| !allowed.contains(&source.module.as_str())) {
        for line in source.code.lines() {
            if let Some(pattern) = patterns.iter().find(|pattern| line.contains(**pattern)) {
                bad.push(format!("{}: `{pattern}` in: {}", source.path.display(), line.trim()));
            }
        }
    }
    bad
}

#[test]
fn imports_are_found() {
    let code = "use crate::{\n a::{x, y},\n b,\n c::d::{e},\n};\nuse crate::f; crate::g::h()";
    assert_eq!(names_after(code, "crate::"), ["a", "b", "c", "f", "g"]);
}

#[test]
fn modules_import_only_downwards() {
    let mut bad = Vec::new();
    for source in sources() {
        let module = source.module.as_str();
        if module == "lib" || module == "main" {
            continue;
        }
        let Some(mine) = layer(module) else {
            bad.push(format!("{module}: in no layer"));
            continue;
        };
        for import in names_after(&source.code, "crate::") {
            let Some(theirs) = layer(&import) else { continue };
            let listed = import == module || SAME_LAYER.contains(&(module, import.as_str()));
            if theirs > mine || theirs == mine && !listed {
                let path = source.path.display();
                bad.push(format!("{path}: {module} (layer {mine}) imports {import} (layer {theirs})"));
            }
        }
    }
    complain(&bad);
}

#[test]
fn formats_never_import_each_other() {
    let folder = root().join("src/format");
    let formats: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let mut bad = Vec::new();
    for source in sources() {
        let Ok(inside) = source.path.strip_prefix(&folder) else { continue };
        let Some(own) = inside.parent().and_then(|p| p.iter().next()).map(|p| p.to_string_lossy().into_owned()) else {
            continue;
        };
        // `super::super` leads from a file of the folder to `format`, `super` from its `mod.rs`.
        let up = if inside.ends_with("mod.rs") { "super::" } else { "super::super::" };
        let direct = names_after(&source.code, up).into_iter().chain(names_after(&source.code, "format::"));
        let grouped = names_after(&source.code.replace(char::is_whitespace, ""), "format::{");
        for import in direct.chain(grouped) {
            if import != own && formats.contains(&import) {
                bad.push(format!("{}: {own} imports {import}", source.path.display()));
            }
        }
    }
    complain(&bad);
}

#[test]
fn every_module_says_why_and_stays_small() {
    let mut bad = Vec::new();
    for Source { path, text, .. } in sources() {
        if !text.starts_with("//!") {
            bad.push(format!("{}: no module doc", path.display()));
        }
        let own = text.split("\n#[cfg(test)]").next().unwrap().lines().count();
        if own > MAX_LINES && !is_test(&path) {
            bad.push(format!("{}: {own} lines", path.display()));
        }
    }
    complain(&bad);
}

#[test]
fn only_the_command_line_prints() {
    complain(&uses_outside(
        &["cli", "main"],
        &["print!(", "println!(", "eprint!(", "eprintln!(", "dbg!(", "io::stdout(", "io::stderr("],
    ));
}

#[test]
fn only_storage_writes_files() {
    let patterns = [
        "fs::write(",
        "fs::rename(",
        "fs::copy(",
        "fs::hard_link(",
        "fs::remove_",
        "fs::create_dir",
        "File::create",
        "File::options(",
        "fs::OpenOptions",
        "OpenOptions::new(",
    ];
    complain(&uses_outside(&["storage"], &patterns));
}

#[test]
fn only_the_command_line_knows_the_environment() {
    complain(&uses_outside(&["cli", "main"], &["env::var", "env::args", "env::current_dir"]));
}

#[test]
fn plans_are_pure() {
    let others: Vec<&str> = LAYERS.iter().flat_map(|l| l.iter().copied()).filter(|m| *m != "plan").collect();
    let allowed: Vec<&str> = others.into_iter().chain(["lib", "main"]).collect();
    complain(&uses_outside(
        &allowed,
        &["std::fs", "std::io", "Instant::now", "SystemTime", "Timestamp::now", "thread_rng"],
    ));
}

#[test]
fn nothing_is_left_undone() {
    complain(&uses_outside(&[], &["todo!(", "unimplemented!("]));
    let ignored = sources().into_iter().filter(|source| source.text.contains("#[ignore"));
    complain(&ignored.map(|source| format!("{}: an ignored test", source.path.display())).collect::<Vec<_>>());
}

#[test]
fn test_data_is_in_its_catalogue() {
    let folder = root().join("testdata");
    let catalogue = fs::read_to_string(folder.join("README.md")).unwrap();
    let mut files = Vec::new();
    files_below(&folder, &mut files);
    let names = files.iter().map(|path| path.strip_prefix(&folder).unwrap().to_string_lossy().replace('\\', "/"));
    let listed = |name: &str| catalogue.contains(&format!("`{name}`"));
    // Datasets of former releases are listed as a whole.
    let whole = |name: &str| name.starts_with("compat/");
    complain(&names.filter(|name| name != "README.md" && !whole(name) && !listed(name)).collect::<Vec<_>>());
    let bytes: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes < 6 << 20, "{bytes} bytes of test data");
}
