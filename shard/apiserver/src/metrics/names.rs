//! Names of resources as label values, limited in number.

use parking_lot::RwLock;
use rustc_hash::FxHashSet;

/// Custom resources with a label value of their own.
const MAX_NAMES: usize = 2000;

/// The label value of resources beyond the limit.
pub(super) const OTHER: &str = "other";

/// The names that are in use.
#[derive(Default)]
pub(super) struct BoundedNames(RwLock<FxHashSet<(Box<str>, Box<str>)>>);

impl BoundedNames {
    /// The label values of a resource.
    pub(super) fn of<'n>(&self, is_built_in: bool, group: &'n str, resource: &'n str) -> (&'n str, &'n str) {
        if is_built_in || self.admits((group.into(), resource.into())) {
            (group, resource)
        } else {
            (OTHER, OTHER)
        }
    }

    fn admits(&self, name: (Box<str>, Box<str>)) -> bool {
        {
            let names = self.0.read();
            if names.contains(&name) {
                return true;
            }
            if names.len() >= MAX_NAMES {
                return false;
            }
        }
        let mut names = self.0.write();
        names.len() < MAX_NAMES && names.insert(name.clone()) || names.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_limit_share_a_label() {
        let names = BoundedNames::default();
        for number in 0..MAX_NAMES {
            let resource = format!("boats{number}");
            assert_eq!(names.of(false, "example.com", &resource), ("example.com", &*resource));
        }
        assert_eq!(names.of(false, "example.com", "one-more"), (OTHER, OTHER));
        assert_eq!(names.of(false, "example.com", "boats7"), ("example.com", "boats7"));
        assert_eq!(names.of(true, "", "secrets"), ("", "secrets"));
    }
}
