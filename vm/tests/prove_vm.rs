//! `wirepath prove vm`, run as a command.

#[path = "../../crates/cli/tests/common/mod.rs"]
mod common;
#[path = "kernel-c/mod.rs"]
mod kernel_c;

use std::fs;
use std::path::Path;

use common::{Data, LONG, Running, fail, is_installed, json, own_links, succeed, until, wirepath};
use serde_json::Value;

/// A file of arms that are images of the small kernel, and what stands above them. `None` if they cannot be built or run
/// here.
#[track_caller]
fn kernels(data: &Data, above: &str, images: &[&str]) -> Option<String> {
    if !is_installed("qemu-system-aarch64") {
        return None;
    }
    let mut text = above.to_owned();
    for name in images {
        let image = kernel_c::image(name)?;
        text += &format!("[[arm]]\nname = '{name}'\nimage = '{}'\n", image.display());
    }
    Some(write(data, &text))
}

fn write(data: &Data, text: &str) -> String {
    let file = data.file("vm.toml");
    fs::write(&file, text).expect("a file of the test");
    file
}

fn arm<'a>(document: &'a Value, name: &str) -> &'a Value {
    let arms = document["arms"].as_array().expect("arms");
    arms.iter().find(|arm| arm["name"] == name).unwrap_or_else(|| panic!("no arm {name}"))
}

#[test]
fn mistakes_end_with_2_and_name_the_remedy() {
    let data = Data::new();
    for args in [&["prove", "vm"][..], &["prove", "vm", "--arms", "x"]] {
        let said = fail(data.wirepath(args), 2);
        assert!(said.contains("vm"), "{said}");
    }
    assert!(fail(data.wirepath(&["prove", "vm"]), 2).contains("wirepath prove vm FILE"));
    let none = data.file("none.toml");
    assert!(fail(data.wirepath(&["prove", "vm", &none]), 2).contains("none.toml"));
    let file = write(&data, "ping = '10.0.0.2'\nimagge = 'x'\n");
    let said = fail(data.wirepath(&["prove", "vm", &file]), 2);
    assert!(said.contains("vm.toml, line 2") && said.contains("imagge"), "{said}");
    let arms = "image = 'x.elf'\n[[arm]]\nname = 'a'\n[[arm]]\nname = 'b'\n";
    let file = write(&data, &format!("ping = '10.0.0.2'\n{arms}"));
    let said = fail(data.wirepath(&["prove", "vm", &file]), 2);
    assert!(said.contains("arm a: image") && said.contains("relative to the folder"), "{said}");
    fs::write(data.file("x.elf"), "no kernel").expect("a file of the test");
    let said = fail(data.wirepath(&["prove", "vm", &file]), 2);
    assert!(said.contains("is not an ELF file"), "{said}");
    assert!(fail(data.wirepath(&["prove", "guest", &file]), 2).contains("reads no file"));
}

#[test]
fn missing_emulator_ends_with_3_and_names_its_package() {
    let data = Data::new();
    let mut image = b"\x7fELF".to_vec();
    image.resize(64, 0);
    image[18] = 183;
    fs::write(data.file("x.elf"), image).expect("a file of the test");
    let arms = "image = 'x.elf'\n[[arm]]\nname = 'a'\n[[arm]]\nname = 'b'\n";
    let file = write(&data, &format!("ping = '10.0.0.2'\n{arms}"));
    let mut command = data.wirepath(&["prove", "vm", &file]);
    command.env("PATH", "/nonexistent");
    assert!(fail(command, 3).contains("apt-get install qemu-system-arm"));
}

#[test]
fn guest_that_never_answers_fails_with_the_last_lines_of_its_console() {
    let data = Data::new();
    // The guest has another address.
    let above = "ping = '192.168.1.77'\nready-within = '1s'\n";
    let Some(file) = kernels(&data, above, &["async", "poll"]) else { return };
    let args = ["prove", "vm", &file, "--max-blocks", "6", "--time", "10s"];
    let said = fail(data.wirepath(&args), 1);
    assert!(said.contains("did not answer within 1000 ms"), "{said}");
    assert!(said.contains("Net ready"), "its console: {said}");
}

