//! Loops. Costs are those of the comprehensions that the macros stand for: the condition, the step and the result, each
//! of which reads the accumulator.

use super::{Evaluator, Slot, charge_entry};
use crate::failure::Failure;
use crate::limits::LIST_CREATE_COST;
use crate::plan::{Fold, FoldBody, MapStep, Node};
use crate::value::{List, Map, Outcome, OwnedMap, Value};
use crate::work::Work;

/// Cost of `@not_strictly_false(@result)`, and of the same with a negation.
const ALL_CONDITION_COST: u64 = 2;
const EXISTS_CONDITION_COST: u64 = 3;
/// Cost of reading the accumulator.
const READ_COST: u64 = 1;
/// Cost of `@result == 1`, and of `@result + 1`.
const COMPARE_COST: u64 = 2;
const INCREMENT_COST: u64 = 2;
/// Cost of the call that appends to a list, or inserts into a map.
const CALL_COST: u64 = 1;

/// The items of a range.
enum Range<'a> {
    List(List<'a>),
    Map(Map<'a>, Vec<Value<'a>>),
}

impl<'a> Range<'a> {
    fn len(&self) -> usize {
        match self {
            Self::List(list) => list.len(),
            Self::Map(_, keys) => keys.len(),
        }
    }

    /// The values of both variables.
    fn pair(&self, index: usize, work: &Work) -> (Value<'a>, Outcome<'a>) {
        let missing = || Err(Failure::error("no such key"));
        match self {
            Self::List(list) => (Value::Int(index as i64), list.get(index, work).unwrap_or_else(missing)),
            Self::Map(map, keys) => {
                let key = keys.get(index).cloned().unwrap_or(Value::Null);
                let value = map.find(&key, work).and_then(|found| found.map_or_else(missing, Ok));
                (key, value)
            }
        }
    }

    /// The value of the only variable: the item of a list or the key of a map.
    fn single(&self, index: usize, work: &Work) -> Outcome<'a> {
        match self {
            Self::List(_) => self.pair(index, work).1,
            Self::Map(_, keys) => Ok(keys.get(index).cloned().unwrap_or(Value::Null)),
        }
    }
}

