//! `wirepath history check`.

use crate::args::Cli;
use crate::console;
use crate::end::Failure;

pub(crate) fn run(cli: &Cli) -> Result<(), Failure> {
    let store = super::open_reading(cli)?;
    let damage = store.check()?;
    let experiments = store.count(&report::store::Filter::default())?;
    let file = store.path().display();
    if cli.json {
        let json = serde_json::json!({
            "file": file.to_string(), "bytes": store.size_bytes()?,
            "experiments": experiments, "damage": damage,
        });
        console::text(&format!("{json:#}"))?;
    } else if damage.is_empty() {
        console::text(&format!("{file}: whole ({experiments} experiments)"))?;
    } else {
        for one in &damage {
            let whose = one.experiment.as_deref().unwrap_or("the file");
            console::text(&format!("{whose}: {}", one.what))?;
        }
    }
    match damage.len() {
        0 => Ok(()),
        count => Err(Failure::Threshold(format!(
            "{count} records are not as they should be; keep a copy of {file}, and remove what \
             cannot be read, or recover it with `sqlite3 FILE .recover`"
        ))),
    }
}
