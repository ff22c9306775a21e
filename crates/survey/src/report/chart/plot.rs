//! A plot of series over two axes.

use maud::{Markup, html};

use super::axis::{Axis, Tick};
use super::{Tone, WIDTH, at, tone};

/// Width of the numbers at the left, and of half a number at the right.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 14.0;
/// Height of the numbers below, and of the title of the axis.
const BELOW: f64 = 42.0;

/// The most points of a series that are drawn with dots.
const DOTTED: usize = 40;

/// A plot of series over two axes.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The identifier within the page.
    pub id: String,
    /// The title, a few words.
    pub title: String,
    /// The description, a sentence or two, for screen readers.
    pub description: String,
    /// The height, in units of which every chart is 760 wide.
    pub height: f64,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series.
    pub series: Vec<Series>,
    /// The marks.
    pub marks: Vec<Mark>,
}

/// A series of points.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// Its colour.
    pub tone: Tone,
    /// The shape.
    pub shape: Shape,
    /// True for dashed lines.
    pub dashed: bool,
    /// The points in the order of x.
    pub points: Vec<Point>,
}

/// The shape of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Joined by lines, with the spread around them.
    Line,
    /// A bar from the lower edge to each point.
    Bars,
    /// A dot for each point with its spread, without lines.
    Dots,
}

/// A point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// The horizontal value.
    pub x: f64,
    /// The vertical value.
    pub y: f64,
    /// Lower and upper end of its spread.
    pub spread: Option<(f64, f64)>,
    /// The tooltip.
    pub note: String,
}

/// A mark in a plot.
#[derive(Clone, Debug, PartialEq)]
pub enum Mark {
    /// A horizontal line.
    Across {
        /// The height.
        y: f64,
        /// The label.
        label: String,
        /// Its colour.
        tone: Tone,
    },
    /// A vertical line.
    Down {
        /// The position.
        x: f64,
        /// The label.
        label: String,
        /// Its colour.
        tone: Tone,
    },
    /// A small triangle on the lower axis.
    At {
        /// The position.
        x: f64,
        /// The tooltip.
        note: String,
        /// Its colour.
        tone: Tone,
    },
}

/// The most vertical lines with labels of their own.
const MOST_LABELS: usize = 6;

impl Plot {
    fn x(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let bottom = self.bottom();
        bottom - self.y.place(value) * (bottom - TOP)
    }

    fn bottom(&self) -> f64 {
        self.height - BELOW
    }

    /// The SVG drawing.
    pub fn svg(&self) -> Markup {
        let (title, description) = (format!("{}-title", self.id), format!("{}-words", self.id));
        let view = format!("0 0 {WIDTH} {}", self.height);
        html! {
            svg viewBox=(view) role="img" aria-labelledby={ (title) " " (description) } {
                title id=(title) { (self.title) }
                desc id=(description) { (self.description) }
                (self.grid())
                @for series in &self.series { (self.draw(series)) }
                @for (number, mark) in self.marks.iter().enumerate() { (self.mark(mark, number)) }
                @for series in &self.series { (self.words(series)) }
            }
        }
    }

    /// The legend: a swatch and a name for each series. A single series has none, because the title names it.
    pub fn legend(&self) -> Markup {
        html! {
            @if self.series.len() > 1 {
                ul.legend {
                    @for series in &self.series {
                        li {
                            svg.swatch viewBox="0 0 26 10" aria-hidden="true" {
                                @if series.shape == Shape::Bars {
                                    rect class={ "bar " (tone(series.tone)) }
                                        x="4" y="0" width="18" height="10" {}
                                } @else {
                                    @if series.shape == Shape::Line {
                                        path class={ "line " (dashes(series)) (tone(series.tone)) }
                                            d="M0 5H26" {}
                                    }
                                    (symbol(13.0, 5.0, series.tone))
                                }
                            }
                            (series.name)
                        }
                    }
                }
            }
        }
    }

