//! The queue of transfers over REST.
//!
//! A request names scans of the store of the station, and destinations that the station may reach: sites whose key is
//! known, and object stores. It names no path of this host and no web address; the command line can.

use std::collections::BTreeSet;
use std::path::PathBuf;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use fullbore_core::name::ScanName;
use fullbore_core::units::ByteRate;
use fullbore_recording::transfers::answers::{Added, Changed, RuleAnswer};
use fullbore_recording::transfers::arrivals::{ReceiveState, Timed};
use fullbore_recording::transfers::{carrier, rate};
use fullbore_transfer::governor::Window;
use fullbore_transfer::queue::QueueError;
use fullbore_transfer::queue::files;
use fullbore_transfer::queue::job::{Job, Rule, Target, VERSION, Wishes};
use fullbore_transfer::queue::listing::{Listing, Row};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::problem::Problem;
use super::who::{Operator, Proven, Viewer};
use super::{Shared, blocking, scans};
use crate::auth::{Identity, Role};
use crate::transfers::Transfers;

/// The most names in a request.
const MOST_NAMES: usize = 1000;

/// The longest destination or pattern, in bytes.
const LONGEST_TEXT: usize = 1000;

/// Object stores that a request may name. Files and web addresses of the station's network are for the command line.
const OBJECT_STORES: [&str; 8] = ["s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"];

/// How transfers are to run.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TransferRequest {
    /// The whole names of scans, or sessions for all of their scans.
    scans: Vec<String>,
    /// The destination: `fullbore://HOST[:PORT]`, `fullbore://NAME`, `s3://BUCKET/PREFIX`. An invitation needs an admin.
    to: String,
    /// A higher number goes first.
    #[serde(default)]
    priority: i32,
    /// The most that each may send: `"2Gbit/s"`.
    rate: Option<String>,
    /// The time of day in which they may send, UTC: `"22:00-06:00"`.
    window: Option<String>,
}

/// A change of a transfer. What is absent stays as it is; null removes a rate or a window.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"priority": 5, "rate": null}))]
pub(super) struct TransferChange {
    /// A higher number goes first.
    priority: Option<i32>,
    /// The most that it may send.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    rate: Option<Option<String>>,
    /// The time of day in which it may send, UTC.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<String>)]
    window: Option<Option<String>>,
}

/// A rule: each sealed scan of some sessions is sent, also those that are sealed already.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"sessions": "r1*", "to": "fullbore://correlator.example.org"}))]
pub(super) struct RuleRequest {
    /// The names of sessions, with `*`, `?` and `[…]`.
    sessions: String,
    /// The destination, as of a transfer.
    to: String,
    /// A higher number goes first.
    #[serde(default)]
    priority: i32,
    /// The most that each transfer may send.
    rate: Option<String>,
    /// The time of day in which they may send, UTC.
    window: Option<String>,
}

/// Tells a value that is null from one that is absent.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(from).map(Some)
}

/// List the transfers of the queue.
#[utoipa::path(
    get,
    operation_id = "listTransfers",
    path = "/api/v1/transfers",
    tag = "transfers",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Object, description = "as `fullbore transfers --json`"),
        (status = 503, body = Problem),
    ),
)]
pub(super) async fn list(_: Viewer, State(station): Shared) -> Result<Json<Listing>, Problem> {
    let transfers = station.transfers()?.clone();
    blocking(move || listing(&transfers)).await.map(Json)
}

fn listing(transfers: &Transfers) -> Result<Listing, Problem> {
    transfers.queue().and_then(|queue| Listing::read(&queue)).map_err(of_queue)
}

