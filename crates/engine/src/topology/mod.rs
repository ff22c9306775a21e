//! The topology of the machine, as the kernel reports it: cores and their siblings, caches, memory nodes, the nodes of
//! cards and disks, and the cores that handle their interrupts.
//!
//! All files are read below a root, `/` except in tests, so a saved tree of another machine works too. Each file may be
//! missing: a virtual machine may report no nodes, a container no interrupts. Missing information is treated as
//! unknown.

mod card;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use fullbore_core::affinity::{Cpu, DiskTopology, Machine, parse};

pub use card::{Link, NetworkPath, link, nic_topology};

/// The longest file that is read; the files used here are far shorter.
const LONGEST_FILE_BYTES: u64 = 1 << 20;

/// The most directory entries that are read: interrupts of a card, disks below a disk.
const MOST_ENTRIES: usize = 4096;

/// The deepest stack of disks: a volume in a volume group on an array is three.
const DEEPEST: usize = 8;

/// Returns the topology of these processors, within the CPU quota. Processors without information count as cores of
/// their own.
pub fn machine(root: &Path, allowed: &[usize]) -> Machine {
    let system = root.join("sys/devices/system");
    let isolated: BTreeSet<usize> = list(&system.join("cpu/isolated")).into_iter().collect();
    let nodes = nodes(&system.join("node"));
    let cpus = allowed.iter().map(|&number| {
        let cpu = system.join(format!("cpu/cpu{number}"));
        let siblings = list(&cpu.join("topology/thread_siblings_list"));
        let lowest = |list: Vec<usize>| list.into_iter().min().unwrap_or(number) as u32;
        let package = list(&cpu.join("topology/core_siblings_list"));
        let node = nodes.iter().find(|(_, cpus)| cpus.contains(&number));
        Cpu {
            number,
            core: lowest(siblings),
            cache: lowest(last_cache(&cpu).unwrap_or(package)),
            node: node.map(|(node, _)| *node),
            isolated: isolated.contains(&number),
        }
    });
    Machine { cpus: cpus.collect(), quota: quota(root) }
}

/// Returns the topology of the disk below a file system, which is given by its device number.
pub fn disk_topology(root: &Path, (major, minor): (u32, u32)) -> DiskTopology {
    let device = root.join(format!("sys/dev/block/{major}:{minor}"));
    let mut nodes = BTreeSet::new();
    disk_nodes(&device, DEEPEST, &mut nodes);
    let node = if nodes.len() == 1 { nodes.pop_first() } else { None };
    DiskTopology { node }
}

/// Collects the nodes of a disk, or of the disks below it.
fn disk_nodes(device: &Path, deepest: usize, nodes: &mut BTreeSet<u32>) {
    let below = entries(&device.join("slaves"));
    if below.is_empty() || deepest == 0 {
        nodes.extend(node_of(device));
        return;
    }
    below.iter().for_each(|disk| disk_nodes(disk, deepest - 1, nodes));
}

/// Returns the node of a device, or of the nearest device above it that has one.
fn node_of(device: &Path) -> Option<u32> {
    above(device, "numa_node")
        .and_then(|path| text(&path))
        // -1 means unknown.
        .and_then(|node| node.parse().ok())
}

/// Returns a file or directory of this name, of a device or the nearest above it that has one.
fn above(device: &Path, name: &str) -> Option<PathBuf> {
    let mut place = device.canonicalize().ok()?;
    loop {
        let wanted = place.join(name);
        if wanted.exists() {
            return Some(wanted);
        }
        if !place.pop() || place.ends_with("devices") {
            return None;
        }
    }
}

/// Returns the processors that share the last-level cache.
fn last_cache(cpu: &Path) -> Option<Vec<usize>> {
    let level = |cache: &PathBuf| text(&cache.join("level"))?.parse::<u32>().ok();
    let caches = entries(&cpu.join("cache")).into_iter().filter_map(|it| Some((level(&it)?, it)));
    let (level, last) = caches.max()?;
    // On most machines the second level belongs to one core, so cores do not share it.
    let shared = list(&last.join("shared_cpu_list"));
    (level >= 3 && !shared.is_empty()).then_some(shared)
}

/// Returns memory nodes with their processors.
fn nodes(system: &Path) -> Vec<(u32, Vec<usize>)> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.strip_prefix("node")?.parse().ok();
    let mut nodes: Vec<(u32, Vec<usize>)> = entries(system)
        .iter()
        .filter_map(|path| Some((number(path)?, list(&path.join("cpulist")))))
        .collect();
    nodes.sort();
    nodes
}

/// Returns the CPU quota of this process's cgroups in cores: the least of its group and all above.
fn quota(root: &Path) -> Option<usize> {
    let groups = text(&root.join("proc/self/cgroup"))?;
    let least = |cores: Option<usize>, quota: f64| {
        let whole = (quota.floor() as usize).max(1);
        Some(cores.map_or(whole, |cores| cores.min(whole)))
    };
    let mut cores = None;
    for group in groups.lines() {
        let mut parts = group.splitn(3, ':').skip(1);
        let (Some(kinds), Some(path)) = (parts.next(), parts.next()) else { continue };
        let path = path.trim_start_matches('/');
        if path.split('/').any(|part| part == "..") {
            continue;
        }
        let mount = match kinds {
            "" => root.join("sys/fs/cgroup"),
            _ if kinds.split(',').any(|kind| kind == "cpu") => root.join("sys/fs/cgroup/cpu"),
            _ => continue,
        };
        // In a container the path may be hidden, but then its own group is the visible root.
        let mut place = mount.join(path);
        loop {
            let limit = if kinds.is_empty() { unified(&place) } else { split(&place) };
            cores = limit.map_or(cores, |limit| least(cores, limit));
            if place == mount || !place.pop() {
                break;
            }
        }
    }
    cores
}

/// Reads `cpu.max` of the unified hierarchy: `200000 100000`, or `max 100000`.
fn unified(group: &Path) -> Option<f64> {
    let limit = text(&group.join("cpu.max"))?;
    let (quota, period) = limit.split_once(' ')?;
    ratio(quota, period)
}

/// Reads the two files of cgroup v1; -1 means no quota.
fn split(group: &Path) -> Option<f64> {
    let read = |name: &str| text(&group.join(name));
    ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let (quota, period): (f64, f64) = (quota.trim().parse().ok()?, period.trim().parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

/// Reads a list of processors from a file; empty if the file is missing.
fn list(path: &Path) -> Vec<usize> {
    text(path).and_then(|text| parse(&text)).unwrap_or_default()
}

/// Returns the entries of a directory, ordered by name.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut paths: Vec<PathBuf> =
        entries.take(MOST_ENTRIES).filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

/// Reads a short file, without the newline at its end.
pub(crate) fn text(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(LONGEST_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text.trim_end().to_owned())
}
