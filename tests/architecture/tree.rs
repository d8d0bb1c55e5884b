//! The module tree as the compiler sees it: which code is compiled outside of tests, and which modules each module
//! uses.
//!
//! Files are parsed, not searched as text: code behind `#[cfg(test)]` is removed item by item, wherever it is; paths
//! are resolved through `crate`, `self`, `super`, child modules and re-exports to the module that defines the item.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::{
    Attribute, Block, ImplItem, ImplItemFn, Item, ItemFn, ItemMod, ItemUse, Meta, Signature, Stmt, TraitItem,
    TraitItemFn, UseTree, Visibility,
    spanned::Spanned as _,
    visit::{self, Visit},
};

/// Path of a module from the root of its crate: `["dataset", "log"]`; empty for the root.
pub(crate) type ModulePath = Vec<String>;

/// A source file of the crate.
pub(crate) struct Module {
    /// Its module path.
    pub(crate) path: ModulePath,
    /// Its file path.
    pub(crate) file: PathBuf,
    /// Its complete text.
    pub(crate) text: String,
    /// Its text without tests and comment lines.
    pub(crate) code: String,
    /// Number of lines without tests.
    pub(crate) lines: usize,
    /// Functions and their numbers of lines, from `fn` on.
    pub(crate) functions: Vec<(String, usize)>,
    /// Modules whose items its code uses, except in re-exports.
    pub(crate) uses: BTreeSet<ModulePath>,
}

/// Modules of crates, except those that exist only for tests.
#[derive(Default)]
pub(crate) struct Tree {
    /// Files that are compiled outside of tests.
    pub(crate) modules: Vec<Module>,
    /// Files that exist only for tests.
    pub(crate) tests: BTreeSet<PathBuf>,
    files: BTreeSet<PathBuf>,
    changed: BTreeMap<PathBuf, String>,
}

/// Content of a file before its paths are resolved.
struct Parsed {
    path: ModulePath,
    file: PathBuf,
    text: String,
    code: String,
    lines: usize,
    functions: Vec<(String, usize)>,
    scopes: Vec<Scope>,
    /// Modules in their own files, and whether they exist only for tests.
    children: Vec<(String, bool)>,
}

/// A module: a file, or an inline module in a file.
#[derive(Clone, Default)]
struct Scope {
    path: ModulePath,
    /// Names in this module and the paths that they stand for.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths that its code uses, except in re-exports.
    named: Vec<Vec<String>>,
}

impl Tree {
    /// Reads the crates with these root files as one tree: each has the modules of those below it under their names.
    /// `changed` replaces the text of some files.
    ///
    /// # Panics
    /// Panics if a file is missing or is not valid Rust.
    pub(crate) fn read(roots: &[PathBuf], changed: &BTreeMap<PathBuf, String>) -> Self {
        let mut tree = Self { changed: changed.clone(), ..Self::default() };
        let mut parsed = Vec::new();
        roots.iter().for_each(|root| tree.enter(root, Vec::new(), &mut parsed));
        let scopes: BTreeMap<&ModulePath, &Scope> =
            parsed.iter().flat_map(|p| &p.scopes).map(|scope| (&scope.path, scope)).collect();
        let files: BTreeMap<&ModulePath, &ModulePath> =
            parsed.iter().flat_map(|p| p.scopes.iter().map(|scope| (&scope.path, &p.path))).collect();
        let uses: Vec<BTreeSet<ModulePath>> = parsed
            .iter()
            .map(|p| {
                let named = p.scopes.iter().flat_map(|scope| scope.named.iter().map(move |name| (scope, name)));
                let defined = named.filter_map(|(scope, name)| define(&scopes, &scope.path, name, 0));
                defined.map(|module| files[&module].clone()).filter(|module| *module != p.path).collect()
            })
            .collect();
        for (parsed, uses) in parsed.iter().zip(uses) {
            let Parsed { path, file, text, code, lines, functions, .. } = parsed.as_ref();
            tree.modules.push(Module {
                path: path.clone(),
                file: file.clone(),
                text: text.clone(),
                code: code.clone(),
                lines: *lines,
                functions: functions.clone(),
                uses,
            });
        }
        tree
    }

