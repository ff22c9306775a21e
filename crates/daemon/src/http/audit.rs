//! The audit log: who asked for which write, and what was refused. A line of JSON each, in the station's directory.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use axum::http::{Method, StatusCode};
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::Serialize;

use crate::auth::{Identity, Role};

/// A larger log becomes `audit.log.1`, in place of an older one.
const LARGEST: u64 = 10_000_000;

/// The longest path that is noted.
const LONGEST_PATH: usize = 500;

/// The log.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    one_at_a_time: Mutex<()>,
}

#[derive(Serialize)]
struct Line<'a> {
    time: Tai,
    who: Option<&'a str>,
    role: Option<Role>,
    method: &'a str,
    path: String,
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// A command that was run, for the log. An answer carries it as an extension.
#[derive(Clone, Debug)]
pub(super) struct CommandRun(pub(super) String);

impl Audit {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, one_at_a_time: Mutex::default() }
    }

    /// Notes a request. If the disk of the log is full, the request succeeds all the same, and the log of the daemon says
    /// so.
    pub(super) fn note(
        &self,
        who: Option<&Identity>,
        method: &Method,
        path: &str,
        status: StatusCode,
        command: Option<&CommandRun>,
    ) {
        let line = Line {
            time: Clock::new().now(),
            who: who.map(|it| &*it.name),
            role: who.map(|it| it.role),
            method: method.as_str(),
            path: path.chars().take(LONGEST_PATH).collect(),
            status: status.as_u16(),
            command: command.map(|it| it.0.chars().take(LONGEST_PATH).collect()),
        };
        let who = line.who.unwrap_or("nobody");
        tracing::info!(who, method = line.method, path = line.path, status = line.status, "audit");
        if let Err(error) = self.append(&line) {
            tracing::error!(%error, path = %self.path.display(), "the audit log lacks a line");
        }
    }

    /// Adds a line.
    pub(crate) fn append(&self, line: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(line)? + "\n";
        let _one = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        if fs::metadata(&self.path).is_ok_and(|it| it.len() > LARGEST) {
            fs::rename(&self.path, self.path.with_extension("log.1"))?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).mode(0o600).open(&self.path)?;
        file.write_all(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_say_who_and_the_log_stays_bounded() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("audit.log");
        let audit = Audit::new(path.clone());
        let who = Identity { name: "fs".into(), role: Role::Operator };
        audit.note(Some(&who), &Method::POST, "/api/v1/recordings", StatusCode::CREATED, None);
        audit.note(None, &Method::DELETE, &"x".repeat(5000), StatusCode::UNAUTHORIZED, None);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(r#""who":"fs","role":"operator","method":"POST""#), "{text}");
        assert!(lines[1].contains(r#""who":null"#) && lines[1].len() < 1000);
        fs::File::options().write(true).open(&path).unwrap().set_len(LARGEST + 1).unwrap();
        let command = CommandRun("rm r1_a".to_owned());
        audit.note(Some(&who), &Method::POST, "/new", StatusCode::OK, Some(&command));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() == 1 && text.contains(r#""command":"rm r1_a""#), "{text}");
        assert!(place.path().join("audit.log.1").exists());
    }
}
