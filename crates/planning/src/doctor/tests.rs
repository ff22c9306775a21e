//! Saved hosts, and the way back of settings.

use std::fs;
use std::path::Path;

use fullbore_survey::bench::environment::Roots;
use serde_json::json;

use super::fix::{self, Setting};
use super::*;

/// A host as its files show it, tuned or not.
fn saved(root: &Path, tuned: bool) {
    let put = |path: &str, text: &str| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let choose = |good: &'static str, bad: &'static str| if tuned { good } else { bad };
    put("proc/sys/kernel/hostname", "station\n");
    put("proc/sys/kernel/osrelease", "6.12.0\n");
    put("proc/sys/kernel/numa_balancing", choose("0", "1"));
    put("proc/sys/net/core/rmem_max", choose("268435456", "212992"));
    put("proc/sys/net/core/netdev_max_backlog", choose("30000", "1000"));
    put("proc/sys/net/core/netdev_budget", choose("600", "300"));
    put("proc/sys/net/core/busy_read", choose("0", "50"));
    put("proc/sys/vm/nr_hugepages", "0");
    put("proc/loadavg", choose("0.10 0.2 0.3 1/2 3\n", "3.50 2.0 1.0 1/2 3\n"));
    for what in ["cpu", "memory", "io"] {
        let some = choose("0.00", "12.50");
        put(
            &format!("proc/pressure/{what}"),
            &format!("some avg10={some} avg60=0.00 avg300=0.00 total=0\n"),
        );
    }
    put("proc/1/comm", "systemd\n");
    put("proc/77/comm", choose("sshd\n", "irqbalance\n"));
    let limits = format!(
        "Limit                     Soft Limit           Hard Limit           Units\n\
         Max open files            1024                 {}                 files\n\
         Max locked memory         8388608              {}              bytes\n\
         Max realtime priority     0                    {}                    \n",
        choose("1048576", "4096"),
        choose("unlimited", "8388608"),
        choose("49", "0"),
    );
    put("proc/self/limits", &limits);
    put(
        "sys/kernel/mm/transparent_hugepage/enabled",
        choose("always [madvise] never", "always madvise [never]"),
    );
    put("sys/devices/system/cpu/online", "0-1\n");
    for cpu in ["cpu0", "cpu1"] {
        let at = |file: &str| format!("sys/devices/system/cpu/{cpu}/{file}");
        put(&at("cpufreq/scaling_governor"), choose("performance\n", "powersave\n"));
        put(&at("cpuidle/state1/latency"), "2");
        put(&at("cpuidle/state1/disable"), "0");
        put(&at("cpuidle/state2/latency"), "133");
        put(&at("cpuidle/state2/disable"), choose("1", "0"));
        put(&at("thermal_throttle/core_throttle_count"), choose("0", "9"));
    }
    put("sys/class/net/ens1/mtu", choose("9000", "1500"));
    put("sys/class/net/ens1/operstate", "up");
    put("sys/class/net/ens1/gro_flush_timeout", choose("100000", "0"));
    put("sys/class/net/ens1/napi_defer_hard_irqs", choose("2", "0"));
    put("sys/class/net/ens1/device/msi_irqs/40", "msi");
    put("proc/irq/40/effective_affinity_list", choose("0", "0-1"));
    if !tuned {
        put("proc/sys/net/netfilter/nf_conntrack_count", "65000");
        put("proc/sys/net/netfilter/nf_conntrack_max", "65536");
    }
    fs::create_dir_all(root.join("sys/bus/pci/devices")).unwrap();
}

fn examined(root: &Path) -> Report {
    let roots = Roots { sysfs: root.join("sys"), procfs: root.join("proc") };
    examine(&Host { roots, is_this: false, quick: false, interfaces: vec![], store: vec![] })
}

fn grades(report: &Report, grade: Grade) -> Vec<&'static str> {
    report.findings.iter().filter(|it| it.grade == grade).map(|it| it.id).collect()
}

/// What only the host itself, or a named disk, can tell.
const UNKNOWN: [&str; 8] =
    ["rx-ring", "lro", "gro", "coalescing", "pause", "queues", "clock", "store"];

#[test]
fn a_tuned_host_is_good_except_for_what_only_it_can_tell() {
    let root = tempfile::tempdir().unwrap();
    saved(root.path(), true);
    let report = examined(root.path());
    assert_eq!(report.host, "station");
    assert_eq!(grades(&report, Grade::Unknown), UNKNOWN, "{report:#?}");
    assert!(grades(&report, Grade::Advice).is_empty(), "{report:#?}");
    assert!(grades(&report, Grade::Problem).is_empty(), "{report:#?}");
    assert!(screen::settings(&report).is_empty());
}

