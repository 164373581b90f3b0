// Follows a run: asks how far it is, and renews the report when a block more is there.
"use strict";
(() => {
  const live = document.getElementById("live");
  if (!live) return;
  const bar = document.getElementById("bar");
  const said = document.getElementById("said");
  let shown = Number(live.dataset.trials);
  let renewedAt = Date.now();

  async function renew() {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("report");
    const stale = document.getElementById("report");
    if (!fresh || !stale) return;
    const title = (part) => part.querySelector("summary").textContent;
    const open = [...stale.querySelectorAll("details[open]")].map(title);
    for (const part of fresh.querySelectorAll("details")) part.open = open.includes(title(part));
    stale.replaceWith(document.adoptNode(fresh));
  }

  async function look() {
    let wait = 1000;
    try {
      const answer = await fetch(live.dataset.progress, { cache: "no-store" });
      if (!answer.ok) throw new Error(String(answer.status));
      const now = await answer.json();
      if (said.textContent !== now.said) said.textContent = now.said;
      if (now.budget_ms) {
        bar.max = now.budget_ms;
        bar.value = Math.min(now.elapsed_ms, now.budget_ms);
      }
      if (now.ended !== "unfinished") {
        await renew();
        bar.remove();
        live.querySelector("h2").textContent = "Finished";
        return;
      }
      // The figures cost a whole report; the bar costs nothing.
      if (now.trials > shown && Date.now() - renewedAt > 5000) {
        shown = now.trials;
        renewedAt = Date.now();
        await renew();
      }
      if (now.quiet) wait = 10000;
    } catch {
      said.textContent = "The server does not answer; trying again.";
      wait = 5000;
    }
    setTimeout(look, wait);
  }
  setTimeout(look, 1000);
})();
