//! `fullbore demo`: the main job on this machine, with the commands that a user types.
//!
//! ```text
//! generate ──► record (two scans, no pause) ──► verify ──► play ──► record ──► compare
//! ```

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use clap::Args as ClapArgs;
use fullbore_core::units::{ByteRate, ByteSize};
use fullbore_simulators::generate::{self, Payloads};
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::hint::{explained, with_advice};
use crate::output::{self, Output};
use crate::signals;

/// Streams, as in a VLBI station.
const STREAMS: u16 = 8;

/// Seconds of each scan.
const SCAN_SECONDS: u32 = 4;

/// The number of consecutive scans.
const SCANS: u32 = 2;

/// Show the main job in under a minute: record, verify, play back, compare.
///
/// The demo sends eight VDIF streams over loopback and records them on a disk set of three members, as two scans without
/// a pause between them. It verifies the scans, plays the first one back with its timing, records it again, and compares
/// both byte for byte. It prints each command that it runs.
///
/// It writes some gigabytes and prints where. They stay there unless --clean is given. The exit code is 1 if a frame was
/// lost, a scan did not verify, or the replay differs.
#[derive(ClapArgs)]
pub struct Args {
    /// Take the payload from this file of VDIF frames [default: the sample of the Python package `baseband` if it is
    /// installed, else Gaussian noise of 2 bits]
    #[arg(long, value_name = "FILE")]
    sample: Option<PathBuf>,
    /// Rate of each of the eight streams.
    #[arg(long, value_name = "RATE", default_value = "200Mbit/s")]
    rate: ByteRate,
    /// Work under this directory [default: a new one in the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Remove the recordings at the end.
    #[arg(long)]
    clean: bool,
}

/// The result of the demonstration.
#[derive(Serialize)]
struct DemoJson {
    directory: PathBuf,
    /// The file of the payload, or `noise`.
    payload: String,
    nothing_lost: bool,
    verified: bool,
    replay_equal: bool,
    /// True if the replay was in time.
    timing_kept: bool,
    scans: Vec<serde_json::Value>,
}

/// Runs the demonstration.
pub fn run(args: Args, output: Output) -> anyhow::Result<ExitCode> {
    if let Some(sample) = &args.sample {
        check_sample(sample)?;
    }
    let sample = args.sample.clone().or_else(installed_sample);
    ensure!(args.rate.0 > 0, "--rate is less than a byte a second: it sends nothing");
    let stage = Stage::new(&args, output)?;
    stage.say(&match &sample {
        Some(path) => format!("the payload is a recording: {}", path.display()),
        None => "the payload is noise; --sample FILE, or `pip install baseband`, makes it a real recording".into(),
    });
    let told =
        stage.play(&args, sample.as_deref()).or_else(|error| stage.give_up(error, args.clean))?;
    let good = told.nothing_lost && told.verified && told.replay_equal;
    if args.clean {
        stage.clean()?;
    }
    output.tell(&told, || conclusion(&told, args.clean))?;
    Ok(ExitCode::from(if good { output::GOOD } else { output::FOUND }))
}

