//! What the PROXY protocol costs a connection: reading a header, and writing one into a buffer that
//! is used again.

use std::hint::black_box;

use ballast_core::preamble::{
    Addresses, Extras, Parsed, Transport, Versions, encode_v1, encode_v2, step,
};
use criterion::{Criterion, criterion_group, criterion_main};

fn reading(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("preamble/read");
    for (name, header) in headers() {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let verdict = step(black_box(&header), Versions::Both, Transport::Tcp);
                assert!(matches!(verdict, Parsed::Header(_)));
            });
        });
    }
    group.finish();
}

fn writing(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("preamble/write");
    let mut out = Vec::with_capacity(256);
    group.bench_function("v1", |bencher| {
        bencher.iter(|| {
            out.clear();
            encode_v1(black_box(client()), &mut out);
            black_box(&out);
        });
    });
    for (name, extras) in [
        ("v2", Extras::default()),
        ("v2, authority and checksum", extras()),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                out.clear();
                encode_v2(
                    black_box(client()),
                    Transport::Tcp,
                    black_box(&extras),
                    &mut out,
                );
                black_box(&out);
            });
        });
    }
    group.finish();
}

fn headers() -> [(&'static str, Vec<u8>); 3] {
    let (mut line, mut plain, mut full) = (Vec::new(), Vec::new(), Vec::new());
    encode_v1(client(), &mut line);
    encode_v2(client(), Transport::Tcp, &Extras::default(), &mut plain);
    encode_v2(client(), Transport::Tcp, &extras(), &mut full);
    [
        ("v1", line),
        ("v2", plain),
        ("v2, authority and checksum", full),
    ]
}

fn client() -> Addresses {
    Addresses {
        source: ([192, 0, 2, 1], 56324).into(),
        destination: ([198, 51, 100, 2], 443).into(),
    }
}

fn extras() -> Extras<'static> {
    Extras {
        authority: Some("shop.example.com"),
        has_checksum: true,
        ..Extras::default()
    }
}

criterion_group!(benches, reading, writing);
criterion_main!(benches);
