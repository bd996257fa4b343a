//! The graph of modules of each crate: no import circles, and no imports against the order of layers.
//!
//! Below each module, the subtrees of its children must not import each other in a circle. For the root of a crate these
//! subtrees are its folders, for a folder they are its files. Parent and child may import each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::lexer::{Kind, Token, program_tokens, tokens};
use crate::workspace::{SourceFile, sources};

/// Folders (or modules) of a crate's `src`, in the order in which they may import: only those further down. Crates that
/// are not in this table have no order, only no circles.
const LAYERS: &[(&str, &[&str])] = &[(
    "gateway",
    &[
        "process",
        "listener",
        "http",
        "admin",
        "pipeline",
        "forward",
        "auth",
        "routing",
        "policy",
        "upstream",
        "telemetry",
        "request",
    ],
)];

#[test]
fn modules_do_not_import_in_circles_or_upwards() {
    let mut faults = Vec::new();
    let graphs = graphs(sources());
    assert!(graphs.len() > 10, "the crates were not found: {:?}", graphs.keys());
    for (name, graph) in &graphs {
        assert!(!graph.is_empty(), "{name} has no modules");
        let layers = LAYERS.iter().find(|(layered, _)| layered == name).map(|(_, layers)| *layers);
        let found =
            graph.circles().into_iter().chain(layers.into_iter().flat_map(|layers| graph.against(layers)));
        faults.extend(found.map(|fault| format!("{name}/src: {fault}")));
    }
    for (name, _) in LAYERS {
        assert!(graphs.contains_key(*name), "{name} of the table of layers is no crate");
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// The path of a module in its crate; empty for the root.
type ModulePath = Vec<String>;

/// The modules of a crate that are files, and their imports.
#[derive(Default)]
struct Graph {
    modules: BTreeMap<ModulePath, Module>,
}

#[derive(Default)]
struct Module {
    /// Paths from the root of the crate that the module mentions, with the line.
    mentions: Vec<(Vec<String>, usize)>,
    /// Names of the child modules that are files, without those for tests.
    children: BTreeSet<String>,
    /// Names that `use` declarations bring into the module, with the path that they stand for.
    bindings: BTreeMap<String, Vec<String>>,
}

/// The graph of each crate with a `src` folder, by the crate's folder.
fn graphs(sources: &[SourceFile]) -> BTreeMap<String, Graph> {
    let roots: BTreeSet<String> = sources
        .iter()
        .filter_map(|source| source.path.strip_suffix("/src/lib.rs").map(str::to_owned))
        .collect();
    let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_test) {
        let Some((folder, file)) = source.path.split_once("/src/") else { continue };
        // A program beside a library is a crate of its own.
        if file.starts_with("bin/") || file == "main.rs" && roots.contains(folder) {
            continue;
        }
        graphs.entry(folder.to_owned()).or_default().add(file, &source.text);
    }
    graphs.values_mut().for_each(Graph::remove_undeclared);
    graphs
}

impl Graph {
    fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// Adds a file; `file` is its path below `src`.
    fn add(&mut self, file: &str, text: &str) {
        let path = module_path(file);
        let all = tokens(text);
        let code = program_tokens(&all);
        let mut reader =
            Reader { code: &code, at: 0, file: path.clone(), inline: Vec::new(), module: Module::default() };
        reader.read();
        self.modules.insert(path, reader.module);
    }

    /// Removes modules that are declared for tests and fuzzers only, and those below them.
    fn remove_undeclared(&mut self) {
        let is_declared = |path: &ModulePath| {
            (1..=path.len()).all(|length| {
                let parent = self.modules.get(&path[..length - 1]);
                parent.is_some_and(|parent| parent.children.contains(&path[length - 1]))
            })
        };
        let declared: BTreeSet<ModulePath> =
            self.modules.keys().filter(|path| is_declared(path)).cloned().collect();
        self.modules.retain(|path, _| declared.contains(path));
    }

    /// The modules that each module imports, and the line of the first import.
    fn edges(&self) -> BTreeMap<(&ModulePath, &ModulePath), usize> {
        let mut edges = BTreeMap::new();
        for (from, module) in &self.modules {
            for (mention, line) in &module.mentions {
                let to = self.target(mention, 0);
                if to != from {
                    edges.entry((from, to)).or_insert(*line);
                }
            }
        }
        edges
    }

    /// The module in which the item at `path` is defined, through re-exports.
    fn target(&self, path: &[String], depth: usize) -> &ModulePath {
        let mut length = 0;
        while length < path.len() && self.modules.contains_key(&path[..=length]) {
            length += 1;
        }
        let (here, module) = self.modules.get_key_value(&path[..length]).expect("the root exists");
        let binding = path.get(length).and_then(|name| module.bindings.get(name));
        match binding {
            // Bindings may refer to each other in a circle.
            Some(binding) if depth < 8 => {
                let resolved: Vec<String> = binding.iter().chain(&path[length + 1..]).cloned().collect();
                self.target(&resolved, depth + 1)
            }
            _ => here,
        }
    }

    /// Circles between the children of each module.
    fn circles(&self) -> Vec<String> {
        let edges = self.edges();
        let mut faults = Vec::new();
        for parent in self.modules.keys().flat_map(ancestors).collect::<BTreeSet<_>>() {
            let mut children: BTreeMap<&str, BTreeMap<&str, String>> = BTreeMap::new();
            for ((from, to), line) in &edges {
                if let (Some(child), Some(other)) = (child(parent, from), child(parent, to))
                    && child != other
                {
                    let example = format!("{}:{line} imports {}", from.join("/"), to.join("::"));
                    children.entry(child).or_default().entry(other).or_insert(example);
                }
            }
            for circle in circles(&children) {
                let examples: Vec<_> = circle.iter().map(|(from, to)| children[from][to].as_str()).collect();
                faults.push(format!("circle: {}", examples.join("; ")));
            }
        }
        faults
    }

    /// Imports against the order of layers, and folders without a place in it.
    fn against(&self, layers: &[&str]) -> Vec<String> {
        let place =
            |path: &ModulePath| layers.iter().position(|layer| path.first().is_some_and(|top| top == layer));
        let mut faults = Vec::new();
        for path in self.modules.keys().filter(|path| path.len() == 1 && place(path).is_none()) {
            faults.push(format!("{} is not in the table of layers", path.join("/")));
        }
        for ((from, to), line) in self.edges() {
            if let (Some(upper), Some(lower)) = (place(from), place(to))
                && lower < upper
            {
                faults.push(format!("upwards: {}:{line} imports {}", from.join("/"), to.join("::")));
            }
        }
        faults
    }
}

/// The path and all its parents, without itself.
fn ancestors(path: &ModulePath) -> impl Iterator<Item = &[String]> {
    (0..path.len()).map(|length| &path[..length])
}

/// The child of `parent` in whose subtree `path` is.
fn child<'a>(parent: &[String], path: &'a ModulePath) -> Option<&'a str> {
    path.strip_prefix(parent)?.first().map(String::as_str)
}

