//! Finds the recording times of a scan whose manifest is lost.

use std::time::UNIX_EPOCH;

use fullbore_core::manifest::{Manifest, Times};
use fullbore_store::inventory::MemberFiles;
use fullbore_time::Tai;

/// The sources of a stream's start and end times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// By the host's clock: from the index or the account.
    pub received: Option<(Tai, Tai)>,
    /// The times in its first and its last frame.
    pub frames: Option<(Tai, Tai)>,
}

/// Writes the times of the scan into the manifest, with their source: the host's clock if known, else the frames, else
/// the chunk files.
pub fn tell<'a>(
    manifest: &mut Manifest,
    spans: &[Span],
    holdings: impl IntoIterator<Item = &'a MemberFiles>,
) {
    let whole = |of: fn(&Span) -> Option<(Tai, Tai)>| {
        let all = || spans.iter().filter_map(of);
        let span = all().map(|it| it.0).min().zip(all().map(|it| it.1).max());
        // A single block has one time, which is not a duration.
        span.filter(|(first, last)| first < last)
    };
    let received = || whole(|span| span.received).map(|span| (span, Times::Received));
    let frames = || whole(|span| span.frames).map(|span| (span, Times::Frames));
    let files = || of_files(holdings).map(|span| (span, Times::Files));
    if let Some(((first, last), times)) = received().or_else(frames).or_else(files) {
        (manifest.armed, manifest.stopped, manifest.times) = (first, Some(last), Some(times));
    }
}

/// Returns the time when the first chunk file was made, or when the original of a copy changed; and the time when the
/// last one changed.
fn of_files<'a>(holdings: impl IntoIterator<Item = &'a MemberFiles>) -> Option<(Tai, Tai)> {
    let (mut first, mut last) = (None::<Tai>, None::<Tai>);
    for (_, file) in holdings.into_iter().flat_map(|holding| &holding.chunks) {
        let Ok(metadata) = file.path.metadata() else { continue };
        let tai = |time: std::io::Result<std::time::SystemTime>| {
            let since = time.ok()?.duration_since(UNIX_EPOCH).ok()?;
            Some(Tai::from_unix_ns(since.as_nanos() as i128))
        };
        let changed = tai(metadata.modified());
        for time in [changed, tai(metadata.created())].into_iter().flatten() {
            first = Some(first.map_or(time, |first| first.min(time)));
        }
        last = last.max(changed);
    }
    first.zip(last)
}
