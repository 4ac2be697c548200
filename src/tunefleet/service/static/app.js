// What the pages ask of the API, with the session's cookie.
"use strict";

const notice = document.getElementById("notice");

function notify(text) {
  notice.textContent = text;
}

// The value that the API answers; raises an error with cause and cure.
async function call(method, path, value, headers = {}) {
  const given = { method, headers: { ...headers } };
  if (value instanceof Blob) {
    given.body = value;
  } else if (value !== undefined) {
    given.body = JSON.stringify(value);
    given.headers["Content-Type"] = "application/json";
  }
  const answer = await fetch(path, given);
  const text = await answer.text();
  const said = text && /json/.test(answer.headers.get("Content-Type") || "") ? JSON.parse(text) : null;
  if (answer.ok) return said;
  const error = new Error(said ? [said.detail, said.cure].filter(Boolean).join("; ") : answer.statusText);
  error.status = answer.status;
  throw error;
}

// The fields of a form by their names: those left empty are left out, `a.b` is a field of a value.
function valueOf(form) {
  const value = {};
  for (const field of form.elements) {
    if (!field.name || field.disabled || (field.type === "radio" && !field.checked)) continue;
    const given = field.type === "checkbox" ? field.checked
      : field.type === "number" && field.value !== "" ? Number(field.value) * Number(field.dataset.times || 1)
      : field.type === "datetime-local" && field.value ? new Date(field.value).getTime() / 1000
      : field.value;
    if (given === "") continue;
    const [name, part] = field.name.split(".");
    if (part) value[name] = { ...value[name], [part]: given };
    else value[name] = given;
  }
  return value;
}

function refresh() {
  for (const part of document.querySelectorAll("[hx-trigger]")) part.dispatchEvent(new Event("refresh"));
}

function then(form, value) {
  const next = form.dataset.then || "reload";
  if (next === "refresh") refresh();
  else if (next === "reload") location.reload();
  else if (next === "job") location.assign(`/jobs/${value.id}`);
  else if (next === "token") showToken(form, value);
  else location.assign(next);
}

function showToken(form, value) {
  const shown = form.querySelector("output");
  shown.textContent = value.token;
  shown.closest("[hidden]").hidden = false;
  form.reset();
  shown.focus();
  refresh();
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.call) return;
  event.preventDefault();
  if (form.dataset.confirm && !confirm(form.dataset.confirm)) return;
  const [method, path] = form.dataset.call.split(" ");
  const value = form.dataset.value ? JSON.parse(form.dataset.value) : valueOf(form);
  const buttons = form.querySelectorAll("button");
  notify("");
  buttons.forEach((button) => { button.disabled = true; });
  try {
    then(form, await call(method, path, Object.keys(value).length ? value : undefined));
  } catch (error) {
    notify(error.message);
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
});

// Events of a job: each asks for the part of the page that shows it, at most once in two seconds.
const PAUSE_MS = 2000;

function follow(part) {
  const source = new EventSource(part.dataset.events);
  let asked = null;
  const news = () => {
    asked ??= setTimeout(() => { asked = null; refresh(); }, PAUSE_MS);
  };
  for (const kind of [...part.dataset.kinds.split(" "), "error"]) source.addEventListener(kind, news);
  // Its stream ends with the job; a browser would ask for it again and again.
  source.addEventListener("JobEnded", () => source.close());
  document.addEventListener("htmx:after:swap", () => { if (!part.dataset.events) source.close(); });
  addEventListener("pagehide", () => source.close());
}

for (const part of document.querySelectorAll("[data-events]")) follow(part);

const OLD = "The service does not answer; this page may be old.";

document.addEventListener("htmx:error", () => notify(OLD));
document.addEventListener("htmx:after:swap", () => { if (notice.textContent === OLD) notify(""); });
