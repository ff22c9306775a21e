//! Connections over loopback, with real TLS.
