// Rows of a live spectrum as the daemon sends them (docs/reference/rest.md#spectra), and numbers with their units.

/** Reads a row; null if the bytes are none. */
export function readRow(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < 64 || view.getUint32(0, false) !== 0x46425331) return null;
  const channels = view.getUint32(4, true);
  const states = view.getUint16(60, true);
  const flags = view.getUint16(62, true);
  if (buffer.byteLength !== 64 + 8 * states + channels) return null;
  const floats = (at) => Array.from({ length: states }, (_, n) => view.getFloat32(at + 4 * n, true));
  return {
    channels,
    time: Number(view.getBigInt64(8, true) / 1000n) / 1e6,
    first: view.getFloat64(16, true),
    spacing: view.getFloat64(24, true),
    floor: view.getFloat32(32, true),
    step: view.getFloat32(36, true),
    power: view.getFloat32(40, true),
    mean: view.getFloat32(44, true),
    transforms: view.getUint32(48, true),
    skipped: view.getUint32(52, true),
    thread: view.getUint16(56, true),
    channel: view.getUint16(58, true),
    isHertz: (flags & 1) !== 0,
    ofFrames: (flags & 4) !== 0,
    measured: floats(64),
    expected: floats(64 + 4 * states),
    values: new Uint8Array(buffer, 64 + 8 * states, channels),
  };
}

/** The messages of a stored spectrum: a kind, a length, and the bytes, one after the other. */
export function readMessages(buffer) {
  const [view, found] = [new DataView(buffer), []];
  for (let at = 0; at + 5 <= buffer.byteLength; ) {
    const [kind, length] = [view.getUint8(at), view.getUint32(at + 1, true)];
    const bytes = buffer.slice(at + 5, at + 5 + length);
    found.push(kind === 84 ? new TextDecoder().decode(bytes) : bytes);
    at += 5 + length;
  }
  return found;
}

/** A frequency with its unit, in as many digits as tell two channels apart. */
export function frequency(row, channel) {
  const value = row.first + channel * row.spacing;
  if (!row.isHertz) return `${value.toFixed(4)} cycles/sample`;
  const [unit, size] = unitOf(Math.max(Math.abs(row.first), Math.abs(row.first + row.channels * row.spacing)));
  const digits = Math.max(0, Math.min(9, Math.ceil(-Math.log10(row.spacing / size)) + 1));
  return `${(value / size).toFixed(digits)} ${unit}`;
}

export const unitOf = (most) => [["GHz", 1e9], ["MHz", 1e6], ["kHz", 1e3]].find(([, size]) => most >= size) ?? ["Hz", 1];

export const decibels = (level) => (Number.isFinite(level) ? `${level.toFixed(1).replace("-", "−")} dB` : "–");

export const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 21);
