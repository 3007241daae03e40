// 4x4 matrices, row by row as the server sends them; points are columns.

export function multiply(a, b) {
  const product = new Array(16);
  for (let row = 0; row < 4; row++) {
    for (let column = 0; column < 4; column++) {
      let sum = 0;
      for (let k = 0; k < 4; k++) sum += a[4 * row + k] * b[4 * k + column];
      product[4 * row + column] = sum;
    }
  }
  return product;
}

export function chain(...matrices) {
  return matrices.reduce(multiply);
}

export function apply(m, [x, y, z]) {
  return [
    m[0] * x + m[1] * y + m[2] * z + m[3],
    m[4] * x + m[5] * y + m[6] * z + m[7],
    m[8] * x + m[9] * y + m[10] * z + m[11],
  ];
}

// A point on the screen of a camera: x and y from -1 to 1, and w, which is negative behind the camera.
export function project(m, point) {
  const [x, y] = apply(m, point);
  const w = m[12] * point[0] + m[13] * point[1] + m[14] * point[2] + m[15];
  return [x / w, y / w, w];
}

export function scaling(x, y, z) {
  return [x, 0, 0, 0, 0, y, 0, 0, 0, 0, z, 0, 0, 0, 0, 1];
}

export function translation(x, y, z) {
  return [1, 0, 0, x, 0, 1, 0, y, 0, 0, 1, z, 0, 0, 0, 1];
}

// Gauss and Jordan; null where there is no inverse.
export function inverse(m) {
  const rows = [0, 1, 2, 3].map((r) => [...m.slice(4 * r, 4 * r + 4), ...[0, 1, 2, 3].map((c) => (r === c ? 1 : 0))]);
  for (let column = 0; column < 4; column++) {
    let best = column;
    for (let row = column + 1; row < 4; row++) {
      if (Math.abs(rows[row][column]) > Math.abs(rows[best][column])) best = row;
    }
    const pivot = rows[best][column];
    if (!(Math.abs(pivot) > 1e-12)) return null;
    [rows[column], rows[best]] = [rows[best], rows[column]];
    rows[column] = rows[column].map((value) => value / pivot);
    for (let row = 0; row < 4; row++) {
      if (row === column) continue;
      const factor = rows[row][column];
      rows[row] = rows[row].map((value, k) => value - factor * rows[column][k]);
    }
  }
  return rows.flatMap((row) => row.slice(4));
}

export function subtract(a, b) {
  return [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
}

export function cross(a, b) {
  return [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
}

export function dot(a, b) {
  return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

export function normalised(a) {
  const length = Math.hypot(...a) || 1;
  return [a[0] / length, a[1] / length, a[2] / length];
}
