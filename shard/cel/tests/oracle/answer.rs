//! Answers to cases: what this crate and Kubernetes say about an expression.

#![allow(clippy::expect_used, reason = "tests")]

use fairlead_cel::{Budget, DeclType, Environment, Inputs, Value, Variable};
use serde_json::{Value as Json, json};

/// Expressions over one object.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) schema: Json,
    pub(crate) object: Json,
    pub(crate) old_object: Json,
    pub(crate) rules: Vec<String>,
}

impl Case {
    /// The line that the oracle reads.
    pub(crate) fn to_json(&self) -> Json {
        json!({
            "schema": self.schema, "object": self.object, "oldObject": self.old_object, "rules": self.rules, "any": true,
        })
    }

    /// The answers of this crate, in the form of the oracle.
    pub(crate) fn answers(&self) -> Vec<Json> {
        let declared = DeclType::from_schema(&self.schema, "selfType0", false).expect("a schema with a type");
        let declared = std::sync::Arc::new(declared);
        let environment = Environment::default()
            .with_variable("self", Variable::Json(declared.clone()))
            .with_variable("oldSelf", Variable::Json(declared));
        let inputs =
            Inputs::new(&environment).with_json("self", &self.object).with_json("oldSelf", &self.old_object);
        self.rules.iter().map(|rule| answer(&environment, &inputs, rule)).collect()
    }
}

fn answer(environment: &Environment, inputs: &Inputs<'_>, rule: &str) -> Json {
    let program = match environment.compile(rule) {
        Ok(program) => program,
        Err(error) => return json!({ "compile": error.to_string() }),
    };
    let estimate = program.estimate();
    let evaluation = program.evaluate(inputs, &mut Budget::default());
    let mut answer = json!({
        "type": program.output_type().to_string(), "est": estimate.max, "estMin": estimate.min, "cost": evaluation.cost,
    });
    match &evaluation.result {
        Ok(value) => answer["result"] = show(value).into(),
        Err(error) => answer["err"] = error.to_string().into(),
    }
    answer
}

/// A value in the form of the oracle.
fn show(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => format!("{value}u"),
        Value::Double(value) => format!("d{:016x}", value.to_bits()),
        Value::String(text) => go_json(text.as_str()),
        Value::Bytes(bytes) => {
            format!("b{}", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        Value::Duration(duration) => format!("D{}", duration.nanoseconds),
        Value::Timestamp(time) => format!("t{}.{}", time.seconds, time.nanoseconds),
        Value::List(list) => match list.items() {
            Ok(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(",")),
            Err(error) => format!("<{error}>"),
        },
        Value::Map(map) => match map.entries() {
            Ok(entries) => {
                let mut texts: Vec<String> =
                    entries.iter().map(|(key, value)| format!("{}:{}", show(key), show(value))).collect();
                texts.sort();
                format!("{{{}}}", texts.join(","))
            }
            Err(error) => format!("<{error}>"),
        },
        Value::Optional(None) => "none".to_owned(),
        Value::Optional(Some(value)) => format!("opt({})", show(value)),
        Value::Type(name) => format!("type({name})"),
        Value::Preserved(_) => "<unknown>".to_owned(),
        other => format!("<{}>", other.type_name()),
    }
}

/// A string as Go's JSON encoder writes it.
fn go_json(text: &str) -> String {
    let json = Json::from(text).to_string();
    let escaped = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    escaped.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029")
}

/// The short form of an answer that changes from time to time.
pub(crate) const UNSTABLE: &str = "~";

/// The short form of an answer: `!` and the error of the compilation, or estimates, cost, type, and the result or `!` and
/// the error. The expression is left out of errors.
pub(crate) fn shorten(answer: &Json, rule: &str) -> String {
    if answer["unstable"].as_bool().unwrap_or(false) {
        return UNSTABLE.to_owned();
    }
    let answer = normalize(answer);
    if let Some(error) = answer["compile"].as_str() {
        return format!("!{}", without_snippets(error, rule));
    }
    let text = |name: &str| answer[name].as_str().unwrap_or_default();
    let error = answer["err"].as_str().map(|error| format!("!{error}"));
    format!(
        "{} {} {} {}\t{}",
        answer["estMin"],
        answer["est"],
        answer["cost"],
        text("type"),
        error.as_deref().unwrap_or(text("result"))
    )
}

/// The errors of a compilation without the lines that show the expression and the column. Lines that show something else
/// stay.
fn without_snippets(error: &str, rule: &str) -> String {
    let mut output = String::new();
    let mut rest = error;
    let line = format!("\n | {rule}\n | ");
    while let Some((before, after)) = rest.split_once(&line) {
        output.push_str(before);
        let dots = after.bytes().take_while(|byte| *byte == b'.').count();
        let column = before
            .rsplit_once("<input>:1:")
            .and_then(|(_, text)| text.split(':').next()?.parse::<usize>().ok());
        rest = match after[dots..].strip_prefix('^') {
            Some(rest) if column == Some(dots + 1) => rest,
            _ => {
                output.push_str(&line);
                after
            }
        };
    }
    output.push_str(rest);
    output
}

/// An answer without what may differ: random names of types, the details of errors that clients do not match, and
/// all but the fact of syntax errors.
fn normalize(answer: &Json) -> Json {
    let mut normalized = json!({});
    for field in ["compile", "type", "result", "err"] {
        let Some(text) = answer[field].as_str().filter(|text| !text.is_empty()) else {
            continue;
        };
        normalized[field] = normalize_text(text).into();
    }
    if normalized["compile"].is_null() {
        for field in ["est", "estMin", "cost"] {
            normalized[field] = answer[field].clone();
        }
    } else {
        normalized = json!({ "compile": normalized["compile"] });
    }
    normalized
}

fn normalize_text(text: &str) -> String {
    if text.contains("Syntax error: ") {
        return "Syntax error".to_owned();
    }
    let mut output = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("selfType") {
        let (before, after) = rest.split_at(start + "selfType".len());
        output.push_str(before);
        rest = after.trim_start_matches(|digit: char| digit.is_ascii_digit());
    }
    output.push_str(rest);
    // Numbers of type variables.
    while let Some(start) =
        output.find("_var").filter(|start| output[start + 4..].starts_with(|c: char| c.is_ascii_digit()))
    {
        let digits = output[start + 4..].chars().take_while(char::is_ascii_digit).count();
        output.replace_range(start..start + 4 + digits, "_v");
    }
    // The oracle shows fields with `null`, which cannot be read.
    while let Some(end) = output.find(":?") {
        let start = output[..end].rfind(['{', ',']).map_or(0, |start| start + 1);
        let length = if output[end + 2..].starts_with(',') { 3 } else { 2 };
        output.replace_range(start..end + length, "");
    }
    let output = output.replace(",}", "}");
    let details = [
        "no such overload",
        "program instantiation failed: no such overload",
        "program instantiation failed: error parsing regexp",
        "IP Address",
        "unsupported comprehension range type",
        "network address parse error",
        "got '",
        "invalid qualifier type",
        "program instantiation failed: invalid qualifier type",
        "Invalid byte formatted",
        "Invalid date",
        "Illegal regex: error parsing regexp",
    ];
    match details.iter().find(|detail| output.starts_with(**detail)) {
        Some(detail) => (*detail).to_owned(),
        None => output,
    }
}
