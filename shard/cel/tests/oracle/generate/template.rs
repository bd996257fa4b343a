//! Parts of expressions of each type: fields, literals, and operations with their operands.

use super::{K, list, map, optional};

/// Texts in which `{}` stands for operands of the given kinds.
pub(super) type Template = (&'static str, Vec<K>);

pub(super) fn fields(kind: &K) -> &'static [&'static str] {
    match kind {
        K::Bool => &[
            "self.b",
            "self.o.p.q",
            "has(self.s)",
            "has(self.o.y)",
            "has(self.o.n)",
            "has(self.ml)",
            "has(self.ms.k1)",
        ],
        K::Int => {
            &["self.i", "self.j", "self.o.x", "self.ni", "self.ls.size()", "size(self.s)", "self.mi.k1"]
        }
        K::Double => &["self.d", "self.ld[0]"],
        K::String => &[
            "self.s",
            "self.e",
            "self.o.y",
            "self.o.n",
            "self.a__dash__b",
            "self.__namespace__",
            "self.ls[0]",
            "self.ms['k0']",
        ],
        K::Bytes => &["self.by"],
        K::Duration => &["self.dur"],
        K::Timestamp => &["self.ts", "self.day", "self.lt[0]"],
        K::List(inner) => match **inner {
            K::String => &["self.ls", "self.set"],
            K::Int => &["self.li", "self.ll[1]"],
            K::Double => &["self.ld"],
            K::Timestamp => &["self.lt"],
            K::Item => &["self.ml", "self.lo"],
            K::List(_) => &["self.ll"],
            _ => &[],
        },
        K::Map(inner) => match **inner {
            K::String => &["self.ms"],
            K::Int => &["self.mi"],
            K::Item => &["self.mo"],
            _ => &[],
        },
        K::Optional(inner) => match **inner {
            K::String => &[
                "self.?s",
                "self.?o.y",
                "self.?o.?n",
                "self.ms[?'k1']",
                "self.ls[?0]",
                "self.ls.first()",
                "self.?ls[0]",
            ],
            K::Int => &["self.?i", "self.?o.x", "self.mi.?k1", "self.li[?1]", "self.li.last()"],
            K::Item => &["self.lo[?0]", "self.?mo.k0"],
            K::Bool => &["self.?o.p.q", "self.?b"],
            _ => &[],
        },
        K::Dyn => &["self.ios", "dyn(self.o)", "dyn(self.ms)", "dyn(self.ls)"],
        K::Item => &["self.mo['k1']", "self.ml[0]"],
        _ => &[],
    }
}

pub(super) fn literals(kind: &K) -> &'static [&'static str] {
    match kind {
        K::Bool => &["true", "false"],
        K::Int => &["0", "1", "2", "-1", "3", "10", "9223372036854775807", "0x1F"],
        K::Uint => &["0u", "1u", "5u", "18446744073709551615u"],
        K::Double => &["0.0", "1.5", "-2.25", "1e10", "3.0"],
        K::String => &[
            "''",
            "'a'",
            "'abc'",
            "\"k1\"",
            "'Zürich'",
            "'hello world'",
            "'10.0.0.1'",
            "'10.0.0.0/8'",
            "'1.5Gi'",
            "'1.2.3'",
            "r'\\d+'",
            "'[a-z]+'",
            "'https://example.com/x?y=1'",
            "'my-name'",
            "','",
            "'k0'",
            "'2020-01-01T00:00:00Z'",
            "'1h'",
            "'\\n'",
            "'12'",
        ],
        K::Bytes => &["b'abc'", "b''", "b'\\xff'"],
        K::Duration => &["duration('1h')", "duration('-90s')", "duration('1.5s')"],
        K::Timestamp => {
            &["timestamp('2020-02-29T12:00:00Z')", "timestamp('2021-01-01T00:00:00.5+01:00')", "timestamp(0)"]
        }
        K::List(inner) => match **inner {
            K::String => &["['a', 'b']", "['abc']"],
            K::Int => &["[1, 2, 3]", "[3, 1, 2, 1]", "[0]"],
            K::Double => &["[1.5, 0.5]"],
            K::List(_) => &["[[1], [2, 3]]", "[[]]"],
            _ => &[],
        },
        K::Map(inner) => match **inner {
            K::String => &["{'k0': 'a', 'k1': 'b'}"],
            K::Int => &["{'k0': 1, 'k1': 2}"],
            _ => &[],
        },
        K::Ip => &["ip('10.0.0.1')", "ip('::1')", "ip('224.0.0.1')", "ip('169.254.1.1')", "ip('fe80::1')"],
        K::Cidr => &["cidr('10.0.0.0/8')", "cidr('2001:db8::/33')", "cidr('192.168.1.7/24')"],
        K::Quantity => &["quantity('1.5Gi')", "quantity('100m')", "quantity('5')", "quantity('-2k')"],
        K::Semver => &["semver('1.2.3')", "semver('v1.2', true)", "semver('1.0.0-rc.1')"],
        K::Url => &["url('https://example.com:80/a%20b?x=1')", "url('/p?q=1')"],
        K::Format => &[
            "format.dns1123Label()",
            "format.uuid()",
            "format.date()",
            "format.qualifiedName()",
            "format.uri()",
        ],
        _ => &[],
    }
}

