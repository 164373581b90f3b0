//! One request over HTTP/1.1, to the address that the user gave and to no other.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Instant;

use super::super::error::{SourceFault, fault};
use super::TIME_MAX;

const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// Longest answer, bytes.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Address of a page: `http://HOST:PORT/PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// With the brackets of an IPv6 address.
    host: String,
    port: u16,
    path: String,
}

impl Url {
    /// Errors: the part that is not valid, and the remedy.
    pub fn parse(text: &str) -> Result<Url, (String, &'static str)> {
        const USE: &str = "use http://HOST:PORT/metrics";
        let not_an_address = || (format!("{text:?} is not an address"), USE);
        let Some(rest) = text.strip_prefix("http://") else {
            let is_https = text.starts_with("https://");
            let part =
                if is_https { "https is not supported".to_owned() } else { not_an_address().0 };
            return Err((part, USE));
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/metrics"),
        };
        let (host, port) = match authority.rsplit_once(':') {
            // A colon within brackets is the address's.
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| not_an_address())?)
            }
            _ => (authority, 80),
        };
        let is_path = path.bytes().all(|byte| byte.is_ascii_graphic());
        if host.is_empty() || !host.bytes().all(is_of_host) || !is_path {
            return Err(not_an_address());
        }
        Ok(Url { host: host.to_owned(), port, path: path.to_owned() })
    }
}

fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte)
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

/// The page at an address. No redirection is followed.
///
/// Errors: the reason, within [`TIME_MAX`].
pub(in super::super) fn fetch(url: &Url) -> Result<Vec<u8>, SourceFault> {
    let deadline = Instant::now() + TIME_MAX;
    let mut stream = connect(url, deadline)?;
    let request = format!(
        "GET {} HTTP/1.1\r\nHost: {}:{}\r\nUser-Agent: wirepath\r\n\
         Accept: text/plain;version=0.0.4\r\nConnection: close\r\n\r\n",
        url.path, url.host, url.port
    );
    stream.set_write_timeout(Some(TIME_MAX)).map_err(|why| why.to_string())?;
    stream.write_all(request.as_bytes()).map_err(|why| format!("cannot send: {why}"))?;
    let answer = read_answer(&mut stream, deadline)?;
    body(&answer)
}

fn connect(url: &Url, deadline: Instant) -> Result<TcpStream, SourceFault> {
    let host = url.host.trim_start_matches('[').trim_end_matches(']');
    let addresses = (host, url.port)
        .to_socket_addrs()
        .map_err(|why| format!("cannot resolve {host}: {why}"))?;
    let mut last = format!("{host} has no address");
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return fault(timed_out());
        }
        match TcpStream::connect_timeout(&address, left) {
            Ok(stream) => return Ok(stream),
            Err(why) => last = format!("cannot connect to {address}: {why}"),
        }
    }
    fault(last)
}

fn timed_out() -> String {
    format!("no answer within {TIME_MAX:?}")
}

fn read_answer(stream: &mut TcpStream, deadline: Instant) -> Result<Vec<u8>, SourceFault> {
    let (mut answer, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    let mut head: Option<Head> = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return fault(timed_out());
        }
        match stream.read(&mut piece) {
            Ok(0) => return Ok(answer),
            Ok(len) => answer.extend_from_slice(&piece[..len]),
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why)
                if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
            {
                return fault(timed_out());
            }
            Err(why) => return fault(format!("cannot receive: {why}")),
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return fault(format!("the answer is longer than {ANSWER_BYTES_MAX} bytes"));
        }
        if head.is_none() {
            head = Head::parse(&answer)?;
        }
        if head.as_ref().is_some_and(|head| head.is_whole(&answer)) {
            return Ok(answer);
        }
    }
}

/// Head of an answer.
struct Head {
    len_bytes: usize,
    status: u16,
    is_chunked: bool,
    body_bytes: Option<usize>,
}

