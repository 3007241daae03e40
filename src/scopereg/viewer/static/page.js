// The page: takes what the server sends, has it drawn once per refresh of the screen, and says when that was done.

import { Comparison } from "./compare.js";
import { Controls } from "./controls.js";
import { Embedded, embeddedData } from "./embedded.js";
import { Figures, notify } from "./figures.js";
import { Frontage } from "./frontage.js";
import { watch } from "./gestures.js";
import { watchKeys } from "./keys.js";
import { Labels } from "./labels.js";
import { Landmarks } from "./landmarks.js";
import { Link } from "./link.js";
import { recall, remember } from "./memory.js";
import { Measure } from "./measure.js";
import { TILE_COUNTS } from "./mixing.js";
import { Model } from "./model.js";
import { Notes } from "./notes.js";
import { Overlays } from "./overlays.js";
import { Panel } from "./panel.js";
import { Path } from "./path.js";
import { PlaneView } from "./plane.js";
import { Player } from "./player.js";
import { Rulers } from "./rulers.js";
import { Scene } from "./scene.js";
import { snapshot } from "./snapshot.js";
import { frameKey } from "./surfaces.js";
import { Theme } from "./theme.js";
import { Timing } from "./timing.js";
import { Trace } from "./trace.js";
import { staleness, Verdict } from "./verdict.js";
import { Volume } from "./volume.js";

const LOOK_MS = 200; // how often a result that gets old is looked at
const RETRY_MS = 1000;

export class Page {
  constructor() {
    this.model = new Model();
    this.timing = new Timing();
    this.linkStatus = "connecting";
    this.dirty = new Set();
    this.rulers = new Rulers(this);
    const find = (id) => document.getElementById(id);
    this.panels = ["axial", "coronal", "sagittal", "space"].map(find);
    this.planes = this.panels.slice(0, 3).map((panel, number) => new PlaneView(panel, number, this));
    this.comparison = new Comparison(find("comparison"), this);
    this.verdict = new Verdict(find("verdict"));
    this.figures = new Figures(find("figures"));
    this.trace = new Trace(find("trace"));
    const along = ({ x }) => this.model.path && this.showResult(this.trace.numberAt(x));
    watch(this.trace.canvas, { down: along, drag: along });
    this.frontage = new Frontage(this);
    this.panel = new Panel();
    this.controls = new Controls(this);
    this.overlays = new Overlays(this);
    this.measure = new Measure(this);
    this.player = new Player(this);
    this.notes = new Notes(this);
    this.scene = new Scene(this.panels[3], this);
    this.theme = new Theme(() => this.changed());
    watchKeys(this, this.controls);
    const data = embeddedData();
    this.link = data ? new Embedded(data, this) : new Link(this);
    new ResizeObserver(() => this.ask("planes", "scene", "trace")).observe(find("views"));
    new ResizeObserver(() => this.ask("trace")).observe(find("trace"));
    setInterval(() => this.look(), LOOK_MS);
    this.useLayout(recall("layout") === "planes" ? "planes" : "space");
    this.link.open();
  }

  // Of the frame that is shown: what is measured on it is its own.
  get frameKey() {
    return this.model.update && frameKey(this.model.update);
  }

  // From the connection.

  status(status) {
    this.linkStatus = status;
    if (status === "open") this.fresh = true; // another server may be there now, with another volume
    this.frontage.show();
    this.look();
  }

  state(state) {
    const before = this.model.state;
    this.model.state = state;
    if (before && before.mode === "live" && before.source !== state.source) this.trace.clear();
    this.frontage.show();
    this.controls.pixelSize.show(state);
    this.notes.show();
    this.loadVolume(state.volume);
    this.loadPath(state.results);
    this.look();
  }

  update(update) {
    this.waiting = update;
    this.ask();
  }

  notice(level, text) {
    notify(document.getElementById("notices"), level, text);
  }

  // The voxels, where they are not those that are here.
  async loadVolume(info) {
    const wanted = info ? JSON.stringify(info) : "";
    if (!this.fresh && wanted === this.wanted) return;
    this.fresh = false;
    this.wanted = wanted;
    if (!info) return;
    try {
      const voxels = await this.link.voxels(info);
      const volume = new Volume(info, voxels);
      const labelled = info.overlay && info.overlay.labels.length;
      if (labelled) volume.labels = new Labels(info.overlay, await this.link.labels(info), volume);
      if (info.overlay && info.overlay.landmarks.length) volume.landmarks = new Landmarks(info.overlay);
      if (this.wanted === wanted) this.useVolume(volume);
    } catch (error) {
      if (this.wanted !== wanted) return; // another one is under way
      this.wanted = null;
      this.notice("error", `The volume did not come: ${error.message}`);
      setTimeout(() => this.model.state && this.loadVolume(this.model.state.volume), RETRY_MS);
    }
  }

  // Where finished results lie and when they were; without it they are chosen one by one.
  async loadPath(results) {
    const wanted = results && results.length > 1 ? results : null;
    const key = JSON.stringify(wanted);
    if (this.pathKey === key) return;
    this.pathKey = key;
    this.model.path = null;
    this.player.show();
    if (!wanted) return;
    try {
      const told = await this.link.path();
      if (this.pathKey === key && told) this.model.path = new Path(told, wanted);
      if (this.model.update) this.scene.useUpdate();
    } catch (error) {
      this.notice("error", `The path of the frames did not come: ${error.message}`);
    }
    this.player.show();
    this.notes.key = ""; // their times are known now
    this.notes.show();
    this.changed();
  }

