//! Tells a notice to its receiver, within a time, and again if it is not taken.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fullbore_core::hint::with_causes;

use super::{Alert, Notice, Target};

/// Tries until the receiver takes it, at most once more than there are pauses. Returns true if it was taken.
pub(super) fn with_retries(alert: &Alert, notice: &Notice, pauses: &[Duration]) -> bool {
    let body = serde_json::to_vec(notice).unwrap_or_default();
    let mut pauses = pauses.iter();
    loop {
        let told = match &alert.target {
            Target::Webhook(url) => post(url, body.clone(), alert.timeout),
            Target::Command { program, words } => run(program, words, &body, alert.timeout),
        };
        match (told, pauses.next()) {
            (Ok(()), _) => return true,
            (Err(why), Some(pause)) => {
                tracing::warn!(alert = alert.name, why, "a notice is not taken yet");
                thread::sleep(*pause);
            }
            (Err(why), None) => {
                tracing::error!(alert = alert.name, why, "a notice is given up");
                return false;
            }
        }
    }
}

/// Sends it to a web address. The address may have a secret, so no error names it.
fn post(url: &str, body: Vec<u8>, timeout: Duration) -> Result<(), String> {
    let told = |error: reqwest::Error| with_causes(&error.without_url());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let client = client(timeout).map_err(told)?;
        let request = client.post(url).header("Content-Type", "application/json").body(body);
        let answer = request.send().await.map_err(told)?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(format!("the receiver answers {}", answer.status())),
        }
    })
}

fn client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    // One that is installed already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("fullbore/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Runs a program. One that takes too long is killed.
fn run(program: &Path, words: &[String], body: &[u8], timeout: Duration) -> Result<(), String> {
    let started = started(program, words);
    let mut child = started.map_err(|error| format!("it is not started: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // The notice is shorter than a pipe holds, so this does not wait. A program need not read it.
        let _ = input.write_all(body);
    }
    let end = Instant::now() + timeout;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(format!("it ended with {status}")),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it was killed after {} s", timeout.as_secs_f64()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn started(program: &Path, words: &[String]) -> io::Result<std::process::Child> {
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
    command.spawn()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read};
    use std::net::TcpListener;

    use super::super::problems::Problem;
    use super::super::tracker::Change;
    use super::super::{Kind, TIMEOUT};
    use super::*;

    fn notice() -> Notice {
        let problem = Problem { kind: Kind::Loss, subject: "s_a/1".into(), text: "lost".into() };
        Notice {
            alert: "a".into(),
            host: "h".into(),
            time: fullbore_time::Tai::from_unix_ns(0),
            state: Change::Begins,
            problem,
            dropped: 0,
        }
    }

    fn alert(target: Target, timeout: Duration) -> Alert {
        Alert { name: "a".into(), on: Kind::ALL.into(), target, timeout, repeat: None }
    }

    fn shell(script: &str) -> Target {
        let words = vec!["-c".to_owned(), script.to_owned()];
        Target::Command { program: "/bin/sh".into(), words }
    }

    #[test]
    fn a_program_reads_the_notice_and_is_run_again_if_it_fails() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("told").display().to_string();
        let script = format!("cat >> {path}; echo >> {path}; test $(wc -l < {path}) -ge 3");
        let pauses = [Duration::ZERO; 2];
        assert!(with_retries(&alert(shell(&script), TIMEOUT), &notice(), &pauses));
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((lines.len(), lines[0]["kind"].as_str()), (3, Some("loss")));
        assert!(!with_retries(&alert(shell("exit 1"), TIMEOUT), &notice(), &pauses));
        let gone = Target::Command { program: "/nowhere".into(), words: Vec::new() };
        assert!(!with_retries(&alert(gone, TIMEOUT), &notice(), &[]));
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let begun = Instant::now();
        let hanging = alert(shell("exec sleep 60"), Duration::from_millis(100));
        assert!(!with_retries(&hanging, &notice(), &[]));
        assert!(begun.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_web_address_gets_the_notice_and_a_silent_one_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook?secret=1", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let mut bodies = Vec::new();
            for status in ["503 Busy", "204 No Content"] {
                let (stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream);
                let (mut line, mut length) = (String::new(), 0);
                while line != "\r\n" {
                    line.clear();
                    reader.read_line(&mut line).unwrap();
                    if let Some(given) = line.to_lowercase().strip_prefix("content-length: ") {
                        length = given.trim().parse().unwrap();
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                bodies.push(String::from_utf8(body).unwrap());
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                reader.get_mut().write_all(answer.as_bytes()).unwrap();
            }
            bodies
        });
        assert!(with_retries(&alert(Target::Webhook(url), TIMEOUT), &notice(), &[Duration::ZERO]));
        let bodies = server.join().unwrap();
        assert!(bodies.len() == 2 && bodies[1].contains(r#""state":"begins""#), "{bodies:?}");
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/?secret=1", silent.local_addr().unwrap());
        let why = post(&url, Vec::new(), Duration::from_millis(100)).unwrap_err();
        assert!(!why.contains("secret"), "{why}");
    }
}
