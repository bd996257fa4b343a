//! The JSONPath of printer columns and selectable fields. A path is parsed once and evaluated on borrowed objects.
//!
//! The supported subset is that of Kubernetes: `.spec.x`, `['a/b']`, `[0]`, `[-1]`, `[*]`, `.*`, `[1:3]`, filters such
//! as `[?(@.type=="Ready")]`, and dots in names escaped as `metadata\.x`. Recursive descent (`..`) and unions are
//! refused: no server resource needs them, and their cost is not bounded by the length of the path.

use serde_json::Value;
use thiserror::Error;

/// Maximum length of a path in bytes. It also bounds the nesting of filters.
const MAX_LENGTH: usize = 2048;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath {
    steps: Vec<Step>,
}

/// Reasons for which a path is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum JsonPathError {
    /// The path is not of the supported grammar.
    #[error("{message} at offset {offset} of {path:?}")]
    Syntax {
        /// The whole path.
        path: String,
        /// The offset of the error, in bytes.
        offset: usize,
        /// The violated rule.
        message: &'static str,
    },
    /// The path is too long.
    #[error("longer than {MAX_LENGTH} bytes")]
    TooLong,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(Box<str>),
    /// An index; counted from the end if negative.
    Index(i64),
    /// `start:end`; either may be absent.
    Slice(Option<i64>, Option<i64>),
    Wildcard,
    Filter(Filter),
}

#[derive(Clone, Debug, PartialEq)]
struct Filter {
    left: Operand,
    /// Absent for an existence filter, which matches if `left` exists.
    comparison: Option<(Comparison, Operand)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    /// `@.a.b`
    Path(JsonPath),
    Literal(Value),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl JsonPath {
    /// Parses a path, with or without the braces of kubectl's templates; the leading dot or `$` may be missing.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        if text.len() > MAX_LENGTH {
            return Err(JsonPathError::TooLong);
        }
        let inner = text.strip_prefix('{').and_then(|text| text.strip_suffix('}')).unwrap_or(text);
        let mut parser = Parser { text: inner, offset: 0 };
        let path = parser.path()?;
        if parser.offset < inner.len() {
            return Err(parser.error("unexpected character"));
        }
        Ok(path)
    }

    /// A path of plain fields.
    pub fn fields<const N: usize>(names: [&str; N]) -> Self {
        Self { steps: names.into_iter().map(|name| Step::Field(name.into())).collect() }
    }

    /// All values that match the path, in document order; empty if none match.
    ///
    /// Costs one pass along the path, and one list per step that matches several values.
    pub fn find<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        let mut found = vec![value];
        for step in &self.steps {
            let mut next = Vec::with_capacity(found.len());
            for value in found {
                step.follow(value, &mut next);
            }
            found = next;
        }
        found
    }

    /// The first value that matches the path.
    pub fn find_first<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        let mut plain = Some(value);
        for step in &self.steps {
            match (step, plain) {
                (Step::Field(name), Some(value)) => plain = value.get(&**name),
                (Step::Field(_), None) => {}
                _ => return self.find(value).into_iter().next(),
            }
        }
        plain
    }

    /// The field names, if the path consists of fields only (`.spec.replicas`).
    pub fn field_names(&self) -> Option<Vec<&str>> {
        let names = self.steps.iter().map(|step| match step {
            Step::Field(name) => Some(&**name),
            _ => None,
        });
        names.collect()
    }
}

impl Step {
    fn follow<'v>(&self, value: &'v Value, found: &mut Vec<&'v Value>) {
        match (self, value) {
            (Self::Field(name), Value::Object(fields)) => found.extend(fields.get(&**name)),
            (Self::Index(index), Value::Array(items)) => {
                let index = from_end(*index, items.len());
                found.extend(usize::try_from(index).ok().and_then(|index| items.get(index)));
            }
            (Self::Slice(start, end), Value::Array(items)) => {
                let bound = |bound: i64| from_end(bound, items.len()).clamp(0, items.len() as i64) as usize;
                let start = start.map_or(0, bound);
                let end = end.map_or(items.len(), bound);
                found.extend(items.get(start..end.max(start)).into_iter().flatten());
            }
            (Self::Wildcard, Value::Array(items)) => found.extend(items),
            (Self::Wildcard, Value::Object(fields)) => found.extend(fields.values()),
            (Self::Filter(filter), Value::Array(items)) => {
                found.extend(items.iter().filter(|item| filter.matches(item)));
            }
            _ => {}
        }
    }
}

fn from_end(index: i64, length: usize) -> i64 {
    if index < 0 { index + length as i64 } else { index }
}

impl Filter {
    fn matches(&self, item: &Value) -> bool {
        let left = self.left.evaluate(item);
        match &self.comparison {
            None => left.is_some(),
            Some((comparison, right)) => match (left, right.evaluate(item)) {
                (Some(left), Some(right)) => comparison.matches(left, right),
                _ => false,
            },
        }
    }
}

