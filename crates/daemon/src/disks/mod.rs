//! The members of the store as disks: drives and their health, how fast recordings and benchmarks wrote.
//!
//! A thread looks at them, because each question may wait for a disk that does not respond. A drive is asked for its
//! health only every ten minutes, as `smartd` does by default every thirty: each question wakes a drive that sleeps.

mod benchmarks;
mod written;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_linux::clock::Clock;
use fullbore_planning::doctor::health::{self, Health};
use fullbore_survey::bench::disk::target;
use fullbore_survey::bench::environment::{Roots, text};
use fullbore_survey::bench::health as sensors;
use fullbore_time::Tai;
use serde::Serialize;
use utoipa::ToSchema;

pub use self::benchmarks::Benchmark;
pub use self::written::ScanWrites;
use crate::kept::Kept;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(20);

/// Time between two questions for the health of a drive.
const ASK: Duration = Duration::from_secs(600);

/// The members of the store as disks.
#[derive(Debug, Serialize, ToSchema)]
pub struct Disks {
    /// The time of the look.
    #[schema(value_type = String)]
    pub time: Tai,
    /// The members.
    pub members: Vec<DiskMember>,
    /// The drives below them.
    pub drives: Vec<Drive>,
    /// The last benchmarks of members, the newest first.
    pub benchmarks: Vec<Benchmark>,
    /// The longest write of each member in the newest scans, the oldest first.
    pub writes: Vec<ScanWrites>,
}

/// A member of the store.
#[derive(Debug, Serialize, ToSchema)]
pub struct DiskMember {
    /// Its directory.
    pub path: String,
    /// Its file system.
    pub file_system: Option<String>,
    /// Its mount options.
    pub mount_options: Option<String>,
    /// The block device below it.
    pub device: Option<String>,
    /// The drives below that.
    pub drives: Vec<String>,
    /// Why it could not be read.
    pub problem: Option<String>,
}

/// A drive.
#[derive(Debug, Serialize, ToSchema)]
pub struct Drive {
    /// Its name: `nvme0n1`.
    pub name: String,
    /// The model that it reports.
    pub model: Option<String>,
    /// True if it rotates.
    pub rotational: Option<bool>,
    /// Its health: a finding, as `fullbore doctor --json` prints it.
    #[schema(value_type = Object)]
    pub health: fullbore_planning::doctor::Finding,
    /// Its temperature in °C.
    pub temperature_c: Option<f64>,
    /// The temperature in °C that it should not exceed.
    pub limit_c: Option<f64>,
    /// The share of its life that is used, in percent.
    pub life_used_percent: Option<u64>,
    /// Hours for which it had power.
    pub power_on_hours: Option<u64>,
}

/// Looks at the disks again and again.
pub fn keep(members: &[PathBuf]) -> io::Result<Kept<Disks>> {
    let (members, roots) = (members.to_vec(), Roots::default());
    let (mut asked, mut written) = (Asked::default(), written::Cache::default());
    let mut benchmarks = benchmarks::Cache::default();
    Kept::start("disks", LOOK, move || {
        let shown: Vec<DiskMember> = members.iter().map(|it| member(&roots, it)).collect();
        let mut names: Vec<&String> = shown.iter().flat_map(|it| &it.drives).collect();
        names.sort();
        names.dedup();
        let drives = names.iter().map(|name| drive(&roots, asked.of(name))).collect();
        Disks {
            time: Clock::new().now(),
            drives,
            benchmarks: benchmarks.of(&members),
            writes: written.look(&members),
            members: shown,
        }
    })
}

