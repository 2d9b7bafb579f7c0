use super::*;
use crate::affinity::cookie::CookieValue;

const COOKIE: &str = r#""affinity": {"cookie": "SERVERID"}"#;

/// A client with the cookie for the endpoint at `index`.
fn returning(service: &Service, index: usize) -> Key {
    client(1).with_cookie(service.cookie_value(index))
}

/// The picked endpoint, and whether the client keeps its cookie though it goes elsewhere.
fn picked(service: &Service, key: &Key, tried: &Tried) -> Result<(usize, bool), Unavailable> {
    let picked = service.pick(key, tried, NOW, &mut Rng::new(7))?;
    let value = service.cookie_value(picked.index);
    let is_new = key.cookie != value && !picked.is_for_once;
    assert_eq!(service.new_cookie(key, &picked), value.filter(|_| is_new));
    Ok((picked.index, picked.is_for_once))
}

#[test]
fn a_new_client_goes_where_the_algorithm_says() {
    for name in ALGORITHMS {
        let plain = service_of(&algorithm(name), 7);
        let sticky = service_of(&format!("{}, {COOKIE}", algorithm(name)), 7);
        let (mut one, mut other) = (Rng::new(1), Rng::new(1));
        for n in 0..50 {
            let wanted = index(&plain, &client(n), &mut one);
            assert_eq!(index(&sticky, &client(n), &mut other), wanted, "{name}");
        }
    }
}

#[test]
fn a_returning_client_goes_where_its_cookie_says() {
    for name in ALGORITHMS {
        let service = service_of(&format!("{}, {COOKIE}", algorithm(name)), 5);
        for index in 0..5 {
            let found = picked(&service, &returning(&service, index), &Tried::default());
            assert_eq!(found, Ok((index, false)), "{name}");
        }
    }
}

#[test]
fn which_endpoints_a_cookie_reaches() {
    let (draining, disabled, unweighted, backup) = (
        r#""state": "draining""#,
        r#""state": "disabled""#,
        r#""weight": 0"#,
        r#""state": "backup""#,
    );
    // The cookie is for the second of three endpoints: its words, its health (1 ejected, 2 its checks fail, 3 full), whether
    // it is picked, and whether the client keeps its cookie if it is not.
    let cases = [
        ("", 0, true, false),
        ("", 1, false, true),
        ("", 2, false, false),
        ("", 3, false, true),
        (draining, 0, true, false),
        (draining, 1, false, true),
        (draining, 2, false, false),
        (draining, 3, false, true),
        (unweighted, 0, true, false),
        (unweighted, 2, false, false),
        (backup, 0, true, false),
        (backup, 2, false, false),
        (disabled, 0, false, false),
    ];
    for (words, health, is_reached, keeps) in cases {
        let comma = if words.is_empty() { "" } else { ", " };
        let limited = format!(r#"{words}{comma}"max-connections": 1"#);
        let service = service(COOKIE, &["", &limited, ""]);
        let key = returning(&service, 1);
        let mut lease = None;
        match health {
            1 => eject(&service, 1),
            2 => fail_checks(&service, 1),
            3 => lease = service.endpoints()[1].live().lease(1),
            _ => {}
        }
        let (index, for_once) = picked(&service, &key, &Tried::default()).unwrap();
        drop(lease);
        assert_eq!(
            (index == 1, for_once),
            (is_reached, keeps),
            "{words} {health}"
        );
    }
}

#[test]
fn a_client_whose_dial_failed_gets_another_cookie() {
    let service = service_of(COOKIE, 3);
    let key = returning(&service, 1);
    let mut tried = Tried::default();
    tried.note(&service.endpoints()[1], Failure::Refused);
    let (index, for_once) = picked(&service, &key, &tried).unwrap();
    assert!(index != 1 && !for_once);
}

#[test]
fn an_ejected_endpoint_is_better_than_none() {
    let draining = r#""state": "draining""#;
    let service = service(COOKIE, &[draining, draining]);
    eject(&service, 1);
    let key = returning(&service, 1);
    assert_eq!(picked(&service, &key, &Tried::default()), Ok((1, false)));
    let stranger = picked(&service, &client(1), &Tried::default());
    assert_eq!(stranger, Err(Unavailable::NoEndpoint));
}

#[test]
fn a_cookie_survives_any_change_of_the_table() {
    let process = Process::default();
    let old = process.compile(spec_of(COOKIE, &["", "", ""]), None, NOW);
    let turned = spec(&format!(
        r#"{{{COOKIE}, "endpoints": [{{"address": "127.0.0.1:9"}}, {{"address": "127.0.0.1:3"}}, {{"address": "127.0.0.1:1", "weight": 9}}]}}"#
    ));
    let new = process.compile(turned, Some(&old), NOW);
    for (before, after) in [(0, 2), (2, 1)] {
        let found = picked(&new, &returning(&old, before), &Tried::default());
        assert_eq!(found, Ok((after, false)));
    }
    // The endpoint at index 1 is gone: any will do, and the client gets a new cookie.
    let (_, for_once) = picked(&new, &returning(&old, 1), &Tried::default()).unwrap();
    assert!(!for_once);
}

#[test]
fn a_value_is_for_one_endpoint_of_one_service_and_never_changes() {
    let address = "10.1.0.7:3306".parse().unwrap();
    let value = CookieValue::of("mysql", address);
    assert_eq!(value.to_string(), "018112bfb8707215");
    assert_ne!(value, CookieValue::of("mysql2", address));
    assert_ne!(
        value,
        CookieValue::of("mysql", "10.1.0.7:3307".parse().unwrap())
    );
    assert_eq!(
        CookieValue::parse(value.to_string().as_bytes()),
        Some(value)
    );
    let service = service_of(COOKIE, 2);
    let first = "127.0.0.1:1".parse().unwrap();
    assert_eq!(service.cookie_value(0), Some(CookieValue::of("s", first)));
    assert_eq!(service.cookie_name(), Some("SERVERID"));
    assert_eq!(service.cookie_value(2), None);
    let plain = service_of("", 2);
    assert_eq!((plain.cookie_name(), plain.cookie_value(0)), (None, None));
}
