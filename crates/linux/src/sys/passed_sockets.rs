//! The sockets that a service manager has bound for this process (sd_listen_fds(3)).

use std::env;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is passed.
const FIRST: RawFd = 3;

/// The most descriptors that are taken.
const MOST: i32 = 64;

/// Takes the sockets that `LISTEN_FDS` and `LISTEN_PID` announce to this process. A second call finds none.
pub fn passed_sockets() -> io::Result<Vec<OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let own = |pid: String| pid == std::process::id().to_string();
    if !env::var("LISTEN_PID").is_ok_and(own) || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let number = env::var("LISTEN_FDS").ok().and_then(|text| text.parse::<i32>().ok());
    let number = number.filter(|number| (0..=MOST).contains(number));
    let number = number.ok_or_else(|| invalid("LISTEN_FDS is no number of sockets"))?;
    (FIRST..FIRST + number).map(taken).collect()
}

fn taken(number: RawFd) -> io::Result<OwnedFd> {
    // What the manager did not open is not there, or is a file of ours that is no socket.
    let target = std::fs::read_link(format!("/proc/self/fd/{number}"))?;
    if !target.to_string_lossy().starts_with("socket:") {
        return Err(invalid("a descriptor that LISTEN_FDS announces is no socket"));
    }
    // SAFETY: the manager passes this descriptor to this process, by LISTEN_PID, for it to own. `passed_sockets` takes
    // each one once, and nothing else here knows its number.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    // Recorders are children, and do not inherit it.
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
