//! Calls of functions: operands are evaluated and charged, then the overload is selected by their values.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Evaluator;
use super::extension::extension_method;
use super::overload::no_such_overload;
use crate::failure::{Abort, Failure};
use crate::functions::{
    char_at, distinct, extreme, find_text, flatten, format, index_of, is_sorted, join, last_index_of,
    lower_ascii, quote, range, replace, reverse, slice, sort_by_keys, split, substring, sum, trim,
    upper_ascii,
};
use crate::library::{
    Duration, NamedFormat, Quantity, SemanticVersion, Url, is_request_uri, parse_cidr, parse_ip,
};
use crate::plan::{Call, CostRule, Function};
use crate::types::Type;
use crate::value::{
    Extension, List, Outcome, Text, Value, add, compare, divide, equal, is_equal, modulo, multiply, negate,
    subtract, to_bool, to_bytes, to_double, to_duration, to_int, to_string, to_timestamp, to_uint,
};
use crate::work::Work;

impl<'a> Evaluator<'a> {
    pub(super) fn call(&mut self, call: &'a Call) -> Outcome<'a> {
        match &*call.arguments {
            [] => self.apply(call, &[]),
            [operand] => {
                let operands = [self.operand(operand)?];
                self.apply(call, &operands)
            }
            [left, right] => {
                let left = self.operand(left)?;
                if call.is_variadic
                    && let Err(error) = left
                {
                    return Err(error);
                }
                let operands = [left, self.operand(right)?];
                self.apply(call, &operands)
            }
            arguments => {
                let mut operands = Vec::with_capacity(arguments.len());
                for (index, argument) in arguments.iter().enumerate() {
                    let operand = self.operand(argument)?;
                    let is_last = index + 1 == arguments.len();
                    match operand {
                        Err(error) if !is_last => return Err(error),
                        operand => operands.push(operand),
                    }
                }
                self.apply(call, &operands)
            }
        }
    }

    /// An operand, or its error, which functions may ignore. The end of the evaluation is no operand.
    fn operand(&mut self, node: &'a crate::plan::Node) -> Result<Outcome<'a>, Failure> {
        match self.node(node) {
            Err(abort @ Failure::Abort(_)) => Err(abort),
            outcome => Ok(outcome),
        }
    }

    fn apply(&mut self, call: &'a Call, operands: &[Outcome<'a>]) -> Outcome<'a> {
        for operand in operands.iter().flatten() {
            self.work.read(operand.text_size())?;
        }
        if call.cost == CostRule::Fixed(1) {
            self.charge(1)?;
        } else {
            self.charge_call(call, operands)?;
        }
        if call.function == Function::NotStrictlyFalse {
            return Ok(Value::Bool(!matches!(operands, [Ok(Value::Bool(false))])));
        }
        let failed = operands.iter().find_map(|operand| operand.as_ref().err());
        let result = match failed {
            Some(error) => Err(error.clone()),
            None if !call.guard.is_none_or(|guard| fits(guard, operands, &self.work)) => {
                Err(no_such_overload(call, operands))
            }
            None => self.dispatch(call, operands),
        };
        self.charge_text(&result, operands)?;
        if matches!(call.cost, CostRule::JoinResult | CostRule::OutputList)
            && !matches!(result, Err(Failure::Abort(_)))
        {
            self.charge_result(call, &result)?;
        }
        result
    }

