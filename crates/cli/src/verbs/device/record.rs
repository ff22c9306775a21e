//! `record … --to device:…`: told while it runs, and judged in the end.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use fullbore_core::account::Terms;
use fullbore_core::completeness::Completeness;
use fullbore_core::device::{BytesSource, Direction, Status};
use fullbore_core::endpoint::UdpSource;
use fullbore_core::name::{Name, ScanName};
use fullbore_core::pattern::PatternSource;
use fullbore_core::units::ByteSize;
use fullbore_engine::device::{
    Contents, DeviceInput, Error, FileInput, Limit, PatternInput, Plan, Progress, Recorded, Source,
    Stage, record as run,
};
use fullbore_engine::recorder::Control;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{parse, several};
use crate::hint::{explained, explained_of};
use crate::output::{self, Output};
use crate::signals;

/// What was typed.
pub struct Recording {
    /// The devices.
    pub to: Vec<String>,
    /// The sources.
    pub sources: Vec<String>,
    /// Session and scan, empty if they were not given.
    pub name: (String, String),
    /// The devices that may be overwritten.
    pub overwrite: Vec<PathBuf>,
    /// Whether leftover input is taken and dropped.
    pub flush: bool,
    /// When it ends.
    pub duration: Option<Duration>,
    /// When it ends.
    pub bytes: Option<ByteSize>,
    /// Block memory.
    pub buffer: Option<ByteSize>,
    /// How often data is made durable.
    pub sync: Option<Duration>,
    /// Cores.
    pub cpus: Vec<usize>,
    /// Draw nothing while it runs.
    pub quiet: bool,
}

/// What is told in the end.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Last<'a> {
    /// It is over.
    Ended(&'a Recorded),
    /// It was not begun: the addresses cannot be.
    Refused { status: Status },
}

/// Records.
pub fn record(typed: Recording, output: Output) -> anyhow::Result<ExitCode> {
    if typed.to.len() > 1 {
        return several::record(typed, output);
    }
    let quiet = typed.quiet;
    let plan = plan(typed)?;
    let control = Arc::new(Control::default());
    signals::stop_recording(&control)?;
    let bar = bar(output, quiet);
    let mut tell = |stage: &Stage| told(stage, output, &bar);
    let recorded = run(plan, &control, &mut tell);
    bar.finish_and_clear();
    let recorded = match recorded {
        Ok(recorded) => recorded,
        Err(error) => {
            if let Error::Address { source, .. } = &error
                && output.json
            {
                let status = Status::refused(Direction::Write, source);
                output.tell(&Last::Refused { status }, String::new)?;
            }
            return Err(explained(error));
        }
    };
    output.tell(&Last::Ended(&recorded), || text(&recorded))?;
    Ok(ExitCode::from(judge(&recorded)))
}

fn plan(typed: Recording) -> anyhow::Result<Plan> {
    let end = parse(&typed.to.concat())?;
    ensure!(
        typed.sources.len() == 1,
        "a device takes one stream at a time\n  name a device for each stream with --to, or record all into a store"
    );
    let text = typed.sources[0].clone();
    let scan = name(&typed.name, end.scan.as_ref())?;
    let limit = Limit { duration: typed.duration, bytes: typed.bytes.map(|size| size.0) };
    Ok(Plan {
        source: source(&text)?,
        source_name: text,
        end,
        scan,
        overwrite: typed.overwrite.into_iter().next(),
        limit,
        flush: typed.flush,
        buffer: typed.buffer,
        sync_interval: typed.sync,
        cpus: typed.cpus,
    })
}

/// A plan for each of several devices, with the stream that it takes.
pub(super) fn plans(typed: Recording) -> anyhow::Result<Vec<Plan>> {
    let streams = streams(&typed.sources)?;
    several::paired(streams.len(), typed.to.len())?;
    let ends = typed.to.iter().map(|text| parse(text)).collect::<anyhow::Result<Vec<_>>>()?;
    for named in &typed.overwrite {
        let among = ends.iter().any(|end| end.path == *named);
        ensure!(among, "--overwrite {}: no --to names it", named.display());
    }
    let count = ends.len() as u64;
    let mut cpus = typed.cpus.chunks(2);
    ends.into_iter()
        .zip(streams)
        .map(|(end, (source, source_name))| {
            Ok(Plan {
                source,
                source_name,
                scan: name(&typed.name, end.scan.as_ref())?,
                overwrite: typed.overwrite.iter().find(|named| **named == end.path).cloned(),
                end,
                limit: Limit { duration: typed.duration, bytes: typed.bytes.map(|size| size.0) },
                flush: typed.flush,
                buffer: typed.buffer.map(|all| ByteSize(all.0 / count)),
                sync_interval: typed.sync,
                cpus: cpus.next().unwrap_or_default().to_vec(),
            })
        })
        .collect()
}

