//! Evaluates the rules of a schema on an object, in the order of the object, within one budget.

use fairlead_cel::{Budget, EvaluationError, Inputs, MAX_MESSAGE_SIZE, Program, Value as CelValue};
use serde_json::Value;

use super::correlation::{Correlated, Ratchet};
use super::{NodeRules, Reason, Rule, RuleFindings, Rules};
use crate::field::{FieldError, FieldPath, Location, MAX_FINDINGS, go_quote};
use crate::structural::equality::identity;
use crate::structural::list_type::{by_key, key_of};
use crate::structural::{Additional, Inner, ListType, Node, NodeId, TypeSet};

/// Evaluates all rules on an object; `old` is the object before an update.
///
/// The budget limits the cost: some 100 ns per operation, at most [`fairlead_cel::RUNTIME_COST_BUDGET`] operations.
pub(in crate::structural) fn evaluate(
    schema: &Inner,
    rules: &Rules,
    object: &Value,
    old: Option<&Value>,
) -> RuleFindings {
    let mut evaluator = Evaluator::new(schema, rules);
    let path = FieldPath::root();
    let correlated = old.map(|old| Correlated::new(schema, schema.root, object, old));
    let ratchet = Ratchet { current: correlated.as_ref(), parent: None };
    let _ = evaluator.value(schema.root, object, old, ratchet, Location::Base(&path));
    evaluator.findings
}

/// The errors of a default at `path`: it must be valid both in a new object and as a value that does not change.
pub(in crate::structural) fn check_default(
    schema: &Inner,
    rules: &Rules,
    node: NodeId,
    default: &Value,
    path: &FieldPath,
) -> Vec<FieldError> {
    let evaluate = |old| {
        let mut evaluator = Evaluator::new(schema, rules);
        let _ = evaluator.value(node, default, old, Ratchet::default(), Location::Base(path));
        evaluator.findings.errors
    };
    let errors = evaluate(Some(default));
    if errors.is_empty() { evaluate(None) } else { errors }
}

struct Evaluator<'s> {
    schema: &'s Inner,
    rules: &'s Rules,
    budget: Budget,
    findings: RuleFindings,
}

/// The end of the evaluation: the budget is exhausted, or there are too many errors.
struct Stop;

impl<'s> Evaluator<'s> {
    fn new(schema: &'s Inner, rules: &'s Rules) -> Self {
        Self { schema, rules, budget: Budget::default(), findings: RuleFindings::default() }
    }

    fn value(
        &mut self,
        id: NodeId,
        value: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        location: Location<'_>,
    ) -> Result<(), Stop> {
        let has_rules = self.rules.has_rules.get(id as usize).is_some_and(|has_rules| *has_rules);
        // Rules about nulls are those of the value around them.
        if !has_rules || value.is_null() {
            return Ok(());
        }
        let node = self.schema.node(id);
        if let Some(rules) = self.rules.by_node.get(&id) {
            Rulings { node, value, ratchet, location }.evaluate(self, rules, old)?;
        }
        match value {
            Value::Object(fields) => {
                for (name, field) in fields {
                    let (child, location) = match (node.property(name), &node.additional) {
                        (Some(property), _) => (property.node, Location::Child(&location, name)),
                        (None, Additional::Schema(property)) => {
                            (property.node, Location::Key(&location, name))
                        }
                        _ => continue,
                    };
                    let old_field = old.and_then(|old| old.get(name));
                    let is_type_field = id == self.schema.root && matches!(&**name, "apiVersion" | "kind");
                    let correlated = match (ratchet.current, old_field) {
                        (Some(_), Some(old)) if !is_type_field => {
                            Some(Correlated::new(self.schema, child, field, old))
                        }
                        _ => None,
                    };
                    // Old and new object are read in the same version, so their types never change.
                    let ratchet = match is_type_field {
                        true => Ratchet::default(),
                        false => below(ratchet, correlated.as_ref()),
                    };
                    self.value(child, field, old_field, ratchet, location)?;
                }
            }
            Value::Array(items) => self.items(node, items, old, ratchet, location)?,
            _ => {}
        }
        Ok(())
    }

