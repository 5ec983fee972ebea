// Keeps the pages up to date, counts times down, shows them in the zone of the reader, and
// adds keyboard shortcuts. The essential functions work without this script.

const worker = "/worker.js";
const rules = {
  createHTML: (text) => text,
  createScriptURL: (where) => { if (where !== worker) throw new TypeError("not a script of the inbox"); return where; },
};
const policy = window.trustedTypes ? window.trustedTypes.createPolicy("inbox", rules) : rules;

const $ = (selector, from = document) => from.querySelector(selector);
const all = (selector, from = document) => [...from.querySelectorAll(selector)];
const started = Date.now();
const skew = Date.parse(document.body.dataset.now) - started;
const now = () => Date.now() + skew;

// Times

function span(ms) {
  const s = Math.max(0, Math.floor(ms / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60);
  const two = (n) => String(n).padStart(2, "0");
  if (h >= 48) return `${Math.floor(h / 24)} d`;
  if (h > 0) return `${h} h ${two(m % 60)} min`;
  if (m >= 10) return `${m} min`;
  if (m > 0) return `${m} min ${two(s % 60)} s`;
  return `${s} s`;
}

function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// localTimes shows times in the zone of the reader, and in UTC on hover. Without the script they are in UTC.
const dateAndTime = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" };
const timeOnly = { hour: "2-digit", minute: "2-digit", second: "2-digit" };

function localTimes() {
  for (const t of all("time[datetime]:not([title])")) t.title = `${t.dateTime.slice(0, 19).replace("T", " ")} UTC`;
  for (const t of all("time[data-local]")) {
    const format = t.dataset.local === "time" ? timeOnly : dateAndTime;
    set(t, new Date(t.dateTime).toLocaleString([], { ...format, hourCycle: "h23" }));
  }
}

// localDays makes the days of a search those of the reader. Without the script they are days in UTC.
function localDays() {
  for (const e of all("[data-zone]")) e.hidden = true;
  for (const d of all("[data-day]")) {
    if (!d.dataset.at) continue;
    const at = new Date(Date.parse(d.dataset.at) - (d.dataset.day === "last" ? 1 : 0));
    delete d.dataset.at; // the reader may change the day
    d.value = [at.getFullYear(), at.getMonth() + 1, at.getDate()].map((n, i) => String(n).padStart(i ? 2 : 4, "0")).join("-");
  }
}

function sendDays(event) {
  for (const d of all("[data-day]", event.target)) {
    if (!d.value) continue;
    const [year, month, day] = d.value.split("-").map(Number);
    event.formData.set(d.name, new Date(year, month - 1, day + (d.dataset.day === "last" ? 1 : 0)).toISOString());
  }
}

function tick() {
  localTimes();
  const at = now();
  for (const t of all("[data-since]")) {
    const past = at - Date.parse(t.dataset.since);
    set(t, past < 1000 ? "just now" : `${span(past)} ago`);
  }
  for (const t of all("[data-for]")) set(t, span(at - Date.parse(t.dataset.for)));
  for (const t of all("[data-until]")) {
    const left = Date.parse(t.dataset.until) - at;
    set(t, span(left));
    if (left < -500) refreshSoon();
  }
  for (const f of all(".time-left")) {
    const from = Date.parse(f.dataset.from), to = Date.parse(f.dataset.to);
    f.value = Math.max(0, (1000 * (to - at)) / (to - from));
    f.closest(".row, .verdict").classList.toggle("urgent", to - at < 60000 || f.value < 150);
  }
}

// Staying up to date

// down is set while the gate does not answer.
let down = false;
let busy = false, again = false, timer = 0, ended = false, refreshed = -Infinity;

// pause is the shortest time between two reloads, in milliseconds.
const pause = 400;

function refreshSoon(delay = 60) {
  if (ended || timer) return;
  timer = setTimeout(() => {
    timer = 0;
    // A request may have ended since the timer was set: the pause begins then.
    if (performance.now() < refreshed + pause) refreshSoon(0); else refresh();
  }, Math.max(delay, refreshed + pause - performance.now()));
}

// ask is fetch with a time limit.
async function ask(where, options, patience) {
  const control = new AbortController();
  let timer = setTimeout(() => control.abort(), patience);
  try {
    const answer = await fetch(where, { ...options, signal: control.signal });
    clearTimeout(timer);
    timer = setTimeout(() => control.abort(), 60000); // to read it
    return { answer, text: await answer.text() };
  } finally {
    clearTimeout(timer);
  }
}

async function refresh() {
  if (ended) return; // even after signing in again in another tab
  if (busy) { again = true; return; }
  busy = true;
  const { self } = document.body.dataset;
  try {
    const { answer, text } = await ask(self, { headers: { Accept: "text/html" }, cache: "no-store" }, 8000);
    const where = new URL(answer.url).pathname;
    if (ended) return;
    if (self !== document.body.dataset.self) { again = true; return; } // another page was shown meanwhile
    if (answer.status === 401 || where.startsWith("/login")) { sessionEnded(); return; }
    if (answer.status === 404 && $("[data-case]")) { location.reload(); return; }
    if (answer.status === 429 || answer.status >= 500) { refreshSoon(3000); return; }
    const page = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
    connection(true);
    adopt(page);
  } catch {
    connection(false);
    again = true;
  } finally {
    busy = false;
    refreshed = performance.now();
    if (again) { again = false; refreshSoon(down ? 3000 : 60); }
  }
}

// adopt copies the changed parts of a fresh copy of this page. It does not change parts that
// the reader may be reading, ticking or writing.
function adopt(page) {
  if (!adoptLogin(page)) { location.reload(); return; }
  document.body.dataset.waiting = page.body.dataset.waiting;
  const count = $("#count", page);
  if (count) $("#count").replaceWith(count);
  badge();
  const matching = $("#matching", page);
  if (matching && $("#matching")) set($("#matching"), matching.textContent);
  const restart = $("#restart", page);
  if (restart) $("#restart").replaceWith(restart);
  const old = $("#content"), fresh = $("#content", page);
  if (!old || !fresh) return;
  if (old.dataset.case) adoptCase(old, fresh);
  else if ($("#list", old) && $("#list", fresh)) {
    adoptRows($("#list", old), $("#list", fresh));
    showTicked();
    adoptPager(old, $(".pager", fresh));
  }
  else if ((!$("form#bulk", old) || !$("form#bulk", fresh)) && !written(old)) swapContent(old, fresh);
  reveal();
  tick();
}

// adoptLogin moves the forms of this page to the session of a fresh copy, after the reader has
// signed in again in another tab. It reports false if that was another person.
function adoptLogin(page) {
  const login = $(".account [name=csrf]", page)?.value;
  if (!login || login === $(".account [name=csrf]").value) return true;
  if ($(".who", page).title !== $(".who").title) return false;
  for (const field of all("[name=csrf]")) field.value = login;
  delayed?.data.set("csrf", login);
  document.body.dataset.device = page.body.dataset.device;
  return true;
}

function adoptPager(old, fresh) {
  const before = $(".pager", old);
  if (before?.outerHTML === fresh?.outerHTML) return;
  before?.remove();
  if (fresh) old.append(fresh);
}

// written reports whether the reader is writing into a part of the page, or has done so. Parts without calls
// do not change by themselves.
function written(part) {
  return part.hasAttribute("data-still") || part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select") ||
    all("input:not([type=hidden])", part).some((field) => field.value !== field.defaultValue);
}

function swapContent(old, fresh) {
  old.replaceWith(fresh);
}

function adoptRows(old, fresh) {
  const known = new Map(all(".row", old).map((row) => [row.dataset.id, row]));
  const focused = document.activeElement?.closest?.(".row");
  const rows = all(".row", fresh).map((row) => {
    const before = known.get(row.dataset.id);
    known.delete(row.dataset.id);
    if (before && before.dataset.version === row.dataset.version) { adoptPart(".agent", before, row); return before; }
    if (before) { const box = $("input", row); if (box) box.checked = $("input", before).checked; }
    else row.classList.add("new");
    return row;
  });
  const lost = focused && known.has(focused.dataset.id);
  const next = lost && (focused.nextElementSibling || focused.previousElementSibling);
  for (const [, gone] of known) gone.remove();
  rows.forEach((row, at) => { if (old.children[at] !== row) old.insertBefore(row, old.children[at] || null); });
  for (const row of all(".row", old)) if (!rows.includes(row)) row.remove();
  if (lost && next?.isConnected) $(".open", next)?.focus();
}

// adoptPart copies one part without controls.
function adoptPart(part, old, fresh) {
  const a = $(part, old), b = $(part, fresh);
  if (a && b && a.outerHTML !== b.outerHTML) a.replaceWith(b);
}

function adoptCase(old, fresh) {
  if (old.dataset.shown !== fresh.dataset.shown && fresh.dataset.state === "input_required") {
    const reason = $("#reason")?.value;
    swapContent(old, fresh);
    if (reason && $("#reason")) $("#reason").value = reason;
    say("The request has changed while it was open. Review it again before you decide.");
    reading();
    return;
  }
  const changed = old.dataset.state !== fresh.dataset.state || old.dataset.version !== fresh.dataset.version;
  if (changed) {
    const reason = $("#reason")?.value;
    const focus = document.activeElement?.id;
    for (const part of ["#verdict", "#result", ".story"]) {
      const a = $(part, old), b = $(part, fresh);
      if (a && b) a.replaceWith(b);
    }
    old.dataset.state = fresh.dataset.state;
    old.dataset.version = fresh.dataset.version;
    old.toggleAttribute("data-over", fresh.hasAttribute("data-over"));
    if (reason && $("#reason")) $("#reason").value = reason;
    reading();
    if (focus) (document.getElementById(focus) || $("#main")).focus();
    tell(`${$("#verdict-title").textContent}. ${$("#status-text").textContent}`);
  }
  adoptPart("#agent", old, fresh);
  adoptPart("#neighbours", old, fresh);
  adoptGroup($("#group", old), $("#group", fresh));
  // The stream does not report changes of a call between its decision and its end.
  if (old.dataset.state !== "input_required" && !old.hasAttribute("data-over")) refreshSoon(1000);
}

// adoptGroup shows the present members of a group. The reader must tick a changed group again.
function adoptGroup(old, fresh) {
  if (!old || !fresh || old.dataset.version === fresh.dataset.version) return;
  old.replaceWith(fresh);
  showGroup();
}

// showGroup shows on the buttons how many calls they decide.
function showGroup() {
  const all = $("#all");
  const number = all?.checked ? ` ${all.dataset.calls}` : "";
  if ($("#approve")) set($("#approve"), "Approve" + number);
  if ($("#reject")) set($("#reject"), "Reject" + number);
}

// ticked returns the ids of the calls that are ticked in the list. A row can have several.
const ticked = () => all(".tick input:checked").flatMap((box) => box.value.split(" "));

function showTicked() {
  const button = $("#reject-ticked"), { length } = ticked();
  if (button) set(button, length ? `Reject ${length} ticked` : "Reject ticked");
  for (const row of all("#list .row")) row.classList.toggle("leaving", Boolean(delayed?.ids.includes(row.dataset.id)));
}

// say shows a warning above the page.
function say(text) {
  const lost = $("#lost");
  lost.replaceChildren(text);
  lost.hidden = !text;
  // The warning moves the form down, so keep the field with the focus in view.
  if (document.activeElement?.closest?.("#decision")) document.activeElement.scrollIntoView({ block: "nearest" });
}

// Reading before approving

const opened = new WeakSet();

// reading allows an approval when every folded part was opened, or when the approver has
// confirmed to approve without reading the rest.
function reading() {
  const read = $("#read"), approve = $("#approve");
  if (!read || !approve) return;
  for (const fold of all("details.fold[open]")) opened.add(fold);
  const left = Number(read.dataset.left) > 0 || all("details.fold").some((fold) => !opened.has(fold));
  if (!$("#unread")) return;
  $("#unread").hidden = !left;
  $("#consent").required = left;
  read.value = left ? "" : "all";
  approve.disabled = down || left && !$("#consent").checked;
}

// copy copies the exact text of a block, including hidden characters.
async function copy(button) {
  const label = button.dataset.label ??= button.textContent;
  const text = all(".line", button.closest(".block")).map((line) => {
    const plain = line.cloneNode(true);
    for (const point of all(".code-point", plain)) point.replaceWith(String.fromCodePoint(parseInt(point.textContent.slice(2), 16)));
    return plain.textContent;
  }).join("");
  try {
    await navigator.clipboard.writeText(text);
    set(button, "Copied");
  } catch {
    set(button, "Not copied");
  }
  setTimeout(() => set(button, label), 2000);
}

// hint says for some seconds why a key did nothing.
let hinted = 0;

function hint(text) {
  clearTimeout(hinted);
  $("#hint").hidden = !text;
  set($("#hint"), text);
  if (text) hinted = setTimeout(hint, 8000, "");
}

function tell(text) { set($("#told"), text); }

function badge() {
  const plain = document.title.replace(/^\(\d+\+?\) /, "");
  const n = Number(document.body.dataset.waiting);
  document.title = n > 0 ? `(${$("#count").textContent.trim()}) ${plain}` : plain;
}

function sessionEnded() {
  ended = true;
  stop();
  release();
  const lost = $("#lost");
  const link = document.createElement("a");
  link.href = "/login?next=" + encodeURIComponent(document.body.dataset.self);
  link.textContent = "Sign in again";
  lost.replaceChildren("Your session has ended. Nothing more can be decided here. ", link);
  lost.hidden = false;
  for (const b of all("#decision button, .bulk button")) b.disabled = true;
  connection(false, "Signed out");
}

function connection(up, text) {
  if (ended && !text) return; // a page that is signed out stays so
  if (down === up && !ended) reached(up);
  const live = $("#live");
  if (!live) return;
  live.classList.toggle("offline", !up);
  set($("#live-text"), text || (up ? "Live" : "Connection lost, trying again"));
}

// reached shows whether the gate answers, and disables buttons if it does not.
function reached(up) {
  down = !up;
  document.body.classList.toggle("down", down);
  for (const b of all("#decision button, .bulk button")) b.disabled = down;
  if (down) {
    say(`The gate does not answer. Nothing can be decided until it does${$("#reason")?.value ? "; your reason is kept" : ""}. Trying again…`);
    refreshSoon(3000);
  } else {
    say("");
    tell("The gate answers again.");
    reading();
  }
}

// Browsers limit the connections to one server. So only one tab, which holds a lock, listens
// for events, and it passes them on to the other tabs. Browsers have no locks on pages
// without encryption. There, every visible tab listens.

const known = new Set(all(".row").map((row) => row.dataset.id));
const others = new BroadcastChannel("inbox");
let stream, listens = !navigator.locks;

// release gives up the lock.
let release = () => {};

// A broken stream looks like an idle one, so the gate sends heartbeats. The listening tab
// passes them on. If two are missing, the tab reconnects. If three are missing, another tab
// takes over, since the listening tab may be frozen.
let beat = 15000, silence = 0;

function heard() {
  clearTimeout(silence);
  silence = setTimeout(listens ? listenAnew : takeOver, (listens ? 2 : 3) * beat);
}

function listenAnew() {
  others.postMessage({ silent: true });
  refresh();
  listen();
}

// takeOver takes the lock from the listening tab. The next waiting tab gets it.
function takeOver() {
  heard();
  refresh();
  navigator.locks.request("inbox", { steal: true }, () => {}).catch(() => {});
}

function stop() {
  stream?.close();
  clearTimeout(silence);
}

function changed(e, leads) {
  const fresh = e.pending && !known.has(e.id);
  if (e.pending) known.add(e.id); else known.delete(e.id);
  if (fresh && Date.parse(e.createdAt) > started + skew - 2000) announce(e, leads);
  refreshSoon();
}

others.onmessage = ({ data }) => {
  if (ended) return;
  if (!listens) { beat = data.beat || beat; heard(); }
  if ("up" in data) reconnected(data.up);
  else if ("id" in data) changed(data, false);
  else if (data.silent) refresh();
};

// reconnected records whether events arrive, and reloads after an interruption.
function reconnected(up) {
  connection(up);
  if (up) refreshSoon();
}

function reachable(up) {
  reconnected(up);
  others.postMessage({ up });
}

function listen() {
  stop();
  stream = new EventSource("/events");
  heard();
  stream.onopen = () => { heard(); reachable(true); };
  stream.addEventListener("beat", (message) => {
    beat = Number(message.data) || beat;
    heard();
    others.postMessage({ beat });
  });
  stream.onmessage = (message) => {
    heard();
    const e = JSON.parse(message.data);
    others.postMessage(e);
    changed(e, true);
  };
  stream.onerror = () => {
    reachable(false);
    if (stream.readyState !== EventSource.CLOSED) return;
    refresh(); // shows whether the session has ended or the gate is down
    clearTimeout(silence);
    silence = setTimeout(listen, 3000);
  };
}

// follow listens once no other tab does.
function follow() {
  listens = false;
  heard();
  navigator.locks.request("inbox", () => {
    if (ended) return null;
    listens = true;
    listen();
    return new Promise((done) => { release = done; });
  }).catch(() => {
    // Another tab took over, or this page was closed while it waited for the lock.
    if (!listens || ended) return;
    stop();
    follow();
  });
}

function lead() {
  if (navigator.locks) {
    follow();
    refreshSoon(); // to show changes since the page was rendered
    return;
  }
  const look = () => {
    stop();
    if (!document.hidden && !ended) listen();
  };
  document.addEventListener("visibilitychange", look);
  look();
}

// Notifications

const wanted = () => localStorage.getItem("notify") === "yes" && "Notification" in window && Notification.permission === "granted";

function announce(e, leads) {
  tell(`New request: ${e.tool}, from ${e.requester}`);
  if (!leads || !wanted() || pushed() || document.hasFocus()) return;
  const n = new Notification("Approval requested", { body: `${e.tool}, from ${e.requester}`, tag: e.id });
  n.onclick = () => { window.focus(); location.href = `/approvals/${encodeURIComponent(e.id)}`; };
}

function showNotify() {
  const button = $("#notify");
  button.setAttribute("aria-pressed", String(wanted()));
  set(button, wanted() ? "Notifications on" : "Notify me");
}

// whyNotNotified says what an approver can do about notifications that the browser does not show.
function whyNotNotified() {
  if (!isSecureContext) return "Browsers show notifications only for addresses with https, and for localhost.";
  if (!("Notification" in window)) return "This browser does not show notifications here. On a phone, add the inbox to the home screen and open it there.";
  if (Notification.permission === "denied") return "Your browser blocks notifications of the inbox. Allow them in its settings for this page, then press again.";
  return "Notifications stay off: the browser was not allowed to show them.";
}

async function toggleNotify() {
  if (wanted()) {
    localStorage.removeItem("notify");
    showNotify();
    if (pushed()) await unsubscribe().catch(() => {});
    hint("Notifications are off in this browser.");
    return;
  }
  if (!isSecureContext || !("Notification" in window) || (await Notification.requestPermission()) !== "granted") {
    hint(whyNotNotified());
    return;
  }
  localStorage.setItem("notify", "yes");
  showNotify();
  hint(pushable ? "Subscribing…" : "You are notified while the inbox is open in the background.");
  if (!pushable) return;
  await subscribe().then(() => hint("You are notified, also while the inbox is closed."),
    () => hint("You are notified only while the inbox is open in the background: the browser could not subscribe."));
}

// Push: a subscribed browser is notified also while the inbox is closed. A subscription
// belongs to a session, and is renewed after the next sign-in.

const pushable = document.body.dataset.push && "serviceWorker" in navigator && "PushManager" in window;
const pushed = () => pushable && localStorage.getItem("push") !== null;

function bytes(text) {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (c) => c.charCodeAt(0));
}

