//! The process of a recorder: started in a session of its own, and found again by the next daemon.
//!
//! A process number alone may belong to another process by now. So the time at which the kernel started it, and the boot,
//! are kept with it, and are compared after the process is held by a descriptor (pidfd), which no other process can get.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command};

use fullbore_linux::sys::session::in_own_session;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// A process, told apart from every other one of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Its number.
    pub pid: i32,
    /// When it was started, in clock ticks since boot.
    started: u64,
    /// The boot of the host.
    boot: String,
}

impl Identity {
    /// That of a process which is there.
    pub fn of(pid: i32) -> io::Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { pid, started: start_of(pid)?, boot })
    }

    /// Sends a signal. False if the process is gone.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(false) };
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(false) };
        if Self::of(self.pid).ok().as_ref() != Some(self) {
            return Ok(false);
        }
        match pidfd_send_signal(&held, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks a recorder to stop. It may be asked again, also by another daemon, and stops once: USR1 never aborts, as a
    /// second INT would. A recorder that does not handle USR1 (an older one, or one that is not armed) gets INT. False if
    /// the process is gone.
    pub fn stop(&self) -> io::Result<bool> {
        match handles(self.pid, Signal::USR1) {
            true => self.signal(Signal::USR1),
            false => self.signal(Signal::INT),
        }
    }

    /// True if the process is there.
    pub fn is_there(&self) -> bool {
        Self::of(self.pid).ok().as_ref() == Some(self)
    }
}

/// When a process was started: field 22 of `/proc/PID/stat` (proc_pid_stat(5)). The name before it may have spaces and
/// brackets.
fn start_of(pid: i32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let started = behind_name.split_whitespace().nth(19).and_then(|text| text.parse().ok());
    started.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no start time in its stat"))
}

/// True if a process handles a signal, by its mask of caught signals in `/proc/PID/status` (proc_pid_status(5)).
fn handles(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// Starts a command in a session of its own.
pub fn start(command: &mut Command) -> io::Result<(Child, Identity)> {
    let mut child = in_own_session(command).spawn()?;
    match i32::try_from(child.id()).map_err(io::Error::other).and_then(Identity::of) {
        Ok(identity) => Ok((child, identity)),
        Err(error) => {
            // Without an identity, no later daemon could stop it.
            let _ = child.kill();
            let _ = child.wait();
            Err(error)
        }
    }
}

/// The process whose standard output is this file, for a recorder whose daemon died before it noted the process.
pub fn with_output(path: &Path) -> Option<Identity> {
    let path = path.canonicalize().ok()?;
    let numbers = fs::read_dir("/proc").ok()?.flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut found = numbers.filter(|pid| {
        fs::read_link(format!("/proc/{pid}/fd/1")).is_ok_and(|output| output == path)
    });
    found.next().and_then(|pid| Identity::of(pid).ok())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_signal_reaches_the_process_and_no_other() {
        let mut command = Command::new("sleep");
        let (mut child, identity) = start(command.arg("60")).unwrap();
        let other = Identity { started: identity.started + 1, ..identity.clone() };
        assert!(identity.is_there() && !other.is_there());
        assert!(!other.signal(Signal::TERM).unwrap());
        assert!(child.try_wait().unwrap().is_none());
        assert!(identity.signal(Signal::TERM).unwrap());
        assert!(!child.wait().unwrap().success());
        assert!(!identity.is_there() && !identity.signal(Signal::TERM).unwrap());
    }

    #[test]
    fn a_process_is_found_by_its_output() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("output");
        let output = fs::File::create(&path).unwrap();
        let mut command = Command::new("sleep");
        let (mut child, identity) = start(command.arg("60").stdout(Stdio::from(output))).unwrap();
        assert_eq!(with_output(&path), Some(identity));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(with_output(&path), None);
    }
}
