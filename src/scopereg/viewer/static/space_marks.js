// Over the view in 3D, on a canvas of its own: what is drawn at the same size however near it is.

import { drawPoint } from "./marks.js";
import { project } from "./matrix.js";
import { lineContext } from "./picture.js";
import { drawMark } from "./rulers.js";

export class SpaceMarks {
  constructor(canvas, page) {
    [this.canvas, this.page] = [canvas, page];
  }

  // `toClip` takes LPS mm to the camera's screen.
  draw(toClip) {
    const { context, width, height } = lineContext(this.canvas);
    const place = (point) => {
      const [x, y, w] = project(toClip, point);
      return w > 0 ? { x: ((x + 1) / 2) * width, y: ((1 - y) / 2) * height } : null;
    };
    const { volume: { landmarks }, overlaid, path, pathShown, placed, update } = this.page.model;
    if (path && pathShown && placed) path.draw(context, place, update);
    for (const { name, mm } of landmarks && overlaid ? landmarks.visible : []) {
      const at = place(mm);
      if (at) drawPoint(context, at, name, [width, height]);
    }
    for (const { ruler, ends } of this.page.rulers.inSpace()) {
      const places = ends.map(place);
      if (places.every(Boolean)) drawMark(context, ruler, places, [width, height]);
    }
  }
}
