//! Costs of functions, by the sizes of their operands.

use super::size::{CostEstimate, Size};
use crate::limits::{LIST_CREATE_COST, REGEX_FACTOR, STRING_FACTOR};
use crate::syntax::{ExprId, Literal};
use crate::types::Type;

/// Cost of an authorization check: two of them fit in an expression.
const AUTHORIZATION_COST: u64 = 350_000;

/// Length of the patterns of named formats in an estimate.
const NAMED_FORMAT_PATTERN: f64 = 128.0;

/// Maximum length of the name of a named format.
const MAX_FORMAT_NAME: u64 = 64;

/// Kubernetes' cost of a selector: a list, and per two characters a requirement with its list of values.
const COST_PER_REQUIREMENT: f64 = (LIST_CREATE_COST + 40) as f64;

/// An operand of a call.
pub(super) struct Operand<'c> {
    pub(super) id: ExprId,
    pub(super) size: Option<Size>,
    /// The declared size of its items, if it comes from a declaration.
    pub(super) element_size: Option<Size>,
    pub(super) type_: &'c Type,
    pub(super) literal: Option<&'c Literal>,
}

impl Operand<'_> {
    pub(super) fn size_or_unknown(&self) -> Size {
        self.size.unwrap_or(Size::UNKNOWN)
    }

    /// The value of an integer literal; negative ones count as 0.
    fn integer_or(&self, default: u64) -> u64 {
        match self.literal {
            Some(Literal::Int(value)) => u64::try_from(*value).unwrap_or(0),
            _ => default,
        }
    }

    /// The type of the items of a list; of a map, that of its keys.
    fn element_type(&self) -> Option<&Type> {
        match self.type_ {
            Type::List(element) => Some(element),
            Type::Map(types) => Some(&types.0),
            Type::Opaque(_, parameters) => parameters.first(),
            Type::Type(parameter) => parameter.as_deref(),
            _ => None,
        }
    }
}

/// The cost of a call without that of its operands.
pub(super) struct CallEstimate {
    pub(super) cost: CostEstimate,
    pub(super) result_size: Option<Size>,
}

fn cost(cost: CostEstimate) -> CallEstimate {
    CallEstimate { cost, result_size: None }
}

fn sized(cost: CostEstimate, size: Size) -> CallEstimate {
    CallEstimate { cost, result_size: Some(size) }
}

