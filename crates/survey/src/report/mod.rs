//! Reports of a benchmark: tables on the screen, and one self-contained page.
//!
//! ```text
//! BenchResult ─┬─► screen   text for a terminal
//!              └─► html     one file: text, charts as SVG, style; no script, no external files
//! ```
//!
//! The page begins with the requirement and the verdict, then shows the key figures and their evidence, and ends with
//! the machine and the exact commands. All external text passes through [`maud`], which escapes it.

mod chart;
mod disk;
mod machine;
pub mod page;
mod screen;
mod several;
mod stages;
pub(crate) mod text;

use maud::html;

use crate::bench::result::{BenchResult, Kind};

pub use screen::{columns, screen};
pub use several::{Drive, drives, html_of_several, screen_of_several};
pub use stages::{WHOLE as WHOLE_PATH, slowest};
pub use text::{block_size, in_unit, milliseconds, rate, seconds, share, size, spread};

/// The whole page.
pub fn html(result: &BenchResult) -> String {
    let title = format!("{}: {}", name(result.kind), subject(result));
    let body = html! {
        (page::top(result))
        (page::banners(result))
        @match result.kind {
            Kind::Disk => { (disk::tiles(result)) }
            _ => { (stages::tiles(result)) }
        }
        (stages::section(result))
        (disk::sections(result))
        (machine::sections(result))
    };
    page::whole(&title, &body)
}

/// The name of a benchmark.
fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Disk => "Disk benchmark",
        Kind::Memory => "Memory benchmark",
        Kind::Ring => "Ring benchmark",
        Kind::Net => "Network benchmark",
        Kind::All => "Benchmark of the whole path",
    }
}

/// The subject: its targets, or the host.
fn subject(result: &BenchResult) -> String {
    let paths: Vec<String> =
        result.targets.iter().map(|target| text::short_path(&target.path)).collect();
    match paths.as_slice() {
        [] => result.environment.host.clone(),
        [first, second, third, rest @ ..] if !rest.is_empty() => {
            format!("{first}, {second}, {third} and {} more", rest.len())
        }
        few => few.join(", "),
    }
}

#[cfg(test)]
mod tests;
