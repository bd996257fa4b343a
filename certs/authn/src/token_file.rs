//! Static tokens from a file: `token,user,uid,"group1,group2"`, one user per line.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::{
    AuthenticationMethod, Authenticator, CredentialKind, Identity, Reason, RequestCredentials, UserInfo,
    Verdict, VerdictFuture,
};

/// The users of a token file.
///
/// Tokens are stored as SHA-256 digests only: the time of the comparison reveals nothing about a token, and a memory dump
/// contains none.
pub struct TokenFile {
    users: HashMap<[u8; 32], Arc<Identity>>,
}

/// A token file that cannot be used; its author has to correct it. Never quotes the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A line is malformed.
    #[error("{path}:{line}: {problem}")]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The problem.
        problem: &'static str,
    },
}

impl TokenFile {
    /// Reads a token file.
    pub fn load(path: &Path) -> Result<Self, TokenFileError> {
        let text = fs::read_to_string(path)
            .map_err(|source| TokenFileError::Io { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// The users of tokens of which only the SHA-256 digest is known.
    #[must_use]
    pub fn of_digests(users: impl IntoIterator<Item = ([u8; 32], UserInfo)>) -> Self {
        let users = users.into_iter().map(|(digest, user)| {
            let identity = Arc::new(Identity::new(user, AuthenticationMethod::TokenFile, None));
            (digest, identity.in_group_authenticated())
        });
        Self { users: users.collect() }
    }

    /// Reads the text of a token file; `path` is for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, TokenFileError> {
        let mut users = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let fault = |problem| TokenFileError::Line { path: path.to_owned(), line: index + 1, problem };
            let (token, user) = parse_line(line).map_err(fault)?;
            match users.entry(digest(&token)) {
                Entry::Occupied(_) => return Err(fault("the token appears on an earlier line too")),
                Entry::Vacant(entry) => {
                    let identity = Arc::new(Identity::new(user, AuthenticationMethod::TokenFile, None));
                    // Done here and not for each request.
                    entry.insert(identity.in_group_authenticated());
                }
            }
        }
        Ok(Self { users })
    }
}

impl Authenticator for TokenFile {
    fn name(&self) -> &'static str {
        "token file"
    }

    fn credential_kind(&self) -> CredentialKind {
        CredentialKind::BearerToken
    }

    /// Costs one SHA-256 over the token and one look-up.
    fn authenticate<'a>(&'a self, request: &RequestCredentials<'a>) -> VerdictFuture<'a> {
        VerdictFuture::Ready(match request.token {
            None => Verdict::NoOpinion,
            Some(token) => match self.users.get(token.digest()) {
                Some(identity) => Verdict::Accepted(Arc::clone(identity)),
                None => Verdict::Declined(Reason::UnknownToken),
            },
        })
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile").field("users", &self.users.len()).finish()
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn parse_line(line: &str) -> Result<(String, UserInfo), &'static str> {
    let mut fields = split(line)?.into_iter();
    let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
        return Err("expected token,user,uid and perhaps \"group1,group2\"");
    };
    let groups = fields.next().unwrap_or_default();
    if fields.next().is_some() {
        return Err("too many fields: several groups are one field in double quotes");
    }
    if token.is_empty() || token.chars().any(|char| char.is_whitespace() || char.is_control()) {
        return Err("the token is empty or contains spaces");
    }
    if name.is_empty() {
        return Err("the user's name is empty");
    }
    let groups: Vec<String> = match groups.as_str() {
        "" => Vec::new(),
        list => list.split(',').map(str::to_owned).collect(),
    };
    let names = groups.iter().chain([&name]);
    if groups.iter().any(String::is_empty) {
        return Err("a group's name is empty");
    }
    if names.into_iter().any(|name| name.trim() != name || name.chars().any(char::is_control)) {
        return Err("a name begins or ends with a space, or contains control characters");
    }
    let uid = Some(uid).filter(|uid| !uid.is_empty());
    Ok((token, UserInfo { name, uid, groups, extra: Default::default() }))
}

