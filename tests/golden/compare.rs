//! Finds the differences between two normalised documents.

use serde_json::Value;

/// A difference between kcp's and Fairlead's response.
#[derive(Clone, Debug)]
pub struct Difference {
    /// `/status`, `/headers/<name>`, `/body/…`: keys joined by slashes, not escaped.
    pub at: String,
    /// kcp's value; `None` if it has none.
    pub theirs: Option<Value>,
    /// Fairlead's value; `None` if it has none.
    pub ours: Option<Value>,
}

/// Compares whole responses. If their statuses differ, only that is reported, with the messages: the rest of two
/// responses of different kinds differs everywhere.
pub fn compare_responses(theirs: &Value, ours: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    if theirs["status"] != ours["status"] {
        let brief = |response: &Value| {
            let message = response.pointer("/body/message").or(response.get("body"));
            Some(Value::String(format!("{} {}", response["status"], message.unwrap_or_default())))
        };
        found.push(Difference { at: "/status".to_owned(), theirs: brief(theirs), ours: brief(ours) });
        return found;
    }
    compare("/headers", &theirs["headers"], &ours["headers"], &mut found);
    let content_type = |response: &Value| response["headers"]["content-type"].as_str().map(str::to_owned);
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

/// Appends the differences below `at` to `found`.
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

/// Compares the order of the items that both lists have. Items of one list only are reported by [`compare`].
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
