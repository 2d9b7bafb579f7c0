//! Addresses on interfaces that stand on others, with a network of their own: VLANs, bridges, tunnels. `interface: auto` finds them.

use crate::hosts::{Host, Place, until};

pub(crate) fn vlan(place: &mut Place) {
    moves(place, "vlan5", &[VLAN]);
}

pub(crate) fn bridge_over_vlan(place: &mut Place) {
    moves(
        place,
        "br5",
        &[VLAN, BRIDGE, "link set vlan5 up master br5"],
    );
}

pub(crate) fn macvlan(place: &mut Place) {
    let words = "link add link eth0 name mac5 type macvlan mode bridge";
    moves(place, "mac5", &[words]);
}

pub(crate) fn bridge_over_vxlan(place: &mut Place) {
    let tunnel = "link add vx5 type vxlan id 5 group 239.1.1.5 dev eth0 dstport 4789";
    moves(
        place,
        "br5",
        &[tunnel, BRIDGE, "link set vx5 up master br5"],
    );
}

/// Both addresses are on the interface that these words make. They move when that interface goes down, when it vanishes, and when
/// their host loses its power. The members see each other by eth0.
fn moves(place: &mut Place, name: &str, words: &[&str]) {
    for host in place.hosts.iter().chain([&place.client]) {
        if let Err(why) = make(host, name, words) {
            // No package brings it: it is a matter of the kernel, in CI as well.
            assert!(why.contains("Unknown device type"), "{why}");
            eprintln!("SKIP: {name}: this kernel does not have it: {why}");
            return;
        }
    }
    // A share that returns later would move them once more.
    let addresses = format!(
        "- {{address: {V4}, mode: l2, nodes: [NODES]}}
- {{address: \"{V6}\", mode: l2, nodes: [NODES]}}
return: never
"
    );
    let has = |place: &Place, number: usize| {
        let shown = place.hosts[number].ip("-o address show");
        let of = |address: &str| {
            let address = format!(" {address}/");
            let mut found = shown.lines().filter(|line| line.contains(&address));
            found.any(|line| {
                assert!(line.contains(&format!(" {name} ")), "{line}");
                true
            })
        };
        [of(V4), of(V6)]
    };
    let both_at = |place: &Place, number| {
        until("one host has both", || has(place, number) == [true, true]);
        until("the client reaches both", || {
            place.client.reaches(V4) && place.client.reaches(V6)
        });
    };
    place.start_with(0, &addresses);
    both_at(place, 0);
    place.start_with(1, &addresses);
    until("the other one knows", || {
        place.hosts[1].ack().matches("\"owner\":\"edge1\"").count() == 2
    });

    place.hosts[0].ip(&format!("link set {name} down"));
    both_at(place, 1);
    until("the first one has none", || has(place, 0) == [false, false]);
    until("its ack says why", || {
        place.hosts[0].ack().contains("no interface can carry it")
    });

    make(&place.hosts[0], name, words).expect("it is there");
    until("it could hold them again", || {
        !place.hosts[0].ack().contains("no interface can carry it")
    });
    place.hosts[1].ip(&format!("link del {name}"));
    both_at(place, 0);

    make(&place.hosts[1], name, words).expect("it is made again");
    until("it could hold them again", || {
        !place.hosts[1].ack().contains("no interface can carry it")
    });
    place.hosts[0].power_off();
    both_at(place, 1);
}

/// Makes the interface, as far as it is not there, with an address of its network. `Err`: what the system says.
fn make(host: &Host, name: &str, words: &[&str]) -> Result<(), String> {
    let number = host.number;
    let more = [
        format!("link set {name} up"),
        format!("address add 10.79.0.{number}/24 dev {name}"),
        format!("address add fd79::{number}/64 dev {name} nodad"),
    ];
    for words in words
        .iter()
        .copied()
        .chain(more.iter().map(|words| &**words))
    {
        match host.try_ip(words) {
            Err(why) if !IS_THERE.iter().any(|there| why.contains(there)) => return Err(why),
            _ => {}
        }
    }
    Ok(())
}

const VLAN: &str = "link add link eth0 name vlan5 type vlan id 5";
const BRIDGE: &str = "link add br5 type bridge";
const V4: &str = "10.79.0.100";
const V6: &str = "fd79::100";
/// What `ip` says of a link and of an address that is there.
const IS_THERE: [&str; 2] = ["File exists", "already assigned"];
