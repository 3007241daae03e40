// A canvas that shows bytes through a table of colours. Its buffers are kept from one picture to the next.

export class Picture {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.columns = 0;
    this.rows = 0;
  }

  resize(columns, rows) {
    if (columns === this.columns && rows === this.rows) return;
    [this.columns, this.rows] = [columns, rows];
    [this.canvas.width, this.canvas.height] = [columns, rows];
    this.image = this.context.createImageData(columns, rows);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  paint(values, table) {
    const { pixels } = this;
    for (let k = 0; k < pixels.length; k++) pixels[k] = table[values[k]];
    this.context.putImageData(this.image, 0, 0);
  }

  clear() {
    if (this.columns) this.context.clearRect(0, 0, this.columns, this.rows);
  }
}

// Sizes in CSS pixels, kept: to ask the browser for them while drawing would make it lay out the page again.
const SIZES = new WeakMap();
const OBSERVER = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) SIZES.set(target, [contentRect.width, contentRect.height]);
});

export function sizeOf(element) {
  const known = SIZES.get(element);
  if (known) return known;
  SIZES.set(element, [element.clientWidth, element.clientHeight]);
  OBSERVER.observe(element);
  return SIZES.get(element);
}

// A canvas for lines, as fine as the screen; gives its context, cleared, in units of CSS pixels.
export function lineContext(canvas) {
  const ratio = Math.min(window.devicePixelRatio || 1, 2);
  const [width, height] = sizeOf(canvas);
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}
