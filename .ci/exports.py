"""Guest's side of .ci/exports, started at each boot: the first boot applies a plan in each form, the second compares."""

import contextlib
import json
import pathlib
import shutil
import subprocess
import time

SHARE = pathlib.Path("/mnt")
STATE = pathlib.Path("/var/lib/rig")
# Time that a program may take to apply its settings at start-up; the guest is emulated.
START_UP_S = 300

# Name, form, card (by the last byte of its address; None: the host), and settings. Each sysctl is in one plan, so that
# no form does another's work.
PLANS = [
    ("systemd", "systemd", 1, [
        ("rings", "interface", "rx=512 tx=1024"),
        ("coalescing", "interface", "rx-usecs=50"),
        ("gro", "interface", "off"),
        ("tx-queue-len", "interface", "777"),
        ("gro-flush-timeout", "interface", "20000"),
        ("rps-cpus", "rx-0", "2"),
        ("qdisc", "interface", "pfifo:100"),
        ("rmem-max", "netns", "8388608"),
        ("tcp-rmem", "netns", "4096\t131072\t7000000"),
        ("huge-pages", "host", "never"),
    ]),
    ("queues", "systemd", 7, [
        ("channels", "interface", "combined=1"),
        ("rps-cpus", "rx-0", "3"),
    ]),
    ("udev", "udev", 2, [
        ("rings", "interface", "rx=1024"),
        ("coalescing", "interface", "rx-usecs=60"),
        ("tso", "interface", "off"),
        ("napi-defer-hard-irqs", "interface", "3"),
        ("rps-cpus", "rx-0", "1"),
        ("qdisc", "interface", "fq"),
    ]),
    ("sysctl", "sysctl", None, [
        ("netdev-max-backlog", "netns", "3000"),
        ("somaxconn", "netns", "3000"),
        ("udp-rmem-min", "netns", "8192"),
    ]),
    ("networkmanager", "networkmanager", 3, [
        ("rings", "interface", "rx=512"),
        ("coalescing", "interface", "rx-usecs=70"),
        ("gro", "interface", "off"),
        ("qdisc", "interface", "fq"),
    ]),
    ("tuned", "tuned", 4, [
        ("rings", "interface", "rx=512"),
        ("gro", "interface", "off"),
        ("tso", "interface", "off"),
        ("tx-queue-len", "interface", "888"),
        ("gro-flush-timeout", "interface", "30000"),
        ("rps-cpus", "rx-0", "2"),
        ("wmem-max", "netns", "9000000"),
        ("tcp-slow-start-after-idle", "netns", "0"),
        ("huge-pages-defrag", "host", "never"),
    ]),
    ("ansible", "ansible", 5, [
        ("rings", "interface", "rx=2048"),
        ("gro", "interface", "off"),
        ("tx-queue-len", "interface", "999"),
        ("rps-cpus", "rx-0", "3"),
        ("rmem-default", "netns", "300000"),
        ("tcp-notsent-lowat", "netns", "131072"),
    ]),
    ("unit", "unit", 6, [
        ("rings", "interface", "rx=512"),
        ("coalescing", "interface", "rx-usecs=90"),
        ("gro", "interface", "off"),
        ("busy-poll", "netns", "50"),
    ]),
]


def report(text):
    with open(SHARE / "report", "a") as file:
        file.write(text + "\n")


