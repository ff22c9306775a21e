//! Charts as inline SVG: no script, no font, no extra file.
//!
//! ```text
//! Plot ─┬─ two axes        linear or logarithmic, ticks at round numbers
//!       ├─ series          lines with their spread, bars
//!       └─ marks           a required rate, a cliff, a stall
//! Bars                     one row per item, its spread as a whisker
//! Groups                   several bars per item
//! ```
//!
//! Each begins with a title and a description for screen readers. Every value has a tooltip. Colours are classes
//! (`tone0` …), so that the style sheet chooses them for light, dark and paper.

mod axis;
mod bars;
mod groups;
mod plot;

pub use axis::{Axis, Quantity};
pub use bars::{Bar, Bars};
pub use groups::{BarKind, Group, Groups};
pub use plot::{Mark, Plot, Point, Series, Shape, thinned};

/// Width of every chart, in its own units; the page stretches it.
const WIDTH: f64 = 760.0;

/// A colour, as its index in the style sheet.
pub type Tone = usize;

/// Writing.
pub const WRITE: Tone = 0;
/// Reading.
pub const READ: Tone = 1;
/// A requirement.
pub const WANTED: Tone = 2;
/// A failure.
pub const WRONG: Tone = 3;
/// Temperature, and other values that must differ from failures.
pub const HEAT: Tone = 4;
/// The first of the other tones.
pub const OTHER: Tone = 5;

/// The number of tones.
const TONES: usize = 8;

/// The class of a tone.
fn tone(tone: Tone) -> String {
    format!("tone{}", tone % TONES)
}

/// A coordinate, rounded to a tenth of a unit.
fn at(value: f64) -> String {
    format!("{value:.1}")
}