    /// Charges a new text. Those that operands share, and those that were charged when they were made, are none.
    fn charge_text(&self, result: &Outcome<'a>, operands: &[Outcome<'a>]) -> Result<(), Failure> {
        let is_same = |operand: &Outcome<'a>| match (operand, result) {
            (Ok(Value::String(Text::Shared(a))), Ok(Value::String(Text::Shared(b)))) => Arc::ptr_eq(a, b),
            (Ok(Value::Bytes(a)), Ok(Value::Bytes(b))) => Arc::ptr_eq(a, b),
            _ => false,
        };
        match result {
            Ok(Value::String(Text::Borrowed(_))) => Ok(()),
            Ok(value) if !operands.iter().any(is_same) => self.work.produce(value.text_size()),
            _ => Ok(()),
        }
    }

    fn dispatch(&mut self, call: &'a Call, operands: &[Outcome<'a>]) -> Outcome<'a> {
        use Function as F;
        if call.function.has_pattern() {
            return self.match_pattern(call, operands);
        }
        let work = &self.work;
        match (call.function, operands) {
            (F::Equals, [Ok(a), Ok(b)]) => equal(a, b, work).map(Value::Bool),
            // Values that cannot be compared are different.
            (F::NotEquals, [Ok(a), Ok(b)]) => Ok(Value::Bool(!is_equal(a, b, work)?)),
            (F::Less, [Ok(a), Ok(b)]) => compare(a, b, work).map(|order| Value::Bool(order.is_lt())),
            (F::LessEquals, [Ok(a), Ok(b)]) => compare(a, b, work).map(|order| Value::Bool(order.is_le())),
            (F::Greater, [Ok(a), Ok(b)]) => compare(a, b, work).map(|order| Value::Bool(order.is_gt())),
            (F::GreaterEquals, [Ok(a), Ok(b)]) => compare(a, b, work).map(|order| Value::Bool(order.is_ge())),
            (F::Add, [Ok(a), Ok(b)]) => add(a.clone(), b, work),
            (F::Subtract, [Ok(a), Ok(b)]) => subtract(a, b),
            (F::Multiply, [Ok(a), Ok(b)]) => multiply(a, b),
            (F::Divide, [Ok(a), Ok(b)]) => divide(a, b),
            (F::Modulo, [Ok(a), Ok(b)]) => modulo(a, b),
            (F::Negate, [Ok(a)]) => negate(a),
            (F::Not, [Ok(Value::Bool(value))]) => Ok(Value::Bool(!value)),
            (F::In, [Ok(value), Ok(Value::List(list))]) => list.contains(value, work).map(Value::Bool),
            (F::In, [Ok(value), Ok(Value::Map(map))]) => {
                map.find(value, work).map(|found| Value::Bool(found.is_some()))
            }
            (F::Size, [Ok(value)]) => match value.size() {
                Some(size) => Ok(Value::Int(size as i64)),
                None => Err(Failure::error("no such overload: size")),
            },
            (F::Bool, [Ok(value)]) => conversion(call, to_bool(value), value),
            (F::Bytes, [Ok(value)]) => conversion(call, to_bytes(value), value),
            (F::Double, [Ok(value)]) => conversion(call, to_double(value), value),
            (F::Duration, [Ok(value)]) => conversion(call, to_duration(value), value),
            (F::Int, [Ok(value)]) => conversion(call, to_int(value), value),
            (F::String, [Ok(value)]) => conversion(call, to_string(value), value),
            (F::Timestamp, [Ok(value)]) => conversion(call, to_timestamp(value), value),
            (F::Uint, [Ok(value)]) => conversion(call, to_uint(value), value),
            (F::Dyn, [Ok(value)]) => Ok(value.clone()),
            (F::Type, [Ok(value)]) => Ok(Value::Type(value.type_name().into())),
            (F::Time(getter), [Ok(Value::Timestamp(time))]) => {
                time.get(getter, None).map(Value::Int).map_err(Failure::error)
            }
            (F::Time(getter), [Ok(Value::Timestamp(time)), Ok(Value::String(zone))]) => {
                time.get(getter, Some(zone.as_str())).map(Value::Int).map_err(Failure::error)
            }
            (F::Time(getter), [Ok(Value::Duration(duration))]) => {
                duration.get(getter).map(Value::Int).ok_or_else(|| no_such_overload(call, operands))
            }
            (_, [Ok(Value::String(_)), ..]) => string_function(call, operands, work),
            (_, [Ok(Value::List(list)), ..]) => list_function(call, list, operands, work),
            (_, [Ok(Value::Optional(optional))]) => match (call.function, optional) {
                (F::HasValue, optional) => Ok(Value::Bool(optional.is_some())),
                (F::Value, Some(value)) => Ok((**value).clone()),
                (F::Value, None) => Err(Failure::error("optional.none() dereference")),
                (F::OptionalOf, _) => Ok(Value::optional(Value::Optional(optional.clone()))),
                (F::OptionalOfNonZero, _) => Ok(Value::optional(Value::Optional(optional.clone()))),
                _ => Err(no_such_overload(call, operands)),
            },
            (F::OptionalOf, [Ok(value)]) => Ok(Value::optional(value.clone())),
            (F::OptionalOfNonZero, [Ok(value)]) => Ok(non_zero(value)),
            (F::OptionalNone, []) => Ok(Value::NONE),
            (F::Range, [Ok(Value::Int(size))]) => range(*size, work),
            (F::NamedFormat, []) => {
                let name = call.name.strip_prefix("format.").unwrap_or_default();
                let format =
                    NamedFormat::named(name).map(|format| Value::Extension(Extension::Format(format)));
                format.ok_or_else(|| no_such_overload(call, operands))
            }
            (_, [Ok(Value::Extension(extension)), ..]) => extension_method(call, extension, operands, work),
            _ => Err(no_such_overload(call, operands)),
        }
    }

    fn match_pattern(&mut self, call: &'a Call, operands: &[Outcome<'a>]) -> Outcome<'a> {
        let [Ok(Value::String(text)), Ok(Value::String(source)), limit @ ..] = operands else {
            return Err(no_such_overload(call, operands));
        };
        let compiled;
        let pattern = match &call.pattern {
            Some(pattern) => pattern,
            None => {
                compiled = self.pattern(source.as_str()).map_err(|failure| match failure {
                    Failure::Error(message) if call.function != Function::Matches => {
                        Failure::error(format!("Illegal regex: {message}"))
                    }
                    other => other,
                })?;
                &compiled
            }
        };
        let limit = match limit {
            [] => usize::MAX,
            [Ok(Value::Int(limit))] => usize::try_from(*limit).unwrap_or(usize::MAX),
            _ => return Err(no_such_overload(call, operands)),
        };
        let text = text.as_str();
        self.charge_match(pattern, text.len())?;
        Ok(match call.function {
            Function::Matches => Value::Bool(pattern.is_match(text)),
            Function::Find => Value::text(pattern.find(text).unwrap_or("")),
            _ => {
                let mut found = Vec::new();
                for (offset, part) in pattern.find_all(text).take(limit) {
                    // Each search may read the rest of the text, although few patterns make it do so.
                    self.charge_match(pattern, (text.len() - offset) / 16)?;
                    self.work.items(1)?;
                    self.work.produce(part.len())?;
                    found.push(Value::text(part));
                }
                Value::list(found)
            }
        })
    }
}

