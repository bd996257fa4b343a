use super::*;

const WIDGETS: GroupResource<'_> = GroupResource { group: "example.com", resource: "widgets" };
const CONFIG_MAPS: GroupResource<'_> = GroupResource { group: "", resource: "configmaps" };

/// The body of a Kubernetes API server for the same failure.
#[test]
fn bodies_equal_those_of_kubernetes() {
    let cause = StatusCause::field;
    let table: Vec<(Status, &str)> = vec![
        (
            Status::not_found(CONFIG_MAPS, "a"),
            r#""message":"configmaps \"a\" not found","reason":"NotFound","details":{"name":"a","kind":"configmaps"},"code":404}"#,
        ),
        (
            Status::not_found(WIDGETS, "a"),
            r#""message":"widgets.example.com \"a\" not found","reason":"NotFound","details":{"name":"a","group":"example.com","kind":"widgets"},"code":404}"#,
        ),
        (
            Status::unknown_resource(),
            r#""message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}"#,
        ),
        (
            Status::already_exists(WIDGETS, "a"),
            r#""message":"widgets.example.com \"a\" already exists","reason":"AlreadyExists","details":{"name":"a","group":"example.com","kind":"widgets"},"code":409}"#,
        ),
        (
            Status::modified(CONFIG_MAPS, "a"),
            r#""message":"Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"a","kind":"configmaps"},"code":409}"#,
        ),
        (
            Status::apply_conflict(
                "Apply failed with 1 conflict: conflict with \"kubectl\": .data.k",
                vec![cause("FieldManagerConflict", ".data.k", "conflict with \"kubectl\"")],
            ),
            r#""message":"Apply failed with 1 conflict: conflict with \"kubectl\": .data.k","reason":"Conflict","details":{"causes":[{"reason":"FieldManagerConflict","message":"conflict with \"kubectl\"","field":".data.k"}]},"code":409}"#,
        ),
        (
            Status::invalid(
                "example.com",
                "Widget",
                "w",
                vec![cause("FieldValueForbidden", "spec.color", "Forbidden: color is immutable")],
            ),
            r#""message":"Widget.example.com \"w\" is invalid: spec.color: Forbidden: color is immutable","reason":"Invalid","details":{"name":"w","group":"example.com","kind":"Widget","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: color is immutable","field":"spec.color"}]},"code":422}"#,
        ),
        (
            Status::invalid(
                "",
                "Secret",
                "",
                vec![
                    cause("FieldValueRequired", "a", "Required value"),
                    cause("FieldValueRequired", "a", "Required value"),
                    cause("FieldValueRequired", "b", "Required value"),
                ],
            ),
            r#""message":"Secret \"\" is invalid: [a: Required value, b: Required value]","reason":"Invalid","details":{"kind":"Secret","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"a"},{"reason":"FieldValueRequired","message":"Required value","field":"a"},{"reason":"FieldValueRequired","message":"Required value","field":"b"}]},"code":422}"#,
        ),
        (
            Status::forbidden(WIDGETS, "", "User \"u\" cannot list resource"),
            r#""message":"widgets.example.com is forbidden: User \"u\" cannot list resource","reason":"Forbidden","details":{"group":"example.com","kind":"widgets"},"code":403}"#,
        ),
        (
            Status::forbidden(CONFIG_MAPS, "a", "no"),
            r#""message":"configmaps \"a\" is forbidden: no","reason":"Forbidden","details":{"name":"a","kind":"configmaps"},"code":403}"#,
        ),
        (
            Status::forbidden(GroupResource::default(), "", "User \"\" cannot get path \"/\""),
            r#""message":"forbidden: User \"\" cannot get path \"/\"","reason":"Forbidden","details":{},"code":403}"#,
        ),
        (Status::unauthorized(), r#""message":"Unauthorized","reason":"Unauthorized","code":401}"#),
        (
            Status::bad_request("field label not supported: <x>"),
            r#""message":"field label not supported: \u003cx\u003e","reason":"BadRequest","code":400}"#,
        ),
        (
            Status::method_not_allowed(WIDGETS, "create"),
            r#""message":"create is not supported on resources of kind \"widgets.example.com\"","reason":"MethodNotAllowed","details":{"group":"example.com","kind":"widgets"},"code":405}"#,
        ),
        (
            Status::unknown_method(),
            r#""message":"the server does not allow this method on the requested resource","reason":"MethodNotAllowed","details":{},"code":405}"#,
        ),
        (
            Status::not_acceptable(&["application/json", "application/yaml"]),
            r#""message":"only the following media types are accepted: application/json, application/yaml","reason":"NotAcceptable","code":406}"#,
        ),
        (
            Status::unsupported_media_type(&["application/json", "application/yaml"]),
            r#""message":"the body of the request was in an unknown format - accepted media types include: application/json, application/yaml","reason":"UnsupportedMediaType","code":415}"#,
        ),
        (
            Status::request_entity_too_large(3_145_728),
            r#""message":"Request entity too large: limit is 3145728","reason":"RequestEntityTooLarge","code":413}"#,
        ),
        (
            Status::too_many_requests("slow down", 1),
            r#""message":"slow down","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#,
        ),
        (
            Status::resource_version_too_large(99_999_999, 746),
            r#""message":"Timeout: Too large resource version: 99999999, current: 746","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}],"retryAfterSeconds":1},"code":504}"#,
        ),
        (
            Status::server_timeout(WIDGETS, "list", 2),
            r#""message":"The list operation against widgets.example.com could not be completed at this time, please try again.","reason":"ServerTimeout","details":{"name":"list","group":"example.com","kind":"widgets","retryAfterSeconds":2},"code":500}"#,
        ),
        (
            Status::expired("The resourceVersion for the provided list is too old."),
            r#""message":"The resourceVersion for the provided list is too old.","reason":"Expired","code":410}"#,
        ),
        (
            Status::internal("no cluster found in the context"),
            r#""message":"Internal error occurred: no cluster found in the context","reason":"InternalError","details":{"causes":[{"message":"no cluster found in the context"}]},"code":500}"#,
        ),
        (
            Status::service_unavailable("not yet", 1),
            r#""message":"not yet","reason":"ServiceUnavailable","details":{"retryAfterSeconds":1},"code":503}"#,
        ),
    ];
    for (status, rest) in table {
        let expected = format!(
            "{{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{{}},\"status\":\"Failure\",{rest}\n"
        );
        assert_eq!(status.to_json(), expected.as_bytes(), "{status}");
    }
}

#[test]
fn a_continue_token_is_in_the_metadata() {
    let json = Status::expired("too old").with_continue("abc").to_json();
    assert!(
        json.starts_with(br#"{"kind":"Status","apiVersion":"v1","metadata":{"continue":"abc"},"#),
        "{json:?}"
    );
}

#[test]
fn a_finished_deletion_is_a_success() {
    let details =
        StatusDetails { name: "a".into(), kind: "configmaps".into(), uid: "u".into(), ..Default::default() };
    let expected = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"a","kind":"configmaps","uid":"u"}}"#;
    assert_eq!(Status::success_json(&details), format!("{expected}\n").as_bytes());
}

#[test]
fn names_are_quoted_as_go_does() {
    for (name, expected) in
        [("a'b", r#""a'b""#), ("a\"\\", r#""a\"\\""#), ("\n\u{1}\u{85}ü", r#""\n\x01\u0085ü""#)]
    {
        assert_eq!(quoted(name), expected);
    }
}

#[test]
fn retry_after_is_a_header_too() {
    let response = Status::service_unavailable("not yet", 3).to_response();
    assert_eq!((response.status().as_u16(), &response.headers()[RETRY_AFTER]), (503, &HeaderValue::from(3)));
    assert!(!Status::unauthorized().to_response().headers().contains_key(RETRY_AFTER));
}
