import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { openState } from '../../src/app/state.ts';
import { NO_WEBHOOK_MEMORY } from '../../src/platform/webhook-registration.ts';
import { FakeClock } from '../support/fake-clock.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(path.join(tmpdir(), 'tillsync-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

it('remembers the webhook across processes, and keeps what a failed change leaves', () => {
  const options = { path: path.join(directory, 'state.db'), clock: new FakeClock() };
  const first = openState(options);
  expect(first.webhook.read()).toEqual(NO_WEBHOOK_MEMORY);
  first.webhook.update((memory) => ({ ...memory, pending: ['new secret'] }));
  const second = openState(options);
  expect(second.webhook.read().pending).toEqual(['new secret']);
  expect(() =>
    second.webhook.update(() => {
      throw new RangeError('no');
    }),
  ).toThrow();
  expect(first.webhook.read().pending).toEqual(['new secret']);
  first.close();
  second.close();
});
