//! The log on standard error: what the program does, for whoever looks for the cause of a problem.
//!
//! The engine logs with `tracing`. Nothing is logged without `-v` or `--log`. A thread writes the lines, so that no
//! other thread waits for a terminal; lines that find its queue full are counted.

use std::io;

use clap::{ArgAction, Args, ValueEnum};
use fullbore_daemon::log::Log as StationLog;
use serde::Deserialize;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::Layer;
use tracing_subscriber::prelude::*;

use crate::output::say;

/// The options of the log. Every command has them.
#[derive(Args, Clone, Copy, Debug)]
pub struct Logging {
    /// Log each step on standard error, with the time and the thread. -vv: details too, such as every chunk.
    /// -vvv: everything, such as every sync. The live screen is off then.
    #[arg(short = 'v', global = true, action = ArgAction::Count)]
    level: u8,
    /// The form of the log: text for readers, or one line of JSON for each entry. Implies -v.
    #[arg(long = "log", global = true, value_name = "FORM")]
    form: Option<Form>,
}

/// The form of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Form {
    /// A line of text.
    Text,
    /// A line of JSON.
    Json,
}

impl Logging {
    /// These options, completed by the form in a file.
    pub fn or(self, form: Option<Form>) -> Self {
        Self { form: self.form.or(form), ..self }
    }

    /// True if something is logged.
    pub fn is_on(self) -> bool {
        self.level > 0 || self.form.is_some()
    }

    /// Starts to log on standard error, if requested, until the returned log is dropped; and into the log of a station,
    /// if there is one.
    pub fn start(self, station: Option<StationLog>) -> Option<Log> {
        if !self.is_on() {
            if let Some(station) = station {
                tracing_subscriber::registry().with(station.with_filter(LevelFilter::INFO)).init();
            }
            return None;
        }
        let level = match self.level {
            0 | 1 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        };
        let log = tracing_subscriber::fmt::layer().with_thread_names(true);
        let (writer, guard) = NonBlockingBuilder::default().lossy(true).finish(io::stderr());
        let dropped = writer.error_counter();
        // A log on a closed or full standard error must not end a recording.
        let log = log.with_writer(writer).log_internal_errors(false).with_ansi(false);
        let log = match self.form {
            Some(Form::Json) => log.json().flatten_event(true).boxed(),
            Some(Form::Text) | None => log.boxed(),
        };
        let station = station.map(|it| it.with_filter(LevelFilter::INFO));
        tracing_subscriber::registry().with(log.with_filter(level)).with(station).init();
        Some(Log { guard: Some(guard), dropped })
    }
}

/// The running log. All lines are written when it is dropped.
pub struct Log {
    guard: Option<WorkerGuard>,
    dropped: ErrorCounter,
}

impl Drop for Log {
    fn drop(&mut self) {
        drop(self.guard.take());
        match self.dropped.dropped_lines() {
            0 => {}
            lines => say(format_args!("fullbore: lines missing in the log: {lines}")),
        }
    }
}
