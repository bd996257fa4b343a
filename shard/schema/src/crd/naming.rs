//! Accepted names: resolves conflicts between the names of definitions in one group.

use std::collections::HashSet;

use super::CrdNames;

/// The names and conditions for a definition's status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesStatus {
    /// `status.acceptedNames`: the requested names that are free, and the previous ones instead of those that are
    /// taken.
    pub accepted: CrdNames,
    /// `NamesAccepted` and `Established`, in the order of kcp.
    pub conditions: [CrdCondition; 2],
}

impl NamesStatus {
    /// Whether the definition is `Established`, that is, served.
    pub const fn is_established(&self) -> bool {
        self.conditions[1].is_true
    }
}

/// A condition of a definition's status, without its timestamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CrdCondition {
    /// `NamesAccepted` or `Established`.
    pub condition_type: &'static str,
    /// `status`: `True` or `False`.
    pub is_true: bool,
    /// `reason`: one word in CamelCase.
    pub reason: &'static str,
    /// `message`: a sentence.
    pub message: String,
}

/// Computes the accepted names of a definition.
///
/// `accepted` is the definition's current `status.acceptedNames`, `others` has the accepted names of all other
/// definitions in the group, and `established` is whether the definition is already served; an established definition
/// stays established. A new definition whose names are all free is established at once, because there are no other
/// servers that must see it first.
pub fn accepted_names<'n>(
    requested: &CrdNames,
    accepted: &CrdNames,
    established: bool,
    others: impl IntoIterator<Item = &'n CrdNames>,
) -> NamesStatus {
    let mut resources: HashSet<&str> = HashSet::new();
    let mut kinds: HashSet<&str> = HashSet::new();
    for other in others {
        resources.extend([other.plural.as_str(), other.singular.as_str()]);
        resources.extend(other.short_names.iter().map(String::as_str));
        kinds.extend([other.kind.as_str(), other.list_kind.as_str()]);
    }
    let mut result = accepted.clone();
    let mut conflict: Option<(&'static str, String)> = None;
    let mut accept = |requested: &String, accepted: &mut String, taken: &HashSet<&str>, reason| {
        if requested == accepted || !taken.contains(requested.as_str()) {
            accepted.clone_from(requested);
        } else {
            conflict = Some((reason, in_use(requested)));
        }
    };
    accept(&requested.plural, &mut result.plural, &resources, "PluralConflict");
    accept(&requested.singular, &mut result.singular, &resources, "SingularConflict");
    let taken: Vec<&String> = requested
        .short_names
        .iter()
        .filter(|name| !accepted.short_names.contains(name) && resources.contains(name.as_str()))
        .collect();
    if taken.is_empty() {
        result.short_names.clone_from(&requested.short_names);
    }
    accept(&requested.kind, &mut result.kind, &kinds, "KindConflict");
    accept(&requested.list_kind, &mut result.list_kind, &kinds, "ListKindConflict");
    result.categories.clone_from(&requested.categories);
    if !taken.is_empty() && conflict.is_none() {
        let messages: Vec<String> = taken.into_iter().map(|name| in_use(name)).collect();
        let message =
            if messages.len() == 1 { messages[0].clone() } else { format!("[{}]", messages.join(", ")) };
        conflict = Some(("ShortNamesConflict", message));
    }
    let accepted_all = conflict.is_none();
    let (reason, message) = conflict.unwrap_or_else(|| ("NoConflicts", "no conflicts found".to_owned()));
    let (established_reason, established_message) = if established || accepted_all {
        ("InitialNamesAccepted", "the initial names have been accepted")
    } else {
        ("NotAccepted", "not all names are accepted")
    };
    NamesStatus {
        accepted: result,
        conditions: [
            CrdCondition { condition_type: "NamesAccepted", is_true: accepted_all, reason, message },
            CrdCondition {
                condition_type: "Established",
                is_true: established || accepted_all,
                reason: established_reason,
                message: established_message.to_owned(),
            },
        ],
    }
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", crate::field::go_quote(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(plural: &str, kind: &str, short_names: &[&str]) -> CrdNames {
        CrdNames {
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            short_names: short_names.iter().map(|name| (*name).to_owned()).collect(),
            categories: vec!["all".to_owned()],
        }
    }

    #[test]
    fn free_names_are_accepted_and_established() {
        let wanted = names("widgets", "Widget", &["wd"]);
        let naming =
            accepted_names(&wanted, &CrdNames::default(), false, [&names("gadgets", "Gadget", &["gd"])]);
        assert_eq!(naming.accepted, wanted);
        assert!(naming.is_established());
        let [accepted, established] = naming.conditions;
        assert_eq!((accepted.reason, accepted.message.as_str()), ("NoConflicts", "no conflicts found"));
        assert_eq!(
            (established.reason, established.message.as_str()),
            ("InitialNamesAccepted", "the initial names have been accepted")
        );
    }

    #[test]
    fn taken_names_are_refused_one_by_one() {
        let other = names("widgets", "Widget", &["wd"]);
        let table = [
            (names("widgets", "Other", &[]), "PluralConflict", "\"widgets\" is already in use"),
            (names("others", "Widget", &[]), "ListKindConflict", "\"WidgetList\" is already in use"),
            (names("others", "Other", &["wd", "o"]), "ShortNamesConflict", "\"wd\" is already in use"),
            (names("wd", "Other", &[]), "PluralConflict", "\"wd\" is already in use"),
        ];
        for (wanted, reason, message) in table {
            let naming = accepted_names(&wanted, &CrdNames::default(), false, [&other]);
            assert!(!naming.is_established());
            let [accepted, established] = naming.conditions;
            assert_eq!(
                (accepted.is_true, accepted.reason, accepted.message.as_str()),
                (false, reason, message)
            );
            assert_eq!((established.is_true, established.reason), (false, "NotAccepted"));
        }
    }

    #[test]
    fn established_definitions_stay_established() {
        let other = names("widgets", "Widget", &["wd"]);
        let mine = names("mine", "Mine", &["m"]);
        let wanted = CrdNames { short_names: vec!["wd".to_owned()], ..mine.clone() };
        let naming = accepted_names(&wanted, &mine, true, [&other]);
        assert!(naming.is_established());
        assert!(!naming.conditions[0].is_true);
        assert_eq!(naming.accepted.short_names, ["m"], "the former short names stay");
    }
}
