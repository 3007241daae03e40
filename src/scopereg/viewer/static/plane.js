// One of the three planes: the picture is scaled by the browser's compositor, lines lie on a canvas above it.

import { PLANE_COLOURS, LIGHTS } from "./colours.js";
import { crossing, cutPlane, fromPlane, onPlane } from "./cut.js";
import { watch } from "./gestures.js";
import { drawGrid } from "./grid.js";
import { LabelCut } from "./labels.js";
import { dot, normalised } from "./matrix.js";
import { lineContext, Picture, sizeOf } from "./picture.js";
import { PlaneSurface } from "./surfaces.js";
import { placeInWords } from "./volume.js";

const CLOSEST = 12; // times larger than when it fits
const WHEEL_STEP = 50; // of the wheel, for one layer

export class PlaneView {
  constructor(panel, number, page) {
    this.panel = panel;
    this.number = number; // among the planes of the volume
    this.page = page;
    this.picture = new Picture(panel.querySelector(".picture"));
    this.lines = panel.querySelector(".lines");
    this.slider = panel.querySelector(".layer");
    this.label = panel.querySelector(".place");
    this.title = panel.querySelector(".name");
    this.values = new Uint8Array(0);
    this.surface = new PlaneSurface(this);
    this.labelCut = new LabelCut();
    this.wheel = 0;
    this.reset();
    this.listen();
  }

  reset() {
    [this.zoom, this.panX, this.panY] = [1, 0, 0];
  }

  get plane() {
    return this.page.model.volume.planes[this.number];
  }

  useVolume(volume) {
    const plane = this.plane;
    this.values = new Uint8Array(plane.columns * plane.rows);
    this.picture.resize(plane.columns, plane.rows);
    this.slider.max = volume.shape[plane.normal] - 1;
    this.title.textContent = plane.name;
    for (const side of ["left", "right", "top", "bottom"]) {
      this.panel.querySelector(`.letter.${side}`).textContent = plane.letters ? plane.letters[side] : "";
    }
    this.shown = this.layer = null;
    this.reset();
  }

  draw() {
    const { volume, cursor, table } = this.page.model;
    if (!volume) return;
    const plane = this.plane;
    const layer = Math.round(cursor[plane.normal]);
    const look = `${layer} ${this.page.model.low} ${this.page.model.high}`;
    if (this.shown !== look) {
      this.picture.paint(cutPlane(volume, plane, layer, this.values), table);
      this.shown = look;
    }
    if (this.layer !== layer) this.slider.value = this.layer = layer;
    const words = placeInWords(volume, plane, cursor);
    if (this.words !== words) this.label.textContent = this.words = words;
    this.drawLines(plane, layer);
  }

  // Pixels of the panel for a voxel across and down, and where voxel (0, 0) has its centre.
  layout(width, height) {
    const { spacing } = this.page.model.volume;
    const plane = this.plane;
    const [mmX, mmY] = [spacing[plane.across.axis], spacing[plane.down.axis]];
    const fit = Math.min(width / (plane.columns * mmX), height / (plane.rows * mmY));
    const [scaleX, scaleY] = [fit * this.zoom * mmX, fit * this.zoom * mmY];
    return {
      scaleX,
      scaleY,
      left: width / 2 + this.panX - ((plane.columns - 1) / 2) * scaleX,
      top: height / 2 + this.panY - ((plane.rows - 1) / 2) * scaleY,
    };
  }

  drawLines(plane, layer) {
    const { context, width, height } = lineContext(this.lines);
    const { scaleX, scaleY, left, top } = this.layout(width, height);
    const place = `matrix(${scaleX},0,0,${scaleY},${left - scaleX / 2},${top - scaleY / 2})`;
    if (this.matrix !== place) this.picture.canvas.style.transform = this.matrix = place;
    const toScreen = ([u, v]) => [left + u * scaleX, top + v * scaleY];
    if (this.page.model.grid) this.drawGrid(context, [width, height], plane, { scaleX, scaleY, left, top });
    this.drawLabels(context, plane, layer, { left: left - scaleX / 2, top: top - scaleY / 2, scaleX, scaleY });
    this.drawCrosshair(context, width, height, toScreen(onPlane(plane, this.page.model.cursor)));
    this.drawFrame(context, plane, layer, toScreen);
    const { volume: { landmarks }, overlaid } = this.page.model;
    if (landmarks && overlaid) landmarks.draw(context, this.surface);
    this.page.rulers.draw(context, this.surface);
  }

  // Lines at whole millimetres along its axes, as LPS counts them where these are a patient's.
  drawGrid(context, size, plane, { scaleX, scaleY, left, top }) {
    const { volume } = this.page.model;
    const along = ({ axis, sign }, scale, start) => {
      const px = scale / volume.spacing[axis];
      const towards = normalised(volume.steps[axis]).map((part) => part * sign);
      return { px, origin: start - px * dot(volume.toWorld(fromPlane(plane, 0, 0, volume.centre)), towards) };
    };
    drawGrid(context, size, along(plane.across, scaleX, left), along(plane.down, scaleY, top));
  }

  drawFrame(context, plane, layer, toScreen) {
    const { placed, light } = this.page.model;
    if (!placed) return;
    const corners = placed.corners.map((corner) => onPlane(plane, corner));
    drawOutline(context, corners.map(toScreen), LIGHTS[light]);
    const cut = crossing(corners, layer);
    if (cut) drawCut(context, cut.map(toScreen), LIGHTS[light]);
  }

