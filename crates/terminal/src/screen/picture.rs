//! The live table of a running recording: input, output, and remaining time and space.
//!
//! ```text
//! r1234_no0001  12 s  nothing lost so far, 614 MB (590 MB durable), 28 s left, 1.20 TB free, full in 6h 31m
//! stream        rate  frames  missing  overrun  damaged  other  high water
//! 46221       silent       0        0        0        0      0           -
//! 46220   205 Mbit/s   38400        0        0        0      0        3/64
//! all 2   205 Mbit/s   38400        0        0        0      0        3/64
//!
//! member         rate  backlog     free  longest write
//! /data/0  102 Mbit/s  4.19 MB   600 GB        12.3 ms
//! /data/1  102 Mbit/s      0 B   600 GB         9.8 ms
//! all 2    205 Mbit/s  4.19 MB  1.20 TB        12.3 ms
//! ```
//!
//! The table fits the terminal. Rows with problems come first. If not all rows fit, the sum below them includes the
//! hidden ones. If not all columns fit, those that are zero everywhere are left out. `other` is late and foreign
//! together while both are zero; then each has a column of its own.

use console::{Style, truncate_str};
use fullbore_core::completeness::SoFar;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::recorder::{MemberState, Progress, StreamState};

use super::sheet::plain;

/// The lines of the picture, at most `height` lines of at most `width` columns.
pub fn picture(progress: &Progress, width: usize, height: usize) -> Vec<String> {
    let head = headline(progress, width);
    let mut streams = streams(&progress.streams);
    let mut members = members(&progress.members, progress.free_bytes);
    // Both tables have a heading.
    let room = height.saturating_sub(head.len() + 2);
    let rows = streams.rows() + members.rows();
    let apart = rows < room;
    if rows > room {
        let least = (room / 3).max(1);
        let for_members = room.saturating_sub(streams.rows()).max(least).min(members.rows());
        members.shorten(for_members);
        streams.shorten(room.saturating_sub(for_members));
    }
    let mut lines: Vec<String> = head;
    lines.extend(streams.lines(width));
    lines.extend(apart.then(String::new));
    lines.extend(members.lines(width));
    lines.truncate(height);
    lines
}

/// The headline: the scan, its durable size, and the time and space left; on two lines if necessary.
fn headline(progress: &Progress, width: usize) -> Vec<String> {
    let sum = |of: fn(&StreamState) -> u64| progress.streams.iter().map(of).sum();
    let so_far = SoFar {
        lost: sum(|it| it.missing + it.overrun + it.damaged + it.late),
        not_kept: sum(not_kept),
        not_frames: sum(|it| it.foreign),
        left_out: sum(|it| if it.silent { it.excluded } else { 0 }),
    };
    let done = format!(
        "{}  {:.0} s  {so_far}, {} ({} durable)",
        progress.scan,
        progress.seconds,
        ByteSize(progress.bytes),
        ByteSize(progress.durable_bytes)
    );
    let mut left = vec![format!("{} free", ByteSize(progress.free_bytes))];
    if let Some(seconds) = progress.seconds_left {
        left.insert(0, format!("{:.0} s left", seconds.max(0.0)));
    }
    left.extend(progress.seconds_until_full.map(|seconds| format!("full in {}", span(seconds))));
    let left = left.join(", ");
    let lines = match done.chars().count() + 2 + left.chars().count() <= width {
        true => vec![format!("{done}, {left}")],
        false => vec![done, left],
    };
    let bold = Style::new().for_stderr().bold();
    lines.iter().map(|line| bold.apply_to(truncate_str(line, width, "…")).to_string()).collect()
}

/// A duration in the usual form: to the second if it is short, else to the minute.
fn span(seconds: f64) -> String {
    let step = if seconds < 120.0 { 1 } else { 60 };
    let seconds = seconds.max(0.0) as u64 / step * step;
    humantime::format_duration(std::time::Duration::from_secs(seconds)).to_string()
}

/// The style of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tone {
    Plain,
    Quiet,
    Loss,
    Failure,
}

/// A cell and its style.
type Cell = (String, Tone);

/// A column: its name, its cells, and a flag that allows leaving it out while it is empty.
struct Column {
    name: &'static str,
    cells: Vec<Cell>,
    spare: bool,
}

impl Column {
    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|(text, _)| text.chars().count());
        cells.chain([self.name.len()]).max().unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.cells.iter().all(|(text, _)| text == "0")
    }
}

