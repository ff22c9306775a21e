//! The disks below the members of a store: mounts, queues, space, temperatures, health.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fullbore_survey::bench::disk::target;
use fullbore_survey::bench::environment::{Roots, chosen, text};
use fullbore_survey::bench::health;
use fullbore_survey::report;

use super::{Finding, Grade, Host, health as told};

/// The share of a file system that should be free, in percent.
const WANTED_FREE: f64 = 5.0;

/// Degrees below its limit at which a drive is called hot.
const NEAR_LIMIT_C: f64 = 5.0;

/// Checks the members of the store.
pub fn check(host: &Host) -> Vec<Finding> {
    if host.store.is_empty() {
        let why = "no member is given; name them with --store";
        return vec![Finding::unknown("store", "disks", why)];
    }
    let mut drives = BTreeSet::new();
    let mut findings: Vec<Finding> =
        host.store.iter().flat_map(|member| of_member(&host.roots, member, &mut drives)).collect();
    for drive in &drives {
        findings.extend(of_drive(&host.roots, drive));
        if !host.quick {
            findings.push(if host.is_this {
                told::of_drive(drive).finding
            } else {
                not_told(drive)
            });
        }
    }
    findings
}

fn of_member(roots: &Roots, member: &Path, drives: &mut BTreeSet<String>) -> Vec<Finding> {
    let name = member.display().to_string();
    let metadata = match member.metadata() {
        Ok(metadata) => metadata,
        Err(error) => return vec![Finding::new("store", &name, Grade::Problem, error.to_string())],
    };
    let facts = target::facts(roots, member, metadata.dev());
    if let Some(device) = &facts.device {
        drives.extend(health::drives(roots, device));
    }
    vec![
        space(member, &name),
        mount(&name, facts.file_system.as_deref(), facts.mount_options.as_deref()),
    ]
}

fn space(member: &Path, name: &str) -> Finding {
    let Ok(status) = rustix::fs::statvfs(member) else {
        return Finding::unknown("space", name, "the free space cannot be read");
    };
    let free = status.f_bavail as f64 * status.f_frsize as f64;
    let all = (status.f_blocks as f64 * status.f_frsize as f64).max(1.0);
    let found = format!("{} of {} free", report::size(free), report::size(all));
    let grade = if free / all * 100.0 < WANTED_FREE { Grade::Problem } else { Grade::Good };
    Finding::new("space", name, grade, found)
        .cost("a nearly full file system is slow, and the recording ends when it is full")
        .command("fullbore rm, or --keep of record")
}

fn mount(name: &str, file_system: Option<&str>, options: Option<&str>) -> Finding {
    let (Some(file_system), Some(options)) = (file_system, options) else {
        return Finding::unknown("mount", name, "its mount options cannot be read");
    };
    let has = |wanted: &[&str]| {
        options.split(',').find(|option| wanted.contains(option)).map(str::to_owned)
    };
    let found = format!("{file_system}, mounted with {options}");
    let bad = has(&["discard", "discard=sync", "sync", "dirsync"]);
    if let Some(option) = bad {
        return Finding::new("mount", name, Grade::Problem, found)
            .cost("with discard or sync, removing scans or writing waits for the drive")
            .command(format!("mount -o remount,no{option} {name}, and fstrim once a week"));
    }
    if ["nfs", "nfs4", "cifs", "fuse", "overlay"].contains(&file_system) {
        return Finding::new("mount", name, Grade::Advice, found)
            .cost("a file system of this kind has stalls that no benchmark of its disks shows")
            .command("record onto a local ext4 or XFS");
    }
    Finding::new("mount", name, Grade::Good, found)
}

fn of_drive(roots: &Roots, drive: &str) -> Vec<Finding> {
    let queue = |file: &str| roots.sys(format!("class/block/{drive}/queue/{file}"));
    let mut findings = vec![scheduler(drive, queue("scheduler"))];
    findings.push(match queue("write_cache").as_deref() {
        None => Finding::unknown("write-cache", drive, "its write cache is not reported"),
        Some("write back") => Finding::new("write-cache", drive, Grade::Good, "write cache: write back"),
        Some(other) => Finding::new("write-cache", drive, Grade::Advice, format!("write cache: {other}"))
            .cost("hard disks write slower without it; drives with a capacitor report it, and lose nothing")
            .command(format!("hdparm -W1 /dev/{drive}, if it is a hard disk")),
    });
    findings.push(match queue("read_ahead_kb").and_then(|text| text.parse::<u64>().ok()) {
        None => Finding::unknown("read-ahead", drive, "its read-ahead is not reported"),
        // Recorded scans are read with direct I/O, which does not use it.
        Some(kb) => Finding::new("read-ahead", drive, Grade::Good, format!("read-ahead {kb} KiB")),
    });
    findings.extend(temperatures(roots, drive));
    findings
}

fn scheduler(drive: &str, scheduler: Option<String>) -> Finding {
    let Some(all) = scheduler else {
        return Finding::unknown("scheduler", drive, "its scheduler is not reported");
    };
    let now = chosen(&all).unwrap_or(all);
    let good = ["none", "mq-deadline", "deadline", "noop"].contains(&now.as_str());
    let found = format!("scheduler {now}");
    Finding::new("scheduler", drive, if good { Grade::Good } else { Grade::Advice }, found)
        .cost("it delays large writes to be fair to small reads")
        .command(format!("echo none > /sys/class/block/{drive}/queue/scheduler"))
}

fn temperatures(roots: &Roots, drive: &str) -> Vec<Finding> {
    let sensors = health::sensors(roots, drive);
    if sensors.is_empty() {
        return vec![Finding::unknown("temperature", drive, "it has no sensor here")];
    }
    let told = |sensor: &health::Sensor| {
        let now = text(&sensor.input).and_then(|text| text.parse::<f64>().ok());
        let Some(now) = now.map(|thousandths| thousandths / 1000.0) else {
            return Finding::unknown("temperature", &sensor.name, "its sensor cannot be read");
        };
        let (grade, limit) = match sensor.limit_c {
            None => (Grade::Good, String::new()),
            Some(limit) if now >= limit - NEAR_LIMIT_C => {
                (Grade::Problem, format!(" of at most {limit} °C"))
            }
            Some(limit) => (Grade::Good, format!(" of at most {limit} °C")),
        };
        Finding::new("temperature", &sensor.name, grade, format!("{now} °C{limit}"))
            .cost("a hot drive throttles to a fraction of its rate")
            .command("improve the airflow over the drive, or give it a heat sink")
    };
    sensors.iter().map(told).collect()
}

fn not_told(drive: &str) -> Finding {
    Finding::unknown("health", drive, "only the host itself can tell")
}
