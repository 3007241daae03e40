// The view in 3D: the three planes, or rays through the volume, with the frame in its place. Drawn only when something
// has changed and the last picture is done; coarser where the machine is slow, fine again when all is still.

import { Camera } from "./camera.js";
import { parts } from "./colours.js";
import { Graphics } from "./graphics.js";
import { watch } from "./gestures.js";
import { chain, cross, dot, inverse, normalised, project, scaling, subtract, translation } from "./matrix.js";
import { sizeOf } from "./picture.js";
import { SpaceMarks } from "./space_marks.js";
import { INKS } from "./theme.js";
import { faceLetters } from "./volume.js";

const SCALES = [1, 0.75, 0.55, 0.4, 0.3, 0.22]; // of the panel's pixels
const PLANES_COARSEST = 3; // which of these at most, without rays: thin lines must stay visible
const SOFTWARE_FINEST = 2; // which of these at best while things move, where the processor draws: it has other work
const POLL_MS = 5;
const LONGEST_MS = 3000; // to wait for the graphics card
const SLOW_MS = 34; // a picture that takes longer makes the next one coarser
const QUICK_MS = 16;
const CALM_MS = 250; // without changes, until it is drawn in full
const PARALLEL = 0.94; // cosine of the angle between a plane and the frame below which both are shown
const NEAR_MM = 3;
const CLEAR = 0.3; // of a voxel, by which a plane must lie before the frame to be left out
const STEPS = [220, 170, 130, 100, 80, 64]; // of a ray, for each scale

export class Scene {
  constructor(panel, page) {
    this.panel = panel;
    this.page = page;
    this.canvas = panel.querySelector("canvas");
    this.letters = panel.querySelector(".letters");
    this.marks = new SpaceMarks(panel.querySelector(".over"), page);
    this.camera = new Camera();
    this.coarse = 1; // which of the scales while things move
    this.finest = 0; // and which of them at best
    this.fine = false; // whether the next picture may take its time
    this.pending = null; // a fence of the graphics card: {sync, since, fine}
    this.drawnMs = [];
    this.start();
    this.canvas.addEventListener("webglcontextlost", (event) => {
      event.preventDefault();
      this.fail("The graphics card has stopped; 3D comes back when it does.");
    });
    this.canvas.addEventListener("webglcontextrestored", () => this.start());
    this.listen();
  }

  start() {
    this.pending = null;
    try {
      this.graphics = new Graphics(this.canvas);
    } catch (error) {
      this.fail(`3D needs WebGL2, which this browser does not offer (${error.message}). All else works without it.`);
      return;
    }
    this.finest = this.graphics.software ? SOFTWARE_FINEST : 0;
    this.coarse = Math.max(this.coarse, this.finest);
    this.panel.classList.remove("failed");
    this.newFrame = Boolean(this.page.model.update);
    if (this.page.model.volume) this.useVolume(this.page.model.volume);
  }

  fail(words) {
    this.graphics = null;
    this.panel.classList.add("failed");
    this.panel.querySelector(".fault").textContent = words;
  }

  useVolume(volume) {
    const edges = volume.shape.map((n) => [-0.5, n - 0.5]);
    const corner = (k) => volume.toWorld(edges.map((ends, axis) => ends[(k >> axis) & 1]));
    this.camera.look(volume.toWorld(volume.centre), [0, 1, 2, 3, 4, 5, 6, 7].map(corner));
    this.faces = faceLetters(volume);
    this.letters.replaceChildren(...this.faces.map(([, letter]) => {
      const span = document.createElement("span");
      span.textContent = letter;
      return span;
    }));
    if (this.graphics) this.graphics.useVolume(volume);
    this.page.ask("scene");
  }

  useUpdate() {
    const { path, placed, update } = this.page.model;
    if (path && placed && this.seen !== path) {
      this.seen = path; // once: then it is the person's to look where he likes
      this.camera.embrace(path.places(update).filter(Boolean));
    }
    this.newFrame = true;
    this.fine = false;
  }

  // Look again and again until the graphics card has made the picture; then make the next, if one is wanted.
  watchFence() {
    const { gl } = this.graphics || {};
    const { sync, since, fine } = this.pending || {};
    if (!gl || !sync) return;
    const took = performance.now() - since;
    if (gl.clientWaitSync(sync, 0, 0) === gl.TIMEOUT_EXPIRED && took < LONGEST_MS) {
      setTimeout(() => this.watchFence(), POLL_MS);
      return;
    }
    gl.deleteSync(sync);
    this.pending = null;
    if (!fine) this.adapt(took);
    if (this.again) this.page.ask("scene");
  }

