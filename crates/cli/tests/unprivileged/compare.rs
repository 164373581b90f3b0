//! `wirepath compare` as an ordinary user.

use std::fs;

use crate::Home;
use crate::common::{all_text, is_installed, run};

const TIME: &str = "x_ms=re:x ([0-9.]+)";

/// The ids of users that programs wrote to a file, without doubles.
fn users(file: &str) -> Vec<String> {
    let text = fs::read_to_string(file).expect("a file of the programs");
    let mut users: Vec<String> = text.lines().map(str::to_owned).collect();
    users.dedup();
    users
}

#[test]
fn programs_that_end_are_compared_as_their_user() {
    let Some(home) = Home::new() else { return };
    let seen = home.file("users");
    let [old, new] = [100, 150].map(|ms| format!("id -u >> {seen}; echo x {ms}"));
    let output = run(home.wirepath(&["compare", &old, &new, "--metric", TIME]));
    let said = all_text(&output);
    assert!(output.status.code() == Some(4) && said.contains("50 % slower than old"), "{said}");
    assert_eq!(users(&seen), [super::USER], "{said}");
}

#[test]
fn servers_are_compared_over_a_wire_as_their_user() {
    let Some(home) = Home::new() else { return };
    if !is_installed("socat") {
        return;
    }
    let seen = home.file("users");
    let [old, new] = [100, 150].map(|ms| {
        format!("id -u >> {seen}; exec socat TCP-LISTEN:7821,fork,reuseaddr SYSTEM:'echo x {ms}'")
    });
    let client = ["--", "socat", "-", "TCP:localhost:7821"];
    let words = [&["compare", &old, &new, "--metric", TIME][..], &client].concat();
    let output = run(home.wirepath(&words));
    let said = all_text(&output);
    assert!(output.status.code() == Some(4) && said.contains("50 % slower than old"), "{said}");
    assert!(said.contains("TCP:10.77.0.2:7821"), "{said}");
    assert_eq!(users(&seen), [super::USER], "{said}");
}
