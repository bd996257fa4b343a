//! The users file.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// All users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Users(Vec<User>);

/// A user of the issuer.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct User {
    /// The claim `sub`.
    pub(crate) name: String,
    /// The claim `groups`.
    #[serde(default)]
    pub(crate) groups: Vec<String>,
}

/// Errors of the users file. The operator has to correct it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    #[error("{} cannot be read: {source}", file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    #[error("{} is not a list of users: {reason}", file.display())]
    Malformed { file: PathBuf, reason: String },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UsersFile {
    users: Vec<User>,
}

/// Maximum number of users: they have to fit on one page.
const MAX_USERS: usize = 1_000;
/// Maximum length of a name.
const MAX_NAME_LENGTH: usize = 256;

impl Users {
    pub(crate) fn load(file: &Path) -> Result<Self, UsersError> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| UsersError::Unreadable { file: file.to_owned(), source })?;
        Self::parse(&text).map_err(|reason| UsersError::Malformed { file: file.to_owned(), reason })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let UsersFile { users } =
            serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())?;
        if users.is_empty() || users.len() > MAX_USERS {
            return Err(format!("there are {} users; 1 to {MAX_USERS} are allowed", users.len()));
        }
        for (index, user) in users.iter().enumerate() {
            for name in user.groups.iter().chain([&user.name]) {
                if name.trim().is_empty()
                    || name.len() > MAX_NAME_LENGTH
                    || name.chars().any(char::is_control)
                {
                    return Err(format!("{name:?} is not a valid name of a user or group"));
                }
            }
            if users[..index].iter().any(|before| before.name == user.name) {
                return Err(format!("{:?} occurs twice", user.name));
            }
        }
        Ok(Self(users))
    }

    pub(crate) fn named(&self, name: &str) -> Option<&User> {
        self.0.iter().find(|user| user.name == name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &User> {
        self.0.iter()
    }
}

#[cfg(test)]
impl Users {
    pub(crate) fn of(text: &str) -> Self {
        #[allow(clippy::unwrap_used, reason = "tests")]
        Self::parse(text).unwrap()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn users_are_parsed_strictly() {
        let users = Users::parse("users:\n- name: a\n  groups: [x, y]\n- name: b\n").unwrap();
        assert_eq!(users.named("a").unwrap().groups, ["x", "y"]);
        assert!(users.named("b").unwrap().groups.is_empty() && users.named("c").is_none());
        for (text, part) in [
            ("", "end of input"),
            ("users: []", "there are 0 users"),
            ("users: [{name: a}, {name: a}]", "twice"),
            ("users: [{name: ''}]", "not a valid name"),
            ("users: [{name: \"a\\nb\"}]", "not a valid name"),
            ("users: [{name: a, groups: [' ']}]", "not a valid name"),
            ("users: [{name: a, password: b}]", "password"),
            ("people: [{name: a}]", "people"),
        ] {
            let error = Users::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
