#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn object_of(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

/// Widgets whose v2 splits and adds fields, as in kcp's example.
fn widgets() -> Value {
    let string = json!({"type": "string"});
    let version = |name: &str, spec: Value| {
        let metadata = json!({"type": "object"});
        let schema =
            json!({"apiVersion": string, "kind": string, "metadata": metadata, "spec": object_of(spec)});
        json!({"name": name, "served": true, "storage": name == "v1", "schema": object_of(schema)})
    };
    json!({"spec": {"versions": [
        version("v1", json!({
            "firstName": string,
            "lastName": string,
            "size": {"type": "integer"},
            "kept": string,
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "list": {"type": "array", "items": string},
        })),
        version("v2", json!({
            "name": object_of(json!({"first": string, "last": string, "lastUpper": string})),
            "someNewField": object_of(json!({"hello": string})),
            "size": string,
            "sizeText": string,
            "kept": string,
        })),
    ]}})
}

fn conversion(from: &str, to: &str, rules: Value, preserve: &[&str]) -> Value {
    json!({"spec": {"conversions": [{"from": from, "to": to, "rules": rules, "preserve": preserve}]}})
}

fn rule(field: &str, destination: &str, transformation: &str) -> Value {
    let mut rule = json!({"field": field, "destination": destination});
    if !transformation.is_empty() {
        rule["transformation"] = transformation.into();
    }
    rule
}

/// kcp's example in both directions.
fn widget_rules() -> ApiConversionRules {
    let forth = json!([
        rule(".spec.firstName", ".spec.name.first", ""),
        rule(".spec.lastName", ".spec.name.last", ""),
        rule(".spec.lastName", ".spec.name.lastUpper", "self.upperAscii()"),
    ]);
    let back = json!([
        rule(".spec.name.first", ".spec.firstName", ""),
        rule(".spec.name.last", ".spec.lastName", ""),
    ]);
    let mut both = conversion("v1", "v2", forth, &[]);
    let back = conversion("v2", "v1", back, &[".spec.someNewField"]);
    both["spec"]["conversions"].as_array_mut().unwrap().push(back["spec"]["conversions"][0].clone());
    ApiConversionRules::compile(&both, &widgets()).unwrap()
}

#[test]
fn errors_are_those_of_kcp() {
    let from = |from: &str| conversion(from, "v2", json!([]), &[]);
    let one = |field: &str, destination: &str, expression: &str| {
        conversion("v1", "v2", json!([rule(field, destination, expression)]), &[])
    };
    let at = "spec.conversions[0].rules[0]";
    let cases: Vec<(Value, Vec<String>)> = vec![
        (json!({"spec": {"conversions": []}}), vec![]),
        (from("v1"), vec![]),
        (
            from("vNotHere"),
            vec![
                "spec.conversions[0].from: Invalid value: \"vNotHere\": unable to find structural schema for version"
                    .to_owned(),
            ],
        ),
        (
            conversion("v1", "v9", json!([]), &[]),
            vec![
                "spec.conversions[0].to: Invalid value: \"v9\": unable to find structural schema for version".to_owned(),
            ],
        ),
        (
            conversion("v1", "v1", json!([]), &[]),
            vec![
                "spec.conversions[0].to: Invalid value: \"v1\": must be another version than the one to convert from"
                    .to_owned(),
            ],
        ),
        (one("spec.firstName", "spec.name.first", ""), vec![]),
        (one(".spec.labels.any", ".spec.name.first", "self + '!'"), vec![]),
        (one(".spec.free.any.thing", ".spec.name.first", ""), vec![]),
        (
            one("noFieldHere", ".spec.kept", ""),
            vec![format!("{at}.field: Invalid value: \"noFieldHere\": field \"noFieldHere\" doesn't exist")],
        ),
        (
            one("spec.some.unknown.field", ".spec.kept", ""),
            vec![format!(
                "{at}.field: Invalid value: \"spec.some.unknown.field\": field \"spec.some\" doesn't exist"
            )],
        ),
        (
            one("apiVersion.foo", ".spec.kept", ""),
            vec![format!(
                "{at}.field: Invalid value: \"apiVersion.foo\": expected field \"apiVersion\" to be an object"
            )],
        ),
        (
            one(".spec.list.first", ".spec.kept", ""),
            vec![format!(
                "{at}.field: Invalid value: \".spec.list.first\": expected field \"spec.list\" to be an object"
            )],
        ),
        (
            one(".", ".spec.kept", ""),
            vec![format!("{at}.field: Invalid value: \".\": field \"\" doesn't exist")],
        ),
        (
            one(".spec.firstName", ".spec.absent", ""),
            vec![format!(
                "{at}.destination: Invalid value: \".spec.absent\": field \"spec.absent\" doesn't exist"
            )],
        ),
        (
            one(".metadata.annotations", ".spec.kept", ""),
            vec![format!(
                "{at}.field: Invalid value: \".metadata.annotations\": must not contain the annotations of the object"
            )],
        ),
        (
            one(".spec.firstName", ".metadata.name", ""),
            vec![format!(
                "{at}.destination: Invalid value: \".metadata.name\": must not be in apiVersion, kind or metadata"
            )],
        ),
        (
            one(".spec.size", ".spec.size", ""),
            vec![format!(
                "{at}.destination: Invalid value: \".spec.size\": is of type string, the field .spec.size is of type \
                 integer"
            )],
        ),
        (one(".spec.size", ".spec.size", "string(self)"), vec![]),
        (
            one(".spec.size", ".spec.size", "self + 1"),
            vec![format!(
                "{at}.transformation: Invalid value: \"self + 1\": must evaluate to a value of type string"
            )],
        ),
        (
            one(".spec.firstName", ".spec.kept", "optional.of(self)"),
            vec![format!(
                "{at}.transformation: Invalid value: \"optional.of(self)\": must evaluate to a value of type string"
            )],
        ),
        (
            one(".spec.free.any", ".spec.kept", "self"),
            vec![format!(
                "{at}.field: Invalid value: \".spec.free.any\": error creating CEL environment: rule declared on schema \
                 that does not support validation rules type"
            )],
        ),
        (
            conversion("v1", "v2", json!([]), &[".spec.absent", ".metadata", ""]),
            vec![
                "spec.conversions[0].preserve[0]: Invalid value: \".spec.absent\": field \"spec.absent\" doesn't exist"
                    .to_owned(),
                "spec.conversions[0].preserve[1]: Invalid value: \".metadata\": must not be in apiVersion, kind or \
                 metadata"
                    .to_owned(),
                "spec.conversions[0].preserve[2]: Invalid value: \"\": field \"\" doesn't exist".to_owned(),
            ],
        ),
    ];
    for (conversion, expected) in cases {
        let found = ApiConversionRules::compile(&conversion, &widgets());
        let found: Vec<String> = found.err().into_iter().flatten().map(|error| error.to_string()).collect();
        assert_eq!(found, expected, "{conversion}");
    }
    let broken = one(".spec.firstName", ".spec.kept", "self.foo was here");
    let errors = ApiConversionRules::compile(&broken, &widgets()).unwrap_err();
    let expected = "Invalid value: \"self.foo was here\": error compiling CEL program: ERROR: <input>:1:";
    assert!(errors[0].message.starts_with(expected), "{}", errors[0]);
}