/// Add scans to the queue. A scan that is being recorded is sent as it becomes durable.
#[utoipa::path(
    post,
    operation_id = "addTransfers",
    path = "/api/v1/transfers",
    tag = "transfers",
    request_body = TransferRequest,
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 201, body = [Object], description = "as `fullbore transfers add --json`"),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn add(
    _: Operator,
    State(station): Shared,
    Extension(who): Extension<Proven>,
    Json(request): Json<TransferRequest>,
) -> Result<(StatusCode, Json<Vec<Added>>), Problem> {
    if !(1..=MOST_NAMES).contains(&request.scans.len()) {
        return Err(Problem::bad_request(format!(
            "scans: name 1 to {MOST_NAMES} scans or sessions"
        )));
    }
    let target = target(&request.to, &who.identity)?;
    let wishes = wishes(request.priority, request.rate.as_deref(), request.window.as_deref())?;
    let (members, transfers) = (station.members.clone(), station.transfers()?.clone());
    let added = blocking(move || {
        let scans = named(&members, &request.scans)?;
        let job = |scan| Job {
            version: VERSION,
            scan,
            store: transfers.store().to_vec(),
            target: target.clone(),
            wishes: wishes.clone(),
            paused: false,
            removed: false,
            resumed: 0,
            rule: None,
            added: files::now(),
        };
        let jobs = scans.into_iter().map(job).collect();
        transfers.queue().and_then(|queue| queue.add(jobs)).map_err(of_queue)
    });
    let added = added.await?.into_iter().map(Added::from).collect();
    Ok((StatusCode::CREATED, Json(added)))
}

/// The scans of these names: a session stands for all of its scans.
fn named(members: &[PathBuf], names: &[String]) -> Result<Vec<ScanName>, Problem> {
    let entries = scans::listed(members)?.entries;
    let known = entries.into_iter().filter_map(|it| Some((it.name.parse().ok()?, it.name)));
    among(&known.collect::<Vec<_>>(), names)
}

/// Each scan once, in the order of the names.
fn among(known: &[(ScanName, String)], names: &[String]) -> Result<Vec<ScanName>, Problem> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    for name in names {
        let mut is_known = false;
        for (scan, whole) in
            known.iter().filter(|(scan, whole)| whole == name || scan.session.as_str() == name)
        {
            is_known = true;
            found.extend(seen.insert(whole).then(|| scan.clone()));
        }
        if !is_known {
            let shown: String = name.chars().take(80).collect();
            let why = format!("there is no scan or session {shown}");
            return Err(Problem::not_found(why).advise("write the whole name: SESSION_SCAN"));
        }
    }
    Ok(found)
}

/// A destination that a client may name.
fn target(text: &str, who: &Identity) -> Result<Target, Problem> {
    if text.len() > LONGEST_TEXT {
        return Err(Problem::bad_request(format!("to: it is longer than {LONGEST_TEXT} bytes")));
    }
    let target = carrier::target(text).map_err(|why| Problem::bad_request(format!("to: {why}")))?;
    let scheme = text.split_once("://").map_or("", |(scheme, _)| scheme);
    if scheme != "fullbore" && !OBJECT_STORES.contains(&scheme) {
        let why = format!("to: a request cannot name a destination of {scheme}://");
        return Err(
            Problem::bad_request(why).advise("`fullbore transfers add` can, on the station")
        );
    }
    if target.secret.is_some() && who.role < Role::Admin {
        let why = format!(
            "to: an invitation makes a site known, which needs an admin; {} is none",
            who.name
        );
        return Err(Problem::new(StatusCode::FORBIDDEN, why));
    }
    Ok(target)
}

fn wishes(priority: i32, rate: Option<&str>, window: Option<&str>) -> Result<Wishes, Problem> {
    let rate = rate.map(limit).transpose()?.map(|it| it.0);
    Ok(Wishes { priority, rate, window: window.map(of_day).transpose()? })
}

fn limit(text: &str) -> Result<ByteRate, Problem> {
    rate(text).map_err(|why| Problem::bad_request(format!("rate: {why}")))
}

fn of_day(text: &str) -> Result<Window, Problem> {
    text.parse().map_err(|error| Problem::bad_request(format!("window: {error}")))
}