/// One shortest circle for each group of nodes that reach each other, as its edges.
fn circles<'a>(edges: &BTreeMap<&'a str, BTreeMap<&'a str, String>>) -> Vec<Vec<(&'a str, &'a str)>> {
    let mut found: Vec<Vec<(&str, &str)>> = Vec::new();
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    for start in edges.keys() {
        if covered.contains(start) {
            continue;
        }
        // The shortest way from the start back to it.
        let mut ways: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
        let mut open = vec![(*start, Vec::new())];
        'search: while !open.is_empty() {
            let mut next = Vec::new();
            for (node, way) in open {
                for to in edges.get(node).into_iter().flat_map(BTreeMap::keys) {
                    let mut way: Vec<(&str, &str)> = way.clone();
                    way.push((node, to));
                    if to == start {
                        covered.extend(way.iter().map(|(from, _)| *from));
                        found.push(way);
                        break 'search;
                    }
                    if !ways.contains_key(to) {
                        ways.insert(to, way.clone());
                        next.push((*to, way));
                    }
                }
            }
            open = next;
        }
    }
    found
}

/// `a/b.rs`, `a/b/mod.rs` → `[a, b]`.
fn module_path(file: &str) -> ModulePath {
    let mut path: ModulePath = file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        path.pop();
    }
    path
}

