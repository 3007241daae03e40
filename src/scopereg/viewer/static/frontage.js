// The bar above: volume, source, connection, and the buttons that this kind of page has.

const LINK_WORDS = { connecting: "connecting", open: "connected", lost: "connection lost, trying again" };

export class Frontage {
  constructor(page) {
    this.page = page;
    this.number = 0; // of the finished result that is shown
    this.byId = (id) => document.getElementById(id);
  }

  show() {
    const { state } = this.page.model;
    const body = document.body;
    body.dataset.link = this.page.linkStatus;
    this.write("link-words", this.words(state));
    if (!state) return;
    body.dataset.mode = state.mode;
    body.dataset.source = state.finished ? "ended" : state.paused ? "paused" : "running";
    this.write("volume-name", state.volume ? state.volume.name : "no volume");
    document.title = state.volume ? `${state.volume.name} · scopereg` : "scopereg";
    this.write("source", state.source);
    this.write("method", state.method);
    this.byId("volume").disabled = !(this.page.can("choose") || this.page.can("upload"));
    for (const action of ["pause", "step", "record"]) this.byId(action).hidden = !this.page.can(action);
    for (const action of ["pause", "step"]) this.byId(action).disabled = state.finished;
    this.showPause(state);
    this.showRecording(state);
    this.showResults(state);
  }

  words(state) {
    if (this.page.linkStatus !== "open" || !state) return LINK_WORDS[this.page.linkStatus];
    if (state.mode !== "live") return state.mode === "page" ? "finished results" : "connected";
    return state.finished ? "source ended" : state.paused ? "paused" : "live";
  }

  showPause({ paused }) {
    const button = this.byId("pause");
    button.setAttribute("aria-pressed", String(paused));
    button.setAttribute("aria-label", paused ? "Go on" : "Pause");
    button.title = paused ? "Go on (space)" : "Pause (space)";
  }

  showRecording({ recording }) {
    const button = this.byId("record");
    button.classList.toggle("running", Boolean(recording));
    button.setAttribute("aria-pressed", String(Boolean(recording)));
    this.write("record-words", recording ? `${recording.frames} frames` : "Record");
    button.title = recording ? `End the recording ${recording.name} (R)` : "Record to a PLUS sequence (R)";
  }

  showResults({ results }) {
    this.byId("results").hidden = !results;
    this.byId("history").hidden = Boolean(results) && results.length < 2;
    if (!results) return;
    const names = results.map((result) => result.name);
    const key = names.join("\n");
    if (key === this.key) return;
    this.key = key;
    const options = names.map((name, number) => new Option(name || `result ${number + 1}`, number));
    this.byId("result").replaceChildren(...options);
    this.byId("results").hidden = results.length < 2;
  }

  // Of an update: which of the results it is.
  follow(update) {
    const { trace, model } = this.page;
    const { results } = model.state || {};
    if (typeof update.error_mm === "number") document.body.dataset.truth = "known";
    if (!results) {
      trace.add(update);
      return;
    }
    this.number = update.result;
    this.byId("result").value = String(this.number);
    this.known = this.key === this.knownKey ? this.known : [];
    this.knownKey = this.key;
    this.known[this.number] = update;
    trace.fill(results.map((result, number) => this.known[number] || result), this.number);
  }

  write(id, text) {
    const element = this.byId(id);
    if (element.textContent !== text) [element.textContent, element.title] = [text, text];
  }
}
