//! What stands in the cells of the page.

use std::fmt::{self, Display, Formatter};
use std::time::{SystemTime, UNIX_EPOCH};

use super::text::{Count, Escaped, Lasted};
use crate::stats::{EndpointStats, FrontendStats, ServiceStats, StatusKind};

/// What the endpoints of all services do.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) all: usize,
    pub(super) serving: usize,
    down: usize,
    draining: usize,
    maintained: usize,
}

impl Tally {
    pub(super) fn of(services: &[ServiceStats]) -> Self {
        let mut tally = Self::default();
        for endpoint in services.iter().flat_map(|service| &service.endpoints) {
            tally.all += 1;
            *match endpoint.status.kind {
                StatusKind::Up | StatusKind::Unchecked => &mut tally.serving,
                StatusKind::Down => &mut tally.down,
                StatusKind::Draining => &mut tally.draining,
                StatusKind::Maintenance => &mut tally.maintained,
            } += 1;
        }
        tally
    }
}

impl Display for Tally {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut is_first = true;
        for (count, what) in [
            (self.down, "down"),
            (self.draining, "drained"),
            (self.maintained, "in maintenance"),
        ] {
            if count > 0 {
                let comma = if is_first { "" } else { ", " };
                write!(f, "{comma}{}", OutOf(count, what))?;
                is_first = false;
            }
        }
        if is_first {
            f.write_str("all of them")?;
        }
        Ok(())
    }
}

/// So many are so; that some are down stands out.
pub(super) struct OutOf(pub(super) usize, pub(super) &'static str);

impl Display for OutOf {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (0, _) => f.write_str("all of them"),
            (count, "down") => write!(f, r#"<em class="bad">{count} down</em>"#),
            (count, what) => write!(f, "{count} {what}"),
        }
    }
}

/// The table in force, and how old it is.
pub(super) struct Table(pub(super) Option<u64>, pub(super) u64);

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.1 == 0 {
            return f.write_str("no table");
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let age = now.unwrap_or_default().as_secs().saturating_sub(self.1);
        match self.0 {
            Some(generation) => write!(f, "table {generation}, applied {} ago", Lasted(age)),
            None => write!(f, "table applied {} ago", Lasted(age)),
        }
    }
}

pub(super) struct Tooltip<'a>(pub(super) Option<&'a str>);

impl Display for Tooltip<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, r#" title="{}""#, Escaped(text)),
            None => Ok(()),
        }
    }
}

/// Where a frontend is, and what is spoken there.
pub(super) struct Binds<'a>(pub(super) &'a FrontendStats);

impl Display for Binds<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let spec = &self.0.spec;
        write!(f, "{}", spec.protocol)?;
        for bind in spec.bind.iter().take(BINDS) {
            write!(f, " {bind}")?;
        }
        match spec.bind.len().saturating_sub(BINDS) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// What is not said by an endpoint's name.
pub(super) struct Whereabouts<'a>(pub(super) &'a EndpointStats);

impl Display for Whereabouts<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let endpoint = self.0;
        let address = endpoint.address.to_string();
        if *endpoint.name != *address {
            f.write_str(&address)?;
        }
        if endpoint.is_backup {
            f.write_str(" backup")?;
        }
        for place in [&endpoint.node, &endpoint.zone].into_iter().flatten() {
            write!(f, " · {}", Escaped(&**place))?;
        }
        Ok(())
    }
}

pub(super) struct Status<'a>(pub(super) &'a EndpointStats);

impl Display for Status<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let endpoint = self.0;
        let status = endpoint.status;
        let arrow = match (status.progress, status.kind) {
            (None, _) => "",
            (Some(_), StatusKind::Down) => " &uarr;",
            (Some(_), _) => " &darr;",
        };
        write!(f, r#"<b class="st">{status}{arrow}</b>"#)?;
        if endpoint.is_overridden {
            f.write_str(r#" <b class="hand" title="An operator changed this; it stays so until it is undone">by hand</b>"#)?;
        }
        write!(f, "<small>for {}</small>", Lasted(endpoint.changed.into()))?;
        // Where there is no room for a column of its own.
        let check = endpoint.check.as_deref();
        match check.filter(|check| !check.result.is_empty()) {
            Some(check) => write!(
                f,
                r#"<small class="narrow">{} in {} ms</small>"#,
                check.result, check.took
            ),
            None => Ok(()),
        }
    }
}

pub(super) struct LastCheck<'a>(pub(super) &'a EndpointStats);

impl Display for LastCheck<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.closes_loop {
            return f.write_str(
                "a loop<small>this address is a frontend of the same table, so no client is sent to it</small>",
            );
        }
        if let Some(rest) = self.0.ejected {
            return write!(
                f,
                "not reached<small>tried again in {}</small>",
                Lasted(rest.as_secs())
            );
        }
        let Some(check) = self.0.check.as_deref().filter(|one| !one.result.is_empty()) else {
            return f.write_str("–");
        };
        write!(f, r#"<span title="{}"#, Escaped(check.meaning))?;
        if !check.said.is_empty() {
            write!(f, ": {}", Escaped(&check.said))?;
        }
        write!(f, r#"">{}"#, check.result)?;
        if let Some(code) = check.code {
            write!(f, "/{code}")?;
        }
        write!(f, " in {} ms</span>", check.took)?;
        if check.failures > 0 {
            write!(f, "<small>{} failed</small>", Count(check.failures))?;
        }
        Ok(())
    }
}

/// What it has now, and what it was given.
pub(super) struct Weight<'a>(pub(super) &'a EndpointStats);

impl Display for Weight<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.growth {
            Some(_) => write!(f, "{}/{}", self.0.weight, self.0.user_weight),
            None => write!(f, "{}", self.0.weight),
        }
    }
}

/// A count, and what it is exactly.
pub(super) struct Exact(pub(super) u64);

impl Display for Exact {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..10_000 => Count(self.0).fmt(f),
            exact => write!(f, r#"<span title="{exact}">{}</span>"#, Count(exact)),
        }
    }
}

/// What should be nothing.
pub(super) struct Bad(pub(super) u64);

impl Display for Bad {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str(r#"<i>0</i>"#),
            count => write!(f, r#"<em class="warn">{}</em>"#, Count(count)),
        }
    }
}

pub(super) struct Millis(pub(super) u32);

impl Display for Millis {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", Count(self.0.into()))
    }
}

/// How many of how many serve; that some do not stands out.
pub(super) struct Usable<'a>(pub(super) &'a ServiceStats);

impl Display for Usable<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let service = self.0;
        let (usable, all) = (
            service.usable + service.usable_backups,
            service.endpoints.len(),
        );
        let is_down = |one: &EndpointStats| one.status.kind == StatusKind::Down;
        match service.endpoints.iter().any(is_down) {
            true => write!(f, r#"<em class="warn">{usable} of {all} usable</em>"#),
            false => write!(f, "{usable} of {all} usable"),
        }
    }
}

pub(super) struct Waiting(pub(super) u32);

impl Display for Waiting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(
                f,
                r#" · <em class="warn">{} wait</em>"#,
                Count(count.into())
            ),
        }
    }
}

/// Nothing where there are no datagrams.
pub(super) struct AndFlows(pub(super) u32);

impl Display for AndFlows {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            1 => f.write_str(" and a flow"),
            flows => write!(f, " and {} flows", Count(flows.into())),
        }
    }
}

pub(super) struct Others(pub(super) usize);

impl Display for Others {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, "with {count} that are not shown"),
        }
    }
}

/// More are counted only.
const BINDS: usize = 3;
