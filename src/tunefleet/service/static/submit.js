// A network is sent in parts, each behind the bytes that are there, and then a job is asked for.
"use strict";

const form = document.getElementById("submit");
const fileField = document.getElementById("file");
const drop = document.querySelector(".drop");
const sending = document.getElementById("sending");
const PART_BYTES = 8 << 20;
// Seconds to wait after a cut, for the last of them again and again.
const WAITS_S = [1, 2, 5, 10];

// Without a share the bar shows that something is under way.
function progress(label, share) {
  sending.hidden = false;
  const bar = document.getElementById("sent"), text = document.getElementById("sent-text");
  if (share === undefined) bar.removeAttribute("value");
  else bar.value = share;
  const message = share === undefined ? label : `${label}: ${Math.floor(share * 10) * 10} %`;
  if (text.textContent !== message) text.textContent = message;
}

// Sends a file and returns its digest. The answer to the last byte comes after the check of the
// file: it is sent by itself, so that the page says what is under way.
async function send(file) {
  const digest = await sha256Of(file, (share) => progress("reading", share));
  let status = await call("POST", "/v1/uploads", { digest, name: file.name, size: file.size });
  let cuts = 0;
  while (!status.network) {
    const last = file.size - 1, isLast = status.offset >= last;
    const end = isLast ? file.size : Math.min(status.offset + PART_BYTES, last);
    if (isLast) progress("checking the file");
    else progress("sending", status.offset / file.size);
    try {
      const part = file.slice(status.offset, end);
      status = await call("PATCH", `/v1/uploads/${digest}`, part, {
        "Content-Type": "application/offset+octet-stream", "Upload-Offset": String(status.offset),
      });
      cuts = 0;
    } catch (error) {
      // Without a status the connection was cut; 409: another offset is there.
      if (error.status && error.status !== 409 && error.status !== 429 && error.status < 500) throw error;
      const wait = WAITS_S[Math.min(cuts++, WAITS_S.length - 1)];
      progress(`cut off, again in ${wait} s`, status.offset / file.size);
      await new Promise((go) => setTimeout(go, 1000 * wait));
      status = await call("GET", `/v1/uploads/${digest}`).catch((again) => {
        if (again.status && again.status < 500 && again.status !== 429) throw again;
        return status;
      });
    }
  }
  return status.network.digest;
}

function newKey() {
  return hex(crypto.getRandomValues(new Uint8Array(16)), 2);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const { goal, ...asked } = valueOf(form);
  const file = fileField.files[0], button = form.querySelector("button");
  notify("");
  if (!file && !asked.network) {
    notify("Choose a file, or a network that is here.");
    fileField.focus();
    return;
  }
  button.disabled = true;
  try {
    if (file) asked.network = await send(file);
    progress("submitting the job");
    const key = newKey();
    const job = await call("POST", "/v1/jobs", asked, { "Idempotency-Key": key });
    location.assign(`/jobs/${job.id}`);
  } catch (error) {
    notify(error.message);
    button.disabled = false;
    sending.hidden = true;
  }
});

// Only the number that belongs to the chosen goal is asked for.
form.addEventListener("change", () => {
  const goal = form.elements.goal.value;
  for (const name of ["latency_ms", "speedup"]) {
    const field = form.elements[`agreement.${name}`];
    field.disabled = goal !== name;
    field.required = goal === name;
  }
});

for (const kind of ["dragover", "dragleave", "drop"]) {
  drop.addEventListener(kind, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", kind === "dragover");
    if (kind === "drop" && event.dataTransfer.files.length) fileField.files = event.dataTransfer.files;
  });
}
fileField.addEventListener("change", () => { if (fileField.files.length) form.elements.network.value = ""; });
