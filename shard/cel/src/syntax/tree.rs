//! The syntax tree: nodes in one vector, with numbers as references. Copying and dropping need no recursion.

use std::sync::Arc;

use crate::limits::MAX_NODES;

/// The accumulator of macros. Its name cannot be written in an expression.
pub(crate) const ACCUMULATOR: &str = "@result";

/// A node, by its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExprId(u32);

impl ExprId {
    pub(crate) fn at(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(0))
    }

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A constant of the source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    Bytes(Arc<[u8]>),
}

/// A node of the tree.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Literal(Literal),
    Ident(Arc<str>),
    Select {
        operand: ExprId,
        field: Arc<str>,
        /// Whether this is the argument of `has()`.
        is_test: bool,
    },
    Call {
        function: Arc<str>,
        target: Option<ExprId>,
        arguments: Vec<ExprId>,
    },
    List {
        elements: Vec<ExprId>,
        /// Whether the element of the same index is marked with `?`.
        optional: Vec<bool>,
    },
    Map(Vec<MapEntry>),
    Struct {
        name: Arc<str>,
        fields: Vec<StructField>,
    },
    Comprehension(Box<Comprehension>),
    /// The place of a syntax error.
    Broken,
}

/// A field of `Name{field: value}`.
#[derive(Clone, Debug)]
pub(crate) struct StructField {
    pub(crate) name: Arc<str>,
    pub(crate) value: ExprId,
    pub(crate) is_optional: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: ExprId,
    pub(crate) value: ExprId,
    pub(crate) is_optional: bool,
}

/// A loop, made by a macro.
#[derive(Clone, Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: ExprId,
    pub(crate) variable: Arc<str>,
    /// With two variables, the first is the index or key and the second the value.
    pub(crate) second_variable: Option<Arc<str>>,
    pub(crate) accumulator: Arc<str>,
    pub(crate) initial: ExprId,
    pub(crate) condition: ExprId,
    pub(crate) step: ExprId,
    pub(crate) result: ExprId,
}

/// A syntax tree.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<(Expr, usize)>,
    pub(crate) root: ExprId,
}

impl Tree {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), root: ExprId(0) }
    }

    /// Adds a node that is reported at an offset of the source. Beyond the limit all nodes are the first one; the parser
    /// then reports an error.
    pub(crate) fn add(&mut self, expr: Expr, offset: usize) -> ExprId {
        if self.is_full() {
            return ExprId(0);
        }
        let id = ExprId::at(self.nodes.len());
        self.nodes.push((expr, offset));
        id
    }

    pub(crate) fn is_full(&self) -> bool {
        self.nodes.len() >= MAX_NODES
    }

    /// All nodes.
    pub(crate) fn ids(&self) -> impl Iterator<Item = ExprId> + use<> {
        (0..self.nodes.len()).map(ExprId::at)
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn get(&self, id: ExprId) -> &Expr {
        self.nodes.get(id.index()).map_or(&Expr::Broken, |(expr, _)| expr)
    }

    pub(crate) fn offset(&self, id: ExprId) -> usize {
        self.nodes.get(id.index()).map_or(0, |(_, offset)| *offset)
    }

    pub(crate) fn literal(&self, id: ExprId) -> Option<&Literal> {
        match self.get(id) {
            Expr::Literal(literal) => Some(literal),
            _ => None,
        }
    }

    /// The nodes directly below a node.
    pub(crate) fn children(&self, id: ExprId) -> Vec<ExprId> {
        match self.get(id) {
            Expr::Literal(_) | Expr::Ident(_) | Expr::Broken => Vec::new(),
            Expr::Select { operand, .. } => vec![*operand],
            Expr::Call { target, arguments, .. } => target.iter().chain(arguments).copied().collect(),
            Expr::List { elements, .. } => elements.clone(),
            Expr::Map(entries) => entries.iter().flat_map(|entry| [entry.key, entry.value]).collect(),
            Expr::Struct { fields, .. } => fields.iter().map(|field| field.value).collect(),
            Expr::Comprehension(c) => vec![c.range, c.initial, c.condition, c.step, c.result],
        }
    }

    /// Copies a node with all below it. Nodes are only added, so every node is behind its children.
    pub(crate) fn copy(&mut self, id: ExprId) -> ExprId {
        let mut expr = self.get(id).clone();
        let offset = self.offset(id);
        if self.is_full() {
            return ExprId(0);
        }
        match &mut expr {
            Expr::Literal(_) | Expr::Ident(_) | Expr::Broken => {}
            Expr::Select { operand, .. } => *operand = self.copy(*operand),
            Expr::Call { target, arguments, .. } => {
                for child in target.iter_mut().chain(arguments) {
                    *child = self.copy(*child);
                }
            }
            Expr::List { elements, .. } => {
                for child in elements {
                    *child = self.copy(*child);
                }
            }
            Expr::Struct { fields, .. } => {
                for field in fields {
                    field.value = self.copy(field.value);
                }
            }
            Expr::Map(entries) => {
                for entry in entries {
                    entry.key = self.copy(entry.key);
                    entry.value = self.copy(entry.value);
                }
            }
            Expr::Comprehension(c) => {
                for child in [&mut c.range, &mut c.initial, &mut c.condition, &mut c.step, &mut c.result] {
                    *child = self.copy(*child);
                }
            }
        }
        self.add(expr, offset)
    }

    /// The length of the longest path from the root. Every node is behind its children, so one pass suffices.
    pub(crate) fn depth(&self) -> usize {
        let mut depths = vec![0_usize; self.nodes.len()];
        for index in 0..self.nodes.len() {
            let id = ExprId::at(index);
            let below = self.children(id).iter().filter_map(|child| depths.get(child.index()).copied()).max();
            if let Some(depth) = depths.get_mut(index) {
                *depth = below.unwrap_or(0) + 1;
            }
        }
        depths.get(self.root.index()).copied().unwrap_or(0)
    }
}
