// Programs for the graphics card (GLSL ES 3.00).

const HEAD = "#version 300 es\nprecision highp float;\nprecision highp sampler3D;\n";

// A square from (0, 0) to (1, 1), placed by a matrix: in indices of the volume for planes, in pixels for the frame.
export const SQUARE = `${HEAD}
in vec2 corner;
uniform mat4 place, toClip;
out vec3 where;
out vec2 at;
void main() {
  at = corner;
  vec4 placed = place * vec4(corner, 0.0, 1.0);
  where = placed.xyz;
  gl_Position = toClip * placed;
}`;

// A plane of the volume, dimmed so that the frame stands out, with an edge in its own colour.
export const PLANE = `${HEAD}
in vec3 where;
in vec2 at;
uniform sampler3D voxels;
uniform vec3 size, edge;
uniform vec2 range;
uniform vec4 front; // what is before the frame, where the volume is opened at it
uniform bool hollow;
out vec4 colour;
void main() {
  float value = texture(voxels, (where + 0.5) / size).r;
  float grey = clamp((value - range.x) / (range.y - range.x), 0.0, 1.0) * 0.72;
  vec2 border = min(at, 1.0 - at) / fwidth(at);
  float line = 1.0 - smoothstep(1.0, 2.0, min(border.x, border.y));
  if (dot(front, vec4(where, 1.0)) > 0.0 && line < 0.5) discard;
  if ((hollow || value < 0.003) && line < 0.5) discard; // also what is outside of the fan
  colour = vec4(mix(vec3(grey), edge * 0.85, line), 1.0);
}`;

// The frame, with an edge in the colour of its light.
export const FRAME = `${HEAD}
in vec2 at;
uniform sampler2D frame;
uniform vec3 edge;
out vec4 colour;
void main() {
  float grey = texture(frame, at).r;
  vec2 border = min(at, 1.0 - at) / fwidth(at);
  float line = 1.0 - smoothstep(2.0, 3.2, min(border.x, border.y));
  if (grey < 0.003 && line < 0.5) discard;
  colour = vec4(mix(vec3(grey), edge, line), 1.0);
}`;

export const EDGES = `${HEAD}
in vec3 corner3;
uniform mat4 place, toClip;
void main() { gl_Position = toClip * place * vec4(corner3, 1.0); }`;

export const FLAT = `${HEAD}
uniform vec3 edge;
out vec4 colour;
void main() { colour = vec4(edge, 1.0); }`;

// One triangle over all of the screen.
export const SCREEN = `${HEAD}
in vec2 corner;
out vec2 clip;
void main() {
  clip = corner * 4.0 - 1.0;
  gl_Position = vec4(clip, 0.0, 1.0);
}`;

// Rays through the volume from front to back; the frame is met on the way. Texture coordinates run from 0 to 1.
export const MARCH = `${HEAD}
in vec2 clip;
uniform sampler3D voxels;
uniform sampler2D frame;
uniform mat4 fromClip, toFrame;
uniform vec2 range;
uniform vec3 edge;
uniform int steps;
uniform bool placed;
uniform vec4 front;
out vec4 colour;

vec4 frameColour(vec2 at) {
  vec2 border = min(at, 1.0 - at) / (fwidth(at) + 1e-6);
  float line = 1.0 - smoothstep(1.5, 2.6, min(border.x, border.y));
  return vec4(mix(vec3(texture(frame, at).r), edge, line), 1.0);
}

void main() {
  vec4 near = fromClip * vec4(clip, -1.0, 1.0), far = fromClip * vec4(clip, 1.0, 1.0);
  vec3 from = near.xyz / near.w, along = far.xyz / far.w - from;
  vec3 a = -from / along, b = (1.0 - from) / along;
  vec3 low = min(a, b), high = max(a, b);
  float start = max(max(low.x, low.y), max(low.z, 0.0)), stop = min(min(high.x, high.y), min(high.z, 1.0));
  vec4 origin = toFrame * vec4(from, 1.0), ahead = toFrame * vec4(along, 0.0);
  float meets = -origin.z / ahead.z;
  vec2 at = origin.xy + meets * ahead.xy;
  vec4 shown = frameColour(clamp(at, 0.0, 1.0));
  bool waits = placed && meets > 0.0 && meets < 1.0 && all(equal(at, clamp(at, 0.0, 1.0)));
  float stride = 1.0 / (float(steps) * length(along));
  float grain = fract(sin(dot(gl_FragCoord.xy, vec2(12.9898, 78.233))) * 43758.5453);
  float before = dot(front, vec4(from, 1.0)), change = dot(front.xyz, along);
  if (change < 0.0) start = max(start, -before / change);
  else if (change > 0.0) stop = min(stop, -before / change);
  vec4 sum = vec4(0.0);
  if (start < stop) {
    float t = start + stride * grain;
    for (int k = 0; k < 400; k++) {
      if (t >= stop || sum.a > 0.97) break;
      if (waits && t >= meets) break;
      float value = texture(voxels, from + t * along).r;
      float bright = clamp((value - range.x) / (range.y - range.x), 0.0, 1.0);
      float alpha = 1.0 - pow(1.0 - 0.9 * smoothstep(0.22, 0.85, bright), 40.0 / float(steps));
      float depth = 1.0 - 0.45 * (t - start) * length(along);
      vec3 tint = mix(vec3(0.42, 0.24, 0.2), vec3(1.0, 0.93, 0.84), bright) * clamp(depth, 0.35, 1.0);
      sum += (1.0 - sum.a) * vec4(tint * alpha, alpha);
      t += stride;
    }
  }
  if (waits) sum += (1.0 - sum.a) * shown;
  colour = vec4(sum.rgb, sum.a);
}`;
