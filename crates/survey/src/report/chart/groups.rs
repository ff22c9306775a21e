//! Groups of bars: the same few quantities of many items, one group per item.

use maud::{Markup, html};

use super::axis::{Axis, Quantity};
use super::{Tone, WANTED, WIDTH, at, tone};

/// Width of the names at the left, and of the numbers at the right.
const LEFT: f64 = 170.0;
const RIGHT: f64 = 150.0;
/// Height of a bar with its gap, and of the gap between groups.
const BAR: f64 = 17.0;
const APART: f64 = 14.0;
/// The longest name that is not cut. The table beside the chart has full names.
const LONGEST_NAME: usize = 22;

/// A chart of groups, one below the other.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The identifier within the page.
    pub id: String,
    /// The title, a few words.
    pub title: String,
    /// The description, a sentence or two.
    pub description: String,
    /// The quantity of the values.
    pub quantity: Quantity,
    /// The kinds of bars in each group, with their colours; `pale` ones are drawn lighter.
    pub kinds: Vec<BarKind>,
    /// The groups from top to bottom.
    pub groups: Vec<Group>,
    /// A line across all groups, with its label.
    pub line: Option<(f64, String)>,
}

/// A kind of bar in each group.
#[derive(Clone, Debug)]
pub struct BarKind {
    /// The name in the legend.
    pub name: &'static str,
    /// Its colour.
    pub tone: Tone,
    /// True to draw it lighter than another of the same colour.
    pub pale: bool,
}

/// An item: a value, and its deviation if it has one, for each kind.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name.
    pub name: String,
    /// Values with their deviations, in the order of the kinds; `None` if there is no value.
    pub values: Vec<Option<(f64, f64)>>,
}

impl Groups {
    /// The drawing, with its legend.
    pub fn markup(&self) -> Markup {
        html! { (self.legend()) (self.svg()) }
    }

    fn legend(&self) -> Markup {
        html! {
            ul.legend {
                @for kind in &self.kinds {
                    li {
                        svg.swatch viewBox="0 0 26 10" aria-hidden="true" {
                            rect class={ "bar " (tone(kind.tone)) } x="0" y="0" width="26" height="10"
                                opacity=(opacity(kind)) {}
                        }
                        (kind.name)
                    }
                }
            }
        }
    }

    fn svg(&self) -> Markup {
        let values = self.groups.iter().flat_map(|group| group.values.iter().flatten());
        let ends = values.map(|(value, deviation)| value + deviation);
        let axis = Axis::from_zero("", self.quantity, ends.chain(self.line.iter().map(|it| it.0)));
        let x = |value: f64| LEFT + axis.place(value.max(0.0)) * (WIDTH - LEFT - RIGHT);
        let top = if self.line.is_some() { 22.0 } else { 4.0 };
        let each = BAR * self.kinds.len() as f64 + APART;
        let height = top + each * self.groups.len() as f64;
        let (title, description) = (format!("{}-title", self.id), format!("{}-words", self.id));
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (at(height)) } role="img"
                aria-labelledby={ (title) " " (description) } {
                title id=(title) { (self.title) }
                desc id=(description) { (self.description) }
                g.grid { path.axis d={ "M" (LEFT) " " (top) "V" (at(height - APART / 2.0)) } {} }
                @if let Some((value, label)) = &self.line {
                    path class={ "mark " (tone(WANTED)) }
                        d={ "M" (at(x(*value))) " " (top - 4.0) "V" (at(height - APART / 2.0)) } {}
                    text class={ "label " (tone(WANTED)) } x=(at(x(*value))) y="13"
                        text-anchor=(if axis.place(*value) > 0.7 { "end" } else { "middle" }) { (label) }
                }
                @for (number, group) in self.groups.iter().enumerate() {
                    @let begin = top + each * number as f64 + APART / 2.0;
                    @let middle = begin + BAR * self.kinds.len() as f64 / 2.0;
                    text.row x=(LEFT - 10.0) y=(at(middle + 4.5)) text-anchor="end" { (cut(&group.name)) }
                    @for (place, (kind, value)) in self.kinds.iter().zip(&group.values).enumerate() {
                        @if let Some((value, deviation)) = value {
                            @let y = begin + BAR * place as f64;
                            (self.bar(&axis, kind, (*value, *deviation), (x(*value), y), &x))
                        }
                    }
                }
            }
        }
    }

    /// One bar, its whisker, and its number after both.
    fn bar(
        &self,
        axis: &Axis,
        kind: &BarKind,
        (value, deviation): (f64, f64),
        (end, y): (f64, f64),
        x: &impl Fn(f64) -> f64,
    ) -> Markup {
        let (low, high) = (x(value - deviation), x(value + deviation));
        let middle = y + (BAR - 3.0) / 2.0;
        html! {
            rect class={ "bar " (tone(kind.tone)) } x=(LEFT) y=(at(y)) width=(at(end - LEFT))
                height=(at(BAR - 3.0)) opacity=(opacity(kind)) {
                title { (kind.name) ": " (axis.told(value)) }
            }
            @if deviation > 0.0 {
                path.over d={ "M" (at(low)) " " (at(middle)) "H" (at(high))
                    "M" (at(low)) " " (at(middle - 4.0)) "v8M" (at(high)) " " (at(middle - 4.0)) "v8" } {}
            }
            text.value x=(at(end.max(high) + 7.0)) y=(at(middle + 4.5)) {
                (axis.told(value)) @if deviation > 0.0 { " ± " (axis.told(deviation)) }
            }
        }
    }
}

fn opacity(kind: &BarKind) -> &'static str {
    if kind.pale { "0.45" } else { "1" }
}

fn cut(name: &str) -> String {
    match name.chars().count() {
        few if few <= LONGEST_NAME => name.to_owned(),
        _ => name.chars().take(LONGEST_NAME - 1).chain(['…']).collect(),
    }
}
