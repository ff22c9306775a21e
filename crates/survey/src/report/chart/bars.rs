//! Bars side by side: a few named values of one quantity.

use maud::{Markup, html};

use super::axis::{Axis, Quantity};
use super::{Tone, WANTED, WIDTH, at, tone};

/// Width of the names at the left, and of the numbers at the right.
const LEFT: f64 = 210.0;
const RIGHT: f64 = 96.0;
const ROW: f64 = 34.0;

/// A chart of bars, one below the other.
#[derive(Clone, Debug)]
pub struct Bars {
    /// The identifier within the page.
    pub id: String,
    /// The title, a few words.
    pub title: String,
    /// The description, a sentence or two.
    pub description: String,
    /// The quantity of the values.
    pub quantity: Quantity,
    /// The rows from top to bottom.
    pub rows: Vec<Bar>,
    /// A line across all rows, with its label.
    pub line: Option<(f64, String)>,
}

/// A row.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The name.
    pub name: String,
    /// The value.
    pub value: f64,
    /// Lower and upper end of its spread.
    pub spread: Option<(f64, f64)>,
    /// Its colour.
    pub tone: Tone,
}

impl Bars {
    /// The SVG drawing.
    pub fn svg(&self) -> Markup {
        let ends = self.rows.iter().map(|row| row.spread.map_or(row.value, |spread| spread.1));
        let ends = ends.chain(self.line.iter().map(|line| line.0));
        let axis = Axis::from_zero("", self.quantity, ends);
        let x = |value: f64| LEFT + axis.place(value) * (WIDTH - LEFT - RIGHT);
        let top = if self.line.is_some() { 22.0 } else { 4.0 };
        let height = top + ROW * self.rows.len() as f64 + 4.0;
        let middle = |number: usize| top + ROW * number as f64 + ROW / 2.0;
        let (title, description) = (format!("{}-title", self.id), format!("{}-words", self.id));
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img"
                aria-labelledby={ (title) " " (description) } {
                title id=(title) { (self.title) }
                desc id=(description) { (self.description) }
                g.grid { path.axis d={ "M" (LEFT) " " (top) "V" (height - 4.0) } {} }
                @for (number, row) in self.rows.iter().enumerate() {
                    @let y = middle(number);
                    text.row x=(LEFT - 10.0) y=(at(y + 4.5)) text-anchor="end" { (row.name) }
                    rect class={ "bar " (tone(row.tone)) } x=(LEFT) y=(at(y - 10.0))
                        width=(at(x(row.value) - LEFT)) height="20" {}
                }
                @if let Some((value, _)) = &self.line {
                    path class={ "mark " (tone(WANTED)) }
                        d={ "M" (at(x(*value))) " " (top - 4.0) "V" (height - 2.0) } {}
                }
                // Drawn after the line, which would cross the numbers out.
                @for (number, row) in self.rows.iter().enumerate() {
                    @let y = middle(number);
                    @let end = x(row.spread.map_or(row.value, |spread| spread.1.max(row.value)));
                    @if let Some((low, high)) = row.spread {
                        path.over d={ "M" (at(x(low))) " " (at(y)) "H" (at(x(high)))
                            "M" (at(x(low))) " " (at(y - 5.0)) "v10M" (at(x(high))) " " (at(y - 5.0)) "v10" } {}
                    }
                    text.value x=(at(end + 8.0)) y=(at(y + 4.5)) { (axis.told(row.value)) }
                }
                @if let Some((value, label)) = &self.line {
                    text class={ "label " (tone(WANTED)) } x=(at(x(*value))) y="13"
                        text-anchor=(if axis.place(*value) > 0.7 { "end" } else { "middle" }) { (label) }
                }
            }
        }
    }
}
