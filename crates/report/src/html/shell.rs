//! Frame of every page.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::visible;

pub const STYLE: &str = include_str!("style.css");

/// Script of a page that follows a run; only `serve` delivers it, files have no script.
pub(crate) const LIVE: &str = include_str!("live.js");

/// Place of a page.
#[derive(Debug, Clone, Copy)]
pub enum Shell<'a> {
    /// A file that contains everything and loads nothing.
    File,
    /// A page of `serve`; the style sheet is a resource of the same origin.
    Served {
        /// Entry of the navigation: `/`, `/compare` or `/paths`.
        here: &'a str,
        /// True for a page that follows a run under way.
        live: bool,
    },
}

impl Shell<'_> {
    pub fn page(&self, title: &str, body: &Markup) -> String {
        // A second line of defence, should a string ever slip through unescaped. The policy of a
        // served page is in the server's header.
        const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
        let document = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (title) " · Wirepath" }
                    @match self {
                        Shell::File => {
                            meta http-equiv="Content-Security-Policy" content=(POLICY);
                            style { (PreEscaped(STYLE)) }
                        }
                        Shell::Served { live, .. } => {
                            link rel="stylesheet" href="/style.css";
                            link rel="icon" href="/icon.svg";
                            @if *live { script src="/live.js" defer {} }
                        }
                    }
                }
                body {
                    @if let Shell::Served { here, .. } = self { (navigation(here)) }
                    main { (body) }
                }
            }
        };
        visible(&document.into_string()) + "\n"
    }
}

fn navigation(here: &str) -> Markup {
    html! {
        nav aria-label="pages" {
            ul {
                @for (to, name) in [("/", "Experiments"), ("/compare", "Compare"), ("/paths", "Paths")] {
                    li { a href=(to) aria-current=[(to == here).then_some("page")] { (name) } }
                }
            }
        }
    }
}
