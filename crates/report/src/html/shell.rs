//! What is around every page.

use super::escape;

/// The style sheet of all pages.
pub const STYLE: &str = include_str!("style.css");

/// The script of a page that follows a run; `serve` hands it out, files have none.
pub(crate) const LIVE: &str = include_str!("live.js");

/// Where a page will be.
#[derive(Debug, Clone, Copy)]
pub enum Shell<'a> {
    /// A file of its own: everything is in it, and it may not load anything.
    File,
    /// Behind `serve`: the style sheet is a resource of the same origin.
    Served {
        /// Which entry of the navigation this is: `/`, `/compare` or `/paths`.
        here: &'a str,
        /// Whether the page follows a run that is under way.
        live: bool,
    },
}

impl Shell<'_> {
    /// The whole document; `title` is text, `body` is markup.
    pub fn page(&self, title: &str, body: &str) -> String {
        let (head, navigation) = match self {
            // The policy holds even if a string should ever slip through unescaped.
            Shell::File => (
                format!(
                    "<meta http-equiv=\"Content-Security-Policy\" \
                     content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
                     <style>\n{STYLE}</style>\n"
                ),
                String::new(),
            ),
            // Here the server's header says what may be loaded.
            Shell::Served { here, live } => {
                let mut head = "<link rel=\"stylesheet\" href=\"/style.css\">\n\
                                <link rel=\"icon\" href=\"/icon.svg\">\n"
                    .to_owned();
                if *live {
                    head.push_str("<script src=\"/live.js\" defer></script>\n");
                }
                (head, navigation(here))
            }
        };
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{} · Wirepath</title>\n{head}</head>\n<body>\n{navigation}<main>\n\
             {body}</main>\n</body>\n</html>\n",
            escape(title)
        )
    }
}

fn navigation(here: &str) -> String {
    let mut out = String::from("<nav aria-label=\"pages\"><ul>");
    for (to, name) in [("/", "Experiments"), ("/compare", "Compare"), ("/paths", "Paths")] {
        let current = if to == here { " aria-current=\"page\"" } else { "" };
        out.push_str(&format!("<li><a href=\"{to}\"{current}>{name}</a></li>"));
    }
    out + "</ul></nav>\n"
}
