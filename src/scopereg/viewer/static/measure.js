// What is measured, in the panel of adjustments: rulers in a list, to be moved by keys, taken away and kept as a file.

import { saveText, stamp } from "./files.js";
import { inWords, inWorld } from "./rulers.js";

const TOOLS = ["ruler", "point"];
const STEP_MM = 0.5, LONG_STEP_MM = 5; // of an arrow key, and with shift
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Measure {
  constructor(page) {
    this.page = page;
    this.byId = (id) => document.getElementById(id);
    this.rows = new Map(); // of the list, by ruler
    const { rulers } = page;
    rulers.changed = () => this.show();
    for (const tool of TOOLS) this.byId(tool).addEventListener("click", () => rulers.toggle(tool));
    this.byId("rulers-clear").addEventListener("click", () => rulers.clear());
    this.byId("rulers-save").addEventListener("click", () => this.save());
    for (const name of ["grid", "scale", "deformed"]) this.byId(name).addEventListener("click", () => page.toggle(name));
    this.show();
  }

  show() {
    const { rulers } = this.page;
    for (const tool of TOOLS) this.byId(tool).setAttribute("aria-pressed", String(rulers.tool === tool));
    this.byId("ruler-hint").hidden = !rulers.tool;
    for (const id of ["rulers-clear", "rulers-save"]) this.byId(id).hidden = !rulers.all.length;
    for (const surface of this.page.comparison ? this.page.comparison.surfaces : []) {
      surface.canvas.tabIndex = rulers.tool ? 0 : -1;
    }
    for (const [ruler, row] of this.rows) {
      if (rulers.all.includes(ruler)) continue;
      row.root.remove();
      this.rows.delete(ruler);
    }
    for (const ruler of rulers.all) {
      const row = this.rows.get(ruler) || this.addRow(ruler);
      const words = inWords(ruler);
      if (row.length.textContent !== words) row.length.textContent = words;
    }
  }

  addRow(ruler) {
    const root = document.createElement("li");
    const about = document.createElement("div");
    const length = document.createElement("b");
    const place = document.createElement("small");
    place.textContent = place.title = ruler.words;
    about.append(length, place);
    root.append(about, ...ruler.ends.map((_, end) => this.endButton(ruler, end)), this.removeButton(ruler));
    this.byId("ruler-list").append(root);
    const row = { root, length };
    this.rows.set(ruler, row);
    return row;
  }

  endButton(ruler, end) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "AB"[end];
    button.title = "Arrows move this end by 0.5 mm, with Shift by 5 mm";
    button.setAttribute("aria-label", `End ${"AB"[end]} of ${ruler.name}; arrows move it`);
    button.addEventListener("keydown", (event) => this.key(event, ruler, end));
    for (const [kind, active] of [["focus", ruler], ["blur", null]]) {
      button.addEventListener(kind, () => {
        this.page.rulers.active = active;
        this.page.ask("planes", "comparison");
      });
    }
    return button;
  }

  removeButton(ruler) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "×";
    button.setAttribute("aria-label", `Take ${ruler.name} away`);
    button.addEventListener("click", () => {
      this.page.rulers.remove(ruler);
      this.byId("ruler").focus();
    });
    return button;
  }

  key(event, ruler, end) {
    const { rulers } = this.page;
    if (event.key in STEPS) {
      const mm = event.shiftKey ? LONG_STEP_MM : STEP_MM;
      rulers.nudge(ruler, end, ...STEPS[event.key].map((direction) => direction * mm));
      this.byId("measured").textContent = inWords(ruler);
    } else if (event.key === "Delete" || event.key === "Backspace") {
      rulers.remove(ruler);
      this.byId("ruler").focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // The first end of a ruler that keys placed: they go on moving it.
  focusOn(ruler) {
    const row = ruler && this.rows.get(ruler);
    if (row) row.root.querySelector("button").focus();
  }

  // As lines and points of 3D Slicer, in LPS mm.
  save() {
    const { rulers, model } = this.page;
    const known = rulers.all.filter(inWorld);
    const left = rulers.all.length - known.length;
    if (left) this.page.notice("info", `${left} left out: where their frame lies in the volume is not known.`);
    if (!known.length) return;
    const content = { "@schema": SCHEMA, markups: markupsOf(known) };
    const name = model.volume ? model.volume.info.name.replace(/[^\w.-]+/g, "_") : "frame";
    saveText(`measured-${name}-${stamp()}.mrk.json`, JSON.stringify(content, null, 2), "application/json");
  }
}

// By which 3D Slicer knows its own kind of JSON.
const SCHEMA =
  "https://raw.githubusercontent.com/slicer/slicer/master/Modules/Loadable/Markups/Resources/Schema/markups-schema-v1.0.3.json#";

function markupsOf(marks) {
  const points = marks.filter(({ ends }) => ends.length === 1);
  const lines = marks.filter(({ ends }) => ends.length > 1);
  const point = (label, position, number) => ({ id: String(number + 1), label, position, positionStatus: "defined" });
  const markup = (type, name, controlPoints) => ({ type, name, coordinateSystem: "LPS", coordinateUnits: "mm", controlPoints });
  const found = lines.map((line) =>
    markup("Line", line.name, inWorld(line).map((end, k) => point(`${line.name} ${"AB"[k]}`, end, k))));
  if (points.length) found.push(markup("Fiducial", "points", points.map((each, k) => point(each.name, inWorld(each)[0], k))));
  return found;
}
