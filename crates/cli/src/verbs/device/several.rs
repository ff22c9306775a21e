//! `record … --to device:A --to device:B`: one stream onto each of several devices, told as one recording.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::ensure;
use fullbore_core::account::{Terms, Verdict};
use fullbore_core::completeness::Completeness;
use fullbore_core::units::ByteSize;
use fullbore_engine::device::{Error, Progress, Recorded, Stage, Sum, Together, record_together};
use fullbore_engine::recorder::Control;
use serde::Serialize;

use super::record::{Recording, bar, plans, text};
use crate::hint::explained;
use crate::output::{self, Output};
use crate::signals;

/// A line of JSON: what is told of one of the devices.
#[derive(Serialize)]
struct Told<'a> {
    device: &'a PathBuf,
    #[serde(flatten)]
    stage: &'a Stage,
}

/// What is told in the end.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Last<'a> {
    /// All have ended.
    EndedTogether {
        /// In the order in which they were typed.
        streams: Vec<Stream<'a>>,
        #[serde(flatten)]
        sum: &'a Sum,
    },
}

/// One stream in the end.
#[derive(Serialize)]
#[serde(untagged)]
enum Stream<'a> {
    Recorded(&'a Recorded),
    Error { device: &'a PathBuf, error: String },
}

/// Records each source onto its device.
pub fn record(typed: Recording, output: Output) -> anyhow::Result<ExitCode> {
    let quiet = typed.quiet;
    let plans = plans(typed)?;
    let devices: Vec<PathBuf> = plans.iter().map(|plan| plan.end.path.clone()).collect();
    let control = Arc::new(Control::default());
    signals::stop_recording(&control)?;
    let bar = bar(output, quiet);
    let mut standing: Vec<Option<Progress>> = vec![None; devices.len()];
    let mut tell = |number: usize, stage: &Stage| {
        if output.json {
            // A reader that has gone away does not end a recording.
            let _ = output.tell(&Told { device: &devices[number], stage }, String::new);
        } else if let Stage::Progress(progress) = stage {
            standing[number] = Some(progress.clone());
            bar.set_message(line(&standing));
            bar.tick();
        } else {
            super::record::told(stage, output, &bar);
        }
    };
    let mut together = record_together(plans, &control, &mut tell);
    bar.finish_and_clear();
    if let Some(refused) = refused(&mut together) {
        return Err(explained(refused));
    }
    let streams = together.streams.iter().zip(&devices);
    let streams = streams.map(|(stream, device)| match stream {
        Ok(recorded) => Stream::Recorded(recorded),
        Err(error) => Stream::Error { device, error: error.to_string() },
    });
    let last = Last::EndedTogether { streams: streams.collect(), sum: &together.sum };
    output.tell(&last, || summary(&together, &devices))?;
    let whole = together.sum.streams_whole == together.sum.streams_wanted;
    Ok(ExitCode::from(if whole { output::GOOD } else { output::FOUND }))
}

/// Why nothing was begun at all, if nothing was.
fn refused(together: &mut Together) -> Option<Error> {
    if together.streams.iter().any(Result::is_ok) {
        return None;
    }
    let errors = std::mem::take(&mut together.streams).into_iter().filter_map(Result::err);
    let (companions, mut real): (Vec<_>, Vec<_>) =
        errors.partition(|error| matches!(error, Error::Companion));
    real.drain(..).chain(companions).next()
}

fn line(standing: &[Option<Progress>]) -> String {
    let sum = |of: fn(&Progress) -> u64| standing.iter().flatten().map(of).sum::<u64>();
    let seconds = standing.iter().flatten().map(|it| it.seconds).fold(0.0, f64::max);
    let mut text = format!(
        "{seconds:.0} s  {} streams  {}  {}/s  durable {}",
        standing.len(),
        ByteSize(sum(|it| it.bytes)),
        ByteSize(sum(|it| it.rate)),
        ByteSize(sum(|it| it.durable_bytes)),
    );
    let (missing, overrun) = (sum(|it| it.missing), sum(|it| it.overrun));
    if missing + overrun > 0 {
        text += &format!("  missing {missing}, overrun {overrun}");
    }
    text
}

/// Each stream, and all of them.
fn summary(together: &Together, devices: &[PathBuf]) -> String {
    let mut told = String::new();
    for (stream, device) in together.streams.iter().zip(devices) {
        told += &match stream {
            Ok(recorded) => text(recorded),
            Err(error) => format!("{}: {error}\n", device.display()),
        };
    }
    let Sum {
        streams_wanted: streams,
        streams_whole: whole,
        bytes,
        durable_bytes,
        seconds,
        rate,
        terms,
        verdict,
        completeness,
    } = &together.sum;
    if let Some(Completeness { headline, explanation, .. }) = completeness {
        told = format!("{headline}\n  {explanation}\n{told}");
    }
    told += &format!(
        "{streams} streams together: {} in {seconds:.2} s, {}/s, durable {}\n",
        ByteSize(*bytes),
        ByteSize(*rate),
        ByteSize(*durable_bytes),
    );
    if let Some(Terms { expected, written, missing, overrun, damaged, late }) = terms {
        let verdict = verdict.map_or_else(String::new, |it: Verdict| format!(": {it}"));
        told += &format!(
            "  {expected} frames expected, {written} written, {missing} missing, {overrun} overrun, \
             {damaged} damaged, {late} late{verdict}\n"
        );
    }
    told += &match streams - whole {
        0 => "  every stream is complete\n".to_owned(),
        1 => format!("  1 of {streams} streams is NOT complete, see above\n"),
        broken => format!("  {broken} of {streams} streams are NOT complete, see above\n"),
    };
    told
}

/// Sources and devices go together one by one.
pub fn paired(sources: usize, devices: usize) -> anyhow::Result<()> {
    ensure!(
        sources == devices,
        "{} for {}: each device takes one stream\n  \
         name as many devices as streams, with --to once for each, or record all streams into a store",
        output::count(sources, "stream"),
        output::count(devices, "device")
    );
    Ok(())
}
