//! Appending text to what is in memory. It cannot fail, so no result has to be dropped where text is made.

use std::fmt;
use std::io;
use std::net::IpAddr;

/// A `String` or a vector of bytes that text is appended to. It takes the place of `std::fmt::Write` and `std::io::Write`: with
/// this trait in scope alone, `write!` and `writeln!` return nothing.
pub trait Append {
    fn text(&mut self, text: &str);

    /// What `write!` calls.
    fn write_fmt(&mut self, text: fmt::Arguments<'_>);

    /// Appends a number in decimal, without what formatting costs.
    fn number(&mut self, number: u64) {
        self.text(itoa::Buffer::new().format(number));
    }

    /// Appends an address, one of IPv4 without what formatting costs.
    fn ip(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => {
                let mut before = "";
                for octet in v4.octets() {
                    self.text(before);
                    self.number(octet.into());
                    before = ".";
                }
            }
            IpAddr::V6(v6) => write!(self, "{v6}"),
        }
    }
}

impl Append for String {
    fn text(&mut self, text: &str) {
        self.push_str(text);
    }

    fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        fmt::Write::write_fmt(self, text).unwrap_or_default();
    }
}

impl Append for Vec<u8> {
    fn text(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }

    fn write_fmt(&mut self, text: fmt::Arguments<'_>) {
        io::Write::write_fmt(self, text).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_numbers_and_addresses_are_appended_to_strings_and_bytes() {
        fn append(out: &mut impl Append) {
            out.text("a");
            out.number(0);
            out.number(u64::MAX);
            write!(out, " {:02} ", 7);
            out.ip([10, 0, 200, 1].into());
            out.text(" ");
            out.ip("2001:db8::1".parse().unwrap());
        }
        let expected = "a018446744073709551615 07 10.0.200.1 2001:db8::1";
        let (mut text, mut bytes) = (String::new(), Vec::new());
        append(&mut text);
        append(&mut bytes);
        assert_eq!(text, expected);
        assert_eq!(bytes, expected.as_bytes());
    }
}
