//! What creates and updates have in common: options, fields that are unknown, versions and bodies.

use serde_json::json;

use crate::client::{CONFIG_MAPS, GADGETS, JSON, Server, WIDGETS, version_of};

#[tokio::test(start_paused = true)]
async fn a_dry_run_does_everything_but_store() {
    let server = Server::start().await;
    let existing = server.config_map("there", json!({})).await;
    let before = server.store().revision();
    let created =
        server.create(&format!("{CONFIG_MAPS}?dryRun=All"), &json!({"metadata": {"name": "dry"}})).await;
    assert_eq!(created["metadata"].get("resourceVersion"), None, "{created}");
    assert!(created["metadata"]["uid"].is_string());
    let again =
        server.post(&format!("{CONFIG_MAPS}?dryRun=All"), &json!({"metadata": {"name": "there"}})).await;
    assert_eq!(again.code, 409);
    let path = format!("{CONFIG_MAPS}/there?dryRun=All");
    let updated = server.put(&path, &json!({"metadata": {"name": "there"}, "data": {"a": "b"}})).await.json();
    assert_eq!(updated["data"], json!({"a": "b"}));
    assert_eq!(updated["metadata"]["resourceVersion"], existing["metadata"]["resourceVersion"]);
    assert_eq!(
        server.patch(&path, "merge", &json!({"data": {"c": "d"}})).await.json()["data"],
        json!({"c": "d"})
    );
    assert_eq!(server.delete(&path).await.json()["status"], "Success");
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/there")).await.json(), existing);
    assert_eq!(server.get(&format!("{CONFIG_MAPS}/dry")).await.code, 404);
    assert_eq!(server.store().revision(), before);
}