/// Whether operands have the types of an overload. Of a list or map, the first entry is looked at.
fn fits(guard: &[Type], operands: &[Outcome<'_>], work: &Work) -> bool {
    let mut pairs = guard.iter().zip(operands);
    pairs.all(|(type_, operand)| operand.as_ref().is_ok_and(|value| has_type(value, type_, work)))
}

fn has_type(value: &Value<'_>, type_: &Type, work: &Work) -> bool {
    match (type_, value) {
        (Type::Dyn | Type::Param(_), _) => true,
        (Type::List(element), Value::List(list)) => match list.get(0, work) {
            Some(Ok(first)) => has_type(&first, element, work),
            Some(Err(_)) => false,
            None => true,
        },
        (Type::Map(types), Value::Map(map)) => match map.first_key() {
            Some(key) => {
                let value = map.find(&key, work);
                has_type(&key, &types.0, work)
                    && value.is_ok_and(|value| value.is_none_or(|v| has_type(&v, &types.1, work)))
            }
            None => true,
        },
        (type_, value) => value.type_name() == type_.runtime_name(),
    }
}

fn conversion<'a>(call: &Call, result: Outcome<'a>, value: &Value<'a>) -> Outcome<'a> {
    match result {
        Err(Failure::Error(message)) if message == "no such overload" => {
            Err(no_such_overload(call, &[Ok(value.clone())]))
        }
        result => result,
    }
}

fn non_zero<'a>(value: &Value<'a>) -> Value<'a> {
    if value.is_zero() { Value::NONE } else { Value::optional(value.clone()) }
}