  drawLabels(context, plane, layer, place) {
    const { volume: { labels }, overlaid } = this.page.model;
    if (!labels || !overlaid) return;
    this.labelCut.use(layer, labels, plane.columns, plane.rows, (out) => cutPlane(labels, plane, layer, out));
    this.labelCut.draw(context, place);
  }

  // In the colours of the other two planes, open in the middle.
  drawCrosshair(context, width, height, [x, y]) {
    const planes = this.page.model.volume.planes;
    const colour = (axis) => PLANE_COLOURS[planes.find((plane) => plane.normal === axis).key];
    const line = (axis, ...points) => {
      context.strokeStyle = colour(axis);
      context.beginPath();
      for (const [fromX, fromY, toX, toY] of points) {
        context.moveTo(fromX, fromY);
        context.lineTo(toX, toY);
      }
      context.stroke();
    };
    const gap = 12;
    context.lineWidth = 1;
    context.globalAlpha = 0.55;
    line(this.plane.across.axis, [x, 0, x, y - gap], [x, y + gap, x, height]);
    line(this.plane.down.axis, [0, y, x - gap, y], [x + gap, y, width, y]);
    context.globalAlpha = 1;
  }

  listen() {
    const { page } = this;
    const { rulers } = page;
    watch(this.lines, {
      down: (at) => rulers.down(this.surface, at) || (at.kind === "move" && this.moveCursor(at.x, at.y)),
      drag: (drag) => (rulers.held ? rulers.move(drag) : this.drag(drag)),
      up: (at) => rulers.up(at),
      cancel: () => rulers.cancel(),
      pinch: ({ factor, dx, dy, x, y }) => this.zoomBy(factor, x, y, dx, dy),
      wheel: ({ delta, x, y, zoom }) => (zoom ? this.zoomBy(Math.exp(-delta / 300), x, y) : this.turnWheel(delta)),
      double: () => page.maximise(this.panel),
    });
    this.slider.addEventListener("input", () => this.scrollTo(Number(this.slider.value)));
    this.lines.addEventListener("keydown", (event) => this.key(event));
  }

  drag({ dx, dy, x, y, kind }) {
    if (kind === "move") this.moveCursor(x, y);
    else if (kind === "window") this.page.dragWindow(dx, dy);
    else {
      [this.panX, this.panY] = [this.panX + dx, this.panY + dy];
      this.page.ask("planes");
    }
  }

  moveCursor(x, y) {
    const { model } = this.page;
    if (!model.volume) return;
    const { scaleX, scaleY, left, top } = this.layout(...sizeOf(this.lines));
    const moved = fromPlane(this.plane, (x - left) / scaleX, (y - top) / scaleY, model.cursor);
    this.page.moveCursor(model.volume.clamped(moved));
  }

  scrollTo(layer) {
    const { model } = this.page;
    const moved = [...model.cursor];
    moved[this.plane.normal] = layer;
    this.page.moveCursor(model.volume.clamped(moved));
  }

  scrollBy(layers) {
    if (this.page.model.volume) this.scrollTo(Math.round(this.page.model.cursor[this.plane.normal]) + layers);
  }

  turnWheel(delta) {
    this.wheel += delta / WHEEL_STEP;
    const layers = Math.trunc(this.wheel);
    this.wheel -= layers;
    if (layers) this.scrollBy(layers);
  }

  // About a place of the panel, by default its middle.
  zoomBy(factor, x = sizeOf(this.lines)[0] / 2, y = sizeOf(this.lines)[1] / 2, dx = 0, dy = 0) {
    const zoom = Math.min(Math.max(this.zoom * factor, 0.5), CLOSEST);
    const share = zoom / this.zoom;
    const [middleX, middleY] = sizeOf(this.lines).map((length) => length / 2);
    this.panX = (this.panX + middleX - x) * share + x - middleX + dx;
    this.panY = (this.panY + middleY - y) * share + y - middleY + dy;
    this.zoom = zoom;
    this.page.ask("planes");
  }

  key(event) {
    const moves = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
    if (event.key in moves) this.scrollBy(moves[event.key]);
    else if (event.key === "+" || event.key === "=") this.zoomBy(1.25);
    else if (event.key === "-") this.zoomBy(0.8);
    else if (event.key === "Enter") this.enter();
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // With a ruler or a point in hand one is placed, to be moved by keys.
  enter() {
    const { rulers, measure } = this.page;
    if (rulers.tool) measure.focusOn(rulers.addAmid(this.surface));
    else this.page.maximise(this.panel);
  }
}

// The whole frame seen through the plane, faint.
function drawOutline(context, points, colour) {
  context.strokeStyle = colour;
  context.globalAlpha = 0.4;
  context.lineWidth = 1;
  context.setLineDash([4, 4]);
  context.beginPath();
  points.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
  context.stroke();
  context.setLineDash([]);
  context.globalAlpha = 1;
}

// The line that the frame and the plane share, with a dark rim that keeps it visible on bright tissue.
function drawCut(context, [from, to], colour) {
  context.lineCap = "round";
  for (const [width, style] of [[5, "rgba(0,0,0,0.55)"], [2.5, colour]]) {
    context.lineWidth = width;
    context.strokeStyle = style;
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  }
}
