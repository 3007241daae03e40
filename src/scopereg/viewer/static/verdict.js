// The light: a colour, a shape and words, with the reason and the errors to expect.

const STALE_MS = 1000;

export class Verdict {
  constructor(root) {
    this.root = root;
    this.parts = {};
    for (const name of ["word", "reason", "expected", "bound", "confidence", "truth", "hints", "basis", "method"]) {
      this.parts[name] = root.querySelector(`#verdict-${name}`);
    }
    this.shown = { light: "none", word: "", reason: "" };
    this.spoken = document.getElementById("spoken");
  }

  // `stale` are words that take the place of a result which is not of now; empty where it is. A frame that was not
  // found has no method of its own: `method` is the one that sought it.
  show(update, stale, fault = "", method = "") {
    const light = stale || !update ? "none" : lightOf(update);
    set(this.root.dataset, "light", light);
    this.root.classList.toggle("stale", Boolean(stale));
    const word = stale || (update ? wordFor(update) : "Waiting");
    this.write("word", word);
    this.write("reason", stale ? fault || lastWords(update) : update ? reasonFor(update) : "for the first frame");
    this.write("expected", millimetres(update && update.expected_mm));
    this.write("bound", millimetres(update && update.bound_mm));
    this.write("confidence", share(update && update.confidence));
    this.write("truth", millimetres(update && update.error_mm));
    this.writeLine("method", update && (update.method || method) ? `by ${update.method || method}` : "");
    this.writeLine("hints", ((update && update.hints) || []).join("; "));
    this.writeLine("basis", update && update.calibrated_on ? `calibrated on ${update.calibrated_on}` : "");
    this.parts.truth.parentElement.hidden = !update || update.error_mm === null || update.error_mm === undefined;
    this.shown = { light, word, reason: this.parts.reason.textContent };
    this.speak(light, stale ? word.replace(/\d+ s/, "some seconds") : word);
    return light;
  }

  write(name, text) {
    const part = this.parts[name];
    if (part.textContent !== text) part.textContent = text;
  }

  // A line that is there only where it says something.
  writeLine(name, text) {
    this.write(name, text);
    if (this.parts[name].hidden === Boolean(text)) this.parts[name].hidden = !text;
  }

  // Screen readers hear changes of the light, not every frame.
  speak(light, word) {
    const text = light === "none" ? word : `${word}, ${light}`;
    if (this.spoken.textContent !== text) this.spoken.textContent = text;
  }
}

// Why the result that is shown is not of now; empty where it is.
export function staleness(model, link, now) {
  const { state, update } = model;
  if (link === "lost") return "Connection lost";
  if (!state || state.mode !== "live" || !update) return "";
  const waited = now - update.arrived;
  if (state.finished) return "Source ended";
  // A method that takes longer for a frame is not late with it.
  if (state.paused || waited <= Math.max(STALE_MS, 2 * (update.register_ms || 0))) return "";
  return `No frames for ${Math.floor(waited / 1000)} s`;
}

// Green stands for what is ok, and for nothing else, whatever was sent.
function lightOf(update) {
  return update.light === "green" && update.ok !== true ? "amber" : update.light;
}

function wordFor(update) {
  return lightOf(update) === update.light ? update.word || "No result" : "Not judged";
}

function lastWords(update) {
  return update ? `the last result: ${wordFor(update).toLowerCase()}` : "no frame has come yet";
}

function reasonFor(update) {
  // The word above says already that it is not judged.
  return (update.reason || "").replace(/^not judged: /, "") || (update.light === "green" ? "the pose is reliable" : "");
}

function millimetres(value) {
  return value === null || value === undefined ? "–" : `${value.toFixed(1)} mm`;
}

function share(value) {
  return value === null || value === undefined ? "–" : value.toFixed(2);
}

function set(target, name, value) {
  if (target[name] !== value) target[name] = value;
}
