//! The index of a stream by its content: power of each channel in each second, sample statistics, and bursts.
//!
//! ```text
//! fullbore index SCAN          stream ──► sums of 100 ms ──► rows of 1 s, bursts ──► content.json beside the stream
//! fullbore find SCAN QUERY     content.json ──► rows that fulfil the query ──► times and lengths
//! ```
//!
//! It is made after the recording (decision 34).

mod bursts;
mod file;
pub mod query;

use std::sync::Arc;
use std::time::Duration;

use fullbore_formats::samples::SampleLayout;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_linux::sys::sched;
use fullbore_store::reader::{Scan, StoredStream};

pub use self::bursts::{Burst, MOST_BURSTS};
pub use self::file::{CONTENT_FILE, Content, ContentError, ContentLine};
use crate::analysis::Analysis;
use crate::levels;
use crate::plan::{FEWEST_CHANNELS, LineId, Plan, Wanted};
use crate::request::cores;
use crate::source::{Error, Input, Range};
use crate::window::Window;

/// The time in which bursts are looked for.
const FINE: Duration = Duration::from_millis(100);
/// Fine bins of a row.
const FINE_OF_ROW: u64 = 10;
/// The most channels of a plan: half the samples of a segment of real samples.
const LONGEST: usize = 512;

/// Lets every other program use processors and disks before the calling thread, and before the threads that it starts.
pub fn yield_to_others() {
    // A refusal leaves the usual priority, with which the work is done as well.
    let _ = sched::be_nice(19);
    let _ = sched::use_disks_last();
}

/// Makes the index of a stream. A burst is power above `threshold` times the median of its channel.
pub fn index(
    scan: &Scan,
    stream: &StoredStream,
    threshold: f64,
    stop: &StopHandle,
) -> Result<Content, Error> {
    let input = Input::stored(scan, stream, None, Range::default())?;
    let analysis = input.analyse_by(&|layout| Arc::new(plan(layout)), cores(), stop)?;
    Ok(content(&analysis, scan, stream, threshold))
}

/// The plan for samples of a layout. No transform is wanted, so segments are only portions: the longest that fit a fine
/// bin a whole number of times, so that each second has its own samples. If none does, a segment is counted where it
/// begins.
fn plan(layout: &SampleLayout) -> Plan {
    // Samples of more than 8 bits have no levels to count.
    let levels = layout.encoding.code.bits() <= 8;
    let wanted = Wanted { power: true, levels, ..Wanted::default() };
    let plan = |channels| Plan { channels, window: Window::Rectangular, bin: Some(FINE), wanted };
    let all = || (FEWEST_CHANNELS..=LONGEST).rev().step_by(8).map(plan);
    let fits = all().find(|plan| plan.bin_is_whole(layout));
    let fits = fits.or_else(|| all().find(|plan| plan.check(layout).is_ok()));
    fits.unwrap_or_else(|| plan(FEWEST_CHANNELS))
}

fn content(of: &Analysis, scan: &Scan, stream: &StoredStream, threshold: f64) -> Content {
    let rows = of.bins().last().map_or(0, |last| (last / FINE_OF_ROW + 1) as usize);
    let lines: Vec<ContentLine> =
        of.lines().into_iter().map(|line| content_line(of, line, rows)).collect();
    let mut bursts = Vec::new();
    for line in of.lines() {
        let fine = of.bins().into_iter().filter_map(|bin| Some((bin, of.power(line, bin)?)));
        let found = bursts::find(&fine.collect::<Vec<_>>(), threshold);
        bursts.extend(found.into_iter().map(|(first, count, ratio)| Burst {
            thread: line.thread.unwrap_or(0),
            channel: line.channel,
            begins_s: first as f64 * FINE.as_secs_f64(),
            seconds: count as f64 * FINE.as_secs_f64(),
            ratio,
        }));
    }
    bursts.sort_by(|one, other| one.begins_s.total_cmp(&other.begins_s));
    let burst_count = bursts.len() as u64;
    bursts.truncate(MOST_BURSTS);
    Content {
        version: file::VERSION,
        scan_uuid: scan.manifest.uuid,
        scan: of.name.split('/').next().unwrap_or_default().to_owned(),
        stream: stream.name.clone(),
        samples: (*of.layout).clone(),
        start: of.start,
        full_scale: crate::analysis::full_scale(of.layout.encoding.code),
        rows,
        lines,
        burst_threshold: threshold,
        burst_count,
        bursts,
        lost: of.losses.len() as u64,
    }
}

/// The rows of a line: the mean square of the samples in each second, and the share of them that is absent.
fn content_line(of: &Analysis, line: LineId, rows: usize) -> ContentLine {
    let (mut squares, mut values) = (vec![0.0; rows], vec![0u64; rows]);
    for ((bin, thread), sums) in &of.sums.bins {
        if Some(*thread) == line.thread {
            let row = (bin / FINE_OF_ROW) as usize;
            squares[row] += sums.lines[line.channel].squares;
            values[row] += sums.lines[line.channel].values;
        }
    }
    let parts = f64::from(of.layout.encoding.parts());
    let rate = of.layout.sample_rate.map_or(1.0, |rate| rate.hertz());
    let power = squares.iter().zip(&values);
    let power = power
        .map(|(squares, values)| (*values > 0).then(|| (squares / *values as f64 * parts) as f32));
    let present = values.iter().map(|values| *values as f64 / parts / rate);
    let absent = present.map(|present| ((1.0 - present).max(0.0) * 1e6).round() as f32 / 1e6);
    let whole = of.whole(line);
    let all = whole.values.max(1) as f64;
    let mean = whole.sum / all;
    let row = of.sums.levels.get(&line.thread.unwrap_or(0)).and_then(|rows| rows.get(line.channel));
    let order = levels::order(of.layout.encoding);
    ContentLine {
        thread: line.thread.unwrap_or(0),
        channel: line.channel,
        name: of.line_name(line),
        power: power.collect(),
        absent: absent.collect(),
        mean,
        deviation: (whole.squares / all - mean * mean).max(0.0).sqrt(),
        levels: row.map_or_else(Vec::new, |row| order.into_iter().map(|code| row[code]).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_a_whole_number_of_segments_where_one_fits() {
        let channels = |encoding: &str, rate: &str| {
            let sample_rate = Some(rate.parse().unwrap());
            let samples = SampleLayout::new(encoding.parse().unwrap(), 1);
            let layout = SampleLayout { sample_rate, ..samples };
            let plan = plan(&layout);
            (plan.channels, plan.bin_is_whole(&layout), plan.check(&layout).is_ok())
        };
        assert_eq!(channels("ro2", "32MHz"), (512, true, true));
        assert_eq!(channels("ro8", "1MHz"), (400, true, true));
        assert_eq!(channels("ri16_le", "1MHz"), (400, true, true));
        assert_eq!(channels("ro8", "160"), (8, true, true));
        // No segment fits, or a bin is shorter than the shortest one.
        assert_eq!(channels("ro8", "44100"), (512, false, true));
        assert_eq!(channels("ro8", "1000"), (48, false, true));
        assert_eq!(channels("ro8", "100"), (8, false, false));
    }
}
