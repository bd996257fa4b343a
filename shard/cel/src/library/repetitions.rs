//! The limit of nested repetitions in regular expressions: how often a part may be repeated in all.

/// Largest number of repetitions, as in Go.
pub(super) const MAX_REPETITIONS: u32 = 1_000;

/// The repetitions of the parts of an expression, counted while it is read.
#[derive(Default)]
pub(super) struct Repetitions {
    /// The largest count of a part of the expression and of each open group.
    open: Vec<u32>,
    /// The largest count within the last operand.
    last: u32,
}

impl Repetitions {
    /// An operand that is no group.
    pub(super) fn operand(&mut self) {
        self.last = 1;
    }

    pub(super) fn open_group(&mut self) {
        self.open.push(1);
        self.last = 1;
    }

    /// Makes the innermost group the last operand.
    pub(super) fn close_group(&mut self) {
        self.last = self.open.pop().unwrap_or(1);
        self.raise();
    }

    /// Repeats the last operand up to `count` times. Returns whether its parts are repeated too often.
    pub(super) fn repeat(&mut self, count: u32) -> bool {
        self.last = self.last.max(1).saturating_mul(count.max(1));
        self.raise();
        self.last > MAX_REPETITIONS
    }

    fn raise(&mut self) {
        if let Some(open) = self.open.last_mut() {
            *open = (*open).max(self.last);
        }
    }
}