    fn grid(&self) -> Markup {
        let (left, right, bottom) = (LEFT, WIDTH - RIGHT, self.bottom());
        let wanted = ((self.height / 44.0) as usize).clamp(2, 6);
        let along = self.x.ticks(8);
        let up = self.y.ticks(wanted);
        let middle = (left + right) / 2.0;
        let across = |tick: &Tick| format!("M{left} {0}H{right}", at(self.y(tick.value)));
        let down = |tick: &Tick| {
            let long = if tick.text.is_empty() { 3.0 } else { 5.0 };
            format!("M{} {}v{long}", at(self.x(tick.value)), at(bottom))
        };
        html! {
            g.grid aria-hidden="true" {
                @for tick in &up {
                    path d=(across(tick)) {}
                    text.number x=(left - 8.0) y=(at(self.y(tick.value) + 4.0)) text-anchor="end" {
                        (tick.text)
                    }
                }
                path.axis d={ "M" (left) " " (at(bottom)) "H" (right) } {}
                @for tick in &along {
                    path.axis d=(down(tick)) {}
                    text.number x=(at(self.x(tick.value))) y=(at(bottom + 18.0)) text-anchor="middle" {
                        (tick.text)
                    }
                }
                text.name x=(at(middle)) y=(at(self.height - 6.0)) text-anchor="middle" {
                    (self.x.title())
                }
                text.name x="13" y=(at((TOP + bottom) / 2.0)) text-anchor="middle"
                    transform={ "rotate(-90 13 " (at((TOP + bottom) / 2.0)) ")" } {
                    (self.y.title())
                }
            }
        }
    }

    fn draw(&self, series: &Series) -> Markup {
        match series.shape {
            Shape::Line | Shape::Dots => self.line(series),
            Shape::Bars => self.bars(series),
        }
    }

    fn line(&self, series: &Series) -> Markup {
        let class = tone(series.tone);
        let many = series.points.len() > DOTTED;
        html! {
            @if many {
                path class={ "band " (class) } d=(self.band(series)) {}
            } @else {
                path class={ "whisker " (class) } d=(self.whiskers(series)) {}
            }
            @if series.shape == Shape::Line {
                path class={ "line " (dashes(series)) (class) } d=(self.path(series)) {}
            }
            @if !many {
                @for point in &series.points {
                    (symbol(self.x(point.x), self.y(point.y), series.tone))
                }
            }
        }
    }

    fn path(&self, series: &Series) -> String {
        let step = |(n, point): (usize, &Point)| {
            let letter = if n == 0 { 'M' } else { 'L' };
            format!("{letter}{} {}", at(self.x(point.x)), at(self.y(point.y)))
        };
        series.points.iter().enumerate().map(step).collect()
    }

    /// The area between the ends of the spreads: along the upper ones, and back along the lower ones.
    fn band(&self, series: &Series) -> String {
        let ends = series.points.iter().filter_map(|point| Some((point.x, point.spread?)));
        let ends: Vec<(f64, (f64, f64))> = ends.collect();
        if ends.len() < 2 {
            return String::new();
        }
        let there = ends.iter().map(|(x, (_, high))| (*x, *high));
        let back = ends.iter().rev().map(|(x, (low, _))| (*x, *low));
        let step = |(n, (x, y)): (usize, (f64, f64))| {
            let letter = if n == 0 { 'M' } else { 'L' };
            format!("{letter}{} {}", at(self.x(x)), at(self.y(y)))
        };
        there.chain(back).enumerate().map(step).collect::<String>() + "Z"
    }

    fn whiskers(&self, series: &Series) -> String {
        let spreads = series.points.iter().filter_map(|point| Some((point.x, point.spread?)));
        let whisker = |(x, (low, high)): (f64, (f64, f64))| {
            let (x, low, high) = (self.x(x), at(self.y(low)), at(self.y(high)));
            let (left, right) = (at(x - 4.0), at(x + 4.0));
            format!("M{left} {high}H{right}M{0} {high}V{low}M{left} {low}H{right}", at(x))
        };
        spreads.map(whisker).collect()
    }

