//! Generates schemas, and objects that are mostly valid by them.

use serde_json::{Map, Value as Json, json};

use super::super::random::Random;

pub(super) fn schema(random: &mut Random) -> Json {
    let mut bounded = |mut schema: Json, bound: &str, max: usize| {
        if random.percent(60) {
            schema[bound] = json!(1 + random.below(max));
        }
        schema
    };
    let text = bounded(json!({ "type": "string" }), "maxLength", 40);
    let item = json!({
        "type": "object",
        "properties": { "k": { "type": "string" }, "v": { "type": "integer" }, "w": text },
        "required": ["k"],
    });
    let strings = bounded(json!({ "type": "array", "items": text }), "maxItems", 30);
    let mut set = strings.clone();
    set["x-kubernetes-list-type"] = "set".into();
    let mut keyed = bounded(json!({ "type": "array", "items": item }), "maxItems", 20);
    keyed["x-kubernetes-list-type"] = "map".into();
    keyed["x-kubernetes-list-map-keys"] = json!(["k"]);
    let o = json!({
        "type": "object",
        "properties": {
            "x": { "type": "integer" }, "y": text, "n": { "type": "string", "nullable": true },
            "p": { "type": "object", "properties": { "q": { "type": "boolean" } }, "required": ["q"] },
        },
        "required": ["x", "p"],
    });
    json!({
        "type": "object",
        "properties": {
            "s": bounded(json!({ "type": "string" }), "maxLength", 60),
            "e": { "type": "string", "enum": ["one", "three"] },
            "i": { "type": "integer" }, "j": { "type": "integer" },
            "d": { "type": "number" }, "b": { "type": "boolean" },
            "ts": { "type": "string", "format": "date-time" }, "day": { "type": "string", "format": "date" },
            "dur": { "type": "string", "format": "duration" },
            "by": bounded(json!({ "type": "string", "format": "byte" }), "maxLength", 30),
            "ios": { "x-kubernetes-int-or-string": true },
            "ls": strings, "set": set,
            "li": bounded(json!({ "type": "array", "items": { "type": "integer" } }), "maxItems", 50),
            "ld": { "type": "array", "items": { "type": "number" } },
            "lt": { "type": "array", "items": { "type": "string", "format": "date-time" } },
            "ll": bounded(json!({
                "type": "array", "items": { "type": "array", "items": { "type": "integer" }, "maxItems": 4 },
            }), "maxItems", 9),
            "ml": keyed,
            "lo": bounded(json!({ "type": "array", "items": item }), "maxItems", 20),
            "ms": bounded(json!({ "type": "object", "additionalProperties": { "type": "string" } }), "maxProperties", 20),
            "mi": { "type": "object", "additionalProperties": { "type": "integer" } },
            "mo": { "type": "object", "additionalProperties": item },
            "o": o, "ni": { "type": "integer", "nullable": true },
            "a-b": { "type": "string" },
            "namespace": bounded(json!({ "type": "string" }), "maxLength", 20), "for": { "type": "integer" },
            "as": {
                "type": "object",
                "properties": { "package": { "type": "string" }, "let": { "type": "integer" } },
                "required": ["package"],
            },
            "pu": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        },
        "required": ["s", "i", "ls"],
    })
}

const TEXTS: [&str; 22] = [
    "",
    "a",
    "b",
    "abc",
    "hello world",
    "a,b,c",
    "Zürich",
    "日本語",
    "10.0.0.1",
    "10.0.0.0/8",
    "2001:db8::1",
    "1.5Gi",
    "100m",
    "1.2.3",
    "1.2.3-rc.1",
    "https://user@example.com:8443/a/b%20c?q=1&q=2&r=x",
    "/path?x=y",
    "my-name",
    "My Name",
    "50%",
    "2020-02-29T12:30:45.5Z",
    "1h30m",
];

fn text(random: &mut Random) -> String {
    (*random.pick(&TEXTS)).to_owned()
}