fn string_function<'a>(call: &Call, operands: &[Outcome<'a>], work: &Work) -> Outcome<'a> {
    use Function as F;
    let [Ok(Value::String(text)), rest @ ..] = operands else {
        return Err(no_such_overload(call, operands));
    };
    let whole = text.as_str();
    let extension = |extension: Extension| Ok(Value::Extension(extension));
    match (call.function, rest) {
        (F::Contains, [Ok(Value::String(part))]) => Ok(Value::Bool(whole.contains(part.as_str()))),
        (F::StartsWith, [Ok(Value::String(part))]) => Ok(Value::Bool(whole.starts_with(part.as_str()))),
        (F::EndsWith, [Ok(Value::String(part))]) => Ok(Value::Bool(whole.ends_with(part.as_str()))),
        (F::CharAt, [Ok(Value::Int(index))]) => {
            // Code points are counted one by one.
            work.charge(whole.len() as u64)?;
            char_at(text, *index)
        }
        (F::IndexOf, [Ok(Value::String(part))]) => find_text(whole, part.as_str(), None, false),
        (F::IndexOf, [Ok(Value::String(part)), Ok(Value::Int(from))]) => {
            find_text(whole, part.as_str(), Some(*from), false)
        }
        (F::LastIndexOf, [Ok(Value::String(part))]) => find_text(whole, part.as_str(), None, true),
        (F::LastIndexOf, [Ok(Value::String(part)), Ok(Value::Int(from))]) => {
            find_text(whole, part.as_str(), Some(*from), true)
        }
        (F::LowerAscii, []) => Ok(lower_ascii(text)),
        (F::UpperAscii, []) => Ok(upper_ascii(text)),
        (F::Trim, []) => Ok(trim(text)),
        (F::Replace, [Ok(Value::String(old)), Ok(Value::String(new))]) => {
            replace(text, old.as_str(), new.as_str(), -1, work)
        }
        (F::Replace, [Ok(Value::String(old)), Ok(Value::String(new)), Ok(Value::Int(limit))]) => {
            replace(text, old.as_str(), new.as_str(), *limit, work)
        }
        (F::Split, [Ok(Value::String(separator))]) => split(text, separator.as_str(), -1, work),
        (F::Split, [Ok(Value::String(separator)), Ok(Value::Int(limit))]) => {
            split(text, separator.as_str(), *limit, work)
        }
        (F::Substring, [Ok(Value::Int(start))]) => substring(text, *start, None),
        (F::Substring, [Ok(Value::Int(start)), Ok(Value::Int(end))]) => substring(text, *start, Some(*end)),
        (F::Format, [Ok(Value::List(arguments))]) => format(whole, arguments, work),
        (F::Quote, []) => Ok(Value::text(quote(whole))),
        (F::EscapeKey, []) => Ok(Value::text(whole.replace('~', "~0").replace('/', "~1"))),
        (F::Url, []) => match Url::new(whole) {
            Ok(url) => extension(Extension::Url(url.into())),
            Err(fault) => {
                Err(Failure::error(format!("URL parse error during conversion from string: {fault}")))
            }
        },
        (F::IsUrl, []) => Ok(Value::Bool(is_request_uri(whole).is_ok())),
        (F::Ip, []) => {
            parse_ip(whole).map(Extension::Ip).map_or_else(|fault| Err(Failure::error(fault)), extension)
        }
        (F::IsIp, []) => Ok(Value::Bool(parse_ip(whole).is_ok())),
        (F::IpIsCanonical, []) => match parse_ip(whole) {
            Ok(address) => Ok(Value::Bool(address.to_string() == whole)),
            Err(fault) => Err(Failure::error(fault)),
        },
        (F::Cidr, []) => {
            parse_cidr(whole).map(Extension::Cidr).map_or_else(|fault| Err(Failure::error(fault)), extension)
        }
        (F::IsCidr, []) => Ok(Value::Bool(parse_cidr(whole).is_ok())),
        (F::Quantity, []) => match Quantity::parse(whole) {
            Ok(quantity) => extension(Extension::Quantity(quantity)),
            Err(fault) => Err(Failure::error(fault)),
        },
        (F::IsQuantity, []) => Ok(Value::Bool(Quantity::parse(whole).is_ok())),
        (F::Semver, normalize) => match parse_version(whole, normalize) {
            Some(Ok(version)) => extension(Extension::Semver(version.into())),
            Some(Err(fault)) => Err(Failure::error(fault)),
            None => Err(no_such_overload(call, operands)),
        },
        (F::IsSemver, normalize) => match parse_version(whole, normalize) {
            Some(parsed) => Ok(Value::Bool(parsed.is_ok())),
            None => Err(no_such_overload(call, operands)),
        },
        (F::FormatNamed, []) => Ok(NamedFormat::named(whole)
            .map_or(Value::NONE, |format| Value::optional(Value::Extension(Extension::Format(format))))),
        (F::OptionalOf, []) => Ok(Value::optional(Value::String(text.clone()))),
        (F::OptionalOfNonZero, []) => Ok(non_zero(&Value::String(text.clone()))),
        _ => Err(no_such_overload(call, operands)),
    }
}

