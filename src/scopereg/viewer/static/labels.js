// Labels that lie over the volume: which of them are shown, and how a cut through them is drawn.

import { packed, parts } from "./colours.js";

const LINE_PX = 1.6;

export class Labels {
  // `overlay` is what the server says of them; their voxels lie on the grid of the volume.
  constructor(overlay, voxels, volume) {
    if (voxels.length !== volume.voxels.length) {
      throw new Error(`there are ${voxels.length} labels for ${volume.voxels.length} voxels`);
    }
    this.file = overlay.labels_file;
    this.entries = overlay.labels;
    this.voxels = voxels;
    this.shape = volume.shape;
    this.strides = volume.strides;
    this.shown = this.entries.map(() => true);
    this.opacity = 0.3;
    this.version = 0; // of what the user has chosen: cuts that were drawn before are old
  }

  switch(number, shown) {
    this.shown[number] = shown;
    this.version++;
  }

  useOpacity(opacity) {
    this.opacity = opacity;
    this.version++;
  }

  // Colours of the filled areas, by label.
  table() {
    const table = new Uint32Array(256);
    this.entries.forEach(({ colour }, k) => {
      if (this.shown[k]) table[k + 1] = packed(...parts(colour).map((part) => Math.round(255 * part)), Math.round(255 * this.opacity));
    });
    return table;
  }
}

// A cut through labels, kept until another one is cut: its areas as a picture, their borders as lines.
export class LabelCut {
  constructor() {
    this.canvas = document.createElement("canvas");
    this.context = this.canvas.getContext("2d");
    this.key = "";
  }

  // `cut` fills an array of bytes with labels; it is called where the key is another one.
  use(key, labels, columns, rows, cut) {
    const full = `${key} ${labels.version} ${columns} ${rows}`;
    if (this.key === full && this.labels === labels) return;
    [this.key, this.labels] = [full, labels];
    if (!this.image || this.image.width !== columns || this.image.height !== rows) {
      [this.canvas.width, this.canvas.height] = [columns, rows];
      this.image = this.context.createImageData(columns, rows);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.values = new Uint8Array(columns * rows);
    }
    cut(this.values);
    hide(this.values, labels.shown);
    const table = labels.table();
    for (let k = 0; k < this.pixels.length; k++) this.pixels[k] = table[this.values[k]];
    this.context.putImageData(this.image, 0, 0);
    this.borders = bordersOf(this.values, columns, rows);
  }

  // On a canvas for lines; pixel (0, 0) begins at (left, top) and measures scaleX x scaleY.
  draw(context, { left, top, scaleX, scaleY }, dashed = false) {
    context.save();
    context.imageSmoothingEnabled = false;
    const { width, height } = this.canvas;
    context.drawImage(this.canvas, left, top, width * scaleX, height * scaleY);
    context.lineWidth = LINE_PX;
    context.lineCap = "butt";
    if (dashed) context.setLineDash([5, 4]);
    const place = new DOMMatrix([scaleX, 0, 0, scaleY, left, top]);
    for (const [label, border] of this.borders) {
      const lines = new Path2D();
      lines.addPath(border, place);
      context.strokeStyle = this.labels.entries[label - 1].colour;
      context.stroke(lines);
    }
    context.restore();
  }
}

function hide(values, shown) {
  if (shown.every(Boolean)) return;
  for (let k = 0; k < values.length; k++) if (values[k] && !shown[values[k] - 1]) values[k] = 0;
}

// The edges of pixels between one label and another, as a path for each label; runs of edges are one line.
export function bordersOf(values, columns, rows) {
  const paths = new Map();
  const path = (label) => paths.get(label) || paths.set(label, new Path2D()).get(label);
  const line = (label, x, y, toX, toY) => {
    path(label).moveTo(x, y);
    path(label).lineTo(toX, toY);
  };
  for (let row = 0; row <= rows; row++) {
    runs(columns, (k) => pair(row ? values[(row - 1) * columns + k] : 0, row < rows ? values[row * columns + k] : 0),
      (label, from, to) => line(label, from, row, to, row));
  }
  for (let column = 0; column <= columns; column++) {
    runs(rows, (k) => pair(column ? values[k * columns + column - 1] : 0, column < columns ? values[k * columns + column] : 0),
      (label, from, to) => line(label, column, from, column, to));
  }
  return [...paths];
}

// Two labels that meet as one number; 0 where there is no border.
function pair(a, b) {
  return a === b ? 0 : (a << 8) | b;
}

function runs(count, pairAt, draw) {
  let [from, present] = [0, 0];
  for (let k = 0; k <= count; k++) {
    const next = k < count ? pairAt(k) : 0;
    if (next === present) continue;
    for (const label of [present >> 8, present & 255]) if (label) draw(label, from, k);
    [from, present] = [k, next];
  }
}
