//! Methods of values of the Kubernetes library.

use std::cmp::Ordering;
use std::net::IpAddr;

use super::overload::no_such_overload;
use crate::failure::Failure;
use crate::library::{Answer, Quantity, SemanticVersion, Url, parse_cidr, parse_ip};
use crate::plan::{Call, Function};
use crate::value::{Extension, Map, Outcome, OwnedMap, Value};
use crate::work::Work;

pub(super) fn extension_method<'a>(
    call: &Call,
    extension: &Extension,
    operands: &[Outcome<'a>],
    work: &Work,
) -> Outcome<'a> {
    let rest = operands.get(1..).unwrap_or_default();
    let result = match extension {
        Extension::Url(url) => url_method(call.function, url, rest, work),
        Extension::Ip(address) => ip_method(call.function, *address, rest),
        Extension::Cidr(_) => cidr_method(call.function, extension, rest),
        Extension::Quantity(quantity) => quantity_method(call.function, quantity, rest),
        Extension::Semver(version) => version_method(call.function, version, rest),
        Extension::Format(format) => match (call.function, rest) {
            (Function::Validate, [Ok(Value::String(text))]) => {
                let faults = format.faults(text.as_str());
                Some(Ok(if faults.is_empty() {
                    Value::NONE
                } else {
                    Value::optional(Value::list(faults.into_iter().map(Value::text).collect()))
                }))
            }
            _ => None,
        },
        Extension::Authorizer(value) => {
            let texts: Option<Vec<&str>> =
                rest.iter().map(|operand| operand.as_ref().ok().and_then(Value::as_str)).collect();
            texts.map(|texts| {
                Ok(match value.call(&call.name, &texts)? {
                    Answer::Value(value) => Value::Extension(Extension::Authorizer(value)),
                    Answer::Bool(value) => Value::Bool(value),
                    Answer::Text(text) => Value::text(text),
                })
            })
        }
    };
    match (result, call.function, rest) {
        (Some(result), ..) => result,
        (None, Function::OptionalOf | Function::OptionalOfNonZero, []) => {
            Ok(Value::optional(Value::Extension(extension.clone())))
        }
        _ => Err(no_such_overload(call, operands)),
    }
}

fn url_method<'a>(function: Function, url: &Url, rest: &[Outcome<'a>], work: &Work) -> Option<Outcome<'a>> {
    if !rest.is_empty() {
        return None;
    }
    Some(Ok(match function {
        Function::GetScheme => Value::text(&*url.scheme),
        Function::GetHost => Value::text(&*url.host),
        Function::GetHostname => Value::text(url.hostname()),
        Function::GetPort => Value::text(url.port()),
        Function::GetEscapedPath => Value::text(url.escaped_path()),
        Function::GetQuery => {
            // A parameter of one byte becomes an entry with a list.
            if let Err(abort) = work.items(4 * url.parameters()).and_then(|()| work.produce(url.size())) {
                return Some(Err(abort));
            }
            let mut map = OwnedMap::default();
            for (key, values) in url.query() {
                map.insert(Value::text(key), Value::list(values.into_iter().map(Value::text).collect()));
            }
            Value::Map(Map::Owned(map.into()))
        }
        _ => return None,
    }))
}

fn ip_method<'a>(function: Function, address: IpAddr, rest: &[Outcome<'a>]) -> Option<Outcome<'a>> {
    if !rest.is_empty() {
        return None;
    }
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments()[0] & 0xffc0 == 0xfe80,
    };
    let is_link_local_multicast = match address {
        IpAddr::V4(address) => address.octets()[..3] == [224, 0, 0],
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    };
    Some(Ok(match function {
        Function::Family => Value::Int(if address.is_ipv4() { 4 } else { 6 }),
        Function::IsUnspecified => Value::Bool(address.is_unspecified()),
        Function::IsLoopback => Value::Bool(address.is_loopback()),
        Function::IsLinkLocalMulticast => Value::Bool(is_link_local_multicast),
        Function::IsLinkLocalUnicast => Value::Bool(is_link_local),
        Function::IsGlobalUnicast => {
            let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
            let is_special =
                address.is_unspecified() || address.is_loopback() || address.is_multicast() || is_link_local;
            Value::Bool(!is_broadcast && !is_special)
        }
        _ => return None,
    }))
}

