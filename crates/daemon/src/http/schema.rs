//! Types that exist only in the OpenAPI document, in place of types of other crates.

use utoipa::ToSchema;

/// A scan by its session and its name in it.
#[derive(ToSchema)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct ScanName {
    /// The session.
    session: String,
    /// The scan.
    scan: String,
}
