//! Sets of fields, as trees of path elements.

use core::cmp::Ordering;

use super::PathElement;

/// A set of fields. A field in the set does not imply the fields below or above it.
///
/// Operations cost one pass over the nodes that both sets have in common; the rest is moved.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldSet {
    /// Sorted by element. Each node is a member or has members below it.
    nodes: Vec<FieldNode>,
}

/// A field in a set, or on the way to one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct FieldNode {
    pub(crate) element: PathElement,
    /// Whether the field itself is in the set.
    pub(crate) is_member: bool,
    /// The fields below it.
    pub(crate) children: FieldSet,
}

impl FieldSet {
    /// A set of fields of objects, each as its names from the root.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a field. The root of the object is never in a set.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let index = match self.find(first) {
            Ok(index) => index,
            Err(index) => {
                let node = FieldNode { element: first.clone(), is_member: false, children: Self::default() };
                self.nodes.insert(index, node);
                index
            }
        };
        if rest.is_empty() {
            self.nodes[index].is_member = true;
        } else {
            self.nodes[index].children.insert(rest);
        }
    }

    /// Appends a node behind all others, unless it is empty. The caller adds nodes in their order; other nodes are
    /// sorted in.
    pub(crate) fn push(&mut self, element: PathElement, is_member: bool, children: Self) {
        if !is_member && children.is_empty() {
            return;
        }
        if self.nodes.last().is_none_or(|last| last.element < element) {
            self.nodes.push(FieldNode { element, is_member, children });
            return;
        }
        match self.find(&element) {
            Ok(index) => {
                let node = &mut self.nodes[index];
                node.is_member |= is_member;
                node.children = core::mem::take(&mut node.children).union(children);
            }
            Err(index) => self.nodes.insert(index, FieldNode { element, is_member, children }),
        }
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether a field is in the set.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.node(last).is_some_and(|node| node.is_member),
            [first, rest @ ..] => self.node(first).is_some_and(|node| node.children.contains(rest)),
        }
    }

    pub(crate) fn nodes(&self) -> &[FieldNode] {
        &self.nodes
    }

    pub(crate) fn into_nodes(self) -> Vec<FieldNode> {
        self.nodes
    }

    /// The node of a field below the root.
    pub(crate) fn node(&self, element: &PathElement) -> Option<&FieldNode> {
        self.find(element).ok().map(|index| &self.nodes[index])
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// The fields of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut others = other.nodes.into_iter().peekable();
        for mut node in self.nodes {
            while let Some(earlier) = others.next_if(|other| other.element < node.element) {
                nodes.push(earlier);
            }
            if let Some(same) = others.next_if(|other| other.element == node.element) {
                node.is_member |= same.is_member;
                node.children = node.children.union(same.children);
            }
            nodes.push(node);
        }
        nodes.extend(others);
        Self { nodes }
    }

    /// The fields of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut common = Self::default();
        self.for_common(other, |node, same| {
            common.push(
                node.element.clone(),
                node.is_member && same.is_member,
                node.children.intersection(&same.children),
            );
        });
        common
    }

    /// Whether the sets have a field in common.
    pub fn intersects(&self, other: &Self) -> bool {
        let mut found = false;
        self.for_common(other, |node, same| {
            found = found || (node.is_member && same.is_member) || node.children.intersects(&same.children);
        });
        found
    }

    fn for_common<'s>(&'s self, other: &'s Self, mut visit: impl FnMut(&'s FieldNode, &'s FieldNode)) {
        let (mut own, mut others) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        while let (Some(node), Some(same)) = (own.peek(), others.peek()) {
            match node.element.cmp(&same.element) {
                Ordering::Less => drop(own.next()),
                Ordering::Greater => drop(others.next()),
                Ordering::Equal => {
                    visit(node, same);
                    own.next();
                    others.next();
                }
            }
        }
    }

    /// The fields of this set that are not in the other one. A field below one of the other set stays.
    #[must_use]
    pub fn difference(self, other: &Self) -> Self {
        self.without(other, false)
    }

    /// The fields of this set that are neither in the other one nor below one of its fields.
    #[must_use]
    pub fn difference_with_children(self, other: &Self) -> Self {
        self.without(other, true)
    }

    fn without(mut self, other: &Self, with_children: bool) -> Self {
        if other.is_empty() {
            return self;
        }
        let mut others = other.nodes.iter().peekable();
        self.nodes.retain_mut(|node| {
            while others.next_if(|other| other.element < node.element).is_some() {}
            let Some(same) = others.next_if(|other| other.element == node.element) else { return true };
            if with_children && same.is_member {
                return false;
            }
            node.is_member &= !same.is_member;
            node.children = core::mem::take(&mut node.children).without(&same.children, with_children);
            node.is_member || !node.children.is_empty()
        });
        self
    }

    /// Whether all fields of this set are in the other one.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.nodes.iter().all(|node| {
            other.node(&node.element).is_some_and(|same| {
                (!node.is_member || same.is_member) && node.children.is_subset(&same.children)
            })
        })
    }

    /// Visits the paths of all fields: those of a level before those below them, as Kubernetes lists conflicts.
    pub fn for_each_path(&self, visit: &mut dyn FnMut(&[PathElement])) {
        self.visit_paths(&mut Vec::new(), visit);
    }

    fn visit_paths(&self, path: &mut Vec<PathElement>, visit: &mut dyn FnMut(&[PathElement])) {
        for node in self.nodes.iter().filter(|node| node.is_member) {
            path.push(node.element.clone());
            visit(path);
            path.pop();
        }
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            path.push(node.element.clone());
            node.children.visit_paths(path, visit);
            path.pop();
        }
    }
}

/// Nodes may come in any order, and several times.
impl FromIterator<FieldNode> for FieldSet {
    fn from_iter<I: IntoIterator<Item = FieldNode>>(nodes: I) -> Self {
        let is_used = |node: &FieldNode| node.is_member || !node.children.is_empty();
        let mut nodes: Vec<FieldNode> = nodes.into_iter().filter(is_used).collect();
        if !nodes.is_sorted_by(|one, two| one.element < two.element) {
            nodes.sort_by(|one, two| one.element.cmp(&two.element));
        }
        let mut set = Self { nodes: Vec::with_capacity(nodes.len()) };
        for node in nodes {
            set.push(node.element, node.is_member, node.children);
        }
        set
    }
}

/// The text of a path: `.spec.ports[name="http"]`.
pub fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}
