//! The dashboard: files that a browser loads, in the binary.

use std::sync::Arc;

use axum::Router;
use axum::http::header;
use axum::routing::get;

use super::Station;

/// Path, type and content of each file.
const FILES: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("../web/index.html")),
    ("/style.css", "text/css; charset=utf-8", include_str!("../web/style.css")),
    ("/main.js", "text/javascript; charset=utf-8", include_str!("../web/main.js")),
    ("/api.js", "text/javascript; charset=utf-8", include_str!("../web/api.js")),
    ("/account.js", "text/javascript; charset=utf-8", include_str!("../web/account.js")),
    ("/disks.js", "text/javascript; charset=utf-8", include_str!("../web/disks.js")),
    ("/findings.js", "text/javascript; charset=utf-8", include_str!("../web/findings.js")),
    ("/jobs.js", "text/javascript; charset=utf-8", include_str!("../web/jobs.js")),
    ("/log.js", "text/javascript; charset=utf-8", include_str!("../web/log.js")),
    ("/machine.js", "text/javascript; charset=utf-8", include_str!("../web/machine.js")),
    ("/schedule.js", "text/javascript; charset=utf-8", include_str!("../web/schedule.js")),
    ("/dom.js", "text/javascript; charset=utf-8", include_str!("../web/dom.js")),
    ("/now.js", "text/javascript; charset=utf-8", include_str!("../web/now.js")),
    ("/plot.js", "text/javascript; charset=utf-8", include_str!("../web/plot.js")),
    ("/row.js", "text/javascript; charset=utf-8", include_str!("../web/row.js")),
    ("/stream.js", "text/javascript; charset=utf-8", include_str!("../web/stream.js")),
    ("/transfers.js", "text/javascript; charset=utf-8", include_str!("../web/transfers.js")),
    ("/waterfall.js", "text/javascript; charset=utf-8", include_str!("../web/waterfall.js")),
    ("/scans.js", "text/javascript; charset=utf-8", include_str!("../web/scans.js")),
    ("/icon.svg", "image/svg+xml", include_str!("../web/icon.svg")),
];

/// The routes of the files.
pub(super) fn router() -> Router<Arc<Station>> {
    FILES.iter().fold(Router::new(), |router, (path, kind, content)| {
        router.route(path, get(async move || ([(header::CONTENT_TYPE, *kind)], *content)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_small_and_name_only_each_other() {
        let all: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        assert!(all < 160_000, "{all} bytes");
        for (path, _, content) in FILES {
            let elsewhere = content.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("http://") && !elsewhere.contains("https://"), "{path}");
        }
    }
}
