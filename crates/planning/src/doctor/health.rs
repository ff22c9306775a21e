//! The health of a drive, as `smartctl` or `nvme` tells it. A drive that does not answer holds nobody up for long.

use std::io::{self, Read};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::{Finding, Grade};

/// How long a program may take to tell of one drive.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The longest answer that is read, in bytes. That of smartctl has some ten thousand.
const LONGEST_ANSWER: u64 = 1 << 20;

/// Time between two looks at a program that runs.
const LOOK: Duration = Duration::from_millis(10);

/// The share of a drive's life that is used, in percent, above which it should be replaced.
const WORN: u64 = 90;

/// Attributes of ATA drives that count sectors which could not be read: pending, and uncorrectable.
const UNREADABLE: [u64; 2] = [197, 198];

/// The health of a drive. What it does not tell is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Health {
    /// The drive: `nvme0n1`, `sda`.
    pub drive: String,
    /// What it means for a recorder.
    pub finding: Finding,
    /// Its temperature in °C.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<f64>,
    /// The share of its life that is used, in percent; more than 100 if it outlives what was expected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life_used_percent: Option<u64>,
    /// Hours for which it had power.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_on_hours: Option<u64>,
}

/// Asks a drive of this host. `smartctl` tells of every kind; without it, `nvme` tells of NVMe drives.
pub fn of_drive(drive: &str) -> Health {
    let device = format!("/dev/{drive}");
    let words = ["--json", "--health", "--attributes", &device];
    let mut told = answer("smartctl", &words, PATIENCE).map(|log| of_smartctl(drive, &log));
    if !told.as_ref().is_ok_and(|it| it.finding.grade != Grade::Unknown)
        && drive.starts_with("nvme")
    {
        let words = ["smart-log", "--output-format=json", &device];
        told = answer("nvme", &words, PATIENCE).map(|log| of_nvme(drive, &log)).or(told);
    }
    told.unwrap_or_else(|why| Health::new(drive, Finding::unknown("health", drive, why)))
}

impl Health {
    fn new(drive: &str, finding: Finding) -> Self {
        let drive = drive.to_owned();
        Self { drive, finding, temperature_c: None, life_used_percent: None, power_on_hours: None }
    }
}

/// The JSON that a program prints, or why there is none.
fn answer(program: &str, words: &[&str], patience: Duration) -> Result<Value, String> {
    let mut command = Command::new(program);
    command.args(words);
    match output_within(&mut command, patience) {
        Ok(Some(text)) => serde_json::from_slice(&text)
            .map_err(|_| format!("`{program}` tells nothing of it (is it run as root?)")),
        Ok(None) => Err(format!("`{program}` did not answer within {} s", patience.as_secs_f64())),
        Err(error) => Err(format!("`{program}` does not run: {error}")),
    }
}

/// What a program prints, whatever its exit code: that of smartctl has bits for all kinds of findings. `None` if it takes
/// longer; it is killed then.
pub fn output_within(command: &mut Command, patience: Duration) -> io::Result<Option<Vec<u8>>> {
    let end = Instant::now() + patience;
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let output = child.stdout.take();
    let read = move || {
        let mut text = Vec::new();
        let read = output.map(|it| it.take(LONGEST_ANSWER).read_to_end(&mut text));
        read.unwrap_or(Ok(0)).map(|_| text)
    };
    let reader = match thread::Builder::new().name("answer".into()).spawn(read) {
        Ok(reader) => reader,
        Err(error) => {
            end_of(child);
            return Err(error);
        }
    };
    while !reader.is_finished() {
        if Instant::now() > end {
            end_of(child);
            return Ok(None);
        }
        thread::sleep(LOOK);
    }
    end_of(child);
    reader.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())).map(Some)
}

/// Kills a program that still runs. One that waits for a drive cannot be killed yet, so nobody waits for its end here.
fn end_of(mut child: Child) {
    let _ = child.kill();
    // Without a thread, the kernel keeps an entry of its process until this one ends.
    let _ = thread::Builder::new().name("end".into()).spawn(move || child.wait());
}

/// Reads the answer of `smartctl --json --health --attributes`.
pub fn of_smartctl(drive: &str, log: &Value) -> Health {
    let number = |path: &str| log.pointer(path).and_then(Value::as_u64);
    let nvme = log.get("nvme_smart_health_information_log");
    let finding = match (log.pointer("/smart_status/passed").and_then(Value::as_bool), nvme) {
        (Some(false), _) => {
            Finding::new("health", drive, Grade::Problem, "it expects to fail soon")
                .cost("it may fail during a recording")
                .command(format!("replace it; smartctl -a /dev/{drive} shows the reason"))
        }
        (_, Some(nvme)) => judged_nvme(drive, nvme),
        (None, None) => Finding::unknown("health", drive, "it does not report its health"),
        (Some(true), None) => match unreadable(log) {
            0 => Finding::new("health", drive, Grade::Good, "its own test passed"),
            count => {
                let found = format!("its own test passed, but {count} sectors could not be read");
                Finding::new("health", drive, Grade::Advice, found)
                    .cost("reading such a sector takes seconds, and its data may be lost")
                    .command(format!("smartctl -a /dev/{drive} shows all of it"))
            }
        },
    };
    Health {
        temperature_c: log.pointer("/temperature/current").and_then(Value::as_f64),
        life_used_percent: number("/nvme_smart_health_information_log/percentage_used"),
        power_on_hours: number("/power_on_time/hours"),
        ..Health::new(drive, finding)
    }
}

