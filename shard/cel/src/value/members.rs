//! Members of a set, looked up by a hash.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::{Value, equal};
use crate::failure::Failure;
use crate::work::Work;

/// The members of a set. The hash has a secret, because members may be chosen to collide.
pub(super) struct Members<'a> {
    values: Vec<Value<'a>>,
    /// The place of the last value of each hash; `None` if a value has no hash, and then members are searched.
    places: Option<HashMap<u64, usize>>,
    /// For each value, the place of the one before it with the same hash.
    previous: Vec<Option<usize>>,
    hasher: RandomState,
}

impl<'a> Members<'a> {
    pub(super) fn of(values: Vec<Value<'a>>, work: &Work) -> Result<Self, Failure> {
        let places = HashMap::with_capacity(values.len());
        let mut members = Self {
            previous: Vec::with_capacity(values.len()),
            values: Vec::with_capacity(values.len()),
            places: Some(places),
            hasher: RandomState::new(),
        };
        for value in values {
            members.add(value, work)?;
        }
        Ok(members)
    }

    pub(super) fn add(&mut self, value: Value<'a>, work: &Work) -> Result<(), Failure> {
        work.items(1)?;
        work.read(value.text_size())?;
        let previous = match (hash(&value, &self.hasher), &mut self.places) {
            (Some(hash), Some(places)) => places.insert(hash, self.values.len()),
            (Some(_), None) => None,
            (None, places) => {
                *places = None;
                None
            }
        };
        self.previous.push(previous);
        self.values.push(value);
        Ok(())
    }

    /// Whether a member equals a value.
    pub(super) fn contains(&self, value: &Value<'a>, work: &Work) -> Result<bool, Failure> {
        let Some(places) = &self.places else {
            for mine in &self.values {
                if equal(mine, value, work)? {
                    return Ok(true);
                }
            }
            return Ok(false);
        };
        work.visit()?;
        work.read(value.text_size())?;
        // A value without a hash equals none that has one.
        let mut next = hash(value, &self.hasher).and_then(|hash| places.get(&hash).copied());
        while let Some(place) = next {
            if let Some(mine) = self.values.get(place)
                && equal(mine, value, work)?
            {
                return Ok(true);
            }
            next = self.previous.get(place).copied().flatten();
        }
        Ok(false)
    }

    pub(super) fn into_values(self) -> Vec<Value<'a>> {
        self.values
    }
}

/// The hash of a scalar: values that are equal have the same, such as `1` and `1.0`.
fn hash(value: &Value<'_>, hasher: &RandomState) -> Option<u64> {
    // `==` rounds an integer before it compares it with a double. `+ 0.0` makes both zeros one.
    let number = |number: f64| hasher.hash_one((2, (number + 0.0).to_bits()));
    Some(match value {
        Value::Null => hasher.hash_one(0),
        Value::Bool(value) => hasher.hash_one((1, value)),
        Value::Int(value) => number(*value as f64),
        Value::Uint(value) => number(*value as f64),
        Value::Double(value) => number(*value),
        Value::String(text) => hasher.hash_one((3, text.as_str())),
        Value::Bytes(bytes) => hasher.hash_one((4, bytes)),
        Value::Duration(duration) => hasher.hash_one((5, duration.nanoseconds)),
        Value::Timestamp(timestamp) => hasher.hash_one((6, timestamp.instant())),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn equal_values_of_different_types_are_one_member() {
        let work = Work::unlimited();
        let large = (1_i64 << 53) + 1;
        let values = [Value::Int(1), Value::Double(-0.0), Value::Int(large), Value::Double(f64::NAN)];
        let members = Members::of(values.to_vec(), &work).unwrap();
        for (value, expected) in [
            (Value::Double(1.0), true),
            (Value::Uint(1), true),
            (Value::Int(0), true),
            (Value::Double(large as f64), true),
            (Value::Int(large - 1), false),
            (Value::Double(f64::NAN), false),
            (Value::Bool(true), false),
            (Value::text("1"), false),
            (Value::list(vec![Value::Int(1)]), false),
        ] {
            assert_eq!(members.contains(&value, &work).unwrap(), expected, "{value:?}");
            let is_found = values.iter().any(|mine| equal(mine, &value, &work).unwrap());
            assert_eq!(is_found, expected, "{value:?}");
        }
    }

    #[test]
    fn the_work_of_a_set_grows_with_its_size_only() {
        let work_of = |size: i64| {
            let work = Work::default();
            let before = work.remaining();
            let values = || (0..size).map(|value| Value::Int(value * 7));
            let members = Members::of(values().collect(), &work).unwrap();
            assert!(values().all(|value| members.contains(&value, &work).unwrap()));
            before - work.remaining()
        };
        assert!(work_of(100_000) <= 10 * work_of(10_000) + 1_000);
    }
}
