// Draws what the page shows onto a canvas: grounds, pictures, drawings and words where the browser has them. No more
// than this page needs of it: buttons, sliders and what is not seen are left out.

const LEFT_OUT = "button, input, select, dialog, .mixer, .unseen";

export function paint(context, element) {
  const style = getComputedStyle(element);
  if (style.display === "none" || style.visibility === "hidden" || element.matches(LEFT_OUT)) return;
  if (style.display === "contents") {
    for (const child of element.children) paint(context, child);
    return;
  }
  const box = element.getBoundingClientRect();
  if (!box.width || !box.height) return;
  context.save();
  context.globalAlpha *= Number(style.opacity);
  const outline = outlineOf(box, style);
  fillGround(context, box, outline, style);
  if (style.overflow !== "visible") context.clip(outline);
  if (element.localName === "svg") drawShapes(context, element, box);
  else if (element.localName === "canvas") {
    if (element.width && element.height) context.drawImage(element, box.x, box.y, box.width, box.height);
  } else {
    for (const node of element.childNodes) {
      if (node.nodeType === Node.TEXT_NODE) writeText(context, node, style);
      else if (node.nodeType === Node.ELEMENT_NODE) paint(context, node);
    }
  }
  context.restore();
}

function outlineOf(box, style) {
  const outline = new Path2D();
  const corner = (name) => Math.min(parseFloat(style[`border${name}Radius`]) || 0, box.width / 2, box.height / 2);
  outline.roundRect(box.x, box.y, box.width, box.height, ["TopLeft", "TopRight", "BottomRight", "BottomLeft"].map(corner));
  return outline;
}

// With the borders of all sides, each a stripe along its own.
function fillGround(context, box, outline, style) {
  context.fillStyle = style.backgroundColor;
  context.fill(outline);
  const stripes = {
    Left: (wide) => [box.x, box.y, wide, box.height], Right: (wide) => [box.right - wide, box.y, wide, box.height],
    Top: (wide) => [box.x, box.y, box.width, wide], Bottom: (wide) => [box.x, box.bottom - wide, box.width, wide],
  };
  context.save();
  context.clip(outline);
  for (const [side, stripe] of Object.entries(stripes)) {
    const wide = style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`]);
    context.fillStyle = style[`border${side}Color`];
    if (wide) context.fillRect(...stripe(wide));
  }
  context.restore();
}

// Paths and circles of a drawing.
function drawShapes(context, svg, box) {
  const { width, height } = svg.viewBox.baseVal;
  context.save();
  context.translate(box.x, box.y);
  context.scale(box.width / width, box.height / height);
  for (const shape of svg.querySelectorAll("path, circle")) {
    if (!shape.getClientRects().length) continue;
    const path = shape.localName === "path" ? new Path2D(shape.getAttribute("d")) : new Path2D();
    if (shape.localName === "circle") path.arc(shape.cx.baseVal.value, shape.cy.baseVal.value, shape.r.baseVal.value, 0, 7);
    const style = getComputedStyle(shape);
    [context.lineCap, context.lineJoin, context.lineWidth] = ["round", "round", parseFloat(style.strokeWidth)];
    for (const [kind, colour] of [["fill", style.fill], ["stroke", style.stroke]]) {
      if (colour === "none") continue;
      context[`${kind}Style`] = colour;
      context[kind](path);
    }
  }
  context.restore();
}

// Line by line, as the browser has broken them.
function writeText(context, node, style) {
  if (!node.data.trim()) return;
  context.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  context.fillStyle = style.color;
  [context.textAlign, context.textBaseline] = ["left", "alphabetic"];
  for (const { text, box } of linesOf(node)) {
    const { fontBoundingBoxAscent: above, fontBoundingBoxDescent: below } = context.measureText(text);
    context.fillText(text, box.x, box.y + (box.height - above - below) / 2 + above);
  }
}

function linesOf(node) {
  const lines = [];
  const range = document.createRange();
  for (let k = 0; k < node.data.length; k++) {
    range.setStart(node, k);
    range.setEnd(node, k + 1);
    const box = range.getBoundingClientRect();
    if (!box.width) continue;
    const last = lines[lines.length - 1];
    if (last && Math.abs(last.box.y - box.y) < box.height / 2) last.text += node.data[k];
    else lines.push({ text: node.data[k], box });
  }
  return lines;
}
