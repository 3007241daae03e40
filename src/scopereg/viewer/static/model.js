// What is shown: the volume, the newest update, and what the user has chosen.

import { greyTable } from "./colours.js";
import { apply, multiply } from "./matrix.js";
import { corners } from "./updates.js";

export class Model {
  state = null;
  volume = null;
  update = null;
  placed = null; // where the frame lies, in indices of the volume: {pixelToIndex, corners, centre}
  cursor = [0, 0, 0]; // where the three planes cross, in indices of the volume
  follow = true; // the planes go where the frame goes
  low = 0;
  high = 255;
  table = greyTable(0, 255);
  mix = "blend";
  weight = 0.5;
  tile = 4; // of the chessboard: which of the sizes of mixing.js
  evidence = true;
  evidenceOpacity = 0.65;
  marching = false; // the volume itself in 3D, not its planes
  opened = true; // in 3D nothing of the volume stands before the frame
  layout = "space"; // which view is large: 3D, or all alike
  overlaid = true; // what lies over the volume is shown
  grid = false; // of millimetres, over planes and frame
  deformed = true; // what the rigid pose leaves is drawn over the frame
  scale = true; // of depth, beside the frame
  path = null; // of finished results: where they lie and when they were
  pathShown = true; // in 3D
  light = "none"; // what the light shows: grey for a result that is stale

  useVolume(volume) {
    this.volume = volume;
    this.cursor = volume ? volume.centre : [0, 0, 0];
    this.place();
  }

  useUpdate(update) {
    this.update = update;
    this.place();
  }

  useWindow(low, high) {
    this.low = Math.min(Math.max(low, -255), 254);
    this.high = Math.min(Math.max(high, this.low + 1), 510);
    greyTable(this.low, this.high, this.table);
  }

  // Where the newest frame lies in this volume; nowhere if it belongs to another one or was not found.
  place() {
    const { update, volume } = this;
    const fits = update && volume && update.pixelToWorld && update.generation === volume.info.generation;
    this.placed = null;
    if (!fits) return;
    const pixelToIndex = multiply(volume.worldToIndex, update.pixelToWorld);
    const around = corners(update).map((corner) => apply(pixelToIndex, corner));
    const centre = [0, 1, 2].map((axis) => (around[0][axis] + around[2][axis]) / 2);
    this.placed = { pixelToIndex, corners: around, centre };
    if (this.follow) this.cursor = volume.clamped(centre);
  }
}
