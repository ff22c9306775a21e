//! Scans: the newest durable block of each stream, read from the store.

use std::time::{Duration, Instant};

use fullbore_core::name::Name;
use fullbore_store::follow::{FollowCursor, Follower};
use fullbore_store::read::Settings;
use fullbore_store::reader::{Item, StoredStream};

use super::view::View;
use super::{Args, Pages};
use crate::hint::explained;
use crate::signals;
use crate::verbs::live_scan;

/// Shows the newest block of each stream: once if the scan is over, else until its end or a stop request.
pub fn watch(args: &Args, pages: &mut Pages) -> anyhow::Result<()> {
    let roots = args.store.members()?;
    let (mut follower, only) = live_scan::open(&roots, &args.what[0])?;
    let stop = signals::stop_handle()?;
    let mut streams: Vec<Watched> = Vec::new();
    let mut looks = 0;
    loop {
        live_scan::settle(&mut follower)?;
        let over = follower.status().is_over();
        pages.show(&look(&mut follower, &mut streams, only.as_ref())?)?;
        looks += 1;
        if over || args.looks.is_some_and(|wanted| looks >= wanted) {
            return Ok(());
        }
        let due = Instant::now() + args.every;
        while Instant::now() < due && !follower.status().is_over() {
            if !follower.wait(&stop) {
                return Ok(());
            }
            follower.look().map_err(explained)?;
        }
    }
}

/// A stream and the blocks of it that were seen.
struct Watched {
    cursor: FollowCursor,
    /// The number of blocks at the last look, and its time.
    before: Option<(usize, Instant)>,
}

/// The newest block of each stream that has one, or of one stream.
fn look(
    follower: &mut Follower,
    streams: &mut Vec<Watched>,
    only: Option<&Name>,
) -> anyhow::Result<Vec<View>> {
    let settings = Settings { reads_per_device: 1, ahead_bytes: 1, ..Settings::default() };
    while streams.len() < follower.scan().streams.len() {
        let cursor = FollowCursor::new(streams.len(), settings);
        streams.push(Watched { cursor, before: None });
    }
    let mut views = Vec::new();
    for (number, watched) in streams.iter_mut().enumerate() {
        let stream = &follower.scan().streams[number];
        let blocks = stream.blocks.len();
        let named = only.is_none_or(|only| only.as_str() == stream.name);
        let news = watched.before.is_none_or(|(before, _)| blocks > before);
        if !named || blocks == 0 || !news {
            continue;
        }
        watched.cursor.skip_to(stream, blocks - 1);
        let Some(item) = follower.next(&mut watched.cursor).map_err(explained)? else { continue };
        let stream = &follower.scan().streams[number];
        if let Item::Block(block) = item {
            views.push(watched.view(stream, blocks, block.bytes()));
        }
    }
    Ok(views)
}

impl Watched {
    fn view(&mut self, stream: &StoredStream, blocks: usize, bytes: &[u8]) -> View {
        let now = Instant::now();
        let before = self.before.replace((blocks, now));
        let skipped = before.map_or(0, |(before, _)| blocks - before - 1);
        let geometry = stream.geometry;
        let block_bytes = geometry.map_or(0, |geometry| u64::from(geometry.block_bytes));
        let rate = before.map(|(before, at)| {
            let grown = (blocks - before) as u64 * block_bytes;
            (grown as f64 / now.duration_since(at).max(Duration::from_millis(1)).as_secs_f64())
                as u64
        });
        let frame_bytes = geometry.map_or(0, |geometry| geometry.frame_bytes);
        View::of(stream.name.clone(), Some(&stream.format), frame_bytes, bytes)
            .at(blocks as u64, skipped as u64)
            .with_rate(rate)
    }
}
