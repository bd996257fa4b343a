//! The kubeconfig of `ws`: its current workspace, and the change to another one.
//!
//! The context and cluster `workspace.kcp.io/current` name the current workspace of `ws`; `workspace.kcp.io/previous` name
//! the previous one. Other entries are never changed.

use std::path::{Path, PathBuf};

use fairlead_client::{
    Client, ClientOptions, Context, Kubeconfig, ResolvedContext, UnverifiedTls, default_kubeconfig_path,
};
use fairlead_names::WorkspacePath;

use super::WsError;

const CURRENT: &str = "workspace.kcp.io/current";
const PREVIOUS: &str = "workspace.kcp.io/previous";

/// An open kubeconfig and a client of the server in its current context.
#[derive(Debug)]
pub(crate) struct Session {
    file: PathBuf,
    kubeconfig: Kubeconfig,
    context: ResolvedContext,
    client: Client,
}

/// Output format of the current workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathFormat {
    Sentence,
    Path,
}

impl Session {
    /// Opens a kubeconfig, by default the one that kubectl would use.
    pub(crate) fn open(file: Option<&Path>, context: Option<&str>) -> Result<Self, WsError> {
        let file = file.map(Path::to_owned).or_else(default_kubeconfig_path).ok_or(WsError::NoKubeconfig)?;
        let kubeconfig = Kubeconfig::load(&file)?;
        let context = kubeconfig.resolve(context)?;
        let client = Client::from_context(&context, UnverifiedTls::Allow, ClientOptions::default())?;
        Ok(Self { file, kubeconfig, context, client })
    }

    /// The URL of the server.
    pub(crate) fn server(&self) -> &str {
        &self.context.cluster.server
    }

    /// The current workspace.
    pub(crate) fn path(&self) -> Result<WorkspacePath, WsError> {
        workspace_of(&self.context.cluster.server)
            .map(|(_, path)| path)
            .ok_or_else(|| WsError::NotInWorkspace(self.context.cluster.server.clone()))
    }

    /// A client of a workspace.
    pub(crate) fn client(&self, workspace: &WorkspacePath) -> Client {
        let prefix = self.context.endpoint.prefix();
        let base = workspace_of(prefix).map_or(prefix, |(base, _)| base);
        self.client.with_prefix(&format!("{base}/clusters/{workspace}"))
    }

    /// `Current workspace is ..`, without a request.
    pub(crate) fn location_text(&self, format: PathFormat) -> String {
        location_text(&self.context.cluster.server, None, format)
    }

    /// Makes a workspace the current one, and the current one the previous one, in the file.
    pub(crate) fn enter(&mut self, workspace: &WorkspacePath) -> Result<(), WsError> {
        let server = &self.context.cluster.server;
        let base = workspace_of(server).map_or_else(|| server.trim_end_matches('/'), |(base, _)| base);
        let server = format!("{base}/clusters/{workspace}");
        let Self { kubeconfig, context, .. } = self;
        if context.name == CURRENT {
            copy(kubeconfig, CURRENT, PREVIOUS, &context.cluster.server)?;
        } else {
            kubeconfig.copy_context(&context.name, PREVIOUS)?;
        }
        copy(kubeconfig, &context.name, CURRENT, &server)?;
        self.save_with_current_context(CURRENT)
    }

    /// Swaps the current and the previous workspace, in the file.
    pub(crate) fn go_back(&mut self) -> Result<(), WsError> {
        let kubeconfig = &mut self.kubeconfig;
        let previous = kubeconfig.resolve(Some(PREVIOUS)).map_err(|_| WsError::NoPrevious)?;
        // Each copy may overwrite the cluster of the other context, so both are copied from this state.
        let before = kubeconfig.clone();
        if self.context.name == CURRENT {
            copy_from(&before, kubeconfig, CURRENT, PREVIOUS, &self.context.cluster.server)?;
        } else {
            kubeconfig.copy_context(&self.context.name, PREVIOUS)?;
        }
        copy_from(&before, kubeconfig, PREVIOUS, CURRENT, &previous.cluster.server)?;
        self.save_with_current_context(CURRENT)
    }

