//! Tests of the architecture: layers, submodule order, cycles, module docs, file sizes, which modules may print, write
//! files or read the environment, and a complete catalogue of test data.
#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod face;
mod tree;
mod walls;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};

use tree::{Module, Tree, cycles};

/// Layers, lowest first. A module imports from lower layers, and from its own layer only what [`SAME_LAYER`] lists.
const LAYERS: &[&[&str]] = &[
    &["order"],
    &["error", "id", "units", "events", "settings"],
    &["array", "record", "schema", "codec", "storage"],
    &["environment"],
    &["format"],
    &["delta"],
    &["scan", "dataset"],
    &["indexes", "load"],
    &["plan"],
    &["exec"],
    &["ops"],
    &["library"],
    &["cli", "python"],
    &["fuzzing"],
];

/// Allowed imports within a layer: importing and imported module. They must not form a cycle.
const SAME_LAYER: &[(&str, &str)] = &[
    ("id", "error"),
    ("units", "error"),
    ("settings", "error"),
    ("events", "error"),
    ("events", "units"),
    ("record", "schema"),
    ("record", "codec"),
    ("schema", "codec"),
    ("storage", "codec"),
    ("array", "record"),
    ("array", "schema"),
];

/// Submodules of `dataset`, lowest first; each uses only those before it.
const DATASET_SUBMODULES: &[&str] =
    &["table", "ids", "index", "log", "plans", "sidecar", "basis", "lookup", "training", "erasure", "retention"];

/// Maximum number of files that use each other, directly or indirectly.
const MAX_CYCLE_FILES: usize = 3;

/// Maximum lines of a file, without tests.
const MAX_LINES: usize = 800;

/// Maximum lines of a function, from `fn` to its last brace: one screen.
const MAX_FUNCTION_LINES: usize = 70;

/// Maximum columns of a line, also of comments and strings, which rustfmt leaves as they are.
const MAX_COLUMNS: usize = 120;

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

/// The crates of the library, lowest first.
const CRATES: &[&str] = &[
    "crates/order",
    "crates/core",
    "crates/formats",
    "crates/dataset",
    "crates/load",
    "crates/engine",
    ".",
    "crates/py",
];

fn library() -> Vec<PathBuf> {
    CRATES.iter().map(|folder| root().join(folder).join("src/lib.rs")).collect()
}

/// Returns a file or folder of the library's sources.
fn source(path: &str) -> PathBuf {
    let mut places = CRATES.iter().map(|folder| root().join(folder).join("src").join(path));
    places.find(|place| place.exists()).unwrap()
}

/// Returns all files of the library's sources.
fn sources() -> Vec<PathBuf> {
    let mut files = Vec::new();
    CRATES.iter().for_each(|folder| files_below(&root().join(folder).join("src"), &mut files));
    files
}

/// Module trees of the library and of the program.
fn trees() -> [Tree; 2] {
    [library(), vec![root().join("src/main.rs")]].map(|roots| Tree::read(&roots, &BTreeMap::new()))
}

