//! `fullbore info file:x.pcapng`: the UDP datagrams of a packet capture by port.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Context;
use fullbore_core::endpoint::Endpoint;
use fullbore_core::units::ByteSize;
use fullbore_engine::recorder::packet_file::{Flow, flows};
use fullbore_recording::options::packet_files;
use serde::Serialize;

use crate::hint::explained;
use crate::output::{self, Output};

/// The document of `--json`.
#[derive(Serialize)]
struct Capture {
    file: String,
    ports: Vec<PortOfCapture>,
}

#[derive(Serialize)]
struct PortOfCapture {
    port: u16,
    datagrams: u64,
    bytes: u64,
    /// As `format=` of a source takes it; none if most datagrams are no frames of a known format.
    format: Option<String>,
    /// Nanoseconds of TAI, as in accounts.
    first: Option<i64>,
    last: Option<i64>,
}

impl PortOfCapture {
    fn new(port: u16, flow: &Flow) -> Self {
        let format = flow.format_parameter();
        let (first, last) = flow.times.map(|(first, last)| (first.0, last.0)).unzip();
        Self { port, datagrams: flow.packets, bytes: flow.bytes, format, first, last }
    }
}

/// Shows a capture.
pub fn info(text: &str, output: Output) -> anyhow::Result<ExitCode> {
    let endpoint: Endpoint = text.parse().map_err(explained)?;
    let path = packet_files::path_of(&endpoint).map_err(explained)?;
    let (flows, warnings) = flows(&path).with_context(|| format!("reading {}", path.display()))?;
    warnings.iter().for_each(|text| output::note(format_args!("{text}")));
    let ports = flows.iter().map(|(port, flow)| PortOfCapture::new(*port, flow)).collect();
    let capture = Capture { file: path.display().to_string(), ports };
    output.tell(&capture, || table(&capture, &flows))?;
    Ok(ExitCode::SUCCESS)
}

fn table(capture: &Capture, flows: &BTreeMap<u16, Flow>) -> String {
    if capture.ports.is_empty() {
        return format!("{}: no UDP datagrams\n", capture.file);
    }
    let mut text = format!(
        "{:>5}  {:>12}  {:>10}  {:<10}  first and last (UTC)\n",
        "port", "datagrams", "bytes", "format"
    );
    for it in &capture.ports {
        let times = flows.get(&it.port).and_then(|flow| flow.times);
        let times = times.map_or_else(String::new, |(first, last)| format!("{first} {last}"));
        let format = it.format.as_deref().unwrap_or("?");
        text += &format!(
            "{:>5}  {:>12}  {:>10}  {format:<10}  {times}\n",
            it.port,
            it.datagrams,
            ByteSize(it.bytes).to_string()
        );
    }
    text
}