/// The fields of a line of comma-separated values (RFC 4180; a value does not span lines).
fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (field, after) = rest.split_at(end);
                if field.contains('"') {
                    return Err("a double quote inside a field that is not quoted as a whole");
                }
                (field.to_owned(), after)
            }
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(fields),
            None => return Err("text after a closing double quote"),
        }
    }
}

/// A quoted field up to its closing quote, and what follows. Two quotes inside stand for one.
fn unquote(mut rest: &str) -> Result<(String, &str), &'static str> {
    let mut field = String::new();
    loop {
        let Some((before, after)) = rest.split_once('"') else {
            return Err("a double quote is not closed");
        };
        field.push_str(before);
        match after.strip_prefix('"') {
            Some(next) => {
                field.push('"');
                rest = next;
            }
            None => return Ok((field, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<TokenFile, String> {
        TokenFile::parse(text, Path::new("tokens.csv")).map_err(|error| error.to_string())
    }

    fn user(file: &TokenFile, token: &str) -> Option<UserInfo> {
        file.users.get(&digest(token)).map(|identity| identity.user().clone())
    }

    #[test]
    fn each_line_is_a_user() {
        let file = parse(
            "admin-token,admin,1,\"system:masters,team \"\"a\"\"\"\r\n\nplain,user-1,,team-1\n\
             \"q,t\",user-2,2\nlast,user-3,3,",
        )
        .unwrap();
        let expected = |name: &str, uid: Option<&str>, groups: &[&str]| {
            Some(UserInfo {
                name: name.to_owned(),
                uid: uid.map(str::to_owned),
                groups: groups.iter().chain(&["system:authenticated"]).map(ToString::to_string).collect(),
                extra: Default::default(),
            })
        };
        assert_eq!(
            user(&file, "admin-token"),
            expected("admin", Some("1"), &["system:masters", "team \"a\""])
        );
        assert_eq!(user(&file, "plain"), expected("user-1", None, &["team-1"]));
        assert_eq!(user(&file, "q,t"), expected("user-2", Some("2"), &[]));
        assert_eq!(user(&file, "last"), expected("user-3", Some("3"), &[]));
        assert_eq!(user(&file, "Plain"), None);
    }

    #[test]
    fn mistakes_are_named_with_file_and_line_and_without_the_token() {
        let cases = [
            ("ok,u,1\nsecret,u", "tokens.csv:2: expected token,user,uid and perhaps \"group1,group2\""),
            (
                "secret,u,1,g1,g2",
                "tokens.csv:1: too many fields: several groups are one field in double quotes",
            ),
            ("secret,u,1\n\nsecret,v,2", "tokens.csv:3: the token appears on an earlier line too"),
            (",u,1", "tokens.csv:1: the token is empty or contains spaces"),
            ("sec ret,u,1", "tokens.csv:1: the token is empty or contains spaces"),
            ("secret,,1", "tokens.csv:1: the user's name is empty"),
            ("secret,u,1,\"a,,b\"", "tokens.csv:1: a group's name is empty"),
            (
                "secret,u,1,\"a, b\"",
                "tokens.csv:1: a name begins or ends with a space, or contains control characters",
            ),
            ("secret,u,1,\"a", "tokens.csv:1: a double quote is not closed"),
            ("secret,u,1,\"a\"b", "tokens.csv:1: text after a closing double quote"),
            (
                "secret,u,1, \"a,b\"",
                "tokens.csv:1: a double quote inside a field that is not quoted as a whole",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text).err().as_deref(), Some(expected), "{text:?}");
            assert!(!expected.contains("secret"));
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = TokenFile::load(Path::new("does/not/exist.csv")).unwrap_err().to_string();
        assert!(error.starts_with("cannot read does/not/exist.csv: "), "{error}");
    }

    #[test]
    fn debug_output_shows_no_token() {
        assert_eq!(format!("{:?}", parse("secret,u,1").unwrap()), "TokenFile { users: 1 }");
    }
}