/// Reads the paths of a file.
struct Reader<'a> {
    code: &'a [Token<'a>],
    at: usize,
    file: ModulePath,
    /// The inline modules around the current token, each with the depth of its braces.
    inline: Vec<(String, usize)>,
    module: Module,
}

impl Reader<'_> {
    fn read(&mut self) {
        let mut depth = 0;
        while let Some(token) = self.code.get(self.at) {
            let is_path = self.text(1) == "::";
            match (token.kind, token.text) {
                (Kind::Punctuation, "{") => depth += 1,
                (Kind::Punctuation, "}") => {
                    depth -= 1;
                    if self.inline.last().is_some_and(|(_, opened)| *opened == depth) {
                        self.inline.pop();
                    }
                }
                // `pub(super)`, `pub(in crate::a)`: a visibility, no import.
                (Kind::Identifier, "pub") if self.text(1) == "(" => {
                    while !matches!(self.text(0), ")" | "") {
                        self.at += 1;
                    }
                }
                (Kind::Identifier, "mod") if self.text(2) == "{" => {
                    self.inline.push((self.text(1).to_owned(), depth));
                    // The brace is read next.
                    self.at += 1;
                }
                (Kind::Identifier, "mod") if self.text(2) == ";" && self.inline.is_empty() => {
                    self.module.children.insert(self.text(1).to_owned());
                }
                (Kind::Identifier, "use") if self.text(1) != "<" => {
                    self.at += 1;
                    self.tree(Vec::new());
                }
                (Kind::Identifier, "crate" | "super" | "self") if is_path => self.inline_path(),
                _ => {}
            }
            self.at += 1;
        }
    }

    fn text(&self, offset: usize) -> &str {
        self.code.get(self.at + offset).map_or("", |token| token.text)
    }

    /// Reads a use tree from the current token to before the `;`, `,` or `}` after it.
    fn tree(&mut self, mut path: Vec<String>) {
        let line = self.code.get(self.at).map_or(0, |token| token.line);
        loop {
            match self.text(0) {
                "" => return,
                "{" => {
                    self.at += 1;
                    while !matches!(self.text(0), "}" | "") {
                        self.tree(path.clone());
                        if self.text(0) == "," {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "::" => self.at += 1,
                "*" => {
                    self.at += 1;
                    self.mention(&path, line, None);
                }
                ";" | "," | "}" => return,
                "as" => {
                    let name = self.text(1).to_owned();
                    self.at += 2;
                    self.mention(&path, line, Some(name));
                    return;
                }
                segment => {
                    // `self` at the end of a tree stands for the path before it.
                    let is_same = segment == "self" && !path.is_empty();
                    if !is_same {
                        path.push(segment.to_owned());
                    }
                    self.at += 1;
                    if matches!(self.text(0), ";" | "," | "}") {
                        let name = path.last().cloned();
                        self.mention(&path, line, name);
                        return;
                    }
                }
            }
        }
    }

    /// Reads `crate::a::b`, `super::a` or `self::a` inside code.
    fn inline_path(&mut self) {
        let line = self.code[self.at].line;
        let mut path = vec![self.text(0).to_owned()];
        while self.text(1) == "::" && self.code.get(self.at + 2).is_some_and(|t| t.kind == Kind::Identifier) {
            path.push(self.text(2).to_owned());
            self.at += 2;
        }
        self.mention(&path, line, None);
    }

    /// Adds a path as it is written; `name` is what it binds in the module of the file.
    fn mention(&mut self, written: &[String], line: usize, name: Option<String>) {
        let Some(path) = self.absolute(written) else { return };
        if let Some(name) = name
            && self.inline.is_empty()
        {
            self.module.bindings.insert(name, path.clone());
        }
        self.module.mentions.push((path, line));
    }

    /// The path from the root of the crate. A path that begins with another name may lead to a child or to another crate:
    /// both begin below the current module, where only a child is found.
    fn absolute(&self, written: &[String]) -> Option<Vec<String>> {
        let mut here: Vec<String> = self.file.clone();
        here.extend(self.inline.iter().map(|(name, _)| name.clone()));
        let mut rest = written;
        match rest.first()?.as_str() {
            "crate" => {
                here.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            _ => {}
        }
        while rest.first().is_some_and(|segment| segment == "super") {
            here.pop();
            rest = &rest[1..];
        }
        // A binding to itself, such as `use serde;`, is another crate.
        here.extend(rest.iter().cloned());
        Some(here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::default();
        for (file, text) in files {
            graph.add(file, text);
        }
        graph.remove_undeclared();
        graph
    }

    #[test]
    fn a_circle_between_folders_is_found() {
        for (a, b) in [
            ("use crate::b::B;", "use crate::a::x::A;"),
            ("use super::super::b;", "fn f() { crate::a::x::f() }"),
            ("use crate::{c::C, b::{self as bee, D}};", "pub(crate) use crate::a::x as y;"),
            ("fn f() -> Vec<crate::b::B> {}", "macro_rules! m { () => { $crate::a::x::f() } }"),
            // Through names that the root re-exports.
            ("use crate::B;", "use crate::A;"),
        ] {
            let root = "mod a; mod b; pub use a::x::A; pub use b::B;";
            let graph = graph(&[("lib.rs", root), ("a/mod.rs", "mod x;"), ("a/x.rs", a), ("b.rs", b)]);
            assert_eq!(graph.circles(), ["circle: a/x:1 imports b; b:1 imports a::x"], "{a} {b}");
        }
    }

    #[test]
    fn a_circle_between_files_of_a_folder_is_found() {
        let graph = graph(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "mod x; mod y; mod z; pub use x::X; use y::Y;"),
            ("a/x.rs", "use super::Y;"),
            ("a/y.rs", "use super::z::Z;"),
            ("a/z.rs", "\n\nuse super::X;"),
        ]);
        let expected = "circle: a/x:1 imports a::y; a/y:1 imports a::z; a/z:3 imports a::x";
        assert_eq!(graph.circles(), [expected]);
    }

    #[test]
    fn parents_children_tests_visibility_and_other_crates_make_no_circle() {
        let graph = graph(&[
            ("lib.rs", "mod a; mod b; struct Root; use a::A; #[cfg(any(test, fuzzing))] mod fuzzing;"),
            ("fuzzing/mod.rs", "mod x; use crate::a; pub struct F;"),
            ("fuzzing/x.rs", "use crate::fuzzing::y;"),
            ("a/mod.rs", "mod x; pub use x::A; use crate::Root; use crate::fuzzing::F;"),
            ("a/x.rs", "use super::B; use crate::b::B; pub(in crate::b) fn f() {} use b::serde;"),
            (
                "b.rs",
                "#[cfg(test)] mod tests { use crate::a::A; } pub(super) fn g() {} // crate::a::A\nuse a::b;",
            ),
        ]);
        assert_eq!(graph.circles(), [""; 0]);
        let edges: Vec<String> =
            graph.edges().keys().map(|(from, to)| format!("{}>{}", from.join("/"), to.join("/"))).collect();
        assert_eq!(edges, [">a/x", "a>", "a>a/x", "a/x>a", "a/x>b"]);
    }

    #[test]
    fn super_in_an_inline_module_is_the_file() {
        let graph = graph(&[
            ("lib.rs", "mod a; mod b;"),
            ("a.rs", "mod inner { use super::X; use super::super::b::B; } use super::b::C;"),
            ("b.rs", ""),
        ]);
        let edges: Vec<String> =
            graph.edges().keys().map(|(from, to)| format!("{}>{}", from.join("/"), to.join("/"))).collect();
        assert_eq!(edges, ["a>b"]);
    }

    #[test]
    fn an_import_against_the_layers_is_found() {
        let graph = graph(&[
            ("lib.rs", "mod top; mod middle; mod bottom; mod other;"),
            ("top.rs", "use crate::bottom::B;"),
            ("middle/mod.rs", "mod x; use crate::bottom::C;"),
            ("middle/x.rs", "fn f() {\n    crate::top::g()\n}"),
            ("bottom.rs", "use crate::other::O;"),
            ("other.rs", ""),
        ]);
        assert_eq!(
            graph.against(&["top", "middle", "bottom"]),
            ["other is not in the table of layers", "upwards: middle/x:2 imports top"]
        );
        assert_eq!(graph.circles(), [""; 0]);
    }
}
