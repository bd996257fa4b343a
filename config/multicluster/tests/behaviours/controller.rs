//! The controller.

use std::time::Duration;

use fairlead_multicluster::{Action, Controller, Request};
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::support::Installation;

/// A controller that passes every reconciliation to the test, and ends it as the test says.
struct Run {
    calls: mpsc::UnboundedReceiver<Call>,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

struct Call {
    request: Request<DynamicObject>,
    result: oneshot::Sender<Result<Action, &'static str>>,
}

impl Run {
    fn start(installation: &Installation, concurrency: usize) -> Self {
        let controller = Controller::new(installation.anchors()).with_concurrency(concurrency);
        let (sender, calls) = mpsc::unbounded_channel();
        let (shutdown, stopped) = oneshot::channel();
        let reconcile = move |request| {
            let (result, outcome) = oneshot::channel();
            sender.send(Call { request, result }).ok();
            async move {
                match outcome.await {
                    Ok(outcome) => outcome,
                    // The test has dropped the call.
                    Err(_) => std::future::pending().await,
                }
            }
        };
        let task = tokio::spawn(controller.run_until(reconcile, async move {
            stopped.await.unwrap();
        }));
        Self { calls, shutdown, task }
    }

    /// The next reconciliation, which must be of this object.
    async fn expect(&mut self, key: &str) -> Call {
        let call = self.calls.recv().await.unwrap();
        assert_eq!(call.request.key.to_string(), key);
        call
    }
}

impl Call {
    fn end(self, result: Result<Action, &'static str>) {
        self.result.send(result).unwrap();
    }

    fn weight(&self) -> i64 {
        self.request.object.as_ref().unwrap().data["spec"]["weight"].as_i64().unwrap()
    }
}

fn weight(weight: i64) -> serde_json::Value {
    json!({ "spec": { "weight": weight } })
}

#[tokio::test]
async fn changes_during_a_reconciliation_lead_to_one_more() {
    let installation = Installation::start().await;
    let first = &installation.first;
    first.with(|anchors| anchors.apply("a", "bow", weight(1)));
    let mut run = Run::start(&installation, 16);
    let running = run.expect("a|default/bow").await;
    assert_eq!(running.weight(), 1);
    first.watches(1).await;
    first.with(|anchors| {
        anchors.apply("a", "bow", weight(2));
        anchors.apply("a", "bow", weight(3));
        anchors.apply("b", "bow", weight(1));
    });
    // The other object comes after the changes, so that they have arrived.
    run.expect("b|default/bow").await.end(Ok(Action::AwaitChange));
    running.end(Ok(Action::AwaitChange));
    let again = run.expect("a|default/bow").await;
    assert_eq!(again.weight(), 3);
    again.end(Ok(Action::AwaitChange));
    first.with(|anchors| anchors.apply("b", "stern", weight(1)));
    run.expect("b|default/stern").await;
}

#[tokio::test]
async fn a_failed_reconciliation_is_repeated_until_it_succeeds() {
    let installation = Installation::start().await;
    installation.first.with(|anchors| anchors.apply("a", "bow", weight(1)));
    let mut run = Run::start(&installation, 16);
    run.expect("a|default/bow").await.end(Err("first"));
    run.expect("a|default/bow").await.end(Err("second"));
    run.expect("a|default/bow").await.end(Ok(Action::RequeueAfter(Duration::from_millis(1))));
    run.expect("a|default/bow").await.end(Ok(Action::AwaitChange));
    installation.second.with(|anchors| anchors.apply("b", "bow", weight(1)));
    run.expect("b|default/bow").await;
}

#[tokio::test]
async fn an_object_that_is_gone_is_reconciled_without_client() {
    let installation = Installation::start().await;
    installation.first.with(|anchors| anchors.apply("a", "bow", weight(1)));
    let mut run = Run::start(&installation, 16);
    run.expect("a|default/bow").await.end(Ok(Action::AwaitChange));
    installation.first.watches(1).await;
    installation.first.with(|anchors| anchors.delete("a", "bow"));
    let gone = run.expect("a|default/bow").await;
    assert!(gone.request.object.is_none() && gone.request.client.is_none());
}

#[tokio::test]
async fn at_most_the_configured_number_of_objects_is_reconciled_at_the_same_time() {
    let installation = Installation::start().await;
    installation.first.with(|anchors| {
        for name in ["1", "2", "3"] {
            anchors.apply("a", name, weight(1));
        }
    });
    let mut run = Run::start(&installation, 2);
    let (one, two) = (run.calls.recv().await.unwrap(), run.calls.recv().await.unwrap());
    // A watch begins after the list, so that the third object has arrived.
    installation.first.watches(1).await;
    assert!(run.calls.try_recv().is_err());
    one.end(Ok(Action::AwaitChange));
    let three = run.calls.recv().await.unwrap();
    assert!(run.calls.try_recv().is_err());
    two.end(Ok(Action::AwaitChange));
    three.end(Ok(Action::AwaitChange));
}

#[tokio::test]
async fn a_shutdown_waits_for_the_running_reconciliations() {
    let installation = Installation::start().await;
    installation.first.with(|anchors| anchors.apply("a", "bow", weight(1)));
    let mut run = Run::start(&installation, 16);
    let running = run.expect("a|default/bow").await;
    run.shutdown.send(()).unwrap();
    // The watches end with the controller's stream.
    installation.first.watches(0).await;
    assert!(!run.task.is_finished());
    running.end(Ok(Action::AwaitChange));
    run.task.await.unwrap();
}

#[tokio::test]
async fn the_client_of_a_request_writes_to_its_logical_cluster_and_shard() {
    let installation = Installation::start().await;
    let Installation { first, second, .. } = &installation;
    first.with(|anchors| anchors.apply("a", "bow", weight(1)));
    second.with(|anchors| anchors.apply("b", "bow", weight(1)));
    let mut run = Run::start(&installation, 16);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("harbour.example.com", "v1", "Anchor"));
    for _ in 0..2 {
        let Call { request, result } = run.calls.recv().await.unwrap();
        let anchors = Api::<DynamicObject>::namespaced_with(request.client.unwrap(), "default", &resource);
        let patch = Patch::Merge(json!({ "status": { "cluster": request.key.cluster } }));
        anchors.patch_status("bow", &PatchParams::default(), &patch).await.unwrap();
        result.send(Ok(Action::AwaitChange)).unwrap();
    }
    for (server, cluster) in [(first, "a"), (second, "b")] {
        let object = server.with(|anchors| anchors.object(cluster, "bow"));
        assert_eq!(object["status"]["cluster"], cluster);
        let requests = server.with(|anchors| anchors.take_requests());
        assert!(requests.contains(&format!("patch {cluster}")), "{requests:?}");
    }
}
