//! Temperatures and throttling counters, which explain changes of rates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::environment::{Roots, text};
use super::result::{Temperature, Throttling};

/// Time between two reads of the sensors, which are slow, like temperature changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// A sensor with a file for its value, and possibly a limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensor {
    /// `nvme0n1 Composite`.
    pub name: String,
    /// The file, in units of 0.001 °C.
    pub input: PathBuf,
    /// The limit in °C.
    pub limit_c: Option<f64>,
}

/// The most layers of RAID, volumes and encryption that are followed.
const MOST_LAYERS: usize = 8;

/// The drives below a block device: itself, or the drives of a RAID or volume.
pub fn drives(roots: &Roots, device: &str) -> Vec<String> {
    let mut drives = vec![];
    gather(roots, device, MOST_LAYERS, &mut drives);
    drives.sort();
    drives.dedup();
    drives
}

fn gather(roots: &Roots, device: &str, layers: usize, drives: &mut Vec<String>) {
    let place = roots.sysfs.join("class/block").join(device);
    let below: Vec<String> = match fs::read_dir(place.join("slaves")) {
        Ok(entries) if layers > 0 => entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect(),
        _ => vec![],
    };
    if !below.is_empty() {
        return below.iter().for_each(|device| gather(roots, device, layers - 1, drives));
    }
    // The sensors of a partition are those of its disk.
    let disk = place.canonicalize().ok().filter(|place| place.join("partition").exists());
    let disk = disk.as_deref().and_then(Path::parent).and_then(Path::file_name);
    drives.push(disk.map_or_else(|| device.to_owned(), |name| name.to_string_lossy().into_owned()));
}

/// The sensors that belong to a block device (NVMe drives have them, disks with `drivetemp` too).
pub fn sensors(roots: &Roots, device: &str) -> Vec<Sensor> {
    let Ok(owner) = roots.sysfs.join("class/block").join(device).join("device").canonicalize()
    else {
        return vec![];
    };
    let Ok(monitors) = fs::read_dir(roots.sysfs.join("class/hwmon")) else { return vec![] };
    let mut found = vec![];
    for monitor in monitors.flatten().map(|entry| entry.path()) {
        let belongs = monitor.join("device").canonicalize().is_ok_and(|path| path == owner);
        if belongs {
            found.extend(sensors_of(&monitor, device));
        }
    }
    found.sort_by(|a, b| a.input.cmp(&b.input));
    found
}

fn sensors_of(monitor: &Path, device: &str) -> Vec<Sensor> {
    let celsius = |name: String| Some(text(&monitor.join(name))?.parse::<f64>().ok()? / 1000.0);
    let sensor = |n: u32| {
        let input = monitor.join(format!("temp{n}_input"));
        input.exists().then(|| Sensor {
            name: match text(&monitor.join(format!("temp{n}_label"))) {
                Some(label) => format!("{device} {label}"),
                None => format!("{device} {n}"),
            },
            limit_c: celsius(format!("temp{n}_max")).or_else(|| celsius(format!("temp{n}_crit"))),
            input,
        })
    };
    (1..=16).filter_map(sensor).collect()
}

/// Reads sensors once a second until it is finished.
pub struct Watch {
    stop: mpsc::Sender<()>,
    thread: Option<JoinHandle<Vec<Temperature>>>,
}

impl Watch {
    /// Starts; without sensors or without a thread, there are no readings.
    pub fn start(sensors: Vec<Sensor>, begun: Instant) -> Self {
        let (stop, stopped) = mpsc::channel();
        let thread = (!sensors.is_empty())
            .then(|| {
                let name = std::thread::Builder::new().name("health".into());
                name.spawn(move || watch(&sensors, begun, &stopped)).ok()
            })
            .flatten();
        Self { stop, thread }
    }

