//! Lines of haproxy's configuration, cut into words: quotes, escapes, comments and environment variables.

use std::iter::Peekable;
use std::rc::Rc;
use std::str::Chars;

use super::report::one_line;

/// A line that says something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Its number in the file, from 1.
    pub(super) number: usize,
    /// Its words, at least one.
    pub(super) words: Rc<[String]>,
    /// The line for people: without passwords and control characters, and not too long.
    pub(super) shown: Rc<str>,
}

impl Line {
    /// The word at this place, or an empty one.
    pub(super) fn word(&self, index: usize) -> &str {
        self.words.get(index).map_or("", String::as_str)
    }

    /// The words from this place on.
    pub(super) fn from(&self, index: usize) -> &[String] {
        self.words.get(index..).unwrap_or_default()
    }
}

/// A line that could be cut into words, or the reason why it could not.
pub(super) struct Cut {
    pub(super) line: Line,
    pub(super) wrong: Option<String>,
    /// Environment variables that are named and not set.
    pub(super) unset: Vec<String>,
}

/// Cuts one line; `None` where it is empty or a comment.
pub(super) fn cut(
    number: usize,
    raw: &[u8],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Option<Cut> {
    let text = String::from_utf8_lossy(raw);
    let mut cutter = Cutter {
        rest: text.chars().peekable(),
        variable,
        words: Vec::new(),
        word: None,
        unset: Vec::new(),
        expanded: 0,
    };
    let mut wrong = cutter.words().err();
    let (words, unset) = (cutter.words, cutter.unset);
    if words.is_empty() && wrong.is_none() {
        return None;
    }
    let has = |letter: char| words.iter().any(|word| word.contains(letter));
    if wrong.is_none() && has('\0') {
        wrong = Some("has a NUL byte, at which haproxy ends the line; take it out".into());
    }
    if wrong.is_none() && has(char::REPLACEMENT_CHARACTER) {
        wrong = Some("is not UTF-8; write it in plain letters".into());
    }
    let shown = shown(&text, &words);
    let line = Line {
        number,
        words: words.into(),
        shown: shown.into(),
    };
    Some(Cut { line, wrong, unset })
}

struct Cutter<'a> {
    rest: Peekable<Chars<'a>>,
    variable: &'a dyn Fn(&str) -> Option<String>,
    words: Vec<String>,
    word: Option<String>,
    unset: Vec<String>,
    /// How many bytes variables have had so far.
    expanded: usize,
}

impl Cutter<'_> {
    fn words(&mut self) -> Result<(), String> {
        let (mut weak, mut strong) = (false, false);
        while let Some(letter) = self.rest.next() {
            match letter {
                '\'' if strong => strong = false,
                _ if strong => self.add(letter),
                '\\' => self.escape()?,
                '"' => {
                    weak = !weak;
                    self.word.get_or_insert_default();
                }
                '$' if weak => self.expand()?,
                _ if weak => self.add(letter),
                '\'' => {
                    strong = true;
                    self.word.get_or_insert_default();
                }
                '#' => break,
                _ if letter.is_ascii_whitespace() => self.end_word(),
                _ => self.add(letter),
            }
        }
        self.end_word();
        match weak || strong {
            true => Err("a quotation mark is open at its end; close it on the same line".into()),
            false => Ok(()),
        }
    }

    fn add(&mut self, letter: char) {
        self.word.get_or_insert_default().push(letter);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    /// What follows a backslash. One before any other letter stands for itself, as in regular expressions.
    fn escape(&mut self) -> Result<(), String> {
        let next = self.rest.peek().copied();
        let letter = match next {
            Some(' ' | '\t' | '\\' | '#' | '\'' | '"' | '$') => next,
            Some('n') => Some('\n'),
            Some('r') => Some('\r'),
            Some('t') => Some('\t'),
            Some('x') => {
                self.rest.next();
                let mut digit = || self.rest.next().and_then(|digit| digit.to_digit(16));
                let (Some(high), Some(low)) = (digit(), digit()) else {
                    return Err("has \\x without two hexadecimal digits; write them".into());
                };
                let letter = char::from_u32(high * 16 + low).filter(char::is_ascii);
                self.add(letter.unwrap_or(char::REPLACEMENT_CHARACTER));
                return Ok(());
            }
            None => {
                return Err(
                    "ends with a backslash, but haproxy continues no line on the next one; write it as one line"
                        .into(),
                );
            }
            Some(_) => {
                self.add('\\');
                return Ok(());
            }
        };
        self.rest.next();
        if let Some(letter) = letter {
            self.add(letter);
        }
        Ok(())
    }

    /// `$NAME`, `${NAME}`, `${NAME-value}` or `${NAME[*]}`, which makes a word of each of the variable's.
    fn expand(&mut self) -> Result<(), String> {
        let braces = self.rest.next_if_eq(&'{').is_some();
        let is_of_name = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
        let mut name = String::new();
        while let Some(letter) = self.rest.next_if(is_of_name) {
            name.push(letter);
        }
        if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
            return Err(
                "has $ without the name of a variable; write \\$ for the sign itself".into(),
            );
        }
        let mut value = (self.variable)(&name);
        let mut as_words = false;
        if braces {
            let mut more = String::new();
            loop {
                match self.rest.next() {
                    Some('}') => break,
                    Some(letter) => more.push(letter),
                    None => return Err(format!("has ${{{name} without a closing brace; close it")),
                }
            }
            let (list, default) = match more.strip_prefix("[*]") {
                Some(rest) => (true, rest),
                None => (false, more.as_str()),
            };
            as_words = list;
            match default.strip_prefix('-') {
                Some(default) => {
                    value.get_or_insert_with(|| default.into());
                }
                None if default.is_empty() => {}
                None => {
                    return Err(format!(
                        "has ${{{name}{more}}}; expected ${{{name}}}, ${{{name}-VALUE}} or ${{{name}[*]}}"
                    ));
                }
            }
        }
        if value.is_none() {
            self.unset.push(name);
        }
        let value = value.unwrap_or_default();
        self.expanded = self.expanded.saturating_add(value.len());
        if self.expanded > LONGEST {
            return Err(format!(
                "has variables of more than {LONGEST} bytes; write what they say"
            ));
        }
        self.word.get_or_insert_default();
        for letter in value.chars() {
            match as_words && letter == ' ' {
                true => self.end_word(),
                false => self.add(letter),
            }
        }
        Ok(())
    }
}

/// The line as it is quoted in messages.
fn shown(text: &str, words: &[String]) -> String {
    let secret = match words {
        [stats, auth, ..] if stats == "stats" && auth == "auth" => Some("stats auth …"),
        [user, name, ..] if user == "user" && !name.is_empty() && words.len() > 2 => Some("user …"),
        [setenv, ..] if setenv == "setenv" || setenv == "presetenv" => Some("setenv …"),
        _ => None,
    };
    if let Some(shown) = secret {
        return shown.into();
    }
    let plain = one_line(text.trim());
    match plain.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", plain.get(..end).unwrap_or_default()),
        None => plain,
    }
}

/// Bytes that the variables of one line have together: lines that name one another's would be without end.
const LONGEST: usize = 65_536;

/// Letters of a line that messages quote.
const SHOWN: usize = 120;