fn member(roots: &Roots, path: &Path) -> DiskMember {
    let (metadata, shown) = (path.metadata(), path.display().to_string());
    let device = match &metadata {
        Ok(metadata) => metadata.dev(),
        Err(error) => {
            let problem = Some(error.to_string());
            let (file_system, mount_options, device) = (None, None, None);
            let drives = Vec::new();
            return DiskMember { path: shown, file_system, mount_options, device, drives, problem };
        }
    };
    let facts = target::facts(roots, path, device);
    let drives = facts.device.as_ref().map(|it| sensors::drives(roots, it)).unwrap_or_default();
    DiskMember {
        path: shown,
        file_system: facts.file_system,
        mount_options: facts.mount_options,
        device: facts.device,
        drives,
        problem: None,
    }
}

fn drive(roots: &Roots, health: Health) -> Drive {
    let read = |file: &str| roots.sys(format!("class/block/{}/{file}", health.drive));
    let sensor = sensors::sensors(roots, &health.drive).into_iter().next();
    let now = sensor.as_ref().and_then(|it| text(&it.input)?.parse::<f64>().ok());
    Drive {
        model: read("device/model").map(|it| it.trim().to_owned()),
        rotational: read("queue/rotational").map(|it| it == "1"),
        // A sensor tells of now, and the drive's own answer of some minutes ago.
        temperature_c: now.map(|thousandths| thousandths / 1000.0).or(health.temperature_c),
        limit_c: sensor.and_then(|it| it.limit_c),
        life_used_percent: health.life_used_percent,
        power_on_hours: health.power_on_hours,
        name: health.drive,
        health: health.finding,
    }
}

/// What drives said of their health, and when.
#[derive(Default)]
struct Asked(BTreeMap<String, (Instant, Health)>);

impl Asked {
    fn of(&mut self, drive: &str) -> Health {
        match self.0.get(drive) {
            Some((at, health)) if at.elapsed() < ASK => health.clone(),
            _ => {
                let health = health::of_drive(drive);
                self.0.insert(drive.to_owned(), (Instant::now(), health.clone()));
                health
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_names_its_file_system_or_why_not() {
        let place = tempfile::tempdir().unwrap();
        let roots = Roots::default();
        assert_eq!(member(&roots, place.path()).problem, None);
        let gone = member(&roots, &place.path().join("gone"));
        assert!(gone.problem.unwrap().contains("No such file") && gone.drives.is_empty());
    }

    #[test]
    fn a_drive_is_asked_for_its_health_once_in_a_while() {
        let mut asked = Asked::default();
        let first = asked.of("no-such-drive");
        let Some((at, _)) = asked.0.get("no-such-drive") else { panic!() };
        let before = *at;
        assert_eq!(asked.of("no-such-drive"), first);
        assert_eq!(asked.0["no-such-drive"].0, before);
    }

    #[test]
    fn a_sensor_tells_the_temperature_before_the_drive_does() {
        let place = tempfile::tempdir().unwrap();
        let disk = place.path().join("class/block/sdx");
        let (device, monitor) = (disk.join("device"), place.path().join("class/hwmon/hwmon0"));
        std::fs::create_dir_all(&device).unwrap();
        std::fs::create_dir_all(&monitor).unwrap();
        std::os::unix::fs::symlink(&device, monitor.join("device")).unwrap();
        std::fs::write(monitor.join("temp1_input"), "41500\n").unwrap();
        std::fs::write(monitor.join("temp1_max"), "60000\n").unwrap();
        std::fs::write(device.join("model"), "A DRIVE \n").unwrap();
        let roots = Roots { sysfs: place.path().to_owned(), ..Roots::default() };
        let log =
            serde_json::json!({"smart_status": {"passed": true}, "temperature": {"current": 39}});
        let told = drive(&roots, health::of_smartctl("sdx", &log));
        assert_eq!((told.temperature_c, told.limit_c), (Some(41.5), Some(60.0)));
        assert_eq!(told.model.as_deref(), Some("A DRIVE"));
        std::fs::remove_dir_all(&monitor).unwrap();
        let told = drive(&roots, health::of_smartctl("sdx", &log));
        assert_eq!((told.temperature_c, told.limit_c), (Some(39.0), None));
    }
}
