// The error over time: what is expected, the bound that 95 % stay below, and the truth where the source knows it.

import { lineContext, sizeOf } from "./picture.js";
import { INKS } from "./theme.js";

const KEPT = 500; // updates, 20 s at 25 a second
const TOPS_MM = [2, 4, 6, 10, 20, 40, 100, 200];
const MARGIN = { left: 30, right: 8, top: 8, bottom: 24 };

export class Trace {
  constructor(canvas) {
    this.canvas = canvas;
    this.points = [];
    this.current = null; // number of the result that is shown, for finished ones
  }

  clear() {
    this.points = [];
  }

  add(update) {
    if (this.points.length >= KEPT) this.points.splice(0, this.points.length - KEPT + 1);
    this.points.push(point(update));
  }

  // All results at once, where there is an end to them.
  fill(updates, current) {
    this.points = updates.map(point);
    this.current = current;
  }

  draw() {
    const { context, width, height } = lineContext(this.canvas);
    if (width < 60 || height < 40) return;
    const box = {
      left: MARGIN.left,
      top: MARGIN.top,
      right: width - MARGIN.right,
      bottom: height - MARGIN.bottom,
    };
    const top = this.top();
    drawGrid(context, box, top);
    if (!this.points.length) return;
    const steps = Math.max(this.current === null ? Math.max(this.points.length, 50) - 1 : this.points.length - 1, 1);
    const shift = this.current === null ? steps - (this.points.length - 1) : 0;
    const x = (k) => box.left + ((k + shift) / steps) * (box.right - box.left);
    const y = (mm) => box.bottom - (Math.min(mm, top) / top) * (box.bottom - box.top);
    this.drawBand(context, x, y);
    this.drawLine(context, x, y, "expected", INKS.ink, 1.6);
    this.drawLine(context, x, y, "truth", INKS.blue, 1.4);
    this.drawLights(context, x, box);
    this.drawTimes(context, box);
  }

  // Of all results, which one is drawn nearest to a place across the canvas.
  numberAt(x) {
    const [left, right] = [MARGIN.left, sizeOf(this.canvas)[0] - MARGIN.right];
    const share = Math.min(Math.max((x - left) / (right - left), 0), 1);
    return Math.round(share * (this.points.length - 1));
  }

  top() {
    let highest = 0;
    for (const { bound, expected, truth } of this.points) {
      for (const mm of [bound, expected, truth]) if (mm > highest) highest = mm;
    }
    return TOPS_MM.find((top) => highest <= top) || TOPS_MM[TOPS_MM.length - 1];
  }

  // From the expected error to the bound.
  drawBand(context, x, y) {
    context.fillStyle = INKS.band;
    for (const [from, to] of runs(this.points, (p) => p.expected !== null && p.bound !== null)) {
      context.beginPath();
      for (let k = from; k < to; k++) context.lineTo(x(k), y(this.points[k].bound));
      for (let k = to - 1; k >= from; k--) context.lineTo(x(k), y(this.points[k].expected));
      context.fill();
    }
  }

  drawLine(context, x, y, name, colour, width) {
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = width;
    for (const [from, to] of runs(this.points, (p) => p[name] !== null)) {
      context.beginPath();
      if (to - from === 1) context.arc(x(from), y(this.points[from][name]), 2, 0, 7);
      for (let k = from; k < to; k++) context.lineTo(x(k), y(this.points[k][name]));
      if (to - from === 1) context.fill();
      else context.stroke();
    }
  }

  // A strip in the colour of the light; below amber and red half and whole height, for those who see no colours.
  drawLights(context, x, box) {
    const heights = { green: 3, amber: 5, red: 7, none: 3 };
    const half = Math.max((x(1) - x(0)) / 2, 0.5);
    for (const light of Object.keys(heights)) {
      context.fillStyle = INKS[light];
      for (const [from, to] of runs(this.points, (p) => p.light === light)) {
        const start = Math.max(x(from) - half, box.left);
        context.fillRect(start, box.bottom + 2, Math.min(x(to - 1) + half, box.right) - start, heights[light]);
      }
    }
    if (this.current === null) return;
    context.fillStyle = INKS.ink;
    context.fillRect(x(this.current) - 1, box.top, 2, box.bottom - box.top + 9);
  }

  drawTimes(context, box) {
    context.fillStyle = INKS.dim;
    const [first, last] = [this.points[0], this.points[this.points.length - 1]];
    const finished = this.current !== null;
    const seconds = last.time - first.time;
    const words = finished ? `${this.points.length} results` : seconds > 0 ? `last ${seconds.toFixed(0)} s` : "";
    context.textAlign = "right";
    context.fillText(words, box.right, box.bottom + 17);
  }
}

function point(update) {
  return {
    expected: update.expected_mm ?? null,
    bound: update.bound_mm ?? null,
    truth: update.error_mm ?? null,
    light: update.light || "none",
    time: update.time_s || 0,
  };
}

// Parts [from, to) in which all points fulfil a condition.
function runs(points, holds) {
  const found = [];
  let from = -1;
  for (let k = 0; k <= points.length; k++) {
    const good = k < points.length && holds(points[k]);
    if (good && from < 0) from = k;
    if (!good && from >= 0) {
      found.push([from, k]);
      from = -1;
    }
  }
  return found;
}

function drawGrid(context, box, top) {
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  context.textAlign = "right";
  context.lineWidth = 1;
  for (const share of [0, 0.5, 1]) {
    const y = Math.round(box.bottom - share * (box.bottom - box.top)) + 0.5;
    context.strokeStyle = share ? INKS.rule : INKS.edge;
    context.beginPath();
    context.moveTo(box.left, y);
    context.lineTo(box.right, y);
    context.stroke();
    context.fillStyle = INKS.dim;
    context.fillText(String(top * share), box.left - 6, y);
  }
}
