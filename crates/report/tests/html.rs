//! Experiment page: complete, self-contained, and safe against hostile names.

mod common;

use std::collections::BTreeSet;

use model::{Outcome, Support, Verdict};
use wirepath_report::html::page;

/// Returns all tags in order and checks their nesting.
fn tags(html: &str) -> Vec<String> {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let (mut open, mut all) = (Vec::new(), Vec::new());
    let mut rest = html;
    while let Some(start) = rest.find('<') {
        let end = start + rest[start..].find('>').expect("a tag that does not end");
        let tag = &rest[start + 1..end];
        assert!(!tag.contains('<'), "a tag within a tag: {tag}");
        let name: String =
            tag.trim_start_matches('/').chars().take_while(|c| !" />\n".contains(*c)).collect();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(&*name), "closes a tag that is not open");
        } else {
            all.push(tag.to_string());
            if !tag.ends_with('/') && !VOID.contains(&&*name) {
                open.push(name);
            }
        }
        rest = &rest[end + 1..];
    }
    assert!(open.is_empty(), "left open: {open:?}");
    all
}

fn bare() -> Outcome {
    let mut outcome = common::ping();
    outcome.arms.clear();
    outcome.judged.clear();
    outcome.floor.clear();
    outcome.warnings.clear();
    outcome.load.clear();
    outcome
}

#[test]
fn page_is_well_formed_with_hostile_names_and_when_empty() {
    for outcome in [common::ping(), common::flood(), common::hostile(), bare()] {
        let html = page(&outcome);
        let names: BTreeSet<_> =
            tags(&html).iter().map(|t| t.split([' ', '/']).next().unwrap().to_string()).collect();
        for banned in ["script", "iframe", "img", "link", "object", "a", "form", "foreignObject"] {
            assert!(!names.contains(banned), "<{banned}>");
        }
    }
}

#[test]
fn hostile_names_show_as_text() {
    let html = page(&common::hostile());
    assert!(!html.contains("<script"));
    assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(!html.contains('\u{202e}') && !html.contains('\x1b'));
    for tag in tags(&html) {
        // Attributes never contain a name from the outcome.
        assert!(!tag.contains("alert"), "{tag}");
    }
}

#[test]
fn nothing_is_fetched() {
    let html = page(&common::ping());
    assert!(html.contains("default-src 'none'"));
    let addresses: BTreeSet<_> =
        html.match_indices("http").map(|(i, _)| &html[i..i + 26]).collect();
    // The SVG namespace is a name; browsers do not fetch it.
    let fetched: Vec<_> = addresses
        .iter()
        .filter(|a| !a.starts_with("http://www.w3.org/2000/svg") && !a.starts_with("http-equiv"))
        .collect();
    assert!(fetched.is_empty(), "{fetched:?}");
    assert!(!html.contains("url(") && !html.contains("@import") && !html.contains("src="));
}

#[test]
fn every_drawing_has_a_text_alternative_and_ids_are_unique() {
    for outcome in [common::ping(), common::hostile()] {
        let html = page(&outcome);
        let mut ids = BTreeSet::new();
        for tag in tags(&html) {
            if let Some((_, id)) = tag.split_once(" id=\"") {
                let id = id.split('"').next().unwrap().to_string();
                assert!(ids.insert(id.clone()), "{id} twice");
            }
        }
        let drawings: Vec<_> = tags(&html).into_iter().filter(|t| t.starts_with("svg ")).collect();
        assert!(drawings.len() > 8);
        for tag in drawings.iter().filter(|tag| !tag.contains("aria-hidden")) {
            let (_, names) = tag.split_once("aria-labelledby=\"").expect("a name");
            for id in names.split('"').next().unwrap().split(' ') {
                assert!(ids.contains(id), "{id} names nothing");
            }
            assert!(tag.contains("role=\"img\"") && tag.contains("viewBox="), "{tag}");
        }
    }
    assert!(page(&common::ping()).contains("+native: 3.23 µs, 0.0486×, better."));
}

