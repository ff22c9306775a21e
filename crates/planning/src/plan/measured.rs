//! What the history of `fullbore bench` says of this machine, and the disks of a store on it.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use fullbore_survey::bench::disk::target;
use fullbore_survey::bench::environment::Roots;
use fullbore_survey::bench::health;
use fullbore_survey::bench::measured::{measured, newest};
use fullbore_survey::bench::result::BenchResult;
use fullbore_survey::report::WHOLE_PATH;

use super::error::Error;
use super::figure::{Figure, Origin, Unit};
use super::machine::{DiskSet, Machine, Raid, rate};

/// Adds the measured costs of the path and the measured rate of copies.
pub fn processor(machine: &mut Machine) {
    let results = newest();
    let by = |result: &BenchResult| format!("the benchmark of {}", result.started);
    machine.cpu_per_gb = results.iter().find_map(|result| {
        let path = result.stages.iter().find(|stage| stage.name == WHOLE_PATH)?;
        let cost = path.cpu_s_per_gb?;
        Some(Figure::new(cost, Unit::CpuPerGb, Origin::Measured, by(result)))
    });
    machine.copy_rate = results.iter().find_map(|result| {
        let copies = result.stages.iter().filter(|stage| stage.name == "copy");
        // The whole machine: all its threads together.
        let most = copies.max_by(|one, other| one.rate.mean.total_cmp(&other.rate.mean))?;
        Some(Figure::new(most.rate.mean, Unit::Rate, Origin::Measured, by(result)))
    });
}

/// Adds the members of a store as a set of disks.
pub fn store(roots: &Roots, members: &[PathBuf], machine: &mut Machine) -> Result<(), Error> {
    let mut devices = BTreeSet::new();
    let (mut at, mut free) = (Vec::new(), 0.0);
    for member in members {
        let cannot = |source| Error::Read { path: member.clone(), source };
        let member_of = member.metadata().map_err(cannot)?.dev();
        // Members of one file system share its space.
        if !devices.insert(member_of) {
            continue;
        }
        let status =
            rustix::fs::statvfs(member).map_err(|errno| cannot(std::io::Error::from(errno)))?;
        free += status.f_bavail as f64 * status.f_frsize as f64;
        let facts = target::facts(roots, member, member_of);
        let drives = facts.device.map(|device| health::drives(roots, &device)).unwrap_or_default();
        for node in drives.iter().filter_map(|drive| machine.node(drive)) {
            if !at.contains(&node) {
                at.push(node);
            }
        }
    }
    let known = measured(members);
    let stall = known.stall.and_then(|stall| {
        Some(Figure::new(stall.ms as f64 / 1e3, Unit::Seconds, Origin::Measured, stall.measured?))
    });
    machine.sets.push(DiskSet {
        name: "store".into(),
        at,
        disks: devices.len() as u32,
        raid: Raid::Stripe,
        set_write: known.disk_rate.map(|disks| rate(disks.rate, Origin::Measured, disks.by)),
        capacity: Some(Figure::new(free, Unit::Bytes, Origin::Read, "free space of the members")),
        stall,
        ..DiskSet::default()
    });
    Ok(())
}