#[tokio::test(start_paused = true)]
async fn errors_about_options_name_their_kind() {
    let server = Server::start().await;
    server.config_map("a", json!({})).await;
    let one = format!("{CONFIG_MAPS}/a");
    let long = "x".repeat(129);
    let table = [
        (
            "POST",
            CONFIG_MAPS,
            "dryRun=Some",
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Some\"]: supported values: \"All\"",
        ),
        (
            "POST",
            CONFIG_MAPS,
            "fieldValidation=Bad",
            "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Bad\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
        ),
        (
            "PUT",
            &*one,
            &*format!("fieldManager={long}"),
            "UpdateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes",
        ),
        (
            "PATCH",
            &*one,
            "dryRun=x",
            "PatchOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"x\"]: supported values: \"All\"",
        ),
        (
            "DELETE",
            &*one,
            "propagationPolicy=Orphan&orphanDependents=true",
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Invalid value: \"Orphan\": orphanDependents and deletionPropagation cannot be both set",
        ),
        (
            "DELETE",
            &*one,
            "propagationPolicy=Never",
            "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Never\": supported values: \"Background\", \"Foreground\", \"Orphan\"",
        ),
    ];
    for (method, path, query, message) in table {
        let body = if method == "DELETE" { "" } else { "{\"metadata\":{\"name\":\"a\"}}" };
        let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let response =
            server.send(method, &format!("{path}?{query}"), &[("content-type", content)], body).await;
        assert_eq!(response.failure(), (422, "Invalid".to_owned(), message.to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_and_duplicate_fields_are_refused_warned_of_or_ignored() {
    let server = Server::start().await;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"fv","name":"fv"},"bogus":1,"data":{"a":"b"}}"#;
    let findings =
        ["299 - \"duplicate field \\\"metadata.name\\\"\"", "299 - \"unknown field \\\"bogus\\\"\""];
    for (validation, code, warnings) in [
        ("", 201, &findings[..]),
        ("&fieldValidation=Warn", 201, &findings[..]),
        ("&fieldValidation=Ignore", 201, &[]),
        ("&fieldValidation=Strict", 400, &[]),
    ] {
        let response =
            server.send("POST", &format!("{CONFIG_MAPS}?dryRun=All{validation}"), JSON, body).await;
        assert_eq!((response.code.as_u16(), &*response.warnings()), (code, warnings), "{validation}");
        if code == 201 {
            assert_eq!(response.json().get("bogus"), None);
        } else {
            let message = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: \
                           duplicate field \"metadata.name\", unknown field \"bogus\"";
            assert_eq!(response.failure().2, message);
        }
    }
    let custom = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","odd":1},
        "spec":{"bogus":{"é":1}}}"#;
    let response = server.send("POST", &format!("{WIDGETS}?fieldValidation=Strict"), JSON, custom).await;
    assert_eq!(
        response.failure().2,
        "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \
         \"spec.bogus\", unknown field \"metadata.odd\""
    );
    // Also in patches.
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    let patch = json!({"spec": {"bogus": 1, "color": "red"}});
    let strict = server.patch(&format!("{WIDGETS}/w?fieldValidation=Strict"), "merge", &patch).await;
    assert_eq!(strict.failure().0, 422);
    let warned = server.patch(&format!("{WIDGETS}/w"), "merge", &patch).await;
    assert_eq!(warned.warnings(), ["299 - \"unknown field \\\"spec.bogus\\\"\""]);
    assert_eq!(warned.json()["spec"], json!({"color": "red", "size": 1}));
}

#[tokio::test(start_paused = true)]
async fn integers_and_floats_stay_distinct() {
    let server = Server::start().await;
    let numbers =
        json!({"int": 1, "float": 1.5, "whole": 7.0, "big": 9_007_199_254_740_993_i64, "negative": -5});
    server.create(GADGETS, &json!({"metadata": {"name": "g"}, "numbers": numbers})).await;
    let text = server.get(&format!("{GADGETS}/g")).await;
    for part in ["\"int\":1,", "\"float\":1.5,", "\"whole\":7", "\"big\":9007199254740993,"] {
        assert!(text.text().contains(part), "{part}: {}", text.text());
    }
}

#[tokio::test(start_paused = true)]
async fn versions_are_converted_and_defaulted_both_ways() {
    let server = Server::start().await;
    let beta = WIDGETS.replace("/v1/", "/v1beta1/");
    let created = server.post(&beta, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    assert_eq!(created.warnings(), ["299 - \"example.com/v1beta1 Widget is deprecated\""]);
    let created = created.json();
    assert_eq!(
        (&created["apiVersion"], &created["spec"]["size"]),
        (&json!("example.com/v1beta1"), &json!(2))
    );
    let stored = server.get(&format!("{WIDGETS}/w")).await.json();
    assert_eq!((&stored["apiVersion"], &stored["spec"]["size"]), (&json!("example.com/v1"), &json!(2)));
    assert_eq!(version_of(&stored), version_of(&created));
    let mut watch = server.watch(&format!("{beta}?watch=true")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["apiVersion"], "example.com/v1beta1");
    let list = server.get(&beta).await.json();
    assert_eq!(
        (&list["apiVersion"], &list["items"][0]["apiVersion"]),
        (&json!("example.com/v1beta1"), &json!("example.com/v1beta1"))
    );
}

#[tokio::test]
async fn a_body_needs_the_type_of_its_url_unless_its_kind_is_built_in() {
    let server = Server::start().await;
    server.create(WIDGETS, &json!({"metadata": {"name": "w"}, "spec": {}})).await;
    let unrecognized = |reason: &str, summary: &str| {
        format!("the object provided is unrecognized (must be of type Widget): {reason} ({summary})")
    };
    let missing =
        |body: &str, summary: &str| unrecognized(&format!("Object 'Kind' is missing in '{body}'"), summary);
    let no_text = |given: &str, at: &str| {
        format!("couldn't get version/kind; json parse error: json: cannot unmarshal {given} into Go {at}")
    };
    let structure = r#"value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let mismatch = |given: &str| {
        format!(
            "the API version in the data ({given}) does not match the expected API version (example.com/v1)"
        )
    };
    let no_kind = r#"{"apiVersion":"example.com/v1","metadata":{"name":"w"}}"#;
    let null_kind = r#"{"apiVersion":"example.com/v1","kind":null,"metadata":{"name":"w"}}"#;
    let begin = r#"{"apiVersion":"example.com/v1" ..."#;
    // As recorded with kcp.
    let table: Vec<(&str, u16, String)> = vec![
        (no_kind, 400, missing(no_kind, begin)),
        (null_kind, 400, missing(null_kind, begin)),
        (
            r#"{"metadata":{"name":"w"}}"#,
            400,
            missing(r#"{"metadata":{"name":"w"}}"#, r#"{"metadata":{"name":"w"}}"#),
        ),
        ("null", 400, missing("null", "6e756c6c")),
        (
            "",
            400,
            unrecognized(
                "couldn't get version/kind; json parse error: unexpected end of JSON input",
                "<empty>",
            ),
        ),
        ("[1]", 400, unrecognized(&no_text("array", structure), "5b315d")),
        (
            r#"{"apiVersion":"example.com/v1","kind":3}"#,
            400,
            unrecognized(&no_text("number", "struct field .kind of type string"), begin),
        ),
        (
            r#"{"apiVersion":"a/b/c","kind":"Widget"}"#,
            400,
            unrecognized("unexpected GroupVersion string: a/b/c", r#"{"apiVersion":"a/b/c","kind":" ..."#),
        ),
        (r#"{"kind":"Widget","metadata":{"name":"w"}}"#, 400, mismatch("")),
        (r#"{"apiVersion":"example.com/v2","kind":"Widget"}"#, 400, mismatch("example.com/v2")),
        (
            r#"{"apiVersion":"example.com/v1","kind":"Wodget","metadata":{"name":"w"}}"#,
            422,
            r#"Wodget.example.com "w" is invalid: kind: Invalid value: "Wodget": must be Widget"#.to_owned(),
        ),
    ];
    let path = format!("{WIDGETS}/w");
    for (body, code, message) in &table {
        for (method, path) in [("POST", WIDGETS), ("PUT", &path)] {
            let failure = server.send(method, path, JSON, (*body).to_owned()).await.failure();
            assert_eq!((failure.0, &*failure.2), (*code, &**message), "{method} {body}");
        }
    }
    let yaml = [("content-type", "application/yaml")];
    let failure = server.send("POST", WIDGETS, &yaml, "metadata:\n  name: y\n").await.failure();
    let body = "metadata:\n  name: y\n";
    assert_eq!(failure.2, missing(body, "6d657461646174613a0a20206e616d653a20790a"));

    let merge = [("content-type", "application/merge-patch+json")];
    for (patch, message) in [
        (r#"{"kind":null}"#, r#" "" is invalid: patch: Invalid value: "#),
        (
            r#"{"kind":"Wodget"}"#,
            r#"Wodget.example.com "w" is invalid: kind: Invalid value: "Wodget": must be Widget"#,
        ),
        (
            r#"{"apiVersion":"example.com/v2"}"#,
            r#"Widget.example.com "w" is invalid: apiVersion: Invalid value: "example.com/v2": must be example.com/v1"#,
        ),
    ] {
        let failure = server.send("PATCH", &path, &merge, patch).await.failure();
        assert!(failure.0 == 422 && failure.2.starts_with(message), "{patch}: {failure:?}");
    }

    let created = server.send("POST", CONFIG_MAPS, JSON, r#"{"metadata":{"name":"c"}}"#).await.json();
    assert_eq!((&created["apiVersion"], &created["kind"]), (&json!("v1"), &json!("ConfigMap")));
}
