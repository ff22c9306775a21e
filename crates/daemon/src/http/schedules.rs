//! Schedules over REST.

use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Path, State as Extracted};
use axum::http::StatusCode;
use fullbore_core::hint::{Hint, with_causes};
use serde::Deserialize;
use utoipa::ToSchema;

use super::problem::Problem;
use super::who::{Operator, Viewer};
use super::{Shared, Station, blocking};
use crate::recorder::life::Phase;
use crate::schedules::{self, Options, Scheduled, State};

/// The beginning of the addresses that take schedules.
pub(super) const PATH: &str = "/api/v1/schedule";

/// The largest body of a request with a schedule, in bytes.
pub(super) const LARGEST_SCHEDULE: usize = 2 << 20;

/// How long an answer waits until the recorder runs, or has refused.
const UNTIL_RUNNING: Duration = Duration::from_secs(5);

/// A schedule.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schema(rename_all = "kebab-case", example = json!({
    "options": {"source": ["input:vlbi"], "session": "r1234"},
    "scans": "scan,start,duration\nno0001,2026-11-22T18:00:00Z,40s\n"
}))]
pub(super) struct ScheduleRequest {
    /// How it is recorded.
    pub(super) options: Options,
    /// The scans: TOML, CSV or VEX, as `fullbore record --schedule` reads them.
    pub(super) scans: String,
}

/// List the schedules, with the next scans of each.
#[utoipa::path(
    get,
    operation_id = "listSchedules",
    path = "/api/v1/schedules",
    tag = "schedules",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = [Scheduled]),
    ),
)]
pub(super) async fn list(
    _: Viewer,
    Extracted(station): Shared,
) -> Result<Json<Vec<Scheduled>>, Problem> {
    // Whoever changes a schedule holds the others up until it is on disk.
    blocking(move || Ok(Json(station.schedules.all()))).await
}

/// Show a schedule.
#[utoipa::path(
    get,
    operation_id = "getSchedule",
    path = "/api/v1/schedules/{name}",
    tag = "schedules",
    params(("name" = String, Path)),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Scheduled),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn show(
    _: Viewer,
    Extracted(station): Shared,
    Path(name): Path<String>,
) -> Result<Json<Scheduled>, Problem> {
    blocking(move || station.schedules.get(&name).map(Json).map_err(problem)).await
}

/// Start a schedule, or replace the scans of one that runs. Its recorder runs until the last scan is over, also while the
/// daemon does not.
#[utoipa::path(
    put,
    operation_id = "putSchedule",
    path = "/api/v1/schedules/{name}",
    tag = "schedules",
    params(("name" = String, Path)),
    request_body = ScheduleRequest,
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 200, body = Scheduled, description = "the scans were replaced"),
        (status = 201, body = Scheduled),
        (status = 400, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn put(
    _: Operator,
    Extracted(station): Shared,
    Path(name): Path<String>,
    Json(request): Json<ScheduleRequest>,
) -> Result<(StatusCode, Json<Scheduled>), Problem> {
    let (is_new, scheduled) = blocking(move || {
        let ScheduleRequest { options, scans } = request;
        let is_new = station.schedules.put(&name, options, &scans, false).map_err(problem)?;
        Ok((is_new, until_running(&station, &name)?))
    })
    .await?;
    Ok((if is_new { StatusCode::CREATED } else { StatusCode::OK }, Json(scheduled)))
}

/// The schedule once its recorder has opened it, or was refused.
fn until_running(station: &Station, name: &str) -> Result<Scheduled, Problem> {
    let end = Instant::now() + UNTIL_RUNNING;
    loop {
        let scheduled = station.schedules.get(name).map_err(problem)?;
        let recording = scheduled.recording.and_then(|id| station.recorders.get(id).ok());
        let starts = recording.is_none_or(|it| it.life.phase == Phase::Starting);
        let waits = match scheduled.state {
            State::Starting => scheduled.problem.is_none(),
            State::Running => starts,
            State::Cancelled => false,
        };
        if !waits || Instant::now() > end {
            return Ok(scheduled);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Cancel a schedule: the running scan is sealed, and those ahead are not recorded.
#[utoipa::path(
    delete,
    operation_id = "cancelSchedule",
    path = "/api/v1/schedules/{name}",
    tag = "schedules",
    params(("name" = String, Path)),
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 202, body = Scheduled),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn cancel(
    _: Operator,
    Extracted(station): Shared,
    Path(name): Path<String>,
) -> Result<(StatusCode, Json<Scheduled>), Problem> {
    let schedules = station.schedules.clone();
    let cancelled = blocking(move || schedules.cancel(&name).map_err(problem)).await?;
    Ok((StatusCode::ACCEPTED, Json(cancelled)))
}

pub(super) fn problem(error: schedules::Error) -> Problem {
    use schedules::Error::{
        Differs, Ends, Folder, Input, Many, Name, NoSession, Past, Recorder, Request, Scans,
        Unknown,
    };
    let (advice, detail) = (error.hint().map(|it| it.into_owned()), with_causes(&error));
    let told = match error {
        Name(_) | Scans(_) | NoSession | Past { .. } | Request(_) | Input(_) => {
            Problem::bad_request(detail)
        }
        Many | Differs { .. } | Ends { .. } => Problem::new(StatusCode::CONFLICT, detail),
        Unknown { .. } => Problem::not_found(detail),
        Recorder(error) => return error.into(),
        Folder { .. } => Problem::internal(&error),
    };
    Problem { advice, ..told }
}
