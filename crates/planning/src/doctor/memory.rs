//! Memory and the limits of this process.

use fullbore_survey::bench::environment::{Roots, chosen};

use super::fix::Setting;
use super::{Finding, Grade};

/// Locked memory that a recording of several streams uses.
const WANTED_LOCKED: u64 = 1 << 30;

/// Files that a recording of many streams opens.
const WANTED_FILES: u64 = 65_536;

/// Checks pages and limits.
pub fn check(roots: &Roots) -> Vec<Finding> {
    let limits = roots.proc("self/limits");
    let limit = |name: &str| hard_limit(limits.as_deref()?, name);
    vec![
        transparent(roots),
        reserved(roots),
        of_limit("memlock", "Max locked memory", limit("Max locked memory"), WANTED_LOCKED)
            .cost("blocks may be swapped out, and the kernel looks up their pages with each write")
            .command("LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited"),
        of_limit("nofile", "Max open files", limit("Max open files"), WANTED_FILES)
            .cost("a recording of many streams onto many members cannot open its files")
            .command("LimitNOFILE=65536 in the unit, or ulimit -n 65536"),
        of_limit("rtprio", "Max realtime priority", limit("Max realtime priority"), 49)
            .cost("capture threads run like any other program; root and CAP_SYS_NICE have no such limit")
            .command("LimitRTPRIO=49 in the unit, or setcap cap_sys_nice+ep on the binary"),
    ]
}

fn transparent(roots: &Roots) -> Finding {
    let enabled = roots.sys("kernel/mm/transparent_hugepage/enabled");
    match enabled.and_then(|text| chosen(&text)) {
        None => Finding::unknown("huge-pages", "memory", "transparent_hugepage cannot be read"),
        Some(choice) if choice == "never" => {
            let fix = Setting::sys("kernel/mm/transparent_hugepage/enabled", "madvise");
            Finding::new("huge-pages", "memory", Grade::Problem, "transparent huge pages are off")
                .cost("direct writes from pages of 4 KiB are 1.6 to 1.7 times slower (measured)")
                .fix(vec![fix])
        }
        Some(choice) => {
            let found = format!("transparent huge pages: {choice}");
            Finding::new("huge-pages", "memory", Grade::Good, found)
        }
    }
}

fn reserved(roots: &Roots) -> Finding {
    let pages = roots.proc("sys/vm/nr_hugepages").and_then(|text| text.parse::<u64>().ok());
    match pages {
        None => Finding::unknown("reserved-pages", "memory", "vm.nr_hugepages cannot be read"),
        // Transparent pages serve as well, so this is no problem.
        Some(pages) => {
            let found = format!("{pages} huge pages are reserved");
            Finding::new("reserved-pages", "memory", Grade::Good, found)
        }
    }
}

/// The hard limit of a line of `/proc/self/limits`: name, soft limit, hard limit, unit.
fn hard_limit(table: &str, name: &str) -> Option<u64> {
    let rest = table.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_whitespace().nth(1)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn of_limit(id: &'static str, name: &str, limit: Option<u64>, wanted: u64) -> Finding {
    match limit {
        None => Finding::unknown(id, "limits", format!("{name} cannot be read")),
        Some(u64::MAX) => Finding::new(id, "limits", Grade::Good, format!("{name}: unlimited")),
        Some(limit) => {
            let grade = if limit >= wanted { Grade::Good } else { Grade::Advice };
            Finding::new(id, "limits", grade, format!("{name}: {limit}"))
        }
    }
}