async function tellGate(where, what) {
  const { answer } = await ask(where, { method: "POST", body: new URLSearchParams({ ...what, csrf: $("input[name=csrf]").value }) }, 8000);
  if (!answer.ok) throw new Error(answer.statusText);
}

async function subscribe() {
  if (!pushable) return;
  const { pushManager } = await navigator.serviceWorker.ready;
  const key = bytes(document.body.dataset.push);
  let s = await pushManager.getSubscription();
  if (s && String(new Uint8Array(s.options.applicationServerKey)) !== String(key)) { await s.unsubscribe(); s = null; }
  s ||= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
  const { endpoint, keys } = s.toJSON();
  await tellGate("/push/subscribe", { endpoint, key: keys.p256dh, auth: keys.auth });
  localStorage.setItem("push", document.body.dataset.device);
}

async function unsubscribe() {
  localStorage.removeItem("push");
  const { pushManager } = await navigator.serviceWorker.ready;
  await (await pushManager.getSubscription())?.unsubscribe();
  await tellGate("/push/unsubscribe", {});
}

async function renew() {
  if (!pushable) return;
  await navigator.serviceWorker.register(policy.createScriptURL(worker));
  if (wanted() && pushed() && localStorage.getItem("push") !== document.body.dataset.device) await subscribe();
}

