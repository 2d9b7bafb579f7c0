use std::collections::BTreeMap;

use super::super::{Displaced, Taken};
use super::{ask, follow, held, ip, key, pools};
use crate::allocation::NodePort;

/// Each line is one pair of Services: the one that has an address, the one that asks for it too, and the refusal, if any.
#[test]
fn an_address_is_shared_by_the_rules() {
    let owner = "192.0.2.1 is in use by a/one: ";
    for (has, comes, wanted) in [
        ("80 key=k", "443 key=k", ""),
        ("53 key=k", "53/udp key=k", ""),
        (
            "80 key=k",
            "80 key=k",
            "port 80/TCP of 192.0.2.1 is in use by a/one",
        ),
        (
            "80",
            "443",
            "it has no ballast.dev/sharing-key; give both the same",
        ),
        (
            "80",
            "443 key=k",
            "it has no ballast.dev/sharing-key; give both the same",
        ),
        (
            "80 key=k",
            "443",
            "this Service has no ballast.dev/sharing-key; give it that of the other",
        ),
        (
            "80 key=k",
            "443 key=other",
            "it has another ballast.dev/sharing-key; use that key",
        ),
        (
            "80 key=k internal",
            "443 key=k internal",
            "internal Services share no address",
        ),
        (
            "80 key=k internal",
            "443 key=k",
            "internal Services share no address",
        ),
        (
            "80 key=k",
            "443 key=k internal",
            "internal Services share no address",
        ),
        ("80 key=k strict=app:a", "443 key=k strict=app:a", ""),
        (
            "80 key=k strict=app:a",
            "443 key=k strict=app:b",
            "with strict externalTrafficPolicy Local need one selector",
        ),
        (
            "80 key=k strict=app:a",
            "443 key=k",
            "with strict externalTrafficPolicy Local need one selector",
        ),
    ] {
        let mut taken = Taken::default();
        let first = ask(&format!("a/one {has}"));
        taken.take(first.service.clone(), held(&first, "192.0.2.1 edge"));
        // Of another namespace, and of the same.
        for name in ["b/two", "a/two"] {
            let found = taken.may_join(ip("192.0.2.1"), &ask(&format!("{name} {comes}")));
            match wanted {
                "" => assert_eq!(found, Ok(()), "{has}; {comes}"),
                wanted => {
                    let text = found.expect_err(comes).to_string();
                    assert!(
                        text.contains(wanted)
                            && (text.starts_with("port") || text.starts_with(owner)),
                        "{comes}: {text}"
                    );
                }
            }
        }
        assert_eq!(taken.may_join(ip("192.0.2.1"), &first), Ok(()));
        assert_eq!(
            taken.may_join(ip("192.0.2.2"), &ask(&format!("a/two {comes}"))),
            Ok(())
        );
    }
}

#[test]
fn a_sole_owner_changes_its_key_in_place_and_a_key_that_goes_takes_nothing_away() {
    let pools = pools("edge 01 {addresses: [192.0.2.0/29]}");
    let lines = "
        a/one 80 key=k -> 192.0.2.0 edge
        a/one 80 key=l -> 192.0.2.0 edge
        b/two 443 key=l -> 192.0.2.0 edge
        b/two 443 -> 192.0.2.0 edge
        c/three 81 key=l want=192.0.2.0 -> refused: 192.0.2.0 is in use by b/two: it has no ballast.dev/sharing-key; give both the same, or request another address
        c/three 81 key=l -> 192.0.2.1 edge
        d/four 82 key=l -> 192.0.2.1 edge
        a/one 80 -> 192.0.2.0 edge
        e/five 83 key=k -> 192.0.2.2 edge
    ";
    follow(&pools, &mut Taken::default(), lines);
}

#[test]
fn a_key_is_followed_into_every_pool() {
    let pools = pools(
        "
        first 01 {addresses: [192.0.2.0/30], priority: 1}
        second 02 {addresses: [198.51.100.0/30, 2001:db8::/126]}
    ",
    );
    let lines = "
        a/one 80 key=k pool=second -> 198.51.100.0 second
        a/two 81 key=k -> 198.51.100.0 second
        a/three 80 key=k -> 192.0.2.0 first
        a/four 82 key=k -> 192.0.2.0 first
        a/five 90 require key=k -> 198.51.100.0,2001:db8:: second
        a/six 91 require key=k -> 198.51.100.0,2001:db8:: second
    ";
    follow(&pools, &mut Taken::default(), lines);
}

#[test]
fn of_two_that_hold_one_port_by_accident_the_one_that_had_it_first_stays() {
    let asks = [
        ("a/one 80,443 born=5", "192.0.2.1,2001:db8::1 edge"),
        ("a/two 443 born=3", "192.0.2.1 edge"),
        // Without a common port both stay, whatever their keys.
        ("a/three 8080 born=9", "192.0.2.1 edge"),
        ("a/four 80 born=9", "2001:db8::1 edge"),
    ];
    let asks = asks.map(|(line, result)| (ask(line), result));
    let (taken, displaced) = Taken::new(
        BTreeMap::new(),
        asks.iter().map(|(ask, result)| (ask, held(ask, result))),
    );
    assert_eq!(
        displaced,
        [Displaced {
            service: key("a/one"),
            address: ip("192.0.2.1"),
            port: NodePort::tcp(443),
            owner: key("a/two"),
        }]
    );
    let holders: Vec<String> = taken
        .iter()
        .map(|(service, _)| service.to_string())
        .collect();
    assert_eq!(holders, ["a/four", "a/three", "a/two"]);
}

#[test]
fn freeing_leaves_nothing_behind() {
    let pools = pools("edge 01 {addresses: [192.0.2.0/29, 2001:db8::/126]}");
    let mut taken = Taken::default();
    let lines = "
        a/one 80 key=k prefer -> 192.0.2.0,2001:db8:: edge
        a/two 81 key=k prefer -> 192.0.2.0,2001:db8:: edge
        a/three 80 -> 192.0.2.1 edge
    ";
    follow(&pools, &mut taken, lines);
    for service in ["a/one", "a/three", "a/two", "a/never"] {
        taken.free(&key(service));
    }
    let empty = Taken::default();
    assert_eq!(format!("{taken:?}"), format!("{empty:?}"));
}