impl Head {
    /// `Ok(None)` if it is not complete.
    fn parse(answer: &[u8]) -> Result<Option<Head>, SourceFault> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let start = &answer[..answer.len().min(HEAD_BYTES_MAX)];
        let len_bytes = match parsed.parse(start) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if answer.len() < HEAD_BYTES_MAX => return Ok(None),
            Ok(httparse::Status::Partial) => {
                return fault(format!(
                    "the head of the answer is longer than {HEAD_BYTES_MAX} bytes"
                ));
            }
            Err(why) => return fault(format!("the answer is not HTTP: {why}")),
        };
        if let Some(encoding) =
            header(parsed.headers, "content-encoding").filter(|one| *one != "identity")
        {
            return fault(format!(
                "the answer is compressed ({encoding:?}), which was not asked for"
            ));
        }
        let is_chunked = header(parsed.headers, "transfer-encoding")
            .is_some_and(|one| one.eq_ignore_ascii_case("chunked"));
        let body_bytes = header(parsed.headers, "content-length").and_then(|len| len.parse().ok());
        Ok(Some(Head { len_bytes, status: parsed.code.unwrap_or(0), is_chunked, body_bytes }))
    }

    fn is_whole(&self, answer: &[u8]) -> bool {
        let body = answer.get(self.len_bytes..).unwrap_or_default();
        match (self.is_chunked, self.body_bytes) {
            (true, _) => body.ends_with(b"0\r\n\r\n"),
            (false, Some(len)) => body.len() >= len,
            (false, None) => false,
        }
    }
}

/// Value of a header; `None` if it is not there or not UTF-8.
fn header<'a>(headers: &[httparse::Header<'a>], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|one| one.name.eq_ignore_ascii_case(name))?;
    std::str::from_utf8(found.value).ok().map(str::trim)
}

/// Body of an answer with status 200.
///
/// Errors: the reason.
pub(super) fn body(answer: &[u8]) -> Result<Vec<u8>, SourceFault> {
    let head = Head::parse(answer)?.ok_or_else(|| "the answer ends within its head".to_owned())?;
    if head.status != 200 {
        return fault(format!("the answer has status {} in place of 200", head.status));
    }
    let body = answer.get(head.len_bytes..).unwrap_or_default();
    if head.is_chunked {
        return unchunked(body);
    }
    match head.body_bytes {
        Some(len) if body.len() < len => {
            fault(format!("the answer ends after {} of {len} bytes", body.len()))
        }
        Some(len) => Ok(body[..len].to_vec()),
        None => Ok(body.to_vec()),
    }
}

/// Source: RFC 9112 section 7.1.
fn unchunked(mut rest: &[u8]) -> Result<Vec<u8>, SourceFault> {
    let torn = || "a chunk of the answer is torn".to_owned();
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or_else(torn)?;
        let line = std::str::from_utf8(&rest[..end]).map_err(|_| torn())?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let len = usize::from_str_radix(digits, 16).map_err(|_| torn())?;
        rest = &rest[end + 2..];
        if len == 0 {
            return Ok(body);
        }
        body.extend_from_slice(rest.get(..len).ok_or_else(torn)?);
        rest = rest[len..].strip_prefix(b"\r\n").ok_or_else(torn)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_a_port_and_a_path() {
        for (text, written) in [
            ("http://127.0.0.1:9100/metrics", "http://127.0.0.1:9100/metrics"),
            ("http://[::1]:9100", "http://[::1]:9100/metrics"),
            ("http://[::1]/a?b=c", "http://[::1]:80/a?b=c"),
            ("http://node/", "http://node:80/"),
        ] {
            assert_eq!(Url::parse(text).unwrap().to_string(), written);
        }
        for text in [
            "",
            "node:1",
            "https://a/",
            "http://",
            "http://a:x/",
            "http://a b/",
            "http://a/\r\nX: y",
        ] {
            assert!(Url::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn bodies_are_read_whole_chunked_or_up_to_the_end() {
        let answer = |head: &str, rest: &str| {
            body(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{rest}").as_bytes())
        };
        assert_eq!(answer("Content-Length: 3", "abcd").unwrap(), b"abc");
        assert_eq!(answer("X: y", "abc").unwrap(), b"abc");
        let chunked = "Transfer-Encoding: chunked";
        assert_eq!(answer(chunked, "2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n").unwrap(), b"abc");
        for rest in ["", "2\r\nab", "ffffffffffffffffff\r\n", "-1\r\n", "5\r\nab\r\n0\r\n\r\n"] {
            assert!(answer(chunked, rest).unwrap_err().0.contains("torn"), "{rest:?}");
        }
        assert!(answer("Content-Length: 5", "abc").unwrap_err().0.contains("3 of 5"));
        assert!(answer("Content-Encoding: gzip", "").unwrap_err().0.contains("gzip"));
        assert!(
            body(b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n")
                .unwrap_err()
                .0
                .contains("302")
        );
        assert!(body(b"SSH-2.0-x\r\n").unwrap_err().0.contains("not HTTP"));
    }
}