// The keyboard

function move(by) {
  if ($("[data-case]")) { moveToCall(by); return; }
  const links = all(".row .open");
  if (!links.length) { hint("There are no calls on this page."); return; }
  const row = document.activeElement?.closest?.(".row");
  const at = links.findIndex((link) => link.closest(".row") === row);
  links[Math.min(links.length - 1, Math.max(0, at < 0 ? 0 : at + by))].focus();
}

function moveToCall(by) {
  const link = $(by > 0 ? "#next" : "#previous");
  if (link) link.click();
  else if (!$("#neighbours").textContent.trim()) hint("This call is not in the list of waiting calls.");
  else hint(by > 0 ? "This is the last call of the list." : "This is the first call of the list.");
}

function tickRow() {
  const box = document.activeElement?.closest?.(".row")?.querySelector(".tick input");
  if (box) box.click();
  else if ($(".tick")) hint("Choose a call first, with j or k.");
  else hint($("#list .row") ? "You may view these calls, but not decide them." : "There is no call to tick on this page.");
}

// whyNot says why a button cannot be pressed.
function whyNot(button) {
  const call = $("[data-case]");
  if (!call) return $("#list .open") ? "Open a call first: choose it with j or k, then press Enter." : "There is no call to decide on this page.";
  if (call.dataset.state !== "input_required") return "This call no longer waits for a decision.";
  if (ended) return "Your session has ended.";
  if (down) return "The gate does not answer, so nothing can be decided.";
  if ($("#decision")?.dataset.sent) return "Your decision is being sent.";
  if (button) return "A part of this call was not shown yet: open every folded part, or tick “I approve without reading”.";
  return ($("#verdict .objection") || $("#may-not"))?.textContent.trim() || "You may not decide this call.";
}

