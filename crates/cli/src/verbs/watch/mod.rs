//! `fullbore watch`: shows the newest data of a source or of a scan: headers, rate, sample statistics.

mod scan;
mod source;
mod view;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args as ClapArgs;
use fullbore_core::device::BytesStream;
use fullbore_core::units::ByteSize;

pub use self::source::recorded_nowhere;
use self::view::View;
use crate::output::{self, Output};
use crate::store_arg::StoreArg;

/// Show what a stream carries now: its headers, its rate, and statistics of its samples.
///
///   fullbore watch 'udp://0.0.0.0:46220?format=vdif'   a source; nothing is stored
///   fullbore watch r1234_no0001                        a scan, also a live one
///   fullbore watch r1234_no0001/46220 --looks 1        one stream, once
///
/// Every second, watch takes the newest block of each stream. It skips the blocks between, and says how many. So it
/// can neither slow a recording nor lose anything of it. For VDIF it shows station, threads, channels, the time in
/// the newest frame, and for each thread the mean, the deviation and the level counts of the samples. With two bits, a
/// well set receiver has about 16, 34, 34 and 16 % of its samples at the four levels. For a PandA it shows the newest
/// value of each column, and for other data the statistics of the bytes.
///
/// A scan that is recorded is read from its disks, so it can be watched from another process. A source is opened like
/// for `record`: no other program can have its port at the same time.
///
/// Exit codes: 0 something was seen; 1 nothing arrived; 2 it could not be watched.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// A scan, a stream of a scan (SESSION_SCAN/STREAM), or sources.
    #[arg(required = true, value_name = "SCAN|SOURCE")]
    what: Vec<String>,
    #[command(flatten)]
    store: StoreArg,
    /// Time between two looks.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::verbs::sending::duration)]
    every: Duration,
    /// End after this many looks [default: at Ctrl-C, or at the end of the scan].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    looks: Option<u64>,
    /// For sources: block memory [default: 256 MB]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<ByteSize>,
}

/// True if a text names a source.
pub fn is_source(text: &str) -> bool {
    ["udp:", "panda:"].iter().any(|it| text.starts_with(it)) || BytesStream::is_meant(text)
}

/// Runs the command.
pub fn run(args: &Args, output: Output) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(!args.every.is_zero(), "--every is zero");
    let sources = args.what.iter().filter(|text| is_source(text)).count();
    anyhow::ensure!(
        sources == args.what.len() || (sources == 0 && args.what.len() == 1),
        "watch takes one scan, or any number of sources"
    );
    let mut pages = Pages::new(output);
    match sources {
        0 => {
            anyhow::ensure!(args.buffer.is_none(), "--buffer: it is for sources");
            scan::watch(args, &mut pages)?;
        }
        _ => {
            anyhow::ensure!(args.store.store.is_empty(), "--store: it is for scans");
            source::watch(args, &mut pages)?;
        }
    }
    Ok(ExitCode::from(if pages.seen { output::GOOD } else { output::FOUND }))
}

/// The output: the views of each look, in place on a terminal.
struct Pages {
    output: Output,
    in_place: bool,
    /// Lines of the page on the terminal.
    lines: usize,
    /// True if any stream was seen.
    seen: bool,
}

impl Pages {
    fn new(output: Output) -> Self {
        let in_place = io::stdout().is_terminal() && !output.json;
        Self { output, in_place, lines: 0, seen: false }
    }

    /// Shows the views of one look.
    fn show(&mut self, views: &[View]) -> anyhow::Result<()> {
        self.seen |= !views.is_empty();
        if self.output.json {
            for view in views {
                self.output.event(view);
            }
            return Ok(());
        }
        let mut page: String = views.iter().map(View::text).collect();
        if views.is_empty() {
            page = "nothing has arrived\n".to_owned();
        }
        let above = match self.in_place && self.lines > 0 {
            true => format!("\x1b[{}F\x1b[J", self.lines),
            false => String::new(),
        };
        self.lines = page.lines().count();
        output::print(&(above + &page))
    }
}
