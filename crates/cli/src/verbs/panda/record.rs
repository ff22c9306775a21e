//! `fullbore panda record`: acquisitions of PandAs into HDF5 files, live.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args as ClapArgs};
use fullbore_core::container::{self, Compression, Existing, Hdf5Target};
use fullbore_core::format::panda::forecast::{self, Load};
use fullbore_core::format::panda::{EndReason, PandaSource, Tally};
use fullbore_core::name::Name;
use fullbore_core::units::ByteSize;
use fullbore_engine::panda::live::Files;
use fullbore_engine::panda::record::{Event, Outcome, Plan, Progress, Recorded, record};
use fullbore_engine::panda::several::{self, Happened, Scan};
use fullbore_engine::panda::{Control, Patience};
use fullbore_engine::recorder;
use fullbore_engine::sink::hdf5;
use indicatif::ProgressBar;
use serde::Serialize;

use super::{advice, source};
use crate::hint::{explained, told as told_of};
use crate::output::{self, Output};
use crate::signals;
use crate::verbs::record::told_apart;

/// Record acquisitions of one or more PandAs into HDF5 files that can be read
/// while they grow.
///
/// FILE is one file, or a template: `%d` is the number of the acquisition.
/// Several acquisitions in one file follow one another, and /acquisitions in it
/// says which rows are whose, and what the PandA was set to in each.
///
///   fullbore panda record 172.23.252.201 capture-%d.h5 --num 5 --arm
///   fullbore panda record 172.23.252.201 all.h5 --num 0 --raw
///   fullbore panda record 172.23.252.201 172.23.252.202 scan-%d.h5 --num 5 --arm
///
/// Of several PandAs each has a file of its own, scan-1_panda1.h5 and
/// scan-1_panda2.h5, and scan-1.h5 shows them side by side, a group for each, once
/// each has ended. ?name=sample in a panda:// endpoint gives a PandA another name.
/// No PandA is armed again before all have ended the same acquisition. When one
/// fails, the others end what they have begun, and nothing more is armed.
///
/// Datasets are named as the PandABlocks client names them, one for each column,
/// scaled to doubles unless --raw leaves them as integers with scale and offset
/// beside them. Samples that cannot be trusted after an overrun or a lost
/// connection are never written; the account says how many. An acquisition that
/// goes on after an overrun is joined again, and the account says what lies
/// between.
///
/// Ctrl-C stops: what --arm has armed is disarmed and received to its end, for as
/// long as the PandA still has something to send. What others armed is left, and
/// goes on, so that nobody knows how many samples it had: its account is unproven.
/// A second Ctrl-C ends at once; what the PandA says it took and did not come is
/// then missing.
///
/// Names of all acquisitions are looked at before anything is armed. A file that
/// appears later, or cannot take an acquisition, stays as it is: the acquisition
/// goes beside it, capture-7.1.h5 for capture-7.h5, and that is said.
/// Readers may keep a file open while the next acquisition is added to it.
///
/// What is added to a file (--existing append) must have the columns that it has,
/// with the same units, scale and offset, and --raw if it was recorded so. It is
/// compressed as the file is; a --compression that is another one is refused.
/// --flush and --rate may differ.
///
/// What the captured fields come to is said at the start, and with --rate whether
/// the link carries it, or what to average.
///
/// Exit codes: 0 every sample of every acquisition is in its file; 1 samples are
/// missing or damaged, or may be, or it was ended before all acquisitions that were
/// asked for had come; 2 it could not be recorded.
#[derive(ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The PandAs, each an address, a name, or a panda:// endpoint.
    #[arg(value_name = "HOST", required = true, num_args = 1..)]
    hosts: Vec<String>,
    /// The file, a template for several, or an hdf5: endpoint.
    #[arg(value_name = "FILE")]
    file: String,
    /// End after so many acquisitions; 0: when stopped.
    #[arg(long, value_name = "N", default_value_t = 1)]
    num: u64,
    /// Arm the PandA when all is ready, and again after each acquisition.
    #[arg(long)]
    arm: bool,
    /// Doubles, scaled by this program [default].
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "raw")]
    scaled: bool,
    /// Integers as they were captured, with scale and offset beside them.
    #[arg(long)]
    raw: bool,
    /// How often readers see what is new [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = container::flush)]
    flush: Option<Duration>,
    /// With a file that is there already: refuse, append (see above) or overwrite [default: refuse]
    #[arg(long, value_name = "WHAT", value_parser = container::existing)]
    existing: Option<Existing>,
    /// Make it smaller: none, gzip:1 to gzip:9, or bitshuffle (readers need hdf5plugin) [default: as a file
    /// is that is added to, else none]
    #[arg(long, value_name = "HOW", value_parser = container::compression)]
    compression: Option<Compression>,
    /// Samples a second that are expected: HDF5 chunks are sized by it.
    #[arg(long, value_name = "N", value_parser = container::rate)]
    rate: Option<f64>,
    /// Block memory of each PandA [default: 256 MiB]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<ByteSize>,
    /// How long a connection that was lost is tried again.
    #[arg(long, value_name = "TIME", value_parser = crate::verbs::sending::duration, default_value = "30s")]
    reconnect: Duration,
    /// Draw no progress.
    #[arg(long)]
    quiet: bool,
}

