//! The ring that each rate needs, and the rate that each ring holds.

use maud::{Markup, html};

use super::{line, required};
use crate::bench::result::{BenchResult, Continuous, RingForRate};
use crate::report::chart::{self, Axis, Mark, Plot, Point, Quantity, Series};
use crate::report::{page, text};

/// Factor between the end of the ring axis and the largest ring.
const HEADROOM: f64 = 4.0;

/// The section on the ring that each rate needs.
pub fn section(result: &BenchResult, run: &Continuous) -> Markup {
    let known: Vec<_> = run.ring_for_rate.iter().filter(|it| it.ring.0 > 0).collect();
    if known.len() < 2 {
        return html! {};
    }
    let point = |it: &&RingForRate| Point {
        x: it.rate.0 as f64,
        y: it.ring.0 as f64,
        spread: None,
        note: format!(
            "{}: a ring of {}{}",
            text::rate(it.rate.0 as f64),
            text::size(it.ring.0 as f64),
            if it.unbounded { ", and more in a longer run" } else { "" }
        ),
    };
    let held: Vec<Point> = known.iter().filter(|it| !it.unbounded).map(point).collect();
    let mut beyond: Vec<Point> = held.last().cloned().into_iter().collect();
    beyond.extend(known.iter().filter(|it| it.unbounded).map(point));
    let mut series = vec![line("would have lost nothing", chart::WRITE, held)];
    if beyond.len() > 1 {
        series.push(Series {
            dashed: true,
            ..line("faster than the target: a longer run asks for more", chart::WRONG, beyond)
        });
    }
    series.retain(|series| !series.points.is_empty());
    let points = || series.iter().flat_map(|series| series.points.iter());
    let recommended = &run.recommended;
    let mut marks = Vec::new();
    if recommended.rate.0 > 0 {
        marks.push(Mark::Down {
            x: recommended.rate.0 as f64,
            label: "recommended".into(),
            tone: chart::WRITE,
        });
    }
    if let Some(rate) = required(result) {
        marks.push(Mark::Down { x: rate, label: "asked for".into(), tone: chart::WANTED });
    }
    if recommended.ring.0 > 0 {
        marks.push(Mark::Across {
            y: recommended.ring.0 as f64,
            label: format!("ring of {}", text::size(recommended.ring.0 as f64)),
            tone: chart::OTHER,
        });
    }
    let most_ring =
        points().map(|point| point.y).fold(recommended.ring.0 as f64, f64::max).max(1.0);
    let rates = points().map(|point| point.x).chain(required(result));
    let rings = points().map(|point| point.y).chain([recommended.ring.0 as f64]);
    let plot = Plot {
        id: "ring".into(),
        title: "Ring that each rate asks for".into(),
        description:
            "How much block memory would have been needed at each rate to lose nothing in this run."
                .into(),
        height: 280.0,
        x: Axis::from_zero("rate that comes in", Quantity::Rate, rates),
        // The labels of the rates are above the line of the ring.
        y: Axis::logarithmic("ring", Quantity::Size, rings.chain([most_ring * HEADROOM])),
        series: series.clone(),
        marks,
    };
    let by_rate: Vec<Vec<String>> = run
        .ring_for_rate
        .iter()
        .map(|it| {
            let ring = text::size(it.ring.0 as f64);
            vec![
                text::in_unit(it.rate.0 as f64, true),
                if it.unbounded { format!("{ring} and more") } else { ring },
            ]
        })
        .collect();
    let by_ring: Vec<Vec<String>> = run
        .rate_for_ring
        .iter()
        .map(|it| vec![text::size(it.ring.0 as f64), text::in_unit(it.rate.0 as f64, true)])
        .collect();
    html! {
        section {
            h2 { "How much ring" }
            p.lead {
                "The measured times of every block write, replayed through the arithmetic of the ring: what "
                "would have been lost, had a stream of that rate come in."
            }
            figure {
                figcaption { "Ring that each rate asks for" }
                (plot.legend())
                (plot.svg())
            }
            div.pair {
                (page::table("For a rate", &["rate", "smallest ring"], &by_rate))
                (page::table("For a ring", &["ring", "highest rate"], &by_ring))
            }
        }
    }
}