// arm moves the focus to a button. Enter or Space then presses it, but only after a short
// time, so that a key that is held down or struck twice does not decide.
let armedAt = 0;

function arm(id, what) {
  const button = document.getElementById(id);
  if (!button || button.disabled) { hint(whyNot(button)); return; }
  button.focus();
  armedAt = performance.now();
  set($("#armed"), `Press Enter to ${what}, or Esc to leave it.`);
}

const rest = 350;

function guard(event) {
  const button = event.target.closest?.("#approve, #reject, #correct");
  if (!button || (event.key !== "Enter" && event.key !== " ")) return;
  if (event.repeat) { event.preventDefault(); return; }
  if (performance.now() - Math.max(armedAt, shownAt) >= rest) return;
  event.preventDefault();
  armedAt = performance.now() - rest; // the next one counts
  set($("#armed"), `That was very quick, so it was not counted. Press ${event.key === "Enter" ? "Enter" : "Space"} again to ${button.id}.`);
}

let shownAt = performance.now();

// settle is how long a page that follows a decision ignores clicks on its buttons, in milliseconds: the second
// click of a double click is not for this call.
const settle = 700;
let arrivedAt = -settle;

function guardClick(event) {
  if (!event.target.closest?.("#approve, #reject, #correct") || performance.now() - arrivedAt >= settle) return;
  event.preventDefault();
  hint("This is the next call. That click came too soon after the last decision, so it was not counted.");
}

