/** A branch's private key is in its invitation alone: the hub has the public half. */

import { appendFileSync, readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { readInvitation } from '../../src/link/server-config.ts';
import { openWorkplace } from '../support/workplace.ts';

it('a hub keeps no key of a branch that it invites, in any of its files', async () => {
  const place = await openWorkplace(37);
  onTestFinished(() => place.close());
  appendFileSync(place.configFile, '\n[hub]\nnats = "nats://127.0.0.1:4222"\n');
  const written = await place.command('hub', 'server-config', path.join(place.directory, 'nats.conf'));
  expect(written.code, written.stderr).toBe(0);
  const invited = await place.command('branch', 'invite', 'B2', '--json');
  const { invitation } = JSON.parse(invited.stdout) as { invitation: string };
  const { seed } = readInvitation(invitation);
  expect(seed).toMatch(/^SU[A-Z2-7]{56}$/);
  const files = readdirSync(place.directory, { recursive: true, encoding: 'utf8' })
    .map((name) => path.join(place.directory, name))
    .filter((file) => statSync(file).isFile());
  expect(files.map((file) => path.basename(file))).toEqual(expect.arrayContaining(['state.db', 'nats.conf']));
  const publicKeys = readFileSync(path.join(place.directory, 'nats.conf'), 'utf8').match(
    /\bU[A-Z2-7]{55}\b/g,
  );
  expect(publicKeys?.length).toBeGreaterThan(0);
  for (const file of files) {
    const text = readFileSync(file, 'latin1');
    for (const secret of [seed, seed.slice(2, 40), invitation])
      expect(text.includes(secret), file).toBe(false);
  }
});
