//! Pages and downloads by path of the request.

use std::path::Path;

use house::http::{HttpAnswer, HttpRequest};
use remote::Failure;
use report::export::{Table, TrialsCsv};
use report::html::served;
use report::store::{Filter, SqliteStore, Store, StoreError};

use crate::path_page::Known;
use crate::{lookup, results};

/// Rows per page of the list.
const ROWS: u32 = 50;

/// Experiments to choose from when two are compared.
const CHOICES: u32 = 200;

/// Reason why there is no page.
enum Missing {
    /// 404.
    NotFound(String),
    /// 422: two experiments that cannot be compared.
    Unfit(String),
    /// 500: the store failed.
    Failed(String),
}

impl From<StoreError> for Missing {
    fn from(error: StoreError) -> Self {
        let text = Failure::from_chain(&error).into_text();
        match error {
            StoreError::NoSuchId { .. } | StoreError::Ambiguous { .. } | StoreError::Empty => {
                Missing::NotFound(text)
            }
            _ => Missing::Failed(text),
        }
    }
}

pub(crate) fn answer(request: &HttpRequest, database: &Path) -> HttpAnswer {
    let (status, title, text) = match route(request, database) {
        Ok(answer) => return answer,
        Err(Missing::NotFound(text)) => (404, "Not there", text),
        Err(Missing::Unfit(text)) => (422, "Not comparable", text),
        Err(Missing::Failed(text)) => (500, "That did not work", text),
    };
    HttpAnswer::page(status, served::failure(title, &text))
}

fn route(request: &HttpRequest, database: &Path) -> Result<HttpAnswer, Missing> {
    match request.path.as_str() {
        "/style.css" => return Ok(HttpAnswer::new("text/css; charset=utf-8", report::html::STYLE)),
        "/live.js" => return Ok(HttpAnswer::new("text/javascript; charset=utf-8", served::LIVE)),
        "/icon.svg" => return Ok(HttpAnswer::new("image/svg+xml", served::ICON)),
        _ => {}
    }
    let store = match SqliteStore::open_reading(database) {
        Err(StoreError::Empty) => None,
        store => Some(store?),
    };
    match request.path.as_str() {
        "/" => list(request, store.as_ref()),
        "/compare" | "/compare.json" => compare(request, store.as_ref()),
        "/paths" => {
            let all = lookup::all();
            let all: Vec<_> = all.iter().map(|path| (path.name(), path.what())).collect();
            Ok(HttpAnswer::page(200, report::html::paths(&all)))
        }
        path => {
            let nothing = || Missing::NotFound("there is no such page".into());
            if let Some(name) = path.strip_prefix("/path/") {
                let path = lookup::built_in(&decoded(name)).ok_or_else(nothing)?;
                let machine = request.field("machine");
                let known = Known::read(store.as_ref(), path.name(), machine)?;
                return Ok(HttpAnswer::page(200, known.page(path.as_ref(), |page| page.served())));
            }
            let rest = path.strip_prefix("/experiment/");
            let (id, what) =
                rest.map(|r| r.split_once('/').unwrap_or((r, ""))).ok_or_else(nothing)?;
            let id = decoded(id);
            let store = store.ok_or(StoreError::Empty)?;
            match what {
                "" => experiment(&store, &id),
                "progress.json" => progress(&store, &id),
                "outcome.json" => {
                    let outcome = outcome(&store, &id)?;
                    let body = report::json::to_json(&outcome);
                    Ok(HttpAnswer::new("application/json", body)
                        .saved_as(format!("{}.json", outcome.id)))
                }
                "outcome.csv" => {
                    let outcome = outcome(&store, &id)?;
                    let body = report::csv::to_csv(&outcome);
                    Ok(HttpAnswer::new("text/csv; charset=utf-8", body)
                        .saved_as(format!("{}.csv", outcome.id)))
                }
                "trials.csv" => trials(&outcome(&store, &id)?),
                _ => Err(nothing()),
            }
        }
    }
}

/// Decodes a path segment; a plus is literal there.
fn decoded(part: &str) -> String {
    let part = format!("id={}", part.replace('+', "%2B"));
    form_urlencoded::parse(part.as_bytes())
        .next()
        .map(|(_, id)| id.into_owned())
        .unwrap_or_default()
}

