//! Line numbers of the keys of a YAML text.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::Spanned;

/// Lines by the path of their value, e.g. `jwt[0].issuer`.
pub(super) struct YamlLines(BTreeMap<String, u64>);

enum Node {
    Scalar,
    List(Vec<Spanned<Node>>),
    Mapping(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl YamlLines {
    /// The lines of a text; empty if it is not YAML.
    pub(super) fn of(text: &str) -> Self {
        let mut lines = Self(BTreeMap::new());
        if let Ok(root) = serde_saphyr::from_str::<Spanned<Node>>(text) {
            lines.add("", &root.value);
        }
        lines
    }

    /// The line of a value, or of its nearest ancestor.
    pub(super) fn line(&self, mut path: &str) -> Option<u64> {
        loop {
            match self.0.get(path) {
                Some(line) => return Some(*line),
                None => path = &path[..path.rfind(['.', '['])?],
            }
        }
    }

    fn add(&mut self, path: &str, node: &Node) {
        match node {
            Node::Scalar => {}
            Node::List(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.put(format!("{path}[{index}]"), element.referenced.line(), &element.value);
                }
            }
            Node::Mapping(fields) => {
                for (name, value) in fields {
                    let line = name.referenced.line();
                    let name = &name.value;
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    self.put(path, line, &value.value);
                }
            }
        }
    }

    fn put(&mut self, path: String, line: u64, node: &Node) {
        self.add(&path, node);
        self.0.insert(path, line);
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

macro_rules! scalars {
    ($($method:ident($value:ty)),*) => {
        $(fn $method<E>(self, _: $value) -> Result<Node, E> {
            Ok(Node::Scalar)
        })*
    };
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    scalars!(visit_bool(bool), visit_i64(i64), visit_i128(i128), visit_u64(u64), visit_u128(u128));
    scalars!(visit_f64(f64), visit_str(&str), visit_bytes(&[u8]));

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Node, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element()? {
            elements.push(element);
        }
        Ok(Node::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            fields.push((name, map.next_value()?));
        }
        Ok(Node::Mapping(fields))
    }
}
