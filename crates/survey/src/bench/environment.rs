//! The environment of a benchmark, read from `/sys` and `/proc`, or from copies from another machine.

use std::fs;
use std::path::{Path, PathBuf};

use fullbore_core::units::ByteSize;
use rustix::process::{Resource, getrlimit};

use super::result::Environment;

/// Longer files below `/sys` and `/proc` are not read: those needed here are far shorter.
const LONGEST_FILE_BYTES: u64 = 4 << 20;

/// The roots of the kernel's file systems.
#[derive(Clone, Debug)]
pub struct Roots {
    /// `/sys`.
    pub sysfs: PathBuf,
    /// `/proc`.
    pub procfs: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { sysfs: "/sys".into(), procfs: "/proc".into() }
    }
}

impl Roots {
    /// A file below `/sys`, without the line end; `None` if it does not exist or is empty.
    pub fn sys(&self, path: impl AsRef<Path>) -> Option<String> {
        text(&self.sysfs.join(path))
    }

    /// The same below `/proc`.
    pub fn proc(&self, path: impl AsRef<Path>) -> Option<String> {
        text(&self.procfs.join(path))
    }

    /// The description of this machine.
    pub fn environment(&self) -> Environment {
        let uname = rustix::system::uname();
        let lossy = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let cpuinfo = self.proc("cpuinfo").unwrap_or_default();
        let memory = self.proc("meminfo").and_then(|text| kilobytes(&text, "MemTotal"));
        Environment {
            program: concat!("fullbore ", env!("CARGO_PKG_VERSION")).into(),
            host: lossy(uname.nodename()),
            kernel: lossy(uname.release()),
            architecture: lossy(uname.machine()),
            cpu: entry(&cpuinfo, "model name").unwrap_or_else(|| "not known".into()),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            memory: ByteSize(memory.unwrap_or(0)),
            huge_pages: self
                .sys("kernel/mm/transparent_hugepage/enabled")
                .and_then(|choices| chosen(&choices)),
            memlock: getrlimit(Resource::Memlock).current.map(ByteSize),
            virtualization: self.virtualization(&cpuinfo),
            optimised: !cfg!(debug_assertions),
        }
    }

    fn virtualization(&self, cpuinfo: &str) -> Option<String> {
        if let Some(kind) = self.sys("hypervisor/type") {
            return Some(kind);
        }
        let virtual_cpu = entry(cpuinfo, "flags")?.split(' ').any(|flag| flag == "hypervisor");
        let vendor = || self.sys("class/dmi/id/sys_vendor").unwrap_or_else(|| "yes".into());
        Some(if virtual_cpu { vendor() } else { "none".into() })
    }
}

/// A short text file.
pub fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    std::io::Read::read_to_string(&mut std::io::Read::take(file, LONGEST_FILE_BYTES), &mut text)
        .ok()?;
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The value of the first line `name : value`.
fn entry(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

/// `MemTotal:  16384 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let value = entry(text, name)?;
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The word in brackets: `always [madvise] never`.
pub fn chosen(choices: &str) -> Option<String> {
    let (_, rest) = choices.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_who_it_is() {
        let environment = Roots::default().environment();
        assert!(environment.cpus > 0 && environment.memory.0 > 1 << 20, "{environment:?}");
        assert!(!environment.kernel.is_empty());
    }

    #[test]
    fn a_saved_tree_is_read_in_place_of_this_machine() {
        let saved = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = saved.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("proc/cpuinfo", "processor : 0\nmodel name\t: A Test\nflags\t: fpu hypervisor avx2\n");
        put("proc/meminfo", "MemTotal:       16384 kB\n");
        put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        put("sys/class/dmi/id/sys_vendor", "QEMU\n");
        let roots = Roots { sysfs: saved.path().join("sys"), procfs: saved.path().join("proc") };
        let environment = roots.environment();
        assert_eq!(environment.cpu, "A Test");
        assert_eq!(environment.memory, ByteSize(16 << 20));
        assert_eq!(environment.huge_pages.as_deref(), Some("madvise"));
        assert_eq!(environment.virtualization.as_deref(), Some("QEMU"));
    }
}
