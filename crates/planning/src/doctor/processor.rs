//! Processors, other load, and the clock.

use std::fs;
use std::path::{Path, PathBuf};

use fullbore_linux::sys::clock;
use fullbore_survey::bench::environment::{Roots, text};
use fullbore_survey::bench::health;

use super::fix::Setting;
use super::{Finding, Grade, Host};

/// The most processors that are looked at.
const MOST_CPUS: usize = 4096;

/// A deeper sleep than this is left too late for a packet, in microseconds: C1 takes a few.
const LONGEST_EXIT_US: u64 = 10;

/// The share of time in percent in which something waits, above which other load disturbs.
const MOST_PRESSURE: f64 = 5.0;

/// Checks processors, load and clock.
pub fn check(host: &Host) -> Vec<Finding> {
    let roots = &host.roots;
    let cpus = cpus(roots);
    let mut findings = vec![governor(&cpus), sleeps(&cpus), numa_balancing(roots), load(roots)];
    findings.extend(["cpu", "memory", "io"].map(|what| pressure(roots, what)));
    findings.push(throttling(roots, host));
    findings.push(clock(host));
    findings
}

fn cpus(roots: &Roots) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(roots.sysfs.join("devices/system/cpu")) else { return vec![] };
    let number = |path: &PathBuf| -> Option<u32> {
        path.file_name()?.to_str()?.strip_prefix("cpu")?.parse().ok()
    };
    let mut cpus: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    cpus.retain(|path| number(path).is_some());
    cpus.sort_by_key(number);
    cpus.truncate(MOST_CPUS);
    cpus
}