/// How long a PandA may take to say what it captures.
const ASK: Duration = Duration::from_secs(2);

/// Records.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    let quiet = args.quiet;
    run_plans(resolve(args)?, output, quiet)
}

/// From what was typed to what was meant.
fn resolve(args: Args) -> anyhow::Result<Vec<Plan>> {
    let sources = args.hosts.iter().map(|host| source(host)).collect::<anyhow::Result<_>>()?;
    let mut target = target(&args.file)?;
    target.scaled &= !args.raw;
    target.scaled |= args.scaled;
    target.flush = args.flush.unwrap_or(target.flush);
    target.existing = args.existing.unwrap_or(target.existing);
    target.compression = args.compression.or(target.compression);
    target.rate = args.rate.or(target.rate);
    let plan = |source| plan(source, &target, args.num, args.arm, args.reconnect, args.buffer);
    Ok(told_apart(sources)?.into_iter().map(plan).collect())
}

/// The file that was typed.
pub fn target(text: &str) -> anyhow::Result<Hdf5Target> {
    Hdf5Target::parse(text).map_err(explained)
}

/// What is to be done.
pub fn plan(
    source: PandaSource,
    target: &Hdf5Target,
    acquisitions: u64,
    arm: bool,
    reconnect: Duration,
    buffer: Option<ByteSize>,
) -> Plan {
    Plan {
        arm: source.arm.unwrap_or(arm),
        source,
        files: Files { template: target.path.clone(), options: options(target), beside: true },
        acquisitions: (acquisitions > 0).then_some(acquisitions),
        reconnect,
        buffer,
    }
}

/// The sink's options, as the endpoint says them.
pub fn options(target: &Hdf5Target) -> hdf5::Options {
    hdf5::Options {
        form: if target.scaled { hdf5::Form::Scaled } else { hdf5::Form::Native },
        existing: match target.existing {
            Existing::Refuse => hdf5::Existing::Refuse,
            Existing::Overwrite => hdf5::Existing::Overwrite,
            Existing::Append => hdf5::Existing::Append,
        },
        compression: target.compression.map(|compression| match compression {
            Compression::None => hdf5::Compression::None,
            Compression::Gzip(level) => hdf5::Compression::Gzip(level),
            Compression::Bitshuffle => hdf5::Compression::BitshuffleLz4,
        }),
        flush: target.flush,
        rows_per_second: target.rate,
        live: true,
    }
}

/// Records one PandA, or several side by side, and tells of it.
pub fn run_plans(plans: Vec<Plan>, output: Output, quiet: bool) -> anyhow::Result<ExitCode> {
    let control = Arc::new(recorder::Control::default());
    signals::stop_recording(&control)?;
    let mut screen = Screen {
        output,
        bar: bar(output, quiet),
        advised: false,
        panda: None,
        lines: BTreeMap::new(),
    };
    match <[Plan; 1]>::try_from(plans) {
        Ok([plan]) => run_one(plan, &control, &mut screen),
        Err(plans) => run_several(plans, &control, &mut screen),
    }
}