def run(*words, text=None):
    """Runs a program, which must succeed; its standard output."""
    ran = subprocess.run(words, input=text, capture_output=True, text=True)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(words)}: exit code {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def wirepath(*words):
    return run("wirepath", "tune", *words)


def cards():
    """Names by the last byte of the address."""
    found = {}
    for folder in pathlib.Path("/sys/class/net").iterdir():
        address = (folder / "address").read_text().strip()
        if address.startswith("52:54:00:"):
            found[int(address[-2:])] = folder.name
    return found


def values(card):
    """Values of all knobs of a card and the host, by knob and target."""
    place = [] if card is None else ["--interface", card]
    knobs = json.loads(wirepath("knobs", "--json", *place))["knobs"]
    return {f"{k['knob']} {t['target']}": t["value"] for k in knobs for t in k["targets"]}


def all_values():
    return {key: value for card in cards().values() for key, value in values(card).items()}


def steps(card, settings):
    """Settings with the notation of their targets."""
    places = {"interface": f"interface {card}", "rx-0": f"queue {card} rx-0"}
    return [(knob, places.get(place, place), value) for knob, place, value in settings]


def write_plan(name, card, settings):
    """Writes a plan of these settings; its file."""
    place = [] if card is None else ["--interface", card]
    now = values(card)
    # Machine and card are kept, steps are replaced.
    text = wirepath("plan", "--profile", "latency", *place).split("\n[[")[0] + "\n"
    for knob, target, value in steps(card, settings):
        words = {"knob": knob, "target": target, "seen": now[f"{knob} {target}"], "value": value, "reason": "a test"}
        text += "\n[[step]]\n" + "".join(f"{word} = {json.dumps(text)}\n" for word, text in words.items())
    file = STATE / f"{name}.toml"
    file.write_text(text)
    return file


def apply(form, card, number, plan):
    """Exports a plan, and applies it by the commands that the export names."""
    folder = STATE / plan.stem
    exported = json.loads(wirepath("export", str(plan), "--to", form, "--out", str(folder), "--json"))
    if exported["omitted"]:
        raise SystemExit(f"{form} leaves out {exported['omitted']}")
    if (folder / "etc").exists():
        shutil.copytree(folder / "etc", "/etc", dirs_exist_ok=True)
    if form == "networkmanager":
        connection = f"card-{number}"
        script = str(folder / f"wirepath-{card}.nmcli.sh")
        saved = pathlib.Path(f"/etc/NetworkManager/system-connections/{connection}.nmconnection").read_text()
        if "ring-rx=512" not in run("sh", script, "--offline", text=saved):
            raise SystemExit("nmcli --offline wrote no setting")
        run("sh", script, connection)
        run("nmcli", "connection", "up", connection)
    elif form == "ansible":
        playbook = ["ansible-playbook", "-i", "localhost,", "-c", "local", str(folder / f"wirepath-{card}.yml")]
        first, second = run(*playbook), run(*playbook)
        if "changed=0" in first or "changed=0" not in second:
            raise SystemExit(f"the second run changes something:\n{first}\n{second}")
    else:
        for command in exported["next"]:
            run("sh", "-c", command)
    run("udevadm", "settle")
    return exported


@contextlib.contextmanager
def reported(what):
    """Reports a failure; the other plans are tried all the same."""
    try:
        yield
        report(f"  {what}: ok")
    except (SystemExit, Exception) as error:
        report(f"FAILED: {what}: {error}")


def verify_all():
    begun = time.monotonic()  # of all plans together
    for name, *_ in PLANS:
        with reported(f"verify {name}"):
            while True:
                try:
                    wirepath("verify", str(STATE / f"{name}.toml"))
                    break
                except SystemExit:
                    if time.monotonic() - begun > START_UP_S:
                        raise
                    time.sleep(2)


def first_boot():
    (STATE / "before").write_text(json.dumps(all_values()))
    names = cards()
    report("applied by each form's own tool:")
    for name, form, number, settings in PLANS:
        card = names.get(number)
        with reported(f"apply {name}"):
            apply(form, card, number, write_plan(name, card, settings))
    verify_all()


def second_boot():
    report("after a reboot:")
    verify_all()
    with reported("tuned-adm verify"):
        verify_tuned()
    with reported("systemd-analyze verify"):
        run("systemd-analyze", "verify", f"/etc/systemd/system/wirepath-{cards()[6]}.service")
    with reported("every other knob is as before"):
        compare()


def verify_tuned():
    try:
        run("tuned-adm", "verify")
    except SystemExit as error:
        log = pathlib.Path("/var/log/tuned/tuned.log").read_text().splitlines()
        failed = [line for line in log if "ERROR" in line or "WARNING" in line]
        raise SystemExit("\n".join([str(error), *failed])) from error


def compare():
    """Compares all knobs that no plan names with their values before."""
    before, after = json.loads((STATE / "before").read_text()), all_values()
    names = cards()
    planned = {
        f"{knob} {target}"
        for _, _, number, settings in PLANS
        for knob, target, _ in steps(names.get(number), settings)
    }
    # Interrupts have other numbers after a reboot, and queues of card 7 go with its channels.
    moves = ("irq-affinity ", *(f"{knob} queue {names[7]} " for knob in ("rps-cpus", "rps-flow-count", "xps-cpus", "xps-rxqs")))
    differ = [
        f"{key}: {before.get(key)} -> {after.get(key)}"
        for key in sorted(before.keys() | after.keys())
        if key not in planned and not key.startswith(moves) and before.get(key) != after.get(key)
    ]
    if differ:
        raise SystemExit("\n".join(differ))
    report(f"  {len(planned)} settings are planned, {len(before) - len(planned)} are not")


def main():
    STATE.mkdir(exist_ok=True)
    is_first = not (STATE / "before").exists()
    end = "poweroff"
    shutil.copy(SHARE / "wirepath", "/usr/bin/wirepath")
    with reported("start-up"):
        run("nm-online", "-s", "-q", "-t", str(START_UP_S))
        run("systemctl", "start", "tuned")
        if is_first:
            first_boot()
            end = "reboot"
        else:
            second_boot()
            report("the end")
    run("sync")
    run("systemctl", end)


main()
