// The frame beside the volume at its place: both, mixed, and their difference.

import { differenceTable, greyTable, heatTable } from "./colours.js";
import { cutNearest, cutOblique } from "./cut.js";
import { drawDeformation } from "./deformation.js";
import { watch } from "./gestures.js";
import { drawDepth, drawGrid } from "./grid.js";
import { LabelCut } from "./labels.js";
import { drawSeams, mixInto } from "./mixing.js";
import { lineContext, Picture } from "./picture.js";
import { FrameSurface } from "./surfaces.js";

const SPREADS = 3; // standard deviations that make a difference of full colour, as in the reports

export class Comparison {
  constructor(root, page) {
    this.page = page;
    this.root = root;
    const picture = (name) => new Picture(root.querySelector(`#${name}-picture`));
    this.frame = picture("frame");
    this.volume = picture("volume");
    this.mixed = picture("mixed");
    this.apart = picture("difference");
    this.evidence = picture("evidence");
    this.surfaces = ["frame", "there"].map((key) => new FrameSurface(key, root.querySelector(`#${key}-marks`), page));
    this.depths = ["frame", "there"].map((key) => root.querySelector(`#${key}-depth`));
    this.seams = root.querySelector("#mixed-marks");
    this.labelCut = new LabelCut();
    new ResizeObserver(() => page.ask("comparison")).observe(this.surfaces[0].canvas);
    this.cut = new Uint8Array(0); // the volume on the pixels of the frame
    this.mixture = new Uint8Array(0);
    [this.grey, this.heat, this.gaps] = [greyTable(0, 255), heatTable(), differenceTable()];
    watch(this.mixed.canvas, { down: (at) => this.drag(at), drag: (at) => this.drag(at) });
    for (const surface of this.surfaces) this.listen(surface);
  }

  // A finger on the mixed picture moves the slider.
  drag({ x }) {
    if (this.page.model.mix !== "checker") this.page.useWeight(x / this.mixed.canvas.clientWidth);
  }