/// The VDIF sample in Python's package `baseband`, if it is installed. The package is searched for, not run.
fn installed_sample() -> Option<PathBuf> {
    let found = Command::new("python3")
        .args(["-c", "import importlib.util as u; print(u.find_spec('baseband').origin)"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let origin = String::from_utf8(found.stdout).ok()?;
    let sample = Path::new(origin.trim()).parent()?.join("data/sample.vdif");
    sample.is_file().then_some(sample)
}

fn conclusion(told: &DemoJson, gone: bool) -> String {
    let yes = |good: bool| if good { "yes" } else { "NO" };
    let found = format!(
        "\nevery frame is there:          {}\nevery block verifies:          {}\nreplay equals the recording:   {}\n{}\n",
        yes(told.nothing_lost),
        yes(told.verified),
        yes(told.replay_equal),
        if told.timing_kept { "" } else { TIMING_NOT_KEPT },
    );
    if gone {
        return found + "The recordings have been removed.\n";
    }
    found
        + &format!(
            "The recordings are plain files under {}:\n  \
         the streams      <member>/<session>_<scan>_ds<stream>/<chunk>\n  \
         what they are    …/.fullbore/manifest.json, account.json\n\
         Look at them with `fullbore ls` and `fullbore info` and the --store above; remove the directory\n\
         when you have seen enough.\n",
            told.directory.display()
        )
}

/// The reason for which `play` ends with 1 on a machine that does all of this at once.
const TIMING_NOT_KEPT: &str = "the replay kept its timing:    no, for this machine was busy; the demonstration asks for its bytes alone\n";

/// The working directories.
struct Stage {
    program: PathBuf,
    directory: PathBuf,
    /// The directories created, deepest first.
    made: Vec<PathBuf>,
    store: String,
    port: u16,
    output: Output,
}

impl Stage {
    fn new(args: &Args, output: Output) -> anyhow::Result<Self> {
        let directory = match &args.directory {
            Some(directory) => directory.clone(),
            None => std::env::temp_dir(),
        };
        check_space(&directory, args.rate)?;
        let directory = match &args.directory {
            Some(_) => directory,
            None => tempfile::Builder::new().prefix("fullbore-demo-").tempdir()?.keep(),
        };
        let made = missing_directories(&directory);
        let members: Vec<PathBuf> = (0..3).map(|n| directory.join(format!("disk{n}"))).collect();
        std::fs::create_dir_all(&directory)
            .with_context(|| format!("making {}", directory.display()))?;
        for member in &members {
            // Fails for an existing directory: only directories created here may be removed at the end.
            std::fs::create_dir(member)
                .with_context(|| format!("making the member {}", member.display()))?;
        }
        let names: Vec<String> = members.iter().map(|m| m.display().to_string()).collect();
        Ok(Self {
            program: std::env::current_exe().context("finding this program")?,
            store: names.join(","),
            // A directory with a default name was created for this run.
            made: if args.directory.is_none() { vec![directory.clone()] } else { made },
            directory,
            port: free_ports()?,
            output,
        })
    }

    /// Prints the place of the recordings, or removes them.
    fn give_up(&self, error: anyhow::Error, clean: bool) -> anyhow::Result<DemoJson> {
        let left = format!("what was recorded until then is under {}", self.directory.display());
        let advice = if clean && self.clean().is_ok() { None } else { Some(left.into()) };
        Err(with_advice(error, advice))
    }

    /// Removes the members, and the directories created here if they are empty.
    fn clean(&self) -> anyhow::Result<()> {
        for member in self.store.split(',') {
            std::fs::remove_dir_all(member).with_context(|| format!("removing {member}"))?;
        }
        for directory in &self.made {
            let _ = std::fs::remove_dir(directory);
        }
        Ok(())
    }

    fn ports(&self) -> String {
        format!("udp://127.0.0.1:{}-{}", self.port, self.port + STREAMS - 1)
    }

    /// Runs all steps.
    fn play(&self, args: &Args, sample: Option<&Path>) -> anyhow::Result<DemoJson> {
        let source = format!("{}?format=vdif", self.ports());
        let scan_time = format!("{SCAN_SECONDS}s");
        let scans = SCANS.to_string();
        let recording = [
            "record",
            &source,
            "--store",
            &self.store,
            "--session",
            "demo",
            "--scan",
            "no",
            "--scans",
            &scans,
            "--duration",
            &scan_time,
        ];
        let mut recorder = self.start_recording(&recording)?;
        let rate = format!("{}B/s", args.rate.0);
        let sending = format!("{}s", SCANS * SCAN_SECONDS + 1);
        let to = self.ports();
        let mut generate =
            vec!["generate", "--to", &to, "--rate", &rate, "--duration", &sending, "--gentle"];
        let sample = sample.map(|path| path.display().to_string());
        match &sample {
            Some(path) => generate.extend(["--sample", path]),
            None => generate.extend(["--payload", "noise:1"]),
        }
        let mut sender = Running(self.start(&generate, Stdio::null())?);
        // Without a sender, the recorder would wait for frames that never come.
        let is_sending = || match sender.0.try_wait() {
            Ok(Some(it)) if it.code() == Some(i32::from(output::REFUSED)) => {
                bail!("the sender gave up")
            }
            _ => Ok(()),
        };
        let (sealed, nothing_lost) = recorder.sealed(is_sending)?;
        let sent = sender.0.wait().context("waiting for the sender")?;
        ensure!(sent.code() != Some(i32::from(output::REFUSED)), "the sender gave up");
        let mut verified = true;
        for number in 1..=SCANS {
            let scan = format!("demo_no{number:04}");
            // `nothing_lost` reports lost frames: the blocks are intact all the same.
            let code = self.code(&["verify", &scan, "--store", &self.store])?;
            verified &= [output::GOOD, output::INCOMPLETE].map(i32::from).map(Some).contains(&code);
        }
        let (replay_equal, timing_kept) = self.replay(&source)?;
        self.succeeds(&["info", "demo_no0001", "--store", &self.store])?;
        self.succeeds(&["ls", "--store", &self.store])?;
        let directory = self.directory.clone();
        let payload = sample.unwrap_or_else(|| "noise".into());
        Ok(DemoJson {
            directory,
            payload,
            nothing_lost,
            verified,
            replay_equal,
            timing_kept,
            scans: sealed,
        })
    }

    /// Plays the first scan, records it again, and compares the output of `cat` for both. Returns two flags: equality,
    /// and timing kept.
    fn replay(&self, source: &str) -> anyhow::Result<(bool, bool)> {
        let recording =
            ["record", source, "--store", &self.store, "--session", "demo", "--scan", "again"];
        let mut recorder = self.start_recording(&recording)?;
        let to = self.ports();
        let play = ["play", "demo_no0001", "--store", &self.store, "--to", &to, "--gentle"];
        // `play` reports a missed timing on a busy machine; only the bytes count here.
        let code = self.code(&play)?;
        recorder.stop()?;
        recorder.sealed(|| Ok(()))?;
        let mut equal = code != Some(i32::from(output::REFUSED));
        for stream in self.port..self.port + STREAMS {
            equal &= self.same("demo_no0001", "demo_again", &stream.to_string())?;
        }
        Ok((equal, code == Some(i32::from(output::GOOD))))
    }

    fn say(&self, text: &str) {
        if !self.output.json {
            output::print_on(&format!("{text}\n"));
        }
    }

    fn show(&self, words: &[&str]) {
        let quoted = words.iter().map(|word| {
            if word.contains(['?', '&', ';']) { format!("'{word}'") } else { (*word).to_owned() }
        });
        self.say(&format!("\n$ fullbore {}", quoted.collect::<Vec<_>>().join(" ")));
    }

    /// This program, which stops when the demonstration ends, however it ends.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env(signals::PARENT, std::process::id().to_string());
        command
    }

    fn start(&self, words: &[&str], stdout: Stdio) -> anyhow::Result<Child> {
        self.show(words);
        self.command()
            .args(words)
            .stdout(stdout)
            .stderr(Stdio::inherit())
            .spawn()
            .with_context(|| format!("starting fullbore {}", words[0]))
    }

    /// Starts a recorder and waits until it is armed.
    fn start_recording(&self, words: &[&str]) -> anyhow::Result<Recording> {
        self.show(words);
        let mut child = self
            .command()
            .arg("--json")
            .args(words)
            .stdout(Stdio::piped())
            .spawn()
            .context("starting fullbore record")?;
        let stdout = child.stdout.take().context("reading what the recorder says")?;
        let mut recording =
            Recording { child: Running(child), lines: BufReader::new(stdout), sealed: Vec::new() };
        loop {
            let event = recording.next()?.context("the recorder ended before it was armed")?;
            if event["event"] == "armed" {
                let memory = ByteSize(event["pool_bytes"].as_u64().unwrap_or(0));
                self.say(&format!("armed, with {memory} of block memory"));
                return Ok(recording);
            }
        }
    }

    fn succeeds(&self, words: &[&str]) -> anyhow::Result<bool> {
        Ok(self.code(words)? == Some(i32::from(output::GOOD)))
    }

    fn code(&self, words: &[&str]) -> anyhow::Result<Option<i32>> {
        let stdout = if self.output.json { Stdio::null() } else { Stdio::inherit() };
        Ok(self.start(words, stdout)?.wait()?.code())
    }

    /// True if a stream has the same bytes in two scans.
    fn same(&self, one: &str, other: &str, stream: &str) -> anyhow::Result<bool> {
        let cat = |scan: &str| {
            self.command()
                .args(["cat", scan, "--stream", stream, "--store", &self.store])
                .stdout(Stdio::piped())
                .spawn()
                .with_context(|| format!("starting fullbore cat {scan}"))
        };
        let (mut one, mut other) = (cat(one)?, cat(other)?);
        let mut left = one.stdout.take().context("reading the first scan")?;
        let mut right = other.stdout.take().context("reading the second scan")?;
        let equal = equal_bytes(&mut left, &mut right)?;
        // A writer without a reader ends by itself.
        drop((left, right));
        Ok(one.wait()?.success() && other.wait()?.success() && equal)
    }
}

/// The directory and its ancestors that do not exist yet, the deepest first.
fn missing_directories(directory: &Path) -> Vec<PathBuf> {
    let missing = |it: &&Path| !it.as_os_str().is_empty() && !it.exists();
    directory.ancestors().take_while(missing).map(Path::to_owned).collect()
}

fn equal_bytes(left: &mut impl Read, right: &mut impl Read) -> std::io::Result<bool> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    loop {
        a.clear();
        b.clear();
        left.take(1 << 20).read_to_end(&mut a)?;
        right.take(1 << 20).read_to_end(&mut b)?;
        if a != b || a.is_empty() {
            return Ok(a == b);
        }
    }
}

