import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import { FakeClock } from '../support/fake-clock.ts';
import { helloOf } from '../support/hello.ts';
import { HubStore } from './chain-rig.ts';
import { InProcessServer } from './in-process.ts';

const MINUTES = 10;
const HELLO_EVERY_MS = 30_000;
const LOOK_EVERY_MS = 3_000;

const isQuiet = async (count: number) => {
  const clock = new FakeClock();
  const hub = new HubStore(clock, new InProcessServer());
  const names = Array.from({ length: count }, (_, i) => `B${i + 1}`);
  hub.configure(
    names.map((name) => `[[branches]]\nexternal_id = "${name}"\nsubsidiary_id = "s-${name}"\n`).join(''),
  );
  await hub.start();
  const files = ['mirror.db', 'state.db'].map(
    (name) => new Database(path.join(hub.directory, name), { readonly: true }),
  );
  onTestFinished(() => {
    for (const file of files) file.close();
  });
  const versions = () => files.map((file) => Number(file.pragma('data_version', { simple: true })));
  const epoch = hub.rows<{ epoch: string }>('SELECT epoch FROM _hub')[0]?.epoch ?? '';
  const places = new Map(names.map((name) => [name, { mark: 0, isStart: true }]));
  const hello = async (branch: string) => {
    const place = places.get(branch) ?? { mark: 0, isStart: true };
    const own = { instance: `i-${branch}`, line: `l-${branch}`, seq: 5 };
    const said = helloOf({ ...place, ...own, epoch });
    const answer = JSON.parse(
      (await hub.hub.answer(branch, 'hello', Buffer.from(JSON.stringify(said)))) ?? '{}',
    );
    expect(answer.refused).toBeUndefined();
    places.set(branch, { mark: answer.published, isStart: false });
  };
  const minute = async () => {
    let commits = [0, 0];
    for (let ms = 0; ms < 60_000; ms += LOOK_EVERY_MS) {
      const before = versions();
      for (const [i, name] of names.entries()) {
        if (ms % HELLO_EVERY_MS === Math.floor((i / count) * 10) * LOOK_EVERY_MS) await hello(name);
      }
      hub.services.state.hub.writeHeard(clock.nowMs());
      while (await hub.hub.publish());
      await clock.advance(LOOK_EVERY_MS);
      commits = versions().map((version, i) => (commits[i] ?? 0) + Number(version !== before[i]));
    }
    return commits;
  };
  // The first minutes are not counted, because the first hello of each branch is written to both databases.
  for (let i = 0; i < 3; i++) await minute();
  let [mirror, state] = [0, 0];
  for (let i = 0; i < MINUTES; i++) {
    const [ofMirror = 0, ofState = 0] = await minute();
    mirror += ofMirror;
    state += ofState;
  }
  expect(mirror).toBe(0);
  expect(state).toBe(MINUTES);
};

const TITLE = 'an idle hub with %i branches writes down once a minute that they are there';
it.each([10])(TITLE, isQuiet);
it.each([60])(TITLE, { tags: ['bulk'] }, isQuiet);
