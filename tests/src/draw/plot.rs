//! Lines over time, with their axes and a legend.

use std::collections::BTreeMap;

use super::Span;
use super::page::{NamedSeries, PanelOptions};
use super::scale::{Scale, moments};
use super::svg::{Anchor, Canvas, Rectangle, cut, width_of};
use super::unit::shown;

const SMALL: f64 = 10.0;
/// Height of a line of the legend.
const LINE: f64 = 15.0;
/// Space for the labels of the vertical and of the horizontal axis.
const LEFT: f64 = 74.0;
const BELOW: f64 = 20.0;

/// Draws series into the area of a panel.
pub(super) fn plot(
    canvas: &mut Canvas,
    inside: Rectangle,
    look: &PanelOptions,
    span: Span,
    series: &[NamedSeries],
) {
    let legend = Legend::of(inside, look, series);
    let area = Rectangle {
        x: inside.x + LEFT,
        y: inside.y + 6.0,
        width: inside.width - LEFT - 8.0,
        height: inside.height - 6.0 - BELOW - legend.height(),
    };
    let stacked = if look.stack { stacked(series) } else { Vec::new() };
    let lines: Vec<&[(f64, f64)]> = match look.stack {
        true => stacked.iter().map(Vec::as_slice).collect(),
        false => series.iter().map(|one| one.samples.as_slice()).collect(),
    };
    let scale = Scale::of(
        lines.iter().flat_map(|line| line.iter().map(|(_, value)| *value)),
        look.log,
        look.unit == "bytes",
        look.max,
    );
    axes(canvas, area, look, span, &scale);
    let at = |(moment, value): (f64, f64)| {
        let x = area.x + (moment - span.from) / (span.to - span.from) * area.width;
        (x, area.y + area.height * (1.0 - scale.at(value)))
    };
    // Stacked areas are drawn from top to bottom, so that lower ones cover higher ones.
    for (number, line) in lines.iter().enumerate().rev() {
        let colour = canvas.theme.series(number);
        for piece in pieces(line) {
            let points: Vec<_> = piece.iter().map(|point| at(*point)).collect();
            if let ([first, ..], [.., last]) = (points.as_slice(), points.as_slice()) {
                let floor = area.y + area.height;
                let corners = match below(&lines, number, look.stack) {
                    Some(line) => line.iter().rev().map(|point| at(*point)).collect(),
                    None => vec![(last.0, floor), (first.0, floor)],
                };
                let opacity = if look.stack { 0.45 } else { 0.06 };
                canvas.area(&[points.as_slice(), &corners].concat(), colour, opacity);
            }
            if let [point] = points.as_slice() {
                canvas.dot(*point, colour);
            }
            canvas.path(&points, colour);
        }
    }
    for (value, name) in &look.thresholds {
        if scale.contains(*value) && look.dashed {
            let y = area.y + area.height * (1.0 - scale.at(*value));
            canvas.line((area.x, y), (area.x + area.width, y), canvas.theme.named(name), true);
        }
    }
    legend.draw(canvas, inside, look, series);
}

fn axes(canvas: &mut Canvas, area: Rectangle, look: &PanelOptions, span: Span, scale: &Scale) {
    let (grid, faint) = (canvas.theme.grid(), canvas.theme.faint());
    for mark in scale.marks() {
        let y = area.y + area.height * (1.0 - scale.at(mark));
        canvas.line((area.x, y), (area.x + area.width, y), grid, false);
        canvas.words((area.x - 6.0, y + 3.5), SMALL, Anchor::End, faint, &shown(mark, &look.unit, None));
    }
    for moment in moments(span.from, span.to) {
        let x = area.x + (moment - span.from) / (span.to - span.from) * area.width;
        canvas.line((x, area.y), (x, area.y + area.height), grid, false);
        let of_day = moment.rem_euclid(86_400.0) as u64;
        let text = format!("{:02}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60);
        let below = (x.clamp(area.x + 16.0, area.x + area.width - 24.0), area.y + area.height + 14.0);
        canvas.words(below, SMALL, Anchor::Middle, faint, &text);
    }
}

/// The line on which a stacked area lies.
fn below<'l>(lines: &[&'l [(f64, f64)]], number: usize, stack: bool) -> Option<&'l [(f64, f64)]> {
    if stack { lines.get(number.checked_sub(1)?).copied() } else { None }
}

