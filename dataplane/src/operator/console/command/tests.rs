use super::*;
use crate::operator::console::line::commands;

fn read(line: &str) -> Result<Command, String> {
    let commands = commands(line);
    assert_eq!(commands.len(), 1, "{line}");
    parse(&commands[0])
}

fn word(text: &str) -> Target {
    Target::Named(text.into())
}

fn server(service: &str, endpoint: &str) -> Server {
    Server {
        service: word(service),
        endpoint: word(endpoint),
    }
}

#[test]
fn each_level_may_do_what_haproxys_may() {
    use crate::operator::console::Level;
    for (line, least) in [
        ("help", Level::User),
        ("show info", Level::User),
        ("show stat", Level::User),
        ("show servers state", Level::User),
        ("show table", Level::User),
        ("show ssl cert", Level::User),
        ("get weight s/a", Level::User),
        ("show sess", Level::Operator),
        ("show errors", Level::Operator),
        ("clear counters", Level::Operator),
        ("clear table s", Level::Operator),
        ("clear counters all", Level::Admin),
        ("shutdown sessions server s/a", Level::Admin),
        ("shutdown session 0x1", Level::Admin),
        ("set server s/a addr 192.0.2.1", Level::Admin),
        ("set server s/a check-port 1", Level::Admin),
        ("set server s/a health up", Level::Admin),
        ("disable server s/a", Level::Admin),
        ("set server s/a weight 3", Level::Admin),
        ("set maxconn frontend f 3", Level::Admin),
        ("disable frontend f", Level::Admin),
    ] {
        let command = read(line).unwrap();
        for level in [Level::User, Level::Operator, Level::Admin] {
            assert_eq!(level.may(&command), level >= least, "{line}: {level:?}");
        }
    }
}

#[test]
fn every_command_is_understood() {
    use Command::{Change as By, ClearCounters, GetWeight, Help, Quit, Show as See, Shutdown};
    let stat = Stat::default();
    for (line, expected) in [
        ("help", Help(String::new())),
        ("help set server", Help("set server".into())),
        ("quit", Quit),
        ("prompt", Command::Prompt(Prompt::Toggle)),
        ("prompt i", Command::Prompt(Prompt::Silent)),
        ("prompt p", Command::Prompt(Prompt::Asking)),
        ("prompt n", Command::Prompt(Prompt::Over)),
        ("show info", See(Show::Info(Info::default()))),
        (
            "show info typed desc float",
            See(Show::Info(Info {
                form: Form::Typed,
                desc: true,
                float: true,
            })),
        ),
        ("show stat", See(Show::Stat(stat.clone()))),
        (
            "show stat domain proxy json no-maint",
            See(Show::Stat(Stat {
                form: Form::Json,
                no_maint: true,
                ..stat
            })),
        ),
        (
            "show stat -1 6 -1 typed desc up",
            See(Show::Stat(Stat {
                only: Some(Only {
                    proxy: "-1".into(),
                    kinds: 6,
                    sid: -1,
                }),
                form: Form::Typed,
                desc: true,
                up: true,
                no_maint: false,
            })),
        ),
        ("show servers state", See(Show::ServersState(None))),
        (
            "show servers state be",
            See(Show::ServersState(Some(word("be")))),
        ),
        (
            "show servers conn #3",
            See(Show::ServersConn(Some(Target::Numbered(3)))),
        ),
        ("show backend", See(Show::Backend)),
        ("show errors", See(Show::Errors)),
        ("show sess", See(Show::Sess { json: false })),
        ("show sess json", See(Show::Sess { json: true })),
        ("show version", See(Show::Version)),
        ("show snapshot", See(Show::Snapshot)),
        ("show overrides", See(Show::Overrides)),
        ("get weight b/s", GetWeight(server("b", "s"))),
        ("clear counters", ClearCounters { all: false }),
        ("clear counters all", ClearCounters { all: true }),
        ("shutdown sessions server b/s", Shutdown(server("b", "s"))),
        (
            "enable server b/s",
            By(Change::State(server("b", "s"), Some(State::Ready))),
        ),
        (
            "disable server b/s",
            By(Change::State(server("b", "s"), Some(State::Disabled))),
        ),
        (
            "set server b/s state ready",
            By(Change::State(server("b", "s"), Some(State::Ready))),
        ),
        (
            "set server b/s state drain",
            By(Change::State(server("b", "s"), Some(State::Draining))),
        ),
        (
            "set server b/s state maint",
            By(Change::State(server("b", "s"), Some(State::Disabled))),
        ),
        (
            "set server b/s state default",
            By(Change::State(server("b", "s"), None)),
        ),
        (
            "set server b/[::1]:80 weight 7",
            By(Change::Weight(
                server("b", "[::1]:80"),
                Some(Weight::Absolute(7)),
            )),
        ),
        (
            "set weight b/s 50%",
            By(Change::Weight(server("b", "s"), Some(Weight::Percent(50)))),
        ),
        (
            "set server #2/#14 weight default",
            By(Change::Weight(
                Server {
                    service: Target::Numbered(2),
                    endpoint: Target::Numbered(14),
                },
                None,
            )),
        ),
        (
            "set maxconn frontend f 9",
            By(Change::MaxConnections(word("f"), NonZeroU32::new(9))),
        ),
        (
            "set maxconn frontend f default",
            By(Change::MaxConnections(word("f"), None)),
        ),
    ] {
        assert_eq!(read(line), Ok(expected), "{line}");
    }
}

