//! The admin side where strangers reach it: they can take the places of each other, but not those of a kubelet.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use support::netns::{PLACE, Site};
use support::{Ballast, connect, get};

#[test]
fn strangers_who_say_nothing_keep_nobody_from_asking_after_health() {
    let Some(site) = Site::build(1) else {
        return;
    };
    let (admin, health) = (
        SocketAddr::from((PLACE, 1936)),
        SocketAddr::from((PLACE, 1937)),
    );
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 1936));
    let table = format!(
        "version: 1\nstats: {{bind: [\"{admin}\", \"{loopback}\"], healthz: [\"{health}\"]}}\n"
    );
    let _ballast = site.place.within(|| Ballast::serve_from_table(&table));
    let begun = Instant::now();
    let silent: Vec<_> = site.nodes[0].within(|| (0..400).map(|_| connect(admin)).collect());
    let is_well = |address| get(address, "/healthz").0 == "HTTP/1.1 200 OK";
    site.place.within(|| {
        assert!(is_well(loopback), "by loopback");
        assert!(is_well(admin), "by the address of the node");
    });
    site.nodes[0].within(|| assert!(is_well(health), "where health is answered alone"));
    // Each of 96 may say nothing for five seconds; whoever waited for all of these would wait for twenty.
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    drop(silent);
}
