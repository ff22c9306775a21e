//! Stored scans over REST.

use std::path::PathBuf;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use fullbore_care::{remove as removal, retention, verify as verification};
use fullbore_core::account::Account;
use fullbore_core::completeness::Completeness;
use fullbore_core::manifest::Manifest;
use fullbore_core::marker::{Marker, Text};
use fullbore_core::name::ScanName;
use fullbore_recording::answers::{Marked, Protected};
use fullbore_store::catalogue::{self, Catalogue, Entry, ScanState};
use fullbore_store::diagnostics::Diagnostic;
use fullbore_store::inventory::{self, RootError};
use fullbore_store::markers::{self, Moment};
use fullbore_store::reader::Scan;
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::problem::Problem;
use super::who::{Admin, Operator, Viewer};
use super::{Shared, blocking};
use crate::jobs::{self, Job};

/// The most scans of a page.
const LARGEST_PAGE: usize = 1000;

/// Which scans to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Only scans whose name starts with this.
    #[serde(default)]
    prefix: String,
    /// Only scans whose name comes after this one, for the next page.
    #[serde(default)]
    after: String,
    /// The most scans to list, up to 1000.
    #[serde(default = "hundred")]
    limit: usize,
}

fn hundred() -> usize {
    100
}

/// A page of scans, in the order of their names.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ScanPage {
    /// The scans, each as `fullbore ls --json` prints it.
    #[schema(value_type = Vec<Object>)]
    scans: Vec<Entry>,
    /// The value of `after` for the next page. Null on the last one.
    next: Option<String>,
    /// Members that could not be read.
    failed: Vec<String>,
}

/// A scan, with fields of `fullbore info --json`.
#[derive(Debug, Serialize)]
struct ScanTold {
    manifest: Manifest,
    accounts: Vec<Option<Account>>,
    #[serde(flatten)]
    completeness: Option<Completeness>,
    markers: Vec<Marker>,
    findings: Vec<Diagnostic>,
}

/// A moment of a scan.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"text": "antenna on source"}))]
pub(super) struct MarkRequest {
    /// A line of at most 500 bytes.
    text: String,
    /// The moment in UTC. Without it: now, or the end of a scan that is over.
    #[schema(value_type = Option<String>)]
    time: Option<Tai>,
}

/// List the scans of the store.
#[utoipa::path(
    get,
    operation_id = "listScans",
    path = "/api/v1/scans",
    tag = "scans",
    params(Wanted),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = ScanPage),
        (status = 400, body = Problem),
    ),
)]
pub(super) async fn list(
    _: Viewer,
    State(station): Shared,
    Query(wanted): Query<Wanted>,
) -> Result<Json<ScanPage>, Problem> {
    if !(1..=LARGEST_PAGE).contains(&wanted.limit) {
        return Err(Problem::bad_request(format!("limit is 1 to {LARGEST_PAGE}")));
    }
    let members = station.members.clone();
    blocking(move || page(&members, &wanted)).await.map(Json)
}

fn page(members: &[PathBuf], wanted: &Wanted) -> Result<ScanPage, Problem> {
    let listed = listed(members)?;
    let mut scans = listed.entries;
    scans.retain(|it| it.name.starts_with(&wanted.prefix) && it.name > wanted.after);
    scans.sort_by(|one, other| one.name.cmp(&other.name));
    let has_more = scans.len() > wanted.limit;
    scans.truncate(wanted.limit);
    let next = scans.last().filter(|_| has_more).map(|it| it.name.clone());
    let failed = listed.failed_roots.iter().map(ToString::to_string).collect();
    Ok(ScanPage { scans, next, failed })
}

/// Show a scan: its manifest, its accounts, its markers.
#[utoipa::path(
    get,
    operation_id = "getScan",
    path = "/api/v1/scans/{scan}",
    tag = "scans",
    params(("scan" = String, Path)),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Object, description = "fields of `fullbore info --json`"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn show(
    _: Viewer,
    State(station): Shared,
    Path(scan): Path<String>,
) -> Result<Json<Value>, Problem> {
    let members = station.members.clone();
    blocking(move || {
        let (name, _) = whole(&members, &scan)?;
        let scan = Scan::open(&members, &name)
            .map_err(|error| Problem::of(StatusCode::NOT_FOUND, &error))?;
        let markers = markers::of_holdings(&scan.inventory.holdings);
        let told = ScanTold {
            completeness: verification::completeness(&scan),
            accounts: scan.streams.into_iter().map(|stream| stream.account).collect(),
            markers,
            manifest: scan.manifest,
            findings: scan.findings,
        };
        serde_json::to_value(told).map_err(|error| Problem::internal(&error))
    })
    .await
    .map(Json)
}

