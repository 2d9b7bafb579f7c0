//! The page for people. Whole without a script, as plain tables; a small script keeps it up to date by the events.
//!
//! Everything on it is written here, from one snapshot: the script only puts new cells in the place of old ones.

mod cells;
mod changes;
mod datagrams;
mod line;
mod picture;
mod text;
mod view;

pub(super) use changes::Changes;
pub(super) use view::View;

use std::fmt::Write;
use std::sync::{Arc, LazyLock};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::HeaderValue;
use sha2::{Digest, Sha256};

use self::line::Line;
use self::picture::{Listed, Part, Picture};
use self::text::Escaped;
use self::view::Show;
use crate::stats::{Chunks, Progress, Snapshot};
use crate::worker::Shared;

/// The page, piece by piece.
pub(super) fn page(shared: &Arc<Shared>, snapshot: Arc<Snapshot>, view: View) -> Chunks {
    let picture = Picture::of(shared, snapshot, view);
    let mut step = 0;
    Chunks::new(move |out| {
        let mut html = String::new();
        let services = &picture.services.places;
        let progress = match step {
            0 => {
                head(&mut html, &picture);
                frontends(&mut html, &picture);
                datagrams::section(&mut html, &picture);
                begin_services(&mut html, &picture);
                Progress::GoesOn
            }
            step => match services.get(step - 1) {
                Some(place) => {
                    service(&mut html, &picture, *place);
                    Progress::GoesOn
                }
                None => {
                    end(&mut html, &picture);
                    Progress::Over
                }
            },
        };
        step += 1;
        out.extend_from_slice(html.as_bytes());
        progress
    })
}

/// Nothing may be loaded or run but what stands in the page, and nobody may put it into a frame.
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

// Writing into a string cannot fail: that is all the errors that these functions leave alone.

fn head(html: &mut String, picture: &Picture) {
    let node = Escaped(&*picture.snapshot.process.node);
    let version = env!("CARGO_PKG_VERSION");
    let refresh = match picture.view.refreshes() {
        true => r#"<noscript><meta http-equiv="refresh" content="10"></noscript>"#,
        false => "",
    };
    write!(
        html,
        r#"<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Statistics Report for Ballast on {node}</title>
<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="color-scheme" content="light dark">
<link rel="icon" href="{ICON}">{refresh}<style>{STYLE}</style></head><body>
<header><h1>Ballast <small>{version}</small> <span>{node}</span></h1>
"#
    )
    .unwrap_or_default();
    picture.line(Part::Facts).write(html, "p", "span");
    html.push_str(
        r#"<p class="tools"><span id="live" role="status"></span><button id="theme" type="button" hidden>Dark</button></p></header>"#,
    );
    let lines: Vec<Line> = picture.parts().map(|part| picture.line(part)).collect();
    let shape = picture.shape(&lines);
    write!(html, "\n<main id=\"main\" data-shape=\"{shape:016x}\">\n").unwrap_or_default();
    if let Some(refusal) = &picture.snapshot.process.refusal {
        write!(
            html,
            r#"<details class="note bad" open><summary>The latest table was refused; the one before is still served</summary><pre>{}</pre></details>"#,
            Escaped(&**refusal)
        )
        .unwrap_or_default();
    }
    if let Some(outcome) = picture.view.outcome {
        write!(
            html,
            r#"<p class="note" role="status">{}</p>"#,
            outcome.text()
        )
        .unwrap_or_default();
    }
    exceptions(html, &picture.snapshot.process.exceptions);
    picture.line(Part::Tiles).write(html, "div", "div");
    search(html, &picture.view);
}

/// What the ack says of binds.
fn exceptions(html: &mut String, exceptions: &[Arc<str>]) {
    let count = exceptions.len();
    let what = match count {
        0 => return,
        1 => "One address is not served as the table asks".into(),
        _ => format!("{count} addresses are not served as the table asks"),
    };
    write!(
        html,
        r#"<details class="note"><summary>{what}</summary><pre>"#
    )
    .unwrap_or_default();
    for exception in exceptions.iter().take(MOST_EXCEPTIONS) {
        writeln!(html, "{}", Escaped(&**exception)).unwrap_or_default();
    }
    if count > MOST_EXCEPTIONS {
        writeln!(html, "and {} more", count - MOST_EXCEPTIONS).unwrap_or_default();
    }
    html.push_str("</pre></details>");
}

