//! Functions by number, so that no name is compared when an expression is evaluated.

use crate::library::Getter;

macro_rules! functions {
    ($($variant:ident $name:literal,)*) => {
        /// A function that can be called.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Function {
            $($variant,)*
            Time(Getter),
            /// A method of the authorizer, by its name.
            Authorizer,
            /// A named format (`format.dns1123Label()`).
            NamedFormat,
        }

        fn simple(name: &str) -> Option<Function> {
            Some(match name {
                $($name => Function::$variant,)*
                _ => return None,
            })
        }
    };
}

functions! {
    Not "!_", Negate "-_", In "@in", NotStrictlyFalse "@not_strictly_false",
    SortByKeys "@sortByAssociatedKeys", NotEquals "_!=_", Equals "_==_", Modulo "_%_", Multiply "_*_", Add "_+_",
    Subtract "_-_", Divide "_/_", LessEquals "_<=_", Less "_<_", GreaterEquals "_>=_", Greater "_>_",
    QuantityAdd "add", AsApproximateFloat "asApproximateFloat", AsInteger "asInteger", Bool "bool", Bytes "bytes",
    CharAt "charAt", Cidr "cidr", CompareTo "compareTo", Contains "contains", ContainsCidr "containsCIDR",
    ContainsIp "containsIP", Distinct "distinct", Double "double", Duration "duration", Dyn "dyn", EndsWith "endsWith",
    EscapeKey "jsonpatch.escapeKey",
    Family "family", Find "find", FindAll "findAll", First "first", Flatten "flatten", Format "format",
    FormatNamed "format.named", GetEscapedPath "getEscapedPath", GetHost "getHost", GetHostname "getHostname",
    GetPort "getPort", GetQuery "getQuery", GetScheme "getScheme", HasValue "hasValue", IndexOf "indexOf", Int "int",
    Ip "ip", IpIsCanonical "ip.isCanonical", IsCidr "isCIDR", IsGlobalUnicast "isGlobalUnicast",
    IsGreaterThan "isGreaterThan", IsIp "isIP", IsInteger "isInteger", IsLessThan "isLessThan",
    IsLinkLocalMulticast "isLinkLocalMulticast", IsLinkLocalUnicast "isLinkLocalUnicast", IsLoopback "isLoopback",
    IsQuantity "isQuantity", IsSemver "isSemver", IsSorted "isSorted", IsUrl "isURL", IsUnspecified "isUnspecified",
    Join "join", Last "last", LastIndexOf "lastIndexOf", Range "lists.range", LowerAscii "lowerAscii", Major "major",
    Masked "masked", Matches "matches", Max "max", Min "min", Minor "minor", OptionalNone "optional.none",
    OptionalOf "optional.of", OptionalOfNonZero "optional.ofNonZeroValue", OptionalUnwrap "optional.unwrap",
    Patch "patch", PrefixLength "prefixLength", Quantity "quantity", Replace "replace", Reverse "reverse",
    Semver "semver", SetsContains "sets.contains", SetsEquivalent "sets.equivalent", SetsIntersects "sets.intersects",
    Sign "sign", Size "size", Slice "slice", Sort "sort", Split "split", StartsWith "startsWith", String "string",
    Quote "strings.quote", QuantitySub "sub", Substring "substring", Sum "sum", Timestamp "timestamp", Trim "trim",
    Type "type", Uint "uint", UnwrapOpt "unwrapOpt", UpperAscii "upperAscii", Url "url", Validate "validate",
    Value "value",
}

impl Function {
    /// The function of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "getFullYear" => Self::Time(Getter::FullYear),
            "getMonth" => Self::Time(Getter::Month),
            "getDayOfYear" => Self::Time(Getter::DayOfYear),
            "getDayOfMonth" => Self::Time(Getter::DayOfMonth),
            "getDate" => Self::Time(Getter::Date),
            "getDayOfWeek" => Self::Time(Getter::DayOfWeek),
            "getHours" => Self::Time(Getter::Hours),
            "getMinutes" => Self::Time(Getter::Minutes),
            "getSeconds" => Self::Time(Getter::Seconds),
            "getMilliseconds" => Self::Time(Getter::Milliseconds),
            "path" | "serviceAccount" | "group" | "resource" | "subresource" | "namespace" | "name"
            | "check" | "allowed" | "reason" | "errored" | "error" | "fieldSelector" | "labelSelector" => {
                Self::Authorizer
            }
            "format.named" => Self::FormatNamed,
            _ if name.starts_with("format.") => Self::NamedFormat,
            _ => return simple(name),
        })
    }

    /// Whether calls with a constant operand are evaluated once, when the program is made.
    pub(crate) fn is_conversion(self) -> bool {
        matches!(
            self,
            Self::Bool
                | Self::Bytes
                | Self::Double
                | Self::Duration
                | Self::Dyn
                | Self::Int
                | Self::String
                | Self::Timestamp
                | Self::Type
                | Self::Uint
        )
    }

    /// Whether all its overloads are one implementation, which looks at the operands itself.
    pub(crate) fn is_unguarded(self) -> bool {
        matches!(
            self,
            Self::Not
                | Self::Negate
                | Self::In
                | Self::NotStrictlyFalse
                | Self::SortByKeys
                | Self::NotEquals
                | Self::Equals
                | Self::Modulo
                | Self::Multiply
                | Self::Add
                | Self::Subtract
                | Self::Divide
                | Self::LessEquals
                | Self::Less
                | Self::GreaterEquals
                | Self::Greater
                | Self::Size
                | Self::Type
                | Self::Dyn
                | Self::Sort
                | Self::Matches
                | Self::Contains
                | Self::StartsWith
                | Self::EndsWith
                | Self::Flatten
        )
    }

    /// Whether the second operand is a pattern.
    pub(crate) fn has_pattern(self) -> bool {
        matches!(self, Self::Matches | Self::Find | Self::FindAll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declared_function_can_be_called() {
        let special = ["_&&_", "_||_", "_?_:_", "_[_]", "_[?_]", "_?._", "or", "orValue", "cel.@mapInsert"];
        let table = include_str!("../check/functions.txt");
        for line in table.lines().filter(|line| line.starts_with("f ") || line.starts_with("m ")) {
            let name = line.split(' ').nth(1).unwrap();
            assert!(special.contains(&name) || Function::named(name).is_some(), "{name}");
        }
    }
}