    fn items(
        &mut self,
        node: &Node,
        items: &[Value],
        old: Option<&Value>,
        ratchet: Ratchet<'_>,
        location: Location<'_>,
    ) -> Result<(), Stop> {
        let Some(property) = &node.items else { return Ok(()) };
        // Only items of map lists have an identity and therefore an old value.
        let map_list = match (&node.list_type, old.and_then(Value::as_array)) {
            (ListType::Map { keys }, Some(old_items)) => Some((keys, by_key(keys, old_items))),
            _ => None,
        };
        for (index, item) in items.iter().enumerate() {
            let old_item = map_list.as_ref().and_then(|(keys, old_items)| {
                old_items.get(&identity(&key_of(keys, item.as_object()?))).copied()
            });
            let correlated = match (ratchet.current, old_item) {
                (Some(_), Some(old)) => Some(Correlated::new(self.schema, property.node, item, old)),
                _ => None,
            };
            let ratchet = below(ratchet, correlated.as_ref());
            self.value(property.node, item, old_item, ratchet, Location::Index(&location, index))?;
        }
        Ok(())
    }

    /// Evaluates a program. Returns the error of Kubernetes if the budget of the object is exhausted.
    fn run<'v>(
        &mut self,
        program: &'v Program,
        inputs: &'v Inputs<'v>,
    ) -> Result<Result<CelValue<'v>, EvaluationError>, Stop> {
        let remaining = self.budget.remaining();
        let evaluation = program.evaluate(inputs, &mut self.budget);
        // As in Kubernetes, the limit of the object takes precedence over that of one evaluation.
        if evaluation.cost > remaining { Err(Stop) } else { Ok(evaluation.result) }
    }
}

/// The old values at and around a part of a value.
fn below<'c>(ratchet: Ratchet<'c>, child: Option<&'c Correlated<'c>>) -> Ratchet<'c> {
    match ratchet.current {
        Some(current) => Ratchet { current: child, parent: Some(current) },
        None => ratchet,
    }
}

/// The rules of one value.
struct Rulings<'v> {
    node: &'v Node,
    value: &'v Value,
    ratchet: Ratchet<'v>,
    location: Location<'v>,
}

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

