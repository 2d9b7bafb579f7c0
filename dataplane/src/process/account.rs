//! Users and groups of this host, by their names and numbers in its files.

use std::fs;

/// A user, and the groups that come with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub number: u32,
    /// `None`: the user has no line.
    pub group: Option<u32>,
    /// The further groups.
    pub groups: Vec<u32>,
}

/// The user with this name or number.
pub fn user(word: &str) -> Result<User, String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    user_of(word, &read(USERS), &read(GROUPS))
}

/// The number of the group with this name or number.
pub fn group(word: &str) -> Result<u32, String> {
    if let Ok(number) = word.parse() {
        return Ok(number);
    }
    let groups = fs::read_to_string(GROUPS).unwrap_or_default();
    let mut groups = groups.lines().filter_map(Line::of);
    groups
        .find(|group| group.name == word)
        .map(|group| group.number)
        .ok_or_else(|| format!("is no group of {GROUPS}; expected its name or its number"))
}

fn user_of(word: &str, users: &str, groups: &str) -> Result<User, String> {
    let number: Option<u32> = word.parse().ok();
    let is_it = |user: &Line<'_>| match number {
        Some(number) => user.number == number,
        None => user.name == word,
    };
    match (users.lines().filter_map(Line::of).find(is_it), number) {
        (Some(user), _) => {
            let groups = groups.lines().filter_map(Line::of);
            let has_it = |group: &Line<'_>| group.rest.split(',').any(|name| name == user.name);
            Ok(User {
                number: user.number,
                group: user
                    .rest
                    .split(':')
                    .next()
                    .and_then(|group| group.parse().ok()),
                groups: groups.filter(has_it).map(|group| group.number).collect(),
            })
        }
        (None, Some(number)) => Ok(User {
            number,
            group: None,
            groups: Vec::new(),
        }),
        (None, None) => Err(format!(
            "is no user of {USERS}; expected its name or its number"
        )),
    }
}

/// A line of either file: a name, a secret that is elsewhere, a number and the rest.
struct Line<'a> {
    name: &'a str,
    number: u32,
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut fields = line.splitn(4, ':');
        let name = fields.next()?;
        let number = fields.nth(1)?.parse().ok()?;
        let rest = fields.next()?;
        Some(Self { name, number, rest })
    }
}

const USERS: &str = "/etc/passwd";
const GROUPS: &str = "/etc/group";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_comes_with_its_groups_whether_by_name_or_number() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\nhalf\nedge:x:900:901:Edge:/:/bin/false\n+::::::\n";
        let groups = "root:x:0:\nedge:x:901:\nkeys:x:950:www,edge\nother:x:951:wedge,edged\nlogs:x:952:edge\nhalf:x\n";
        let edge = User {
            number: 900,
            group: Some(901),
            groups: vec![950, 952],
        };
        let stranger = User {
            number: 4711,
            group: None,
            groups: Vec::new(),
        };
        for (word, expected) in [
            ("edge", Some(&edge)),
            ("900", Some(&edge)),
            ("4711", Some(&stranger)),
            ("nobody", None),
            ("half", None),
            ("-1", None),
            ("", None),
        ] {
            let found = user_of(word, users, groups);
            assert_eq!(found.as_ref().ok(), expected, "{word}: {found:?}");
        }
        assert_eq!(group("root"), Ok(0));
        assert_eq!(group("950"), Ok(950));
        group("no such group").unwrap_err();
    }
}
