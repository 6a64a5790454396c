// Keeps a page up to date by asking for it again, and shows a shard beside its cell. Without it every link still works.
"use strict";

const seconds = Number(document.body.dataset.refreshS);
const statusLine = document.getElementById("status");

async function load(address) {
  const answer = await fetch(address, { cache: "no-store", credentials: "same-origin", signal: AbortSignal.timeout(60000) });
  if (!answer.ok) throw new Error(`the function app answered ${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// What a person has opened, scrolled or focused stays as it is.
function replaceContent(fresh) {
  const old = document.getElementById("live");
  for (const details of old.querySelectorAll("details[id]")) {
    const same = fresh.getElementById(details.id);
    if (same) same.open = details.open;
  }
  const replacement = document.importNode(fresh.getElementById("live"), true);
  if (old.isEqualNode(replacement)) return;
  const scrolled = [...old.querySelectorAll(".scroll, .log")].map((each) => [each.scrollLeft, each.scrollTop, each.scrollTop + each.clientHeight >= each.scrollHeight - 4]);
  const focused = old.contains(document.activeElement) ? [...old.querySelectorAll("a, [tabindex], summary")].indexOf(document.activeElement) : -1;
  const address = focused >= 0 ? document.activeElement.getAttribute("href") : null;
  old.replaceWith(replacement);
  [...replacement.querySelectorAll(".scroll, .log")].forEach((each, index) => {
    const [left, top, atEnd] = scrolled[index] ?? [0, 0, true];
    each.scrollLeft = left;
    each.scrollTop = atEnd && each.classList.contains("log") ? each.scrollHeight : top;
  });
  const targets = [...replacement.querySelectorAll("a, [tabindex], summary")];
  const target = targets.find((each) => address && each.getAttribute("href") === address) ?? targets[focused];
  if (focused >= 0 && target) target.focus({ preventScroll: true });
}

let lastGood = new Date();

async function refresh(pause) {
  await new Promise((done) => setTimeout(done, pause * 1000));
  if (document.hidden) await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
  let next = pause;
  try {
    const fresh = await load(location.href);
    const said = fresh.getElementById("status"); // at the end of a page: without it, the answer was cut
    if (!said) throw new Error("the answer was cut");
    replaceContent(fresh);
    statusLine.textContent = said.textContent;
    statusLine.className = "";
    lastGood = new Date();
    next = Number(fresh.body.dataset.refreshS);
  } catch (error) {
    statusLine.textContent = `Not updated since ${lastGood.toLocaleTimeString()}: ${error.message}. It is tried again; if this stays, reload the page.`;
    statusLine.className = "late";
    next = Math.min(60, Math.max(5, pause * 2));
  }
  if (next) refresh(next);
}

function showPanel(panel, fresh, address) {
  const close = document.createElement("button");
  close.textContent = "Close";
  const opener = document.activeElement;
  close.addEventListener("click", () => { panel.hidden = true; opener.focus(); });
  const whole = document.createElement("a");
  whole.href = address;
  whole.textContent = "Open as a page";
  const line = document.createElement("p");
  line.append(close, " ", whole);
  const content = document.importNode(fresh.getElementById("live"), true);
  content.id = "panel-content";
  panel.replaceChildren(line, content);
  panel.hidden = false;
  panel.focus();
}

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-panel]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  const address = link.getAttribute("href");
  event.preventDefault();
  link.focus();
  try {
    showPanel(document.querySelector(link.dataset.panel), await load(address), address);
  } catch {
    location.href = address;
  }
});

document.addEventListener("keydown", (event) => {
  const open = document.querySelector(".panel:not([hidden])");
  if (event.key === "Escape" && open) open.querySelector("button").click();
});

const log = document.querySelector(".log");
if (log) log.scrollTop = log.scrollHeight;
if (seconds) refresh(seconds);