    /// Saves the current workspace as a context and switches to it. Returns its name.
    pub(crate) fn save_as_context(&mut self, name: Option<&str>, overwrite: bool) -> Result<String, WsError> {
        let name =
            name.map_or_else(|| self.path().map(|path| path.to_string()), |name| Ok(name.to_owned()))?;
        if !overwrite && self.kubeconfig.context_names().any(|other| other == name) {
            return Err(WsError::ContextExists(name));
        }
        copy(&mut self.kubeconfig, &self.context.name, &name, &self.context.cluster.server)?;
        self.save_with_current_context(&name)?;
        Ok(name)
    }

    fn save_with_current_context(&mut self, context: &str) -> Result<(), WsError> {
        self.kubeconfig.set_current_context(context);
        self.kubeconfig.save(&self.file)?;
        self.context = self.kubeconfig.resolve(Some(context))?;
        Ok(())
    }
}

/// Copies a context with its cluster, which gets the context's name and another server.
fn copy(kubeconfig: &mut Kubeconfig, from: &str, to: &str, server: &str) -> Result<(), WsError> {
    let before = kubeconfig.clone();
    copy_from(&before, kubeconfig, from, to, server)
}

fn copy_from(
    before: &Kubeconfig,
    kubeconfig: &mut Kubeconfig,
    from: &str,
    to: &str,
    server: &str,
) -> Result<(), WsError> {
    let Context { cluster, user, namespace } = before.context(from)?;
    // The copy in the other direction may have overwritten the cluster; `before` still has it.
    let entry = before.cluster(&cluster)?;
    if to == cluster || kubeconfig.cluster(&cluster).ok().as_ref() == Some(&entry) {
        kubeconfig.copy_cluster(&cluster, to, server)?;
    } else {
        kubeconfig.set_cluster(to, &fairlead_client::Cluster { server: server.to_owned(), ..entry });
    }
    kubeconfig.set_context(to, &Context { cluster: to.to_owned(), user, namespace });
    Ok(())
}

/// The part of a URL before `/clusters/`, and the workspace after it.
pub(crate) fn workspace_of(url: &str) -> Option<(&str, WorkspacePath)> {
    let (base, path) = url.trim_end_matches('/').rsplit_once("/clusters/")?;
    Some((base, WorkspacePath::parse(path).ok()?))
}