const keys = {
  j: () => move(1),
  k: () => move(-1),
  x: tickRow,
  a: () => arm("approve", "approve"),
  r: () => arm("reject", "reject"),
  u: () => (delayed ? takeBack() : hint("There is no rejection to take back.")),
  c: () => ($("#reason") ? $("#reason").focus() : hint(whyNot())),
  g: () => { location.href = "/"; },
  "/": () => ($("[data-search]") ? $("[data-search]").focus() : hint("There is nothing to search on this page.")),
  "?": () => $("#shortcuts").showModal(),
};

function onKey(event) {
  guard(event);
  const typing = event.target.matches?.("input:not([type=checkbox]), textarea, select");
  if (event.key === "Escape") {
    if (typing || event.target.matches?.("#approve, #reject")) event.target.blur();
    if ($("#armed")) set($("#armed"), "");
    return;
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat || $("dialog[open]")) return;
  const act = keys[event.key];
  if (!act) return;
  event.preventDefault();
  hint("");
  act();
}

// onSubmit sends a decision and shows the resulting page. If the gate does not answer, this
// page stays with the typed reason. When the gate answers again, the page shows the state of
// the request, and the decision can be sent again: a decision counts once.
async function onSubmit(event) {
  const form = event.target;
  if (event.submitter?.id === "cover") { event.preventDefault(); cover(form, event.submitter); return; }
  if (!form.matches("#decision, #bulk, [data-sign], [data-create]")) return;
  event.preventDefault();
  if (form.dataset.sent || down) return;
  const { submitter } = event;
  const sign = submitter?.dataset.sign || form.dataset.sign;
  // For a button without the attribute, formAction is the address of this page.
  const where = submitter?.hasAttribute("formaction") ? submitter.formAction : form.action;
  const data = new URLSearchParams(new FormData(form));
  form.dataset.sent = "yes";
  for (const b of all("button", form)) b.disabled = true;
  await sendRejection(); // the decision before this one
  const correct = submitter?.matches("#correct");
  if (correct) data.delete("all"); // it is for this call
  else if (!submitter?.matches("#approve")) data.delete("correction"); // the gate approves no call whose arguments were changed here
  if (submitter?.matches("#reject, #reject-ticked") && isBrief(data)) { rejectSoon(form, where, data); return; }
  if (form.id === "decision" && !correct) data.set("advance", "yes");
  try {
    if (!await usePasskey(form, sign, data)) return;
    if (correct && isBrief(data)) { rejectSoon(form, where, data); return; }
    const { answer, text } = await ask(where, { method: "POST", body: data }, 30000);
    const page = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
    if (!$("main", page)) throw new Error("not a page of the gate");
    arrive(answer, page);
  } catch {
    delete form.dataset.sent;
    reached(false);
    say("The gate did not answer, so it is not known whether this was decided. Your reason is kept; this page shows the state of the request as soon as the gate answers.");
  }
}

