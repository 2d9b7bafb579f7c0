//! Checked pieces of text: names, free texts, header and cookie names, files, payloads.

use std::cell::RefCell;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustc_hash::FxHashSet;

use super::leaf::{Leaf, Wrong, leaf, text};

text! {
    /// The name of a frontend, a service or an endpoint: `[A-Za-z0-9_.:-]{1,200}`. Cheap to clone.
    pub struct Name(Arc<str>): "a name", "1 to 200 of the letters A-Z a-z 0-9 _ . : -",
        r"^[A-Za-z0-9_.:-]{1,200}$", "shop", is_name;
}

impl Name {
    /// What an endpoint without a name is called: its address.
    pub(crate) fn of_address(address: SocketAddr) -> Self {
        Self(address.to_string().into())
    }
}

text! {
    /// A text for people: a description, the value of a label.
    pub struct Text(Box<str>): "a line of text", "a text without control characters",
        r"^[^\x00-\x1f]*$", "Orders", is_line;
}

text! {
    /// What a node or a zone is called. Cheap to clone; those of one table share their text.
    pub struct Tag(Shared): "the name of a node or a zone", "a text without spaces or control characters",
        r"^\S+$", "worker-1", is_tag;
}

text! {
    /// The key of a label.
    pub struct LabelKey(Box<str>): "the key of a label", "[a-zA-Z_][a-zA-Z0-9_]*",
        r"^[a-zA-Z_][a-zA-Z0-9_]*$", "app", is_label_key;
}

text! {
    /// The name of a header or a cookie, or a method: an HTTP token.
    pub struct Token(Box<str>): "an HTTP token", "letters, digits and !#$%&'*+-.^_`|~ only",
        r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", "X-Env", is_token;
}

text! {
    /// What may stand in a header.
    pub struct Value(Box<str>): "the value of a header", "printable text without line ends",
        r"^[^\r\n]*$", "prod", is_value;
}

text! {
    /// A name that TLS calls a protocol by, as in `h2`.
    pub struct Alpn(Box<str>): "a protocol name", "1 to 255 visible letters, such as h2 or http/1.1",
        r"^[!-~]{1,255}$", "h2", is_alpn;
}

text! {
    /// The name of a parameter of a query, as clients send it.
    pub struct Parameter(Box<str>): "the name of a parameter", "visible letters as they are sent, without & = and #",
        r"^[!-~]+$", "v", is_parameter;
}

text! {
    /// The value of a parameter of a query, as clients send it.
    pub struct ParameterValue(Box<str>): "the value of a parameter",
        "visible letters as they are sent, without & and #; a space is sent as + or %20",
        r"^[!-~]*$", "2", |text| is_sent_in_query(text);
}

text! {
    /// What an answer must hold.
    pub struct Needle(Box<str>): "a text to look for", "a text that is not empty",
        r"[\s\S]", "ok", |text| !text.is_empty();
}

fn is_name(text: &str) -> bool {
    (1..=200).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
}

fn is_line(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

fn is_tag(text: &str) -> bool {
    !text.is_empty()
        && !text
            .chars()
            .any(|letter| letter.is_control() || letter.is_whitespace())
}

fn is_label_key(text: &str) -> bool {
    text.bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

fn is_value(text: &str) -> bool {
    !text
        .bytes()
        .any(|byte| byte.is_ascii_control() && byte != b'\t')
}

fn is_parameter(text: &str) -> bool {
    !text.is_empty() && is_sent_in_query(text) && !text.contains('=')
}

fn is_sent_in_query(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"&#".contains(&byte))
}

fn is_alpn(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A text that stands in memory once for the whole table, however often it is written in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Shared(Arc<str>);

impl Deref for Shared {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Shared {
    fn from(text: &str) -> Self {
        SHARED.with_borrow_mut(|shared| {
            let Some(shared) = shared else {
                return Self(text.into());
            };
            if let Some(known) = shared.get(text) {
                return Self(Arc::clone(known));
            }
            let new: Arc<str> = text.into();
            shared.insert(Arc::clone(&new));
            Self(new)
        })
    }
}

/// Makes the [`Tag`]s and keys that this thread reads share their texts, as long as it is held. Nothing else depends on it.
pub(super) struct Sharing(());

impl Sharing {
    pub(super) fn begin() -> Self {
        SHARED.set(Some(FxHashSet::default()));
        Self(())
    }
}

impl Drop for Sharing {
    fn drop(&mut self) {
        SHARED.set(None);
    }
}

thread_local! {
    static SHARED: RefCell<Option<FxHashSet<Arc<str>>>> = const { RefCell::new(None) };
}

/// The path of a file that the table names: relative to the table's folder, or absolute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct File(Box<Path>);

impl Deref for File {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for File {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

/// For programs that write tables. The path is checked when the table is read.
impl From<PathBuf> for File {
    fn from(path: PathBuf) -> Self {
        Self(path.into_boxed_path())
    }
}

impl Leaf for File {
    const NAME: &'static str = "File";
    const WHAT: &'static str = "a file";
    const FORM: &'static str = "a path, relative to the table's folder or absolute";
    const PATTERN: &'static str = r"[^/]$";
    const EXAMPLE: &'static str = "tls/shop.crt";

    fn parse(text: &str) -> Result<Self, Wrong> {
        if !text.is_empty() && !text.ends_with('/') && is_line(text) {
            Ok(Self(Path::new(text).into()))
        } else {
            Err(Wrong::form::<Self>())
        }
    }

    fn text(&self) -> impl fmt::Display {
        self.0.display()
    }
}

leaf!(File);

/// Bytes that a health check sends or expects; written with the escapes `\xNN \n \r \t \\`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Box<[u8]>);

impl Payload {
    /// These bytes; `None`: there are none.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        (!bytes.is_empty()).then(|| Self(bytes.into()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter {
                    '\\' => f.write_str("\\\\")?,
                    '\n' => f.write_str("\\n")?,
                    '\r' => f.write_str("\\r")?,
                    '\t' => f.write_str("\\t")?,
                    _ if letter.is_control() || UNWRITTEN.contains(&letter) => {
                        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                            write!(f, "\\x{byte:02x}")?;
                        }
                    }
                    _ => write!(f, "{letter}")?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl Leaf for Payload {
    const NAME: &'static str = "Payload";
    const WHAT: &'static str = "a payload";
    const FORM: &'static str = r"a text that is not empty; its escapes are \xNN \n \r \t \\";
    const PATTERN: &'static str = r"[\s\S]";
    const EXAMPLE: &'static str = "ping";

    fn parse(text: &str) -> Result<Self, Wrong> {
        let bytes = unescape(text).and_then(Self::new);
        bytes.ok_or_else(Wrong::form::<Self>)
    }

    fn text(&self) -> impl fmt::Display {
        self
    }
}

leaf!(Payload);

/// The bytes that the text stands for; `None` where an escape is broken.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut rest = text.bytes();
    let mut bytes = Vec::with_capacity(text.len());
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\\' => b'\\',
            b'x' => hex(rest.next()?)? << 4 | hex(rest.next()?)?,
            _ => return None,
        });
    }
    Some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Letters that YAML texts do not hold, beside control characters.
const UNWRITTEN: [char; 3] = ['\u{feff}', '\u{fffe}', '\u{ffff}'];