#[test]
fn page_has_all_sections_and_a_sentence_per_arm() {
    let html = page(&common::ping());
    for title in [
        "Answer",
        "What each arm is worth",
        "Latency",
        "Trial by trial",
        "Cost by CPU",
        "Figures",
        "Doubts",
        "Not run here",
        "Warnings",
        "Machine",
        "Method",
        "Trials",
        "Run it again",
    ] {
        assert!(html.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    for arm in &common::ping().arms[2..] {
        let entry = format!("<b>{}</b><span>", arm.name);
        assert!(html.contains(&entry), "{} has no sentence", arm.name);
    }
    assert!(html.contains("On top of +gso: 0.599×"));
    assert!(html.contains("rtt latency (µs, log)"));
    assert!(html.contains("samples slower than that (%, log)"));
    assert!(html.contains("prefers-color-scheme: dark") && html.contains("@media print"));
    assert!(html.contains(
        "wirepath prove probe --load ping --size 64 --trial 200ms --arms ladder --peers sockperf \
         --time 89s --seed 7"
    ));
}

#[test]
fn answer_names_switches_effect_and_interval() {
    let html = page(&common::ping());
    let (before, answer) = html.split_once("<h2>Answer</h2>").unwrap();
    assert!(!before.contains("<h2>"), "the answer comes first");
    let (answer, picture) = answer.split_once("<figure>").unwrap();
    let sentences: Vec<_> = answer.split("<li").skip(1).collect();
    assert_eq!(sentences.len(), common::ping().judged.len());
    assert!(
        sentences[0].contains("A ping takes 2.4 µs in place of 65.8: 27.4 times faster"),
        "{}",
        sentences[0]
    );
    assert!(picture.starts_with("<figcaption><h3>rtt p50</h3>"), "{}", &picture[..80]);
    let (picture, trust) = picture.split_once("</figure>").unwrap();
    assert!(picture.contains("2.40 µs, 0.0365×, better") && picture.contains("65.8 µs, baseline"));
    for dead in ["+zero-copy", "+busy-poll", "baseline again"] {
        assert!(!picture.contains(dead), "{dead} has nothing to draw");
    }
    assert!(trust.starts_with("<p class=\"muted trust\">24 blocks of 13 arms"), "{}", &trust[..80]);
    let mut outcome = common::ping();
    for metric in outcome.arms.iter_mut().flat_map(|arm| arm.metrics.values_mut()) {
        metric.verdict = metric.verdict.map(|_| Verdict::Inconclusive);
    }
    let html = page(&outcome);
    assert!(html.contains(
        "not decided: +bypass is 27.1 to 27.7 times faster; 9 other arms are open, too."
    ));
    assert!(!html.contains("in place of"));
}

#[test]
fn first_screen_is_open_and_all_else_is_folded() {
    let html = page(&common::ping());
    let (first, rest) = html.split_once("<details>").unwrap();
    assert!(first.contains("<h1>Which switch makes a ping faster?"), "the title is the question");
    assert!(first.contains("<h2>Answer</h2>") && first.contains("class=\"headlines\""));
    assert_eq!(rest.matches("<section").count(), rest.matches("<section class=\"fold\"").count());
    assert!(!html.contains("<details open"));
    let mut named = common::ping();
    named.name = Some("engines <b>".into());
    named.note = Some("after the update".into());
    let html = page(&named);
    assert!(html.contains("<title>engines &lt;b&gt; · Wirepath</title>"));
    assert!(html.contains("<h1>engines &lt;b&gt;</h1>") && html.contains("after the update"));
}

#[test]
fn cpu_load_is_drawn_and_described() {
    let html = page(&common::ping());
    assert!(html.contains("baseline: CPU 0 25 %, CPU 1 0 %. "));
    assert!(html.contains("+spin: CPU 0 35 %, CPU 1 0 %. "));
    assert!(html.contains("time in use (%)"));
    let mut outcome = common::ping();
    outcome.arms.iter_mut().for_each(|arm| arm.counters.clear());
    assert!(!page(&outcome).contains("Cost by CPU"), "results of older versions have none");
}

#[test]
fn every_trial_is_listed_with_its_unit() {
    let html = page(&common::ping());
    let tables = html.split_once("<h2>Trials</h2>").unwrap().1;
    assert_eq!(tables.matches("class=\"values\"").count(), 3 * 13);
    assert!(tables.contains("rtt p50 <code>rtt_ns_p50</code> (µs)"));
    let row = tables.split_once(">+pin</th><td class=\"values\">").unwrap().1;
    let values: Vec<_> = row.split_once('<').unwrap().0.split(' ').collect();
    assert_eq!(values.len(), common::BLOCKS);
    assert_eq!(values[9], "–", "a failed trial keeps its place");
}

#[test]
fn empty_sections_are_left_out() {
    let html = page(&bare());
    for title in [
        "Latency",
        "Trial by trial",
        "Cost by CPU",
        "Warnings",
        "Not run here",
        "Doubts",
        "Figures",
        "Trials",
    ] {
        assert!(!html.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
}

/// Relative luminance of a color such as `#181d24`.
///
/// Source: sRGB in WCAG 2.1.
fn luminance(hex: &str) -> f64 {
    let [red, green, blue] = [1, 3, 5].map(|at| {
        let c = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        if c <= 0.03928 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
    });
    0.2126 * red + 0.7152 * green + 0.0722 * blue
}

#[test]
fn chart_colours_are_readable_on_light_and_dark_pages() {
    let html = page(&common::ping());
    let style = html.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    // 2.8 to 1 against both grounds.
    let (light, dark) = (luminance("#ffffff"), luminance("#181d24"));
    let mut seen = BTreeSet::new();
    for attribute in ["fill=\"#", "stroke=\"#"] {
        let body = html.split_once("</style>").unwrap().1;
        for (at, _) in body.match_indices(attribute) {
            let from = at + attribute.len() - 1;
            let hex = &body[from..from + 7];
            seen.insert(hex.to_string());
            let turned = style.contains(&format!("[{attribute}{}\"]", &hex[1..]));
            let l = luminance(hex);
            let fit = (light + 0.05) / (l + 0.05) >= 2.8 && (l + 0.05) / (dark + 0.05) >= 2.8;
            assert!(turned || fit, "{attribute}{}", &hex[1..]);
        }
    }
    assert!(seen.len() > 12, "{seen:?}");
}

#[test]
fn arms_without_figures_have_a_sentence() {
    let mut outcome = common::ping();
    outcome.arms[3].support = Support::Refused { why: "it would cut the only link".into() };
    outcome.arms[4].metrics.clear();
    let html = page(&outcome);
    assert!(html.contains("Not run: it would cut the only link."));
    assert!(html.contains("<b>+gso</b><span>No figure.</span>"));
}