// cover shows what a standing approval would have covered. Another choice makes it invalid.
async function cover(form, button) {
  const place = $("#coverage");
  button.disabled = true;
  try {
    const { text } = await ask(button.formAction, { method: "POST", body: new URLSearchParams(new FormData(form)) }, 30000);
    const page = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
    const shown = $("#coverage, #notice", page);
    if (shown) place.replaceChildren(...shown.childNodes); else set(place, "The gate gave no answer.");
  } catch {
    set(place, "The gate did not answer.");
  }
  button.disabled = false;
}

document.addEventListener("change", (event) => {
  if (event.target.closest(".grant-choice")) $("#coverage")?.replaceChildren();
});

// A rejection is sent after some seconds, so that it can be taken back. Until then the call is
// pending. When the page is closed or hidden, the rejection is sent at once: if that fails, the
// call stays pending, and does not run.
const delay = 5000;
let delayed = null;

// isBrief reports whether data may be sent while the page is closed.
const isBrief = (data) => data.toString().length < 60000 && (data.has("shown") || data.has("id"));

function rejectSoon(form, where, data) {
  const call = $("[data-case]")?.dataset.case;
  const calls = call ? [call, ...(data.has("all") ? data.getAll("same").map((one) => one.split(" ")[0]) : [])] : ticked();
  const what = calls.length > 1 ? `${calls.length} calls` : $("h1 .name")?.textContent.trim() || "1 call";
  delayed = { where, data, call, what, ids: calls, back: document.body.dataset.self, timer: setTimeout(sendRejection, delay) };
  const undo = document.createElement("button");
  undo.type = "button";
  undo.className = "quiet";
  undo.append("Undo");
  undo.addEventListener("click", takeBack);
  report(`${what}: rejected in ${delay / 1000} seconds. `, undo);
  if (call) {
    const next = new URL(form.dataset.next, location);
    if (data.has("all")) next.searchParams.set("all", "yes"); // skip the other calls of the group
    visit(next);
    return;
  }
  delete form.dataset.sent;
  for (const b of all("button", form)) b.disabled = false;
  for (const box of all(".tick input:checked")) box.checked = false;
  showTicked();
}