/// A table with the sum below its rows, if there are several.
struct Table {
    /// The columns; the first holds names.
    columns: Vec<Column>,
    /// Flags of rows with problems.
    amiss: Vec<bool>,
    /// The sum, a cell for each column.
    sum: Vec<String>,
}

impl Table {
    fn new(columns: Vec<Column>, amiss: Vec<bool>, sum: Vec<String>) -> Self {
        let mut table = Self { columns, amiss, sum };
        if table.amiss.len() > 1 {
            table.sum[0] = format!("all {}", table.amiss.len());
        } else {
            table.sum.clear();
        }
        table
    }

    /// Lines below the heading.
    fn rows(&self) -> usize {
        self.amiss.len() + usize::from(!self.sum.is_empty())
    }

    /// Reduces the table to this number of lines below the heading, one of which is the sum.
    fn shorten(&mut self, rows: usize) {
        if self.rows() <= rows {
            return;
        }
        let (all, shown) = (self.amiss.len(), rows.saturating_sub(1));
        let mut order: Vec<usize> = (0..all).collect();
        order.sort_by_key(|row| !self.amiss[*row]);
        let mut keep = vec![false; all];
        order.iter().take(shown).for_each(|row| keep[*row] = true);
        for column in &mut self.columns {
            let mut kept = keep.iter();
            column.cells.retain(|_| *kept.next().expect("a row for each cell"));
        }
        if let Some(name) = self.sum.first_mut() {
            *name = format!("all {all}, {shown} shown");
        }
    }

    /// Heading, rows and sum as text of this width.
    fn lines(mut self, width: usize) -> Vec<String> {
        for (column, cell) in self.columns.iter_mut().zip(std::mem::take(&mut self.sum)) {
            column.cells.push((cell, Tone::Quiet));
        }
        let gap = self.fit(width);
        let heading = self.line(gap, width, |column| (column.name, Tone::Quiet));
        let row = |row: usize| {
            self.line(gap, width, |column| {
                let (text, tone) = &column.cells[row];
                (text.as_str(), *tone)
            })
        };
        std::iter::once(heading).chain((0..self.columns[0].cells.len()).map(row)).collect()
    }

    /// Leaves out columns, shortens names, and reduces the distance of columns until all fit. Returns the blanks
    /// between columns.
    fn fit(&mut self, width: usize) -> usize {
        let total = |columns: &[Column], gap: usize| {
            columns.iter().map(Column::width).sum::<usize>() + gap * (columns.len() - 1)
        };
        while total(&self.columns, 2) > width {
            let spare = |column: &Column| column.spare && column.is_empty();
            match self.columns.iter().rposition(spare) {
                Some(column) => drop(self.columns.remove(column)),
                None => break,
            }
        }
        let names = self.columns[0].width();
        let least = total(&self.columns, 2) - names.saturating_sub(SHORTEST_NAME);
        let gap = if least > width { 1 } else { 2 };
        let over = total(&self.columns, gap).saturating_sub(width);
        let names = names.saturating_sub(over).max(SHORTEST_NAME);
        for (name, _) in &mut self.columns[0].cells {
            *name = shortened(name, names);
        }
        gap
    }

    /// A line with names left-aligned, numbers right-aligned.
    fn line(&self, gap: usize, width: usize, cell: impl Fn(&Column) -> (&str, Tone)) -> String {
        let mut line = String::new();
        for (number, column) in self.columns.iter().enumerate() {
            let (wide, (text, tone)) = (column.width(), cell(column));
            let padded = match number {
                0 => format!("{text:<wide$}"),
                _ => format!("{:gap$}{text:>wide$}", ""),
            };
            line += &styled(&padded, tone);
        }
        truncate_str(&line, width, "…").into_owned()
    }
}

/// The shortest width of names.
const SHORTEST_NAME: usize = 8;

/// Shortens a name at its beginning, because its end is more specific: `…/disk3`.
fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let end: String = name.chars().skip(length + 1 - width.max(1)).collect();
    format!("…{end}")
}

fn styled(text: &str, tone: Tone) -> String {
    let style = Style::new().for_stderr();
    let style = match tone {
        Tone::Plain => return text.to_owned(),
        Tone::Quiet => style.dim(),
        Tone::Loss => style.yellow(),
        Tone::Failure => style.red().bold(),
    };
    style.apply_to(text).to_string()
}

