//! The entry point of the fuzz target.

use std::sync::LazyLock;

use serde_json::{Value as Json, json};

use crate::{Budget, DeclType, Environment, Inputs, Variable};

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let schema = json!({
        "type": "object",
        "properties": {
            "s": { "type": "string" }, "i": { "type": "integer" }, "d": { "type": "number" }, "b": { "type": "boolean" },
            "l": { "type": "array", "items": { "type": "string" } },
            "m": { "type": "object", "additionalProperties": { "type": "integer" } },
            "x": { "x-kubernetes-int-or-string": true },
        },
    });
    let environment = Environment::default().with_bind();
    match DeclType::from_schema(&schema, "self", false) {
        Some(declared) => environment.with_variable("self", Variable::Json(declared.into())),
        None => environment,
    }
});

static OBJECT: LazyLock<Json> = LazyLock::new(
    || json!({ "s": "text é", "i": 7, "d": 1.5, "b": true, "l": ["a", "b"], "m": { "k": 1 }, "x": "50%" }),
);

/// Compiles a text as an expression and evaluates it. Nothing that it contains may panic or exceed the budget.
pub fn fuzz(text: &str) {
    let Ok(program) = ENVIRONMENT.compile(text) else {
        return;
    };
    let inputs = Inputs::new(&ENVIRONMENT).with_json("self", &OBJECT);
    let evaluation = program.evaluate(&inputs, &mut Budget::new(100_000));
    drop(evaluation);
}

#[cfg(test)]
mod tests {
    #[test]
    fn found_expressions_neither_panic_nor_exceed_the_budget() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/expression");
        let mut read = 0;
        for entry in std::fs::read_dir(corpus).unwrap() {
            super::fuzz(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
            read += 1;
        }
        assert!(read > 0);
    }
}