// report shows what becomes of a rejection.
function report(...parts) {
  $("#undo").replaceChildren(...parts);
  $("#undo").hidden = false;
}

function linkTo(where, text) {
  const link = document.createElement("a");
  link.href = where;
  link.append(text);
  return link;
}

function takeBack() {
  const { timer, what, back } = delayed;
  clearTimeout(timer);
  kept = delayed;
  delayed = null;
  report(`${what}: not rejected. `, linkTo(back, "Show"));
  showTicked();
}

// kept is the rejection that was taken back. Its reason is in the form again.
let kept = null;

// sendRejection sends the rejection that was delayed, if there is one.
async function sendRejection() {
  if (!delayed) return;
  const { where, data, what, back, timer } = delayed;
  clearTimeout(timer);
  delayed = null;
  try {
    const { answer, text } = await ask(where, { method: "POST", body: data, keepalive: true }, 30000);
    const page = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
    const told = $("#notice, #status-text", page) || $("main", page);
    report(`${what}: ${[...told.children].map((part) => part.textContent).join(" ") || told.textContent} `, linkTo(back, "Show"));
  } catch {
    report(`${what}: the gate did not answer, so it is not known whether this was rejected. `, linkTo(back, "Show"));
  }
  showTicked();
  refreshSoon();
}

// usePasskey lets the person use a passkey, and adds its answers to the data of a form. It reports false
// if that failed and the page says why.
async function usePasskey(form, sign, data) {
  for (const [where, field] of [[form.dataset.create, "created"], [sign, "signed"]]) {
    if (!where) continue;
    const { answer, text } = await ask(where, { method: "POST", body: data }, 30000);
    if (!answer.headers.get("Content-Type")?.startsWith("application/json")) {
      arrive(answer, new DOMParser().parseFromString(policy.createHTML(text), "text/html"));
      return false;
    }
    const { create, get, fields } = JSON.parse(text);
    try {
      data.set(field, create ? await createPasskey(create) : await signWith(get));
    } catch (e) {
      delete form.dataset.sent;
      for (const b of all("button", form)) b.disabled = false;
      reading();
      say(`The passkey was not used, so nothing was changed. ${e.name === "InvalidStateError" ? "This device has one already." : ""}`);
      return false;
    }
    for (const name in fields) data.set(name, fields[name]);
  }
  return true;
}

// Browsers exchange bytes, and the gate exchanges text in base64url.
const decode64 = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
const encode64 = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const ids = (list) => (list || []).map((one) => ({ ...one, id: decode64(one.id) }));

function answerOf(credential, response) {
  for (const name in response) response[name] = encode64(response[name]);
  return JSON.stringify({ id: credential.id, rawId: encode64(credential.rawId), type: credential.type, response });
}

async function createPasskey(options) {
  const made = await navigator.credentials.create({ publicKey: {
    ...options, challenge: decode64(options.challenge), user: { ...options.user, id: decode64(options.user.id) }, excludeCredentials: ids(options.excludeCredentials),
  } });
  return answerOf(made, { clientDataJSON: made.response.clientDataJSON, attestationObject: made.response.attestationObject });
}

