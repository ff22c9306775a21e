//! Charts as SVG in the page itself: no script, no font, no file beside it.
//!
//! ```text
//! Plot ─┬─ two axes        linear or logarithmic, ticks at round numbers
//!       ├─ series          lines with their spread, bars
//!       └─ marks           a rate asked for, a cliff, a stall
//! Bars                     one row a thing, its spread as a whisker
//! Groups                   several bars a thing
//! ```
//!
//! Each begins with a title and a description for those who hear the page; every value has its own
//! words, which a browser shows when it is pointed at. Colours are classes (`tone0` …), so that the style
//! sheet chooses them for light, dark and paper.

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

/// A colour, by its place in the style sheet.
pub type Tone = usize;

/// Written.
pub const WRITE: Tone = 0;
/// Read.
pub const READ: Tone = 1;
/// Something asked for.
pub const WANTED: Tone = 2;
/// Something that went wrong.
pub const WRONG: Tone = 3;
/// Temperature, and whatever must be told from what went wrong.
pub const HEAT: Tone = 4;
/// Others, from here on.
pub const OTHER: Tone = 5;

/// How many tones there are.
const TONES: usize = 8;

/// The class of a tone.
fn tone(tone: Tone) -> String {
    format!("tone{}", tone % TONES)
}

/// A coordinate: a tenth of a unit is finer than any screen.
fn at(value: f64) -> String {
    format!("{value:.1}")
}
