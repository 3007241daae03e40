// What WebGL2 needs to be told: programs, textures that are filled again and again, squares and boxes.

import * as shaders from "./shaders.js";
import { solid } from "./solid.js";

const BOX = [0, 1, 1, 3, 3, 2, 2, 0, 4, 5, 5, 7, 7, 6, 6, 4, 0, 4, 1, 5, 2, 6, 3, 7]; // edges between corners

export class Graphics {
  // Throws where there is no WebGL2.
  constructor(canvas) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: false, powerPreference: "high-performance" });
    if (!gl) throw new Error("no WebGL2");
    this.gl = gl;
    this.software = /swiftshader|llvmpipe|softpipe|software/i.test(rendererOf(gl));
    this.plane = program(gl, shaders.SQUARE, shaders.PLANE);
    this.frame = program(gl, shaders.SQUARE, shaders.FRAME);
    this.edges = program(gl, shaders.EDGES, shaders.FLAT);
    this.march = program(gl, shaders.SCREEN, shaders.MARCH);
    this.square = corners(gl, [0, 0, 1, 0, 0, 1, 1, 1], 2);
    const cube = BOX.flatMap((k) => [k & 1, (k >> 1) & 1, k >> 2]);
    this.box = corners(gl, cube, 3);
    gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
    gl.enable(gl.DEPTH_TEST);
    this.frameSize = [0, 0];
  }

  useVolume({ shape: [x, y, z], voxels }) {
    const { gl } = this;
    if (this.voxels) gl.deleteTexture(this.voxels);
    this.voxels = texture(gl, gl.TEXTURE_3D);
    gl.texStorage3D(gl.TEXTURE_3D, 1, gl.R8, x, y, z);
    gl.texSubImage3D(gl.TEXTURE_3D, 0, 0, 0, 0, x, y, z, gl.RED, gl.UNSIGNED_BYTE, solid(voxels, [x, y, z]));
  }

  // New memory only where the size has changed.
  useFrame({ columns, rows, pixels }) {
    const { gl } = this;
    if (this.frameSize[0] !== columns || this.frameSize[1] !== rows) {
      if (this.picture) gl.deleteTexture(this.picture);
      this.picture = texture(gl, gl.TEXTURE_2D);
      gl.texStorage2D(gl.TEXTURE_2D, 1, gl.R8, columns, rows);
      this.frameSize = [columns, rows];
    }
    gl.bindTexture(gl.TEXTURE_2D, this.picture);
    const shown = solid(pixels, [columns, rows, 1]);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, 0, columns, rows, gl.RED, gl.UNSIGNED_BYTE, shown);
  }

  // Draw one of the shapes with a program and its numbers.
  draw(made, shape, values) {
    const { gl } = this;
    gl.useProgram(made.program);
    for (const [name, value] of Object.entries(values)) setUniform(gl, made.places[name], value);
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_3D, this.voxels);
    gl.activeTexture(gl.TEXTURE1);
    gl.bindTexture(gl.TEXTURE_2D, this.picture || null);
    if (made.places.frame) gl.uniform1i(made.places.frame.place, 1);
    gl.bindVertexArray(shape === "box" ? this.box : this.square);
    if (shape === "box") gl.drawArrays(gl.LINES, 0, BOX.length);
    else gl.drawArrays(gl.TRIANGLE_STRIP, 0, shape === "screen" ? 3 : 4);
  }
}

function program(gl, vertex, fragment) {
  const made = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(made, shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
  }
  for (const name of ["corner", "corner3"]) gl.bindAttribLocation(made, 0, name);
  gl.linkProgram(made);
  if (!gl.getProgramParameter(made, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(made));
  const places = {};
  for (let k = 0; k < gl.getProgramParameter(made, gl.ACTIVE_UNIFORMS); k++) {
    const { name, type } = gl.getActiveUniform(made, k);
    places[name] = { place: gl.getUniformLocation(made, name), type };
  }
  return { program: made, places };
}

function setUniform(gl, uniform, value) {
  if (!uniform) return; // the compiler left out what it does not need
  const { place, type } = uniform;
  if (type === gl.FLOAT_MAT4) gl.uniformMatrix4fv(place, true, value);
  else if (type === gl.FLOAT_VEC3) gl.uniform3fv(place, value);
  else if (type === gl.FLOAT_VEC4) gl.uniform4fv(place, value);
  else if (type === gl.FLOAT_VEC2) gl.uniform2fv(place, value);
  else gl.uniform1i(place, value);
}

function texture(gl, kind) {
  const made = gl.createTexture();
  gl.bindTexture(kind, made);
  for (const axis of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T, gl.TEXTURE_WRAP_R]) {
    gl.texParameteri(kind, axis, gl.CLAMP_TO_EDGE);
  }
  gl.texParameteri(kind, gl.TEXTURE_MIN_FILTER, gl.LINEAR);
  gl.texParameteri(kind, gl.TEXTURE_MAG_FILTER, gl.LINEAR);
  return made;
}

function corners(gl, numbers, width) {
  const array = gl.createVertexArray();
  gl.bindVertexArray(array);
  gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
  gl.bufferData(gl.ARRAY_BUFFER, new Float32Array(numbers), gl.STATIC_DRAW);
  gl.enableVertexAttribArray(0);
  gl.vertexAttribPointer(0, width, gl.FLOAT, false, 0, 0);
  return array;
}

// What draws, in words; browsers that hide it say something general.
function rendererOf(gl) {
  const more = gl.getExtension("WEBGL_debug_renderer_info");
  return String(gl.getParameter(more ? more.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
}
