//! The timeline of scans over REST, and the check of a schedule before it is put.

use axum::Json;
use axum::extract::{Query, State};
use fullbore_core::schedule::Planned;
use fullbore_linux::clock::Clock;
use fullbore_store::inventory::Inventory;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;
use super::scans::listed;
use super::schedules::{ScheduleRequest, problem};
use super::who::{Operator, Viewer};
use super::{Shared, Station, blocking};
use crate::schedules::outlook::{Outlook, outlook, outlooks};
use crate::schedules::timeline::{MOST, Timeline, scans};

/// The longest stretch of a timeline, in days.
const LONGEST_DAYS: i64 = 31;

const DAY_NS: i64 = 86_400_000_000_000;

/// Scans of a checked schedule that are listed.
const LISTED: usize = 1000;

/// The stretch of time.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Stretch {
    /// Its beginning in UTC. Without it: 12 hours ago.
    #[param(value_type = Option<String>)]
    from: Option<Tai>,
    /// Its end in UTC, at most 31 days later. Without it: a day after the beginning.
    #[param(value_type = Option<String>)]
    until: Option<Tai>,
}

/// A schedule that was checked.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CheckedSchedule {
    /// What it needs, and what does not fit.
    outlook: Outlook,
    /// The number of its scans.
    count: usize,
    /// The first 1000 of them: name, start, end and target.
    #[schema(value_type = Vec<Object>)]
    scans: Vec<Planned>,
}

/// Show the scans of a stretch of time: those of the store with their verdicts, and those of schedules.
#[utoipa::path(
    get,
    operation_id = "getTimeline",
    path = "/api/v1/timeline",
    tag = "schedules",
    params(Stretch),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Timeline),
        (status = 400, body = Problem),
    ),
)]
pub(super) async fn show(
    _: Viewer,
    State(station): Shared,
    Query(Stretch { from, until }): Query<Stretch>,
) -> Result<Json<Timeline>, Problem> {
    let now = Clock::new().now();
    let from = from.unwrap_or_else(|| now.plus_ns(-DAY_NS / 2));
    let until = until.unwrap_or_else(|| from.plus_ns(DAY_NS));
    if until <= from || until.since(from) > LONGEST_DAYS * DAY_NS {
        let why = format!("until: it is after from, and at most {LONGEST_DAYS} days");
        return Err(Problem::bad_request(why));
    }
    blocking(move || {
        let (agendas, stored) = (station.schedules.agendas(), listed(&station.members)?.entries);
        let armed = |name: &str| {
            let found = Inventory::take(&station.members, &name.parse().ok()?).ok();
            found.map(|it| it.manifest.armed)
        };
        let mut scans = scans(&agendas, &stored, armed, (from, until), now);
        let cut = scans.len() > MOST;
        scans.truncate(MOST);
        let outlooks = outlooks(&agendas, &stored, free(&station), now);
        Ok(Json(Timeline { from, until, scans, cut, outlooks }))
    })
    .await
}

/// Check a schedule: whether it is one, what it needs, and what does not fit. Nothing is kept.
#[utoipa::path(
    post,
    operation_id = "checkSchedule",
    path = "/api/v1/schedule-check",
    tag = "schedules",
    request_body = ScheduleRequest,
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 200, body = CheckedSchedule),
        (status = 400, body = Problem),
    ),
)]
pub(super) async fn check(
    _: Operator,
    State(station): Shared,
    Json(ScheduleRequest { options, scans }): Json<ScheduleRequest>,
) -> Result<Json<CheckedSchedule>, Problem> {
    blocking(move || {
        let mut agenda = station.schedules.check("check", options, &scans).map_err(problem)?;
        let stored = listed(&station.members)?.entries;
        let outlook = outlook(&agenda, &stored, free(&station), Clock::new().now());
        let count = agenda.scans.scans.len();
        agenda.scans.scans.truncate(LISTED);
        Ok(Json(CheckedSchedule { outlook, count, scans: agenda.scans.scans }))
    })
    .await
}

/// Bytes free on all members, as the state of the station tells: no request waits for a disk that does not answer.
fn free(station: &Station) -> u64 {
    let status: serde_json::Value =
        serde_json::from_str(&station.news.borrow()).unwrap_or_default();
    let members = status["members"].as_array().cloned().unwrap_or_default();
    members.iter().filter_map(|it| it["free_bytes"].as_u64()).sum()
}
