//! Pictures of results: lines, bars and maps with axes, as SVG, PDF, PNG, or text for a terminal.
//!
//! ```text
//! Figure ──► draw ──► Canvas ──► svg │ pdf │ png
//!        └─► terminal::text
//! ```
//!
//! A [`Figure`] knows values and units, a [`Canvas`] lines, boxes, texts and images in units of a point.

mod axis;
mod draw;
mod pdf;
mod raster;
mod svg;
pub mod terminal;

pub use self::axis::{Axis, Tick, nice};
pub use self::draw::{HEIGHT, WIDTH, draw};
pub use self::pdf::pdf;
pub use self::raster::{encode, png};
pub use self::svg::svg;

/// A colour: red, green, blue.
pub type Colour = [u8; 3];

/// Colours that people with a colour deficiency can tell apart (Okabe and Ito 2008), without their yellow, which is
/// too pale on white.
pub const COLOURS: [Colour; 7] = [
    [0, 114, 178],
    [213, 94, 0],
    [0, 158, 115],
    [204, 121, 167],
    [230, 159, 0],
    [86, 180, 233],
    [0, 0, 0],
];

/// The most panels of a figure.
pub const MOST_PANELS: usize = 16;

/// A picture: panels, one below the other.
#[derive(Clone, Debug, Default)]
pub struct Figure {
    /// The title.
    pub title: String,
    /// The panels.
    pub panels: Vec<Panel>,
}

/// A panel with two axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The content.
    pub content: Content,
}

/// The content of a panel.
#[derive(Clone, Debug)]
pub enum Content {
    /// Lines or bars, each with a name.
    Series(Vec<Series>),
    /// A map of values over both axes.
    Map(Map),
}

/// The points of one line or of one set of bars.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name.
    pub name: String,
    /// Points, by ascending x. A value that is not finite interrupts a line.
    pub points: Vec<(f64, f64)>,
    /// True for bars around each x, else a line.
    pub bars: bool,
}

/// Values over a grid: row by row, the first row at the low end of the vertical axis.
#[derive(Clone, Debug)]
pub struct Map {
    /// The name of what is shown.
    pub name: String,
    /// Values of a row.
    pub columns: usize,
    /// All values. Those that are not finite stay white.
    pub values: Vec<f64>,
    /// The values of the darkest and of the brightest colour.
    pub range: (f64, f64),
}

/// The horizontal place of a text at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

/// A surface to draw on. The unit is a point; y grows downwards.
pub trait Canvas {
    /// A line through points.
    fn line(&mut self, points: &[(f64, f64)], colour: Colour, width: f64);
    /// A filled box: left, top, width, height.
    fn fill(&mut self, area: [f64; 4], colour: Colour);
    /// A text with its base line at a point.
    fn text(&mut self, at: (f64, f64), text: &str, anchor: Anchor, colour: Colour);
    /// An image of `columns` pixels a row, the first row at the top, stretched over a box.
    fn image(&mut self, area: [f64; 4], columns: usize, pixels: &[Colour]);
}

/// The colour of a share from 0 to 1: dark violet, magenta, orange, pale yellow, with a brightness that grows evenly.
pub fn shade(share: f64) -> Colour {
    const STOPS: [[f64; 3]; 5] = [
        [10.0, 8.0, 40.0],
        [87.0, 16.0, 110.0],
        [188.0, 55.0, 84.0],
        [249.0, 142.0, 9.0],
        [252.0, 255.0, 164.0],
    ];
    let place = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let below = (place as usize).min(STOPS.len() - 2);
    let part = place - below as f64;
    std::array::from_fn(|channel| {
        let (low, high) = (STOPS[below][channel], STOPS[below + 1][channel]);
        (low + (high - low) * part).round() as u8
    })
}

impl Map {
    /// A map whose colours span the values from the 1st to the 99.5th percentile.
    pub fn new(name: String, columns: usize, values: Vec<f64>) -> Self {
        let mut finite: Vec<f64> = values.iter().copied().filter(|it| it.is_finite()).collect();
        finite.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (share * finite.len().saturating_sub(1) as f64).round() as usize;
            finite.get(place).copied().unwrap_or(0.0)
        };
        let (low, high) = (at(0.01), at(0.995));
        Self { name, columns, values, range: (low, if high > low { high } else { low + 1.0 }) }
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.values.len() / self.columns.max(1)
    }

    /// The share of a value in the range of colours. `None` if it is not finite.
    pub fn share(&self, value: f64) -> Option<f64> {
        let (low, high) = self.range;
        value.is_finite().then(|| ((value - low) / (high - low)).clamp(0.0, 1.0))
    }

    /// The same map with at most this many columns and rows: the largest value of each group.
    pub fn reduced(&self, columns: usize, rows: usize) -> Map {
        let (wide, high) =
            (self.columns.div_ceil(columns.max(1)), self.rows().div_ceil(rows.max(1)));
        let (wide, high) = (wide.max(1), high.max(1));
        let columns = self.columns.div_ceil(wide);
        let rows = self.rows().div_ceil(high);
        let mut values = vec![f64::NAN; columns * rows];
        for (place, value) in self.values.iter().enumerate() {
            let (row, column) = (place / self.columns / high, place % self.columns / wide);
            let to = &mut values[row * columns + column];
            *to = to.max(*value);
        }
        Map { name: self.name.clone(), columns, values, range: self.range }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A figure with lines, a gap, bars and a map.
    pub(crate) fn figure() -> Figure {
        let wave = |n: usize| (n as f64, if n == 40 { f64::NAN } else { (n as f64 / 9.0).sin() });
        let lines = vec![
            Series { name: "0 <&>".into(), points: (0..100).map(wave).collect(), bars: false },
            Series { name: "levels".into(), points: vec![(10.0, 0.5), (20.0, 0.7)], bars: true },
        ];
        let map = Map::new("power".into(), 4, (0..12).map(f64::from).collect());
        let axis = |label: &str, high| Axis::new(label, "MHz", (0.0, high));
        let panel = |content| Panel { x: axis("frequency", 99.0), y: axis("power", 1.0), content };
        let panels = vec![panel(Content::Series(lines)), panel(Content::Map(map))];
        Figure { title: "a (figure) \\ of µ and é".into(), panels }
    }

    #[test]
    fn brightness_grows_with_the_value() {
        let brightness = |share| {
            shade(share).into_iter().zip([0.3, 0.6, 0.1]).map(|(c, w)| f64::from(c) * w).sum()
        };
        let all: Vec<f64> = (0..=20).map(|n| brightness(f64::from(n) / 20.0)).collect();
        assert!(all.is_sorted(), "{all:?}");
    }

    #[test]
    fn a_reduced_map_keeps_its_largest_values() {
        let mut values = vec![0.0; 1000 * 50];
        values[17 * 1000 + 503] = 9.0;
        let reduced = Map::new(String::new(), 1000, values).reduced(100, 10);
        assert_eq!((reduced.columns, reduced.rows()), (100, 10));
        let at = reduced.values.iter().position(|value| *value == 9.0).unwrap();
        assert_eq!((at / 100, at % 100), (3, 50));
    }
}