/// A counter column of the streams' table: name, value, loss flag, and a flag that allows leaving it out.
type Counter = (&'static str, fn(&StreamState) -> u64, bool, bool);

const COUNTERS: [Counter; 4] = [
    ("frames", |stream| stream.frames, false, false),
    ("missing", |stream| stream.missing, true, false),
    ("overrun", |stream| stream.overrun, true, false),
    ("damaged", |stream| stream.damaged, true, true),
];

/// Counters that are usually zero.
const RARE: [Counter; 3] = [
    ("late", |stream| stream.late, true, true),
    ("foreign", |stream| stream.foreign, true, true),
    ("not kept", not_kept, true, true),
];

/// Whole frames that arrived and are in no recording.
fn not_kept(stream: &StreamState) -> u64 {
    stream.out_of_window + stream.unrecorded
}

/// The column that the two share while both are zero.
const OTHER: Counter =
    ("other", |stream| stream.late + stream.foreign + not_kept(stream), true, true);

/// The columns of counters.
fn counters(streams: &[StreamState]) -> Vec<Counter> {
    let (_, other, ..) = OTHER;
    match streams.iter().any(|stream| other(stream) > 0) {
        true => [&COUNTERS[..], &RARE[..]].concat(),
        false => [&COUNTERS[..], &[OTHER]].concat(),
    }
}

/// True if a stream has a problem.
fn is_amiss(stream: &StreamState) -> bool {
    let StreamState { silent, missing, overrun, damaged, late, foreign, .. } = *stream;
    silent || missing + overrun + damaged + late + foreign + not_kept(stream) > 0
}

fn streams(streams: &[StreamState]) -> Table {
    let mut sorted: Vec<StreamState> = streams.to_vec();
    sorted.sort_by_key(|stream| !is_amiss(stream));
    let streams = &sorted;
    let column = |name, cell: &dyn Fn(&StreamState) -> Cell| Column {
        name,
        cells: streams.iter().map(cell).collect(),
        spare: false,
    };
    let of_silent = |stream: &StreamState| if stream.silent { Tone::Quiet } else { Tone::Plain };
    let mut columns = vec![
        column("stream", &|stream| (stream.name.to_string(), of_silent(stream))),
        column("rate", &|stream| match stream.silent {
            true if stream.foreign > 0 => ("no frames".to_owned(), Tone::Loss),
            true if stream.excluded > 0 => ("left out".to_owned(), Tone::Loss),
            true => ("silent".to_owned(), Tone::Loss),
            false => (ByteRate(stream.rate).to_string(), Tone::Plain),
        }),
    ];
    let mut sum = vec![String::new(), ByteRate(streams.iter().map(|it| it.rate).sum()).to_string()];
    for (name, of, loss, spare) in counters(streams) {
        let cell = |stream: &StreamState| {
            let tone = if loss && of(stream) > 0 { Tone::Loss } else { of_silent(stream) };
            (of(stream).to_string(), tone)
        };
        columns.push(Column { spare, ..column(name, &cell) });
        sum.push(streams.iter().map(of).sum::<u64>().to_string());
    }
    let marks = |(used, blocks): (u64, u64)| match blocks {
        0 => "-".to_owned(),
        _ => format!("{used}/{blocks}"),
    };
    columns.push(column("high water", &|stream| {
        let full = stream.high_water.1 > 0 && stream.high_water.0 >= stream.high_water.1;
        let tone = if full { Tone::Loss } else { of_silent(stream) };
        (marks(stream.high_water), tone)
    }));
    let fullest = streams.iter().map(|stream| stream.high_water);
    let fullest = fullest.max_by_key(|(used, blocks)| used * 1000 / (*blocks).max(1));
    sum.push(marks(fullest.unwrap_or_default()));
    Table::new(columns, streams.iter().map(is_amiss).collect(), sum)
}

/// The table of members, which share this free space.
fn members(members: &[MemberState], free: u64) -> Table {
    let column = |name, cell: &dyn Fn(&MemberState) -> Cell| Column {
        name,
        cells: members.iter().map(cell).collect(),
        spare: false,
    };
    let size = |bytes: u64| ByteSize(bytes).to_string();
    let time = |ns: u64| format!("{:.1} ms", ns as f64 / 1e6);
    let columns = vec![
        column("member", &|member| (plain(&member.path.display().to_string()), Tone::Plain)),
        column("rate", &|member| match member.failure {
            Some(_) => ("FAILED".to_owned(), Tone::Failure),
            None => (ByteRate(member.rate).to_string(), Tone::Plain),
        }),
        column("backlog", &|member| (size(member.backlog_bytes), Tone::Plain)),
        column("free", &|member| (size(member.free_bytes), Tone::Plain)),
        column("longest write", &|member| (time(member.longest_write_ns), Tone::Plain)),
    ];
    let taking = || members.iter().filter(|member| member.failure.is_none());
    let sum = vec![
        String::new(),
        ByteRate(taking().map(|member| member.rate).sum()).to_string(),
        size(members.iter().map(|member| member.backlog_bytes).sum()),
        size(free),
        time(members.iter().map(|member| member.longest_write_ns).max().unwrap_or(0)),
    ];
    let amiss = members.iter().map(|member| member.failure.is_some()).collect();
    Table::new(columns, amiss, sum)
}

#[cfg(test)]
pub(super) mod tests {
    use fullbore_engine::recorder::Phase;

    use super::*;

    pub fn progress(seconds: f64, streams: &[StreamState], members: &[MemberState]) -> Progress {
        Progress {
            phase: Phase::Recording,
            scan: "r1234_no0001".parse().unwrap(),
            seconds,
            bytes: 614_000_000,
            durable_bytes: 590_000_000,
            streams: streams.to_vec(),
            members: members.to_vec(),
            free_bytes: members.iter().map(|member| member.free_bytes).sum(),
            seconds_left: Some(28.2),
            seconds_until_full: Some(23_465.0),
        }
    }

    fn stream(number: usize) -> StreamState {
        StreamState {
            name: (46_220 + number).to_string().parse().unwrap(),
            silent: false,
            frames: 38_400,
            bytes: 308_428_800,
            rate: 25_700_000,
            missing: 0,
            overrun: 0,
            damaged: 0,
            late: 0,
            foreign: 0,
            out_of_window: 0,
            unrecorded: 0,
            excluded: 0,
            high_water: (3, 64),
            used_blocks: 1,
            durable_bytes: 0,
            held_seconds: 0.0,
        }
    }

    fn silent(number: usize) -> StreamState {
        let (rate, frames, high_water) = (0, 0, (0, 0));
        StreamState { silent: true, rate, frames, high_water, ..stream(number) }
    }

    fn member(path: &str) -> MemberState {
        MemberState {
            span: None,
            path: path.into(),
            buffered: false,
            written_bytes: 0,
            rate: 12_800_000,
            backlog_bytes: 4_190_000,
            free_bytes: 600_000_000_000,
            longest_write_ns: 12_300_000,
            failure: None,
        }
    }

    fn drawn(streams: &[StreamState], members: &[MemberState], size: (usize, usize)) -> String {
        console::set_colors_enabled_stderr(false);
        let lines = picture(&progress(12.0, streams, members), size.0, size.1);
        assert!(lines.len() <= size.1, "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= size.0), "{lines:#?}");
        lines.join("\n")
    }

    #[test]
    fn everything_that_an_operator_watches_is_in_the_picture() {
        let members = [member("/data/0"), MemberState { backlog_bytes: 0, ..member("/data/1") }];
        let text = drawn(&[stream(0), silent(1)], &members, (80, 23));
        let expected = "\
r1234_no0001  12 s  nothing lost so far, 614 MB (590 MB durable)
28 s left, 1.20 TB free, full in 6h 31m
stream        rate  frames  missing  overrun  damaged  other  high water
46221       silent       0        0        0        0      0           -
46220   206 Mbit/s   38400        0        0        0      0        3/64
all 2   206 Mbit/s   38400        0        0        0      0        3/64

member         rate  backlog     free  longest write
/data/0  102 Mbit/s  4.19 MB   600 GB        12.3 ms
/data/1  102 Mbit/s      0 B   600 GB        12.3 ms
all 2    205 Mbit/s  4.19 MB  1.20 TB        12.3 ms";
        assert_eq!(text, expected);
    }

    #[test]
    fn datagrams_that_are_no_frames_are_told_where_nothing_else_comes() {
        let strange = StreamState { foreign: 65_690, ..silent(0) };
        let text = drawn(&[strange], &[member("/data/0")], (80, 23));
        assert!(text.contains("65 690 datagrams received that are not frames"), "{text}");
        assert!(text.contains("no frames    ") && !text.contains("silent"), "{text}");
    }

    #[test]
    fn what_is_not_recorded_is_told_beside_frames_that_are() {
        let beside = StreamState { foreign: 300, out_of_window: 20, unrecorded: 10, ..stream(0) };
        let text = drawn(&[beside], &[member("/data/0")], (120, 23));
        let told = "30 frames came and were not kept, 300 datagrams received that are not frames";
        assert!(text.contains(told) && !text.contains("nothing lost"), "{text}");
        assert!(text.contains("not kept"), "{text}");
        let left_out = StreamState { excluded: 400, ..silent(0) };
        let text = drawn(&[left_out], &[member("/data/0")], (80, 23));
        assert!(text.contains("400 datagrams came, all left out by the filter"), "{text}");
        assert!(text.contains("left out  ") && !text.contains("silent"), "{text}");
        let filtered = StreamState { excluded: 400, ..stream(0) };
        let text = drawn(&[filtered], &[member("/data/0")], (80, 23));
        assert!(text.contains("nothing lost so far"), "{text}");
    }

    #[test]
    fn members_that_share_a_disk_have_its_room_once() {
        let members = [member("/data/0"), member("/data/1")];
        let shared =
            Progress { free_bytes: 600_000_000_000, ..progress(12.0, &[stream(0)], &members) };
        let text = picture(&shared, 100, 23).join("\n");
        assert!(text.contains("600 GB free") && !text.contains("1.20 TB"), "{text}");
    }

    #[test]
    fn where_there_is_no_room_for_all_columns_those_stand_aside_in_which_nothing_happened() {
        let long = StreamState { frames: 9_876_543_210, missing: 1_234_567, ..stream(0) };
        let text = drawn(std::slice::from_ref(&long), &[member("/data/0")], (72, 23));
        assert!(!text.contains("other") && text.contains("high water"), "{text}");
        assert!(text.contains("1234567") && text.contains("9876543210"), "{text}");
        let late = StreamState { foreign: 7, late: 12, ..long };
        let text = drawn(&[late], &[member("/data/0")], (80, 23));
        assert!(text.contains("foreign") && text.contains("late"), "{text}");
        assert!(!text.contains("damaged") && text.contains("3/64"), "{text}");
    }

    #[test]
    fn a_long_name_of_a_member_keeps_its_end() {
        let path =
            "/a/very/long/path/that/leads/to/the/directory/of/the/member/with/the/number/disk7";
        let text = drawn(&[stream(0)], &[member(path)], (80, 23));
        assert!(text.contains("…") && text.contains("number/disk7 ") && text.contains("12.3 ms"));
    }

    #[test]
    fn on_a_low_terminal_what_is_amiss_stands_before_what_is_well() {
        let mut streams: Vec<StreamState> = (0..16).map(stream).collect();
        (streams[11], streams[14].missing) = (silent(11), 5);
        let mut members: Vec<MemberState> = (0..8).map(|n| member(&format!("/data/{n}"))).collect();
        members[6].failure = Some("the disk is full".to_owned());
        for height in [10, 12, 16, 23] {
            let text = drawn(&streams, &members, (80, height));
            for wanted in ["46231", "46234", "FAILED", "all 16, ", "all 8, ", "high water"] {
                assert!(text.contains(wanted), "{height}: no {wanted}\n{text}");
            }
        }
        let text = drawn(&streams, &members, (80, 23));
        assert!(text.find("46231") < text.find("46220"), "{text}");
        assert!(text.find("46220") < text.find("46221"), "{text}");
        let text = drawn(&streams, &members, (80, 40));
        assert!(!text.contains("shown") && text.contains("46235") && text.contains("/data/7"));
    }

    #[test]
    fn sixty_four_streams_fit_a_screen_of_24_lines_and_begin_with_the_lossy_ones() {
        let mut streams: Vec<StreamState> = (0..64).map(stream).collect();
        [5, 17, 60].iter().for_each(|&lossy| streams[lossy].missing = 3);
        let members: Vec<MemberState> = (0..4).map(|n| member(&format!("/data/{n}"))).collect();
        let text = drawn(&streams, &members, (80, 23));
        let names: Vec<&str> = text.lines().skip(3).take(4).map(|line| &line[..5]).collect();
        assert_eq!(names, ["46225", "46237", "46280", "46220"], "{text}");
        assert!(text.contains("all 64, 13 shown") && text.contains("all 4"), "{text}");
    }

    #[test]
    fn no_terminal_is_too_small_to_be_drawn_on() {
        let streams: Vec<StreamState> = (0..16).map(stream).collect();
        let members = [member("/data/0"), member("/data/1")];
        for width in 1..130 {
            for height in 0..30 {
                drawn(&streams, &members, (width, height));
            }
        }
    }

    #[test]
    fn time_is_told_to_the_second_while_it_is_short() {
        assert_eq!(span(59.9), "59s");
        assert_eq!(span(119.0), "1m 59s");
        assert_eq!(span(3725.0), "1h 2m");
        assert_eq!(span(-1.0), "0s");
    }
}
