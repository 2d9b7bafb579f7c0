//! `use_backend %[…,map(FILE)]`: a map is a rule for each of its entries, and one for what has none.

use super::acl::parts;
use super::condition::Rule;
use super::importer::Importer;
use super::proxy::Does;
use super::words::Line;

impl Importer<'_> {
    /// The rules of a `use_backend` whose backend is looked up in a map.
    pub(super) fn mapped(
        &mut self,
        line: &Line,
        expression: &str,
        condition: &[String],
    ) -> Result<Vec<Rule<Does>>, String> {
        const COMPUTED: &str = "a backend whose name is computed has no counterpart, unless a map has it; write one use_backend for each";
        let inner = expression.strip_prefix("%[");
        let inner = inner
            .and_then(|rest| rest.strip_suffix(']'))
            .ok_or(COMPUTED)?;
        let parts = parts(inner);
        let Some((converter, sample)) = parts.split_last() else {
            return Err(COMPUTED.into());
        };
        let arguments = converter.split_once('(');
        let arguments = arguments.and_then(|(name, rest)| Some((name, rest.strip_suffix(')')?)));
        let (name, arguments) = arguments.ok_or(COMPUTED)?;
        let method = match name {
            "map" | "map_str" => "str",
            "map_beg" => "beg",
            "map_dom" => "dom",
            "map_end" => "end",
            "map_reg" => "reg",
            _ => return Err(COMPUTED.into()),
        };
        let (file, default) = match arguments.split_once(',') {
            Some((file, default)) => (file, Does::Backend(default.to_owned())),
            None => (arguments, Does::Default),
        };
        let bytes = self.world.read(file);
        let bytes = bytes.map_err(|why| format!("{file} cannot be read: {why}"))?;
        let mut entries = entries(&bytes);
        if entries.len() > MOST {
            return Err(format!("{file} has more than {MOST} entries; divide it"));
        }
        if method == "beg" {
            // Of several beginnings haproxy takes the longest.
            entries.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
        }
        self.report.note(
            line,
            format!("{file} is read once, by the import; import again when it changes"),
        );
        let rule = |action: Does, entry: Vec<String>| Rule {
            entry,
            ..Rule::new(line, action, condition)
        };
        let words = |key: String| {
            let sample = sample.join(",");
            let words = [sample.as_str(), "-m", method, "--", key.as_str()];
            words.map(str::to_owned).to_vec()
        };
        let mut rules: Vec<_> = entries
            .into_iter()
            .map(|(key, backend)| rule(Does::Backend(backend), words(key)))
            .collect();
        rules.push(rule(default, Vec::new()));
        Ok(rules)
    }
}

/// The keys and values of a map, in the order of the file.
fn entries(bytes: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (key, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            (key.to_owned(), value.trim().to_owned())
        })
        .collect()
}

/// Entries of one map.
const MOST: usize = 2000;
