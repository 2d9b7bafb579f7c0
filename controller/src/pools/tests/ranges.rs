use super::super::range::{AddressRange, AddressSet, is_buggy};
use super::ip;

fn range(text: &str) -> AddressRange {
    AddressRange::parse(text).expect(text)
}

#[test]
fn ranges_are_read_in_every_form() {
    for (text, wanted, count) in [
        ("192.0.2.0/26", "192.0.2.0-192.0.2.63", 64),
        // Bits behind the length are masked.
        ("192.0.2.77/26", "192.0.2.64-192.0.2.127", 64),
        ("192.0.2.7/32", "192.0.2.7", 1),
        ("192.0.2.7", "192.0.2.7", 1),
        ("192.0.2.9 - 192.0.3.1", "192.0.2.9-192.0.3.1", 249),
        (
            "2001:db8::/64",
            "2001:db8::-2001:db8::ffff:ffff:ffff:ffff",
            1 << 64,
        ),
        ("2001:db8::1-2001:db8::3", "2001:db8::1-2001:db8::3", 3),
        // Addresses of IPv4 in the form of IPv6 are those of IPv4.
        ("::ffff:192.0.2.0/120", "192.0.2.0-192.0.2.255", 256),
        (
            "::/0",
            "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            u128::MAX,
        ),
    ] {
        let range = range(text);
        assert_eq!(
            (range.to_string().as_str(), range.count()),
            (wanted, count),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_range_is_refused_with_the_reason_and_the_remedy() {
    for (text, why) in [
        ("192.0.2.0/33", "is not a CIDR; write one such as"),
        ("192.0.2/24", "is not a CIDR"),
        (
            "edge",
            "contains \"edge\", which is not an address; write one such as",
        ),
        ("192.0.2.1-", "contains \"\", which is not an address"),
        (
            "192.0.2.9-192.0.2.1",
            "ends before it starts; write the lower address first: 192.0.2.1-192.0.2.9",
        ),
        ("2001:db8::2-2001:db8::1", "ends before it starts"),
        (
            "192.0.2.1-2001:db8::1",
            "mixes IPv4 and IPv6; write a range for each family",
        ),
        ("192.0.2.1-192.0.2.2-192.0.2.3", "is not an address"),
    ] {
        let error = AddressRange::parse(text).expect_err(text);
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn buggy_addresses_are_counted_as_one_by_one() {
    for text in [
        "192.0.2.0/24",
        "192.0.2.0-192.0.2.0",
        "192.0.2.1-192.0.2.254",
        "192.0.2.255-192.0.3.0",
        "192.0.2.200-192.0.7.3",
        "192.0.2.255/32",
        "192.0.0.0/20",
        "2001:db8::/120",
    ] {
        let range = range(text);
        let mut one_by_one = 0;
        let mut rest = Some(range);
        while let Some(range) = rest {
            one_by_one += u128::from(is_buggy(range.first()));
            rest = range.without(AddressRange::of(range.first())).next();
        }
        assert_eq!(range.count_buggy(), one_by_one, "{text}");
    }
    assert_eq!(range("255.255.255.0/24").count_buggy(), 2);
}

#[test]
fn a_set_keeps_its_ranges_apart_and_finds_the_first_address_outside() {
    let mut set = AddressSet::default();
    for text in [
        "192.0.2.5",
        "192.0.2.7",
        "192.0.2.6",
        "192.0.2.20/30",
        "192.0.2.0/30",
        "2001:db8::/64",
    ] {
        set.add(range(text));
    }
    let ranges = |set: &AddressSet| {
        set.ranges()
            .map(|one| one.to_string())
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        ranges(&set),
        "192.0.2.0-192.0.2.3 192.0.2.5-192.0.2.7 192.0.2.20-192.0.2.23 2001:db8::-2001:db8::ffff:ffff:ffff:ffff"
    );
    for (within, wanted) in [
        ("192.0.2.0/24", Some("192.0.2.4")),
        ("192.0.2.5/32", None),
        ("192.0.2.6-192.0.2.9", Some("192.0.2.8")),
        ("192.0.2.4-192.0.2.9", Some("192.0.2.4")),
        ("2001:db8::5-2001:db8::9", None),
        ("2001:db8::/63", Some("2001:db8:0:1::")),
        ("192.0.1.0/24", Some("192.0.1.0")),
    ] {
        let found = set.first_outside(range(within)).map(AddressRange::first);
        assert_eq!(found, wanted.map(ip), "{within}");
    }
    set.remove(range("192.0.2.2-192.0.2.21"));
    set.remove(range("2001:db8::1"));
    assert_eq!(
        ranges(&set),
        "192.0.2.0-192.0.2.1 192.0.2.22-192.0.2.23 2001:db8:: 2001:db8::2-2001:db8::ffff:ffff:ffff:ffff"
    );
    set.add(range("192.0.0.0/16"));
    set.add(range("::/0"));
    assert_eq!(
        ranges(&set),
        "192.0.0.0-192.0.255.255 ::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
    );
    assert_eq!(set.first_outside(range("::/0")), None);
}
