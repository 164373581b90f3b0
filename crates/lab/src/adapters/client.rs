//! A client's command line as its user types it, made ready for an adapter.

use std::ops::Range;

use super::known::{KNOWN, Known};

/// A client's command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The line, with the arguments that the adapter needs.
    pub line: String,
    /// Name of the adapter for [`ready_made`](super::ready_made); `None` for a program that is not known.
    pub adapter: Option<&'static str>,
    /// True if the line was changed.
    pub is_changed: bool,
    /// False if the client would connect to this host, or to a file, by default.
    pub names_server: bool,
}

/// Names of this host that a client's line may have.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];
/// Variable of a trial that holds the server's address.
const FAR_VARIABLE: &str = "WIREPATH_FAR";

/// Reads a client's command line, finds its adapter by the program's name and adds what is missing.
///
/// - `server`: address of the server, which takes the place of names of this host; `None` if that is where the server
///   runs.
pub fn client(line: &str, server: Option<&str>) -> Client {
    let words = words(line);
    let known =
        words.iter().enumerate().find_map(|(at, word)| Some((at, known(&word.text, &words)?)));
    let mut changed = line.to_owned();
    let mut names_server = names_server(line) || server.is_some_and(|server| line.contains(server));
    let mut adapter = None;
    if let Some((at, known)) = known {
        adapter = Some(known.program);
        let host = known.host.filter(|_| server.is_some());
        let host = host
            .filter(|(host, file)| !words.iter().any(|word| starts_with_option(word, host, file)));
        names_server |= host.is_some();
        changed =
            with_arguments(line, &words, at, known, host.map(|(option, _)| option).zip(server));
    }
    if let Some(server) = server {
        changed = LOCAL.iter().fold(changed, |line, local| replace_host(&line, local, server));
    }
    let is_changed = changed != line;
    Client { line: changed, adapter, is_changed, names_server }
}

/// A word of a shell's command line.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    range: Range<usize>,
    /// Without quotes.
    text: String,
}

/// Words of a line, as far as quotes and operators tell; a shell's further syntax is left as it is.
fn words(line: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut quote = None;
    let mut is_open = false;
    for (at, c) in line.char_indices() {
        let ends = quote.is_none() && (c.is_whitespace() || "|;&<>()".contains(c));
        if ends {
            is_open = false;
            continue;
        }
        if !is_open {
            words.push(Word { range: at..at, text: String::new() });
            is_open = true;
        }
        let Some(word) = words.last_mut() else { continue };
        word.range.end = at + c.len_utf8();
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => quote = Some(c),
            _ => word.text.push(c),
        }
    }
    words
}

/// Entry of the table for a word that may be a program; the most specific one.
fn known(word: &str, words: &[Word]) -> Option<&'static Known> {
    let name = word.rsplit('/').next().unwrap_or(word);
    let of_name = KNOWN.iter().filter(|known| known.name() == name);
    let selected =
        of_name.clone().find(|known| known.mode.is_some_and(|mode| is_selected(mode, words)));
    selected.or_else(|| of_name.clone().find(|known| known.mode.is_none()))
}

/// True if a word is the mode, or ends with one that begins with `_`.
fn is_selected(mode: &str, words: &[Word]) -> bool {
    words.iter().any(|word| word.text == mode || mode.starts_with('_') && word.text.ends_with(mode))
}

/// True of `-h`, `-h 10.0.0.1` and `-h10.0.0.1`.
fn starts_with_option(word: &Word, host: &str, file: &str) -> bool {
    word.text.starts_with(host) || word.text.starts_with(file)
}

/// The line with the arguments of the adapter.
///
/// - `program`: its place among the words.
/// - `host`: option and address of the server.
fn with_arguments(
    line: &str,
    words: &[Word],
    program: usize,
    known: &Known,
    host: Option<(&str, &str)>,
) -> String {
    let missing = missing(known, words);
    let mut leading: Vec<&str> =
        host.iter().flat_map(|(option, server)| [*option, *server]).collect();
    let mut trailing: Vec<&str> = Vec::new();
    if known.is_leading {
        leading.extend(missing)
    } else {
        trailing.extend(missing)
    }
    let end = words[program].range.end;
    let mut changed = line[..end].to_owned();
    for argument in leading {
        changed.push(' ');
        changed.push_str(argument);
    }
    let mut at = end;
    for word in &words[program + 1..] {
        if known.dropped.contains(&word.text.as_str()) {
            changed.push_str(line[at..word.range.start].trim_end());
            at = word.range.end;
        }
    }
    changed.push_str(&line[at..]);
    for argument in trailing {
        changed.push(' ');
        changed.push_str(argument);
    }
    changed
}

