//! What a station tells of itself, in lines for a terminal. The fields are those of its REST interface.

use fullbore_core::units::{ByteRate, ByteSize};
use serde_json::Value;

/// The state of a station, `GET /api/v1/status`, in lines.
pub fn text(status: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let size = |value: &Value| ByteSize(value.as_u64().unwrap_or(0));
    let items = |key: &str| status[key].as_array().cloned().unwrap_or_default();
    let mut text = format!("{}, fullbore {}\n", word(&status["host"]), word(&status["version"]));
    for member in items("members") {
        let space = match member["problem"].as_str() {
            Some(problem) => problem.to_owned(),
            None => {
                format!("{} free of {}", size(&member["free_bytes"]), size(&member["total_bytes"]))
            }
        };
        text += &format!("  {}: {space}\n", word(&member["path"]));
    }
    for recording in items("recordings") {
        text += &format!("{}\n", of_recording(&recording));
    }
    for job in items("jobs") {
        let (kind, scan, state) = (word(&job["kind"]), word(&job["scan"]), word(&job["state"]));
        text += &format!("{kind} {scan}: {state}\n");
    }
    for schedule in items("schedules") {
        text += &format!("schedule {}", of_schedule(&schedule));
    }
    text
}

/// A recording in a line.
pub fn of_recording(recording: &Value) -> String {
    let phase = recording["phase"].as_str().unwrap_or("?");
    let id = recording["id"].as_str().unwrap_or("?");
    let scan = match &recording["scan"] {
        Value::Null => "a recording".to_owned(),
        scan => name_of(scan),
    };
    let finished = recording["finished"].as_array().and_then(|all| all.last());
    let progress = &recording["progress"];
    let more = match (finished, progress.is_object()) {
        (Some(last), _) => format!(": {}", last["headline"].as_str().unwrap_or("?")),
        (None, true) => {
            let streams = progress["streams"].as_array().map_or(&[][..], Vec::as_slice);
            let sum = |key: &str| streams.iter().filter_map(|it| it[key].as_u64()).sum::<u64>();
            let lost = ["missing", "overrun", "damaged", "late"].map(sum).iter().sum::<u64>();
            let bytes = ByteSize(progress["bytes"].as_u64().unwrap_or(0));
            let seconds = progress["seconds"].as_f64().unwrap_or(0.0);
            format!(": {bytes} in {seconds:.1} s, {}, {lost} frames lost", ByteRate(sum("rate")))
        }
        (None, false) => String::new(),
    };
    format!("{scan} ({id}): {phase}{more}")
}

/// A schedule in a line.
pub fn of_schedule(schedule: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    let ahead = match schedule["ahead"].as_u64().unwrap_or(0) {
        1 => "1 scan".to_owned(),
        scans => format!("{scans} scans"),
    };
    let problem = schedule["problem"].as_str().map(|it| format!(": {it}")).unwrap_or_default();
    let (name, state) = (word(&schedule["name"]), word(&schedule["state"]));
    format!("{name}: {state}, {ahead} ahead{problem}\n")
}

/// `SESSION_SCAN` of the JSON of a scan's name.
pub fn name_of(scan: &Value) -> String {
    let part = |key: &str| scan[key].as_str().unwrap_or("?").to_owned();
    format!("{}_{}", part("session"), part("scan"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_station_is_told_in_lines() {
        let scan = json!({"session": "r1", "scan": "a"});
        let stream = json!({"rate": 1000, "missing": 1, "overrun": 2, "damaged": 0, "late": 0});
        let progress = json!({"bytes": 5000, "seconds": 1.5, "streams": [stream]});
        let finished = json!([{"headline": "COMPLETE"}]);
        let status = json!({
            "host": "h", "version": "1",
            "members": [{"path": "/m0", "free_bytes": 1000, "total_bytes": 2000, "problem": null},
                        {"path": "/m1", "free_bytes": null, "total_bytes": null, "problem": "gone"}],
            "recordings": [
                {"id": "i", "phase": "recording", "scan": scan, "progress": progress, "finished": []},
                {"id": "j", "phase": "ended", "scan": scan, "progress": null, "finished": finished},
                {"id": "k", "phase": "starting", "scan": null, "progress": null, "finished": []}],
            "jobs": [{"kind": "verify", "scan": "r1_b", "state": "running"}],
            "schedules": [{"name": "v", "state": "running", "ahead": 1}],
        });
        let expected = "h, fullbore 1\n  /m0: 1.00 kB free of 2.00 kB\n  /m1: gone\n\
                        r1_a (i): recording: 5.00 kB in 1.5 s, 8.00 kbit/s, 3 frames lost\n\
                        r1_a (j): ended: COMPLETE\na recording (k): starting\n\
                        verify r1_b: running\nschedule v: running, 1 scan ahead\n";
        assert_eq!(text(&status), expected);
    }
}
