//! The output of a running recording: a live table, or one line of JSON per event.
//!
//! ```text
//! recorder ──► queue ──► a thread ──► sheet (lines, and the picture below them)
//! ```
//!
//! A terminal or a pipe may block: after Ctrl-S, on a slow connection, or with a busy reader. A recording never waits
//! for it. Events wait in a queue, in which newer progress replaces older. A slow reader therefore misses only
//! progress.

pub mod device;
mod picture;
mod sheet;

use std::thread::JoinHandle;

use anyhow::Context;
use fullbore_engine::recorder::Event;
use fullbore_recording::Events;

use crate::output::Output;
use sheet::Sheet;

/// The destination of events.
pub struct Screen {
    events: Events,
    painter: Option<JoinHandle<()>>,
}

impl Screen {
    /// A live table on a terminal, else lines.
    pub fn new(output: Output, quiet: bool) -> anyhow::Result<Self> {
        let events = Events::new();
        let read = events.clone();
        let paint = move || {
            let mut sheet = Sheet::new(output, quiet);
            while let Some((events, skipped)) = read.take() {
                events.iter().for_each(|event| sheet.show(event));
                if skipped > 0 {
                    sheet.skipped(skipped);
                }
            }
            sheet.clear();
        };
        let painter = std::thread::Builder::new().name("screen".into()).spawn(paint);
        Ok(Self { events, painter: Some(painter.context("starting the thread of the screen")?) })
    }

    /// Shows an event without blocking.
    pub fn event(&mut self, event: &Event) {
        self.events.put(event.clone());
    }

    /// Shows the remaining events, and removes the table.
    pub fn end(&mut self) {
        self.events.end();
        if let Some(painter) = self.painter.take() {
            // A panic has been printed by the thread itself.
            let _ = painter.join();
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.end();
    }
}
