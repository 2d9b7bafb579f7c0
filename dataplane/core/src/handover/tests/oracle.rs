//! Properties that hold for any bytes. The tests of this crate and the fuzz target `handover` include this file.

use super::{
    CompileContext, Format, LENGTH, LOOPBACK_ONLY, Message, Moment, Plan, Rng, State, compile,
    length, parse,
};

/// Panics where a promise of reading messages, or of resuming from what they say, is broken.
pub(super) fn check(bytes: &[u8]) {
    let mut known = State::default();
    one(bytes, &mut known);
    let mut rest = bytes;
    while let Some((head, behind)) = rest.split_first_chunk::<LENGTH>() {
        let Ok(length) = length(*head) else { break };
        let Some((text, next)) = behind.split_at_checked(length) else {
            break;
        };
        one(text, &mut known);
        rest = next;
    }
    let (mut rng, now) = (Rng::new(1), Moment(1_000_000_000));
    let plan = plan(&mut rng);
    let again = known.clone();
    known.resume(&plan, now, &mut rng);
    let parts = State::parts(&plan, None, &[], now);
    for part in parts {
        let said = Message::State(part).encode();
        assert!(
            Message::decode(&said[LENGTH..]).is_ok(),
            "what it knows now cannot be said"
        );
    }
    // Twice, as by two processes in turn.
    again.resume(&plan, now, &mut rng);
}

fn one(text: &[u8], known: &mut State) {
    match Message::decode(text) {
        Ok(message) => {
            let said = message.encode();
            let head = said.first_chunk::<LENGTH>().expect("a length");
            assert_eq!(length(*head), Ok(said.len() - LENGTH));
            assert_eq!(Message::decode(&said[LENGTH..]).as_ref(), Ok(&message));
            assert!(!message.kind().is_empty());
            if let Message::Request(request) = &message {
                request.answered_in().ok();
            }
            if let Message::Offer(offer) = &message {
                offer.is_understood().ok();
                let mut of_clients = offer.sockets.iter().filter(|one| one.key().is_some());
                assert!(of_clients.all(|handed| handed.listens()));
            }
            if let Message::State(state) = message {
                known.add(state);
            }
        }
        Err(wrong) => assert!(!wrong.to_string().is_empty()),
    }
}

/// Of a table whose names the corpus knows.
fn plan(rng: &mut Rng) -> Plan {
    let table = br#"{"version": 1, "frontends": [
        {"name": "web", "bind": ["*:80"], "protocol": "tcp", "service": "shop"},
        {"name": "dns", "bind": ["*:53"], "protocol": "udp", "service": "dns"}],
        "services": [
        {"name": "shop", "affinity": {"client-ip": "3h"}, "health": {"mode": "tcp"}, "endpoints": [{"address": "10.0.0.1:80"}]},
        {"name": "dns", "endpoints": [{"address": "10.0.0.2:53"}]}]}"#;
    let table = parse(table, Format::Json).expect("a table");
    let mut context = CompileContext {
        now: Moment(1),
        workers: 2,
        ipv6: true,
        host: &LOOPBACK_ONLY,
        rng,
    };
    compile(table, &Plan::default(), &mut context)
}
