//! A headless Chromium driven over its DevTools protocol.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::common::LONG;

/// A browser with one page; killed when dropped.
pub(crate) struct Browser {
    child: Child,
    /// Its profile and its downloads.
    folder: TempDir,
    to: ChildStdin,
    from: Receiver<Value>,
    session: String,
    asked: u64,
    /// Errors and policy violations of the page.
    pub(crate) complaints: Vec<String>,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        // It is spoken with over its descriptors 3 and 4; the shell puts ours there.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null", "sh"])
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"])
            .args(["--remote-debugging-pipe", "--disable-background-networking"])
            .args(["--disable-dev-shm-usage", "--disable-component-update", "--disable-sync"])
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromium starts");
        let to = child.stdin.take().expect("a pipe");
        let answers = child.stdout.take().expect("a pipe");
        let (heard, from) = channel();
        std::thread::spawn(move || {
            // Messages end with a zero byte.
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if heard.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            folder,
            to,
            from,
            session: String::new(),
            asked: 0,
            complaints: Vec::new(),
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let id = target["targetId"].as_str().expect("an id");
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": id, "flatten": true }));
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        let downloads = browser.downloads();
        fs::create_dir(&downloads).expect("a folder");
        let to = json!({ "behavior": "allow", "downloadPath": downloads });
        browser.call("Browser.setDownloadBehavior", to);
        browser
    }

    /// Where downloads arrive.
    pub(crate) fn downloads(&self) -> std::path::PathBuf {
        self.folder.path().join("downloads")
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.asked += 1;
        let id = self.asked;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        let sent =
            self.to.write_all(format!("{message}\0").as_bytes()).and_then(|()| self.to.flush());
        sent.expect("chromium listens");
        loop {
            let answer = self.from.recv_timeout(2 * LONG).expect("chromium answers");
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.note(&answer);
        }
    }

    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(parameters["exceptionDetails"].to_string());
            }
            Some("Runtime.consoleAPICalled")
                if ["error", "warning", "assert"]
                    .contains(&parameters["type"].as_str().unwrap_or_default()) =>
            {
                self.complaints.push(parameters["args"].to_string());
            }
            Some("Log.entryAdded")
                if ["error", "warning"]
                    .contains(&parameters["entry"]["level"].as_str().unwrap_or_default()) =>
            {
                self.complaints.push(parameters["entry"].to_string());
            }
            _ => {}
        }
    }

    /// Goes to a page and waits until it is there.
    pub(crate) fn open(&mut self, url: &str) {
        let gone = self.call("Page.navigate", json!({ "url": url }));
        assert!(gone["errorText"].is_null(), "{url}: {gone}");
        self.await_true("document.readyState === 'complete' && location.href !== 'about:blank'");
    }

    /// The value of an expression in the page; a promise's once it is kept.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
            "userGesture": true,
        });
        let answer = self.call("Runtime.evaluate", asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    pub(crate) fn text(&mut self, selector: &str) -> String {
        let found = self.eval(&format!("document.querySelector({selector:?})?.innerText ?? ''"));
        found.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true, through any change of page.
    pub(crate) fn await_true(&mut self, expression: &str) {
        let begun = Instant::now();
        loop {
            let asked = json!({ "expression": expression, "returnByValue": true });
            // During navigation no page answers: not true yet.
            if self.call("Runtime.evaluate", asked)["result"]["value"] == true {
                return;
            }
            assert!(begun.elapsed() < LONG, "never true: {expression}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks what a selector finds, and waits for the page that comes of it.
    pub(crate) fn follow(&mut self, selector: &str) {
        self.eval("window.stale = true");
        self.eval(&format!("document.querySelector({selector:?}).click()"));
        self.await_true("window.stale === undefined && document.readyState === 'complete'");
    }

    /// A page of this width, light or dark.
    pub(crate) fn look_like(&mut self, width: u32, dark: bool) {
        let screen = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", screen);
        let scheme = if dark { "dark" } else { "light" };
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.call("Emulation.setEmulatedMedia", feature);
    }

    /// The whole page as PNG, base64; how it looks is for a person to judge.
    pub(crate) fn screenshot(&mut self) -> String {
        let asked = json!({ "format": "png", "captureBeyondViewport": true });
        let shot = self.call("Page.captureScreenshot", asked);
        shot["data"].as_str().expect("a picture").to_owned()
    }

    /// Runs axe-core from a file; what it finds amiss, in short.
    pub(crate) fn axe(&mut self, script: &Path) -> Vec<String> {
        let script = fs::read_to_string(script).expect("axe-core");
        // By the protocol, which the page's policy does not bind.
        self.eval(&format!("{script}; 0"));
        let found = self.eval("axe.run().then(r => JSON.stringify(r.violations))");
        let found: Value = serde_json::from_str(found.as_str().expect("text")).expect("JSON");
        found
            .as_array()
            .expect("a list")
            .iter()
            .map(|v| format!("{}: {} ({})", v["id"], v["help"], v["nodes"]))
            .collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its own helpers end with it, once they find their pipes closed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
