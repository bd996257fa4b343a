//! Discovery in both forms.

use serde_json::{Value, json};

use crate::client::Server;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                          application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

fn named<'v>(list: &'v Value, field: &str, name: &str) -> &'v Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|item| item[field] == name)
        .unwrap_or_else(|| panic!("{name}: {list}"))
}

#[tokio::test(start_paused = true)]
async fn the_plain_documents() {
    let server = Server::start().await;
    let versions = server.get("/api").await;
    assert_eq!(versions.header("content-type"), "application/json");
    assert_eq!(
        versions.json(),
        json!({"kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.0.0.1:6443"}]})
    );

    let groups = server.get_as("/apis", "application/json, */*").await.json();
    assert_eq!((&groups["kind"], &groups["apiVersion"]), (&json!("APIGroupList"), &json!("v1")));
    let own = named(&groups["groups"], "name", "example.com");
    assert_eq!(
        own["versions"],
        json!([{"groupVersion": "example.com/v1", "version": "v1"},
        {"groupVersion": "example.com/v1beta1", "version": "v1beta1"}])
    );
    assert_eq!(own["preferredVersion"]["version"], "v1");
    assert_eq!(server.get("/apis/example.com").await.json()["kind"], "APIGroup");

    let core = server.get("/api/v1").await.json();
    assert_eq!((&core["kind"], &core["groupVersion"]), (&json!("APIResourceList"), &json!("v1")));
    let maps = named(&core["resources"], "name", "configmaps");
    assert_eq!(
        maps["verbs"],
        json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"])
    );
    assert_eq!(
        (&maps["shortNames"], &maps["singularName"], &maps["namespaced"]),
        (&json!(["cm"]), &json!("configmap"), &json!(true))
    );
    let token = named(&core["resources"], "name", "serviceaccounts/token");
    assert_eq!(
        (&token["group"], &token["version"], &token["kind"]),
        (&json!("authentication.k8s.io"), &json!("v1"), &json!("TokenRequest"))
    );

    let beta = server.get("/apis/example.com/v1beta1").await.json();
    assert_eq!(beta["resources"].as_array().unwrap().len(), 2, "gadgets have no v1beta1: {beta}");
    assert_eq!(
        named(&beta["resources"], "name", "widgets/status")["verbs"],
        json!(["get", "patch", "update"])
    );
}

#[tokio::test(start_paused = true)]
async fn the_aggregated_documents() {
    let server = Server::start().await;
    for (path, group, resource) in [("/api", None, "configmaps"), ("/apis", Some("example.com"), "widgets")] {
        let response = server.get_as(path, AGGREGATED).await;
        assert_eq!(
            response.header("content-type"),
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        );
        assert_eq!(response.header("vary"), "Accept");
        let list = response.json();
        assert_eq!(
            (&list["kind"], &list["apiVersion"]),
            (&json!("APIGroupDiscoveryList"), &json!("apidiscovery.k8s.io/v2"))
        );
        let group = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .find(|item| item["metadata"]["name"].as_str() == group)
            .unwrap();
        assert_eq!(group["versions"][0]["freshness"], "Current");
        let found = named(&group["versions"][0]["resources"], "resource", resource);
        assert_eq!(found["scope"], "Namespaced");
    }
    let beta = server
        .get_as("/apis", "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList")
        .await;
    assert_eq!(
        beta.header("content-type"),
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
    );
    assert_eq!(
        server.get_as("/apis", "application/json").await.header("vary"),
        "Accept",
        "caches must not mix the forms"
    );
}

#[tokio::test(start_paused = true)]
async fn a_matching_etag_gets_304() {
    let server = Server::start().await;
    for path in ["/api", "/apis", "/apis/example.com/v1"] {
        let etag = server.get_as(path, AGGREGATED).await.header("etag").to_owned();
        let headers = [("accept", AGGREGATED), ("if-none-match", &*etag)];
        let known = server.send("GET", path, &headers, "").await;
        assert_eq!((known.code.as_u16(), known.header("etag"), known.text()), (304, &*etag, ""), "{path}");
    }
    let plain = server.get("/apis").await.header("etag").to_owned();
    assert_ne!(plain, server.get_as("/apis", AGGREGATED).await.header("etag"));
}

#[tokio::test(start_paused = true)]
async fn an_unsynced_catalog_is_503_and_not_an_empty_list() {
    let server = Server::start().await;
    for path in ["/api", "/apis", "/apis/example.com/v1", "/api/v1"] {
        let response = server.get(&format!("//clusters/unsynced{path}")).await;
        assert_eq!((response.failure().0, response.header("retry-after")), (503, "1"), "{path}");
    }
}