impl Operand {
    fn evaluate<'v>(&'v self, item: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Path(path) => path.find_first(item),
            Self::Literal(value) => Some(value),
        }
    }
}

impl Comparison {
    fn matches(self, left: &Value, right: &Value) -> bool {
        use std::cmp::Ordering;
        let order = match (left, right) {
            (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => left.as_f64().partial_cmp(&right.as_f64()),
            },
            (Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
            _ => None,
        };
        match (self, order) {
            (Self::Equal, order) => order == Some(Ordering::Equal),
            (Self::NotEqual, order) => order != Some(Ordering::Equal),
            (Self::Less, order) => order == Some(Ordering::Less),
            (Self::LessOrEqual, order) => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            (Self::Greater, order) => order == Some(Ordering::Greater),
            (Self::GreaterOrEqual, order) => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    offset: usize,
}

impl<'t> Parser<'t> {
    /// Parses steps up to a character that cannot begin one.
    fn path(&mut self) -> Result<JsonPath, JsonPathError> {
        let mut steps = Vec::new();
        self.eat("$");
        if !matches!(self.peek(), None | Some('.' | '[')) && steps.is_empty() {
            steps.push(Step::Field(self.name()?));
        }
        loop {
            if self.eat("..") {
                return Err(self.error("recursive descent is not supported"));
            } else if self.eat(".*") {
                steps.push(Step::Wildcard);
            } else if self.eat(".[") {
                self.offset -= 1;
            } else if self.eat(".") {
                if self.peek().is_none() && steps.is_empty() {
                    break;
                }
                steps.push(Step::Field(self.name()?));
            } else if self.eat("[") {
                steps.push(self.bracket()?);
            } else {
                break;
            }
        }
        Ok(JsonPath { steps })
    }

    /// Parses a field name; a backslash escapes the next character.
    fn name(&mut self) -> Result<Box<str>, JsonPathError> {
        let mut name = String::new();
        while let Some(character) = self.peek() {
            match character {
                '\\' => {
                    self.offset += 1;
                    let Some(escaped) = self.peek() else {
                        return Err(self.error("a backslash must escape something"));
                    };
                    name.push(escaped);
                    self.offset += escaped.len_utf8();
                }
                '.' | '[' | ']' | '(' | ')' | '=' | '!' | '<' | '>' | ' ' | ',' | '\'' | '"' | '{' | '}'
                | '@' | '$' | '*' | '?' => break,
                other => {
                    name.push(other);
                    self.offset += other.len_utf8();
                }
            }
        }
        if name.is_empty() {
            return Err(self.error("a field name is missing"));
        }
        Ok(name.into())
    }

    /// Parses the text after `[`, including the `]`.
    fn bracket(&mut self) -> Result<Step, JsonPathError> {
        let step = match self.peek() {
            Some('*') => {
                self.offset += 1;
                Step::Wildcard
            }
            Some(quote @ ('\'' | '"')) => Step::Field(self.quoted(quote)?.into()),
            Some('?') => self.filter()?,
            _ => self.index_or_slice()?,
        };
        self.expect("]", "a closing bracket is missing")?;
        Ok(step)
    }

    fn index_or_slice(&mut self) -> Result<Step, JsonPathError> {
        let start = self.integer()?;
        if !self.eat(":") {
            return start.map(Step::Index).ok_or_else(|| self.error("an index is missing"));
        }
        let end = self.integer()?;
        Ok(Step::Slice(start, end))
    }

    fn integer(&mut self) -> Result<Option<i64>, JsonPathError> {
        let rest = self.rest();
        let digits = rest.strip_prefix('-').unwrap_or(rest);
        let sign = rest.len() - digits.len();
        let length = digits.find(|character: char| !character.is_ascii_digit()).unwrap_or(digits.len());
        if length == 0 {
            return if sign == 0 { Ok(None) } else { Err(self.error("a number is missing")) };
        }
        let number = rest[..sign + length].parse().map_err(|_| self.error("the index is too large"))?;
        self.offset += sign + length;
        Ok(Some(number))
    }

    /// `?(@.type=="Ready")`
    fn filter(&mut self) -> Result<Step, JsonPathError> {
        self.expect("?(", "a filter begins with ?(")?;
        self.skip_spaces();
        let left = self.operand()?;
        self.skip_spaces();
        let comparisons = [
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let mut comparison = None;
        for (sign, meaning) in comparisons {
            if self.eat(sign) {
                self.skip_spaces();
                comparison = Some((meaning, self.operand()?));
                self.skip_spaces();
                break;
            }
        }
        self.expect(")", "a filter ends with )")?;
        Ok(Step::Filter(Filter { left, comparison }))
    }

    fn operand(&mut self) -> Result<Operand, JsonPathError> {
        match self.peek() {
            Some('@') => {
                self.offset += 1;
                // `@` alone is the element itself.
                if matches!(self.peek(), Some('.' | '[')) {
                    return Ok(Operand::Path(self.path()?));
                }
                Ok(Operand::Path(JsonPath { steps: Vec::new() }))
            }
            Some(quote @ ('\'' | '"')) => Ok(Operand::Literal(Value::String(self.quoted(quote)?))),
            _ => {
                let rest = self.rest();
                let end = rest
                    .find(|character: char| !(character.is_ascii_alphanumeric() || "+-.".contains(character)))
                    .unwrap_or(rest.len());
                let literal: Value =
                    serde_json::from_str(&rest[..end]).map_err(|_| self.error("a literal is expected"))?;
                self.offset += end;
                Ok(Operand::Literal(literal))
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, JsonPathError> {
        self.offset += quote.len_utf8();
        let mut text = String::new();
        loop {
            match self.peek() {
                None => return Err(self.error("a closing quote is missing")),
                Some(end) if end == quote => {
                    self.offset += quote.len_utf8();
                    return Ok(text);
                }
                Some(character) => {
                    self.offset += character.len_utf8();
                    let literal = match (character, self.peek()) {
                        ('\\', Some(escaped)) => {
                            self.offset += escaped.len_utf8();
                            escaped
                        }
                        (other, _) => other,
                    };
                    text.push(literal);
                }
            }
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.offset..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_spaces(&mut self) {
        while self.eat(" ") {}
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.offset += token.len();
        }
        found
    }

    fn expect(&mut self, token: &str, message: &'static str) -> Result<(), JsonPathError> {
        if self.eat(token) { Ok(()) } else { Err(self.error(message)) }
    }

    fn error(&self, message: &'static str) -> JsonPathError {
        JsonPathError::Syntax { path: self.text.to_owned(), offset: self.offset, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object() -> Value {
        json!({
            "metadata": {"name": "w", "annotations": {"a/b": "slash", "x.y": "dot"}},
            "spec": {"replicas": 3, "ports": [{"name": "http", "port": 80}, {"name": "dns", "port": 53}]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "weight": 1},
                {"type": "Synced", "status": "False", "weight": 2.5},
            ]},
        })
    }

    #[test]
    fn paths_select_values() {
        let table = [
            (".spec.replicas", json!([3])),
            ("{.spec.replicas}", json!([3])),
            ("$.spec.replicas", json!([3])),
            ("spec.replicas", json!([3])),
            (".spec['replicas']", json!([3])),
            (".metadata.annotations['a/b']", json!(["slash"])),
            (".metadata.annotations.a/b", json!(["slash"])),
            (r".metadata.annotations.x\.y", json!(["dot"])),
            (r".metadata.annotations['x\.y']", json!(["dot"])),
            (".spec.ports[0].name", json!(["http"])),
            (".spec.ports[-1].name", json!(["dns"])),
            (".spec.ports[*].port", json!([80, 53])),
            (".spec.ports[0:1].port", json!([80])),
            (".spec.ports[1:].port", json!([53])),
            (".spec.ports[7].port", json!([])),
            (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
            (r#".status.conditions[?(@.type == 'Ready')].status"#, json!(["True"])),
            (r#".status.conditions[?(@.type!="Ready")].status"#, json!(["False"])),
            (".status.conditions[?(@.weight>1)].type", json!(["Synced"])),
            (".status.conditions[?(@.weight<=1)].type", json!(["Ready"])),
            (".status.conditions[?(@.reason)].type", json!([])),
            (".status.conditions[?(@.weight)].type", json!(["Ready", "Synced"])),
            (".metadata.annotations.*", json!(["slash", "dot"])),
            (".absent.x", json!([])),
            (".spec.replicas.x", json!([])),
        ];
        let object = object();
        for (path, expected) in table {
            let parsed = JsonPath::parse(path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let found: Vec<Value> = parsed.find(&object).into_iter().cloned().collect();
            assert_eq!(Value::Array(found), expected, "{path}");
            assert_eq!(parsed.find_first(&object), expected.get(0), "{path}");
        }
    }

    #[test]
    fn the_empty_path_is_the_object() {
        let object = object();
        assert_eq!(JsonPath::parse(".").unwrap().find(&object), vec![&object]);
    }

    #[test]
    fn broken_paths_are_refused() {
        let table = [
            ".spec.",
            ".spec..x",
            "..x",
            ".spec[",
            ".spec[x]",
            ".spec[0",
            ".spec['a",
            ".spec[?(@.a==)]",
            ".spec[?(@.a=='b')",
            ".spec[?@.a]",
            ".a b",
            ".spec[0,1]",
            ".spec[-]",
            ".a]",
            ".a\\",
        ];
        for path in table {
            assert!(JsonPath::parse(path).is_err(), "{path}");
        }
        assert_eq!(JsonPath::parse(&format!(".{}", "a".repeat(5000))), Err(JsonPathError::TooLong));
        let nested = ".a[?(@".repeat(300);
        assert!(JsonPath::parse(&nested).is_err());
    }

    #[test]
    fn plain_paths_have_field_names() {
        assert_eq!(JsonPath::parse(".spec.a").unwrap().field_names(), Some(vec!["spec", "a"]));
        assert_eq!(JsonPath::parse(".spec[0]").unwrap().field_names(), None);
    }
}