/// The streams of sources, each with what it is called: every port of a range is one.
fn streams(sources: &[String]) -> anyhow::Result<Vec<(Source, String)>> {
    let mut streams = Vec::new();
    for text in sources {
        if is_udp(text) {
            for port in UdpSource::parse(text).map_err(|error| explained_of(text, error))? {
                let called = format!("{text} ({})", port.address);
                streams.push((Source::Udp(Box::new(port)), called));
            }
        } else {
            let scheme = text.split(':').next().unwrap_or_default();
            ensure!(
                scheme.eq_ignore_ascii_case("pattern"),
                "{text}: several devices at once take datagrams (udp://…) and patterns (pattern:…)\n  \
                 record other sources onto one device at a time"
            );
            streams.push((source(text)?, text.clone()));
        }
    }
    Ok(streams)
}

fn is_udp(text: &str) -> bool {
    text.split_once(':').is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("udp"))
}

/// The scan's name, from the options or the endpoint; none for bare chunks.
fn name(
    (session, scan): &(String, String),
    named: Option<&ScanName>,
) -> anyhow::Result<Option<ScanName>> {
    let typed = match (session.is_empty(), scan.is_empty()) {
        (true, true) => return Ok(named.cloned()),
        (false, false) => ScanName {
            session: Name::session(session).context("--session")?,
            scan: scan.parse().context("--scan")?,
        },
        _ => anyhow::bail!("--session and --scan go together: they name the scan on the device"),
    };
    ensure!(
        named.is_none_or(|named| *named == typed),
        "--session and --scan say {typed}, and the endpoint another scan"
    );
    Ok(Some(typed))
}

fn source(text: &str) -> anyhow::Result<Source> {
    if is_udp(text) {
        let mut ports = UdpSource::parse(text).map_err(|error| explained_of(text, error))?;
        ensure!(
            ports.len() == 1,
            "{text} is {}, and a device takes one at a time",
            output::count(ports.len(), "stream")
        );
        return Ok(Source::Udp(Box::new(ports.remove(0))));
    }
    let file = |file: std::io::Result<File>, name: &str| -> anyhow::Result<Source> {
        let input = file.and_then(FileInput::new).with_context(|| format!("opening {name}"))?;
        Ok(Source::Input(Box::new(input)))
    };
    match BytesSource::parse(text).map_err(|error| explained_of(text, error))? {
        BytesSource::Standard => {
            let standard = std::io::stdin().as_fd().try_clone_to_owned();
            file(standard.map(File::from), "standard input")
        }
        BytesSource::File(path) => file(File::open(&path), &path.display().to_string()),
        BytesSource::Pattern(PatternSource { pattern, bytes, rate, .. }) => {
            Ok(Source::Input(Box::new(PatternInput::new(pattern, bytes, rate))))
        }
        BytesSource::Device(end) => {
            let contents = Contents::open(&end).and_then(Contents::checked).map_err(explained)?;
            Ok(Source::Input(Box::new(DeviceInput::new(contents))))
        }
    }
}

pub(super) fn bar(output: Output, quiet: bool) -> ProgressBar {
    if quiet || !output.progress() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg}");
    ProgressBar::new_spinner().with_style(style.expect("the template is well-formed"))
}

/// A line of JSON for programs; for people a line that stays, or one that changes.
pub(super) fn told(stage: &Stage, output: Output, bar: &ProgressBar) {
    if output.json {
        // A reader that has gone away does not end a recording.
        let _ = output.tell(stage, String::new);
        return;
    }
    match stage {
        Stage::Armed { device, scan, span, direct, pool_bytes, .. } => {
            let what = scan.as_ref().map_or("bare chunks".to_owned(), ToString::to_string);
            eprintln!(
                "armed {what} on {}: chunks {:#x} to {:#x}, {} of block memory",
                device.display(),
                span.first(),
                span.last(),
                ByteSize(*pool_bytes)
            );
            if !direct {
                eprintln!(
                    "  it takes no direct I/O: writing through the page cache, which costs far more"
                );
            }
        }
        Stage::Warning { text } => bar.suspend(|| eprintln!("warning: {text}")),
        Stage::Progress(progress) => {
            bar.set_message(line(progress));
            bar.tick();
        }
    }
}