    fn enter(&mut self, file: &Path, path: ModulePath, out: &mut Vec<Arc<Parsed>>) {
        let parsed = match self.changed.get(file) {
            Some(text) => Arc::new(Parsed::of(file, path.clone(), text.clone())),
            None => Parsed::known(file, &path),
        };
        self.files.insert(file.to_owned());
        out.push(Arc::clone(&parsed));
        let folder = match file.file_name().and_then(|name| name.to_str()) {
            Some("mod.rs" | "lib.rs" | "main.rs") => file.with_file_name(""),
            _ => file.with_extension(""),
        };
        for (name, is_test) in &parsed.children {
            let flat = folder.join(format!("{name}.rs"));
            let child = if flat.exists() { flat } else { folder.join(name).join("mod.rs") };
            let below = path.iter().chain([name]).cloned().collect();
            if *is_test {
                let mut tests = Self::default();
                tests.enter(&child, below, &mut Vec::new());
                self.tests.extend(tests.files);
            } else {
                self.enter(&child, below, out);
            }
        }
    }
}

impl Parsed {
    /// Like [`Self::of`], but reads and parses each file once for all trees.
    fn known(file: &Path, path: &ModulePath) -> Arc<Self> {
        static KNOWN: Mutex<BTreeMap<PathBuf, Arc<Parsed>>> = Mutex::new(BTreeMap::new());
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let parse = || {
            let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            Arc::new(Self::of(file, path.clone(), text))
        };
        Arc::clone(known.entry(file.to_owned()).or_insert_with(parse))
    }

    fn of(file: &Path, path: ModulePath, text: String) -> Self {
        let syntax = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let mut reader = Reader { scopes: vec![Scope { path: path.clone(), ..Scope::default() }], ..Reader::default() };
        reader.visit_file(&syntax);
        let Reader { scopes, done, tests, functions, children } = reader;
        let (code, lines) = without(&text, &tests);
        Self { path, file: file.to_owned(), text, code, lines, functions, scopes: [scopes, done].concat(), children }
    }
}

/// Returns the module that defines `name` as seen from the module `here`; `None` for items of other crates.
fn define(
    scopes: &BTreeMap<&ModulePath, &Scope>,
    here: &[String],
    name: &[String],
    depth: usize,
) -> Option<ModulePath> {
    if depth > 16 {
        return None;
    }
    let mut at = here.to_vec();
    let mut rest = name;
    match name.first()?.as_str() {
        "crate" => at.clear(),
        "self" => {}
        "super" => {
            at.pop();
        }
        first => {
            let mut child = at.clone();
            child.push(first.to_owned());
            if scopes.contains_key(&child) {
                at = child;
            } else {
                let target = scopes.get(&at)?.imports.get(first)?;
                let mut whole = target.clone();
                whole.extend_from_slice(&name[1..]);
                // `use a::b` of another crate resolves to itself.
                return if whole == name { None } else { define(scopes, here, &whole, depth + 1) };
            }
        }
    }
    rest = &rest[1..];
    while let Some((next, after)) = rest.split_first() {
        if next == "super" {
            at.pop();
            rest = after;
            continue;
        }
        if next == "self" {
            rest = after;
            continue;
        }
        let mut child = at.clone();
        child.push(next.clone());
        if scopes.contains_key(&child) {
            (at, rest) = (child, after);
            continue;
        }
        let scope = scopes.get(&at)?;
        if let Some(target) = scope.imports.get(next) {
            let mut whole = target.clone();
            whole.extend_from_slice(after);
            return define(scopes, &at, &whole, depth + 1).or(Some(at));
        }
        break;
    }
    Some(at)
}

/// Visitor that collects the content of a file.
#[derive(Default)]
struct Reader {
    /// The enclosing modules, innermost last.
    scopes: Vec<Scope>,
    done: Vec<Scope>,
    /// Line ranges of test-only code.
    tests: Vec<(usize, usize)>,
    functions: Vec<(String, usize)>,
    /// Modules in their own files, and whether they exist only for tests.
    children: Vec<(String, bool)>,
}

impl Reader {
    fn scope(&mut self) -> &mut Scope {
        self.scopes.last_mut().unwrap()
    }

    /// Returns whether an item exists only for tests, and records its lines in that case.
    fn skips(&mut self, attributes: &[Attribute], span: Span) -> bool {
        let is_test = attributes.iter().any(is_for_tests);
        if is_test {
            let start = attributes.iter().map(|a| a.span().start().line).min();
            self.tests.push((start.unwrap_or(span.start().line), span.end().line));
        }
        is_test
    }

