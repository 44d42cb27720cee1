import type { Random } from '../core/time.ts';

/** Draws a whole number from `min` to `max`, both included. */
export function drawInt(random: Random, min: number, max: number): number {
  return min + Math.floor(random.next() * (max - min + 1));
}

export function drawChance(random: Random, probability: number): boolean {
  return probability > 0 && random.next() < probability;
}

export function drawFrom<T>(random: Random, list: readonly T[]): T {
  const picked = list[Math.floor(random.next() * list.length)];
  if (picked === undefined) throw new RangeError('drawFrom needs a list that is not empty');
  return picked;
}

/** Draws lower-case hex digits, for ids and secrets of the sandbox only. */
export function drawHex(random: Random, digits: number): string {
  let text = '';
  while (text.length < digits) {
    text += Math.floor(random.next() * 0x1_0000_0000)
      .toString(16)
      .padStart(8, '0');
  }
  return text.slice(0, digits);
}

/** A small seeded generator (mulberry32), so that a run can be repeated with its seed. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0;
  return {
    next() {
      state = (state + 0x6d2b79f5) >>> 0;
      let t = Math.imul(state ^ (state >>> 15), 1 | state);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
    },
  };
}
