//! The page around the sections: head, banners, tables.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{name, subject, text};
use crate::bench::result::{BenchResult, Level};

/// The style sheet, stored beside the code that uses its classes.
const STYLE: &str = include_str!("style.css");

/// The complete file.
pub fn whole(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

/// The head of the page: subject, host and time.
pub fn top(result: &BenchResult) -> Markup {
    let machine = &result.environment;
    let begun = result.started.replace('T', " ").replace('Z', " UTC");
    html! {
        header.top {
            p.kicker { (name(result.kind)) }
            h1 { (subject(result)) }
            p.under {
                (machine.host) " · " (begun) " · took " (text::seconds(result.seconds))
                " · " (machine.program)
            }
        }
    }
}

/// The banners: the verdict, and warnings about the figures.
pub fn banners(result: &BenchResult) -> Markup {
    html! {
        @if let Some(verdict) = &result.verdict {
            @let class = match (verdict.holds, verdict.not_shown) {
                (true, _) => "banner good",
                (false, true) => "banner warn",
                (false, false) => "banner bad",
            };
            div class=(class) role="status" {
                strong { (verdict.grade()) }
                p {
                    (verdict.sentence.trim_end_matches('.'))
                    ". Asked for: " (text::requested(verdict))
                    "; sustained: " (text::in_unit(verdict.sustained.0 as f64, verdict.in_bits))
                    " (margin " (text::share(verdict.margin)) ")."
                }
            }
        }
        @if result.interrupted {
            div.banner.warn {
                strong { "INTERRUPTED" }
                p { "It was ended before it was done. What stands here was measured; the rest is not there, and there is no verdict." }
            }
        }
        @let warnings = result.notes.iter().filter(|note| note.level == Level::Warning);
        @for warning in warnings.take(3) {
            div.banner.warn { strong { "Mind" } p { (warning.text) } }
        }
    }
}

/// A key figure: name, value, and additional text.
pub struct Tile {
    /// The name.
    pub name: &'static str,
    /// The value with its unit.
    pub figure: String,
    /// The additional text.
    pub small: String,
}

/// The row of key figures.
pub fn tiles(tiles: &[Tile]) -> Markup {
    html! {
        @if !tiles.is_empty() {
            dl.tiles {
                @for tile in tiles {
                    div {
                        dt { (tile.name) }
                        dd.figure { (tile.figure) }
                        dd.small { (tile.small) }
                    }
                }
            }
        }
    }
}

/// A chart with its caption, a reading hint, and the drawing.
pub fn figure(caption: &str, seen: &str, drawing: &Markup) -> Markup {
    html! {
        figure {
            figcaption { (caption) @if !seen.is_empty() { span { (seen) } } }
            (drawing)
        }
    }
}

/// A table: column heads, and rows whose first cell is their name.
pub fn table(caption: &str, heads: &[&str], rows: &[Vec<String>]) -> Markup {
    aligned(caption, heads, rows, false)
}

/// The same, where the last cell of a row holds text instead of a number.
pub fn table_with_words(caption: &str, heads: &[&str], rows: &[Vec<String>]) -> Markup {
    aligned(caption, heads, rows, true)
}

fn aligned(caption: &str, heads: &[&str], rows: &[Vec<String>], words: bool) -> Markup {
    html! {
        @if !rows.is_empty() {
            div.scroll {
                table.short[rows.len() <= 16].wide[heads.len() > 9].last-words[words] {
                    @if !caption.is_empty() { caption { (caption) } }
                    thead { tr { @for head in heads { th scope="col" { (head) } } } }
                    tbody {
                        @for row in rows {
                            tr {
                                @for (number, cell) in row.iter().enumerate() {
                                    @if number == 0 { th scope="row" { (cell) } }
                                    @else { td { (cell) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A list of names and values; unknown values are left out.
pub fn facts(rows: &[(&str, Option<String>)]) -> Markup {
    html! {
        table.facts {
            tbody {
                @for (name, value) in rows {
                    @if let Some(value) = value {
                        tr { th scope="row" { (name) } td { (value) } }
                    }
                }
            }
        }
    }
}
