// A camera that goes around a middle, in LPS mm with the head up.

import { cross, dot, multiply, normalised } from "./matrix.js";

const OPENING = (30 * Math.PI) / 180;
const FARTHEST = 2; // times the distance at which the volume is in sight

export class Camera {
  constructor() {
    this.middle = [0, 0, 0];
    this.reach = 100;
    this.reset();
  }

  reset() {
    this.turn = -0.6; // about the axis of the body, from straight ahead
    this.lift = 0.62;
    this.away = 1; // times the distance at which all is in sight
    this.shift = [0, 0];
  }

  look(middle, radius) {
    this.middle = middle;
    this.reach = this.near = radius / Math.sin(OPENING / 2);
    this.reset();
  }

  // So far away that these places are in sight too, but no farther than where the middle is still well seen.
  embrace(places) {
    const apart = places.map((place) => Math.hypot(...place.map((value, k) => value - this.middle[k])));
    this.reach = Math.max(this.near, Math.min(Math.max(...apart) / Math.sin(OPENING / 2), FARTHEST * this.near));
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

  distance(aspect) {
    return this.reach * this.away * (aspect < 1 ? 1 / aspect : 1);
  }

  // In LPS mm.
  eye(aspect) {
    return this.middle.map((value, k) => value + this.back[k] * this.distance(aspect));
  }

  // From LPS mm to clip coordinates.
  toClip(aspect) {
    const { back } = this;
    const right = normalised(cross([0, 0, 1], back));
    const up = cross(back, right);
    const eye = this.eye(aspect);
    const row = (axis) => [...axis, -dot(axis, eye)];
    const view = [...row(right), ...row(up), ...row(back), 0, 0, 0, 1];
    return multiply(this.lens(aspect, this.distance(aspect)), view);
  }

  lens(aspect, distance) {
    const f = 1 / Math.tan(OPENING / 2);
    const near = Math.max(distance - 2 * this.reach, distance / 50), far = distance + 2 * this.reach;
    const [x, y] = [(2 * this.shift[0]) / aspect, -2 * this.shift[1]];
    const depth = (far + near) / (near - far), step = (2 * far * near) / (near - far);
    return [f / aspect, 0, -x, 0, 0, f, -y, 0, 0, 0, depth, step, 0, 0, -1, 0];
  }
}

