use serde_json::{Value, json};

use super::super::{Pools, Taken};
use super::{follow, ip, key, object, pool, pools};

/// Each pool: its name, `total used free`, and the conditions `TYPE=STATUS:REASON`.
fn lines(pools: &Pools, taken: &Taken) -> Vec<String> {
    let statuses = pools.statuses(taken);
    let line = statuses.iter().map(|(entry, status)| {
        let conditions = status.conditions.iter();
        let conditions =
            conditions.map(|one| format!(" {}={}:{}", one.kind, one.status, one.reason));
        let conditions: String = conditions.collect();
        format!(
            "{} {} {} {}{conditions}",
            entry.pool.name, status.total, status.used, status.free
        )
    });
    line.collect()
}

#[test]
fn what_is_used_and_free_is_counted() {
    let pools = pools("
        edge 01 {addresses: [192.0.2.0/24, 2001:db8::/64], avoidBuggyIPs: true, reserve: [192.0.2.1]}
        all 02 {addresses: [192.0.2.0/24]}
        none 03 {addresses: []}
    ");
    let mut taken = Taken::default();
    let given = "
        a/one 80 key=k -> 192.0.2.2 edge
        a/two 81 key=k -> 192.0.2.2 edge
        a/three 80 prefer -> 192.0.2.3,2001:db8:: edge
        = a/four 80 -> 192.0.2.0 edge
        = a/five 80 -> 192.0.2.1 edge
        = a/six 80 -> 203.0.113.1 edge
        = a/seven 80 -> 203.0.113.2 gone
    ";
    follow(&pools, &mut taken, given);
    let total = 254 - 1 + (1_u128 << 64);
    assert_eq!(
        lines(&pools, &taken),
        [
            format!(
                "edge {total} 3 {} Ready=true:Ready Valid=true:Valid RangesInUse=true:RangesInUse",
                total - 3
            ),
            "all 0 0 0 Ready=false:Overlap Valid=false:Overlap RangesInUse=false:NoneTakenAway"
                .to_owned(),
            "none 0 0 0 Ready=false:NoRanges Valid=false:NoRanges RangesInUse=false:NoneTakenAway"
                .to_owned(),
        ]
    );
    let statuses = pools.statuses(&taken);
    let [(_, edge), (_, all), _] = &*statuses else {
        panic!("three pools");
    };
    assert_eq!(
        edge.conditions.last().map(|one| one.message.as_str()),
        Some(
            "Services keep addresses that the pool does not give any more: 192.0.2.1 (a/five), 192.0.2.0 (a/four), 203.0.113.1 (a/six); \
             add them again, or make these Services anew"
        )
    );
    assert_eq!(all.conflicts, ["192.0.2.0-192.0.2.255 of AddressPool edge"]);
    // As the API server takes it: its integers have 63 bits.
    let json = json!(edge);
    assert_eq!(
        (&json["total"], &json["used"]),
        (&json!(i64::MAX), &json!(3))
    );
    assert_eq!(
        json["conditions"][0],
        json!({"type": "Ready", "status": "True", "reason": "Ready", "message": ""})
    );
}

#[test]
fn addresses_of_two_systems_are_told() {
    let pools = Pools::new(vec![pool(
        "IPAddressPool",
        "first 01 {addresses: [192.0.2.0/24]}",
    )]);
    let mut taken = Taken::default();
    for host in 1..=10 {
        taken.of_another_system(
            key(&format!("a/s{host:02}")),
            ip(&format!("192.0.2.{host}")),
        );
    }
    assert_eq!(
        lines(&pools, &taken),
        [
            "first 256 10 246 Ready=true:Ready Valid=false:TwoSystems RangesInUse=false:NoneTakenAway"
        ]
    );
    let message = &pools.statuses(&taken)[0].1.conditions[1].message;
    assert!(
        message.starts_with(
            "another system gave addresses of this pool to Services: 192.0.2.1 (a/s01), "
        ),
        "{message}"
    );
    assert!(
        message.ends_with("192.0.2.8 (a/s08) and 2 more; let one system alone give from it"),
        "{message}"
    );
}

/// The reasons are what the API server takes for a condition.
#[test]
fn reasons_are_words_of_the_api() {
    let broken = pool(
        "AddressPool",
        "edge 01 {addresses: [x/y], serviceSelector: 7, autoAssign: 7}",
    );
    let pools = Pools::new(vec![broken]);
    for (_, status) in pools.statuses(&Taken::default()) {
        for condition in status.conditions {
            let is_word = |text: &str| {
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
            };
            assert!(
                is_word(condition.reason) && condition.message.len() < 32_768,
                "{condition:?}"
            );
        }
    }
    assert_eq!(object("{a: 1}"), Value::from_iter([("a", 1)]));
}