/// A running command, which is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Has no effect if the command has ended and was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running recorder.
struct Recording {
    child: Running,
    lines: BufReader<std::process::ChildStdout>,
    sealed: Vec<serde_json::Value>,
}

impl Recording {
    fn next(&mut self) -> anyhow::Result<Option<serde_json::Value>> {
        let mut line = String::new();
        if self.lines.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let event: serde_json::Value =
            serde_json::from_str(&line).context("an event of the recorder")?;
        if event["event"] == "sealed" {
            self.sealed.push(event.clone());
        }
        Ok(Some(event))
    }

    fn stop(&self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.0.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("the recorder's process")?, Signal::INT)?;
        Ok(())
    }

    /// Waits for its end, as long as `goes_on` finds no error after each event. Returns its sealed scans, and true if no
    /// frame is missing.
    fn sealed(
        &mut self,
        mut goes_on: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<(Vec<serde_json::Value>, bool)> {
        while self.next()?.is_some() {
            goes_on()?;
        }
        let status = self.child.0.wait()?;
        ensure!(status.code() != Some(i32::from(output::REFUSED)), "the recorder gave up");
        Ok((std::mem::take(&mut self.sealed), status.code() == Some(i32::from(output::GOOD))))
    }
}

/// Refuses a file whose frames cannot be sent, before anything is made.
fn check_sample(sample: &Path) -> anyhow::Result<()> {
    let read = Payloads::of_sample(sample).map_err(generate::Error::from);
    read.map(drop).map_err(explained)
}