  listen(surface) {
    const { rulers } = this.page;
    watch(surface.canvas, {
      down: (at) => rulers.down(surface, at),
      drag: (at) => rulers.move(at),
      up: (at) => rulers.up(at),
      cancel: () => rulers.cancel(),
    });
    surface.canvas.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !rulers.tool) return;
      this.page.measure.focusOn(rulers.addAmid(surface));
      event.stopPropagation();
    });
  }

  draw() {
    const { update, placed, volume } = this.page.model;
    if (!update || !update.columns) return;
    this.resize(update);
    if (placed) cutOblique(volume, placed.pixelToIndex, update.columns, update.rows, this.cut);
    this.frame.paint(update.pixels, this.grey);
    this.drawEvidence();
    this.root.classList.toggle("without-cut", !placed);
    this.drawMarks();
    if (!placed) {
      for (const picture of [this.volume, this.mixed, this.apart]) picture.clear();
      lineContext(this.seams);
      return;
    }
    this.volume.paint(this.cut, this.grey);
    this.drawMixed();
    this.drawDifference();
  }

  resize(update) {
    const { columns, rows } = update;
    if (this.cut.length !== columns * rows) {
      this.cut = new Uint8Array(columns * rows);
      this.mixture = new Uint8Array(columns * rows);
    }
    for (const picture of [this.frame, this.volume, this.mixed, this.apart]) picture.resize(columns, rows);
    const { wide, high } = this.sizeMm();
    const grid = `${wide} ${high}`;
    if (this.grid === grid) return;
    this.grid = grid;
    this.root.style.setProperty("--aspect", String(wide / high));
    this.page.controls.show(this.page.model); // tiles have another size
  }

  drawEvidence() {
    const { update, evidence, evidenceOpacity } = this.page.model;
    const canvas = this.evidence.canvas;
    canvas.hidden = !(evidence && update.evidence);
    if (canvas.hidden) return;
    canvas.style.opacity = evidenceOpacity;
    this.evidence.resize(update.evidence.columns, update.evidence.rows);
    this.evidence.paint(update.evidence.values, this.heat);
  }

  // What lies over the volume, at the place of the frame; over the frame itself only as sure as that place is.
  drawMarks() {
    const { update, placed, volume, light, overlaid } = this.page.model;
    const { columns, rows } = update;
    const labels = placed && overlaid && volume.labels;
    if (labels) {
      const cut = (out) => cutNearest(labels, placed.pixelToIndex, columns, rows, out);
      this.labelCut.use(`${update.generation} ${update.number}`, labels, columns, rows, cut);
    }
    this.surfaces.forEach((surface, ofVolume) => {
      const { context, width, height } = lineContext(surface.canvas);
      if (!surface.ready) return;
      if (this.page.model.grid) this.drawGrid(context, width, height);
      const place = { left: 0, top: 0, scaleX: width / columns, scaleY: height / rows };
      if (labels) this.labelCut.draw(context, place, !ofVolume && light !== "green");
      if (!ofVolume && update.deformation && this.page.model.deformed) {
        drawDeformation(context, update.deformation, update.frame, [columns, rows], [width, height]);
      }
      this.drawLandmarks(context, surface, ofVolume);
      this.page.rulers.draw(context, surface);
    });
    this.depths.forEach((canvas, number) => this.drawDepth(canvas, this.surfaces[number]));
  }

  drawLandmarks(context, surface, ofVolume) {
    const { update, placed, volume, light, overlaid } = this.page.model;
    if (!placed || !overlaid || !volume.landmarks) return;
    if (ofVolume) volume.landmarks.draw(context, surface);
    else volume.landmarks.draw(context, surface, { toWorld: update.image_to_volume, unsure: light !== "green" });
  }

  // From the middle of the upper edge.
  drawGrid(context, width, height) {
    const { wide, high } = this.sizeMm();
    drawGrid(context, [width, height], { px: width / wide, origin: width / 2 }, { px: height / high, origin: 0 });
  }

  drawDepth(canvas, surface) {
    if (!this.page.model.scale) return;
    const { context, width, height } = lineContext(canvas);
    if (surface.ready && width) drawDepth(context, [width, height], surface.canvas, this.sizeMm().high);
  }

  // Of all of its pixels.
  sizeMm() {
    const { columns, rows, frame } = this.page.model.update;
    const m = frame.pixel_to_image;
    return { wide: columns * Math.hypot(m[0], m[4], m[8]), high: rows * Math.hypot(m[1], m[5], m[9]) };
  }

  drawMixed() {
    mixInto(this.mixture, this.page.model, this.cut);
    this.mixed.paint(this.mixture, this.grey);
    drawSeams(this.seams, this.page.model);
  }

  // Gain is no difference: both are brought to the same mean and spread where both have a picture.
  drawDifference() {
    const { pixels } = this.page.model.update;
    const { cut, mixture } = this;
    const { count, meanA, meanB, spreadA, spreadB } = moments(pixels, cut);
    const [scaleA, scaleB] = [127 / (SPREADS * spreadA), 127 / (SPREADS * spreadB)];
    for (let k = 0; k < mixture.length; k++) {
      const seen = count > 1 && pixels[k] > 0 && cut[k] > 0;
      const gap = seen ? (pixels[k] - meanA) * scaleA - (cut[k] - meanB) * scaleB : 0;
      mixture[k] = gap > 127 ? 255 : gap < -127 ? 1 : 128.5 + gap;
    }
    this.apart.paint(mixture, this.gaps);
  }
}

function moments(a, b) {
  let count = 0, sumA = 0, sumB = 0, squareA = 0, squareB = 0;
  for (let k = 0; k < a.length; k++) {
    if (a[k] === 0 || b[k] === 0) continue;
    count++;
    sumA += a[k];
    sumB += b[k];
    squareA += a[k] * a[k];
    squareB += b[k] * b[k];
  }
  const n = Math.max(count, 1);
  const [meanA, meanB] = [sumA / n, sumB / n];
  const spread = (square, mean) => Math.max(Math.sqrt(Math.max(square / n - mean * mean, 0)), 1e-3);
  return { count, meanA, meanB, spreadA: spread(squareA, meanA), spreadB: spread(squareB, meanB) };
}
