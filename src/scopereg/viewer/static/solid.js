// What of a picture is picture. Black within it, such as blood, shall not be seen through in 3D as what lies around it
// is: there it becomes the darkest grey. Around lies what a straight line of black along an axis leads to from a face.

export function solid(values, [nx, ny, nz]) {
  const around = new Uint8Array(values.length);
  const counts = [nx, ny, nz], strides = [1, nx, nx * ny];
  for (const axis of [0, 1, 2]) {
    if (counts[axis] === 1) continue;
    const [a, b] = [0, 1, 2].filter((other) => other !== axis);
    for (let i = 0; i < counts[a]; i++) {
      for (let j = 0; j < counts[b]; j++) walk(values, around, i * strides[a] + j * strides[b], strides[axis], counts[axis]);
    }
  }
  const found = values.slice();
  for (let k = 0; k < found.length; k++) if (found[k] === 0 && !around[k]) found[k] = 1;
  return found;
}

// Along one line, from both of its ends to where the picture begins.
function walk(values, around, start, stride, count) {
  let at = start, left = count;
  for (; left && values[at] === 0; at += stride, left--) around[at] = 1;
  for (at = start + (count - 1) * stride; left && values[at] === 0; at -= stride, left--) around[at] = 1;
}
