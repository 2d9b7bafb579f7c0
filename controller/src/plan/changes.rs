//! The difference between the running table and a new one, as one unified diff for each frontend and service.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

use ballast_core::table::RoutingTable;
use serde::Serialize;
use serde_saphyr::SerializeError;

/// One diff for every part that differs: the head, then the frontends, then the services, by name.
pub(super) fn changes(
    running: &RoutingTable,
    next: &RoutingTable,
) -> Result<String, SerializeError> {
    let mut text = String::new();
    let (before, after) = (parts(running)?, parts(next)?);
    let mut names: Vec<&(TablePart, String)> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    for part in names {
        let (old, new) = (before.get(part), after.get(part));
        if old == new {
            continue;
        }
        let (kind, name) = part;
        let head = |there: Option<&String>| match there {
            Some(_) => format!("{}{name}", kind.word()),
            None => "/dev/null".to_owned(),
        };
        // A String takes everything.
        _ = writeln!(text, "--- {}\n+++ {}", head(old), head(new));
        let lines = |text: Option<&String>| text.map_or("", String::as_str).to_owned();
        text.push_str(&unified(&lines(old), &lines(new)));
    }
    Ok(text)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TablePart {
    Head,
    Frontend,
    Service,
}

impl TablePart {
    const fn word(self) -> &'static str {
        match self {
            Self::Head => "the settings of the table",
            Self::Frontend => "frontend ",
            Self::Service => "service ",
        }
    }
}

/// Every part of a table as YAML. The generation is left out, since it changes with every table.
fn parts(table: &RoutingTable) -> Result<BTreeMap<(TablePart, String), String>, SerializeError> {
    let head = RoutingTable {
        generation: None,
        frontends: Vec::new(),
        services: Vec::new(),
        ..table.clone()
    };
    let mut parts = BTreeMap::from([((TablePart::Head, String::new()), yaml(&head)?)]);
    for frontend in &table.frontends {
        parts.insert(
            (TablePart::Frontend, frontend.name.to_string()),
            yaml(frontend)?,
        );
    }
    for service in &table.services {
        parts.insert(
            (TablePart::Service, service.name.to_string()),
            yaml(service)?,
        );
    }
    Ok(parts)
}

fn yaml(part: &impl Serialize) -> Result<String, SerializeError> {
    serde_saphyr::to_string(part)
}

/// The hunks of a unified diff of two texts.
fn unified(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let steps = steps(&old, &new);
    let mut text = String::new();
    for hunk in hunks(&steps) {
        let before = steps.get(..hunk.start).unwrap_or_default();
        let inside = steps.get(hunk).unwrap_or_default();
        let place = |other: char| {
            let count = |steps: &[Step<'_>]| steps.iter().filter(|step| step.0 != other).count();
            let (first, length) = (count(before), count(inside));
            format!("{},{length}", first + usize::from(length > 0))
        };
        _ = writeln!(text, "@@ -{} +{} @@", place('+'), place('-'));
        for (mark, line) in inside {
            _ = writeln!(text, "{mark}{line}");
        }
    }
    text
}

/// A line that is kept (` `), goes (`-`) or comes (`+`).
type Step<'a> = (char, &'a str);

