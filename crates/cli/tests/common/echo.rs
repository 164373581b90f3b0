//! A UDP echo server and its client, programs as a user may have them.

/// UDP echo server that works for so many microseconds a request.
pub(crate) const SERVER: &str = r#"
import os, socket, sys, time
work = float(os.environ.get("WORK_US", sys.argv[1] if len(sys.argv) > 1 else 0)) / 1e6
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("", int(os.environ["WIREPATH_PORT"])))
while True:
    data, client = server.recvfrom(2048)
    until = time.perf_counter() + work
    while time.perf_counter() < until:
        pass
    server.sendto(data, client)
"#;

/// Client that prints the median round trip of 300. It asks again for what is lost: a flood of another program fills the
/// queue that a CPU has for all namespaces.
pub(crate) const PING: &str = r#"
import json, os, socket, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(1)
client.connect((os.environ["WIREPATH_FAR"], int(os.environ["WIREPATH_PORT"])))
def round_trip(number):
    for _ in range(5):
        begun = time.perf_counter()
        client.send(b"%64d" % number)
        try:
            while int(client.recv(2048)) != number:
                pass
            return (time.perf_counter() - begun) * 1e6
        except TimeoutError:
            pass
    raise TimeoutError("no answer to five requests")
rtts = [round_trip(number) for number in range(300)]
print(json.dumps({"rtt": {"p50": sorted(rtts)[150]}}))
"#;

/// The client's figure.
pub(crate) const METRIC: &str = "p50_us=json:/rtt/p50 lower";
