//! A TLS connection that carries messages.
