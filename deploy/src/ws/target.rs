//! The argument of `ws PATH`, and relative workspace paths. Pure.

use fairlead_names::WorkspacePath;

/// A parsed argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The current workspace.
    Current,
    /// The previous workspace.
    Previous,
    /// The top-most ancestor of the current workspace.
    Top,
    /// A path from the user's home, and the form of the argument.
    Home { steps: String, requested: HomeRequest },
    /// An absolute path, and the form of the argument.
    Absolute { steps: String, form: Form },
    /// A path from the current workspace.
    Relative { steps: String },
}

/// The form of an argument that means the home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HomeRequest {
    /// `~`, or the home directory of the shell.
    Tilde,
    /// No argument.
    NoArgument,
}

/// The form of an absolute path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `:root:a`.
    Colon,
    /// `root:a`, the former syntax.
    Bare,
}

/// An invalid path. The user has to correct it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("cannot go up from {0}")]
    AboveTop(String),
    #[error("invalid workspace path: {0:?}")]
    Malformed(String),
}

impl Target {
    /// Parses an argument. `home` is the home directory of the shell, which replaces an unquoted `~`.
    pub(crate) fn parse(argument: Option<&str>, home: Option<&str>) -> Self {
        let Some(argument) = argument.filter(|argument| !argument.is_empty()) else {
            return Self::Home { steps: String::new(), requested: HomeRequest::NoArgument };
        };
        match argument {
            "." => return Self::Current,
            "-" => return Self::Previous,
            ":" => return Self::Top,
            _ => {}
        }
        let home = home.filter(|home| !home.is_empty());
        let from_home = ["~"].into_iter().chain(home).find_map(|home| argument.strip_prefix(home));
        if let Some(steps) = from_home.filter(|steps| steps.is_empty() || steps.starts_with([':', '/'])) {
            return Self::Home { steps: steps.replace('/', ":"), requested: HomeRequest::Tilde };
        }
        let steps = argument.replace('/', ":");
        match steps.strip_prefix(':') {
            Some(steps) => Self::Absolute { steps: steps.to_owned(), form: Form::Colon },
            None if steps == "root" || steps.starts_with("root:") => {
                Self::Absolute { steps, form: Form::Bare }
            }
            None => Self::Relative { steps },
        }
    }
}

/// Resolves steps (names, `.` and `..`) from `start`. Without a start, the first step must be a name.
pub(crate) fn resolve(start: Option<&WorkspacePath>, steps: &str) -> Result<WorkspacePath, TargetError> {
    let malformed = || TargetError::Malformed(steps.to_owned());
    let mut here = start.cloned();
    // One colon at either end is ignored.
    let inner = steps.strip_prefix(':').unwrap_or(steps);
    let inner = inner.strip_suffix(':').unwrap_or(inner);
    for step in inner.split(':').filter(|_| !inner.is_empty()) {
        here = match (step, here) {
            (".", here) => here,
            ("..", Some(path)) => Some(path.parent().ok_or_else(|| TargetError::AboveTop(path.to_string()))?),
            ("..", None) => return Err(malformed()),
            (name, None) => Some(WorkspacePath::parse(name).map_err(|_| malformed())?),
            (name, Some(path)) => {
                WorkspacePath::parse(name).map_err(|_| malformed())?;
                Some(path.join(name))
            }
        };
    }
    here.ok_or_else(malformed)
}

/// The ancestor without a parent.
pub(crate) fn top_of(path: &WorkspacePath) -> WorkspacePath {
    let mut top = path.clone();
    while let Some(parent) = top.parent() {
        top = parent;
    }
    top
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::parse(text).unwrap()
    }

    #[test]
    fn arguments_are_parsed_like_those_of_the_plugin() {
        let home = |steps: &str, requested| Target::Home { steps: steps.to_owned(), requested };
        let absolute = |steps: &str, form| Target::Absolute { steps: steps.to_owned(), form };
        let relative = |steps: &str| Target::Relative { steps: steps.to_owned() };
        for (argument, target) in [
            (None, home("", HomeRequest::NoArgument)),
            (Some(""), home("", HomeRequest::NoArgument)),
            (Some("~"), home("", HomeRequest::Tilde)),
            (Some("~:a/b"), home(":a:b", HomeRequest::Tilde)),
            (Some("/home/me"), home("", HomeRequest::Tilde)),
            (Some("/home/me/a"), home(":a", HomeRequest::Tilde)),
            (Some("/home/meadow"), absolute("home:meadow", Form::Colon)),
            (Some("."), Target::Current),
            (Some("-"), Target::Previous),
            (Some(":"), Target::Top),
            (Some(":root:a"), absolute("root:a", Form::Colon)),
            (Some("/root/a"), absolute("root:a", Form::Colon)),
            (Some("root"), absolute("root", Form::Bare)),
            (Some("root:a"), absolute("root:a", Form::Bare)),
            (Some("roots"), relative("roots")),
            (Some(".."), relative("..")),
            (Some("../a"), relative("..:a")),
            (Some("a:b"), relative("a:b")),
        ] {
            assert_eq!(Target::parse(argument, Some("/home/me")), target, "{argument:?}");
        }
        assert_eq!(Target::parse(Some("/root"), Some("/root")), home("", HomeRequest::Tilde));
        assert_eq!(Target::parse(Some("/root"), None), absolute("root", Form::Colon));
    }

    #[test]
    fn steps_are_resolved_to_paths() {
        let here = path("root:a:b");
        for (start, steps, end) in [
            (Some(&here), "c", "root:a:b:c"),
            (Some(&here), "c:d", "root:a:b:c:d"),
            (Some(&here), "..", "root:a"),
            (Some(&here), "..:..", "root"),
            (Some(&here), "..:.:x", "root:a:x"),
            (Some(&here), "", "root:a:b"),
            (Some(&here), ":c", "root:a:b:c"),
            (None, "root", "root"),
            (None, "root:a:", "root:a"),
            (None, "root:a:..:b", "root:b"),
            (None, "user:ann", "user:ann"),
        ] {
            assert_eq!(resolve(start, steps).unwrap().as_str(), end, "{steps}");
        }
    }

    #[test]
    fn invalid_steps_are_refused() {
        let root = path("root");
        let above = TargetError::AboveTop("root".to_owned());
        assert_eq!(resolve(Some(&root), ".."), Err(above.clone()));
        assert_eq!(resolve(Some(&root), "a:..:.."), Err(above.clone()));
        assert_eq!(above.to_string(), "cannot go up from root");
        for (start, steps) in
            [(Some(&root), "a::b"), (Some(&root), "A"), (None, ""), (None, ".."), (None, ".")]
        {
            assert_eq!(resolve(start, steps), Err(TargetError::Malformed(steps.to_owned())), "{steps}");
        }
    }

    #[test]
    fn the_top_of_a_path_has_no_parent() {
        assert_eq!(top_of(&path("root:a:b")).as_str(), "root");
        assert_eq!(top_of(&path("x")).as_str(), "x");
    }
}
