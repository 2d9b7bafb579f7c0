//! Two connections, a client's and a server's, joined by pipes that cut their bytes anywhere: whatever both owners do, what is not
//! reset arrives as the same message, windows are kept to, and nothing is stuck once everybody reads.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

mod message;
mod watch;
mod world;

use world::World;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn what_is_not_reset_arrives_as_the_same_message(
        configs in [config(), config()],
        ops in prop::collection::vec(op(), 0..150),
    ) {
        let mut world = World::new(configs);
        for op in &ops {
            world.does(op);
        }
        world.ends();
    }
}

/// The two ends: the client's, and the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Client,
    Server,
}

impl End {
    fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// What one of the owners does, or the network. `at` is one of the streams that there are.
#[derive(Clone, Debug)]
enum Op {
    /// A request. With `length` its body has a stated length; `ends`: it has none.
    Open {
        head: Fields,
        ends: bool,
        length: Option<usize>,
    },
    /// A response, or an interim one.
    Respond {
        at: Index,
        head: Fields,
        ends: bool,
        length: Option<usize>,
        is_interim: bool,
    },
    /// Bytes of a body, and how many of them a frame takes at most.
    Say {
        at: Index,
        by: End,
        bytes: usize,
        most: usize,
    },
    /// The end of a body.
    Finish {
        at: Index,
        by: End,
        how: Finish,
    },
    /// Bytes arrive.
    Move {
        to: End,
        bytes: usize,
    },
    /// Reads what has arrived, and gives back a part of the window: so many of 4 parts.
    Read {
        at: Index,
        by: End,
        released: usize,
    },
    Widen {
        at: Index,
        by: End,
        target: u32,
    },
    Reset {
        at: Index,
        by: End,
    },
    Release {
        at: Index,
        by: End,
    },
    /// Settings that allow less than the first ones: so many of 4 parts of the window, a table of this size.
    Settings {
        by: End,
        window: u32,
        table: u32,
    },
    Ping {
        by: End,
    },
    Shrink {
        by: End,
    },
    ShutDown,
}

/// Numbers of names, and lengths of values.
type Fields = Vec<(u8, usize)>;

/// How a body ends.
#[derive(Clone, Debug)]
enum Finish {
    /// With its last bytes.
    WithBytes,
    /// With a frame that has no bytes.
    Empty,
    Trailers(Fields),
}

fn config() -> impl Strategy<Value = Config> {
    let window = prop::sample::select(&[1, 100, 1_000, 16_384, 20_000, 65_535, 150_000][..]);
    let max_head = prop::sample::select(&[4_096, 65_536][..]);
    (1..6_u32, window, max_head).prop_map(|(max_streams, window, max_head)| Config {
        max_streams,
        window,
        max_head,
    })
}

fn op() -> impl Strategy<Value = Op> {
    let at = any::<Index>;
    let by = || prop_oneof![Just(End::Client), Just(End::Server)];
    let length = || prop::option::weighted(0.3, size());
    prop_oneof![
        4 => (fields(), prop::bool::weighted(0.2), length())
            .prop_map(|(head, ends, length)| Op::Open { head, ends, length }),
        4 => (at(), fields(), prop::bool::weighted(0.2), length(), prop::bool::weighted(0.2))
            .prop_map(|(at, head, ends, length, is_interim)| Op::Respond { at, head, ends, length, is_interim }),
        8 => (at(), by(), size(), size()).prop_map(|(at, by, bytes, most)| Op::Say { at, by, bytes, most }),
        4 => (at(), by(), finish()).prop_map(|(at, by, how)| Op::Finish { at, by, how }),
        12 => (by(), size()).prop_map(|(to, bytes)| Op::Move { to, bytes }),
        8 => (at(), by(), 0..=4_usize).prop_map(|(at, by, released)| Op::Read { at, by, released }),
        1 => (at(), by(), 0..200_000_u32).prop_map(|(at, by, target)| Op::Widen { at, by, target }),
        1 => (at(), by()).prop_map(|(at, by)| Op::Reset { at, by }),
        1 => (at(), by()).prop_map(|(at, by)| Op::Release { at, by }),
        1 => (by(), 0..=4_u32, 0..10_000_u32)
            .prop_map(|(by, window, table)| Op::Settings { by, window, table }),
        1 => by().prop_map(|by| Op::Ping { by }),
        1 => by().prop_map(|by| Op::Shrink { by }),
        1 => prop::bool::weighted(0.1).prop_map(|ends| if ends { Op::ShutDown } else { Op::Ping { by: End::Server } }),
    ]
}

/// Of bodies and pieces: mostly few bytes, and around the limits of frames and windows.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        2 => Just(0),
        4 => 1..40_usize,
        2 => 40..2_000_usize,
        1 => 16_380..16_390_usize,
        1 => 2_000..100_000_usize,
    ]
}

fn fields() -> impl Strategy<Value = Fields> {
    let length = prop_oneof![0..4_usize, 120..130_usize, 0..300_usize];
    prop::collection::vec((any::<u8>(), length), 0..6)
}

fn finish() -> impl Strategy<Value = Finish> {
    prop_oneof![
        Just(Finish::WithBytes),
        Just(Finish::Empty),
        fields().prop_map(Finish::Trailers),
    ]
}
