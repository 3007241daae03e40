// Keys of the whole page; panels have their own for scrolling and zooming.

export function watchKeys(page, controls) {
  const actions = actionsOf(page, controls);
  // A button that was pressed with the mouse lets go of the keys: the space bar would press it again.
  document.addEventListener("click", (event) => {
    const button = event.detail > 0 && event.target.closest("button");
    if (button) button.blur();
  }, true);
  document.addEventListener("keydown", (event) => {
    if (belongsTo(event.target, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]")) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}

function actionsOf(page, controls) {
  const open = (id) => document.getElementById(id).showModal();
  return {
    " ": () => page.togglePause(),
    ".": () => page.step(1),
    ",": () => page.step(-1),
    ArrowRight: () => page.step(1),
    ArrowLeft: () => page.step(-1),
    r: () => controls.toggleRecording(),
    o: () => controls.openVolumes(),
    f: () => page.toggle("follow"),
    e: () => page.toggle("evidence"),
    v: () => page.toggle("marching"),
    b: () => page.useMix("blend"),
    w: () => page.useMix("wipe"),
    c: () => page.useMix("checker"),
    "[": () => page.shiftMix(-1),
    "]": () => page.shiftMix(1),
    1: () => page.maximise(page.panels[0]),
    2: () => page.maximise(page.panels[1]),
    3: () => page.maximise(page.panels[2]),
    4: () => page.maximise(page.panels[3]),
    0: () => page.reset(),
    t: () => page.toggle("pathShown"),
    x: () => page.toggle("opened"),
    g: () => page.toggle("overlaid"),
    l: () => page.panel.toggle(),
    n: () => page.notes.focus(),
    s: () => page.snapshot(),
    m: () => page.rulers.toggle("ruler"),
    p: () => page.rulers.toggle("point"),
    d: () => page.toggle("scale"),
    h: () => page.toggle("grid"),
    "?": () => open("help-dialog"),
    Escape: () => (page.rulers.tool ? page.rulers.take("") : page.maximise(null)),
  };
}

// Whether a key means something to what has the focus.
function belongsTo(element, key) {
  if (element.matches("input[type=range]")) return /^(Arrow|Page|Home|End)/.test(key);
  if (element.matches("input[type=checkbox]")) return key === " ";
  if (element.matches("input, select, textarea")) return true;
  return element.matches("button, summary") && (key === " " || key === "Enter");
}
