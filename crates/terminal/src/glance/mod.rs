//! A short summary of a recording: completeness, problems, and the next step.
//!
//! ```text
//! LOST 22 of 100 032 frames (0.02 %) in 2 of 8 streams: lost before they reached this host
//! test_one sealed, 803 MB in 8 streams, 7.8 s from 2026-11-24 13:11:36 UTC
//!
//!   46221  LOST 12 of 12 504 frames (0.10 %): lost before they reached this host
//!          missing 7–10 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
//!   46223  LOST 10 of 12 504 frames (0.08 %): lost before they reached this host
//!          missing 7–8 at 13:11:36.004, 983 at 13:11:36.614, and 4 gaps more
//!   6 streams complete: 46220, 46222, 46224–46227, 12 504 frames each
//!   unexplained: 22 frames were lost before this host, and no counter here accounts for them
//!   all 8 streams: began 1.3 s after arming, ended 2.8 s before the limit
//!   recorder: at most 3 of 130 blocks in use, longest write 9.5 ms
//!   next: check the sender and the network at these times; `fullbore info test_one --full` lists all gaps
//! ```
//!
//! Streams that are not complete come first, the worst of them at the top. Everything that is the same for several
//! streams is printed once. The summary fits one screen; `info --full` prints the rest.

mod facts;
mod names;
mod paper;
mod streams;

use fullbore_core::account::Account;
use fullbore_core::completeness::{Completeness, Status, seconds};
use fullbore_core::manifest::{Manifest, State};
use fullbore_core::units::ByteSize;
use fullbore_time::Tai;

pub use names::ranges;
pub use paper::{Paper, Tone};

use crate::output::count;

/// The most entries of a list of streams.
pub const NAMES: usize = 8;

/// A stream with its account, and the times of its frames if known.
pub struct Stream<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its balance.
    pub account: &'a Account,
    /// The time of a frame by its index.
    pub time_of: Box<dyn Fn(i64) -> Option<Tai> + 'a>,
}

/// A finished scan.
pub struct Glance<'a> {
    /// The manifest of the scan.
    pub manifest: &'a Manifest,
    /// The completeness.
    pub completeness: &'a Completeness,
    /// The blocks that are missing now, in words, if there are any: they precede the completeness.
    pub missing: Option<String>,
    /// The streams with accounts, in the order of the manifest.
    pub streams: Vec<Stream<'a>>,
}

impl Glance<'_> {
    /// The complete text. The caller's facts in `more` precede those of the recorder.
    pub fn text(&self, paper: Paper, more: &[String]) -> String {
        let mut head = match &self.missing {
            None => headline(paper, self.completeness, &self.scan()),
            Some(missing) => {
                harmed(paper, missing, Tone::Bad, &self.completeness.headline, &self.scan())
            }
        };
        let mut tail: Vec<String> = Vec::new();
        tail.extend(paper.fact(&self.completeness.explanation));
        let facts = facts::shared(&self.streams).into_iter().chain(more.iter().cloned());
        let facts = facts.chain(facts::recorder(&self.streams));
        tail.extend(facts.flat_map(|fact| paper.fact(&fact)));
        tail.extend(
            facts::high_water(&self.streams, paper.columns).map(|line| format!("  {line}")),
        );
        tail.extend(paper.hanging("  next: ", &self.advice(), Tone::Plain));
        let room = paper.lines.saturating_sub(head.len() + tail.len() + 3);
        let streams = streams::lines(self, paper, room);
        // An empty line after the problems.
        if streams.iter().any(|line| line.is_wrong) {
            head.push(String::new());
        }
        let streams = streams.into_iter().map(|line| line.text);
        head.into_iter().chain(streams).chain(tail).map(|line| line + "\n").collect()
    }

    /// The scan on one line: name, state, size, and time.
    fn scan(&self) -> String {
        let Self { manifest, completeness, .. } = self;
        let end = match manifest.state {
            State::Aborted if completeness.lost > 0 => "aborted",
            State::Aborted => "aborted, no received data lost",
            State::Recording if manifest.copied.is_some() => "not sealed, an incomplete copy",
            State::Recording => "not sealed",
            State::Recovered => "recovered",
            State::Sealed => "sealed",
        };
        let mut text = format!("{} {end}, {}", manifest.scan, ByteSize(manifest.bytes()));
        if let Some(followed) = manifest.redundancy.and_then(|it| it.followed) {
            let (parity, factor) = (ByteSize(followed.bytes), followed.factor(manifest.bytes()));
            text += &format!(" and {parity} of parity ({factor:.2}×)");
        }
        // A stream whose account is gone is a stream of the scan, too.
        text += &match manifest.streams.as_slice() {
            [only] => format!(" in stream {}", only.name),
            streams => format!(" in {}", count(streams.len(), "stream")),
        };
        if let Some(covered) = completeness.covered {
            let lasts = seconds(covered.to.since(covered.from).max(0));
            let known = completeness.headline.contains(&lasts);
            text += &if known { String::new() } else { format!(", {lasts}") };
            text += &format!(" from {} UTC", second(covered.from));
        }
        text
    }

    /// The next step.
    fn advice(&self) -> String {
        let scan = &self.manifest.scan;
        // A container or a file has no identity, and no store in which other commands find the scan.
        if let Some(file) = self.manifest.members.first() {
            if file.uuid.is_nil() {
                let path = file.path.display();
                return format!("the attributes of {path} have the account and all gaps");
            }
            if file.is_plain() {
                return "`--json` prints the whole account, with every gap".to_owned();
            }
        }
        let full = format!("`fullbore info {scan} --full`");
        let sum = |term: fn(&Account) -> u64| self.streams.iter().map(|it| term(it.account)).sum();
        let (missing, overrun): (u64, u64) =
            (sum(|it| it.terms.missing), sum(|it| it.terms.overrun));
        let never_came = self.streams.iter().any(|it| it.account.never_came());
        if let Some(copied) = self.manifest.incomplete_copy() {
            return format!("`fullbore send` on {} continues the copy", copied.host);
        }
        if self.manifest.state == State::Recording {
            return format!("`fullbore recover {scan}` seals it");
        }
        match self.completeness.status {
            Status::Complete | Status::Unknown => {
                format!("`fullbore verify {scan}` reads it back; {full} prints every detail")
            }
            _ if overrun > 0 && self.manifest.members.iter().any(|it| it.failure.is_some()) => {
                format!("replace or empty the members that failed; {full} lists all gaps")
            }
            _ if overrun > 0
                && self.manifest.state == State::Aborted
                && !facts::was_full(&self.streams) =>
            {
                format!("stop once (Ctrl-C) to keep all received data; {full} lists all gaps")
            }
            _ if overrun > 0 => format!(
                "make the disks keep up (`fullbore bench disk` measures them); {full} lists all gaps"
            ),
            _ if missing > 0 && facts::counters_moved(&self.streams) => {
                format!("this host dropped packets: {full} shows which counters moved and all gaps")
            }
            _ if missing > 0 => {
                format!("check the sender and the network at these times; {full} lists all gaps")
            }
            _ if never_came => {
                format!("check the sender's address, port and format; {full} prints every detail")
            }
            _ => format!("{full} prints every detail"),
        }
    }
}

