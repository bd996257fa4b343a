//! Declarations of functions: the table of all libraries, and what an environment selects from it.

use std::sync::{Arc, LazyLock};

use rustc_hash::FxHashMap;

use crate::types::Type;

/// Declared functions by name.
pub(crate) type Functions = FxHashMap<Arc<str>, Arc<Function>>;

/// A function with its overloads.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: Arc<str>,
    pub(crate) overloads: Vec<Overload>,
}

/// A signature of a function.
#[derive(Debug, Clone)]
pub(crate) struct Overload {
    pub(crate) id: Arc<str>,
    pub(crate) is_method: bool,
    /// Arguments; of a method the first one is its target.
    pub(crate) arguments: Vec<Type>,
    pub(crate) result: Type,
    section: usize,
}

/// The table. A test parses each line, so lines that cannot be parsed are ignored here.
const TABLE: &str = include_str!("functions.txt");

struct Section {
    name: &'static str,
    /// Minor version of Kubernetes 1.x.
    since: u32,
}

struct Table {
    sections: Vec<Section>,
    functions: Vec<Function>,
}

static PARSED: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table { sections: Vec::new(), functions: Vec::new() };
    let mut places: FxHashMap<Arc<str>, usize> = FxHashMap::default();
    for line in TABLE.lines() {
        if let Some(section) = parse_section(line) {
            table.sections.push(section);
        } else if let Some((name, overload)) = parse_overload(line, table.sections.len().saturating_sub(1)) {
            let place = *places.entry(Arc::clone(&name)).or_insert_with(|| {
                table.functions.push(Function { name, overloads: Vec::new() });
                table.functions.len() - 1
            });
            if let Some(function) = table.functions.get_mut(place) {
                function.overloads.push(overload);
            }
        }
    }
    table
});

/// The functions that Kubernetes 1.`minor` declares.
pub(crate) fn functions(minor: u32) -> Functions {
    let is_selected = |overload: &&Overload| {
        PARSED.sections.get(overload.section).is_some_and(|section| section.since <= minor)
    };
    let selected = PARSED.functions.iter().filter_map(|function| {
        let overloads: Vec<Overload> = function.overloads.iter().filter(is_selected).cloned().collect();
        let name = Arc::clone(&function.name);
        (!overloads.is_empty()).then(|| (Arc::clone(&name), Arc::new(Function { name, overloads })))
    });
    selected.collect()
}

/// The functions of one library, whatever its version is.
pub(crate) fn functions_of(library: &str) -> Functions {
    let is_selected = |overload: &&Overload| {
        PARSED.sections.get(overload.section).is_some_and(|section| section.name == library)
    };
    let selected = PARSED.functions.iter().filter_map(|function| {
        let overloads: Vec<Overload> = function.overloads.iter().filter(is_selected).cloned().collect();
        let name = Arc::clone(&function.name);
        (!overloads.is_empty()).then(|| (Arc::clone(&name), Arc::new(Function { name, overloads })))
    });
    selected.collect()
}

/// The types of the arguments of an overload, which libraries of different versions do not change.
pub(crate) fn overload_arguments(id: &str) -> Option<&'static [Type]> {
    let mut overloads = PARSED.functions.iter().flat_map(|function| &function.overloads);
    overloads.find(|overload| *overload.id == *id).map(|overload| overload.arguments.as_slice())
}

/// Whether Kubernetes 1.`minor` has a library.
pub(crate) fn has_library(name: &str, minor: u32) -> bool {
    PARSED.sections.iter().any(|section| section.name == name && section.since <= minor)
}

fn parse_section(line: &'static str) -> Option<Section> {
    let (name, since) = line.strip_prefix('[')?.strip_suffix(']')?.split_once(' ')?;
    Some(Section { name, since: since.parse().ok()? })
}

fn parse_overload(line: &str, section: usize) -> Option<(Arc<str>, Overload)> {
    let (head, rest) = line.split_once(" (")?;
    let mut words = head.split(' ');
    let is_method = match words.next()? {
        "f" => false,
        "m" => true,
        _ => return None,
    };
    let (name, id) = (words.next()?, words.next()?);
    let (arguments, result) = rest.rsplit_once(") ")?;
    let arguments =
        arguments.split(' ').filter(|text| !text.is_empty()).map(parse_type).collect::<Option<_>>()?;
    let overload = Overload { id: id.into(), is_method, arguments, result: parse_type(result)?, section };
    Some((name.into(), overload))
}

fn parse_type(text: &str) -> Option<Type> {
    if let Some((name, parameters)) = text.strip_suffix(')').and_then(|text| text.split_once('(')) {
        return match name {
            "list" => Some(Type::list(parse_type(parameters)?)),
            "type" => Some(Type::Type(Some(parse_type(parameters)?.into()))),
            "optional_type" => Some(Type::optional(parse_type(parameters)?)),
            "map" => {
                let (key, value) = parameters.split_once(',')?;
                Some(Type::map(parse_type(key)?, parse_type(value)?))
            }
            _ => None,
        };
    }
    Some(match text {
        "dyn" => Type::Dyn,
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "net.IP" | "net.CIDR" => Type::Opaque(text.into(), Arc::from([])),
        _ if text.starts_with("kubernetes.") => Type::Object(text.into()),
        _ => {
            let mut characters = text.chars();
            let name = characters.next().filter(char::is_ascii_uppercase)?;
            characters.next().is_none().then_some(Type::Param(name))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_a_section_or_an_overload() {
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            assert!(parse_section(line).is_some() || parse_overload(line, 0).is_some(), "{line}");
        }
    }

    #[test]
    fn libraries_appear_with_their_version() {
        let names = ["semver", "ip", "lists.range", "quantity", "size"];
        let known = |minor: u32| names.map(|name| functions(minor).contains_key(name));
        assert_eq!(known(29), [false, false, false, true, true]);
        assert_eq!(known(33), [true, true, false, true, true]);
        assert_eq!(known(36), [true; 5]);
        assert_eq!(functions(30)["ip"].overloads.len(), 2);
    }
}