/// The space for two scans, the replay of one, and a reserve.
fn room_for(rate: ByteRate) -> u64 {
    let seconds = u64::from((SCANS + 1) * SCAN_SECONDS + 2);
    rate.0.saturating_mul(u64::from(STREAMS) * seconds)
}

/// Checks the free space before anything is created.
fn check_space(directory: &Path, rate: ByteRate) -> anyhow::Result<()> {
    let needed = room_for(rate);
    // If the directory does not exist yet, its parent is checked.
    let there = directory.ancestors().find(|it| it.is_dir()).unwrap_or(Path::new("."));
    let status = rustix::fs::statvfs(there)
        .with_context(|| format!("asking how much is free at {}", there.display()))?;
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    if free < needed {
        bail!(
            "{} has {} free and the demo writes {}: give a smaller --rate or another --directory",
            directory.display(),
            ByteSize(free),
            ByteSize(needed)
        );
    }
    Ok(())
}

/// The first of eight adjacent ports without a listener.
fn free_ports() -> anyhow::Result<u16> {
    (46_220..60_000)
        .step_by(usize::from(STREAMS))
        .find(|&first| {
            (first..first + STREAMS).all(|port| UdpSocket::bind(("127.0.0.1", port)).is_ok())
        })
        .context("no eight neighbouring ports are free on loopback")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_beyond_any_disk_is_refused_before_anything_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("not/yet/there");
        let told = check_space(&inside, ByteRate(u64::MAX)).unwrap_err().to_string();
        assert!(told.contains("--rate") && told.contains("not/yet/there"), "{told}");
        check_space(&inside, ByteRate(1)).unwrap();
        assert!(!directory.path().join("not").exists());
    }

    #[test]
    fn a_sample_without_frames_is_refused_before_anything_is_made() {
        let directory = tempfile::tempdir().unwrap();
        let sample = directory.path().join("passwd");
        std::fs::write(&sample, "root:x:0:0:root:/root:/bin/bash\n").unwrap();
        let args = Args {
            sample: Some(sample.clone()),
            rate: ByteRate(1000),
            directory: Some(directory.path().join("demo")),
            clean: false,
        };
        let error = run(args, Output { json: true, logs: false }).unwrap_err();
        assert!(format!("{error:#}").contains("passwd"), "{error:#}");
        assert!(!directory.path().join("demo").exists());
        assert!(check_sample(Path::new("/nowhere.vdif")).is_err());
    }

    #[test]
    fn a_command_does_not_outlive_whoever_started_it() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        drop(Running(child));
        assert!(rustix::process::test_kill_process(pid).is_err());
    }
}
