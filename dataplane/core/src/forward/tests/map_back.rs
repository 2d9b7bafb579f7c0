use super::*;

/// `/shop` is rewritten by `rewrite`.
fn map_back(rewrite: &Rewrite) -> MapBack<'_> {
    MapBack {
        rewrite,
        prefix: "/shop",
        host: Some(host("Shop.example.com:8080")),
        port: 8080,
        endpoint: "10.1.0.7:3000".parse().unwrap(),
    }
}

fn location(map_back: MapBack<'_>, value: &str) -> String {
    let mut out = b"before ".to_vec();
    map_back.location(&mut out, value.as_bytes());
    String::from_utf8(out)
        .unwrap()
        .strip_prefix("before ")
        .unwrap()
        .to_owned()
}

#[test]
fn locations() {
    let cases = [
        ("/app", "/shop"),
        ("/app/", "/shop/"),
        ("/app/x?y=//z#f", "/shop/x?y=//z#f"),
        ("/apple", "/apple"),
        ("/", "/"),
        ("x", "x"),
        ("../x", "../x"),
        ("?y", "?y"),
        ("", ""),
        ("//shop.example.com/app/x", "//shop.example.com/shop/x"),
        (
            "http://shop.example.com:8080/app/x",
            "http://shop.example.com:8080/shop/x",
        ),
        (
            "https://SHOP.example.com/app",
            "https://SHOP.example.com/shop",
        ),
        (
            "HTTP://shop.example.com/app",
            "HTTP://shop.example.com/shop",
        ),
        (
            "http://shop.example.com:/app",
            "http://shop.example.com:/shop",
        ),
        // The usual port of a scheme says no more than none.
        (
            "https://shop.example.com:443/app",
            "https://shop.example.com:443/shop",
        ),
        (
            "http://shop.example.com:80/app",
            "http://shop.example.com:80/shop",
        ),
        (
            "http://shop.example.com:9090/app",
            "http://shop.example.com:9090/app",
        ),
        (
            "http://shop.example.com:http/app",
            "http://shop.example.com:http/app",
        ),
        (
            "http://shop.example.com.evil/app",
            "http://shop.example.com.evil/app",
        ),
        (
            "http://shop.example.com@evil/app",
            "http://shop.example.com@evil/app",
        ),
        (
            "http://evil/app?http://shop.example.com/app",
            "http://evil/app?http://shop.example.com/app",
        ),
        ("//evil/app", "//evil/app"),
        ("///app", "///app"),
        ("ftp://shop.example.com/app", "ftp://shop.example.com/app"),
        (
            "http://10.1.0.7:3000/app/x",
            "http://Shop.example.com:8080/shop/x",
        ),
        ("http://10.1.0.7/app/x", "http://10.1.0.7/app/x"),
        ("http://10.1.0.8:3000/app/x", "http://10.1.0.8:3000/app/x"),
        ("http://10.1.0.7:3000/other", "http://10.1.0.7:3000/other"),
        ("mailto:a@b", "mailto:a@b"),
    ];
    for (sent, wanted) in cases {
        assert_eq!(
            location(map_back(&rewrite("/shop", "/app")), sent),
            wanted,
            "{sent}"
        );
    }
    let rooted = [
        ("/", "/shop/"),
        ("/x", "/shop/x"),
        ("http://shop.example.com", "http://shop.example.com/shop/"),
        (
            "http://shop.example.com?y",
            "http://shop.example.com/shop/?y",
        ),
    ];
    for (sent, wanted) in rooted {
        assert_eq!(
            location(map_back(&rewrite("/shop", "/")), sent),
            wanted,
            "{sent}"
        );
    }
}

#[test]
fn locations_of_hosts_in_other_forms() {
    let rewrite = rewrite("/shop", "/app");
    let v6 = MapBack {
        host: Some(host("[2001:db8::1]")),
        port: 80,
        endpoint: "[2001:db8::7]:80".parse().unwrap(),
        ..map_back(&rewrite)
    };
    let cases = [
        ("http://[2001:db8::1]/app", "http://[2001:db8::1]/shop"),
        (
            "http://[2001:db8::1]:80/app",
            "http://[2001:db8::1]:80/shop",
        ),
        ("http://[2001:db8::1]:81/app", "http://[2001:db8::1]:81/app"),
        ("http://[2001:db8::7]/app", "http://[2001:db8::1]/shop"),
        ("https://[2001:db8::7]/app", "https://[2001:db8::7]/app"),
    ];
    for (sent, wanted) in cases {
        assert_eq!(location(v6, sent), wanted, "{sent}");
    }
    let unknown = MapBack { host: None, ..v6 };
    assert_eq!(location(unknown, "/app"), "/shop");
    assert_eq!(
        location(unknown, "http://[2001:db8::7]/app"),
        "http://[2001:db8::7]/app"
    );
}

#[test]
fn cookies() {
    let cookie = |map_back: MapBack<'_>, value: &str| {
        let mut out = Vec::new();
        map_back.set_cookie(&mut out, value.as_bytes());
        String::from_utf8(out).unwrap()
    };
    let cases = [
        ("a=b", "a=b"),
        ("a=b; Path=/app", "a=b; Path=/shop"),
        ("a=b;path=/app/x;Secure", "a=b; Path=/shop/x;Secure"),
        ("a=b; PATH = /app/ ; HttpOnly", "a=b; Path=/shop/; HttpOnly"),
        ("a=b; Path=/other", "a=b; Path=/other"),
        ("a=b; Path=", "a=b; Path="),
        ("a=b; Path", "a=b; Path"),
        ("Path=/app; x", "Path=/app; x"),
        ("__Host-a=b; Path=/app", "__Host-a=b; Path=/app"),
        ("", ""),
    ];
    for (sent, wanted) in cases {
        assert_eq!(
            cookie(map_back(&rewrite("/shop", "/app")), sent),
            wanted,
            "{sent}"
        );
    }
    let rooted = [
        ("a=b; Path=/", "a=b; Path=/shop"),
        ("a=b; Path=/x/", "a=b; Path=/shop/x/"),
        ("__host-a=b; Path=/", "__host-a=b; Path=/"),
    ];
    for (sent, wanted) in rooted {
        assert_eq!(
            cookie(map_back(&rewrite("/shop", "/")), sent),
            wanted,
            "{sent}"
        );
    }
}
