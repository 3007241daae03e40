// Rulers: distances in true mm between two places; and points, which have one end. Those on a plane or on the volume
// there lie in the volume and stay in it; one on a frame belongs to that frame, and waits until it is shown again.

import { drawPoint, drawRuler, RULER } from "./marks.js";
import { apply, subtract } from "./matrix.js";

const NEAR_PX = { mouse: 14, touch: 26 }; // of an end, to take it
const TAP_PX = 5; // a shorter drag was a tap: the other end comes with the next one

export class Rulers {
  constructor(page) {
    this.page = page;
    this.all = [];
    this.tool = ""; // what the next touch begins: a ruler, a point, or nothing
    this.held = null; // {ruler, end, surface, begun}: what is being dragged
    this.count = 0;
    this.changed = () => {}; // told by whoever lists them
  }

  // A touch of a picture: whether it takes an end, or begins a ruler.
  down(surface, { x, y, kind, pointer }) {
    if (kind !== "move" || !surface.ready) return false;
    const taken = this.endNear(surface, x, y, NEAR_PX[pointer] || NEAR_PX.mouse);
    if (taken) this.held = { ...taken, surface, begun: false };
    else if (this.waiting && this.waiting.surface === surface) this.held = { ruler: this.waiting.ruler, end: 1, surface };
    else if (this.tool && this.mayMeasure(surface)) {
      const at = surface.pointAt(x, y);
      const ends = this.tool === "point" ? [at] : [at, at];
      this.held = { ruler: this.add(surface, ends), end: ends.length - 1, surface, begun: { x, y } };
    }
    if (!this.held) return false;
    this.waiting = null;
    if (!taken && !this.held.begun) this.move({ x, y });
    return true;
  }

  move({ x, y }) {
    if (!this.held) return;
    const { ruler, end, surface } = this.held;
    if (surface.ready) ruler.ends[end] = surface.pointAt(x, y);
    this.tell();
  }

  // A ruler that was only begun waits for its other end.
  up({ x, y }) {
    const { held } = this;
    this.held = null;
    if (!held) return;
    const tapped = held.begun && held.ruler.ends.length > 1 && Math.hypot(x - held.begun.x, y - held.begun.y) < TAP_PX;
    if (tapped) this.waiting = held;
    else this.take("");
    this.tell();
  }

  // Two fingers want something else.
  cancel() {
    const { held } = this;
    this.held = null;
    if (held && held.begun) this.remove(held.ruler);
  }

  add(surface, ends) {
    const middle = surface.pointAt(0, 0);
    const along = (x, y) => unit(subtract(surface.pointAt(x, y), middle));
    const ruler = {
      name: `${ends.length > 1 ? "ruler" : "point"} ${++this.count}`, space: surface.space, frame: surface.frame, words: surface.words, ends: [...ends],
      right: along(1, 0), down: along(0, 1), toWorld: null,
    };
    const { update, placed } = this.page.model;
    if (ruler.space === "frame" && placed) ruler.toWorld = update.image_to_volume;
    this.all.push(ruler);
    this.tell();
    return ruler;
  }

  // In the middle of a picture, for who has no pointer; null where nothing can be measured.
  addAmid(surface) {
    if (!surface.ready || !this.mayMeasure(surface)) return null;
    const [width, height] = surface.size;
    const shares = this.tool === "point" ? [0.5] : [0.35, 0.65];
    this.take("");
    return this.add(surface, shares.map((share) => surface.pointAt(share * width, height / 2)));
  }

  // A frame that goes on takes its places along.
  mayMeasure(surface) {
    const { state } = this.page.model;
    const still = !state || state.mode !== "live" || state.paused || state.finished;
    if (surface.moving && !still) this.page.notice("info", "Pause first: what is measured here belongs to one frame.");
    return still || !surface.moving;
  }

  // In hand: "ruler", "point" or "".
  take(tool) {
    this.tool = tool;
    if (this.waiting) this.remove(this.waiting.ruler);
    this.waiting = null;
    document.body.dataset.tool = tool;
    this.tell();
  }

  // Into the hand, or out of it.
  toggle(tool) {
    this.take(this.tool === tool ? "" : tool);
  }

  // An end of a ruler moves by so many mm, to the right and down on the picture where it was made.
  nudge(ruler, end, right, down) {
    ruler.ends[end] = ruler.ends[end].map((value, k) => value + right * ruler.right[k] + down * ruler.down[k]);
    this.tell();
  }

  remove(ruler) {
    this.all = this.all.filter((other) => other !== ruler);
    this.tell();
  }

  clear() {
    this.all = [];
    this.take("");
  }

  // Another volume: what lay in the old one means nothing.
  forgetVolume() {
    this.all = this.all.filter((ruler) => ruler.space === "frame");
    for (const ruler of this.all) ruler.toWorld = null;
    this.tell();
  }

  tell() {
    this.changed();
    this.page.ask("planes", "comparison", "scene");
  }

  shownOn(surface) {
    return surface.ready ? this.all.filter((ruler) => ruler.space === surface.space && ruler.frame === surface.frame) : [];
  }

  endNear(surface, x, y, reach) {
    let best = null;
    for (const { ruler, places } of this.placed(surface)) {
      places.forEach((place, end) => {
        const apart = Math.hypot(place.x - x, place.y - y);
        if (apart <= reach && (!best || apart < best.apart)) best = { ruler, end, apart };
      });
    }
    return best;
  }

  // Those that lie in what a picture shows, and where on it.
  placed(surface) {
    return this.shownOn(surface)
      .map((ruler) => ({ ruler, places: ruler.ends.map((end) => surface.placeOf(end)) }))
      .filter(({ places }) => places.every(({ off }) => Math.abs(off) <= surface.thickness / 2 + 1e-6));
  }

  draw(context, surface) {
    const found = this.placed(surface);
    for (const { ruler, places } of found) {
      const active = ruler === this.active || Boolean(this.held && this.held.ruler === ruler);
      drawMark(context, ruler, places, surface.size, active);
    }
    surface.canvas.classList.toggle("measured", found.length > 0);
  }

  // In 3D: all that lie in the volume, and those of the frame that is shown.
  inSpace() {
    const { model } = this.page;
    const shown = this.all.filter(({ space, frame }) => space === "volume" || (model.placed && frame === this.page.frameKey));
    return shown.map((ruler) => ({ ruler, ends: inWorld(ruler) })).filter(({ ends }) => ends);
  }
}

export function drawMark(context, ruler, places, size, active = false) {
  if (places.length > 1) drawRuler(context, ...places, inWords(ruler), size, active);
  else drawPoint(context, places[0], ruler.name, size, { colour: RULER, active });
}

// 0 of a point.
export function lengthOf({ ends: [a, b = a] }) {
  return Math.hypot(...subtract(a, b));
}

export function inWords(ruler) {
  return ruler.ends.length > 1 ? `${lengthOf(ruler).toFixed(1)} mm` : ruler.name;
}

// All ends in LPS mm of the volume; null for those of a frame that was not located.
export function inWorld(ruler) {
  if (ruler.space === "volume") return ruler.ends;
  return ruler.toWorld && ruler.ends.map((end) => apply(ruler.toWorld, end));
}

function unit(vector) {
  const length = Math.hypot(...vector) || 1;
  return vector.map((value) => value / length);
}
