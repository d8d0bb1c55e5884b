//! The library's face: few types, each with an example that runs.

use std::fs;

use syn::{Attribute, Expr, Item, Lit, Meta, UseTree, Visibility};

use super::{assert_none, files_below, root};

/// Maximum number of public types.
const MAX_TYPES: usize = 30;

/// Names that are no types of this library.
const NO_TYPES: &[&str] = &["arrow", "Result"];

/// Returns the documentation that attributes hold.
fn documented(attributes: &[Attribute]) -> String {
    let text = |attribute: &Attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    };
    attributes.iter().filter_map(text).collect::<Vec<_>>().join("\n")
}

/// Whether documentation leaves an item out.
fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("doc") && list.tokens.to_string() == "hidden",
        _ => false,
    })
}

/// Returns the names that a `use` brings.
fn names(tree: &UseTree, out: &mut Vec<String>) {
    match tree {
        UseTree::Path(path) => names(&path.tree, out),
        UseTree::Name(name) => out.push(name.ident.to_string()),
        UseTree::Rename(rename) => out.push(rename.rename.to_string()),
        UseTree::Group(group) => group.items.iter().for_each(|tree| names(tree, out)),
        UseTree::Glob(_) => out.push("*".to_owned()),
    }
}

/// Returns the public names of the library with what is written about them there.
fn face() -> Vec<(String, String)> {
    let file = syn::parse_file(&fs::read_to_string(root().join("src/lib.rs")).unwrap()).unwrap();
    let mut face = Vec::new();
    for item in &file.items {
        match item {
            Item::Use(used) if matches!(used.vis, Visibility::Public(_)) && !is_hidden(&used.attrs) => {
                let mut found = Vec::new();
                names(&used.tree, &mut found);
                face.extend(found.into_iter().map(|name| (name, documented(&used.attrs))));
            }
            Item::Mod(module) if matches!(module.vis, Visibility::Public(_)) => {
                assert!(is_hidden(&module.attrs), "src/lib.rs: `{}` shows", module.ident);
            }
            _ => {}
        }
    }
    face
}

#[test]
fn the_library_has_few_types_and_an_example_of_each() {
    let mut files = Vec::new();
    files_below(&root().join("src/library"), &mut files);
    let library: String = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    // The documentation of a type that stands in a file of the library: what precedes its definition.
    let in_library = |name: &str| {
        let definition = [format!("pub struct {name} "), format!("pub struct {name}("), format!("pub enum {name} ")];
        let report = format!("\n    {name}(crate::");
        let at = definition.iter().chain([&report]).find_map(|text| library.find(text.as_str()));
        at.map_or(String::new(), |at| {
            let before: Vec<&str> = library[..at].lines().rev().collect();
            let is_doc = |line: &&&str| line.trim_start().starts_with("///") || line.trim_start().starts_with("#[");
            before.iter().take_while(is_doc).copied().collect::<Vec<_>>().join("\n")
        })
    };
    let types: Vec<_> = face().into_iter().filter(|(name, _)| !NO_TYPES.contains(&name.as_str())).collect();
    assert!((20..=MAX_TYPES).contains(&types.len()), "{} public types: {types:?}", types.len());
    let bare = types.iter().filter(|(name, docs)| !docs.contains("```") && !in_library(name).contains("```"));
    assert_none(&bare.map(|(name, _)| format!("{name}: expected an example, found none")).collect::<Vec<_>>());
}