async function signWith(options) {
  const made = await navigator.credentials.get({ publicKey: { ...options, challenge: decode64(options.challenge), allowCredentials: ids(options.allowCredentials) } });
  const { clientDataJSON, authenticatorData, signature } = made.response;
  return answerOf(made, { clientDataJSON, authenticatorData, signature });
}

// arrive shows the page after a decision.
function arrive(answer, page) {
  if (answer.redirected && !$("[data-case], #list, .queue-filters", page)) { location.replace(answer.url); return; }
  show(page);
  arrivedAt = performance.now();
}

// visit shows the page at an address, such as that of the next call. It keeps this script, and with it the
// rejection that was not sent yet.
async function visit(where) {
  try {
    const { answer, text } = await ask(where, { headers: { Accept: "text/html" }, cache: "no-store" }, 8000);
    const page = new DOMParser().parseFromString(policy.createHTML(text), "text/html");
    if (!answer.ok || !$("[data-case], .queue-filters", page)) { location.href = answer.url; return; }
    arrive(answer, page);
  } catch { // the rejection can be repeated
    for (const form of all("#decision")) delete form.dataset.sent;
    reached(false);
  }
}

// show replaces the content of this page by that of another one.
function show(page) {
  const { self } = page.body.dataset;
  if (self && self !== document.body.dataset.self) {
    document.body.dataset.self = self;
    history.pushState(null, "", self);
  }
  document.body.dataset.waiting = page.body.dataset.waiting;
  $("main").replaceWith($("main", page));
  const nav = $(".masthead nav", page);
  if (nav) $(".masthead nav").replaceWith(nav);
  document.title = page.title;
  shownAt = performance.now();
  if (kept?.call && kept.call === $("[data-case]")?.dataset.case && $("#reason")) {
    $("#reason").value = kept.data.get("reason");
    if (kept.data.has("correction") && $("#corrected")) {
      $("#corrected").value = kept.data.get("correction");
      $("#correction").open = true;
    }
    kept = null;
  }
  reveal();
  reading();
  showTicked();
  tick();
  badge();
  hint("");
  window.scrollTo(0, 0);
  $("#main").focus();
  follows();
}

// follows reloads a call that was decided until it has ended: the stream does not report that.
function follows() {
  const call = $("[data-case]");
  if (call && !call.hasAttribute("data-over") && call.dataset.state !== "input_required") refreshSoon(1000);
}

// A link to another call keeps this script if a rejection was not sent yet, or was taken back.
function onLink(event) {
  const link = event.target.closest?.("a[href]");
  if (!link || !(delayed || kept) || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  if (link.origin !== location.origin || !/^\/(approvals\/[^/]+(\/next)?)?$/.test(link.pathname)) return;
  event.preventDefault();
  visit(link.href);
}

function reveal() {
  for (const e of all(".scripted")) e.hidden = false;
  localDays();
}

document.addEventListener("keydown", onKey);
document.addEventListener("submit", onSubmit);
document.addEventListener("formdata", sendDays);
document.addEventListener("toggle", (e) => { if (e.target.matches?.("details.fold")) reading(); }, true);
document.addEventListener("change", (e) => {
  if (e.target.id === "consent") reading();
  if (e.target.id === "all") showGroup();
  if (e.target.closest(".tick")) showTicked();
});
document.addEventListener("click", guardClick, true);
document.addEventListener("click", onLink);
document.addEventListener("click", (e) => {
  if (e.target.id !== "tick-all") return;
  for (const box of all(".tick input")) box.checked = true;
  showTicked();
});
document.addEventListener("click", (e) => { const button = e.target.closest?.(".copy"); if (button) copy(button); });
document.addEventListener("click", (e) => { // what opens comes into view, to its button
  const opened = e.target.closest?.("#correction > summary, .grant-choice > summary")?.parentElement;
  if (opened) requestAnimationFrame(() => opened.scrollIntoView({ block: "nearest" }));
});
window.addEventListener("pageshow", (e) => { if (e.persisted) location.reload(); });
window.addEventListener("popstate", () => { if (location.pathname + location.search !== document.body.dataset.self) location.reload(); });
window.addEventListener("pagehide", sendRejection);
document.addEventListener("visibilitychange", () => { if (document.hidden) sendRejection(); });
document.addEventListener("click", (e) => {
  if (e.target.id === "more-filters") e.target.setAttribute("aria-expanded", String(e.target.getAttribute("aria-expanded") !== "true"));
});
$("#help").addEventListener("click", () => $("#shortcuts").showModal());
$("#notify").addEventListener("click", toggleNotify);
$(".masthead [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }); // on a phone
reveal();
showNotify();
renew().catch(() => {});
badge();
tick();
reading();
setInterval(tick, 1000);
follows();
if (location.pathname + location.search !== document.body.dataset.self) history.replaceState(null, "", document.body.dataset.self);
lead();
