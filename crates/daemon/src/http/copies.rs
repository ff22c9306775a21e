//! The sealed scans as copies: the files that a copy in an object store has, by their names and by ranges.
//!
//! `http://HOST:PORT/api/v1/copies/SCAN` is therefore an address for every program that reads copies. A chunk file is not
//! checked here: its reader has the index. The path has slashes, so the route is not in the OpenAPI document.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use fullbore_core::name::ScanName;
use fullbore_transfer::objects::ObjectError;
use fullbore_transfer::objects::served::{ServedCopy, ServedPart};

use super::files::streamed;
use super::problem::Problem;
use super::who::Viewer;
use super::{Shared, blocking};

/// Chunk files that are read at once. Other requests wait.
pub(super) const MOST_READ: usize = 8;

/// Scans whose documents are kept for the next request, and for how long.
const MOST_KEPT: usize = 8;
const KEPT: Duration = Duration::from_secs(30);

/// The documents of scans that were asked for last.
#[derive(Default)]
pub(super) struct Copies(Mutex<Vec<(Instant, ScanName, Arc<ServedCopy>)>>);

impl std::fmt::Debug for Copies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Copies")
    }
}

impl Copies {
    fn of(&self, members: &[PathBuf], scan: &str) -> Result<Arc<ServedCopy>, Problem> {
        let name: ScanName = scan
            .parse()
            .map_err(|error: fullbore_core::name::Error| Problem::bad_request(error.to_string()))?;
        let kept = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let found = {
            let mut kept = kept();
            kept.retain(|(since, ..)| now.duration_since(*since) < KEPT);
            kept.iter().find(|(_, kept, _)| *kept == name).map(|(.., copy)| Arc::clone(copy))
        };
        if let Some(copy) = found {
            return Ok(copy);
        }
        let made = ServedCopy::of_scan(members, &name).map_err(|error| of_copies(&error))?;
        let made = Arc::new(made);
        let mut kept = kept();
        if kept.len() >= MOST_KEPT {
            kept.remove(0);
        }
        kept.push((now, name, Arc::clone(&made)));
        Ok(made)
    }
}

/// What an answer is made of.
enum Found {
    Small(Vec<u8>),
    Chunk(File),
}

/// A file of a scan, or a range of it.
pub(super) async fn get(
    _: Viewer,
    State(station): Shared,
    Path((scan, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let shared = Arc::clone(&station);
    let (found, length, range) = blocking(move || {
        let copy = shared.copies.of(&shared.members, &scan)?;
        let nothing = || Problem::not_found(format!("{scan} has no such file"));
        let part = copy.part(&name).ok_or_else(nothing)?;
        let length = match part {
            ServedPart::Small(data) => data.len() as u64,
            ServedPart::Chunk { bytes, .. } => bytes,
        };
        let wanted = headers.get(header::RANGE).and_then(|it| it.to_str().ok());
        let range = wanted.map_or(Ok(None), |text| range_of(text, length))?;
        let found = match (part, &range) {
            (ServedPart::Small(data), None) => Found::Small(data.to_vec()),
            (ServedPart::Small(data), Some(range)) => {
                Found::Small(data[*range.start() as usize..=*range.end() as usize].to_vec())
            }
            (ServedPart::Chunk { path, .. }, _) => {
                Found::Chunk(File::open(path).map_err(|error| of_file(&error))?)
            }
        };
        Ok((found, length, range))
    })
    .await?;
    let bytes = range.as_ref().map_or(length, |range| range.end() - range.start() + 1);
    let from = range.as_ref().map_or(0, |range| *range.start());
    let body = match found {
        Found::Small(data) => Body::from(data),
        Found::Chunk(file) => {
            let permit = Arc::clone(&station.copiers).acquire_owned().await;
            let permit = permit.map_err(|error| Problem::internal(&error))?;
            let read = move |at: u64, into: &mut [u8]| file.read_exact_at(into, from + at);
            streamed("copies", permit, bytes, read)?
        }
    };
    let kind = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, bytes.to_string()),
        (header::ACCEPT_RANGES, "bytes".to_owned()),
    ];
    Ok(match range {
        None => (kind, body).into_response(),
        Some(range) => {
            let told = format!("bytes {}-{}/{length}", range.start(), range.end());
            (StatusCode::PARTIAL_CONTENT, kind, [(header::CONTENT_RANGE, told)], body)
                .into_response()
        }
    })
}

/// The range that a header asks for (RFC 9110, section 14.2). Several ranges, and what is no range, count as none.
fn range_of(text: &str, length: u64) -> Result<Option<RangeInclusive<u64>>, Problem> {
    let Some((first, last)) = text.trim().strip_prefix("bytes=").and_then(|it| it.split_once('-'))
    else {
        return Ok(None);
    };
    let number = |text: &str| match text.bytes().all(|it| it.is_ascii_digit()) {
        true => text.parse::<u64>().ok(),
        false => None,
    };
    let range = match (first, number(first), last, number(last)) {
        ("", _, _, Some(count)) => length.saturating_sub(count)..=length.saturating_sub(1),
        (_, Some(first), "", _) => first..=length.saturating_sub(1),
        (_, Some(first), _, Some(last)) if first <= last => {
            first..=last.min(length.saturating_sub(1))
        }
        _ => return Ok(None),
    };
    if *range.start() >= length {
        let why = format!("the file has {length} bytes, and none from {} on", range.start());
        return Err(Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, why));
    }
    Ok(Some(range))
}

fn of_copies(error: &ObjectError) -> Problem {
    let status = match error {
        ObjectError::Scan(_) => StatusCode::NOT_FOUND,
        ObjectError::Unsealed { .. } | ObjectError::Unreadable { .. } => StatusCode::CONFLICT,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::of(status, error)
}

fn of_file(error: &io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::NotFound => Problem::not_found("the file is not there any more"),
        _ => Problem::internal(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_http() {
        for (text, range) in [
            ("bytes=0-0", Some(0..=0)),
            ("bytes=2-5", Some(2..=5)),
            ("bytes=2-", Some(2..=9)),
            ("bytes=2-99999999999", Some(2..=9)),
            ("bytes=-3", Some(7..=9)),
            ("bytes=-30", Some(0..=9)),
            ("bytes=5-2", None),
            ("bytes=0-1,4-5", None),
            ("bytes=+1-2", None),
            ("bytes=-", None),
            ("bytes=99999999999999999999999-", None),
            ("frames=0-1", None),
        ] {
            assert_eq!(range_of(text, 10).unwrap(), range, "{text}");
        }
        for text in ["bytes=10-", "bytes=10-20", "bytes=-0"] {
            let refused = range_of(text, 10).unwrap_err();
            assert_eq!(refused.status, 416, "{text}");
        }
        assert_eq!(range_of("bytes=0-", 0).unwrap_err().status, 416);
        assert_eq!(range_of("bytes=-5", 0).unwrap_err().status, 416);
    }
}
