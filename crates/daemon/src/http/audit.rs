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
}

impl Audit {
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
        };
        let who = line.who.unwrap_or("nobody");
        tracing::info!(who, method = line.method, path = line.path, status = line.status, "audit");
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
        audit.note(Some(&who), &Method::POST, "/api/v1/recordings", StatusCode::CREATED);
        audit.note(None, &Method::POST, "/api/v1/session", StatusCode::CREATED);
        audit.note(Some(&who), &Method::DELETE, &"x".repeat(5000), StatusCode::FORBIDDEN);
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].contains(r#""who":"fs","role":"operator","method":"POST""#), "{text}");
        assert!(lines[1].contains(r#""who":null"#) && lines[2].len() < 1000);
        fs::File::options().write(true).open(&path).unwrap().set_len(LARGEST + 1).unwrap();
        audit.note(Some(&who), &Method::POST, "/new", StatusCode::OK);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 1);
        assert!(place.path().join("audit.log.1").exists());
    }
    #[test]
    fn clients_that_are_not_known_displace_no_line_about_those_that_are() {
        let place = tempfile::tempdir().unwrap();
        let audit = Audit::new(place.path().join("audit.log"));
        let who = Identity { name: "fs".into(), role: Role::Operator };
        audit.note(Some(&who), &Method::POST, "/api/v1/recordings", StatusCode::CREATED);
        let before = fs::read(&audit.path).unwrap();
        audit.note(None, &Method::GET, "/api/v1/status", StatusCode::UNAUTHORIZED);
        audit.note(None, &Method::POST, "/api/v1/session", StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(fs::read(&audit.path).unwrap(), before);
        let refused = fs::read_to_string(place.path().join("refused.log")).unwrap();
        assert_eq!(refused.lines().count(), 2, "{refused}");
    }
}
