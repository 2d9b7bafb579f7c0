//! `ballast`, started in the test's own process: what clients, endpoints and operators meet over real sockets.
//!
//! Each module is a subject, with a folder for its parts. Most tests wait for most of their time, and many run at once: a test that
//! measures times or weighs this process belongs to `quiet`, and one that needs the program itself to `binary`.

mod access;
mod ack;
mod admin;
mod choice;
mod console;
mod health;
mod http;
mod http2;
mod http_stats;
mod netns;
mod page;
mod proxy;
mod queue;
mod relay;
mod serve;
mod sockets;
mod stats;
mod tls;
mod udp;