#[test]
fn every_setting_of_an_untuned_host_is_found_with_its_cost_and_a_command() {
    let root = tempfile::tempdir().unwrap();
    saved(root.path(), false);
    let report = examined(root.path());
    let problems = ["rmem-max", "conntrack", "governor", "load", "huge-pages"];
    assert_eq!(grades(&report, Grade::Problem), problems, "{report:#?}");
    let advice = [
        "mtu",
        "gro-batching",
        "interrupts",
        "backlog",
        "budget",
        "busy-poll",
        "irqbalance",
        "c-states",
        "numa-balancing",
        "pressure-cpu",
        "pressure-memory",
        "pressure-io",
        "cpu-throttling",
        "memlock",
        "nofile",
        "rtprio",
    ];
    assert_eq!(grades(&report, Grade::Advice), advice, "{report:#?}");
    for finding in report.findings.iter().filter(|it| it.grade > Grade::Unknown) {
        if finding.grade != Grade::Good {
            assert!(finding.cost.is_some() && finding.command.is_some(), "{finding:?}");
        }
    }
    let settings = screen::settings(&report);
    let commands: Vec<String> = settings.iter().map(Setting::command).collect();
    for command in [
        "sysctl -w net.core.rmem_max=268435456",
        "echo performance > /sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        "echo 1 > /sys/devices/system/cpu/cpu0/cpuidle/state2/disable",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        "echo 100000 > /sys/class/net/ens1/gro_flush_timeout",
    ] {
        assert!(commands.iter().any(|it| it == command), "{command}: {commands:#?}");
    }
    assert!(!commands.iter().any(|it| it.contains("state1")), "C1 is left in 2 µs");
}

#[test]
fn an_empty_tree_is_not_known_and_never_good() {
    let root = tempfile::tempdir().unwrap();
    let report = examined(root.path());
    assert_eq!(report.grade, Grade::Unknown, "{report:#?}");
    assert!(grades(&report, Grade::Good).is_empty(), "{report:#?}");
}

#[test]
fn chosen_checks_have_a_grade_of_their_own() {
    let root = tempfile::tempdir().unwrap();
    saved(root.path(), false);
    let mut report = examined(root.path());
    assert_eq!(report.keep(&["no-such".into()]), Err("no-such".into()));
    report.keep(&["mtu".into()]).unwrap();
    assert_eq!((report.findings.len(), report.grade), (1, Grade::Advice));
}

#[test]
fn lasting_files_set_the_same_as_fix() {
    let settings = [
        Setting::proc("sys/net/core/rmem_max", 268_435_456),
        Setting::sys("kernel/mm/transparent_hugepage/enabled", "madvise"),
        Setting::RxRing { card: "ens1".into(), descriptors: 4096 },
    ];
    assert!(lasting::sysctl(&settings).ends_with("net.core.rmem_max = 268435456\n"));
    let unit = lasting::unit(&settings);
    assert!(unit.contains("ExecStart=-/bin/sh -c 'ethtool -G ens1 rx 4096'\n"), "{unit}");
    assert!(!unit.contains("rmem_max"), "{unit}");
}

#[test]
fn every_fix_can_be_undone_by_its_file() {
    let root = tempfile::tempdir().unwrap();
    saved(root.path(), false);
    let settings = screen::settings(&examined(root.path()));
    assert!(settings.len() > 8);
    for setting in settings {
        let text = serde_json::to_string(&setting).unwrap();
        let read: Setting = serde_json::from_str(&text).unwrap();
        assert_eq!(read, setting);
        read.checked().unwrap();
    }
}

#[test]
fn undo_files_name_settings_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("undo.json");
    for bad in [
        "/etc/passwd",
        "/proc/sys/../../etc/passwd",
        "/sys/class/net/../../x",
        "/sys/power/state",
        "/proc/sys/kernel/core_pattern",
        "/sys/class/net/ens1/device/remove",
    ] {
        let setting = json!({ "kind": "file", "path": bad, "value": "x" });
        fs::write(&path, json!({ "before": [setting] }).to_string()).unwrap();
        assert!(matches!(fix::undo(&path), Err(fix::Error::NoSetting { .. })), "{bad}");
    }
    for bad in ["", "{}", "[]", r#"{"before":[{"kind":"other"}]}"#] {
        fs::write(&path, bad).unwrap();
        assert!(matches!(fix::undo(&path), Err(fix::Error::UndoFile { .. })), "{bad}");
    }
    assert!(fix::undo(&directory.path().join("absent.json")).is_err());
}

#[test]
fn the_log_of_an_nvme_drive_is_judged() {
    let log = |warning: u64, used: u64, hot: u64| json!({ "critical_warning": warning, "percent_used": used, "warning_temp_time": hot });
    let grade = |log| health::of_nvme("nvme0n1", &log).finding.grade;
    assert_eq!(grade(log(0, 3, 0)), Grade::Good);
    assert_eq!(grade(log(0, 3, 12)), Grade::Advice);
    assert_eq!(grade(log(0, 95, 0)), Grade::Problem);
    assert_eq!(grade(log(4, 3, 0)), Grade::Problem);
    assert_eq!(grade(json!({})), Grade::Unknown);
    let passed = |passed: bool| json!({ "smart_status": { "passed": passed } });
    assert_eq!(health::of_smartctl("sda", &passed(true)).finding.grade, Grade::Good);
    assert_eq!(health::of_smartctl("sda", &passed(false)).finding.grade, Grade::Problem);
    assert_eq!(health::of_smartctl("sda", &json!({})).finding.grade, Grade::Unknown);
}
