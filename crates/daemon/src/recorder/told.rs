//! What recorders say, for the log of the station.

use uuid::Uuid;

use super::life::{Complaint, Input};
use super::report::Report;
use crate::log::Level;

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    level: Level,
    text: String,
}

impl Said {
    pub(super) fn log(&self, id: Uuid) {
        let Self { level, text } = self;
        match level {
            Level::Info => tracing::info!(recording = %id, "{text}"),
            Level::Warning => tracing::warn!(recording = %id, "{text}"),
            Level::Error => tracing::error!(recording = %id, "{text}"),
        }
    }
}

/// The line for what happened to a recording. Its state several times a second has none.
pub(super) fn of(input: &Input) -> Option<Said> {
    let (level, text) = match input {
        Input::Said(Report::Armed { scan, .. }) => (Level::Info, format!("{scan}: armed")),
        Input::Said(Report::Awaiting { scan, begins }) => {
            (Level::Info, format!("{scan}: waits for its start at {begins:.0}"))
        }
        Input::Said(Report::Waiting { start }) => {
            (Level::Info, format!("the next scan of the schedule begins at {start:.0}"))
        }
        Input::Said(Report::Session) => (Level::Info, "the schedule is over".to_owned()),
        Input::Said(Report::Warning { text }) => (Level::Warning, text.clone()),
        Input::Said(Report::Sealed(finished)) => {
            let level = if finished.complete == Some(false) { Level::Warning } else { Level::Info };
            (level, format!("{}: {}", finished.scan(), finished.headline))
        }
        Input::Said(Report::Unsealed { why, finished }) => {
            (Level::Error, format!("{}: it is not sealed: {why}", finished.scan()))
        }
        Input::Said(Report::Progress(_) | Report::Other) => return None,
        Input::Asked => (Level::Info, "asked to end".to_owned()),
        Input::Gone { complaint: Some(Complaint { error, .. }), .. } => {
            (Level::Error, format!("the recorder has ended: {error}"))
        }
        Input::Gone { code: Some(code), complaint: None } => {
            (Level::Info, format!("the recorder has ended with exit code {code}"))
        }
        Input::Gone { code: None, complaint: None } => {
            (Level::Info, "the recorder has ended".to_owned())
        }
    };
    Some(Said { level, text })
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::PROGRESS;
    use super::*;

    fn said(line: &str) -> Option<Said> {
        of(&Input::Said(Report::of_line(line.as_bytes()).unwrap()))
    }

    #[test]
    fn warnings_and_ends_are_lines_and_progress_is_none() {
        assert_eq!(said(PROGRESS), None);
        let warning = said(r#"{"event":"warning","text":"the disk is slow"}"#).unwrap();
        assert_eq!((warning.level, warning.text.as_str()), (Level::Warning, "the disk is slow"));
        let sealed = |complete: bool| {
            let line = r#"{"event":"sealed","manifest":{"scan":{"session":"s","scan":"a"}},"complete":C,"headline":"H"}"#;
            said(&line.replace('C', &complete.to_string())).unwrap()
        };
        assert_eq!(sealed(true), Said { level: Level::Info, text: "s_a: H".into() });
        assert_eq!(sealed(false).level, Level::Warning);
        let killed = Input::Gone { code: None, complaint: Some(Complaint::of_signal(9)) };
        assert!(of(&killed).unwrap().text.contains("signal 9"));
        assert_eq!(of(&Input::Gone { code: Some(0), complaint: None }).unwrap().level, Level::Info);
    }
}
