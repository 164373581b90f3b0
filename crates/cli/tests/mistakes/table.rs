//! The mistakes.

use model::ExitCode;

/// Mistakes of one kind.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) code: ExitCode,
    /// Command lines as they are typed in a shell.
    pub(crate) lines: &'static [&'static str],
}

const fn usage(title: &'static str, lines: &'static [&'static str]) -> Group {
    Group { title, code: ExitCode::Usage, lines }
}

/// Files that the lines name.
pub(crate) const FILES: &[(&str, &[u8])] = &[
    ("time.toml", b"client = \"true\"\nserver = \"true\"\ntime = \"5 parsecs\"\n\n[[arm]]\nname = \"a\"\nenv = { A = \"1\" }\n"),
    ("type.toml", b"server = \"true\"\ntime = true\n"),
    ("key.toml", b"clients = \"true\"\n"),
    ("garbage.pcap", b"GIF89a, not a capture"),
    ("capture.pcap.zst", b"\x28\xb5\x2f\xfd\x00\x00\x00\x00"),
    (
        "mtu.toml",
        b"[port]\ninterface = \"lo\"\n\n[underlay]      # interface of the tunnels\nmtu = \"x\"\n",
    ),
    (
        "nosuch.toml",
        b"[port]\ninterface = \"nosuch0\"\n\n[underlay]\ninterface = \"lo\"\naddress = \"127.0.0.1\"\n\n[[tunnel]]\nname = \"a\"\ncarrier = \"vxlan\"\nvni = 7\nremote = \"192.0.2.2\"\n",
    ),
];

pub(crate) const GROUPS: &[Group] = &[
    usage(
        "A command, option or value that does not exist",
        &[
            "wirepath prov probe",
            "wirepath doctr",
            "wirepath probe pign 127.0.0.1",
            "wirepath tune aply plan.toml",
            "wirepath help prov",
            "wirepath schema tune aply",
            "wirepath prove prob",
            "wirepath prove comand",
            "wirepath prove probe --load pong",
            "wirepath prove probe --arms spinn",
            "wirepath prove probe --arms spin,bypas+spin",
            "wirepath prove probe --peers iperf",
            "wirepath prove probe --tim 5s",
            "wirepath explain --timed 5s",
            "wirepath doctor --sevrity high",
            "wirepath doctor --severity hgh",
            "wirepath tune plan --profile latncy",
            "wirepath completions bsh",
            "wirepath prove command --server true --client true --adapter wkr",
            "wirepath prove command --server true --client true --switch rps-cpu=0",
            "wirepath guest run --switches quit",
            "wirepath tunnel measure --forwarder bypas",
        ],
    ),
    usage(
        "An option that has another name now, or another place",
        &[
            "wirepath explain --duration 5s",
            "wirepath explain -d 5s",
            "wirepath probe ping 127.0.0.1 --duration=5s",
            "wirepath explain -i eth0",
            "wirepath explain --metrics 9102",
            "wirepath doctor --interface eth0",
            "wirepath tunnel check -i vxlan0",
            "wirepath doctor --metrics wirepath.prom",
            "wirepath feed listen --group 239.1.1.1:10000",
            "wirepath feed listen 239.1.1.1:10000 --report feed.html",
            "wirepath feed report feed.pcap -o feed.html",
            "wirepath tunnel run --config tunnel.toml",
            "wirepath tunnel run -c tunnel.toml",
            "wirepath history export last -o last.csv",
            "wirepath history prune --keep 5",
            "wirepath tune export plan.toml --to systemd --output out",
            "wirepath prove command --keep",
            "wirepath prove probe --threshold 2%",
            "wirepath prove probe --html report.html",
            "wirepath probe ping 127.0.0.1 --spin",
        ],
    ),
    usage(
        "Programs in the form of other tools",
        &[
            "wirepath ./a ./b",
            "wirepath prove ./a ./b",
            "wirepath prove command ./a ./b",
            "wirepath prove command './a --port 1' './b --port 1'",
        ],
    ),
    usage(
        "Something missing on the line, or a wrong value",
        &[
            "wirepath man",
            "wirepath feed listen",
            "wirepath prove probe --time",
            "wirepath prove probe --time 5parsecs",
            "wirepath prove probe --time 0",
            "wirepath prove probe --direction send",
            "wirepath probe ping db2",
            "wirepath probe ping 127.0.0.1 --arm spin,bypass",
            "wirepath report last --html page.html --format junit",
        ],
    ),
    usage(
        "A file, interface, namespace or id that does not exist",
        &[
            "wirepath doctor nosuch0",
            "wirepath explain nosuch0",
            "wirepath tune plan --profile latency --interface nosuch0",
            "wirepath feed replay --synthetic --to 239.1.1.1:10000 -i nosuch0",
            "wirepath feed listen 239.1.1.1:10000 -i nosuch0",
            "wirepath tunnel check nosuch0",
            "wirepath doctor --netns nosuch",
            "wirepath feed report none.pcap",
            "wirepath feed decode none.pcap",
            "wirepath tunnel run none.toml",
            "wirepath tune apply none.toml",
            "wirepath tune verify none.toml",
            "wirepath prove command none.toml",
            "wirepath history import none.json",
            "wirepath history compare none.json last",
            "wirepath explain --diff none.json",
            "wirepath peer --secret-file none",
            "wirepath guest run --image none",
            "wirepath prove probe --against ./none",
            "wirepath report 19990101",
            "wirepath history show 19990101",
            "wirepath history export 19990101",
            "wirepath history compare 19990101 last",
            "wirepath prove command --resume 19990101",
        ],
    ),
    usage(
        "A file with a mistake",
        &[
            "wirepath prove command time.toml",
            "wirepath prove command type.toml",
            "wirepath prove command key.toml",
            "wirepath feed report garbage.pcap",
            "wirepath feed report capture.pcap.zst",
            "wirepath tunnel run mtu.toml --check",
            "wirepath tunnel run nosuch.toml --check",
            "wirepath history import garbage.pcap",
        ],
    ),
    usage(
        "Commands of `prove command` that cannot work",
        &[
            "wirepath prove command --server ./none --arm a:A=1 --client true",
            "wirepath prove command --server 'sleep 9' --arm a:A=1 --client 'none-such http://$WIREPATH_FAR/'",
            "wirepath prove command --server 'sleep 9' --arm a:A=1 --client \"curl http://$WIREPATH_FAR:80/\"",
            "wirepath prove command --server 'sleep 9' --arm a:A=1 --client \"true 'unfinished\"",
        ],
    ),
];
