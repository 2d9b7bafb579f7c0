//! What an import asks of the machine: environment variables, names, files.

use std::net::IpAddr;

/// What an import asks of the machine. The shell answers from the machine itself, tests from tables of their own.
pub trait World {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;

    /// The addresses of a name, in the order in which the resolver gives them; or why there are none.
    fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, String>;

    /// The bytes of a file; or why it cannot be read.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// The names in a folder, sorted; `None` where the path is no folder.
    fn folder(&self, path: &str) -> Option<Vec<String>>;

    /// Whether a page may be written under this name beside the table, with this content.
    fn may_write(&self, _name: &str, _bytes: &[u8]) -> bool {
        true
    }

    /// The path from the root on.
    fn absolute(&self, path: &str) -> String;
}
