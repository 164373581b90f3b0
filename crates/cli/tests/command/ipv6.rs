//! Places that have no address of IPv4.

use super::*;
use crate::common::{Spaces, enter, fail, ip, is_installed, succeed};

/// Makes the ends of a wire have addresses of IPv6 alone, and takes their link down.
fn of_ipv6_alone() -> Spaces {
    let spaces = Spaces::new();
    for (name, link, address) in
        [(&spaces.near, "va", "fd00:7::1/64"), (&spaces.far, "vb", "fd00:7::2/64")]
    {
        for which in ["all", "default", link] {
            let on = format!("net.ipv6.conf.{which}.disable_ipv6=0");
            succeed(enter(name, &["sysctl", "-qw", &on]));
        }
        succeed(ip(&["-n", name, "link", "set", link, "down"]));
        succeed(ip(&["-n", name, "address", "flush", "dev", link]));
        // With the search for duplicates, which takes the kernel a second or two.
        succeed(ip(&["-n", name, "address", "add", address, "dev", link]));
    }
    spaces
}

const SERVER: &str = r#"
import os, socket
server = socket.create_server(("::", int(os.environ["WIREPATH_PORT"])), family=socket.AF_INET6)
while True:
    connection = server.accept()[0]
    connection.sendall(connection.recv(64))
    connection.close()
"#;

const CLIENT: &str = r#"
import os, socket, sys, time
assert sys.argv[1] == "http://[%s]:%s/" % (os.environ["WIREPATH_FAR"], os.environ["WIREPATH_PORT"]), sys.argv
assert ":" in os.environ["WIREPATH_NEAR"]
begun = time.perf_counter()
client = socket.create_connection((os.environ["WIREPATH_FAR"], int(os.environ["WIREPATH_PORT"])), 3)
client.sendall(b"x")
assert client.recv(64) == b"x", "no echo"
print("took_us", 1e6 * (time.perf_counter() - begun))
"#;

#[test]
fn ends_of_ipv6_alone_are_measured_as_soon_as_their_link_is_set_up() {
    if !is_installed("python3") {
        return;
    }
    let (spaces, data) = (of_ipv6_alone(), Data::new());
    let (near, far) = (format!("netns:{}", spaces.near), format!("netns:{}", spaces.far));
    let (server, client) = (script(&data, "server.py", SERVER), script(&data, "client.py", CLIENT));
    let place = ["--near", &near, "--far", &far, "--server", &server, "--arm", "b:X=1"];
    let down = fail(prove(&data, &[&place[..], &["--client", "true"]].concat()), 2);
    assert!(down.contains("no address of the far namespace"), "{down}");
    for (name, link) in [(&spaces.near, "va"), (&spaces.far, "vb")] {
        succeed(ip(&["-n", name, "link", "set", link, "up"]));
    }
    let client = format!("{client} \"http://[$WIREPATH_FAR]:$WIREPATH_PORT/\"");
    let metric = ["--client", &client, "--metric", "took_us=re:took_us (.+) lower"];
    let outcome = proven(&data, &[&place[..], &metric].concat());
    assert_no_failure(&outcome);
    assert!(median(&outcome, "b", "took_us") > 0.0);
    assert!(median(&outcome, "b", "interface_packet_count") > 0.0);
    let wrong = ["--client", "curl http://$WIREPATH_FAR:$WIREPATH_PORT/"];
    let said = fail(prove(&data, &[&place[..], &wrong].concat()), 2);
    assert!(said.contains("http://[$WIREPATH_FAR]:$WIREPATH_PORT"), "{said}");
}