/// Show a transfer of the queue.
#[utoipa::path(
    get,
    operation_id = "getTransfer",
    path = "/api/v1/transfers/{id}",
    tag = "transfers",
    params(("id" = u64, Path)),
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Object, description = "as in `fullbore transfers --json`"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn show(
    _: Viewer,
    State(station): Shared,
    Path(id): Path<u64>,
) -> Result<Json<Row>, Problem> {
    let transfers = station.transfers()?.clone();
    blocking(move || row(&transfers, id)).await.map(Json)
}

fn row(transfers: &Transfers, id: u64) -> Result<Row, Problem> {
    let row = listing(transfers)?.transfers.into_iter().find(|row| row.id == id);
    row.ok_or_else(|| of_queue(QueueError::NoJob { id }))
}

/// Change the priority, the rate or the window of a transfer, also while it runs.
#[utoipa::path(
    patch,
    operation_id = "changeTransfer",
    path = "/api/v1/transfers/{id}",
    tag = "transfers",
    params(("id" = u64, Path)),
    request_body = TransferChange,
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 200, body = Object, description = "as in `fullbore transfers --json`"),
        (status = 400, body = Problem),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn change(
    _: Operator,
    State(station): Shared,
    Path(id): Path<u64>,
    Json(change): Json<TransferChange>,
) -> Result<Json<Row>, Problem> {
    let TransferChange { priority, rate, window } = change;
    let rate = rate.map(|it| it.as_deref().map(limit).transpose()).transpose()?;
    let window = window.map(|it| it.as_deref().map(of_day).transpose()).transpose()?;
    let edit = move |job: &mut Job| {
        let wishes = &mut job.wishes;
        wishes.priority = priority.unwrap_or(wishes.priority);
        wishes.rate = rate.map_or(wishes.rate, |it| it.map(|rate| rate.0));
        wishes.window = window.unwrap_or(wishes.window);
    };
    edited(station.transfers()?.clone(), id, edit).await
}

/// Edits a job, and shows it.
async fn edited(
    transfers: Transfers,
    id: u64,
    edit: impl FnOnce(&mut Job) + Send + 'static,
) -> Result<Json<Row>, Problem> {
    let edited = blocking(move || {
        transfers.queue().and_then(|queue| queue.edit(id, edit)).map_err(of_queue)?;
        row(&transfers, id)
    });
    edited.await.map(Json)
}

/// Pause a transfer until it is resumed.
#[utoipa::path(
    post,
    operation_id = "pauseTransfer",
    path = "/api/v1/transfers/{id}/pause",
    tag = "transfers",
    params(("id" = u64, Path)),
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 200, body = Object, description = "as in `fullbore transfers --json`"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn pause(
    _: Operator,
    State(station): Shared,
    Path(id): Path<u64>,
) -> Result<Json<Row>, Problem> {
    edited(station.transfers()?.clone(), id, |job| job.paused = true).await
}

/// Resume a transfer that is paused, that failed, or that waits for its next attempt.
#[utoipa::path(
    post,
    operation_id = "resumeTransfer",
    path = "/api/v1/transfers/{id}/resume",
    tag = "transfers",
    params(("id" = u64, Path)),
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 200, body = Object, description = "as in `fullbore transfers --json`"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn resume(
    _: Operator,
    State(station): Shared,
    Path(id): Path<u64>,
) -> Result<Json<Row>, Problem> {
    let resume = |job: &mut Job| {
        job.paused = false;
        job.resumed = job.resumed.saturating_add(1);
    };
    edited(station.transfers()?.clone(), id, resume).await
}