fn run_one(
    plan: Plan,
    control: &Arc<recorder::Control>,
    screen: &mut Screen,
) -> anyhow::Result<ExitCode> {
    let source = plan.source.clone();
    let rate = plan.files.options.rows_per_second;
    let mut tell = |event: &Event| {
        screen.event(event);
        if matches!(event, Event::Connected { connection: 1, .. }) {
            screen.advise(forecast(&source, rate, None));
        }
    };
    let outcome = record(plan, control, &mut tell).map_err(explained)?;
    screen.bar.finish_and_clear();
    let code = judge(&outcome);
    if let Some(error) = outcome.error {
        eprintln!("fullbore: {}", told_of(&explained(error)));
    }
    Ok(ExitCode::from(code))
}

fn run_several(
    plans: Vec<Plan>,
    control: &Arc<recorder::Control>,
    screen: &mut Screen,
) -> anyhow::Result<ExitCode> {
    let Some(files) = plans.first().map(|plan| plan.files.clone()) else {
        anyhow::bail!("no PandA was given");
    };
    let sources: Vec<PandaSource> = plans.iter().map(|plan| plan.source.clone()).collect();
    let mut tell = |happened: &Happened| {
        screen.happened(happened);
        if let Happened::One { panda, event: Event::Connected { connection: 1, .. } } = happened
            && let Some(source) = sources.iter().find(|source| source.name == *panda)
        {
            screen.advise(forecast(source, files.options.rows_per_second, Some(panda.clone())));
        }
    };
    let outcomes = several::record(plans, &files, control, &mut tell).map_err(explained)?;
    screen.bar.finish_and_clear();
    let codes = outcomes.pandas.iter().map(|(_, outcome)| judge(outcome));
    let nothing = codes.clone().all(|code| code == output::REFUSED);
    let bad = codes.clone().any(|code| code != output::GOOD) || outcomes.partial > 0;
    let code = match (nothing, bad || outcomes.error.is_some()) {
        (true, _) => output::REFUSED,
        (false, true) => output::FOUND,
        (false, false) => output::GOOD,
    };
    for (panda, outcome) in outcomes.pandas {
        if let Some(error) = outcome.error {
            eprintln!("fullbore: {panda}: {}", told_of(&explained(error)));
        }
    }
    if let Some(error) = outcomes.error {
        eprintln!("fullbore: {}", told_of(&explained(error)));
    }
    Ok(ExitCode::from(code))
}

/// Good if all that was asked for is there.
fn judge(outcome: &Outcome) -> u8 {
    match &outcome.error {
        Some(_) if outcome.recorded.iter().all(|recorded| recorded.samples == 0) => output::REFUSED,
        Some(_) => output::FOUND,
        None if outcome.short || outcome.unseen > 0 => output::FOUND,
        None if !outcome.recorded.iter().all(is_whole) => output::FOUND,
        None => output::GOOD,
    }
}

/// Whether every sample that the PandA took is in the file, and nothing speaks against it.
pub fn is_whole(recorded: &Recorded) -> bool {
    recorded.completeness.is_good()
}

/// What the fields that are captured come to, and whether the link carries it. A PandA that does not say is
/// recorded all the same.
fn forecast(source: &PandaSource, rate: Option<f64>, panda: Option<Name>) -> Option<Forecast> {
    let patience = Patience { connect: ASK, answer: ASK, ..Patience::default() };
    let captured = Control::connect(source, patience).ok()?.captured_fields().ok()?;
    let sample_bytes = forecast::sample_bytes(&forecast::columns(&captured));
    (sample_bytes > 0).then(|| Forecast {
        event: "forecast",
        panda,
        sample_bytes,
        most_samples_per_second: forecast::LINK_BYTES_PER_SECOND / f64::from(sample_bytes),
        load: rate.map(|rate| forecast::load(sample_bytes, rate)),
    })
}

