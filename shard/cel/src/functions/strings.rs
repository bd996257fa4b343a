//! Functions of strings. Positions are counted in code points.

use crate::failure::Failure;
use crate::library::quoted;
use crate::limits::MAX_TEXT_SIZE;
use crate::value::{List, Outcome, Text, Value};
use crate::work::Work;

fn out_of_range(index: i64) -> Failure {
    Failure::error(format!("index out of range: {index}"))
}

/// The byte offset of a position, or `None` behind the end.
fn byte_offset(text: &str, position: usize) -> Option<usize> {
    if text.is_ascii() {
        return (position <= text.len()).then_some(position);
    }
    text.char_indices().map(|(offset, _)| offset).chain([text.len()]).nth(position)
}

/// A part of a text, borrowed if the text is.
fn part<'a>(text: &Text<'a>, range: std::ops::Range<usize>) -> Value<'a> {
    match text {
        Text::Borrowed(text) => Value::borrowed(text.get(range).unwrap_or("")),
        Text::Shared(text) => Value::text(text.get(range).unwrap_or("")),
    }
}

pub(crate) fn char_at<'a>(text: &Text<'a>, index: i64) -> Outcome<'a> {
    let position = usize::try_from(index).map_err(|_| out_of_range(index))?;
    let start = byte_offset(text.as_str(), position).ok_or_else(|| out_of_range(index))?;
    let length = text.as_str()[start..].chars().next().map_or(0, char::len_utf8);
    Ok(part(text, start..start + length))
}

pub(crate) fn substring<'a>(text: &Text<'a>, start: i64, end: Option<i64>) -> Outcome<'a> {
    if let Some(end) = end.filter(|end| start > *end) {
        return Err(Failure::error(format!("invalid substring range. start: {start}, end: {end}")));
    }
    let offset = |index: i64| {
        let position = usize::try_from(index).ok();
        position.and_then(|position| byte_offset(text.as_str(), position)).ok_or_else(|| out_of_range(index))
    };
    let from = offset(start)?;
    let to = end.map_or(Ok(text.as_str().len()), offset)?;
    Ok(part(text, from..to))
}

/// The position of a text within another one, from the beginning or from the end, or -1.
pub(crate) fn find_text<'a>(text: &str, wanted: &str, from: Option<i64>, is_last: bool) -> Outcome<'a> {
    let size = text.chars().count();
    let position = |offset: usize| Value::Int(text[..offset].chars().count() as i64);
    if is_last && from.is_none() {
        if wanted.is_empty() {
            return Ok(Value::Int(size as i64));
        }
        return Ok(text.rfind(wanted).map_or(Value::Int(-1), position));
    }
    let from = from.unwrap_or(0);
    let start = usize::try_from(from).map_err(|_| out_of_range(from))?;
    if wanted.is_empty() {
        return Ok(Value::Int(from.min(size as i64)));
    }
    if start >= size {
        return Ok(Value::Int(-1));
    }
    let Some(offset) = byte_offset(text, start) else {
        return Ok(Value::Int(-1));
    };
    let found = if is_last {
        // The last place at or before the start. No occurrence ends within a code point.
        let end = (offset + wanted.len()).min(text.len());
        let end = (offset..=end).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(offset);
        text[..end].rfind(wanted)
    } else {
        text[offset..].find(wanted).map(|found| offset + found)
    };
    Ok(found.map_or(Value::Int(-1), position))
}

pub(crate) fn lower_ascii<'a>(text: &Text<'a>) -> Value<'a> {
    if text.as_str().bytes().any(|byte| byte.is_ascii_uppercase()) {
        Value::text(text.as_str().to_ascii_lowercase())
    } else {
        Value::String(text.clone())
    }
}

pub(crate) fn upper_ascii<'a>(text: &Text<'a>) -> Value<'a> {
    if text.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) {
        Value::text(text.as_str().to_ascii_uppercase())
    } else {
        Value::String(text.clone())
    }
}

/// Removes white space of Unicode at both ends.
pub(crate) fn trim<'a>(text: &Text<'a>) -> Value<'a> {
    let whole = text.as_str();
    let start = whole.len() - whole.trim_start().len();
    part(text, start..start + whole.trim().len())
}

/// Replaces up to `limit` occurrences, all if it is negative. An empty text occurs before each character and at the end.
pub(crate) fn replace<'a>(text: &Text<'a>, old: &str, new: &str, limit: i64, work: &Work) -> Outcome<'a> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let whole = text.as_str();
    let occurrences = if old.is_empty() { whole.chars().count() + 1 } else { whole.matches(old).count() };
    let count = occurrences.min(limit);
    if count == 0 || old == new {
        return Ok(Value::String(text.clone()));
    }
    let size = count.checked_mul(new.len()).and_then(|added| added.checked_add(whole.len()));
    let size = size.filter(|size| *size <= MAX_TEXT_SIZE).ok_or_else(Failure::too_large)?;
    work.produce(size)?;
    Ok(Value::text(whole.replacen(old, new, count)))
}

/// Splits into at most `limit` parts, into any number if it is negative. An empty separator splits into characters.
pub(crate) fn split<'a>(text: &Text<'a>, separator: &str, limit: i64, work: &Work) -> Outcome<'a> {
    let whole = text.as_str();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    if limit == 0 {
        return Ok(Value::list(parts));
    }
    let mut start = 0;
    while parts.len() + 1 < limit {
        let rest = &whole[start..];
        let (end, next) = if separator.is_empty() {
            match rest.chars().next() {
                Some(first) if first.len_utf8() < rest.len() => (first.len_utf8(), first.len_utf8()),
                _ => break,
            }
        } else {
            match rest.find(separator) {
                Some(found) => (found, found + separator.len()),
                None => break,
            }
        };
        work.items(1)?;
        work.produce(end)?;
        parts.push(part(text, start..start + end));
        start += next;
    }
    if !(separator.is_empty() && whole.is_empty()) {
        parts.push(part(text, start..whole.len()));
    }
    Ok(Value::list(parts))
}

/// The texts of a list with a separator between them.
pub(crate) fn join<'a>(list: &List<'a>, separator: &str, work: &Work) -> Outcome<'a> {
    let mut output = String::new();
    for (index, item) in list.iter(work).enumerate() {
        let item = item?;
        let Value::String(text) = &item else {
            return Err(Failure::error(format!("join: invalid input: {item}")));
        };
        let separator = if index > 0 { separator } else { "" };
        let size = separator.len() + text.as_str().len();
        if output.len() + size > MAX_TEXT_SIZE {
            return Err(Failure::too_large());
        }
        work.produce(size)?;
        output.push_str(separator);
        output.push_str(text.as_str());
    }
    Ok(Value::text(output))
}

/// A text as a literal of CEL.
pub(crate) fn quote(text: &str) -> String {
    quoted(text, String::push)
}
