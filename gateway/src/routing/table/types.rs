//! Workspace types as numbers: a record of a logical cluster holds four bytes instead of a path.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

/// The number in a record without a type.
pub(super) const NO_TYPE: u32 = u32::MAX;
/// Minimum number of types at which unused ones are removed.
const SWEEP_THRESHOLD: usize = 1024;

/// The names of a view's types, indexed by number.
pub(super) type TypeNames = Arc<Vec<Arc<str>>>;

/// Assigns numbers to types.
#[derive(Debug)]
pub(super) struct TypeNumbers {
    by_name: FxHashMap<Arc<str>, u32>,
    free: Vec<u32>,
    /// Number of types at which unused ones are removed, so that types that come and go do not accumulate.
    sweep_at: usize,
}

impl Default for TypeNumbers {
    fn default() -> Self {
        Self { by_name: FxHashMap::default(), free: Vec::new(), sweep_at: SWEEP_THRESHOLD }
    }
}

impl TypeNumbers {
    /// Starts from the numbers that a view already uses.
    pub(super) fn of(names: &TypeNames) -> Self {
        let by_name = names.iter().zip(0..).map(|(name, number)| (Arc::clone(name), number)).collect();
        Self { by_name, ..Self::default() }
    }

    /// The number of a type; assigns a new one if it has none.
    pub(super) fn number(&mut self, names: &mut TypeNames, name: &str) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        let name: Arc<str> = name.into();
        let all = Arc::make_mut(names);
        let number = match self.free.pop() {
            Some(number) => {
                all[number as usize] = Arc::clone(&name);
                number
            }
            None => {
                all.push(Arc::clone(&name));
                all.len() as u32 - 1
            }
        };
        self.by_name.insert(name, number);
        number
    }

    /// Whether it is time for [`TypeNumbers::sweep`].
    pub(super) fn should_sweep(&self) -> bool {
        self.by_name.len() >= self.sweep_at
    }

    /// Removes the types whose number is not in use.
    pub(super) fn sweep(&mut self, names: &mut TypeNames, used: &FxHashSet<u32>) {
        let all = Arc::make_mut(names);
        let nothing: Arc<str> = "".into();
        let free = &mut self.free;
        self.by_name.retain(|_, number| {
            let keep = used.contains(number);
            if !keep {
                all[*number as usize] = Arc::clone(&nothing);
                free.push(*number);
            }
            keep
        });
        self.sweep_at = SWEEP_THRESHOLD.max(self.by_name.len() * 2);
    }
}

/// The type with this number.
pub(super) fn name_of(names: &TypeNames, number: u32) -> Option<&Arc<str>> {
    names.get(number as usize)
}
