//! The audit log: who asked for which write, and what was refused. A line of JSON each, in the station's directory.
//!
//! What was refused to a client that did not prove who it is goes to a log of its own, `refused.log`: anybody can fill
//! that one, and with it displace no line about a client that is known.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use axum::http::{Method, StatusCode};
use fullbore_linux::clock::Clock;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::auth::{Identity, Role};
use crate::log::AUDIT;
use crate::schedules::read_bounded;

/// A larger log becomes `audit.log.1`, in place of an older one.
const LARGEST: u64 = 10_000_000;

/// The longest path that is noted.
const LONGEST_PATH: usize = 500;

/// The log.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    refused: PathBuf,
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

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(super) struct AuditLine {
    /// The time.
    #[schema(value_type = String)]
    pub(super) time: Tai,
    /// Who asked. Null if the client did not prove it.
    who: Option<String>,
    /// The role.
    role: Option<String>,
    /// The method; a statement of VSI-S has none.
    #[serde(default)]
    method: String,
    /// The path, or the statement.
    #[serde(default)]
    path: String,
    /// The status of the answer.
    #[serde(default)]
    status: u16,
    /// The words of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<String>,
}

/// A command that was run, for the log. An answer carries it as an extension.
#[derive(Clone, Debug)]
pub(super) struct CommandRun(pub(super) String);

impl Audit {
    /// The newest lines before a time, the newest first.
    pub(super) fn newest(&self, before: Option<Tai>, most: usize) -> io::Result<Vec<AuditLine>> {
        let mut found = Vec::new();
        for path in [self.path.clone(), self.path.with_extension("log.1")] {
            // A line may follow after the size was looked at.
            let text = match read_bounded(&path, 2 * LARGEST) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text?,
            };
            let lines = text.rsplit(|byte| *byte == b'\n');
            let lines = lines.filter_map(|line| serde_json::from_slice::<AuditLine>(line).ok());
            let earlier = lines.filter(|line| before.is_none_or(|before| line.time < before));
            found.extend(earlier.take(most - found.len()));
            if found.len() == most {
                break;
            }
        }
        Ok(found)
    }

    pub(crate) fn new(path: PathBuf) -> Self {
        let refused = path.with_file_name("refused.log");
        Self { path, refused, one_at_a_time: Mutex::default() }
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
        let is_refused = who.is_none() && status.is_client_error();
        let file = if is_refused { &self.refused } else { &self.path };
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
        let (method, path) = (line.method, &line.path);
        tracing::info!(target: AUDIT, who, method, path, status = line.status, "audit");
        if let Err(error) = self.append_to(file, &line) {
            tracing::error!(%error, path = %file.display(), "the audit log lacks a line");
        }
    }

    /// Adds a line.
    pub(crate) fn append(&self, line: &impl Serialize) -> io::Result<()> {
        self.append_to(&self.path, line)
    }

    fn append_to(&self, path: &Path, line: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_string(line)? + "\n";
        let _one = self.one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        if fs::metadata(path).is_ok_and(|it| it.len() > LARGEST) {
            fs::rename(path, path.with_extension("log.1"))?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).mode(0o600).open(path)?;
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
        audit.note(None, &Method::POST, "/api/v1/session", StatusCode::CREATED, None);
        audit.note(Some(&who), &Method::DELETE, &"x".repeat(5000), StatusCode::FORBIDDEN, None);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(r#""who":"fs","role":"operator","method":"POST""#), "{text}");
        assert!(lines[1].contains(r#""who":null"#) && lines[2].len() < 1000);
        let read = audit.newest(None, 9).unwrap();
        assert_eq!((read.len(), read[2].who.as_deref(), read[2].status), (3, Some("fs"), 201));
        assert_eq!(audit.newest(None, 1).unwrap(), read[..1]);
        assert_eq!(audit.newest(Some(read[0].time), 9).unwrap(), read[1..]);
        fs::File::options().write(true).open(&path).unwrap().set_len(LARGEST + 1).unwrap();
        let command = CommandRun("rm r1_a".to_owned());
        audit.note(Some(&who), &Method::POST, "/new", StatusCode::OK, Some(&command));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() == 1 && text.contains(r#""command":"rm r1_a""#), "{text}");
        assert!(place.path().join("audit.log.1").exists());
    }

    #[test]
    fn clients_that_are_not_known_displace_no_line_about_those_that_are() {
        let place = tempfile::tempdir().unwrap();
        let audit = Audit::new(place.path().join("audit.log"));
        let who = Identity { name: "fs".into(), role: Role::Operator };
        audit.note(Some(&who), &Method::POST, "/api/v1/recordings", StatusCode::CREATED, None);
        let before = fs::read(&audit.path).unwrap();
        audit.note(None, &Method::GET, "/api/v1/status", StatusCode::UNAUTHORIZED, None);
        audit.note(None, &Method::POST, "/api/v1/session", StatusCode::TOO_MANY_REQUESTS, None);
        assert_eq!(fs::read(&audit.path).unwrap(), before);
        let refused = fs::read_to_string(place.path().join("refused.log")).unwrap();
        assert_eq!(refused.lines().count(), 2, "{refused}");
    }
}
