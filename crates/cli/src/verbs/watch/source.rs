//! Sources: recorded into a sink that stores nothing, and seen through a tap.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fullbore_core::name::{Name, ScanName};
use fullbore_core::units::ByteSize;
use fullbore_engine::source::SourceConfig;
use fullbore_recording::options::sources_of;
use fullbore_recording::{Recording, RecordingConfig, SinkConfig, Tap, TapBlock};

use super::view::View;
use super::{Args, Pages};
use crate::hint::explained;
use crate::signals;

/// Block memory of all sources together.
const BUFFER: ByteSize = ByteSize(256_000_000);

/// The longest wait for a block before a stop request is noticed: only a block wakes a tap.
const PATIENCE: Duration = Duration::from_millis(100);

/// The time for which a lost connection to a PandA is tried again.
const RECONNECT: Duration = Duration::from_secs(30);

/// The most acquisitions of a PandA that are watched.
const ACQUISITIONS: u32 = 10_000;

/// Shows the newest block of each stream until a stop is requested.
pub fn watch(args: &Args, pages: &mut Pages) -> anyhow::Result<()> {
    let recording = Recording::start(config(&args.what, args.buffer)?).map_err(explained)?;
    signals::stop_recording(recording.stop_handle())?;
    let mut tap = recording.tap();
    let mut looks = 0;
    let mut since: BTreeMap<u16, (u64, Instant)> = BTreeMap::new();
    while !recording.has_ended() && args.looks.is_none_or(|wanted| looks < wanted) {
        let newest = newest(&mut tap, args.every, &recording);
        let views: Vec<View> = newest.values().map(|block| view(block, &mut since)).collect();
        let stopped = recording.stop_handle().is_requested();
        if views.is_empty() && (stopped || recording.has_ended()) {
            break;
        }
        pages.show(&views)?;
        if stopped {
            break;
        }
        looks += 1;
    }
    recording.stop();
    recording.join().map_err(explained)?;
    Ok(())
}

/// The newest block of each stream that is written within this time.
fn newest(tap: &mut Tap, within: Duration, recording: &Recording) -> BTreeMap<u16, TapBlock> {
    let mut newest: BTreeMap<u16, TapBlock> = BTreeMap::new();
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || recording.stop_handle().is_requested() || recording.has_ended() {
            return newest;
        }
        if let Some(block) = tap.next(left.min(PATIENCE)) {
            let skipped =
                newest.get(&block.stream_ref.number).map_or(0, |before| before.skipped + 1);
            let block = TapBlock { skipped: block.skipped + skipped, ..block };
            newest.insert(block.stream_ref.number, block);
        }
    }
}

fn view(block: &TapBlock, since: &mut BTreeMap<u16, (u64, Instant)>) -> View {
    let now = Instant::now();
    let before = since.insert(block.stream_ref.number, (block.number, now));
    let rate = before.map(|(number, at)| {
        let bytes = (block.number - number) * u64::from(block.stream_ref.geometry.block_bytes);
        (bytes as f64 / now.duration_since(at).as_secs_f64()) as u64
    });
    let number = block.stream_ref.number.to_string();
    let name = block.stream.as_ref().map_or(number, |stream| stream.name.to_string());
    let format = block.stream.as_ref().map(|stream| &stream.format);
    let frame_bytes = block.stream_ref.geometry.frame_bytes;
    View::of(name, format, frame_bytes, &block.bytes)
        .at(block.number, block.skipped)
        .with_rate(rate)
}

/// A recording of a source that stores nothing.
pub fn recorded_nowhere(source: &str) -> anyhow::Result<Recording> {
    Recording::start(config(&[source.to_owned()], None)?).map_err(explained)
}

fn config(what: &[String], buffer: Option<ByteSize>) -> anyhow::Result<RecordingConfig> {
    let sources = sources_of(what, false, RECONNECT).map_err(explained)?;
    let acquisitions = sources.iter().any(|source| matches!(source, SourceConfig::Panda(_)));
    let session = Name::session("watch")?;
    let scan = |number: u32| -> anyhow::Result<ScanName> {
        Ok(ScanName { session: session.clone(), scan: format!("w{number}").parse()? })
    };
    let scans = (1..=if acquisitions { ACQUISITIONS } else { 1 }).map(scan);
    let scans = scans.collect::<anyhow::Result<_>>()?;
    let buffer = Some(buffer.unwrap_or(BUFFER));
    Ok(RecordingConfig { buffer, ..RecordingConfig::new(sources, SinkConfig::Discard, scans) })
}