/// Remove a transfer from the queue, and stop it if it runs. What is at the destination stays there.
#[utoipa::path(
    delete,
    operation_id = "removeTransfer",
    path = "/api/v1/transfers/{id}",
    tag = "transfers",
    params(("id" = u64, Path)),
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 200, body = Object, description = "as `fullbore transfers rm --json`"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn remove(
    _: Operator,
    State(station): Shared,
    Path(id): Path<u64>,
) -> Result<Json<Changed>, Problem> {
    let transfers = station.transfers()?.clone();
    let removed = blocking(move || {
        let job = transfers.queue().and_then(|queue| queue.remove(id)).map_err(of_queue)?;
        Ok(Changed::of(id, &job))
    });
    removed.await.map(Json)
}

/// List the rules.
#[utoipa::path(
    get,
    operation_id = "listRules",
    path = "/api/v1/transfers/rules",
    tag = "transfers",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = [Object], description = "as `fullbore transfers rules --json`"),
    ),
)]
pub(super) async fn rules(
    _: Viewer,
    State(station): Shared,
) -> Result<Json<Vec<RuleAnswer>>, Problem> {
    let transfers = station.transfers()?.clone();
    let rules = blocking(move || {
        let listed = transfers.queue().and_then(|queue| queue.rules()).map_err(of_queue)?;
        Ok(listed.items.into_iter().map(|(id, rule)| RuleAnswer::of(id, rule)).collect())
    });
    rules.await.map(Json)
}

/// Add a rule: each sealed scan of some sessions becomes a transfer.
#[utoipa::path(
    post,
    operation_id = "addRule",
    path = "/api/v1/transfers/rules",
    tag = "transfers",
    request_body = RuleRequest,
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 201, body = Object, description = "as in `fullbore transfers rules --json`"),
        (status = 400, body = Problem),
        (status = 409, body = Problem),
    ),
)]
pub(super) async fn add_rule(
    _: Operator,
    State(station): Shared,
    Extension(who): Extension<Proven>,
    Json(request): Json<RuleRequest>,
) -> Result<(StatusCode, Json<RuleAnswer>), Problem> {
    let RuleRequest { sessions, to, priority, rate, window } = request;
    if sessions.len() > LONGEST_TEXT {
        let why = format!("sessions: it is longer than {LONGEST_TEXT} bytes");
        return Err(Problem::bad_request(why));
    }
    let transfers = station.transfers()?.clone();
    let rule = Rule {
        version: VERSION,
        sessions,
        store: transfers.store().to_vec(),
        target: target(&to, &who.identity)?,
        wishes: wishes(priority, rate.as_deref(), window.as_deref())?,
        added: files::now(),
    };
    let added = blocking(move || {
        let id = transfers.queue().and_then(|queue| queue.add_rule(&rule)).map_err(of_queue)?;
        Ok(RuleAnswer::of(id, rule))
    });
    Ok((StatusCode::CREATED, Json(added.await?)))
}

/// Remove a rule. Its transfers stay.
#[utoipa::path(
    delete,
    operation_id = "removeRule",
    path = "/api/v1/transfers/rules/{id}",
    tag = "transfers",
    params(("id" = u64, Path)),
    security(("token" = ["operator"]), ("cookie" = ["operator"])),
    responses(
        (status = 200, body = Object, description = "the rule that was removed"),
        (status = 404, body = Problem),
    ),
)]
pub(super) async fn remove_rule(
    _: Operator,
    State(station): Shared,
    Path(id): Path<u64>,
) -> Result<Json<RuleAnswer>, Problem> {
    let transfers = station.transfers()?.clone();
    let removed = blocking(move || {
        let rule = transfers.queue().and_then(|queue| queue.remove_rule(id)).map_err(of_queue)?;
        Ok(RuleAnswer::of(id, rule))
    });
    removed.await.map(Json)
}

/// The listener for transfers.
#[derive(Debug, Serialize)]
struct Incoming {
    /// What it does. Null if there is no listener.
    receive: Option<ReceiveState>,
    /// What it told, as `fullbore receive --json`, each with its time: the newest last.
    events: Vec<Timed>,
}

