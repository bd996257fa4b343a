//! SVG shapes and texts.

use std::fmt::Write as _;

/// Light or dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

impl Theme {
    /// The theme's name in file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }

    fn pick(self, light: &'static str, dark: &'static str) -> &'static str {
        match self {
            Self::Light => light,
            Self::Dark => dark,
        }
    }

    pub(super) fn page(self) -> &'static str {
        self.pick("#f4f5f5", "#111217")
    }

    pub(super) fn panel(self) -> &'static str {
        self.pick("#ffffff", "#181b1f")
    }

    pub(super) fn frame(self) -> &'static str {
        self.pick("#d8d9dc", "#2c3235")
    }

    pub(super) fn grid(self) -> &'static str {
        self.pick("#e6e7ea", "#2a2e33")
    }

    pub(super) fn words(self) -> &'static str {
        self.pick("#24292e", "#d8d9da")
    }

    pub(super) fn faint(self) -> &'static str {
        self.pick("#5f6673", "#9aa0a8")
    }

    /// The colours that Grafana calls by these names.
    pub(super) fn named(self, name: &str) -> &'static str {
        match name {
            "green" => self.pick("#2f8f3e", "#6ccf7a"),
            "orange" => self.pick("#c4610a", "#ff9d42"),
            "red" => self.pick("#c8102e", "#ff6173"),
            _ => self.words(),
        }
    }

    /// The colour of the n-th series.
    pub(super) fn series(self, number: usize) -> &'static str {
        const LIGHT: [&str; 10] = [
            "#3a7bd5", "#d9822b", "#2f9e57", "#c23b4e", "#7d5bbf", "#0f9ba8", "#a8842c", "#c65aa0",
            "#6b7785", "#1f4e8c",
        ];
        const DARK: [&str; 10] = [
            "#6fa8f5", "#f5a65b", "#6fce8f", "#f07a88", "#b398ee", "#4fd0dc", "#dcb95c", "#ee92cc",
            "#a5b0bd", "#8fb5ff",
        ];
        self.pick(LIGHT[number % LIGHT.len()], DARK[number % DARK.len()])
    }
}

/// A rectangle in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rectangle {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The alignment of a text at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing under construction.
pub(super) struct Canvas {
    pub(super) theme: Theme,
    body: String,
}

impl Canvas {
    pub(super) fn new(theme: Theme) -> Self {
        Self { theme, body: String::new() }
    }

    /// The whole text of a file.
    pub(super) fn finish(self, width: f64, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"DejaVu Sans, sans-serif\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"{}\"/>\n{}</svg>\n",
            self.theme.page(),
            self.body
        )
    }

    pub(super) fn rectangle(&mut self, place: Rectangle, fill: &str, stroke: &str) {
        let Rectangle { x, y, width, height } = place;
        self.put(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"2\" fill=\"{fill}\" stroke=\"{stroke}\"/>"
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, dashed: bool) {
        let dashes = if dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"{dashes}/>"
        ));
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], colour: &str) {
        let points = listed(points);
        self.put(format_args!(
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" stroke-linejoin=\"round\"/>"
        ));
    }

    pub(super) fn area(&mut self, points: &[(f64, f64)], colour: &str, opacity: f64) {
        let points = listed(points);
        self.put(format_args!(
            "<polygon points=\"{points}\" fill=\"{colour}\" fill-opacity=\"{opacity}\" stroke=\"none\"/>"
        ));
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), colour: &str) {
        self.put(format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\" fill=\"{colour}\"/>"));
    }

    pub(super) fn words(&mut self, at: (f64, f64), size: f64, anchor: Anchor, colour: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y) = at;
        let text = escaped(text);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
        ));
    }

    fn put(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "{what}");
    }
}

/// The estimated width of a text: the average letter is 0.6 of the font size wide.
pub(super) fn width_of(text: &str, size: f64) -> f64 {
    text.chars().count() as f64 * size * 0.62
}

/// The beginning of a text that fits into a width.
pub(super) fn cut(text: &str, size: f64, width: f64) -> String {
    let most = (width / (size * 0.62)).max(1.0) as usize;
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

fn listed(points: &[(f64, f64)]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
