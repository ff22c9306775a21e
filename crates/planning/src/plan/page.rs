//! The answer as one page: the verdict, the machine as a drawing, and every rule with its sum. No script, and no file
//! or address outside of it.
//!
//! ```text
//! memory ── root port ── switch ─┬─ card ── network      a column for each step from memory,
//!                                └─ drive ── disk        a row for each end
//! ```
//!
//! A line is coloured by the fuller direction of its link: free, half full, more than the headroom allows, or not known.

use fullbore_survey::report::{self, page};
use maud::{Markup, html};

use super::answer::{Answer, NodeTold, Verdict};
use super::rules::{Finding, State};
use super::screen;

/// Width and height of a cell of the drawing, and of the box in it, in its own units.
const CELL: (f64, f64) = (200.0, 52.0);
const NODE: (f64, f64) = (140.0, 38.0);

/// The distance from a box at which lines turn, so that there is room for a number before the next box.
const BEND: f64 = 14.0;

/// The widest name in a box, in characters.
const WIDEST_NAME: usize = 20;

/// The style of lines and boxes, beside that of reports.
const STYLE: &str = "figure svg .box { fill: var(--card); stroke: var(--rule); } \
    figure svg path.link { fill: none; stroke: currentColor; stroke-width: 3; } \
    figure svg path.unknown { stroke-dasharray: 4 4; } figure svg text.small { font-size: 10px; }";

/// The whole page.
pub fn page(answer: &Answer) -> String {
    let title = format!("{}: {}", answer.machine, answer.verdict.text());
    let body = html! {
        style { (maud::PreEscaped(STYLE)) }
        header.top {
            p.kicker { "Plan of a recording" }
            h1 { (answer.machine) }
            p.under { (answer.about.as_deref().unwrap_or("")) }
        }
        (banner(answer))
        (tiles(answer))
        @if !answer.nodes.is_empty() {
            (page::figure(
                "Flows over the machine",
                "A colour shows how full the fuller direction of a link is: blue up to 50 %, green up to 90 %, red \
                 above. A dashed line has a rate that is not known, a grey one no limit of its own.",
                &topology(&answer.nodes),
            ))
        }
        (links(answer))
        (findings(answer))
        (more(answer))
        footer { "Made by fullbore " (env!("CARGO_PKG_VERSION")) ". This file is complete: it fetches nothing." }
    };
    page::whole(&title, &body)
}

fn banner(answer: &Answer) -> Markup {
    let (class, text) = match answer.verdict {
        Verdict::Fits => ("banner good", "Every rule that refuses a recording holds."),
        Verdict::FitsWithWarnings => {
            ("banner warn", "Every rule that refuses holds, but some rules warn.")
        }
        Verdict::NotKnown => {
            ("banner warn", "No rule refuses, but at least one could not be checked.")
        }
        Verdict::DoesNotFit => ("banner bad", "At least one rule refuses."),
    };
    html! { div class=(class) role="status" { strong { (answer.verdict.text()) } p { (text) } } }
}

fn tiles(answer: &Answer) -> Markup {
    let mut tiles = vec![page::Tile {
        name: "Streams",
        figure: report::rate(answer.rate),
        small: format!("{} streams", answer.streams.iter().map(|it| it.count).sum::<u32>()),
    }];
    if let Some(link) = &answer.narrowest {
        tiles.push(page::Tile {
            name: "Fullest link",
            figure: report::share(link.fill),
            small: format!("{}, {}", link.node, link.link),
        });
    }
    if let Some(memory) = &answer.memory {
        tiles.push(page::Tile {
            name: "Block memory",
            figure: report::size(memory.bytes as f64),
            small: format!("for a stall of {} ms", memory.stall.ms),
        });
    }
    if let Some(full) = answer.volumes.iter().filter_map(|it| it.full_after_s).reduce(f64::min) {
        tiles.push(page::Tile {
            name: "Full after",
            figure: report::seconds(full),
            small: "pauses included".into(),
        });
    }
    page::tiles(&tiles)
}

/// A node in the drawing: its column and its row.
struct Placed<'a> {
    node: &'a NodeTold,
    column: f64,
    row: f64,
}

