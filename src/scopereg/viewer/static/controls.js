// Buttons, sliders and dialogues.

import { stamp } from "./files.js";
import { tileOf } from "./mixing.js";

const MIXES = ["blend", "wipe", "checker"];
const LAYOUTS = ["space", "planes"];

import { PixelSize } from "./pixel_size.js";

export class Controls {
  constructor(page) {
    this.page = page;
    this.byId = (id) => document.getElementById(id);
    this.wireLive();
    this.pixelSize = new PixelSize(page);
    this.wireVolumes();
    this.wireResults();
    this.wireLook();
    for (const dialog of document.querySelectorAll("dialog")) wireDialog(dialog);
  }

  onClick(id, action) {
    this.byId(id).addEventListener("click", action);
  }

  wireLive() {
    const { page } = this;
    this.onClick("pause", () => page.togglePause());
    this.onClick("step", () => page.step(1));
    this.onClick("record", () => this.toggleRecording());
    this.byId("record-form").addEventListener("submit", () => {
      page.send({ do: "record", name: this.byId("record-name").value.trim() });
    });
  }

  toggleRecording() {
    const { state } = this.page.model;
    if (!this.page.can("record")) return;
    if (state.recording) {
      this.page.send({ do: "end_recording" });
      return;
    }
    this.byId("record-name").value = `scan-${stamp()}`;
    this.byId("record-dialog").showModal();
    this.byId("record-name").select();
  }

  wireVolumes() {
    const { page } = this;
    this.onClick("volume", () => this.openVolumes());
    this.byId("file").addEventListener("change", (event) => {
      const [file] = event.target.files;
      if (file) page.upload(file);
      event.target.value = "";
      this.byId("volume-dialog").close();
    });
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      const [file] = event.dataTransfer.files;
      if (file && page.can("upload")) page.upload(file);
    });
  }

  openVolumes() {
    const { state } = this.page.model;
    if (!state || !(this.page.can("choose") || this.page.can("upload"))) return;
    const list = this.byId("volume-list");
    list.replaceChildren(...state.volumes.map((name) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.setAttribute("aria-pressed", String(state.volume !== null && state.volume.name === name));
      button.addEventListener("click", () => {
        this.page.send({ do: "choose", name });
        this.byId("volume-dialog").close();
      });
      return button;
    }));
    this.byId("upload-row").hidden = !this.page.can("upload");
    this.byId("volume-dialog").showModal();
  }

  wireResults() {
    this.onClick("previous", () => this.page.step(-1));
    this.onClick("next", () => this.page.step(1));
    this.byId("result").addEventListener("change", (event) => this.page.showResult(Number(event.target.value)));
  }

  wireLook() {
    const { page } = this;
    this.onClick("follow", () => page.toggle("follow"));
    this.onClick("evidence", () => page.toggle("evidence"));
    this.onClick("marching", () => page.toggle("marching"));
    this.onClick("pathShown", () => page.toggle("pathShown"));
    this.onClick("opened", () => page.toggle("opened"));
    for (const layout of LAYOUTS) this.onClick(`layout-${layout}`, () => page.useLayout(layout));
    this.onClick("reset", () => page.reset());
    this.onClick("snapshot", () => page.snapshot());
    this.onClick("help", () => this.byId("help-dialog").showModal());
    for (const mix of MIXES) this.onClick(`mix-${mix}`, () => page.useMix(mix));
    this.byId("weight").addEventListener("input", (event) => page.useWeight(event.target.value / 100));
    this.byId("tile").addEventListener("input", (event) => page.useTile(Number(event.target.value)));
    this.byId("opacity").addEventListener("input", (event) => page.useOpacity(event.target.value / 100));
    for (const name of ["level", "width"]) {
      this.byId(name).addEventListener("input", () => {
        const [level, width] = [Number(this.byId("level").value), Number(this.byId("width").value)];
        page.useWindow(level - width / 2, level + width / 2);
      });
    }
    for (const button of document.querySelectorAll("button.large")) {
      button.addEventListener("click", () => page.maximise(button.closest(".panel")));
    }
  }

  useUpdate(update) {
    this.byId("deformed").hidden = !update.deformation;
  }

  // What the model says, on the buttons.
  show(model) {
    for (const name of ["follow", "evidence", "marching", "opened", "overlaid", "grid", "scale", "deformed", "pathShown"]) press(this.byId(name), model[name]);
    document.body.dataset.scale = model.scale ? "on" : "off";
    for (const mix of MIXES) press(this.byId(`mix-${mix}`), model.mix === mix);
    for (const layout of LAYOUTS) press(this.byId(`layout-${layout}`), model.layout === layout);
    const percent = String(Math.round(100 * model.weight));
    if (this.byId("weight").value !== percent) this.byId("weight").value = percent;
    this.byId("tile").value = String(model.tile);
    const tiled = model.mix === "checker";
    this.byId("weight-row").hidden = tiled;
    this.byId("tile-row").hidden = this.byId("mix-key").hidden = !tiled;
    this.byId("opacity").value = Math.round(100 * model.evidenceOpacity);
    this.byId("level").value = (model.low + model.high) / 2;
    this.byId("width").value = model.high - model.low;
    this.byId("mix-caption").textContent = tiled ? chessboard(model) : model.mix === "wipe" ? "Wiped" : "Blended";
  }
}

// With the size of a tile, where there is a frame.
function chessboard({ update, tile }) {
  return update && update.columns ? `Tiles of ${tileOf(update, tile).mm.toFixed(1)} mm` : "Chessboard";
}

function press(button, pressed) {
  button.setAttribute("aria-pressed", String(pressed));
}

// Closed by its button, by Esc, or by a tap beside it.
function wireDialog(dialog) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog || event.target.closest(".close")) dialog.close();
  });
}
