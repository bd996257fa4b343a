//! Environments: what expressions can use, and their compilation.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::check::{CompileError, Declarations, NAMED, NAMED_TYPE, Variable};
use crate::evaluate::Inputs;
use crate::limits::MAX_CONSTANT_PATTERNS;
use crate::plan::NamedPlan;
use crate::program::Program;
use crate::types::Type;

/// The version of Kubernetes whose libraries are the default: that of kcp.
const DEFAULT_MINOR: u32 = 36;

/// The oldest version whose libraries can be selected.
const OLDEST_MINOR: u32 = 29;

/// The declared variables and functions that expressions can use. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Environment {
    declarations: Declarations,
    named: Arc<Vec<NamedPlan>>,
    /// What the constant patterns of all expressions together may take; otherwise each expression has the budget.
    shared_patterns: Option<Arc<AtomicUsize>>,
}

impl Default for Environment {
    fn default() -> Self {
        Self::kubernetes(DEFAULT_MINOR)
    }
}

impl Environment {
    /// The environment of Kubernetes 1.`minor`, without variables. Versions before 1.29 get the libraries of 1.29.
    #[must_use]
    pub fn kubernetes(minor: u32) -> Self {
        Self {
            declarations: Declarations::kubernetes(minor.max(OLDEST_MINOR)),
            named: Arc::default(),
            shared_patterns: None,
        }
    }

    /// Limits the size of the constant patterns of all expressions that this environment and its clones compile: they take
    /// memory as long as their programs exist, and a definition may have thousands of them.
    #[must_use]
    pub fn with_shared_patterns(mut self) -> Self {
        self.shared_patterns = Some(Arc::new(AtomicUsize::new(MAX_CONSTANT_PATTERNS)));
        self
    }

    /// Adds the macro `cel.bind`, which Kubernetes does not have.
    #[must_use]
    pub fn with_bind(mut self) -> Self {
        self.declarations.add_bind();
        self
    }

    /// Adds what mutating policies have: the types `Object` and `JSONPatch`, and `jsonpatch.escapeKey`. `Object.spec{…}`
    /// makes a [`Value::Object`](crate::Value::Object) of any fields.
    #[must_use]
    pub fn with_patch_types(mut self) -> Self {
        self.declarations.add_patch_types();
        self
    }

    /// As [`with_patch_types`](Self::with_patch_types), with the functions of an environment that has them: the table is not
    /// copied.
    #[must_use]
    pub(crate) fn with_patch_types_of(mut self, other: &Self) -> Self {
        self.declarations.share_patch_types(&other.declarations);
        self
    }

    /// Adds an expression that later ones use as `variables.<name>`. It is evaluated at its first use, once per
    /// [`Session`](crate::Session). Variables must be declared before.
    ///
    /// # Errors
    /// If the expression is invalid.
    pub fn with_named_expression(mut self, name: &str, source: &str) -> Result<Self, CompileError> {
        if self.named.is_empty() {
            self.declarations.add_variable(NAMED, Variable::Typed(Type::Object(NAMED_TYPE.into())));
        }
        let program = self.compile(source)?;
        self.declarations.add_named(name, program.output_type().clone());
        let plan = Arc::clone(program.plan());
        Arc::make_mut(&mut self.named).push(NamedPlan { name: name.into(), plan });
        Ok(self)
    }

    /// Hides a variable from expressions that are compiled later. Named expressions may have used it; they fail if it has no
    /// value.
    #[must_use]
    pub fn without_variable(mut self, name: &str) -> Self {
        self.declarations.hide_variable(name);
        self
    }

    /// Declares a variable. A later declaration of the same name replaces the earlier one.
    #[must_use]
    pub fn with_variable(mut self, name: &str, variable: Variable) -> Self {
        self.declarations.add_variable(name, variable);
        self
    }

    /// Checks an expression and prepares it for evaluation.
    ///
    /// # Errors
    /// If the expression is invalid.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let checked = self.declarations.check(source)?;
        let shared = self.shared_patterns.as_deref();
        let mut patterns = shared.map_or(MAX_CONSTANT_PATTERNS, |shared| shared.load(Ordering::Relaxed));
        let program = Program::new(&self.declarations, &self.named, checked, &mut patterns);
        if let Some(shared) = shared {
            shared.store(patterns, Ordering::Relaxed);
        }
        program
    }

    /// The fields that an expression selects of a variable, as in `claims.email`, `has(claims.email)` and
    /// `claims.?email`.
    ///
    /// # Errors
    /// If the expression is invalid.
    pub fn selected_fields(&self, source: &str, variable: &str) -> Result<Vec<Box<str>>, CompileError> {
        let checked = self.declarations.check(source)?;
        Ok(self.declarations.selected_fields(&checked, variable))
    }
}

impl<'a> Inputs<'a> {
    /// A set without values. Variables without a value cannot be read.
    #[must_use]
    pub fn new(environment: &'a Environment) -> Self {
        Self::of(environment.declarations.variable_list())
    }
}