fn line(progress: &Progress) -> String {
    let Progress { seconds, bytes, durable_bytes, rate, room_bytes, missing, overrun, .. } =
        progress;
    let mut text = format!(
        "{seconds:.0} s  {}  {}/s  durable {}  room for {}",
        ByteSize(*bytes),
        ByteSize(*rate),
        ByteSize(*durable_bytes),
        ByteSize(*room_bytes)
    );
    if missing + overrun > 0 {
        text += &format!("  missing {missing}, overrun {overrun}");
    }
    text
}

/// Good unless something was found: bytes or frames that came and are not there, none that came, an early end, an
/// abort.
fn judge(recorded: &Recorded) -> u8 {
    if recorded.is_whole() { output::GOOD } else { output::FOUND }
}

pub(super) fn text(recorded: &Recorded) -> String {
    let status = &recorded.status;
    let what =
        recorded.scan.as_ref().map_or("bare chunks".to_owned(), |scan| scan.name.to_string());
    let address = |address: Option<u64>| address.map_or("none".into(), |it| format!("{it:#x}"));
    let mut text = String::new();
    if let Some(account) = &recorded.account {
        let Completeness { headline, explanation, .. } = account.completeness();
        text += &format!("{headline}\n  {explanation}\n");
    }
    text += &format!(
        "{what} on {}: {} in {:.2} s, {}/s\n  status    {}\n  addresses first {}, last {}\n  \
         durable   {}, longest write {:.1} ms, longest sync {:.1} ms\n",
        recorded.device.display(),
        ByteSize(recorded.bytes),
        recorded.seconds,
        ByteSize(recorded.rate),
        super::words(status),
        address(status.address_first),
        address(status.address_last),
        ByteSize(recorded.durable_bytes),
        recorded.longest_write_ns as f64 / 1e6,
        recorded.longest_sync_ns as f64 / 1e6,
    );
    for (bytes, what) in [
        (status.dropped_bytes, "held when it was aborted, and dropped"),
        (status.flushed_bytes, "left in the source, and flushed"),
    ] {
        if bytes > 0 {
            text += &format!("  {} {what}\n", ByteSize(bytes));
        }
    }
    if recorded.full && recorded.scan.is_some() {
        text += "  there was no more room: what came after is not on the device\n";
    }
    if let Some(rate) = recorded.held_up {
        text += &format!("  {rate} were asked for, and the device did not keep up with that\n");
    }
    if recorded.bytes == 0 {
        text += "  nothing came: not one byte was written\n";
    } else if recorded.early {
        text += "  the source ended before all that was asked for had come\n";
    }
    if let Some(failure) = &recorded.failure {
        text += &format!("  {failure}\n");
    }
    if let Some(account) = &recorded.account {
        let Terms { expected, written, missing, overrun, damaged, late } = account.terms;
        text += &format!(
            "  {expected} frames expected, {written} written, {missing} missing, {overrun} overrun, \
             {damaged} damaged, {late} late: {}\n",
            account.verdict
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_is_named_by_options_or_endpoint_and_by_both_only_if_they_agree() {
        let both = |session: &str, scan: &str| (session.to_owned(), scan.to_owned());
        let named: ScanName = "r1_a".parse().unwrap();
        assert_eq!(name(&both("", ""), None).unwrap(), None);
        assert_eq!(name(&both("", ""), Some(&named)).unwrap(), Some(named.clone()));
        assert_eq!(name(&both("r1", "a"), None).unwrap(), Some(named.clone()));
        assert_eq!(name(&both("r1", "a"), Some(&named)).unwrap(), Some(named.clone()));
        assert!(name(&both("r1", "b"), Some(&named)).is_err());
        assert!(name(&both("r1", ""), None).is_err() && name(&both("r_1", "a"), None).is_err());
    }

    #[test]
    fn a_device_takes_one_stream() {
        assert!(matches!(source("pattern:prbs31?bytes=1MiB").unwrap(), Source::Input(_)));
        assert!(matches!(source("udp://127.0.0.1:5000").unwrap(), Source::Udp(_)));
        let several = source("udp://127.0.0.1:5000-5003").err().unwrap().to_string();
        assert!(several.contains("4 streams"), "{several}");
        assert!(source("file:/no/such/file").is_err() && source("panda://host").is_err());
    }
}
