//! What `help` says.

/// The lines of `help` that begin with `about`; all of them where none does.
pub(super) fn help(about: &str) -> String {
    let line = |line: &&str| line.trim_start().starts_with(about);
    let lines: Vec<&str> = HELP.lines().filter(line).collect();
    if lines.is_empty() {
        return HELP.into();
    }
    lines.into_iter().flat_map(|line| [line, "\n"]).collect()
}

/// The command that answers in JSON what `line` asks for. `None`: no such command, or these are several commands.
pub(crate) fn json_form(line: &str) -> Option<String> {
    let [words] = super::line::commands(line).try_into().ok()?;
    if words.starts_with(&["show".into(), "snapshot".into()])
        || words.iter().any(|word| word == "json")
    {
        return Some(line.to_owned());
    }
    let usages = HELP.lines().filter_map(|line| line.split_once(" : "));
    let mut usages = usages.map(|(usage, _)| usage.trim());
    // The server says what it does not know.
    let begin = words.get(..2).unwrap_or(&words);
    let begins = |usage: &str| {
        begin
            .iter()
            .map(|word| &**word)
            .eq(usage.split_whitespace().take(begin.len()))
    };
    if !usages.clone().any(begins) {
        return Some(line.to_owned());
    }
    let has_json = |usage: &str| {
        let (name, options) = usage.split_once(" [").unwrap_or((usage, ""));
        let mut name = name.split_whitespace();
        options.contains("json]")
            && words
                .iter()
                .zip(name.by_ref())
                .all(|(word, name)| word == name)
            && name.next().is_none()
    };
    usages
        .any(has_json)
        .then(|| format!("{} json", line.trim()))
}

/// Each command, with what it is for.
pub(super) const HELP: &str = "  \
  help [<command>]                           : these lines
  prompt [n|i|p]                             : several lines in one connection: no, yes, yes with a prompt
  report                                     : a last line says ok, or error where an answer was one
  quit                                       : ends the connection
  show info [typed|json] [desc] [float]      : the process
  show stat [{<iid>|<proxy>} <type> <sid>] [typed|json] [desc] [up|no-maint] : what is counted
  show servers state [<backend>]             : states and weights of endpoints
  show servers conn [<backend>]              : connections of endpoints
  show backend                               : services
  show errors                                : what went wrong, by reason
  show sess [json]                           : connections and flows, 1000 at most
  show table [<backend> [key <address>]]     : clients with affinity, and their endpoints
  show ssl cert [<file>]                     : certificates of frontends
  show version                               : haproxy's version whose interface this is, and Ballast's
  show schema json                           : what the JSON of info and stat looks like
  show overrides                             : what was changed by hand
  show snapshot                              : everything, as JSON
  get weight <b>/<s>                         : an endpoint's weight, and what the table says of it
  set server <b>/<s> state ready|drain|maint|default : 'default' is what the table says
  set server <b>/<s> weight <n>[%]|default   : from 0 to 256, or percents of what the table says, rounded down
  set server <b>/<s> addr <ip>[:<port>]|default : its connections stay at the old address
  set server <b>/<s> check-port <port>|default : 0 is the server's own
  set server <b>/<s> health up|stopping|down : until its checks say otherwise
  enable server <b>/<s>                      : the same as state ready
  disable server <b>/<s>                     : the same as state maint
  set maxconn frontend <f> <n>|default       : connections at once
  set maxconn server <b>/<s> <n>|default     : connections at once
  enable frontend <f>                        : listens again
  disable frontend <f>                       : refuses new connections
  shutdown session <id>                      : ends a connection or flow of show sess
  shutdown sessions server <b>/<s>           : resets the connections of an endpoint
  clear table <backend> [key <address>]      : forgets the endpoints of all clients, or of one
  clear counters [all]                       : forgets the maxima, or all that was counted
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_about_what_was_asked() {
        assert_eq!(help(""), HELP);
        assert_eq!(help("nothing such"), HELP);
        assert_eq!(help("set server").lines().count(), 5);
        assert!(!HELP.contains("\n\n") && HELP.ends_with('\n'));
        assert!(
            HELP.lines()
                .all(|line| line.starts_with("  ") && line.contains(':'))
        );
    }

    #[test]
    fn a_command_has_a_json_form_where_its_help_says_so() {
        for (line, form) in [
            ("show stat", Some("show stat json")),
            ("show stat web 1 -1", Some("show stat web 1 -1 json")),
            (" show info desc ", Some("show info desc json")),
            ("show sess", Some("show sess json")),
            ("show stat json", Some("show stat json")),
            ("show snapshot", Some("show snapshot")),
            ("show schema json", Some("show schema json")),
            ("show", None),
            ("show version", None),
            ("show backend", None),
            ("disable server a/b", None),
            ("quit", None),
            ("foo", Some("foo")),
            ("show foo", Some("show foo")),
            ("show stat; show info", None),
            ("", None),
        ] {
            assert_eq!(json_form(line).as_deref(), form, "{line}");
        }
    }
}