fn unreadable(log: &Value) -> u64 {
    let table = log.pointer("/ata_smart_attributes/table").and_then(Value::as_array);
    let is_one = |it: &&Value| it["id"].as_u64().is_some_and(|id| UNREADABLE.contains(&id));
    let counts = table.into_iter().flatten().filter(is_one);
    counts.filter_map(|it| it.pointer("/raw/value")?.as_u64()).max().unwrap_or(0)
}

/// Reads the answer of `nvme smart-log --output-format=json`, whose temperature is in kelvin.
pub fn of_nvme(drive: &str, log: &Value) -> Health {
    let number = |name: &str| log.get(name).and_then(Value::as_u64);
    Health {
        temperature_c: number("temperature").map(|kelvin| kelvin as f64 - 273.0),
        life_used_percent: number("percent_used").or_else(|| number("percentage_used")),
        power_on_hours: number("power_on_hours"),
        ..Health::new(drive, judged_nvme(drive, log))
    }
}

/// Judges the log of an NVMe drive (log page 02h).
fn judged_nvme(drive: &str, log: &Value) -> Finding {
    let number = |name: &str| log.get(name).and_then(Value::as_u64);
    let Some(used) = number("percent_used").or_else(|| number("percentage_used")) else {
        return Finding::unknown("health", drive, "its log has no wear");
    };
    let warning = number("critical_warning").unwrap_or(0);
    let hot = number("warning_temp_time").unwrap_or(0) + number("critical_comp_time").unwrap_or(0);
    let found = format!("{used} % of its life is used, {hot} min too hot, warnings {warning:#x}");
    let grade = match (warning, used) {
        (1.., _) => Grade::Problem,
        (0, used) if used >= WORN => Grade::Problem,
        _ if hot > 0 => Grade::Advice,
        _ => Grade::Good,
    };
    Finding::new("health", drive, grade, found)
        .cost("a worn or hot drive is slower than it was, and may become read-only")
        .command("smartctl -a or nvme smart-log shows all of it; replace or cool the drive")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ata_drive_tells_its_test_its_sectors_and_its_temperature() {
        let log = |passed: bool, pending: u64| {
            json!({"smart_status": {"passed": passed}, "temperature": {"current": 41},
                "power_on_time": {"hours": 9000},
                "ata_smart_attributes": {"table": [
                    {"id": 5, "raw": {"value": 9}}, {"id": 197, "raw": {"value": pending}}]}})
        };
        let good = of_smartctl("sda", &log(true, 0));
        assert_eq!((good.finding.grade, good.temperature_c), (Grade::Good, Some(41.0)));
        assert_eq!((good.power_on_hours, good.life_used_percent), (Some(9000), None));
        let bad = of_smartctl("sda", &log(true, 8)).finding;
        assert!(bad.grade == Grade::Advice && bad.found.contains("8 sectors"), "{bad:?}");
        assert_eq!(of_smartctl("sda", &log(false, 0)).finding.grade, Grade::Problem);
        assert_eq!(of_smartctl("sda", &json!({})).finding.grade, Grade::Unknown);
    }

    #[test]
    fn an_nvme_drive_tells_its_wear_by_both_programs() {
        let by_smartctl = json!({"smart_status": {"passed": true}, "temperature": {"current": 40},
            "nvme_smart_health_information_log": {"critical_warning": 0, "percentage_used": 93}});
        let told = of_smartctl("nvme0n1", &by_smartctl);
        assert_eq!((told.finding.grade, told.life_used_percent), (Grade::Problem, Some(93)));
        let by_nvme = json!({"critical_warning": 0, "percent_used": 3, "temperature": 313,
            "power_on_hours": 12, "warning_temp_time": 0, "critical_comp_time": 2});
        let told = of_nvme("nvme0n1", &by_nvme);
        assert_eq!((told.finding.grade, told.temperature_c), (Grade::Advice, Some(40.0)));
        assert_eq!((told.life_used_percent, told.power_on_hours), (Some(3), Some(12)));
    }

    #[test]
    fn a_program_that_hangs_is_killed_and_one_that_answers_is_read() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            command
        };
        let begun = Instant::now();
        let hung = output_within(&mut shell("exec sleep 60"), Duration::from_millis(50)).unwrap();
        assert!(hung.is_none() && begun.elapsed() < Duration::from_secs(30));
        let told = output_within(&mut shell("echo '{}'; exit 4"), Duration::from_secs(30)).unwrap();
        assert_eq!(told.as_deref(), Some(b"{}\n".as_slice()));
        assert!(answer("no-such-program", &[], PATIENCE).unwrap_err().contains("does not run"));
        let mut endless = shell("exec yes");
        let told = output_within(&mut endless, Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(told.len() as u64, LONGEST_ANSWER);
    }
}
