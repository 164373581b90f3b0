//! `wirepath serve` as a person sees it: a real browser lists, filters, compares, downloads and
//! follows a run.
//!
//! Pictures for people go to the folder that WIREPATH_SCREENSHOTS names.

#[path = "common/cdp.rs"]
mod cdp;
mod common;

use std::fs;
use std::path::{Path, PathBuf};

use cdp::Browser;
use common::{Data, LONG, QUICK, Running, is_installed, succeed, until};

use crate::served::Served;

#[path = "common/served.rs"]
mod served;

/// axe-core as `./test` fetches it by npm; without it contrast and labels are not checked.
fn axe() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("WIREPATH_AXE")
        .map_or(root.join("target/axe/node_modules/axe-core/axe.min.js"), PathBuf::from);
    let found = target.is_file().then_some(target);
    if found.is_none() {
        testkit::skip("axe", "not installed: contrast and labels are not checked");
    }
    found
}

fn check(browser: &mut Browser, axe: Option<&Path>, name: &str) {
    for (width, dark) in [(1000, false), (1000, true), (390, false), (390, true)] {
        browser.look_like(width, dark);
        let overflow = "document.documentElement.scrollWidth - innerWidth";
        let overflow = browser.eval(overflow).as_i64().unwrap();
        assert!(overflow <= 0, "{name} is {overflow} pixels too wide at {width}");
        if let Some(axe) = axe {
            let found = browser.axe(axe);
            assert!(found.is_empty(), "{name}, {width}, dark {dark}: {found:#?}");
        }
        if let Some(folder) = std::env::var_os("WIREPATH_SCREENSHOTS") {
            let shade = if dark { "dark" } else { "light" };
            let file = Path::new(&folder).join(format!("{name}-{width}-{shade}.png.base64"));
            fs::write(file, browser.screenshot()).unwrap();
        }
    }
    browser.look_like(1000, false);
}

#[test]
fn a_person_lists_filters_compares_downloads_and_follows_a_run() {
    if !is_installed("chromium") {
        return;
    }
    let axe = axe();
    let data = Data::new();
    for _ in 0..2 {
        succeed(data.wirepath(&QUICK));
    }
    let served = Served::start(&data);
    let mut browser = Browser::start();

    // The list.
    browser.open(&served.url("/"));
    assert_eq!(browser.eval("document.querySelectorAll('table.list tbody tr').length"), 2);
    assert_eq!(browser.text("h1"), "Experiments");
    check(&mut browser, axe.as_deref(), "list");

    // The filter.
    browser.eval("document.querySelector('[name=since]').value = '2999-01-01'");
    browser.follow("form.filter button");
    assert!(browser.text("main").contains("No experiment fits"));
    browser.follow("form.filter a");
    browser.eval("document.querySelector('[name=path]').value = 'fake'");
    browser.follow("form.filter button");
    assert_eq!(browser.eval("document.querySelectorAll('table.list tbody tr').length"), 2);
    assert!(browser.eval("location.search").as_str().unwrap().contains("path=fake"));

    // The comparison of the two that are chosen at first: the older with the newer.
    browser.follow("form[action='/compare'] button");
    assert!(browser.text("h1").starts_with("Before and now"), "{}", browser.text("h1"));
    assert!(browser.text("main").contains("The machine is the same"));
    assert!(browser.eval("document.querySelectorAll('svg[role=img]').length").as_i64() > Some(0));
    check(&mut browser, axe.as_deref(), "compare");

    // An experiment and its downloads.
    browser.open(&served.url("/"));
    browser.follow("table.list tbody tr a");
    assert!(browser.text("main").contains(", by fast."));
    assert_eq!(browser.eval("document.querySelectorAll('details[open]').length"), 0);
    let height = browser.eval("document.documentElement.scrollHeight").as_i64().unwrap();
    assert!(height < 4 * 800, "{height} pixels in its first state");
    browser.eval("document.querySelectorAll('details').forEach(part => { part.open = true; })");
    assert!(browser.text("main").contains("rtt_ns_p50"), "every trial can be seen");
    check(&mut browser, axe.as_deref(), "experiment");
    let downloads = browser.downloads();
    for (place, ending) in [(1, ".json"), (2, ".csv"), (3, "-trials.csv")] {
        browser.eval(&format!("document.querySelectorAll('.actions a')[{} - 1].click()", place));
        assert!(
            until(LONG, || {
                let files = fs::read_dir(&downloads).into_iter().flatten().flatten();
                files.map(|f| f.file_name().into_string().unwrap()).any(|f| f.ends_with(ending))
            }),
            "no {ending}"
        );
    }

    // The path that it is of, from its page and from the navigation; and back to the experiment.
    browser.follow(".actions a[href^='/path/']");
    assert_eq!(browser.text("h1"), "Path fake");
    assert!(browser.text("table.worth").contains("better"), "{}", browser.text("main"));
    assert!(browser.eval("document.querySelectorAll('svg[role=img]').length").as_i64() > Some(0));
    check(&mut browser, axe.as_deref(), "path");
    browser.follow("table.worth tbody a");
    assert!(browser.text("main").contains(", by fast."));
    browser.follow("nav a[href='/paths']");
    check(&mut browser, axe.as_deref(), "paths");
    browser.follow("main a[href='/path/probe']");
    assert!(browser.text("main").contains("Nothing was measured here yet"));
    check(&mut browser, axe.as_deref(), "path-without");

    // A run under way: its page moves without being touched, and says when it is over.
    let running = Running::start(data.wirepath(&[
        "prove",
        "fake",
        "--arms",
        "fast",
        "--trial",
        "100ms",
        "--time",
        "9s",
        "--min-blocks",
        "24",
    ]));
    browser.open(&served.url("/"));
    browser.await_true(
        "fetch('/').then(a => a.text()).then(t => { window.found = t.includes('unfinished'); }), \
         window.found === true",
    );
    browser.open(&served.url("/"));
    browser.follow("table.list tbody tr a");
    browser.await_true("document.getElementById('said').innerText.includes('Block')");
    check(&mut browser, axe.as_deref(), "live");
    let first = browser.text("#said");
    let moved = format!("document.getElementById('said').innerText !== {first:?}");
    browser.await_true(&moved);
    browser.await_true("document.getElementById('said').innerText.startsWith('Finished')");
    assert!(running.finish(LONG).expect("it ends").status.success());
    assert!(browser.text("#report").contains("fast is "));

    // Refusals are pages, too.
    browser.open(&served.url("/compare"));
    assert_eq!(browser.eval("document.querySelectorAll('select option').length"), 6);
    check(&mut browser, axe.as_deref(), "choose");
    assert_eq!(browser.complaints, Vec::<String>::new(), "the console is clean");
    drop(browser);
    drop(served);
}