pub(super) fn templates(kind: &K) -> Vec<Template> {
    let s = || K::String;
    let i = || K::Int;
    match kind {
        K::Bool => {
            let same = [
                K::Int,
                K::String,
                K::Double,
                K::Bool,
                K::Timestamp,
                K::Duration,
                K::Bytes,
                list(K::String),
                list(K::Int),
                map(K::Int),
                K::Item,
                list(K::Item),
                K::Quantity,
                K::Ip,
                K::Url,
                K::Semver,
                K::Dyn,
                optional(K::Int),
                K::Uint,
                list(K::Timestamp),
                K::Object,
            ];
            let ordered =
                [K::Int, K::String, K::Double, K::Timestamp, K::Duration, K::Bytes, K::Uint, K::Dyn, K::Bool];
            let mut templates: Vec<Template> = Vec::new();
            for kind in same {
                templates.push(("{} == {}", vec![kind.clone(), kind.clone()]));
                templates.push(("{} != {}", vec![kind.clone(), kind]));
            }
            for kind in ordered {
                templates.push(("{} < {}", vec![kind.clone(), kind.clone()]));
                templates.push(("{} >= {}", vec![kind.clone(), kind.clone()]));
                templates.push(("{} > {}", vec![kind.clone(), kind.clone()]));
                templates.push(("{} <= {}", vec![kind.clone(), kind]));
            }
            for _ in 0..6 {
                templates.push(("{} && {}", vec![K::Bool, K::Bool]));
                templates.push(("{} || {}", vec![K::Bool, K::Bool]));
            }
            templates.extend([
                ("!{}", vec![K::Bool]),
                ("{} < {}", vec![K::Int, K::Double]),
                ("{} >= {}", vec![K::Uint, K::Int]),
                ("{} in {}", vec![s(), list(s())]),
                ("{} in {}", vec![i(), list(i())]),
                ("{} in {}", vec![s(), map(i())]),
                ("{} in ['a', 'abc', 'k1']", vec![s()]),
                ("{} in [1, 2, 7]", vec![i()]),
                ("{}.contains({})", vec![s(), s()]),
                ("{}.startsWith({})", vec![s(), s()]),
                ("{}.endsWith({})", vec![s(), s()]),
                ("{}.matches({})", vec![s(), s()]),
                ("{}.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')", vec![s()]),
                ("matches({}, r'^\\d+(\\.\\d+)?$')", vec![s()]),
                ("{}.isSorted()", vec![list(i())]),
                ("{}.isSorted()", vec![list(s())]),
                ("sets.contains({}, {})", vec![list(s()), list(s())]),
                ("sets.intersects({}, {})", vec![list(i()), list(i())]),
                ("sets.equivalent({}, {})", vec![list(i()), list(i())]),
                ("{}.hasValue()", vec![optional(s())]),
                ("isURL({})", vec![s()]),
                ("isIP({})", vec![s()]),
                ("isCIDR({})", vec![s()]),
                ("isQuantity({})", vec![s()]),
                ("isSemver({})", vec![s()]),
                ("isSemver({}, {})", vec![s(), K::Bool]),
                ("ip.isCanonical({})", vec![s()]),
                ("{}.isLoopback()", vec![K::Ip]),
                ("{}.isGlobalUnicast()", vec![K::Ip]),
                ("{}.isLinkLocalUnicast()", vec![K::Ip]),
                ("{}.isLinkLocalMulticast()", vec![K::Ip]),
                ("{}.isUnspecified()", vec![K::Ip]),
                ("{}.containsIP({})", vec![K::Cidr, K::Ip]),
                ("{}.containsIP({})", vec![K::Cidr, s()]),
                ("{}.containsCIDR({})", vec![K::Cidr, K::Cidr]),
                ("{}.containsCIDR({})", vec![K::Cidr, s()]),
                ("{}.isGreaterThan({})", vec![K::Quantity, K::Quantity]),
                ("{}.isLessThan({})", vec![K::Semver, K::Semver]),
                ("{}.isInteger()", vec![K::Quantity]),
                ("type({}) == {}", vec![K::Dyn, K::Dyn]),
                ("type({}) == string", vec![K::Dyn]),
                ("type({}) == int", vec![K::Dyn]),
                ("bool({})", vec![s()]),
                ("{}.validate({}).hasValue()", vec![K::Format, s()]),
                ("self == oldSelf", vec![]),
                ("{} == null", vec![optional(i())]),
                ("self.o.n == null", vec![]),
                ("self.pu == oldSelf.pu", vec![]),
            ]);
            templates
        }
        K::Int => vec![
            ("{} + {}", vec![i(), i()]),
            ("{} - {}", vec![i(), i()]),
            ("{} * {}", vec![i(), i()]),
            ("{} / {}", vec![i(), i()]),
            ("{} % {}", vec![i(), i()]),
            ("-{}", vec![i()]),
            ("size({})", vec![s()]),
            ("{}.size()", vec![list(i())]),
            ("{}.size()", vec![map(s())]),
            ("size({})", vec![K::Bytes]),
            ("int({})", vec![s()]),
            ("int({})", vec![K::Double]),
            ("int({})", vec![K::Uint]),
            ("int({})", vec![K::Timestamp]),
            ("int({})", vec![K::Duration]),
            ("int({})", vec![K::Dyn]),
            ("{}.sum()", vec![list(i())]),
            ("{}.min()", vec![list(i())]),
            ("{}.max()", vec![list(i())]),
            ("{}.indexOf({})", vec![s(), s()]),
            ("{}.indexOf({}, {})", vec![s(), s(), i()]),
            ("{}.lastIndexOf({})", vec![s(), s()]),
            ("{}.lastIndexOf({}, {})", vec![s(), s(), i()]),
            ("{}.indexOf({})", vec![list(i()), i()]),
            ("{}.lastIndexOf({})", vec![list(s()), s()]),
            ("{}.value()", vec![optional(i())]),
            ("{}.getHours()", vec![K::Timestamp]),
            ("{}.getFullYear()", vec![K::Timestamp]),
            ("{}.getDayOfYear()", vec![K::Timestamp]),
            ("{}.getDayOfWeek()", vec![K::Timestamp]),
            ("{}.getMonth()", vec![K::Timestamp]),
            ("{}.getDate()", vec![K::Timestamp]),
            ("{}.getDayOfMonth('Europe/Berlin')", vec![K::Timestamp]),
            ("{}.getHours('-02:30')", vec![K::Timestamp]),
            ("{}.getMinutes('{}')", vec![K::Timestamp]),
            ("{}.getSeconds()", vec![K::Duration]),
            ("{}.getMilliseconds()", vec![K::Duration]),
            ("{}.getMilliseconds()", vec![K::Timestamp]),
            ("{}.family()", vec![K::Ip]),
            ("{}.prefixLength()", vec![K::Cidr]),
            ("{}.compareTo({})", vec![K::Quantity, K::Quantity]),
            ("{}.asInteger()", vec![K::Quantity]),
            ("sign({})", vec![K::Quantity]),
            ("{}.major()", vec![K::Semver]),
            ("{}.patch()", vec![K::Semver]),
            ("{}.compareTo({})", vec![K::Semver, K::Semver]),
        ],
        K::Uint => vec![
            ("{} + {}", vec![K::Uint, K::Uint]),
            ("{} - {}", vec![K::Uint, K::Uint]),
            ("{} % {}", vec![K::Uint, K::Uint]),
            ("uint({})", vec![i()]),
            ("uint({})", vec![s()]),
            ("uint({})", vec![K::Double]),
        ],
        K::Double => vec![
            ("{} + {}", vec![K::Double, K::Double]),
            ("{} * {}", vec![K::Double, K::Double]),
            ("{} / {}", vec![K::Double, K::Double]),
            ("{} - {}", vec![K::Double, K::Double]),
            ("-{}", vec![K::Double]),
            ("double({})", vec![i()]),
            ("double({})", vec![s()]),
            ("{}.sum()", vec![list(K::Double)]),
            ("{}.max()", vec![list(K::Double)]),
            ("{}.asApproximateFloat()", vec![K::Quantity]),
        ],
        K::String => vec![
            ("{} + {}", vec![s(), s()]),
            ("{} + {}", vec![s(), s()]),
            ("{}.lowerAscii()", vec![s()]),
            ("{}.upperAscii()", vec![s()]),
            ("{}.trim()", vec![s()]),
            ("{}.charAt({})", vec![s(), i()]),
            ("{}.substring({})", vec![s(), i()]),
            ("{}.substring({}, {})", vec![s(), i(), i()]),
            ("{}.replace({}, {})", vec![s(), s(), s()]),
            ("{}.replace({}, {}, {})", vec![s(), s(), s(), i()]),
            ("{}.find({})", vec![s(), s()]),
            ("{}.find('[a-z]+')", vec![s()]),
            ("{}.join({})", vec![list(s()), s()]),
            ("{}.join()", vec![list(s())]),
            ("{}.min()", vec![list(s())]),
            ("string({})", vec![i()]),
            ("string({})", vec![K::Double]),
            ("string({})", vec![K::Bytes]),
            ("string({})", vec![K::Timestamp]),
            ("string({})", vec![K::Duration]),
            ("string({})", vec![K::Bool]),
            ("string({})", vec![K::Ip]),
            ("string({})", vec![K::Cidr]),
            ("strings.quote({})", vec![s()]),
            ("{}.value()", vec![optional(s())]),
            ("'%s %d'.format([{}, {}])", vec![s(), i()]),
            ("'%s'.format([{}])", vec![K::Dyn]),
            ("'%f %.2f'.format([{}, {}])", vec![K::Double, K::Double]),
            ("'%x %s'.format([{}, {}])", vec![i(), list(s())]),
            ("{}.getHost()", vec![K::Url]),
            ("{}.getHostname()", vec![K::Url]),
            ("{}.getPort()", vec![K::Url]),
            ("{}.getScheme()", vec![K::Url]),
            ("{}.getEscapedPath()", vec![K::Url]),
        ],
        K::Bytes => vec![("bytes({})", vec![s()]), ("{} + {}", vec![K::Bytes, K::Bytes])],
        K::Duration => vec![
            ("{} + {}", vec![K::Duration, K::Duration]),
            ("{} - {}", vec![K::Timestamp, K::Timestamp]),
            ("{} - {}", vec![K::Duration, K::Duration]),
            ("duration({})", vec![s()]),
        ],
        K::Timestamp => vec![
            ("{} + {}", vec![K::Timestamp, K::Duration]),
            ("{} + {}", vec![K::Duration, K::Timestamp]),
            ("{} - {}", vec![K::Timestamp, K::Duration]),
            ("timestamp({})", vec![s()]),
            ("timestamp({})", vec![i()]),
            ("{}.max()", vec![list(K::Timestamp)]),
        ],
        K::List(inner) => {
            let whole = list((**inner).clone());
            let mut templates: Vec<Template> = vec![
                ("{} + {}", vec![whole.clone(), whole.clone()]),
                ("{}.reverse()", vec![whole.clone()]),
                ("{}.distinct()", vec![whole.clone()]),
                ("{}.slice({}, {})", vec![whole.clone(), i(), i()]),
                ("{}.flatten()", vec![list(whole.clone())]),
                ("[{}, ?{}]", vec![(**inner).clone(), optional((**inner).clone())]),
                ("optional.unwrap([{}, {}])", vec![optional((**inner).clone()), optional((**inner).clone())]),
                ("{}.value()", vec![optional(whole)]),
            ];
            if matches!(**inner, K::Int | K::String | K::Double | K::Timestamp) {
                templates.push(("{}.sort()", vec![list((**inner).clone())]));
            }
            match **inner {
                K::String => templates.extend([
                    ("{}.split({})", vec![s(), s()]),
                    ("{}.split(',')", vec![s()]),
                    ("{}.split({}, {})", vec![s(), s(), i()]),
                    ("{}.findAll({})", vec![s(), s()]),
                    ("{}.findAll('[a-z]', {})", vec![s(), i()]),
                    ("{}.getQuery()['q']", vec![K::Url]),
                    ("{}.validate({}).orValue([])", vec![K::Format, s()]),
                ]),
                K::Int => templates.extend([("lists.range({})", vec![i()]), ("lists.range(5)", vec![])]),
                _ => {}
            }
            templates
        }
        K::Map(inner) => vec![
            ("{'k0': {}, 'k1': {}}", vec![(**inner).clone(), (**inner).clone()]),
            ("{{}: {}}", vec![s(), (**inner).clone()]),
            ("{?'k1': {}, 'k2': {}}", vec![optional((**inner).clone()), (**inner).clone()]),
        ],
        K::Optional(inner) => vec![
            ("optional.of({})", vec![(**inner).clone()]),
            ("optional.ofNonZeroValue({})", vec![(**inner).clone()]),
            ("{}.or({})", vec![optional((**inner).clone()), optional((**inner).clone())]),
            ("{}.first()", vec![list((**inner).clone())]),
            ("{}[?{}]", vec![list((**inner).clone()), i()]),
            ("{}[?{}]", vec![map((**inner).clone()), s()]),
            ("{}.?k1", vec![map((**inner).clone())]),
        ],
        K::Dyn => vec![
            ("dyn({})", vec![K::Int]),
            ("dyn({})", vec![s()]),
            ("dyn({})", vec![list(s())]),
            ("dyn({})", vec![map(i())]),
            ("{} + {}", vec![K::Dyn, K::Dyn]),
            ("{}[{}]", vec![K::Dyn, K::Dyn]),
            ("type({})", vec![K::Dyn]),
        ],
        K::Ip => vec![("ip({})", vec![s()]), ("{}.ip()", vec![K::Cidr])],
        K::Cidr => vec![("cidr({})", vec![s()]), ("{}.masked()", vec![K::Cidr])],
        K::Quantity => vec![
            ("quantity({})", vec![s()]),
            ("{}.add({})", vec![K::Quantity, K::Quantity]),
            ("{}.sub({})", vec![K::Quantity, i()]),
        ],
        K::Semver => vec![("semver({})", vec![s()])],
        K::Url => vec![("url({})", vec![s()])],
        _ => Vec::new(),
    }
}