/// Remove a scan from all members, for good. Refused for scans that are protected or being recorded.
#[utoipa::path(
    delete,
    operation_id = "removeScan",
    path = "/api/v1/scans/{scan}",
    tag = "scans",
    params(("scan" = String, Path)),
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 200, body = Object, description = "as `fullbore rm --json`"),
        (status = 404, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn remove(
    _: Admin,
    State(station): Shared,
    Path(scan): Path<String>,
) -> Result<Json<Value>, Problem> {
    let members = station.members.clone();
    blocking(move || {
        let (name, _) = whole(&members, &scan)?;
        let removed = removal::remove(&members, &name)
            .map_err(|error| Problem::of(StatusCode::CONFLICT, &error))?;
        serde_json::to_value(removed).map_err(|error| Problem::internal(&error))
    })
    .await
    .map(Json)
}

/// Protect a scan from removal.
#[utoipa::path(
    put,
    operation_id = "protectScan",
    path = "/api/v1/scans/{scan}/protection",
    tag = "scans",
    params(("scan" = String, Path)),
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 200, body = Object, description = "as `fullbore protect --json`"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn protect(
    _: Admin,
    State(station): Shared,
    Path(scan): Path<String>,
) -> Result<Json<Protected>, Problem> {
    let members = station.members.clone();
    blocking(move || set_protection(&members, &scan, true)).await.map(Json)
}

/// End the protection of a scan.
#[utoipa::path(
    delete,
    operation_id = "releaseScan",
    path = "/api/v1/scans/{scan}/protection",
    tag = "scans",
    params(("scan" = String, Path)),
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 200, body = Object, description = "as `fullbore protect --off --json`"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn release(
    _: Admin,
    State(station): Shared,
    Path(scan): Path<String>,
) -> Result<Json<Protected>, Problem> {
    let members = station.members.clone();
    blocking(move || set_protection(&members, &scan, false)).await.map(Json)
}

fn set_protection(members: &[PathBuf], scan: &str, on: bool) -> Result<Protected, Problem> {
    let (name, _) = whole(members, scan)?;
    let before = retention::protect(members, &name, on)
        .map_err(|error| Problem::of(StatusCode::CONFLICT, &error))?;
    Ok(Protected { scan: name.to_string(), protected: on, before })
}

/// Mark a moment of a scan.
#[utoipa::path(
    post,
    operation_id = "markScan",
    path = "/api/v1/scans/{scan}/marks",
    tag = "scans",
    params(("scan" = String, Path)),
    request_body = MarkRequest,
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 201, body = Object, description = "as `fullbore mark --json`"),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn mark(
    _: Operator,
    State(station): Shared,
    Path(scan): Path<String>,
    Json(request): Json<MarkRequest>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let members = station.members.clone();
    let marked = blocking(move || {
        let (name, _) = whole(&members, &scan)?;
        set_mark(&members, &name, &request)
    });
    Ok((StatusCode::CREATED, Json(marked.await?)))
}

/// Sets a marker.
pub(super) fn set_mark(
    members: &[PathBuf],
    scan: &ScanName,
    request: &MarkRequest,
) -> Result<Value, Problem> {
    let text =
        Text::typed(&request.text).map_err(|error| Problem::bad_request(error.to_string()))?;
    let moment = request.time.map_or(Moment::Now, Moment::Time);
    let set = markers::set(members, scan, moment, text)
        .map_err(|error| Problem::of(StatusCode::CONFLICT, &error))?;
    serde_json::to_value(Marked::new(scan, &set)).map_err(|error| Problem::internal(&error))
}

/// Verify a scan: read every stored byte, and check it. The answer is a job.
#[utoipa::path(
    post,
    operation_id = "verifyScan",
    path = "/api/v1/scans/{scan}/verify",
    tag = "scans",
    params(("scan" = String, Path)),
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 202, body = Job),
        (status = 404, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn verify(
    _: Operator,
    State(station): Shared,
    Path(scan): Path<String>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let members = station.members.clone();
    let name = blocking(move || {
        let (name, state) = whole(&members, &scan)?;
        match state {
            ScanState::Recording => Err(Problem::new(
                StatusCode::CONFLICT,
                format!("{name} is being recorded: it can be verified when it is sealed"),
            )),
            _ => Ok(name),
        }
    });
    let job = station.jobs.verify(station.members.clone(), name.await?).map_err(of_jobs)?;
    Ok((StatusCode::ACCEPTED, Json(job)))
}

/// An error of jobs.
pub(super) fn of_jobs(error: jobs::Error) -> Problem {
    match error {
        jobs::Error::Many { .. } | jobs::Error::ManyOfOne { .. } => {
            Problem::new(StatusCode::CONFLICT, error.to_string())
                .advise("wait until one has ended, or cancel one")
        }
        jobs::Error::Recording { .. } => Problem::new(StatusCode::CONFLICT, error.to_string())
            .advise("recordings come before work that loads a disk: try again later"),
        jobs::Error::Unknown { .. } => Problem::not_found(error.to_string()),
        jobs::Error::Thread(_) => Problem::internal(&error),
    }
}

/// The scans of the store. A store in which nothing was recorded yet has none.
pub(super) fn listed(members: &[PathBuf]) -> Result<Catalogue, Problem> {
    // A directory that could not be read has the error of the system; one that is empty has none.
    let is_empty = |error: &RootError| error.source.raw_os_error().is_none();
    match catalogue::list(members) {
        Ok(listed) => Ok(listed),
        Err(catalogue::Error::Roots(inventory::Error::Roots { roots }))
            if roots.iter().all(is_empty) =>
        {
            Ok(Catalogue { entries: Vec::new(), failed_roots: Vec::new() })
        }
        Err(error) => Err(Problem::of(StatusCode::SERVICE_UNAVAILABLE, &error)),
    }
}

/// A scan by its whole name, and its state. A beginning of the name is not enough: what is removed over a network is named.
pub(super) fn whole(members: &[PathBuf], scan: &str) -> Result<(ScanName, ScanState), Problem> {
    whole_among(&listed(members)?, scan)
}

/// The same among scans that are listed.
pub(super) fn whole_among(
    listed: &Catalogue,
    scan: &str,
) -> Result<(ScanName, ScanState), Problem> {
    let name: ScanName = scan
        .parse()
        .map_err(|error: fullbore_core::name::Error| Problem::bad_request(error.to_string()))?;
    let entry = listed.entries.iter().find(|entry| entry.name == scan);
    let entry = entry.ok_or_else(|| Problem::not_found(format!("there is no scan {name}")))?;
    Ok((name, entry.state))
}
