//! `use_backend %[…,map(FILE)]`: a map is a rule for each of its entries, and one for what has none.

use super::acl::{self, lines_of, parts};
use super::condition::Rule;
use super::importer::Importer;
use super::proxy::Does;
use super::ranges::net;
use super::words::Line;

impl Importer<'_> {
    /// The rules of a `use_backend` whose backend is looked up in a map.
    pub(super) fn mapped(
        &mut self,
        line: &Line,
        expression: &str,
        condition: &[String],
    ) -> Result<Vec<Rule>, String> {
        const COMPUTED: &str = "a backend whose name is computed has no counterpart, unless a map has it; write one use_backend for each";
        let inner = expression.strip_prefix("%[");
        let inner = inner
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or(COMPUTED)?;
        let parts = parts(inner);
        let (converter, sample) = parts.split_last().ok_or(COMPUTED)?;
        let sample = sample.join(",");
        let arguments = converter.split_once('(');
        let arguments = arguments.and_then(|(name, rest)| Some((name, rest.strip_suffix(')')?)));
        let (name, arguments) = arguments.ok_or(COMPUTED)?;
        let method = match name {
            "map" => "str",
            _ => name.strip_prefix("map_").ok_or(COMPUTED)?,
        };
        let is_known = ["str", "beg", "dom", "end", "reg", "ip"].contains(&method);
        if !is_known || (method == "ip") != (sample == "src") {
            return Err(COMPUTED.into());
        }
        if !acl::looks_at(&sample) {
            return Err(format!(
                "Ballast does not look at `{sample}`: the map is left out, and the default of the line, too"
            ));
        }
        let (file, default) = match arguments.split_once(',') {
            Some((file, default)) => (file, Does::Backend(default.to_owned())),
            None => (arguments, Does::Default),
        };
        let mut entries = entries(&self.read_file_named(file)?);
        if entries.len() > MOST {
            return Err(format!("{file} has more than {MOST} entries; divide it"));
        }
        if method == "ip" {
            // Of several networks haproxy takes the smallest.
            let bits = |key: &str| net(key).map(|net| net.max_prefix_len() - net.prefix_len());
            entries.sort_by_key(|(key, _)| bits(key));
        }
        if method == "beg" {
            // Of several beginnings haproxy takes the longest.
            entries.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
        }
        let why = format!("{file} is read once, by the import; import again when it changes");
        self.report.note(line, why);
        let rule = |does: Does, entry: Vec<String>| Rule {
            entry,
            ..Rule::new(line, does, condition)
        };
        let words = |key: String| {
            let words = [sample.as_str(), "-m", method, "--", key.as_str()];
            words.map(str::to_owned).to_vec()
        };
        let of_entries = entries.into_iter();
        let of_entries = of_entries.map(|(key, backend)| rule(Does::Backend(backend), words(key)));
        Ok(of_entries.chain([rule(default, Vec::new())]).collect())
    }
}

/// The keys and values of a map, in the order of the file.
fn entries(bytes: &[u8]) -> Vec<(String, String)> {
    let entry = |line: String| {
        let (key, value) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        (key.to_owned(), value.trim().to_owned())
    };
    lines_of(bytes).into_iter().map(entry).collect()
}

/// Entries of one map.
const MOST: usize = 2000;
