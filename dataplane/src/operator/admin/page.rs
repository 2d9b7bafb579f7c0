//! The page for people, as a template. It is complete without a script; a small script keeps it up to date by the events.
//!
//! All markup is written here, from one snapshot: the script only replaces cells.

mod addresses;
mod cells;
mod certificates;
mod changes;
mod line;
mod routes;
mod rows;
mod text;
mod view;

pub(super) use changes::Changes;
pub(super) use view::View;

use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::HeaderValue;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use self::line::Line;
use self::rows::{Listed, Listing};
use self::view::Show;
use super::announced::Announced;
use crate::stats::{Chunks, Progress, ServiceStats, Snapshot, Statistics};

/// The page, piece by piece.
pub(super) fn page(
    stats: &Arc<Statistics>,
    snapshot: Arc<Snapshot>,
    announced: Option<Arc<Announced>>,
    view: View,
) -> Chunks {
    let listing = Listing::of(stats, snapshot, announced, view);
    let mut place = None;
    Chunks::new(move |out| {
        let service = place.map(|place| listing.service(place));
        let (html, progress) = match service {
            None => (beginning(&listing), Progress::GoesOn),
            Some(Some(service)) => (section(&listing, service), Progress::GoesOn),
            Some(None) => (end(&listing), Progress::Over),
        };
        place = Some(place.map_or(0, |place| place + 1));
        out.extend_from_slice(html.into_string().as_bytes());
        progress
    })
}

/// Nothing may be loaded or run but what is in the page, and no other page may put it into a frame.
pub(super) fn policy() -> HeaderValue {
    HeaderValue::from_static(&POLICY)
}

static POLICY: LazyLock<String> = LazyLock::new(|| {
    let hash = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
        hash(SCRIPT),
        hash(STYLE)
    )
});

/// Everything before the first service. `<html>`, `<body>`, `<main>` and the list of services stay open until [`end`].
fn beginning(listing: &Listing) -> Markup {
    let Listing { snapshot, view, .. } = listing;
    let node = &*snapshot.process.node;
    html! {
        (DOCTYPE)
        (PreEscaped("\n<html lang=\"en\">"))
        head {
            meta charset="utf-8";
            title { "Statistics Report for Ballast on " (node) }
            meta name="viewport" content="width=device-width,initial-scale=1";
            meta name="color-scheme" content="light dark";
            link rel="icon" href=(ICON);
            @if view.refreshes { noscript { meta http-equiv="refresh" content="10"; } }
            style { (PreEscaped(STYLE)) }
        }
        (PreEscaped("<body>\n"))
        header {
            h1 { "Ballast " small title=(*crate::process::version::VERSION) { (env!("CARGO_PKG_VERSION")) } " " span { (node) } }
            (listing.facts().markup("p", "span"))
            p class="tools" {
                span id="live" role="status" {}
                button id="theme" type="button" hidden { "Dark" }
            }
        }
        (PreEscaped(format!("\n<main id=\"main\" data-shape=\"{:016x}\">\n", listing.shape())))
        (notes(listing))
        (listing.tiles().markup("div", "div"))
        (search(view))
        @if listing.frontends.found > 0 {
            section id="frontends" {
                h2 { "Frontends " small { (listing.frontends.found) } }
                (rows(&frontend_heads(), listing.frontends().map(|frontend| listing.frontend(frontend))))
                (pages(&listing.frontends, |page| view.with(|view| view.frontends_page = page)))
            }
        }
        (addresses::section(listing))
        @if listing.http().next().is_some() {
            section id="http" {
                h2 { "HTTP" }
                (rows(&http_heads(), listing.http()))
            }
        }
        @if listing.datagrams().next().is_some() {
            section id="datagrams" {
                h2 { "Datagrams" }
                (rows(&datagram_heads(), listing.datagrams()))
            }
        }
        @if listing.routes().next().is_some() {
            section id="routes" {
                h2 { "Routes " small { (listing.routes_found()) } }
                (rows(&routes::heads(), listing.routes()))
                @if listing.routes_found() > routes::MOST {
                    p class="pages" { span { "The first " (routes::MOST) " are shown; search for a host, a path or a service to see others." } }
                }
            }
        }
        @if listing.certificates().next().is_some() {
            section id="certificates" {
                h2 { "Certificates" }
                (rows(&certificates::heads(), listing.certificates()))
            }
        }
        h2 id="list" { "Services " small { (listing.services.found) } }
        (PreEscaped("<div id=\"services\">"))
        @if listing.services.found == 0 {
            p class="note" {
                @match (view.show, snapshot.services.is_empty()) {
                    (_, true) => { "The table has no service." }
                    (Show::Wrong, false) => { "Nothing is wrong here." }
                    (Show::ByHand, false) => { "Nothing is changed by hand here." }
                    (Show::All, false) => { "Nothing has such a name, host, path, address, node or label." }
                }
            }
        }
    }
}

