//! Metrics of transfers.

use fullbore_recording::transfers::arrivals::ReceiveCounts;
use fullbore_transfer::queue::job::JobState;
use fullbore_transfer::queue::listing::Row;

use super::metrics::{head, line};
use crate::transfers::TransferState;
use crate::transfers::state::held_by;

type OfRow = (&'static str, &'static str, fn(&Row) -> Option<f64>);

/// Metrics of each transfer that is not done.
const ROWS: &[OfRow] = &[
    ("fullbore_transfer_done_bytes", "Bytes that are durable at the destination", |it| {
        Some(it.done_bytes as f64)
    }),
    ("fullbore_transfer_size_bytes", "Bytes of the scan", |it| Some(it.bytes as f64)),
    ("fullbore_transfer_rate_bytes_per_second", "Rate at which it becomes durable there", |it| {
        Some(it.rate as f64)
    }),
    ("fullbore_transfer_eta_seconds", "Until it is complete at this rate", |it| {
        it.eta_seconds.map(|it| it as f64)
    }),
];

type OfListener = (&'static str, &'static str, fn(&ReceiveCounts) -> u64);

/// Counts of the listener since the daemon started.
const LISTENER: &[OfListener] = &[
    ("fullbore_receive_bytes", "Bytes of blocks that arrived from other sites", |it| {
        it.received_bytes
    }),
    ("fullbore_receive_scans", "Scans from other sites that are complete here", |it| {
        it.landed_scans
    }),
    ("fullbore_receive_fetched_scans", "Scans that other sites fetched", |it| it.fetched_scans),
    ("fullbore_receive_failures", "Transfers of other sites that ended early", |it| it.failed),
    ("fullbore_receive_refusals", "Connections that were refused", |it| it.refused),
];

const STATES: [JobState; 6] = [
    JobState::Running,
    JobState::Queued,
    JobState::Waiting,
    JobState::Paused,
    JobState::Failed,
    JobState::Done,
];

/// Writes the metrics of transfers.
pub(super) fn of_transfers(text: &mut String, state: &TransferState) {
    head(text, "fullbore_transfers", "gauge", "Transfers of the queue, by state");
    for of in STATES {
        let count = state.counts.get(&of).copied().unwrap_or(0);
        line(text, "fullbore_transfers", &[("state", &of.to_string())], count as f64);
    }
    head(text, "fullbore_transfers_runner", "gauge", "1 if the queue is run");
    let runs = f64::from(u8::from(state.runner.is_some()));
    line(text, "fullbore_transfers_runner", &[], runs);
    for (name, help, value) in ROWS {
        head(text, name, "gauge", help);
        for row in &state.queue {
            if let Some(value) = value(row) {
                let id = row.id.to_string();
                line(text, name, &[("id", &id), ("scan", &row.scan), ("to", &row.to)], value);
            }
        }
    }
    head(text, "fullbore_transfer_held", "gauge", "1 if something holds the transfer back");
    for row in &state.queue {
        if let Some(by) = held_by(row) {
            let id = row.id.to_string();
            let labels = [("id", &*id), ("scan", &*row.scan), ("to", &*row.to), ("by", by)];
            line(text, "fullbore_transfer_held", &labels, 1.0);
        }
    }
    let Some(receive) = &state.receive else { return };
    head(text, "fullbore_receive_open", "gauge", "Transfers of other sites that run");
    for (fetched, what) in [(false, "receive"), (true, "fetch")] {
        let count = receive.open.iter().filter(|it| it.fetched == fetched).count();
        line(text, "fullbore_receive_open", &[("direction", what)], count as f64);
    }
    for (name, help, value) in LISTENER {
        head(text, name, "counter", help);
        line(text, &format!("{name}_total"), &[], value(&receive.counts) as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfers::state::tests::row;

    #[test]
    fn a_transfer_has_its_progress_and_what_holds_it_back() {
        let mut running = row(7, JobState::Running);
        running.reason = Some("yielding to recording: frames overrun".into());
        let state = TransferState {
            runner: Some(5),
            counts: [(JobState::Running, 1), (JobState::Failed, 2)].into(),
            queue: vec![running],
            ..TransferState::default()
        };
        let mut text = String::new();
        of_transfers(&mut text, &state);
        for wanted in [
            "fullbore_transfers{state=\"failed\"} 2\n",
            "fullbore_transfers_runner 1\n",
            "fullbore_transfer_done_bytes{id=\"7\",scan=\"r1_7\",to=\"fullbore://far:4780\"} 10\n",
            "fullbore_transfer_eta_seconds{id=\"7\",scan=\"r1_7\",to=\"fullbore://far:4780\"} 6\n",
            "by=\"recording\"} 1\n",
        ] {
            assert!(text.contains(wanted), "{wanted} {text}");
        }
        assert!(!text.contains("fullbore_receive"), "{text}");
    }
}