fn search(html: &mut String, view: &View) {
    let search = Escaped(&view.search);
    write!(
        html,
        r#"<form class="bar" id="search" action="/" method="get" role="search"><input type="search" name="q" value="{search}" placeholder="Search names, addresses, nodes, labels" aria-label="Search">"#
    )
    .unwrap_or_default();
    if view.show != Show::All {
        let show = view.show.word();
        write!(html, r#"<input type="hidden" name="show" value="{show}">"#).unwrap_or_default();
    }
    html.push_str(r#"<button>Search</button><span class="show">"#);
    for show in Show::ALL {
        let address = view.with(|view| {
            (view.show, view.page, view.frontends_page) = (show, 1, 1);
        });
        let current = match show == view.show {
            true => r#" aria-current="true""#,
            false => "",
        };
        write!(
            html,
            r#"<a href="{}"{current}>{}</a>"#,
            Escaped(address),
            show.text()
        )
        .unwrap_or_default();
    }
    html.push_str("</span></form>\n");
}

fn frontends(html: &mut String, picture: &Picture) {
    let Listed { found, places, .. } = &picture.frontends;
    if *found == 0 {
        return;
    }
    write!(
        html,
        r#"<section id="frontends"><h2>Frontends <small>{found}</small></h2><div class="scroll"><table class="tbl"><thead><tr>{FRONTEND_HEADS}</tr></thead><tbody>"#
    )
    .unwrap_or_default();
    for place in places {
        picture.line(Part::Frontend(*place)).write(html, "tr", "td");
    }
    html.push_str("</tbody></table></div>");
    pages(html, &picture.frontends, |page| {
        picture.view.with(|view| view.frontends_page = page)
    });
    html.push_str("</section>\n");
}

fn begin_services(html: &mut String, picture: &Picture) {
    let found = picture.services.found;
    write!(
        html,
        r#"<h2 id="list">Services <small>{found}</small></h2><div id="services">"#
    )
    .unwrap_or_default();
    if found == 0 {
        let text = match (picture.view.show, picture.snapshot.services.is_empty()) {
            (_, true) => "The table has no service.",
            (Show::Wrong, false) => "Nothing is wrong here.",
            (Show::ByHand, false) => "Nothing is changed by hand here.",
            (Show::All, false) => "Nothing has such a name, address, node or label.",
        };
        write!(html, r#"<p class="note">{text}</p>"#).unwrap_or_default();
    }
}

fn service(html: &mut String, picture: &Picture, place: usize) {
    html.push_str("<section>");
    picture.line(Part::Head(place)).write(html, "div", "span");
    let may_change = picture.view.may_change;
    if may_change {
        let address = picture.view.address(None);
        write!(
            html,
            r#"<form method="post" action="{}">"#,
            Escaped(address)
        )
        .unwrap_or_default();
    }
    let pick = if may_change {
        r#"<th class="pick"></th>"#
    } else {
        ""
    };
    write!(
        html,
        r#"<div class="scroll"><table class="tbl"><thead><tr>{pick}{ENDPOINT_HEADS}</tr></thead><tbody>"#
    )
    .unwrap_or_default();
    for part in picture.endpoints(place).chain([Part::Sum(place)]) {
        picture.line(part).write(html, "tr", "td");
    }
    html.push_str("</tbody></table></div>");
    if may_change && let Some(service) = picture.snapshot.services.get(place) {
        write!(
            html,
            r##"<p class="acts"><input type="hidden" name="b" value="#{}">Chosen endpoints: {ACTIONS}</p></form>"##,
            service.iid
        )
        .unwrap_or_default();
    }
    html.push_str("</section>\n");
}

fn end(html: &mut String, picture: &Picture) {
    html.push_str("</div>");
    pages(html, &picture.services, |page| {
        picture.view.with(|view| view.page = page)
    });
    let more = match picture.view.may_change {
        true => "",
        false => " · read-only here",
    };
    writeln!(
        html,
        r#"</main><footer><a href="/;csv">CSV</a> <a href="/;json">JSON</a> <a href="/metrics">Metrics</a> <a href="/api/snapshot">Snapshot</a>{more}</footer><script>{SCRIPT}</script></body></html>"#
    )
    .unwrap_or_default();
}

/// Links to the other pages of a list.
fn pages(html: &mut String, listed: &Listed, address: impl Fn(usize) -> String) {
    let Listed { page, pages, .. } = *listed;
    if pages == 1 {
        return;
    }
    html.push_str(r#"<nav class="pages">"#);
    let mut link = |number: usize, text: &str| {
        write!(html, r#"<a href="{}">{text}</a>"#, Escaped(address(number))).unwrap_or_default();
    };
    if page > 1 {
        link(1, "First");
        link(page - 1, "Before");
    }
    if page < pages {
        link(page + 1, "Next");
        link(pages, "Last");
    }
    write!(html, "<span>Page {page} of {pages}</span></nav>").unwrap_or_default();
}

const MOST_EXCEPTIONS: usize = 20;
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect x='1' y='6' width='14' height='9' rx='2' fill='%232b5fb3'/%3E%3Crect x='4' y='2' width='8' height='3' rx='1' fill='%232b5fb3'/%3E%3C/svg%3E";
const ACTIONS: &str = r#"<button name="action" value="drain" title="Only clients that belong to them come">Drain</button> <button name="action" value="maint" title="Nobody new comes">Disable</button> <button name="action" value="ready">Enable</button> <button name="action" value="default">As the table says</button>"#;
const FRONTEND_HEADS: &str = r#"<th class="name">Frontend</th><th class="status">Status</th><th class="g w">Ten minutes</th><th class="n" title="Sessions now">Now</th><th class="n x" title="The most sessions at once">Most</th><th class="n x" title="Sessions that there may be at once">Limit</th><th class="n" title="Sessions that begin in a second">Rate</th><th class="n x" title="The most that began in a second">Most</th><th class="n w">Sessions</th><th class="n b w" title="Bytes from clients">In</th><th class="n b w" title="Bytes to clients">Out</th><th class="n w" title="Clients that were not let in">Denied</th><th class="n" title="Other clients that were not served">Errors</th>"#;
const ENDPOINT_HEADS: &str = r#"<th class="name">Endpoint</th><th class="status">Status</th><th class="w">Last check</th><th class="n w">Weight</th><th class="n" title="Sessions now">Now</th><th class="n x" title="The most sessions at once">Most</th><th class="n x" title="Sessions that there may be at once">Limit</th><th class="n" title="Sessions that begin in a second">Rate</th><th class="n x" title="The most that began in a second">Most</th><th class="n w">Sessions</th><th class="n b w" title="Bytes from clients">In</th><th class="n b w" title="Bytes to clients">Out</th><th class="n" title="Failed connections and answers">Errors</th><th class="n x" title="Clients that went on to another endpoint">Elsewhere</th><th class="n x" title="Mean time to connect">Connect</th>"#;
