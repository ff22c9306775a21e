//! `/metrics` in OpenMetrics 1.0: what is known of recordings, streams, members and the [`host`].

mod host;

use std::fmt::Write;

use axum::extract::State as Extracted;
use axum::http::header;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use super::transfer_metrics::of_transfers;
use super::who::Viewer;
use super::{Shared, Station, blocking};
use crate::recorder::Recording;
use crate::recorder::life::Phase;
use crate::recorder::report::{MemberState, StreamState};
use crate::schedules::{Scheduled, State};

/// The type of the document.
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Show the metrics, as OpenMetrics text.
#[utoipa::path(
    get,
    operation_id = "getMetrics",
    path = "/metrics",
    tag = "status",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = String, content_type = "application/openmetrics-text"),
        (status = 401, body = Problem),
    ),
)]
pub(super) async fn show(_: Viewer, Extracted(station): Shared) -> Result<Response, Problem> {
    // Whoever changes a schedule holds the others up until it is on disk.
    let text = blocking(move || Ok(of_station(&station))).await?;
    Ok(([(header::CONTENT_TYPE, KIND)], text).into_response())
}

fn of_station(station: &Station) -> String {
    let status: Option<serde_json::Value> = serde_json::from_str(&station.news.borrow()).ok();
    let members = status.as_ref().and_then(|it| it["members"].as_array()).cloned();
    let members = members.unwrap_or_default();
    let mut text = text_of(&station.recorders.all(), &members, &station.schedules.all());
    host::of_disks(&mut text, station.disks.newest().as_deref());
    host::of_machine(&mut text, station.machine.newest().as_deref());
    host::of_alerts(&mut text, &station.alerts.all().open);
    if let Some(transfers) = &station.transfers {
        of_transfers(&mut text, &transfers.current());
    }
    text + "# EOF\n"
}

