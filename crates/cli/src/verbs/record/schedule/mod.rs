//! `fullbore record --schedule FILE`: shows a session of the library.

mod table;

use std::process::ExitCode;

use fullbore_core::name::Name;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_engine::recorder::Event;
use fullbore_planning::arming;
use fullbore_recording::{OptionError, RecordingOptions, Session, SessionError, SessionEvent};
use fullbore_survey::bench::measured::measured;

use crate::help;
use crate::hint::explained;
use crate::output::{self, Output, count};
use crate::screen::Screen;
use crate::signals;

/// Runs a schedule. `make_store` makes the default store, if it is used.
pub fn run(
    options: RecordingOptions,
    make_store: Option<impl FnOnce() -> anyhow::Result<()>>,
    quiet: bool,
    output: Output,
) -> anyhow::Result<ExitCode> {
    let disks = measured(&options.store);
    let findings = arming::findings(&options.store);
    let session = match Session::open(options, disks) {
        Ok(session) => session.with_findings(findings),
        Err(SessionError::Option(OptionError::Missing { options })) => {
            return Ok(help::missing("record", &options));
        }
        Err(error) => return Err(explained(error)),
    };
    make_store.map(|make| make()).transpose()?;
    signals::follow_schedule(session.handle())?;
    let mut shown = Shown { output, quiet, screen: None };
    for text in arming::doubts(&session.first_recording().map_err(explained)?) {
        shown.plain(&Event::Warning { text });
    }
    let ended = session.run(&mut |event| shown.show(event)).map_err(explained)?;
    // The output may be closed: every scan has its own account.
    let _ = output.tell(&ended.account, || table::table(&ended.account));
    Ok(output::exit_code(ended.outcome))
}

/// Events are shown on a screen while a scan is recorded, and as lines otherwise.
struct Shown {
    output: Output,
    quiet: bool,
    screen: Option<Screen>,
}

impl Shown {
    fn show(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Arming { .. } => match Screen::new(self.output, self.quiet) {
                Ok(screen) => self.screen = Some(screen),
                // Lines remain.
                Err(error) => self.line(&format!("warning: {error:#}")),
            },
            SessionEvent::Over { .. } => {
                if let Some(mut screen) = self.screen.take() {
                    screen.end();
                }
            }
            SessionEvent::Recording(event) => match &mut self.screen {
                Some(screen) => screen.event(event),
                None => self.plain(event),
            },
            event if self.output.json => {
                self.output.event(event);
            }
            event => {
                let text = in_words(event);
                match &mut self.screen {
                    Some(screen) => screen.event(&Event::Note { text }),
                    None => self.line(&text),
                }
            }
        }
    }

    /// Shows an event of the recorder between recordings, where there are only sentences.
    fn plain(&self, event: &Event) {
        match event {
            event if self.output.json => {
                self.output.event(event);
            }
            Event::Warning { text } => self.line(&format!("warning: {text}")),
            Event::Note { text } => self.line(text),
            _ => {}
        }
    }

    fn line(&self, text: &str) {
        output::say(text);
    }
}

/// An event as a sentence.
fn in_words(event: &SessionEvent) -> String {
    match event {
        SessionEvent::Waiting { scan, start, seconds } => {
            format!("waiting for scan {scan}, which starts at {start:.1}, in {seconds:.0} s")
        }
        SessionEvent::Missed { scan, end, .. } => {
            format!("warning: scan {scan} is missed: it was over at {end:.1}")
        }
        SessionEvent::RecordedBefore { session, scan, unsealed, .. } => {
            recorded_before(session, scan, unsealed)
        }
        SessionEvent::Room { scans, rate, needed_bytes, free_bytes, fills, full } => {
            let sum = format!(
                "{} ahead at {} take {}, and the disk set has {} free",
                count(*scans, "scan"),
                ByteRate(*rate),
                ByteSize(*needed_bytes),
                ByteSize(*free_bytes)
            );
            match fills.as_ref().zip(*full) {
                Some((scan, at)) => {
                    format!("warning: {sum}: scan {scan} fills it, at {at:.1}")
                }
                None => sum,
            }
        }
        SessionEvent::Schedule { scans, added, removed, too_late } => {
            read_again(*scans, added, removed, too_late)
        }
        SessionEvent::Arming { .. } | SessionEvent::Over { .. } | SessionEvent::Recording(_) => {
            String::new()
        }
    }
}

fn recorded_before(session: &Name, scan: &Name, unsealed: &[Name]) -> String {
    let mut text = format!("scan {scan} was recorded before");
    for name in unsealed {
        text = format!(
            "warning: {text}, and {session}_{name} is not sealed: `fullbore recover {session}_{name}`"
        );
    }
    text
}

fn read_again(scans: usize, added: &[Name], removed: &[Name], too_late: &[Name]) -> String {
    let mut text = format!("the schedule was read again: {} lie ahead", count(scans, "scan"));
    let kinds = [
        ("new or moved", added),
        ("removed", removed),
        ("over or begun, so left as they were", too_late),
    ];
    for (what, names) in kinds.into_iter().filter(|(_, names)| !names.is_empty()) {
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        text += &format!("; {what}: {}", names.join(", "));
    }
    text
}