#[test]
fn killed_run_leaves_no_machine_and_no_namespace() {
    let data = Data::new();
    let Some(file) = kernels(&data, "ping = '192.168.1.2'\n", &["async", "poll"]) else { return };
    for signal in ["KILL", "INT"] {
        let links = own_links();
        let args = ["prove", "vm", &file, "--time", "300s", "--min-blocks", "100"];
        let running = Running::start(data.wirepath(&args));
        let machines = || {
            let all = running.descendants();
            all.iter().filter(|(_, line)| line.contains("qemu-system-aarch64")).count()
        };
        assert!(until(LONG, || machines() >= 3), "{}", running.stderr());
        let held = running.holdings();
        assert!(held.namespaces.len() >= 3);
        let _output = running.end_by(signal, LONG);
        held.assert_gone();
        assert_eq!(own_links(), links);
    }
}

/// The project's own monitor behind the user's interface: its cards are arms.
#[test]
fn cards_of_another_monitor_are_arms() {
    let output = common::run(wirepath(&["vmnic", "run", "--", "true"]));
    if output.status.code() == Some(3) {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return testkit::skip(if why.contains("kvm") { "kvm" } else { "nettest" }, why);
    }
    let data = Data::new();
    let own = format!("exec {} vmnic run --tap {{tap}}", env!("CARGO_BIN_EXE_wirepath"));
    let text = format!(
        "ping = '10.77.0.2'\nnear-address = '10.77.0.1'\ncommand = '{own}'\n[[arm]]\nname = 'lance'\n\
         [[arm]]\nname = 'virtio-net'\ncommand = '{own} --switches virtio-net'\n"
    );
    let file = write(&data, &text);
    let args = ["prove", "vm", &file, "--load", "back-to-back", "--max-blocks", "6", "--json"];
    let document =
        json(data.wirepath(&[&args[..], &["--time", "60s", "--trial", "50ms"]].concat()));
    for name in ["lance", "virtio-net"] {
        let arm = arm(&document, name);
        assert_eq!(arm["failures"].as_array().map_or(0, Vec::len), 0, "{arm:#}");
        let lost = &arm["metrics"]["lost_count"]["median"];
        assert_eq!(lost.as_f64(), Some(0.0), "{arm:#}");
    }
    let said = fail(wirepath(&["vmnic", "run", "--tap", "no-such-tap"]), 1);
    assert!(said.contains("no-such-tap"), "{said}");
}

/// The file at the begin of the how-to page, beside two images with the names that it has.
#[test]
fn file_of_the_page_runs_as_it_stands() {
    let data = Data::new();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vm/docs/vm.md");
    let page = fs::read_to_string(page).expect("the page");
    let text = testkit::page_file(&page);
    assert!(page.lines().count() <= 60, "one screen");
    if !is_installed("qemu-system-aarch64") {
        return;
    }
    for (folder, name) in [("before", "poll-print"), ("after", "async")] {
        let Some(image) = kernel_c::image(name) else { return };
        fs::create_dir(data.file(folder)).expect("a folder of the test");
        let copy = Path::new(&data.file(folder)).join("kernel.elf");
        fs::copy(image, copy).expect("a copy of the image");
    }
    let file = write(&data, text);
    for load in ["ping", "back-to-back", "flood", "start"] {
        let args = ["prove", "vm", &file, "--load", load, "--max-blocks", "6", "--trial", "100ms"];
        let document = json(data.wirepath(&[&args[..], &["--time", "60s", "--json"]].concat()));
        assert_eq!(arm(&document, "after")["failures"].as_array().map_or(0, Vec::len), 0, "{load}");
    }
}

#[test]
fn path_is_listed_and_its_file_has_a_schema() {
    let listed = succeed(wirepath(&["paths", "vm"]));
    assert!(listed.contains("back-to-back"), "{listed}");
    let schema = json(wirepath(&["schema", "prove", "vm", "file"]));
    assert!(schema["properties"]["ready-within"].is_object(), "{schema:#}");
}
