import { expect, it } from 'vitest';
import { certificateOutcome } from '../../src/support/doctor/hub.ts';

it('hub.certificate: a public address of this machine needs none, one of the network does', () => {
  const place = { file: '/tmp/server.conf', storeDirectory: '/tmp', tls: null };
  const level = (publicUrl: string) =>
    certificateOutcome(publicUrl, place, { error: new Error('not looked at') }, 0).level;
  expect(level('nats://127.0.0.1:4222')).toBe('skipped');
  expect(level('nats://[::1]:4222')).toBe('skipped');
  expect(level('tls://hub.example.com:4222')).toBe('fail');
});
