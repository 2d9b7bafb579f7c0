//! Conditional blocks of a configuration: `.if`, `.elif`, `.else`, `.endif`, and the expressions behind them.

use super::importer::Importer;
use super::report::Kind;
use super::words::Line;

/// The blocks that are open where the reader is, the outermost first.
#[derive(Debug, Default)]
pub(super) struct Blocks(Vec<Block>);

/// One block between `.if` and `.endif`.
#[derive(Debug)]
struct Block {
    /// The directive that the lines here stand behind.
    directive: Line,
    branch: Branch,
    /// Whether `.else` was there already.
    is_last: bool,
    /// The last line that was passed over behind the directive.
    last: usize,
}

/// What becomes of the lines of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Branch {
    /// They are read.
    Read,
    /// They are not read, and a branch below may be.
    NotYet,
    /// They are not read, because a branch above was.
    NoMore,
    /// The whole block stands in one that is not read.
    Inside,
    /// The condition is not understood, so that no branch of the block is read.
    NotUnderstood,
}

impl Blocks {
    /// Whether the lines here are read. Where they are not, this one is counted to those that were passed over.
    pub(super) fn are_read(&mut self, number: usize) -> bool {
        let open = self.0.iter_mut();
        let mut closed = open.filter(|block| block.branch != Branch::Read);
        match closed.next() {
            Some(block) => {
                block.last = number;
                false
            }
            None => true,
        }
    }

    /// Whether one of the blocks is not understood, so that its lines may be meant.
    pub(super) fn are_unsure(&self) -> bool {
        let mut open = self.0.iter();
        open.any(|block| block.branch == Branch::NotUnderstood)
    }

    /// Reads a line that begins with a dot. `variable` has the environment.
    pub(super) fn directive(
        &mut self,
        importer: &mut Importer<'_>,
        line: Line,
        variable: &dyn Fn(&str) -> Option<String>,
    ) {
        let inside = match line.word(0) {
            ".if" => !self.are_read(line.number),
            _ => false,
        };
        let condition = line.from(1).join(" ");
        match (line.word(0), self.0.last_mut()) {
            (".if", _) => {
                let branch = match inside {
                    true => Branch::Inside,
                    false => importer.branch(&line, &condition, variable),
                };
                self.0.push(Block {
                    last: line.number,
                    directive: line,
                    branch,
                    is_last: false,
                });
            }
            (".elif" | ".else", Some(block)) if !block.is_last => {
                if matches!(block.branch, Branch::Inside | Branch::NotUnderstood) {
                    block.last = line.number;
                    return;
                }
                block.end(importer);
                block.is_last = line.word(0) == ".else";
                block.branch = match (block.branch, block.is_last) {
                    (Branch::NotYet, true) => Branch::Read,
                    (Branch::NotYet, false) => importer.branch(&line, &condition, variable),
                    _ => Branch::NoMore,
                };
                block.last = line.number;
                block.directive = line;
            }
            (".endif", Some(block)) => {
                block.end(importer);
                self.0.pop();
            }
            (".notice" | ".warning" | ".alert" | ".diag", _) => {}
            _ => importer
                .report
                .left_out(&line, "is no directive that stands here; remove it"),
        }
    }

    /// Reports what is open at the end of the file.
    pub(super) fn end(self, importer: &mut Importer<'_>) {
        for block in self.0 {
            block.end(importer);
            importer
                .report
                .left_out(&block.directive, "the block has no .endif; close it");
        }
    }
}

impl Block {
    /// Reports the lines behind the directive that were not read.
    fn end(&self, importer: &mut Importer<'_>) {
        let (kind, why) = match self.branch {
            Branch::Read | Branch::Inside => return,
            Branch::NotYet => (
                Kind::Note,
                "it does not hold here, so its lines are not read; import again when that changes",
            ),
            Branch::NoMore => (
                Kind::Note,
                "a branch above it was read, so its lines are not",
            ),
            Branch::NotUnderstood => (
                Kind::LeftOut,
                "no branch of the block is read; write down what holds",
            ),
        };
        let report = &mut importer.report;
        report.lines(kind, &self.directive, self.last, why);
    }
}

