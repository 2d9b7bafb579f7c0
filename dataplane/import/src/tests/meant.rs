//! Lines that another line, a backend or another form of a criterion gives another meaning, as haproxy 2.6 was seen to do.

use super::import;
use super::lines::assert_left_out;
use super::tried::{has, of};

fn assert_unlimited(text: &str) {
    let made = import(text).table;
    for limit in ["max-connections", "max-connection-rate"] {
        assert!(!made.contains(&format!("{limit}-per-client: ")), "{made}");
    }
}

#[test]
fn what_counts_clients_by_another_key_is_not_forgotten() {
    let text = |track: &str, criterion: &str| {
        let reject = format!(" tcp-request connection reject if {{ {criterion} gt 10 }}");
        let lines = format!("{track}\n{reject}\n default_backend b");
        of("tcp", &lines)
            + "backend st\n stick-table type ip size 10k expire 10s store conn_cur,conn_rate(1s)\n"
            + "backend other\n stick-table type ip size 10k expire 10s store conn_cur\n"
    };
    let src = " tcp-request connection track-sc0 src table st";
    for (track, line) in [
        (
            " tcp-request connection track-sc0 src,ipmask(32,64) table st".to_owned(),
            6,
        ),
        (
            " tcp-request content track-sc0 req.ssl_sni table st".to_owned(),
            6,
        ),
        // The first line of a number is the one that counts.
        (
            format!(" tcp-request connection track-sc0 src() table st\n{src}"),
            7,
        ),
        (format!(".if feature(QUIC)\n{src}\n.endif"), 8),
    ] {
        let text = text(&track, "sc0_conn_rate");
        let text = match track.contains("content") {
            true => text.replace("connection reject", "content reject"),
            false => text,
        };
        assert_left_out(&text, line, "what this line denies is served");
        assert_unlimited(&text);
    }
    has(&text(src, "sc0_conn_cur"), "max-connections-per-client: 10");
    has(
        &text(src, "sc0_conn_cur(st)"),
        "max-connections-per-client: 10",
    );
    let other = text(src, "sc0_conn_cur(other)");
    assert_left_out(&other, 6, "looks at another one");
    assert_unlimited(&other);
}
