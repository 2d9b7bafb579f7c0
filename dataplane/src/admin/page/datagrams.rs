//! The part of the page about datagrams: what frontends of udp have beside the rest.

use std::fmt::{self, Display, Formatter, Write};

use super::cells::Exact;
use super::line::Line;
use super::picture::Picture;
use super::text::{Count, Escaped};
use crate::stats::{Datagrams, FrontendStats};

/// The whole section, where there is something to show.
pub(super) fn section(html: &mut String, picture: &Picture) {
    let mut parts = picture.datagrams().peekable();
    if parts.peek().is_none() {
        return;
    }
    // Writing into a string cannot fail.
    write!(
        html,
        r#"<section id="datagrams"><h2>Datagrams</h2><div class="scroll"><table class="tbl"><thead><tr>{HEADS}</tr></thead><tbody>"#
    )
    .unwrap_or_default();
    for part in parts {
        picture.line(part).write(html, "tr", "td");
    }
    html.push_str("</tbody></table></div></section>\n");
}

/// The row of one frontend.
pub(super) fn line(frontend: &FrontendStats, datagrams: &Datagrams) -> Line {
    let name = Escaped(&*frontend.name);
    let mut line = Line::new(format!("u{}", frontend.iid), "frontend");
    line.cell(
        "name",
        format_args!(r##"<a class="px" href="#{name}/Frontend">{name}</a>"##),
    );
    line.cell("n", Count(frontend.current.into()));
    line.cell("n w", Exact(frontend.sessions));
    line.cell("w", Reasons(datagrams.endings().collect()));
    line.cell("n", Exact(datagrams.from_clients));
    line.cell("n", Exact(datagrams.to_clients));
    line.cell("lost", Reasons(datagrams.losses().collect()));
    line
}

/// How many for which reason; the most frequent one first.
struct Reasons(Vec<(&'static str, u64)>);

impl Display for Reasons {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut reasons = self.0.clone();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        if reasons.is_empty() {
            return f.write_str("–");
        }
        for (place, (reason, count)) in reasons.iter().enumerate() {
            let comma = if place == 0 { "" } else { ", " };
            write!(f, "{comma}{} {reason}", Count(*count))?;
        }
        Ok(())
    }
}

const HEADS: &str = r#"<th class="name">Frontend</th><th class="n" title="Flows now: one for each client's address and port">Flows</th><th class="n w" title="Flows that began">Begun</th><th class="w" title="Flows that are over, by reason">Ended</th><th class="n" title="Datagrams of clients that were passed on">In</th><th class="n" title="Datagrams of endpoints that were passed on">Out</th><th title="Datagrams that were not passed on, by reason; kernel: they came faster than they were read; unsent: the kernel did not take them">Lost</th>"#;
