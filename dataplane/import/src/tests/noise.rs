//! Texts that nobody wrote: an import keeps its promises.

use std::fs;
use std::path::Path;

use super::oracle::check;
use super::{SAMPLES, sample};

/// A generator of numbers that is the same everywhere.
struct Dice(u64);

impl Dice {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap_or(0) % below.max(1)
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.next(items.len())]
    }
}

#[test]
fn any_bytes_are_imported() {
    for seed in 1..400_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let length = dice.next(400);
        let letters =
            b" \t\n\n\"'\\#${}-@:/.,!|*[]()0123456789abcdefrontendlistbackservpx\0\xff\xc3\xa4\r";
        let bytes: Vec<u8> = (0..length).map(|_| *dice.of(letters)).collect();
        println!("seed {seed}");
        check(&bytes);
    }
}

#[test]
fn spoilt_samples_are_imported() {
    let samples = SAMPLES.map(sample);
    let words: Vec<&str> = samples
        .iter()
        .flat_map(|text| text.split_whitespace())
        .collect();
    for seed in 1..400_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut lines: Vec<String> = dice.of(&samples).lines().map(str::to_owned).collect();
        for _ in 0..=dice.next(12) {
            let at = dice.next(lines.len());
            let mut spoilt: Vec<&str> = lines[at].split_whitespace().collect();
            let place = dice.next(spoilt.len() + 1);
            match dice.next(6) {
                0 => drop(lines.remove(at)),
                1 => {
                    let other = dice.of(&lines).clone();
                    lines.insert(at, other);
                }
                2 => {
                    spoilt.insert(place, dice.of::<&str>(&words));
                    lines[at] = spoilt.join(" ");
                }
                3 if place < spoilt.len() => {
                    spoilt[place] = dice.of::<&str>(&words);
                    lines[at] = spoilt.join(" ");
                }
                4 if place < spoilt.len() => {
                    spoilt.remove(place);
                    lines[at] = spoilt.join(" ");
                }
                _ => {
                    let number = dice.of(&[
                        "0",
                        "-1",
                        "70000",
                        "99999999999999999999",
                        "\"",
                        "\\",
                        "{",
                        "!",
                        "%[src]",
                        "*",
                        "::",
                        "10.0.0.0/33",
                        "\u{2028}",
                        "\u{85}",
                    ]);
                    lines[at] = format!("{} {number}", lines[at]);
                }
            }
            if lines.is_empty() {
                break;
            }
        }
        println!("seed {seed}");
        check(lines.join("\n").as_bytes());
    }
}

/// What the fuzzer begins with, and what it found.
#[test]
fn the_corpus_of_the_fuzzer_is_imported() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/import");
    let mut files = 0;
    for entry in fs::read_dir(folder).expect("the corpus") {
        let path = entry.expect("an entry").path();
        println!("{}", path.display());
        check(&fs::read(path).expect("a file"));
        files += 1;
    }
    assert!(files > 4, "{files} files");
}