/// A metric: a name without its unit's suffix for counters, a type, a help text, and a value of a stream.
type OfStream = (&'static str, &'static str, &'static str, fn(&StreamState) -> f64);

/// Metrics of each stream of each recording that runs.
const STREAMS: &[OfStream] = &[
    ("fullbore_stream_frames", "counter", "Frames that arrived and have a place", |it| {
        it.frames as f64
    }),
    ("fullbore_stream_bytes", "counter", "Bytes of these frames", |it| it.bytes as f64),
    ("fullbore_stream_missing_frames", "counter", "Frames that did not reach this host", |it| {
        it.missing as f64
    }),
    (
        "fullbore_stream_overrun_frames",
        "counter",
        "Frames that arrived when no block was free",
        |it| it.overrun as f64,
    ),
    ("fullbore_stream_damaged_frames", "counter", "Frames that failed their own check", |it| {
        it.damaged as f64
    }),
    (
        "fullbore_stream_late_frames",
        "counter",
        "Frames counted as missing before they came",
        |it| it.late as f64,
    ),
    (
        "fullbore_stream_foreign_datagrams",
        "counter",
        "Datagrams that are no frames of the stream",
        |it| it.foreign as f64,
    ),
    ("fullbore_stream_durable_bytes", "gauge", "Bytes of the scan that are safe on disk", |it| {
        it.durable_bytes as f64
    }),
    ("fullbore_stream_rate_bytes_per_second", "gauge", "Rate of the stream", |it| it.rate as f64),
    ("fullbore_stream_ring_used_blocks", "gauge", "Blocks in use", |it| it.used_blocks as f64),
    ("fullbore_stream_ring_high_water_blocks", "gauge", "The most blocks in use at once", |it| {
        it.high_water.0 as f64
    }),
    ("fullbore_stream_ring_blocks", "gauge", "Blocks of the pool", |it| it.high_water.1 as f64),
    ("fullbore_stream_silent", "gauge", "1 if no frame of it has arrived", |it| {
        f64::from(u8::from(it.silent))
    }),
];

type OfMember = (&'static str, &'static str, &'static str, fn(&MemberState) -> f64);

/// Metrics of each member of each recording that runs.
const MEMBERS: &[OfMember] = &[
    ("fullbore_member_written_bytes", "counter", "Bytes written", |it| it.written_bytes as f64),
    ("fullbore_member_rate_bytes_per_second", "gauge", "Rate of writing", |it| it.rate as f64),
    ("fullbore_member_backlog_bytes", "gauge", "Bytes handed to it and not yet written", |it| {
        it.backlog_bytes as f64
    }),
    ("fullbore_member_longest_write_seconds", "gauge", "The longest write of a block", |it| {
        it.longest_write_ns as f64 / 1e9
    }),
    ("fullbore_member_failed", "gauge", "1 if it takes no more data", |it| {
        f64::from(u8::from(it.failure.is_some()))
    }),
];

fn text_of(
    recordings: &[Recording],
    members: &[serde_json::Value],
    schedules: &[Scheduled],
) -> String {
    let mut text = String::new();
    let running: Vec<&Recording> = recordings.iter().filter(|it| it.life.is_active()).collect();
    head(&mut text, "fullbore_recordings", "gauge", "Recordings that run, by phase");
    for (phase, name) in [
        (Phase::Starting, "starting"),
        (Phase::Waiting, "waiting"),
        (Phase::Armed, "armed"),
        (Phase::Recording, "recording"),
        (Phase::Stopping, "stopping"),
    ] {
        let count = running.iter().filter(|it| it.life.phase == phase).count();
        line(&mut text, "fullbore_recordings", &[("phase", name)], count as f64);
    }
    let progress = || running.iter().filter_map(|it| Some((*it, it.life.progress.as_ref()?)));
    for (name, kind, help, value) in STREAMS {
        head(&mut text, name, kind, help);
        for (recording, progress) in progress() {
            let (id, scan) = (recording.id.to_string(), progress.scan.to_string());
            for stream in &progress.streams {
                let labels = [("recording", &*id), ("scan", &*scan), ("stream", &*stream.name)];
                line(&mut text, &sample(name, kind), &labels, value(stream));
            }
        }
    }
    for (name, kind, help, value) in MEMBERS {
        head(&mut text, name, kind, help);
        for (recording, progress) in progress() {
            let id = recording.id.to_string();
            for member in &progress.members {
                let labels = [("recording", &*id), ("member", &*member.path)];
                line(&mut text, &sample(name, kind), &labels, value(member));
            }
        }
    }
    head(
        &mut text,
        "fullbore_seconds_until_full",
        "gauge",
        "Until the disk set is full at this rate",
    );
    for (recording, progress) in progress() {
        if let Some(seconds) = progress.seconds_until_full {
            let labels = [("recording", &*recording.id.to_string())];
            line(&mut text, "fullbore_seconds_until_full", &labels, seconds);
        }
    }
    for (name, key) in
        [("fullbore_store_free_bytes", "free_bytes"), ("fullbore_store_size_bytes", "total_bytes")]
    {
        head(&mut text, name, "gauge", "Space of each member of the store");
        for member in members {
            if let (Some(path), Some(bytes)) = (member["path"].as_str(), member[key].as_f64()) {
                line(&mut text, name, &[("member", path)], bytes);
            }
        }
    }
    of_schedules(&mut text, schedules);
    text
}

fn of_schedules(text: &mut String, schedules: &[Scheduled]) {
    let wanted = || schedules.iter().filter(|it| it.state != State::Cancelled);
    head(text, "fullbore_schedule_running", "gauge", "1 if the recorder of the schedule runs");
    for it in wanted() {
        let runs = f64::from(u8::from(it.state == State::Running));
        line(text, "fullbore_schedule_running", &[("schedule", &it.name)], runs);
    }
    head(text, "fullbore_schedule_scans_ahead", "gauge", "Scans that are not over");
    for it in wanted() {
        line(text, "fullbore_schedule_scans_ahead", &[("schedule", &it.name)], it.ahead as f64);
    }
}

fn sample(name: &str, kind: &str) -> String {
    if kind == "counter" { format!("{name}_total") } else { name.to_owned() }
}

pub(super) fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a text cannot fail.
    let _ = write!(text, "# TYPE {name} {kind}\n# HELP {name} {help}.\n");
}

pub(super) fn line(text: &mut String, name: &str, labels: &[(&str, &str)], value: f64) {
    let escaped = |text: &str| text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
    let labels: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
    // Writing to a text cannot fail.
    let _ = match labels.is_empty() {
        true => writeln!(text, "{name} {value}"),
        false => writeln!(text, "{name}{{{}}} {value}", labels.join(",")),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = String::new();
        line(&mut text, "a", &[("b", "c\"d\\e\nf")], 1.5);
        assert_eq!(text, "a{b=\"c\\\"d\\\\e\\nf\"} 1.5\n");
    }

    #[test]
    fn without_recordings_there_are_only_headings_and_members() {
        let members = [serde_json::json!({"path": "/m0", "free_bytes": 5, "total_bytes": null})];
        let text = text_of(&[], &members, &[]);
        assert!(text.contains("fullbore_recordings{phase=\"recording\"} 0\n"), "{text}");
        assert!(text.contains("fullbore_store_free_bytes{member=\"/m0\"} 5\n"), "{text}");
        assert!(!text.contains("fullbore_store_size_bytes{"));
    }
}
