//! What can be seen of the recorders on this host: locks of scans, sockets, published load, pressure.
//!
//! Paths are below a root, so that saved trees are fixtures.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use fullbore_linux::load_file::{self, RecorderLoad};

use super::machine::Observation;
use crate::recordings::Recordings;

/// The age at which the list of recorders' sockets is made again.
const SOCKETS_FOR: Duration = Duration::from_secs(1);

/// The name of the program, as the kernel has it.
const PROGRAM: &str = "fullbore";

/// This host, or a saved tree of one.
#[derive(Debug)]
pub struct Host {
    proc: PathBuf,
    loads: PathBuf,
    begun: Instant,
    recordings: Recordings,
    rmem_max: Option<u64>,
    sockets: Sockets,
    /// Drop counters of the sockets at the last look, by inode.
    dropped: BTreeMap<u64, u64>,
    /// Overrun counters of the recorders at the last look, by process.
    overran: BTreeMap<u32, u64>,
    drops: u64,
    overrun: u64,
}

/// The sockets of recorders.
#[derive(Debug, Default)]
struct Sockets {
    at: Option<Instant>,
    /// Sockets of processes whose files can be listed.
    inodes: BTreeSet<u64>,
    /// Users of the other processes: all their sockets count.
    users: BTreeSet<u32>,
}

/// A line of `/proc/net/udp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UdpSocket {
    queue_bytes: u64,
    user: u32,
    inode: u64,
    drops: u64,
}

impl Host {
    /// This host. The members with these roots are watched for recordings.
    pub fn here(roots: &[PathBuf]) -> Self {
        Self::under(Path::new("/proc"), Path::new(load_file::DIRECTORY), roots)
    }

    /// A tree in place of `/proc`, and a directory of load files.
    pub fn under(proc: &Path, loads: &Path, roots: &[PathBuf]) -> Self {
        Self {
            proc: proc.to_owned(),
            loads: loads.to_owned(),
            begun: Instant::now(),
            recordings: Recordings::on(roots),
            rmem_max: number(&proc.join("sys/net/core/rmem_max")),
            sockets: Sockets::default(),
            dropped: BTreeMap::new(),
            overran: BTreeMap::new(),
            drops: 0,
            overrun: 0,
        }
    }

    /// Looks at the host. Without a recorder this costs next to nothing.
    pub fn observe(&mut self) -> Observation {
        let loads = load_file::read_all(&self.loads);
        let recording = self.recordings.look().is_some() || !loads.is_empty();
        let mut seen = Observation {
            at: self.begun.elapsed(),
            second_of_day: second_of_day(),
            recording,
            queue_limit: queue_limit(&loads, self.rmem_max),
            ..Observation::default()
        };
        self.take_loads(&loads);
        if recording {
            seen.queue_bytes = self.look_at_sockets(&loads);
            seen.cpu_waited_us = waited(&self.proc.join("pressure/cpu"));
            seen.io_waited_us = waited(&self.proc.join("pressure/io"));
        }
        seen.ring_permille = loads.iter().map(|load| load.used_permille).max().unwrap_or(0);
        (seen.overrun, seen.drops) = (self.overrun, self.drops);
        seen
    }

    /// The time of an observation made now.
    pub fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The moment that times are counted from.
    pub fn begun(&self) -> Instant {
        self.begun
    }

    fn take_loads(&mut self, loads: &[RecorderLoad]) {
        let mut now: BTreeMap<u32, u64> = BTreeMap::new();
        for load in loads {
            *now.entry(load.pid).or_default() += load.overrun;
        }
        self.overrun += rise(&self.overran, &now);
        self.overran = now;
    }