    fn import(&mut self, prefix: &mut Vec<String>, tree: &UseTree, public: bool) {
        let (name, target) = match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(prefix, &path.tree, public);
                prefix.pop();
                return;
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(prefix, tree, public));
                return;
            }
            UseTree::Name(name) if name.ident == "self" => (prefix.last().cloned().unwrap_or_default(), prefix.clone()),
            UseTree::Name(name) => (name.ident.to_string(), [prefix.clone(), vec![name.ident.to_string()]].concat()),
            UseTree::Rename(rename) => {
                let own = if rename.ident == "self" { vec![] } else { vec![rename.ident.to_string()] };
                (rename.rename.to_string(), [prefix.clone(), own].concat())
            }
            UseTree::Glob(_) => {
                let whole = prefix.clone();
                self.scope().named.push(whole);
                return;
            }
        };
        if !public {
            self.scope().named.push(target.clone());
        }
        self.scope().imports.insert(name, target);
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let (start, end) = (signature.span().start().line, block.span().end().line);
        self.functions.push((signature.ident.to_string(), end - start + 1));
    }

    /// Collects paths in the arguments of macros, which are not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.end(&mut path);
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.tokens(group.stream());
                }
                _ => self.end(&mut path),
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Vec<String>) {
        let path = std::mem::take(path);
        if path.len() > 1 {
            self.scope().named.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if let Item::Mod(ItemMod { ident, content: None, attrs, .. }) = item {
            let is_test = self.skips(attrs, item.span());
            // A file of another folder belongs to that folder.
            if attrs.iter().all(|attr| !attr.path().is_ident("path")) {
                self.children.push((ident.to_string(), is_test));
            }
        } else if !self.skips(attributes(item), item.span()) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let path = self.scope().path.iter().cloned().chain([item.ident.to_string()]).collect();
        self.scopes.push(Scope { path, ..Scope::default() });
        visit::visit_item_mod(self, item);
        let scope = self.scopes.pop().unwrap();
        self.done.push(scope);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let public = !matches!(item.vis, Visibility::Inherited);
        self.import(&mut Vec::new(), &item.tree, public);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        let attributes = match item {
            ImplItem::Const(item) => &item.attrs,
            ImplItem::Fn(item) => &item.attrs,
            ImplItem::Type(item) => &item.attrs,
            ImplItem::Macro(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !self.skips(attributes, item.span()) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        let attributes = match item {
            TraitItem::Fn(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if !self.skips(attributes, item.span()) {
            if let TraitItem::Fn(TraitItemFn { sig, default: Some(block), .. }) = item {
                self.function(sig, block);
            }
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        let attributes = match statement {
            Stmt::Local(local) => &local.attrs,
            Stmt::Macro(call) => &call.attrs,
            _ => &Vec::new(),
        };
        if !self.skips(attributes, statement.span()) {
            visit::visit_stmt(self, statement);
        }
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        let _ = attribute;
    }

    fn visit_visibility(&mut self, visibility: &'ast Visibility) {
        let _ = visibility;
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if names.len() > 1 {
            self.scope().named.push(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns whether an attribute is `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn is_for_tests(attribute: &Attribute) -> bool {
    let Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string().replace(' ', "");
    list.path.is_ident("cfg") && (condition == "test" || condition.starts_with("all(test,"))
}

/// Returns the lines of `text` outside of `tests` without comments, and the number of lines with comments.
fn without(text: &str, tests: &[(usize, usize)]) -> (String, usize) {
    let is_test = |line: usize| tests.iter().any(|(start, end)| (*start..=*end).contains(&line));
    let own: Vec<&str> = text.lines().enumerate().filter(|(i, _)| !is_test(i + 1)).map(|(_, line)| line).collect();
    let code = own.iter().filter(|line| !line.trim_start().starts_with("//")).copied().collect::<Vec<_>>();
    (code.join("\n"), own.len())
}

/// Returns groups of two or more modules that use each other, directly or indirectly.
pub(crate) fn cycles(modules: &[Module]) -> Vec<Vec<String>> {
    let index: BTreeMap<&ModulePath, usize> = modules.iter().enumerate().map(|(i, module)| (&module.path, i)).collect();
    let next: Vec<Vec<usize>> =
        modules.iter().map(|m| m.uses.iter().filter_map(|u| index.get(u).copied()).collect()).collect();
    let reach: Vec<BTreeSet<usize>> = (0..modules.len())
        .map(|start| {
            let (mut seen, mut todo) = (BTreeSet::new(), next[start].clone());
            while let Some(at) = todo.pop() {
                if seen.insert(at) {
                    todo.extend(&next[at]);
                }
            }
            seen
        })
        .collect();
    let mut out: BTreeSet<Vec<String>> = BTreeSet::new();
    for (i, reached) in reach.iter().enumerate() {
        let cycle: Vec<String> =
            reached.iter().filter(|j| reach[**j].contains(&i)).map(|j| modules[*j].path.join("::")).collect();
        if cycle.len() > 1 {
            out.insert(cycle);
        }
    }
    out.into_iter().collect()
}
