//! Limits of Kubernetes (`celconfig`, CRD validation, cel-go) and those that only this crate has.

/// Maximum runtime cost of one evaluation of one expression.
pub const PER_CALL_LIMIT: u64 = 1_000_000;

/// Maximum runtime cost of all rules on one object, or of all expressions of one policy binding.
pub const RUNTIME_COST_BUDGET: u64 = 10_000_000;

/// Maximum runtime cost of the match conditions of one webhook or policy binding for one request.
pub const MATCH_CONDITIONS_COST_BUDGET: u64 = 2_500_000;

/// Maximum estimated cost of one rule of a CRD, its cardinality included.
pub const STATIC_COST_LIMIT: u64 = 10_000_000;

/// Maximum estimated cost of all rules of a CRD together.
pub const STATIC_COST_LIMIT_PER_CRD: u64 = 100_000_000;

/// The request size in bytes from which unbounded strings, lists and maps are estimated.
pub const MAX_REQUEST_SIZE: u64 = 3 * 1024 * 1024;

/// Maximum size in bytes of a string that a `messageExpression` may produce.
pub const MAX_MESSAGE_SIZE: usize = 5 * 1024;

/// Maximum length of an expression in code points, as in cel-go.
pub(crate) const MAX_SOURCE_LENGTH: usize = 100_000;

/// Maximum nesting of an expression, as in cel-go.
pub(crate) const MAX_NESTING: usize = 250;

/// Maximum number of nodes after macro expansion. `optMap` copies its target, so a chain of them grows exponentially.
pub(crate) const MAX_NODES: usize = 100_000;

/// Maximum depth of the tree after macro expansion. It bounds the stack of checking, estimating and evaluating.
pub(crate) const MAX_TREE_DEPTH: usize = 512;

/// Maximum number of parts of a type. It bounds time and stack of inference, which reads types as trees.
pub(crate) const MAX_TYPE_SIZE: usize = 300;

/// Maximum number of reported errors of one expression, as in cel-go.
pub(crate) const MAX_REPORTED_ISSUES: usize = 100;

/// Maximum size in bytes of a string or byte sequence that an operation produces. Kubernetes has no such limit:
/// `replace` of an empty string may produce a text of the product of two sizes for the cost of one.
pub(crate) const MAX_TEXT_SIZE: usize = 32 << 20;

/// Maximum number of digits after the point in `format`.
pub(crate) const MAX_FORMAT_PRECISION: usize = 1_000;

/// Comprehension steps between two looks at the clock.
pub(crate) const DEADLINE_CHECK_INTERVAL: u32 = 100;

/// Limits in bytes of a compiled pattern, tried in order; the engine runs in linear time, so the size bounds the work.
pub(crate) const PATTERN_SIZES: [usize; 3] = [16 << 10, 128 << 10, 1 << 20];

/// Maximum work of all matches of patterns on one object, in KiB of pattern times bytes of text; 16 of them take up to
/// 2.5 µs. What Kubernetes charges follows from the length of the source, which may be short.
pub(crate) const MAX_MATCH_WORK: u64 = 5_000_000;

/// Maximum work of one object apart from the cost, the unit being about one nanosecond: looks at values, and values that
/// operations make. Kubernetes charges many operations by less than they do, such as the comparison of nested lists.
pub(crate) const MAX_WORK: u64 = 250_000_000;

/// Work of one operation of an expression.
pub(crate) const NODE_WORK: u64 = 8;

/// Work of a look at one item of a list or map.
pub(crate) const VISIT_WORK: u64 = 16;

/// Work of an item of a new list or map. It bounds the memory: an item takes some 50 bytes.
pub(crate) const ITEM_WORK: u64 = 50;

/// Bytes of a text that are read for one unit.
pub(crate) const READ_BYTES_PER_WORK: u64 = 8;

/// Work of a byte of a new text. It bounds the memory.
pub(crate) const PRODUCED_BYTE_WORK: u64 = 2;

/// Maximum nesting of a value. It bounds the stack of comparing and of dropping it: a chain of macros can nest deeper than
/// any expression.
pub(crate) const MAX_VALUE_DEPTH: u32 = 512;

/// Maximum size of a result as JSON: the bytes of texts, and [`JSON_VALUE_SIZE`] for each value.
pub(crate) const MAX_JSON_SIZE: usize = 8 << 20;
pub(crate) const JSON_VALUE_SIZE: usize = 8;

/// Maximum nesting of a result as JSON. Readers of JSON accept 128 levels.
pub(crate) const MAX_JSON_DEPTH: u32 = 100;

/// Size in bytes of all patterns that one evaluation compiles because they are not constant: a thousand small ones.
pub(crate) const MAX_COMPILED_PATTERNS: usize = 1_000 * PATTERN_SIZES[0];

/// Size in bytes of the constant patterns of an expression, or of all expressions of a definition or policy.
pub(crate) const MAX_CONSTANT_PATTERNS: usize = 32 << 20;

/// Cost of one step of a field path or of reading a variable.
pub(crate) const SELECT_COST: u64 = 1;
pub(crate) const LIST_CREATE_COST: u64 = 10;
pub(crate) const MAP_CREATE_COST: u64 = 30;
pub(crate) const STRUCT_CREATE_COST: u64 = 40;

/// Cost per character of reading a text.
pub(crate) const STRING_FACTOR: f64 = 0.1;
/// Cost per character of a pattern, times the cost of the text that it is matched against.
pub(crate) const REGEX_FACTOR: f64 = 0.25;