    fn bars(&self, series: &Series) -> Markup {
        let room = (WIDTH - LEFT - RIGHT) / series.points.len().max(1) as f64;
        let width = (room * 0.7).clamp(1.2, 26.0);
        let bottom = self.bottom();
        html! {
            @for point in &series.points {
                @let (x, y) = (self.x(point.x), self.y(point.y));
                rect class={ "bar " (tone(series.tone)) } x=(at(x - width / 2.0)) y=(at(y))
                    width=(at(width)) height=(at((bottom - y).max(0.0))) {}
            }
        }
    }

    fn mark(&self, mark: &Mark, number: usize) -> Markup {
        let (left, right, bottom) = (LEFT, WIDTH - RIGHT, self.bottom());
        match mark {
            Mark::Across { y, label, tone: colour } => {
                let y = self.y(*y);
                html! {
                    path class={ "mark " (tone(*colour)) } d={ "M" (left) " " (at(y)) "H" (right) } {}
                    text class={ "label " (tone(*colour)) } x=(right - 2.0)
                        y=(at(if y < TOP + 2.0 { y + 15.0 } else { y - 5.0 }))
                        text-anchor="end" { (label) }
                }
            }
            Mark::Down { x, label, tone: colour } => {
                let x = self.x(*x);
                // Several labels are placed below one another, on the side that has space. If there is no space below,
                // the text becomes the tooltip of the line.
                let y = TOP + 10.0 + 15.0 * number as f64;
                let has_room = number < MOST_LABELS && y < bottom - 15.0;
                let beyond = x > (left + right) / 2.0 || self.is_before_another(x);
                html! {
                    path class={ "mark " (tone(*colour)) } d={ "M" (at(x)) " " (TOP) "V" (at(bottom)) } {
                        title { (label) }
                    }
                    @if has_room {
                        text class={ "label " (tone(*colour)) }
                            x=(at(if beyond { x - 5.0 } else { x + 5.0 })) y=(at(y))
                            text-anchor=(if beyond { "end" } else { "start" }) { (label) }
                    }
                }
            }
            Mark::At { x, note, tone: colour } => {
                let (x, top) = (self.x(*x), bottom - 9.0);
                html! {
                    path class={ "spot " (tone(*colour)) }
                        d={ "M" (at(x - 4.5)) " " (at(bottom)) "H" (at(x + 4.5)) "L" (at(x)) " " (at(top)) "Z" } {
                        title { (note) }
                    }
                }
            }
        }
    }

    /// True if another vertical line crosses the place of the label of the one at `x`.
    fn is_before_another(&self, x: f64) -> bool {
        const LABEL: f64 = 110.0;
        self.marks.iter().any(|mark| match mark {
            Mark::Down { x: other, .. } => (x + 1.0..x + LABEL).contains(&self.x(*other)),
            Mark::Across { .. } | Mark::At { .. } => false,
        })
    }

    /// The tooltips of values: an invisible patch over each.
    fn words(&self, series: &Series) -> Markup {
        let many = series.points.len() > DOTTED || series.shape == Shape::Bars;
        let room = (WIDTH - LEFT - RIGHT) / series.points.len().max(1) as f64;
        html! {
            g.words {
                @for point in series.points.iter().filter(|point| !point.note.is_empty()) {
                    @let (x, y) = (self.x(point.x), self.y(point.y));
                    @if many {
                        rect x=(at(x - room / 2.0)) y=(TOP) width=(at(room))
                            height=(at(self.bottom() - TOP - 10.0)) { title { (point.note) } }
                    } @else {
                        circle cx=(at(x)) cy=(at(y)) r="9" { title { (point.note) } }
                    }
                }
            }
        }
    }
}

fn dashes(series: &Series) -> &'static str {
    if series.dashed { "dashed " } else { "" }
}

/// A dot whose shape distinguishes series in print without colours.
fn symbol(x: f64, y: f64, colour: Tone) -> Markup {
    let class = format!("dot {}", tone(colour));
    html! {
        @match colour % 4 {
            0 => { circle class=(class) cx=(at(x)) cy=(at(y)) r="3.4" {} }
            1 => { rect class=(class) x=(at(x - 3.1)) y=(at(y - 3.1)) width="6.2" height="6.2" {} }
            2 => {
                path class=(class)
                    d={ "M" (at(x)) " " (at(y - 4.2)) "l4.2 4.2l-4.2 4.2l-4.2 -4.2Z" } {}
            }
            _ => {
                path class=(class) d={ "M" (at(x)) " " (at(y - 4.0)) "l4 7.2h-8Z" } {}
            }
        }
    }
}