#[test]
fn rules_are_compiled_for_definitions_too() {
    let mut definition = widgets();
    for version in definition["spec"]["versions"].as_array_mut().unwrap() {
        version["schema"] = json!({"openAPIV3Schema": version["schema"]});
    }
    let rules = json!([rule(".spec.lastName", ".spec.name.lastUpper", "self.upperAscii()")]);
    assert!(ApiConversionRules::compile(&conversion("v1", "v2", rules, &[]), &definition).is_ok());
}

#[test]
fn the_number_of_rules_is_limited() {
    let many = vec![rule(".spec.firstName", ".spec.kept", ""); 1_001];
    let errors =
        ApiConversionRules::compile(&conversion("v1", "v2", many.into(), &[]), &widgets()).unwrap_err();
    assert_eq!(errors[0].to_string(), "spec.conversions: Too many: 1001: must have at most 1000 items");
}

#[test]
fn fields_are_moved_and_transformed() {
    let rules = widget_rules();
    let v1 = json!({
        "apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": "bob"},
        "spec": {"firstName": "Bob", "lastName": "Jones", "kept": "same"},
    });
    let v2 = rules.convert(v1.clone(), "v2").unwrap();
    assert_eq!(v2["apiVersion"], "example.io/v2");
    assert_eq!(v2["metadata"], json!({"name": "bob"}));
    assert_eq!(v2["spec"]["name"], json!({"first": "Bob", "last": "Jones", "lastUpper": "JONES"}));
    assert_eq!(v2["spec"]["kept"], "same");
    let back = rules.convert(v2, "v1").unwrap();
    assert_eq!((&back["spec"]["firstName"], &back["spec"]["lastName"]), (&json!("Bob"), &json!("Jones")));

    let mut partial = v1.clone();
    partial["spec"].as_object_mut().unwrap().remove("lastName");
    let v2 = rules.convert(partial, "v2").unwrap();
    assert_eq!(v2["spec"]["name"], json!({"first": "Bob"}));
    assert_eq!(rules.convert(v1.clone(), "v1").unwrap(), v1);
    let unknown = rules.convert(v1.clone(), "v3").unwrap();
    assert_eq!((&unknown["apiVersion"], &unknown["spec"]), (&json!("example.io/v3"), &v1["spec"]));
}