/// Places nodes in columns by their distance from memory, and in rows so that a parent is in the middle of its children.
fn place<'a>(
    nodes: &'a [NodeTold],
    parent: Option<&str>,
    column: f64,
    next_row: &mut f64,
    placed: &mut Vec<Placed<'a>>,
) -> Vec<f64> {
    let mut rows = Vec::new();
    for node in nodes.iter().filter(|node| node.parent.as_deref() == parent) {
        let below = place(nodes, Some(&node.name), column + 1.0, next_row, placed);
        let row = match (below.first(), below.last()) {
            (Some(first), Some(last)) => (first + last) / 2.0,
            _ => {
                *next_row += 1.0;
                *next_row - 1.0
            }
        };
        rows.push(row);
        placed.push(Placed { node, column, row });
    }
    rows
}

/// The drawing.
fn topology(nodes: &[NodeTold]) -> Markup {
    let (mut placed, mut next_row) = (Vec::new(), 0.0);
    let rows = place(nodes, None, 1.0, &mut next_row, &mut placed);
    let memory_row =
        rows.first().zip(rows.last()).map_or(0.0, |(first, last)| (first + last) / 2.0);
    let columns = placed.iter().map(|it| it.column).fold(0.0, f64::max) + 1.0;
    let (width, height) = (columns * CELL.0, next_row.max(1.0) * CELL.1);
    let parent_at = |it: &Placed| {
        let parent = it.node.parent.as_deref();
        let above = placed.iter().find(|above| Some(above.node.name.as_str()) == parent);
        above.map_or((0.0, memory_row), |above| (above.column, above.row))
    };
    html! {
        svg viewBox={ "-1 0 " (width) " " (height) } role="img" aria-labelledby="flows-title flows-words" {
            title id="flows-title" { "Flows over the machine" }
            desc id="flows-words" { "Memory at the left, and every device that a flow passes to the right of it." }
            @for it in &placed {
                @let (column, row) = parent_at(it);
                (line((column, row), (it.column, it.row), it.node))
            }
            (node_box(0.0, memory_row, "memory", ""))
            @for it in &placed {
                (node_box(it.column, it.row, &it.node.name, it.node.link.as_deref().unwrap_or("")))
            }
        }
    }
}

fn line(from: (f64, f64), to: (f64, f64), node: &NodeTold) -> Markup {
    let middle = |row: f64| (row + 0.5) * CELL.1;
    let (x, y) = (from.0 * CELL.0 + NODE.0, middle(from.1));
    let (end_x, end_y) = (to.0 * CELL.0, middle(to.1));
    let between = x + BEND;
    let path = format!("M{x:.0} {y:.0}H{between:.0}V{end_y:.0}H{end_x:.0}");
    let class = match node.fill {
        _ if node.internal => "link tone7",
        None => "link unknown tone4",
        Some(fill) if fill <= 0.5 => "link tone0",
        Some(fill) if fill <= 0.9 => "link tone2",
        Some(_) => "link tone3",
    };
    let fill = node.fill.map_or(String::new(), report::share);
    html! {
        path class=(class) d=(path) { title { (load(node)) } }
        text.small x={ (format!("{:.0}", end_x - 4.0)) } y={ (format!("{:.0}", end_y - 5.0)) } text-anchor="end" { (fill) }
    }
}

/// The flows of a link in words.
fn load(node: &NodeTold) -> String {
    let list = |shares: &[super::flows::Share]| {
        let all = shares.iter().map(|share| format!("{} {}", report::rate(share.rate), share.flow));
        all.collect::<Vec<_>>().join(" + ")
    };
    let mut parts = vec![node.name.clone()];
    if !node.up.is_empty() {
        parts.push(format!("towards memory: {}", list(&node.up)));
    }
    if !node.down.is_empty() {
        parts.push(format!("from memory: {}", list(&node.down)));
    }
    if let Some(usable) = node.usable {
        parts.push(format!("usable: {} in each direction", report::rate(usable)));
    }
    parts.join("; ")
}

fn node_box(column: f64, row: f64, name: &str, link: &str) -> Markup {
    let (x, y) = (column * CELL.0, row * CELL.1 + (CELL.1 - NODE.1) / 2.0);
    let short: String = match name.chars().count() > WIDEST_NAME {
        true => name.chars().take(WIDEST_NAME - 1).chain(['…']).collect(),
        false => name.to_owned(),
    };
    let at = |value: f64| format!("{value:.1}");
    html! {
        rect.box x=(at(x)) y=(at(y)) width=(NODE.0) height=(NODE.1) rx="6" {}
        text x=(at(x + 8.0)) y=(at(y + 16.0)) { (short) }
        text.small x=(at(x + 8.0)) y=(at(y + 30.0)) { (link) }
    }
}

