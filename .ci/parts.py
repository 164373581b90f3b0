"""Checks a release's list of parts (CycloneDX): its references, and that the program itself lists each of its crates.

parts.py PARTS PROGRAM...    Each program must have the list of cargo-auditable, which scanners read, in its section .dep-v0.
That list has more: macros, which run while it is built, and crates of features that are off. It has less: the crates of the
guests' images, which are data to it. Start it where Cargo.lock is.
"""

import json
import subprocess
import sys
import tomllib
import zlib


def purl(package):
    """Returns the package URL of a crate."""
    return f"pkg:cargo/{package['name']}@{package['version'].replace('+', '%2B')}"


def crates(program):
    """Returns the crates of the registry that a program lists, as package URLs."""
    section = subprocess.run(
        ["objcopy", "--dump-section", ".dep-v0=/dev/stdout", program, "/dev/null"], capture_output=True, check=True
    ).stdout
    assert section, f"{program} has no list of its crates"
    packages = json.loads(zlib.decompress(section))["packages"]
    assert any(package["name"] == "wirepath" and package.get("root") for package in packages), program
    return {purl(package) for package in packages if package["source"] != "local"}


with open(sys.argv[1], encoding="utf-8") as file:
    parts = json.load(file)
assert (parts["bomFormat"], parts["specVersion"]) == ("CycloneDX", "1.6")
known = {part["bom-ref"] for part in parts["components"]} | {"wirepath"}
assert len(known) == len(parts["components"]) + 1, "a reference is there twice"
for uses in parts["dependencies"]:
    assert uses["ref"] in known and known.issuperset(uses["dependsOn"]), uses
print("ok:", len(parts["components"]), "parts")
with open("Cargo.lock", "rb") as file:
    linked = known & {purl(package) for package in tomllib.load(file)["package"]}
for program in sys.argv[2:]:
    listed = crates(program)
    assert len(linked) > 50 and linked <= listed, f"not listed by {program}: {sorted(linked - listed)}"
    print(f"ok: {program.rsplit('/', 1)[-1]} lists its {len(linked)} crates")
