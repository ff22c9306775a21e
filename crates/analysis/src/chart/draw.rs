//! Draws a figure on a canvas.

use super::{Anchor, Axis, COLOURS, Canvas, Colour, Content, Figure, Map, Panel, Series, shade};

/// The width of a figure in points.
pub const WIDTH: f64 = 960.0;
/// The height of a figure of one panel in points.
pub const HEIGHT: f64 = 540.0;

const INK: Colour = [40, 40, 40];
const GRID: Colour = [222, 222, 222];
const LEFT: f64 = 76.0;
const RIGHT: f64 = 120.0;
const TITLE: f64 = 36.0;
/// Room for numbers and label below a panel.
const BELOW: f64 = 52.0;
/// The height of a further panel, and of each panel of several.
const PANEL: f64 = 230.0;
/// The most pixels of a map.
const MOST_PIXELS: (usize, usize) = (1024, 512);
/// The width of a letter.
const LETTER: f64 = 7.0;

/// The size of a figure in points.
pub fn size(figure: &Figure) -> (f64, f64) {
    match figure.panels.len() {
        0 | 1 => (WIDTH, HEIGHT),
        several => (WIDTH, TITLE + PANEL * several as f64),
    }
}

/// Draws a figure.
pub fn draw(figure: &Figure, canvas: &mut dyn Canvas) {
    let (width, height) = size(figure);
    canvas.fill([0.0, 0.0, width, height], [255; 3]);
    canvas.text((LEFT, 24.0), &figure.title, Anchor::Start, INK);
    let each = (height - TITLE) / figure.panels.len().max(1) as f64;
    for (number, panel) in figure.panels.iter().enumerate() {
        let area = [LEFT, TITLE + each * number as f64, width - LEFT - RIGHT, each - BELOW];
        draw_panel(panel, area, canvas);
    }
}

fn draw_panel(panel: &Panel, area: [f64; 4], canvas: &mut dyn Canvas) {
    let [left, top, width, height] = area;
    let (right, bottom) = (left + width, top + height);
    if let Content::Map(map) = &panel.content {
        draw_map(map, area, canvas);
    }
    let grid = matches!(panel.content, Content::Series(_));
    for tick in panel.x.ticks((width / 110.0) as usize) {
        let x = left + panel.x.place(tick.value) * width;
        if grid {
            canvas.line(&[(x, top), (x, bottom)], GRID, 1.0);
        }
        canvas.line(&[(x, bottom), (x, bottom + 4.0)], INK, 1.0);
        canvas.text((x, bottom + 17.0), &tick.text, Anchor::Middle, INK);
    }
    for tick in panel.y.ticks((height / 45.0) as usize) {
        let y = bottom - panel.y.place(tick.value) * height;
        if grid {
            canvas.line(&[(left, y), (right, y)], GRID, 1.0);
        }
        canvas.line(&[(left - 4.0, y), (left, y)], INK, 1.0);
        canvas.text((left - 7.0, y + 4.0), &tick.text, Anchor::End, INK);
    }
    if let Content::Series(all) = &panel.content {
        for (number, series) in all.iter().enumerate() {
            draw_series(series, number, (&panel.x, &panel.y), area, canvas);
        }
        draw_legend(all, (right + 10.0, top + 10.0), height, canvas);
    }
    let frame = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
    canvas.line(&frame, INK, 1.0);
    canvas.text(((left + right) / 2.0, bottom + 36.0), &panel.x.title(), Anchor::Middle, INK);
    canvas.text((8.0, top - 6.0), &panel.y.title(), Anchor::Start, INK);
}

fn draw_series(
    series: &Series,
    number: usize,
    axes: (&Axis, &Axis),
    area: [f64; 4],
    canvas: &mut dyn Canvas,
) {
    let [left, top, width, height] = area;
    let colour = COLOURS[number % COLOURS.len()];
    let place = |(x, y): (f64, f64)| {
        (left + axes.0.place(x) * width, top + (1.0 - axes.1.place(y)) * height)
    };
    if series.bars {
        let base = place((0.0, axes.1.range.0.max(0.0))).1;
        let apart = series.points.windows(2).map(|pair| place(pair[1]).0 - place(pair[0]).0);
        let bar = (apart.fold(width / 4.0, f64::min) * 0.8).max(1.0);
        for (x, y) in series.points.iter().map(|point| place(*point)) {
            canvas.fill([x - bar / 2.0, y, bar, base - y], colour);
        }
        return;
    }
    let runs = series.points.split(|(_, y)| !y.is_finite());
    for run in runs.filter(|run| !run.is_empty()) {
        let points: Vec<(f64, f64)> = run.iter().map(|point| place(*point)).collect();
        match points[..] {
            // A single point is a short line.
            [(x, y)] => canvas.line(&[(x - 1.5, y), (x + 1.5, y)], colour, 1.5),
            _ => canvas.line(&points, colour, 1.3),
        }
    }
}

/// The names of lines; of many, as many as there is room for.
fn draw_legend(all: &[Series], at: (f64, f64), height: f64, canvas: &mut dyn Canvas) {
    let room = (height / 16.0) as usize;
    let longest = ((RIGHT - 32.0) / LETTER) as usize;
    for (number, series) in all.iter().take(room).enumerate() {
        let y = at.1 + 16.0 * number as f64;
        let more = number + 1 == room && all.len() > room;
        let name = match more {
            true => format!("and {} more", all.len() - number),
            false => series.name.chars().take(longest).collect(),
        };
        let colour = COLOURS[number % COLOURS.len()];
        if !more {
            canvas.fill([at.0, y - 7.0, 12.0, 4.0], colour);
        }
        canvas.text((at.0 + 17.0, y), &name, Anchor::Start, INK);
    }
}

fn draw_map(map: &Map, area: [f64; 4], canvas: &mut dyn Canvas) {
    let [left, top, width, height] = area;
    let shown = map.reduced(MOST_PIXELS.0, MOST_PIXELS.1);
    if shown.values.is_empty() {
        return;
    }
    let rows: Vec<&[f64]> = shown.values.chunks(shown.columns).collect();
    let colour = |value: &f64| shown.share(*value).map_or([255; 3], shade);
    let pixels: Vec<Colour> = rows.iter().rev().flat_map(|row| row.iter().map(colour)).collect();
    canvas.image(area, shown.columns, &pixels);
    // The scale of colours.
    let scale: Vec<Colour> = (0..64).rev().map(|n| shade(f64::from(n) / 63.0)).collect();
    let (x, tall) = (left + width + 14.0, height * 0.8);
    canvas.image([x, top + 12.0, 14.0, tall], 1, &scale);
    let (low, high) = map.range;
    canvas.text((x, top + 4.0), &map.name, Anchor::Start, INK);
    canvas.text((x + 19.0, top + 20.0), &format!("{high:.1}"), Anchor::Start, INK);
    canvas.text((x + 19.0, top + 12.0 + tall), &format!("{low:.1}"), Anchor::Start, INK);
}