/// The headline in colour, with the scan after or below it.
pub fn headline(paper: Paper, completeness: &Completeness, scan: &str) -> Vec<String> {
    titled(paper, &completeness.headline, tone(completeness), scan)
}

/// A first line about the state of stored data that is not as it was recorded, and the completeness below it.
pub fn harmed(paper: Paper, title: &str, tone: Tone, recorded: &str, scan: &str) -> Vec<String> {
    let mut head = titled(paper, title, tone, scan);
    head.extend(paper.hanging("  recorded as: ", recorded, Tone::Plain));
    head
}

/// The headline in colour, as it is printed on standard output.
pub fn coloured(completeness: &Completeness) -> String {
    Paper::of_stdout().styled(&completeness.headline, tone(completeness))
}

/// Green: complete. Red: frames are lost, or nothing was recorded. Yellow: incomplete, or unknown.
fn tone(completeness: &Completeness) -> Tone {
    let nothing = completeness.recorded == 0;
    match completeness.status {
        Status::Complete => Tone::Good,
        Status::Lost => Tone::Bad,
        Status::Incomplete if nothing => Tone::Bad,
        Status::Incomplete | Status::Unknown => Tone::Doubt,
    }
}

/// A highlighted first line, with the scan after or below it.
pub fn titled(paper: Paper, title: &str, tone: Tone, scan: &str) -> Vec<String> {
    const APART: &str = "   ";
    let together = [title, APART, scan].iter().map(|it| it.chars().count()).sum::<usize>();
    if together <= paper.columns {
        return vec![format!("{}{APART}{scan}", paper.styled(title, tone))];
    }
    let mut lines = paper.hanging("", title, tone);
    lines.extend(paper.hanging("", scan, Tone::Plain));
    lines
}

/// Lines of streams with their texts: streams with equal texts share a line, in the order of the first of each.
pub fn folded(told: &[(&str, String)]) -> Vec<String> {
    let mut alike: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, text) in told {
        match alike.iter_mut().find(|(other, _)| other == text) {
            Some((_, names)) => names.push(name),
            None => alike.push((text, vec![name])),
        }
    }
    let line = |(text, names): (&str, Vec<&str>)| match names.len() {
        1 => format!("{}: {text}", names[0]),
        some if some == told.len() => format!("all {some} streams: {text}"),
        some => format!("{some} streams ({}): {text}", ranges(&names, NAMES)),
    };
    alike.into_iter().map(line).collect()
}

/// A time to the second: `2026-11-24 13:11:36`.
fn second(time: Tai) -> String {
    let text = format!("{time:.1}");
    text[..text.len().saturating_sub(3)].replace('T', " ")
}

#[cfg(test)]
mod tests;
