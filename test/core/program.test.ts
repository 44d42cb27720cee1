import type { ChildProcess } from 'node:child_process';
import diagnostics from 'node:diagnostics_channel';
import { expect, it, onTestFinished } from 'vitest';
import { runProgram } from '../../src/core/program.ts';

const run = (command: string[], variables: Record<string, string> = {}) =>
  runProgram(command, {
    input: '',
    env: process.env,
    variables,
    timeoutMs: 60_000,
    signal: new AbortController().signal,
  });

it.each([
  ['a NUL', 'Order 7\u0000 of\u001b[2J nobody', 'Order 7  of [2J nobody'],
  ['two lines', 'one\ntwo', 'one\ntwo'],
  ['a megabyte', 'x'.repeat(1_000_000), `${'x'.repeat(900)}…`],
])('gives foreign text with %s to a program all the same', async (_what, value, end) => {
  const { ok, printed } = await run(['/bin/sh', '-c', 'printf %s "$DETAIL"'], { DETAIL: value });
  expect(ok).toBe(true);
  expect(printed.endsWith(end)).toBe(true);
});

it('says of a program that the system does not take that it cannot be started', async () => {
  expect(await run(['/bin/echo', 'a\u0000b'])).toMatchObject({
    ok: false,
    what: expect.stringMatching(/^cannot be started/),
  });
  expect((await run(['/nowhere/at-all'])).what).toMatch(/^cannot be started/);
});

it('takes a program for what its exit says, also where reading its words fails', async () => {
  const breakPipe = (message: unknown) => {
    const { process: child } = message as { process: ChildProcess };
    child.once('spawn', () => child.stderr?.destroy(new Error('EIO')));
  };
  diagnostics.subscribe('child_process', breakPipe);
  onTestFinished(() => void diagnostics.unsubscribe('child_process', breakPipe));
  expect(await run(['/bin/echo', 'told'])).toMatchObject({ ok: true, said: '', printed: 'told' });
});