/// What a recording comes to, told at its start.
#[derive(Serialize)]
struct Forecast {
    event: &'static str,
    /// Of which PandA, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    panda: Option<Name>,
    sample_bytes: u32,
    /// Triggers a second that fill a link of 1 Gbit/s.
    most_samples_per_second: f64,
    /// Of the rate that was given.
    load: Option<Load>,
}

fn bar(output: Output, quiet: bool) -> ProgressBar {
    if output.progress() && !quiet { ProgressBar::new_spinner() } else { ProgressBar::hidden() }
}

/// Where events go: lines of JSON, or text and a line that moves.
struct Screen {
    output: Output,
    bar: ProgressBar,
    /// Whether it was said that the rate is too high for the link.
    advised: bool,
    /// Of which PandA the next line is, where there are several.
    panda: Option<Name>,
    /// How each PandA stands.
    lines: BTreeMap<String, String>,
}

impl Screen {
    /// Says what is to be expected of the link.
    fn advise(&mut self, forecast: Option<Forecast>) {
        let Some(forecast) = forecast else { return };
        if self.output.event(&forecast) {
            return;
        }
        let Forecast { panda, sample_bytes, most_samples_per_second, load, .. } = forecast;
        self.panda = panda;
        self.say(format!(
            "{sample_bytes} bytes a sample; a link of 1 Gbit/s carries {most_samples_per_second:.0} samples a second"
        ));
        if let Some(load) = load {
            self.advised = load.average > 1;
            self.say(advice(load).trim_end().to_owned());
        }
        self.panda = None;
    }

    /// Says once that the server's ring was lapped, and what would help.
    fn advise_of_overrun(&mut self, recorded: &Recorded) {
        let overrun = EndReason::DataOverrun.to_string();
        let overran = |tally: &Tally| tally.ending.to_string() == overrun;
        if self.advised || !recorded.connections.iter().any(overran) {
            return;
        }
        self.advised = true;
        let text = "samples came faster than they could be taken: capture Mean instead of every Value, fewer \
                    fields, or trigger less often; `fullbore panda show --rate` says what fits";
        self.say(text.to_owned());
    }

    /// Shows what happened to one of several, or to all.
    fn happened(&mut self, happened: &Happened) {
        if self.output.event(happened) {
            return;
        }
        match happened {
            Happened::One { panda, event } => {
                self.panda = Some(panda.clone());
                self.show(event);
                self.panda = None;
            }
            Happened::Warning { text, .. } => self.say(format!("warning: {text}")),
            Happened::Scan(scan) => self.print(&told_of_all(scan)),
        }
    }

    /// Shows an event. A screen that cannot be drawn never ends a recording.
    fn event(&mut self, event: &Event) {
        if !self.output.event(event) {
            self.show(event);
        }
    }

    fn show(&mut self, event: &Event) {
        match event {
            Event::Connected { host, connection: 1, pool_bytes } => {
                self.say(format!("connected to {host}, {} of block memory", ByteSize(*pool_bytes)));
            }
            Event::Connected { host, .. } => self.say(format!("connected to {host} again")),
            Event::Warning { text } => self.say(format!("warning: {text}")),
            Event::Armed => self.say("armed".to_owned()),
            Event::Began { number, file, sample_bytes, fields, missed, .. } => {
                let columns = fields.len();
                let late = match missed {
                    0 => String::new(),
                    missed => format!(", joined {missed} samples late"),
                };
                self.say(format!(
                    "acquisition {number}: {columns} columns, {sample_bytes} bytes a sample, into {}{late}",
                    file.display()
                ));
            }
            Event::Rejoined { number, gap } => {
                self.say(format!("acquisition {number} goes on, {gap} samples further"));
            }
            Event::Lost { why } => self.say(format!("connection lost: {why}")),
            Event::Unseen { samples: Some(samples) } => self.say(format!(
                "nothing came of what was armed, and the PandA took {samples} samples of it: none of them is recorded"
            )),
            Event::Unseen { samples: None } => self.say(
                "nothing came of what was armed; how many samples the PandA took of it is not known".to_owned(),
            ),
            Event::StaysArmed { why } => self.say(format!(
                "the PandA could not be disarmed, and goes on: {why}\n  `fullbore panda disarm` ends it"
            )),
            Event::Short { acquisitions: 0, wanted: None } => {
                self.say("ended before any acquisition came: nothing is recorded".to_owned());
            }
            Event::Short { acquisitions, wanted } => self.say(format!(
                "ended before its time: {acquisitions} of {} acquisitions came",
                wanted.unwrap_or(1)
            )),
            Event::Beside { number, meant, file, why } => self.say(format!(
                "acquisition {number} goes into {}: {} stays as it is, for {why}",
                file.display(),
                meant.display()
            )),
            Event::Progress(progress) => self.set_line(Some(line(progress))),
            Event::Ended(recorded) => {
                self.set_line(None);
                self.print(&(self.prefix() + &told(recorded)));
                self.advise_of_overrun(recorded);
            }
        }
        self.bar.tick();
    }

