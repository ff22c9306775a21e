// The waterfall: rows in a texture that is used as a ring, or on a canvas where there is no WebGL 2.
//
// The texture has the rows as they come, a byte for each channel; a second one has the scale of each row. The shader makes
// levels of both, so the range of colours can change for old rows too. A pixel shows the strongest of its channels.

/** Rows that are kept and shown. */
export const ROWS = 320;

/** Colours from weak to strong. */
const STOPS = [[4, 5, 20], [46, 17, 94], [121, 28, 109], [193, 58, 80], [242, 125, 36], [250, 205, 74], [253, 255, 210]];

export const colours = Uint8Array.from({ length: 256 * 4 }, (_, place) => {
  const at = (Math.floor(place / 4) / 255) * (STOPS.length - 1);
  const [low, part] = [Math.min(Math.floor(at), STOPS.length - 2), place % 4];
  return part === 3 ? 255 : STOPS[low][part] + (at - low) * (STOPS[low + 1][part] - STOPS[low][part]);
});

const VERTEX = `#version 300 es
void main() {
  gl_Position = vec4(vec2(gl_VertexID % 2, gl_VertexID / 2) * 4.0 - 1.0, 0.0, 1.0);
}`;

const FRAGMENT = `#version 300 es
precision highp float;
uniform highp sampler2D values, scales, palette;
uniform vec2 size, range;
uniform int newest, filled;
out vec4 colour;
void main() {
  ivec2 texture_size = textureSize(values, 0);
  int age = int((1.0 - gl_FragCoord.y / size.y) * float(${ROWS}));
  if (age >= filled) { colour = vec4(${STOPS[0].map((it) => (it / 255).toFixed(3)).join(", ")}, 1.0); return; }
  int row = (newest - age + ${ROWS}) % ${ROWS};
  float channels = float(texture_size.x);
  int first = int((gl_FragCoord.x - 0.5) / size.x * channels);
  int last = max(first, int(ceil((gl_FragCoord.x + 0.5) / size.x * channels)) - 1);
  float value = 0.0;
  for (int at = first; at <= last && at < texture_size.x; at++) value = max(value, texelFetch(values, ivec2(at, row), 0).r);
  vec2 scale = texelFetch(scales, ivec2(0, row), 0).rg;
  float level = (scale.r + scale.g * value * 255.0 - range.x) / (range.y - range.x);
  colour = texelFetch(palette, ivec2(int(clamp(level, 0.0, 1.0) * 255.0), 0), 0);
}`;

/** A waterfall on a canvas. `add` takes a row, `draw` shows all with the levels of the darkest and the brightest colour. */
export function waterfall(canvas) {
  return withTexture(canvas) ?? withCanvas(canvas);
}

function withTexture(canvas) {
  const gl = canvas.getContext("webgl2", { antialias: false, alpha: false, preserveDrawingBuffer: true });
  if (!gl) return null;
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
  gl.useProgram(program);
  gl.pixelStorei(gl.UNPACK_ALIGNMENT, 1);
  const place = (name) => gl.getUniformLocation(program, name);
  ["values", "scales", "palette"].forEach((name, unit) => gl.uniform1i(place(name), unit));
  const uniforms = Object.fromEntries(["size", "range", "newest", "filled"].map((name) => [name, place(name)]));
  const textures = [];
  const texture = (unit, internal, width, height, format, type, data) => {
    gl.activeTexture(gl.TEXTURE0 + unit);
    gl.deleteTexture(textures[unit] ?? null);
    textures[unit] = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, textures[unit]);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.NEAREST);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, gl.NEAREST);
    gl.texImage2D(gl.TEXTURE_2D, 0, internal, width, height, 0, format, type, data);
  };
  texture(2, gl.RGBA8, 256, 1, gl.RGBA, gl.UNSIGNED_BYTE, colours);
  let [channels, newest, filled] = [0, -1, 0];
  const add = (row) => {
    if (row.channels !== channels) {
      channels = row.channels;
      [newest, filled] = [-1, 0];
      texture(0, gl.R8, channels, ROWS, gl.RED, gl.UNSIGNED_BYTE, null);
      texture(1, gl.RG32F, 1, ROWS, gl.RG, gl.FLOAT, null);
    }
    newest = (newest + 1) % ROWS;
    filled = Math.min(filled + 1, ROWS);
    gl.activeTexture(gl.TEXTURE0);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, newest, channels, 1, gl.RED, gl.UNSIGNED_BYTE, row.values);
    gl.activeTexture(gl.TEXTURE1);
    gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, newest, 1, 1, gl.RG, gl.FLOAT, new Float32Array([row.floor, row.step]));
  };
  const draw = (low, high) => {
    gl.viewport(0, 0, canvas.width, canvas.height);
    gl.uniform2f(uniforms.size, canvas.width, canvas.height);
    gl.uniform2f(uniforms.range, low, high);
    gl.uniform1i(uniforms.newest, newest);
    gl.uniform1i(uniforms.filled, filled);
    if (channels) gl.drawArrays(gl.TRIANGLES, 0, 3);
  };
  const clear = () => {
    channels = 0;
  };
  const close = () => gl.getExtension("WEBGL_lose_context")?.loseContext();
  return { add, draw, clear, close, kind: "webgl2" };
}

function withCanvas(canvas) {
  // A canvas that failed to give one context may refuse another.
  const context = canvas.getContext("2d", { alpha: false });
  const ring = [];
  let rows = [];
  const add = (row) => {
    if (rows.length && rows[0].channels !== row.channels) clear();
    ring.push(row);
    rows.unshift(row);
    rows.length = Math.min(rows.length, ROWS);
  };
  const clear = () => {
    rows = [];
    ring.length = 0;
  };
  let shown = "";
  const draw = (low, high) => {
    const state = `${low} ${high} ${canvas.width} ${canvas.height}`;
    const whole = state !== shown || rows.length <= ring.length;
    shown = state;
    const each = canvas.height / ROWS;
    const fresh = whole ? rows.length : ring.length;
    ring.length = 0;
    if (whole) {
      context.fillStyle = `rgb(${STOPS[0].join(" ")})`;
      context.fillRect(0, 0, canvas.width, canvas.height);
    } else if (fresh) {
      const shift = Math.round(fresh * each);
      context.drawImage(canvas, 0, 0, canvas.width, canvas.height - shift, 0, shift, canvas.width, canvas.height - shift);
    }
    for (let age = 0; age < fresh; age++) {
      const [top, bottom] = [Math.round(age * each), Math.round((age + 1) * each)];
      if (bottom > top) context.putImageData(image(rows[age], low, high, bottom - top), 0, top);
    }
  };
  const image = (row, low, high, height) => {
    const width = canvas.width;
    const made = context.createImageData(width, height);
    for (let x = 0; x < width; x++) {
      const first = Math.floor((x / width) * row.channels);
      const last = Math.max(first + 1, Math.ceil(((x + 1) / width) * row.channels));
      let value = 0;
      for (let at = first; at < last; at++) value = Math.max(value, row.values[at]);
      const level = (row.floor + row.step * value - low) / (high - low);
      const colour = 4 * Math.round(255 * Math.max(0, Math.min(1, level)));
      for (let y = 0; y < height; y++) made.data.set(colours.subarray(colour, colour + 4), 4 * (y * width + x));
    }
    return made;
  };
  return { add, draw, clear, close: () => {}, kind: "canvas" };
}