    /// Counts what recorders' sockets dropped, and returns the bytes in their fullest queue.
    fn look_at_sockets(&mut self, loads: &[RecorderLoad]) -> u64 {
        if self.sockets.at.is_none_or(|at| at.elapsed() >= SOCKETS_FOR) {
            self.sockets = Sockets::find(&self.proc, loads);
        }
        let tables =
            ["net/udp", "net/udp6"].map(|table| std::fs::read_to_string(self.proc.join(table)));
        let lines = tables.iter().flatten().flat_map(|table| table.lines().skip(1));
        let known: Vec<UdpSocket> =
            lines.filter_map(UdpSocket::parse).filter(|it| self.sockets.have(it)).collect();
        let dropped = known.iter().map(|it| (it.inode, it.drops)).collect();
        self.drops += rise(&self.dropped, &dropped);
        self.dropped = dropped;
        known.iter().map(|it| it.queue_bytes).max().unwrap_or(0)
    }
}

impl Sockets {
    /// Finds the sockets of recorders: of processes with a load file, and of this program.
    fn find(proc: &Path, loads: &[RecorderLoad]) -> Self {
        let mut found = Self { at: Some(Instant::now()), ..Self::default() };
        let entries = std::fs::read_dir(proc).into_iter().flatten().flatten();
        let processes = entries.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
        for process in processes {
            let path = proc.join(process.to_string());
            let is_ours = || {
                std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == PROGRAM)
            };
            if loads.iter().any(|load| load.pid == process) || is_ours() {
                found.take(&path);
            }
        }
        found
    }

    fn take(&mut self, process: &Path) {
        match std::fs::read_dir(process.join("fd")) {
            Ok(files) => {
                let links = files.flatten().filter_map(|it| std::fs::read_link(it.path()).ok());
                self.inodes.extend(links.filter_map(|link| {
                    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
                }));
            }
            Err(_) => self.users.extend(std::fs::metadata(process).map(|it| it.uid())),
        }
    }

    fn have(&self, socket: &UdpSocket) -> bool {
        self.inodes.contains(&socket.inode) || self.users.contains(&socket.user)
    }
}

impl UdpSocket {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (_, queued) = words.get(4)?.split_once(':')?;
        Some(Self {
            queue_bytes: u64::from_str_radix(queued, 16).ok()?,
            user: words.get(7)?.parse().ok()?,
            inode: words.get(9)?.parse().ok()?,
            drops: words.get(12)?.parse().ok()?,
        })
    }
}

/// Returns the sum by which counters have risen. One that is new, or went back, has not risen.
fn rise<K: Ord>(before: &BTreeMap<K, u64>, now: &BTreeMap<K, u64>) -> u64 {
    let risen = |(key, now): (&K, &u64)| now.saturating_sub(*before.get(key).unwrap_or(now));
    now.iter().map(risen).sum()
}

/// Returns the bytes in a receive queue that count as many: a quarter of the smallest receive buffer that recorders have.
/// If they do not tell, it is a quarter of what a socket may ask for.
fn queue_limit(loads: &[RecorderLoad], rmem_max: Option<u64>) -> u64 {
    let buffers = loads.iter().map(|load| load.receive_buffer).filter(|bytes| *bytes > 0);
    (buffers.min().or(rmem_max).unwrap_or(0) / 4).max(128 << 10)
}

