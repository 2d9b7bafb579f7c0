//! The relay between scripted peers over real sockets: every way in which a connection can end, stall or crawl, and what of
//! it the other side must see.

#[path = "common/apart.rs"]
mod apart;
mod common;
#[path = "common/peers.rs"]
mod peers;

#[path = "relay/again.rs"]
mod again;
#[path = "relay/backends.rs"]
mod backends;
#[path = "relay/bulk.rs"]
mod bulk;
#[path = "relay/crumbs.rs"]
mod crumbs;
#[path = "relay/dials.rs"]
mod dials;
#[path = "relay/endings.rs"]
mod endings;
#[path = "relay/fairness.rs"]
mod fairness;
#[path = "relay/lasting.rs"]
mod lasting;
#[path = "relay/timers.rs"]
mod timers;

/// What a frontend of [`common::table`] is given, so that who is half-closed is waited for so long.
fn fins(client: &str, server: &str) -> (String, String) {
    (
        format!(", timeouts: {{client-fin: {client}}}"),
        format!(", timeouts: {{server-fin: {server}}}"),
    )
}