fn outcome(store: &SqliteStore, id: &str) -> Result<model::Outcome, Missing> {
    Ok(results::outcome_of(store.load_outcome(id)?))
}

fn list(request: &HttpRequest, store: Option<&SqliteStore>) -> Result<HttpAnswer, Missing> {
    let field = |name| request.field(name).map(str::to_owned);
    let page: u32 = request.field("page").and_then(|page| page.parse().ok()).unwrap_or(0);
    let filter = Filter {
        path: field("path"),
        name: field("name"),
        machine: field("machine"),
        since: field("since"),
        until: field("until"),
        limit: Some(ROWS),
        offset: page.saturating_mul(ROWS),
    };
    let (mut rows, mut total, mut paths, mut machines) = Default::default();
    if let Some(store) = store {
        rows = store.list(&filter)?;
        total = store.count(&filter)?;
        (paths, machines) = (store.paths()?, store.machines()?);
    }
    let list = served::List {
        rows: &rows,
        total,
        per_page: ROWS,
        filter: &filter,
        paths: &paths,
        machines: &machines,
    };
    Ok(HttpAnswer::page(200, served::list(&list)))
}

fn experiment(store: &SqliteStore, id: &str) -> Result<HttpAnswer, Missing> {
    let progress = store.progress(id)?;
    let outcome = outcome(store, &progress.id)?;
    let quiet_ms = quiet_ms(&progress);
    Ok(HttpAnswer::page(200, served::experiment(&outcome, &progress, quiet_ms)))
}

fn progress(store: &SqliteStore, id: &str) -> Result<HttpAnswer, Missing> {
    let progress = store.progress(id)?;
    let quiet_ms = quiet_ms(&progress);
    let body = serde_json::json!({
        "said": served::progress_words(&progress, quiet_ms),
        "quiet": quiet_ms > 60_000,
        "ended": progress.ended,
        "trials": progress.trials,
        "block": progress.block,
        "elapsed_ms": progress.elapsed_ms,
        "budget_ms": progress.budget_ms,
    });
    Ok(HttpAnswer::new("application/json", body.to_string()))
}

/// Time since the last progress of a run.
fn quiet_ms(progress: &report::store::Progress) -> u64 {
    progress.since_start_ms.saturating_sub(progress.elapsed_ms)
}

fn trials(outcome: &model::Outcome) -> Result<HttpAnswer, Missing> {
    let mut body = Vec::new();
    let table = TrialsCsv::new(&mut body).map(Box::new);
    table
        .and_then(|mut table| table.add(outcome).and_then(|()| table.finish()))
        .map_err(|e| Missing::Failed(e.to_string()))?;
    let name = format!("{}-trials.csv", outcome.id);
    Ok(HttpAnswer::new("text/csv; charset=utf-8", body).saved_as(name))
}

fn compare(request: &HttpRequest, store: Option<&SqliteStore>) -> Result<HttpAnswer, Missing> {
    let (old, new) = (request.field("old"), request.field("new"));
    let (Some(old), Some(new)) = (old, new) else {
        let filter = Filter { limit: Some(CHOICES), ..Filter::default() };
        let rows = store.map_or(Ok(Vec::new()), |store| store.list(&filter))?;
        return Ok(HttpAnswer::page(200, served::comparison_form(&rows)));
    };
    let store = store.ok_or(StoreError::Empty)?;
    let (olds, news) = (results::series(store, old)?, results::series(store, new)?);
    let comparison = model::compare(&olds, &news, model::Unit::Session, model::RESOLVE)
        .map_err(|e| Missing::Unfit(e.to_string()))?;
    if request.path == "/compare" {
        return Ok(HttpAnswer::page(200, served::comparison(&comparison)));
    }
    let body = report::json::comparison_to_json(&comparison);
    let name = match (olds.first(), news.last()) {
        (Some(old), Some(new)) => format!("{}-{}.json", old.id, new.id),
        _ => "comparison.json".into(),
    };
    Ok(HttpAnswer::new("application/json", body).saved_as(name))
}
