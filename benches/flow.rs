//! What a UDP flow costs: to find it, to open and to end it, with 100 and with 100,000 of them.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ballast_core::compile::{CompileContext, compile};
use ballast_core::counters::WorkerId;
use ballast_core::flow::{FlowTable, Key, Listener, Load, Verdict};
use ballast_core::loops::LOOPBACK_ONLY;
use ballast_core::moment::Moment;
use ballast_core::plan::Plan;
use ballast_core::rng::Rng;
use ballast_core::table::{self, Format};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

fn plan(rng: &mut Rng) -> Plan {
    let yaml = "{version: 1, frontends: [{name: f, protocol: udp, bind: ['127.0.0.1:53'], service: s}], services: [{name: s, endpoints: [{address: '10.0.0.1:53'}, {address: '10.0.0.2:53'}]}]}";
    let table = table::parse(yaml.as_bytes(), Format::Yaml).expect("a table");
    let mut context = CompileContext {
        now: Moment(0),
        workers: 1,
        ipv6: true,
        host: &LOOPBACK_ONLY,
        rng,
    };
    compile(table, &Plan::default(), &mut context)
}

fn key(client: u32) -> Key {
    let peer = SocketAddr::new(Ipv4Addr::from(client).into(), 7_000);
    Key {
        listener: Listener(1),
        peer,
        local: IpAddr::from([127, 0, 0, 1]),
        client: peer,
    }
}

/// Flows of the clients from 0 to `count`, each with a question and an answer.
fn flows(count: u32, plan: &Plan, rng: &mut Rng) -> FlowTable<()> {
    let mut flows = FlowTable::new(WorkerId(0), 1_000_000, 7);
    for client in 0..count {
        let frontend = &plan.frontends()[0];
        let verdict = flows.from_client(Moment(0), key(client), Load::one(64), frontend, rng);
        if let Verdict::Open { flow, .. } = verdict {
            black_box(flows.from_endpoint(Moment(0), flow, Load::one(64)));
        }
    }
    flows
}

fn look_up(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("flow/question and answer");
    for count in COUNTS {
        let mut rng = Rng::new(1);
        let plan = plan(&mut rng);
        let mut flows = flows(count, &plan, &mut rng);
        let mut turn = 0_u64;
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                turn += 1;
                // Time goes on so slowly that none ends meanwhile.
                let now = Moment(turn >> 16);
                let client = u32::try_from(rng.below(count.into())).unwrap_or(0);
                let frontend = &plan.frontends()[0];
                let load = Load::one(64);
                let verdict = flows.from_client(now, key(client), load, frontend, &mut rng);
                if let Verdict::Forward(flow) = verdict {
                    black_box(flows.from_endpoint(now, flow, load));
                }
                verdict
            });
        });
    }
    group.finish();
}

fn open_and_expire(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("flow/open and expire");
    for count in COUNTS {
        let mut rng = Rng::new(1);
        let plan = plan(&mut rng);
        // Enough ports for two endpoints with half of the flows each.
        let ports = (1..=u16::MAX).collect();
        let mut flows = FlowTable::<()>::new(WorkerId(0), 1_000_000, 7).with_ports(ports);
        let mut client = 0_u32;
        // So many new ones in 60 s that as many are there as are meant to be.
        let moment = |client: u32| Moment(u64::from(client) * 60_000 / u64::from(count));
        let mut next = || {
            client = client.wrapping_add(1);
            let now = moment(client);
            if flows
                .next_deadline()
                .is_some_and(|deadline| deadline <= now)
            {
                flows.expire(now);
            }
            let frontend = &plan.frontends()[0];
            let verdict = flows.from_client(now, key(client), Load::one(64), frontend, &mut rng);
            let Verdict::Open { flow, .. } = verdict else {
                return (None, flows.len());
            };
            let local = flows.take_port(now, flow, None, &mut rng);
            (local, flows.len())
        };
        for _ in 0..2 * count {
            black_box(next());
        }
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(&mut next);
        });
        let (_, there) = next();
        assert!(there.abs_diff(count as usize) <= 2, "{there} flows");
    }
    group.finish();
}

/// What the machine's memory costs, to compare with: one of many cells, and by that two lines of one of as many slots as there
/// are flows, each of the size that a flow has. Nothing can look a flow up for less.
fn memory_alone(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("flow/the memory alone");
    for count in COUNTS {
        let mut rng = Rng::new(1);
        let cells = (count * 3 / 2).next_power_of_two();
        let index: Vec<u64> = (0..cells).map(|_| rng.below(count.into())).collect();
        let mut slots = vec![[0_u64; 24]; count as usize];
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter(|| {
                let cell = usize::try_from(rng.below(cells.into())).unwrap_or(0);
                let place = usize::try_from(index[cell]).unwrap_or(0);
                let slot = &mut slots[place];
                slot[0] += 1;
                slot[12] += slot[0];
                slot[12]
            });
        });
    }
    group.finish();
}

const COUNTS: [u32; 3] = [100, 10_000, 100_000];

criterion_group!(benches, look_up, open_and_expire, memory_alone);
criterion_main!(benches);