/// At most `most` points: the mean of each group of points, with minimum and maximum as spread. `note` returns the
/// tooltip of a group.
pub fn thinned(
    values: &[(f64, f64)],
    most: usize,
    note: impl Fn(f64, f64, (f64, f64)) -> String,
) -> Vec<Point> {
    let each = values.len().div_ceil(most.max(1)).max(1);
    let point = |run: &[(f64, f64)]| {
        let count = run.len() as f64;
        let x = run.iter().map(|(x, _)| x).sum::<f64>() / count;
        let y = run.iter().map(|(_, y)| y).sum::<f64>() / count;
        let low = run.iter().map(|(_, y)| *y).fold(f64::INFINITY, f64::min);
        let high = run.iter().map(|(_, y)| *y).fold(f64::NEG_INFINITY, f64::max);
        Point { x, y, spread: Some((low, high)), note: note(x, y, (low, high)) }
    };
    values.chunks(each).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Quantity, WRITE};
    use super::*;

    fn plot(points: Vec<Point>) -> Plot {
        let x = Axis::from_zero("time", Quantity::Seconds, points.iter().map(|point| point.x));
        let y = Axis::from_zero("rate", Quantity::Rate, points.iter().map(|point| point.y));
        Plot {
            id: "p".into(),
            title: "A <title>".into(),
            description: "words & words".into(),
            height: 200.0,
            x,
            y,
            series: vec![Series {
                name: "one".into(),
                tone: WRITE,
                shape: Shape::Line,
                dashed: false,
                points,
            }],
            marks: Vec::new(),
        }
    }

    #[test]
    fn a_plot_tells_its_title_its_values_and_escapes_what_comes_from_outside() {
        let note = "6 GB/s \"<script>\"".to_owned();
        let mut plot = plot(vec![Point { x: 1.0, y: 6e9, spread: Some((5e9, 7e9)), note }]);
        plot.marks.push(Mark::Down { x: 0.5, label: "<cliff>".into(), tone: 3 });
        let svg = plot.svg().into_string();
        assert!(svg.contains("A &lt;title&gt;") && svg.contains("words &amp; words"), "{svg}");
        assert!(svg.contains("&lt;script&gt;") && !svg.contains("<script>"), "{svg}");
        assert!(svg.contains("&lt;cliff&gt;") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn labels_of_many_marks_do_not_lie_over_one_another() {
        let mut plot = plot(vec![Point { x: 1.0, y: 6e9, ..Point::default() }]);
        for number in 0..20 {
            let label = format!("cliff {number}");
            plot.marks.push(Mark::Down { x: f64::from(number) / 20.0, label, tone: 3 });
        }
        let svg = plot.svg().into_string();
        let labels = svg.split("class=\"label").skip(1);
        let heights: Vec<&str> =
            labels.filter_map(|label| label.split("y=\"").nth(1)?.split('"').next()).collect();
        let distinct: std::collections::BTreeSet<&str> = heights.iter().copied().collect();
        assert!(heights.len() > 2 && distinct.len() == heights.len(), "{heights:?}");
        assert_eq!(svg.matches("cliff 19").count(), 1, "its line says it");
    }

    #[test]
    fn what_is_no_number_is_drawn_at_an_edge_and_never_written() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0];
        let points = odd.map(|v| Point { x: v, y: v, spread: Some((v, v)), ..Point::default() });
        let svg = plot(points.to_vec()).svg().into_string();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn thinning_keeps_the_extremes_of_every_run() {
        let values: Vec<(f64, f64)> =
            (0..1000).map(|n| (f64::from(n), if n == 500 { 1.0 } else { 100.0 })).collect();
        let points = thinned(&values, 240, |_, _, _| String::new());
        assert!(points.len() <= 240);
        let low = points.iter().filter_map(|point| point.spread).map(|spread| spread.0);
        assert_eq!(low.fold(f64::INFINITY, f64::min), 1.0);
    }
}
