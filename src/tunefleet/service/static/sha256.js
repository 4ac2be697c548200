// SHA-256 of a file. The browser's own is faster, but takes a file as a whole, in memory, and is there
// on HTTPS and on this machine alone; other files are read in pieces.
"use strict";

const WHOLE_BYTES = 256 << 20;

function hex(numbers, digits) {
  return Array.from(numbers, (number) => number.toString(16).padStart(digits, "0")).join("");
}

const K = new Uint32Array(64);
const START = new Uint32Array(8);

// The first 32 bits of the fractional parts of roots of the first primes (FIPS 180-4, 4.2.2, 5.3.3).
for (let n = 2, count = 0; count < 64; n++) {
  let isPrime = true;
  for (let d = 2; d * d <= n; d++) if (n % d === 0) { isPrime = false; break; }
  if (!isPrime) continue;
  const bits = (root) => Math.floor((root - Math.floor(root)) * 2 ** 32);
  if (count < 8) START[count] = bits(Math.sqrt(n));
  K[count++] = bits(Math.cbrt(n));
}

class Sha256 {
  constructor() {
    this.state = START.slice();
    this.words = new Uint32Array(64);
    this.rest = new Uint8Array(64);
    this.left = 0;
    this.length = 0;
  }

  add(bytes) {
    this.length += bytes.length;
    let at = 0;
    if (this.left) {
      at = Math.min(64 - this.left, bytes.length);
      this.rest.set(bytes.subarray(0, at), this.left);
      this.left += at;
      if (this.left < 64) return;
      this.#block(new DataView(this.rest.buffer), 0);
      this.left = 0;
    }
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (; at + 64 <= bytes.length; at += 64) this.#block(view, at);
    this.left = bytes.length - at;
    this.rest.set(bytes.subarray(at));
  }

  // In hexadecimal digits; nothing can be added after it.
  end() {
    const bits = this.length * 8;
    const tail = new Uint8Array(this.left < 56 ? 64 - this.left : 128 - this.left);
    tail[0] = 0x80;
    const view = new DataView(tail.buffer);
    view.setUint32(tail.length - 8, Math.floor(bits / 2 ** 32));
    view.setUint32(tail.length - 4, bits >>> 0);
    this.add(tail);
    return hex(this.state, 8);
  }

  #block(view, at) {
    const w = this.words, s = this.state;
    for (let i = 0; i < 16; i++) w[i] = view.getUint32(at + 4 * i);
    for (let i = 16; i < 64; i++) {
      const x = w[i - 15], y = w[i - 2];
      const s0 = (x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3;
      const s1 = (y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10;
      w[i] = w[i - 16] + s0 + w[i - 7] + s1 | 0;
    }
    let a = s[0], b = s[1], c = s[2], d = s[3], e = s[4], f = s[5], g = s[6], h = s[7];
    for (let i = 0; i < 64; i++) {
      const s1 = (e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7);
      const t1 = h + s1 + (e & f ^ ~e & g) + K[i] + w[i] | 0;
      const s0 = (a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10);
      const t2 = s0 + (a & b ^ a & c ^ b & c) | 0;
      h = g; g = f; f = e; e = d + t1 | 0; d = c; c = b; b = a; a = t1 + t2 | 0;
    }
    s[0] += a; s[1] += b; s[2] += c; s[3] += d; s[4] += e; s[5] += f; s[6] += g; s[7] += h;
  }
}

// The digest of a file; `progress` is called with the share that was read.
async function sha256Of(file, progress) {
  if (globalThis.crypto.subtle && file.size <= WHOLE_BYTES) {
    return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer())), 2);
  }
  const state = new Sha256(), size = 4 << 20;
  for (let at = 0; at < file.size; at += size) {
    state.add(new Uint8Array(await file.slice(at, at + size).arrayBuffer()));
    progress(Math.min(1, (at + size) / file.size));
  }
  return state.end();
}
