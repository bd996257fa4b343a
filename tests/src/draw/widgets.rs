//! Single values, bars and tables.

use super::Span;
use super::page::{NamedSeries, PanelOptions, Table};
use super::svg::{Anchor, Canvas, Rectangle, cut, width_of};
use super::unit::shown;

const SMALL: f64 = 11.0;
/// Height of a row of a table, and of a bar.
const ROW: f64 = 22.0;

/// The last value of each series in large type, above its history.
pub(super) fn stat(
    canvas: &mut Canvas,
    inside: Rectangle,
    look: &PanelOptions,
    span: Span,
    series: &[NamedSeries],
) {
    let width = inside.width / series.len().max(1) as f64;
    for (number, one) in series.iter().enumerate() {
        let x = inside.x + width * number as f64;
        let last = one.last().unwrap_or(f64::NAN);
        let colour = canvas.theme.named(look.colour(last));
        spark(canvas, Rectangle { x, width, ..inside }, span, one, colour);
        let text = shown(last, &look.unit, look.decimals);
        let size = (width / (text.chars().count() as f64 * 0.66)).min(34.0);
        let middle = (x + width / 2.0, inside.y + inside.height * 0.45 + size / 3.0);
        canvas.words(middle, size, Anchor::Middle, colour, &text);
        if series.len() > 1 || one.is_named_by_labels {
            let below = (x + width / 2.0, middle.1 + 20.0);
            let name = cut(&one.name, SMALL, width - 4.0);
            canvas.words(below, SMALL, Anchor::Middle, canvas.theme.faint(), &name);
        }
    }
}

/// The history of a value, below it.
fn spark(canvas: &mut Canvas, place: Rectangle, span: Span, one: &NamedSeries, colour: &str) {
    let values = one.samples.iter().filter(|(_, value)| value.is_finite());
    let highest = values.clone().map(|(_, value)| *value).fold(0.0, f64::max);
    if highest <= 0.0 {
        return;
    }
    let (floor, room) = (place.y + place.height, place.height * 0.35);
    let points: Vec<_> = values
        .map(|(moment, value)| {
            let x = place.x + (moment - span.from) / (span.to - span.from) * place.width;
            (x, floor - value.max(0.0) / highest * room)
        })
        .collect();
    if let ([first, ..], [.., last]) = (points.as_slice(), points.as_slice()) {
        let corners = [(last.0, floor), (first.0, floor)];
        canvas.area(&[points.as_slice(), &corners].concat(), colour, 0.12);
    }
}

/// A bar for each series.
pub(super) fn bars(canvas: &mut Canvas, inside: Rectangle, look: &PanelOptions, series: &[NamedSeries]) {
    let room = ((inside.height / ROW) as usize).max(1);
    let fits = if series.len() <= room { series.len() } else { room - 1 };
    let highest =
        series.iter().filter_map(NamedSeries::last).filter(|value| value.is_finite()).fold(0.0, f64::max);
    let names = series.iter().take(fits).map(|one| width_of(&one.name, SMALL)).fold(40.0, f64::max);
    let names = names.min(inside.width * 0.55);
    let numbers = 70.0;
    for (number, one) in series.iter().take(fits).enumerate() {
        let y = inside.y + ROW * number as f64;
        let value = one.last().unwrap_or(f64::NAN);
        let width = (inside.width - names - numbers - 16.0).max(10.0);
        let place = Rectangle { x: inside.x + names + 10.0, y: y + 4.0, width, height: ROW - 8.0 };
        canvas.rectangle(place, canvas.theme.grid(), "none");
        let part = if highest > 0.0 && value.is_finite() { (value / highest).clamp(0.0, 1.0) } else { 0.0 };
        let colour = match look.thresholds.is_empty() {
            true => canvas.theme.series(0),
            false => canvas.theme.named(look.colour(value)),
        };
        canvas.rectangle(Rectangle { width: width * part, ..place }, colour, "none");
        let line = y + ROW / 2.0 + 4.0;
        let name = cut(&one.name, SMALL, names);
        canvas.words((inside.x + names + 2.0, line), SMALL, Anchor::End, canvas.theme.words(), &name);
        let text = shown(value, &look.unit, look.decimals);
        let right = (inside.x + inside.width, line);
        canvas.words(right, SMALL, Anchor::End, canvas.theme.words(), &text);
    }
    more(canvas, inside, fits, series.len());
}

/// A table with its rows and columns.
pub(super) fn table(canvas: &mut Canvas, inside: Rectangle, table: &Table) {
    let room = ((inside.height / ROW) as usize).saturating_sub(1).max(1);
    let fits = if table.rows.len() <= room { table.rows.len() } else { room - 1 };
    let texts = || std::iter::once(&table.heads).chain(table.rows.iter().take(fits));
    let widths: Vec<f64> = (0..table.heads.len())
        .map(|column| {
            texts().filter_map(|row| row.get(column)).map(|text| width_of(text, SMALL)).fold(40.0, f64::max)
                + 18.0
        })
        .collect();
    let stretch = inside.width / widths.iter().sum::<f64>();
    for (number, row) in texts().enumerate() {
        let y = inside.y + ROW * number as f64 + 15.0;
        let colour = if number == 0 { canvas.theme.faint() } else { canvas.theme.words() };
        let mut x = inside.x;
        for (column, text) in row.iter().enumerate() {
            let width = widths[column] * stretch;
            let text = cut(text, SMALL, width - 8.0);
            match column < table.labels {
                true => canvas.words((x + 4.0, y), SMALL, Anchor::Start, colour, &text),
                false => canvas.words((x + width - 8.0, y), SMALL, Anchor::End, colour, &text),
            }
            x += width;
        }
        let below = y + 6.0;
        canvas.line((inside.x, below), (inside.x + inside.width, below), canvas.theme.grid(), false);
    }
    more(canvas, inside, fits, table.rows.len());
}

fn more(canvas: &mut Canvas, inside: Rectangle, fits: usize, all: usize) {
    if all > fits {
        let at = (inside.x + 4.0, inside.y + inside.height - 4.0);
        canvas.words(at, SMALL, Anchor::Start, canvas.theme.faint(), &format!("and {} more", all - fits));
    }
}