/// The name of a processor's directory: `cpu3`.
fn name(cpu: &Path) -> String {
    cpu.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn governor(cpus: &[PathBuf]) -> Finding {
    let governors = cpus.iter().map(|cpu| (cpu, text(&cpu.join("cpufreq/scaling_governor"))));
    let known: Vec<(&PathBuf, String)> =
        governors.filter_map(|(cpu, governor)| Some((cpu, governor?))).collect();
    let Some((_, first)) = known.first() else {
        return Finding::unknown("governor", "processors", "no governor is reported");
    };
    let slow: Vec<_> = known.iter().filter(|(_, governor)| governor != "performance").collect();
    if slow.is_empty() {
        return Finding::new("governor", "processors", Grade::Good, format!("governor {first}"));
    }
    let found = format!("governor {} on {} of {} processors", slow[0].1, slow.len(), known.len());
    let fix = slow.iter().map(|(cpu, _)| {
        let path = format!("devices/system/cpu/{}/cpufreq/scaling_governor", name(cpu));
        Setting::sys(&path, "performance")
    });
    Finding::new("governor", "processors", Grade::Problem, found)
        .cost("a core that slept runs at its lowest clock when a burst arrives")
        .fix(fix.collect())
}

/// Sleep states that take long to leave.
fn sleeps(cpus: &[PathBuf]) -> Finding {
    let mut deep = Vec::new();
    let mut known = 0;
    let mut longest = 0;
    for cpu in cpus {
        for state in 0..16 {
            let place = cpu.join(format!("cpuidle/state{state}"));
            let number = |file: &str| text(&place.join(file))?.parse::<u64>().ok();
            let (Some(exit), Some(disabled)) = (number("latency"), number("disable")) else {
                continue;
            };
            known += 1;
            if exit > LONGEST_EXIT_US && disabled == 0 {
                longest = longest.max(exit);
                let path = format!("devices/system/cpu/{}/cpuidle/state{state}/disable", name(cpu));
                deep.push(Setting::sys(&path, 1));
            }
        }
    }
    if known == 0 {
        return Finding::unknown("c-states", "processors", "no sleep states are reported");
    }
    let found = match deep.len() {
        0 => format!("no sleep state takes longer than {LONGEST_EXIT_US} µs to leave"),
        _ => format!("sleep states that take up to {longest} µs to leave"),
    };
    let grade = if deep.is_empty() { Grade::Good } else { Grade::Advice };
    Finding::new("c-states", "processors", grade, found)
        .cost("the first packets after a pause wait in the ring until the core is awake")
        .fix(deep)
}

fn numa_balancing(roots: &Roots) -> Finding {
    match roots.proc("sys/kernel/numa_balancing").as_deref() {
        // Kernels without it do not have the file.
        None if roots.proc("sys/kernel/osrelease").is_some() => {
            Finding::new("numa-balancing", "kernel", Grade::Good, "pages are not moved")
        }
        None => Finding::unknown("numa-balancing", "kernel", "/proc/sys/kernel cannot be read"),
        Some("0") => Finding::new("numa-balancing", "kernel", Grade::Good, "pages are not moved"),
        Some(_) => Finding::new(
            "numa-balancing",
            "kernel",
            Grade::Advice,
            "the kernel moves pages between memory nodes",
        )
        .cost("it unmaps pages of blocks to see who uses them, and capture waits for the fault")
        .fix(vec![Setting::proc("sys/kernel/numa_balancing", 0)]),
    }
}

/// Other load, as the number of runnable threads per processor.
fn load(roots: &Roots) -> Finding {
    let one =
        roots.proc("loadavg").and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    let online = roots.sys("devices/system/cpu/online");
    let cpus = online.and_then(|list| fullbore_core::affinity::parse(&list)).map(|it| it.len());
    let (Some(one), Some(cpus)) = (one, cpus.filter(|count| *count > 0)) else {
        return Finding::unknown("load", "processors", "the load cannot be read");
    };
    let found = format!("load {one:.2} on {cpus} processors");
    let grade = if one > cpus as f64 * 0.5 { Grade::Problem } else { Grade::Good };
    Finding::new("load", "processors", grade, found)
        .cost("other programs take the time of capture threads and writers")
        .command("ps -eo pcpu,comm --sort=-pcpu | head shows them; run `record` with --priority, or stop them")
}

fn pressure(roots: &Roots, what: &str) -> Finding {
    let id = match what {
        "cpu" => "pressure-cpu",
        "memory" => "pressure-memory",
        _ => "pressure-io",
    };
    let some = roots.proc(format!("pressure/{what}")).and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("some "))?;
        let value = line.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?;
        value.parse::<f64>().ok()
    });
    let Some(share) = some else {
        return Finding::unknown(id, "kernel", format!("/proc/pressure/{what} cannot be read"));
    };
    let found = format!("something waited for {what} in {share} % of the last ten seconds");
    let grade = if share > MOST_PRESSURE { Grade::Advice } else { Grade::Good };
    Finding::new(id, "kernel", grade, found)
        .cost("a recording would wait as well")
        .command("systemd-cgtop shows the services that use the machine")
}

/// Throttling of processors and drives since the start of the host.
fn throttling(roots: &Roots, host: &Host) -> Finding {
    let none: Vec<String> = vec![];
    if !host.is_this && !roots.sysfs.join("devices/system/cpu").exists() {
        return Finding::unknown("cpu-throttling", "processors", "counters cannot be read");
    }
    match health::counters(roots, &none).first() {
        None => Finding::unknown("cpu-throttling", "processors", "no counter is reported"),
        Some((_, 0)) => Finding::new("cpu-throttling", "processors", Grade::Good, "never too hot"),
        Some((_, count)) => {
            let found = format!("slowed down by heat {count} times since the start of the host");
            Finding::new("cpu-throttling", "processors", Grade::Advice, found)
                .cost("a hot core is slower than the benchmark said")
                .command("improve the cooling, then compare the count during a test")
        }
    }
}

fn clock(host: &Host) -> Finding {
    let synchronised = if host.is_this { clock::is_synchronised() } else { None };
    match synchronised {
        None => Finding::unknown("clock", "host", "only the host itself can tell"),
        Some(true) => Finding::new("clock", "host", Grade::Good, "the clock is synchronised"),
        Some(false) => Finding::new(
            "clock",
            "host",
            Grade::Problem,
            "the clock is not synchronised",
        )
        .cost("start times of schedules and the ages of frames are wrong by the error of the clock")
        .command("systemctl enable --now chrony (or systemd-timesyncd, or ptp4l)"),
    }
}