/// What an operator should know before all else: why a table was refused, what became of a form, what does not listen.
fn notes(listing: &Listing) -> Markup {
    let process = &listing.snapshot.process;
    let exceptions = &process.exceptions;
    html! {
        @if let Some(refusal) = &process.refusal {
            details class="note bad" open {
                summary { "The latest table was refused; the one before is still served" }
                pre { (refusal) }
            }
        }
        @if let Some(outcome) = listing.view.outcome { p class="note" role="status" { (outcome.text()) } }
        @if !exceptions.is_empty() {
            details class="note" {
                summary {
                    @match exceptions.len() {
                        1 => { "One address is not served as the table asks" }
                        count => { (count) " addresses are not served as the table asks" }
                    }
                }
                pre {
                    @for exception in exceptions.iter().take(MOST_EXCEPTIONS) { (exception) "\n" }
                    @if exceptions.len() > MOST_EXCEPTIONS { "and " (exceptions.len() - MOST_EXCEPTIONS) " more\n" }
                }
            }
        }
    }
}

fn search(view: &View) -> Markup {
    let to = |show| {
        view.with(|view| {
            (view.show, view.page, view.frontends_page) = (show, 1, 1);
        })
    };
    html! {
        form class="bar" id="search" action="/" method="get" role="search" {
            input type="search" name="q" value=(view.search) placeholder="Search names, addresses, hosts, paths, nodes, labels" aria-label="Search";
            @if view.show != Show::All { input type="hidden" name="show" value=(view.show.word()); }
            button { "Search" }
            span class="show" {
                @for show in Show::ALL {
                    a href=(to(show)) aria-current=[(show == view.show).then_some("true")] { (show.text()) }
                }
            }
        }
    }
}

fn rows(heads: &Markup, lines: impl Iterator<Item = Line>) -> Markup {
    html! {
        div class="scroll" {
            table class="tbl" {
                thead { tr { (heads) } }
                tbody { @for line in lines { (line.markup("tr", "td")) } }
            }
        }
    }
}

fn section(listing: &Listing, service: &ServiceStats) -> Markup {
    let view = &listing.view;
    let table = rows(&endpoint_heads(view.may_change), listing.body(service));
    html! {
        section {
            (listing.head(service).markup("div", "span"))
            @if view.may_change && !service.endpoints.is_empty() {
                form method="post" action=(view.address(None)) {
                    (table)
                    p class="acts" {
                        input type="hidden" name="b" value={ "#" (service.iid) };
                        "Chosen endpoints: "
                        button name="action" value="drain" title="Only clients that belong to them come" { "Drain" } " "
                        button name="action" value="maint" title="Nobody new comes" { "Disable" } " "
                        button name="action" value="ready" { "Enable" } " "
                        button name="action" value="default" { "As the table says" }
                    }
                }
            } @else {
                (table)
            }
        }
    }
}

