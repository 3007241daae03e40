// Notes at frames: written in the panel, kept by the server with a recording or beside finished results, listed with
// the way to their frame.

import { momentOf } from "./snapshot.js";
import { frameName } from "./surfaces.js";

export class Notes {
  constructor(page) {
    this.page = page;
    this.byId = (id) => document.getElementById(id);
    this.input = this.byId("note-text");
    this.at = null; // the frame that was on the screen when somebody began to write
    this.input.addEventListener("input", () => this.hold());
    this.byId("note-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.add();
    });
  }

  get all() {
    const { state } = this.page.model;
    return (state && state.notes) || [];
  }

  // Of the frame that is shown.
  get here() {
    const { update } = this.page.model;
    return update ? this.all.filter((note) => isAt(note, update)) : [];
  }

  // Another state: other notes, or another right to write some.
  show() {
    const may = this.page.can("note");
    const live = this.page.model.state.mode === "live";
    this.byId("part-notes").hidden = !(may || live || this.all.length);
    this.byId("note-form").hidden = !may;
    this.byId("notes-hint").hidden = may || !live;
    const key = JSON.stringify([this.all, may]);
    if (key !== this.key) {
      this.key = key;
      this.byId("note-list").replaceChildren(...this.all.map((note) => this.row(note, may)));
    }
    this.follow();
  }

  // Another frame: which of the notes are its own.
  follow() {
    const { here } = this;
    const rows = this.byId("note-list").children;
    this.all.forEach((note, k) => rows[k] && rows[k].classList.toggle("here", here.includes(note)));
    const words = here.map(({ text }) => text).join("; ");
    const shown = this.byId("verdict-note");
    if (shown.textContent !== words) [shown.textContent, shown.hidden] = [words, !words];
    if (!this.input.value) this.nameFrame(this.page.model.update);
  }

  // Letters that are typed while frames go on belong to the frame at which the first was.
  hold() {
    if (!this.input.value) this.at = null;
    else if (!this.at) this.at = this.page.model.update;
    this.nameFrame(this.at || this.page.model.update);
  }

  nameFrame(update) {
    const words = update ? `Note at ${frameName(update, this.page.model.state)}` : "Note";
    const label = this.byId("note-at");
    if (label.textContent !== words) label.textContent = words;
  }

  add() {
    const update = this.at || this.page.model.update;
    const text = this.input.value.trim();
    if (!update || !text) return;
    this.page.send({ do: "note", frame: update.result ?? update.update, text });
    this.input.value = "";
    this.at = null;
    this.follow();
  }

  // The keys' way to it: the panel opens where it is folded.
  focus() {
    if (!this.page.can("note")) {
      if (this.page.model.state && this.page.model.state.mode === "live") {
        this.page.notice("info", "Notes are kept with a recording: start one first (R).");
      }
      return;
    }
    if (!this.page.panel.open) this.page.panel.fold(false);
    this.byId("part-notes").open = true;
    this.input.focus();
    this.input.scrollIntoView({ block: "nearest" });
  }

  row(note, may) {
    const row = document.createElement("li");
    const text = document.createElement(note.result === undefined ? "p" : "button");
    const place = document.createElement("small");
    place.textContent = this.placeOf(note);
    const words = document.createElement("span");
    words.textContent = note.text;
    text.append(place, words);
    if (note.result !== undefined) {
      text.type = "button";
      text.title = "Show its frame";
      text.addEventListener("click", () => this.page.showResult(note.result));
    }
    row.append(text);
    if (may && note.key !== null) row.append(this.dropButton(note));
    return row;
  }

  placeOf(note) {
    const { state, path } = this.page.model;
    if (note.result === undefined) return `frame ${note.frame_number}, ${momentOf(note.time_s)}`;
    const name = state.results[note.result].name || `result ${note.result + 1}`;
    return path && path.times ? `${name}, ${path.times[note.result].toFixed(2)} s` : name;
  }

  dropButton(note) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "×";
    button.setAttribute("aria-label", "Take this note away");
    button.addEventListener("click", () => this.page.send({ do: "drop_note", key: note.key }));
    return button;
  }
}

function isAt(note, update) {
  return note.result === undefined ? note.update === update.update : note.result === update.result;
}
