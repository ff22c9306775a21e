//! The web part: REST under `/api/v1`, events, metrics and the dashboard.
//!
//! ```text
//! request ──► guard: Host, Origin, who, CSRF, audit ──► handler: role, body ──► Recorders, Jobs, the store
//! ```
//!
//! The guard lets nobody's requests through to handlers, and each handler takes the role that it needs as an argument
//! (`Viewer`, `Operator`, `Admin`). A handler without one is open to all: the pages, the login, and the OpenAPI document.

pub(crate) mod audit;
mod body;
mod commands;
mod copies;
mod demo;
mod disks;
mod events;
mod files;
mod guard;
mod jobs;
mod log;
mod metrics;
mod pages;
mod places;
pub mod problem;
mod recordings;
mod scans;
mod schedules;
pub mod schema;
mod session;
mod sites;
mod spectra;
mod stored;
mod timeline;
mod transfer_metrics;
mod transfers;
mod who;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware;
use axum::routing::get;
use fullbore_simulators::instrument::Controls;
use tokio::sync::{Semaphore, watch};
use utoipa::OpenApi;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::audit::Audit;
use self::copies::Copies;
use self::places::Places;
use self::problem::Problem;
use crate::alerts::history::History;
use crate::auth::attempts::AttemptsOfAll;
use crate::auth::sessions::Sessions;
use crate::disks::Disks;
use crate::jobs::Jobs;
use crate::jobs::process::Program;
use crate::kept::Kept;
use crate::log::Log;
use crate::machine::Machine;
use crate::recorder::Recorders;
use crate::schedules::Schedules;
use crate::settings::Current;
use crate::transfers::Transfers;

/// Browsers and programs that may follow events at once.
const MOST_FOLLOWERS: usize = 64;

/// What handlers work with.
#[derive(Debug)]
pub struct Station {
    /// The directories of the store.
    pub members: Vec<PathBuf>,
    /// The recordings.
    pub recorders: Recorders,
    /// The jobs.
    pub jobs: Jobs,
    /// The schedules.
    pub schedules: Schedules,
    /// What runs commands of clients.
    pub program: Program,
    /// The newest state, as JSON.
    pub news: watch::Receiver<Arc<str>>,
    /// Who may do what, the inputs, and the limits.
    pub settings: Current,
    /// The members of the store as disks.
    pub disks: Kept<Disks>,
    /// The host.
    pub machine: Kept<Machine>,
    /// The log.
    pub log: Log,
    /// The alerts.
    pub alerts: History,
    /// The sessions of browsers.
    pub sessions: Sessions,
    /// The beginning of the dashboard's address: `http://127.0.0.1:8480`.
    pub base: String,
    attempts: Mutex<AttemptsOfAll>,
    followers: Places,
    lookers: Places,
    readers: Places,
    copiers: Arc<Semaphore>,
    copies: Copies,
    demo: Option<Controls>,
    transfers: Option<Transfers>,
    audit: Audit,
}

/// What threads have seen and noted.
#[derive(Debug)]
pub struct Seen {
    /// The members of the store as disks.
    pub disks: Kept<Disks>,
    /// The host.
    pub machine: Kept<Machine>,
    /// The log.
    pub log: Log,
    /// The alerts.
    pub alerts: History,
}

/// Handlers share it.
type Shared = axum::extract::State<Arc<Station>>;

impl Station {
    /// A station. `audit` is the file of the audit log.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        members: Vec<PathBuf>,
        recorders: Recorders,
        jobs: Jobs,
        schedules: Schedules,
        program: Program,
        news: watch::Receiver<Arc<str>>,
        settings: Current,
        seen: Seen,
        sessions: Sessions,
        base: String,
        audit: PathBuf,
    ) -> Self {
        let attempts = Mutex::new(AttemptsOfAll::new(Instant::now()));
        let followers = Places::new(MOST_FOLLOWERS);
        let lookers = Places::new(spectra::MOST_LOOKERS);
        let readers = Places::new(files::MOST_READ);
        let copiers = Arc::new(Semaphore::new(copies::MOST_READ));
        let Seen { disks, machine, log, alerts } = seen;
        let audit = Audit::new(audit);
        Self {
            members,
            recorders,
            jobs,
            schedules,
            program,
            news,
            settings,
            disks,
            machine,
            log,
            alerts,
            sessions,
            base,
            attempts,
            followers,
            lookers,
            readers,
            copiers,
            copies: Copies::default(),
            demo: None,
            transfers: None,
            audit,
        }
    }
}