#[test]
fn what_is_wrong_is_said() {
    for (line, words) in [
        ("foo", "Unknown command: 'foo'. There are:"),
        ("show", "Unknown command: 'show'. There are:"),
        ("show fd", "Unknown command"),
        ("Show info", "Unknown command"),
        ("quit now", "Unknown command"),
        ("set", "Unknown command"),
        ("enable frontends f", "Unknown command"),
        ("prompt x", "'prompt' expects"),
        ("show info tpyed", "'show info' expects"),
        ("show stat tpyed", "'show stat' expects"),
        ("show stat -1 x -1", "'show stat' expects"),
        ("show stat a 1 1 b 1 1", "'show stat' expects"),
        ("show stat domain resolvers", "no statistics but"),
        ("set server bs state ready", "Require 'backend/server'."),
        (
            "set server b/s state up",
            "expects 'ready', 'drain', 'maint' or 'default'",
        ),
        ("set server b/s fqdn x.test", "is set in the table"),
        ("set server b/s", "expects 'addr'"),
        ("set server b/s weight x", "A weight is"),
        ("set server b/s weight -1", "A weight is"),
        ("set server b/s weight %", "A weight is"),
        ("set server #x/s weight 1", "behind '#'"),
        ("set maxconn frontend f 0", "Integer value expected"),
        ("set maxconn frontend f -1", "Integer value expected"),
        ("set maxconn global 5", "'set maxconn' expects"),
        ("clear counters server b/s", "'clear counters' expects"),
        ("add acl x <<", "payload"),
        ("set ssl cert a <<EOF", "payload"),
    ] {
        let said = read(line).unwrap_err();
        assert!(said.contains(words), "{line}: {said}");
        assert!(!said.contains("\n\n"), "{line}: {said}");
    }
}

#[test]
fn what_is_said_again_is_short_and_plain() {
    let said = read(&format!("\u{1b}[31m{}", "x".repeat(5000))).unwrap_err();
    let first = said.lines().next().unwrap();
    assert!(first.len() < 120 && !first.contains('\u{1b}'), "{first:?}");
}

#[test]
fn an_address_is_understood_as_haproxy_and_people_write_it() {
    let address = |ip: &str, port| {
        Some(Address {
            ip: ip.parse().unwrap(),
            port,
        })
    };
    for (words, expected) in [
        ("192.0.2.1", address("192.0.2.1", None)),
        ("192.0.2.1:81", address("192.0.2.1", Some(81))),
        ("192.0.2.1 port 81", address("192.0.2.1", Some(81))),
        ("2001:db8::1", address("2001:db8::1", None)),
        ("[2001:db8::1]", address("2001:db8::1", None)),
        ("[2001:db8::1]:81", address("2001:db8::1", Some(81))),
        ("2001:db8::1 port 81", address("2001:db8::1", Some(81))),
        ("::ffff:192.0.2.1 port 81", address("192.0.2.1", Some(81))),
        ("default", None),
    ] {
        let change = Change::Address(server("b", "s"), expected);
        let read = read(&format!("set server b/s addr {words}"));
        assert_eq!(read, Ok(Command::Change(change)), "{words}");
    }
    for (words, why) in [
        ("addr", "expects an IP"),
        ("addr foo", "Invalid addr 'foo'"),
        ("addr 192.0.2.1:81 port 82", "Invalid addr '192.0.2.1:81'"),
        ("addr 192.0.2.1 port x", "Invalid port 'x'"),
        ("addr 192.0.2.1 port 0", "Invalid port '0'"),
        ("addr 192.0.2.1 port 65536", "Invalid port '65536'"),
        ("check-port x", "provided port is not an integer"),
        ("check-port", "expects 'addr', 'check-port'"),
        ("health ill", "expects 'up', 'stopping', or 'down'."),
    ] {
        let said = read(&format!("set server b/s {words}")).unwrap_err();
        assert!(said.contains(why), "{words}: {said}");
    }
}

#[test]
fn a_session_is_named_as_it_is_listed() {
    for (word, number) in [("0x100000300000007", 0x0100_0003_0000_0007), ("1f", 0x1f)] {
        let read = read(&format!("shutdown session {word}"));
        assert_eq!(read, Ok(Command::ShutdownSession(number)));
    }
    for line in [
        "shutdown session",
        "shutdown session x",
        "shutdown session 1 2",
    ] {
        let said = read(line).unwrap_err();
        assert_eq!(said, "Session pointer expected (use 'show sess').");
    }
}
