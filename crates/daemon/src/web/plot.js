// Curves and bars on a canvas, in the colours of the page.

/** Makes the pixels of a canvas those of the screen. Returns its context, and its size in CSS pixels. */
function prepared(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  fit(canvas);
  const context = canvas.getContext("2d");
  context.setTransform(canvas.width / Math.max(width, 1), 0, 0, canvas.height / Math.max(height, 1), 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, sans-serif";
  return { context, width, height };
}

/** True if the number of pixels has changed. */
export function fit(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const [wide, high] = [width, height].map((it) => Math.max(1, Math.round(it * devicePixelRatio)));
  if (canvas.width === wide && canvas.height === high) return false;
  [canvas.width, canvas.height] = [wide, high];
  return true;
}

export const palette = () => {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(["text", "soft", "line", "accent", "bad", "wait", "good"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
};

/** Round numbers from low to high, about `count` of them. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0) || !Number.isFinite(rough)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((it) => it * power).find((it) => it >= rough);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high + step * 1e-9; n++) found.push(n * step);
  return found;
}

/** How a tick is written: without digits that only rounding made. */
export const written = (value) => String(Number(value.toPrecision(9))).replace("-", "−");

/**
 * Curves over a common axis. `curves` have `values` and `colour`; `axis` names positions 0 to 1 below the plot; `marker` is a
 * place from 0 to 1.
 */
export function curves(canvas, { low, high, unit, curves, axis, marker }) {
  const { context, width, height } = prepared(canvas);
  const colours = palette();
  const [top, bottom] = [6, height - (axis.length ? 20 : 6)];
  const y = (level) => bottom - ((Math.max(low, Math.min(high, level)) - low) / (high - low)) * (bottom - top);
  context.lineWidth = 1;
  context.strokeStyle = colours.line;
  context.fillStyle = colours.soft;
  context.textBaseline = "bottom";
  for (const level of ticks(low, high, Math.max(2, (bottom - top) / 45))) {
    line(context, 0, y(level), width, y(level));
    context.fillText(`${written(level)} ${unit}`, 4, y(level) - 1);
  }
  context.textBaseline = "top";
  for (const { place, text } of axis) {
    const x = place * width;
    line(context, x, top, x, bottom);
    const wide = context.measureText(text).width;
    context.fillText(text, Math.max(2, Math.min(width - wide - 2, x - wide / 2)), bottom + 4);
  }
  for (const { values, colour, thin } of curves) {
    context.strokeStyle = colours[colour];
    context.lineWidth = thin ? 1 : 1.5;
    trace(context, values, width, y);
  }
  if (marker !== null && marker !== undefined) {
    context.strokeStyle = colours.wait;
    context.lineWidth = 1.5;
    line(context, marker * width, top, marker * width, bottom);
  }
}

function line(context, x0, y0, x1, y1) {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

/** A curve. Where several values share a pixel, it goes through the highest, so that no narrow line is lost. */
function trace(context, values, width, y) {
  const count = values.length;
  const each = Math.max(1, Math.floor(count / Math.max(width * devicePixelRatio, 1)));
  context.beginPath();
  for (let at = 0; at < count; at += each) {
    let most = -Infinity;
    for (let n = at; n < Math.min(at + each, count); n++) most = Math.max(most, values[n]);
    const x = ((at + Math.min(each, count - at) / 2) / count) * width;
    context.lineTo(x, y(most));
  }
  context.stroke();
}

/** Bars of fractions, with the expected ones as steps. */
export function bars(canvas, measured, expected) {
  const { context, width, height } = prepared(canvas);
  if (!measured.length) return;
  const colours = palette();
  const most = Math.max(...measured, ...expected) * 1.1 || 1;
  const [each, gap] = [width / measured.length, measured.length > 32 ? 0 : 3];
  context.fillStyle = colours.accent;
  measured.forEach((share, at) => {
    const high = (share / most) * (height - 4);
    context.fillRect(at * each + gap, height - high, Math.max(each - 2 * gap, 1), high);
  });
  context.strokeStyle = colours.wait;
  context.lineWidth = 2;
  context.beginPath();
  expected.forEach((share, at) => {
    const y = height - (share / most) * (height - 4);
    context.lineTo(at * each, y);
    context.lineTo((at + 1) * each, y);
  });
  context.stroke();
}
