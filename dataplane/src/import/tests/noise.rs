//! Texts that nobody wrote: an import ends, with a good table.

use super::{import, sample};

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
fn any_bytes_become_a_good_table() {
    for seed in 1..400_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let length = dice.next(400);
        let letters =
            b" \t\n\n\"'\\#${}-@:/.,!|*[]()0123456789abcdefrontendlistbackservpx\0\xff\xc3\xa4\r";
        let bytes: Vec<u8> = (0..length).map(|_| *dice.of(letters)).collect();
        println!("seed {seed}");
        import_bytes(&bytes);
    }
}

#[test]
fn spoilt_samples_become_good_tables() {
    let samples = ["service-loadbalancer", "web", "tcp", "trouble"].map(sample);
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
        import(&lines.join("\n"));
    }
}

fn import_bytes(bytes: &[u8]) {
    let imported = super::translate("x\ny", bytes, &super::Made::new(), false);
    let table = super::parse(imported.table.as_bytes(), super::Format::Yaml);
    assert!(table.is_ok(), "{bytes:?}\n{}\n{table:?}", imported.table);
}
