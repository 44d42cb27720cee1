/** Tests src/outbox/intake/inbox-child.ts and src/outbox/intake/inbox-protocol.ts. */

import type { ChildProcess } from 'node:child_process';
import diagnostics from 'node:diagnostics_channel';
import { describe, expect, it, onTestFinished } from 'vitest';
import { InboxProcess } from '../../src/outbox/intake/inbox-process.ts';
import { insert, pos, tempInbox } from './temp-inbox.ts';

/** Makes an inbox whose first `deaths` processes are killed when they start, as by a kernel that lacks memory. */
function inboxThatDies(deaths: number) {
  const { path } = tempInbox();
  insert(pos(path), 'cola', 5);
  let started = 0;
  const kill = (message: unknown) => {
    const { process } = message as { process: ChildProcess };
    started += 1;
    if (started <= deaths) process.once('spawn', () => process.kill('SIGKILL'));
  };
  diagnostics.subscribe('child_process', kill);
  onTestFinished(() => void diagnostics.unsubscribe('child_process', kill));
  const inbox = new InboxProcess({ path, group: undefined });
  onTestFinished(() => inbox.close());
  return { look: () => inbox.ask({ do: 'health' }), started: () => started };
}

describe('InboxProcess', () => {
  it('asks a new process where the first one ended before its answer', async () => {
    const { look, started } = inboxThatDies(1);
    await look();
    expect(started()).toBe(2);
  });

  it('says that it ended twice, and asks a third when it is asked again', async () => {
    const { look, started } = inboxThatDies(2);
    await expect(look()).rejects.toMatchObject({
      code: 'storage-failed',
      message: expect.stringContaining('ended twice (SIGKILL)'),
    });
    await look();
    expect(started()).toBe(3);
  });
});
