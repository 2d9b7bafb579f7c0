//! The difference of two texts, which a failing case prints.

use std::fmt::Write;

/// The lines that differ, with a few lines around them.
pub(crate) fn lines(expected: &str, found: &str) -> String {
    let old: Vec<&str> = expected.lines().collect();
    let new: Vec<&str> = found.lines().collect();
    // lengths[i][j]: the length of the longest common part of old[i..] and new[j..].
    let mut lengths = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            lengths[i][j] = match old[i] == new[j] {
                true => lengths[i + 1][j + 1] + 1,
                false => lengths[i + 1][j].max(lengths[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut steps = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            steps.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && lengths[i + 1][j] >= lengths[i][j + 1]) {
            steps.push(('-', old[i]));
            i += 1;
        } else {
            steps.push(('+', new[j]));
            j += 1;
        }
    }
    let is_near = |index: usize| {
        let around = index.saturating_sub(AROUND)..(index + AROUND + 1).min(steps.len());
        steps[around].iter().any(|(mark, _)| *mark != ' ')
    };
    let mut text = String::new();
    for (index, (mark, line)) in steps.iter().enumerate() {
        if is_near(index) {
            writeln!(text, "  {mark} {line}").expect("a String takes everything");
        }
    }
    text
}

const AROUND: usize = 3;