/// The text for a server URL. `kind` is the type of the workspace.
pub(crate) fn location_text(server: &str, kind: Option<&str>, format: PathFormat) -> String {
    match (workspace_of(server), format) {
        (Some((_, path)), PathFormat::Path) => format!("{path}\n"),
        (Some((_, path)), PathFormat::Sentence) => {
            let kind = kind.map_or(String::new(), |kind| format!(" (type {kind})"));
            format!("Current workspace is '{path}'{kind}.\n")
        }
        (None, PathFormat::Path) => format!("{server}\n"),
        (None, PathFormat::Sentence) => format!("Current workspace is the URL {server:?}.\n"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const START: &str = r#"
apiVersion: v1
kind: Config
current-context: base
clusters:
- name: base
  cluster: {server: "https://gw:6443/clusters/root", tls-server-name: other, extensions: [kept]}
users:
- {name: me, user: {token: t}}
contexts:
- {name: base, context: {cluster: base, user: me, namespace: demo}}
"#;

    fn session(text: &str) -> (tempfile::TempDir, Session) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        std::fs::write(&file, text).unwrap();
        let session = Session::open(Some(&file), None).unwrap();
        (folder, session)
    }

    /// The contexts of the file with their clusters and URLs; the current one has a `*`.
    fn contexts(session: &Session) -> Vec<String> {
        let kubeconfig = Kubeconfig::load(&session.file).unwrap();
        let current = kubeconfig.current_context().unwrap().to_owned();
        let line = |name: &str| {
            let context = kubeconfig.resolve(Some(name)).unwrap();
            let mark = if name == current { "*" } else { "" };
            format!("{mark}{name} {} {}", context.cluster_name, context.cluster.server)
        };
        kubeconfig.context_names().map(line).collect()
    }

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::parse(text).unwrap()
    }

    #[test]
    fn entering_saves_the_previous_workspace() {
        let (_folder, mut session) = session(START);
        session.enter(&path("root:a")).unwrap();
        assert_eq!(
            contexts(&session),
            [
                "base base https://gw:6443/clusters/root",
                "workspace.kcp.io/previous base https://gw:6443/clusters/root",
                "*workspace.kcp.io/current workspace.kcp.io/current https://gw:6443/clusters/root:a",
            ]
        );
        session.enter(&path("root:b")).unwrap();
        assert_eq!(
            contexts(&session)[1..],
            [
                "workspace.kcp.io/previous workspace.kcp.io/previous https://gw:6443/clusters/root:a",
                "*workspace.kcp.io/current workspace.kcp.io/current https://gw:6443/clusters/root:b",
            ]
        );
        assert_eq!(session.path().unwrap(), path("root:b"));
        let text = std::fs::read_to_string(&session.file).unwrap();
        assert_eq!(text.matches("kept").count(), 3, "unknown fields are copied along: {text}");
        assert_eq!(text.matches("demo").count(), 3, "so is the namespace: {text}");
    }

    #[test]
    fn going_back_swaps_current_and_previous() {
        let (_folder, mut session) = session(START);
        assert!(matches!(session.go_back(), Err(WsError::NoPrevious)));
        session.enter(&path("root:a")).unwrap();
        for (current, previous) in [("root", "root:a"), ("root:a", "root"), ("root", "root:a")] {
            session.go_back().unwrap();
            assert_eq!(session.path().unwrap(), path(current));
            let contexts = contexts(&session);
            assert!(contexts[1].ends_with(&format!("/clusters/{previous}")), "{contexts:?}");
            assert!(contexts[2].starts_with("*workspace.kcp.io/current workspace.kcp.io/current "));
            assert_eq!(contexts[0], "base base https://gw:6443/clusters/root");
        }
    }

    #[test]
    fn a_saved_context_can_be_left_and_entered_again() {
        let (_folder, mut session) = session(START);
        session.enter(&path("root:a")).unwrap();
        assert_eq!(session.save_as_context(Some("mine"), false).unwrap(), "mine");
        assert!(matches!(session.save_as_context(Some("mine"), false), Err(WsError::ContextExists(_))));
        session.save_as_context(Some("mine"), true).unwrap();
        assert_eq!(session.save_as_context(None, false).unwrap(), "root:a");
        session.enter(&path("root:b")).unwrap();
        session.go_back().unwrap();
        assert_eq!(session.path().unwrap(), path("root:a"));
        assert!(contexts(&session).contains(&"mine mine https://gw:6443/clusters/root:a".to_owned()));
    }

    #[test]
    fn urls_have_a_base_and_a_workspace() {
        for (url, base, workspace) in [
            ("https://a:1/clusters/root", "https://a:1", "root"),
            ("https://a/e2e/clusters/root:b/", "https://a/e2e", "root:b"),
            ("https://a/services/x/clusters/y/clusters/z", "https://a/services/x/clusters/y", "z"),
        ] {
            assert_eq!(workspace_of(url), Some((base, path(workspace))), "{url}");
        }
        for url in ["https://a", "https://a/clusters/", "https://a/clusters/*", "https://a/clusters/b/api"] {
            assert_eq!(workspace_of(url), None, "{url}");
        }
    }

    #[test]
    fn the_text_is_that_of_the_plugin() {
        let server = "https://a/clusters/root:x";
        for (server, kind, format, text) in [
            (server, None, PathFormat::Sentence, "Current workspace is 'root:x'.\n"),
            (
                server,
                Some("root:team"),
                PathFormat::Sentence,
                "Current workspace is 'root:x' (type root:team).\n",
            ),
            (server, Some("root:team"), PathFormat::Path, "root:x\n"),
            ("https://a/b", None, PathFormat::Sentence, "Current workspace is the URL \"https://a/b\".\n"),
            ("https://a/b", None, PathFormat::Path, "https://a/b\n"),
        ] {
            assert_eq!(location_text(server, kind, format), text);
        }
    }
}
