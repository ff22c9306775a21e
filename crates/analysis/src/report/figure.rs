//! Results as pictures.

use super::{Line, Report};
use crate::chart::{Axis, Content, Figure, MOST_PANELS, Map, Panel, Series};

/// The picture of a result. Powers are in decibels relative to full scale.
pub fn figure(report: &Report) -> Figure {
    let start = report.start.as_ref().map_or_else(String::new, |start| format!(", {start}"));
    let title = format!("{}{start}", report.input);
    let panels = match report.product {
        "waterfall" => waterfalls(report),
        "histogram" => vec![histogram(report)],
        "cross" => cross(report),
        "series" => {
            let x = Axis::around("time", "s", report.seconds.iter().copied());
            vec![powers(report, x, &report.seconds)]
        }
        _ => {
            let (x, places) = frequency(report);
            vec![powers(report, x, &places)]
        }
    };
    Figure { title, panels }
}

/// The axis of frequencies, in a unit that gives short numbers, and the frequencies in it.
fn frequency(report: &Report) -> (Axis, Vec<f64>) {
    let all = &report.frequency;
    let largest = all.iter().fold(0.0f64, |most, it| most.max(it.abs()));
    let (unit, scale) = match largest {
        _ if !report.sample_rate_known => ("cycles per sample", 1.0),
        hertz if hertz >= 2e9 => ("GHz", 1e9),
        hertz if hertz >= 2e6 => ("MHz", 1e6),
        hertz if hertz >= 2e3 => ("kHz", 1e3),
        _ => ("Hz", 1.0),
    };
    let places: Vec<f64> = all.iter().map(|hertz| hertz / scale).collect();
    let edges = (places.first().copied().unwrap_or(0.0), places.last().copied().unwrap_or(1.0));
    (Axis::new("frequency", unit, edges), places)
}

/// Lines of powers over an axis.
fn powers(report: &Report, x: Axis, places: &[f64]) -> Panel {
    let point = |(at, power): (&f64, &Option<f64>)| {
        (*at, power.map_or(f64::NAN, |power| report.decibels(power)))
    };
    let series = |line: &Line| Series {
        name: line.name.clone(),
        points: places.iter().zip(&line.power).map(point).collect(),
        bars: false,
    };
    let all: Vec<Series> = report.lines.iter().map(series).collect();
    let values = all.iter().flat_map(|series| series.points.iter().map(|point| point.1));
    Panel { x, y: Axis::around("power", "dB", values), content: Content::Series(all) }
}

fn cross(report: &Report) -> Vec<Panel> {
    let (x, places) = frequency(report);
    let panel = |name: &str, unit: &str, range, values: fn(&Line) -> &[f64]| {
        let series = |line: &Line| Series {
            name: line.name.clone(),
            points: places.iter().copied().zip(values(line).iter().copied()).collect(),
            bars: false,
        };
        let content = Content::Series(report.lines.iter().map(series).collect());
        Panel { x: x.clone(), y: Axis::new(name, unit, range), content }
    };
    vec![
        powers(report, x.clone(), &places),
        panel("phase", "degrees", (-180.0, 180.0), |line| &line.phase_degrees),
        panel("coherence", "", (0.0, 1.0), |line| &line.coherence),
    ]
}

/// A map for each line, the first row at the bottom.
fn waterfalls(report: &Report) -> Vec<Panel> {
    let (x, _) = frequency(report);
    let columns = report.frequency.len();
    let step =
        report.seconds.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let step = if step.is_finite() { step } else { 1.0 };
    let first = report.seconds.first().copied().unwrap_or(0.0);
    let last = report.seconds.last().copied().unwrap_or(0.0) + step;
    // Rows that have no samples at all are in no line, and stay empty.
    let rows = (((last - first) / step).round() as usize).clamp(1, 1 << 16);
    let panel = |line: &Line| {
        let mut values = vec![f64::NAN; rows * columns];
        for (second, row) in report.seconds.iter().zip(&line.rows) {
            let at = (((second - first) / step).round() as usize).min(rows - 1);
            let Some(row) = row else { continue };
            for (to, power) in values[at * columns..].iter_mut().zip(row) {
                *to = report.decibels(*power);
            }
        }
        let map = Map::new(format!("{} (dB)", line.name), columns, values);
        let y = Axis::new("time", "s", (first, last));
        Panel { x: x.clone(), y, content: Content::Map(map) }
    };
    report.lines.iter().take(MOST_PANELS).map(panel).collect()
}

fn histogram(report: &Report) -> Panel {
    let points = |values: &[f64]| {
        report.levels.iter().copied().zip(values.iter().map(|share| share * 100.0)).collect()
    };
    let few = report.lines.len() == 1;
    let mut all: Vec<Series> = report
        .lines
        .iter()
        .map(|line| Series { name: line.name.clone(), points: points(&line.fractions), bars: few })
        .collect();
    if let Some(line) = report.lines.first() {
        let name = "Gaussian".to_owned();
        all.push(Series { name, points: points(&line.expected), bars: false });
    }
    let values = all.iter().flat_map(|series| series.points.iter().map(|point| point.1));
    let highest = values.fold(1.0f64, f64::max);
    let x = Axis::around("level", "", report.levels.iter().flat_map(|it| [it - 0.5, it + 0.5]));
    let y = Axis::new("samples", "%", (0.0, highest * 1.06));
    Panel { x, y, content: Content::Series(all) }
}
