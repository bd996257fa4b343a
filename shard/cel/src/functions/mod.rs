//! Functions of lists and strings. Each module is one library; none charges costs.

mod format;
mod lists;
mod strings;

pub(crate) use format::{Clause, FormatFault, format, parse_format};
pub(crate) use lists::{
    MAX_RANGE, distinct, extreme, flatten, index_of, is_sorted, last_index_of, range, reverse, slice,
    sort_by_keys, sum,
};
pub(crate) use strings::{
    char_at, find_text, join, lower_ascii, quote, replace, split, substring, trim, upper_ascii,
};