impl Importer<'_> {
    /// What becomes of the branch that begins with this condition.
    fn branch(
        &mut self,
        line: &Line,
        condition: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Branch {
        let mut reader = Reader {
            rest: condition,
            depth: 0,
            variable,
            of_program: None,
        };
        let holds = reader.condition();
        if let Some(predicate) = reader.of_program {
            let why = format!(
                "`{predicate}` is answered as by the newest haproxy and OpenSSL, which may not be yours; write the lines of the branch that yours reads"
            );
            self.report.differs(line, why);
        }
        match holds {
            Ok(true) => {
                let why = "it holds here, so its lines are read; import again when that changes";
                self.report.note(line, why);
                Branch::Read
            }
            Ok(false) => Branch::NotYet,
            Err(why) => {
                self.report.left_out(line, why);
                Branch::NotUnderstood
            }
        }
    }
}

/// Reads a condition from left to right.
struct Reader<'a> {
    rest: &'a str,
    depth: u32,
    variable: &'a dyn Fn(&str) -> Option<String>,
    /// A predicate about haproxy itself.
    of_program: Option<String>,
}

impl<'a> Reader<'a> {
    fn condition(&mut self) -> Result<bool, String> {
        if self.rest.trim().is_empty() {
            return Ok(false);
        }
        let holds = self.any()?;
        match self.rest.trim() {
            "" => Ok(holds),
            rest => Err(not_understood(rest)),
        }
    }

    /// Alternatives, of which one must hold; in each all terms must.
    fn any(&mut self) -> Result<bool, String> {
        let mut any = false;
        loop {
            let mut all = self.term()?;
            while self.takes("&&") {
                all &= self.term()?;
            }
            any |= all;
            if !self.takes("||") {
                return Ok(any);
            }
        }
    }

    fn term(&mut self) -> Result<bool, String> {
        let mut negated = false;
        while self.takes("!") {
            negated = !negated;
        }
        if !self.takes("(") {
            return Ok(self.predicate()? != negated);
        }
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err("the condition has too many parentheses; write it simpler".into());
        }
        let holds = self.any()?;
        self.depth -= 1;
        match self.takes(")") {
            true => Ok(holds != negated),
            false => Err("the condition has an open parenthesis; close it".into()),
        }
    }

    fn predicate(&mut self) -> Result<bool, String> {
        self.rest = self.rest.trim_start();
        let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "_-+".contains(letter);
        let end = self.rest.find(|letter| !is_of_word(letter));
        let (word, rest) = self.cut(end.unwrap_or(self.rest.len()));
        let Some(inner) = rest.strip_prefix('(') else {
            let digits = word.trim_start_matches(['-', '+']);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(not_understood(self.rest));
            }
            self.rest = rest;
            return Ok(digits.bytes().any(|byte| byte != b'0'));
        };
        let Some((inner, rest)) = inner.split_once(')') else {
            return Err("the condition has an open parenthesis; close it".into());
        };
        let arguments: Vec<&str> = inner.split(',').collect();
        let holds = match (word, arguments.as_slice()) {
            ("defined", [name]) => (self.variable)(name).is_some(),
            ("streq", [one, other]) => one == other,
            ("strneq", [one, other]) => one != other,
            ("strstr", [whole, part]) => whole.contains(part),
            ("feature", ["OPENSSL"]) => true,
            ("version_atleast" | "openssl_version_atleast", [_]) => {
                self.of_program = Some(format!("{word}({inner})"));
                true
            }
            ("version_before" | "openssl_version_before", [_]) => {
                self.of_program = Some(format!("{word}({inner})"));
                false
            }
            _ => return Err(not_understood(self.rest)),
        };
        self.rest = rest;
        Ok(holds)
    }

    fn takes(&mut self, sign: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn cut(&self, at: usize) -> (&'a str, &'a str) {
        self.rest.split_at_checked(at).unwrap_or((self.rest, ""))
    }
}

fn not_understood(rest: &str) -> String {
    format!(
        "the condition is not understood at {rest:?}; expected defined, streq, strneq, strstr, version_atleast, version_before or a number"
    )
}

/// Parentheses within one another.
const DEEPEST: u32 = 16;
