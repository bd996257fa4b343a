//! A virtual workspace that shows only the objects with a label, of one resource of a workspace, to one group of users.
//!
//! ```sh
//! cargo run --release -p fairlead-virtual --example labelled -- labelled.yaml v1 configmaps example.com/public=true readers
//! ```
//!
//! The arguments are a configuration (`fairlead config defaults virtual-workspaces` prints one), a group version and a resource
//! of the workspace of its kubeconfig, a label, and the group whose members may read. The objects are served read-only below
//! `/services/labelled/clusters/<logical cluster, or *>`. A path mapping of the gateway leads there, so that users reach them by
//! the address and with the credentials that they have for everything else.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use async_trait::async_trait;
use fairlead_apiserver::registry::Catalog;
use fairlead_apiserver::request::LabelSelector;
use fairlead_apiserver::resource::{Verb, Verbs};
use fairlead_apiserver::{Attributes, Authorization};
use fairlead_process::Status;
use fairlead_virtual::{
    DomainPath, Replica, ServerError, Service, View, VirtualRequest, VirtualServer, VirtualWorkspace,
    filtered,
};

const NAME: &str = "labelled";
const USAGE: &str = "usage: labelled CONFIG GROUP/VERSION RESOURCE KEY=VALUE GROUP";
/// The view is read-only.
const VERBS: Verbs = Verbs::of(&[Verb::Get, Verb::List, Verb::Watch]);

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [config, group_version, resource, label, group] = &*arguments else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let Some(label) = label.split_once('=') else {
        eprintln!("{label:?} is not a label\n{USAGE}");
        return ExitCode::FAILURE;
    };
    match serve(Path::new(config), group_version, resource, label, group).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("labelled: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Serves until a signal ends the process.
async fn serve(
    config: &Path,
    group_version: &str,
    resource: &str,
    label: (&str, &str),
    group: &str,
) -> Result<(), ServerError> {
    let server = VirtualServer::new(fairlead_config::load(config)?)?;
    // The process reads the whole resource with its own credential, and keeps it up to date by a watch.
    let replica = server.replicate(group_version, resource).await?;
    let labels = Arc::new(LabelSelector::of_labels([label]));
    // A watch through the view gets ADDED when an object gains the label, and DELETED when it loses it.
    let shown = filtered(replica.resource(), VERBS, |_subresource| None, labels);
    let view =
        LabelledView { catalog: Arc::new(Catalog::new(vec![Arc::new(shown)])), readers: group.to_owned() };
    server.run(vec![Box::new(Labelled { replica, view: Arc::new(view) })]).await
}

/// The virtual workspace: finds the view for a path.
struct Labelled {
    replica: Replica,
    view: Arc<LabelledView>,
}

impl VirtualWorkspace for Labelled {
    fn name(&self) -> &str {
        NAME
    }

    /// Until all objects are here, a list would lack some.
    fn readiness(&self) -> Result<(), String> {
        self.replica.readiness()
    }

    /// There is one view, so the path names no domain: `clusters/<logical cluster>` follows the name.
    fn open(&self, request: &VirtualRequest<'_>) -> Result<Option<Service>, Status> {
        let Some(path) = DomainPath::parse(request.segments(), 0) else { return Ok(None) };
        let view = Arc::clone(&self.view);
        Ok(Some(Service::View { view, scopes: path.scopes, length: path.length }))
    }
}

/// The view: its resource, and who may read it.
struct LabelledView {
    catalog: Arc<Catalog>,
    readers: String,
}

#[async_trait]
impl View for LabelledView {
    fn catalog(&self) -> Result<Arc<Catalog>, Status> {
        Ok(Arc::clone(&self.catalog))
    }

    /// Also for discovery documents. The gateway has authenticated the user, and asserts its groups in request headers.
    async fn authorize(&self, attributes: &Attributes<'_>) -> Authorization {
        match attributes.user.groups.contains(&self.readers) {
            true => Authorization::allow(NAME, "the user is a member of the group"),
            false => Authorization::no_opinion(NAME, "the user is not a member of the group"),
        }
    }
}
