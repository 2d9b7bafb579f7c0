//! `ballast`: the relay between scripted peers over real sockets: every way in which a connection can end, stall or crawl, and what
//! of it the other side must see.

mod again;
mod backends;
mod bulk;
mod crumbs;
mod dials;
mod endings;
mod lasting;
mod timers;

/// What a frontend of [`support::table`] is given, so that who is half-closed is waited for so long.
fn fins(client: &str, server: &str) -> (String, String) {
    (
        format!(", timeouts: {{client-fin: {client}}}"),
        format!(", timeouts: {{server-fin: {server}}}"),
    )
}
