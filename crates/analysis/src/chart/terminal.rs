//! Figures as text for a terminal: lines in braille, maps in shades.
//!
//! A braille letter has 2 × 4 dots, so a line of 80 letters shows 160 points.

use super::{Axis, Content, Figure, Map, Panel, Series};

/// The dots of a braille letter: by row, left and right.
const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
/// The fewest rows of a picture.
pub const FEWEST_ROWS: usize = 8;
/// Letters left of the frame.
const LEFT: usize = 9;

/// The text of a figure that fits a terminal of this many columns and rows.
pub fn text(figure: &Figure, columns: usize, rows: usize) -> String {
    let (columns, rows) = (columns.clamp(30, 500), rows.clamp(FEWEST_ROWS, 300));
    let panels = figure.panels.len().max(1);
    // Each panel has a line above, and two below it.
    let most = (rows.saturating_sub(2) / 7).max(1);
    let shown = panels.min(most);
    let height = (rows.saturating_sub(2) / shown).saturating_sub(3).max(3);
    let mut text: String = figure.title.chars().take(columns).collect();
    text.push('\n');
    for panel in figure.panels.iter().take(shown) {
        text += &panel_text(panel, columns - LEFT - 1, height);
    }
    text
}

fn panel_text(panel: &Panel, width: usize, height: usize) -> String {
    let rows = match &panel.content {
        Content::Series(series) => lines(series, (&panel.x, &panel.y), width, height),
        Content::Map(map) => shades(map, width, height),
    };
    let name = match &panel.content {
        Content::Series(series) if series.len() == 1 => series[0].name.clone(),
        Content::Series(series) => format!("{} lines", series.len()),
        Content::Map(map) => map.name.clone(),
    };
    let mut text = format!("{} │ {name}\n", panel.y.title());
    let (low, high) = panel.y.range;
    for (number, row) in rows.iter().enumerate() {
        let label = match number {
            0 => short(high),
            _ if number + 1 == height => short(low),
            _ if number == height / 2 => {
                short(high - (high - low) * (number as f64 + 0.5) / height as f64)
            }
            _ => String::new(),
        };
        text += &format!("{label:>LEFT$}│{}\n", row.trim_end());
    }
    let (from, to) = (short(panel.x.range.0), short(panel.x.range.1));
    let middle: String = panel.x.title().chars().take(width.saturating_sub(24)).collect();
    let free = width.saturating_sub(from.chars().count() + to.chars().count());
    text + &format!("{:LEFT$}└{}\n{:LEFT$} {from}{middle:^free$}{to}\n", "", "─".repeat(width), "")
}

/// A number in at most eight letters.
fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-2..1e6).contains(&size) => format!("{value:.1e}"),
        size if size >= 1000.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Lines in braille.
fn lines(all: &[Series], axes: (&Axis, &Axis), width: usize, height: usize) -> Vec<String> {
    let (columns, rows) = (width * 2, height * 4);
    let mut letters = vec![vec![0u32; width]; height];
    for series in all {
        let mut before: Option<(usize, usize)> = None;
        for (x, y) in &series.points {
            if !y.is_finite() {
                before = None;
                continue;
            }
            let column = (axes.0.place(*x) * (columns - 1) as f64).round() as usize;
            let row = ((1.0 - axes.1.place(*y)) * (rows - 1) as f64).round() as usize;
            if series.bars {
                (row..rows).for_each(|row| dot(&mut letters, column, row));
            }
            match before {
                Some((near, old)) if !series.bars => {
                    join(
                        &mut |column, row| dot(&mut letters, column, row),
                        (near, old),
                        (column, row),
                    );
                }
                _ => dot(&mut letters, column, row),
            }
            before = Some((column, row));
        }
    }
    let letter = |dots: &u32| char::from_u32(0x2800 + dots).filter(|_| *dots > 0).unwrap_or(' ');
    letters.iter().map(|row| row.iter().map(letter).collect()).collect()
}

/// Sets a dot.
fn dot(letters: &mut [Vec<u32>], column: usize, row: usize) {
    letters[row / 4][column / 2] |= DOTS[row % 4][column % 2];
}

/// Sets the dots behind one point up to another: one in each column, or in each row of a steep line.
fn join(dot: &mut dyn FnMut(usize, usize), from: (usize, usize), to: (usize, usize)) {
    let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
    let between = |from: usize, to: usize, step: usize| {
        let share = step as f64 / steps as f64;
        (from as f64 + (to as f64 - from as f64) * share).round() as usize
    };
    (1..=steps).for_each(|step| dot(between(from.0, to.0, step), between(from.1, to.1, step)));
}

/// A map in shades, the first row at the bottom.
fn shades(map: &Map, width: usize, height: usize) -> Vec<String> {
    let small = map.reduced(width, height);
    let (columns, rows) = (small.columns, small.rows());
    let row = |line: usize| {
        let row = (height - 1 - line) * rows / height;
        let letter = |column: usize| {
            let value = small.values[row * columns + column * columns / width];
            let share = small.share(value).unwrap_or(0.0);
            SHADES[(share * (SHADES.len() - 1) as f64).round() as usize]
        };
        (0..width).map(letter).collect()
    };
    if small.values.is_empty() { Vec::new() } else { (0..height).map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::figure;
    use super::*;

    #[test]
    fn a_figure_fits_every_terminal() {
        for columns in [1, 30, 31, 80, 211, 100_000] {
            for rows in [1, 8, 9, 24, 67, 100_000] {
                let text = text(&figure(), columns, rows);
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(widest <= columns.clamp(30, 500), "{columns} × {rows}: {widest}\n{text}");
                let count = text.lines().count();
                assert!(count < rows.clamp(8, 300), "{columns} × {rows}: {count} rows\n{text}");
            }
        }
    }

    #[test]
    fn a_line_that_rises_covers_the_diagonal() {
        let points = (0..8).map(|n| (f64::from(n), f64::from(n))).collect();
        let series = [Series { name: String::new(), points, bars: false }];
        let axis = Axis::new("", "", (0.0, 7.0));
        assert_eq!(lines(&series, (&axis, &axis), 4, 2), ["  ⡠⠊", "⡠⠊  "]);
    }
}
