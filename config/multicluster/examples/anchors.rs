//! A controller of the Anchors of all consumers, on all shards: reports in the status of each whether it holds.
//!
//! `docs/sharing-apis.md` publishes the API. Then, with the kubeconfig of the provider in the workspace of its
//! APIExportEndpointSlice `harbour`:
//!
//! ```sh
//! cargo run --release -p fairlead-multicluster --example anchors -- harbour
//! ```
//!
//! The provider needs rights on `apiexports/content` of the APIExport. The program ends at an interrupt, after the running
//! reconciliations.

use std::error::Error;
use std::sync::Arc;

use fairlead_multicluster::{Action, Controller, ObjectKey, Provider, Request};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Config, CustomResource};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The lightest weight that holds.
const HOLDING_WEIGHT: u32 = 5;

/// The desired state of an Anchor, as far as the controller needs it.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "harbour.example.com",
    version = "v1",
    kind = "Anchor",
    namespaced,
    status = "AnchorStatus",
    schema = "disabled"
)]
struct AnchorSpec {
    #[serde(default)]
    weight: u32,
}

/// The observed state of an Anchor.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
struct AnchorStatus {
    phase: Option<Phase>,
}

/// Whether an Anchor holds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq)]
enum Phase {
    Holding,
    Dragging,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let slice = std::env::args().nth(1).ok_or("usage: anchors <name of the APIExportEndpointSlice>")?;
    let provider = Provider::new(Config::infer().await?, slice)?;
    let interrupt = async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            eprintln!("cannot wait for an interrupt: {error}");
        }
    };
    Controller::new(provider.objects::<Anchor>(&())).run_until(reconcile, interrupt).await;
    Ok(())
}

/// Brings the status of one Anchor up to date.
async fn reconcile(request: Request<Anchor>) -> Result<Action, kube::Error> {
    let Request { key, object: Some(anchor), client: Some(client) } = request else {
        println!("{} is gone", request.key);
        return Ok(Action::AwaitChange);
    };
    let phase = if anchor.spec.weight >= HOLDING_WEIGHT { Phase::Holding } else { Phase::Dragging };
    if reported(&anchor) != Some(phase) {
        report(client, &key, phase).await?;
        println!("{key}: {phase:?}");
    }
    Ok(Action::AwaitChange)
}

fn reported(anchor: &Arc<Anchor>) -> Option<Phase> {
    anchor.status.as_ref()?.phase
}

/// Writes to the logical cluster of the Anchor, through the endpoint of its shard.
async fn report(client: Client, key: &ObjectKey, phase: Phase) -> Result<(), kube::Error> {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let anchors = Api::<Anchor>::namespaced(client, namespace);
    let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
    match anchors.patch_status(&key.name, &PatchParams::default(), &patch).await {
        // It was deleted meanwhile.
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        result => result.map(|_| ()),
    }
}
