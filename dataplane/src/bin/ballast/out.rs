//! What the commands say that end by themselves: results on standard output, reasons on standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use ballast::show::Unanswered;

use crate::FAULT;

pub(crate) fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text).and_then(|()| out.flush())
}

/// Standard output and standard error, for a process that this one starts.
pub(crate) fn streams() -> (io::Stdout, io::Stderr) {
    (io::stdout(), io::stderr())
}

/// Ends with `code` if the result was printed; else says why it was not. A reader that ends early, such as `head`, has read
/// enough.
pub(crate) fn ended(printed: io::Result<()>, code: u8) -> ExitCode {
    match printed {
        Ok(()) => ExitCode::from(code),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::from(code),
        Err(error) => {
            say(&format!("ballast: {}", Unanswered::Unwritten(error)));
            ExitCode::from(FAULT)
        }
    }
}

/// Says lines on standard error. Control characters, as the name of a file may have them, are shown and do nothing.
pub(crate) fn say(lines: &str) {
    let mut shown = String::with_capacity(lines.len() + 1);
    for letter in lines.chars() {
        if letter.is_control() && letter != '\n' && letter != '\t' {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown.push('\n');
    // Where standard error cannot be written there is no other place for the error.
    io::stderr().write_all(shown.as_bytes()).ok();
}