/// Show the listener for transfers: what other sites send and fetch now, and the last 100 events.
#[utoipa::path(
    get,
    operation_id = "showIncoming",
    path = "/api/v1/transfers/incoming",
    tag = "transfers",
    security(("token" = ["viewer"]), ("cookie" = ["viewer"])),
    responses(
        (status = 200, body = Object, description = "`receive` as in the status; `events` as of `fullbore receive --json`"),
    ),
)]
pub(super) async fn incoming(_: Viewer, State(station): Shared) -> Result<Json<Value>, Problem> {
    let arrivals = station.transfers()?.arrivals();
    let told = Incoming { receive: arrivals.state(), events: arrivals.events() };
    serde_json::to_value(told).map(Json).map_err(|error| Problem::internal(&error))
}

/// An error of the queue.
fn of_queue(error: QueueError) -> Problem {
    let status = match &error {
        QueueError::NoJob { .. } | QueueError::NoRule { .. } => StatusCode::NOT_FOUND,
        QueueError::Pattern { .. } => StatusCode::BAD_REQUEST,
        QueueError::Full { .. } | QueueError::RunnerRuns { .. } => StatusCode::CONFLICT,
        QueueError::NoDirectory
        | QueueError::File(_)
        | QueueError::Version { .. }
        | QueueError::Content { .. } => StatusCode::SERVICE_UNAVAILABLE,
    };
    Problem::of(status, &error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(role: Role) -> Identity {
        Identity { name: "someone".into(), role }
    }

    #[test]
    fn a_request_names_sites_and_object_stores_and_nothing_of_this_host() {
        for right in
            ["fullbore://far", "fullbore://192.0.2.1:4781", "s3://bucket/prefix", "gs://bucket"]
        {
            target(right, &who(Role::Operator)).unwrap();
        }
        for wrong in
            ["file:///etc", "http://127.0.0.1/x", "https://x.example/y", "far", "", "tcp://a:1"]
        {
            let problem = target(wrong, &who(Role::Admin)).unwrap_err();
            assert!(problem.status == 400 && problem.detail.starts_with("to: "), "{problem:?}");
        }
        let long = format!("s3://bucket/{}", "a".repeat(LONGEST_TEXT));
        assert_eq!(target(&long, &who(Role::Admin)).unwrap_err().status, 400);
    }

    #[test]
    fn a_scan_that_is_named_again_is_sent_once() {
        let known = ["r1_b", "r1_a", "r2_a"].map(|it| (it.parse().unwrap(), it.to_owned()));
        let names = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let found = among(&known, &names(&["r2_a", "r1", "r1_a", "r1", "r2"])).unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["r2_a", "r1_b", "r1_a"]);
        assert_eq!(among(&known, &names(&["r1", "r3"])).unwrap_err().status, 404);
    }

    #[test]
    fn an_invitation_needs_an_admin() {
        let invitation = fullbore_transfer::identity::Invitation {
            address: "far:4780".into(),
            key: fullbore_transfer::identity::Fingerprint([7; 32]),
            secret: [9; 16],
        };
        let text = invitation.to_string();
        let problem = target(&text, &who(Role::Operator)).unwrap_err();
        assert!(problem.status == 403 && !problem.detail.contains(&text), "{problem:?}");
        assert_eq!(target(&text, &who(Role::Admin)).unwrap().to, "fullbore://far:4780");
    }

    #[test]
    fn null_and_absent_are_different_changes() {
        let change = |text: &str| serde_json::from_str::<TransferChange>(text).unwrap();
        assert_eq!(change("{}").rate, None);
        assert_eq!(change(r#"{"rate": null}"#).rate, Some(None));
        assert_eq!(change(r#"{"rate": "1Gbit/s"}"#).rate, Some(Some("1Gbit/s".into())));
        serde_json::from_str::<TransferChange>(r#"{"paused": true}"#).unwrap_err();
    }
}