fn links(answer: &Answer) -> Markup {
    let known = answer.nodes.iter().filter(|node| !node.internal);
    let row = |node: &NodeTold| {
        let sum = |shares: &[super::flows::Share]| {
            report::rate(shares.iter().map(|share| share.rate).sum::<f64>())
        };
        vec![
            node.name.clone(),
            node.link.clone().unwrap_or_else(|| "not known".into()),
            sum(&node.up),
            sum(&node.down),
            node.usable.map_or_else(|| "not known".into(), report::rate),
            node.fill.map_or_else(|| "not known".into(), report::share),
        ]
    };
    let rows: Vec<Vec<String>> = known.map(row).collect();
    page::table(
        "Links, in both directions",
        &["of", "link", "towards memory", "from memory", "usable", "full"],
        &rows,
    )
}

/// All rules, those that refuse first.
fn findings(answer: &Answer) -> Markup {
    let (refused, rest): (Vec<&Finding>, _) = answer.findings.iter().partition(|it| it.refuses());
    let (warned, rest): (Vec<&Finding>, _) = rest.into_iter().partition(|it| it.warns());
    let (open, held): (Vec<&Finding>, Vec<&Finding>) =
        rest.into_iter().partition(|it| it.state == State::NotKnown);
    let groups = [("Refused", refused), ("Warnings", warned), ("Not known", open), ("Holds", held)];
    html! {
        h2 { "Rules" }
        @for (title, findings) in groups.iter().filter(|(_, findings)| !findings.is_empty()) {
            h3 { (title) }
            table.facts {
                tbody {
                    @for finding in findings {
                        tr { th scope="row" { (finding.id) " " (finding.rule) } td { (sums(finding)) } }
                    }
                }
            }
        }
    }
}

/// The part of the machine, both sides with their sums and origins, and the advice: a line each.
fn sums(finding: &Finding) -> Markup {
    let margin = finding.margin_percent.map(|margin| report::share(margin / 100.0));
    html! {
        div { (finding.subject) @if let Some(margin) = margin { ", margin " (margin) } }
        @for (word, side) in [("need", &finding.need), ("have", &finding.have)] {
            @if let Some(side) = side {
                div {
                    (word) " " b { (side.text) }
                    @if let Some(sum) = &side.sum { " = " (sum) }
                    " (" (side.figure.origin) ": " (side.figure.source) ")"
                }
            }
        }
        @if let Some(because) = &finding.because { div { (because) } }
        @if let Some(advice) = &finding.advice { div { "Next: " (advice) } }
    }
}

fn more(answer: &Answer) -> Markup {
    let rows: Vec<Vec<String>> = answer
        .one_more
        .iter()
        .map(|it| {
            let full = it.full_after_s.map_or_else(String::new, report::seconds);
            vec![it.what.clone(), it.verdict.text().to_owned(), full, it.because.clone()]
        })
        .collect();
    html! {
        h2 { "Disks" }
        @for volume in &answer.volumes { p { (screen::told(volume)) } }
        h2 { "One more" }
        (page::table_with_words("", &["more", "verdict", "full after", "because"], &rows))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, Request, answer, examples};
    use super::*;

    fn paged(text: &str) -> String {
        let description = Some(("test".into(), text.into()));
        page(&answer(&Plan::read(&Request { description, ..Request::default() }).unwrap()))
    }

    #[test]
    fn the_page_draws_each_node_and_fetches_nothing() {
        let text = examples::example("station").unwrap().text;
        let page = paged(text);
        for name in ["nic0", "port1", "hba1", "pool7"] {
            assert!(page.contains(&format!(">{name}</text>")), "{name}");
        }
        for address in ["http:", "https:", "url(", "<script", "src=", "href="] {
            assert!(!page.contains(address), "{address}");
        }
    }

    #[test]
    fn names_of_a_description_are_escaped() {
        let text = examples::example("panda").unwrap().text.replace("eth0", "<script>alert(1)");
        let page = paged(&text);
        assert!(!page.contains("<script") && page.contains("&lt;script"), "{page}");
    }
}
