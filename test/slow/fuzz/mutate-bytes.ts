import type { Dice } from './dice.ts';

/** Bytes that break parsers: invalid UTF-8, cut characters, byte order marks, line ends, quotes, brackets. */
const SPLINTERS: readonly Buffer[] = [
  Buffer.of(0x00),
  Buffer.of(0xff),
  Buffer.of(0xc3),
  Buffer.of(0xed, 0xa0, 0x80),
  Buffer.of(0xef, 0xbb, 0xbf),
  Buffer.of(0xff, 0xfe),
  Buffer.from('"'),
  Buffer.from('\\'),
  Buffer.from('\r\n'),
  Buffer.from('\u2028'),
  Buffer.from('{'),
  Buffer.from(']'),
  Buffer.from(','),
  Buffer.from(';'),
  Buffer.from('9'.repeat(40)),
  Buffer.from('1e999'),
  Buffer.from('\\ud800'),
  Buffer.from('"__proto__":'),
];

/** Changes the bytes in one to four ways: flips, cuts off, removes, doubles, moves or inserts some. */
export function mutateBytes(bytes: Buffer, dice: Dice): Buffer {
  let mutant = bytes;
  for (let blows = 1 + dice.below(4); blows > 0; blows--) mutant = blow(mutant, dice);
  return mutant;
}

function blow(bytes: Buffer, dice: Dice): Buffer {
  const at = dice.below(bytes.length + 1);
  const to = Math.min(bytes.length, at + 1 + dice.below(40));
  const [before, part, after] = [bytes.subarray(0, at), bytes.subarray(at, to), bytes.subarray(to)];
  switch (dice.below(6)) {
    case 0: {
      const flipped = Buffer.from(bytes);
      if (at < flipped.length) flipped[at] = (flipped[at] as number) ^ (1 << dice.below(8));
      return flipped;
    }
    case 1:
      return Buffer.from(before);
    case 2:
      return Buffer.concat([before, after]);
    case 3:
      return Buffer.concat([before, part, part, after]);
    case 4:
      return Buffer.concat([after, part, before]);
    default:
      return Buffer.concat([before, dice.pick(SPLINTERS), part, after]);
  }
}
