//! The syntax of label selectors: `a`, `!a`, `a=b`, `a==b`, `a!=b`, `a>1`, `a<1`, `a in (b,c)`, `a notin (b,c)`, joined by
//! commas. It has the tokens and the error texts of Kubernetes.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use fairlead_schema::names::{label_value, qualified_name};
use fairlead_schema::{FieldError, FieldPath, aggregate_message};

/// A requirement of a label selector.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelTerm {
    /// The label's key.
    pub key: String,
    /// The comparison.
    pub operator: Operator,
    /// The values to compare with.
    pub values: BTreeSet<String>,
}

/// The comparison of a label selector's term.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operator {
    /// The key is absent.
    Absent,
    /// The key is present, and its value is an integer above the one value.
    Above,
    /// The key is present, and its value is an integer below the one value.
    Below,
    /// The key is present and its value is one of the values.
    In,
    /// The key is absent or its value is none of the values.
    NotIn,
    /// The key is present.
    Present,
}

/// Parses a selector. Blank text is no term, but an empty term between commas is an error, so that `kubectl delete -l
/// "$A,$B"` with empty variables does not delete everything.
///
/// # Errors
/// The text of Kubernetes.
pub(super) fn parse(text: &str) -> Result<Vec<LabelTerm>, String> {
    Parser { tokens: tokens(text), position: 0 }.terms()
}

impl LabelTerm {
    /// Compares the label with the value of the term; `None` if either is not an integer.
    pub(super) fn compare(&self, label: Option<&str>) -> Option<Ordering> {
        let label: i64 = label?.parse().ok()?;
        Some(label.cmp(&self.values.first()?.parse().ok()?))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    /// A key or a value; `in` and `notin` are operators only after a key.
    Word(&'t str),
    /// One of [`SYMBOLS`].
    Symbol(&'static str),
    End,
}

impl<'t> Token<'t> {
    fn text(self) -> &'t str {
        match self {
            Self::Word(text) | Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

/// Every character of a symbol is a symbol on its own. A longer one comes before those that it begins with.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];

fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(character: char) -> bool {
    "=!(),><".contains(character)
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while !rest.is_empty() {
        let token = match SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            Some(symbol) => Token::Symbol(symbol),
            None => {
                let end = rest.find(|character| is_blank(character) || is_symbol(character));
                Token::Word(&rest[..end.unwrap_or(rest.len())])
            }
        };
        tokens.push(token);
        rest = rest[token.text().len()..].trim_start_matches(is_blank);
    }
    tokens.push(Token::End);
    tokens
}

struct Parser<'t> {
    /// They end with [`Token::End`].
    tokens: Vec<Token<'t>>,
    position: usize,
}

impl<'t> Parser<'t> {
    fn terms(mut self) -> Result<Vec<LabelTerm>, String> {
        let mut terms = Vec::new();
        match self.peek() {
            Token::End => return Ok(terms),
            Token::Word(_) | Token::Symbol("!") => {}
            other => return Err(found(other, "!, identifier, or 'end of string'")),
        }
        loop {
            let term = self.term().map_err(|error| format!("unable to parse requirement: {error}"))?;
            terms.push(term);
            match self.next() {
                Token::End => return Ok(terms),
                Token::Symbol(",") => match self.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other => return Err(found(other, "identifier after ','")),
                },
                other => return Err(found(other, "',' or 'end of string'")),
            }
        }
    }

    fn term(&mut self) -> Result<LabelTerm, String> {
        let is_absent = self.take("!");
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(found(other, "identifier")),
        };
        let findings = qualified_name(key);
        if !findings.is_empty() {
            return Err(FieldError::invalid_str(FieldPath::root(), key, &findings.join("; ")).to_string());
        }
        let ends = matches!(self.peek(), Token::End | Token::Symbol(","));
        let (operator, values) = match (is_absent, ends) {
            (true, _) => (Operator::Absent, BTreeSet::new()),
            (false, true) => (Operator::Present, BTreeSet::new()),
            (false, false) => self.comparison()?,
        };
        let errors = check_values(key, operator, &values);
        if errors.is_empty() {
            return Ok(LabelTerm { key: key.to_owned(), operator, values });
        }
        Err(aggregate_message(&errors))
    }

    fn comparison(&mut self) -> Result<(Operator, BTreeSet<String>), String> {
        let operator = match self.next() {
            Token::Word("in") => return Ok((Operator::In, self.set()?)),
            Token::Word("notin") => return Ok((Operator::NotIn, self.set()?)),
            Token::Symbol("=" | "==") => Operator::In,
            Token::Symbol("!=") => Operator::NotIn,
            Token::Symbol(">") => Operator::Above,
            Token::Symbol("<") => Operator::Below,
            other => return Err(found(other, "in, notin, =, ==, !=, gt, lt")),
        };
        let value = match self.peek() {
            Token::End | Token::Symbol(",") => "",
            Token::Word(value) => {
                self.position += 1;
                value
            }
            other => return Err(found(other, "identifier")),
        };
        Ok((operator, BTreeSet::from([value.to_owned()])))
    }

    /// `(a,b)`. Between two commas, and at either end, there may be an empty value.
    fn set(&mut self) -> Result<BTreeSet<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            // Kubernetes has no comma in this text.
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        match self.peek() {
            Token::Word(_) | Token::Symbol("," | ")") => {}
            other => return Err(found(other, "',', ')' or identifier")),
        }
        let mut values = BTreeSet::new();
        loop {
            let value = match self.peek() {
                Token::Word(value) => {
                    self.position += 1;
                    value
                }
                Token::Symbol("," | ")") => "",
                other => return Err(found(other, "',', or identifier")),
            };
            values.insert(value.to_owned());
            match self.next() {
                Token::Symbol(",") => {}
                Token::Symbol(")") => return Ok(values),
                other => return Err(found(other, "',' or ')'")),
            }
        }
    }

