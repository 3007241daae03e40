// Over the view in 3D, on a canvas of its own: what is drawn at the same size however near it is.

import { drawRuler } from "./marks.js";
import { project } from "./matrix.js";
import { lineContext } from "./picture.js";
import { inWords } from "./rulers.js";

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
    for (const { ruler, ends } of this.page.rulers.inSpace()) {
      const [from, to] = ends.map(place);
      if (from && to) drawRuler(context, from, to, inWords(ruler), [width, height]);
    }
  }
}
