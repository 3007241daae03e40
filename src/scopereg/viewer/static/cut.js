// Cuts through the volume. Plain loops over numbers: a cut of 256 x 256 takes about two milliseconds.

// The volume on a grid of pixels, trilinear; `pixelToIndex` takes (column, row, 0) to indices of voxels. What lies
// more than half a voxel beyond the outermost centres is 0, as in ITK.
export function cutOblique(volume, pixelToIndex, columns, rows, out) {
  const m = pixelToIndex;
  const [nx, ny, nz] = volume.shape;
  const [lastX, lastY, lastZ] = [nx - 1, ny - 1, nz - 1];
  const { voxels } = volume;
  const [strideY, strideZ] = [nx, nx * ny];
  let k = 0;
  for (let row = 0; row < rows; row++) {
    let x = m[1] * row + m[3];
    let y = m[5] * row + m[7];
    let z = m[9] * row + m[11];
    for (let column = 0; column < columns; column++, k++, x += m[0], y += m[4], z += m[8]) {
      if (!(x >= -0.5 && y >= -0.5 && z >= -0.5 && x <= lastX + 0.5 && y <= lastY + 0.5 && z <= lastZ + 0.5)) {
        out[k] = 0;
        continue;
      }
      const cx = x < 0 ? 0 : x > lastX ? lastX : x;
      const cy = y < 0 ? 0 : y > lastY ? lastY : y;
      const cz = z < 0 ? 0 : z > lastZ ? lastZ : z;
      const ix = cx | 0, iy = cy | 0, iz = cz | 0;
      const fx = cx - ix, fy = cy - iy, fz = cz - iz;
      const at = ix + iy * strideY + iz * strideZ;
      const dx = ix < lastX ? 1 : 0;
      const up = at + (iy < lastY ? strideY : 0);
      const dz = iz < lastZ ? strideZ : 0;
      const a = voxels[at] + fx * (voxels[at + dx] - voxels[at]);
      const b = voxels[up] + fx * (voxels[up + dx] - voxels[up]);
      const c = voxels[at + dz] + fx * (voxels[at + dz + dx] - voxels[at + dz]);
      const d = voxels[up + dz] + fx * (voxels[up + dz + dx] - voxels[up + dz]);
      const near = a + fy * (b - a);
      const far = c + fy * (d - c);
      out[k] = near + fz * (far - near) + 0.5;
    }
  }
  return out;
}

// The same of numbers that stand for something, such as labels: the nearest voxel, 0 beyond.
export function cutNearest({ voxels, shape, strides }, m, columns, rows, out) {
  let k = 0;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++, k++) {
      const x = Math.round(m[0] * column + m[1] * row + m[3]);
      const y = Math.round(m[4] * column + m[5] * row + m[7]);
      const z = Math.round(m[8] * column + m[9] * row + m[11]);
      const inside = x >= 0 && y >= 0 && z >= 0 && x < shape[0] && y < shape[1] && z < shape[2];
      out[k] = inside ? voxels[x + y * strides[1] + z * strides[2]] : 0;
    }
  }
  return out;
}

// One of the three planes as it lies on the screen, at the voxel nearest to `index`.
export function cutPlane(volume, plane, index, out) {
  const { voxels, strides, shape } = volume;
  const { across, down, columns, rows, normal } = plane;
  const layer = Math.min(Math.max(Math.round(index), 0), shape[normal] - 1);
  const stepX = strides[across.axis] * across.sign;
  const stepY = strides[down.axis] * down.sign;
  let start = layer * strides[normal];
  if (across.sign < 0) start += (columns - 1) * strides[across.axis];
  if (down.sign < 0) start += (rows - 1) * strides[down.axis];
  let k = 0;
  for (let row = 0; row < rows; row++) {
    let at = start + row * stepY;
    for (let column = 0; column < columns; column++, k++, at += stepX) out[k] = voxels[at];
  }
  return out;
}

// Indices of voxels as a place on the plane: columns, rows, and layers from the one that is shown.
export function onPlane(plane, index) {
  const u = plane.across.sign > 0 ? index[plane.across.axis] : plane.columns - 1 - index[plane.across.axis];
  const v = plane.down.sign > 0 ? index[plane.down.axis] : plane.rows - 1 - index[plane.down.axis];
  return [u, v, index[plane.normal]];
}

// And back, keeping the layer of `index`.
export function fromPlane(plane, u, v, index) {
  const moved = [...index];
  moved[plane.across.axis] = plane.across.sign > 0 ? u : plane.columns - 1 - u;
  moved[plane.down.axis] = plane.down.sign > 0 ? v : plane.rows - 1 - v;
  return moved;
}

// Where the outline of the frame (four corners in turn, on a plane) crosses the layer that is shown; null if nowhere.
export function crossing(corners, layer) {
  const points = [];
  for (let k = 0; k < 4; k++) {
    const a = corners[k], b = corners[(k + 1) % 4];
    const before = a[2] - layer, after = b[2] - layer;
    if (before === after || before * after > 0 || before === 0) continue;
    const share = before / (before - after);
    points.push([a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])]);
  }
  return points.length === 2 ? points : null;
}