/// Returns the top-level module that contains a module: `lib` or `main` for the roots.
fn top(module: &Module) -> &str {
    module.path.first().map_or_else(|| module.file.file_stem().and_then(|stem| stem.to_str()).unwrap(), String::as_str)
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

fn assert_none(bad: &[String]) {
    assert!(bad.is_empty(), "\n{}\n", bad.join("\n"));
}

/// Returns lines of code outside of the given modules that contain one of the patterns.
fn uses_outside(trees: &[Tree], allowed: &[&str], patterns: &[&str]) -> Vec<String> {
    let mut bad = Vec::new();
    for module in trees.iter().flat_map(|tree| &tree.modules).filter(|module| !allowed.contains(&top(module))) {
        for line in module.code.lines() {
            if let Some(pattern) = patterns.iter().find(|pattern| line.contains(**pattern)) {
                bad.push(format!("{}: `{pattern}` in: {}", module.file.display(), line.trim()));
            }
        }
    }
    bad
}

fn layer_violations(tree: &Tree) -> Vec<String> {
    let mut bad = Vec::new();
    for module in tree.modules.iter().filter(|module| !module.path.is_empty()) {
        let name = top(module);
        let Some(mine) = layer(name) else {
            bad.push(format!("{name}: in no layer"));
            continue;
        };
        for import in module.uses.iter().filter_map(|used| used.first()) {
            let Some(theirs) = layer(import) else { continue };
            let listed = import == name || SAME_LAYER.contains(&(name, import.as_str()));
            if theirs > mine || theirs == mine && !listed {
                let path = module.file.display();
                bad.push(format!("{path}: {name} (layer {mine}) imports {import} (layer {theirs})"));
            }
        }
    }
    bad
}

fn format_violations(tree: &Tree) -> Vec<String> {
    let folder = source("format");
    let is_folder = |name: &str| folder.join(name).is_dir();
    let of = |path: &[String]| match path {
        [first, format, ..] if first == "format" && is_folder(format) => Some(format.clone()),
        _ => None,
    };
    let mut bad = Vec::new();
    for module in &tree.modules {
        let Some(own) = of(&module.path) else { continue };
        for other in module.uses.iter().filter_map(|used| of(used)).filter(|other| *other != own) {
            bad.push(format!("{}: {own} imports {other}", module.file.display()));
        }
    }
    bad
}

/// Returns submodules of `parent` that use later ones of `order`, or that are not in it.
fn submodule_violations(tree: &Tree, parent: &str, order: &[&str]) -> Vec<String> {
    let room = |path: &[String]| match path {
        [first, room, ..] if first == parent => Some(order.iter().position(|name| name == room).ok_or(room.clone())),
        _ => None,
    };
    let mut bad = Vec::new();
    for module in &tree.modules {
        let file = module.file.display();
        match room(&module.path) {
            Some(Err(unknown)) => bad.push(format!("{file}: the submodule {unknown} of {parent} is not in the order")),
            Some(Ok(own)) => {
                let later = module.uses.iter().filter_map(|used| room(used)?.ok()).filter(|used| *used > own);
                bad.extend(later.map(|used| format!("{file}: {} uses {}", order[own], order[used])));
            }
            None => {}
        }
    }
    bad
}

const PRINTS: &[&str] = &["print!(", "println!(", "eprint!(", "eprintln!(", "dbg!(", "io::stdout(", "io::stderr("];

const WRITES: &[&str] = &[
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

const ENVIRONMENT: &[&str] = &["env::var", "env::args", "env::current_dir"];

#[test]
fn modules_import_only_downwards() {
    assert_none(&layer_violations(&trees()[0]));
}

#[test]
fn formats_never_import_each_other() {
    assert_none(&format_violations(&trees()[0]));
}

#[test]
fn submodules_of_dataset_use_only_those_before_them() {
    assert_none(&submodule_violations(&trees()[0], "dataset", DATASET_SUBMODULES));
}

#[test]
fn cycles_of_modules_are_small() {
    let large = cycles(&trees()[0].modules).into_iter().filter(|cycle| cycle.len() > MAX_CYCLE_FILES);
    assert_none(&large.map(|cycle| format!("use each other: {}", cycle.join(", "))).collect::<Vec<_>>());
}

/// Returns files and functions that are too long.
fn too_long(tree: &Tree) -> Vec<String> {
    let mut bad = Vec::new();
    for module in &tree.modules {
        let path = module.file.display();
        if module.lines > MAX_LINES {
            bad.push(format!("{path}: {} lines", module.lines));
        }
        let long = module.functions.iter().filter(|(_, lines)| *lines > MAX_FUNCTION_LINES);
        bad.extend(long.map(|(name, lines)| format!("{path}: {name} has {lines} lines")));
    }
    bad
}

#[test]
fn every_module_says_why_and_stays_small() {
    let trees = trees();
    let modules = trees.iter().flat_map(|tree| &tree.modules);
    let unsaid = modules.filter(|module| !module.text.starts_with("//!"));
    let mut bad: Vec<String> = unsaid.map(|module| format!("{}: no module doc", module.file.display())).collect();
    bad.extend(trees.iter().flat_map(too_long));
    let files = sources();
    assert!(files.len() > 20, "the sources are not where they were");
    let known: BTreeSet<&PathBuf> =
        trees.iter().flat_map(|tree| tree.modules.iter().map(|module| &module.file).chain(&tree.tests)).collect();
    bad.extend(
        files.iter().filter(|file| !known.contains(file)).map(|file| format!("{}: in no module", file.display())),
    );
    assert_none(&bad);
}

#[test]
fn only_the_command_line_prints() {
    assert_none(&uses_outside(&trees(), &["cli", "main"], PRINTS));
}

#[test]
fn only_storage_writes_files() {
    assert_none(&uses_outside(&trees(), &["storage"], WRITES));
}

#[test]
fn only_one_module_and_the_command_line_know_the_environment() {
    assert_none(&uses_outside(&trees(), &["environment", "cli", "main"], ENVIRONMENT));
}

#[test]
fn plans_are_pure() {
    let others = LAYERS.iter().flat_map(|l| l.iter().copied()).filter(|m| *m != "plan");
    let allowed: Vec<&str> = others.chain(["lib", "main"]).collect();
    assert_none(&uses_outside(
        &trees(),
        &allowed,
        &["std::fs", "std::io", "Instant::now", "SystemTime", "Timestamp::now", "thread_rng"],
    ));
}

#[test]
fn nothing_is_left_undone() {
    let trees = trees();
    assert_none(&uses_outside(&trees, &[], &["todo!(", "unimplemented!("]));
    let mut files = sources();
    files.retain(|file| fs::read_to_string(file).unwrap().contains("#[ignore"));
    assert_none(&files.iter().map(|file| format!("{}: an ignored test", file.display())).collect::<Vec<_>>());
}

/// Forbidden code is added after the first test item of files, at their end and in a macro, and every rule must find
/// it: a check that sees less code than the compiler guards nothing.
#[test]
fn intruders_are_found_wherever_they_hide() {
    let intruder = "\nfn intruder() {\n    use crate::format::npy;\n    crate::cli::run();\n    println!(\"x\");\n    \
                    std::fs::write(\"x\", \"x\");\n    std::env::var(\"x\");\n    format!(\"{}\", \
                     super::super::ops::x());\n}\n";
    for file in ["csv/mod.rs", "json/mod.rs", "tar/mod.rs", "ipc/mod.rs", "parquet/mod.rs", "tfrecord/sum.rs"] {
        let path = source("format").join(file);
        let text = fs::read_to_string(&path).unwrap();
        let tree = Tree::read(&library(), &BTreeMap::from([(path.clone(), text + intruder)]));
        let found = |bad: Vec<String>| bad.iter().filter(|line| line.contains(file)).count();
        assert!(found(layer_violations(&tree)) >= 1, "{file}: the command line was called from a format");
        assert_eq!(found(format_violations(&tree)), 1, "{file}: a format imports another one");
        let tree = [tree];
        for patterns in [PRINTS, WRITES, ENVIRONMENT] {
            assert_eq!(found(uses_outside(&tree, &["cli", "main", "storage"], patterns)), 1, "{file}: {patterns:?}");
        }
        let upstairs = tree[0].modules.iter().find(|module| module.file == path).unwrap();
        assert!(upstairs.uses.contains(&vec!["cli".to_owned()]), "{file}");
    }
    let path = source("dataset/ids/salt.rs");
    let text = fs::read_to_string(&path).unwrap() + "\nuse crate::dataset::{Snapshot, log::commit::commit};\n";
    let tree = Tree::read(&library(), &BTreeMap::from([(path, text)]));
    assert_eq!(
        submodule_violations(&tree, "dataset", DATASET_SUBMODULES).len(),
        2,
        "a lower submodule uses a higher one"
    );
    assert!(cycles(&tree.modules).iter().any(|cycle| cycle.len() > MAX_CYCLE_FILES));
}

/// Functions count wherever they are defined, and lines of tests do not.
#[test]
fn what_is_too_long_is_found() {
    let function = |lines: usize| format!("fn intruder() {{\n{}}}\n", "    step();\n".repeat(lines - 2));
    let long = function(MAX_FUNCTION_LINES + 1);
    let tests = format!("#[cfg(test)]\nmod more {{\n{long}{}}}\n", "// A line.\n".repeat(MAX_LINES));
    let filler = "// A line.\n".repeat(MAX_LINES);
    let cases = [
        ("hex", function(MAX_FUNCTION_LINES), 0),
        ("base64", tests.clone(), 0),
        ("merkle", long.clone(), 1),
        ("chunk_tree", format!("struct X;\nimpl X {{\n{long}}}\n"), 1),
        ("seal", format!("trait X {{\n{long}}}\n"), 1),
        ("decompress", format!("mod inner {{\n{long}}}\n"), 1),
        ("encoding", filler.clone(), 1),
        ("stream", format!("{tests}{filler}"), 1),
    ];
    let path = |name: &str| source("codec").join(name).with_extension("rs");
    let changed = cases.iter().map(|(name, more, _)| {
        let text = fs::read_to_string(path(name)).unwrap();
        (path(name), format!("{text}\n{more}"))
    });
    let bad = too_long(&Tree::read(&library(), &changed.collect()));
    for (name, more, expected) in &cases {
        let found = bad.iter().filter(|line| line.contains(path(name).to_str().unwrap())).count();
        assert_eq!(found, *expected, "{name}: {}", more.chars().take(60).collect::<String>());
    }
}

/// Returns the numbers of the lines that are too wide. Raw strings and strings of several lines stand as they are.
fn too_wide(text: &str) -> Vec<usize> {
    let tokens: TokenStream = text.parse().unwrap();
    let mut literals = Vec::new();
    literals_of(tokens, &mut literals);
    let as_it_is = |line: &usize| literals.iter().any(|(first, last)| (*first..=*last).contains(line));
    let wide = text.lines().enumerate().filter(|(_, line)| line.chars().count() > MAX_COLUMNS);
    wide.map(|(at, _)| at + 1).filter(|line| !as_it_is(line)).collect()
}

/// Collects the first and last lines of the literals whose line ends are a part of them, or may be.
fn literals_of(tokens: TokenStream, out: &mut Vec<(usize, usize)>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => literals_of(group.stream(), out),
            TokenTree::Literal(literal) => {
                let (first, last) = (literal.span().start().line, literal.span().end().line);
                if first < last || literal.to_string().trim_start_matches('b').starts_with('r') {
                    out.push((first, last));
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

#[test]
fn lines_fit_the_screen() {
    let long = "x".repeat(MAX_COLUMNS);
    assert_eq!(too_wide(&format!("// {long}\nfn f() {{\n    // {long}\n    let _ = \"{long}\";\n}}\n")), [1, 3, 4]);
    assert_eq!(too_wide(&format!("/// {long}\nconst A: &str = r\"{long}\";\nconst B: &str = \"\n{long}\";\n")), [1]);
    let mut files = Vec::new();
    ["src", "crates", "tests", "benches", "examples"]
        .iter()
        .for_each(|folder| files_below(&root().join(folder), &mut files));
    files.retain(|file| file.extension().is_some_and(|end| end == "rs"));
    let wide = |file: &PathBuf| too_wide(&fs::read_to_string(file).unwrap());
    let bad =
        files.iter().flat_map(|file| wide(file).into_iter().map(move |line| format!("{}:{line}", file.display())));
    assert_none(&bad.collect::<Vec<_>>());
}

#[test]
fn test_data_is_in_its_catalogue() {
    let folder = root().join("testdata");
    let catalogue = fs::read_to_string(folder.join("README.md")).unwrap();
    let mut files = Vec::new();
    files_below(&folder, &mut files);
    let names = files.iter().map(|path| path.strip_prefix(&folder).unwrap().to_string_lossy().replace('\\', "/"));
    let listed = |name: &str| catalogue.contains(&format!("`{name}`"));
    // A dataset is listed as a whole.
    let whole = |name: &str| name.starts_with("compat/1/") && catalogue.contains("`compat/1/`");
    assert_none(&names.filter(|name| name != "README.md" && !whole(name) && !listed(name)).collect::<Vec<_>>());
    let bytes: u64 = files.iter().map(|path| fs::metadata(path).unwrap().len()).sum();
    assert!(bytes < 6 << 20, "{bytes} bytes of test data");
}

/// A file that no `mod` declares is not compiled, so its tests would silently not run.
#[test]
fn every_file_of_tests_is_a_module_of_its_binary() {
    let mut files = Vec::new();
    files_below(&root().join("tests"), &mut files);
    let forgotten = |file: &&PathBuf| {
        let (name, folder) = (file.file_stem().unwrap().to_str().unwrap(), file.parent().unwrap());
        let main = fs::read_to_string(folder.join("main.rs"));
        name != "main" && main.is_ok_and(|main| !main.contains(&format!("\nmod {name};\n")))
    };
    let sources = files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
    assert_none(
        &sources.filter(forgotten).map(|file| format!("{}: no module of main.rs", file.display())).collect::<Vec<_>>(),
    );
}
