//! One line of the runtime socket, taken apart: `;` separates commands, a `\` makes the next letter an ordinary one.

/// The commands of a line, each as its words. Where there is nothing between two `;`, there is no command.
pub(super) fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word = None;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => {
                let word: &mut String = word.get_or_insert_default();
                word.push(letters.next().unwrap_or('\\'));
            }
            ';' => {
                end(&mut commands, word.take());
                commands.push(Vec::new());
            }
            letter if letter.is_ascii_whitespace() => end(&mut commands, word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    end(&mut commands, word);
    commands.retain(|words| !words.is_empty());
    commands
}

fn end(commands: &mut [Vec<String>], word: Option<String>) {
    if let (Some(command), Some(word)) = (commands.last_mut(), word) {
        command.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_commands_and_a_command_is_words() {
        for (line, expected) in [
            ("", &[][..]),
            (" ; ;;", &[]),
            ("show info", &[&["show", "info"][..]]),
            ("\tshow   info \r", &[&["show", "info"]]),
            (
                "show info;show stat typed ; quit",
                &[&["show", "info"], &["show", "stat", "typed"], &["quit"]],
            ),
            (r"a\;b\ c \\", &[&["a;b c", r"\"]]),
            (r"a \", &[&["a", r"\"]]),
            ("a\\\u{e9}\u{1f600}", &[&["a\u{e9}\u{1f600}"]]),
        ] {
            assert_eq!(commands(line), expected, "{line:?}");
        }
    }
}
