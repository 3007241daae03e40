// The volume as the page holds it: its voxels, where they lie in LPS mm, and its planes in anatomical terms.

import { apply, inverse, normalised } from "./matrix.js";

// Towards these letters the axes of LPS run, and from these.
const TOWARDS = ["L", "P", "S"];
const FROM = ["R", "A", "I"];
const NEAR = 0.8; // cosine from which an axis of the volume has the name of one of the patient
const ORDERS = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
// Normal, across and down by patient axes (0 = L, 1 = P, 2 = S): as radiologists look at them, from the feet or
// from the front, and with the front to the left.
const PLANES = [
  { key: "axial", name: "Axial", other: "Plane z", normal: 2, across: [0, 1], down: [1, 1] },
  { key: "coronal", name: "Coronal", other: "Plane y", normal: 1, across: [0, 1], down: [2, -1] },
  { key: "sagittal", name: "Sagittal", other: "Plane x", normal: 0, across: [1, 1], down: [2, -1] },
];

export class Volume {
  constructor(info, voxels) {
    const [nx, ny, nz] = info.shape;
    if (voxels.length !== nx * ny * nz) {
      throw new Error(`the volume has ${voxels.length} voxels, its shape says ${nx * ny * nz}`);
    }
    this.info = info;
    this.voxels = voxels;
    this.shape = info.shape;
    this.strides = [1, nx, nx * ny];
    this.indexToWorld = info.index_to_world;
    this.worldToIndex = inverse(this.indexToWorld);
    this.steps = [0, 1, 2].map((axis) => [0, 4, 8].map((row) => this.indexToWorld[row + axis]));
    this.spacing = this.steps.map((step) => Math.hypot(...step));
    this.planes = anatomicalPlanes(this);
    this.labels = null; // that lie over it
    this.landmarks = null;
  }

  get centre() {
    return this.shape.map((n) => (n - 1) / 2);
  }

  toWorld(index) {
    return apply(this.indexToWorld, index);
  }

  toIndex(world) {
    return apply(this.worldToIndex, world);
  }

  // Within the volume, on each axis.
  clamped(index) {
    return index.map((value, axis) => Math.min(Math.max(value, 0), this.shape[axis] - 1));
  }
}

// Which axis of the volume serves as which of the patient, with its sign, and whether they have the names of these:
// where the volume lies in a patient and they agree well.
function anatomicalAxes(volume) {
  const units = volume.steps.map(normalised);
  const match = (order) => Math.min(...order.map((axis, patient) => Math.abs(units[axis][patient])));
  const total = (order) => order.reduce((sum, axis, patient) => sum + Math.abs(units[axis][patient]), 0);
  const best = ORDERS.reduce((a, b) => (total(b) > total(a) + 1e-9 ? b : a));
  const axes = best.map((axis, patient) => ({ axis, sign: units[axis][patient] < 0 ? -1 : 1 }));
  return { axes, named: volume.info.anatomical === true && match(best) >= NEAR };
}

function anatomicalPlanes(volume) {
  const { axes, named } = anatomicalAxes(volume);
  const along = ([patient, sign]) => ({ axis: axes[patient].axis, sign: axes[patient].sign * sign });
  return PLANES.map((plane) => {
    const [across, down] = [along(plane.across), along(plane.down)];
    return {
      key: plane.key,
      name: named ? plane.name : plane.other,
      normal: axes[plane.normal].axis,
      patientAxis: plane.normal,
      across,
      down,
      named,
      columns: volume.shape[across.axis],
      rows: volume.shape[down.axis],
      letters: named ? letters(plane) : null,
    };
  });
}

function letters(plane) {
  const ends = ([patient, sign]) => (sign > 0 ? [FROM[patient], TOWARDS[patient]] : [TOWARDS[patient], FROM[patient]]);
  const [left, right] = ends(plane.across);
  const [top, bottom] = ends(plane.down);
  return { left, right, top, bottom };
}

// Letters at the faces of the box, for the view in 3D: [place in indices, letter].
export function faceLetters(volume) {
  const { axes, named } = anatomicalAxes(volume);
  if (!named) return [];
  return axes.flatMap(({ axis, sign }, patient) =>
    [1, -1].map((end) => {
      const place = volume.centre;
      const reach = volume.shape[axis] / 2 + 8 / volume.spacing[axis];
      place[axis] += reach * end * sign;
      return [place, end > 0 ? TOWARDS[patient] : FROM[patient]];
    }),
  );
}

// A place on the patient's axis in words, such as "S 12.3 mm".
export function placeInWords(volume, plane, index) {
  if (!plane.named) return `${"xyz"[plane.normal]} = ${Math.round(index[plane.normal])}`;
  const value = volume.toWorld(index)[plane.patientAxis];
  return `${(value < 0 ? FROM : TOWARDS)[plane.patientAxis]} ${Math.abs(value).toFixed(1)} mm`;
}