/// The steps that turn one text into the other.
fn steps<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Step<'a>> {
    let same = |pairs: &mut dyn Iterator<Item = (&&str, &&str)>| {
        pairs.take_while(|(old, new)| old == new).count()
    };
    let start = same(&mut old.iter().zip(new));
    let longest = old.len().min(new.len()) - start;
    let end = same(&mut old.iter().rev().zip(new.iter().rev())).min(longest);
    let middle = |lines: &[&'a str]| -> Vec<&'a str> {
        let lines = lines.get(start..lines.len() - end);
        lines.unwrap_or_default().to_vec()
    };
    let kept = |lines: &[&'a str]| lines.iter().map(|line| (' ', *line)).collect::<Vec<_>>();
    let mut steps = kept(new.get(..start).unwrap_or_default());
    steps.extend(changed(&middle(old), &middle(new)));
    steps.extend(kept(new.get(new.len() - end..).unwrap_or_default()));
    steps
}

/// The same for texts that differ at both ends, by their longest common part.
fn changed<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<Step<'a>> {
    let width = new.len() + 1;
    if old.len().saturating_mul(width) > MOST_PAIRS {
        let gone = old.iter().map(|line| ('-', *line));
        return gone.chain(new.iter().map(|line| ('+', *line))).collect();
    }
    // At i and j: the length of the longest common part of old[i..] and new[j..].
    let mut lengths = vec![0_u32; (old.len() + 1) * width];
    let at = |i: usize, j: usize| i * width + j;
    let length = |lengths: &[u32], place: usize| lengths.get(place).copied().unwrap_or_default();
    for (i, was) in old.iter().enumerate().rev() {
        for (j, is) in new.iter().enumerate().rev() {
            let best = match was == is {
                true => length(&lengths, at(i + 1, j + 1)) + 1,
                false => length(&lengths, at(i + 1, j)).max(length(&lengths, at(i, j + 1))),
            };
            if let Some(place) = lengths.get_mut(at(i, j)) {
                *place = best;
            }
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut steps = Vec::new();
    loop {
        match (old.get(i), new.get(j)) {
            (None, None) => return steps,
            (Some(was), Some(is)) if was == is => {
                steps.push((' ', *is));
                (i, j) = (i + 1, j + 1);
            }
            (Some(was), is)
                if is.is_none()
                    || length(&lengths, at(i + 1, j)) >= length(&lengths, at(i, j + 1)) =>
            {
                steps.push(('-', *was));
                i += 1;
            }
            (_, is) => {
                steps.extend(is.map(|line| ('+', *line)));
                j += 1;
            }
        }
    }
}

/// The ranges of steps that are shown: changes, with a few lines around each.
fn hunks(steps: &[Step<'_>]) -> Vec<Range<usize>> {
    let mut hunks: Vec<Range<usize>> = Vec::new();
    for (index, (mark, _)) in steps.iter().enumerate() {
        if *mark == ' ' {
            continue;
        }
        let around = index.saturating_sub(AROUND)..(index + AROUND + 1).min(steps.len());
        match hunks.last_mut() {
            Some(last) if around.start <= last.end => last.end = around.end,
            _ => hunks.push(around),
        }
    }
    hunks
}

const AROUND: usize = 3;
/// The most pairs of lines that are compared. A larger part is shown as removed and added.
const MOST_PAIRS: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(letters: &str) -> String {
        letters
            .chars()
            .map(|letter| format!("{letter}\n"))
            .collect()
    }

    #[test]
    fn a_diff_has_what_changes_and_three_lines_around_it() {
        let cases = [
            ("abc", "abc", ""),
            ("", "ab", "@@ -0,0 +1,2 @@ +a +b "),
            ("ab", "", "@@ -1,2 +0,0 @@ -a -b "),
            ("aa", "aaa", "@@ -1,2 +1,3 @@  a  a +a "),
            ("aaa", "aa", "@@ -1,3 +1,2 @@  a  a -a "),
            (
                "abcdefgh",
                "abcdXefgh",
                "@@ -2,6 +2,7 @@  b  c  d +X  e  f  g ",
            ),
            (
                "abcdefghijk",
                "Xbcdefghijk0",
                "@@ -1,4 +1,4 @@ -a +X  b  c  d @@ -9,3 +9,4 @@  i  j  k +0 ",
            ),
            (
                "abcdefgh",
                "Xbcdefg",
                "@@ -1,8 +1,7 @@ -a +X  b  c  d  e  f  g -h ",
            ),
            ("abc", "cab", "@@ -1,3 +1,3 @@ +c  a  b -c "),
        ];
        for (old, new, expected) in cases {
            let found = unified(&lines(old), &lines(new)).replace('\n', " ");
            assert_eq!(found, expected, "{old} to {new}");
        }
    }

    #[test]
    fn what_is_too_much_to_compare_goes_and_comes() {
        let many = |letter: &str| letter.repeat(3_000);
        let found = unified(&lines(&many("ab")), &lines(&many("ba")));
        assert!(found.lines().count() >= 6_000, "{}", found.lines().count());
    }
}