impl Station {
    /// The same, with the instrument of a demonstration.
    pub fn with_demo(self, demo: Option<Controls>) -> Self {
        Self { demo, ..self }
    }

    /// The same, with transfers.
    pub fn with_transfers(self, transfers: Transfers) -> Self {
        Self { transfers: Some(transfers), ..self }
    }

    fn transfers(&self) -> Result<&Transfers, Problem> {
        self.transfers.as_ref().ok_or_else(|| {
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "this station has no transfers")
        })
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "fullbore station",
        description = "Start, follow and end recordings, and look after stored scans. Errors are application/problem+json."
    ),
    components(schemas(problem::Problem))
)]
struct Document;

fn api() -> OpenApiRouter<Arc<Station>> {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(session::show, session::open, session::close))
        .routes(routes!(session::link))
        .routes(routes!(events::status))
        .routes(routes!(events::follow))
        .routes(routes!(recordings::list, recordings::start))
        .routes(routes!(recordings::show))
        .routes(routes!(recordings::stop))
        .routes(routes!(recordings::abort))
        .routes(routes!(recordings::mark))
        .routes(routes!(commands::recording))
        .routes(routes!(spectra::follow))
        .routes(routes!(recordings::inputs))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::show, schedules::put, schedules::cancel))
        .routes(routes!(scans::list))
        .routes(routes!(scans::show, scans::remove))
        .routes(routes!(scans::protect, scans::release))
        .routes(routes!(scans::mark))
        .routes(routes!(scans::verify))
        .routes(routes!(disks::rebuild))
        .routes(routes!(files::list))
        .routes(routes!(files::get))
        .routes(routes!(stored::spectrum))
        .routes(routes!(jobs::list, disks::work))
        .routes(routes!(jobs::show, jobs::cancel))
        .routes(routes!(transfers::list, transfers::add))
        .routes(routes!(transfers::show, transfers::change, transfers::remove))
        .routes(routes!(transfers::pause))
        .routes(routes!(transfers::resume))
        .routes(routes!(transfers::rules, transfers::add_rule))
        .routes(routes!(transfers::remove_rule))
        .routes(routes!(transfers::incoming))
        .routes(routes!(sites::list))
        .routes(routes!(sites::forget))
        .routes(routes!(sites::invite))
        .routes(routes!(sites::withdraw))
        .routes(routes!(timeline::show))
        .routes(routes!(timeline::check))
        .routes(routes!(disks::disks))
        .routes(routes!(disks::machine))
        .routes(routes!(log::entries))
        .routes(routes!(log::alerts))
        .routes(routes!(log::audit))
        .routes(routes!(commands::run))
        .routes(routes!(commands::job))
        .routes(routes!(demo::lose))
        .routes(routes!(metrics::show))
}

/// The OpenAPI document.
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = api().split_for_parts().1;
    let components = document.components.get_or_insert_default();
    let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer);
    let token = token
        .description(Some("A token of the daemon's file. The scope is the least role."))
        .build();
    components.add_security_scheme("token", SecurityScheme::Http(token));
    let cookie = ApiKeyValue::with_description(
        "fullbore_PORT",
        "A session of a browser. Writes also need the header X-Fullbore-CSRF.",
    );
    components.add_security_scheme("cookie", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    document
}

/// The router of a station.
pub fn router(station: Arc<Station>) -> Router {
    let (api, _) = api().split_for_parts();
    let document = serde_json::to_string(&document()).unwrap_or_default();
    let kind = [(axum::http::header::CONTENT_TYPE, "application/json")];
    api.route("/api/v1/openapi.json", get(async move || (kind, document)))
        .route("/api/v1/copies/{scan}/{*file}", get(copies::get))
        .merge(pages::router())
        .fallback(async || Problem::not_found("there is nothing at this address"))
        .method_not_allowed_fallback(async || {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this address has no such method")
        })
        .layer(DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(station.clone(), body::bounded))
        .layer(middleware::from_fn_with_state(station.clone(), guard::guard))
        .with_state(station)
}

/// Runs work that may wait for a disk, apart from the threads that serve requests.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(Problem::internal(&error)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// `cargo run -p fullbore-daemon --example openapi > docs/reference/openapi.json` writes it again.
    #[test]
    fn the_published_document_is_that_of_the_code() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json");
        let published = fs::read_to_string(path).unwrap();
        let document = serde_json::to_string_pretty(&super::document()).unwrap() + "\n";
        assert!(published == document, "docs/reference/openapi.json is not current");
    }
}
