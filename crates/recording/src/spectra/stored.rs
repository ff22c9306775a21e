//! The same messages for a moment of a stored stream.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use fullbore_analysis::plan::{LineId, Plan};
use fullbore_analysis::source::{Error, Input, Range, Start};
use fullbore_core::hint::Hint;
use fullbore_core::manifest::Format;
use fullbore_formats::samples::SampleLayout;
use fullbore_linux::stop_handle::StopHandle;
use fullbore_store::reader::{Scan, StoredStream};
use fullbore_time::Tai;

use super::message::Message;
use super::request::{Request, RequestError};
use super::row::{self, Moment};
use super::watcher::{Described, stream_message};

/// The longest part of a stream that makes one row.
pub const LONGEST: Duration = Duration::from_secs(1);

/// A moment of a stored stream that cannot be shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The request has a mistake.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The part is too long.
    #[error("the length of a row is more than 0, and at most {LONGEST:?}")]
    Length,
    /// The scan has no such stream.
    #[error("{scan} has no stream {stream}")]
    Unknown {
        /// The scan.
        scan: String,
        /// The stream.
        stream: String,
    },
    /// The analysis failed.
    #[error(transparent)]
    Analysis(#[from] Error),
}

impl Hint for StoredError {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            StoredError::Analysis(error) => error.hint(),
            _ => None,
        }
    }
}

/// The description of a stored stream, and the row of a part of it: from `after` its start on, of this length. The rows
/// in a second that a request has mean nothing here.
///
/// # Errors
///
/// The request has a mistake, or the part has no whole transform, or cannot be read.
pub fn messages(
    scan: &Scan,
    request: &Request,
    after: Duration,
    length: Duration,
    stop: &StopHandle,
) -> Result<Vec<Message>, StoredError> {
    let asked = request.checked()?;
    if length.is_zero() || length > LONGEST {
        return Err(StoredError::Length);
    }
    let name = asked.stream.as_str();
    let stream = scan.streams.iter().find(|stream| stream.name == name);
    let stream = stream.ok_or_else(|| StoredError::Unknown {
        scan: scan.manifest.scan.to_string(),
        stream: name.to_owned(),
    })?;
    let range = Range { start: Some(Start::After(after)), length: Some(length) };
    let input = Input::stored(scan, stream, None, range)?.of_thread(asked.line);
    let analysis =
        input.analyse_by(&|layout: &SampleLayout| suited(&asked.plan, layout), 1, stop)?;
    let LineId { thread, channel } = asked.line;
    let of_sums = || analysis.sums.bins.keys().next().map(|(_, thread)| *thread);
    let line = LineId { thread: thread.or_else(of_sums), channel };
    let described = Described {
        scan: &scan.manifest.scan,
        stream: name,
        layout: &analysis.layout,
        threads: &threads_of(stream, line),
        line,
        window: asked.plan.window,
    };
    let begin = stream.blocks.first().map(|first| stream.time_of_block(&first.block));
    let after = i64::try_from(after.as_nanos()).unwrap_or(i64::MAX);
    let time = analysis.start.or(begin.map(|begin| begin.plus_ns(after))).unwrap_or(Tai(0));
    let moment = Moment { time, of_frames: analysis.start.is_some(), skipped: 0 };
    let row = row::encode(&analysis, line, moment).map(Message::Row);
    Ok(stream_message(&described).into_iter().chain(row).collect())
}

/// The plan, without levels if the samples have too many states.
fn suited(plan: &Plan, layout: &SampleLayout) -> Arc<Plan> {
    let mut plan = plan.clone();
    plan.wanted.levels = layout.encoding.code.bits() <= 8;
    Arc::new(plan)
}

fn threads_of(stream: &StoredStream, line: LineId) -> BTreeSet<u16> {
    let known = match &stream.format {
        Format::Frames { threads, .. } => threads.as_slice(),
        _ => &[],
    };
    known.iter().copied().chain(line.thread).collect()
}
