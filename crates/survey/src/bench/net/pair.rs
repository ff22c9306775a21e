//! A network namespace with a virtual link (veth): the kernel's whole receive path, without a second host.
//!
//! ```text
//! this namespace                        fullbore-bench-<pid>
//!   sender ── fb<pid>a 198.18.x.1 ══ veth ══ fb<pid>b 198.18.x.2 ── bench net --serve
//! ```
//!
//! RFC 2544 reserves the addresses for benchmarks. Namespace, link and server are removed when the [`Pair`] is dropped.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fullbore_core::hint::Hint;

use super::wire::PORT;

/// Jumbo frames, as in VLBI and beamline networks.
const MTU: &str = "9000";

/// Prefix of the benchmark's namespaces; the process number follows.
const PREFIX: &str = "fullbore-bench-";

/// The directory of namespaces.
const NAMESPACES: &str = "/run/netns";

/// An error of creating a namespace.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `ip` cannot be started.
    #[error("running `{command}`: {source}")]
    Start {
        /// The command.
        command: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// `ip` failed.
    #[error("`{command}` failed: {said}")]
    Refused {
        /// The command.
        command: String,
        /// Its message.
        said: String,
    },
    /// The server in the namespace did not start.
    #[error("`{command}` did not start to listen")]
    Server {
        /// The command.
        command: String,
    },
}

impl Hint for Error {
    fn hint(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Start { .. } => "it comes with the package iproute2",
            Self::Refused { .. } => {
                "a network namespace needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN); loopback does not"
            }
            Self::Server { .. } => return None,
        }))
    }
}

/// A namespace, its link, and a server in it.
pub struct Pair {
    namespace: String,
    server: Option<Child>,
    address: Ipv4Addr,
}

impl Pair {
    /// Creates all of them; `program` is this binary.
    pub fn make(program: &Path) -> Result<Self, Error> {
        let pid = std::process::id();
        clear_of_the_dead();
        let (namespace, ours, theirs) =
            (format!("{PREFIX}{pid}"), format!("fb{pid}a"), format!("fb{pid}b"));
        // A network of four addresses for each process, from 198.18.0.0/15.
        let net = (u32::from(Ipv4Addr::new(198, 18, 0, 0))) + (pid % (1 << 15)) * 4;
        let (here, there) = (Ipv4Addr::from(net + 1), Ipv4Addr::from(net + 2));
        ip(&["netns", "add", &namespace])?;
        // From here on, dropping the pair removes all of it.
        let mut pair = Self { namespace: namespace.clone(), server: None, address: there };
        ip(&[
            "link", "add", &ours, "mtu", MTU, "type", "veth", "peer", "name", &theirs, "mtu", MTU,
            "netns", &namespace,
        ])?;
        ip(&["addr", "add", &format!("{here}/30"), "dev", &ours])?;
        ip(&["link", "set", &ours, "up"])?;
        let within = |words: &[&str]| ip(&[&["-n", &namespace], words].concat());
        within(&["addr", "add", &format!("{there}/30"), "dev", &theirs])?;
        within(&["link", "set", &theirs, "up"])?;
        within(&["link", "set", "lo", "up"])?;
        pair.start_server(program)?;
        Ok(pair)
    }

    fn start_server(&mut self, program: &Path) -> Result<(), Error> {
        let listen = format!("{}:{PORT}", self.address);
        let words = ["netns", "exec", &self.namespace];
        let mut command = Command::new("ip");
        command
            .args(words)
            .arg(program)
            .args(["bench", "net", "--serve", "--once", "--listen", &listen]);
        let told = format!(
            "ip {} {} bench net --serve --once --listen {listen}",
            words.join(" "),
            program.display()
        );
        let start = |source| Error::Start { command: told.clone(), source };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().map_err(start)?;
        let said = server.stdout.take();
        self.server = Some(server);
        let mut line = String::new();
        let read = said.map(|said| BufReader::new(said).read_line(&mut line));
        match (read, line.contains("listening")) {
            (Some(Ok(_)), true) => Ok(()),
            _ => Err(Error::Server { command: told }),
        }
    }

    /// The address of the server.
    pub fn address(&self) -> String {
        format!("{}:{PORT}", self.address)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            // The server ends with its connection; a server without a connection is ended here.
            let _ = server.kill();
            let _ = server.wait();
        }
        // The link is removed with the namespace that holds its other end.
        let _ = ip(&["netns", "del", &self.namespace]);
    }
}

/// Removes the namespaces of killed processes. Their servers have ended by themselves.
fn clear_of_the_dead() {
    let Ok(entries) = std::fs::read_dir(NAMESPACES) else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let pid = name.strip_prefix(PREFIX).and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            // Another process may remove it at the same time.
            let _ = ip(&["netns", "del", &name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<(), Error> {
    let command = format!("ip {}", words.join(" "));
    let start = |source| Error::Start { command: command.clone(), source };
    let done = Command::new("ip").args(words).stdin(Stdio::null()).output().map_err(start)?;
    match done.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            Err(Error::Refused { command, said })
        }
    }
}
