//! Call stacks by time, as folded text and as a picture.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Call stacks with the number of samples of each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlameStacks {
    root: Frame,
}

/// A function in one place of the tree, with those that it called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Frame {
    /// Samples in it and in those that it called.
    total: u64,
    /// Samples in it alone.
    own: u64,
    called: BTreeMap<String, Frame>,
}

const WIDTH: f64 = 1200.0;
const ROW_HEIGHT: usize = 17;
const TITLE_HEIGHT: usize = 34;
const CHARACTER_WIDTH: f64 = 6.7;
/// Narrower ones are left out.
const WIDTH_MIN: f64 = 0.4;
const COLOURS: usize = 6;

const STYLE: &str = "text{font:11px ui-monospace,monospace;fill:#111}.t{font:bold 13px sans-serif}\
    .p{fill:#fff}rect{stroke:#fff;stroke-width:.5}\
    .c0{fill:#f6c99f}.c1{fill:#f3b5a5}.c2{fill:#f5dd9b}.c3{fill:#c7dfb0}.c4{fill:#b4d6ea}.c5{fill:#d5c6ea}\
    @media(prefers-color-scheme:dark){text{fill:#eee}.p{fill:#181818}rect{stroke:#181818}\
    .c0{fill:#7a4a1c}.c1{fill:#7d3526}.c2{fill:#6b5514}.c3{fill:#3c5d28}.c4{fill:#255670}.c5{fill:#523f74}}";

impl FlameStacks {
    /// Adds samples of a call chain, outermost function first; none for user space.
    pub fn add(&mut self, chain: Vec<String>, count: u64) {
        self.root.total += count;
        let chain = if chain.is_empty() { vec!["user space".to_owned()] } else { chain };
        let mut at = &mut self.root;
        for name in chain {
            at = at.called.entry(name).or_default();
            at.total += count;
        }
        at.own += count;
    }

    /// Samples of all stacks.
    pub fn total(&self) -> u64 {
        self.root.total
    }

    /// One line a stack: its functions from the outermost, joined by semicolons, and the number of samples.
    pub fn folded(&self) -> String {
        let mut text = String::new();
        for (name, frame) in &self.root.called {
            fold(frame, name, &mut text);
        }
        text
    }

    /// A picture in SVG without scripts: a function is as wide as its share of the samples, and stands on the one
    /// that called it. Names and counts are tooltips.
    pub fn svg(&self, title: &str) -> String {
        let rows = self.root.depth();
        let height = TITLE_HEIGHT + rows * ROW_HEIGHT + 4;
        let title = escape(&format!("{title}: {} samples", self.root.total));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
             height=\"{height}\" role=\"img\"><title>{title}</title><style>{STYLE}</style>\n\
             <rect class=\"p\" width=\"100%\" height=\"100%\"/><text class=\"t\" x=\"8\" y=\"21\">{title}</text>\n"
        );
        self.draw(&self.root, 0.0, 0, height, &mut out);
        out.push_str("</svg>\n");
        out
    }

    /// Draws what a frame called, from `left` on.
    fn draw(&self, frame: &Frame, mut left: f64, depth: usize, height: usize, out: &mut String) {
        for (name, called) in &frame.called {
            let share = called.total as f64 / self.root.total as f64;
            let width = share * WIDTH;
            if width >= WIDTH_MIN {
                let top = height - 4 - (depth + 1) * ROW_HEIGHT;
                let (colour, full) = (colour(name), escape(name));
                let _ = write!(
                    out,
                    "<g><title>{full}: {} samples, {:.1} %</title><rect class=\"c{colour}\" x=\"{left:.1}\" \
                     y=\"{top}\" width=\"{width:.1}\" height=\"{ROW_HEIGHT}\"/>",
                    called.total,
                    share * 100.0
                );
                let fitting = (width / CHARACTER_WIDTH) as usize;
                if fitting > 3 {
                    let short: String = name.chars().take(fitting - 1).collect();
                    let (x, y) = (left + 3.0, top + 12);
                    let _ = write!(out, "<text x=\"{x:.1}\" y=\"{y}\">{}</text>", escape(&short));
                }
                out.push_str("</g>\n");
                self.draw(called, left, depth + 1, height, out);
            }
            left += width;
        }
    }
}

impl Frame {
    /// Frames on top of each other above this one.
    fn depth(&self) -> usize {
        self.called.values().map(|called| called.depth() + 1).max().unwrap_or(0)
    }
}

fn fold(frame: &Frame, path: &str, text: &mut String) {
    if frame.own > 0 {
        let _ = writeln!(text, "{path} {}", frame.own);
    }
    for (name, called) in &frame.called {
        // A semicolon separates functions.
        fold(called, &format!("{path};{}", name.replace(';', ":")), text);
    }
}

/// The same for the same name in every picture.
fn colour(name: &str) -> usize {
    name.bytes().fold(7_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % COLOURS
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stacks() -> FlameStacks {
        let mut stacks = FlameStacks::default();
        for (chain, count) in [("a;b;c", 3), ("a;b", 2), ("a;<d>", 1), ("", 4)] {
            let chain = chain.split(';').filter(|name| !name.is_empty()).map(str::to_owned);
            stacks.add(chain.collect(), count);
        }
        stacks
    }

    #[test]
    fn folded_text_has_a_line_for_each_stack_and_loses_no_sample() {
        let text = stacks().folded();
        assert_eq!(text, "a;<d> 1\na;b 2\na;b;c 3\nuser space 4\n");
        let sum: u64 =
            text.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum();
        assert_eq!(sum, stacks().total());
    }

    #[test]
    fn a_picture_has_names_as_tooltips_and_no_script() {
        let svg = stacks().svg("AP <1>");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        for text in [
            "<title>AP &lt;1&gt;: 10 samples",
            "<title>a: 6 samples, 60.0 %",
            "&lt;d&gt;: 1 samples",
            "dark",
        ] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert!(!svg.contains("<script") && !svg.contains("<d>"));
        // `c` stands on `b`, and `b` on `a`.
        let top = |name: &str| -> usize {
            let at = svg.find(&format!("<title>{name}: ")).unwrap();
            let after = &svg[at..];
            let y = after.split_once(" y=\"").unwrap().1;
            y.split_once('"').unwrap().0.parse().unwrap()
        };
        assert_eq!((top("a") - top("b"), top("b") - top("c")), (ROW_HEIGHT, ROW_HEIGHT));
        assert_eq!(FlameStacks::default().folded(), "");
        assert!(FlameStacks::default().svg("none").contains("0 samples"));
    }
}
