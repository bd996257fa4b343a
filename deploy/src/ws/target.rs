//! Where somebody wants to go: the arithmetic of workspace paths. Pure.

use fairlead_names::WorkspacePath;

/// A target as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Here.
    Current,
    /// Where we were before.
    Previous,
    /// The top-most ancestor of the current workspace.
    Top,
    /// The user's home, and from there on; with how it was asked for.
    Home { steps: String, asked: Asked },
    /// From the top, in the form in which it was asked for.
    Absolute { steps: String, form: Form },
    /// From here.
    Relative { steps: String },
}

/// How somebody asked for his home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// By `~`.
    ByName,
    /// By saying nothing at all.
    BySilence,
}

/// How an absolute path was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `:root:a`.
    Colon,
    /// `root:a`, as it used to be.
    Bare,
}

/// A path that leads nowhere. The user has to type another one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    #[error("cannot go up from {0}")]
    AboveTop(String),
    #[error("invalid workspace path: {0:?}")]
    Malformed(String),
}

impl Target {
    /// Reads an argument; `home` is the shell's home directory, which is what becomes of an unquoted `~`.
    pub(crate) fn parse(argument: Option<&str>, home: Option<&str>) -> Self {
        let Some(argument) = argument.filter(|argument| !argument.is_empty()) else {
            return Self::Home { steps: String::new(), asked: Asked::BySilence };
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
            return Self::Home { steps: steps.replace('/', ":"), asked: Asked::ByName };
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

/// Goes step by step: names, `.` and `..`. `start` is where to begin; from nowhere the first step must be a name.
pub(crate) fn walk(start: Option<&WorkspacePath>, steps: &str) -> Result<WorkspacePath, TargetError> {
    let malformed = || TargetError::Malformed(steps.to_owned());
    let mut here = start.cloned();
    // One colon at either end is a slip that hurts nobody.
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
    fn arguments_are_understood_as_the_plugin_does() {
        let home = |steps: &str, asked| Target::Home { steps: steps.to_owned(), asked };
        let absolute = |steps: &str, form| Target::Absolute { steps: steps.to_owned(), form };
        let relative = |steps: &str| Target::Relative { steps: steps.to_owned() };
        for (argument, target) in [
            (None, home("", Asked::BySilence)),
            (Some(""), home("", Asked::BySilence)),
            (Some("~"), home("", Asked::ByName)),
            (Some("~:a/b"), home(":a:b", Asked::ByName)),
            (Some("/home/me"), home("", Asked::ByName)),
            (Some("/home/me/a"), home(":a", Asked::ByName)),
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
        assert_eq!(Target::parse(Some("/root"), Some("/root")), home("", Asked::ByName));
        assert_eq!(Target::parse(Some("/root"), None), absolute("root", Form::Colon));
    }

    #[test]
    fn steps_lead_to_paths() {
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
            assert_eq!(walk(start, steps).unwrap().as_str(), end, "{steps}");
        }
    }

    #[test]
    fn wrong_turns_are_named() {
        let root = path("root");
        let above = TargetError::AboveTop("root".to_owned());
        assert_eq!(walk(Some(&root), ".."), Err(above.clone()));
        assert_eq!(walk(Some(&root), "a:..:.."), Err(above.clone()));
        assert_eq!(above.to_string(), "cannot go up from root");
        for (start, steps) in
            [(Some(&root), "a::b"), (Some(&root), "A"), (None, ""), (None, ".."), (None, ".")]
        {
            assert_eq!(walk(start, steps), Err(TargetError::Malformed(steps.to_owned())), "{steps}");
        }
    }

    #[test]
    fn the_top_has_no_parent() {
        assert_eq!(top_of(&path("root:a:b")).as_str(), "root");
        assert_eq!(top_of(&path("x")).as_str(), "x");
    }
}