    fn peek(&self) -> Token<'t> {
        self.tokens.get(self.position).copied().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn take(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Symbol(found) if found == symbol);
        self.position += usize::from(is_next);
        is_next
    }
}

fn found(token: Token<'_>, expected: &str) -> String {
    format!("found '{}', expected: {expected}", token.text())
}

fn check_values(key: &str, operator: Operator, values: &BTreeSet<String>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = |index| FieldPath::new("values").index(index);
    if matches!(operator, Operator::Above | Operator::Below) {
        for (index, value) in values.iter().enumerate().filter(|(_, value)| value.parse::<i64>().is_err()) {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            errors.push(FieldError::invalid_str(path(index), value, detail));
        }
    }
    for (index, value) in values.iter().enumerate() {
        let findings = label_value(value);
        if !findings.is_empty() {
            errors.push(FieldError::invalid_str(path(index).key(key), value, &findings.join("; ")));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results of `labels.Parse` of Kubernetes.
    #[test]
    fn errors_have_the_texts_of_kubernetes() {
        for (selector, expected) in [
            ("a in b", r#"unable to parse requirement: found 'b' expected: '('"#),
            ("a in (b", r#"unable to parse requirement: found '', expected: ',' or ')'"#),
            ("a in (b c)", r#"unable to parse requirement: found 'c', expected: ',' or ')'"#),
            ("a in (b!)", r#"unable to parse requirement: found '!', expected: ',' or ')'"#),
            ("a in (!", r#"unable to parse requirement: found '!', expected: ',', ')' or identifier"#),
            ("a in", r#"unable to parse requirement: found '' expected: '('"#),
            ("=b", r#"found '=', expected: !, identifier, or 'end of string'"#),
            ("a=b c", r#"found 'c', expected: ',' or 'end of string'"#),
            (
                "a=-b",
                r#"unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
            ),
            (
                "/a=b",
                r#"unable to parse requirement: <nil>: Invalid value: "/a": prefix part must be non-empty"#,
            ),
            (
                "-a",
                r#"unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            ),
            (
                "a within (b)",
                r#"unable to parse requirement: found 'within', expected: in, notin, =, ==, !=, gt, lt"#,
            ),
            (",", r#"found ',', expected: !, identifier, or 'end of string'"#),
            (",,", r#"found ',', expected: !, identifier, or 'end of string'"#),
            ("a,", r#"found '', expected: identifier after ','"#),
            (",a", r#"found ',', expected: !, identifier, or 'end of string'"#),
            ("a,,b", r#"found ',', expected: identifier after ','"#),
            ("a in ()", r#""#),
            ("a notin (,)", r#""#),
            ("a in (b,,c)", r#""#),
            (
                "a>",
                r#"unable to parse requirement: values[0]: Invalid value: "": for 'Gt', 'Lt' operators, the value must be an integer"#,
            ),
            (
                "a>b",
                r#"unable to parse requirement: values[0]: Invalid value: "b": for 'Gt', 'Lt' operators, the value must be an integer"#,
            ),
            (
                "a<1.5",
                r#"unable to parse requirement: values[0]: Invalid value: "1.5": for 'Gt', 'Lt' operators, the value must be an integer"#,
            ),
            (
                "a>-1",
                r#"unable to parse requirement: values[0][a]: Invalid value: "-1": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
            ),
            ("a=!", r#"unable to parse requirement: found '!', expected: identifier"#),
            ("a=(", r#"unable to parse requirement: found '(', expected: identifier"#),
            ("!", r#"unable to parse requirement: found '', expected: identifier"#),
            ("!=a", r#"found '!=', expected: !, identifier, or 'end of string'"#),
            ("!a=b", r#"found '=', expected: ',' or 'end of string'"#),
            ("a b", r#"unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"#),
            ("a!b", r#"unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"#),
            ("a ! b", r#"unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"#),
            ("(a)", r#"found '(', expected: !, identifier, or 'end of string'"#),
            ("a=b=c", r#"found '=', expected: ',' or 'end of string'"#),
            ("a)", r#"unable to parse requirement: found ')', expected: in, notin, =, ==, !=, gt, lt"#),
            ("in in (in)", r#""#),
            ("a in (in)", r#""#),
            ("!!a", r#"unable to parse requirement: found '!', expected: identifier"#),
            ("a=>b", r#"unable to parse requirement: found '>', expected: identifier"#),
            (
                "a in (-b,-c)",
                r#"unable to parse requirement: [values[0][a]: Invalid value: "-b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'), values[1][a]: Invalid value: "-c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')]"#,
            ),
            (
                "é",
                r#"unable to parse requirement: <nil>: Invalid value: "é": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            ),
            (
                "a=é",
                r#"unable to parse requirement: values[0][a]: Invalid value: "é": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
            ),
            ("x=a,y in (", r#"unable to parse requirement: found '', expected: ',', ')' or identifier"#),
        ] {
            let error = parse(selector).map(|_| String::new()).unwrap_or_else(|error| error);
            assert_eq!(error, expected, "{selector:?}");
        }
    }
}