fn parse_version(text: &str, normalize: &[Outcome<'_>]) -> Option<Result<SemanticVersion, String>> {
    match normalize {
        [] | [Ok(Value::Bool(false))] => Some(SemanticVersion::parse(text)),
        [Ok(Value::Bool(true))] => Some(SemanticVersion::parse_normalized(text)),
        _ => None,
    }
}

fn list_function<'a>(call: &Call, list: &List<'a>, operands: &[Outcome<'a>], work: &Work) -> Outcome<'a> {
    use Function as F;
    match (call.function, operands.get(1..).unwrap_or_default()) {
        (F::IsSorted, []) => is_sorted(list, work),
        (F::Sum, []) => sum(list, zero_of(&call.overload, list, work), work),
        (F::Min, []) => extreme(list, "min", Ordering::Less, work),
        (F::Max, []) => extreme(list, "max", Ordering::Greater, work),
        (F::IndexOf, [Ok(value)]) => index_of(list, value, work),
        (F::LastIndexOf, [Ok(value)]) => last_index_of(list, value, work),
        (F::Join, []) => join(list, "", work),
        (F::Join, [Ok(Value::String(separator))]) => join(list, separator.as_str(), work),
        (F::First, []) => list.get(0, work).map_or(Ok(Value::NONE), |item| item.map(Value::optional)),
        (F::Last, []) => {
            let last = list.len().checked_sub(1).and_then(|index| list.get(index, work));
            last.map_or(Ok(Value::NONE), |item| item.map(Value::optional))
        }
        (F::Slice, [Ok(Value::Int(start)), Ok(Value::Int(end))]) => slice(list, *start, *end, work),
        (F::Flatten, []) => flatten(list, 1, work),
        (F::Flatten, [Ok(Value::Int(depth))]) => flatten(list, *depth, work),
        (F::Sort, []) => sort_by_keys(list, list, work),
        (F::SortByKeys, [Ok(Value::List(keys))]) => sort_by_keys(list, keys, work),
        (F::Reverse, []) => reverse(list, work),
        (F::Distinct, []) => distinct(list, work),
        (F::SetsContains, [Ok(Value::List(other))]) => contains_all(list, other, work).map(Value::Bool),
        (F::SetsEquivalent, [Ok(Value::List(other))]) => {
            Ok(Value::Bool(contains_all(list, other, work)? && contains_all(other, list, work)?))
        }
        (F::SetsIntersects, [Ok(Value::List(other))]) => {
            for item in list.iter(work) {
                match item.and_then(|item| other.contains(&item, work)) {
                    Ok(true) => return Ok(Value::Bool(true)),
                    Err(abort @ Failure::Abort(Abort::CostLimit | Abort::Deadline)) => return Err(abort),
                    _ => {}
                }
            }
            Ok(Value::Bool(false))
        }
        (F::OptionalUnwrap | F::UnwrapOpt, []) => {
            let mut values = Vec::new();
            for item in list.iter(work) {
                match item? {
                    Value::Optional(Some(value)) => {
                        work.items(1)?;
                        values.push((*value).clone());
                    }
                    Value::Optional(None) => {}
                    other => return Err(Failure::error(format!("value {other} is not optional"))),
                }
            }
            Ok(Value::list(values))
        }
        (F::OptionalOf, []) => Ok(Value::optional(Value::List(list.clone()))),
        (F::OptionalOfNonZero, []) => Ok(non_zero(&Value::List(list.clone()))),
        _ => Err(no_such_overload(call, operands)),
    }
}

/// The sum of no items, of the type of the items.
fn zero_of<'a>(overload: &str, list: &List<'a>, work: &Work) -> Value<'a> {
    match (overload, list.get(0, work)) {
        ("list_uint_sum_uint", _) | ("", Some(Ok(Value::Uint(_)))) => Value::Uint(0),
        ("list_double_sum_double", _) | ("", Some(Ok(Value::Double(_)))) => Value::Double(0.0),
        ("list_duration_sum_duration", _) | ("", Some(Ok(Value::Duration(_)))) => {
            Value::Duration(Duration { nanoseconds: 0 })
        }
        _ => Value::Int(0),
    }
}

fn contains_all<'a>(list: &List<'a>, other: &List<'a>, work: &Work) -> Result<bool, Failure> {
    for item in other.iter(work) {
        if !list.contains(&item?, work)? {
            return Ok(false);
        }
    }
    Ok(true)
}