impl Rulings<'_> {
    fn evaluate(
        &self,
        evaluator: &mut Evaluator<'_>,
        rules: &NodeRules,
        old: Option<&Value>,
    ) -> Result<(), Stop> {
        if evaluator.budget.remaining() == 0 {
            evaluator.findings.errors.push(self.fault(OUT_OF_BUDGET));
            return Err(Stop);
        }
        let old = old.filter(|old| !old.is_null());
        let inputs = |environment| {
            let inputs = Inputs::new(environment).with_json("self", self.value);
            old.into_iter().fold(inputs, |inputs, old| inputs.with_json("oldSelf", old))
        };
        let plain = inputs(&rules.environment);
        let needs_optional = rules.rules.iter().any(|rule| rule.has_optional_old);
        let optional = needs_optional.then(|| match old {
            Some(_) => inputs(&rules.optional_environment),
            None => inputs(&rules.optional_environment).with_none("oldSelf"),
        });
        for rule in &rules.rules {
            if rule.is_transition && old.is_none() && !rule.has_optional_old {
                continue;
            }
            let inputs = match &optional {
                Some(optional) if rule.has_optional_old => optional,
                _ => &plain,
            };
            self.rule(evaluator, rule, inputs)?;
            if evaluator.findings.errors.len() + evaluator.findings.warnings.len() >= MAX_FINDINGS {
                return Err(Stop);
            }
        }
        Ok(())
    }

    fn rule(&self, evaluator: &mut Evaluator<'_>, rule: &Rule, inputs: &Inputs<'_>) -> Result<(), Stop> {
        let Ok(result) = evaluator.run(&rule.program, inputs) else {
            evaluator.findings.errors.push(self.fault(OUT_OF_BUDGET));
            return Err(Stop);
        };
        let label = &rule.label;
        match result {
            Ok(CelValue::Bool(true)) => Ok(()),
            Ok(_) => self.violation(evaluator, rule, inputs),
            Err(EvaluationError::CostLimit) => {
                let detail = format!(
                    "'{}': no further validation rules will be run due to call cost exceeds limit for rule: {label}",
                    EvaluationError::CostLimit
                );
                evaluator.findings.errors.push(self.fault(&detail));
                Err(Stop)
            }
            Err(error) => {
                let error = error.to_string();
                let detail = if error.starts_with("no such overload") {
                    format!(
                        "'{error}': call arguments did not match a supported operator, function or macro signature for \
                         rule: {label}"
                    )
                } else {
                    format!("{error} evaluating rule: {label}")
                };
                evaluator.findings.errors.push(self.fault(&detail));
                Ok(())
            }
        }
    }

    fn violation(&self, evaluator: &mut Evaluator<'_>, rule: &Rule, inputs: &Inputs<'_>) -> Result<(), Stop> {
        let mut path = self.location.path();
        if let Some(below) = rule.field_path.as_deref().filter(|below| !below.is_empty()) {
            path = path.child(below);
        }
        let message = match &rule.message_expression {
            None => Ok(None),
            Some((program, source)) => message(evaluator, program, source, inputs),
        };
        let (error, end) = match message {
            Ok(message) => (self.error(rule, path, message.as_deref().unwrap_or(&rule.message)), Ok(())),
            Err(detail) => (FieldError::invalid_str(path, self.type_name(), &detail), Err(Stop)),
        };
        if !rule.is_transition && self.ratchet.is_unchanged() {
            evaluator.findings.warnings.push(error);
        } else {
            evaluator.findings.errors.push(error);
        }
        end
    }

    fn error(&self, rule: &Rule, path: FieldPath, message: &str) -> FieldError {
        let is_large = matches!(self.type_name(), "object" | "array");
        match rule.reason {
            Reason::Required => FieldError::required(path, message),
            Reason::Forbidden => FieldError::forbidden(path, message),
            Reason::Invalid if is_large => FieldError::invalid_without_value(path, message),
            Reason::Invalid => FieldError::invalid(path, self.value, message),
            Reason::Duplicate if is_large => FieldError::duplicate_without_value(path),
            Reason::Duplicate => FieldError::duplicate(path, self.value),
        }
    }

    /// The error of a rule that could not be evaluated.
    fn fault(&self, detail: &str) -> FieldError {
        FieldError::invalid_str(self.location.path(), self.type_name(), detail)
    }

    fn type_name(&self) -> &'static str {
        let mut types = TypeSet::NAMES.iter().filter(|(bit, _)| self.node.types == *bit);
        types.next().map_or("", |(_, name)| name)
    }
}

/// The text of a `messageExpression`; `None` if it has no usable one. The error ends the evaluation.
fn message(
    evaluator: &mut Evaluator<'_>,
    program: &Program,
    source: &str,
    inputs: &Inputs<'_>,
) -> Result<Option<String>, String> {
    let Ok(result) = evaluator.run(program, inputs) else {
        return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules \
                    will be run"
            .to_owned());
    };
    match result {
        Ok(value) => {
            let text = value.as_str().map(str::trim).unwrap_or_default();
            let is_usable = !text.is_empty() && text.len() <= MAX_MESSAGE_SIZE && !text.contains('\n');
            Ok(is_usable.then(|| text.to_owned()))
        }
        Err(EvaluationError::CostLimit) => Err(format!(
            "no further validation rules will be run due to call cost exceeds limit for messageExpression: {}",
            go_quote(source)
        )),
        Err(_) => Ok(None),
    }
}
