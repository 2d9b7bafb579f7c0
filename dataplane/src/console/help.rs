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

/// Each command, with what it is for.
pub(super) const HELP: &str = "  \
  help [<command>]                           : these lines
  prompt [n|i|p]                             : several lines in one connection: no, yes, yes with a prompt
  quit                                       : ends the connection
  show info [typed|json] [desc] [float]      : the process
  show stat [{<iid>|<proxy>} <type> <sid>] [typed|json] [desc] [up|no-maint] : what is counted
  show servers state [<backend>]             : states and weights of endpoints
  show servers conn [<backend>]              : connections of endpoints
  show backend                               : services
  show errors                                : what went wrong, by reason
  show sess [json]                           : connections and flows, 1000 at most
  show version                               : the version
  show schema json                           : what the JSON of info and stat looks like
  show overrides                             : what was changed by hand
  show snapshot                              : everything, as JSON
  get weight <b>/<s>                         : an endpoint's weight, and what the table says of it
  set server <b>/<s> state ready|drain|maint|default : the table's word is 'default'
  set server <b>/<s> weight <n>[%]|default   : from 0 to 256, or percents of what the table says
  enable server <b>/<s>                      : the same as state ready
  disable server <b>/<s>                     : the same as state maint
  set maxconn frontend <f> <n>|default       : connections at once
  shutdown sessions server <b>/<s>           : resets the connections of an endpoint
  clear counters [all]                       : forgets the maxima, or all that was counted
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_about_what_was_asked() {
        assert_eq!(help(""), HELP);
        assert_eq!(help("nothing such"), HELP);
        assert_eq!(help("set server").lines().count(), 2);
        assert!(!HELP.contains("\n\n") && HELP.ends_with('\n'));
        assert!(
            HELP.lines()
                .all(|line| line.starts_with("  ") && line.contains(':'))
        );
    }
}
