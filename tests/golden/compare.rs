//! Finds what differs between two normalised documents.

use serde_json::Value;

/// One thing that differs.
#[derive(Clone, Debug)]
pub struct Difference {
    /// `/status`, `/headers/<name>`, `/body/…`: keys joined by slashes, as they are.
    pub at: String,
    /// What kcp says; absent if it does not.
    pub theirs: Option<Value>,
    pub ours: Option<Value>,
}

/// Compares whole answers. Where they are of different kinds, only that is found: two different things differ in
/// everything.
pub fn compare_answers(theirs: &Value, ours: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    if theirs["status"] != ours["status"] {
        let brief = |answer: &Value| {
            let said = answer.pointer("/body/message").or(answer.get("body"));
            Some(Value::String(format!("{} {}", answer["status"], said.unwrap_or_default())))
        };
        found.push(Difference { at: "/status".to_owned(), theirs: brief(theirs), ours: brief(ours) });
        return found;
    }
    compare("/headers", &theirs["headers"], &ours["headers"], &mut found);
    let content_type = |answer: &Value| answer["headers"]["content-type"].as_str().map(str::to_owned);
    let (their_type, our_type) = (content_type(theirs), content_type(ours));
    let is_readable_instead =
        their_type != our_type && their_type.as_ref().is_some_and(|kind| kind.contains("protobuf"));
    if is_readable_instead && let Some(difference) = found.iter_mut().find(|d| d.at.ends_with("content-type"))
    {
        "/protobuf".clone_into(&mut difference.at);
    }
    if their_type == our_type || is_readable_instead {
        compare("/body", &theirs["body"], &ours["body"], &mut found);
    }
    found
}

/// Adds what differs below `at`.
pub fn compare(at: &str, theirs: &Value, ours: &Value, found: &mut Vec<Difference>) {
    match (theirs, ours) {
        (Value::Object(theirs), Value::Object(ours)) => {
            for (key, value) in theirs {
                let at = format!("{at}/{key}");
                match ours.get(key) {
                    _ if key == "<order>" => compare_order(&at, value, &ours["<order>"], found),
                    Some(other) => compare(&at, value, other, found),
                    None => found.push(Difference { at, theirs: Some(value.clone()), ours: None }),
                }
            }
            for (key, value) in ours.iter().filter(|(key, _)| !theirs.contains_key(*key)) {
                found.push(Difference { at: format!("{at}/{key}"), theirs: None, ours: Some(value.clone()) });
            }
        }
        (Value::Array(theirs), Value::Array(ours))
            if theirs.len() == ours.len() && theirs.iter().chain(ours).any(Value::is_object) =>
        {
            for (index, (theirs, ours)) in theirs.iter().zip(ours).enumerate() {
                compare(&format!("{at}/{index}"), theirs, ours, found);
            }
        }
        _ if theirs == ours => {}
        _ => found.push(Difference {
            at: at.to_owned(),
            theirs: Some(theirs.clone()),
            ours: Some(ours.clone()),
        }),
    }
}

/// What both lists have must come in the same order; what only one has is found elsewhere.
fn compare_order(at: &str, theirs: &Value, ours: &Value, found: &mut Vec<Difference>) {
    let common = |these: &Value, those: &Value| -> Vec<Value> {
        let those = those.as_array().cloned().unwrap_or_default();
        let these = these.as_array().cloned().unwrap_or_default();
        these.into_iter().filter(|item| those.contains(item)).collect()
    };
    let (theirs, ours) = (common(theirs, ours), common(ours, theirs));
    if theirs != ours {
        found.push(Difference { at: at.to_owned(), theirs: Some(theirs.into()), ours: Some(ours.into()) });
    }
}