fn maybe(random: &mut Random, fields: &mut Map<String, Json>, name: &str, value: Json) {
    if random.percent(85) {
        fields.insert(name.to_owned(), value);
    }
}

fn integer(random: &mut Random) -> i64 {
    *random.pick(&[0, 1, 2, 3, -1, 7, 42, 100, -5, 9_007_199_254_740_993, i64::MAX, i64::MIN])
}

fn item(random: &mut Random, key: usize) -> Json {
    let mut fields = Map::new();
    fields.insert("k".to_owned(), format!("k{key}").into());
    let value = random.below(5);
    maybe(random, &mut fields, "v", value.into());
    let value = text(random);
    maybe(random, &mut fields, "w", value.into());
    Json::Object(fields)
}

pub(super) fn object(random: &mut Random) -> Json {
    let mut fields = Map::new();
    macro_rules! field {
        ($name:literal, $value:expr) => {{
            let value: Json = $value;
            maybe(random, &mut fields, $name, value);
        }};
    }
    field!("s", text(random).into());
    field!("e", "one".into());
    field!("i", integer(random).into());
    field!("j", random.below(10).into());
    field!("d", random.pick(&[json!(1.5), json!(2), json!(-0.25), json!(1e300)]).clone());
    field!("b", random.percent(50).into());
    field!(
        "ts",
        random.pick(&["2021-06-01T10:00:00Z", "2020-02-29T23:59:59.123+02:00", "bad"]).to_string().into()
    );
    field!("day", "2021-06-01".into());
    field!("dur", random.pick(&["1h", "90s", "-5m", "3 days"]).to_string().into());
    field!("by", random.pick(&["aGVsbG8=", "", "_-8="]).to_string().into());
    field!("ios", if random.percent(50) { json!(5) } else { json!("50%") });
    for name in ["ls", "set"] {
        let count = random.below(5);
        let mut items: Vec<String> = (0..count).map(|_| text(random)).collect();
        if name == "set" {
            items.sort();
            items.dedup();
            items.reverse();
        }
        maybe(random, &mut fields, name, items.into());
    }
    field!("li", (0..random.below(6)).map(|_| json!(random.below(9))).collect());
    field!("ld", (0..random.below(4)).map(|_| json!(random.below(9) as f64 / 2.0 + 0.25)).collect());
    field!("lt", (0..random.below(3)).map(|n| json!(format!("202{n}-01-01T00:00:00Z"))).collect());
    field!("ll", (0..random.below(4)).map(|n| json!((0..n).collect::<Vec<_>>())).collect());
    for name in ["ml", "lo"] {
        let mut items: Vec<Json> = (0..random.below(5)).map(|key| item(random, key)).collect();
        if random.percent(50) {
            items.reverse();
        }
        maybe(random, &mut fields, name, items.into());
    }
    field!("ms", (0..random.below(4)).map(|n| (format!("k{n}"), Json::from(text(random)))).collect());
    field!("mi", (0..random.below(4)).map(|n| (format!("k{n}"), json!(n))).collect());
    field!("mo", (0..random.below(3)).map(|n| (format!("k{n}"), item(random, n))).collect());
    field!("o", {
        let mut inner = Map::new();
        let (x, y, q) = (random.below(9), text(random), random.percent(50));
        maybe(random, &mut inner, "x", x.into());
        maybe(random, &mut inner, "y", y.into());
        let n = if random.percent(50) { Json::Null } else { "n".into() };
        maybe(random, &mut inner, "n", n);
        maybe(random, &mut inner, "p", json!({ "q": q }));
        Json::Object(inner)
    });
    field!("ni", if random.percent(50) { Json::Null } else { json!(3) });
    field!("a-b", "dash".into());
    field!("namespace", "default".into());
    field!("for", random.below(9).into());
    field!("as", if random.percent(70) { json!({ "package": "p", "let": 2 }) } else { json!({}) });
    field!("pu", json!({ "any": [1, { "thing": true }] }));
    Json::Object(fields)
}