/// Arguments of the adapter that the line lacks; the value of one that is given is left out with it.
fn missing(known: &Known, words: &[Word]) -> Vec<&'static str> {
    let mut missing = Vec::new();
    let mut is_given = false;
    for argument in known.arguments {
        if argument.starts_with('-') {
            is_given = words.iter().any(|word| word.text == *argument);
        }
        if !is_given {
            missing.push(*argument);
        }
    }
    missing
}

fn names_server(line: &str) -> bool {
    line.contains(FAR_VARIABLE) || LOCAL.iter().any(|local| find_host(line, local, 0).is_some())
}

/// Place of a host's name that is no part of a longer one.
fn find_host(line: &str, host: &str, from: usize) -> Option<usize> {
    let mut from = from;
    loop {
        let at = from + line[from..].find(host)?;
        let before = line[..at].chars().next_back();
        let after = line[at + host.len()..].chars().next();
        if !before.is_some_and(is_host_character) && !after.is_some_and(is_host_character) {
            return Some(at);
        }
        from = at + host.len();
    }
}

fn is_host_character(c: char) -> bool {
    c.is_alphanumeric() || c == '.' || c == '-'
}

fn replace_host(line: &str, host: &str, server: &str) -> String {
    let mut changed = String::new();
    let mut from = 0;
    while let Some(at) = find_host(line, host, from) {
        changed.push_str(&line[from..at]);
        changed.push_str(server);
        from = at + host.len();
    }
    changed + &line[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Option<&str> = Some("10.77.0.2");

    fn ready(line: &str, expected: &str, adapter: Option<&str>) {
        let client = client(line, FAR);
        assert_eq!((client.line.as_str(), client.adapter), (expected, adapter), "{line}");
        assert!(client.names_server, "{line}");
    }

    #[test]
    fn clients_get_the_arguments_of_their_adapter_and_the_address_of_the_server() {
        ready(
            "wrk -d1s http://localhost:8080/",
            "wrk -d1s http://10.77.0.2:8080/ --latency",
            Some("wrk"),
        );
        ready(
            "redis-benchmark -q -n 1000 get x",
            "redis-benchmark -h 10.77.0.2 --csv -n 1000 get x",
            Some("redis-benchmark"),
        );
        ready(
            "redis-benchmark --csv -h 127.0.0.1",
            "redis-benchmark --csv -h 10.77.0.2",
            Some("redis-benchmark"),
        );
        ready(
            "/usr/bin/ab -n 9 'http://127.0.0.1:80/a b'",
            "/usr/bin/ab -q -l -e /dev/stdout -n 9 'http://10.77.0.2:80/a b'",
            Some("ab"),
        );
        ready("iperf3 -c localhost -u -t1", "iperf3 -c 10.77.0.2 -u -t1 -J", Some("iperf3-udp"));
        ready(
            "taskset -c 0 sockperf ping-pong -i $WIREPATH_FAR",
            "taskset -c 0 sockperf ping-pong -i $WIREPATH_FAR",
            Some("sockperf"),
        );
        ready("qperf localhost tcp_bw", "qperf 10.77.0.2 tcp_bw -uu", Some("qperf-bw"));
        ready(
            "echo GET http://[::1]:1/ | vegeta attack -duration=1s | vegeta report",
            "echo GET http://10.77.0.2:1/ | vegeta attack -duration=1s | vegeta report -type=json",
            Some("vegeta"),
        );
        ready("./bench --to localhost:9", "./bench --to 10.77.0.2:9", None);
    }

    #[test]
    fn names_that_only_look_like_this_host_stay() {
        for line in ["./b --log localhost.txt", "./b my-localhost", "./b 127.0.0.10", "cat wrk.txt"]
        {
            let client = client(line, FAR);
            assert_eq!(
                (client.line.as_str(), client.adapter, client.names_server),
                (line, None, false)
            );
        }
    }

    #[test]
    fn a_line_of_this_host_keeps_its_address() {
        let beside = client("redis-benchmark -q -s /tmp/r.sock", FAR);
        assert_eq!(beside.line, "redis-benchmark --csv -s /tmp/r.sock");
        assert!(!beside.names_server && beside.is_changed);
        let here = client("wrk http://localhost/", None);
        assert_eq!(here.line, "wrk http://localhost/ --latency");
    }

    #[test]
    fn no_line_makes_it_panic() {
        for line in ["", "'", "\"wrk", "wrk", "wrk|", "redis-benchmark", "é wrk é", "ab", "|;&"] {
            client(line, FAR);
        }
    }
}
