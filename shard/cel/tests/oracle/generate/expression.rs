//! Generates expressions of a wanted type.

use super::super::random::Random;
use super::template::{fields, literals, templates};
use super::{K, list, map, optional};

pub(super) fn rule(random: &mut Random) -> String {
    let kinds = [
        K::Bool,
        K::Bool,
        K::Bool,
        K::Bool,
        K::Bool,
        K::Bool,
        K::String,
        K::Int,
        list(K::String),
        list(K::Int),
        K::Double,
        K::Dyn,
        map(K::Int),
        optional(K::String),
        K::Timestamp,
        K::Duration,
        K::Uint,
        K::Bytes,
    ];
    let kind = random.pick(&kinds).clone();
    let depth = 1 + random.below(5);
    let mut text = Generator { random, variables: Vec::new() }.expression(&kind, depth);
    if random.percent(3) && !text.is_empty() {
        // A damaged text.
        let characters: Vec<char> = text.chars().collect();
        let place = random.below(characters.len());
        text = characters.iter().enumerate().filter(|(index, _)| *index != place).map(|(_, c)| c).collect();
    }
    text
}

struct Generator<'r> {
    random: &'r mut Random,
    /// Variables of macros.
    variables: Vec<(String, K)>,
}

impl Generator<'_> {
    fn expression(&mut self, kind: &K, depth: usize) -> String {
        // An operand of a wrong type now and then.
        if self.random.percent(1) {
            let other = self.random.pick(&[K::Int, K::String, K::Bool, K::Dyn, list(K::Int)]).clone();
            return self.expression(&other, depth.min(1));
        }
        if self.random.percent(2) {
            return format!("dyn({})", self.expression(kind, depth.saturating_sub(1)));
        }
        if depth == 0 {
            return self.leaf(kind);
        }
        match self.random.below(20) {
            0..=3 => self.leaf(kind),
            4 => {
                let condition = self.expression(&K::Bool, depth - 1);
                let (left, right) = (self.expression(kind, depth - 1), self.expression(kind, depth - 1));
                format!("({condition} ? {left} : {right})")
            }
            5 => {
                let value = self.expression(&optional(kind.clone()), depth - 1);
                format!("{value}.orValue({})", self.expression(kind, depth - 1))
            }
            6 => {
                let lists = self.expression(&list(kind.clone()), depth - 1);
                format!("{lists}[{}]", self.expression(&K::Int, depth - 1))
            }
            7 => {
                let maps = self.expression(&map(kind.clone()), depth - 1);
                if self.random.percent(50) {
                    format!("{maps}[{}]", self.expression(&K::String, depth - 1))
                } else {
                    format!("{maps}.k1")
                }
            }
            _ => {
                let templates = templates(kind);
                if templates.is_empty() || self.random.percent(25) {
                    return self.structured(kind, depth);
                }
                let (template, operands) = self.random.pick(&templates).clone();
                self.fill(template, &operands, depth)
            }
        }
    }

    fn fill(&mut self, template: &str, operands: &[K], depth: usize) -> String {
        let mut output = String::new();
        let mut parts = template.split("{}");
        output.push_str(parts.next().unwrap_or_default());
        for (operand, part) in operands.iter().zip(parts) {
            let text = self.expression(operand, depth - 1);
            // Operators need brackets around their operands, methods around operators.
            if text.contains(' ') && !text.starts_with('(') {
                output.push_str(&format!("({text})"));
            } else {
                output.push_str(&text);
            }
            output.push_str(part);
        }
        output
    }

    fn with_variable(&mut self, name: &str, kind: K, body: &K, depth: usize) -> String {
        self.variables.push((name.to_owned(), kind));
        let text = self.expression(body, depth);
        self.variables.pop();
        text
    }

    fn variable(&self) -> String {
        format!("v{}", self.variables.len())
    }

    /// A range with the kinds of its first and second variable.
    fn range(&mut self, depth: usize) -> (String, K, K, K) {
        let element = self.random.pick(&[K::String, K::Int, K::Item, K::Double, list(K::Int)]).clone();
        if self.random.percent(75) {
            (self.expression(&list(element.clone()), depth), element.clone(), K::Int, element)
        } else {
            (self.expression(&map(element.clone()), depth), K::String, K::String, element)
        }
    }

    fn structured(&mut self, kind: &K, depth: usize) -> String {
        let name = self.variable();
        let second = format!("w{}", self.variables.len());
        match kind {
            K::Bool => {
                let (range, single, first, value) = self.range(depth - 1);
                let quantifier = *self.random.pick(&["all", "exists", "exists_one"]);
                if self.random.percent(70) {
                    let body = self.with_variable(&name, single, &K::Bool, depth - 1);
                    return format!("{range}.{quantifier}({name}, {body})");
                }
                self.variables.push((name.clone(), first));
                let body = self.with_variable(&second, value, &K::Bool, depth - 1);
                self.variables.pop();
                format!("{range}.{quantifier}({name}, {second}, {body})")
            }
            K::List(element) => {
                let (range, single, first, value) = self.range(depth - 1);
                match self.random.below(6) {
                    0 => {
                        let range = self.expression(kind, depth - 1);
                        let body = self.with_variable(&name, (**element).clone(), &K::Bool, depth - 1);
                        format!("{range}.filter({name}, {body})")
                    }
                    1 => {
                        let filter = self.with_variable(&name, single.clone(), &K::Bool, depth - 1);
                        let body = self.with_variable(&name, single, element, depth - 1);
                        format!("{range}.map({name}, {filter}, {body})")
                    }
                    2 => {
                        self.variables.push((name.clone(), first));
                        let body = self.with_variable(&second, value, element, depth - 1);
                        self.variables.pop();
                        format!("{range}.transformList({name}, {second}, {body})")
                    }
                    3 => {
                        let range = self.expression(kind, depth - 1);
                        let body = self.with_variable(&name, (**element).clone(), &K::Int, depth - 1);
                        format!("{range}.sortBy({name}, {body})")
                    }
                    4 => {
                        let count = self.random.below(4);
                        let items: Vec<String> =
                            (0..count).map(|_| self.expression(element, depth - 1)).collect();
                        format!("[{}]", items.join(", "))
                    }
                    _ => {
                        let body = self.with_variable(&name, single, element, depth - 1);
                        format!("{range}.map({name}, {body})")
                    }
                }
            }
            K::Map(value_kind) => {
                let (range, _, first, value) = self.range(depth - 1);
                self.variables.push((name.clone(), first));
                self.variables.push((second.clone(), value));
                let body = self.expression(value_kind, depth - 1);
                let filter = if self.random.percent(30) {
                    format!("{}, ", self.expression(&K::Bool, depth - 1))
                } else {
                    String::new()
                };
                self.variables.truncate(self.variables.len() - 2);
                if self.random.percent(50) {
                    format!("{range}.transformMap({name}, {second}, {filter}{body})")
                } else {
                    format!("{range}.transformMapEntry({name}, {second}, {filter}{{string({name}): {body}}})")
                }
            }
            K::Optional(inner) => {
                let source = self.random.pick(&[K::String, K::Int, K::Item]).clone();
                let value = self.expression(&optional(source.clone()), depth - 1);
                if self.random.percent(50) {
                    let body = self.with_variable(&name, source, inner, depth - 1);
                    format!("{value}.optMap({name}, {body})")
                } else {
                    let body = self.with_variable(&name, source, kind, depth - 1);
                    format!("{value}.optFlatMap({name}, {body})")
                }
            }
            other => self.leaf(other),
        }
    }

    fn leaf(&mut self, kind: &K) -> String {
        let fitting: Vec<String> =
            self.variables.iter().filter(|(_, known)| known == kind).map(|(name, _)| name.clone()).collect();
        if !fitting.is_empty() && self.random.percent(70) {
            return self.random.pick(&fitting).clone();
        }
        let items: Vec<String> = self
            .variables
            .iter()
            .filter(|(_, known)| *known == K::Item)
            .map(|(name, _)| name.clone())
            .collect();
        if !items.is_empty() && self.random.percent(60) {
            let item = self.random.pick(&items).clone();
            match kind {
                K::String => return format!("{item}.{}", self.random.pick(&["k", "w"])),
                K::Int => return format!("{item}.v"),
                K::Bool => return format!("has({item}.{})", self.random.pick(&["v", "w", "k"])),
                K::Optional(inner) if **inner == K::String => return format!("{item}.?w"),
                _ => {}
            }
        }
        let fields = fields(kind);
        if !fields.is_empty() && self.random.percent(55) {
            let root = if self.random.percent(85) { "self" } else { "oldSelf" };
            return self.random.pick(fields).replace("self", root);
        }
        let literals = literals(kind);
        if literals.is_empty() {
            return match kind {
                K::List(_) => "[]".to_owned(),
                K::Map(_) => "{}".to_owned(),
                K::Optional(inner) => match self.random.below(3) {
                    0 => "optional.none()".to_owned(),
                    1 => format!("optional.of({})", self.leaf(inner)),
                    _ => format!("optional.ofNonZeroValue({})", self.leaf(inner)),
                },
                K::Dyn => {
                    let other = self.random.pick(&[K::Int, K::String, K::Bool, list(K::Int)]).clone();
                    format!("dyn({})", self.leaf(&other))
                }
                K::Item => "self.lo[0]".to_owned(),
                _ => "self.o".to_owned(),
            };
        }
        (*self.random.pick(literals)).to_owned()
    }
}
