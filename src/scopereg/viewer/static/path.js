// The way of the probe through the volume: where the middle of the upper edge of the frame lay, result after result, and
// a needle from there to the middle of the frame, since a probe may turn where it stands.

import { apply, multiply } from "./matrix.js";
import { INKS } from "./theme.js";

const DASHES = { green: [], amber: [7, 4], red: [2, 4], none: [1, 5] }; // for those who see no colours
const AHEAD = 0.4; // how strongly what is yet to come is drawn
const NEEDLE = 0.55; // how strongly needles are drawn
const DOT_PX = 7; // between two results of one light, from which each has a dot

export class Path {
  // `told` is what the server says; `results` have the lights.
  constructor(told, results) {
    this.matrices = told.poses.map((rows) => [...rows, 0, 0, 0, 1]);
    this.times = told.times_s;
    this.groups = told.groups;
    this.follows = told.follows;
    this.lights = results.map((result) => result.light || "none");
    this.shown = true;
  }

  // In LPS mm, for frames as large as the one that is shown; null for results in another volume.
  places(update) {
    return this.lines(update).map((line) => line && line[0]);
  }

  // Of each frame, from the middle of its upper edge to its own middle.
  lines(update) {
    const { columns, rows, frame, result } = update;
    const key = `${columns} ${rows} ${frame.pixel_to_image} ${this.groups[result]}`;
    if (this.key !== key) {
      const ends = [-0.5, (rows - 1) / 2].map((row) => [(columns - 1) / 2, row, 0]);
      const line = (matrix) => ends.map((pixel) => apply(multiply(matrix, frame.pixel_to_image), pixel));
      this.known = this.matrices.map((matrix, k) => (this.groups[k] === this.groups[result] ? line(matrix) : null));
      this.key = key;
    }
    return this.known;
  }

  // `place` takes LPS mm to the screen, or to nothing where that is behind the eye.
  draw(context, place, update) {
    const lines = this.lines(update).map((line) => line && line.map(place));
    const points = lines.map((line) => line && line[0]);
    context.save();
    [context.lineCap, context.lineJoin] = ["round", "round"];
    this.drawNeedles(context, lines, update.result);
    for (const run of this.runs(points, update.result)) this.drawRun(context, points, run);
    this.drawDots(context, points, update.result);
    const here = points[update.result];
    if (here) ring(context, here, INKS[this.lights[update.result]]);
    context.restore();
  }

  // Pieces of one look: [from, to, light, ahead], the pieces between results; what is missing between two is a gap.
  runs(points, current) {
    const found = [];
    for (let k = 1; k < points.length; k++) {
      if (!points[k - 1] || !points[k]) continue;
      const [light, ahead] = [this.follows[k] ? this.lights[k] : "none", k > current];
      const last = found[found.length - 1];
      if (last && last[1] === k - 1 && last[2] === light && last[3] === ahead) last[1] = k;
      else found.push([k - 1, k, light, ahead]);
    }
    return found;
  }

  drawRun(context, points, [from, to, light, ahead]) {
    context.globalAlpha = ahead ? AHEAD : 1;
    const line = new Path2D();
    for (let k = from; k <= to; k++) line.lineTo(points[k].x, points[k].y);
    for (const [width, colour, dash] of [[5, INKS.halo, []], [2.2, INKS[light], DASHES[light]]]) {
      [context.lineWidth, context.strokeStyle] = [width, colour];
      context.setLineDash(dash);
      context.stroke(line);
    }
    context.setLineDash([]);
  }

  drawNeedles(context, lines, current) {
    let last = null;
    context.lineWidth = 1.2;
    lines.forEach((line, k) => {
      if (!line || !line[0] || !line[1]) return;
      if (last && line.every((end, at) => Math.hypot(end.x - last[at].x, end.y - last[at].y) < DOT_PX)) return;
      last = line;
      context.globalAlpha = NEEDLE * (k > current ? AHEAD : 1);
      context.strokeStyle = INKS[this.lights[k]];
      context.beginPath();
      context.moveTo(line[0].x, line[0].y);
      context.lineTo(line[1].x, line[1].y);
      context.stroke();
    });
  }

  drawDots(context, points, current) {
    let last = null;
    points.forEach((point, k) => {
      const near = point && last && Math.hypot(point.x - last.x, point.y - last.y) < DOT_PX;
      if (!point || (near && this.lights[k] === last.light)) return;
      last = { ...point, light: this.lights[k] };
      context.globalAlpha = k > current ? AHEAD : 1;
      context.fillStyle = INKS[this.lights[k]];
      context.beginPath();
      context.arc(point.x, point.y, 2.6, 0, 7);
      context.fill();
    });
  }
}

function ring(context, { x, y }, colour) {
  context.globalAlpha = 1;
  for (const [width, style] of [[5, INKS.halo], [2.6, colour]]) {
    [context.lineWidth, context.strokeStyle] = [width, style];
    context.beginPath();
    context.arc(x, y, 7, 0, 7);
    context.stroke();
  }
}
