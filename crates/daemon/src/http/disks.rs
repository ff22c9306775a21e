//! Disks and the host over REST: what threads have seen of them, and work that loads a disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use fullbore_linux::clock::Clock;
use fullbore_store::catalogue::ScanState;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;

use super::problem::Problem;
use super::scans::{of_jobs, whole};
use super::who::{Admin, Viewer};
use super::{Shared, blocking};
use crate::disks::Disks;
use crate::jobs::{self, Job, Kind};
use crate::kept::Kept;
use crate::machine::Machine;

/// How long an answer waits for the first look after the start.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// What was seen longer ago than this is looked at again, for the next request.
const OLD: Duration = Duration::from_secs(2);

/// Work on a member of the store.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"kind": "self-test", "member": "/mnt/disk0"}))]
pub(super) struct WorkRequest {
    /// What is done: `benchmark` or `self-test`.
    kind: Kind,
    /// The member, as the state of the station names it.
    member: String,
}

/// Show the members as disks: drives, health, benchmarks, and how long writes took.
#[utoipa::path(
    get,
    operation_id = "getDisks",
    path = "/api/v1/disks",
    tag = "host",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Disks),
        (status = 503, body = Problem),
    ),
)]
pub(super) async fn disks(_: Viewer, State(station): Shared) -> Result<Response, Problem> {
    seen(&station.disks).await
}

/// Show the host: its settings, cards and clock, and whether it sustains what is recorded.
#[utoipa::path(
    get,
    operation_id = "getMachine",
    path = "/api/v1/machine",
    tag = "host",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Machine),
        (status = 503, body = Problem),
    ),
)]
pub(super) async fn machine(_: Viewer, State(station): Shared) -> Result<Response, Problem> {
    seen(&station.machine).await
}

/// The newest look, as JSON.
async fn seen<T: Serialize + Send + Sync + 'static>(kept: &Kept<T>) -> Result<Response, Problem> {
    let end = Instant::now() + FIRST_LOOK;
    loop {
        if let Some(newest) = kept.newest() {
            // While somebody looks, it is looked at more often.
            kept.refresh(OLD);
            let text =
                serde_json::to_string(&*newest).map_err(|error| Problem::internal(&error))?;
            return Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response());
        }
        if Instant::now() > end {
            let why = "the first look since the start is not over: does a disk not answer?";
            return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Benchmark or test a member. Refused while a recording runs or is about to begin, and ended by one that begins. The
/// answer is a job.
#[utoipa::path(
    post,
    operation_id = "startJob",
    path = "/api/v1/jobs",
    tag = "jobs",
    request_body = WorkRequest,
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 202, body = Job),
        (status = 400, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn work(
    _: Admin,
    State(station): Shared,
    Json(WorkRequest { kind, member }): Json<WorkRequest>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    if !matches!(kind, Kind::Benchmark | Kind::SelfTest) {
        let why = "kind: such a job is of a scan, and not of a member";
        return Err(Problem::bad_request(why).advise("POST /api/v1/scans/SCAN/verify or …/rebuild"));
    }
    // The member as this daemon was given it, and no other path.
    let of_store = station.members.iter().find(|it| it.display().to_string() == member);
    let path: PathBuf = of_store.cloned().ok_or_else(|| {
        Problem::bad_request("member: the store has no such member")
            .advise("GET /api/v1/disks lists them")
    })?;
    // Whoever changes a schedule holds the others up until it is on disk.
    let job = blocking(move || {
        let (recordings, next) = (station.recorders.all(), station.schedules.next());
        let way = jobs::in_the_way(&recordings, &next, Clock::new().now());
        let program = station.recorders.program();
        station.jobs.measure(kind, program, path, way).map_err(of_jobs)
    });
    Ok((StatusCode::ACCEPTED, Json(job.await?)))
}

/// Restore lost data of a scan that was recorded with redundancy. The answer is a job.
#[utoipa::path(
    post,
    operation_id = "rebuildScan",
    path = "/api/v1/scans/{scan}/rebuild",
    tag = "scans",
    params(("scan" = String, Path)),
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 202, body = Job),
        (status = 404, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn rebuild(
    _: Admin,
    State(station): Shared,
    Path(scan): Path<String>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let members = Arc::new(station.members.clone());
    let of_work = members.clone();
    let name = blocking(move || match whole(&of_work, &scan)? {
        (name, ScanState::Recording) => Err(Problem::new(
            StatusCode::CONFLICT,
            format!("{name} is being recorded: it can be rebuilt when it is sealed"),
        )),
        (name, _) => Ok(name),
    });
    let job = station.jobs.rebuild(members.to_vec(), name.await?).map_err(of_jobs)?;
    Ok((StatusCode::ACCEPTED, Json(job)))
}