  useVolume(volume) {
    const before = this.model.volume;
    this.model.useVolume(volume);
    if (before && JSON.stringify(before.info) !== JSON.stringify(volume.info)) this.rulers.forgetVolume();
    for (const view of this.planes) view.useVolume(volume);
    this.scene.useVolume(volume);
    this.overlays.useVolume();
    this.ask("planes", "scene", "comparison");
  }

  // Drawing: once per refresh of the screen, whatever asks for it.

  ask(...parts) {
    for (const part of parts) this.dirty.add(part);
    if (!this.asked) this.asked = requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.asked = 0;
    const update = this.waiting;
    this.waiting = null;
    try {
      this.drawParts(update);
    } finally {
      // Also where something went wrong: the next frame may be better.
      if (update) this.link.send({ do: "shown", number: update.number });
    }
  }

  drawParts(update) {
    this.timing.begin();
    if (update) this.take(update);
    this.timing.mark("texts");
    if (this.dirty.delete("comparison")) this.comparison.draw();
    this.timing.mark("comparison");
    if (this.dirty.delete("planes")) for (const view of this.planes) view.draw();
    this.timing.mark("planes");
    if (this.dirty.delete("trace")) this.trace.draw();
    this.timing.mark("trace");
    if (this.dirty.delete("scene")) this.scene.draw();
    this.timing.mark("scene");
    if (update) this.timing.end(update);
  }

  // All of an update at once: pictures, place and numbers are of the same frame.
  take(update) {
    this.model.useUpdate(update);
    this.scene.useUpdate();
    this.look();
    this.figures.show(update, this.model.state);
    this.overlays.useUpdate();
    this.controls.useUpdate(update);
    this.notes.follow();
    if (update.result !== undefined) this.player.follow(update.result);
    this.frontage.follow(update);
    for (const part of ["comparison", "planes", "trace", "scene"]) this.dirty.add(part);
  }

  // The light of now: a result that is old is grey.
  look() {
    const stale = staleness(this.model, this.linkStatus, performance.now());
    const { state, update } = this.model;
    const waits = stale.startsWith("No frames") && state ? state.last_fault : "";
    const light = this.verdict.show(update, stale, waits, state ? state.method : "");
    if (light !== this.model.light) {
      this.model.light = light;
      this.ask("planes", "scene", "comparison");
    }
    if (!update) this.figures.show(null, state);
  }

  // What the user wants.

  send(message) {
    if (!this.link.send(message)) this.notice("error", "There is no connection to the server.");
  }

  can(action) {
    return Boolean(this.model.state && this.model.state.can.includes(action));
  }

  togglePause() {
    if (this.model.state && this.model.state.results) this.player.toggle();
    else if (this.can("pause")) this.send({ do: this.model.state.paused ? "resume" : "pause" });
  }

  // The next frame of a source that is paused, or the next result.
  step(by) {
    if (this.model.state && this.model.state.results) this.showResult((this.player.wanted ?? this.frontage.number) + by);
    else if (by > 0 && this.can("step")) {
      if (!this.model.state.paused) this.send({ do: "pause" });
      this.send({ do: "step" });
    }
  }

  showResult(number) {
    this.player.stop();
    this.player.seek(number);
  }

  async upload(file) {
    this.notice("info", `Uploading ${file.name} …`);
    try {
      await this.link.upload(file);
    } catch (error) {
      this.notice("error", `${file.name} was not taken: ${error.message}`);
    }
  }

  async snapshot() {
    try {
      await snapshot(this);
    } catch (error) {
      this.notice("error", `No picture was kept: ${error.message}`);
    }
  }

  moveCursor(index) {
    this.model.cursor = index;
    if (this.model.follow) this.toggle("follow");
    this.ask("planes", "scene");
  }

  toggle(name) {
    const { model } = this;
    model[name] = !model[name];
    if (name === "follow") model.place();
    this.changed();
  }

  // Which view is large: "space" or "planes".
  useLayout(layout) {
    this.model.layout = layout;
    document.getElementById("views").dataset.layout = layout;
    remember("layout", layout);
    this.maximise(null);
    this.changed();
  }

  useMix(mix) {
    this.model.mix = mix;
    this.changed();
  }

  useWeight(weight) {
    this.model.weight = Math.min(Math.max(weight, 0), 1);
    this.changed();
  }

  // Which of the sizes; those beyond the ends are none.
  useTile(tile) {
    this.model.tile = Math.min(Math.max(tile, 0), TILE_COUNTS.length - 1);
    this.changed();
  }

  // More of the volume, or larger tiles.
  shiftMix(by) {
    if (this.model.mix === "checker") this.useTile(this.model.tile + by);
    else this.useWeight(this.model.weight + 0.05 * by);
  }

  useOpacity(opacity) {
    this.model.evidenceOpacity = opacity;
    this.changed();
  }

  useWindow(low, high) {
    this.model.useWindow(low, high);
    this.changed();
  }

  // To the right more contrast, up brighter.
  dragWindow(dx, dy) {
    const { low, high } = this.model;
    const [level, width] = [(low + high) / 2 + dy, Math.max(high - low - dx, 4)];
    this.useWindow(level - width / 2, level + width / 2);
  }

  changed() {
    this.controls.show(this.model);
    this.scene.fine = false;
    this.player.draw();
    this.ask("planes", "scene", "comparison", "trace");
  }

  maximise(panel) {
    const views = document.getElementById("views");
    const large = panel && !panel.classList.contains("largest") ? panel : null;
    for (const other of this.panels) other.classList.toggle("largest", other === large);
    views.classList.toggle("one", Boolean(large));
  }

  reset() {
    for (const view of this.planes) view.reset();
    this.scene.camera.reset();
    this.model.useWindow(0, 255);
    this.changed();
  }
}