fn end(listing: &Listing) -> Markup {
    let view = &listing.view;
    html! {
        (PreEscaped("</div>"))
        (pages(&listing.services, |page| view.with(|view| view.page = page)))
        (PreEscaped("</main>"))
        footer {
            a href="/;csv" { "CSV" } " "
            a href="/;json" { "JSON" } " "
            a href="/metrics" { "Metrics" } " "
            a href="/api/snapshot" { "Snapshot" }
            @if !view.may_change { " · read-only here" }
        }
        script { (PreEscaped(SCRIPT)) }
        (PreEscaped("</body></html>\n"))
    }
}

/// Links to the other pages of a list.
fn pages(listed: &Listed, address: impl Fn(usize) -> String) -> Markup {
    let Listed { page, pages, .. } = *listed;
    let before = [(1, "First"), (page.saturating_sub(1), "Before")];
    let after = [(page + 1, "Next"), (pages, "Last")];
    html! {
        @if pages > 1 {
            nav class="pages" {
                @for (number, text) in before.iter().filter(|_| page > 1) { a href=(address(*number)) { (text) } }
                @for (number, text) in after.iter().filter(|_| page < pages) { a href=(address(*number)) { (text) } }
                span { "Page " (page) " of " (pages) }
            }
        }
    }
}

fn frontend_heads() -> Markup {
    html! {
        th class="name" { "Frontend" }
        th class="status" { "Status" }
        th class="g w" { "Ten minutes" }
        (session_heads())
        th class="n w" title="Clients that were not let in, and requests that a route denied" { "Denied" }
        th class="n" title="Other clients that were not served" { "Errors" }
    }
}

fn endpoint_heads(may_change: bool) -> Markup {
    html! {
        @if may_change { th class="pick" {} }
        th class="name" { "Endpoint" }
        th class="status" { "Status" }
        th class="w" { "Last check" }
        th class="n w" { "Weight" }
        (session_heads())
        th class="n" title="Failed connections and answers" { "Errors" }
        th class="n x" title="Clients that went on to another endpoint" { "Elsewhere" }
        th class="n x" title="Mean time to connect" { "Connect" }
    }
}

/// What frontends and endpoints have alike.
fn session_heads() -> Markup {
    html! {
        th class="n" title="Sessions now" { "Now" }
        th class="n y" title="The most sessions at once" { "Most" }
        th class="n y" title="Sessions that there may be at once" { "Limit" }
        th class="n" title="Sessions that begin in a second" { "Rate" }
        th class="n x" title="The most that began in a second" { "Most" }
        th class="n w" { "Sessions" }
        th class="n b w" title="Bytes from clients" { "In" }
        th class="n b w" title="Bytes to clients" { "Out" }
    }
}

fn http_heads() -> Markup {
    html! {
        th class="name" { "Frontend" }
        th class="n" title="Requests in a second" { "Rate" }
        th class="n x" title="The most requests in a second" { "Most" }
        th class="n" { "Requests" }
        th class="w" title="Responses by the first digit of their status" { "Responses" }
        th class="n w" title="Requests that a route answered or redirected" { "Answered here" }
        th class="n" title="Requests that were malformed, not whole in time, or not allowed" { "Refused" }
    }
}

fn datagram_heads() -> Markup {
    html! {
        th class="name" { "Frontend" }
        th class="n" title="Flows now: one for each client's address and port" { "Flows" }
        th class="n w" title="Flows that began" { "Begun" }
        th class="w" title="Flows that are over, by reason" { "Ended" }
        th class="n" title="Datagrams of clients that were passed on" { "In" }
        th class="n" title="Datagrams of endpoints that were passed on" { "Out" }
        th title="Datagrams that were not passed on, by reason; kernel: they came faster than they were read; unsent: the kernel did not take them" { "Lost" }
    }
}

const MOST_EXCEPTIONS: usize = 20;
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect x='1' y='6' width='14' height='9' rx='2' fill='%232b5fb3'/%3E%3Crect x='4' y='2' width='8' height='3' rx='1' fill='%232b5fb3'/%3E%3C/svg%3E";
