// Where a person can measure: the three planes, the frame, and the volume at the place of the frame. Each takes places
// on the screen to millimetres and back: of the volume (LPS), or of the frame itself.

import { fromPlane, onPlane } from "./cut.js";
import { apply, inverse } from "./matrix.js";
import { sizeOf } from "./picture.js";
import { placeInWords } from "./volume.js";

// One of the three planes, at the layer that is shown.
export class PlaneSurface {
  constructor(view) {
    [this.view, this.page, this.canvas] = [view, view.page, view.lines];
    [this.space, this.frame] = ["volume", null];
    this.moving = false; // whether frames that come take its places along
  }

  get ready() {
    return Boolean(this.page.model.volume);
  }

  get size() {
    return sizeOf(this.canvas);
  }

  get layer() {
    return Math.round(this.page.model.cursor[this.view.plane.normal]);
  }

  // In mm: what lies within it is in this layer.
  get thickness() {
    return this.page.model.volume.spacing[this.view.plane.normal];
  }

  get words() {
    const { plane } = this.view;
    return `${plane.name.toLowerCase()}, ${placeInWords(this.page.model.volume, plane, this.page.model.cursor)}`;
  }

  pointAt(x, y) {
    const { volume, cursor } = this.page.model;
    const { scaleX, scaleY, left, top } = this.view.layout(...this.size);
    const index = fromPlane(this.view.plane, (x - left) / scaleX, (y - top) / scaleY, cursor);
    index[this.view.plane.normal] = this.layer;
    return volume.toWorld(index);
  }

  // On the screen, and how far from the layer in mm.
  placeOf(point) {
    const { scaleX, scaleY, left, top } = this.view.layout(...this.size);
    const [u, v, layer] = onPlane(this.view.plane, this.page.model.volume.toIndex(point));
    return { x: left + u * scaleX, y: top + v * scaleY, off: (layer - this.layer) * this.thickness };
  }
}

// The frame, or the volume there, as its pixels lie on a canvas.
export class FrameSurface {
  constructor(key, canvas, page) {
    this.canvas = canvas;
    this.page = page;
    this.space = key === "frame" ? "frame" : "volume";
    this.thickness = 1; // mm
    this.moving = true;
  }

  get ready() {
    const { update, placed } = this.page.model;
    return Boolean(update && update.columns && (this.space === "frame" ? update.frame.sized !== false : placed));
  }

  // From (column, row, 0) to mm.
  get matrix() {
    const { update } = this.page.model;
    return this.space === "frame" ? update.frame.pixel_to_image : update.pixelToWorld;
  }

  get size() {
    return sizeOf(this.canvas);
  }

  pointAt(x, y) {
    const { columns, rows } = this.page.model.update;
    const [width, height] = this.size;
    return apply(this.matrix, [(x / width) * columns - 0.5, (y / height) * rows - 0.5, 0]);
  }

  // On the screen, and how far from this picture's plane in mm.
  placeOf(point) {
    const { columns, rows } = this.page.model.update;
    const [width, height] = this.size;
    const [column, row, off] = apply(inverse(this.matrix), point);
    return { x: ((column + 0.5) / columns) * width, y: ((row + 0.5) / rows) * height, off };
  }

  // Whose measures belong here: those of a frame are of that one alone.
  get frame() {
    return this.space === "frame" ? frameKey(this.page.model.update) : null;
  }

  get words() {
    const { update, state } = this.page.model;
    return this.space === "frame" ? frameName(update, state) : "volume there";
  }
}

// Which frame an update is of, whatever number the message has.
export function frameKey(update) {
  return update.result === undefined ? `frame ${update.frame_number} ${update.time_s}` : `result ${update.result}`;
}

export function frameName(update, state) {
  const named = state && state.results && state.results[update.result];
  return named && named.name ? named.name : `frame ${update.frame_number ?? update.number}`;
}
