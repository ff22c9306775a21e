//! The description of a plan in TOML: the machine, the streams, the time, and the thresholds. Every part may be absent.
//!
//! Names of nodes and sets are references within the file. `docs/howto/plan.md` lists all keys.

use std::time::Duration;

use fullbore_core::units::{ByteRate, ByteSize};
use serde::Deserialize;

use super::demand::{Hash, MOST_STREAMS, Run, Settings, Stream, TypedStream, What};
use super::error::Error;
use super::figure::{Figure, Origin, Unit};
use super::instruments::{Direction, Instrument};
use super::link::Link;
use super::machine::{DiskSet, MOST_NODES, Machine, Node, NodeId, NodeKind, Raid, Uplink};

/// The most disks of a set.
const MOST_DISKS: u32 = 4096;

/// The longest time in a plan: a century.
const LONGEST_S: f64 = 3.2e9;

/// Days of a year.
const DAYS_PER_YEAR: f64 = 365.25;

/// The whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Description {
    /// A sentence about the plan.
    pub about: Option<String>,
    machine: MachineText,
    node: Vec<NodeText>,
    disks: Vec<DisksText>,
    instrument: Vec<InstrumentText>,
    stream: Vec<StreamText>,
    /// The time.
    pub run: RunText,
    settings: SettingsText,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct MachineText {
    name: Option<String>,
    memory: Option<String>,
    copy_rate: Option<String>,
    cores: Option<u32>,
    cpu_per_gb: Option<f64>,
    numa_nodes: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct NodeText {
    name: String,
    #[serde(default)]
    kind: NodeKind,
    parent: Option<String>,
    link: Option<String>,
    most: Option<String>,
    payload: Option<u32>,
    mtu: Option<u32>,
    numa: Option<u32>,
    fifo: Option<String>,
    instrument: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct DisksText {
    name: String,
    #[serde(default)]
    at: Vec<String>,
    #[serde(default = "one")]
    count: u32,
    #[serde(default)]
    raid: Raid,
    write: Option<String>,
    set_write: Option<String>,
    peak: Option<String>,
    read: Option<String>,
    capacity: Option<String>,
    stall: Option<String>,
    tbw: Option<f64>,
    dwpd: Option<f64>,
    warranty_years: Option<f64>,
    source: Option<String>,
}

fn one() -> u32 {
    1
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct InstrumentText {
    name: String,
    #[serde(default)]
    direction: Direction,
    raw: String,
    limit: Option<String>,
    sum: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StreamText {
    name: Option<String>,
    #[serde(default = "one")]
    count: u32,
    rate: Option<String>,
    instrument: Option<String>,
    direction: Option<Direction>,
    #[serde(default)]
    at: Vec<String>,
    to: Option<String>,
    #[serde(default)]
    peer: bool,
}

/// The time, also from the command line.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RunText {
    /// The duration of one recording.
    pub duration: Option<String>,
    /// The length of each scan.
    pub record: Option<String>,
    /// The pause after each scan.
    pub pause: Option<String>,
    /// The number of scans.
    pub scans: Option<u64>,
    /// The rate of sending meanwhile.
    pub send: Option<String>,
    /// Where that leaves.
    pub send_at: Vec<String>,
    /// Block memory.
    pub buffer: Option<String>,
    /// A cryptographic checksum.
    pub hash: Option<Hash>,
}

impl RunText {
    /// Takes every value that the other one has. A duration replaces scans, and scans a duration.
    pub fn override_with(&mut self, other: &Self) {
        if other.duration.is_some() {
            (self.record, self.pause, self.scans) = (None, None, None);
        }
        if other.record.is_some() {
            self.duration = None;
        }
        let text = |mine: &mut Option<String>, other: &Option<String>| {
            if other.is_some() {
                mine.clone_from(other);
            }
        };
        text(&mut self.duration, &other.duration);
        text(&mut self.record, &other.record);
        text(&mut self.pause, &other.pause);
        text(&mut self.send, &other.send);
        text(&mut self.buffer, &other.buffer);
        self.scans = other.scans.or(self.scans);
        self.hash = other.hash.or(self.hash);
        if !other.send_at.is_empty() {
            self.send_at.clone_from(&other.send_at);
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct SettingsText {
    headroom: Option<f64>,
    small_flows: Option<String>,
    small_buffer: Option<String>,
}

/// Reads texts of a description, and says which entry is wrong.
struct Reader<'a> {
    name: &'a str,
}

impl Reader<'_> {
    fn bad(&self, entry: &str, why: impl ToString) -> Error {
        Error::Description {
            name: self.name.to_owned(),
            why: format!("{entry}: {}", why.to_string()),
        }
    }

    fn rate(
        &self,
        entry: &str,
        text: Option<&String>,
        source: &str,
    ) -> Result<Option<Figure>, Error> {
        let Some(text) = text else { return Ok(None) };
        let rate: ByteRate = text.parse().map_err(|error| self.bad(entry, error))?;
        match rate.0 {
            0 => Err(self.bad(entry, "a rate of 0")),
            rate => Ok(Some(Figure::new(rate as f64, Unit::Rate, Origin::Given, source))),
        }
    }

    fn size(
        &self,
        entry: &str,
        text: Option<&String>,
        source: &str,
    ) -> Result<Option<Figure>, Error> {
        let Some(text) = text else { return Ok(None) };
        let size: ByteSize = text.parse().map_err(|error| self.bad(entry, error))?;
        Ok(Some(Figure::new(size.0 as f64, Unit::Bytes, Origin::Given, source)))
    }

    fn time(&self, entry: &str, text: Option<&String>) -> Result<Option<f64>, Error> {
        let Some(text) = text else { return Ok(None) };
        let time: Duration =
            humantime::parse_duration(text).map_err(|error| self.bad(entry, error))?;
        match time.as_secs_f64() {
            seconds if seconds <= LONGEST_S => Ok(Some(seconds)),
            _ => Err(self.bad(entry, format!("{text} is too long"))),
        }
    }

    fn positive(&self, entry: &str, value: Option<f64>) -> Result<Option<f64>, Error> {
        match value {
            Some(value) if !(value > 0.0 && value < 1e15) => {
                Err(self.bad(entry, format!("{value} is no sensible number")))
            }
            value => Ok(value),
        }
    }

    fn link(&self, entry: &str, text: &str, payload: Option<u32>) -> Result<Link, Error> {
        if payload.is_some_and(|bytes| !(64..=65_536).contains(&bytes)) {
            return Err(self.bad(entry, "payload and mtu are 64 to 65536 bytes"));
        }
        let link: Link = text.parse().map_err(|error| self.bad(entry, error))?;
        Ok(link.with_payload(payload))
    }
}

impl Description {
    /// Reads a description. `name` is for messages.
    pub fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let description: Self = toml::from_str(text).map_err(|error| Error::Description {
            name: name.to_owned(),
            why: error.to_string(),
        })?;
        Ok(description)
    }

    /// True if it describes a machine, so that none is read from the kernel.
    pub fn has_machine(&self) -> bool {
        !self.node.is_empty() || self.machine.memory.is_some() || self.machine.cores.is_some()
    }

    /// Adds the described nodes, disks and figures to a machine.
    pub fn extend(&self, name: &str, machine: &mut Machine) -> Result<(), Error> {
        let read = Reader { name };
        let text = &self.machine;
        if let Some(name) = &text.name {
            machine.name.clone_from(name);
        }
        let given = |value: f64, unit| Figure::given(value, unit);
        let memory = read.size("memory", text.memory.as_ref(), "the description")?;
        let copy = read.rate("copy-rate", text.copy_rate.as_ref(), "the description")?;
        let cost = read.positive("cpu-per-gb", text.cpu_per_gb)?;
        machine.memory = memory.or(machine.memory.take());
        machine.copy_rate = copy.or(machine.copy_rate.take());
        machine.cpu_per_gb =
            cost.map(|cost| given(cost, Unit::CpuPerGb)).or(machine.cpu_per_gb.take());
        let cores = text.cores.map(|cores| given(f64::from(cores), Unit::Count));
        machine.cores = cores.or(machine.cores.take());
        machine.numa_nodes = text.numa_nodes.or(machine.numa_nodes);
        for node in &self.node {
            self.add_node(&read, node, machine)?;
        }
        for disks in &self.disks {
            let set = set(&read, disks, machine)?;
            machine.sets.push(set);
        }
        Ok(())
    }

    fn add_node(&self, read: &Reader, text: &NodeText, machine: &mut Machine) -> Result<(), Error> {
        let entry = format!("node `{}`", text.name);
        if machine.nodes.len() >= MOST_NODES {
            return Err(read.bad(&entry, format!("more than {MOST_NODES} nodes")));
        }
        if machine.node(&text.name).is_some() {
            return Err(read.bad(&entry, "there is another node of this name"));
        }
        // Only nodes that are described before can be parents, so there are no loops.
        let parent = match &text.parent {
            Some(parent) => Some(machine.node(parent).ok_or_else(|| {
                read.bad(&entry, format!("its parent `{parent}` is not described before it"))
            })?),
            None => None,
        };
        let payload = text.payload.or(text.mtu);
        let most = text.most.as_ref().map(|most| read.link(&entry, most, payload)).transpose()?;
        let link = match &text.link {
            Some(link) => Uplink::given(read.link(&entry, link, payload)?, most),
            None if text.kind == NodeKind::RootPort => Uplink::Internal,
            None => Uplink::Unknown,
        };
        if let Some(name) = &text.instrument {
            instrument(&entry, name, &self.instruments(read)?)?;
        }
        let fifo = read.size(&entry, text.fifo.as_ref(), "")?;
        machine.nodes.push(Node {
            name: text.name.clone(),
            kind: text.kind,
            parent,
            link,
            numa: text.numa,
            fifo: fifo.map(|fifo| ByteSize(fifo.value as u64)),
            instrument: text.instrument.clone(),
        });
        Ok(())
    }

    /// The instruments of the file, and those of the table that it does not override.
    fn instruments(&self, read: &Reader) -> Result<Vec<Instrument>, Error> {
        let mut all = Vec::new();
        for text in &self.instrument {
            let entry = format!("instrument `{}`", text.name);
            let raw = read.rate(&entry, Some(&text.raw), "")?.map_or(0.0, |rate| rate.value);
            all.push(Instrument {
                name: text.name.clone(),
                direction: text.direction,
                raw,
                limit: read.rate(&entry, text.limit.as_ref(), "")?.map(|rate| rate.value),
                sum: text.sum.clone().unwrap_or_else(|| "as described".into()),
            });
        }
        all.extend(super::instruments::table());
        Ok(all)
    }

    /// The instruments that streams may name.
    pub fn known_instruments(&self, name: &str) -> Result<Vec<Instrument>, Error> {
        self.instruments(&Reader { name })
    }

    /// The streams: those of the file, and those that were typed.
    pub fn streams(
        &self,
        name: &str,
        typed: &[TypedStream],
        machine: &Machine,
    ) -> Result<Vec<Stream>, Error> {
        let read = Reader { name };
        let instruments = self.instruments(&read)?;
        let mut streams = Vec::new();
        for text in &self.stream {
            streams.push(described(&read, text, &instruments, machine)?);
        }
        for typed in typed {
            streams.push(as_typed(typed, &instruments, machine)?);
        }
        match streams.is_empty() {
            true => Err(Error::NoStream),
            false => Ok(streams),
        }
    }

    /// The time.
    pub fn time(&self, name: &str, machine: &Machine) -> Result<Run, Error> {
        let (read, text) = (Reader { name }, &self.run);
        let duration = read.time("duration", text.duration.as_ref())?;
        let record = read.time("record", text.record.as_ref())?;
        if duration.is_some() && record.is_some() {
            return Err(read.bad("run", "duration and record exclude each other"));
        }
        if [duration, record].contains(&Some(0.0)) {
            return Err(read.bad("run", "a recording lasts longer than 0 s"));
        }
        let scans = text.scans.unwrap_or(1);
        if record.is_none() && (text.pause.is_some() || text.scans.is_some()) {
            return Err(read.bad("run", "scans and pause need record, the length of a scan"));
        }
        if !(1..=1_000_000_000).contains(&scans) {
            return Err(read.bad("scans", format!("{scans} is no number of scans")));
        }
        Ok(Run {
            record_s: record.or(duration),
            pause_s: read.time("pause", text.pause.as_ref())?.unwrap_or(0.0),
            scans,
            send: read.rate("send", text.send.as_ref(), "asked for")?,
            send_at: nodes("send-at", &text.send_at, machine)?,
            buffer: read.size("buffer", text.buffer.as_ref(), "asked for")?,
            hash: text.hash,
        })
    }

    /// The thresholds.
    pub fn settings(&self, name: &str) -> Result<Settings, Error> {
        let (read, usual) = (Reader { name }, Settings::default());
        let headroom = self.settings.headroom.unwrap_or(usual.headroom);
        if !(0.0..0.9).contains(&headroom) {
            return Err(read.bad("headroom", "it is a share from 0 to 0.9"));
        }
        let small = read.rate("small-flows", self.settings.small_flows.as_ref(), "")?;
        let buffer = read.time("small-buffer", self.settings.small_buffer.as_ref())?;
        Ok(Settings {
            headroom,
            small_flows: small.map_or(usual.small_flows, |rate| rate.value),
            small_buffer_s: buffer.unwrap_or(usual.small_buffer_s),
        })
    }
}

fn set(read: &Reader, text: &DisksText, machine: &Machine) -> Result<DiskSet, Error> {
    let entry = format!("disks `{}`", text.name);
    if !(1..=MOST_DISKS).contains(&text.count) {
        return Err(read.bad(&entry, format!("a set has 1 to {MOST_DISKS} disks")));
    }
    if text.raid.data_disks(text.count) == 0 {
        let why = format!("{} disks are too few for {}", text.count, text.raid.name());
        return Err(read.bad(&entry, why));
    }
    if machine.sets.iter().any(|set| set.name == text.name) {
        return Err(read.bad(&entry, "there is another set of this name"));
    }
    let source = text.source.as_deref().unwrap_or("the description");
    let rate = |text: &Option<String>| read.rate(&entry, text.as_ref(), source);
    let disk = read.size(&entry, text.capacity.as_ref(), source)?;
    let all = f64::from(text.count);
    let data = f64::from(text.raid.data_disks(text.count));
    let tbw = read.positive(&entry, text.tbw)?.map(|tbw| tbw * 1e12);
    let years = read.positive(&entry, text.warranty_years)?.unwrap_or(5.0);
    let dwpd = read.positive(&entry, text.dwpd)?.zip(disk.as_ref());
    let dwpd = dwpd.map(|(writes, disk)| writes * disk.value * DAYS_PER_YEAR * years);
    let endurance = tbw.or(dwpd).map(|bytes| bytes * all);
    let stall = read.time(&entry, text.stall.as_ref())?;
    Ok(DiskSet {
        name: text.name.clone(),
        at: nodes(&entry, &text.at, machine)?,
        disks: text.count,
        raid: text.raid,
        disk_write: rate(&text.write)?,
        set_write: rate(&text.set_write)?,
        peak: rate(&text.peak)?,
        read: rate(&text.read)?,
        capacity: disk.map(|disk| disk.with(disk.value * data)),
        stall: stall.map(|stall| Figure::new(stall, Unit::Seconds, Origin::Given, source)),
        endurance: endurance.map(|bytes| Figure::new(bytes, Unit::Bytes, Origin::Given, source)),
    })
}

fn described(
    read: &Reader,
    text: &StreamText,
    instruments: &[Instrument],
    machine: &Machine,
) -> Result<Stream, Error> {
    let entry = format!("stream `{}`", text.name.as_deref().unwrap_or("without a name"));
    if !(1..=MOST_STREAMS).contains(&text.count) {
        return Err(read.bad(&entry, format!("count is 1 to {MOST_STREAMS}")));
    }
    let at = nodes(&entry, &text.at, machine)?;
    let named = text
        .instrument
        .as_ref()
        .or_else(|| at.first().and_then(|node| machine.nodes[*node].instrument.as_ref()));
    let (rate, direction, name) = match (&text.rate, named) {
        (Some(rate), _) => {
            let rate = read.rate(&entry, Some(rate), "the description")?;
            (rate.ok_or_else(|| read.bad(&entry, "no rate"))?, Direction::In, None)
        }
        (None, Some(name)) => {
            let found = instrument(&entry, name, instruments)?;
            let (rate, source) = found.rate();
            let rate = Figure::new(rate, Unit::Rate, Origin::Table, source);
            (rate, found.direction, Some(found.name.clone()))
        }
        (None, None) => return Err(read.bad(&entry, "it needs a rate, or an instrument")),
    };
    let set = match &text.to {
        Some(name) => {
            Some(machine.sets.iter().position(|set| &set.name == name).ok_or_else(|| {
                let known = machine.sets.iter().map(|set| set.name.clone()).collect::<Vec<_>>();
                unknown(&entry, "set of disks", name, &known)
            })?)
        }
        None => None,
    };
    let fifo = at.first().and_then(|node| machine.nodes[*node].fifo);
    Ok(Stream {
        name: text.name.clone().or(name).unwrap_or_else(|| rate.to_string()),
        count: text.count,
        rate,
        direction: text.direction.unwrap_or(direction),
        at,
        set,
        peer: text.peer,
        fifo,
    })
}

fn as_typed(
    typed: &TypedStream,
    instruments: &[Instrument],
    machine: &Machine,
) -> Result<Stream, Error> {
    let (rate, direction, usual) = match &typed.what {
        What::Rate(rate) => {
            let rate = Figure::new(rate.0 as f64, Unit::Rate, Origin::Given, "typed");
            (rate, Direction::In, None)
        }
        What::Endpoint { rate, .. } => {
            let rate = Figure::new(rate.0 as f64, Unit::Rate, Origin::Given, "its endpoint");
            (rate, Direction::In, None)
        }
        What::Instrument(name) => {
            let found = instrument("a stream", name, instruments)?;
            let (rate, source) = found.rate();
            let rate = Figure::new(rate, Unit::Rate, Origin::Table, source);
            (rate, found.direction, Some(found.name.clone()))
        }
    };
    let interface = match &typed.what {
        What::Endpoint { interface: Some(interface), .. } => vec![interface.clone()],
        _ => vec![],
    };
    let places = if typed.at.is_empty() { &interface } else { &typed.at };
    let at = nodes("--stream", places, machine)?;
    let fifo = at.first().and_then(|node| machine.nodes[*node].fifo);
    let name = typed.name.clone().or(usual).unwrap_or_else(|| rate.to_string());
    Ok(Stream { name, count: typed.count, rate, direction, at, set: None, peer: false, fifo })
}

fn instrument<'a>(used: &str, name: &str, all: &'a [Instrument]) -> Result<&'a Instrument, Error> {
    let known = || all.iter().map(|it| it.name.clone()).collect::<Vec<_>>();
    let found = all.iter().find(|it| it.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| unknown(used, "instrument", name, &known()))
}

fn nodes(used: &str, names: &[String], machine: &Machine) -> Result<Vec<NodeId>, Error> {
    let find = |name: &String| {
        machine.node(name).ok_or_else(|| {
            let known: Vec<String> = machine.nodes.iter().map(|node| node.name.clone()).collect();
            unknown(used, "place", name, &known)
        })
    };
    names.iter().map(find).collect()
}

/// The most names that a message lists.
const MOST_LISTED: usize = 30;

fn unknown(used: &str, what: &'static str, name: &str, known: &[String]) -> Error {
    let known = match known {
        [] => "none".to_owned(),
        names if names.len() > MOST_LISTED => format!("{}, …", names[..MOST_LISTED].join(", ")),
        names => names.join(", "),
    };
    Error::Unknown { used: used.to_owned(), what, name: name.to_owned(), known }
}
