//! What the page shows of the announcer beside this process: which addresses this host holds, and why not where not.

use std::hash::{Hash, Hasher};

use ballast_core::announce_ack::{Mode, Refused, State, Status};
use maud::{Markup, html};

use super::line::{Line, cell, cells};
use super::rows::Listing;
use super::text::Lasted;

/// All of it; nothing where no announcer was named.
pub(super) fn section(listing: &Listing) -> Markup {
    let found = shown(listing);
    let held = held(&found);
    html! {
        @if listing.announced.is_some() {
            section id="addresses" {
                h2 { "Addresses " small { (held) " of " (found.len()) " held here" } }
                @if let Some(line) = listing.announcer() { (line.markup("p", "span")) }
                @if let Some(refused) = refused(listing) {
                    details class="note bad" open {
                        summary { "The announcer refuses its latest file; the one before is in force" }
                        pre { @for one in refused.problems.iter().take(MOST_PROBLEMS) { (one.at) ": " (one.why) "\n" } }
                    }
                }
                @if !found.is_empty() { (super::rows(&heads(), listing.addresses())) }
                @if found.len() > MOST {
                    p class="pages" { span { "The first " (MOST) " are shown; search for an address or an owner to see others." } }
                }
            }
        }
    }
}

impl Listing {
    /// Why what is shown of addresses may be wrong, if it may.
    pub(super) fn announcer(&self) -> Option<Line> {
        let announced = self.announced.as_deref()?;
        let cells = match &announced.ack {
            Err(why) => cells! { "" { "It is not known which addresses this host holds: " (why) } },
            Ok(_) if announced.is_old() => cells! { "" {
                "The announcer of this host does not run: this is what it said last, " (Lasted(announced.age.as_secs())) " ago"
            } },
            Ok(_) => return None,
        };
        Some(Line::new("announcer".into(), "note bad", cells))
    }

    /// The addresses, those that need a look first.
    pub(super) fn addresses(&self) -> impl Iterator<Item = Line> {
        let announced = self.announced.as_deref();
        let (now, is_old) =
            announced.map_or((0, false), |announced| (announced.now, announced.is_old()));
        let shown = shown(self).into_iter().take(MOST);
        shown.map(move |one| {
            let (class, word) = match one.state {
                _ if is_old => ("st", one.state.word()),
                State::Held => ("st open", "HELD"),
                State::NotOurs => ("st", "ELSEWHERE"),
                State::Conflict => ("st stop", "CONFLICT"),
                State::NoInterface => ("st stop", "NO INTERFACE"),
                State::NotReady => ("st warn", "NOT READY"),
            };
            let way = match one.mode {
                Some(Mode::L2) => "L2",
                Some(Mode::Bgp) => "BGP",
                None => "–",
            };
            let since = now.saturating_sub(one.since) / 1000;
            let cells = cells! {
                "name" {
                    b { (one.address) }
                    // Where there is no room for its column.
                    small class="narrow" { (why(one)) }
                }
                "status" { b class=(class) { (word) } }
                "" { (way) }
                "n" { (Lasted(since)) }
                "w" { (one.owner.as_deref().unwrap_or("–")) }
                "w why" { (why(one)) }
            };
            Line::new(format!("a{}", one.address), "address", cells)
        })
    }

    /// Hashes what decides which lines there are, and what is said around them.
    pub(super) fn hash_addresses(&self, hasher: &mut impl Hasher) {
        let Some(announced) = &self.announced else {
            return;
        };
        (announced.ack.as_ref().err(), announced.is_old()).hash(hasher);
        for one in refused(self).iter().flat_map(|refused| &refused.problems) {
            (&one.at, &one.why).hash(hasher);
        }
        let shown = shown(self);
        held(&shown).hash(hasher);
        for one in shown {
            one.address.hash(hasher);
        }
    }
}

/// What decided where the address is, in words.
fn why(one: &Status) -> String {
    match (&*one.detail, &one.owner) {
        ("", Some(owner)) if one.state == State::NotOurs => format!("{owner} is to hold it"),
        ("", None) if one.state == State::NotOurs => "no host is known to hold it".to_owned(),
        (detail, _) => detail.to_owned(),
    }
}

fn shown(listing: &Listing) -> Vec<&Status> {
    let ack = listing.announced.as_deref().map(|one| one.ack.as_ref());
    let addresses = ack.into_iter().flatten().flat_map(|ack| &ack.addresses);
    addresses
        .filter(|one| listing.view.takes_address(one))
        .collect()
}

fn held(shown: &[&Status]) -> usize {
    shown.iter().filter(|one| one.state == State::Held).count()
}

fn refused(listing: &Listing) -> Option<&Refused> {
    let announced = listing.announced.as_deref()?;
    announced.ack.as_ref().ok()?.refused.as_ref()
}

fn heads() -> Markup {
    html! {
        th class="name" { "Address" }
        th class="status" { "Here" }
        th class="way" title="How the network learns where it is: L2 by ARP and neighbour discovery, BGP by routers" { "By" }
        th class="n" title="How long it is so on this host" { "For" }
        th class="w" title="The host that is to hold it, as this one sees it" { "Owner" }
        th class="w why" { "Why" }
    }
}

/// Addresses that are shown; `ballast-controller addresses` has all of them.
const MOST: usize = 200;
const MOST_PROBLEMS: usize = 20;
