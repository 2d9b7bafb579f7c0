//! Certificates and keys that change while clients come and go.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustls::client::Resumption;
use rustls::{ClientConfig, version};

use crate::tls::client::{config, config_of, showing, visit};
use crate::tls::{exceptions, handshakes, table};
use support::papers::Papers;
use support::{Ballast, echo_server};

#[test]
fn sessions_are_resumed_at_any_worker_and_after_any_swap() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    for version in [&version::TLS12, &version::TLS13] {
        let table = table(&papers, &["shop"], "", echo_server());
        let ballast = Ballast::serve(&table, 2);
        let config = Arc::new(resuming(config_of(&papers, version)));
        assert!(
            !visit(ballast.address(), &config, "shop.test")
                .unwrap()
                .is_resumed()
        );
        for generation in 1..10 {
            let tls = visit(ballast.address(), &config, "shop.test").unwrap();
            assert!(tls.is_resumed(), "{version:?}, after {generation} swaps");
            // Another description makes another plan, but the TLS stays.
            ballast.swap(&format!("generation: {generation}\n{table}"));
        }
        // Also with another certificate.
        papers.issue("shop", &["shop.test"]);
        ballast.swap(&format!("generation: 10\n{table}"));
        assert!(
            visit(ballast.address(), &config, "shop.test")
                .unwrap()
                .is_resumed()
        );
        assert_eq!(handshakes(&ballast, "complete"), 1);
        assert_eq!(handshakes(&ballast, "resumed"), 10);
    }
}

#[test]
fn no_ticket_passes_for_a_certificate_that_a_client_must_show() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.issue("guest", &[]);
    let open = table(&papers, &["shop"], "", echo_server());
    let auth = format!(
        ", client-auth: {{ca: {}, mode: optional}}",
        papers.named("ca.pem")
    );
    let optional = table(&papers, &["shop"], &auth, echo_server());
    let strict = optional.replace("optional", "required");
    let ballast = Ballast::serve(&open, 1);
    let nobody = Arc::new(resuming(config(&papers)));
    let come = || visit(ballast.address(), &nobody, "shop.test").map(|tls| tls.is_resumed());
    assert!(!come().unwrap());
    assert!(come().unwrap());
    ballast.swap(&optional);
    assert!(!come().unwrap(), "another policy");
    assert!(come().unwrap());
    ballast.swap(&strict);
    assert!(come().is_err());
    ballast.swap(&optional);
    assert!(come().is_ok());
    // A session with a certificate is resumed with it.
    ballast.swap(&strict);
    let guest = Arc::new(resuming(showing(&papers, &papers, "guest")));
    let come = || visit(ballast.address(), &guest, "shop.test").map(|tls| tls.is_resumed());
    assert!(!come().unwrap());
    assert!(come().unwrap());
    // Other authorities believe nobody because of the past.
    let other = Papers::new();
    papers.write("ca.pem", &fs::read(other.path("ca.pem")).unwrap());
    ballast.swap(&format!("generation: 2\n{strict}"));
    assert!(come().is_err());
}

#[test]
fn nodes_with_the_same_ticket_keys_resume_each_others_sessions() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    let keys = |first: &[u8]| -> String {
        // 48 bytes in base64 are 64 characters.
        first
            .iter()
            .map(|key| char::from(*key).to_string().repeat(64) + "\n")
            .collect()
    };
    papers.write("tickets", keys(b"abc").as_bytes());
    let file = format!("ticket-keys: {}\n", papers.named("tickets"));
    let table = file + &table(&papers, &["shop"], "", echo_server());
    let (one, two) = (Ballast::serve(&table, 1), Ballast::serve(&table, 1));
    let config = Arc::new(resuming(config(&papers)));
    let come = |ballast: &Ballast| {
        let tls = visit(ballast.address(), &config, "shop.test").expect("a visit");
        tls.is_resumed()
    };
    assert!(!come(&one));
    assert!(come(&two));
    assert!(come(&one));
    // The next key is known before it is used.
    papers.write("tickets", keys(b"bcd").as_bytes());
    one.swap(&format!("generation: 1\n{table}"));
    assert!(come(&one));
    assert!(come(&two));
    papers.write("tickets", keys(b"xyz").as_bytes());
    one.swap(&format!("generation: 2\n{table}"));
    // The file is noticed apart from the table, too. A session that is resumed while the keys change has a ticket of the new ones.
    one.until(|one| one.ack().and_then(|ack| ack.served?.generation) == Some(2));
    assert!(!come(&one));
    // A broken file changes nothing.
    papers.write("tickets", b"garbage");
    one.swap(&format!("generation: 3\n{table}"));
    assert!(come(&one));
}

