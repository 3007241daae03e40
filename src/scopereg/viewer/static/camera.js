// A camera that goes around a middle, in LPS mm with the head up.

import { cross, dot, multiply, normalised, subtract } from "./matrix.js";

const OPENING = (30 * Math.PI) / 180;
const FOCAL = 1 / Math.tan(OPENING / 2);
const FILLED = 0.93; // of the panel, by what is to be in sight
const FARTHEST = 2; // times the distance from which the volume is in sight, for what lies around it

export class Camera {
  constructor() {
    this.middle = [0, 0, 0];
    this.reach = 100; // mm, before and behind the middle, that nothing is cut off in
    this.inSight = [];
    this.around = [];
    this.reset();
  }

  reset() {
    this.turn = -0.6; // about the axis of the body, from straight ahead
    this.lift = 0.62;
    this.away = 1; // times the distance at which all is in sight
    this.shift = [0, 0];
  }

  // At a middle, from where all of these places are in sight at first.
  look(middle, places) {
    this.middle = middle;
    this.reset();
    this.reach = Math.max(...places.map((place) => Math.hypot(...subtract(place, middle)))) / Math.sin(OPENING / 2);
    this.inSight = this.seen(places);
    this.around = [];
  }

  // These too, but no farther away than where the rest is still well seen.
  embrace(places) {
    const { turn, lift, away, shift } = this;
    this.reset();
    this.around = this.seen(places);
    Object.assign(this, { turn, lift, away, shift });
  }

  // Places from here: across, up and towards the eye, in mm from the middle.
  seen(places) {
    const [right, up, back] = this.axes;
    return places.map((place) => subtract(place, this.middle)).map((p) => [dot(right, p), dot(up, p), dot(back, p)]);
  }

  orbit(dx, dy) {
    this.turn -= dx * 0.009;
    this.lift = Math.min(Math.max(this.lift + dy * 0.009, -1.55), 1.55);
  }

  // Along the screen, in its heights.
  pan(dx, dy) {
    this.shift = [this.shift[0] + dx, this.shift[1] + dy];
  }

  zoom(factor) {
    this.away = Math.min(Math.max(this.away / factor, 0.15), 4);
  }

  // From the middle to the eye. Looks from the front: anterior is -y, and x runs to the patient's left.
  get back() {
    const { lift, turn } = this;
    return [Math.sin(turn) * Math.cos(lift), -Math.cos(turn) * Math.cos(lift), Math.sin(lift)];
  }

  // To the right, up and towards the eye.
  get axes() {
    const { back } = this;
    const right = normalised(cross([0, 0, 1], back));
    return [right, cross(back, right), back];
  }

  distance(aspect) {
    const needed = (places) => Math.max(0, ...places.map(([across, up, near]) =>
      (FOCAL / FILLED) * Math.max(Math.abs(across) / aspect, Math.abs(up)) + near));
    const least = needed(this.inSight);
    return this.away * (Math.max(least, Math.min(needed(this.around), FARTHEST * least)) || this.reach);
  }

  // In LPS mm.
  eye(aspect) {
    return this.middle.map((value, k) => value + this.back[k] * this.distance(aspect));
  }

  // From LPS mm to clip coordinates.
  toClip(aspect) {
    const [right, up, back] = this.axes;
    const eye = this.eye(aspect);
    const row = (axis) => [...axis, -dot(axis, eye)];
    const view = [...row(right), ...row(up), ...row(back), 0, 0, 0, 1];
    return multiply(this.lens(aspect, this.distance(aspect)), view);
  }

  lens(aspect, distance) {
    const near = Math.max(distance - 2 * this.reach, distance / 50), far = distance + 2 * this.reach;
    const [x, y] = [(2 * this.shift[0]) / aspect, -2 * this.shift[1]];
    const depth = (far + near) / (near - far), step = (2 * far * near) / (near - far);
    return [FOCAL / aspect, 0, -x, 0, 0, FOCAL, -y, 0, 0, 0, depth, step, 0, 0, -1, 0];
  }
}