  adapt(tookMs) {
    this.drawnMs.push(tookMs);
    if (this.drawnMs.length > 200) this.drawnMs.shift();
    const recent = this.drawnMs.slice(-4);
    if (recent.length < 4 || this.drawnMs.length % 4) return;
    const usual = recent.sort((a, b) => a - b)[2];
    const coarsest = this.page.model.marching ? SCALES.length - 1 : PLANES_COARSEST;
    if (usual > SLOW_MS) this.coarse = Math.min(this.coarse + 1, coarsest);
    else if (usual < QUICK_MS) this.coarse = Math.max(this.coarse - 1, this.finest);
  }

  // While the graphics card is not done with the last picture nothing is drawn: the newest state comes next.
  draw() {
    this.again = Boolean(this.pending);
    if (!this.graphics || !this.page.model.volume || !sizeOf(this.canvas)[0] || this.again) return;
    const now = performance.now();
    // Not the finest at once: on a slow machine the screen would stand still for it.
    const coarse = Math.min(this.coarse, this.page.model.marching ? SCALES.length : PLANES_COARSEST);
    const level = this.fine ? Math.max(coarse - 2, 0) : coarse;
    this.render(level);
    const { gl } = this.graphics;
    this.pending = { sync: gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0), since: now, fine: this.fine };
    gl.flush();
    setTimeout(() => this.watchFence(), POLL_MS);
    clearTimeout(this.calm);
    if (!this.fine && level) this.calm = setTimeout(() => this.refine(), CALM_MS);
    this.fine = false;
  }

  // Nothing has changed for a while: the same once more, less coarse.
  refine() {
    this.fine = true;
    this.page.ask("scene");
  }

  // In full, at once, for who copies the canvas before the page goes on.
  drawNow() {
    if (this.graphics && this.page.model.volume && sizeOf(this.canvas)[0]) this.render(0);
  }

  render(level) {
    const { gl } = this.graphics;
    const { model } = this.page;
    const ratio = SCALES[level] * (level ? 1 : Math.min(window.devicePixelRatio || 1, 1.5));
    const [width, height] = sizeOf(this.canvas);
    const [wide, high] = [Math.max(Math.round(width * ratio), 1), Math.max(Math.round(height * ratio), 1)];
    const { canvas } = this;
    if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
    gl.viewport(0, 0, wide, high);
    gl.clearColor(...parts(INKS.space), 1);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    if (this.newFrame && model.update.columns) this.graphics.useFrame(model.update);
    this.newFrame = false;
    const { volume } = model;
    const fromWorld = this.camera.toClip(width / height);
    const toClip = chain(fromWorld, volume.indexToWorld);
    const size = volume.shape;
    const box = chain(translation(-0.5, -0.5, -0.5), scaling(...size));
    this.graphics.draw(this.graphics.edges, "box", { place: box, toClip, edge: parts(INKS.box) });
    const front = model.opened && model.placed ? this.frontOf(model.placed, width / height) : [0, 0, 0, 0];
    if (model.marching) this.drawRays(toClip, box, STEPS[level], front);
    else this.drawPlanes(toClip, front);
    this.placeLetters(toClip, width, height);
    this.marks.draw(fromWorld);
  }

  get range() {
    return [this.page.model.low / 255, this.page.model.high / 255];
  }

  // Positive where indices of the volume lie between the eye and the plane of the frame.
  frontOf({ pixelToIndex }, aspect) {
    const across = inverse(pixelToIndex).slice(8, 12);
    const eye = this.page.model.volume.toIndex(this.camera.eye(aspect));
    const length = Math.hypot(...across.slice(0, 3)) * (dot(across, eye) + across[3] < 0 ? -1 : 1);
    const front = across.map((value) => value / length);
    front[3] -= CLEAR;
    return front;
  }

  drawPlanes(toClip, front) {
    const { model } = this.page;
    const { volume, placed, update } = model;
    for (const plane of volume.planes) {
      this.graphics.draw(this.graphics.plane, "square", {
        place: planePlace(plane, model.cursor, volume), toClip, size: volume.shape, range: this.range,
        edge: parts(INKS[plane.key]), voxels: 0, front,
        hollow: placed && within(plane, placed, volume, model.cursor) ? 1 : 0,
      });
    }
    if (!placed) return;
    const place = chain(placed.pixelToIndex, translation(-0.5, -0.5, 0), scaling(update.columns, update.rows, 1));
    this.graphics.draw(this.graphics.frame, "square", { place, toClip, edge: parts(INKS[model.light]) });
  }

  drawRays(toClip, box, steps, front) {
    const { gl } = this.graphics;
    const { model } = this.page;
    const { placed, update } = model;
    const fromClip = inverse(chain(toClip, box));
    let toFrame = box;
    if (placed) {
      const pixel = chain(translation(-0.5, -0.5, 0), scaling(update.columns, update.rows, 1));
      toFrame = chain(inverse(chain(placed.pixelToIndex, pixel)), box);
    }
    gl.disable(gl.DEPTH_TEST);
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.graphics.draw(this.graphics.march, "screen", {
      fromClip, toFrame, range: this.range, edge: parts(INKS[model.light]), steps, placed: placed ? 1 : 0,
      voxels: 0, front: carried(front, box),
    });
    gl.disable(gl.BLEND);
    gl.enable(gl.DEPTH_TEST);
  }

  placeLetters(toClip, width, height) {
    this.faces.forEach(([place], k) => {
      const [x, y] = project(toClip, place);
      const [left, top] = [((x + 1) / 2) * width, ((1 - y) / 2) * height];
      this.letters.children[k].style.transform = `translate(${left.toFixed(1)}px,${top.toFixed(1)}px)`;
    });
  }

  listen() {
    const { page, camera } = this;
    const changed = (change) => {
      change();
      this.fine = false;
      page.ask("scene");
    };
    watch(this.canvas, {
      drag: ({ dx, dy, kind }) => changed(() => {
        if (kind === "window") page.dragWindow(dx, dy);
        else if (kind === "pan") camera.pan(dx / this.canvas.clientHeight, dy / this.canvas.clientHeight);
        else camera.orbit(dx, dy);
      }),
      pinch: ({ factor, dx, dy }) => changed(() => {
        camera.zoom(factor);
        camera.pan(dx / this.canvas.clientHeight, dy / this.canvas.clientHeight);
      }),
      wheel: ({ delta }) => changed(() => camera.zoom(Math.exp(-delta / 600))),
      double: () => page.maximise(this.panel),
    });
    this.canvas.addEventListener("keydown", (event) => {
      const turns = { ArrowLeft: [-12, 0], ArrowRight: [12, 0], ArrowUp: [0, -12], ArrowDown: [0, 12] };
      const zooms = { "+": 1.2, "=": 1.2, "-": 1 / 1.2 };
      if (event.key in turns) changed(() => camera.orbit(...turns[event.key]));
      else if (event.key in zooms) changed(() => camera.zoom(zooms[event.key]));
      else if (event.key === "Enter") page.maximise(this.panel);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }
}

// From the unit square to indices of the volume, for a plane through the cursor.
function planePlace(plane, cursor, volume) {
  const place = new Array(16).fill(0);
  const { across, down, normal } = plane;
  place[4 * across.axis] = volume.shape[across.axis];
  place[4 * down.axis + 1] = volume.shape[down.axis];
  place[4 * across.axis + 3] = place[4 * down.axis + 3] = -0.5;
  place[4 * normal + 3] = cursor[normal];
  place[15] = 1;
  return place;
}

// Whether a plane and the frame lie nearly in one another: both at once would only flicker.
function within(plane, { corners, centre }, volume, cursor) {
  const side = (to) => subtract(to, corners[0]).map((steps, axis) => steps * volume.spacing[axis]);
  const normal = normalised(cross(side(corners[1]), side(corners[3])));
  const apart = Math.abs(centre[plane.normal] - cursor[plane.normal]) * volume.spacing[plane.normal];
  return Math.abs(normal[plane.normal]) > PARALLEL && apart < NEAR_MM;
}

// The plane of `front` in the coordinates that a matrix takes to its own.
function carried(front, m) {
  return [0, 1, 2, 3].map((column) => front.reduce((sum, value, row) => sum + value * m[4 * row + column], 0));
}