/// Stacks each series on those before it, at all timestamps.
fn stacked(series: &[NamedSeries]) -> Vec<Vec<(f64, f64)>> {
    // Timestamps are whole milliseconds.
    let key = |moment: f64| (moment * 1000.0).round() as i64;
    let mut pile: BTreeMap<i64, f64> =
        series.iter().flat_map(|one| one.samples.iter().map(|(moment, _)| (key(*moment), 0.0))).collect();
    let on_top = |one: &NamedSeries| {
        for (moment, value) in one.samples.iter().filter(|(_, value)| value.is_finite()) {
            *pile.entry(key(*moment)).or_default() += value;
        }
        pile.iter().map(|(moment, value)| (*moment as f64 / 1000.0, *value)).collect()
    };
    series.iter().map(on_top).collect()
}

/// The parts of a line between its gaps.
fn pieces(line: &[(f64, f64)]) -> impl Iterator<Item = Vec<(f64, f64)>> {
    let step = line.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(f64::INFINITY, f64::min);
    let mut all: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for point in line {
        let late =
            all.last().and_then(|piece| piece.last()).is_some_and(|last| point.0 - last.0 > step * 1.5);
        if late || point.1.is_nan() {
            all.push(Vec::new());
        }
        if let (false, Some(piece)) = (point.1.is_nan(), all.last_mut()) {
            piece.push(*point);
        }
    }
    all.into_iter().filter(|piece| !piece.is_empty())
}

/// Names and last values, in columns.
struct Legend {
    columns: usize,
    width: f64,
    shown: usize,
    rest: usize,
}

impl Legend {
    fn of(inside: Rectangle, look: &PanelOptions, series: &[NamedSeries]) -> Self {
        let entry = |one: &NamedSeries| width_of(&text(one, look), SMALL) + 26.0;
        let widest = series.iter().map(entry).fold(60.0, f64::max).min(inside.width);
        let columns = ((inside.width - 8.0) / widest).floor().max(1.0) as usize;
        let rows = ((inside.height * 0.34) / LINE).floor().max(1.0) as usize;
        let room = columns * rows;
        let shown = if series.len() <= room { series.len() } else { room - 1 };
        Self { columns, width: (inside.width - 8.0) / columns as f64, shown, rest: series.len() - shown }
    }

    fn height(&self) -> f64 {
        let entries = self.shown + usize::from(self.rest > 0);
        entries.div_ceil(self.columns) as f64 * LINE + 4.0
    }

    fn draw(&self, canvas: &mut Canvas, inside: Rectangle, look: &PanelOptions, series: &[NamedSeries]) {
        let top = inside.y + inside.height - self.height() + 12.0;
        let place = |number: usize| {
            let (row, column) = (number / self.columns, number % self.columns);
            (inside.x + 4.0 + self.width * column as f64, top + LINE * row as f64)
        };
        for (number, one) in series.iter().take(self.shown).enumerate() {
            let (x, y) = place(number);
            let swatch = Rectangle { x, y: y - 5.0, width: 12.0, height: 3.0 };
            let colour = canvas.theme.series(number);
            canvas.rectangle(swatch, colour, colour);
            let words = cut(&text(one, look), SMALL, self.width - 20.0);
            canvas.words((x + 17.0, y), SMALL, Anchor::Start, canvas.theme.words(), &words);
        }
        if self.rest > 0 {
            let at = place(self.shown);
            canvas.words(at, SMALL, Anchor::Start, canvas.theme.faint(), &format!("and {} more", self.rest));
        }
    }
}

fn text(one: &NamedSeries, look: &PanelOptions) -> String {
    let last = one.last().map_or_else(|| "–".to_owned(), |value| shown(value, &look.unit, look.decimals));
    format!("{}  {last}", one.name)
}
