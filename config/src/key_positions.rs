//! Positions of the keys of a YAML text.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::check::join;

/// Line and column of each value, by the path of its key.
#[derive(Debug, Default)]
pub(crate) struct KeyPositions(BTreeMap<String, (u64, u64)>);

impl KeyPositions {
    /// The positions in a text; none if it is not YAML.
    pub(crate) fn of(text: &str) -> Self {
        let mut positions = Self::default();
        if let Ok(root) = serde_saphyr::from_str::<Spanned<Node>>(text) {
            positions.add("", &root);
        }
        positions
    }

    /// The position of a key, or of its nearest ancestor in the text.
    pub(crate) fn place(&self, key: &str) -> Option<(u64, u64)> {
        let mut key = key;
        loop {
            if let Some(place) = self.0.get(key) {
                return Some(*place);
            }
            key = &key[..key.rfind(['.', '['])?];
        }
    }

    fn add(&mut self, path: &str, node: &Spanned<Node>) {
        if !path.is_empty() {
            self.0.insert(path.to_owned(), (node.referenced.line(), node.referenced.column()));
        }
        match &node.value {
            Node::Scalar => {}
            Node::List(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.add(&format!("{path}[{index}]"), element);
                }
            }
            Node::Map(entries) => {
                for (key, value) in entries {
                    self.add(&join(path, key), value);
                }
            }
        }
    }
}

#[derive(Debug)]
enum Node {
    Scalar,
    List(Vec<Spanned<Node>>),
    Map(Vec<(String, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

macro_rules! scalars {
    ($($method:ident: $type:ty),*) => {$(
        fn $method<E>(self, _: $type) -> Result<Node, E> {
            Ok(Node::Scalar)
        }
    )*};
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
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

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Node::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            entries.push((key, map.next_value()?));
        }
        Ok(Node::Map(entries))
    }
}
