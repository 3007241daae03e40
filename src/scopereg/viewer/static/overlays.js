// What lies over the volume, in the panel of adjustments: a switch for each label and landmark, how strongly labels are
// drawn, and how far landmarks lie from the frame.

export class Overlays {
  constructor(page) {
    this.page = page;
    this.byId = (id) => document.getElementById(id);
    this.byId("overlaid").addEventListener("click", () => page.toggle("overlaid"));
    this.byId("label-opacity").addEventListener("input", (event) => {
      this.labels.useOpacity(event.target.value / 100);
      page.changed();
    });
  }

  get labels() {
    return this.page.model.volume && this.page.model.volume.labels;
  }

  get landmarks() {
    return this.page.model.volume && this.page.model.volume.landmarks;
  }

  // Another volume: other overlays, or none.
  useVolume() {
    const { labels, landmarks } = this;
    this.byId("part-overlays").hidden = !labels && !landmarks;
    this.byId("labels-part").hidden = !labels;
    this.byId("landmarks-part").hidden = !landmarks;
    if (labels) {
      this.byId("labels-file").textContent = labels.file;
      this.byId("label-opacity").value = Math.round(100 * labels.opacity);
      this.byId("label-list").replaceChildren(...labels.entries.map((entry, number) => this.labelRow(entry, number)));
    }
    this.distances = [];
    if (!landmarks) return;
    this.byId("landmarks-file").textContent = landmarks.file;
    const rows = landmarks.entries.map((entry, number) => this.landmarkRow(entry, number));
    this.byId("landmark-list").replaceChildren(...rows);
    this.useUpdate();
  }

  // How far the landmarks lie from the plane of the frame.
  useUpdate() {
    if (!this.landmarks) return;
    const { placed, update } = this.page.model;
    this.landmarks.distances(placed && update.image_to_volume).forEach((mm, number) => {
      const words = mm === null ? "" : `${mm.toFixed(1)} mm`;
      if (this.distances[number].textContent !== words) this.distances[number].textContent = words;
    });
  }

  labelRow({ name, voxels, colour }, number) {
    const patch = document.createElement("i");
    patch.style.background = colour;
    const words = voxels ? name : `${name} (not on this grid)`;
    return this.row(words, (shown) => this.labels.switch(number, shown), patch);
  }

  landmarkRow({ name }, number) {
    const distance = document.createElement("output");
    distance.title = "from the plane of the frame";
    this.distances[number] = distance;
    return this.row(name, (shown) => (this.landmarks.shown[number] = shown), null, distance);
  }

  // A switch with a name, between what stands before and after it.
  row(words, switched, before, after) {
    const row = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => {
      switched(box.checked);
      this.page.changed();
    });
    const name = document.createElement("span");
    name.textContent = words;
    row.append(...[box, before, name, after].filter(Boolean));
    return row;
  }
}
