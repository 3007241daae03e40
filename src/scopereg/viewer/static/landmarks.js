// Landmarks over the volume, from a file: named points in LPS mm, drawn where a picture comes near them.

import { drawPoint } from "./marks.js";
import { apply, inverse } from "./matrix.js";

const REACH_MM = 5; // from a plane, up to which a landmark is seen on it, ever fainter
const NEAR_MM = 0.05;

export class Landmarks {
  constructor(overlay) {
    this.file = overlay.landmarks_file;
    this.entries = overlay.landmarks; // {name, mm}
    this.shown = this.entries.map(() => true);
  }

  get visible() {
    return this.entries.filter((_, number) => this.shown[number]);
  }

  // On a plane, on the volume there, or on the frame, where those are told how far they lie from its plane.
  draw(context, surface, { toWorld = null, unsure = false } = {}) {
    const fromWorld = toWorld && inverse(toWorld);
    for (const { name, mm } of this.visible) {
      const place = surface.placeOf(fromWorld ? apply(fromWorld, mm) : mm);
      const off = Math.abs(place.off);
      const here = off <= surface.thickness / 2;
      if (off > Math.max(REACH_MM, surface.thickness / 2) || !within(place, surface.size)) continue;
      const number = surface.moving && off > NEAR_MM ? ` ${off.toFixed(1)} mm` : "";
      const look = { faint: here ? 0 : off / REACH_MM, hollow: !here || unsure, number };
      drawPoint(context, place, name, surface.size, look);
    }
  }

  // From the plane of the frame, in mm; null where that is not known.
  distances(imageToWorld) {
    const toImage = imageToWorld && inverse(imageToWorld);
    return this.entries.map(({ mm }) => (toImage ? Math.abs(apply(toImage, mm)[2]) : null));
  }
}

function within({ x, y }, [width, height]) {
  return x >= 0 && y >= 0 && x <= width && y <= height;
}
