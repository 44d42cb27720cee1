/** Tests src/orders/receiving/callback-route.ts. */

import crypto from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SecretGate } from '../../src/orders/receiving/callback-route.ts';

const gateOf = (secrets: string[]) => new SecretGate(() => secrets);

describe('SecretGate', () => {
  it('admits exactly the secrets that are valid', () => {
    const text = fc.string({ minLength: 1 });
    fc.assert(
      fc.property(fc.array(text, { minLength: 1, maxLength: 3 }), text, (secrets, offered) => {
        const ascii = (s: string) => Buffer.from(s, 'utf8').toString('latin1');
        const gate = gateOf(secrets);
        expect(gate.admits(ascii(offered))).toBe(secrets.includes(offered));
        for (const secret of secrets) expect(gate.admits(ascii(secret))).toBe(true);
      }),
    );
  });

  it('refuses a missing, empty, doubled or joined header', () => {
    const gate = gateOf(['s3cret']);
    for (const header of [undefined, '', ['s3cret'], ['s3cret', 's3cret'], 's3cret, s3cret', 's3cret '])
      expect(gate.admits(header)).toBe(false);
  });

  it('takes a secret beyond ASCII as the UTF-8 bytes on the wire', () => {
    expect(gateOf(['contraseña']).admits(Buffer.from('contraseña', 'utf8').toString('latin1'))).toBe(true);
  });

  it('without a secret admits nothing', () => {
    expect(gateOf([]).admits(undefined)).toBe(false);
    expect(gateOf([]).admits('anything')).toBe(false);
    expect(gateOf(['']).admits('')).toBe(false);
  });

  it('admits a missing header where callbacks without a secret are wanted, and no wrong one', () => {
    const gate = gateOf(['s3cret', '']);
    expect(gate.admits(undefined)).toBe(true);
    expect(gate.admits('s3cret')).toBe(true);
    for (const header of ['', 'wrong', ['s3cret'], []]) expect(gate.admits(header)).toBe(false);
  });

  it('follows a rotation from one request to the next', () => {
    const secrets = ['old'];
    const gate = gateOf(secrets);
    expect([gate.admits('old'), gate.admits('new')]).toEqual([true, false]);
    secrets.push('new');
    expect([gate.admits('old'), gate.admits('new')]).toEqual([true, true]);
    secrets.shift();
    expect([gate.admits('old'), gate.admits('new')]).toEqual([false, true]);
    secrets[0] = 'newer';
    expect([gate.admits('new'), gate.admits('newer')]).toEqual([false, true]);
  });

  it('does the same work whichever secret fits, however long the offer is', () => {
    // Durations vary too much to be tested. The test checks the reasons for a constant duration instead: all digests
    // are compared, and all have the same length.
    const original = crypto.timingSafeEqual;
    const lengths: number[] = [];
    crypto.timingSafeEqual = ((a: Buffer, b: Buffer) => {
      lengths.push(a.length, b.length);
      return original(a, b);
    }) as typeof original;
    try {
      // This call makes ES imports of built-in modules use the replaced function.
      process.getBuiltinModule('node:module').syncBuiltinESMExports();
      const gate = gateOf(['first', 'second']);
      for (const offer of ['first', 'second', 'neither', 'x'.repeat(10_000), '']) {
        lengths.length = 0;
        gate.admits(offer);
        expect(lengths).toEqual([32, 32, 32, 32]);
      }
    } finally {
      crypto.timingSafeEqual = original;
      process.getBuiltinModule('node:module').syncBuiltinESMExports();
    }
  });
});