fn cidr_method<'a>(function: Function, extension: &Extension, rest: &[Outcome<'a>]) -> Option<Outcome<'a>> {
    let Extension::Cidr(cidr) = extension else {
        return None;
    };
    Some(Ok(match (function, rest) {
        (Function::Ip, []) => Value::Extension(Extension::Ip(cidr.address)),
        (Function::PrefixLength, []) => Value::Int(i64::from(cidr.prefix_length)),
        (Function::Masked, []) => Value::Extension(Extension::Cidr(cidr.masked())),
        (Function::ContainsIp, [Ok(Value::Extension(Extension::Ip(address)))]) => {
            Value::Bool(cidr.contains(*address))
        }
        (Function::ContainsIp, [Ok(Value::String(text))]) => match parse_ip(text.as_str()) {
            Ok(address) => Value::Bool(cidr.contains(address)),
            // The text is no address; Kubernetes loses its own message here.
            Err(_) => return Some(Err(Failure::no_such_overload())),
        },
        (Function::ContainsCidr, [Ok(Value::Extension(Extension::Cidr(other)))]) => {
            Value::Bool(cidr.contains_cidr(*other))
        }
        (Function::ContainsCidr, [Ok(Value::String(text))]) => match parse_cidr(text.as_str()) {
            Ok(other) => Value::Bool(cidr.contains_cidr(other)),
            Err(fault) => return Some(Err(Failure::error(fault))),
        },
        _ => return None,
    }))
}

fn order_value<'a>(order: Ordering) -> Value<'a> {
    Value::Int(order as i64)
}

fn quantity_method<'a>(function: Function, quantity: &Quantity, rest: &[Outcome<'a>]) -> Option<Outcome<'a>> {
    let wrap = |result: Result<Quantity, &'static str>| {
        result.map(|quantity| Value::Extension(Extension::Quantity(quantity))).map_err(Failure::error)
    };
    Some(match (function, rest) {
        (Function::Sign, []) => Ok(Value::Int(quantity.sign())),
        (Function::IsInteger, []) => Ok(Value::Bool(quantity.as_integer().is_some())),
        (Function::AsInteger, []) => quantity
            .as_integer()
            .map(Value::Int)
            .ok_or_else(|| Failure::error("cannot convert value to integer")),
        (Function::AsApproximateFloat, []) => Ok(Value::Double(quantity.as_double())),
        (_, [Ok(Value::Extension(Extension::Quantity(other)))]) => match function {
            Function::IsGreaterThan => Ok(Value::Bool(quantity.compare(other).is_gt())),
            Function::IsLessThan => Ok(Value::Bool(quantity.compare(other).is_lt())),
            Function::CompareTo => Ok(order_value(quantity.compare(other))),
            Function::QuantityAdd => wrap(quantity.add(other)),
            Function::QuantitySub => wrap(quantity.subtract(other)),
            _ => return None,
        },
        (Function::QuantityAdd, [Ok(Value::Int(other))]) => wrap(quantity.add(&Quantity::from_int(*other))),
        (Function::QuantitySub, [Ok(Value::Int(other))]) => {
            wrap(quantity.subtract(&Quantity::from_int(*other)))
        }
        _ => return None,
    })
}

fn version_method<'a>(
    function: Function,
    version: &SemanticVersion,
    rest: &[Outcome<'a>],
) -> Option<Outcome<'a>> {
    let number = |number: u64| Ok(Value::Int(number as i64));
    Some(match (function, rest) {
        (Function::Major, []) => number(version.major),
        (Function::Minor, []) => number(version.minor),
        (Function::Patch, []) => number(version.patch),
        (_, [Ok(Value::Extension(Extension::Semver(other)))]) => {
            let order = version.compare(other);
            match function {
                Function::IsGreaterThan => Ok(Value::Bool(order.is_gt())),
                Function::IsLessThan => Ok(Value::Bool(order.is_lt())),
                Function::CompareTo => Ok(order_value(order)),
                _ => return None,
            }
        }
        _ => return None,
    })
}