    fn say(&self, text: String) {
        // A terminal that has gone away does not end a recording.
        self.bar.suspend(|| drop(writeln!(io::stderr(), "{}{text}", self.prefix())));
    }

    fn print(&self, text: &str) {
        self.bar.suspend(|| {
            let mut out = io::stdout().lock();
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        });
    }

    /// The name of the PandA, where there are several.
    fn prefix(&self) -> String {
        self.panda.as_ref().map_or_else(String::new, |panda| format!("{panda}: "))
    }

    /// Shows how the PandA stands, below the others.
    fn set_line(&mut self, line: Option<String>) {
        let prefix = self.prefix();
        match line {
            Some(line) => self.lines.insert(prefix.clone(), prefix + &line),
            None => self.lines.remove(&prefix),
        };
        let lines: Vec<&str> = self.lines.values().map(String::as_str).collect();
        self.bar.set_message(lines.join("\n"));
    }
}

fn line(progress: &Progress) -> String {
    let mut text = format!(
        "{} samples, {:.0} a second, {:.1} MB/s; readers see {}; {} of {} blocks at most",
        progress.samples,
        progress.sample_rate,
        progress.byte_rate / 1e6,
        progress.visible,
        progress.high_water,
        progress.pool_blocks
    );
    if progress.missing > 0 {
        let _ = write!(text, "; {} missing", progress.missing);
    }
    text
}

/// An acquisition of all PandAs together.
fn told_of_all(scan: &Scan) -> String {
    let Scan { number, file, completeness, parts, absent, .. } = scan;
    let parts = output::count(parts.len(), "PandA");
    let mut text = format!(
        "acquisition {number} of {parts}: {}\n  {}\n  {} shows all\n",
        completeness.headline,
        completeness.explanation,
        file.display()
    );
    for panda in absent {
        let _ = writeln!(text, "  nothing came from {panda}");
    }
    text
}

fn told(recorded: &Recorded) -> String {
    let Recorded { number, file, samples, reason, completeness, terms, .. } = recorded;
    let mut text = format!(
        "acquisition {number}: {}\n  {}\n  {samples} samples in {}, {reason}\n",
        completeness.headline,
        completeness.explanation,
        file.display()
    );
    if terms.expected != terms.written {
        let _ = writeln!(
            text,
            "  expected {} = written {} + missing {} + overrun {} + damaged {}",
            terms.expected, terms.written, terms.missing, terms.overrun, terms.damaged
        );
    }
    if let Some([half, most, longest]) = recorded.flush_us {
        let [half, most, longest] = [half, most, longest].map(|us| us as f64 / 1000.0);
        let _ = writeln!(
            text,
            "  flushes: half within {half:.1} ms, 99 of 100 within {most:.1} ms, the longest {longest:.1} ms"
        );
    }
    for note in &recorded.notes {
        let _ = writeln!(text, "  {note}");
    }
    text
}
