//! Runtime costs of calls: those of Kubernetes and cel-go, by function and overload.

use crate::estimate::is_sized_comparison;

/// The rule by which a call is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostRule {
    Fixed(u64),
    /// A look at all parts of the first operand.
    Traversal,
    /// The size of the first operand, read this often.
    First {
        times: u8,
    },
    Second,
    /// The size of the result, read twice.
    JoinResult,
    /// The length of the pattern times that of the text.
    Regex,
    /// The product of both texts.
    Contains,
    ContainsIp {
        is_text: bool,
    },
    ContainsCidr {
        is_text: bool,
    },
    Validate,
    Selector,
    /// `==`: values of the Kubernetes library cost one unit.
    Equals,
    /// The smaller operand.
    Smaller,
    /// The number of items of the second operand.
    SecondItems,
    Sum,
    OutputList,
    Flatten,
    /// Comparisons of all items of this operand with each other.
    SelfCompare(u8),
    Sets {
        times: u8,
    },
}

/// Cost of an authorization check.
const AUTHORIZATION_COST: u64 = 350_000;

impl CostRule {
    /// The rule of a call. `overload` is empty if several fit; such calls cost less, as in Kubernetes.
    pub(crate) fn of(function: &str, overload: &str) -> Self {
        extension(overload).or_else(|| kubernetes(function, overload)).unwrap_or_else(|| standard(overload))
    }
}

fn extension(overload: &str) -> Option<CostRule> {
    Some(match overload {
        "list_slice" | "lists_range" | "list_reverse" => CostRule::OutputList,
        "list_flatten" | "list_flatten_int" => CostRule::Flatten,
        "list_distinct" => CostRule::SelfCompare(0),
        "list_sets_contains_list" | "list_sets_intersects_list" => CostRule::Sets { times: 1 },
        "list_sets_equivalent_list" => CostRule::Sets { times: 2 },
        sort if sort.starts_with("list_") && sort.ends_with("_sort") => CostRule::SelfCompare(0),
        sort if sort.ends_with("_sortByAssociatedKeys") => CostRule::SelfCompare(1),
        _ => return None,
    })
}

fn kubernetes(function: &str, overload: &str) -> Option<CostRule> {
    Some(match function {
        "check" => CostRule::Fixed(AUTHORIZATION_COST),
        "fieldSelector" | "labelSelector" => CostRule::Selector,
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => CostRule::Traversal,
        "url"
        | "jsonpatch.escapeKey"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver" => CostRule::First { times: 1 },
        "ip" if overload == "cidr_ip" => CostRule::Fixed(1),
        "ip" => CostRule::First { times: 1 },
        "replace" | "split" | "ip.isCanonical" => CostRule::First { times: 2 },
        "join" => CostRule::JoinResult,
        "find" | "findAll" => CostRule::Regex,
        "containsIP" => CostRule::ContainsIp { is_text: overload == "cidr_contains_ip_string" },
        "containsCIDR" => CostRule::ContainsCidr { is_text: overload == "cidr_contains_cidr_string" },
        "validate" => CostRule::Validate,
        "_==_" => CostRule::Equals,
        _ => return None,
    })
}

fn standard(overload: &str) -> CostRule {
    match overload {
        "starts_with_string" | "ends_with_string" => CostRule::Second,
        "string_to_bytes" | "bytes_to_string" | "strings_quote" | "string_format" => {
            CostRule::First { times: 1 }
        }
        "in_list" => CostRule::SecondItems,
        "add_string" | "add_bytes" => CostRule::Sum,
        "matches" | "matches_string" => CostRule::Regex,
        "contains_string" => CostRule::Contains,
        comparison if is_sized_comparison(comparison) => CostRule::Smaller,
        _ => CostRule::Fixed(1),
    }
}
