//! The verbs of the API.

use core::fmt;

/// A verb of discovery and RBAC.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Verb {
    /// POST on a collection.
    Create,
    /// DELETE on an object.
    Delete,
    /// DELETE on a collection.
    DeleteCollection,
    /// GET on an object.
    Get,
    /// GET on a collection.
    List,
    /// PATCH on an object.
    Patch,
    /// PUT on an object.
    Update,
    /// GET with `watch=true`.
    Watch,
}

impl Verb {
    /// All verbs in discovery's (alphabetical) order.
    pub const ALL: [Self; 8] = [
        Self::Create,
        Self::Delete,
        Self::DeleteCollection,
        Self::Get,
        Self::List,
        Self::Patch,
        Self::Update,
        Self::Watch,
    ];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }

    /// Whether the verb changes something.
    pub const fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// A set of verbs.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Verbs(u8);

impl Verbs {
    /// The verbs of an ordinary stored resource: all.
    pub const STANDARD: Self = Self(0xff);

    /// A set of the given verbs.
    pub const fn of(verbs: &[Verb]) -> Self {
        let mut set = 0;
        let mut index = 0;
        while index < verbs.len() {
            set |= 1 << verbs[index] as u8;
            index += 1;
        }
        Self(set)
    }

    /// The set of the verbs with these wire names; unknown names are ignored.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        names.into_iter().fold(Self(0), |set, name| {
            let verb = Verb::ALL.into_iter().find(|verb| verb.as_str() == name);
            Self(set.0 | verb.map_or(0, |verb| 1 << verb as u8))
        })
    }

    /// This set without one verb.
    #[must_use]
    pub const fn without(self, verb: Verb) -> Self {
        Self(self.0 & !(1 << verb as u8))
    }

    /// Whether the verb is in the set.
    pub const fn contains(self, verb: Verb) -> bool {
        self.0 & (1 << verb as u8) != 0
    }

    /// The verbs in alphabetical order.
    pub fn iter(self) -> impl Iterator<Item = Verb> {
        Verb::ALL.into_iter().filter(move |verb| self.contains(*verb))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_they_are_given() {
        let set = Verbs::named(["get", "list", "proxy"]);
        assert_eq!(set, Verbs::of(&[Verb::Get, Verb::List]));
        assert_eq!(Verbs::STANDARD.without(Verb::Create).iter().count(), 7);
        assert_eq!(Verbs::STANDARD, Verbs::of(&Verb::ALL));
    }
}