/// The cost of an overload.
pub(super) fn call_estimate(
    function: &str,
    overload: &str,
    target: Option<&Operand<'_>>,
    arguments: &[Operand<'_>],
) -> CallEstimate {
    extension(overload, target, arguments)
        .or_else(|| kubernetes(function, overload, target, arguments))
        .or_else(|| standard(overload, target, arguments))
        .unwrap_or_else(|| cost(CostEstimate::fixed(1)))
}

/// Lists of version 3, and sets.
fn extension(
    overload: &str,
    target: Option<&Operand<'_>>,
    arguments: &[Operand<'_>],
) -> Option<CallEstimate> {
    let allocating = |factor: f64, size: Size| {
        sized(size.scale(factor).add(CostEstimate::fixed(1 + LIST_CREATE_COST)), size)
    };
    let sorted = |operand: &Operand<'_>| {
        let size = operand.size_or_unknown();
        let is_text = overload.starts_with("list_string") || overload.starts_with("list_bytes");
        allocating(if is_text { 2.0 + STRING_FACTOR } else { 2.0 }, size.multiply(size))
    };
    Some(match (overload, target, arguments) {
        ("list_slice", Some(target), [start, end]) => {
            let end = end.integer_or(target.size_or_unknown().max);
            allocating(1.0, Size::fixed(end.wrapping_sub(start.integer_or(0))))
        }
        ("list_flatten", Some(target), []) => allocating(1.0, target.size_or_unknown()),
        ("list_flatten_int", Some(target), [depth]) => {
            allocating(depth.integer_or(u64::MAX) as f64, target.size_or_unknown())
        }
        ("lists_range", None, [size]) => allocating(1.0, Size::fixed(size.integer_or(u64::MAX))),
        ("list_reverse", Some(target), []) => allocating(1.0, target.size_or_unknown()),
        ("list_distinct", Some(target), []) => {
            let size = target.size_or_unknown();
            allocating(2.0, size.multiply(size))
        }
        ("list_sets_contains_list" | "list_sets_intersects_list", _, [left, right]) => {
            let product = left.size_or_unknown().multiply(right.size_or_unknown());
            cost(product.scale(1.0).add(CostEstimate::fixed(1)))
        }
        ("list_sets_equivalent_list", _, [left, right]) => {
            let product = left.size_or_unknown().multiply(right.size_or_unknown());
            cost(product.scale(2.0).add(CostEstimate::fixed(1)))
        }
        (sort, Some(target), []) if sort.starts_with("list_") && sort.ends_with("_sort") => sorted(target),
        (sort, Some(_), [keys]) if sort.ends_with("_sortByAssociatedKeys") => sorted(keys),
        _ => return None,
    })
}

/// The functions that Kubernetes estimates itself.
fn kubernetes(
    function: &str,
    overload: &str,
    target: Option<&Operand<'_>>,
    arguments: &[Operand<'_>],
) -> Option<CallEstimate> {
    let first = arguments.first();
    let traversal = |operand: &Operand<'_>| operand.size_or_unknown().scale(STRING_FACTOR);
    Some(match function {
        "check" => cost(CostEstimate::fixed(AUTHORIZATION_COST)),
        "fieldSelector" | "labelSelector" => cost(selector_cost(first?.size_or_unknown())),
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => cost(search_cost(target?)),
        "url" => sized(traversal(first?), first?.size_or_unknown()),
        "lowerAscii" | "upperAscii" | "substring" | "trim" => {
            sized(traversal(target?), target?.size_or_unknown())
        }
        "replace" => {
            let [old, new, ..] = arguments else {
                return None;
            };
            let size = target?.size_or_unknown();
            let result = replaced_size(size, old.size_or_unknown(), new.size_or_unknown());
            sized(size.scale(2.0 * STRING_FACTOR), result)
        }
        "split" => {
            let size = target?.size_or_unknown();
            let max = match arguments.get(1).and_then(|limit| limit.literal) {
                Some(Literal::Int(limit)) => *limit as u64,
                _ => size.max,
            };
            sized(size.scale(2.0 * STRING_FACTOR), Size { min: 0, max })
        }
        "join" => {
            let size = joined_size(target?, first);
            sized(size.scale(STRING_FACTOR), size)
        }
        "find" | "findAll" => {
            let size = target?.size_or_unknown();
            let text = size.add(Size::fixed(1)).scale(STRING_FACTOR);
            let pattern = first?.size_or_unknown().scale(REGEX_FACTOR);
            sized(text.multiply(pattern), Size { min: 0, max: size.max })
        }
        "ip" if overload == "cidr_ip" => cost(CostEstimate::fixed(1)),
        "cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
            cost(traversal(first?))
        }
        "ip.isCanonical" => cost(first?.size_or_unknown().scale(2.0 * STRING_FACTOR)),
        "containsIP" | "containsCIDR" => cost(containment_cost(function, overload, first?)),
        "validate" => cost(traversal(first?).scale(NAMED_FORMAT_PATTERN * REGEX_FACTOR)),
        "serviceAccount"
        | "path"
        | "group"
        | "resource"
        | "subresource"
        | "namespace"
        | "name"
        | "allowed"
        | "reason"
        | "error"
        | "errored"
        | "masked"
        | "prefixLength"
        | "family"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast"
        | "format.named"
        | "sign"
        | "asInteger"
        | "isInteger"
        | "asApproximateFloat"
        | "isGreaterThan"
        | "isLessThan"
        | "compareTo"
        | "add"
        | "sub"
        | "major"
        | "minor"
        | "patch"
        | "getScheme"
        | "getHostname"
        | "getHost"
        | "getPort"
        | "getEscapedPath"
        | "getQuery" => cost(CostEstimate::fixed(1)),
        "_==_" => return equality_of_extensions(arguments),
        _ => return None,
    })
}

fn selector_cost(size: Size) -> CostEstimate {
    let requirements = size.scale(0.5).scale(COST_PER_REQUIREMENT);
    CostEstimate::fixed(LIST_CREATE_COST).add(size.scale(STRING_FACTOR)).add(requirements)
}

/// Comparison of each item of a list, or a look at each character of a string.
fn search_cost(target: &Operand<'_>) -> CostEstimate {
    let Some(element) = target.element_type() else {
        return target.size_or_unknown().scale(STRING_FACTOR);
    };
    let mut item = CostEstimate::fixed(1);
    if matches!(element, Type::String | Type::Bytes) {
        item = item.add(target.element_size.unwrap_or(Size::UNKNOWN).scale(STRING_FACTOR));
    }
    target.size_or_unknown().multiply(item)
}

/// The size of a text in which `old` is replaced as often as it may occur.
fn replaced_size(size: Size, old: Size, new: Size) -> Size {
    let times = |size: u64, length: u64| (size as f64 / length as f64).ceil() as u64;
    let (max_count, max_rest) = if old.min == 0 {
        (size.max.saturating_add(1), size.max)
    } else if new.max <= old.min {
        (0, size.max)
    } else {
        (times(size.max, old.min), 0)
    };
    let (min_count, min_rest) = if old.max == 0 {
        (size.min.saturating_add(1), size.min)
    } else if old.max <= new.min {
        (0, size.min)
    } else {
        (times(size.min, old.max), 0)
    };
    Size { min: min_count, max: max_count }.multiply(new).add(Size { min: min_rest, max: max_rest })
}

fn joined_size(target: &Operand<'_>, separator: Option<&Operand<'_>>) -> Size {
    let list = target.size_or_unknown();
    let mut size = match target.element_type() {
        Some(_) => list.multiply(target.element_size.unwrap_or(Size::UNKNOWN)),
        None => Size::default(),
    };
    if let Some(separator) = separator {
        let count = Size { min: list.min.saturating_sub(1), max: list.max.saturating_sub(1) };
        size = size.add(separator.size_or_unknown().multiply(count));
    }
    size
}

/// Comparison of the bytes of two addresses, and for networks the masking of one of them.
fn containment_cost(function: &str, overload: &str, other: &Operand<'_>) -> CostEstimate {
    let address = Size { min: 4, max: 16 };
    let mut cost = address.add(address).scale(STRING_FACTOR);
    if function == "containsCIDR" {
        cost = cost.add(address.scale(STRING_FACTOR)).add(CostEstimate::fixed(1));
    }
    if matches!(overload, "cidr_contains_ip_string" | "cidr_contains_cidr_string") {
        cost = cost.add(other.size_or_unknown().scale(STRING_FACTOR));
    }
    cost
}

fn equality_of_extensions(arguments: &[Operand<'_>]) -> Option<CallEstimate> {
    let [left, right] = arguments else {
        return None;
    };
    if left.type_ != right.type_ {
        return None;
    }
    let name = match left.type_ {
        Type::Object(name) => &**name,
        Type::Opaque(name, parameters) if parameters.is_empty() => &**name,
        _ => return None,
    };
    Some(cost(match name {
        "net.IP" | "net.CIDR" | "kubernetes.Quantity" | "kubernetes.Semver" => CostEstimate::fixed(1),
        "kubernetes.NamedFormat" => Size { min: 1, max: MAX_FORMAT_NAME }.scale(STRING_FACTOR),
        "kubernetes.URL" => {
            // The size of the right operand is taken for both, as in Kubernetes.
            let max = right.size.map_or(1, |size| size.max);
            Size { min: 1, max }.scale(STRING_FACTOR)
        }
        name if name.starts_with("kubernetes.authorization.") => CostEstimate::fixed(1),
        _ => return None,
    }))
}

/// The standard functions whose cost depends on sizes.
fn standard(overload: &str, target: Option<&Operand<'_>>, arguments: &[Operand<'_>]) -> Option<CallEstimate> {
    let size = |index: usize| arguments.get(index).map(Operand::size_or_unknown);
    Some(match (overload, target, arguments) {
        ("string_format", Some(target), _) => cost(target.size_or_unknown().scale(STRING_FACTOR)),
        ("string_to_bytes", _, [text]) => {
            let size = text.size_or_unknown();
            // Kubernetes' product may overflow; it then wraps around.
            sized(size.scale(STRING_FACTOR), Size { min: size.min, max: size.max.wrapping_mul(4) })
        }
        ("bytes_to_string", _, [bytes]) => {
            let size = bytes.size_or_unknown();
            sized(size.scale(STRING_FACTOR), Size { min: size.min / 4, max: size.max })
        }
        ("strings_quote", _, [text]) => {
            let size = text.size_or_unknown();
            let max = size.max.wrapping_mul(2).wrapping_add(2);
            sized(size.scale(STRING_FACTOR), Size { min: size.min.wrapping_add(2), max })
        }
        ("starts_with_string" | "ends_with_string", _, [part]) => {
            cost(part.size_or_unknown().scale(STRING_FACTOR))
        }
        ("in_list", _, [_, list]) => cost(list.size_or_unknown().scale(1.0)),
        ("matches_string", Some(text), [pattern]) | ("matches", None, [text, pattern]) => {
            let text = text.size_or_unknown().add(Size::fixed(1)).scale(STRING_FACTOR);
            cost(text.multiply(pattern.size_or_unknown().scale(REGEX_FACTOR)))
        }
        ("contains_string", Some(text), [part]) => {
            let text = text.size_or_unknown().scale(STRING_FACTOR);
            cost(text.multiply(part.size_or_unknown().scale(STRING_FACTOR)))
        }
        ("add_list", _, [left, right]) => {
            sized(CostEstimate::fixed(1), left.size_or_unknown().add(right.size_or_unknown()))
        }
        ("add_string" | "add_bytes", _, [left, right]) => {
            let size = left.size_or_unknown().add(right.size_or_unknown());
            sized(size.scale(STRING_FACTOR), size)
        }
        (comparison, _, [_, _]) if is_sized_comparison(comparison) => {
            let max = size(0)?.max.min(size(1)?.max);
            cost(CostEstimate { min: u64::from(max > 0), max }.scale(STRING_FACTOR))
        }
        _ => return None,
    })
}

/// Whether the cost of a comparison depends on the smaller operand.
pub(crate) fn is_sized_comparison(overload: &str) -> bool {
    matches!(
        overload,
        "equals"
            | "not_equals"
            | "less_string"
            | "less_bytes"
            | "less_equals_string"
            | "less_equals_bytes"
            | "greater_string"
            | "greater_bytes"
            | "greater_equals_string"
            | "greater_equals_bytes"
    )
}
