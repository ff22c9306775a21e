//! The state of the station: once, or again and again as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};
use utoipa::IntoParams;

use super::Shared;
use super::problem::Problem;
use super::who::Viewer;
use crate::log::{Level, Log};
use crate::status::Status;

/// The most events in a second.
const MOST_OFTEN: u32 = 5;

/// The most entries of the log in an event.
const MOST_ENTRIES: usize = 100;

/// How often.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Rate {
    /// The most events in a second: 1 to 5.
    #[serde(default = "most_often")]
    hz: u32,
    /// Also send new entries of the log that are at least so serious: `info`, `warning` or `error`.
    log: Option<Level>,
}

fn most_often() -> u32 {
    MOST_OFTEN
}

/// Show the state of the station.
#[utoipa::path(
    get,
    operation_id = "getStatus",
    path = "/api/v1/status",
    tag = "status",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Status),
    ),
)]
pub(super) async fn status(_: Viewer, State(station): Shared) -> Response {
    let text = station.news.borrow().to_string();
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Follow the state of the station: an event `state` for each change, with the document of `/api/v1/status`. With `log`,
/// also an event `log` with the new entries of the log, at most the newest 100 at a time.
#[utoipa::path(
    get,
    operation_id = "followEvents",
    path = "/api/v1/events",
    tag = "status",
    params(Rate),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Status, content_type = "text/event-stream"),
        (status = 503, body = Problem),
    ),
)]
pub(super) async fn follow(
    Viewer(proven): Viewer,
    State(station): Shared,
    Query(Rate { hz, log: level }): Query<Rate>,
) -> Result<Response, Problem> {
    if !(1..=MOST_OFTEN).contains(&hz) {
        return Err(Problem::bad_request(format!("hz is 1 to {MOST_OFTEN}")));
    }
    let place = station.followers.take(&proven.identity).ok_or_else(|| {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too many clients follow the events")
    })?;
    let mut news = station.news.clone();
    news.mark_changed();
    let every = Duration::from_secs(1) / hz;
    let (log, last) = (station.log.clone(), station.log.last());
    let events = stream::unfold(
        (news, Instant::now(), (place, station, proven), last),
        move |(mut news, next, held, last)| {
            let log = log.clone();
            async move {
                sleep_until(next).await;
                news.changed().await.ok()?;
                let (_, station, proven) = &held;
                if !station.still_knows(proven) {
                    return None;
                }
                let text: Arc<str> = news.borrow_and_update().clone();
                let mut events =
                    vec![Ok::<_, Infallible>(Event::default().event("state").data(&*text))];
                let (entries, last) = fresh(&log, last, level);
                events.extend(entries.map(Ok));
                Some((stream::iter(events), (news, Instant::now() + every, held, last)))
            }
        },
    );
    let events = events.flatten();
    Ok(Sse::new(events).keep_alive(KeepAlive::new()).into_response())
}

/// The event for entries of the log after a number, and the number of the newest one.
fn fresh(log: &Log, last: u64, level: Option<Level>) -> (Option<Event>, u64) {
    let newest = log.last();
    let Some(level) = level.filter(|_| newest > last) else { return (None, newest) };
    let mut entries = log.after(last, MOST_ENTRIES);
    entries.retain(|it| it.level >= level);
    let newest = entries.last().map_or(newest, |it| it.number.max(newest));
    let text = serde_json::to_string(&entries).unwrap_or_default();
    ((!entries.is_empty()).then(|| Event::default().event("log").data(text)), newest)
}