#[test]
fn preserved_fields_survive_a_round_trip() {
    let rules = widget_rules();
    let v2 = json!({
        "apiVersion": "example.io/v2", "kind": "Widget", "metadata": {"name": "alice", "annotations": {"a": "b"}},
        "spec": {"name": {"first": "Alice", "last": "Smith"}, "someNewField": {"hello": "world"}},
    });
    let mut v1 = rules.convert(v2.clone(), "v1").unwrap();
    let key = "preserve.conversion.apis.kcp.io/v2";
    assert_eq!(v1["metadata"]["annotations"][key], r#"{"spec.someNewField":{"hello":"world"}}"#);
    // The server prunes by the schema of v1; a client of v1 changes a field.
    v1["spec"] = json!({"firstName": "Robot", "lastName": "Dragon"});
    let mut back = rules.convert(v1.clone(), "v2").unwrap();
    assert_eq!(back["metadata"], v2["metadata"]);
    assert_eq!(back["spec"]["someNewField"], json!({"hello": "world"}));
    assert_eq!(back["spec"]["name"], json!({"first": "Robot", "last": "Dragon", "lastUpper": "DRAGON"}));

    // A client of v2 removes the field, whatever an outdated annotation says.
    back["spec"].as_object_mut().unwrap().remove("someNewField");
    back["metadata"]["annotations"][key] = r#"{"spec.someNewField":{"hello":"old"}}"#.into();
    let v1 = rules.convert(back, "v1").unwrap();
    assert_eq!(v1["metadata"]["annotations"], json!({"a": "b"}));
}

#[test]
fn an_annotation_sets_only_preserved_fields() {
    let rules = widget_rules();
    let with = |text: &str| {
        json!({
            "apiVersion": "example.io/v1", "kind": "Widget",
            "metadata": {"name": "a", "annotations": {"preserve.conversion.apis.kcp.io/v2": text}},
            "spec": {"firstName": "A"},
        })
    };
    let text =
        r#"{"metadata.name":"b","metadata.uid":"x","spec.kept":"y","spec.someNewField":{"hello":"z"}}"#;
    let v2 = rules.convert(with(text), "v2").unwrap();
    assert_eq!(v2["metadata"], json!({"name": "a"}));
    assert_eq!(v2["spec"], json!({"firstName": "A", "name": {"first": "A"}, "someNewField": {"hello": "z"}}));
    for malformed in ["x", "[1]", "5"] {
        let error = rules.convert(with(malformed), "v2").unwrap_err();
        assert!(error.starts_with("error unmarshaling preserve annotation: "), "{error}");
    }
}

#[test]
fn maps_are_made_and_scalars_become_objects() {
    let string = json!({"type": "string"});
    let version = |name: &str, spec: Value| json!({"name": name, "schema": object_of(json!({"spec": object_of(spec)}))});
    let schema = json!({"spec": {"versions": [
        version("v1", json!({"name": string})),
        version("v2", json!({"name": object_of(json!({"first": string}))})),
    ]}});
    for rule in
        [rule("spec.name", "spec.name", "{\"first\": self}"), rule("spec.name", "spec.name.first", "")]
    {
        let rules =
            ApiConversionRules::compile(&conversion("v1", "v2", json!([rule]), &[]), &schema).unwrap();
        let v1 = json!({"apiVersion": "test.kcp.io/v1", "spec": {"name": "alice"}});
        let v2 = rules.convert(v1, "v2").unwrap();
        assert_eq!(v2, json!({"apiVersion": "test.kcp.io/v2", "spec": {"name": {"first": "alice"}}}));
    }
}

#[test]
fn a_failing_or_expensive_transformation_names_its_fields() {
    let failing =
        conversion("v1", "v2", json!([rule(".spec.firstName", ".spec.kept", "self.split('')[9]")]), &[]);
    let rules = ApiConversionRules::compile(&failing, &widgets()).unwrap();
    let v1 = json!({"apiVersion": "example.io/v1", "spec": {"firstName": "Bob"}});
    let error = rules.convert(v1, "v2").unwrap_err();
    let expected = "error converting: error executing transformation of spec.firstName to spec.kept: ";
    assert!(error.starts_with(expected), "{error}");
    let looping = "string(self.filter(a, self.exists(b, a + '1' == b)).size())";
    let expensive = conversion("v1", "v2", json!([rule(".spec.list", ".spec.kept", looping)]), &[]);
    let rules = ApiConversionRules::compile(&expensive, &widgets()).unwrap();
    let list: Vec<String> = (0..3_000).map(|index| format!("x{index}")).collect();
    let v1 = json!({"apiVersion": "example.io/v1", "spec": {"list": list}});
    let error = rules.convert(v1, "v2").unwrap_err();
    let expected = "error converting: error executing transformation of spec.list to spec.kept: ";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn the_digest_covers_rules_and_schemas() {
    let digest = |rules: Value, schema: &Value| {
        let conversion = conversion("v1", "v2", rules, &[]);
        *ApiConversionRules::compile(&conversion, schema).unwrap().digest()
    };
    let rules = || json!([rule(".spec.firstName", ".spec.kept", "")]);
    let mut other = widgets();
    other["spec"]["versions"][0]["schema"]["properties"]["spec"]["properties"]["new"] =
        json!({"type": "string"});
    assert_eq!(digest(rules(), &widgets()), digest(rules(), &widgets()));
    assert_ne!(digest(rules(), &widgets()), digest(json!([]), &widgets()));
    assert_ne!(digest(rules(), &widgets()), digest(rules(), &other));
}