#[test]
fn certificates_change_under_load_and_no_client_fails() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.issue("other", &["other.test"]);
    let table = table(&papers, &["shop", "other"], "", echo_server());
    let ballast = Ballast::serve(&table, 2);
    let (address, over) = (ballast.address(), Arc::new(AtomicBool::new(false)));
    let mut held = visit(address, &Arc::new(config(&papers)), "shop.test").unwrap();
    let clients: Vec<_> = [config(&papers), resuming(config(&papers))]
        .into_iter()
        .map(|config| {
            let (config, over) = (Arc::new(config), Arc::clone(&over));
            thread::spawn(move || {
                let mut served = 0;
                while !over.load(Ordering::Relaxed) {
                    for name in ["shop.test", "other.test"] {
                        visit(address, &config, name).expect("a visit");
                        served += 1;
                    }
                }
                served
            })
        })
        .collect();
    for generation in 0..30 {
        papers.issue("shop", &["shop.test"]);
        ballast.swap(&format!("generation: {generation}\n{table}"));
        let new = papers.pair("shop").0[0].to_vec();
        let config = Arc::new(config(&papers));
        ballast.until(|_| {
            visit(address, &config, "shop.test")
                .expect("a visit")
                .certificate()
                == new
        });
    }
    over.store(true, Ordering::Relaxed);
    let served: u32 = clients
        .into_iter()
        .map(|client| client.join().unwrap())
        .sum();
    assert!(served > 50, "{served}");
    assert_eq!(held.echo(b"still").unwrap(), b"still");
    assert_eq!(exceptions(&ballast), [""; 0]);
}

#[test]
fn a_bad_certificate_takes_out_itself() {
    let papers = Papers::new();
    papers.issue("good", &["good.test"]);
    papers.issue("other", &["other.test"]);
    papers.issue("bad", &["bad.test"]);
    fs::copy(papers.path("other.key"), papers.path("bad.key")).unwrap();
    let ballast = Ballast::serve(&table(&papers, &["good", "bad"], "", echo_server()), 1);
    let config = Arc::new(config(&papers));
    let come = |name: &str| visit(ballast.address(), &config, name).map(drop);
    come("good.test").unwrap();
    // Its name is known, and is not answered by the default.
    let why = come("bad.test").unwrap_err().to_string();
    assert!(why.contains("AccessDenied"), "{why}");
    let why = exceptions(&ballast);
    assert_eq!(why.len(), 1);
    assert!(
        why[0].starts_with("serves in part: ")
            && why[0].contains("bad.key: is not the key of the certificate in ")
            && why[0]
                .ends_with("; clients for bad.test are refused; the other certificates are served"),
        "{why:?}"
    );
    // Where the first one is bad there is no default.
    ballast.swap(&table(&papers, &["bad", "good"], "", echo_server()));
    come("good.test").unwrap();
    assert!(
        come("unknown.test")
            .unwrap_err()
            .to_string()
            .contains("AccessDenied")
    );
    let why = exceptions(&ballast);
    assert!(
        why[0].ends_with(
            "; clients for bad.test, for names of no certificate, without a name are refused; the other certificates are served"
        ),
        "{why:?}"
    );
    // Another certificate is good for its name.
    papers.issue("second", &["bad.test"]);
    ballast.swap(&table(
        &papers,
        &["good", "bad", "second"],
        "",
        echo_server(),
    ));
    come("bad.test").unwrap();
    let why = exceptions(&ballast);
    assert!(
        why[0].ends_with("; no client is refused; the other certificates are served"),
        "{why:?}"
    );
    // The frontend fails when none is left, and returns when one is mended.
    ballast.swap(&table(&papers, &["bad"], "", echo_server()));
    assert!(come("bad.test").is_err() && come("good.test").is_err());
    assert_eq!(exceptions(&ballast).len(), 1);
    papers.issue("bad", &["bad.test"]);
    ballast.until(|_| come("bad.test").is_ok());
    ballast.until(|ballast| exceptions(ballast).is_empty());
}

#[test]
fn while_files_do_not_fit_the_last_good_pair_stays() {
    let papers = Papers::new();
    papers.issue("shop", &["shop.test"]);
    papers.issue("next", &["shop.test"]);
    let table = table(&papers, &["shop"], "", echo_server());
    let ballast = Ballast::serve(&table, 1);
    let config = Arc::new(config(&papers));
    let come = || visit(ballast.address(), &config, "shop.test").map(|tls| tls.certificate());
    let first = come().unwrap();
    // The certificate is new, the key is not yet.
    fs::copy(papers.path("next.crt"), papers.path("shop.crt")).unwrap();
    ballast.swap(&format!("generation: 1\n{table}"));
    assert!(come().unwrap() == first);
    ballast.until(|ballast| exceptions(ballast).len() == 1);
    fs::copy(papers.path("next.key"), papers.path("shop.key")).unwrap();
    ballast.swap(&format!("generation: 2\n{table}"));
    // Files may also be read while they are being copied.
    let next = papers.pair("next").0[0].to_vec();
    ballast.until(|ballast| come().unwrap() == next && exceptions(ballast).is_empty());
    // What is written is incomplete.
    papers.write("shop.crt", b"-----BEGIN CERTIFICATE-----\nAAAA");
    ballast.swap(&format!("generation: 3\n{table}"));
    come().unwrap();
    // A file that is gone is gone.
    fs::remove_file(papers.path("shop.key")).unwrap();
    ballast.swap(&format!("generation: 4\n{table}"));
    // The answer may still be that of the files before.
    ballast.until(|_| come().is_err());
}

fn resuming(mut config: ClientConfig) -> ClientConfig {
    config.resumption = Resumption::in_memory_sessions(10);
    config
}
