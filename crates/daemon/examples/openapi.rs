//! Prints the OpenAPI document of the daemon, for `docs/reference/openapi.json`.

fn main() {
    let document = serde_json::to_string_pretty(&fullbore_daemon::http::document());
    println!("{}", document.expect("a document is only text"));
}