    /// The readings since the start.
    pub fn finish(self) -> Vec<Temperature> {
        drop(self.stop);
        self.thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

fn watch(sensors: &[Sensor], begun: Instant, stopped: &mpsc::Receiver<()>) -> Vec<Temperature> {
    let known = |sensor: &Sensor| Temperature {
        sensor: sensor.name.clone(),
        limit_c: sensor.limit_c,
        readings: vec![],
    };
    let mut told: Vec<Temperature> = sensors.iter().map(known).collect();
    loop {
        for (sensor, told) in sensors.iter().zip(&mut told) {
            let reading = text(&sensor.input).and_then(|value| value.parse::<f64>().ok());
            if let Some(thousandths) = reading {
                told.readings.push((begun.elapsed().as_secs_f64(), thousandths / 1000.0));
            }
        }
        if stopped.recv_timeout(INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout) {
            return told;
        }
    }
}

/// The current throttling counters: those of the processors, and of NVMe drives if `nvme` is installed and has
/// permission.
pub fn counters(roots: &Roots, devices: &[String]) -> Vec<(String, u64)> {
    let mut counters = vec![];
    if let Some(count) = processor_throttles(roots) {
        counters.push(("cpu core_throttle_count".into(), count));
    }
    for device in devices.iter().filter(|device| device.starts_with("nvme")) {
        let mut ask = Command::new("nvme");
        ask.args(["smart-log", "--output-format=json"]).arg(format!("/dev/{device}"));
        if let Ok(answer) = ask.output()
            && answer.status.success()
        {
            counters.extend(smart(&String::from_utf8_lossy(&answer.stdout), device));
        }
    }
    counters
}

/// The number of throttling events of all processors.
fn processor_throttles(roots: &Roots) -> Option<u64> {
    let processors = fs::read_dir(roots.sysfs.join("devices/system/cpu")).ok()?;
    let count = |entry: fs::DirEntry| {
        text(&entry.path().join("thermal_throttle/core_throttle_count"))?.parse::<u64>().ok()
    };
    processors.flatten().filter_map(count).reduce(|a, b| a.saturating_add(b))
}

/// The thermal counters of an NVMe drive: seconds above the limit, number and duration of throttling.
fn smart(json: &str, device: &str) -> Vec<(String, u64)> {
    let Ok(log) = serde_json::from_str::<serde_json::Value>(json) else { return vec![] };
    let names = [
        "warning_temp_time",
        "critical_comp_time",
        "thm_temp1_trans_count",
        "thm_temp2_trans_count",
        "thm_temp1_total_time",
        "thm_temp2_total_time",
    ];
    let counter = |name: &&str| Some((format!("{device} {name}"), log.get(*name)?.as_u64()?));
    names.iter().filter_map(counter).collect()
}

/// Counters before and after, if both are known.
pub fn moved(before: &[(String, u64)], after: &[(String, u64)]) -> Vec<Throttling> {
    let pair = |(counter, before): &(String, u64)| {
        let (_, after) = after.iter().find(|(name, _)| name == counter)?;
        Some(Throttling { counter: counter.clone(), before: *before, after: *after })
    };
    before.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A machine with a drive that has two sensors, and an unrelated monitor.
    fn saved() -> (tempfile::TempDir, Roots) {
        let saved = tempfile::tempdir().unwrap();
        let sys = saved.path().join("sys");
        let put = |path: &str, text: &str| {
            let path = sys.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("devices/nvme0/model", "A Drive");
        put("devices/other/name", "x");
        put("class/block/nvme0n1/size", "1");
        put("class/hwmon/hwmon0/name", "nvme\n");
        put("class/hwmon/hwmon0/temp1_input", "41850\n");
        put("class/hwmon/hwmon0/temp1_label", "Composite\n");
        put("class/hwmon/hwmon0/temp1_max", "81850\n");
        put("class/hwmon/hwmon0/temp2_input", "45000\n");
        put("class/hwmon/hwmon1/temp1_input", "99000\n");
        put("devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "3\n");
        put("devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "4\n");
        let drive = sys.join("devices/nvme0");
        symlink(&drive, sys.join("class/block/nvme0n1/device")).unwrap();
        symlink(&drive, sys.join("class/hwmon/hwmon0/device")).unwrap();
        symlink(sys.join("devices/other"), sys.join("class/hwmon/hwmon1/device")).unwrap();
        let roots = Roots { sysfs: sys, ..Roots::default() };
        (saved, roots)
    }

    #[test]
    fn the_sensors_of_a_drive_are_found_and_those_of_others_are_not() {
        let (_saved, roots) = saved();
        let found = sensors(&roots, "nvme0n1");
        let names: Vec<&str> = found.iter().map(|sensor| sensor.name.as_str()).collect();
        assert_eq!(names, ["nvme0n1 Composite", "nvme0n1 2"]);
        assert_eq!(found[0].limit_c, Some(81.85));
        let told = Watch::start(found, Instant::now()).finish();
        assert_eq!(told[0].readings[0].1, 41.85);
        assert_eq!(sensors(&roots, "sda"), []);
        assert_eq!(Watch::start(vec![], Instant::now()).finish(), []);
    }

    #[test]
    fn a_raid_has_the_sensors_of_its_drives() {
        let (_saved, roots) = saved();
        let block = roots.sysfs.join("class/block");
        for below in ["md0/slaves/dm-0", "md0/slaves/sdb", "dm-0/slaves/nvme0n1p1"] {
            fs::create_dir_all(block.join(below)).unwrap();
        }
        let partition = block.join("nvme0n1/nvme0n1p1");
        fs::create_dir_all(&partition).unwrap();
        fs::write(partition.join("partition"), "1").unwrap();
        symlink(&partition, block.join("nvme0n1p1")).unwrap();
        assert_eq!(drives(&roots, "md0"), ["nvme0n1", "sdb"]);
        assert_eq!(drives(&roots, "nvme0n1"), ["nvme0n1"]);
    }

    #[test]
    fn counters_that_move_are_told_with_both_values() {
        let (_saved, roots) = saved();
        let before = counters(&roots, &[]);
        let count = "devices/system/cpu/cpu1/thermal_throttle/core_throttle_count";
        fs::write(roots.sysfs.join(count), "6").unwrap();
        let told = moved(&before, &counters(&roots, &[]));
        let throttling =
            Throttling { counter: "cpu core_throttle_count".into(), before: 7, after: 9 };
        assert_eq!(told, [throttling]);
    }

    #[test]
    fn a_drive_tells_how_long_it_was_too_warm() {
        let log = r#"{"critical_warning":0,"temperature":315,"warning_temp_time":12,
            "thm_temp1_trans_count":2}"#;
        let told = smart(log, "nvme0n1");
        assert_eq!(
            told,
            [("nvme0n1 warning_temp_time".into(), 12), ("nvme0n1 thm_temp1_trans_count".into(), 2)]
        );
        assert_eq!(smart("no json", "nvme0n1"), []);
    }
}
