//! Sockets, and what moves bytes between them: listening, readiness, TLS, HTTP/2, the relay. It imports `os` only.

pub(crate) mod listen;
pub(crate) mod mux;
pub(crate) mod poller;
pub(crate) mod ports;
pub(crate) mod relay;
pub(crate) mod source_address;
pub(crate) mod tls;