fn number(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns the time for which some task waited, in microseconds. A kernel without PSI has no such file.
fn waited(path: &Path) -> u64 {
    let total = || {
        let text = std::fs::read_to_string(path).ok()?;
        let line = text.lines().find(|line| line.starts_with("some "))?;
        line.split_ascii_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
    };
    total().unwrap_or(0)
}

fn second_of_day() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() % 86_400) as u32
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use fullbore_linux::load_file::LoadFile;
    use tempfile::TempDir;

    use super::*;

    const HEAD: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops";

    /// A tree in place of `/proc`, with a recorder as process 77.
    struct Tree {
        root: TempDir,
        load: LoadFile,
    }

    impl Tree {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            for directory in ["net", "pressure", "sys/net/core", "77/fd", "78/fd", "loads"] {
                fs::create_dir_all(root.path().join(directory)).unwrap();
            }
            let load = LoadFile::create(&root.path().join("loads"), 64 << 20).unwrap();
            let tree = Self { root, load };
            tree.put("77/comm", "fullbore\n");
            tree.put("78/comm", "avahi-daemon\n");
            tree.put("sys/net/core/rmem_max", "4194304\n");
            symlink("socket:[1001]", tree.root.path().join("77/fd/5")).unwrap();
            symlink("/dev/null", tree.root.path().join("77/fd/6")).unwrap();
            symlink("socket:[2002]", tree.root.path().join("78/fd/5")).unwrap();
            tree.sockets(0, 0);
            tree
        }

        fn put(&self, name: &str, text: &str) {
            fs::write(self.root.path().join(name), text).unwrap();
        }

        /// Writes the socket table: the recorder's socket, and another one that nobody reads.
        fn sockets(&self, queued: u64, drops: u64) {
            self.put("net/udp", &format!(
                "{HEAD}\n 1234: 00000000:B48C 00000000:0000 07 00000000:{queued:08X} 00:00000000 00000000  1000        0 1001 2 0000000000000000 {drops}         \n \
                 1300: 00000000:14E9 00000000:0000 07 00000000:00FFFFFF 00:00000000 00000000   108        0 2002 2 0000000000000000 {}\n",
                drops * 99
            ));
        }

        fn pressure(&self, us: u64) {
            let line = |kind| format!("{kind} avg10=0.00 avg60=0.00 avg300=0.00 total={us}\n");
            self.put("pressure/cpu", &line("some"));
            self.put("pressure/io", &(line("some") + &line("full")));
        }

        fn host(&self) -> Host {
            Host::under(self.root.path(), &self.root.path().join("loads"), &[])
        }
    }

    #[test]
    fn a_recorder_is_seen_by_its_load_its_socket_and_the_pressure() {
        let mut tree = Tree::new();
        let mut host = tree.host();
        tree.pressure(10);
        let before = host.observe();
        assert!(!before.recording);
        assert_eq!(before.queue_limit, 1 << 20);
        tree.load.put(100, 3);
        host.observe();
        tree.load.put(250, 5);
        tree.sockets(70_000, 0);
        tree.pressure(4567);
        host.observe();
        tree.sockets(80_000, 7);
        let now = host.observe();
        assert!(now.recording);
        assert_eq!(now.queue_limit, 16 << 20, "a quarter of the recorder's buffer");
        assert_eq!((now.ring_permille, now.overrun), (250, 2), "counters before do not count");
        assert_eq!((now.queue_bytes, now.drops), (80_000, 7), "other sockets do not count");
        assert_eq!((now.cpu_waited_us, now.io_waited_us), (4567, 4567));
        assert!(now.at >= before.at && now.second_of_day < 86_400);
    }

    #[test]
    fn sockets_of_a_recorder_whose_files_are_hidden_are_known_by_its_user() {
        let tree = Tree::new();
        fs::remove_dir_all(tree.root.path().join("77/fd")).unwrap();
        let found = Sockets::find(tree.root.path(), &[]);
        assert!(found.inodes.is_empty());
        let user = fs::metadata(tree.root.path()).unwrap().uid();
        let socket = UdpSocket { queue_bytes: 0, user, inode: 5, drops: 0 };
        assert!(found.have(&socket) && !found.have(&UdpSocket { user: user + 1, ..socket }));
    }

    #[test]
    fn a_host_without_these_files_shows_nothing() {
        let nothing = tempfile::tempdir().unwrap();
        let mut tree = Tree::new();
        tree.load.put(0, 0);
        let loads = tree.root.path().join("loads");
        let now = Host::under(nothing.path(), &loads, &[]).observe();
        assert!(now.recording);
        assert_eq!((now.queue_bytes, now.drops, now.cpu_waited_us), (0, 0, 0));
        assert_eq!(now.queue_limit, 16 << 20);
        assert_eq!(queue_limit(&[], None), 128 << 10);
    }

    #[test]
    fn this_host_can_be_observed() {
        let mut host = Host::here(&["/nowhere".into()]);
        assert!(host.observe().at <= host.observe().at);
    }

    #[test]
    fn lines_that_are_no_socket_are_passed_over() {
        for line in ["", HEAD, "1: a b c d:zz", "1: a b c 0:10 x y 0 0 12 2 p"] {
            assert_eq!(UdpSocket::parse(line), None, "{line}");
        }
    }
}