impl<'a> Evaluator<'a> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> Outcome<'a> {
        let range = match self.node(&fold.range)? {
            Value::List(list) => Range::List(list),
            Value::Map(map) => {
                self.work.visits(map.len())?;
                let keys = map.keys();
                Range::Map(map, keys)
            }
            other => {
                let name = other.type_name();
                return Err(Failure::error(match fold.second_slot {
                    Some(_) => format!("unsupported comprehension range type: {name}"),
                    None => format!("got '{name}', expected iterable type"),
                }));
            }
        };
        let result = match &fold.body {
            FoldBody::All(predicate) => self.quantifier(fold, &range, predicate, false),
            FoldBody::Exists(predicate) => self.quantifier(fold, &range, predicate, true),
            FoldBody::ExistsOne(predicate) => self.exists_one(fold, &range, predicate),
            FoldBody::List { filter, element, list_cost } => {
                self.collect(fold, &range, filter.as_ref(), element, *list_cost)
            }
            FoldBody::Map { filter, step } => self.collect_map(fold, &range, filter.as_ref(), step),
        };
        self.set_slot(fold.slot, Slot::Empty);
        result
    }

    fn set_variables(&mut self, fold: &Fold, range: &Range<'a>, index: usize) -> Result<(), Failure> {
        self.step()?;
        match fold.second_slot {
            Some(second) => {
                let (key, value) = range.pair(index, &self.work);
                self.set_slot(fold.slot, Slot::Value(Ok(key)));
                self.set_slot(second, Slot::Value(value));
            }
            None => self.set_slot(fold.slot, Slot::Value(range.single(index, &self.work))),
        }
        Ok(())
    }

    /// `all` and `exists`: the loop ends at the first predicate that decides. Errors count only if none does.
    fn quantifier(
        &mut self,
        fold: &'a Fold,
        range: &Range<'a>,
        predicate: &'a Node,
        decisive: bool,
    ) -> Outcome<'a> {
        let condition_cost = if decisive { EXISTS_CONDITION_COST } else { ALL_CONDITION_COST };
        let mut failure = None;
        for index in 0..range.len() {
            self.set_variables(fold, range, index)?;
            self.charge(condition_cost + READ_COST)?;
            match self.node(predicate) {
                Ok(Value::Bool(value)) if value == decisive => {
                    // The next look at the condition ends the loop.
                    if index + 1 < range.len() {
                        self.charge(condition_cost)?;
                    }
                    self.charge(READ_COST)?;
                    return Ok(Value::Bool(decisive));
                }
                Ok(Value::Bool(_)) => {}
                Ok(_) => {
                    failure.get_or_insert_with(Failure::no_such_overload);
                }
                Err(abort @ Failure::Abort(_)) => return Err(abort),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        self.charge(READ_COST)?;
        failure.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn exists_one(&mut self, fold: &'a Fold, range: &Range<'a>, predicate: &'a Node) -> Outcome<'a> {
        let mut count: Result<u64, Failure> = Ok(0);
        for index in 0..range.len() {
            self.set_variables(fold, range, index)?;
            match self.node(predicate) {
                Ok(Value::Bool(true)) => {
                    self.charge(INCREMENT_COST)?;
                    count = count.map(|count| count + 1);
                }
                Ok(Value::Bool(false)) => {}
                Ok(_) => count = Err(Failure::no_such_overload()),
                Err(abort @ Failure::Abort(_)) => return Err(abort),
                Err(error) => count = Err(error),
            }
        }
        self.charge(COMPARE_COST)?;
        Ok(Value::Bool(count? == 1))
    }

    /// Whether the filter takes the item. After an error the loop goes on, as in Kubernetes, and is charged.
    fn is_taken(&mut self, filter: Option<&'a Node>) -> Result<bool, Failure> {
        match filter.map(|filter| self.node(filter)) {
            None | Some(Ok(Value::Bool(true))) => Ok(true),
            Some(Ok(Value::Bool(false))) => Ok(false),
            Some(Ok(_)) => Err(Failure::no_such_overload()),
            Some(Err(failure)) => Err(failure),
        }
    }

    fn collect(
        &mut self,
        fold: &'a Fold,
        range: &Range<'a>,
        filter: Option<&'a Node>,
        element: &'a Node,
        list_cost: u64,
    ) -> Outcome<'a> {
        debug_assert!(list_cost <= LIST_CREATE_COST);
        let mut items = Ok(Vec::new());
        for index in 0..range.len() {
            self.set_variables(fold, range, index)?;
            match self.is_taken(filter) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(abort @ Failure::Abort(_)) => return Err(abort),
                Err(error) => {
                    items = Err(error);
                    continue;
                }
            }
            let value = self.node(element);
            if let Err(abort @ Failure::Abort(_)) = value {
                return Err(abort);
            }
            self.charge(READ_COST + list_cost + CALL_COST)?;
            items = match (items, value) {
                (Ok(mut items), Ok(value)) => {
                    items.push(value);
                    Ok(items)
                }
                (Err(failure), _) | (_, Err(failure)) => Err(failure),
            };
        }
        self.charge(READ_COST)?;
        items.map(Value::list)
    }

    fn collect_map(
        &mut self,
        fold: &'a Fold,
        range: &Range<'a>,
        filter: Option<&'a Node>,
        step: &'a MapStep,
    ) -> Outcome<'a> {
        let mut map = Ok(OwnedMap::default());
        for index in 0..range.len() {
            self.set_variables(fold, range, index)?;
            match self.is_taken(filter) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(abort @ Failure::Abort(_)) => return Err(abort),
                Err(error) => {
                    map = Err(error);
                    continue;
                }
            }
            map = match self.insert(fold, map, step) {
                Err(abort @ Failure::Abort(_)) => return Err(abort),
                inserted => inserted,
            };
        }
        self.charge(READ_COST)?;
        map.map(|map| Value::Map(Map::Owned(map.into())))
    }

    fn insert(
        &mut self,
        fold: &'a Fold,
        map: Result<OwnedMap<'a>, Failure>,
        step: &'a MapStep,
    ) -> Result<OwnedMap<'a>, Failure> {
        self.charge(READ_COST)?;
        match step {
            MapStep::Value(value) => {
                // A call with three operands ends at the first one that fails.
                let mut map = map?;
                self.charge(READ_COST)?;
                let key = self.local(fold.slot)?;
                let value = self.node(value);
                if !matches!(value, Err(Failure::Abort(_))) {
                    self.charge(CALL_COST)?;
                }
                insert_new(&mut map, key, value?, &self.work)?;
                Ok(map)
            }
            MapStep::Entries(entries) => {
                let entries = self.node(entries);
                if !matches!(entries, Err(Failure::Abort(_))) {
                    self.charge(CALL_COST)?;
                }
                let mut map = map?;
                let Value::Map(entries) = entries? else {
                    return Err(Failure::no_such_overload());
                };
                self.work.visits(entries.len())?;
                for key in entries.keys() {
                    if let Some(value) = entries.find(&key, &self.work)? {
                        insert_new(&mut map, key, value, &self.work)?;
                    }
                }
                Ok(map)
            }
        }
    }
}

fn insert_new<'a>(
    map: &mut OwnedMap<'a>,
    key: Value<'a>,
    value: Value<'a>,
    work: &Work,
) -> Result<(), Failure> {
    charge_entry(&key, work)?;
    if map.contains(&key) {
        return Err(Failure::error(format!("insert failed: key {key} already exists")));
    }
    map.insert(key, value);
    Ok(())
}
