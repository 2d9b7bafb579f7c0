//! The contents of the larger cells of the page.

use ballast_core::certificate::Validity;
use maud::{Markup, html};

use super::text::{Count, Lasted};
use crate::os::clock::unix_seconds;
use crate::stats::{EndpointStats, FrontendStats, Process, StatusKind};

/// The table in force, and how old it is.
pub(super) fn table(process: &Process) -> Markup {
    let age = unix_seconds().saturating_sub(process.applied);
    html! {
        @if process.applied == 0 {
            "no table"
        } @else {
            "table "
            @if let Some(generation) = process.generation { (generation) ", " }
            "applied " (Lasted(age)) " ago"
        }
    }
}

/// How many are not as they should be. Those that are down are highlighted.
pub(super) fn not_so(others: &[(usize, &str)]) -> Markup {
    let others = others.iter().filter(|(count, _)| *count > 0);
    let mut others = others.enumerate().peekable();
    html! {
        @if others.peek().is_none() { "all of them" }
        @for (place, (count, what)) in others {
            @if place > 0 { ", " }
            @if *what == "down" { em class="bad" { (count) " down" } } @else { (count) " " (what) }
        }
    }
}

/// How many for which reason; the most frequent one first.
pub(super) fn reasons(counts: impl Iterator<Item = (&'static str, u64)>) -> Markup {
    let mut counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    html! {
        @if counts.is_empty() { "–" }
        @for (place, (reason, count)) in counts.into_iter().enumerate() {
            @if place > 0 { ", " }
            (Count(count)) " " (reason)
        }
    }
}

/// A mark for the worst of the certificates of a frontend, if an operator should look at any.
pub(super) fn certificates(frontend: &FrontendStats) -> Markup {
    let certificates = frontend.certificates.as_ref();
    let worst = certificates.and_then(|all| Some((all.now, all.worst()?)));
    let Some((now, (certificate, validity, count))) = worst else {
        return html! {};
    };
    let (class, words) = match validity {
        Validity::Expired => ("st stop", "CERT EXPIRED"),
        Validity::NotYetValid => ("st stop", "CERT NOT YET VALID"),
        Validity::ExpiresSoon | Validity::Valid => ("st warn", "CERT EXPIRES SOON"),
    };
    let more = count - 1;
    html! {
        " "
        b class=(class) title={
            (certificate) " " (certificate.warning(now).unwrap_or_default())
            @if more > 0 { ". To look at, too: " (more) " more of this frontend" }
        } { (words) }
    }
}

/// A mark where a frontend listens, and not as the table asks.
pub(super) fn trouble(frontend: &FrontendStats) -> Markup {
    html! {
        @if let Some(trouble) = frontend.trouble() {
            " "
            b class="st warn" title={
                @for one in frontend.exceptions.iter().take(MOST_REASONS) { (one.bind) ": " (one.why) ". " }
            } { (trouble.to_uppercase()) }
        }
    }
}

pub(super) fn status(endpoint: &EndpointStats) -> Markup {
    let status = endpoint.status;
    let arrow = match (status.progress, status.kind) {
        (None, _) => "",
        (Some(_), StatusKind::Down) => " ↑",
        (Some(_), _) => " ↓",
    };
    html! {
        b class="st" { (status) (arrow) }
        @if endpoint.is_overridden {
            " "
            b class="hand" title={
                "An operator changed this; it stays so until it is undone"
                @if let Some(table) = endpoint.moved_from { ". Its address in the table is " (table) }
            } { "by hand" }
        }
        small { "for " (Lasted(endpoint.changed.into())) }
        // Where there is no room for a column of its own.
        @if let Some((what, _)) = out_of_use(endpoint) {
            small class="narrow" { (what) }
        } @else if let Some(check) = endpoint.check.as_deref().filter(|check| !check.result.is_empty()) {
            small class="narrow" { (check.result) " in " (check.took) " ms" }
        }
    }
}

/// Why no client is sent to an endpoint, whatever its checks say: in a few words, and more of it.
fn out_of_use(endpoint: &EndpointStats) -> Option<(&'static str, Markup)> {
    if endpoint.closes_loop {
        let why = "this address is a frontend of the same table, so no client is sent to it";
        return Some(("a loop", html! { (why) }));
    }
    let rest = endpoint.ejected?;
    Some((
        "not reached",
        html! { "tried again in " (Lasted(rest.as_secs())) },
    ))
}

pub(super) fn last_check(endpoint: &EndpointStats) -> Markup {
    if let Some((what, why)) = out_of_use(endpoint) {
        return html! { (what) small { (why) } };
    }
    let check = endpoint.check.as_deref();
    let Some(check) = check.filter(|check| !check.result.is_empty()) else {
        return html! { "–" };
    };
    let failures = endpoint.counts.check_failures;
    html! {
        span title={ (check.meaning) @if !check.said.is_empty() { ": " (check.said) } } {
            (check.result)
            @if let Some(code) = check.code { "/" (code) }
            " in " (check.took) " ms"
        }
        @if failures > 0 { small title="Checks that failed while the endpoint was up" {
                (Count(failures)) @if failures == 1 { " check failed" } @else { " checks failed" }
            } }
    }
}

/// The class that haproxy's page gives such a row: style sheets and scripts know them.
pub(super) fn class_of(endpoint: &EndpointStats) -> &'static str {
    let is_changing = endpoint.status.progress.is_some();
    let is_light = endpoint.user_weight == 0;
    let [active, backup] = match endpoint.status.kind {
        StatusKind::Maintenance => return "maintain",
        StatusKind::Down if is_changing => ["active_going_up", "backup_going_up"],
        StatusKind::Down => ["active_down", "backup_down"],
        StatusKind::Draining => ["active_draining", "backup_draining"],
        StatusKind::Stopping => ["active_nolb", "backup_nolb"],
        StatusKind::Up | StatusKind::Unchecked if is_light => {
            ["active_draining", "backup_draining"]
        }
        StatusKind::Up if is_changing => ["active_going_down", "backup_going_down"],
        StatusKind::Up => ["active_up", "backup_up"],
        StatusKind::Unchecked => ["active_no_check", "backup_no_check"],
    };
    if endpoint.is_backup { backup } else { active }
}

/// Reasons that a mark names.
const MOST_REASONS: usize = 3;
