//! The log, the alerts and the audit log over REST.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use fullbore_time::Tai;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::audit::AuditLine;
use super::problem::Problem;
use super::who::{Admin, Viewer};
use super::{Shared, blocking};
use crate::alerts::history::Told;
use crate::log::{Level, Page, Wanted};

/// The most lines of a page.
const LARGEST_PAGE: usize = 1000;

/// Which entries.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Entries {
    /// Only entries with a smaller number, for the next page.
    #[serde(default = "newest")]
    before: u64,
    /// Only entries that are at least so serious: `info`, `warning` or `error`.
    #[serde(default = "all")]
    level: Level,
    /// Only entries of this recording.
    recording: Option<String>,
    /// Only entries whose text contains this.
    #[serde(default)]
    contains: String,
    /// The most entries, up to 1000.
    #[serde(default = "hundred")]
    limit: usize,
}

fn newest() -> u64 {
    u64::MAX
}

fn all() -> Level {
    Level::Info
}

fn hundred() -> usize {
    100
}

fn checked(limit: usize) -> Result<usize, Problem> {
    match (1..=LARGEST_PAGE).contains(&limit) {
        true => Ok(limit),
        false => Err(Problem::bad_request(format!("limit is 1 to {LARGEST_PAGE}"))),
    }
}

/// Show the log of the station, the newest entries first: what the daemon did, and what recorders told it.
#[utoipa::path(
    get,
    operation_id = "getLog",
    path = "/api/v1/log",
    tag = "log",
    params(Entries),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Page),
        (status = 400, body = Problem),
    ),
)]
pub(super) async fn entries(
    _: Viewer,
    State(station): Shared,
    Query(asked): Query<Entries>,
) -> Result<Json<Page>, Problem> {
    let Entries { before, level, recording, contains, limit } = asked;
    let wanted = Wanted { before, level, recording, contains, limit: checked(limit)? };
    Ok(Json(station.log.page(&wanted)))
}

/// Show the alerts: the problems that last, and the last ones that are over.
#[utoipa::path(
    get,
    operation_id = "getAlerts",
    path = "/api/v1/alerts",
    tag = "log",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Told),
    ),
)]
pub(super) async fn alerts(_: Viewer, State(station): Shared) -> Json<Told> {
    Json(station.alerts.all())
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Lines {
    /// Only lines before this time, for the next page.
    #[param(value_type = Option<String>)]
    before: Option<Tai>,
    /// The most lines, up to 1000.
    #[serde(default = "hundred")]
    limit: usize,
}

/// A page of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AuditPage {
    /// The lines, the newest first.
    lines: Vec<AuditLine>,
    /// The value of `before` for the next page. Null on the last one.
    #[schema(value_type = Option<String>)]
    next: Option<Tai>,
}

/// Show the audit log, the newest lines first: who asked for which write, and what was refused.
#[utoipa::path(
    get,
    operation_id = "getAuditLog",
    path = "/api/v1/audit",
    tag = "log",
    params(Lines),
    security(("token" = ["admin"]), ("cookie" = ["admin"])),
    responses(
        (status = 200, body = AuditPage),
        (status = 400, body = Problem),
    ),
)]
pub(super) async fn audit(
    _: Admin,
    State(station): Shared,
    Query(Lines { before, limit }): Query<Lines>,
) -> Result<Json<AuditPage>, Problem> {
    let limit = checked(limit)?;
    let station = Arc::clone(&station);
    let lines = blocking(move || {
        // One more tells whether there is another page.
        let lines = station.audit.newest(before, limit + 1);
        lines.map_err(|error| Problem::internal(&error))
    });
    let mut lines = lines.await?;
    let has_more = lines.len() > limit;
    lines.truncate(limit);
    let next = lines.last().filter(|_| has_more).map(|it| it.time);
    Ok(Json(AuditPage { lines, next }))
}
